//! The rows of a tablet that transactions have prepared, for readers on any thread, and for operators.
//!
//! A reader looks here before it reads: a transaction that is prepared, committed and finished between the two would
//! otherwise be missed by a read that began after its client was answered.
//!
//! Readers of tables without transactions do not ask what has become of what is prepared, and see the rows as they were.
//!
//! Always true: rows are added before the prepare can be known to anybody, and removed after what has become of them
//! can be read. Left out: what has become of a transaction, which its home knows.

use diorite_transact::records::PreparedRecord;
use diorite_transact::targets::{Target, Targets};
use diorite_transact::{Home, TransactionId};
use parking_lot::Mutex;
use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

type Rows = BTreeMap<TransactionId, Arc<StagedRows>>;

/// What a transaction has prepared in a tablet.
#[derive(Debug)]
pub struct StagedRows {
    /// Where its outcome is found.
    pub home: Home,
    /// About the bytes that are staged.
    pub bytes: usize,
    targets: Targets,
    stamp_us: i64,
}

impl StagedRows {
    fn new(record: &PreparedRecord) -> Self {
        Self {
            home: record.prepare.home.clone(),
            bytes: record.prepare.operations.iter().map(|operation| operation.program.len()).sum(),
            targets: record.prepare.targets.clone(),
            stamp_us: record.stamp_us,
        }
    }

    /// How many rows and ranges are locked.
    pub fn rows(&self) -> usize {
        self.targets.len()
    }
}

/// A transaction that is prepared in a tablet, as of one moment.
#[derive(Debug)]
pub struct PreparedTransaction {
    /// The transaction.
    pub id: TransactionId,
    /// How long it has been prepared, microseconds.
    pub age_us: u64,
    /// What it has prepared.
    pub staged: Arc<StagedRows>,
}

/// See the top of this module.
#[derive(Default)]
pub(crate) struct PreparedRows {
    /// All, for operators.
    all: Mutex<Rows>,
    /// How many transactions there are that readers ask about, beside what every read looks at.
    count: AtomicUsize,
    /// Those. Changed in place while no reader has them.
    asked_about: Mutex<Arc<Rows>>,
    /// How many transactions there are that readers do not ask about. Changed before and after the data, as the others.
    not_asked_about: AtomicUsize,
}

impl PreparedRows {
    /// A transaction is about to be prepared. Called by the tablet's store thread.
    pub(crate) fn add(&self, record: &PreparedRecord) {
        let (id, staged) = (record.prepare.id, Arc::new(StagedRows::new(record)));
        if staged.home.tells_readers {
            self.change_asked_about(|rows| drop(rows.insert(id, Arc::clone(&staged))));
        }
        let mut all = self.all.lock();
        all.insert(id, staged);
        self.count_others(&all);
    }

    /// What has become of a transaction can be read.
    pub(crate) fn remove(&self, id: &TransactionId) {
        let mut all = self.all.lock();
        if all.remove(id).is_some_and(|staged| staged.home.tells_readers) {
            self.change_asked_about(|rows| drop(rows.remove(id)));
        }
        self.count_others(&all);
    }

    fn count_others(&self, all: &Rows) {
        let asked_about = self.count.load(Ordering::Acquire);
        self.not_asked_about.store(all.len().saturating_sub(asked_about), Ordering::Release);
    }

    /// Whether readers meet all that is prepared. A batch of an ordinary table may be on its way when its table gets
    /// transactions.
    pub(crate) fn are_met(&self) -> bool {
        self.not_asked_about.load(Ordering::Acquire) == 0
    }

    fn change_asked_about(&self, change: impl FnOnce(&mut Rows)) {
        let mut asked_about = self.asked_about.lock();
        change(Arc::make_mut(&mut asked_about));
        self.count.store(asked_about.len(), Ordering::Release);
    }

    /// The prepares that readers ask about now; `None`: there are none.
    #[inline]
    pub(crate) fn now(&self) -> Option<PreparedNow> {
        if self.count.load(Ordering::Acquire) == 0 {
            None
        } else {
            Some(PreparedNow(Arc::clone(&self.asked_about.lock())))
        }
    }

    /// All prepares at a time of the wall clock.
    pub(crate) fn at(&self, now_us: i64) -> Vec<PreparedTransaction> {
        let age_us = |staged: &StagedRows| u64::try_from(now_us.saturating_sub(staged.stamp_us)).unwrap_or(0);
        let shown = |(id, staged): (&TransactionId, &Arc<StagedRows>)| PreparedTransaction {
            id: *id,
            age_us: age_us(staged),
            staged: Arc::clone(staged),
        };
        self.all.lock().iter().map(shown).collect()
    }
}

/// The prepares that readers ask about at one moment.
pub(crate) struct PreparedNow(Arc<Rows>);

impl PreparedNow {
    /// Whether the row is prepared.
    pub(crate) fn contains(&self, key: &[u8]) -> bool {
        self.0.values().any(|staged| staged.targets.contains(key))
    }

    /// Whether a row of `start..end` is prepared.
    pub(crate) fn overlap(&self, start: &[u8], end: &[u8]) -> bool {
        let range = Targets::new(vec![Target::Range { start: start.to_vec(), end: end.to_vec() }]);
        self.0.values().any(|staged| staged.targets.overlap(&range))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use diorite_base::{TableId, TabletId};
    use diorite_transact::step::{Operation, Prepare};

    fn record(number: u64, target: Target) -> PreparedRecord {
        let id = TransactionId { tablet: TabletId(7), term: 1, number };
        let home = Home { table: TableId(3), key: b"h".to_vec(), tells_readers: true };
        let operation = Operation { key: target.start().to_vec(), now_s: 0, program: vec![0; 10] };
        let targets = Targets::new(vec![target]);
        PreparedRecord {
            prepare: Prepare { id, home, targets, operations: Arc::new([operation.clone(), operation]) },
            stamp_us: 100 * i64::try_from(number).unwrap_or(0),
        }
    }

    #[test]
    fn rows_are_prepared_from_when_they_are_added_until_they_are_removed() {
        let prepared = PreparedRows::default();
        assert!(prepared.now().is_none());
        let first = record(1, Target::Row(b"b".to_vec()));
        let second = record(2, Target::Range { start: b"d".to_vec(), end: b"f".to_vec() });
        prepared.add(&first);
        let before = prepared.now().expect("one");
        prepared.add(&second);
        let both = prepared.now().expect("two");
        assert_eq!((before.contains(b"b"), before.contains(b"d"), both.contains(b"e")), (true, false, true));
        assert_eq!((both.overlap(b"a", b"b"), both.overlap(b"a", b"c"), both.overlap(b"e", b"z")), (false, true, true));
        prepared.remove(&first.prepare.id);
        assert!(!prepared.now().expect("one").contains(b"b"));
        prepared.remove(&second.prepare.id);
        assert!(prepared.now().is_none());
    }

    #[test]
    fn readers_of_tables_without_transactions_meet_nothing_and_operators_see_all() {
        let prepared = PreparedRows::default();
        let mut unasked = record(1, Target::Row(b"b".to_vec()));
        unasked.prepare.home.tells_readers = false;
        prepared.add(&unasked);
        assert!(prepared.now().is_none() && !prepared.are_met());
        prepared.add(&record(2, Target::Row(b"c".to_vec())));
        let now = prepared.now().expect("one");
        assert_eq!((now.contains(b"b"), now.contains(b"c"), prepared.at(150).len()), (false, true, 2));
        prepared.remove(&unasked.prepare.id);
        assert!(prepared.at(150).len() == 1 && prepared.are_met());
    }

    #[test]
    fn operators_see_what_is_staged_and_since_when() {
        let prepared = PreparedRows::default();
        prepared.add(&record(1, Target::Row(b"b".to_vec())));
        prepared.add(&record(2, Target::Row(b"c".to_vec())));
        let shown = prepared.at(150);
        // The clock of the leader that has stamped the second one was ahead.
        assert_eq!(shown.iter().map(|one| (one.id.number, one.age_us)).collect::<Vec<_>>(), [(1, 50), (2, 0)]);
        let staged = &shown[0].staged;
        assert_eq!((staged.rows(), staged.bytes, staged.home.table), (1, 20, TableId(3)));
    }
}
