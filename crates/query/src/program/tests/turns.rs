//! Programs whose parts follow one another: their bytes, and what they change.

use super::steps::{PARTITION, Tablet, row_key};
use crate::program::{
    Change, ListEdit, Outcome, Program, ProgramOperation, ProgramReply, RowCondition, RowTest, Seen, TabletEvaluator,
    Turn, evaluate,
};
use diorite_base::mutation::{EvaluationContext, Evaluator};
use diorite_base::program::ProvenProgram;
use diorite_model::entry;
use diorite_model::row::{Deletion, Expiry, LiveContent, LiveRow, Marker, NOTHING_DELETED, RowWriter, UNSTAMPED};
use diorite_model::types::CqlType;
use proptest::prelude::*;

const NUMBER: u32 = 1;
const STAMP_US: i64 = 1_700_000_000_000_000;
const CONTEXT: EvaluationContext = EvaluationContext::new(STAMP_US, 5);

fn key(row: u32) -> Vec<u8> {
    [PARTITION, &row_key(row)].concat()
}

fn sum(row: u32, data_type: CqlType, subtracts: bool, number: &[u8]) -> ProgramOperation {
    let (key, number) = (key(row), number.to_vec());
    let partition_len = PARTITION.len();
    ProgramOperation::Sum { key, partition_len, column: NUMBER, data_type, subtracts, number, expiry: None }
}

fn number(row: u32, value: i32) -> ProgramOperation {
    let mut packed = Vec::new();
    let mut writer = RowWriter::new(&mut packed, UNSTAMPED);
    writer.marker(Marker { timestamp_us: UNSTAMPED, expiry: None });
    writer.cell(NUMBER, UNSTAMPED, None, &value.to_be_bytes());
    ProgramOperation::Row { is_overwrite: false, is_stamped: true, is_unplaced: false, key: key(row), value: packed }
}

fn deleted(row: u32) -> ProgramOperation {
    let mut packed = Vec::new();
    RowWriter::new(&mut packed, UNSTAMPED).deletion(Deletion { timestamp_us: UNSTAMPED, local_s: 9 });
    ProgramOperation::Row { is_overwrite: true, is_stamped: true, is_unplaced: false, key: key(row), value: packed }
}

fn range(first: u32, last: u32) -> ProgramOperation {
    let range = Some((first.to_be_bytes().to_vec(), last.to_be_bytes().to_vec()));
    ProgramOperation::Delete { partition: PARTITION.to_vec(), range, explicit_us: None }
}

fn condition(row: u32, test: RowTest) -> RowCondition {
    RowCondition { partition: PARTITION.to_vec(), row: row_key(row), test }
}

/// Operations, each in its turn.
fn in_turns(operations: Vec<ProgramOperation>) -> Program {
    let turns = Some(vec![Turn::Operation; operations.len()]);
    Program { operations, turns, ..Program::default() }
}

/// One of every kind of turn.
fn full() -> Program {
    let list = ProgramOperation::List {
        key: key(1),
        partition_len: PARTITION.len(),
        column: 4,
        edit: ListEdit::Remove(vec![vec![1]]),
        explicit_us: None,
        expiry: Some(Expiry { ttl_s: 5, at_s: 50 }),
    };
    let operations = vec![
        sum(1, CqlType::Int, true, &[0, 0, 0, 5]),
        list,
        sum(1, CqlType::Decimal, false, &[0, 0, 0, 2, 1]),
        range(1, 7),
    ];
    let conditions = vec![condition(1, RowTest::Exists), condition(2, RowTest::NotExists)];
    let (operation, same) = (Turn::Operation, Turn::SameStatement);
    let turns = vec![Turn::ConditionElseError, operation, same, Turn::Condition, operation, operation];
    Program { conditions, operations, dropped_columns: vec![3, 300], turns: Some(turns), maintained: None }
}

#[test]
fn they_round_trip_as_version_4() {
    for program in [full(), Program { dropped_columns: Vec::new(), ..full() }, in_turns(Vec::new())] {
        let bytes = program.encode();
        assert_eq!(bytes[0], 4);
        assert_eq!(Program::decode(&bytes).unwrap(), program);
        assert!(ProvenProgram::new(&program).is_ok());
    }
}

#[test]
fn what_is_not_a_program_in_turns_is_refused() {
    let first = Program { turns: Some(vec![Turn::SameStatement]), ..in_turns(vec![number(1, 1)]) };
    assert!(ProvenProgram::new(&first).is_err(), "no statement to be part of");
    let at_once = Program { turns: None, ..in_turns(vec![sum(1, CqlType::Int, false, &[0, 0, 0, 1])]) };
    assert!(ProvenProgram::new(&at_once).is_err(), "earlier versions have no sums");
    let text = in_turns(vec![sum(1, CqlType::Text, false, b"a")]);
    assert!(Program::decode(&text.encode()).is_err(), "no number");
    let counter = in_turns(vec![sum(1, CqlType::Counter, false, &[0; 8])]);
    assert!(Program::decode(&counter.encode()).is_err(), "counters are summed otherwise");
}

fn tablet(rows: &[(u32, i32)]) -> Tablet {
    let mut tablet = Tablet::default();
    for (row, value) in rows {
        let mut packed = Vec::new();
        let mut writer = RowWriter::new(&mut packed, 10);
        writer.marker(Marker { timestamp_us: 10, expiry: None });
        writer.cell(NUMBER, 10, None, &value.to_be_bytes());
        tablet.entries.insert(key(*row), packed);
    }
    tablet
}

/// The number in a row once the changes are made.
fn number_in(tablet: &Tablet, changes: &[Change], row: u32) -> Option<i32> {
    let mut stored = tablet.entries.get(&key(row)).cloned();
    for change in changes {
        match change {
            Change::Merge(of, value) if *of == key(row) => {
                let mut folded = Vec::new();
                entry::fold(stored.as_deref(), [value.as_slice()], &mut folded).unwrap();
                stored = Some(folded);
            }
            Change::DeleteRange(start, end) if (start..end).contains(&&key(row)) => stored = None,
            _ => {}
        }
    }
    let stored = stored?;
    let live = LiveRow::new(&stored, 1_700_000_000, NOTHING_DELETED).unwrap();
    match live.cell(NUMBER).unwrap()?.content {
        LiveContent::Value(bytes) => Some(i32::from_be_bytes(bytes.try_into().unwrap())),
        _ => None,
    }
}

#[test]
fn what_a_program_would_do_is_told_without_doing_it_and_is_the_same_each_time() {
    let tablet = tablet(&[(1, 40), (2, 7)]);
    let one = 1i32.to_be_bytes();
    let program = in_turns(vec![
        sum(1, CqlType::Int, false, &one),
        deleted(2),
        sum(2, CqlType::Int, false, &one),
        sum(1, CqlType::Int, false, &one),
        number(3, 3),
        deleted(3),
        number(2, 5),
    ]);
    let Outcome { reply, changes } = evaluate(&program, CONTEXT, &tablet).unwrap();
    assert_eq!(reply, ProgramReply::Applied);
    assert_eq!(changes.len(), 3, "one for each row");
    let numbers: Vec<Option<i32>> = (1..4).map(|row| number_in(&tablet, &changes, row)).collect();
    assert_eq!(numbers, [Some(42), Some(5), None]);
    assert_eq!(evaluate(&program, CONTEXT, &tablet).unwrap().changes, changes);
    // A later timestamp changes nothing but the timestamp: whoever computes it before it is known can fill it in.
    let later = EvaluationContext::new(STAMP_US + 1_000_000_000, CONTEXT.newest_explicit_us);
    let mut later = evaluate(&program, later, &tablet).unwrap().changes;
    for change in &mut later {
        let Change::Merge(_, value) = change else { panic!("{change:?}") };
        value[1..9].copy_from_slice(&STAMP_US.to_le_bytes());
    }
    assert_eq!(later, changes);
}

#[test]
fn a_condition_is_about_what_was_done_before_it_and_one_that_fails_leaves_no_change() {
    let tablet = tablet(&[(1, 40)]);
    let program = |test: RowTest, turn: Turn| Program {
        conditions: vec![condition(1, test)],
        operations: vec![deleted(1), number(2, 1)],
        turns: Some(vec![Turn::Operation, turn, Turn::Operation]),
        ..Program::default()
    };
    let held = evaluate(&program(RowTest::NotExists, Turn::ConditionElseError), CONTEXT, &tablet).unwrap();
    assert_eq!((held.reply, held.changes.len()), (ProgramReply::Applied, 2));
    for turn in [Turn::ConditionElseError, Turn::Condition] {
        let failed = evaluate(&program(RowTest::Exists, turn), CONTEXT, &tablet).unwrap();
        let seen = Seen { now_s: 1_700_000_000, partition: PARTITION.to_vec(), ..Seen::default() };
        assert_eq!(failed, Outcome { reply: ProgramReply::Refused(seen), changes: Vec::new() });
    }
}

#[test]
fn what_cannot_be_done_is_told_and_nothing_is_changed() {
    let tablet = tablet(&[(1, i32::MAX)]);
    let program = in_turns(vec![number(2, 1), sum(1, CqlType::Int, false, &[0, 0, 0, 1])]);
    let failed = evaluate(&program, CONTEXT, &tablet).unwrap();
    let message = "the result of '+' is out of the range of int".to_owned();
    assert_eq!(failed, Outcome { reply: ProgramReply::Failed(message), changes: Vec::new() });
    // Other operands than the type has, and rows that are none.
    for operation in [
        sum(1, CqlType::Int, false, &[1]),
        sum(1, CqlType::Bigint, false, &[0; 8]),
        ProgramOperation::Row {
            is_overwrite: false,
            is_stamped: false,
            is_unplaced: false,
            key: key(1),
            value: vec![0xFF; 30],
        },
    ] {
        let failed = evaluate(&in_turns(vec![operation]), CONTEXT, &tablet).unwrap();
        assert!(matches!(failed.reply, ProgramReply::Failed(_)) && failed.changes.is_empty(), "{failed:?}");
    }
}

proptest! {
    #[test]
    fn no_cut_or_changed_program_in_turns_panics(cut in 0usize..400, at: usize, flip: u8) {
        let mut bytes = full().encode();
        bytes.truncate(cut);
        if !bytes.is_empty() {
            let at = at % bytes.len();
            bytes[at] ^= flip;
        }
        if let Ok(program) = Program::decode(&bytes) {
            prop_assert_eq!(Program::decode(&program.encode()), Ok(program.clone()));
            let tablet = tablet(&[(1, 1)]);
            let _ = evaluate(&program, CONTEXT, &tablet);
        }
    }
}

/// Its growth is told, as that of the others.
#[test]
fn sums_grow_their_rows_by_a_number() {
    for (data_type, most) in [(CqlType::Int, 64), (CqlType::Decimal, 5_000)] {
        let mut seen = 0;
        let program = in_turns(vec![sum(1, data_type, false, &[0, 0, 0, 1, 1][..])]);
        TabletEvaluator.growth(&program.encode(), &mut |growth| {
            assert_eq!(growth.key, key(1));
            seen += growth.bytes;
        });
        assert!((8..most).contains(&seen), "{seen}");
    }
}
