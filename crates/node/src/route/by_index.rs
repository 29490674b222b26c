//! Reads by index, of a tablet replica at one moment.
//!
//! A read looks in memory first, on the task that takes the request, as reads by key do. It goes on in a snapshot, on a
//! thread that may wait, if something is missing there, or if it turns out to be long.
//!
//! Always true: entries and rows are of one moment. A read in memory scans a bounded number of entries; of a longer one
//! the deadline is looked at for every entry. What turns out to be stale is noted at the replica, for the node to have
//! it removed. Left out: what is read ([`diorite_query::index`]), and the permit of the read ([`super::read`]).

use super::index_wire::IndexRef;
use super::until::Until;
use diorite_base::account::Account;
use diorite_base::write::KvError;
use diorite_query::index::{self, Found, Moment, Specification, Unfinished};
use diorite_query::kv::{IndexScan, ScanChunk};
use diorite_replica::{Glance, Leadership, PinnedView, TabletHandle, Visit};
use diorite_storage::{PinnedValue, ScanRange, TabletSnapshot};
use std::cell::{Cell, RefCell};
use std::ops::Deref;
use std::sync::Arc;

/// The most bytes and entries of one answer, whatever the request asks for.
const MAX_CHUNK_BYTES: usize = 4 << 20;
const MAX_CHUNK_ENTRIES: usize = 1 << 16;
/// About as many entries as are scanned without leaving their blocks in the cache.
const EXPECTED_ENTRIES: usize = 100;
/// A read in memory scans at most so many entries, and so looks up few rows.
const INLINE_ENTRIES: usize = 64;
/// It copies at most so many bytes.
const INLINE_BYTES: usize = 64 << 10;

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
        Visit::scan(self, range, None, visit)
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

/// A tablet whose rows and index entries may be in memory.
pub(super) trait InMemory {
    /// The flag bits that evaluated mutations had raised.
    fn flags(&self) -> u64;
    /// Reads a key; `None` if that needs the disk.
    fn get(&self, key: &[u8]) -> Result<Option<Option<PinnedValue>>, KvError>;
    /// As [`Indexed::scan`]; `None` if that needs the disk.
    fn scan(&self, range: &ScanRange<'_>, visit: &mut dyn FnMut(&[u8], &[u8]) -> bool)
    -> Result<Option<bool>, KvError>;
    /// As [`Indexed::check_rows`].
    fn check_rows(&self, start: &[u8], end: &[u8]) -> Result<(), KvError>;
    /// The specification of an index, if another reader has noted it.
    fn noted(&self, index: u64) -> Option<Arc<Specification>>;
}

impl InMemory for Visit<'_> {
    fn flags(&self) -> u64 {
        Visit::flags(self)
    }

    fn get(&self, key: &[u8]) -> Result<Option<Option<PinnedValue>>, KvError> {
        self.get_cached(key)
    }

    fn scan(
        &self,
        range: &ScanRange<'_>,
        visit: &mut dyn FnMut(&[u8], &[u8]) -> bool,
    ) -> Result<Option<bool>, KvError> {
        self.scan_cached(range, None, visit)
    }

    fn check_rows(&self, start: &[u8], end: &[u8]) -> Result<(), KvError> {
        Visit::check_rows(self, start, end)
    }

    fn noted(&self, _: u64) -> Option<Arc<Specification>> {
        // A snapshot may be older than the notes.
        None
    }
}

impl InMemory for Glance<'_> {
    fn flags(&self) -> u64 {
        Glance::flags(self)
    }

    fn get(&self, key: &[u8]) -> Result<Option<Option<PinnedValue>>, KvError> {
        self.get_cached(key)
    }

    fn scan(
        &self,
        range: &ScanRange<'_>,
        visit: &mut dyn FnMut(&[u8], &[u8]) -> bool,
    ) -> Result<Option<bool>, KvError> {
        self.scan_cached(range, visit)
    }

    fn check_rows(&self, start: &[u8], end: &[u8]) -> Result<(), KvError> {
        Glance::check_rows(self, start, end)
    }

    fn noted(&self, index: u64) -> Option<Arc<Specification>> {
        self.index_note(index)?.downcast().ok()
    }
}

/// Why a read in memory has no result.
enum Missed {
    Failed(KvError),
    /// Something is not in memory, or there is much to read.
    Elsewhere,
}

impl From<KvError> for Missed {
    fn from(error: KvError) -> Self {
        Self::Failed(error)
    }
}

/// A short read in memory.
struct Brief<'v, I> {
    memory: &'v I,
    entries: Cell<usize>,
    bytes: Cell<usize>,
    /// The specification that was read.
    learned: RefCell<Option<Arc<Specification>>>,
}

impl<I> Brief<'_, I> {
    /// Counts an entry; false if there are too many.
    fn step(&self) -> bool {
        self.entries.set(self.entries.get() + 1);
        self.entries.get() <= INLINE_ENTRIES
    }
}

impl<I: InMemory> Moment for Brief<'_, I> {
    type Error = Missed;
    type Value = PinnedValue;

    fn flags(&self) -> u64 {
        self.memory.flags()
    }

    fn get(&self, key: &[u8]) -> Result<Option<PinnedValue>, Missed> {
        self.memory.get(key)?.ok_or(Missed::Elsewhere)
    }

    fn scan(&self, start: &[u8], end: &[u8], visit: &mut dyn FnMut(&[u8], &[u8]) -> bool) -> Result<bool, Missed> {
        let range = ScanRange { start, end, reverse: false, expected_entries: EXPECTED_ENTRIES };
        let mut is_short = true;
        let scanned = self.memory.scan(&range, &mut |key, value| {
            is_short = self.step();
            is_short && visit(key, value)
        })?;
        scanned.filter(|_| is_short).ok_or(Missed::Elsewhere)
    }

    fn hold(&self, bytes: usize) -> Result<(), Missed> {
        self.bytes.set(self.bytes.get().saturating_add(bytes));
        if self.bytes.get() <= INLINE_BYTES { Ok(()) } else { Err(Missed::Elsewhere) }
    }

    fn specification(&self, index: u64) -> Result<Option<Arc<Specification>>, Unfinished<Missed>> {
        if let Some(noted) = self.memory.noted(index) {
            return Ok(Some(noted));
        }
        let stored = index::stored_specification(self, index)?;
        self.learned.borrow_mut().clone_from(&stored);
        Ok(stored)
    }
}

/// The request, within the limits of an answer.
fn limited(scan: &IndexRef<'_>) -> IndexScan {
    let request = scan.to_scan();
    let (max_entries, max_bytes) = (request.max_entries.min(MAX_CHUNK_ENTRIES), request.max_bytes.min(MAX_CHUNK_BYTES));
    IndexScan { max_entries, max_bytes, ..request }
}

fn unfinished(why: Unfinished<KvError>) -> KvError {
    match why {
        Unfinished::Failed(error) => error,
        Unfinished::BeingBuilt => KvError::IndexBeingBuilt,
        Unfinished::Unreadable => KvError::Storage("the index of a read cannot be decoded".to_owned()),
    }
}

/// What a read in memory has brought.
pub(super) struct Brought {
    pub(super) found: Found,
    /// The index's specification, to be noted if what was read is of one moment; `None` if it was noted before.
    pub(super) learned: Option<Arc<Specification>>,
}

/// Reads the rows that an index names from memory, if all is there and they are few. What is stale has yet to be noted.
pub(super) fn in_memory(memory: &impl InMemory, scan: &IndexRef<'_>) -> Result<Option<Brought>, KvError> {
    let request = limited(scan);
    memory.check_rows(index::first_row(&request), &request.end)?;
    let brief = Brief { memory, entries: Cell::default(), bytes: Cell::default(), learned: RefCell::default() };
    match index::read(&brief, &request) {
        Ok(found) => Ok(Some(Brought { found, learned: brief.learned.take() })),
        Err(Unfinished::Failed(Missed::Elsewhere)) => Ok(None),
        Err(Unfinished::Failed(Missed::Failed(error))) => Err(error),
        Err(Unfinished::BeingBuilt) => Err(unfinished(Unfinished::BeingBuilt)),
        Err(Unfinished::Unreadable) => Err(unfinished(Unfinished::Unreadable)),
    }
}

/// Reads the rows that an index names.
pub(super) fn by_index(indexed: &impl Indexed, scan: &IndexRef<'_>, until: &Until) -> Result<ScanChunk, KvError> {
    let request = limited(scan);
    indexed.check_rows(index::first_row(&request), &request.end)?;
    let found = index::read(&Snapshot { indexed, until }, &request).map_err(unfinished)?;
    indexed.note_stale(found.stale, until.account());
    Ok(found.chunk)
}
