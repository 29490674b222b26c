//! How eagerly RocksDB merges the runs of a tablet with size-tiered compaction.
//!
//! Two choices change while a tablet is open. While much is written, more runs may wait and more of them are merged at
//! a time, which writes each row less often and makes reads look into more runs. And everything is compacted, for the
//! sake of space, only if that removes something: a load of new rows would otherwise be rewritten each time that it
//! grows by a quarter.
//!
//! Always true: a tablet whose garbage is not known is compacted by sizes alone. Left out: which runs are merged, which
//! RocksDB chooses.

/// The time over which flushes are counted, seconds.
const PERIOD_S: u64 = 30;
/// This many flushes in that time are much.
const MANY_FLUSHES: u64 = 4;
/// At most this many are few. (Between both, nothing changes.)
const FEW_FLUSHES: u64 = 1;
/// A compaction begins at this many sorted runs.
pub(crate) const RUNS: i32 = 6;
/// The same while many new rows are written.
pub(crate) const RUNS_WHILE_LOADING: i32 = 24;
/// The same while many rows are overwritten: what the runs that wait have replaced takes space.
const RUNS_WHILE_OVERWRITING: i32 = 16;
/// The least number of runs that are merged.
pub(crate) const WIDTH: i32 = 4;
/// The same while many new rows are written.
const WIDTH_WHILE_LOADING: i32 = 12;
/// The same while many rows are overwritten.
const WIDTH_WHILE_OVERWRITING: i32 = 8;
/// A run is merged with newer ones unless it exceeds their sum by more than this, percent.
pub(crate) const SIZE_RATIO: i32 = 20;
/// The same while many new rows are written: 23 new runs are not merged with one that was made of 24 a moment ago, which
/// would double what is written for 24 runs.
const SIZE_RATIO_WHILE_LOADING: i32 = 0;
/// A growth that RocksDB never sees, percent.
const NEVER_PERCENT: i32 = 1_000_000;

/// The choices for a tablet.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Eagerness {
    /// Whether much is written.
    pub(crate) is_loading: bool,
    /// Whether a compaction of everything is worth its work.
    pub(crate) frees_space: bool,
}

impl Eagerness {
    /// The choices that tablets are opened with.
    pub(crate) const AT_OPEN: Self = Self { is_loading: false, frees_space: true };

    /// The options of RocksDB, by name; `space_percent` is the growth at which everything is compacted.
    pub(crate) fn options(self, space_percent: i32) -> [(&'static str, String); 2] {
        let (runs, width) = match (self.is_loading, self.frees_space) {
            (false, _) => (RUNS, WIDTH),
            (true, false) => (RUNS_WHILE_LOADING, WIDTH_WHILE_LOADING),
            (true, true) => (RUNS_WHILE_OVERWRITING, WIDTH_WHILE_OVERWRITING),
        };
        let (ratio, percent) = match self.frees_space {
            true => (SIZE_RATIO, space_percent),
            false if self.is_loading => (SIZE_RATIO_WHILE_LOADING, NEVER_PERCENT),
            false => (SIZE_RATIO, NEVER_PERCENT),
        };
        [
            (
                "compaction_options_universal",
                format!("{{size_ratio={ratio};min_merge_width={width};max_size_amplification_percent={percent}}}"),
            ),
            ("level0_file_num_compaction_trigger", runs.to_string()),
        ]
    }
}

/// Whether `entries` in files are so many more than `keys` that the files exceed what is live by `space_percent`, less
/// a fifth of that for the error of the estimate.
pub(crate) fn has_garbage(entries: u64, keys: Option<u64>, space_percent: i32) -> bool {
    let Some(keys) = keys else { return true };
    let percent = 100 + u64::from(space_percent.unsigned_abs()) * 4 / 5;
    entries.saturating_mul(100) >= keys.saturating_mul(percent)
}

/// The present choices, and what they rest on.
#[derive(Debug)]
pub(crate) struct Merging {
    pub(crate) chosen: Eagerness,
    /// The amount of background work when files were last looked at.
    pub(crate) files_of: Option<u64>,
    /// When the period began, seconds, and the flushes until then.
    began: Option<(u64, u64)>,
}

impl Default for Merging {
    fn default() -> Self {
        Self { chosen: Eagerness::AT_OPEN, files_of: None, began: None }
    }
}

impl Merging {
    /// Whether much is written, by the number of `flushes` since the tablet was opened.
    pub(crate) fn is_loading(&mut self, flushes: u64, now_s: u64) -> bool {
        let (began_s, before) = *self.began.get_or_insert((now_s, flushes));
        let is_over = now_s < began_s || now_s - began_s >= PERIOD_S;
        if !is_over {
            // A load is noticed before the period is over: it may not last much longer.
            return self.chosen.is_loading || flushes - before >= MANY_FLUSHES;
        }
        self.began = Some((now_s, flushes));
        // After a longer pause than a period the flushes count as if they had been spread over it.
        let periods = (now_s.saturating_sub(began_s) / PERIOD_S).max(1);
        match (flushes - before) / periods {
            MANY_FLUSHES.. => true,
            0..=FEW_FLUSHES => false,
            _ => self.chosen.is_loading,
        }
    }
}

#[cfg(test)]
mod tests;
