//! The rows that a refused program shows: bounded, and the same whatever dead data is stored.

use super::steps::{PARTITION, Tablet, equals, row_key, run};
use super::*;
use diorite_base::limits::{MAX_CONDITION_ROWS, MAX_SHOWN_BYTES};
use diorite_base::mutation::{EvaluationContext, EvaluationFailed, Evaluator, TabletChanges};
use diorite_base::program::{ProvenProgram, Unprovable};
use diorite_model::key;
use diorite_model::row::{Deletion, Marker, RowWriter};

const VALUE: u32 = 3;

fn condition(row: Vec<u8>, is_static: bool, wanted: &[u8]) -> RowCondition {
    let (part, test) = (TestedPart::Whole, equals(wanted.to_vec()));
    let column = ColumnTest { column: VALUE, is_static, data_type: CqlType::Blob, part, test };
    RowCondition { partition: PARTITION.to_vec(), row, test: RowTest::Columns(vec![column]) }
}

/// One condition for each of these rows.
fn program(rows: impl IntoIterator<Item = u32>, wanted: &[u8]) -> Program {
    let conditions = rows.into_iter().map(|row| condition(row_key(row), false, wanted)).collect();
    Program { conditions, ..Program::default() }
}

/// Rows whose values are this long.
fn tablet(rows: u32, bytes: usize) -> Tablet {
    let mut tablet = Tablet::default();
    for row in 0..rows {
        let mut packed = Vec::new();
        RowWriter::new(&mut packed, 10).cell(VALUE, 10, None, &vec![7; bytes]);
        tablet.entries.insert([PARTITION, &row_key(row)].concat(), packed);
    }
    tablet
}

fn refused(program: &Program, tablet: &Tablet) -> Seen {
    match run(program, tablet).0 {
        ProgramReply::Refused(seen) => seen,
        other => panic!("{other:?}"),
    }
}

#[test]
fn a_refused_batch_reads_and_shows_no_more_than_its_limit() {
    let tablet = tablet(1_000, 100 << 10);
    let seen = refused(&program(0..1_000, b"other"), &tablet);
    assert!(seen.is_cut);
    assert!(seen.size_bytes() <= MAX_SHOWN_BYTES + (200 << 10), "{}", seen.size_bytes());
    let shown: Vec<Vec<u8>> = seen.rows.iter().map(|row| row.key.clone()).collect();
    assert_eq!(shown, (0..11).map(row_key).collect::<Vec<_>>(), "the first in the order of their keys");
    assert!(tablet.gets.get() < 20, "{}", tablet.gets.get());
}

#[test]
fn the_row_of_the_condition_that_does_not_hold_is_shown_however_large_it_is() {
    let mut tablet = tablet(20, 2 * MAX_SHOWN_BYTES);
    let mut small = Vec::new();
    RowWriter::new(&mut small, 10).cell(VALUE, 10, None, b"a");
    tablet.entries.insert([PARTITION, &row_key(0)].concat(), small);
    let mut conditions = program([0], b"a").conditions;
    conditions.extend(program((1..20).rev(), b"a").conditions);
    let seen = refused(&Program { conditions, ..Program::default() }, &tablet);
    let shown: Vec<Vec<u8>> = seen.rows.iter().map(|row| row.key.clone()).collect();
    assert_eq!((shown, seen.is_cut), (vec![row_key(0), row_key(19)], true));
    let seen = refused(&program([5], b"a"), &tablet);
    assert_eq!((seen.rows.len(), seen.is_cut), (1, false));
}

#[test]
fn what_is_repeated_beside_each_row_counts() {
    let mut tablet = tablet(100, 10);
    let (mut static_key, mut packed) = (PARTITION.to_vec(), Vec::new());
    key::push_static(&mut static_key);
    RowWriter::new(&mut packed, 10).cell(8, 10, None, &vec![7; 300 << 10]);
    tablet.entries.insert(static_key, packed);
    let seen = refused(&program(0..100, b"a"), &tablet);
    assert_eq!((seen.rows.len(), seen.is_cut, seen.static_row.is_some()), (4, true, true));
}

/// Replicas compact, and purge dead data, each at its own time.
#[test]
fn a_refusal_does_not_depend_on_what_is_stored_beside_what_is_live() {
    let live = |writer: &mut RowWriter<'_>, row: u32| {
        writer.cell(VALUE, 10, None, format!("value {row}").as_bytes());
        writer.begin_complex(5, None);
        writer.element(b"a", 12, Some(Expiry { ttl_s: 100, at_s: 150 }), b"v");
    };
    let (mut compacted, mut as_written) = (Tablet::default(), Tablet::default());
    for row in 0..30 {
        let row_key = [PARTITION, &row_key(row)].concat();
        let mut packed = Vec::new();
        let mut writer = RowWriter::new(&mut packed, 12);
        live(&mut writer, row);
        writer.end_complex();
        compacted.entries.insert(row_key.clone(), packed);
        let mut packed = Vec::new();
        let mut writer = RowWriter::new(&mut packed, 10);
        writer.marker(Marker { timestamp_us: 3, expiry: Some(Expiry { ttl_s: 1, at_s: 4 }) });
        writer.deletion(Deletion { timestamp_us: 4, local_s: 1 });
        writer.cell(1, 3, None, &vec![9; 200 << 10]);
        writer.cell(2, 9, Some(Expiry { ttl_s: 2, at_s: 20 }), &vec![9; 200 << 10]);
        live(&mut writer, row);
        writer.element_tombstone(b"b", Deletion { timestamp_us: 9, local_s: 1 });
        writer.end_complex();
        writer.tombstone(6, Deletion { timestamp_us: 9, local_s: 1 });
        writer.cell(7, 11, None, &vec![9; 200 << 10]);
        as_written.entries.insert(row_key, packed);
    }
    let program = Program { dropped_columns: vec![7], ..program(0..30, b"other") };
    let seen = refused(&program, &compacted);
    assert_eq!((seen.rows.len(), seen.is_cut), (30, false));
    assert_eq!(refused(&program, &as_written), seen);
}

#[test]
fn conditions_on_static_columns_alone_search_for_no_row() {
    let tablet = tablet(100, 10);
    let program = Program { conditions: vec![condition(Vec::new(), true, b"a")], ..Program::default() };
    let seen = refused(&program, &tablet);
    assert_eq!((seen.rows.len(), seen.static_row.is_some(), tablet.scans.get()), (0, false, 0));
}

struct Written(usize);

impl TabletChanges for Written {
    fn merge(&mut self, _: &[u8], _: &[u8]) {
        self.0 += 1;
    }
    fn put(&mut self, _: &[u8], _: &[u8]) {}
    fn delete(&mut self, _: &[u8]) {}
    fn delete_range(&mut self, _: &[u8], _: &[u8]) {}
    fn raise_flags(&mut self, _: u64) {}
    fn raise_stamps(&mut self, _: i64, _: i64) {}
}

/// Logs may hold entries of earlier versions.
#[test]
fn conditions_on_too_many_rows_are_not_proposed_and_are_applied_where_they_were() {
    let most = MAX_CONDITION_ROWS as u32;
    let twice = Program {
        conditions: [program(0..most, b"a").conditions, program(0..most, b"a").conditions].concat(),
        ..Program::default()
    };
    assert!(ProvenProgram::new(&twice).is_ok(), "as many conditions on few rows as there is space for");
    let key = [PARTITION, &row_key(0)].concat();
    let row =
        ProgramOperation::Row { is_overwrite: false, is_stamped: false, is_unplaced: false, key, value: vec![1; 20] };
    let over = Program { operations: vec![row], ..program(0..=most, &[7; 10]) };
    let refusal = ProvenProgram::new(&over).unwrap_err();
    assert_eq!(refusal, ProvenProgram::read::<Program>(&over.encode()).unwrap_err());
    assert!(matches!(&refusal, Unprovable::Exceeds(exceeded) if exceeded.name == "CONDITION_ROWS"), "{refusal}");
    let tablet = tablet(most + 1, 10);
    let context = EvaluationContext::new(50_000_000, i64::MIN);
    let mut written = Written(0);
    let reply: Result<_, EvaluationFailed> = TabletEvaluator.evaluate(&over.encode(), context, &tablet, &mut written);
    assert_eq!((ProgramReply::decode(&reply.unwrap()).unwrap(), written.0), (ProgramReply::Applied, 1));
}
