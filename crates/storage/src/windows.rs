//! Compaction of a tablet whose table has time windows: only files of one window are merged.
//!
//! A file belongs to the window in which its newest data was written. While a window is current, its files are merged
//! by size; once the window is over, they become one file. That file is rewritten only once: when all its data should
//! have expired, it is compacted alone, and the compaction filter, which uses the log's time and not a clock, removes
//! all of it. Rows that are still live become a small file.
//!
//! Always true: only files adjacent in age are merged, and only the oldest is compacted alone, so that no older value
//! reappears. Left out: choosing files by keys; files that were merged before the table had windows are one run, the
//! oldest.

use crate::error::StorageError;
use crate::expiry::Trials;
use crate::table_options::SLOWDOWN_RUNS;
use crate::tablet::Tablet;
use rust_rocksdb::LiveFile;
use std::fs::{self, File};
use std::ops::Range;
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime};

/// The smallest number of files of the current window that are merged.
const LEAST: usize = 4;
/// The most of them that stay unmerged, whatever their sizes.
const MOST: usize = SLOWDOWN_RUNS as usize / 2;
/// A file is merged with newer ones if its size is at most this share of their sum, percent.
const LARGER_PERCENT: u64 = 120;
/// The wait after the first attempt to compact a file alone that removed nothing, seconds; each further attempt doubles
/// it.
const WAIT_S: u64 = 60;

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
fn runs_of(mut files: Vec<(LiveFile, u64)>, window_s: u32) -> Vec<Run> {
    files.sort_by_key(|(file, _)| (file.level, std::cmp::Reverse(file.largest_seqno)));
    let mut runs: Vec<Run> = Vec::new();
    for (file, written_s) in files {
        let (name, bytes) = (file.name, file.size as u64);
        match runs.last_mut() {
            Some(run) if file.level > 0 && run.level == file.level => {
                run.files.push(name);
                run.bytes += bytes;
                run.newest_s = run.newest_s.max(written_s);
            }
            _ => runs.push(Run { files: vec![name], level: file.level, bytes, window: 0, newest_s: written_s }),
        }
    }
    let mut newest_s = u64::MAX;
    for run in &mut runs {
        newest_s = newest_s.min(run.newest_s);
        run.newest_s = newest_s;
        run.window = newest_s / u64::from(window_s.max(1));
    }
    runs
}

impl Tablet {
    /// Runs at most one compaction that is due in a tablet with windows of this length.
    pub(crate) fn compact_windows(&self, window_s: u32) -> Result<(), StorageError> {
        let present_s = u64::from(self.present_s());
        let dated = |file: LiveFile| {
            let written_s = written_s(&path_of(&file));
            (file, written_s)
        };
        let runs = runs_of(self.live_files()?.into_iter().map(dated).collect(), window_s);
        if let Some(chosen) = choose(&runs, present_s / u64::from(window_s.max(1))) {
            self.compact_runs(&runs[chosen])?;
            return Ok(());
        }
        let Some(oldest) = runs.last() else { return Ok(()) };
        if self.may_have_expired(oldest.newest_s, present_s)? && self.compact_runs(std::slice::from_ref(oldest))? == 0 {
            // The next oldest file may have expired too.
            *self.trials.lock() = Trials::default();
        }
        Ok(())
    }

    /// Whether all data written by `newest_s` may be removed, if no TTL is longer than those that compactions have met.
    /// Returns true at growing intervals.
    fn may_have_expired(&self, newest_s: u64, present_s: u64) -> Result<bool, StorageError> {
        let ttl_s = u64::from(self.longest_ttl_s());
        let horizon = self.flushed_state()?.horizon;
        let is_past = u64::from(horizon.now_s) > newest_s + ttl_s && u64::from(horizon.rows_s) > newest_s;
        let mut trials = self.trials.lock();
        if ttl_s == 0 || !is_past || present_s < trials.next_s {
            return Ok(false);
        }
        let wait_s = trials.wait_s.max(WAIT_S);
        *trials = Trials { next_s: present_s + wait_s, wait_s: wait_s * 2 };
        Ok(true)
    }

    /// Merges runs into one that is as old as the newest of them; returns the number of files that remain.
    fn compact_runs(&self, runs: &[Run]) -> Result<usize, StorageError> {
        let newest_s = runs.iter().map(|run| run.newest_s).max().unwrap_or(0);
        let level = runs.iter().map(|run| run.level).max().unwrap_or(0);
        let files = self.compact_files(runs.iter().flat_map(|run| &run.files), level)?;
        files.iter().for_each(|path| set_written_s(path, newest_s));
        Ok(files.len())
    }
}

pub(crate) fn path_of(file: &LiveFile) -> PathBuf {
    PathBuf::from(&file.directory).join(file.name.trim_start_matches('/'))
}

/// When the newest data in a file was written, seconds since 1970; 0 if unknown.
pub(crate) fn written_s(path: &Path) -> u64 {
    let modified = fs::metadata(path).and_then(|metadata| metadata.modified()).ok();
    modified.and_then(|at| at.duration_since(SystemTime::UNIX_EPOCH).ok()).map_or(0, |since| since.as_secs())
}

/// Sets the age of a merged file to that of its data. If that fails, the file counts as newer than it is, and is
/// removed later.
pub(crate) fn set_written_s(path: &Path, seconds: u64) {
    let at = SystemTime::UNIX_EPOCH + Duration::from_secs(seconds);
    if let Err(error) = File::open(path).and_then(|file| file.set_modified(at)) {
        tracing::warn!(path = %path.display(), %error, "a merged file cannot be marked with the age of its data");
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Runs of level 0 with these windows and sizes, from the newest to the oldest.
    fn runs(of: &[(u64, u64)]) -> Vec<Run> {
        let run = |&(window, bytes)| Run { files: Vec::new(), level: 0, bytes, window, newest_s: window };
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
        let runs = runs_of(files, 100);
        let told: Vec<_> = runs.iter().map(|run| (run.files.join(""), run.level, run.bytes, run.window)).collect();
        let expected = [("a", 0, 10, 2), ("b", 0, 10, 2), ("dc", 6, 20, 2)]
            .map(|(name, level, bytes, window)| (name.to_owned(), level, bytes, window));
        assert_eq!(told, expected);
    }
}
