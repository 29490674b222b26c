//! Loads, overwrites and rows that expire, on RocksDB: what is compacted as a whole, and what it costs.
#![allow(clippy::unwrap_used, reason = "a failed unwrap is a failed test")]

use super::*;
use crate::{
    AppliedState, Batch, CompactionVerdict, Shared, StorageOptions, TableOptions, Tablet, TabletBatch, Ticker,
    ValueSemantics, Values,
};
use diorite_base::Horizon;
use diorite_base::random::{Random, SplitMix64};
use std::sync::Arc;

#[test]
fn many_flushes_make_a_load_and_few_end_it() {
    let mut merging = Merging::default();
    let mut look = |flushes, now_s| {
        merging.chosen.is_loading = merging.is_loading(flushes, now_s);
        merging.chosen.is_loading
    };
    assert!(!look(100, 1_000), "flushes of before do not count");
    assert!(!look(103, 1_020));
    assert!(look(104, 1_021), "four of them are enough, before the period is over");
    assert!(look(104, 1_030));
    assert!(look(106, 1_060), "two in a period change nothing");
    assert!(!look(107, 1_090));
    assert!(!look(109, 1_120));
    assert!(look(130, 500), "a clock that is set back ends the period");
    assert!(look(134, 530));
    assert!(!look(144, 530 + 10 * PERIOD_S), "one in each period");
}

#[test]
fn everything_is_compacted_only_for_space() {
    assert!(has_garbage(100, None, 25), "unknown");
    assert!(!has_garbage(1_000, Some(1_000), 25));
    assert!(!has_garbage(1_199, Some(1_000), 25));
    assert!(has_garbage(1_200, Some(1_000), 25));
    assert!(has_garbage(u64::MAX, Some(1), 25));
}

/// Values that stay, unless they begin with a zero: those are gone at once, but only a compaction removes them.
struct Stays;

impl ValueSemantics for Stays {
    fn fold<'a>(&self, _: Option<&'a [u8]>, operands: &mut dyn Iterator<Item = &'a [u8]>) -> Option<Vec<u8>> {
        operands.last().map(<[u8]>::to_vec)
    }

    fn compact(&self, _: &[u8], value: &[u8], _: &Horizon) -> CompactionVerdict {
        if value[0] == 0 { CompactionVerdict::Remove } else { CompactionVerdict::Keep }
    }

    fn awaits_time(&self, value: &[u8]) -> bool {
        value[0] == 0
    }
}

struct Loaded {
    shared: Arc<Shared>,
    tablet: Tablet,
    index: u64,
    /// The time between two files, seconds.
    pause_s: u32,
    _home: tempfile::TempDir,
}

/// Rows of a file.
const ROWS: u64 = 2_000;

impl Loaded {
    fn new() -> Self {
        let home = tempfile::tempdir().unwrap();
        let options = StorageOptions { cache_bytes: 8 << 20, ..StorageOptions::for_memory(256 << 20, 2) };
        let shared = Shared::new(options, Arc::new(Stays)).unwrap();
        let tablet = Tablet::open(&shared, &home.path().join("1"), Values::Rows, TableOptions::default()).unwrap();
        Self { shared, tablet, index: 0, pause_s: 20, _home: home }
    }

    /// Writes a file of rows, and waits for the compactions that follow.
    fn write(&mut self, rows: impl Iterator<Item = u64>, first_byte: u8) {
        let mut batch = Batch::default();
        for row in rows {
            let mut value = vec![first_byte];
            let mut random = SplitMix64::new(row + self.index);
            (0..12).for_each(|_| value.extend_from_slice(&random.next_u64().to_le_bytes()));
            let mut key = SplitMix64::new(row).next_u64().to_be_bytes().to_vec();
            key.extend_from_slice(&row.to_be_bytes());
            batch.merge(&key, &value);
        }
        self.index += 1;
        self.shared.set_present_s(1_000 + self.index as u32 * self.pause_s);
        let state = AppliedState { index: self.index, term: 1, ..AppliedState::default() };
        self.tablet.apply(&mut batch, &state).unwrap();
        self.tablet.flush(true).unwrap();
        self.tablet.compact_due().unwrap();
        self.tablet.end_compactions();
        self.tablet.compact_due().unwrap();
        self.tablet.end_compactions();
    }

    fn write_amplification(&self) -> f64 {
        let [flushed, compacted] =
            [Ticker::FlushWriteBytes, Ticker::CompactWriteBytes].map(|ticker| self.shared.ticker(ticker) as f64);
        (flushed + compacted) / flushed
    }
}

#[test]
fn a_load_of_new_rows_is_not_rewritten_each_time_that_it_grows_by_a_quarter() {
    let mut loaded = Loaded::new();
    (0..60).for_each(|file| loaded.write(file * ROWS..(file + 1) * ROWS, 1));
    assert!(loaded.write_amplification() < 3.8, "{}", loaded.write_amplification());
    assert!(!loaded.tablet.eagerness().frees_space);
}

/// What a load of so many files writes per byte that it flushes, with a flush each second: until it ends, and until the
/// runs that it leaves are merged as usual.
fn load(files: u64) -> (f64, f64) {
    let mut loaded = Loaded { pause_s: 1, ..Loaded::new() };
    (0..files).for_each(|file| loaded.write(file * ROWS..(file + 1) * ROWS, 1));
    assert!(loaded.tablet.eagerness().is_loading);
    let at_end = loaded.write_amplification();
    for period in 1..3 {
        loaded.shared.set_present_s((1_000 + files + period * PERIOD_S) as u32);
        loaded.tablet.compact_due().unwrap();
        loaded.tablet.end_compactions();
    }
    assert!(!loaded.tablet.eagerness().is_loading);
    (at_end, loaded.write_amplification())
}

#[test]
fn a_load_that_is_noticed_is_written_less_than_three_times() {
    for files in [60, 90, 120, 250, 500] {
        let (at_end, after) = load(files);
        println!("{files} files: {at_end:.2}, and {after:.2} once they are merged as usual");
        assert!(at_end < 3.0 && after < 3.2, "{files} files: {at_end}, {after}");
    }
}

#[test]
fn rows_that_are_overwritten_fast_take_as_much_more_space_as_few_of_the_runs_that_may_wait() {
    let mut loaded = Loaded { pause_s: 1, ..Loaded::new() };
    (0..100).for_each(|file| loaded.write(file * ROWS..(file + 1) * ROWS, 1));
    let live = loaded.tablet.files_bytes();
    let (mut random, mut most) = (SplitMix64::new(1), 0);
    for _ in 0..100 {
        let rows: Vec<u64> = (0..ROWS).map(|_| random.next_u64() % (100 * ROWS)).collect();
        loaded.write(rows.into_iter(), 1);
        most = most.max(loaded.tablet.files_bytes());
    }
    println!("{most} bytes at most, {live} of them live");
    assert!(most < live * 4 / 3, "{most} bytes, {live} of them live");
}

#[test]
fn rows_that_are_overwritten_take_little_more_than_their_space() {
    let mut loaded = Loaded::new();
    (0..20).for_each(|file| loaded.write(file * ROWS..(file + 1) * ROWS, 1));
    let live = loaded.tablet.files_bytes();
    let mut random = SplitMix64::new(1);
    for _ in 0..40 {
        let rows: Vec<u64> = (0..ROWS).map(|_| random.next_u64() % (20 * ROWS)).collect();
        loaded.write(rows.into_iter(), 1);
        let bytes = loaded.tablet.files_bytes();
        assert!(bytes < live * 3 / 2, "{bytes} bytes, {live} of them live");
    }
}

#[test]
fn rows_that_go_without_a_write_are_compacted_by_size_alone() {
    let mut loaded = Loaded::new();
    (0..10).for_each(|file| loaded.write(file * ROWS..(file + 1) * ROWS, 1));
    assert!(!loaded.tablet.eagerness().frees_space);
    let live = loaded.tablet.files_bytes();
    for file in 10..40 {
        loaded.write(file * ROWS..(file + 1) * ROWS, 0);
        let bytes = loaded.tablet.files_bytes();
        assert!(bytes < live * 2, "{bytes} bytes, {live} of them live");
    }
    // Once everything has been compacted, the keys are known again: those that are left. The first compaction makes
    // values of the rows, and the second one removes them.
    loaded.tablet.compact();
    loaded.tablet.compact();
    let keys = loaded.tablet.expiry().keys.count().unwrap();
    assert!((9 * ROWS..11 * ROWS).contains(&keys), "{keys} keys, {} of them live", 10 * ROWS);
    (50..52).for_each(|file| loaded.write(file * ROWS..(file + 1) * ROWS, 1));
    assert!(!loaded.tablet.eagerness().frees_space);
}
