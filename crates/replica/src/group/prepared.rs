//! The rows of a tablet that transactions have prepared, for readers on any thread.
//!
//! A reader looks here before it reads: a transaction that is prepared, committed and finished between the two would
//! otherwise be missed by a read that began after its client was answered.
//!
//! Always true: rows are added before the prepare can be known to anybody, and removed after what has become of them
//! can be read. Left out: what has become of a transaction, which its home knows.

use arc_swap::ArcSwap;
use diorite_transact::TransactionId;
use diorite_transact::targets::{Target, Targets};
use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

type Rows = BTreeMap<TransactionId, Arc<Targets>>;

/// See the top of this module.
#[derive(Default)]
pub(crate) struct PreparedRows {
    /// How many transactions there are, beside what every read looks at.
    count: AtomicUsize,
    rows: ArcSwap<Rows>,
}

impl PreparedRows {
    /// A transaction is about to be prepared. Called by the tablet's store thread.
    pub(crate) fn add(&self, id: TransactionId, targets: &Targets) {
        let mut rows = Rows::clone(&self.rows.load());
        rows.insert(id, Arc::new(targets.clone()));
        self.publish(rows);
    }

    /// What has become of a transaction can be read.
    pub(crate) fn remove(&self, id: &TransactionId) {
        let mut rows = Rows::clone(&self.rows.load());
        rows.remove(id);
        self.publish(rows);
    }

    fn publish(&self, rows: Rows) {
        let count = rows.len();
        self.rows.store(Arc::new(rows));
        self.count.store(count, Ordering::Release);
    }

    /// The prepares now; `None`: there are none.
    #[inline]
    pub(crate) fn now(&self) -> Option<PreparedNow> {
        if self.count.load(Ordering::Acquire) == 0 { None } else { Some(PreparedNow(self.rows.load_full())) }
    }
}

/// The prepares at one moment.
pub(crate) struct PreparedNow(Arc<Rows>);

impl PreparedNow {
    /// Whether the row is prepared.
    pub(crate) fn contains(&self, key: &[u8]) -> bool {
        self.0.values().any(|targets| targets.contains(key))
    }

    /// Whether a row of `start..end` is prepared.
    pub(crate) fn overlap(&self, start: &[u8], end: &[u8]) -> bool {
        let range = Targets::new(vec![Target::Range { start: start.to_vec(), end: end.to_vec() }]);
        self.0.values().any(|targets| targets.overlap(&range))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use diorite_base::TabletId;

    #[test]
    fn rows_are_prepared_from_when_they_are_added_until_they_are_removed() {
        let prepared = PreparedRows::default();
        assert!(prepared.now().is_none());
        let id = |number| TransactionId { tablet: TabletId(7), term: 1, number };
        prepared.add(id(1), &Targets::new(vec![Target::Row(b"b".to_vec())]));
        let before = prepared.now().expect("one");
        prepared.add(id(2), &Targets::new(vec![Target::Range { start: b"d".to_vec(), end: b"f".to_vec() }]));
        let both = prepared.now().expect("two");
        assert_eq!((before.contains(b"b"), before.contains(b"d"), both.contains(b"e")), (true, false, true));
        assert_eq!((both.overlap(b"a", b"b"), both.overlap(b"a", b"c"), both.overlap(b"e", b"z")), (false, true, true));
        prepared.remove(&id(1));
        assert!(!prepared.now().expect("one").contains(b"b"));
        prepared.remove(&id(2));
        assert!(prepared.now().is_none());
    }
}
