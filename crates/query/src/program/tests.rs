//! The codec of programs: round trips, and input that is not a program.

#![allow(clippy::unwrap_used, reason = "test data is known")]
use super::types::{put_type, read_type};
use super::*;
use diorite_base::mutation::{EvaluationContext, Evaluator, TabletChanges};
use diorite_cql::language::ast::ComparisonOperator;
use diorite_model::row::Expiry;
use diorite_model::types::{CqlType, Frozen};
use proptest::prelude::*;
use std::sync::Arc;

mod growth;
mod plain;
mod records;
mod shown;
mod steps;
mod turns;

fn program() -> Program {
    let map = CqlType::Map(Arc::new(CqlType::Text), Arc::new(CqlType::Int), Frozen::No);
    let column = |part, test| ColumnTest { column: 300, is_static: true, data_type: map.clone(), part, test };
    Program {
        conditions: vec![
            RowCondition { partition: vec![1; 12], row: vec![2, 3], test: RowTest::NotExists },
            RowCondition {
                partition: vec![1; 12],
                row: Vec::new(),
                test: RowTest::Columns(vec![
                    column(TestedPart::Whole, ValueTest::In(vec![None, Some(vec![1])])),
                    column(
                        TestedPart::Element(vec![7]),
                        ValueTest::Compare(ComparisonOperator::GreaterOrEqual, Some(vec![0, 0, 0, 1])),
                    ),
                    column(TestedPart::Field(3), ValueTest::Contains(vec![1])),
                    column(TestedPart::Whole, ValueTest::ContainsKey(vec![1])),
                ]),
            },
        ],
        operations: vec![
            ProgramOperation::Row {
                is_overwrite: true,
                is_stamped: false,
                is_unplaced: false,
                key: vec![9],
                value: vec![8; 20],
            },
            ProgramOperation::Row {
                is_overwrite: false,
                is_stamped: true,
                is_unplaced: true,
                key: vec![9],
                value: vec![8; 20],
            },
            ProgramOperation::Delete { partition: vec![5; 9], range: None, explicit_us: Some(-4) },
            ProgramOperation::Delete {
                partition: vec![5; 9],
                range: Some((Vec::new(), vec![0xFF])),
                explicit_us: None,
            },
            ProgramOperation::List {
                key: vec![6; 10],
                partition_len: 9,
                column: 4,
                edit: ListEdit::Set(-1, Some(vec![1])),
                explicit_us: None,
                expiry: Some(Expiry { ttl_s: 5, at_s: 50 }),
            },
            ProgramOperation::List {
                key: vec![6; 10],
                partition_len: 9,
                column: 4,
                edit: ListEdit::Remove(vec![vec![], vec![1]]),
                explicit_us: Some(1),
                expiry: None,
            },
        ],
        dropped_columns: Vec::new(),
        turns: None,
        maintained: None,
    }
}

#[test]
fn programs_and_replies_round_trip() {
    for dropped_columns in [Vec::new(), vec![3, 300]] {
        let program = Program { dropped_columns, ..program() };
        assert_eq!(Program::decode(&program.encode()).unwrap(), program);
    }
    assert_eq!(program().encode()[0], 1, "what does not need the newer version stays readable to older nodes");
    let row = SeenRow { key: vec![1], deleted_us: 7, value: vec![2, 3] };
    let seen = Seen {
        now_s: 9,
        partition: vec![4],
        static_row: Some(row.clone()),
        rows: vec![row.clone(), row],
        is_cut: false,
    };
    let cut = Seen { is_cut: true, ..seen.clone() };
    for (reply, is_refusal) in [
        (ProgramReply::Applied, false),
        (ProgramReply::Failed("no".to_owned()), true),
        (ProgramReply::Refused(seen), true),
        (ProgramReply::Refused(cut), true),
    ] {
        assert_eq!(ProgramReply::decode(&reply.encode()).unwrap(), reply);
        assert_eq!(ProgramReply::is_refusal(&reply.encode()), is_refusal);
    }
    assert!(!ProgramReply::is_refusal(&[]) && !ProgramReply::is_refusal(&[9, 1]));
}

/// The ranges that are deleted.
#[derive(Default)]
struct Ranges(Vec<(Vec<u8>, Vec<u8>)>);

impl TabletChanges for Ranges {
    fn put(&mut self, _: &[u8], _: &[u8]) {}
    fn merge(&mut self, _: &[u8], _: &[u8]) {}
    fn delete(&mut self, _: &[u8]) {}
    fn delete_range(&mut self, start: &[u8], end: &[u8]) {
        self.0.push((start.to_vec(), end.to_vec()));
    }
    fn raise_flags(&mut self, _: u64) {}
    fn raise_stamps(&mut self, _: i64, _: i64) {}
}

#[test]
fn a_range_that_ends_before_it_begins_removes_no_rows() {
    let ranges = |first: u8, last: u8| {
        let range = Some((vec![first], vec![last]));
        let deletion = ProgramOperation::Delete { partition: vec![5; 9], range, explicit_us: None };
        // The first ones look for the rows that they remove.
        let program = Program { operations: vec![deletion; 100], ..Program::default() };
        let (context, mut ranges) = (EvaluationContext::new(5_000_000, i64::MIN), Ranges::default());
        TabletEvaluator.evaluate(&program.encode(), context, &steps::Tablet::default(), &mut ranges).unwrap();
        ranges.0.len()
    };
    assert!(ranges(1, 2) > 0);
    assert_eq!(ranges(2, 1), 0, "the storage refuses it");
}

#[test]
fn newer_versions_are_refused() {
    let mut bytes = program().encode();
    for version in [3, 4, 5] {
        bytes[0] = version;
        assert!(Program::decode(&bytes).is_err());
    }
}

#[test]
fn types_round_trip() {
    let nested = CqlType::Map(
        Arc::new(CqlType::Tuple(vec![CqlType::Int, CqlType::Duration].into())),
        Arc::new(CqlType::Vector(Arc::new(CqlType::Float), 3)),
        Frozen::Yes,
    );
    let mut out = Vec::new();
    put_type(&mut out, &nested);
    assert_eq!(read_type(&mut diorite_base::bytes::Reader::new(&out)).unwrap(), nested);
}

proptest! {
    #[test]
    fn no_input_panics(bytes: Vec<u8>) {
        let _ = Program::decode(&bytes);
        let _ = ProgramReply::decode(&bytes);
    }

    #[test]
    fn no_cut_or_changed_program_panics(cut in 0usize..400, at: usize, flip: u8) {
        let mut bytes = program().encode();
        bytes.truncate(cut);
        if !bytes.is_empty() {
            let at = at % bytes.len();
            bytes[at] ^= flip;
        }
        let _ = Program::decode(&bytes);
    }
}
