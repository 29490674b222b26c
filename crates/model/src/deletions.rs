//! Partition headers: the deletion of a partition and of ranges of its rows, format version 1.
//!
//! ```text
//! header   := flags u8 · base timestamp i64 · [horizon u32] · [deletion] · [count varint · (deletion · start slice · end slice)*]
//! deletion := as in `row`;  slice := length varint · bytes
//! ```
//!
//! Always true: ranges are `[start, end)` over key bytes after the row-kind byte, ascending and disjoint, neighbours with equal deletions
//! joined, none older than the partition's own deletion. [`fold`] is a union in which the later deletion wins wherever two overlap:
//! associative, commutative, idempotent. The base timestamp is the same stamp slot as a row's.
//! A header with a horizon holds timestamps older than that horizon. Everything older in its key that is past the
//! horizon counts as purged, whether it is still stored or not. A stored horizon is never 0.
//! Left out: deletions of single rows, which are in the rows themselves.

#[cfg(test)]
mod tests;

use crate::format::{Compaction, FORMAT_DELETIONS, FORMAT_MASK};
use crate::row::{self, Deletion, NOTHING_DELETED, push_deletion, read_deletion};
use diorite_base::bytes::{Malformed, Reader, put_slice, put_varint};
use diorite_base::horizon::{first_us, is_past};
use std::collections::BTreeMap;

const PARTITION: u8 = 0x01;
const RANGES: u8 = 0x02;
const BOUNDED: u8 = 0x04;

/// A deleted range of clustering keys.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Range<'a> {
    /// The first deleted key bytes; empty: from the first row.
    pub start: &'a [u8],
    /// The end, exclusive; `[0xFF]`: to the last row.
    pub end: &'a [u8],
    /// The deletion.
    pub deletion: Deletion,
}

/// Packs a partition header. `start` and `end` of ranges are key bytes after the row-kind byte: `start` is inclusive,
/// `end` is exclusive; an empty start and the end `[0xFF]` leave a side open. Deletions that the leader stamps and
/// deletions with a client's timestamp go into separate headers (and operations), because which of them is later is
/// known only after stamping.
#[derive(Debug, Clone, Default)]
pub struct DeletionsWriter {
    partition: Option<Deletion>,
    ranges: Vec<(Vec<u8>, Vec<u8>, Deletion)>,
}

impl DeletionsWriter {
    /// Adds the deletion of the whole partition.
    pub fn partition(&mut self, deletion: Deletion) {
        self.partition = self.partition.max(Some(deletion));
    }

    /// Adds the deletion of a range.
    pub fn range(&mut self, start: &[u8], end: &[u8], deletion: Deletion) {
        self.ranges.push((start.to_vec(), end.to_vec(), deletion));
    }

    /// Appends the packed form. A deletion with the timestamp `base_us` (often [`crate::row::UNSTAMPED`]) stores no
    /// timestamp of its own.
    pub fn finish(self, base_us: i64, out: &mut Vec<u8>) {
        let ranges = self.ranges.iter().map(|(start, end, deletion)| Range { start, end, deletion: *deletion });
        pack(self.partition, &disjoint(self.partition, ranges), base_us, 0, out);
    }
}

/// A decoded partition header; borrows the packed bytes.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Deletions<'a> {
    base_us: i64,
    /// Older entries of the key count as purged as far as they are past this horizon; 0: the header has none.
    horizon_s: u32,
    partition: Option<Deletion>,
    ranges: Vec<Range<'a>>,
}

impl<'a> Deletions<'a> {
    /// Decodes a header.
    pub fn decode(value: &'a [u8]) -> Result<Self, Malformed> {
        let mut ranges: Vec<Range<'a>> = Vec::new();
        let header = Self::read(value, &mut |range: Range<'a>| ranges.push(range))?;
        Ok(Self { ranges, ..header })
    }

    /// Reads a header, and calls `see` with each of its ranges instead of keeping them.
    fn read(value: &'a [u8], see: &mut impl FnMut(Range<'a>)) -> Result<Self, Malformed> {
        let mut reader = Reader::new(value);
        let flags = reader.u8()?;
        if flags & FORMAT_MASK != FORMAT_DELETIONS || flags & !(FORMAT_MASK | PARTITION | RANGES | BOUNDED) != 0 {
            return Err(Malformed);
        }
        let base_us = reader.i64()?;
        let horizon_s = if flags & BOUNDED != 0 { some_horizon(reader.u32()?).ok_or(Malformed)? } else { 0 };
        let partition = if flags & PARTITION != 0 { Some(read_deletion(&mut reader, base_us)?) } else { None };
        let count = if flags & RANGES != 0 { reader.varint()? } else { 0 };
        let mut previous_end: &[u8] = &[];
        for _ in 0..count {
            #[cfg(test)]
            crate::testing::count_step();
            let deletion = read_deletion(&mut reader, base_us)?;
            let range = Range { start: reader.slice()?, end: reader.slice()?, deletion };
            if range.start >= range.end || previous_end > range.start {
                return Err(Malformed);
            }
            previous_end = range.end;
            see(range);
        }
        if !reader.is_empty() {
            return Err(Malformed);
        }
        Ok(Self { base_us, horizon_s, partition, ranges: Vec::new() })
    }

    /// The deletion of the whole partition.
    pub fn partition(&self) -> Option<Deletion> {
        self.partition
    }

    /// The deleted ranges: ascending, disjoint.
    pub fn ranges(&self) -> &[Range<'a>] {
        &self.ranges
    }

    /// The timestamp up to which the row with these key bytes (after the row-kind byte) is deleted, or
    /// [`NOTHING_DELETED`]. `row` is its value: if the row has a horizon, deletions past that horizon do not apply to
    /// it, whether they are still stored or not.
    pub fn deletion_for(&self, clustering: &[u8], row: &[u8]) -> i64 {
        let after = self.ranges.partition_point(|range| range.start <= clustering);
        let range = after.checked_sub(1).map(|at| &self.ranges[at]).filter(|range| clustering < range.end);
        over(range.map(|range| range.deletion), row).max(self.static_deletion(row))
    }

    /// The same for the static row: only the partition deletion counts.
    pub fn static_deletion(&self, row: &[u8]) -> i64 {
        over(self.partition, row)
    }
}

/// Reads a header to its end, and keeps nothing of it.
pub(crate) fn check(value: &[u8]) -> Result<(), Malformed> {
    Deletions::read(value, &mut |_: Range<'_>| {}).map(drop)
}

/// The timestamp up to which a deletion hides a row with this value, or [`NOTHING_DELETED`]. See
/// [`Deletions::deletion_for`].
pub fn over(deletion: Option<Deletion>, row: &[u8]) -> i64 {
    let Some(deletion) = deletion else { return NOTHING_DELETED };
    let horizon_s = row::horizon(row).map_or(0, |horizon| horizon.ranges_s);
    if is_past(horizon_s, deletion.timestamp_us, deletion.local_s) { NOTHING_DELETED } else { deletion.timestamp_us }
}

/// Sweeps over overlapping ranges and yields disjoint ranges, each with the latest deletion over it.
fn disjoint<'a>(partition: Option<Deletion>, ranges: impl Iterator<Item = Range<'a>>) -> Vec<Range<'a>> {
    let partition_us = partition.map(|deletion| deletion.timestamp_us);
    let ranges = ranges.filter(|range| range.start < range.end && Some(range.deletion.timestamp_us) > partition_us);
    let mut edges: Vec<(&'a [u8], bool, Deletion)> = Vec::new();
    ranges.for_each(|range| edges.extend([(range.start, true, range.deletion), (range.end, false, range.deletion)]));
    edges.sort_unstable_by(|one, other| one.0.cmp(other.0));
    let mut open: BTreeMap<Deletion, usize> = BTreeMap::new();
    let mut result: Vec<Range<'a>> = Vec::new();
    for (at, &(place, opens, deletion)) in edges.iter().enumerate() {
        let count = open.entry(deletion).or_insert(0);
        // At one key, ends may come before starts: counts wrap below zero, and counts of zero are dropped.
        *count = if opens { count.wrapping_add(1) } else { count.wrapping_sub(1) };
        if *count == 0 {
            open.remove(&deletion);
        }
        let Some(&(next, ..)) = edges.get(at + 1) else { break };
        let Some((&deletion, _)) = open.last_key_value() else { continue };
        if place == next {
            continue;
        }
        match result.last_mut() {
            Some(last) if last.end == place && last.deletion == deletion => last.end = next,
            _ => result.push(Range { start: place, end: next, deletion }),
        }
    }
    result
}

fn pack(partition: Option<Deletion>, ranges: &[Range<'_>], base_us: i64, horizon_s: u32, out: &mut Vec<u8>) {
    let flags = if partition.is_some() { PARTITION } else { 0 }
        | if ranges.is_empty() { 0 } else { RANGES }
        | if horizon_s == 0 { 0 } else { BOUNDED };
    out.push(FORMAT_DELETIONS | flags);
    out.extend_from_slice(&base_us.to_le_bytes());
    if horizon_s != 0 {
        out.extend_from_slice(&horizon_s.to_le_bytes());
    }
    if let Some(deletion) = partition {
        push_deletion(deletion, base_us, out);
    }
    if !ranges.is_empty() {
        put_varint(out, ranges.len() as u64);
    }
    for range in ranges {
        push_deletion(range.deletion, base_us, out);
        put_slice(out, range.start);
        put_slice(out, range.end);
    }
}

/// Appends the union of headers to `out`.
pub fn fold(values: &[&[u8]], out: &mut Vec<u8>) -> Result<(), Malformed> {
    let headers = values.iter().map(|value| Deletions::decode(value)).collect::<Result<Vec<_>, _>>()?;
    let base_us = headers.iter().map(|header| header.base_us).max().ok_or(Malformed)?;
    let partition = headers.iter().filter_map(|header| header.partition).max();
    let ranges = disjoint(partition, headers.iter().flat_map(|header| &header.ranges).copied());
    let horizon_s = headers.iter().map(|header| header.horizon_s).max().unwrap_or(0);
    pack(partition, &ranges, base_us, horizon_s, out);
    Ok(())
}

/// See [`crate::entry::compact`]. The rows that a purged deletion covers must have been removed before, or with it.
pub fn compact(value: &[u8], ranges_s: u32) -> Compaction {
    let Ok(header) = Deletions::decode(value) else { return Compaction::Keep };
    let stays = |deletion: &Deletion| !is_past(ranges_s, deletion.timestamp_us, deletion.local_s);
    let partition = header.partition.filter(stays);
    let ranges: Vec<_> = header.ranges.iter().filter(|range| stays(&range.deletion)).copied().collect();
    if partition.is_none() && ranges.is_empty() {
        return Compaction::Remove;
    }
    if partition == header.partition && ranges.len() == header.ranges.len() {
        return Compaction::Keep;
    }
    let mut out = Vec::with_capacity(value.len());
    pack(partition, &ranges, header.base_us, header.horizon_s, &mut out);
    Compaction::Replace(out)
}

/// The horizon of a header, if it has one.
pub(crate) fn horizon_s(value: &[u8]) -> Option<u32> {
    if value.first()? & BOUNDED == 0 {
        return None;
    }
    Reader::new(value.get(9..)?).u32().ok().and_then(some_horizon)
}

/// Whether a header deletes the whole partition and no ranges of it.
pub(crate) fn is_of_partition_alone(value: &[u8]) -> bool {
    value.first().is_some_and(|flags| flags & (PARTITION | RANGES) == PARTITION)
}

/// A horizon of 0 is stored as no horizon, as nothing is past it: equal headers have equal bytes.
fn some_horizon(second: u32) -> Option<u32> {
    (second != 0).then_some(second)
}

/// The header with the horizon added, if it holds a timestamp from before the horizon; `None` if it holds none.
pub(crate) fn bounded(value: &[u8], ranges_s: u32) -> Result<Option<Vec<u8>>, Malformed> {
    let header = Deletions::decode(value)?;
    let mut all = header.partition.iter().chain(header.ranges.iter().map(|range| &range.deletion));
    if header.horizon_s != 0 || all.all(|deletion| deletion.timestamp_us >= first_us(ranges_s)) {
        return Ok(None);
    }
    let mut out = Vec::with_capacity(value.len() + 4);
    pack(header.partition, &header.ranges, header.base_us, ranges_s, &mut out);
    Ok(Some(out))
}

/// The header with deletions that are never purged: rows that they hide may be stored at any time.
pub(crate) fn lasting(value: &[u8]) -> Result<Vec<u8>, Malformed> {
    let mut header = Deletions::decode(value)?;
    let last = |deletion: &mut Deletion| deletion.local_s = u32::MAX;
    header.partition.iter_mut().for_each(last);
    header.ranges.iter_mut().for_each(|range| last(&mut range.deletion));
    let mut out = Vec::with_capacity(value.len());
    pack(header.partition, &header.ranges, header.base_us, header.horizon_s, &mut out);
    Ok(out)
}
