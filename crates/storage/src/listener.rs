//! Counts the work of RocksDB's background threads, per node and per tablet, and runs these threads at lower priority
//! than requests.

use crate::counters::StorageCounters;
use crate::precedence::run_at_lower_priority;
use crate::refolding::Refolding;
use diorite_base::caught::caught;
use parking_lot::Mutex;
use rust_rocksdb::event_listener::{
    BackgroundErrorRecoveryInfo, CompactionJobInfo, DBBackgroundErrorReason, DBWriteStallCondition, EventListener,
    FlushJobInfo, MutableStatus, WriteStallInfo,
};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, OnceLock};

/// Called before a flush writes the selected memtables.
pub type BeforeFlush = Box<dyn Fn() + Send + Sync>;

/// The state of a tablet's background work.
#[derive(Default)]
pub(crate) struct TabletEvents {
    /// Flushes finished since the tablet was opened.
    pub(crate) flushes: AtomicU64,
    /// Compactions begun plus compactions ended.
    pub(crate) compactions: AtomicU64,
    /// Whether RocksDB has stopped background work after an error.
    pub(crate) failed: AtomicBool,
    /// The cost of merging operands in reads.
    pub(crate) refolding: Refolding,
    /// The error that stopped background work.
    pub(crate) failure: Mutex<Option<rust_rocksdb::Error>>,
    pub(crate) before_flush: OnceLock<BeforeFlush>,
}

impl TabletEvents {
    /// A number that grows whenever files may have been added or removed.
    pub(crate) fn background_work(&self) -> u64 {
        self.flushes.load(Ordering::Acquire) + self.compactions.load(Ordering::Acquire)
    }
}

pub(crate) struct Listener {
    pub(crate) counters: Arc<StorageCounters>,
    pub(crate) tablet: Arc<TabletEvents>,
    pub(crate) last_level: i32,
}

impl Listener {
    fn pool(&self, info: &CompactionJobInfo) -> &AtomicU64 {
        if info.output_level() == self.last_level {
            &self.counters.compactions_running_bottom
        } else {
            &self.counters.compactions_running_low
        }
    }
}

impl EventListener for Listener {
    fn on_flush_begin(&self, _: &FlushJobInfo) {
        run_at_lower_priority();
        // The memtables to write have been selected at this point.
        if let Some(before_flush) = self.tablet.before_flush.get()
            && let Err(panic) = caught(before_flush)
        {
            tracing::error!(%panic, "the function before a flush panicked");
        }
        self.counters.flushes_running.fetch_add(1, Ordering::Relaxed);
    }

    fn on_flush_completed(&self, _: &FlushJobInfo) {
        self.counters.flushes_running.fetch_sub(1, Ordering::Relaxed);
        self.counters.flushes.fetch_add(1, Ordering::Relaxed);
        self.tablet.flushes.fetch_add(1, Ordering::Release);
    }

    fn on_compaction_begin(&self, info: &CompactionJobInfo) {
        run_at_lower_priority();
        self.pool(info).fetch_add(1, Ordering::Relaxed);
        self.tablet.compactions.fetch_add(1, Ordering::Release);
    }

    fn on_compaction_completed(&self, info: &CompactionJobInfo) {
        self.pool(info).fetch_sub(1, Ordering::Relaxed);
        self.tablet.compactions.fetch_add(1, Ordering::Release);
        self.counters.compactions.fetch_add(1, Ordering::Relaxed);
        self.counters.compaction_us.fetch_add(info.elapsed_micros(), Ordering::Relaxed);
    }

    fn on_stall_conditions_changed(&self, info: &WriteStallInfo) {
        match info.cur() {
            DBWriteStallCondition::KStopped => self.counters.write_stops.fetch_add(1, Ordering::Relaxed),
            DBWriteStallCondition::KDelayed => self.counters.write_slowdowns.fetch_add(1, Ordering::Relaxed),
            _ => {
                tracing::info!(event = "stall", before = ?info.prev(), "rocksdb takes writes at full speed again");
                return;
            }
        };
        tracing::warn!(event = "stall", condition = ?info.cur(), "rocksdb slows or stops writes: compaction cannot keep up");
    }

    fn on_background_error(&self, reason: DBBackgroundErrorReason, status: MutableStatus) {
        *self.tablet.failure.lock() = status.result().as_ref().err().cloned();
        self.tablet.failed.store(true, Ordering::Release);
        self.counters.background_errors.fetch_add(1, Ordering::Relaxed);
        tracing::error!(?reason, status = ?status.result(), "rocksdb background error");
    }

    fn on_error_recovery_end(&self, info: &BackgroundErrorRecoveryInfo) {
        if info.new_bg_error().result().is_ok() {
            self.tablet.failed.store(false, Ordering::Release);
            *self.tablet.failure.lock() = None;
            tracing::info!("rocksdb recovered from its background error");
        }
    }
}
