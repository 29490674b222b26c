//! What a tablet knows of the rows that are no more which its scans have passed over ([`crate::Tablet::scan_live`]).

use parking_lot::Mutex;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

/// Reads have passed over so many rows that compaction would let go before they are compacted.
const COMPACTED_ROWS: u64 = 50_000;

/// What a tablet knows of rows that are no more.
#[derive(Debug, Default)]
pub(crate) struct DeadRows {
    /// Scans meet many of them one after another: the next ones are to note where.
    pub(crate) meets_many: AtomicBool,
    /// Passed over since a compaction was asked for, of those that it would let go.
    purgeable: AtomicU64,
    /// Where.
    range: Mutex<Option<(Vec<u8>, Vec<u8>)>>,
}

impl DeadRows {
    /// Scans have passed over so many rows, from this key to before that one, that compaction would let go.
    pub(crate) fn note_purgeable(&self, rows: u64, start: &[u8], end: &[u8]) {
        self.purgeable.fetch_add(rows, Ordering::Relaxed);
        let mut range = self.range.lock();
        *range = Some(match range.take() {
            None => (start.to_vec(), end.to_vec()),
            Some((from, to)) => (from.min(start.to_vec()), to.max(end.to_vec())),
        });
    }

    /// The range that is worth a compaction, if there is one; asked for once.
    pub(crate) fn take_due(&self) -> Option<(Vec<u8>, Vec<u8>)> {
        if self.purgeable.load(Ordering::Relaxed) < COMPACTED_ROWS {
            return None;
        }
        self.purgeable.store(0, Ordering::Relaxed);
        self.range.lock().take()
    }
}
