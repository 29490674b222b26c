//! Several short reads of one moment, in memory, without a snapshot of the storage.
//!
//! A snapshot costs as much as a short read. Here the reads are carried out as they come, and it is asked afterwards
//! whether the data has changed since they began.
//!
//! Always true: what was read may be used only if [`Glance::finish`] returns true; then all of it was there at one
//! moment, and the permit held after it was read. Left out: reads that may wait, which are [`super::Visit`]s.

use super::{Begun, Permit, TabletHandle};
use crate::group::index_notes::IndexNote;
use crate::group::prepared::PreparedNow;
use diorite_base::account::Account;
use diorite_base::write::KvError;
use diorite_storage::{PinnedValue, ScanRange};
use std::sync::Arc;

/// See the top of this module.
pub struct Glance<'h> {
    handle: &'h TabletHandle,
    /// What transactions had prepared before the reads.
    prepared: Option<PreparedNow>,
    /// The changes of the data, and of what the tablet records of its indexes, before the reads.
    changes: u64,
    index_changes: u64,
    begun: Begun,
}

impl TabletHandle {
    /// Begins reads in memory; `None` if the data is being changed at this moment.
    ///
    /// # Errors
    /// If the replica may not answer now.
    pub fn glance(&self, permit: Permit) -> Result<Option<Glance<'_>>, KvError> {
        let begun = self.begin(permit)?;
        // Before the data, as for a snapshot: see `crate::group::prepared`.
        let prepared = self.transacted.prepared.now();
        let Some(changes) = self.transacted.changes() else { return Ok(None) };
        let index_changes = self.transacted.index_notes.changes();
        Ok(Some(Glance { handle: self, prepared, changes, index_changes, begun }))
    }
}

impl Glance<'_> {
    /// The flag bits that evaluated mutations had raised by that moment, or shortly after.
    pub fn flags(&self) -> u64 {
        self.handle.flags()
    }

    /// Reads from memory; `None` if the disk would have to be asked.
    ///
    /// # Errors
    /// If the data cannot be read, or a transaction has prepared the row.
    pub fn get_cached(&self, key: &[u8]) -> Result<Option<Option<PinnedValue>>, KvError> {
        let is_locked = self.prepared.as_ref().is_some_and(|now| now.contains(key));
        self.handle.unless(is_locked)?;
        let found = self.handle.data.get_cached(key).map_err(|error| self.handle.failed_to_read(error))?;
        if found.is_some() {
            self.handle.count_read(key);
        }
        Ok(found)
    }

    /// Scans live entries from memory, see [`diorite_storage::Tablet::scan_live_cached`].
    ///
    /// # Errors
    /// As [`Self::get_cached`].
    pub fn scan_cached(
        &self,
        range: &ScanRange<'_>,
        visit: &mut dyn FnMut(&[u8], &[u8]) -> bool,
    ) -> Result<Option<bool>, KvError> {
        self.check_rows(range.start, range.end)?;
        let scanned = self.handle.data.scan_live_cached(range, None, visit);
        let found = scanned.map_err(|error| self.handle.failed_to_read(error))?;
        if found.is_some() {
            self.handle.count_read(range.start);
        }
        Ok(found)
    }

    /// What another reader has noted of an index, which is still so.
    pub fn index_note(&self, index: u64) -> Option<IndexNote> {
        self.handle.transacted.index_notes.get(self.index_changes, index)
    }

    /// Notes what these reads have found of an index. Only after [`Self::finish`] has returned true.
    pub fn note_index(&self, index: u64, note: &IndexNote) {
        self.handle.transacted.index_notes.add(self.index_changes, index, note);
    }

    /// Fails if a transaction has prepared a row of `start..end`.
    ///
    /// # Errors
    /// [`KvError::Locked`]
    pub fn check_rows(&self, start: &[u8], end: &[u8]) -> Result<(), KvError> {
        self.handle.unless(self.prepared.as_ref().is_some_and(|now| now.overlap(start, end)))
    }

    /// See [`TabletHandle::note_stale`]. Followers do not remove entries.
    pub fn note_stale(&self, entries: Vec<Vec<u8>>, account: &Arc<Account>) {
        if matches!(self.begun, Begun::InTerm(_)) {
            self.handle.note_stale(entries, account);
        }
    }

    /// Ends the reads: whether all that was read was there at one moment. If not, it must not be used.
    ///
    /// # Errors
    /// If the values read may have been out of date.
    pub fn finish(&self) -> Result<bool, KvError> {
        self.handle.finish(&self.begun)?;
        Ok(self.handle.transacted.changes() == Some(self.changes))
    }
}
