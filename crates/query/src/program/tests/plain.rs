//! Programs that only write rows: read from their bytes, they do what they do decoded.

use super::steps::Tablet;
use crate::program::evaluate::Run;
use crate::program::plain::PlainRows;
use crate::program::{Maintained, Program, ProgramOperation, RowCondition, RowTest, TabletEvaluator, Turn, targets_of};
use diorite_base::mutation::{EvaluationContext, Evaluator, TabletChanges};
use diorite_model::row::{RowWriter, UNSTAMPED, unplaced_list_path_append};

/// What is put (`true`) and merged, in order.
#[derive(Debug, Default, PartialEq)]
struct Written(Vec<(bool, Vec<u8>, Vec<u8>)>);

impl TabletChanges for Written {
    fn put(&mut self, key: &[u8], value: &[u8]) {
        self.0.push((true, key.to_vec(), value.to_vec()));
    }
    fn merge(&mut self, key: &[u8], value: &[u8]) {
        self.0.push((false, key.to_vec(), value.to_vec()));
    }
    fn delete(&mut self, _: &[u8]) {}
    fn delete_range(&mut self, _: &[u8], _: &[u8]) {}
    fn raise_flags(&mut self, _: u64) {}
    fn raise_stamps(&mut self, _: i64, _: i64) {}
}

/// A row with an element of a list whose place the log decides.
fn appending() -> Vec<u8> {
    let mut value = Vec::new();
    let mut writer = RowWriter::new(&mut value, UNSTAMPED);
    writer.begin_complex(2, None);
    writer.element(&unplaced_list_path_append(0), UNSTAMPED, None, b"an element");
    writer.end_complex();
    value
}

fn row(is_overwrite: bool, is_stamped: bool, is_unplaced: bool) -> ProgramOperation {
    let key = vec![7 + u8::from(is_overwrite) + 2 * u8::from(is_unplaced); 12];
    ProgramOperation::Row { is_overwrite, is_stamped, is_unplaced, key, value: appending() }
}

fn plain(maintained: Option<Maintained>) -> Program {
    let operations = vec![row(true, true, false), row(false, true, true), row(false, true, false)];
    Program { operations, maintained, ..Program::default() }
}

#[test]
fn rows_are_written_and_locked_as_those_of_the_decoded_program() {
    let tablet = Tablet::default();
    for newest_explicit_us in [i64::MIN, i64::MAX] {
        for maintained in [None, Some(Maintained { version: 300, guards: Vec::new() })] {
            let program = plain(maintained);
            let (encoded, context) = (program.encode(), EvaluationContext::new(5_000_000, newest_explicit_us));
            assert!(PlainRows::of(&encoded).is_some() && !TabletEvaluator.reads(&encoded));
            let (mut as_bytes, mut decoded) = (Written::default(), Written::default());
            let reply = TabletEvaluator.evaluate(&encoded, context, &tablet, &mut as_bytes).unwrap();
            let is_placed = |value: &[u8]| !value.windows(16).any(|path| path == unplaced_list_path_append(0));
            let placed: Vec<bool> = as_bytes.0.iter().map(|(_, _, value)| is_placed(value)).collect();
            assert_eq!(placed, [false, true, false]);
            let expected = Run::new(&program, context, &tablet).program(&program, &mut decoded).unwrap();
            assert_eq!((reply, as_bytes), (expected.encode(), decoded));

            let (mut seen, mut locked) = (Vec::new(), Vec::new());
            TabletEvaluator.targets(&encoded, &mut |key, end| seen.push((key.to_vec(), end.is_some()))).unwrap();
            targets_of(&program, &mut |key, end| locked.push((key.to_vec(), end.is_some())));
            assert_eq!(seen, locked);
            assert!((0..encoded.len()).all(|cut| PlainRows::of(&encoded[..cut]).is_none()));
        }
    }
}

#[test]
fn what_reads_or_has_a_timestamp_of_its_own_is_decoded() {
    let is_plain = |program: &Program| PlainRows::of(&program.encode()).is_some();
    let condition = || RowCondition { partition: vec![1; 12], row: vec![2, 3], test: RowTest::NotExists };
    let guarded = Maintained { version: 3, guards: vec![condition()] };
    let deletion = ProgramOperation::Delete { partition: vec![5; 9], range: None, explicit_us: None };
    assert!(is_plain(&plain(None)));
    assert!(!is_plain(&plain(Some(guarded))));
    assert!(!is_plain(&Program { conditions: vec![condition()], ..plain(None) }));
    assert!(!is_plain(&Program { operations: vec![deletion], ..plain(None) }));
    assert!(!is_plain(&Program { operations: vec![row(true, false, false)], ..plain(None) }));
    assert!(!is_plain(&Program { turns: Some(vec![Turn::Operation; 3]), ..plain(None) }));
}

#[test]
fn what_has_no_room_for_its_stamp_or_is_no_row_is_never_locked() {
    let refused = |key: &[u8], bytes: usize| {
        let (key, mut value) = (key.to_vec(), Vec::new());
        let _: RowWriter<'_> = RowWriter::new(&mut value, UNSTAMPED);
        value.truncate(bytes);
        let row = ProgramOperation::Row { is_overwrite: false, is_stamped: true, is_unplaced: false, key, value };
        let program = Program { operations: vec![row], ..Program::default() };
        let in_turns = Program { turns: Some(vec![Turn::Operation]), ..program.clone() };
        [program.encode(), in_turns.encode()].map(|encoded| {
            let is_refused = TabletEvaluator.targets(&encoded, &mut |_, _| {}).is_err();
            assert!(!is_refused || PlainRows::of(&encoded).is_none_or(|rows| rows.checked().is_err()));
            is_refused
        })
    };
    assert_eq!(refused(&[7; 12], 9), [false; 2]);
    assert_eq!(refused(&[7; 12], 8), [true; 2]);
    assert_eq!(refused(&[0; 12], 9), [true; 2], "a record of the tablet");
}

/// What is taken for rows decodes to these rows and nothing else; returns whether it is.
fn is_taken_for_rows(bytes: &[u8]) -> bool {
    let Some(rows) = PlainRows::of(bytes) else { return false };
    let program = Program::decode(bytes).unwrap();
    let is_stamped_row =
        |operation: &ProgramOperation| matches!(operation, ProgramOperation::Row { is_stamped: true, .. });
    assert!(program.operations.iter().all(is_stamped_row));
    assert!(program.conditions.is_empty() && program.turns.is_none() && program.dropped_columns.is_empty());
    assert!(program.maintained.as_ref().is_none_or(|maintained| maintained.guards.is_empty()));
    let (mut seen, mut locked) = (Vec::new(), Vec::new());
    rows.targets(&mut |key, _| seen.push(key.to_vec()));
    targets_of(&program, &mut |key, _| locked.push(key.to_vec()));
    assert_eq!(seen, locked);
    true
}

/// Versions, kinds, flags, counts and lengths, and what is none.
const BYTES: [u8; 12] = [0, 1, 2, 3, 4, 5, 7, 8, 12, 0x7f, 0x80, 0xff];

#[test]
fn no_changed_program_is_taken_for_another_one() {
    for maintained in [None, Some(Maintained { version: 300, guards: Vec::new() })] {
        let encoded = plain(maintained).encode();
        assert!(is_taken_for_rows(&encoded));
        for (at, byte) in (0..encoded.len()).flat_map(|at| BYTES.map(|byte| (at, byte))) {
            let mut changed = encoded.clone();
            changed[at] = byte;
            is_taken_for_rows(&changed);
            changed.insert(at, byte);
            is_taken_for_rows(&changed);
        }
        assert!(!is_taken_for_rows(&[&encoded[..], &[0]].concat()), "a byte more");
    }
    let most_operations = [&[1, 0][..], &[0xff; 9], &[1]].concat();
    assert!(!is_taken_for_rows(&most_operations));
}
