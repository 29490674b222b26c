//! Reads of a tablet replica, in memory or on disk: of one that leads, or of a follower for those who ask for that.
//!
//! Always true: header, static row and rows are read one after the other from one replica; what permits the read (a lease, or a
//! bound on its age) is checked with each. What is to be folded is folded after it was read and permitted.

use super::CatalogSource;
use super::wire::{FetchRef, Parts, RangeRef, RowsRef, SeveralRef};
use diorite_base::write::KvError;
use diorite_query::exec::fold::Folder;
use diorite_query::kv::{ScanChunk, several};
use diorite_replica::{Permit, TabletHandle};
use diorite_storage::{PinnedValue, ScanRange};
use std::sync::Arc;

/// Scans up to this size are first tried in memory on the task that takes the request.
const INLINE_SCAN_BYTES: usize = 64 << 10;
/// Keys of up to this size in all are first looked up in memory there, too.
const INLINE_SPANS_BYTES: usize = 1 << 10;
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
        RowsRef::Several(several) => {
            handle.check(permit)?;
            let Some(chunk) = read_several(handle, permit, several, look)? else { return Ok(None) };
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
    let mut chunk = ScanChunk::default();
    Ok(append(handle, permit, request, look, &mut chunk)?.then_some(chunk))
}

/// Appends a range to a chunk, and says in it whether that was all of the range; false if it cannot be done without the disk.
fn append(
    handle: &TabletHandle,
    permit: Permit,
    request: &RangeRef<'_>,
    look: Look,
    chunk: &mut ScanChunk,
) -> Result<bool, KvError> {
    let max_bytes = request.max_bytes.min(MAX_CHUNK_BYTES);
    let max_entries = request.max_entries.clamp(1, MAX_CHUNK_ENTRIES);
    let expected_entries = max_entries.saturating_sub(chunk.ends.len()).max(1);
    let range = ScanRange { start: request.start, end: request.end, reverse: request.reverse, expected_entries };
    let mut visit = |key: &[u8], value: &[u8]| {
        chunk.push(key, value);
        chunk.ends.len() < max_entries && chunk.buffer.len() < max_bytes
    };
    chunk.exhausted = match look {
        Look::Memory if max_bytes > INLINE_SCAN_BYTES => return Ok(false),
        Look::Memory => match handle.scan_cached(permit, &range, &mut visit)? {
            Some(exhausted) => exhausted,
            None => return Ok(false),
        },
        Look::Anywhere => handle.scan(permit, &range, &mut visit)?,
    };
    Ok(true)
}

/// Reads spans one after the other, until there is enough; `None` if it cannot be done without the disk.
fn read_several(
    handle: &TabletHandle,
    permit: Permit,
    request: &SeveralRef<'_>,
    look: Look,
) -> Result<Option<ScanChunk>, KvError> {
    // Many look-ups would hold up the other requests of the task.
    if look == Look::Memory && request.spans.len() > INLINE_SPANS_BYTES {
        return Ok(None);
    }
    let max_bytes = request.max_bytes.min(MAX_CHUNK_BYTES);
    let max_entries = request.max_entries.clamp(1, MAX_CHUNK_ENTRIES);
    let mut chunk = ScanChunk { exhausted: true, ..ScanChunk::default() };
    for span in several::decode(request.spans) {
        let span = span.map_err(|_| KvError::Storage("the keys of a read cannot be decoded".to_owned()))?;
        if span.if_flags != 0 && handle.flags() & span.if_flags == 0 {
            continue;
        }
        if chunk.is_full(max_entries, max_bytes) {
            chunk.exhausted = false;
            break;
        }
        match &span.end {
            None => match get(handle, permit, &span.start, look)? {
                None => return Ok(None),
                Some(None) => {}
                Some(Some(value)) => chunk.push(&span.start, &value),
            },
            Some(end) => {
                let (start, reverse) = (span.start.as_slice(), request.reverse);
                let range = RangeRef { start, end, reverse, max_entries, max_bytes };
                if !append(handle, permit, &range, look, &mut chunk)? {
                    return Ok(None);
                }
                if !chunk.exhausted {
                    break;
                }
            }
        }
    }
    Ok(Some(chunk))
}
