//! Counters of a store.

use crate::group::lease::LeaseChange;
use crate::transaction_counters::TransactionCounters;
use diorite_base::measure::{Counter, Histogram};
use std::sync::atomic::{AtomicU64, Ordering};

/// Counters of the write path.
#[derive(Debug, Default)]
pub struct StoreCounters {
    /// Log writes, one per turn and disk.
    pub log_writes: AtomicU64,
    /// Bytes written to the log.
    pub log_bytes: AtomicU64,
    /// Log writes that were fsynced.
    pub log_syncs: AtomicU64,
    /// Time spent in log writes, nanoseconds.
    pub log_write_ns: AtomicU64,
    /// Durations of log writes with an fsync.
    pub log_sync_times: Histogram,
    /// Writes proposed.
    pub proposals: Counter,
    /// Entries committed and applied.
    pub entries_committed: Counter,
    /// Elections that replicas of this node have won.
    pub elections_won: AtomicU64,
    /// Leases that began.
    pub leases_taken: AtomicU64,
    /// Leases that ended: by the leader itself, or because support lapsed.
    pub leases_lost: AtomicU64,
    /// Times a worker waited for memtables to be flushed.
    pub memory_waits: AtomicU64,
    /// Frames to other nodes that could not be queued.
    pub frames_lost: AtomicU64,
    /// Elections that replicas of this node have called.
    pub campaigns: AtomicU64,
    /// Bytes of copies of replicas sent to other nodes.
    pub copy_bytes_sent: AtomicU64,
    /// Bytes of copies of replicas received.
    pub copy_bytes_received: AtomicU64,
    /// Replicas that were moved to another disk of this node.
    pub disk_moves: AtomicU64,
    /// Bytes copied for such moves.
    pub disk_move_bytes: AtomicU64,
    /// Writes that were refused because a row that they would have added to is too large, or grew faster than it was measured.
    pub large_row_writes_refused: AtomicU64,
    /// Rows that were measured.
    pub rows_measured: AtomicU64,
    /// Bytes that scrubs have read.
    pub scrubbed_bytes: AtomicU64,
    /// What leaders did for transactions.
    pub transactions: TransactionCounters,
}

impl StoreCounters {
    pub(crate) fn copied_out(&self, bytes: u64) {
        self.copy_bytes_sent.fetch_add(bytes, Ordering::Relaxed);
    }

    pub(crate) fn copied_in(&self, bytes: u64) {
        self.copy_bytes_received.fetch_add(bytes, Ordering::Relaxed);
    }

    pub(crate) fn scrubbed(&self, bytes: u64) {
        self.scrubbed_bytes.fetch_add(bytes, Ordering::Relaxed);
    }

    pub(crate) fn moved_to_disk(&self, bytes: u64) {
        self.disk_moves.fetch_add(1, Ordering::Relaxed);
        self.disk_move_bytes.fetch_add(bytes, Ordering::Relaxed);
    }

    pub(crate) fn observe_log_write(&self, bytes: usize, elapsed_ns: u64, synced: bool) {
        self.log_writes.fetch_add(1, Ordering::Relaxed);
        self.log_bytes.fetch_add(bytes as u64, Ordering::Relaxed);
        self.log_write_ns.fetch_add(elapsed_ns, Ordering::Relaxed);
        self.log_syncs.fetch_add(u64::from(synced), Ordering::Relaxed);
        if synced {
            self.log_sync_times.record(elapsed_ns);
        }
    }

    pub(crate) fn note_lease(&self, change: LeaseChange) {
        match change {
            LeaseChange::Taken => self.leases_taken.fetch_add(1, Ordering::Relaxed),
            LeaseChange::Lost => self.leases_lost.fetch_add(1, Ordering::Relaxed),
            LeaseChange::Nothing => return,
        };
    }
}
