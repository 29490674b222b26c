//! What readers on any thread see of transactions over several tablets: what is prepared, the snapshots that are kept, the
//! version of the data, and what they have noted of its indexes.
//!
//! Always true: every change of the data that readers can see is made by [`Transacted::change`], and so is every prepare, in
//! whose answer others learn of it; so what was read between two equal versions was all there at one moment, in several
//! tablets as well ([`diorite_transact::version`]).

use crate::group::index_notes::IndexNotes;
use crate::group::pins::Pins;
use crate::group::prepared::PreparedRows;
use std::sync::atomic::{AtomicU64, Ordering, fence};

/// See the top of this module.
pub(crate) struct Transacted<S> {
    /// The rows that are prepared.
    pub(crate) prepared: PreparedRows,
    /// The snapshots that reads keep.
    pub(crate) pins: Pins<S>,
    /// Twice the number of changes of the data; odd while one is made.
    changes: AtomicU64,
    /// What readers have noted of the tablet's indexes.
    pub(crate) index_notes: IndexNotes,
}

impl<S> Default for Transacted<S> {
    fn default() -> Self {
        Self {
            prepared: PreparedRows::default(),
            pins: Pins::default(),
            changes: AtomicU64::new(0),
            index_notes: IndexNotes::default(),
        }
    }
}

impl<S> Transacted<S> {
    /// Makes a change of the data.
    pub(crate) fn change<T>(&self, change: impl FnOnce() -> T) -> T {
        self.changes.fetch_add(1, Ordering::SeqCst);
        let changed = change();
        self.changes.fetch_add(1, Ordering::SeqCst);
        changed
    }

    /// Another number after each change; none while one is made.
    pub(crate) fn changes(&self) -> Option<u64> {
        // Not before the data that the caller has read.
        fence(Ordering::SeqCst);
        Some(self.changes.load(Ordering::SeqCst)).filter(|changes| changes % 2 == 0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn there_is_no_version_while_a_change_is_made_and_another_one_after_it() {
        let transacted = Transacted::<()>::default();
        let before = transacted.changes();
        assert_eq!(transacted.change(|| transacted.changes()), None);
        let after = transacted.changes();
        assert!(before.is_some() && after.is_some() && before != after, "{before:?}, {after:?}");
    }

    #[test]
    fn readers_between_two_equal_versions_find_what_belongs_together() {
        const CHANGES: u64 = 200_000;
        let transacted = Transacted::<()>::default();
        let (one, other) = (AtomicU64::new(0), AtomicU64::new(0));
        let read = || {
            let (mut found, mut last) = (0, 0);
            while last < CHANGES || found == 0 {
                let before = transacted.changes();
                let read = (one.load(Ordering::Acquire), other.load(Ordering::Acquire));
                if before.is_some() && before == transacted.changes() {
                    assert_eq!(read.0, read.1);
                    found += 1_u64;
                }
                last = read.1;
            }
        };
        std::thread::scope(|scope| {
            let _readers = [scope.spawn(read), scope.spawn(read)];
            for number in 1..=CHANGES {
                transacted.change(|| {
                    one.store(number, Ordering::Release);
                    other.store(number, Ordering::Release);
                });
            }
        });
    }
}
