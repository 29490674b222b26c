//! What became of the entries of the audit log, for metrics.
//!
//! Left out: entries that are not to be kept.

use std::sync::atomic::AtomicU64;

/// How many entries there were.
#[derive(Default)]
pub(crate) struct AuditCounters {
    pub(crate) written: AtomicU64,
    /// For want of space in the queue, or because they could not be written.
    pub(crate) dropped: AtomicU64,
    /// Failed logins and refused operations beyond their rate.
    pub(crate) dropped_refused: AtomicU64,
}
