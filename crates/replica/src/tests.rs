//! The store against a real disk: nothing acknowledged is lost or applied twice, whatever had been flushed.
#![allow(clippy::unwrap_used, reason = "tests")]

mod aside;
mod cluster;
mod copied;
mod disks;
mod golden;
mod log_damage;
mod losses;
mod merges;
mod moves;
mod row_sizes;
mod scripted;
mod splits;
mod transfers;

use super::*;
use crate::lifecycle::command::Command;
use diorite_base::limits::Exceeded;
use diorite_base::mutation::{
    EvaluationContext, EvaluationFailed, Evaluator, Mutation, OperationKind, SeeTarget, TabletChanges, TabletView,
};
use diorite_base::program::{LoggedProgram, ProvenProgram, Target, Unprovable};
use diorite_base::write::{Completion, KvError, WriteReply, WriteSink};
use diorite_base::{Clock, GroupId, Horizon, Level, NodeId, SystemClock, TabletId};
use diorite_rpc::{NoTransport, Transport};
use diorite_storage::{
    CompactionVerdict, DataDirectory, Shared, StorageOptions, TableOptions, UNKNOWN_GRACE_S, ValueSemantics, Values,
};
use std::path::Path;
use std::sync::mpsc::{SyncSender, sync_channel};
use std::sync::{Arc, Mutex};
use std::time::Duration;
use uuid::Uuid;

/// How long the log of a store may become before it is truncated although members still need it, bytes.
const LOG_BYTES: u64 = 32 << 20;

/// Values are counters that merge by addition, so that a write applied twice or not at all shows.
struct Sums;

fn number(bytes: &[u8]) -> u64 {
    u64::from_le_bytes(bytes[..8].try_into().unwrap())
}

impl ValueSemantics for Sums {
    fn fold<'a>(&self, existing: Option<&'a [u8]>, operands: &mut dyn Iterator<Item = &'a [u8]>) -> Option<Vec<u8>> {
        let sum: u64 = existing.map_or(0, number) + operands.map(number).sum::<u64>();
        Some(sum.to_le_bytes().to_vec())
    }

    fn compact(&self, _: &[u8], _: &[u8], _: &Horizon) -> CompactionVerdict {
        CompactionVerdict::Keep
    }
}

/// A program that no replica can carry out.
const POISON: &[u8] = b"poison";

/// A program at which every replica panics.
const BOMB: &[u8] = b"bomb";

/// The row whose program is said to edit what is stored.
const EDITED: u64 = 77;

/// The end of a program that sets the counter of the key before it to [`OVERWRITTEN`], and reads nothing.
const OVERWRITES: &[u8] = b"overwrites";
const OVERWRITTEN: u64 = 7;

/// A program of one key: it doubles the key's counter, replies with the former value, and raises a flag.
struct Doubler;

/// A program that is a key, of rows or of the catalog.
#[derive(PartialEq)]
struct Key<const OF_CATALOG: bool>(Vec<u8>);

impl<const OF_CATALOG: bool> LoggedProgram for Key<OF_CATALOG> {
    const TARGET: Target = if OF_CATALOG { Target::Catalog } else { Target::Rows };
    type Error = String;

    fn check(&self) -> Result<(), Exceeded> {
        Ok(())
    }

    fn encode(&self) -> Vec<u8> {
        self.0.clone()
    }

    fn decode(bytes: &[u8]) -> Result<Self, Self::Error> {
        Ok(Self(bytes.to_vec()))
    }
}

/// A mutation of rows that is evaluated with a key as its program.
pub(crate) fn evaluated(key: &[u8]) -> Mutation {
    Mutation::evaluated(None, &ProvenProgram::new(&Key::<false>(key.to_vec())).unwrap())
}

/// The same of the catalog.
fn evaluated_by_catalog(key: &[u8]) -> Mutation {
    Mutation::evaluated(None, &ProvenProgram::new(&Key::<true>(key.to_vec())).unwrap())
}

fn program(n: u64) -> Mutation {
    evaluated(&key(n))
}

/// What no replica can apply.
fn poison() -> Mutation {
    evaluated(POISON)
}

impl Evaluator for Doubler {
    fn evaluate(
        &self,
        program: &[u8],
        _: EvaluationContext,
        view: &dyn TabletView,
        changes: &mut dyn TabletChanges,
    ) -> Result<Vec<u8>, EvaluationFailed> {
        if program == POISON {
            return Err(EvaluationFailed("it cannot be decoded".to_owned()));
        }
        assert!(program != BOMB, "it was thought to be impossible");
        if let Some(key) = program.strip_suffix(OVERWRITES) {
            changes.put(key, &OVERWRITTEN.to_le_bytes());
            return Ok(Vec::new());
        }
        let before = view.get(program)?.map_or(0, |value| number(&value));
        changes.put(program, &(before * 2).to_le_bytes());
        changes.raise_flags(4);
        Ok(before.to_le_bytes().to_vec())
    }

    fn targets(&self, program: &[u8], see: &mut SeeTarget<'_>) -> Result<(), Unprovable> {
        see(program.strip_suffix(OVERWRITES).unwrap_or(program), None);
        Ok(())
    }

    fn edits_stored(&self, program: &[u8]) -> bool {
        program == key(EDITED)
    }

    fn reads(&self, program: &[u8]) -> bool {
        !program.ends_with(OVERWRITES)
    }
}

/// Hands outcomes to a waiting test.
struct Waiting(Mutex<SyncSender<Completion>>);

impl WriteSink for Waiting {
    fn complete(&self, done: &mut Vec<Completion>) {
        for completion in done.drain(..) {
            self.0.lock().unwrap().send(completion).unwrap();
        }
    }
}

fn start(home: &Path, limit: u64) -> Store {
    start_as(home, limit, 1, Arc::new(NoTransport))
}

fn start_as(home: &Path, limit: u64, node: u64, transport: Arc<dyn Transport>) -> Store {
    start_with(&[home], limit, node, transport)
}

fn start_with(homes: &[&Path], limit: u64, node: u64, transport: Arc<dyn Transport>) -> Store {
    start_by(Arc::new(SystemClock::new()), homes, limit, node, transport)
}

fn start_by(clock: Arc<dyn Clock>, homes: &[&Path], limit: u64, node: u64, transport: Arc<dyn Transport>) -> Store {
    start_durable(clock, homes, limit, (node, Durability::Fsync), transport)
}

fn start_durable(
    clock: Arc<dyn Clock>,
    homes: &[&Path],
    limit: u64,
    (node, durability): (u64, Durability),
    transport: Arc<dyn Transport>,
) -> Store {
    start_options(clock, homes, transport, options(limit, node, durability))
}

/// Starts a store that accepts damaged logs.
fn start_accepting(home: &Path) -> Store {
    let options = StoreOptions { accept_lost_log: true, ..options(1 << 30, 1, Durability::Fsync) };
    start_options(Arc::new(SystemClock::new()), &[home], Arc::new(NoTransport), options)
}

fn options(limit: u64, node: u64, durability: Durability) -> StoreOptions {
    StoreOptions {
        // Each start has its own, see `start_options`.
        incarnation: 0,
        node,
        workers: 2,
        durability,
        queue_proposals: 10_000,
        queue_bytes: 64 << 20,
        replay_bytes: limit,
        disk_reserve_bytes: 0,
        accept_lost_log: false,
        most_tablets: usize::MAX,
    }
}

fn start_options(
    clock: Arc<dyn Clock>,
    homes: &[&Path],
    transport: Arc<dyn Transport>,
    options: StoreOptions,
) -> Store {
    start_values(clock, homes, transport, options, Arc::new(Sums))
}

fn start_values(
    clock: Arc<dyn Clock>,
    homes: &[&Path],
    transport: Arc<dyn Transport>,
    options: StoreOptions,
    semantics: Arc<dyn ValueSemantics>,
) -> Store {
    let options = StoreOptions { incarnation: clock.wall_us().unsigned_abs(), ..options };
    let node = options.node;
    let storage = StorageOptions { log_bytes: LOG_BYTES, ..StorageOptions::for_memory(256 << 20, 2) };
    let shared = Shared::new(storage, semantics).unwrap();
    let directory = |home: &&Path| {
        let mut directory = DataDirectory::open(home).unwrap();
        if directory.identity().is_none() {
            directory.claim(Uuid::from_u128(1), node, Uuid::from_u128(u128::from(node) + 1), Level::FIRST).unwrap();
        }
        directory
    };
    let directories = homes.iter().map(directory).collect();
    Store::start(options, shared, directories, clock, transport).unwrap()
}

fn open(store: &Store, ids: impl IntoIterator<Item = u64>) {
    store.open(ids.into_iter().map(plain).collect()).unwrap();
}

fn plain(tablet: u64) -> OpenTablet {
    OpenTablet {
        tablet: TabletId(tablet),
        evaluator: Arc::new(Merging(Doubler)),
        gc_grace_s: 0,
        initial_voters: vec![NodeId(1)],
        members: Members::default(),
        floor: None,
        values: Values::Rows,
        options: TableOptions::default(),
        on_loaded: None,
    }
}

fn key(n: u64) -> Vec<u8> {
    let mut key = vec![0x80];
    key.extend_from_slice(&n.to_be_bytes());
    key
}

fn add(n: u64, amount: u64) -> Mutation {
    let mut mutation = Mutation::blind(None);
    mutation.push(OperationKind::Merge, false, &key(n), &amount.to_le_bytes());
    mutation
}

/// Submits all, waits for all; outcomes in submission order.
fn write_all(store: &Store, writes: Vec<(u64, Mutation)>) -> Vec<Result<WriteReply, KvError>> {
    let count = writes.len();
    let (sender, receiver) = sync_channel(count);
    let sink: Arc<dyn WriteSink> = Arc::new(Waiting(Mutex::new(sender)));
    for (token, (tablet, mutation)) in writes.into_iter().enumerate() {
        store.submit(TabletId(tablet), mutation, &sink, token as u64).unwrap();
    }
    store.kick();
    let mut outcomes: Vec<_> = (0..count).map(|_| receiver.recv().unwrap()).collect();
    outcomes.sort_by_key(|(token, _)| *token);
    outcomes.into_iter().map(|(_, outcome)| outcome).collect()
}

fn read(store: &Store, tablet: u64, n: u64) -> u64 {
    store.handle(TabletId(tablet)).unwrap().get(Permit::Lease, &key(n)).unwrap().map_or(0, |value| number(&value))
}

#[test]
fn every_acknowledged_write_is_applied_exactly_once_over_restarts() {
    let home = tempfile::tempdir().unwrap();
    for round in 0..4u64 {
        let store = start(home.path(), 1 << 30);
        open(&store, 1_000..1_004);
        for tablet in 1_000..1_004 {
            assert_eq!(read(&store, tablet, 1), round * 50, "tablet {tablet} in round {round}");
        }
        let writes = (0..200).map(|n| (1_000 + n % 4, add(1, 1))).collect();
        assert!(write_all(&store, writes).iter().all(Result::is_ok));
        // Some tablets lose their memtable when the store is dropped, some do not.
        if round % 2 == 0 {
            store.handle(TabletId(1_000)).unwrap().data().flush(true).unwrap();
            let more = (0..10).map(|_| (1_000, add(2, 1))).collect();
            write_all(&store, more);
        } else {
            assert_eq!(read(&store, 1_000, 2), round.div_ceil(2) * 10);
        }
    }
}

#[test]
fn tablets_that_several_open_and_close_at_once_are_open_once_or_gone() {
    let home = tempfile::tempdir().unwrap();
    let store = start(home.path(), 1 << 30);
    for round in 0..8u64 {
        let tablets = 1_000 + 10 * round..1_004 + 10 * round;
        std::thread::scope(|scope| {
            (0..4).for_each(|_| drop(scope.spawn(|| open(&store, tablets.clone()))));
        });
        for tablet in tablets.clone() {
            assert!(write_all(&store, vec![(tablet, add(1, 1))])[0].is_ok(), "{tablet}");
        }
        let last = TabletId(tablets.end - 1);
        std::thread::scope(|scope| {
            scope.spawn(|| store.close(&[last]));
            scope.spawn(|| open(&store, tablets.clone()));
        });
        store.close(&[last]);
        assert!(store.handle(last).is_none());
    }
    assert_eq!(store.tablets().len(), 3 * 8);
}

#[test]
fn a_tablet_that_cannot_be_opened_does_not_keep_others_from_it() {
    let home = tempfile::tempdir().unwrap();
    let store = start(home.path(), 1 << 30);
    std::fs::write(home.path().join("tablets/1001"), "in the way").unwrap();
    let wanted = (1_000..1_003).map(plain).collect();
    store.open(wanted).unwrap();
    assert_eq!(store.set_aside().iter().map(|aside| aside.tablet.0).collect::<Vec<_>>(), [1_001]);
    for (tablet, is_open) in [(1_000, true), (1_001, false), (1_002, true)] {
        assert_eq!(store.handle(TabletId(tablet)).is_some(), is_open, "{tablet}");
    }
    assert!(write_all(&store, vec![(1_000, add(1, 1)), (1_002, add(1, 1))]).iter().all(Result::is_ok));
}

#[test]
fn an_evaluated_write_sees_what_came_before_it_and_only_that() {
    let home = tempfile::tempdir().unwrap();
    let store = start(home.path(), 1 << 30);
    open(&store, [1_000]);
    let writes = vec![(1_000, add(1, 3)), (1_000, program(1)), (1_000, add(1, 1)), (1_000, program(1))];
    let outcomes = write_all(&store, writes);
    assert_eq!(number(outcomes[1].as_ref().unwrap()), 3);
    assert_eq!(number(outcomes[3].as_ref().unwrap()), 7);
    assert_eq!(read(&store, 1_000, 1), 14);
    assert_eq!(store.handle(TabletId(1_000)).unwrap().flags(), 4);
    drop(store);
    let store = start(home.path(), 1 << 30);
    open(&store, [1_000]);
    assert_eq!(read(&store, 1_000, 1), 14, "programs are replayed on the state they first ran on");
    assert_eq!(store.handle(TabletId(1_000)).unwrap().flags(), 4);
}

#[test]
fn a_whole_row_replaces_unless_a_client_gave_a_greater_timestamp() {
    let home = tempfile::tempdir().unwrap();
    let store = start(home.path(), 1 << 30);
    open(&store, [1_000]);
    let overwrite = |explicit| {
        let mut mutation = Mutation::blind(explicit);
        mutation.push(OperationKind::Overwrite, false, &key(1), &10u64.to_le_bytes());
        (1_000, mutation)
    };
    write_all(&store, vec![(1_000, add(1, 1)), overwrite(None)]);
    assert_eq!(read(&store, 1_000, 1), 10);
    write_all(&store, vec![overwrite(Some(i64::MAX))]);
    assert_eq!(read(&store, 1_000, 1), 20, "merged");
    write_all(&store, vec![overwrite(None)]);
    assert_eq!(read(&store, 1_000, 1), 30, "merged from then on");
}

#[test]
fn the_log_says_what_time_it_is_and_how_long_deletions_stay() {
    let home = tempfile::tempdir().unwrap();
    let store = start(home.path(), 1 << 30);
    open(&store, [1_000]);
    let handle = store.handle(TabletId(1_000)).unwrap();
    let state = || handle.data().applied_state().unwrap();
    assert_eq!(state().gc_grace_s, UNKNOWN_GRACE_S, "nothing costs an entry of its own");
    write_all(&store, vec![(1_000, add(1, 1))]);
    assert_eq!(state().gc_grace_s, 0, "it went with the first write");
    let Horizon { now_s, rows_s, ranges_s } = state().horizon;
    assert!(now_s > 0 && (rows_s, ranges_s) == (now_s, now_s));
    handle.set_gc_grace_s(77);
    // A turn whose only write is refused proposes nothing; the next one says it.
    let (sender, receiver) = sync_channel(1);
    let sink: Arc<dyn WriteSink> = Arc::new(Waiting(Mutex::new(sender)));
    store.submit_until(TabletId(1_000), add(1, 1), &sink, 0, 1).unwrap();
    store.kick();
    assert!(matches!(receiver.recv().unwrap(), (0, Err(KvError::Overloaded(_)))));
    assert_eq!(state().gc_grace_s, 0);
    write_all(&store, vec![(1_000, add(1, 1))]);
    assert_eq!(state().gc_grace_s, 77);
    // A leader that is not written to says it by itself.
    handle.set_gc_grace_s(0);
    let before = state();
    store.replicas.command(&handle, Command::PassTime(TabletId(1_000)));
    // Answered after that has been written.
    store.describe(TabletId(1_000)).unwrap();
    let after = state();
    assert_eq!((after.index, after.gc_grace_s), (before.index + 1, 0));
    assert!(after.newest_stamp_us > before.newest_stamp_us && after.horizon.rows_s >= before.horizon.now_s);
    assert_eq!(read(&store, 1_000, 1), 2);
    drop(handle);
    drop(store);
    let store = start(home.path(), 1 << 30);
    open(&store, [1_000]);
    let replayed = store.handle(TabletId(1_000)).unwrap().data().applied_state().unwrap();
    assert_eq!((replayed.horizon, replayed.gc_grace_s), (after.horizon, after.gc_grace_s));
}

/// A home whose log is over its limit at the end of a life; `None` if it was cut in that life already, as it may be on a slow machine.
fn home_with_a_log_over_its_limit() -> Option<tempfile::TempDir> {
    let home = tempfile::tempdir().unwrap();
    let value = vec![1; 512 << 10];
    let store = start(home.path(), 1 << 30);
    open(&store, [1_000]);
    for n in 0..(2 * LOG_BYTES / (512 << 10)) {
        let mut mutation = Mutation::blind(None);
        mutation.push(OperationKind::Overwrite, false, &key(n % 8), &value);
        assert!(write_all(&store, vec![(1_000, mutation)])[0].is_ok());
    }
    store.shutdown(Duration::from_secs(60));
    (store.disks()[0].log_bytes > LOG_BYTES).then_some(home)
}

#[test]
fn a_log_over_its_limit_is_cut_to_what_was_flushed_in_the_life_before_without_another_write() {
    let home = (0..20).find_map(|_| home_with_a_log_over_its_limit()).expect("a log that was not cut yet");
    let store = start(home.path(), 1 << 30);
    open(&store, [1_000]);
    cluster::wait_for(|| store.disks()[0].log_bytes <= LOG_BYTES);
    assert!(store.handle(TabletId(1_000)).unwrap().get(Permit::Lease, &key(7)).unwrap().is_some());
}

#[test]
fn the_log_is_cut_and_memory_freed_while_writing_more_than_the_limits() {
    let home = tempfile::tempdir().unwrap();
    let store = start(home.path(), 1 << 20);
    open(&store, 1_000..1_008);
    let mut value = vec![0; 4_096];
    value[0] = 1;
    for round in 0..60u64 {
        let writes = (0..256u64).map(|n| {
            let mut mutation = Mutation::blind(None);
            mutation.push(OperationKind::Overwrite, false, &key(round * 256 + n), &value);
            (1_000 + n % 8, mutation)
        });
        assert!(write_all(&store, writes.collect()).iter().all(Result::is_ok));
    }
    let flushes = || store.shared().counters().flushes.load(std::sync::atomic::Ordering::Relaxed);
    // The oldest.
    cluster::wait_for(|| flushes() > 8);
    drop(store);
    let store = start(home.path(), 1 << 20);
    open(&store, 1_000..1_008);
    assert!((0..60 * 256u64).all(|n| read(&store, 1_000 + n % 8, n) == 1));
}

#[test]
fn what_was_replayed_counts_towards_the_next_replay() {
    let home = tempfile::tempdir().unwrap();
    let store = start(home.path(), 1 << 30);
    open(&store, [1_000]);
    let writes = (0..512u64).map(|n| {
        let mut mutation = Mutation::blind(None);
        mutation.push(OperationKind::Overwrite, false, &key(n), &[1; 8_192]);
        (1_000, mutation)
    });
    write_all(&store, writes.collect());
    drop(store);
    let store = start(home.path(), 1 << 20);
    open(&store, [1_000]);
    // Without a new write.
    cluster::wait_for(|| store.shared().counters().flushes.load(std::sync::atomic::Ordering::Relaxed) > 0);
}

#[test]
fn a_counter_that_is_read_while_it_grows_is_flushed_so_that_reads_need_not_add_it_up() {
    let home = tempfile::tempdir().unwrap();
    let store = start(home.path(), 1 << 30);
    open(&store, [1_000]);
    for _ in 0..5 {
        assert!(write_all(&store, (0..2_000).map(|_| (1_000, add(1, 1))).collect()).iter().all(Result::is_ok));
    }
    let handle = store.handle(TabletId(1_000)).unwrap();
    let flushed = || handle.data().flushes() > 0;
    let (_never, wait) = sync_channel::<()>(1);
    assert!((0..10).all(|_| wait.recv_timeout(Duration::from_millis(50)).is_err() && !flushed()), "nobody reads it");
    // Each read adds up 10,000 changes, until upkeep has seen that.
    let seen = (0..3_600).find(|_| {
        (0..10).for_each(|_| assert_eq!(read(&store, 1_000, 1), 10_000));
        wait.recv_timeout(Duration::from_millis(50)).is_err() && flushed()
    });
    assert!(seen.is_some(), "flushed for the reads");
    assert_eq!(read(&store, 1_000, 1), 10_000);
}

#[test]
fn closed_tablets_and_orphans_leave_nothing() {
    let home = tempfile::tempdir().unwrap();
    let store = start(home.path(), 1 << 30);
    open(&store, 1_000..1_003);
    write_all(&store, vec![(1_000, add(1, 1)), (1_001, add(1, 1)), (1_002, add(1, 1))]);
    store.close(&[TabletId(1_000)]);
    assert!(store.handle(TabletId(1_000)).is_none());
    assert!(!home.path().join("tablets/1000").exists());
    drop(store);
    let store = start(home.path(), 1 << 30);
    store.remove_orphans(|tablet| tablet != TabletId(1_001)).unwrap();
    assert!(!home.path().join("tablets/1002").exists());
    open(&store, [1_000, 1_001, 1_002]);
    assert_eq!((read(&store, 1_000, 1), read(&store, 1_001, 1), read(&store, 1_002, 1)), (0, 1, 0));
}

#[test]
fn full_queues_and_oversized_writes_are_refused_at_once() {
    let home = tempfile::tempdir().unwrap();
    let store = start(home.path(), 1 << 30);
    open(&store, [1_000]);
    let (sender, receiver) = sync_channel(20_000);
    let sink: Arc<dyn WriteSink> = Arc::new(Waiting(Mutex::new(sender)));
    let refused = (0..20_000).map(|n| store.submit(TabletId(1_000), add(1, 1), &sink, n)).find_map(Result::err);
    assert!(matches!(refused, Some(KvError::Overloaded(_))), "nobody woke the worker: {refused:?}");
    let mut huge = Mutation::blind(None);
    huge.push(OperationKind::Merge, false, &key(1), &vec![0; 17 << 20]);
    assert!(matches!(store.submit(TabletId(1_000), huge, &sink, 0), Err(KvError::TooLarge(_))));
    assert!(matches!(store.submit(TabletId(7), add(1, 1), &sink, 0), Err(KvError::NoSuchTablet(_))));
    store.kick();
    // Accepted writes are still written and answered while the store stops.
    drop(store);
    assert!(receiver.try_iter().count() >= 10_000);
}

/// Puts the key that is its program, and then cannot go on.
struct Breaker;

impl Evaluator for Breaker {
    fn evaluate(
        &self,
        program: &[u8],
        _: EvaluationContext,
        _: &dyn TabletView,
        changes: &mut dyn TabletChanges,
    ) -> Result<Vec<u8>, EvaluationFailed> {
        changes.put(program, &7u64.to_le_bytes());
        Err(EvaluationFailed("not the program of a test".to_owned()))
    }
}

#[test]
fn what_a_replica_has_gathered_before_it_failed_reaches_no_other_replica() {
    let home = tempfile::tempdir().unwrap();
    let store = start(home.path(), 1 << 30);
    // Of the same thread, which takes every second tablet.
    open(&store, [1_002]);
    store.open(vec![OpenTablet { evaluator: Arc::new(Breaker), ..plain(1_000) }]).unwrap();
    let failed = write_all(&store, vec![(1_000, program(1))]);
    assert!(matches!(failed[..], [Err(KvError::Storage(_))]), "{failed:?}");
    let written = write_all(&store, vec![(1_002, add(2, 5))]);
    assert!(written[0].is_ok(), "{written:?}");
    assert_eq!((read(&store, 1_002, 1), read(&store, 1_002, 2)), (0, 5));
}
