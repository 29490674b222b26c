//! The cost of programs: twice the work on twice the stored data takes little more than twice the steps.

use crate::program::{
    ColumnTest, ListEdit, PathStep, Program, ProgramOperation, ProgramReply, RowCondition, RowTest, TabletEvaluator,
    TestedPart, ValueTest,
};
use crate::steps;
use diorite_base::mutation::{EvaluationContext, EvaluationFailed, Evaluator, TabletChanges, TabletView};
use diorite_cql::language::ast::ComparisonOperator;
use diorite_model::deletions::DeletionsWriter;
use diorite_model::key;
use diorite_model::row::{Deletion, Marker, RowWriter, element_path, list_path_append};
use diorite_model::types::{CqlType, Frozen};
use std::cell::Cell;
use std::collections::BTreeMap;
use std::sync::Arc;

pub(super) const PARTITION: &[u8] = &[7; 12];
const LIST: u32 = 3;
const MAP: u32 = 4;
const DOCUMENT: u32 = 5;

/// A tablet that counts its reads.
#[derive(Default)]
pub(super) struct Tablet {
    pub(super) entries: BTreeMap<Vec<u8>, Vec<u8>>,
    pub(super) gets: Cell<usize>,
    pub(super) scans: Cell<usize>,
}

impl TabletView for Tablet {
    fn get(&self, key: &[u8]) -> Result<Option<Vec<u8>>, EvaluationFailed> {
        self.gets.set(self.gets.get() + 1);
        Ok(self.entries.get(key).cloned())
    }

    fn scan(&self, _: &[u8], _: &[u8], _: &mut dyn FnMut(&[u8], &[u8]) -> bool) -> Result<(), EvaluationFailed> {
        self.scans.set(self.scans.get() + 1);
        Ok(())
    }
}

/// Records merged values.
#[derive(Default)]
struct Merged(Vec<Vec<u8>>);

impl TabletChanges for Merged {
    fn merge(&mut self, _: &[u8], value: &[u8]) {
        self.0.push(value.to_vec());
    }
    fn put(&mut self, _: &[u8], _: &[u8]) {}
    fn delete(&mut self, _: &[u8]) {}
    fn delete_range(&mut self, _: &[u8], _: &[u8]) {}
    fn raise_flags(&mut self, _: u64) {}
    fn raise_stamps(&mut self, _: i64, _: i64) {}
}

pub(super) fn row_key(row: u32) -> Vec<u8> {
    let mut key = Vec::new();
    key::push_row(&mut key);
    key.extend_from_slice(&row.to_be_bytes());
    key
}

fn name(at: u32) -> String {
    format!("m{at:08}")
}

/// A row with a list of `count` numbers, a map of as many and a document with as many members.
fn tablet(count: u32) -> Tablet {
    let mut row = Vec::new();
    let mut writer = RowWriter::new(&mut row, 10);
    writer.begin_complex(LIST, None);
    (0..count).for_each(|at| writer.element(&list_path_append(9, 1, at), 10, None, &at.to_be_bytes()));
    writer.end_complex();
    writer.begin_complex(MAP, None);
    for at in 0..count {
        let mut path = Vec::new();
        element_path(&CqlType::Int, &at.to_be_bytes(), &mut path).unwrap();
        writer.element(&path, 10, None, &at.to_be_bytes());
    }
    writer.end_complex();
    let members: Vec<String> = (0..count).map(|at| format!("\"{}\":{at}", name(at))).collect();
    writer.cell(DOCUMENT, 10, None, format!("{{{}}}", members.join(",")).as_bytes());
    let mut tablet = Tablet::default();
    tablet.entries.insert([PARTITION, &row_key(0)].concat(), row);
    tablet
}

pub(super) fn run(program: &Program, tablet: &Tablet) -> (ProgramReply, Vec<Vec<u8>>, u64) {
    let context = EvaluationContext::new(50_000_000, i64::MIN);
    let (program, mut changes) = (program.encode(), Merged::default());
    let (reply, steps) = steps::of(|| TabletEvaluator.evaluate(&program, context, tablet, &mut changes).unwrap());
    (ProgramReply::decode(&reply).unwrap(), changes.0, steps)
}

/// Twice the size takes at most two and a half times the steps, and the program is applied.
fn assert_scales(what: &str, program: impl Fn(u32) -> Program) {
    let steps = |count| {
        let (reply, _, steps) = run(&program(count), &tablet(count));
        assert_eq!(reply, ProgramReply::Applied, "{what}");
        steps
    };
    let (small, large) = (steps(1_000), steps(2_000));
    assert!(large <= small * 5 / 2, "{what}: {small} steps, for twice as much {large}");
}

fn list(edit: ListEdit) -> ProgramOperation {
    let key = [PARTITION, &row_key(0)].concat();
    ProgramOperation::List { key, partition_len: PARTITION.len(), column: LIST, edit, explicit_us: None, expiry: None }
}

fn conditions(column: u32, data_type: &CqlType, tests: Vec<(TestedPart, ValueTest)>) -> Program {
    let column = |(part, test)| ColumnTest { column, is_static: false, data_type: data_type.clone(), part, test };
    let test = RowTest::Columns(tests.into_iter().map(column).collect());
    let condition = RowCondition { partition: PARTITION.to_vec(), row: row_key(0), test };
    Program { conditions: vec![condition], ..Program::default() }
}

fn bytes(at: u32) -> Vec<u8> {
    at.to_be_bytes().to_vec()
}

pub(super) fn equals(wanted: Vec<u8>) -> ValueTest {
    ValueTest::Compare(ComparisonOperator::Equal, Some(wanted))
}

#[test]
fn many_edits_of_a_long_list_are_not_quadratic() {
    assert_scales("one removal of many values", |count| Program {
        operations: vec![list(ListEdit::Remove((0..count).rev().map(bytes).collect()))],
        ..Program::default()
    });
    assert_scales("many removals of one value", |count| Program {
        operations: (0..count).map(|at| list(ListEdit::Remove(vec![bytes(at)]))).collect(),
        ..Program::default()
    });
    assert_scales("many elements set", |count| Program {
        operations: (0..count).map(|at| list(ListEdit::Set(at as i32, Some(bytes(1))))).collect(),
        ..Program::default()
    });
}

#[test]
fn many_conditions_on_a_large_collection_are_not_quadratic() {
    let int = Arc::new(CqlType::Int);
    let list = CqlType::List(Arc::clone(&int), Frozen::No);
    let map = CqlType::Map(Arc::clone(&int), int, Frozen::No);
    assert_scales("elements of a list", |count| {
        conditions(LIST, &list, (0..count).map(|at| (TestedPart::Element(bytes(at)), equals(bytes(at)))).collect())
    });
    assert_scales("entries of a map", |count| {
        conditions(MAP, &map, (0..count).map(|at| (TestedPart::Element(bytes(at)), equals(bytes(at)))).collect())
    });
    assert_scales("contains, of a list", |count| {
        conditions(LIST, &list, (0..count).map(|at| (TestedPart::Whole, ValueTest::Contains(bytes(at)))).collect())
    });
    assert_scales("contains key, of a map", |count| {
        conditions(MAP, &map, (0..count).map(|at| (TestedPart::Whole, ValueTest::ContainsKey(bytes(at)))).collect())
    });
    assert_scales("contains, of a map", |count| {
        conditions(MAP, &map, (0..count).map(|at| (TestedPart::Whole, ValueTest::Contains(bytes(at)))).collect())
    });
}

fn document(edits: Vec<(Vec<PathStep>, Vec<u8>)>) -> Program {
    let operation = ProgramOperation::Document {
        key: [PARTITION, &row_key(0)].concat(),
        partition_len: PARTITION.len(),
        column: DOCUMENT,
        edits,
        explicit_us: None,
        expiry: None,
    };
    Program { operations: vec![operation], ..Program::default() }
}

#[test]
fn many_questions_and_edits_of_a_large_document_are_not_quadratic() {
    let path = |at: u32| vec![PathStep::Member(name(at))];
    assert_scales("members asked for", |count| {
        let test = |at: u32| (TestedPart::Path(path(at), true), equals(at.to_string().into_bytes()));
        conditions(DOCUMENT, &CqlType::Jsonb, (0..count).map(test).collect())
    });
    assert_scales("members changed", |count| document((0..count).map(|at| (path(2 * at), b"true".to_vec())).collect()));
}

#[test]
fn a_row_and_a_header_are_read_once_for_all_conditions() {
    let mut tablet = Tablet::default();
    let mut header = PARTITION.to_vec();
    key::push_header(&mut header);
    let (mut deletions, mut packed) = (DeletionsWriter::default(), Vec::new());
    deletions.range(&5u32.to_be_bytes(), &9u32.to_be_bytes(), Deletion { timestamp_us: 20, local_s: 0 });
    deletions.finish(20, &mut packed);
    tablet.entries.insert(header, packed);
    for row in 0..100 {
        let mut value = Vec::new();
        RowWriter::new(&mut value, 10).marker(Marker { timestamp_us: 10, expiry: None });
        tablet.entries.insert([PARTITION, &row_key(row)].concat(), value);
    }
    let condition = |row: u32| RowCondition {
        partition: PARTITION.to_vec(),
        row: row_key(row % 100),
        test: if (5..9).contains(&(row % 100)) { RowTest::NotExists } else { RowTest::Exists },
    };
    let program = Program { conditions: (0..1_000).map(condition).collect(), ..Program::default() };
    assert_eq!(run(&program, &tablet).0, ProgramReply::Applied);
    assert_eq!(tablet.gets.get(), 101);
}

/// A batch names its rows in any order, again and again.
#[test]
fn large_rows_are_read_once_whatever_the_order_of_conditions_and_edits() {
    let mut tablet = Tablet::default();
    for row in 0..4 {
        let mut packed = Vec::new();
        let mut writer = RowWriter::new(&mut packed, 10);
        writer.cell(1, 10, None, &vec![7; 12 << 20]);
        writer.begin_complex(LIST, None);
        writer.element(&list_path_append(9, 1, 0), 10, None, b"a");
        writer.end_complex();
        tablet.entries.insert([PARTITION, &row_key(row)].concat(), packed);
    }
    let data_type = CqlType::List(Arc::new(CqlType::Text), Frozen::No);
    let condition = |at: u32| {
        let (part, test) = (TestedPart::Whole, ValueTest::Contains(if at == 90 { vec![0] } else { b"a".to_vec() }));
        let column = ColumnTest { column: LIST, is_static: false, data_type: data_type.clone(), part, test };
        RowCondition { partition: PARTITION.to_vec(), row: row_key(at % 4), test: RowTest::Columns(vec![column]) }
    };
    let edit = |at: u32| ProgramOperation::List {
        key: [PARTITION, &row_key(at % 4)].concat(),
        partition_len: PARTITION.len(),
        column: LIST,
        edit: ListEdit::Set(0, Some(bytes(at))),
        explicit_us: None,
        expiry: None,
    };
    let program = |tests| Program {
        conditions: (0..tests).map(condition).collect(),
        operations: (0..80).map(edit).collect(),
        ..Program::default()
    };
    let (reply, merged, _) = run(&program(80), &tablet);
    assert_eq!(reply, ProgramReply::Applied);
    let written: Vec<bool> = (0..80).map(|at| merged[at as usize].ends_with(&bytes(at))).collect();
    assert_eq!(written, [true; 80], "in the order of the program");
    let gets = tablet.gets.replace(0);
    assert!(gets <= 2 * 4 + 2, "{gets}");
    // The reply names the first condition that does not hold, not the first that was tested.
    let ProgramReply::Refused(seen) = run(&program(100), &tablet).0 else { panic!("it holds") };
    assert_eq!(seen.rows[0].key, row_key(90 % 4));
}

#[test]
fn values_are_found_by_index_as_by_walking() {
    // The first lookup scans, the next ones use the index; both find exactly the present elements, and removals take
    // all equal ones.
    let int = Arc::new(CqlType::Int);
    let map = CqlType::Map(Arc::clone(&int), int, Frozen::No);
    let tablet = tablet(10);
    for (wanted, holds) in [(0, true), (9, true), (10, false), (u32::MAX, false)] {
        let test = if holds { equals(bytes(wanted)) } else { ValueTest::Compare(ComparisonOperator::Equal, None) };
        let twice = vec![(TestedPart::Element(bytes(wanted)), test); 2];
        assert_eq!(run(&conditions(MAP, &map, twice), &tablet).0, ProgramReply::Applied, "{wanted}");
        let contains = vec![(TestedPart::Whole, ValueTest::ContainsKey(bytes(wanted))); 2];
        let is_applied = run(&conditions(MAP, &map, contains), &tablet).0 == ProgramReply::Applied;
        assert_eq!(is_applied, holds, "{wanted}");
    }
    let program = Program {
        operations: vec![list(ListEdit::Remove(vec![bytes(3), bytes(77), bytes(1), bytes(3)]))],
        ..Program::default()
    };
    let (_, merged, _) = run(&program, &tablet);
    let mut expected = Vec::new();
    let mut writer = RowWriter::new(&mut expected, 50_000_000);
    writer.begin_complex(LIST, None);
    for at in [1, 3] {
        let deletion = Deletion { timestamp_us: 50_000_000, local_s: 50 };
        writer.element_tombstone(&list_path_append(9, 1, at), deletion);
    }
    writer.end_complex();
    assert_eq!(merged, [expected]);
}

#[test]
fn edits_that_come_to_too_much_are_refused_as_a_whole() {
    let mut row = Vec::new();
    let mut writer = RowWriter::new(&mut row, 10);
    writer.begin_complex(LIST, None);
    (0..65_535).for_each(|at| writer.element(&list_path_append(9, 1, at), 10, None, b""));
    writer.end_complex();
    let mut tablet = Tablet::default();
    tablet.entries.insert([PARTITION, &row_key(0)].concat(), row);
    let program = |count| Program {
        operations: (0..count).map(|_| list(ListEdit::Remove(vec![Vec::new()]))).collect(),
        ..Program::default()
    };
    assert_eq!(run(&program(3), &tablet).0, ProgramReply::Applied);
    let (reply, changes, _) = run(&program(100), &tablet);
    assert!(matches!(&reply, ProgramReply::Failed(why) if why.contains("67108864 bytes")), "{reply:?}");
    assert!(changes.is_empty());
}

#[test]
fn an_edit_makes_no_document_that_cannot_be_read_again() {
    let deep = |depth: usize| [b"[".repeat(depth), b"]".repeat(depth)].concat();
    let path = vec![PathStep::Member(name(0))];
    assert_eq!(run(&document(vec![(path.clone(), deep(127))]), &tablet(1)).0, ProgramReply::Applied);
    let reply = run(&document(vec![(path, deep(128))]), &tablet(1)).0;
    assert!(matches!(&reply, ProgramReply::Failed(why) if why.contains("128 levels")), "{reply:?}");
}

#[test]
fn a_program_looks_for_what_it_deletes_a_bounded_number_of_times() {
    let delete = |at: u32| ProgramOperation::Delete {
        partition: PARTITION.to_vec(),
        range: Some((at.to_be_bytes().to_vec(), (at + 1).to_be_bytes().to_vec())),
        explicit_us: None,
    };
    let scans = |count| {
        let tablet = Tablet::default();
        let program = Program { operations: (0..count).map(delete).collect(), ..Program::default() };
        let (reply, merged, _) = run(&program, &tablet);
        assert_eq!((reply, merged.len()), (ProgramReply::Applied, count as usize), "each is in the header");
        tablet.scans.get()
    };
    assert_eq!((scans(10), scans(64), scans(5_000)), (10, 64, 64));
}

/// A tablet of which a brief scan gives up at once.
struct Removed(Tablet);

impl TabletView for Removed {
    fn get(&self, key: &[u8]) -> Result<Option<Vec<u8>>, EvaluationFailed> {
        self.0.get(key)
    }

    fn scan(&self, _: &[u8], _: &[u8], _: &mut dyn FnMut(&[u8], &[u8]) -> bool) -> Result<(), EvaluationFailed> {
        unreachable!("it may take long")
    }

    fn scan_briefly(
        &self,
        _: &[u8],
        _: &[u8],
        _: &mut dyn FnMut(&[u8], &[u8]) -> bool,
    ) -> Result<bool, EvaluationFailed> {
        Ok(false)
    }
}

/// Counts what is removed.
#[derive(Default)]
struct Removals {
    keys: usize,
    ranges: usize,
}

impl TabletChanges for Removals {
    fn merge(&mut self, _: &[u8], _: &[u8]) {}
    fn put(&mut self, _: &[u8], _: &[u8]) {}
    fn delete(&mut self, _: &[u8]) {
        self.keys += 1;
    }
    fn delete_range(&mut self, _: &[u8], _: &[u8]) {
        self.ranges += 1;
    }
    fn raise_flags(&mut self, _: u64) {}
    fn raise_stamps(&mut self, _: i64, _: i64) {}
}

#[test]
fn what_is_deleted_is_removed_whether_it_was_looked_for_or_not() {
    let delete = |at: u32| ProgramOperation::Delete {
        partition: PARTITION.to_vec(),
        range: Some((at.to_be_bytes().to_vec(), (at + 1).to_be_bytes().to_vec())),
        explicit_us: None,
    };
    let removed = |count: u32, view: &dyn TabletView| {
        let program = Program { operations: (0..count).map(delete).collect(), ..Program::default() };
        let context = EvaluationContext::new(50_000_000, i64::MIN);
        let mut changes = Removals::default();
        TabletEvaluator.evaluate(&program.encode(), context, view, &mut changes).unwrap();
        (changes.keys, changes.ranges)
    };
    assert_eq!(removed(64, &Tablet::default()), (0, 0), "nothing is there");
    assert_eq!(removed(70, &Tablet::default()), (0, 6), "nobody has looked");
    assert_eq!(removed(3, &Removed(Tablet::default())), (0, 3), "nobody has seen all");
}
