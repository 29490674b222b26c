//! A tablet replica's data in memory, and the state that a crash leaves.

use crate::applied::AppliedState;
use crate::engine::ScanRange;
use crate::engine::{TabletBatch, TabletData, TabletSnapshot};
use crate::error::StorageError;
use crate::keys::is_about_the_tablet;
use crate::semantics::{CompactionVerdict, ValueSemantics};
use parking_lot::Mutex;
use std::collections::BTreeMap;
use std::ops::Bound;
use std::sync::Arc;

enum Change {
    Put(Vec<u8>, Arc<[u8]>),
    Merge(Vec<u8>, Vec<u8>),
    Delete(Vec<u8>),
    DeleteRange(Vec<u8>, Vec<u8>),
}

/// Changes to be written atomically.
#[derive(Default)]
pub struct MemoryBatch {
    changes: Vec<Change>,
}

impl TabletBatch for MemoryBatch {
    fn put(&mut self, key: &[u8], value: &[u8]) {
        self.changes.push(Change::Put(key.to_vec(), value.into()));
    }

    fn merge(&mut self, key: &[u8], operand: &[u8]) {
        self.changes.push(Change::Merge(key.to_vec(), operand.to_vec()));
    }

    fn delete(&mut self, key: &[u8]) {
        self.changes.push(Change::Delete(key.to_vec()));
    }

    fn delete_range(&mut self, start: &[u8], end: &[u8]) {
        self.changes.push(Change::DeleteRange(start.to_vec(), end.to_vec()));
    }

    fn clear(&mut self) {
        self.changes.clear();
    }
}

type Values = BTreeMap<Vec<u8>, Arc<[u8]>>;

#[derive(Clone, Default)]
struct Contents {
    values: Values,
    state: AppliedState,
}

#[derive(Default)]
struct Copies {
    live: Contents,
    flushed: Contents,
    /// Changes that are visible and not flushed.
    unflushed: Vec<Change>,
}

/// A tablet replica's data. Merge operands are merged when they are written.
pub struct MemoryTablet {
    copies: Mutex<Copies>,
    semantics: Option<Arc<dyn ValueSemantics>>,
}

impl MemoryTablet {
    /// An empty tablet. Without `semantics` its values are plain: they are only replaced, and a merge is refused.
    pub fn new(semantics: Option<Arc<dyn ValueSemantics>>) -> Self {
        Self { copies: Mutex::default(), semantics }
    }

    /// Makes applied writes durable.
    pub fn flush(&self) {
        let mut copies = self.copies.lock();
        copies.flushed = copies.live.clone();
        copies.unflushed.clear();
    }

    /// Compacts the flushed values of the chosen keys, as RocksDB compacts files: at the horizon of the flushed state.
    /// Later changes are not affected.
    ///
    /// # Errors
    /// If a value is malformed.
    pub fn compact(&self, chosen: &mut dyn FnMut(&[u8]) -> bool) -> Result<(), StorageError> {
        let Some(semantics) = &self.semantics else { return Ok(()) };
        let mut copies = self.copies.lock();
        let mut values = Values::new();
        for (key, value) in &copies.flushed.values {
            let is_chosen = !is_about_the_tablet(key) && chosen(key);
            let verdict = is_chosen.then(|| semantics.compact(key, value, &copies.flushed.state.horizon));
            match verdict {
                None | Some(CompactionVerdict::Keep) => values.insert(key.clone(), Arc::clone(value)),
                Some(CompactionVerdict::Remove) => None,
                Some(CompactionVerdict::Replace(less)) => values.insert(key.clone(), less.into()),
            };
        }
        let mut live = values.clone();
        copies.unflushed.iter().try_for_each(|change| self.change(&mut live, change))?;
        (copies.flushed.values, copies.live.values) = (values, live);
        Ok(())
    }

    /// The state that a crash now would leave.
    pub fn flushed_state(&self) -> AppliedState {
        self.copies.lock().flushed.state
    }

    /// The tablet after a crash. Readers of this one are not affected, as in a process that has not ended yet.
    pub fn crash(&self) -> Self {
        let flushed = self.copies.lock().flushed.clone();
        let copies = Copies { live: flushed.clone(), flushed, unflushed: Vec::new() };
        Self { copies: Mutex::new(copies), semantics: self.semantics.clone() }
    }

    /// A copy of the applied state, all of it durable.
    pub fn checkpoint(&self) -> Self {
        let live = self.copies.lock().live.clone();
        let copies = Copies { live: live.clone(), flushed: live, unflushed: Vec::new() };
        Self { copies: Mutex::new(copies), semantics: self.semantics.clone() }
    }

    fn change(&self, values: &mut Values, change: &Change) -> Result<(), StorageError> {
        match change {
            Change::Put(key, value) => {
                values.insert(key.clone(), Arc::clone(value));
            }
            Change::Merge(key, operand) => {
                let Some(semantics) = &self.semantics else {
                    return Err(StorageError::Corrupt("a merge into a tablet of plain values".to_owned()));
                };
                let existing = values.get(key).map(|value| &**value);
                let folded = semantics
                    .fold(existing, &mut std::iter::once(operand.as_slice()))
                    .ok_or_else(|| StorageError::Corrupt("malformed merge operand".to_owned()))?;
                values.insert(key.clone(), folded.into());
            }
            Change::Delete(key) => {
                values.remove(key);
            }
            Change::DeleteRange(start, end) if start < end => {
                let doomed: Vec<_> = values.range::<[u8], _>(bounds(start, end)).map(|(key, _)| key.clone()).collect();
                for key in doomed {
                    values.remove(&key);
                }
            }
            Change::DeleteRange(..) => {}
        }
        Ok(())
    }
}

/// The bounds `start..end`. The start must not be after the end.
fn bounds<'a>(start: &'a [u8], end: &'a [u8]) -> (Bound<&'a [u8]>, Bound<&'a [u8]>) {
    (Bound::Included(start), Bound::Excluded(end))
}

impl TabletData for MemoryTablet {
    type Batch = MemoryBatch;
    type Pinned = Arc<[u8]>;
    type Snapshot = MemorySnapshot;

    fn applied_state(&self) -> Result<AppliedState, StorageError> {
        Ok(self.copies.lock().live.state)
    }

    fn apply(&self, batch: &mut MemoryBatch, state: &AppliedState) -> Result<(), StorageError> {
        let mut copies = self.copies.lock();
        // A batch with a merge may turn out to be malformed halfway; then no part of it may become visible.
        let fallible = batch.changes.iter().any(|change| matches!(change, Change::Merge(..)));
        if fallible {
            let mut values = copies.live.values.clone();
            batch.changes.iter().try_for_each(|change| self.change(&mut values, change))?;
            copies.live.values = values;
        } else {
            batch.changes.iter().try_for_each(|change| self.change(&mut copies.live.values, change))?;
        }
        copies.live.state = *state;
        copies.unflushed.append(&mut batch.changes);
        Ok(())
    }

    fn make_durable(&self) -> Result<(), StorageError> {
        self.flush();
        Ok(())
    }

    fn snapshot(self: &Arc<Self>) -> MemorySnapshot {
        MemorySnapshot(self.copies.lock().live.values.clone())
    }

    fn get(self: &Arc<Self>, key: &[u8]) -> Result<Option<Arc<[u8]>>, StorageError> {
        Ok(self.copies.lock().live.values.get(key).cloned())
    }

    fn scan(&self, range: &ScanRange<'_>, visit: &mut dyn FnMut(&[u8], &[u8]) -> bool) -> Result<bool, StorageError> {
        // Copied, the values by reference, so that `visit` may read the tablet.
        let found = within(&self.copies.lock().live.values, range);
        Ok(found.iter().all(|(key, value)| visit(key, value)))
    }
}

/// The entries of a range, in the order of the scan.
fn within(values: &Values, range: &ScanRange<'_>) -> Vec<(Vec<u8>, Arc<[u8]>)> {
    if range.start >= range.end {
        return Vec::new();
    }
    let within = values.range::<[u8], _>(bounds(range.start, range.end));
    let data = within.filter(|(key, _)| !is_about_the_tablet(key));
    let mut found: Vec<_> = data.map(|(key, value)| (key.clone(), Arc::clone(value))).collect();
    if range.reverse {
        found.reverse();
    }
    found
}

/// A tablet's values at one moment.
pub struct MemorySnapshot(Values);

impl TabletSnapshot for MemorySnapshot {
    fn get(&self, key: &[u8]) -> Result<Option<Vec<u8>>, StorageError> {
        Ok(self.0.get(key).map(|value| value.to_vec()))
    }

    fn scan(&self, range: &ScanRange<'_>, visit: &mut dyn FnMut(&[u8], &[u8]) -> bool) -> Result<bool, StorageError> {
        Ok(within(&self.0, range).iter().all(|(key, value)| visit(key, value)))
    }
}
