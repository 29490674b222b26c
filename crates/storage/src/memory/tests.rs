//! The state after crashes; and that the memory engine and the real one give the same results for the same operations.
#![allow(clippy::unwrap_used, reason = "tests")]

use super::*;
use crate::applied::AppliedState;
use crate::engine::ScanRange;
use crate::engine::{Log, LogRecords, TabletBatch, TabletData};
use crate::keys::MEMBERS_KEY;
use crate::{
    Batch, CompactionStyle, CompactionVerdict, LogBatch, RaftLog, Shared, StorageError, StorageOptions, Tablet,
    ValueSemantics, Values,
};
use diorite_base::{GroupId, Horizon};
use diorite_raft::{ConfState, Entry, HardState, LogPosition, LogReader};
use proptest::prelude::*;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

/// Values are byte strings; a merge appends its operand; an empty operand is malformed.
struct Concatenation;

impl ValueSemantics for Concatenation {
    fn fold<'a>(&self, existing: Option<&'a [u8]>, operands: &mut dyn Iterator<Item = &'a [u8]>) -> Option<Vec<u8>> {
        let mut value = existing.unwrap_or_default().to_vec();
        for operand in operands {
            if operand.is_empty() {
                return None;
            }
            value.extend_from_slice(operand);
        }
        Some(value)
    }

    fn compact(&self, _: &[u8], _: &[u8], _: &Horizon) -> CompactionVerdict {
        CompactionVerdict::Keep
    }
}

fn state(index: u64) -> AppliedState {
    AppliedState { index, term: 1, ..AppliedState::default() }
}

fn entry(index: u64, term: u64, size_bytes: usize) -> Entry {
    Entry { index, term, data: vec![index as u8; size_bytes].into(), ..Entry::default() }
}

fn vote(term: u64) -> HardState {
    HardState { term, vote: 1, ..HardState::default() }
}

#[test]
fn a_tablet_comes_back_from_a_crash_as_of_its_last_flush() {
    let tablet = Arc::new(MemoryTablet::new(None));
    let mut batch = MemoryBatch::default();
    batch.put(b"kept", b"1");
    tablet.apply(&mut batch, &state(1)).unwrap();
    tablet.flush();
    batch.clear();
    batch.delete(b"kept");
    batch.put(b"lost", b"2");
    tablet.apply(&mut batch, &state(2)).unwrap();
    assert_eq!((tablet.applied_state().unwrap(), tablet.flushed_state()), (state(2), state(1)));

    let found = Arc::new(tablet.crash());
    assert_eq!((found.applied_state().unwrap(), found.flushed_state()), (state(1), state(1)));
    assert_eq!(&*found.get(b"kept").unwrap().unwrap(), b"1");
    assert!(found.get(b"lost").unwrap().is_none());
    assert_eq!(&*tablet.get(b"lost").unwrap().unwrap(), b"2", "who holds the old one sees what it saw");
}

#[test]
fn a_batch_that_turns_out_malformed_leaves_no_trace() {
    let tablet = Arc::new(MemoryTablet::new(Some(Arc::new(Concatenation))));
    let mut batch = MemoryBatch::default();
    batch.put(b"key", b"a");
    batch.merge(b"key", b"b");
    tablet.apply(&mut batch, &state(1)).unwrap();
    assert_eq!(&*tablet.get(b"key").unwrap().unwrap(), b"ab");
    batch.clear();
    batch.delete(b"key");
    batch.merge(b"key", b"");
    assert!(matches!(tablet.apply(&mut batch, &state(2)), Err(StorageError::Corrupt(_))));
    assert_eq!((&*tablet.get(b"key").unwrap().unwrap(), tablet.applied_state().unwrap()), (&b"ab"[..], state(1)));
    let plain = MemoryTablet::new(None);
    assert!(plain.apply(&mut batch, &state(1)).is_err(), "plain values are replaced, not merged");
}

#[test]
fn a_crash_keeps_what_was_synced_and_any_prefix_of_the_rest() {
    let (log, group) = (MemoryLog::default(), GroupId(7));
    let mut records = MemoryRecords::default();
    records.append(group, &[entry(1, 1, 10)], 0).unwrap();
    log.write(&mut records, true).unwrap();
    assert!(records.is_empty());
    for index in 2..=4 {
        records.append(group, &[entry(index, 1, 10)], 0).unwrap();
        records.set_hard_state(group, &vote(index)).unwrap();
        log.write(&mut records, false).unwrap();
    }
    assert_eq!((log.unsynced_batches(), log.recover(group).unwrap().last), (3, LogPosition::new(4, 1)));
    for surviving in 0..=3 {
        let found = log.crash(surviving).recover(group).unwrap();
        assert_eq!(found.last, LogPosition::new(1 + surviving as u64, 1));
        assert_eq!(found.hard_state.term, if surviving == 0 { 0 } else { 1 + surviving as u64 });
    }
    log.sync();
    assert_eq!(log.crash(0).recover(group).unwrap().last, LogPosition::new(4, 1));
}

#[test]
fn a_write_that_is_cut_fails_and_may_or_may_not_be_there() {
    let (log, group) = (MemoryLog::default(), GroupId(7));
    log.fail_after(Some(1));
    let mut records = MemoryRecords::default();
    let mut write = |index| {
        records.append(group, &[entry(index, 1, 10)], 0).unwrap();
        log.write(&mut records, true)
    };
    assert!(write(1).is_ok());
    assert!(write(2).is_err());
    assert!(write(3).is_err());
    assert_eq!(
        log.recover(group).unwrap().last,
        LogPosition::new(1, 1),
        "a cut write is not read back before the crash"
    );
    assert_eq!(log.crash(0).recover(group).unwrap().last, LogPosition::new(1, 1));
    assert_eq!(log.crash(9).recover(group).unwrap().last, LogPosition::new(2, 1));
}

/// An operation on a log. Numbers are offsets from the log's current position, so that every sequence of operations is
/// legal.
#[derive(Clone, Debug)]
enum LogOperation {
    Append { back: u64, sizes: Vec<usize> },
    Vote(u64),
    Voters(Vec<u64>),
    Truncate(u64),
    Restart(u64),
    Remove,
    Retire(u64),
    Floor(u64),
    Write(bool),
}

fn log_operation() -> impl Strategy<Value = LogOperation> {
    prop_oneof![
        4 => (0..4u64, prop::collection::vec(0..400usize, 1..6)).prop_map(|(back, sizes)| LogOperation::Append { back, sizes }),
        1 => (1..9u64).prop_map(LogOperation::Vote),
        1 => prop::collection::vec(1..9u64, 1..4).prop_map(LogOperation::Voters),
        1 => (0..8u64).prop_map(LogOperation::Truncate),
        1 => (0..8u64).prop_map(LogOperation::Restart),
        1 => Just(LogOperation::Remove),
        1 => (1..9u64).prop_map(LogOperation::Retire),
        1 => any::<u64>().prop_map(LogOperation::Floor),
        4 => any::<bool>().prop_map(LogOperation::Write),
    ]
}

/// The position of a group's log once the whole batch is written.
#[derive(Default)]
struct Position {
    truncated: u64,
    last: u64,
    term: u64,
}

fn put(records: &mut impl LogRecords, group: GroupId, operation: &LogOperation, position: &Position) {
    match operation {
        LogOperation::Append { back, sizes } => {
            let first = position.last.saturating_sub(*back).max(position.truncated) + 1;
            let entries: Vec<_> =
                (first..).zip(sizes).map(|(index, size_bytes)| entry(index, position.term + 1, *size_bytes)).collect();
            records.append(group, &entries, first - 1).unwrap();
        }
        LogOperation::Vote(term) => records.set_hard_state(group, &vote(*term)).unwrap(),
        LogOperation::Voters(voters) => {
            let conf_state = ConfState { voters: voters.clone(), ..ConfState::default() };
            records.set_conf_state(group, &conf_state).unwrap();
        }
        LogOperation::Truncate(ahead) => {
            let index = (position.truncated + ahead).min(position.last);
            records.truncate_to(group, index, position.term, index == position.last).unwrap();
        }
        LogOperation::Restart(ahead) => {
            let index = position.truncated + ahead;
            records.restart_after(group, position.last, index, position.term + 1).unwrap();
        }
        LogOperation::Remove => records.remove(group),
        LogOperation::Retire(term) => {
            records.retire(group, &vote(*term), LogPosition::new(position.last, *term)).unwrap()
        }
        LogOperation::Floor(number) => records.set_floor(group, LogPosition::new(*number, *number)).unwrap(),
        LogOperation::Write(_) => {}
    }
}

impl Position {
    fn follow(&mut self, operation: &LogOperation) {
        match operation {
            LogOperation::Append { back, sizes } => {
                self.last = self.last.saturating_sub(*back).max(self.truncated) + sizes.len() as u64;
                self.term += 1;
            }
            LogOperation::Truncate(ahead) => self.truncated = (self.truncated + ahead).min(self.last),
            LogOperation::Restart(ahead) => {
                self.truncated += ahead;
                (self.last, self.term) = (self.truncated, self.term + 1);
            }
            LogOperation::Remove | LogOperation::Retire(_) => {
                *self = Position { term: self.term, ..Position::default() };
            }
            LogOperation::Vote(_) | LogOperation::Voters(_) | LogOperation::Floor(_) | LogOperation::Write(_) => {}
        }
    }
}

fn expect_same(real: &RaftLog, memory: &MemoryLog, group: GroupId) {
    let (expected, found) = (Log::recover(real, group).unwrap(), memory.recover(group).unwrap());
    assert_eq!(expected.hard_state, found.hard_state);
    assert_eq!(expected.conf_state, found.conf_state);
    assert_eq!((expected.truncated, expected.last), (found.truncated, found.last));
    assert_eq!(expected.floor, found.floor);
    let (end, expected, found) = (expected.last.index + 2, Log::reader(real, group), memory.reader(group));
    for (low, max_bytes) in (0..=end).flat_map(|low| [(low, 0), (low, 500), (low, u64::MAX)]) {
        for high in low..=end {
            let pair = (expected.entries(low, high, max_bytes).ok(), found.entries(low, high, max_bytes).ok());
            assert_eq!(pair.0, pair.1, "entries {low}..{high} up to {max_bytes} bytes");
        }
    }
}

#[test]
fn the_log_does_what_raft_engine_does() {
    let home = tempfile::tempdir().unwrap();
    let real = RaftLog::open(home.path(), 64 << 20, &[]).unwrap();
    let memory = MemoryLog::default();
    // Each case has a group of its own in the two logs.
    let groups = AtomicU64::new(1);
    proptest!(ProptestConfig::with_cases(150), |(operations in prop::collection::vec(log_operation(), 1..40))| {
        let group = GroupId(groups.fetch_add(1, Ordering::Relaxed));
        let (mut batch, mut records, mut position) = (LogBatch::default(), MemoryRecords::default(), Position::default());
        for operation in &operations {
            put(&mut batch, group, operation, &position);
            put(&mut records, group, operation, &position);
            position.follow(operation);
            assert_eq!(batch.is_empty(), records.is_empty());
            if let LogOperation::Write(sync) = operation {
                Log::write(&real, &mut batch, *sync).unwrap();
                memory.write(&mut records, *sync).unwrap();
                expect_same(&real, &memory, group);
            }
        }
    });
}

/// An operation on a tablet, on a small number of keys.
#[derive(Clone, Debug)]
enum TabletOperation {
    Put(u8, Vec<u8>),
    Merge(u8, Vec<u8>),
    Delete(u8),
    DeleteRange(u8, u8),
    Apply,
    Flush,
    Scan { start: u8, end: u8, reverse: bool, limit: usize },
}

fn tablet_operation(merges: bool) -> impl Strategy<Value = TabletOperation> {
    let bytes = || prop::collection::vec(any::<u8>(), 1..20);
    prop_oneof![
        4 => (0..12u8, bytes(), any::<bool>()).prop_map(move |(key, value, merge)| {
            if merge && merges { TabletOperation::Merge(key, value) } else { TabletOperation::Put(key, value) }
        }),
        1 => (0..12u8).prop_map(TabletOperation::Delete),
        1 => (0..12u8, 0..12u8).prop_map(|(a, b)| TabletOperation::DeleteRange(a.min(b), a.max(b))),
        3 => Just(TabletOperation::Apply),
        1 => Just(TabletOperation::Flush),
        2 => (0..12u8, 0..13u8, any::<bool>(), 1..9usize).prop_map(|(start, end, reverse, limit)| {
            TabletOperation::Scan { start, end: end.max(start), reverse, limit }
        }),
    ]
}

/// Keys of one case; nine bytes, as every key starts with a token.
fn key(case: u64, n: u8) -> Vec<u8> {
    let mut key = case.to_be_bytes().to_vec();
    key.push(n);
    key
}

fn change(batch: &mut impl TabletBatch, case: u64, operation: &TabletOperation) {
    match operation {
        TabletOperation::Put(n, value) => batch.put(&key(case, *n), value),
        TabletOperation::Merge(n, operand) => batch.merge(&key(case, *n), operand),
        TabletOperation::Delete(n) => batch.delete(&key(case, *n)),
        TabletOperation::DeleteRange(start, end) => batch.delete_range(&key(case, *start), &key(case, *end)),
        _ => {}
    }
}

type Found = (Vec<(Vec<u8>, Vec<u8>)>, bool);

fn scan(tablet: &impl TabletData, start: &[u8], end: &[u8], reverse: bool, limit: usize) -> Found {
    let mut found = Vec::new();
    let range = ScanRange { start, end, reverse, expected_entries: limit };
    let exhausted = tablet
        .scan(&range, &mut |key, value| {
            found.push((key.to_vec(), value.to_vec()));
            found.len() < limit
        })
        .unwrap();
    (found, exhausted)
}

fn tablets_agree(values: Values) {
    let home = tempfile::tempdir().unwrap();
    let shared = Shared::new(StorageOptions::for_memory(256 << 20, 2), Arc::new(Concatenation)).unwrap();
    let real = Arc::new(Tablet::open(&shared, home.path(), values, CompactionStyle::SizeTiered).unwrap());
    let semantics: Option<Arc<dyn ValueSemantics>> = match values {
        Values::Rows => Some(Arc::new(Concatenation)),
        Values::Plain => None,
    };
    let memory = Arc::new(MemoryTablet::new(semantics));
    let (mut batch, mut memory_batch) = (Batch::default(), MemoryBatch::default());
    batch.put(MEMBERS_KEY, b"seen by those who ask for it, not by scans");
    memory_batch.put(MEMBERS_KEY, b"seen by those who ask for it, not by scans");
    TabletData::apply(&*real, &mut batch, &state(1)).unwrap();
    memory.apply(&mut memory_batch, &state(1)).unwrap();
    // Each case has keys of its own in the two tablets.
    let cases = AtomicU64::new(1);
    let operations = prop::collection::vec(tablet_operation(values == Values::Rows), 1..60);
    proptest!(ProptestConfig::with_cases(100), |(operations in operations)| {
        let case = cases.fetch_add(1, Ordering::Relaxed);
        let (mut batch, mut memory_batch) = (Batch::default(), MemoryBatch::default());
        for operation in &operations {
            change(&mut batch, case, operation);
            change(&mut memory_batch, case, operation);
            match operation {
                TabletOperation::Apply => {
                    let next = state(memory.applied_state().unwrap().index + 1);
                    TabletData::apply(&*real, &mut batch, &next).unwrap();
                    memory.apply(&mut memory_batch, &next).unwrap();
                    batch.clear();
                    memory_batch.clear();
                }
                TabletOperation::Flush => {
                    real.flush(true).unwrap();
                    memory.flush();
                }
                TabletOperation::Scan { start, end, reverse, limit } => {
                    let (start, end) = (key(case, *start), key(case, *end));
                    let expected = scan(&*real, &start, &end, *reverse, *limit);
                    assert_eq!(expected, scan(&*memory, &start, &end, *reverse, *limit));
                }
                _ => {}
            }
            assert_eq!(TabletData::applied_state(&*real).unwrap(), memory.applied_state().unwrap());
            assert_eq!(real.flushed_state().unwrap(), memory.flushed_state());
        }
        let everything = scan(&*real, &[], &[0xFF; 9], false, usize::MAX);
        assert_eq!(everything, scan(&*memory, &[], &[0xFF; 9], false, usize::MAX));
        for n in 0..12 {
            let expected = real.get(&key(case, n)).unwrap().map(|value| value.to_vec());
            assert_eq!(expected, memory.get(&key(case, n)).unwrap().map(|value| value.to_vec()));
        }
    });
}

#[test]
fn a_tablet_of_plain_values_does_what_rocksdb_does() {
    tablets_agree(Values::Plain);
}

#[test]
fn a_tablet_whose_values_merge_does_what_rocksdb_does() {
    tablets_agree(Values::Rows);
}
