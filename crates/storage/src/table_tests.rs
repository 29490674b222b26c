//! The options of a table on real files, and scans that skip dead rows.
#![allow(clippy::unwrap_used, reason = "tests")]

use super::*;
use crate::ages::{path_of, set_written_s};
use diorite_base::Horizon;
use diorite_base::random::{Random, SplitMix64};
use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

/// A value lives until the second in its first four bytes; 0: it is deleted; the maximum: it never expires. A deletion
/// may be purged once the horizon is past second 1.
struct Until;

/// The TTL of values that expire.
const TTL_S: u32 = 100;

fn until(value: &[u8]) -> u32 {
    u32::from_le_bytes(value[..4].try_into().unwrap())
}

impl ValueSemantics for Until {
    fn fold<'a>(&self, _: Option<&'a [u8]>, operands: &mut dyn Iterator<Item = &'a [u8]>) -> Option<Vec<u8>> {
        operands.last().map(<[u8]>::to_vec)
    }

    fn compact(&self, _: &[u8], value: &[u8], horizon: &Horizon) -> CompactionVerdict {
        let is_gone = until(value) <= horizon.now_s && horizon.rows_s > 1;
        if is_gone { CompactionVerdict::Remove } else { CompactionVerdict::Keep }
    }

    fn is_dead(&self, value: &[u8], now_s: u32) -> bool {
        until(value) <= now_s
    }

    fn longest_ttl_s(&self, value: &[u8]) -> u32 {
        if [0, u32::MAX].contains(&until(value)) { 0 } else { TTL_S }
    }
}

fn shared(cache_bytes: usize) -> Arc<Shared> {
    let options = StorageOptions { cache_bytes, ..StorageOptions::for_memory(256 << 20, 2) };
    Shared::new(options, Arc::new(Until)).unwrap()
}

fn key(n: u64) -> Vec<u8> {
    let mut key = vec![0x80];
    key.extend_from_slice(&n.to_be_bytes());
    key
}

fn value(until_s: u32, bytes: usize) -> Vec<u8> {
    let mut value = until_s.to_le_bytes().to_vec();
    value.resize(bytes, 7);
    value
}

/// A tablet whose stamps advance by a second with each batch.
struct Written {
    tablet: Arc<Tablet>,
    state: AppliedState,
}

impl Written {
    fn open(shared: &Arc<Shared>, path: &Path, options: impl Into<TableOptions>) -> Self {
        let tablet = Arc::new(Tablet::open(shared, path, Values::Rows, options).unwrap());
        let state = tablet.applied_state().unwrap();
        Self { tablet, state }
    }

    fn write(&mut self, second: u32, rows: impl Iterator<Item = (u64, Vec<u8>)>) {
        let mut batch = Batch::default();
        rows.for_each(|(n, value)| batch.put(&key(n), &value));
        self.state.index += 1;
        self.state.advance(i64::from(second) * 1_000_000, None, Some(0));
        self.tablet.apply(&mut batch, &self.state).unwrap();
    }

    fn live(&self) -> Vec<u64> {
        live(&self.tablet, 0, false)
    }
}

fn range(start: &[u8], reverse: bool) -> ScanRange<'_> {
    ScanRange { start, end: AFTER_ALL_KEYS, reverse, expected_entries: 10 }
}

fn number(key: &[u8]) -> u64 {
    u64::from_be_bytes(key[1..9].try_into().unwrap())
}

/// The keys from `start` on whose rows never expire, as a reader of rows finds them.
fn live(tablet: &Tablet, start: u64, reverse: bool) -> Vec<u64> {
    let mut found = Vec::new();
    let mut take = |key: &[u8], value: &[u8]| {
        // A scan passes a dead row to its caller now and then.
        if until(value) == u32::MAX {
            found.push(number(key));
        }
        true
    };
    assert!(tablet.scan_live(&range(&key(start), reverse), None, &mut take).unwrap());
    found
}

/// The keys that a reader which judges expiry as of this second finds live.
fn live_at(tablet: &Tablet, now_s: u32) -> Vec<u64> {
    let mut found = Vec::new();
    let mut take = |key: &[u8], value: &[u8]| {
        if until(value) > now_s {
            found.push(number(key));
        }
        true
    };
    assert!(tablet.scan_live(&range(&key(0), false), Some(now_s), &mut take).unwrap());
    found
}

fn passed(shared: &Shared) -> u64 {
    shared.counters().dead_rows_passed.load(Ordering::Relaxed)
}

#[test]
fn a_brief_scan_does_not_pass_many_removed_rows() {
    let (home, shared) = (tempfile::tempdir().unwrap(), shared(1 << 20));
    let mut written = Written::open(&shared, &home.path().join("1"), TableOptions::default());
    written.write(5, (0..5_000).map(|n| (n, value(u32::MAX, 20))));
    let mut batch = Batch::default();
    (10..4_000).for_each(|n| batch.delete(&key(n)));
    written.state.index += 1;
    written.tablet.apply(&mut batch, &written.state).unwrap();
    let found = |start: u64| {
        let (first, mut found) = (key(start), Vec::new());
        let mut take = |key: &[u8], _: &[u8]| {
            found.push(number(key));
            found.len() < 20
        };
        let has_seen_all = written.tablet.scan_briefly(&range(&first, false), &mut take).unwrap();
        (found, has_seen_all)
    };
    assert_eq!(found(0), ((0..10).collect::<Vec<_>>(), false), "it gives up in what was removed");
    assert_eq!(found(3_900), ((4_000..4_020).collect::<Vec<_>>(), true), "and passes a little of that");
    assert_eq!(found(4_990), ((4_990..5_000).collect::<Vec<_>>(), true), "up to the end");
    assert_eq!(written.live().len(), 1_010);
}

#[test]
fn filters_are_where_the_table_wants_them_and_absent_keys_then_cost_nothing() {
    let absent_misses = |filters| {
        let (home, shared) = (tempfile::tempdir().unwrap(), shared(1 << 20));
        let options = TableOptions { filters, ..TableOptions::default() };
        let mut written = Written::open(&shared, &home.path().join("1"), options);
        written.write(5, (0..20_000).map(|n| (2 * n, value(u32::MAX, 200))));
        let tablet = &written.tablet;
        tablet.flush(true).unwrap();
        tablet.compact();
        tablet.measure_contents();
        let before = shared.ticker(Ticker::BlockCacheDataMiss);
        (0..2_000).for_each(|n| assert!(tablet.get(&key(20 * n + 1)).unwrap().is_none()));
        let misses = shared.ticker(Ticker::BlockCacheDataMiss) - before;
        (tablet.files().contents.unwrap().filter_bytes, misses)
    };
    let (bytes, misses) = absent_misses(Filters::UpperRuns);
    assert_eq!(bytes, 0, "the last level");
    assert!(misses > 100, "absent keys are looked for in the data: {misses}");
    let (bytes, misses) = absent_misses(Filters::Everywhere { fp_chance: 0.01 });
    assert!((15_000..40_000).contains(&bytes), "{bytes}");
    assert!(misses < 60, "{misses}");
}

#[test]
fn compression_is_as_the_table_says_and_changes_with_it() {
    let (home, shared) = (tempfile::tempdir().unwrap(), shared(1 << 20));
    let path = home.path().join("1");
    let text = |n: u64| {
        let mut value = value(u32::MAX, 4);
        value.extend((0..40).flat_map(|at| format!("{} ", (n * 31 + at) % 97).into_bytes()));
        value
    };
    let none = TableOptions { compression: Compression::None, ..TableOptions::default() };
    let mut written = Written::open(&shared, &path, none);
    written.write(5, (0..20_000).map(|n| (n, text(n))));
    written.tablet.flush(true).unwrap();
    written.tablet.compact();
    let mut sizes = vec![written.tablet.files_bytes()];
    let last = Some(Compression::Zstd { level: 3 });
    for options in [
        TableOptions::default(),
        TableOptions { last_level_compression: last, ..none },
        TableOptions { compression: Compression::Zstd { level: 19 }, block_bytes: Some(64 << 10), ..none },
    ] {
        drop(written);
        written = Written::open(&shared, &path, options);
        assert_eq!(written.tablet.options(), &options);
        // A compaction needs several files to merge.
        written.write(6, std::iter::once((0, text(0))));
        written.tablet.flush(true).unwrap();
        written.tablet.compact();
        sizes.push(written.tablet.files_bytes());
    }
    assert!(sizes.is_sorted_by(|a, b| *a as f64 > *b as f64 * 1.1), "{sizes:?}");
    assert_eq!(written.live().len(), 20_000);
}

/// Writes a file of rows of this second, and sets the file's age to that second.
fn write_file(written: &mut Written, second: u32, rows: std::ops::Range<u64>, until_s: u32) {
    written.write(second, rows.map(|n| (n, value(until_s, 100))));
    let before: BTreeSet<String> = written.tablet.live_files().unwrap().into_iter().map(|file| file.name).collect();
    written.tablet.flush(true).unwrap();
    let files = written.tablet.live_files().unwrap();
    files
        .iter()
        .filter(|file| !before.contains(&file.name))
        .for_each(|file| set_written_s(&path_of(file), second.into()));
}

#[test]
fn a_window_that_is_over_becomes_one_file() {
    let (home, shared) = (tempfile::tempdir().unwrap(), shared(8 << 20));
    let windows = CompactionStyle::TimeWindow { window_s: 60 };
    let mut written = Written::open(&shared, &home.path().join("1"), windows);
    let base = 600_000;
    for window in 0..3 {
        for file in 0..3 {
            let at = base + 60 * window + 10 * file;
            let from = u64::from(window * 3 + file) * 1_000;
            write_file(&mut written, at, from..from + 1_000, u32::MAX);
        }
    }
    let due = |written: &Written| (0..10).for_each(|_| written.tablet.compact_due().unwrap());
    let compacted = || shared.ticker(Ticker::CompactWriteBytes);
    shared.set_present_s(base + 60 * 2 + 30);
    due(&written);
    assert_eq!(
        written.tablet.files().files,
        5,
        "the two windows that are over, and three files of the one that is not"
    );
    // The merged file is as old as its data.
    let ages: BTreeSet<u64> =
        written.tablet.live_files().unwrap().iter().map(|file| crate::ages::written_s(&path_of(file))).collect();
    assert!(ages.contains(&u64::from(base + 20)) && ages.contains(&u64::from(base + 80)), "{ages:?}");
    shared.set_present_s(base + 60 * 3);
    due(&written);
    assert_eq!(written.tablet.files().files, 3);
    let merged = compacted();
    // 9,000 rows, compressed.
    assert!(merged > 50_000, "each row was merged once: {merged}");
}

#[test]
fn scans_go_past_rows_that_are_no_more_and_notice_what_comes_in_between() {
    for in_files in [false, true] {
        let (home, shared) = (tempfile::tempdir().unwrap(), shared(8 << 20));
        let mut written = Written::open(&shared, &home.path().join("1"), CompactionStyle::SizeTiered);
        shared.set_present_s(1_000);
        written.write(900, (0..5_000).map(|n| (n, value(0, 20))));
        written.write(900, (5_000..5_003).map(|n| (n, value(u32::MAX, 20))));
        // Nothing is purged: in memory, the horizon is not flushed past second 1; in files, nothing is compacted.
        if in_files {
            written.tablet.flush(true).unwrap();
        }
        let expected = vec![5_000, 5_001, 5_002];
        assert_eq!(written.live(), expected);
        assert_eq!(passed(&shared), 5_000, "the first one has to look");
        assert_eq!(written.live(), expected);
        let before = passed(&shared);
        assert_eq!((written.live(), live(&written.tablet, 4_000, false)), (expected.clone(), expected.clone()));
        assert_eq!(live(&written.tablet, 0, true), [5_002, 5_001, 5_000]);
        assert_eq!(passed(&shared), before, "then it is known");
        written.write(901, [(2_500, value(u32::MAX, 20)), (6_000, value(u32::MAX, 20))].into_iter());
        assert_eq!(written.live(), [2_500, 5_000, 5_001, 5_002, 6_000]);
        assert_eq!(live(&written.tablet, 2_400, true), [6_000, 5_002, 5_001, 5_000, 2_500]);
        assert_eq!(passed(&shared), before, "on both sides of it all is known still");
    }
}

#[test]
fn a_moment_goes_by_no_note_of_what_came_after_it() {
    let (home, shared) = (tempfile::tempdir().unwrap(), shared(8 << 20));
    let mut written = Written::open(&shared, &home.path().join("1"), CompactionStyle::SizeTiered);
    shared.set_present_s(1_000);
    written.write(900, (0..2_000).map(|n| (n, value(u32::MAX, 20))));
    let tablet = Arc::clone(&written.tablet);
    let moment = tablet.moment();
    written.write(901, (0..2_000).map(|n| (n, value(0, 20))));
    (0..3).for_each(|_| assert!(written.live().is_empty()));
    let mut seen = 0;
    let mut count = |_: &[u8], value: &[u8]| {
        seen += u64::from(until(value) == u32::MAX);
        true
    };
    moment.scan_live(&range(&key(0), false), None, &mut count).unwrap();
    assert_eq!(seen, 2_000);
}

#[test]
fn what_expires_is_passed_over_when_it_has_for_everybody() {
    let (home, shared) = (tempfile::tempdir().unwrap(), shared(8 << 20));
    let mut written = Written::open(&shared, &home.path().join("1"), CompactionStyle::SizeTiered);
    written.write(900, (0..1_000).map(|n| (n, value(1_000, 20))));
    let seen = || {
        let mut seen = 0;
        written
            .tablet
            .scan_live(&range(&key(0), false), None, &mut |_, _| {
                seen += 1;
                true
            })
            .unwrap();
        seen
    };
    shared.set_present_s(1_001);
    assert_eq!(seen(), 1_000, "another node's clock may be a little behind");
    shared.set_present_s(1_003);
    (0..3).for_each(|_| assert_eq!(seen(), 0));
    // The clock was wrong, and has been corrected.
    shared.set_present_s(990);
    assert_eq!(seen(), 1_000);
}

#[test]
fn what_has_expired_for_a_request_is_passed_over_once() {
    let (home, shared) = (tempfile::tempdir().unwrap(), shared(8 << 20));
    let mut written = Written::open(&shared, &home.path().join("1"), CompactionStyle::SizeTiered);
    // A thousand rows expire in each of three seconds.
    written.write(900, (0..3_000).map(|n| (n, value(1_001 + n as u32 / 1_000, 20))));
    written.write(900, std::iter::once((5_000, value(u32::MAX, 20))));
    let tablet = Arc::clone(&written.tablet);
    let looks = |now_s: u32| {
        let before = passed(&shared);
        (live_at(&tablet, now_s).len(), passed(&shared) - before)
    };
    shared.set_present_s(1_000);
    assert_eq!(looks(1_000), (3_001, 0));
    for second in 1..=3 {
        shared.set_present_s(1_000 + second);
        let left = 3_001 - 1_000 * second as usize;
        assert_eq!(looks(1_000 + second), (left, 1_000), "the first one that comes after they have expired");
        assert_eq!(looks(1_000 + second), (left, 0), "nobody else");
    }
    // Of other clocks, and of requests that name a second: each sees what lives for it.
    assert_eq!(looks(1_002), (1_001, 0));
    assert_eq!(looks(1_001), (2_001, 0));
    assert_eq!(looks(1_000), (3_001, 0));
    assert_eq!(looks(1_000_000), (1, 0));
    shared.set_present_s(1_001);
    assert_eq!((looks(1_001), looks(1_003)), ((2_001, 0), (1, 0)), "the clock was set back");
    // What is written into what was dead is seen, whether it expires or not.
    written.write(901, [(10, value(u32::MAX, 20)), (1_500, value(1_003, 20))].into_iter());
    assert_eq!(live_at(&tablet, 1_003), [10, 5_000]);
    assert_eq!(live_at(&tablet, 1_002).len(), 1_003);
    assert!(looks(1_003).1 <= 64, "the row that expired by itself is in no note, and the next ones are");
}

#[test]
fn scans_that_go_on_behind_others_leave_no_row_between_their_notes() {
    let (home, shared) = (tempfile::tempdir().unwrap(), shared(8 << 20));
    let mut written = Written::open(&shared, &home.path().join("1"), CompactionStyle::SizeTiered);
    shared.set_present_s(1_000);
    written.write(900, (0..3_000).map(|n| (n, value(0, 20))));
    // Each of them ends at the first dead row that its caller gets.
    let mut start = key(0);
    loop {
        let mut last = Vec::new();
        let mut take = |key: &[u8], _: &[u8]| {
            last = key.to_vec();
            false
        };
        if written.tablet.scan_live(&range(&start, false), None, &mut take).unwrap() {
            break;
        }
        last.push(0);
        start = last;
    }
    assert_eq!(passed(&shared), 3_000);
    assert!(written.live().is_empty());
    assert_eq!(passed(&shared), 3_000);
}

#[test]
fn requests_of_a_far_second_leave_no_notes() {
    let (home, shared) = (tempfile::tempdir().unwrap(), shared(8 << 20));
    let mut written = Written::open(&shared, &home.path().join("1"), CompactionStyle::SizeTiered);
    shared.set_present_s(1_000);
    written.write(900, (0..1_000).map(|n| (n, value(2_000, 20))));
    (0..3).for_each(|_| assert!(live_at(&written.tablet, 2_000).is_empty()));
    assert_eq!(passed(&shared), 3_000);
    assert_eq!(live_at(&written.tablet, 1_000).len(), 1_000);
}

#[test]
fn a_brief_scan_of_many_dead_rows_is_declined() {
    let (home, shared) = (tempfile::tempdir().unwrap(), shared(8 << 20));
    let mut written = Written::open(&shared, &home.path().join("1"), CompactionStyle::SizeTiered);
    written.write(900, (0..100).map(|n| (n, value(0, 20))));
    assert_eq!(written.tablet.scan_live_cached(&range(&key(0), false), None, &mut |_, _| true).unwrap(), Some(true));
    written.write(900, (0..10_000).map(|n| (n, value(0, 20))));
    let from = key(200);
    assert_eq!(written.tablet.scan_live_cached(&range(&from, false), None, &mut |_, _| true).unwrap(), None);
    assert!(was_declined());
}

#[test]
fn rows_that_reads_pass_over_again_and_again_are_compacted_early() {
    let (home, shared) = (tempfile::tempdir().unwrap(), shared(8 << 20));
    let mut written = Written::open(&shared, &home.path().join("1"), CompactionStyle::SizeTiered);
    shared.set_present_s(1_000);
    written.write(900, (0..60_000).map(|n| (n, value(0, 20))));
    written.write(901, std::iter::once((70_000, value(u32::MAX, 20))));
    written.tablet.compact_due().unwrap();
    assert_eq!(written.tablet.files().files, 0, "nobody has read");
    assert_eq!(written.live(), [70_000]);
    written.tablet.compact_due().unwrap();
    let mut left = 0;
    written
        .tablet
        .scan(&range(&key(0), false), &mut |_, _| {
            left += 1;
            true
        })
        .unwrap();
    assert_eq!(left, 1, "what nobody needs has gone");
}

/// One writer makes a row live, announces it, and deletes it again, between dead rows; readers must see the row while
/// it is announced as live.
#[test]
fn whoever_reads_after_a_write_sees_it() {
    const ROWS: u64 = 3_000;
    let (home, shared) = (tempfile::tempdir().unwrap(), shared(8 << 20));
    let mut written = Written::open(&shared, &home.path().join("1"), CompactionStyle::SizeTiered);
    shared.set_present_s(1_000);
    written.write(900, (0..ROWS).map(|n| (n, value(0, 20))));
    // Twice the number of the row, plus one while the row is live; the upper half counts rounds.
    let (said, ends) = (AtomicU64::new(0), AtomicBool::new(false));
    let tablet = Arc::clone(&written.tablet);
    std::thread::scope(|scope| {
        let readers: Vec<_> = (0..2)
            .map(|_| {
                scope.spawn(|| {
                    let mut checked = 0;
                    while !ends.load(Ordering::Acquire) {
                        let before = said.load(Ordering::Acquire);
                        let found = live(&tablet, 0, false);
                        if said.load(Ordering::Acquire) == before && before & 1 == 1 {
                            assert_eq!(found, [(before >> 1) % ROWS]);
                            checked += 1;
                        }
                    }
                    checked
                })
            })
            .collect();
        let mut random = SplitMix64::new(5);
        for round in 1..600u64 {
            let row = random.below(ROWS);
            written.write(901, std::iter::once((row, value(u32::MAX, 20))));
            said.store((round * ROWS + row) << 1 | 1, Ordering::Release);
            // The row is live for as long as a scan or two.
            (0..3).for_each(|_| assert_eq!(live(&tablet, 0, false), [row]));
            said.store((round * ROWS + row) << 1, Ordering::Release);
            written.write(902, std::iter::once((row, value(0, 20))));
            assert!(live(&tablet, 0, round % 2 == 0).is_empty());
        }
        ends.store(true, Ordering::Release);
        let checked: u64 = readers.into_iter().map(|reader| reader.join().unwrap()).sum();
        assert!(checked > 0);
    });
}

/// Random writes, deletions, flushes and compactions: scans find exactly the live rows, wherever they begin.
#[test]
fn scans_agree_with_a_map_whatever_is_noted() {
    for seed in 0..6 {
        let (home, shared) = (tempfile::tempdir().unwrap(), shared(8 << 20));
        let mut written = Written::open(&shared, &home.path().join("1"), CompactionStyle::SizeTiered);
        shared.set_present_s(1_000);
        let (mut random, mut model) = (SplitMix64::new(seed), BTreeMap::new());
        for step in 0..120u32 {
            let from = random.below(4_000);
            let many = random.below(3) == 0;
            let to = from + if many { 1_500 } else { 1 + random.below(3) };
            let until_s = if many || random.below(2) == 0 { 0 } else { u32::MAX };
            written.write(900 + step, (from..to).map(|n| (n, value(until_s, 20))));
            model.extend((from..to).map(|n| (n, until_s)));
            match random.below(12) {
                0 => written.tablet.flush(true).unwrap(),
                1 => written.tablet.compact(),
                2 => written.tablet.compact_due().unwrap(),
                _ => {}
            }
            for reverse in [false, true] {
                let start = if random.below(2) == 0 { 0 } else { random.below(5_000) };
                let mut expected: Vec<u64> =
                    model.range(start..).filter(|(_, until_s)| **until_s == u32::MAX).map(|(n, _)| *n).collect();
                if reverse {
                    expected.reverse();
                }
                assert_eq!(live(&written.tablet, start, reverse), expected, "seed {seed}, step {step}");
            }
        }
    }
}

/// Random writes of rows that expire, and readers whose seconds go forth and back: each finds what lives for it.
#[test]
fn scans_of_any_second_agree_with_a_map_whatever_is_noted() {
    for seed in 0..6 {
        let (home, shared) = (tempfile::tempdir().unwrap(), shared(8 << 20));
        let mut written = Written::open(&shared, &home.path().join("1"), CompactionStyle::SizeTiered);
        let (mut random, mut model) = (SplitMix64::new(seed), BTreeMap::new());
        for step in 0..120u32 {
            let from = random.below(4_000);
            let to = from + if random.below(3) == 0 { 1_500 } else { 1 + random.below(3) };
            let until_s = if random.below(4) == 0 { u32::MAX } else { 1_000 + random.below(12) as u32 };
            written.write(900, (from..to).map(|n| (n, value(until_s, 20))));
            model.extend((from..to).map(|n| (n, until_s)));
            if random.below(12) == 0 {
                written.tablet.flush(true).unwrap();
            }
            for _ in 0..3 {
                // Clocks that differ or are set back, and requests that name a second.
                shared.set_present_s(1_000 + random.below(12) as u32);
                let now_s = 998 + random.below(16) as u32;
                let living = model.iter().filter(|(_, until_s)| **until_s > now_s);
                let expected: Vec<u64> = living.map(|(n, _)| *n).collect();
                assert_eq!(live_at(&written.tablet, now_s), expected, "seed {seed}, step {step}, at {now_s}");
            }
        }
    }
}
