//! Tablets and the log against a real disk.
#![allow(clippy::unwrap_used, reason = "tests")]

use super::*;
use diorite_base::{GroupId, Horizon};
use diorite_raft::{Entry, LogPosition, LogReader};
use std::os::unix::fs::MetadataExt;
use std::sync::Arc;

mod measured;

/// Values are little-endian counters that merge by addition; compaction removes those that are zero.
struct Sums;

thread_local! {
    /// The number of operands in this thread's last merge.
    static FOLDED: std::cell::Cell<u64> = const { std::cell::Cell::new(0) };
}

fn number(bytes: &[u8]) -> u64 {
    u64::from_le_bytes(bytes.try_into().unwrap())
}

impl ValueSemantics for Sums {
    fn fold<'a>(&self, existing: Option<&'a [u8]>, operands: &mut dyn Iterator<Item = &'a [u8]>) -> Option<Vec<u8>> {
        let mut folded = 0;
        let sum: u64 = existing.map_or(0, number) + operands.inspect(|_| folded += 1).map(number).sum::<u64>();
        FOLDED.set(folded);
        Some(sum.to_le_bytes().to_vec())
    }

    fn compact(&self, _: &[u8], value: &[u8], _: &Horizon) -> CompactionVerdict {
        match number(value) {
            0 => CompactionVerdict::Remove,
            1_000 => CompactionVerdict::Replace(1u64.to_le_bytes().to_vec()),
            _ => CompactionVerdict::Keep,
        }
    }
}

fn shared() -> Arc<Shared> {
    Shared::new(StorageOptions::for_memory(256 << 20, 2), Arc::new(Sums)).unwrap()
}

fn open(shared: &Arc<Shared>, path: &std::path::Path) -> Arc<Tablet> {
    Arc::new(Tablet::open(shared, path, Values::Rows, CompactionStyle::SizeTiered).unwrap())
}

fn state(index: u64) -> AppliedState {
    AppliedState { index, term: 1, ..AppliedState::default() }
}

fn key(n: u64) -> Vec<u8> {
    let mut key = vec![0x80];
    key.extend_from_slice(&n.to_be_bytes());
    key
}

#[test]
fn what_a_crash_leaves_is_what_the_flushed_state_says() {
    let home = tempfile::tempdir().unwrap();
    let shared = shared();
    let tablet = open(&shared, home.path());
    let mut batch = Batch::default();
    batch.put(&key(1), &5u64.to_le_bytes());
    tablet.apply(&mut batch, &state(7)).unwrap();
    tablet.flush(true).unwrap();
    assert_eq!(tablet.flushed_state().unwrap(), state(7));
    batch.clear();
    batch.merge(&key(1), &2u64.to_le_bytes());
    tablet.apply(&mut batch, &state(8)).unwrap();
    assert_eq!(number(&tablet.get(&key(1)).unwrap().unwrap()), 7);
    assert_eq!((tablet.applied_state().unwrap(), tablet.flushed_state().unwrap()), (state(8), state(7)));
    drop(tablet);

    let tablet = open(&shared, home.path());
    assert_eq!(tablet.applied_state().unwrap(), state(7));
    assert_eq!(number(&tablet.get(&key(1)).unwrap().unwrap()), 5);
}

#[test]
fn a_read_from_memory_folds_little_and_others_fold_all() {
    let home = tempfile::tempdir().unwrap();
    let tablet = open(&shared(), home.path());
    let mut batch = Batch::default();
    (0..1_000).for_each(|_| batch.merge(&key(1), &1u64.to_le_bytes()));
    (0..20_000).for_each(|_| batch.merge(&key(2), &1u64.to_le_bytes()));
    tablet.apply(&mut batch, &state(1)).unwrap();
    let steps = |read: &dyn Fn() -> Option<u64>| {
        FOLDED.set(0);
        (read(), FOLDED.get())
    };
    let cached = |n| tablet.get_cached(&key(n)).unwrap().map(|found| number(&found.unwrap()));
    assert_eq!(steps(&|| cached(1)), (Some(1_000), 1_000));
    assert_eq!(steps(&|| cached(2)), (None, 0), "it would hold up others");
    let moment = tablet.moment();
    assert_eq!(steps(&|| moment.get_cached(&key(2)).unwrap().map(|found| number(&found.unwrap()))), (None, 0));
    assert_eq!(steps(&|| Some(number(&tablet.get(&key(2)).unwrap().unwrap()))), (Some(20_000), 20_000));
    let (start, end) = (key(1), key(3));
    let range = ScanRange { start: &start, end: &end, reverse: false, expected_entries: 0 };
    let scan = || tablet.scan_live_cached(&range, None, &mut |_, _| true).unwrap().map(u64::from);
    assert_eq!(steps(&scan), (None, 1_000), "the second is too much");
    let mut seen = Vec::new();
    assert!(
        tablet
            .scan(&range, &mut |_, value| {
                seen.push(number(value));
                true
            })
            .unwrap()
    );
    assert_eq!(seen, [1_000, 20_000]);
}

#[test]
fn many_operands_that_are_read_again_and_again_become_one() {
    let home = tempfile::tempdir().unwrap();
    let tablet = open(&shared(), home.path());
    let mut batch = Batch::default();
    (0..20_000).for_each(|_| batch.merge(&key(1), &1u64.to_le_bytes()));
    tablet.apply(&mut batch, &state(1)).unwrap();
    let read = || {
        FOLDED.set(0);
        (number(&tablet.get(&key(1)).unwrap().unwrap()), FOLDED.get())
    };
    assert_eq!(read(), (20_000, 20_000));
    assert!(!tablet.wants_flush_for_reads(), "one read is no reason");
    (0..10).for_each(|_| assert_eq!(read().0, 20_000));
    assert!(tablet.wants_flush_for_reads());
    assert!(!tablet.wants_flush_for_reads(), "it says so once");
    tablet.flush(true).unwrap();
    let (sum, folded) = read();
    assert!(sum == 20_000 && folded <= 1, "{sum} of {folded} operands");
}

#[test]
fn files_are_counted_and_what_they_hold_is_known_once_they_were_asked() {
    let home = tempfile::tempdir().unwrap();
    let tablet = open(&shared(), home.path());
    assert_eq!(tablet.files(), TabletFiles { files: 0, bytes: 0, contents: Some(FileContents::default()) });
    assert!(!tablet.measure_contents(), "there is nothing to ask");
    let fill = |index: u64| {
        let mut batch = Batch::default();
        (0..10_000).for_each(|n| batch.put(&key(n), &n.to_le_bytes()));
        tablet.apply(&mut batch, &state(index)).unwrap();
        tablet.flush(true).unwrap();
    };
    fill(1);
    let flushed = tablet.files();
    assert_eq!((flushed.files, flushed.contents), (1, None));
    assert!(tablet.measure_contents());
    let content_bytes = tablet.files().contents.unwrap().content_bytes;
    // Nine bytes of key, eight of value; RocksDB adds eight to each key, and there is the applied state.
    assert!((17 * 10_000..26 * 10_000).contains(&content_bytes), "{content_bytes}");
    assert!(flushed.bytes > 0 && flushed.bytes < content_bytes, "sorted keys compress");
    assert!(!tablet.measure_contents(), "it is known");
    fill(2);
    assert_eq!((tablet.files().files, tablet.files().contents), (2, None), "there are other files now");
    tablet.compact();
    assert!(tablet.measure_contents());
    assert_eq!(tablet.files().files, 1);
    assert_eq!(tablet.statistics().sst_files, 1);
}

#[test]
fn memory_reads_say_when_they_would_need_the_disk() {
    let home = tempfile::tempdir().unwrap();
    let mut batch = Batch::default();
    for n in 0..1_000 {
        batch.put(&key(n), &n.to_le_bytes());
    }
    {
        let tablet = open(&shared(), home.path());
        tablet.apply(&mut batch, &state(1)).unwrap();
        assert_eq!(number(&tablet.get_cached(&key(3)).unwrap().unwrap().unwrap()), 3);
        tablet.flush(true).unwrap();
    }
    let tablet = open(&shared(), home.path());
    assert!(tablet.get_cached(&key(500)).unwrap().is_none());
    assert_eq!(number(&tablet.get(&key(500)).unwrap().unwrap()), 500);
    assert_eq!(number(&tablet.get_cached(&key(500)).unwrap().unwrap().unwrap()), 500);
}

#[test]
fn scans_keep_to_their_range_in_both_directions_and_skip_the_state() {
    let home = tempfile::tempdir().unwrap();
    let tablet = open(&shared(), home.path());
    let mut batch = Batch::default();
    for n in 0..10 {
        batch.put(&key(n), &n.to_le_bytes());
    }
    batch.delete_range(&key(6), &key(8));
    tablet.apply(&mut batch, &state(1)).unwrap();
    let seen = |start: &[u8], reverse, limit: usize| {
        let mut seen = Vec::new();
        let range = ScanRange { start, end: &key(9), reverse, expected_entries: 10 };
        let exhausted = tablet
            .scan(&range, &mut |_, value| {
                seen.push(number(value));
                seen.len() < limit
            })
            .unwrap();
        (seen, exhausted)
    };
    assert_eq!(seen(&key(3), false, 99), (vec![3, 4, 5, 8], true));
    assert_eq!(seen(&key(3), true, 99), (vec![8, 5, 4, 3], true));
    assert_eq!(seen(&[], true, 2), (vec![8, 5], false));
    assert_eq!(seen(&[], false, 99).0.len(), 7);
}

#[test]
fn compaction_asks_the_semantics() {
    let home = tempfile::tempdir().unwrap();
    let tablet = open(&shared(), home.path());
    let mut batch = Batch::default();
    for (n, value) in [(1, 0u64), (2, 1_000), (3, 30)] {
        batch.put(&key(n), &value.to_le_bytes());
    }
    tablet.apply(&mut batch, &state(1)).unwrap();
    tablet.flush(true).unwrap();
    tablet.compact();
    assert!(tablet.get(&key(1)).unwrap().is_none());
    assert_eq!(number(&tablet.get(&key(2)).unwrap().unwrap()), 1);
    assert_eq!(number(&tablet.get(&key(3)).unwrap().unwrap()), 30);
    assert_eq!(tablet.applied_state().unwrap(), state(1));
}

#[test]
fn values_whose_semantics_panic_are_damage_to_reads_and_stay_through_compactions() {
    let home = tempfile::tempdir().unwrap();
    let tablet = open(&shared(), home.path());
    let mut batch = Batch::default();
    // `number` panics at a value that has not eight bytes.
    batch.put(&key(1), b"odd");
    batch.put(&key(2), &2u64.to_le_bytes());
    tablet.apply(&mut batch, &state(1)).unwrap();
    tablet.flush(true).unwrap();
    tablet.compact();
    assert_eq!(&tablet.get(&key(1)).unwrap().unwrap()[..], b"odd");
    batch.clear();
    batch.merge(&key(1), &1u64.to_le_bytes());
    batch.merge(&key(1), b"odd");
    tablet.apply(&mut batch, &state(2)).unwrap();
    let read = tablet.get(&key(1)).map(|_| ());
    assert!(read.as_ref().is_err_and(StorageError::is_damage), "{read:?}");
    assert_eq!(number(&tablet.get(&key(2)).unwrap().unwrap()), 2);
}

#[test]
fn a_tablet_may_change_its_compaction_when_it_is_opened() {
    let home = tempfile::tempdir().unwrap();
    for style in [CompactionStyle::SizeTiered, CompactionStyle::Leveled, CompactionStyle::SizeTiered] {
        let tablet = Arc::new(Tablet::open(&shared(), home.path(), Values::Rows, style).unwrap());
        let mut batch = Batch::default();
        batch.merge(&key(1), &2u64.to_le_bytes());
        tablet.apply(&mut batch, &state(1)).unwrap();
        tablet.flush(true).unwrap();
        tablet.compact();
    }
    assert_eq!(number(&open(&shared(), home.path()).get(&key(1)).unwrap().unwrap()), 6);
}

#[test]
fn a_doomed_tablet_leaves_no_files() {
    let home = tempfile::tempdir().unwrap();
    let path = home.path().join("1000");
    let tablet = open(&shared(), &path);
    tablet.doom();
    let reader = Arc::clone(&tablet);
    drop(tablet);
    assert!(path.exists(), "a reader still holds it");
    drop(reader);
    assert!(!path.exists());
}

fn entry(index: u64, term: u64) -> Entry {
    Entry { index, term, data: vec![index as u8; 100].into(), ..Entry::default() }
}

#[test]
fn the_log_keeps_truncates_and_forgets() {
    let home = tempfile::tempdir().unwrap();
    let (one, two) = (GroupId(1), GroupId(2));
    {
        let log = RaftLog::open(home.path(), 64 << 20, &[]).unwrap();
        let mut batch = LogBatch::default();
        batch.append(one, &(1..=10).map(|index| entry(index, 3)).collect::<Vec<_>>(), 8).unwrap();
        batch.append(two, &[entry(1, 1)], 0).unwrap();
        log.write(&mut batch, true).unwrap();
        batch.truncate_to(one, 4, 3, false).unwrap();
        batch.remove(two);
        log.write(&mut batch, true).unwrap();
    }
    let log = RaftLog::open(home.path(), 64 << 20, &[]).unwrap();
    let recovered = log.recover(one).unwrap();
    assert_eq!((recovered.truncated, recovered.last), (LogPosition::new(4, 3), LogPosition::new(10, 3)));
    assert_eq!(recovered.hard_state.commit, 8, "what went with the last entries");
    let entries = log.reader(one).entries(5, 8, u64::MAX).unwrap();
    assert_eq!(entries.iter().map(|entry| entry.index).collect::<Vec<_>>(), [5, 6, 7]);
    assert_eq!(log.recover(two).unwrap().last, LogPosition::START);
    let mut batch = LogBatch::default();
    batch.truncate_to(one, 10, 3, true).unwrap();
    log.write(&mut batch, true).unwrap();
    assert_eq!(log.recover(one).unwrap().last, LogPosition::new(10, 3), "an empty log remembers where it ended");
}

/// Writes so many bytes for one group that files are purged, including records of others in them.
fn fill(log: &RaftLog, group: GroupId, from: u64) {
    for index in from..from + 200 {
        let mut batch = LogBatch::default();
        let long = Entry { index, term: 1, data: vec![index as u8; 1 << 20].into(), ..Entry::default() };
        batch.append(group, &[long], 0).unwrap();
        if index > 2 {
            batch.truncate_to(group, index - 2, 1, false).unwrap();
        }
        log.write(&mut batch, false).unwrap();
        if index % 10 == 0 {
            log.purge().unwrap();
        }
    }
}

#[test]
fn a_log_that_was_cut_to_its_end_goes_on_after_a_restart_whatever_was_purged() {
    let home = tempfile::tempdir().unwrap();
    let (quiet, busy) = (GroupId(1), GroupId(2));
    {
        let log = RaftLog::open(home.path(), 1 << 20, &[]).unwrap();
        let mut batch = LogBatch::default();
        batch.append(quiet, &(1..=10).map(|index| entry(index, 3)).collect::<Vec<_>>(), 0).unwrap();
        log.write(&mut batch, true).unwrap();
        // The group's entries are rewritten into other files than the record that truncates them afterwards.
        fill(&log, busy, 1);
        batch.truncate_to(quiet, 8, 3, false).unwrap();
        log.write(&mut batch, true).unwrap();
        batch.append(quiet, &(11..=12).map(|index| entry(index, 3)).collect::<Vec<_>>(), 0).unwrap();
        log.write(&mut batch, true).unwrap();
        batch.truncate_to(quiet, 12, 3, true).unwrap();
        log.write(&mut batch, true).unwrap();
        fill(&log, busy, 201);
    }
    let log = RaftLog::open(home.path(), 1 << 20, &[]).unwrap();
    assert_eq!(log.recover(quiet).unwrap().last, LogPosition::new(12, 3));
    let mut batch = LogBatch::default();
    batch.append(quiet, &[entry(13, 4)], 12).unwrap();
    log.write(&mut batch, true).unwrap();
    assert_eq!(log.recover(quiet).unwrap().last, LogPosition::new(13, 4));
    assert_eq!(log.reader(quiet).entries(13, 14, u64::MAX).unwrap(), [entry(13, 4)]);
}

#[test]
fn entries_that_were_replaced_do_not_come_back_when_what_replaced_them_was_cut_and_purged() {
    // The second leader's entry may have a greater term than the replaced one, or, after an earlier leader, a smaller
    // one.
    for (term, restarts) in [(4, false), (2, false), (4, true), (2, true)] {
        let home = tempfile::tempdir().unwrap();
        let (quiet, busy) = (GroupId(1), GroupId(2));
        {
            let log = RaftLog::open(home.path(), 1 << 20, &[]).unwrap();
            let mut batch = LogBatch::default();
            batch.append(quiet, &(1..=10).map(|index| entry(index, 3)).collect::<Vec<_>>(), 5).unwrap();
            log.write(&mut batch, true).unwrap();
            fill(&log, busy, 1);
            if restarts {
                batch.restart_after(quiet, 10, 8, term).unwrap();
            } else {
                batch.append(quiet, &[entry(8, term)], 7).unwrap();
                log.write(&mut batch, true).unwrap();
                batch.truncate_to(quiet, 8, term, true).unwrap();
            }
            log.write(&mut batch, true).unwrap();
            fill(&log, busy, 201);
        }
        let log = RaftLog::open(home.path(), 1 << 20, &[]).unwrap();
        assert_eq!(log.recover(quiet).unwrap().last, LogPosition::new(8, term), "restarted: {restarts}");
        let mut batch = LogBatch::default();
        batch.append(quiet, &[entry(9, 5)], 8).unwrap();
        log.write(&mut batch, true).unwrap();
        assert_eq!(log.recover(quiet).unwrap().last, LogPosition::new(9, 5));
        assert!(log.reader(quiet).entries(10, 11, u64::MAX).is_err());
    }
}

#[test]
fn entries_that_are_cut_half_the_limit_behind_are_never_written_anew_and_the_log_stays_within_the_limit() {
    const LIMIT: u64 = 128 << 20;
    const ENTRY: u64 = 64 << 10;
    let home = tempfile::tempdir().unwrap();
    let log = RaftLog::open(home.path(), LIMIT, &[]).unwrap();
    let groups: Vec<GroupId> = (1..=4).map(GroupId).collect();
    for index in 1..=3 * LIMIT / ENTRY / 4 {
        let mut batch = LogBatch::default();
        for group in &groups {
            let long = Entry { index, term: 1, data: vec![index as u8; ENTRY as usize].into(), ..Entry::default() };
            batch.append(*group, &[long], 0).unwrap();
            if let Some(cut @ 1..) = index.checked_sub(LIMIT / 2 / ENTRY / 4) {
                batch.truncate_to(*group, cut, 1, false).unwrap();
            }
        }
        log.write(&mut batch, false).unwrap();
        // Called far more often than it should be.
        log.purge().unwrap();
        assert!(log.used_bytes() <= LIMIT, "{}", log.used_bytes());
    }
    let files = std::fs::read_dir(home.path()).unwrap().map(|file| file.unwrap());
    let of_rewriting = files.filter(|file| file.file_name().to_string_lossy().ends_with(".rewrite"));
    let bytes: u64 = of_rewriting.map(|file| file.metadata().unwrap().len()).sum();
    assert!(bytes < 1 << 20, "{bytes} bytes were written anew");
}

fn long(index: u64) -> Entry {
    Entry { index, term: 1, data: vec![index as u8; 1 << 20].into(), ..Entry::default() }
}

#[test]
fn files_that_were_prepared_take_the_entries_and_give_them_back() {
    const LIMIT: u64 = 256 << 20;
    let (home, other) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    let group = GroupId(1);
    let mut last = 0;
    // Until the file that is now prepared is written to.
    let mut fill = |log: &RaftLog| {
        until(|| home.path().join("spare").exists());
        let inode = home.path().join("spare").metadata().unwrap().ino();
        let is_used = || {
            let files = std::fs::read_dir(home.path()).unwrap().map(|file| file.unwrap());
            let mut logs = files.filter(|file| file.file_name().to_string_lossy().ends_with(".raftlog"));
            logs.any(|file| file.metadata().unwrap().ino() == inode)
        };
        while !is_used() {
            last += 1;
            let mut batch = LogBatch::default();
            batch.append(group, &[long(last)], 0).unwrap();
            log.write(&mut batch, true).unwrap();
        }
        last
    };
    let expected = |last: u64| (1..=last).map(long).collect::<Vec<_>>();
    let log = RaftLog::open(home.path(), LIMIT, &[]).unwrap();
    fill(&log);
    let last = fill(&log);
    // The state that a crash would leave: the active file is not cut to its content.
    for file in std::fs::read_dir(home.path()).unwrap().map(|file| file.unwrap()) {
        std::fs::copy(file.path(), other.path().join(file.file_name())).unwrap();
    }
    let left = RaftLog::open(other.path(), LIMIT, &[]).unwrap();
    assert_eq!(left.recover(group).unwrap().last, LogPosition::new(last, 1));
    assert!(left.reader(group).entries(1, last + 1, u64::MAX).unwrap() == expected(last));
    drop(log);

    let log = RaftLog::open(home.path(), LIMIT, &[]).unwrap();
    assert_eq!(log.recover(group).unwrap().last, LogPosition::new(last, 1));
    let last = fill(&log);
    assert!(log.reader(group).entries(1, last + 1, u64::MAX).unwrap() == expected(last));
}

#[test]
fn a_file_of_which_not_all_was_prepared_is_not_used() {
    let home = tempfile::tempdir().unwrap();
    for (name, bytes) in [("spare", LOG_FILE_BYTES - 1), ("spare.part", LOG_FILE_BYTES)] {
        std::fs::write(home.path().join(name), vec![7; bytes as usize]).unwrap();
    }
    // This log is too small to prepare files itself.
    let log = RaftLog::open(home.path(), 64 << 20, &[]).unwrap();
    for index in 1..=(2 * LOG_FILE_BYTES) >> 20 {
        let mut batch = LogBatch::default();
        batch.append(GroupId(1), &[long(index)], 0).unwrap();
        log.write(&mut batch, false).unwrap();
    }
    assert!(!home.path().join("spare.part").exists());
    assert_eq!(home.path().join("spare").metadata().unwrap().len(), LOG_FILE_BYTES - 1);
}

#[test]
fn a_replica_that_went_away_is_remembered_and_may_come_back_from_the_first_entry() {
    let home = tempfile::tempdir().unwrap();
    let group = GroupId(1);
    let held = |range: std::ops::RangeInclusive<u64>, term| range.map(|index| entry(index, term)).collect::<Vec<_>>();
    let vote = diorite_raft::HardState { term: 3, vote: 2, commit: 9, ..Default::default() };
    {
        let log = RaftLog::open(home.path(), 64 << 20, &[]).unwrap();
        let mut batch = LogBatch::default();
        batch.append(group, &held(1..=10, 3), 0).unwrap();
        batch.truncate_to(group, 4, 3, false).unwrap();
        log.write(&mut batch, true).unwrap();
        batch.retire(group, &vote, LogPosition::new(10, 3)).unwrap();
        log.write(&mut batch, true).unwrap();
        log.purge().unwrap();
    }
    {
        let log = RaftLog::open(home.path(), 64 << 20, &[]).unwrap();
        let recovered = log.recover(group).unwrap();
        assert_eq!(
            (recovered.truncated, recovered.last, recovered.floor),
            (LogPosition::START, LogPosition::START, LogPosition::new(10, 3))
        );
        assert_eq!(recovered.hard_state, vote);
        assert!(recovered.conf_state.voters.is_empty());
        let mut batch = LogBatch::default();
        batch.append(group, &held(1..=3, 4), 0).unwrap();
        log.write(&mut batch, true).unwrap();
    }
    let log = RaftLog::open(home.path(), 64 << 20, &[]).unwrap();
    let recovered = log.recover(group).unwrap();
    assert_eq!(
        (recovered.truncated, recovered.last, recovered.floor),
        (LogPosition::START, LogPosition::new(3, 4), LogPosition::new(10, 3))
    );
    assert_eq!(log.reader(group).entries(1, 4, u64::MAX).unwrap(), held(1..=3, 4));
}

/// Waits for an event of RocksDB's own threads.
fn until(is_so: impl Fn() -> bool) {
    assert!((0..50_000_000u64).any(|_| {
        std::thread::yield_now();
        is_so()
    }));
}

#[test]
fn sizes_follow_flushes_and_compactions() {
    let home = tempfile::tempdir().unwrap();
    let tablet = open(&shared(), home.path());
    assert_eq!((tablet.statistics().sst_files, tablet.statistics().sst_bytes), (0, 0));
    let mut batch = Batch::default();
    for round in 1..=2 {
        batch.clear();
        batch.put(&key(round), &5u64.to_le_bytes());
        tablet.apply(&mut batch, &state(round)).unwrap();
        // The memtable is counted without a flush, files after one.
        assert!(tablet.statistics().keys_estimate >= round);
        assert_eq!(tablet.statistics().sst_files, round - 1);
        tablet.flush(true).unwrap();
        until(|| tablet.flushes() == round);
        let seen = tablet.statistics();
        assert_eq!(seen.sst_files, round);
        assert!(seen.sst_bytes > 0 && seen.live_bytes > 0);
    }
    tablet.compact();
    until(|| tablet.statistics().sst_files == 1);
}

#[test]
fn a_tablet_of_few_rows_takes_little_of_the_disk() {
    let home = tempfile::tempdir().unwrap();
    let _tablet = open(&shared(), home.path());
    let files = std::fs::read_dir(home.path()).unwrap().map(|file| file.unwrap().metadata().unwrap());
    assert!(files.map(|file| file.blocks() * 512).sum::<u64>() < 256 << 10);
}

#[test]
fn all_reads_of_a_moment_see_the_same_batches() {
    let home = tempfile::tempdir().unwrap();
    let tablet = open(&shared(), home.path());
    let write = |index: u64| {
        let mut batch = Batch::default();
        (0..3).for_each(|n| batch.put(&key(n), &index.to_le_bytes()));
        tablet.apply(&mut batch, &state(index)).unwrap();
    };
    type Scan<'s> = dyn Fn(&ScanRange<'_>, &mut dyn FnMut(&[u8], &[u8]) -> bool) + 's;
    let scanned = |scan: &Scan<'_>| {
        let mut found = Vec::new();
        let (start, end) = (key(0), key(9));
        let range = ScanRange { start: &start, end: &end, reverse: false, expected_entries: 3 };
        scan(&range, &mut |_, value| {
            found.push(number(value));
            true
        });
        found
    };
    write(1);
    let moment = tablet.moment();
    assert_eq!(number(&moment.get(&key(0)).unwrap().unwrap()), 1);
    write(2);
    tablet.flush(true).unwrap();
    tablet.compact();
    assert_eq!(number(&moment.get(&key(1)).unwrap().unwrap()), 1);
    assert_eq!(number(&moment.get_cached(&key(2)).unwrap().unwrap().unwrap()), 1);
    assert_eq!(
        scanned(&|range, each| {
            moment.scan_live(range, None, each).unwrap();
        }),
        [1; 3]
    );
    assert_eq!(
        scanned(&|range, each| {
            moment.scan_live_cached(range, None, each).unwrap();
        }),
        [1; 3]
    );
    assert_eq!(
        scanned(&|range, each| {
            tablet.scan(range, each).unwrap();
        }),
        [2; 3]
    );
}
