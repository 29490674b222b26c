//! The progress of writes to a log.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

/// How long one log write may take, nanoseconds, before other nodes are to lead.
const STALL_NS: u64 = 2_000_000_000;

/// The progress of writes to a log.
#[derive(Debug, Default)]
pub(crate) struct LogProgress {
    /// The start of the write under way, nanoseconds; 0: none is.
    since_ns: AtomicU64,
    /// Whether leases were revoked and the log's thread has not been notified.
    has_revoked: AtomicBool,
}

impl LogProgress {
    pub(crate) fn begin(&self, now_ns: u64) {
        self.since_ns.store(now_ns.max(1), Ordering::Relaxed);
    }

    pub(crate) fn end(&self) {
        self.since_ns.store(0, Ordering::Relaxed);
    }

    pub(crate) fn is_stalled(&self, now_ns: u64) -> bool {
        let since_ns = self.since_ns.load(Ordering::Relaxed);
        since_ns != 0 && now_ns >= since_ns + STALL_NS
    }

    /// Records that leases of the replicas on this log's thread were revoked.
    pub(crate) fn note_revocation(&self) {
        self.has_revoked.store(true, Ordering::Release);
    }

    /// Whether leases were revoked and the thread has not been notified.
    pub(crate) fn has_revoked(&self) -> bool {
        self.has_revoked.load(Ordering::Acquire)
    }

    /// As [`Self::has_revoked`], and resets it: the thread is notified by this.
    pub(crate) fn take_revocation(&self) -> bool {
        self.has_revoked() && self.has_revoked.swap(false, Ordering::AcqRel)
    }
}
