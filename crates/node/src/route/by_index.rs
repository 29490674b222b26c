//! Reads by index, of a tablet replica at one moment.
//!
//! Always true: entries and rows are of one snapshot, and the read's deadline is looked at for every one of them. What
//! turns out to be stale is noted at the replica, for the node to have it removed. Left out: what is read
//! ([`diorite_query::index`]), and the permit of the read ([`super::read`]).

use super::index_wire::IndexRef;
use super::until::Until;
use diorite_base::account::Account;
use diorite_base::write::KvError;
use diorite_query::index::{self, Moment, Unfinished};
use diorite_query::kv::{IndexScan, ScanChunk};
use diorite_replica::{Leadership, PinnedView, TabletHandle, Visit};
use diorite_storage::{PinnedValue, ScanRange, TabletSnapshot};
use std::ops::Deref;
use std::sync::Arc;

/// The most bytes and entries of one answer, whatever the request asks for.
const MAX_CHUNK_BYTES: usize = 4 << 20;
const MAX_CHUNK_ENTRIES: usize = 1 << 16;
/// About as many entries as are scanned without leaving their blocks in the cache.
const EXPECTED_ENTRIES: usize = 100;

/// A tablet whose rows and index entries are of one moment.
pub(super) trait Indexed {
    /// A value.
    type Value: Deref<Target = [u8]>;
    /// The flag bits that evaluated mutations had raised.
    fn flags(&self) -> u64;
    /// Reads a key.
    fn get(&self, key: &[u8]) -> Result<Option<Self::Value>, KvError>;
    /// Calls `visit` with each entry of a range, until it returns false. Returns whether the range is complete.
    fn scan(&self, range: &ScanRange<'_>, visit: &mut dyn FnMut(&[u8], &[u8]) -> bool) -> Result<bool, KvError>;
    /// Fails if what a transaction has prepared in a range of rows is missing.
    fn check_rows(&self, start: &[u8], end: &[u8]) -> Result<(), KvError>;
    /// Notes index entries whose rows do not have the value any more.
    fn note_stale(&self, entries: Vec<Vec<u8>>, account: &Arc<Account>);
}

impl Indexed for Visit<'_> {
    type Value = PinnedValue;

    fn flags(&self) -> u64 {
        Visit::flags(self)
    }

    fn get(&self, key: &[u8]) -> Result<Option<PinnedValue>, KvError> {
        Visit::get(self, key)
    }

    fn scan(&self, range: &ScanRange<'_>, visit: &mut dyn FnMut(&[u8], &[u8]) -> bool) -> Result<bool, KvError> {
        Visit::scan(self, range, visit)
    }

    fn check_rows(&self, start: &[u8], end: &[u8]) -> Result<(), KvError> {
        Visit::check_rows(self, start, end)
    }

    fn note_stale(&self, entries: Vec<Vec<u8>>, account: &Arc<Account>) {
        Visit::note_stale(self, entries, account);
    }
}

/// A snapshot that a tablet keeps.
pub(super) struct Pinned<'p, S> {
    pub(super) view: &'p PinnedView<'p, S>,
    pub(super) handle: &'p TabletHandle,
}

impl<S: TabletSnapshot> Indexed for Pinned<'_, S> {
    type Value = Vec<u8>;

    fn flags(&self) -> u64 {
        self.view.flags()
    }

    fn get(&self, key: &[u8]) -> Result<Option<Vec<u8>>, KvError> {
        self.view.get(key)
    }

    fn scan(&self, range: &ScanRange<'_>, visit: &mut dyn FnMut(&[u8], &[u8]) -> bool) -> Result<bool, KvError> {
        self.view.scan(range, visit)
    }

    fn check_rows(&self, _: &[u8], _: &[u8]) -> Result<(), KvError> {
        // What is committed is laid over the snapshot, with its entries.
        Ok(())
    }

    fn note_stale(&self, entries: Vec<Vec<u8>>, account: &Arc<Account>) {
        // The step that removes an entry looks at the row again. Only leaders propose it.
        if self.handle.leadership() == Leadership::Here {
            self.handle.note_stale(entries, account);
        }
    }
}

struct Snapshot<'v, I> {
    indexed: &'v I,
    until: &'v Until,
}

impl<I: Indexed> Moment for Snapshot<'_, I> {
    type Error = KvError;
    type Value = I::Value;

    fn flags(&self) -> u64 {
        self.indexed.flags()
    }

    fn get(&self, key: &[u8]) -> Result<Option<I::Value>, KvError> {
        self.until.step()?;
        self.indexed.get(key)
    }

    fn scan(&self, start: &[u8], end: &[u8], visit: &mut dyn FnMut(&[u8], &[u8]) -> bool) -> Result<bool, KvError> {
        let range = ScanRange { start, end, reverse: false, expected_entries: EXPECTED_ENTRIES };
        let mut may_go_on = Ok(());
        let is_whole = self.indexed.scan(&range, &mut |key, value| {
            may_go_on = self.until.step();
            may_go_on.is_ok() && visit(key, value)
        })?;
        may_go_on?;
        Ok(is_whole)
    }

    fn hold(&self, bytes: usize) -> Result<(), KvError> {
        self.until.hold(bytes)
    }
}

/// Reads the rows that an index names.
pub(super) fn by_index(indexed: &impl Indexed, scan: &IndexRef<'_>, until: &Until) -> Result<ScanChunk, KvError> {
    let request = scan.to_scan();
    indexed.check_rows(index::first_row(&request), &request.end)?;
    let (max_entries, max_bytes) = (request.max_entries.min(MAX_CHUNK_ENTRIES), request.max_bytes.min(MAX_CHUNK_BYTES));
    let request = IndexScan { max_entries, max_bytes, ..request };
    match index::read(&Snapshot { indexed, until }, &request) {
        Ok(found) => {
            indexed.note_stale(found.stale, until.account());
            Ok(found.chunk)
        }
        Err(Unfinished::Failed(error)) => Err(error),
        Err(Unfinished::BeingBuilt) => Err(KvError::TooLarge(
            "an index that this query needs is still being built: try again later, or use ALLOW FILTERING".to_owned(),
        )),
        Err(Unfinished::Unreadable) => Err(KvError::Storage("the index of a read cannot be decoded".to_owned())),
    }
}
