//! Reads of a tablet replica that leads, in memory or on disk.
//!
//! Always true: header, static row and rows are read one after the other from one replica; the lease is checked with each.

use super::wire::{FetchRef, Parts, RangeRef, RowsRef};
use diorite_base::write::KvError;
use diorite_query::kv::ScanChunk;
use diorite_replica::TabletHandle;
use diorite_storage::{PinnedValue, ScanRange};

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
    request: &FetchRef<'_>,
    look: Look,
) -> Result<Option<Parts<PinnedValue>>, KvError> {
    let mut parts = Parts { header: None, static_row: None, row: None, chunk: None };
    let mut scratch = Vec::new();
    if let Some((flags, key)) = &request.header
        && handle.flags() & flags != 0
    {
        let Some(found) = get(handle, key.join(&mut scratch), look)? else { return Ok(None) };
        parts.header = found;
    }
    if let Some(key) = &request.static_row {
        let Some(found) = get(handle, key.join(&mut scratch), look)? else { return Ok(None) };
        parts.static_row = found;
    }
    match &request.rows {
        RowsRef::Nothing => handle.finish_read(handle.begin_read()?)?,
        RowsRef::One(key) => {
            let Some(found) = get(handle, key, look)? else { return Ok(None) };
            parts.row = found;
        }
        RowsRef::Range(range) => {
            let Some(chunk) = scan(handle, range, look)? else { return Ok(None) };
            parts.chunk = Some(chunk);
        }
    }
    Ok(Some(parts))
}

fn get(handle: &TabletHandle, key: &[u8], look: Look) -> Result<Option<Option<PinnedValue>>, KvError> {
    match look {
        Look::Memory => handle.get_cached(key),
        Look::Anywhere => handle.get(key).map(Some),
    }
}

fn scan(handle: &TabletHandle, request: &RangeRef<'_>, look: Look) -> Result<Option<ScanChunk>, KvError> {
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
        Look::Memory => match handle.scan_cached(&range, &mut visit)? {
            Some(exhausted) => exhausted,
            None => return Ok(None),
        },
        Look::Anywhere => handle.scan(&range, &mut visit)?,
    };
    Ok(Some(chunk))
}
