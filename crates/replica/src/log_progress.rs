//! How the writing of a log gets on.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

/// How long a log may take for one write, nanoseconds, before others are to lead.
const STALL_NS: u64 = 2_000_000_000;

/// How the writing of a log gets on.
#[derive(Debug, Default)]
pub(crate) struct LogProgress {
    /// Since when a write is under way, nanoseconds; 0: none is.
    since_ns: AtomicU64,
    /// Leases were taken away since this was last asked.
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

    /// Leases of what this log's thread runs were taken away.
    pub(crate) fn note_revocation(&self) {
        self.has_revoked.store(true, Ordering::Release);
    }

    /// Whether leases were taken away and the thread has not found out.
    pub(crate) fn has_revoked(&self) -> bool {
        self.has_revoked.load(Ordering::Acquire)
    }

    /// The same; the thread finds out.
    pub(crate) fn take_revocation(&self) -> bool {
        self.has_revoked() && self.has_revoked.swap(false, Ordering::AcqRel)
    }
}
