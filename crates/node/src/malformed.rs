//! Malformed rows that have ended statements of this node's clients: counted, and logged.
//!
//! Always true: at most one line a second is written, however many there are, and none has a value of a row. Left out:
//! damage that the storage finds, which sets replicas aside (`diorite_replica`).

use diorite_base::TabletId;
use parking_lot::Mutex;
use std::sync::atomic::{AtomicU64, Ordering};

const SECOND_NS: u64 = 1_000_000_000;

/// See the top of this module.
#[derive(Debug, Default)]
pub(crate) struct MalformedRows {
    met: AtomicU64,
    logged_ns: Mutex<Option<u64>>,
}

impl MalformedRows {
    /// How many statements have met one.
    pub(crate) fn met(&self) -> u64 {
        self.met.load(Ordering::Relaxed)
    }

    /// A statement has met one of this table and tablet.
    #[cold]
    pub(crate) fn note(&self, table: &str, tablet: TabletId, now_ns: u64) {
        let met = self.met.fetch_add(1, Ordering::Relaxed) + 1;
        if self.may_log(now_ns) {
            tracing::error!(event = "malformed_row", table, %tablet, met, "a statement has met a malformed row");
        }
    }

    fn may_log(&self, now_ns: u64) -> bool {
        let mut logged_ns = self.logged_ns.lock();
        let may_log = logged_ns.is_none_or(|logged_ns| now_ns.saturating_sub(logged_ns) >= SECOND_NS);
        if may_log {
            *logged_ns = Some(now_ns);
        }
        may_log
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn all_are_counted_and_one_a_second_is_logged() {
        let rows = MalformedRows::default();
        (0..5).for_each(|n| rows.note("ks.t", TabletId(1_000), n));
        assert_eq!(rows.met(), 5);
        assert!(!rows.may_log(SECOND_NS - 1));
        assert!(rows.may_log(SECOND_NS) && !rows.may_log(SECOND_NS + 1));
    }
}
