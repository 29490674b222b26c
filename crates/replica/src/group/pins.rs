//! Snapshots of a tablet that are kept for reads of several tablets as of one stamp.
//!
//! A snapshot has all that was stamped at or below its stamp, and nothing that was stamped above it. The prepares in it
//! are of transactions whose outcome the reader learns from their homes; those that are committed at or below the stamp
//! are laid over the rows.
//!
//! Always true: a snapshot gives the same answers whenever it is read, whoever leads the tablet then, but for values whose
//! TTL ends meanwhile: compactions remove them from snapshots too. How many there
//! are on a node is bounded, and so is how long each is kept. Left out: the promise to stamp nothing at or below the
//! stamp, which is the leader's ([`super::transactions`]).

use crate::node_pins::Counted;
use crate::planted::Planted;
use ahash::AHashMap;
use diorite_base::limits::MAX_INDEX_BYTES;
use diorite_base::mutation::{EvaluationContext, EvaluationFailed, Evaluator, TabletChanges, TabletView};
use diorite_base::row_index::{RECORD_PREFIX, RowIndexes};
use diorite_base::write::KvError;
use diorite_storage::{ScanRange, TabletSnapshot};
use diorite_transact::TransactionId;
use diorite_transact::records::{PreparedRecord, Records};
use diorite_transact::step::Operation;
use diorite_transact::targets::Targets;
use diorite_transact::wire::PinId;
use parking_lot::Mutex;
use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

/// How long a snapshot is kept that nobody reads, nanoseconds.
const UNUSED_NS: u64 = 10_000_000_000;
/// The same while there are many, and very many. Clients that go on to no further page leave theirs behind.
const CROWDED_UNUSED_NS: u64 = 1_000_000_000;
const FULL_UNUSED_NS: u64 = 100_000_000;
/// How long a snapshot is kept in all, nanoseconds.
const KEPT_NS: u64 = 60_000_000_000;
/// The most snapshots of one tablet.
const MAX_PINS: usize = 1_000;

/// A transaction that a reader knows to be committed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Committed {
    /// The transaction.
    pub id: TransactionId,
    /// The stamp of its prepare in the snapshot, microseconds.
    pub prepared_us: i64,
    /// The stamp of its commit, microseconds.
    pub committed_us: i64,
}

/// A tablet at one moment, with the prepares that were in force then.
pub struct PinnedTablet<S> {
    snapshot: S,
    prepared: BTreeMap<TransactionId, Arc<PreparedRecord>>,
    evaluator: Arc<dyn Evaluator>,
    newest_explicit_us: i64,
    flags: u64,
    planted: Planted,
    taken_ns: u64,
    used_ns: AtomicU64,
    _counted: Counted,
}

/// The snapshots of a tablet.
pub(crate) struct Pins<S>(Mutex<AHashMap<PinId, Arc<PinnedTablet<S>>>>);

impl<S> Default for Pins<S> {
    fn default() -> Self {
        Self(Mutex::default())
    }
}

impl<S> Pins<S> {
    /// Keeps a snapshot; false if there are too many.
    pub(crate) fn add(&self, pin: PinId, pinned: PinnedTablet<S>) -> bool {
        let mut pins = self.0.lock();
        if pins.len() >= MAX_PINS {
            return false;
        }
        pins.insert(pin, Arc::new(pinned));
        true
    }

    pub(crate) fn get(&self, pin: PinId, now_ns: u64) -> Option<Arc<PinnedTablet<S>>> {
        let pinned = self.0.lock().get(&pin).cloned()?;
        pinned.used_ns.store(now_ns, Ordering::Relaxed);
        Some(pinned)
    }

    pub(crate) fn remove(&self, pin: PinId) {
        let removed = self.0.lock().remove(&pin);
        // Dropped after the lock: that may release much.
        drop(removed);
    }

    /// Drops the snapshots whose time is over; `node_quarters` says how many quarters of what the node may keep are kept.
    pub(crate) fn expire(&self, now_ns: u64, node_quarters: usize) {
        let mut pins = self.0.lock();
        let unused_ns = match node_quarters.max(4 * pins.len() / MAX_PINS) {
            0 | 1 => UNUSED_NS,
            2 => CROWDED_UNUSED_NS,
            _ => FULL_UNUSED_NS,
        };
        let is_over = |pinned: &PinnedTablet<S>| {
            let used_ns = pinned.used_ns.load(Ordering::Relaxed);
            now_ns >= used_ns + unused_ns || now_ns >= pinned.taken_ns + KEPT_NS
        };
        let over: Vec<_> = pins.extract_if(|_, pinned| is_over(pinned)).collect();
        drop(pins);
        // After the lock: that may release much.
        drop(over);
    }

    pub(crate) fn len(&self) -> usize {
        self.0.lock().len()
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.0.lock().is_empty()
    }
}

impl<S: TabletSnapshot> PinnedTablet<S> {
    pub(crate) fn new(
        snapshot: S,
        (records, targets): (&Records, &Targets),
        evaluator: Arc<dyn Evaluator>,
        (newest_explicit_us, flags, planted): (i64, u64, Planted),
        (now_ns, counted): (u64, Counted),
    ) -> Self {
        let of_read = records.all_prepared().filter(|(_, record)| record.prepare.targets.overlap(targets));
        let prepared = of_read.map(|(id, record)| (*id, Arc::clone(record))).collect();
        let used_ns = AtomicU64::new(now_ns);
        let taken_ns = now_ns;
        Self { snapshot, prepared, evaluator, newest_explicit_us, flags, planted, taken_ns, used_ns, _counted: counted }
    }

    /// The snapshot with the rows of these transactions over it, and with their index entries if the read is `by_index`.
    /// `hold` is told the bytes of all that is laid over it, before it is kept.
    ///
    /// # Errors
    /// Those of `hold`; if the snapshot cannot be read, or does not have one of these prepares.
    pub fn view(
        &self,
        committed: &[Committed],
        by_index: bool,
        hold: &mut dyn FnMut(usize) -> Result<(), KvError>,
    ) -> Result<PinnedView<'_, S>, KvError> {
        let mut view = PinnedView { pinned: self, flags: self.flags, rows: BTreeMap::new(), removed: Vec::new() };
        let indexes = if by_index && !committed.is_empty() { self.indexes()? } else { None };
        let mut in_order = committed.to_vec();
        in_order.sort_unstable_by_key(|it| it.committed_us);
        let mut entries_bytes = 0;
        for it in in_order {
            let record = self.prepared.get(&it.id).filter(|record| record.stamp_us == it.prepared_us);
            let Some(record) = record else {
                // A client has made it up, or has it from another snapshot.
                return Err(KvError::Locked(it.id.tablet));
            };
            for operation in record.prepare.operations.iter() {
                let changes = self.changes_of(operation, it.committed_us)?;
                // It has had an effect on the row as it was then.
                let mut changes = changes.ok_or(KvError::Locked(it.id.tablet))?;
                hold(changes.size_bytes())?;
                if let Some(indexes) = &indexes {
                    // When they are applied, it is decided what becomes of so many entries.
                    let added = changes.index(&**indexes, MAX_INDEX_BYTES - entries_bytes, hold)?;
                    entries_bytes += added.ok_or(KvError::Locked(it.id.tablet))?;
                }
                view.lay_over(changes, hold)?;
            }
        }
        Ok(view)
    }

    fn indexes(&self) -> Result<Option<Arc<dyn RowIndexes>>, KvError> {
        let indexes = self.evaluator.row_indexes(self.flags, &Below(&self.snapshot));
        let indexes = indexes.map_err(|failed| KvError::Storage(failed.to_string()))?;
        Ok(indexes.filter(|_| !self.planted.pin_without_entries))
    }

    /// What a prepared program changes, in the context in which it is applied. `None`: what it reads has been removed
    /// since, because it has expired.
    fn changes_of(&self, operation: &Operation, committed_us: i64) -> Result<Option<Changes>, KvError> {
        let explicit_us = self.evaluator.explicit_us(&operation.program).unwrap_or(i64::MIN);
        let newest_explicit_us = self.newest_explicit_us.max(explicit_us);
        let context =
            EvaluationContext { now_s: operation.now_s, ..EvaluationContext::new(committed_us, newest_explicit_us) };
        let mut changes = Changes::default();
        let evaluated = self.evaluator.evaluate(&operation.program, context, &Below(&self.snapshot), &mut changes);
        let reply = evaluated.map_err(|failed| KvError::Storage(failed.to_string()))?;
        Ok(self.evaluator.has_applied(&reply).then_some(changes))
    }
}

/// The rows of a snapshot, for programs. What one transaction writes no other one reads, as both are locked.
struct Below<'s, S>(&'s S);

impl<S: TabletSnapshot> TabletView for Below<'_, S> {
    fn get(&self, key: &[u8]) -> Result<Option<Vec<u8>>, EvaluationFailed> {
        self.0.get(key).map_err(|error| EvaluationFailed(error.to_string()))
    }

    fn scan(
        &self,
        start: &[u8],
        end: &[u8],
        visit: &mut dyn FnMut(&[u8], &[u8]) -> bool,
    ) -> Result<(), EvaluationFailed> {
        let range = ScanRange { start, end, reverse: false, expected_entries: 0 };
        self.0.scan(&range, visit).map(drop).map_err(|error| EvaluationFailed(error.to_string()))
    }
}

enum Change {
    Put(Vec<u8>, Vec<u8>),
    Merge(Vec<u8>, Vec<u8>),
    Delete(Vec<u8>),
    DeleteRange(Vec<u8>, Vec<u8>),
}

#[derive(Default)]
struct Changes {
    changes: Vec<Change>,
    flags: u64,
}

impl Changes {
    fn size_bytes(&self) -> usize {
        let size = |change: &Change| match change {
            Change::Put(key, value) | Change::Merge(key, value) => key.len() + value.len(),
            Change::Delete(key) => key.len(),
            Change::DeleteRange(start, end) => start.len() + end.len(),
        };
        self.changes.iter().map(|change| size(change) + size_of::<Change>()).sum()
    }

    /// Adds the index entries that follow from the rows in it; returns their bytes, or `None` if these are more than
    /// `most`.
    fn index(
        &mut self,
        indexes: &dyn RowIndexes,
        most: usize,
        hold: &mut dyn FnMut(usize) -> Result<(), KvError>,
    ) -> Result<Option<usize>, KvError> {
        let mut entries = Vec::new();
        let mut bytes = 0;
        for change in &self.changes {
            let (Change::Put(key, value) | Change::Merge(key, value)) = change else { continue };
            if key.starts_with(&RECORD_PREFIX) {
                continue;
            }
            let added = indexes.size_bytes(key, value, most);
            bytes += added;
            if bytes > most {
                return Ok(None);
            }
            hold(added)?;
            indexes.entries(key, value, &mut |key, value, is_merged| {
                let (key, value) = (key.to_vec(), value.to_vec());
                entries.push(if is_merged { Change::Merge(key, value) } else { Change::Put(key, value) });
            });
        }
        self.changes.append(&mut entries);
        Ok(Some(bytes))
    }
}

impl TabletChanges for Changes {
    fn put(&mut self, key: &[u8], value: &[u8]) {
        self.changes.push(Change::Put(key.to_vec(), value.to_vec()));
    }

    fn merge(&mut self, key: &[u8], value: &[u8]) {
        self.changes.push(Change::Merge(key.to_vec(), value.to_vec()));
    }

    fn delete(&mut self, key: &[u8]) {
        self.changes.push(Change::Delete(key.to_vec()));
    }

    fn delete_range(&mut self, start: &[u8], end: &[u8]) {
        self.changes.push(Change::DeleteRange(start.to_vec(), end.to_vec()));
    }

    fn raise_flags(&mut self, flags: u64) {
        self.flags |= flags;
    }

    fn raise_stamps(&mut self, _: i64, _: i64) {}
}

/// A snapshot with the rows of committed transactions over it.
pub struct PinnedView<'p, S> {
    pinned: &'p PinnedTablet<S>,
    flags: u64,
    /// The rows that differ from the snapshot; `None`: removed.
    rows: BTreeMap<Vec<u8>, Option<Vec<u8>>>,
    /// The ranges of which only [`Self::rows`] are left.
    removed: Vec<(Vec<u8>, Vec<u8>)>,
}

impl<S: TabletSnapshot> PinnedView<'_, S> {
    /// The flag bits that evaluated mutations had raised.
    pub fn flags(&self) -> u64 {
        self.flags
    }

    /// Reads a row.
    ///
    /// # Errors
    /// If the data cannot be read.
    pub fn get(&self, key: &[u8]) -> Result<Option<Vec<u8>>, KvError> {
        if let Some(row) = self.rows.get(key) {
            return Ok(row.clone());
        }
        if self.is_removed(key) {
            return Ok(None);
        }
        self.pinned.snapshot.get(key).map_err(|error| KvError::Storage(error.to_string()))
    }

    /// Calls `visit` with each entry of the range until it returns false. Returns whether the range was exhausted.
    ///
    /// # Errors
    /// If the data cannot be read.
    pub fn scan(&self, range: &ScanRange<'_>, visit: &mut dyn FnMut(&[u8], &[u8]) -> bool) -> Result<bool, KvError> {
        let within = || self.rows.range(range.start.to_vec()..range.end.to_vec().max(range.start.to_vec()));
        let mut over: Vec<(&Vec<u8>, &Option<Vec<u8>>)> = within().collect();
        // The next one is the last.
        if !range.reverse {
            over.reverse();
        }
        let comes_first = |one: &[u8], other: &[u8]| if range.reverse { one > other } else { one < other };
        let mut goes_on = true;
        let mut each = |key: &[u8], value: &[u8]| {
            while let Some((next, row)) = over.pop_if(|(next, _)| comes_first(next, key)) {
                goes_on = row.as_ref().is_none_or(|row| visit(next, row));
                if !goes_on {
                    return false;
                }
            }
            goes_on = match over.pop_if(|(next, _)| next.as_slice() == key) {
                Some((next, row)) => row.as_ref().is_none_or(|row| visit(next, row)),
                None => self.is_removed(key) || visit(key, value),
            };
            goes_on
        };
        self.pinned.snapshot.scan(range, &mut each).map_err(|error| KvError::Storage(error.to_string()))?;
        while let Some((next, row)) = over.pop().filter(|_| goes_on) {
            goes_on = row.as_ref().is_none_or(|row| visit(next, row));
        }
        Ok(goes_on)
    }

    fn is_removed(&self, key: &[u8]) -> bool {
        self.removed.iter().any(|(start, end)| start.as_slice() <= key && key < end.as_slice())
    }

    fn lay_over(
        &mut self,
        changes: Changes,
        hold: &mut dyn FnMut(usize) -> Result<(), KvError>,
    ) -> Result<(), KvError> {
        self.flags |= changes.flags;
        for change in changes.changes {
            match change {
                Change::Put(key, value) => drop(self.rows.insert(key, Some(value))),
                Change::Merge(key, value) => {
                    let below = self.get(&key)?;
                    // What is below may be much more than what is merged into it.
                    hold(below.as_ref().map_or(0, Vec::len))?;
                    let together = self.pinned.evaluator.merged(below.as_deref(), &value);
                    let together = together.map_err(|failed| KvError::Storage(failed.to_string()))?;
                    self.rows.insert(key, Some(together));
                }
                Change::Delete(key) => drop(self.rows.insert(key, None)),
                Change::DeleteRange(start, end) => {
                    self.rows.retain(|key, _| *key < start || *key >= end);
                    self.removed.push((start, end));
                }
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::node_pins::NodePins;
    use diorite_base::{NodeId, TableId, TabletId};
    use diorite_storage::{AppliedState, MemoryBatch, MemoryTablet, TabletBatch, TabletData};
    use diorite_transact::Home;
    use diorite_transact::step::{Prepare, Step};
    use diorite_transact::targets::Target;

    /// Appends to a row, which has to be there.
    struct Appending;

    impl Evaluator for Appending {
        fn evaluate(
            &self,
            program: &[u8],
            _: EvaluationContext,
            view: &dyn TabletView,
            changes: &mut dyn TabletChanges,
        ) -> Result<Vec<u8>, EvaluationFailed> {
            let Some(row) = view.get(program)? else { return Ok(b"impossible".to_vec()) };
            changes.put(program, &[row.as_slice(), b"!"].concat());
            Ok(Vec::new())
        }

        fn has_applied(&self, reply: &[u8]) -> bool {
            reply.is_empty()
        }
    }

    /// A compaction may have removed it from the snapshot, once it had expired.
    #[test]
    fn a_snapshot_without_what_a_committed_program_has_read_is_of_no_use() {
        let (key, id) = (b"row".to_vec(), TransactionId { tablet: TabletId(7), term: 1, number: 1 });
        let found = |is_there: bool| {
            let data = Arc::new(MemoryTablet::new(None));
            let mut batch = MemoryBatch::default();
            if is_there {
                batch.put(&key, b"a");
            }
            data.apply(&mut batch, &AppliedState { index: 1, term: 1, ..AppliedState::default() }).unwrap();
            let (home, targets) = (
                Home { table: TableId(3), key: b"h".to_vec(), tells_readers: true },
                Targets::new(vec![Target::Row(key.clone())]),
            );
            let operations = vec![Operation { key: key.clone(), now_s: 0, program: key.clone() }];
            let mut records = Records::default();
            let prepare = Prepare { id, home, targets: targets.clone(), operations: operations.into() };
            assert_eq!(records.apply(5, &Step::Prepare(prepare)).len(), 1);
            let (of_state, counted) = ((i64::MIN, 0, Planted::default()), NodePins::new(1, NodeId(1)).count().unwrap());
            let prepared = (&records, &targets);
            let pinned = PinnedTablet::new(data.snapshot(), prepared, Arc::new(Appending), of_state, (0, counted));
            let committed = [Committed { id, prepared_us: 5, committed_us: 6 }];
            pinned.view(&committed, false, &mut |_| Ok(())).and_then(|view| view.get(&key))
        };
        assert_eq!(found(true), Ok(Some(b"a!".to_vec())));
        assert_eq!(found(false), Err(KvError::Locked(TabletId(7))));
    }
}
