//! Reads of a tablet replica, in memory or on disk: of one that leads, or of a follower for those who ask for that.
//!
//! Always true: header, static row and rows are read one after the other from one replica; what permits the read (a lease, or a
//! bound on its age) is checked with each. What is to be folded is folded after it was read and permitted.

use super::CatalogSource;
use super::wire::{FetchRef, Parts, RangeRef, RowsRef};
use diorite_base::write::KvError;
use diorite_query::exec::fold::Folder;
use diorite_query::kv::ScanChunk;
use diorite_replica::{Permit, TabletHandle};
use diorite_storage::{PinnedValue, ScanRange};
use std::sync::Arc;

/// Scans up to this size are first tried in memory on the task that takes the request.
const INLINE_SCAN_BYTES: usize = 64 << 10;
/// The most that one answer brings, whatever is asked for.
const MAX_CHUNK_BYTES: usize = 4 << 20;
const MAX_CHUNK_ENTRIES: usize = 1 << 16;

/// Where may be looked.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Look {
    /// In memory only: does not wait.
    Memory,
    /// On disk as well.
    Anywhere,
}

/// Carries out a read; `None` if it cannot without the disk.
pub(super) fn read(
    handle: &TabletHandle,
    permit: Permit,
    request: &FetchRef<'_>,
    look: Look,
    folding: &Folding,
) -> Result<Option<Parts<PinnedValue>>, KvError> {
    let mut parts = Parts { header: None, static_row: None, row: None, chunk: None, folded: None };
    let mut scratch = Vec::new();
    if let Some((flags, key)) = &request.header
        && handle.flags() & flags != 0
    {
        let Some(found) = get(handle, permit, key.join(&mut scratch), look)? else { return Ok(None) };
        parts.header = found;
    }
    if let Some(key) = &request.static_row {
        let Some(found) = get(handle, permit, key.join(&mut scratch), look)? else { return Ok(None) };
        parts.static_row = found;
    }
    match &request.rows {
        RowsRef::Nothing => handle.check(permit)?,
        RowsRef::One(key) => {
            let Some(found) = get(handle, permit, key, look)? else { return Ok(None) };
            parts.row = found;
        }
        RowsRef::Range(range) => {
            let Some(chunk) = scan(handle, permit, range, look)? else { return Ok(None) };
            parts.chunk = Some(chunk);
        }
    }
    Ok(Some(folding.apply(request, parts)))
}

/// What folds rows, and the catalog that says what they mean.
pub(super) struct Folding {
    pub(super) folder: Folder,
    pub(super) catalogs: Arc<dyn CatalogSource>,
}

impl Folding {
    /// Folds what was read, if that is asked for.
    fn apply(&self, request: &FetchRef<'_>, parts: Parts<PinnedValue>) -> Parts<PinnedValue> {
        let Some(task) = request.fold else { return parts };
        let folded = Some(self.folder.fold(&self.catalogs.catalog(), task, &parts.into_fetched()));
        Parts { header: None, static_row: None, row: None, chunk: None, folded }
    }
}

fn get(handle: &TabletHandle, permit: Permit, key: &[u8], look: Look) -> Result<Option<Option<PinnedValue>>, KvError> {
    match look {
        Look::Memory => handle.get_cached(permit, key),
        Look::Anywhere => handle.get(permit, key).map(Some),
    }
}

fn scan(
    handle: &TabletHandle,
    permit: Permit,
    request: &RangeRef<'_>,
    look: Look,
) -> Result<Option<ScanChunk>, KvError> {
    let max_bytes = request.max_bytes.min(MAX_CHUNK_BYTES);
    let max_entries = request.max_entries.clamp(1, MAX_CHUNK_ENTRIES);
    let mut chunk = ScanChunk::default();
    let range =
        ScanRange { start: request.start, end: request.end, reverse: request.reverse, expected_entries: max_entries };
    let mut visit = |key: &[u8], value: &[u8]| {
        chunk.push(key, value);
        chunk.ends.len() < max_entries && chunk.buffer.len() < max_bytes
    };
    chunk.exhausted = match look {
        Look::Memory if max_bytes > INLINE_SCAN_BYTES => return Ok(None),
        Look::Memory => match handle.scan_cached(permit, &range, &mut visit)? {
            Some(exhausted) => exhausted,
            None => return Ok(None),
        },
        Look::Anywhere => handle.scan(permit, &range, &mut visit)?,
    };
    Ok(Some(chunk))
}
