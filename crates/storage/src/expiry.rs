//! The compaction filter: what it knows of time, and when.
//!
//! Always true: a compaction knows no later time than an entry that can still be applied, or replayed, on what it leaves: that of the applied
//! state that has reached the disk. Deletions within rows it drops only at the horizon of the newest entry among the files that it merges, so
//! that every write above them is either newer than what is dropped or says itself that it does not depend on it
//! (`docs/decisions/2026-11-23-time-comes-from-the-log.md`). No clock makes it know more than that; the node's makes it know less where a log is
//! ahead of it (`docs/decisions/2026-11-24-stamps-from-the-future.md`).
//! Left out: what values mean ([`ValueSemantics`]).

use crate::applied::AppliedState;
use crate::keys::{META_KEY, is_about_the_tablet};
use crate::semantics::{CompactionVerdict, ValueSemantics};
use crate::table_options::CompactionStyle;
use diorite_base::Horizon;
use diorite_base::caught::caught;
use parking_lot::Mutex;
use rust_rocksdb::compaction_filter::{CompactionFilter, Decision};
use rust_rocksdb::compaction_filter_factory::{CompactionFilterContext, CompactionFilterFactory};
use std::ffi::CStr;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};

/// What a tablet's compaction filter must know; the tablet keeps it current.
#[derive(Debug, Default)]
pub(crate) struct Expiry {
    /// A state that has reached the disk, not necessarily the newest.
    durable: Mutex<AppliedState>,
    /// The last compactions have left something that time alone would let go.
    awaits_time: AtomicBool,
    /// The longest time to live that compactions have met since the tablet was opened, seconds.
    longest_ttl_s: AtomicU32,
}

impl Expiry {
    /// Notes that this state has reached the disk.
    pub(crate) fn note_durable(&self, state: AppliedState) {
        let mut durable = self.durable.lock();
        if state.index >= durable.index {
            *durable = state;
        }
    }

    /// The longest time to live that compactions have met since the tablet was opened, seconds; 0: none.
    pub(crate) fn longest_ttl_s(&self) -> u32 {
        self.longest_ttl_s.load(Ordering::Relaxed)
    }

    /// Whether something waits for time to pass.
    pub(crate) fn awaits_time(&self) -> bool {
        self.awaits_time.load(Ordering::Relaxed)
    }
}

/// When the oldest file of a tablet with windows may be compacted alone again, and how long it waits the next time, seconds.
#[derive(Debug, Default)]
pub(crate) struct Trials {
    pub(crate) next_s: u64,
    pub(crate) wait_s: u64,
}

pub(crate) struct ExpiryFilterFactory {
    pub(crate) semantics: Arc<dyn ValueSemantics>,
    pub(crate) expiry: Arc<Expiry>,
    pub(crate) style: CompactionStyle,
    /// What second it is, by the clock of this node.
    pub(crate) present_s: Arc<AtomicU32>,
}

impl CompactionFilterFactory for ExpiryFilterFactory {
    type Filter = ExpiryFilter;

    fn create(&mut self, context: CompactionFilterContext) -> ExpiryFilter {
        if context.is_full_compaction {
            self.expiry.awaits_time.store(false, Ordering::Relaxed);
        }
        let durable = *self.expiry.durable.lock();
        // Where all timestamps are the log's, later writes have later ones. Else a write with an older one may lie above the row, in a file that is not
        // merged with it, since before the horizon passed it.
        let present_s = self.present_s.load(Ordering::Relaxed);
        let known = durable.horizon.no_later_than(present_s);
        let rows_s = if durable.newest_explicit_us == i64::MIN { known.rows_s } else { 0 };
        ExpiryFilter {
            semantics: Arc::clone(&self.semantics),
            expiry: Arc::clone(&self.expiry),
            // Levels hold each key's own past: no state among their files is about all of it, unless all files are merged.
            merges_whole_runs: self.style.merges_whole_runs() || context.is_full_compaction,
            horizon: Horizon { rows_s, ..known },
            present_s,
            notes_ttl: matches!(self.style, CompactionStyle::TimeWindow { .. }),
            replacement: Vec::new(),
        }
    }

    fn name(&self) -> &CStr {
        c"diorite.expiry.1"
    }
}

/// Drops what has expired from whole entries; merge operands are left for the merge.
pub(crate) struct ExpiryFilter {
    semantics: Arc<dyn ValueSemantics>,
    expiry: Arc<Expiry>,
    merges_whole_runs: bool,
    horizon: Horizon,
    present_s: u32,
    /// The table has windows: how long values live is of interest.
    notes_ttl: bool,
    /// The last replacement handed to RocksDB, kept until the next call.
    replacement: Vec<u8>,
}

impl ExpiryFilter {
    /// The state of the newest of the files that are merged comes first, before all data.
    fn learn(&mut self, value: &[u8]) {
        if let Ok(state) = AppliedState::decode(value)
            && self.merges_whole_runs
        {
            self.horizon = self.horizon.max(state.horizon.no_later_than(self.present_s));
        }
    }
}

impl CompactionFilter for ExpiryFilter {
    /// What cannot be judged stays as it is. RocksDB's frames are above: no panic may go through them.
    fn filter(&mut self, _level: u32, key: &[u8], value: &[u8]) -> Decision {
        caught(|| self.judge(key, value)).unwrap_or_else(|panic| {
            tracing::error!(event = "panic", %panic, "a compaction could not judge a value");
            Decision::Keep
        })
    }

    fn name(&self) -> &CStr {
        c"diorite.expiry.1"
    }
}

impl ExpiryFilter {
    fn judge(&mut self, key: &[u8], value: &[u8]) -> Decision {
        if is_about_the_tablet(key) {
            if key == META_KEY {
                self.learn(value);
            }
            return Decision::Keep;
        }
        if self.notes_ttl {
            self.expiry.longest_ttl_s.fetch_max(self.semantics.longest_ttl_s(value), Ordering::Relaxed);
        }
        let verdict = self.semantics.compact(key, value, &self.horizon);
        if verdict != CompactionVerdict::Remove && self.semantics.awaits_time(value) {
            self.expiry.awaits_time.store(true, Ordering::Relaxed);
        }
        match verdict {
            CompactionVerdict::Keep => Decision::Keep,
            CompactionVerdict::Remove => Decision::Remove,
            CompactionVerdict::Replace(value) => {
                self.replacement = value;
                // SAFETY: RocksDB's C interface copies the new value into its own string before it calls the filter again or
                // destroys it, and `replacement` is not touched until then; the slice is never used longer than that.
                let replacement =
                    unsafe { std::slice::from_raw_parts(self.replacement.as_ptr(), self.replacement.len()) };
                Decision::Change(replacement)
            }
        }
    }
}
