//! The compaction filter, and the horizon that it uses.
//!
//! Always true: a compaction uses no later horizon than that of any entry that can still be applied, or replayed, on
//! its result: the horizon of the applied state that has reached the disk. It removes deletions within rows only up to
//! the horizon of the newest entry among the files that it merges, so that every write above them is either newer than
//! what is removed or carries its horizon (`docs/decisions/2026-11-23-time-comes-from-the-log.md`). No clock makes the
//! horizon later; the node's clock bounds it where a log is ahead
//! (`docs/decisions/2026-11-24-stamps-from-the-future.md`).
//! Left out: the meaning of values ([`ValueSemantics`]).

use crate::applied::AppliedState;
use crate::distinct_keys::DistinctKeys;
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

/// The tablet's state that its compaction filter uses; the tablet keeps it current.
#[derive(Default)]
pub(crate) struct Expiry {
    /// An applied state that has reached the disk, not necessarily the newest.
    durable: Mutex<AppliedState>,
    /// Whether the last compactions have kept values that a later horizon alone would let them remove.
    awaits_time: AtomicBool,
    /// The keys that the tablet stores.
    pub(crate) keys: DistinctKeys,
}

impl Expiry {
    /// Notes that this state has reached the disk.
    pub(crate) fn note_durable(&self, state: AppliedState) {
        let mut durable = self.durable.lock();
        if state.index >= durable.index {
            *durable = state;
        }
    }

    /// The horizon of a compaction that does not know the states of the files that it merges. `present_s` is the
    /// current second, by this node's clock.
    pub(crate) fn horizon(&self, present_s: u32) -> Horizon {
        let durable = *self.durable.lock();
        // If all timestamps are stamps, later writes have later ones. If clients gave some, a write with an older
        // timestamp may lie above the row, in a file that is not merged with it, from before the horizon passed its
        // timestamp.
        let known = durable.horizon.no_later_than(present_s);
        let rows_s = if durable.newest_explicit_us == i64::MIN { known.rows_s } else { 0 };
        Horizon { rows_s, ..known }
    }

    /// Forgets which values earlier compactions have kept.
    pub(crate) fn forget_waiting(&self) {
        self.awaits_time.store(false, Ordering::Relaxed);
    }

    /// Whether a later horizon alone would let a compaction remove something.
    pub(crate) fn awaits_time(&self) -> bool {
        self.awaits_time.load(Ordering::Relaxed)
    }
}

pub(crate) struct ExpiryFilterFactory {
    pub(crate) semantics: Arc<dyn ValueSemantics>,
    pub(crate) expiry: Arc<Expiry>,
    pub(crate) style: CompactionStyle,
    /// The current second, by this node's clock.
    pub(crate) present_s: Arc<AtomicU32>,
}

impl CompactionFilterFactory for ExpiryFilterFactory {
    type Filter = ExpiryFilter;

    fn create(&mut self, context: CompactionFilterContext) -> ExpiryFilter {
        if context.is_full_compaction {
            self.expiry.forget_waiting();
            self.expiry.keys.begin_rebuilding();
        }
        let present_s = self.present_s.load(Ordering::Relaxed);
        ExpiryFilter {
            semantics: Arc::clone(&self.semantics),
            expiry: Arc::clone(&self.expiry),
            // With levels, the files of each key range have their own history: no state among the files covers all of
            // it, unless all files are merged.
            is_full: context.is_full_compaction,
            merges_whole_runs: self.style.merges_whole_runs() || context.is_full_compaction,
            horizon: self.expiry.horizon(present_s),
            present_s,
            replacement: Vec::new(),
        }
    }

    fn name(&self) -> &CStr {
        c"diorite.expiry.1"
    }
}

/// Removes expired data from whole entries; merge operands are left to the merge operator.
pub(crate) struct ExpiryFilter {
    semantics: Arc<dyn ValueSemantics>,
    expiry: Arc<Expiry>,
    /// Whether everything is compacted.
    is_full: bool,
    merges_whole_runs: bool,
    horizon: Horizon,
    present_s: u32,
    /// The last replacement that RocksDB received, kept until the next call.
    replacement: Vec<u8>,
}

impl ExpiryFilter {
    /// Learns the applied state of the newest file that is merged, from the value of a key that sorts before all data.
    fn learn(&mut self, value: &[u8]) {
        if let Ok(state) = AppliedState::decode(value)
            && self.merges_whole_runs
        {
            self.horizon = self.horizon.max(state.horizon.no_later_than(self.present_s));
        }
    }
}

impl Drop for ExpiryFilter {
    fn drop(&mut self) {
        if self.is_full {
            self.expiry.keys.end_rebuilding();
        }
    }
}

impl CompactionFilter for ExpiryFilter {
    /// Values that cannot be judged stay unchanged. RocksDB's frames are on the stack, so no panic may cross this
    /// function.
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
        let verdict = self.semantics.compact(key, value, &self.horizon);
        if verdict != CompactionVerdict::Remove {
            self.expiry.keys.meet(key);
        }
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
