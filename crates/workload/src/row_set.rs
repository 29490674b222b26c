//! The rows of a run whose keys are numbered: which key comes next, and what a read of it may return.
//!
//! Always true: what a read may return is looked up *before* the request is sent, so a write that finishes meanwhile
//! cannot raise a false alarm; what can have been written at all is looked up *after* the answer.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use diorite_base::random::{Random, SplitMix64};

use crate::arguments::Popularity;
use crate::data::{KeyFormat, Version, check_value};
use crate::error::{Problem, Violation};
use crate::key_state::{KeyState, WriteTicket};

/// Everything about the rows of a run except how they travel.
#[derive(Clone)]
pub struct RowSet {
    pub keys: Arc<KeyState>,
    pub format: KeyFormat,
    pub value_size: usize,
    /// The bits of an `f64`: the newest percentage of the keys that is read and overwritten; 100 is all. It changes
    /// between the phases of a benchmark, while no task runs.
    recent_percent: Arc<AtomicU64>,
}

impl RowSet {
    /// Rows whose keys are chosen by `popularity`.
    pub fn new(keys: Arc<KeyState>, format: KeyFormat, value_size: usize, popularity: Popularity) -> Self {
        let rows = Self { keys, format, value_size, recent_percent: Arc::default() };
        rows.set_popularity(popularity);
        rows
    }

    /// Changes how keys are chosen, for every copy of this set.
    pub fn set_popularity(&self, popularity: Popularity) {
        let percent = match popularity {
            Popularity::Uniform => 100.0,
            Popularity::Recent { percent } => percent,
        };
        self.recent_percent.store(f64::to_bits(percent), Ordering::Relaxed);
    }

    /// The key to write next: a new one, or, when all exist, one to overwrite.
    pub fn next_write(&self, random: &mut SplitMix64) -> Option<WriteTicket> {
        if let Some(ticket) = self.keys.start_new() {
            return Some(ticket);
        }
        if !self.keys.exhausted() {
            return None;
        }
        // A key that is being written is passed over; with few keys and many writers all may be busy.
        (0..16).find_map(|_| self.keys.start_overwrite(self.choose(random)?))
    }

    /// The key to read next, and the oldest version that may be found there.
    pub fn next_read(&self, random: &mut SplitMix64) -> Option<(u64, Version)> {
        let number = self.choose(random)?;
        Some((number, self.keys.oldest_allowed(number)))
    }

    fn choose(&self, random: &mut SplitMix64) -> Option<u64> {
        let readable = self.keys.readable();
        if readable == 0 {
            return None;
        }
        let percent = f64::from_bits(self.recent_percent.load(Ordering::Relaxed));
        let hot = ((readable as f64 * percent / 100.0) as u64).clamp(1, readable);
        Some(readable - 1 - random.below(hot))
    }

    /// Checks the value found for key `number`; `None` is a missing row.
    pub fn check(&self, number: u64, oldest: Version, found: Option<&[u8]>) -> Result<(), Violation> {
        let problem = match found.map(|value| check_value(number, self.value_size, value)) {
            Some(Ok(version)) if version >= oldest => return Ok(()),
            None if self.keys.may_be_missing(number) => return Ok(()),
            Some(Ok(found)) => Problem::Stale { found, acknowledged: oldest },
            Some(Err(mismatch)) => Problem::Wrong(mismatch),
            None => Problem::Missing,
        };
        Err(Violation { key: self.format.name(number), problem })
    }

    /// Checks the version of the rows of key `number`, which do not prove themselves that it was ever written; `None` if
    /// there are none.
    pub fn check_version(&self, number: u64, oldest: Version, found: Option<Version>) -> Result<(), Problem> {
        let found = match found {
            Some(found) => found,
            None if self.keys.may_be_missing(number) => return Ok(()),
            None => return Err(Problem::Missing),
        };
        if found < oldest {
            return Err(Problem::Stale { found, acknowledged: oldest });
        }
        // Before its first write here the key may have any version of an earlier run.
        let newest = self.keys.newest_possible(number);
        if oldest != Version::default() && found > newest {
            return Err(Problem::Shape(format!("version {found}, but the newest one written is {newest}")));
        }
        Ok(())
    }

    /// Whether the row of key `number` may by now be another one than the one of `version`, which it had when a read began:
    /// a write of it has been sent since, or its only write failed.
    pub fn may_differ(&self, number: u64, version: Version) -> bool {
        let newest = self.keys.newest_possible(number);
        // A key of an earlier run that was not written here has the count 0.
        newest.count() > 0 && newest != version || self.keys.may_be_missing(number)
    }

    /// A violation of the answer's shape.
    pub fn shape(&self, number: u64, detail: impl Into<String>) -> Violation {
        Violation { key: self.format.name(number), problem: Problem::Shape(detail.into()) }
    }
}

#[cfg(test)]
mod tests;
