//! Tables with time windows on real files: what has expired goes without being written again, and nothing else does.
//! All time is that of the log, or set; nothing waits.
#![allow(clippy::unwrap_used, reason = "tests")]

use super::*;
use crate::ages::{path_of, set_written_s, written_s};
use diorite_base::Horizon;
use diorite_base::random::{Random, SplitMix64};
use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};
use std::sync::Arc;

const WINDOW_S: u32 = 60;
const WINDOWS: CompactionStyle = CompactionStyle::TimeWindow { window_s: WINDOW_S };
const TTL_S: u32 = 100;
const BEGIN_S: u32 = 600_000;
const VALUE_BYTES: usize = 1_000;

/// A value: the second at which it expires, its time to live (0: it never expires), a number, and content. The last
/// write wins; it may go when it has expired and the grace period since it was written is over.
struct Timed;

fn word(value: &[u8], at: usize) -> u32 {
    u32::from_le_bytes(value[4 * at..4 * at + 4].try_into().unwrap())
}

impl ValueSemantics for Timed {
    fn fold<'a>(&self, existing: Option<&'a [u8]>, operands: &mut dyn Iterator<Item = &'a [u8]>) -> Option<Vec<u8>> {
        operands.last().or(existing).map(<[u8]>::to_vec)
    }

    fn compact(&self, _: &[u8], value: &[u8], horizon: &Horizon) -> CompactionVerdict {
        let (until_s, ttl_s) = (word(value, 0), word(value, 1));
        let is_past = ttl_s > 0 && until_s <= horizon.now_s && until_s - ttl_s < horizon.rows_s;
        if is_past { CompactionVerdict::Remove } else { CompactionVerdict::Keep }
    }

    fn without_content(&self, value: &[u8]) -> Option<Vec<u8>> {
        Some(value[..12].to_vec())
    }

    fn longest_ttl_s(&self, value: &[u8]) -> u32 {
        word(value, 1)
    }

    fn awaits_time(&self, value: &[u8]) -> bool {
        word(value, 1) > 0
    }
}

fn shared() -> Arc<Shared> {
    let options = StorageOptions { cache_bytes: 8 << 20, ..StorageOptions::for_memory(256 << 20, 2) };
    Shared::new(options, Arc::new(Timed)).unwrap()
}

fn key(n: u64) -> Vec<u8> {
    [&[0x80][..], &n.to_be_bytes()].concat()
}

/// How rows are written: as RocksDB's values, as whole rows are, or as operands, as all others are.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Form {
    Value,
    Operand,
}

struct Series {
    shared: Arc<Shared>,
    path: PathBuf,
    tablet: Arc<Tablet>,
    state: AppliedState,
    random: SplitMix64,
    now_s: u32,
    grace_s: u32,
    explicit_us: Option<i64>,
}

impl Series {
    fn open(path: &Path, style: CompactionStyle) -> Self {
        let shared = shared();
        let tablet = Arc::new(Tablet::open(&shared, path, Values::Rows, style).unwrap());
        let (state, random, path) = (tablet.applied_state().unwrap(), SplitMix64::new(7), path.to_owned());
        let mut series = Self { shared, path, tablet, state, random, now_s: 0, grace_s: 0, explicit_us: None };
        series.pass_to(BEGIN_S);
        series
    }

    fn reopen(&mut self, style: CompactionStyle) {
        let Self { shared, path, .. } = self;
        // The files of the former one are closed first.
        self.tablet = Arc::new(Tablet::open(shared, &path.with_extension("none"), Values::Rows, style).unwrap());
        self.tablet = Arc::new(Tablet::open(shared, path, Values::Rows, style).unwrap());
        self.state = self.tablet.applied_state().unwrap();
    }

    fn pass_to(&mut self, second: u32) {
        self.now_s = second;
        self.shared.set_present_s(second);
    }

    fn value(&mut self, number: u32, ttl_s: u32) -> Vec<u8> {
        let until_s = if ttl_s == 0 { u32::MAX } else { self.now_s + ttl_s };
        let mut value = [until_s, ttl_s, number].map(u32::to_le_bytes).concat();
        // Content that does not compress.
        while value.len() < VALUE_BYTES {
            value.extend_from_slice(&self.random.next_u64().to_le_bytes());
        }
        value
    }

    fn write(&mut self, form: Form, rows: impl Iterator<Item = (u64, u32)>) {
        let mut batch = Batch::default();
        for (n, ttl_s) in rows {
            let value = self.value(n as u32, ttl_s);
            match form {
                Form::Value => batch.put(&key(n), &value),
                Form::Operand => batch.merge(&key(n), &value),
            }
        }
        self.state.index += 1;
        self.state.advance(i64::from(self.now_s) * 1_000_000, self.explicit_us, Some(self.grace_s));
        self.tablet.apply(&mut batch, &self.state).unwrap();
    }

    /// Flushes, and gives the new files the present time.
    fn flush(&self) {
        let names = || -> BTreeSet<PathBuf> { self.tablet.live_files().unwrap().iter().map(path_of).collect() };
        let before = names();
        self.tablet.flush(true).unwrap();
        names().difference(&before).for_each(|path| set_written_s(path, self.now_s.into()));
    }

    /// Writes so many windows of three files each, from this row on.
    fn write_windows(&mut self, form: Form, windows: u32, from: u64, ttl_s: impl Fn(u64) -> u32) {
        for file in 0..3 * windows {
            let from = from + u64::from(file) * 300;
            self.write(form, (from..from + 300).map(|n| (n, ttl_s(n))));
            self.flush();
            self.pass_to(self.now_s + WINDOW_S / 3);
            self.compact();
        }
    }

    /// The log's time passes to this second.
    fn pass_in_log(&mut self, second: u32) {
        self.pass_to(second);
        self.write(Form::Value, std::iter::empty());
        self.flush();
    }

    fn compact(&self) {
        (0..6).for_each(|_| self.tablet.compact_due().unwrap());
    }

    fn compacted_bytes(&self) -> u64 {
        self.shared.ticker(Ticker::CompactWriteBytes)
    }

    /// Live rows, with the numbers of their values.
    fn live(&self) -> BTreeMap<u64, u32> {
        let range = ScanRange { start: &[0x80], end: AFTER_ALL_KEYS, reverse: false, expected_entries: 10 };
        let mut found = BTreeMap::new();
        let mut take = |key: &[u8], value: &[u8]| {
            if word(value, 0) > self.now_s {
                found.insert(u64::from_be_bytes(key[1..9].try_into().unwrap()), word(value, 2));
            }
            true
        };
        self.tablet.scan(&range, &mut take).unwrap();
        found
    }

    /// Expects everything to be gone, and little to have been written since.
    fn expect_nothing(&self, written_before: u64, most_written: u64) {
        let (files, bytes) = (self.tablet.files().files, self.tablet.files_bytes());
        let written = self.compacted_bytes() - written_before;
        println!("{files} files of {bytes} bytes are left, {written} bytes were written");
        assert!(self.live().is_empty());
        assert!(files <= 4 && bytes < 20_000, "{files} files of {bytes} bytes are left");
        assert!(written <= most_written, "{written} bytes were written");
    }
}

#[test]
fn windows_that_expire_go_and_are_not_written_again() {
    for (form, most_written) in [(Form::Value, 20_000), (Form::Operand, 400_000)] {
        let home = tempfile::tempdir().unwrap();
        let mut series = Series::open(&home.path().join("1"), WINDOWS);
        series.write_windows(form, 8, 0, |_| 1_000);
        let held = series.tablet.files_bytes();
        assert!(held > 7_000_000, "{held}");
        assert_eq!(series.tablet.files().files, 8, "one for each window");
        let before = series.compacted_bytes();
        series.pass_in_log(BEGIN_S + 999);
        series.compact();
        assert_eq!((series.compacted_bytes(), series.tablet.files().files), (before, 9), "nothing has expired");
        assert!(!series.tablet.windows_await_time());
        series.pass_to(series.now_s + 2_000);
        series.compact();
        assert_eq!(series.compacted_bytes(), before, "the log does not say so");
        assert!(series.tablet.windows_await_time());
        // The log's time reaches the disk without another reason for a flush.
        series.write(Form::Value, std::iter::empty());
        series.pass_to(series.now_s + 3);
        series.compact();
        series.expect_nothing(before, most_written);
        assert!(!series.tablet.windows_await_time());
    }
}

/// A series that goes on for long: at each moment there is what is live and little more, and each byte is written once
/// by a flush and once when its window ends.
#[test]
fn windows_go_one_after_another_while_others_are_written() {
    let home = tempfile::tempdir().unwrap();
    let mut series = Series::open(&home.path().join("1"), WINDOWS);
    let mut most = 0;
    for window in 0..20 {
        series.write_windows(Form::Value, 1, 900 * window, |_| TTL_S);
        most = most.max(series.tablet.files_bytes());
    }
    let (flushed, compacted) = (series.shared.ticker(Ticker::FlushWriteBytes), series.compacted_bytes());
    println!("{flushed} bytes were flushed, {compacted} compacted, at most {most} held");
    assert!(flushed > 17_000_000 && compacted < flushed * 105 / 100, "{flushed} {compacted}");
    assert!(most < 4_500_000, "of 900,000 bytes a window: {most}");
}

#[test]
fn windows_go_after_a_restart_and_in_a_copy() {
    let home = tempfile::tempdir().unwrap();
    let mut series = Series::open(&home.path().join("1"), WINDOWS);
    series.write_windows(Form::Value, 6, 0, |_| TTL_S.max(1_000));
    // A copy whose files are as old as the copy.
    let copy = home.path().join("2");
    series.tablet.checkpoint(&home.path().join("3")).unwrap();
    std::fs::create_dir(&copy).unwrap();
    for entry in std::fs::read_dir(home.path().join("3")).unwrap() {
        let from = entry.unwrap().path();
        std::fs::write(copy.join(from.file_name().unwrap()), std::fs::read(&from).unwrap()).unwrap();
    }
    let mut copied = Series::open(&copy, WINDOWS);
    series.reopen(WINDOWS);
    for series in [&mut series, &mut copied] {
        assert_eq!(series.live().len(), 5_400);
        let ages: BTreeSet<u64> =
            series.tablet.live_files().unwrap().iter().map(|file| written_s(&path_of(file))).collect();
        assert!(ages.len() == 6 && ages.iter().all(|age| *age < u64::from(BEGIN_S) + 360), "{ages:?}");
        let before = series.compacted_bytes();
        series.pass_to(BEGIN_S + 360);
        series.compact();
        assert_eq!(series.compacted_bytes(), before, "each window is a file already");
        series.pass_in_log(BEGIN_S + 3_000);
        series.compact();
        series.expect_nothing(before, 20_000);
    }
}

#[test]
fn rows_that_outlive_their_window_stay_and_are_written_once_more() {
    for form in [Form::Value, Form::Operand] {
        let home = tempfile::tempdir().unwrap();
        let mut series = Series::open(&home.path().join("1"), WINDOWS);
        // Every tenth row never expires, every twentieth lives for long.
        let ttl_s = |n: u64| match n % 20 {
            0 | 10 => 0,
            5 => 100_000,
            _ => TTL_S,
        };
        series.write_windows(form, 8, 0, ttl_s);
        series.pass_in_log(series.now_s + 3 * TTL_S);
        series.compact();
        let expected = |ends: &[u64]| (0..7_200).filter(|n| ends.contains(&(n % 20))).map(|n| (n, n as u32)).collect();
        assert_eq!(series.live(), expected(&[0, 5, 10]));
        let (left, written) = (series.tablet.files_bytes(), series.compacted_bytes());
        assert!((1_000_000..1_300_000).contains(&left), "1,080 rows are left: {left}");
        // The marked file is not read again because of its age, nor after a restart.
        series.reopen(WINDOWS);
        series.pass_in_log(series.now_s + 1_000);
        series.compact();
        assert_eq!(series.compacted_bytes(), written);
        // The rows that live for long go with the next windows that are as large.
        let from = 7_200;
        series.write_windows(form, 2, from, |_| TTL_S);
        series.pass_in_log(BEGIN_S + 200_000);
        series.compact();
        assert_eq!(series.live(), expected(&[0, 10]));
        let left = series.tablet.files_bytes();
        assert!((700_000..800_000).contains(&left), "720 rows are left: {left}");
    }
}

#[test]
fn what_outlives_its_window_goes_when_it_expires_though_nothing_else_does() {
    let home = tempfile::tempdir().unwrap();
    let mut series = Series::open(&home.path().join("1"), WINDOWS);
    series.write_windows(Form::Operand, 2, 0, |n| if n % 20 == 0 { 50_000 } else { TTL_S });
    series.pass_in_log(BEGIN_S + 1_000);
    series.compact();
    assert_eq!(series.live().len(), 90);
    let before = series.compacted_bytes();
    series.pass_in_log(BEGIN_S + 60_000);
    series.compact();
    assert!(series.tablet.awaits_time(), "it is not time to look again yet");
    series.pass_in_log(BEGIN_S + 2 * 86_400);
    series.compact();
    series.expect_nothing(before, 20_000);
}

#[test]
fn the_grace_period_keeps_what_has_expired() {
    let home = tempfile::tempdir().unwrap();
    let mut series = Series::open(&home.path().join("1"), WINDOWS);
    series.grace_s = 5_000;
    series.write_windows(Form::Value, 3, 0, |_| TTL_S);
    let (held, before) = (series.tablet.files_bytes(), series.compacted_bytes());
    series.pass_in_log(BEGIN_S + 4_900);
    series.compact();
    assert_eq!(series.compacted_bytes(), before);
    assert!(series.tablet.files_bytes() >= held);
    series.pass_in_log(BEGIN_S + 5_500);
    series.compact();
    series.expect_nothing(before, 20_000);
}

/// With timestamps of clients a row may be removed only together with all that was written after it.
#[test]
fn with_timestamps_of_clients_windows_go_when_they_are_half_of_the_data() {
    let home = tempfile::tempdir().unwrap();
    let mut series = Series::open(&home.path().join("1"), WINDOWS);
    series.explicit_us = Some(1);
    let mut most = 0;
    for window in 0..20 {
        series.write_windows(Form::Value, 1, 900 * window, |_| TTL_S);
        most = most.max(series.tablet.files_bytes());
    }
    let (flushed, compacted) = (series.shared.ticker(Ticker::FlushWriteBytes), series.compacted_bytes());
    println!("{flushed} bytes were flushed, {compacted} compacted, at most {most} held");
    assert!(most < 9_000_000 && compacted < 4 * flushed, "{most} {flushed} {compacted}");
    series.pass_in_log(series.now_s + 3 * TTL_S);
    series.compact();
    series.expect_nothing(compacted, 20_000);
}

#[test]
fn a_table_gets_windows_and_loses_them_again_and_keeps_its_rows() {
    let home = tempfile::tempdir().unwrap();
    let mut series = Series::open(&home.path().join("1"), CompactionStyle::SizeTiered);
    let mut rows = 0;
    for style in [WINDOWS, CompactionStyle::Leveled, WINDOWS, CompactionStyle::SizeTiered, WINDOWS] {
        series.write_windows(Form::Operand, 10, rows, |n| if n % 2 == 0 { 0 } else { 10_000 });
        rows += 9_000;
        assert_eq!(series.live().len() as u64, rows);
        series.reopen(style);
        assert_eq!(series.tablet.window_s(), (style == WINDOWS).then_some(WINDOW_S));
        assert_eq!(series.live().len() as u64, rows);
    }
    series.compact();
    series.pass_in_log(BEGIN_S + 20_000);
    series.compact();
    assert_eq!(series.live().len() as u64, rows / 2);
    let left = series.tablet.files_bytes();
    assert!(left < 25_000_000, "half of 45 MB have expired: {left}");
}

#[test]
fn what_was_written_before_there_were_windows_goes_too() {
    let home = tempfile::tempdir().unwrap();
    let mut series = Series::open(&home.path().join("1"), CompactionStyle::SizeTiered);
    series.write_windows(Form::Operand, 3, 0, |_| TTL_S);
    series.reopen(WINDOWS);
    let before = series.compacted_bytes();
    series.pass_in_log(BEGIN_S + 1_000);
    series.compact();
    series.expect_nothing(before, 200_000);
}

/// Random writes, flushes, compactions, restarts and passing time: readers find exactly what a map holds.
#[test]
fn windows_agree_with_a_map_whatever_happens() {
    for seed in 0..12 {
        let home = tempfile::tempdir().unwrap();
        let mut series = Series::open(&home.path().join("1"), WINDOWS);
        series.explicit_us = (seed % 4 == 3).then_some(1);
        series.grace_s = [0, 0, 150][seed as usize % 3];
        let (mut random, mut model) = (SplitMix64::new(seed), BTreeMap::new());
        for step in 0..150 {
            let form = if random.below(2) == 0 { Form::Value } else { Form::Operand };
            let ttl_s = [0, 10, TTL_S, TTL_S, TTL_S, 3_000][random.below(6) as usize];
            let from = random.below(60);
            let rows: Vec<_> = (from..from + 1 + random.below(8)).map(|n| (n, ttl_s)).collect();
            series.write(form, rows.iter().copied());
            let until_s = if ttl_s == 0 { u32::MAX } else { series.now_s + ttl_s };
            model.extend(rows.iter().map(|(n, _)| (*n, until_s)));
            match random.below(12) {
                0..4 => series.flush(),
                4..7 => series.compact(),
                7 => series.tablet.compact_due().unwrap(),
                8 => {
                    series.flush();
                    let other = [WINDOWS, WINDOWS, CompactionStyle::SizeTiered][random.below(3) as usize];
                    series.reopen(other);
                }
                9 if random.below(5) == 0 => series.tablet.compact(),
                _ => {}
            }
            series.pass_to(series.now_s + random.below(40) as u32);
            let now_s = series.now_s;
            let expected: Vec<u64> = model.iter().filter(|(_, until_s)| **until_s > now_s).map(|(n, _)| *n).collect();
            let found: Vec<u64> = series.live().into_keys().collect();
            assert_eq!(found, expected, "seed {seed}, step {step}");
        }
    }
}
