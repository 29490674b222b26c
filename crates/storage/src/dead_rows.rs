//! The deleted or expired rows that scans of a tablet have skipped ([`crate::Tablet::scan_live`]), which decide when it
//! is worth compacting them.

use parking_lot::Mutex;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

/// A compaction is due once reads have skipped so many rows that compaction would remove.
const COMPACTED_ROWS: u64 = 50_000;

/// Counts of dead rows: deleted or expired ones.
#[derive(Debug, Default)]
pub(crate) struct DeadRows {
    /// Scans skip many dead rows in succession: the next scans are to note the ranges.
    pub(crate) meets_many: AtomicBool,
    /// Rows skipped since a compaction was last asked for that compaction would remove.
    purgeable: AtomicU64,
    /// The range that holds them.
    range: Mutex<Option<(Vec<u8>, Vec<u8>)>>,
}

impl DeadRows {
    /// Scans have skipped `rows` rows between these keys (the end is exclusive) that compaction would remove.
    pub(crate) fn note_purgeable(&self, rows: u64, start: &[u8], end: &[u8]) {
        self.purgeable.fetch_add(rows, Ordering::Relaxed);
        let mut range = self.range.lock();
        *range = Some(match range.take() {
            None => (start.to_vec(), end.to_vec()),
            Some((from, to)) => (from.min(start.to_vec()), to.max(end.to_vec())),
        });
    }

    /// The range that is worth a compaction, if there is one. Each is returned once.
    pub(crate) fn take_due(&self) -> Option<(Vec<u8>, Vec<u8>)> {
        if self.purgeable.load(Ordering::Relaxed) < COMPACTED_ROWS {
            return None;
        }
        self.purgeable.store(0, Ordering::Relaxed);
        self.range.lock().take()
    }
}
