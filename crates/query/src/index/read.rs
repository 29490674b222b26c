//! Reads the rows that an index names, from one moment of a tablet.
//!
//! The result is like that of a scan of the range in which only some rows are found: keys ascend, the header of a
//! partition and its static row come before its rows. Filters are applied by whoever asked.
//!
//! Always true: all rows of the range that have one of the values are found, up to the last key of the result; a result
//! that is not exhausted has an entry at or after the start of the range. Left out: the read's permit and its deadline
//! ([`Moment`] has them), and which rows are looked up ([`super::named`]).

use super::moment::{MOST_ROWS, Moment, Request, Unfinished};
use super::named::{Named, NamedRow, named};
use super::specification::Specification;
use super::stale::wrong_forms;
use crate::kv::{IndexScan, ScanChunk};
use crate::program::PARTITION_DELETIONS;
use diorite_model::index::{EntryKey, TabletIndexes};
use diorite_model::{entry, key};

/// The most stale entries that are reported for one result, and the bytes after which no more are.
const MOST_STALE: usize = 256;
const STALE_BYTES: usize = 256 << 10;

/// A result.
#[derive(Debug, Default)]
pub struct Found {
    /// The entries.
    pub chunk: ScanChunk,
    /// The keys of entries whose rows do not have the value; not necessarily all.
    pub stale: Vec<Vec<u8>>,
}

/// Reads rows.
///
/// # Errors
/// See [`Unfinished`].
pub fn read<M: Moment>(moment: &M, request: Request<'_>) -> Result<Found, Unfinished<M::Error>> {
    let stored = moment.specification(request.index)?;
    let reading = Reading { moment, request };
    match stored.filter(|stored| stored.is_complete()) {
        Some(specification) => reading.by_index(&specification),
        None => reading.by_rows(),
    }
}

/// The first key of a row that an entry has to name: that of the partition in which the range begins, if whole partitions
/// are meant.
pub fn first_row(request: Request<'_>) -> &[u8] {
    let start = request.start.as_slice();
    match request.partition_len {
        0 => start,
        length if request.whole_partitions => start.get(..length).unwrap_or(start),
        _ => start,
    }
}

/// Entries whose rows do not have the value.
#[derive(Default)]
struct Stale {
    keys: Vec<Vec<u8>>,
    bytes: usize,
}

impl Stale {
    fn is_full(&self) -> bool {
        self.keys.len() >= MOST_STALE || self.bytes >= STALE_BYTES
    }
}

struct Reading<'m, M> {
    moment: &'m M,
    request: Request<'m>,
}

impl<M: Moment> Reading<'_, M> {
    fn is_full(&self, chunk: &ScanChunk) -> bool {
        chunk.is_full(self.request.max_entries.max(1), self.request.max_bytes)
    }

    /// Appends the entries of a range; whether these are all.
    fn append(&self, start: &[u8], end: &[u8], chunk: &mut ScanChunk) -> Result<bool, Unfinished<M::Error>> {
        let mut held = Ok(());
        if start >= end {
            return Ok(true);
        }
        let is_whole = self.moment.scan(start, end, &mut |key, value| {
            held = self.moment.hold(key.len() + value.len());
            if held.is_err() {
                return false;
            }
            chunk.push(key, value);
            !self.is_full(chunk)
        })?;
        held?;
        Ok(is_whole)
    }

    /// The tablet has no complete index.
    fn by_rows(&self) -> Result<Found, Unfinished<M::Error>> {
        // Few rows are read in any case, however few are wanted.
        let max_entries = if self.request.may_scan { self.request.max_entries } else { MOST_ROWS };
        let request = &IndexScan { max_entries, ..self.request.clone() };
        let (mut chunk, reading) = (ScanChunk::default(), Reading { request, ..*self });
        chunk.exhausted = reading.append(&request.start, &request.end, &mut chunk)?;
        match chunk.exhausted || self.request.may_scan {
            true => Ok(Found { chunk, stale: Vec::new() }),
            false => Err(Unfinished::BeingBuilt),
        }
    }

    fn by_index(&self, specification: &Specification) -> Result<Found, Unfinished<M::Error>> {
        let Named { rows, has_more, most } = named(self.moment, self.request, first_row(self.request))?;
        let max_bytes = self.request.max_bytes;
        if rows.is_empty() {
            return Ok(Found { chunk: ScanChunk { exhausted: !has_more, ..ScanChunk::default() }, stale: Vec::new() });
        }
        let (indexes, mut stale) = (specification.indexes(self.request.index), Stale::default());
        let (mut found, mut partition) = (Found::default(), Vec::new());
        let (count, mut is_whole) = (rows.len(), true);
        for (at, (row, by)) in rows.iter().enumerate() {
            let prefix = row.get(..by.partition_len).ok_or(Unfinished::Unreadable)?;
            let stored = match self.request.whole_partitions {
                true => {
                    is_whole = self.partition(row, prefix, &mut found.chunk)?;
                    if stale.is_full() { None } else { self.moment.get(row)? }
                }
                false => self.row(row, prefix, prefix != partition, &mut found.chunk)?,
            };
            self.judge(&indexes, (row, by), stored.as_deref(), &mut stale);
            if !is_whole || (at + 1 < count && found.chunk.is_full(most, max_bytes)) {
                return Ok(Found { stale: stale.keys, ..found });
            }
            partition = prefix.to_vec();
        }
        found.chunk.exhausted = !has_more;
        Ok(Found { stale: stale.keys, ..found })
    }

    /// Appends a partition, which an entry names by its static row; whether it is complete.
    fn partition(&self, row: &[u8], prefix: &[u8], chunk: &mut ScanChunk) -> Result<bool, Unfinished<M::Error>> {
        let (mut end, request, before) = (prefix.to_vec(), self.request, chunk.ends.len());
        key::push_partition_end(&mut end);
        let is_whole = self.append(prefix.max(&request.start), end.as_slice().min(&request.end), chunk)?;
        if chunk.ends.len() == before && row >= request.start.as_slice() {
            self.push_nothing(row, chunk)?;
        }
        Ok(is_whole)
    }

    /// Appends a row, and what belongs to its partition if that is new; returns what is stored of the row.
    fn row(
        &self,
        row: &[u8],
        prefix: &[u8],
        is_first: bool,
        chunk: &mut ScanChunk,
    ) -> Result<Option<M::Value>, Unfinished<M::Error>> {
        let with = |push: fn(&mut Vec<u8>)| {
            let mut key = prefix.to_vec();
            push(&mut key);
            key
        };
        if is_first && self.moment.flags() & PARTITION_DELETIONS != 0 {
            self.push(&with(key::push_header), chunk)?;
        }
        let static_row = with(key::push_static);
        if is_first && self.request.with_statics && row != static_row {
            self.push(&static_row, chunk)?;
        }
        let stored = self.push(row, chunk)?;
        if stored.is_none() {
            self.push_nothing(row, chunk)?;
        }
        Ok(stored)
    }

    /// Appends a row without content: the last key of a result is where the next one goes on.
    fn push_nothing(&self, row: &[u8], chunk: &mut ScanChunk) -> Result<(), Unfinished<M::Error>> {
        if let Some(nothing) = entry::without_content(&[NO_CONTENT]) {
            self.moment.hold(row.len() + nothing.len())?;
            chunk.push(row, &nothing);
        }
        Ok(())
    }

    /// Appends what a key holds, and returns it.
    fn push(&self, key: &[u8], chunk: &mut ScanChunk) -> Result<Option<M::Value>, Unfinished<M::Error>> {
        let Some(value) = self.moment.get(key)? else { return Ok(None) };
        self.moment.hold(key.len() + value.len())?;
        chunk.push(key, &value);
        Ok(Some(value))
    }

    /// Reports the entries of a row that name values which it does not have.
    fn judge(
        &self,
        indexes: &TabletIndexes,
        (row, named): (&[u8], &NamedRow),
        stored: Option<&[u8]>,
        stale: &mut Stale,
    ) {
        if stale.is_full() || named.forms.is_empty() {
            return;
        }
        let forms = named.forms.iter().map(Vec::as_slice).collect();
        let wrong = wrong_forms(indexes, (row, stored), forms, &|_| true);
        for form in wrong {
            if stale.is_full() {
                return;
            }
            let key = EntryKey { form, row, partition_len: named.partition_len }.join(self.request.index);
            stale.bytes += key.len();
            stale.keys.push(key);
        }
    }
}

/// The first byte of a row without anything.
const NO_CONTENT: u8 = 0x40;
