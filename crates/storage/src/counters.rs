//! Counters of background work.

use std::sync::atomic::AtomicU64;

/// Counters of background work, over all tablets.
#[derive(Debug, Default)]
pub struct StorageCounters {
    /// Flushes under way.
    pub flushes_running: AtomicU64,
    /// Compactions under way in the LOW pool (not into the last level).
    pub compactions_running_low: AtomicU64,
    /// Compactions under way into the last level.
    pub compactions_running_bottom: AtomicU64,
    /// Flushes finished.
    pub flushes: AtomicU64,
    /// Compactions finished.
    pub compactions: AtomicU64,
    /// Time that compactions took, microseconds.
    pub compaction_us: AtomicU64,
    /// Times RocksDB slowed writes down.
    pub write_slowdowns: AtomicU64,
    /// Times RocksDB stopped writes.
    pub write_stops: AtomicU64,
    /// Deleted or expired rows that scans have skipped.
    pub dead_rows_passed: AtomicU64,
    /// Background errors.
    pub background_errors: AtomicU64,
}
