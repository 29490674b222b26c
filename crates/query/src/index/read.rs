//! Reads the rows that an index names, from one moment of a tablet.
//!
//! The result is like that of a scan of the range in which only some rows are found: keys ascend, the header of a
//! partition and its static row come before its rows. Filters are applied by whoever asked.
//!
//! Always true: all rows of the range that have one of the values are found, up to the last key of the result; a result
//! that is not exhausted has an entry. Left out: the read's permit and its deadline ([`Moment`] has them).

use super::specification::Specification;
use crate::kv::several::{self, Span};
use crate::kv::{IndexScan, ScanChunk};
use crate::program::PARTITION_DELETIONS;
use diorite_base::row_index::RowIndexes;
use diorite_model::index::{EntryKey, entry_prefix, specification_key};
use diorite_model::{entry, key};
use std::collections::BTreeMap;
use std::ops::Deref;

/// The most rows that are looked up for one result.
const MOST_ROWS: usize = 8_192;
/// The most stale entries that are reported for one result.
const MOST_STALE: usize = 64;

/// A tablet's data at one moment.
pub trait Moment {
    /// Why it cannot be read.
    type Error;
    /// A value.
    type Value: Deref<Target = [u8]>;
    /// The tablet's flags.
    fn flags(&self) -> u64;
    /// The value of a key.
    fn get(&self, key: &[u8]) -> Result<Option<Self::Value>, Self::Error>;
    /// Calls `visit` with each entry of `start..end`, ascending, until it returns false. Returns whether it has seen all.
    fn scan(&self, start: &[u8], end: &[u8], visit: &mut dyn FnMut(&[u8], &[u8]) -> bool) -> Result<bool, Self::Error>;
    /// Charges bytes that are about to be copied.
    fn hold(&self, bytes: usize) -> Result<(), Self::Error>;
}

/// A read.
pub type Request<'a> = &'a IndexScan;

/// Why there is no result.
#[derive(Debug)]
pub enum Unfinished<E> {
    /// The data cannot be read.
    Failed(E),
    /// The index does not cover the tablet yet, and the tablet has more rows than may be read for a result.
    BeingBuilt,
    /// The index or the request is of a newer version.
    Unreadable,
}

impl<E> From<E> for Unfinished<E> {
    fn from(error: E) -> Self {
        Self::Failed(error)
    }
}

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
    let stored = moment.get(&specification_key(request.index))?;
    let stored = stored.map(|value| Specification::decode(&value)).transpose().map_err(|_| Unfinished::Unreadable)?;
    let reading = Reading { moment, request };
    match stored.filter(Specification::is_complete) {
        Some(specification) => reading.by_index(&specification),
        None => reading.by_rows(),
    }
}

/// The rows that entries name, with the lengths of their partition parts.
#[derive(Default)]
struct Named {
    rows: BTreeMap<Vec<u8>, usize>,
    /// There are more, with greater keys.
    has_more: bool,
    /// Their one value.
    form: Option<Vec<u8>>,
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

    /// The first key of a row that an entry has to name: that of the partition in which the range begins, if whole
    /// partitions are meant.
    fn first_row(&self) -> &[u8] {
        let start = self.request.start.as_slice();
        match self.request.partition_len {
            0 => start,
            length if self.request.whole_partitions => start.get(..length).unwrap_or(start),
            _ => start,
        }
    }

    /// The rows that entries name, in the order of their keys.
    fn named(&self) -> Result<Named, Unfinished<M::Error>> {
        let (prefix, first) = (entry_prefix(self.request.index), self.first_row());
        let spans = several::decode(&self.request.spans).collect::<Result<Vec<Span>, _>>();
        let spans = spans.map_err(|_| Unfinished::Unreadable)?;
        let mut named = Named::default();
        let is_one_value = matches!(spans.as_slice(), [Span { end: None, .. }]);
        let most = if is_one_value { self.request.max_entries.clamp(1, MOST_ROWS) } else { MOST_ROWS };
        for span in &spans {
            let (start, end) = match &span.end {
                None => {
                    ([&prefix, &span.start[..], first].concat(), [&prefix, &span.start[..], &self.request.end].concat())
                }
                Some(end) => ([&prefix[..], &span.start].concat(), [&prefix[..], end].concat()),
            };
            let mut held = Ok(());
            self.moment.scan(&start, &end, &mut |key, _| {
                let Ok(entry) = EntryKey::read(key) else { return true };
                let is_within = entry.row >= first && entry.row < self.request.end.as_slice();
                if !is_within || named.rows.contains_key(entry.row) {
                    return true;
                }
                if is_one_value && named.rows.len() == most {
                    named.has_more = true;
                    return false;
                }
                held = self.moment.hold(entry.row.len());
                named.rows.insert(entry.row.to_vec(), entry.partition_len);
                if named.rows.len() > most {
                    named.rows.pop_last();
                    named.has_more = true;
                }
                held.is_ok()
            })?;
            held?;
        }
        named.form = spans.into_iter().next().filter(|_| is_one_value).map(|span| span.start);
        Ok(named)
    }

    fn by_index(&self, specification: &Specification) -> Result<Found, Unfinished<M::Error>> {
        let named = self.named()?;
        let (mut found, mut partition) = (Found::default(), Vec::new());
        let count = named.rows.len();
        for (at, (row, partition_len)) in named.rows.iter().enumerate() {
            let prefix = row.get(..*partition_len).ok_or(Unfinished::Unreadable)?;
            let is_whole = match self.request.whole_partitions {
                true => self.partition(prefix, &mut found.chunk)?,
                false => {
                    let is_first = prefix != partition;
                    self.row(row, prefix, is_first, &mut found.chunk)?;
                    true
                }
            };
            if let Some(form) = &named.form {
                self.judge(specification, &EntryKey { form, row, partition_len: *partition_len }, &mut found.stale)?;
            }
            if !is_whole || (at + 1 < count && self.is_full(&found.chunk)) {
                return Ok(found);
            }
            partition = prefix.to_vec();
        }
        found.chunk.exhausted = !named.has_more;
        Ok(found)
    }

    /// Appends a partition; whether it is complete.
    fn partition(&self, prefix: &[u8], chunk: &mut ScanChunk) -> Result<bool, Unfinished<M::Error>> {
        let (mut end, request) = (prefix.to_vec(), self.request);
        key::push_partition_end(&mut end);
        self.append(prefix.max(&request.start), end.as_slice().min(&request.end), chunk)
    }

    /// Appends a row, and what belongs to its partition if that is new.
    fn row(
        &self,
        row: &[u8],
        prefix: &[u8],
        is_first: bool,
        chunk: &mut ScanChunk,
    ) -> Result<(), Unfinished<M::Error>> {
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
        if !self.push(row, chunk)?
            && let Some(nothing) = entry::without_content(&[NO_CONTENT])
        {
            // The last key of a result is where the next one goes on.
            chunk.push(row, &nothing);
        }
        Ok(())
    }

    /// Appends what a key holds; whether it holds something.
    fn push(&self, key: &[u8], chunk: &mut ScanChunk) -> Result<bool, Unfinished<M::Error>> {
        let Some(value) = self.moment.get(key)? else { return Ok(false) };
        self.moment.hold(key.len() + value.len())?;
        chunk.push(key, &value);
        Ok(true)
    }

    /// Reports an entry whose row does not have the value.
    fn judge(
        &self,
        specification: &Specification,
        entry: &EntryKey<'_>,
        stale: &mut Vec<Vec<u8>>,
    ) -> Result<(), Unfinished<M::Error>> {
        if stale.len() >= MOST_STALE {
            return Ok(());
        }
        let (key, mut is_right) = (entry.join(self.request.index), false);
        if let Some(row) = self.moment.get(entry.row)? {
            specification
                .indexes(self.request.index)
                .entries(entry.row, &row, &mut |found, _, _| is_right |= found == key);
        }
        if !is_right {
            stale.push(key);
        }
        Ok(())
    }
}

/// The first byte of a row without anything.
const NO_CONTENT: u8 = 0x40;
