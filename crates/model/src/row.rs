//! Packed rows: every cell of a row in one value, format versions 1 and 2.
//!
//! ```text
//! row      := flags u8 · base timestamp i64 · [horizon] · [marker] · [deletion] · cell*      (cells in ascending column id)
//! horizon  := now u32 · rows u32 · ranges u32                                     version 2 only
//! marker   := flags u8 · [timestamp i64] · [ttl u32 · expiry u32]
//! deletion := flags u8 · [timestamp i64] · local deletion time u32
//! cell     := column varint · flags u8 · content
//! content  := [timestamp i64] · [ttl u32 · expiry u32] · length varint · bytes      a value
//!           | [timestamp i64] · local deletion time u32                             a tombstone
//!           | [timestamp i64] · ttl u32 · expiry u32                                a value that has expired
//!           | [timestamp i64] · sum i64                                             a counter
//!           | [deletion] · length u32 · element*                                    a multi-cell column
//! element  := length varint · path · flags u8 · (a value or a tombstone)            (in ascending path order)
//! ```
//!
//! Always true: integers are little-endian; what carries the base timestamp stores none of its own (the base is the *stamp slot*, bytes
//! 1..9, which the leader fills in); the flags of the row say what occurs anywhere in it, so that plain rows are known by one byte.
//! A row of version 2 holds timestamps older than the horizon that its tablet's log had decided on when it was written.
//! Everything past that horizon in older entries of the key counts as purged, whether it is still stored or not
//! ([`crate::entry::fold`] sees to that), and so do deletions of ranges over the row.
//! [`merge`] is associative, commutative and idempotent but for counters, whose changes are added in log order, each once.
//! Left out: which columns exist; cells of dropped columns are carried along until the row is rewritten.

mod compaction;
mod folding;
mod live;
mod merging;
mod parts;
mod path;
mod placing;
mod reader;
#[cfg(test)]
mod tests;
mod turns;
mod writer;

use crate::format::{FORMAT_BOUNDED_ROW, FORMAT_MASK, FORMAT_ROW};
use diorite_base::Horizon;
use diorite_base::bytes::Malformed;
use diorite_base::horizon::first_us;
use diorite_base::mutation::Effect;
use parts::{HORIZON_BYTES, push_horizon, row_flag};

pub use compaction::compact;
pub(crate) use compaction::without_content;
pub use folding::fold;
pub use live::{LiveCell, LiveCells, LiveComplex, LiveContent, LiveElement, LiveElements, LiveRow};
pub use merging::merge;
pub use parts::{Deletion, Expiry, Marker, NOTHING_DELETED, UNSTAMPED, now_seconds};
pub use path::{
    element_path, field_path, list_path_append, list_path_prepend, unplaced_list_path_append,
    unplaced_list_path_prepend,
};
pub use placing::{may_be_placed, place_lists};
pub use reader::{Cell, Cells, Complex, Content, Element, Elements, RowReader};
pub use turns::follow;
pub use writer::RowWriter;
pub(crate) use {parts::horizon, reader::read_deletion, writer::push_deletion};

/// Whether a value is a row of live, never-expiring simple cells, perhaps with a marker: nothing for compaction to do.
#[inline]
pub fn is_plain(value: &[u8]) -> bool {
    value.first().is_some_and(|flags| flags & !row_flag::MARKER == FORMAT_ROW)
}

/// Reads a row to its end, and keeps nothing of it.
pub(crate) fn check(value: &[u8]) -> Result<(), Malformed> {
    for cell in RowReader::new(value)?.cells() {
        if let Content::Complex(complex) = cell?.content {
            for element in complex.elements() {
                element?;
            }
        }
    }
    Ok(())
}

/// The longest time to live within a row, seconds; 0: none.
pub(crate) fn longest_ttl_s(value: &[u8]) -> Result<u32, Malformed> {
    let reader = RowReader::new(value)?;
    let of_content = |content: &Content<'_>| match content {
        Content::Value(_, Some(expiry)) | Content::Expired(expiry) => expiry.ttl_s,
        _ => 0,
    };
    let mut longest_s = reader.marker().and_then(|marker| marker.expiry).map_or(0, |expiry| expiry.ttl_s);
    for cell in reader.cells() {
        let cell = cell?;
        longest_s = longest_s.max(of_content(&cell.content));
        if let Content::Complex(complex) = &cell.content {
            for element in complex.elements() {
                longest_s = longest_s.max(of_content(&element?.content));
            }
        }
    }
    Ok(longest_s)
}

/// Whether a row holds a deletion, or a value that expires and will then hide older data.
pub(crate) fn may_delete(value: &[u8]) -> bool {
    const DELETES: u8 = row_flag::DELETION | row_flag::EXPIRING | row_flag::TOMBSTONE;
    value.first().is_some_and(|flags| flags & DELETES != 0)
}

/// What merging a row does to the size of the one that is stored. Of a row that deletes nothing only the first byte is read.
pub(crate) fn effect(value: &[u8]) -> Result<Effect, Malformed> {
    let is_value = |content: &Content<'_>| matches!(content, Content::Value(..) | Content::Counter(..));
    let reader = RowReader::new(value)?;
    let mut effect = Effect::Shrinks;
    if reader.marker().is_some() || !(may_delete(value) || value[0] & row_flag::COMPLEX != 0) {
        return Ok(Effect::Grows);
    }
    for cell in reader.cells() {
        let content = cell?.content;
        let Content::Complex(complex) = &content else {
            if is_value(&content) {
                return Ok(Effect::Grows);
            }
            continue;
        };
        for element in complex.elements() {
            if is_value(&element?.content) {
                return Ok(Effect::Grows);
            }
            effect = Effect::RemovesElements;
        }
    }
    Ok(effect)
}

/// The row as version 2 with the horizon added, if it is of version 1 and holds a timestamp from before the horizon;
/// otherwise `None`.
pub(crate) fn bounded(value: &[u8], horizon: Horizon) -> Result<Option<Vec<u8>>, Malformed> {
    let reader = RowReader::new(value)?;
    if value.first().is_some_and(|flags| flags & FORMAT_MASK == FORMAT_BOUNDED_ROW)
        || oldest_us(&reader)?.is_none_or(|oldest_us| oldest_us >= first_us(horizon.rows_s))
    {
        return Ok(None);
    }
    let mut out = Vec::with_capacity(value.len() + HORIZON_BYTES);
    out.extend_from_slice(&value[..9]);
    out[0] |= FORMAT_BOUNDED_ROW;
    push_horizon(horizon, &mut out);
    out.extend_from_slice(&value[9..]);
    Ok(Some(out))
}

/// The least timestamp in a row.
fn oldest_us(reader: &RowReader<'_>) -> Result<Option<i64>, Malformed> {
    let mut oldest_us = reader.marker().map(|marker| marker.timestamp_us);
    let mut see = |timestamp_us: i64| oldest_us = Some(oldest_us.map_or(timestamp_us, |least| least.min(timestamp_us)));
    reader.deletion().iter().for_each(|deletion| see(deletion.timestamp_us));
    for cell in reader.cells() {
        let cell = cell?;
        let Content::Complex(complex) = cell.content else {
            see(cell.timestamp_us);
            continue;
        };
        complex.deletion.iter().for_each(|deletion| see(deletion.timestamp_us));
        for element in complex.elements() {
            see(element?.timestamp_us);
        }
    }
    Ok(oldest_us)
}
