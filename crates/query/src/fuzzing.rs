//! Fuzz targets for statements, programs and other bytes of this crate; `cargo test` replays their seeds.
//!
//! Always true: nothing panics; planned and proposed writes can be decoded and applied again; a program that decodes
//! has one encoding, and leaves rows that can be read. Left out: whether answers are right, which the differential and
//! conformance tests compare.

use crate::exec::paging::PagingState;
use crate::functions::arithmetic;
use crate::kv::several;
use crate::program::{Program, ProgramReply, TabletEvaluator};
use crate::testing::Database;
use diorite_base::bytes::Reader;
use diorite_base::mutation::{EvaluationContext, EvaluationFailed, Evaluator, TabletChanges, TabletView};
use diorite_base::program;
use diorite_cql::language::ast::ArithmeticOperator;
use diorite_model::row::{RowReader, RowWriter};
use diorite_model::types::CqlType;
use diorite_model::{deletions, entry};
use std::collections::BTreeMap;

/// The schema that statements meet.
const SCHEMA: &[&str] = &[
    "CREATE TYPE address (street text, numbers list<int>)",
    "CREATE TABLE plain (k int PRIMARY KEY, v text, n int)",
    "CREATE TABLE wide (p int, c int, d text, s int STATIC, v blob, PRIMARY KEY (p, c, d))",
    "CREATE TABLE held (k text PRIMARY KEY, l list<int>, t set<text>, m map<text, bigint>, a frozen<address>, x decimal, j jsonb)",
    "CREATE TABLE counted (k int PRIMARY KEY, n counter)",
    "INSERT INTO plain (k, v, n) VALUES (1, 'one', 1)",
    "INSERT INTO wide (p, c, d, s, v) VALUES (1, 1, 'a', 5, 0xff)",
    "INSERT INTO wide (p, c, d, v) VALUES (1, 2, 'b', 0x00)",
    "INSERT INTO held (k, l, t, m, x) VALUES ('a', [1, 2], {'x'}, {'y': 1}, 1.5)",
];

/// Runs arbitrary text, one statement per line, on a small database: statements that parse are planned, proposed,
/// encoded, decoded and applied.
///
/// # Panics
///
/// If a statement panics at any step.
pub fn statements(input: &[u8]) {
    let Ok(text) = std::str::from_utf8(input) else { return };
    // A database costs more than most statements: without one that parses there is no use in it.
    if !text.lines().any(|line| diorite_cql::language::parse(line).is_ok()) {
        return;
    }
    let database = Database::with_keyspace();
    for statement in SCHEMA {
        database.run(statement).unwrap_or_else(|error| panic!("{statement}: {error:?}"));
    }
    for line in text.lines() {
        let _ = database.prepare(line);
        let _ = database.run(line);
    }
}

/// A tablet in memory.
#[derive(Default)]
struct Rows(BTreeMap<Vec<u8>, Vec<u8>>);

impl TabletView for Rows {
    fn get(&self, key: &[u8]) -> Result<Option<Vec<u8>>, EvaluationFailed> {
        Ok(self.0.get(key).cloned())
    }

    fn scan(
        &self,
        start: &[u8],
        end: &[u8],
        visit: &mut dyn FnMut(&[u8], &[u8]) -> bool,
    ) -> Result<(), EvaluationFailed> {
        if start < end {
            let mut found = self.0.range::<[u8], _>((std::ops::Bound::Included(start), std::ops::Bound::Excluded(end)));
            found.all(|(key, value)| visit(key, value));
        }
        Ok(())
    }
}

/// The writes of a program.
#[derive(Default)]
struct Written(Vec<Vec<u8>>);

impl TabletChanges for Written {
    fn put(&mut self, _key: &[u8], value: &[u8]) {
        self.0.push(value.to_vec());
    }

    fn merge(&mut self, _key: &[u8], value: &[u8]) {
        self.0.push(value.to_vec());
    }

    fn delete(&mut self, _key: &[u8]) {}

    fn delete_range(&mut self, _start: &[u8], _end: &[u8]) {}

    fn raise_flags(&mut self, _flags: u64) {}

    fn raise_stamps(&mut self, _newest_us: i64, _newest_explicit_us: i64) {}
}

/// The rows that programs of the seeds read: keys of one and two bytes.
fn stored() -> Rows {
    let mut rows = Rows::default();
    for key in [vec![1], vec![1, 0], vec![1, 2], vec![1, 2, 3], vec![2]] {
        let mut value = Vec::new();
        let mut writer = RowWriter::new(&mut value, 1_000);
        writer.cell(1, 1_000, None, &[0, 0, 0, 7]);
        writer.begin_complex(2, None);
        writer.element(&[0x80; 16], 1_000, None, b"an element");
        writer.end_complex();
        rows.0.insert(key, value);
    }
    rows
}

/// Decodes arbitrary bytes as a program and runs it.
///
/// # Panics
///
/// If a program has two encodings, something else is taken for one that only writes rows, one that would be proposed fails
/// on an empty tablet, its reply cannot be read, or it writes values that cannot be folded.
pub fn programs(input: &[u8]) {
    let rows = stored();
    let mut written = Written::default();
    let decoded = Program::decode(input);
    assert!(TabletEvaluator.reads(input) || decoded.is_ok(), "what is run from its bytes is a program");
    if let Ok(program) = decoded {
        assert_eq!(Program::decode(&program.encode()).as_ref(), Ok(&program), "a program comes back as it went in");
    }
    let context = EvaluationContext::new(1_700_000_000_000_000, 5);
    // The parts of a program in turns read what those before them wrote, which may be of another type.
    if program::decode::<Program>(input).is_ok_and(|program| program.turns.is_none()) {
        let evaluated = TabletEvaluator.evaluate(input, context, &Rows::default(), &mut Written::default());
        assert!(evaluated.is_ok(), "no replica stops at what is proposed: {evaluated:?}");
    }
    let Ok(reply) = TabletEvaluator.evaluate(input, context, &rows, &mut written) else { return };
    assert!(ProgramReply::decode(&reply).is_ok(), "a reply can be read");
    for value in &written.0 {
        let mut folded = Vec::new();
        if RowReader::new(value).is_ok() || deletions::Deletions::decode(value).is_ok() {
            let _ = entry::fold(None, [value.as_slice()], &mut folded);
        }
    }
}

/// Reads arbitrary bytes as the position between two pages, the spans of a read and a program's reply.
///
/// # Panics
///
/// If a value encodes to other bytes than it was read from.
pub fn positions(input: &[u8]) {
    if let Ok(state) = PagingState::decode(input) {
        assert_eq!(PagingState::decode(&state.encode()).ok(), Some(state));
    }
    if let Ok(reply) = ProgramReply::decode(input) {
        assert_eq!(ProgramReply::decode(&reply.encode()), Ok(reply));
    }
    let spans: Result<Vec<_>, _> = several::decode(input).collect();
    if let Ok(spans) = spans {
        let again: Result<Vec<_>, _> = several::decode(&several::encode(&spans)).collect();
        assert_eq!(again.ok(), Some(spans), "spans come back as they went in");
    }
}

/// Calculates with arbitrary numbers: a byte for the operator, one for each type, then two values, the first with its length before it.
///
/// # Panics
///
/// If a result is not a valid value of its type.
pub fn numbers(input: &[u8]) {
    const OPERATORS: [ArithmeticOperator; 5] = [
        ArithmeticOperator::Add,
        ArithmeticOperator::Subtract,
        ArithmeticOperator::Multiply,
        ArithmeticOperator::Divide,
        ArithmeticOperator::Modulo,
    ];
    const TYPES: [CqlType; 11] = [
        CqlType::Tinyint,
        CqlType::Smallint,
        CqlType::Int,
        CqlType::Bigint,
        CqlType::Varint,
        CqlType::Decimal,
        CqlType::Float,
        CqlType::Double,
        CqlType::Timestamp,
        CqlType::Date,
        CqlType::Duration,
    ];
    let Some((&[operator, left, right], values)) = input.split_first_chunk::<3>() else { return };
    let operator = OPERATORS[usize::from(operator) % OPERATORS.len()];
    let (left, right) = (&TYPES[usize::from(left) % TYPES.len()], &TYPES[usize::from(right) % TYPES.len()]);
    let mut reader = Reader::new(values);
    let Ok(first) = reader.slice() else { return };
    let second = reader.rest();
    if left.validate(first).is_err() || right.validate(second).is_err() {
        return;
    }
    if let Ok(Some(negative)) = arithmetic::negate(left, first) {
        assert!(left.validate(&negative).is_ok(), "{left:?} {first:?}");
    }
    for to in &TYPES {
        if crate::functions::is_castable(left, to)
            && let Ok(Some(value)) = crate::functions::cast(left, to, first)
        {
            assert!(to.validate(&value).is_ok(), "{left:?} {first:?} as {to:?}");
        }
    }
    let Some(result) = arithmetic::result_type(operator, left, right) else { return };
    if let Ok(Some(value)) = arithmetic::apply(operator, (left, first), (right, second)) {
        assert!(result.validate(&value).is_ok(), "{operator:?} {left:?} {first:?} {right:?} {second:?}");
    }
}

#[cfg(test)]
mod tests {
    use diorite_seeds::replay;

    #[test]
    fn the_seeds_of_statements() {
        replay("statements", super::statements);
    }

    #[test]
    fn the_seeds_of_programs() {
        replay("programs", super::programs);
    }

    #[test]
    fn the_seeds_of_positions() {
        replay("positions", super::positions);
    }

    #[test]
    fn the_seeds_of_numbers() {
        replay("numbers", super::numbers);
    }
}
