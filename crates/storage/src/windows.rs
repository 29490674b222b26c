//! Compaction of a tablet whose table has time windows: only files of one window are merged.
//!
//! A file belongs to the window in which its newest data was written. While a window is current, its files are merged
//! by size; once the window is over, they become one file. When the data of the oldest windows should have expired,
//! they are merged once more, together with what was left of still older ones: the compaction filter and the merge
//! operator (`purging`), which use the log's time and not a clock, remove what has expired. If that is all, nothing is
//! written. What is left becomes one file, the oldest, marked as *tried*.
//!
//! Always true: only files adjacent in age are merged, and rows are removed only where the oldest file is among them,
//! so that no older value reappears. Left out: choosing files by keys; dropping files unread, which RocksDB offers for
//! whole levels only.

use crate::ages::{path_of, set_written_s, written_s};
use crate::engine::ScanRange;
use crate::error::StorageError;
use crate::keys::{AFTER_ALL_KEYS, is_about_the_tablet};
use crate::looks::{Looks, Windows};
use crate::purging::purging;
use crate::tablet::Tablet;
use crate::ttls::Ttls;
use diorite_base::Horizon;
use rust_rocksdb::LiveFile;
use std::ops::Range;
use std::sync::atomic::Ordering;

/// The smallest number of files of the current window that are merged.
const LEAST: usize = 4;
/// The most of them that stay unmerged, whatever their sizes.
const MOST: usize = 12;
/// A file is merged with newer ones if its size is at most this share of their sum, percent.
const LARGER_PERCENT: u64 = 120;
/// If there are more windows, they are taken to be twice as long: a read may have to look into each file.
const MOST_WINDOWS: usize = 128;
/// Clocks of nodes differ by less, seconds.
const CLOCKS_DIFFER_S: u64 = 2;
/// The modification time of a file that holds what was left of windows that have expired, seconds since 1970.
const TRIED_S: u64 = 1;

/// The rows that are looked at if no time to live is known.
const SAMPLED_ROWS: usize = 5_000;

/// Files that are adjacent in age: one of level 0, or all of another level.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Run {
    files: Vec<String>,
    level: i32,
    bytes: u64,
    /// Its window.
    window: u64,
    /// The approximate time when its newest data was written, seconds since 1970.
    newest_s: u64,
    /// Whether it holds nothing but the tablet's own state.
    is_bare: bool,
}

impl Run {
    fn is_tried(&self) -> bool {
        self.newest_s <= TRIED_S
    }
}

/// The runs to merge next. `runs` are sorted from the newest to the oldest.
fn choose(runs: &[Run], window: u64) -> Option<Range<usize>> {
    let is_free = |run: &&Run| run.level == 0;
    let mut from = 0;
    while from < runs.len() {
        let of = runs[from].window;
        let count = runs[from..].iter().filter(is_free).take_while(|run| run.window == of).count();
        if count == 0 {
            return None;
        }
        let found = if of >= window { by_size(&runs[from..from + count]) } else { (count > 1).then_some(0..count) };
        if let Some(found) = found {
            return Some(from + found.start..from + found.end);
        }
        from += count;
    }
    None
}

/// The oldest runs, if their data should have expired: all that was written before this second. What was left of
/// earlier ones is read and written with them, so they must be as large as that; if `all` are to be merged, as large as
/// everything else.
fn expired(runs: &[Run], before_s: u64, all: bool) -> Option<Range<usize>> {
    let from = runs.iter().position(|run| run.newest_s < before_s)?;
    let has_rows = runs[from..].iter().any(|run| !run.is_tried() && !run.is_bare);
    let (mut gone, mut left) = (0, 0);
    for (at, run) in runs.iter().enumerate() {
        match at >= from && !run.is_tried() {
            true => gone += run.bytes,
            false if all || run.is_tried() => left += run.bytes,
            false => {}
        }
    }
    (has_rows && gone >= left).then_some(if all { 0 } else { from }..runs.len())
}

/// What was written before this second may be removed: its time to live is over, and the grace period since it was
/// written is.
fn before_s(horizon: Horizon, ttl_s: u32) -> u64 {
    match ttl_s {
        0 => 0,
        _ => u64::from(horizon.now_s.saturating_sub(ttl_s).min(horizon.rows_s)).saturating_sub(CLOCKS_DIFFER_S),
    }
}

/// The horizon once the log has this second. Without a grace period nothing is ever past it.
fn passed_to(horizon: Horizon, present_s: u32) -> Horizon {
    let ahead_s = present_s.saturating_sub(horizon.now_s);
    let rows_s = if horizon.rows_s == 0 { 0 } else { horizon.rows_s + ahead_s };
    Horizon { now_s: horizon.now_s + ahead_s, rows_s, ..horizon }
}

/// Adjacent runs of similar size, as new as possible.
fn by_size(runs: &[Run]) -> Option<Range<usize>> {
    for from in 0..runs.len() {
        let mut bytes = runs[from].bytes;
        let mut to = from + 1;
        while to < runs.len() && runs[to].bytes <= bytes / 100 * LARGER_PERCENT {
            bytes += runs[to].bytes;
            to += 1;
        }
        if to - from >= LEAST {
            return Some(from..to);
        }
    }
    (runs.len() > MOST).then_some(0..LEAST)
}

/// Runs from the newest to the oldest. An older run never has a later window than a newer one, whatever the clocks
/// were.
fn runs_of(mut files: Vec<(LiveFile, u64)>) -> Vec<Run> {
    files.sort_by_key(|(file, _)| (file.level, std::cmp::Reverse(file.largest_seqno)));
    let mut runs: Vec<Run> = Vec::new();
    for (file, newest_s) in files {
        let (level, bytes) = (file.level, file.size as u64);
        let is_bare = file.end_key.as_deref().is_some_and(is_about_the_tablet);
        match runs.last_mut() {
            Some(run) if level > 0 && run.level == level => {
                run.files.push(file.name);
                run.bytes += bytes;
                run.newest_s = run.newest_s.max(newest_s);
                run.is_bare &= is_bare;
            }
            _ => runs.push(Run { files: vec![file.name], level, bytes, window: 0, newest_s, is_bare }),
        }
    }
    let mut newest_s = u64::MAX;
    for run in &mut runs {
        newest_s = newest_s.min(run.newest_s);
        run.newest_s = newest_s;
    }
    runs
}

/// Sets the windows of runs. Returns the length that the windows have, so that there are not too many.
fn set_windows(runs: &mut [Run], window_s: u32) -> u64 {
    let mut window_s = u64::from(window_s.max(1));
    loop {
        runs.iter_mut().for_each(|run| run.window = run.newest_s / window_s);
        if runs.chunk_by(|newer, older| newer.window == older.window).count() <= MOST_WINDOWS {
            return window_s;
        }
        window_s *= 2;
    }
}

impl Tablet {
    /// Runs at most one compaction that is due in a tablet with windows of this length.
    pub(crate) fn compact_windows(&self, window_s: u32, windows: &Windows) -> Result<(), StorageError> {
        let present_s = self.present_s();
        let mut looks = windows.looks.lock();
        if !looks.take_due(self.background_work(), present_s, window_s) {
            return Ok(());
        }
        self.flush_at_end_of_window(present_s / window_s.max(1), window_s, &mut looks)?;
        if windows.ttls.usual_s() == 0 && !std::mem::replace(&mut looks.has_sampled, true) {
            self.sample_ttls(&windows.ttls)?;
        }
        windows.ttls.age();
        let ttl_s = windows.ttls.usual_s();
        if ttl_s != looks.noted_s {
            windows.ttls.remember(self.directory());
            looks.noted_s = ttl_s;
        }
        let mut runs = runs_of(self.dated_files()?);
        let actual_s = set_windows(&mut runs, window_s);
        let (durable, applied) = (self.flushed_state()?, self.applied_state()?);
        let has_explicit = applied.newest_explicit_us != i64::MIN;
        let expired_at = |horizon| expired(&runs, before_s(horizon, ttl_s), has_explicit);
        let latest_s = self.latest_s();
        let at_present = passed_to(applied.horizon, present_s);
        windows.await_time.store(expired_at(at_present).is_some(), Ordering::Relaxed);
        // What has expired is not merged before it goes.
        if let Some(chosen) = expired_at(durable.horizon.no_later_than(latest_s)) {
            let awaits_time = self.purge_runs(&runs[chosen], has_explicit)?;
            looks.note_tried(present_s, awaits_time, false);
        } else if expired_at(applied.horizon.no_later_than(latest_s)).is_some() {
            self.flush(true)?;
        } else if let Some(chosen) = choose(&runs, u64::from(present_s) / actual_s) {
            self.merge_runs(&runs[chosen])?;
        } else if looks.again_s > 0 && u64::from(present_s) >= looks.again_s {
            let oldest = runs.last().filter(|run| run.is_tried());
            let awaits_time = oldest.map_or(Ok(false), |oldest| self.purge_runs(std::slice::from_ref(oldest), false));
            looks.note_tried(present_s, awaits_time?, true);
        }
        Ok(())
    }

    /// Flushes what was written in an earlier window, once in each window, so that it does not stay with newer data,
    /// and so that the time of the log reaches the disk.
    fn flush_at_end_of_window(&self, window: u32, window_s: u32, looks: &mut Looks) -> Result<(), StorageError> {
        if looks.looked_in == window {
            return Ok(());
        }
        let (flushed, applied) = (self.flushed_state()?, self.applied_state()?);
        if applied.index > flushed.index && flushed.horizon.now_s / window_s.max(1) < window {
            self.flush(true)?;
        }
        looks.looked_in = window;
        Ok(())
    }

    /// Counts the times to live of some rows: those of a table that had no windows are not known.
    fn sample_ttls(&self, ttls: &Ttls) -> Result<(), StorageError> {
        let range = ScanRange { start: &[], end: AFTER_ALL_KEYS, reverse: false, expected_entries: SAMPLED_ROWS };
        let mut left = SAMPLED_ROWS;
        let mut see = |_: &[u8], value: &[u8]| {
            ttls.note(self.semantics().longest_ttl_s(value), value.len() as u64);
            left -= 1;
            left > 0
        };
        self.scan(&range, &mut see).map(|_| ())
    }

    fn dated_files(&self) -> Result<Vec<(LiveFile, u64)>, StorageError> {
        let dated = |file: LiveFile| {
            let written_s = written_s(&path_of(&file));
            (file, written_s)
        };
        Ok(self.live_files()?.into_iter().map(dated).collect())
    }

    /// Merges runs into one that is as old as the newest of them.
    fn merge_runs(&self, runs: &[Run]) -> Result<(), StorageError> {
        let newest_s = runs.iter().map(|run| run.newest_s).max().unwrap_or(0);
        let files = self.compact_files(runs.iter().flat_map(|run| &run.files), level_of(runs))?;
        files.iter().for_each(|path| set_written_s(path, newest_s));
        Ok(())
    }

    /// Merges the oldest runs, and removes what has expired. Returns whether something that is left may expire.
    fn purge_runs(&self, runs: &[Run], has_explicit: bool) -> Result<bool, StorageError> {
        // With timestamps of clients, places of expired values may be left, which are tried again.
        let newest_s = runs.iter().map(|run| run.newest_s).max().filter(|_| has_explicit).unwrap_or(TRIED_S);
        self.expiry().forget_waiting();
        let names = runs.iter().flat_map(|run| &run.files);
        let (files, purged) = purging(self.purge_horizon(), || self.compact_files(names, level_of(runs)));
        let mut files = files?;
        if purged.emptied > purged.kept {
            let names = files.iter().filter_map(|path| path.file_name()?.to_str());
            files = self.compact_files(names, level_of(runs))?;
        }
        files.iter().for_each(|path| set_written_s(path, newest_s));
        Ok(purged.awaits_time || self.expiry().awaits_time())
    }

    /// Compacts all files into one run, which is as old as the newest of them.
    pub(crate) fn compact_all_windows(&self) -> Result<(), StorageError> {
        let newest_s = self.dated_files()?.iter().map(|(_, written_s)| *written_s).max().unwrap_or(0);
        self.compact_range_of_all();
        let merged = self.live_files()?.into_iter().filter(|file| file.level > 0);
        merged.for_each(|file| set_written_s(&path_of(&file), newest_s));
        Ok(())
    }
}

fn level_of(runs: &[Run]) -> i32 {
    runs.iter().map(|run| run.level).max().unwrap_or(0)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Runs of level 0 with these windows and sizes, from the newest to the oldest.
    fn runs(of: &[(u64, u64)]) -> Vec<Run> {
        let run =
            |&(window, bytes)| Run { files: Vec::new(), level: 0, bytes, window, newest_s: window, is_bare: false };
        of.iter().map(run).collect()
    }

    #[test]
    fn windows_that_are_over_become_one_file_each() {
        assert_eq!(choose(&runs(&[(9, 1), (8, 1), (8, 50), (7, 1), (7, 1)]), 9), Some(1..3));
        assert_eq!(choose(&runs(&[(9, 1), (8, 51), (7, 1), (7, 1)]), 9), Some(2..4));
        assert_eq!(choose(&runs(&[(9, 1), (8, 51), (7, 2)]), 9), None);
        assert_eq!(choose(&[], 9), None);
    }

    #[test]
    fn files_of_the_window_that_goes_on_are_merged_by_size() {
        assert_eq!(choose(&runs(&[(9, 100), (9, 100), (9, 100), (8, 100)]), 9), None);
        assert_eq!(choose(&runs(&[(9, 100), (9, 100), (9, 100), (9, 100), (9, 9_000)]), 9), Some(0..4));
        assert_eq!(choose(&runs(&[(9, 1), (9, 100), (9, 100), (9, 100), (9, 100)]), 9), Some(1..5));
        let growing: Vec<_> = (0..=MOST as u32).map(|at| (9, 10u64.pow(at.min(15)))).collect();
        assert_eq!(choose(&runs(&growing), 9), Some(0..LEAST));
    }

    #[test]
    fn what_was_merged_before_there_were_windows_is_left_alone() {
        let mut all = runs(&[(9, 1), (3, 1), (3, 1), (3, 1)]);
        all[3].level = 6;
        assert_eq!(choose(&all, 9), Some(1..3));
        assert_eq!(choose(&all[2..], 9), None);
    }

    #[test]
    fn files_are_runs_by_age_and_clocks_that_go_back_make_no_newer_window() {
        let file = |name: &str, level, largest_seqno| LiveFile {
            column_family_name: String::new(),
            name: name.to_owned(),
            directory: String::new(),
            size: 10,
            level,
            start_key: None,
            end_key: None,
            smallest_seqno: 0,
            largest_seqno,
            num_entries: 0,
            num_deletions: 0,
        };
        let files =
            vec![(file("c", 6, 10), 700), (file("a", 0, 30), 250), (file("b", 0, 20), 320), (file("d", 6, 11), 100)];
        let mut runs = runs_of(files);
        set_windows(&mut runs, 100);
        let told: Vec<_> = runs.iter().map(|run| (run.files.join(""), run.level, run.bytes, run.window)).collect();
        let expected = [("a", 0, 10, 2), ("b", 0, 10, 2), ("dc", 6, 20, 2)]
            .map(|(name, level, bytes, window)| (name.to_owned(), level, bytes, window));
        assert_eq!(told, expected);
    }

    #[test]
    fn the_oldest_windows_go_together_once_they_are_as_large_as_what_was_left() {
        let mut all = runs(&[(9, 50), (8, 50), (7, 50), (TRIED_S, 80)]);
        assert_eq!(expired(&all, 7, false), None);
        assert_eq!(expired(&all, 8, false), None, "80 would be written to remove 50");
        assert_eq!(expired(&all, 9, false), Some(1..4));
        assert_eq!(expired(&all, 9, true), None, "all of it is more than twice as much");
        all[3].bytes = 2;
        assert_eq!(expired(&all, 8, false), Some(2..4));
        assert_eq!(expired(&all, 9, true), Some(0..4));
        all[2].is_bare = true;
        assert_eq!(expired(&all, 8, false), None, "there is nothing to remove");
        assert_eq!(expired(&all, 9, false), Some(1..4));
        assert_eq!(expired(&[], 9, false), None);
    }

    #[test]
    fn so_many_windows_are_joined() {
        let mut all = runs(&(0..300).rev().map(|at| (1_000 + 10 * at, 1)).collect::<Vec<_>>());
        assert_eq!(set_windows(&mut all, 10), 40);
        assert!(choose(&all, all[0].window).is_some_and(|chosen| chosen.len() == 4));
        assert_eq!(set_windows(&mut all[..100], 10), 10);
    }
}
