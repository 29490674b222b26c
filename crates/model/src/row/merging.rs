//! Merges packed rows cell by cell, as Cassandra reconciles them.
//!
//! Always true: the rule that picks a winner is a total order on cells (so merging is associative, commutative and
//! idempotent), and the base of the result is the greater of the two bases, however rows are grouped. Cells that win
//! from the row with that base are copied as they stand. The winner has the greater timestamp; at equal timestamps, a
//! tombstone or a value that expires wins over a value that does not; then a tombstone over an expiring value; then the
//! later deletion or expiry; then the smaller TTL; then the greater bytes.

use super::parts::{Deletion, Expiry, Marker, NOTHING_DELETED, horizon as horizon_of, row_flag};
use super::reader::{Cell, Cells, Complex, Content, Element, Elements};
use super::{RowReader, RowWriter};
use crate::schema::ColumnId;
use diorite_base::Horizon;
use diorite_base::bytes::Malformed;
use std::cmp::{Ordering, Reverse};

/// Appends the merge of two packed rows to `out`; `newer` came later in the log (which only counters care about).
pub fn merge(older: &[u8], newer: &[u8], out: &mut Vec<u8>) -> Result<(), Malformed> {
    let horizon = latest_horizon([older, newer]);
    let (older, newer) = (RowReader::new(older)?, RowReader::new(newer)?);
    let base_us = older.base_us().max(newer.base_us());
    let deletion = older.deletion().max(newer.deletion());
    let shadow_us = deletion.map_or(NOTHING_DELETED, |deletion| deletion.timestamp_us);
    let mut merged = Merging {
        writer: RowWriter::bounded(out, base_us, horizon),
        shadow_us,
        older_at_base: older.base_us() == base_us,
        newer_at_base: newer.base_us() == base_us,
    };
    if let Some(marker) = merge_markers(older.marker(), newer.marker()).filter(|marker| marker.timestamp_us > shadow_us)
    {
        merged.writer.marker(marker);
    }
    if let Some(deletion) = deletion {
        merged.writer.deletion(deletion);
    }
    merged.cells(older.cells(), newer.cells())
}

/// The latest of the horizons of rows.
pub(super) fn latest_horizon<'a>(values: impl IntoIterator<Item = &'a [u8]>) -> Option<Horizon> {
    values.into_iter().filter_map(horizon_of).reduce(Horizon::max)
}

pub(super) fn merge_markers(one: Option<Marker>, other: Option<Marker>) -> Option<Marker> {
    let rank =
        |marker: &Marker| (marker.timestamp_us, marker.expiry.map(|expiry| (expiry.at_s, Reverse(expiry.ttl_s))));
    match (one, other) {
        (Some(one), Some(other)) => Some(if rank(&one) >= rank(&other) { one } else { other }),
        (one, other) => one.or(other),
    }
}

/// Orders two simple cells (or elements) of the same column (or path); the greater survives.
fn compare(a: (i64, Content<'_>), b: (i64, Content<'_>)) -> Ordering {
    a.0.cmp(&b.0).then_with(|| match (a.1, b.1) {
        (Content::Tombstone(a), Content::Tombstone(b)) => a.cmp(&b),
        (Content::Tombstone(_), _) => Ordering::Greater,
        (_, Content::Tombstone(_)) => Ordering::Less,
        _ => match (value_rank(a.1), value_rank(b.1)) {
            (Some(a), Some(b)) => a.cmp(&b),
            _ => Ordering::Equal,
        },
    })
}

/// Expiry (the second, then the shorter time to live), then bytes; an expired value has no bytes.
type ValueRank<'a> = (Option<(u32, Reverse<u32>)>, Option<&'a [u8]>);

/// The order of values with the same timestamp. An expired value keeps its rank, except for its bytes, which decide
/// only between values that expire together.
fn value_rank(content: Content<'_>) -> Option<ValueRank<'_>> {
    let rank = |expiry: Expiry| (expiry.at_s, Reverse(expiry.ttl_s));
    match content {
        Content::Value(bytes, expiry) => Some((expiry.map(rank), Some(bytes))),
        Content::Expired(expiry) => Some((Some(rank(expiry)), None)),
        _ => None,
    }
}

/// A simple cell, and whether its row has the base of the result.
#[derive(Clone, Copy)]
pub(super) struct Placed<'a> {
    pub cell: Cell<'a>,
    pub at_base: bool,
}

/// Combines two simple cells of one column, both newer than the row's deletion. Counters are summed in log order: a sum
/// adds to an earlier sum, starts anew after a tombstone, and is removed by a later one.
pub(super) fn survivor<'a>(older: Placed<'a>, newer: Placed<'a>) -> Placed<'a> {
    let (one, other) = (older.cell, newer.cell);
    let (sum, reset) = match (one.content, other.content) {
        (Content::Counter(before, reset), Content::Counter(change, false)) => (before.wrapping_add(change), reset),
        (Content::Tombstone(_), Content::Counter(change, _)) => (change, true),
        (Content::Counter(..), _) | (_, Content::Counter(..)) => return newer,
        _ if compare((one.timestamp_us, one.content), (other.timestamp_us, other.content)) == Ordering::Greater => {
            return older;
        }
        _ => return newer,
    };
    let timestamp_us = one.timestamp_us.max(other.timestamp_us);
    // The new cell has no encoded form yet: it is encoded when it is written.
    let cell = Cell { column: other.column, timestamp_us, content: Content::Counter(sum, reset), encoded: &[] };
    Placed { cell, at_base: false }
}

/// Of two elements with the same path, the one that survives.
pub(super) fn later_element<'a>(older: Element<'a>, newer: Element<'a>) -> Element<'a> {
    match compare((older.timestamp_us, older.content), (newer.timestamp_us, newer.content)) {
        Ordering::Greater => older,
        Ordering::Less | Ordering::Equal => newer,
    }
}

/// One step through two ascending sequences.
fn step<T: Copy>(
    one: &Option<Result<T, Malformed>>,
    other: &Option<Result<T, Malformed>>,
    order: impl Fn(&T, &T) -> Ordering,
) -> Result<Option<Ordering>, Malformed> {
    match (one, other) {
        (Some(Err(malformed)), _) | (_, Some(Err(malformed))) => Err(*malformed),
        (Some(Ok(one)), Some(Ok(other))) => Ok(Some(order(one, other))),
        (Some(Ok(_)), None) => Ok(Some(Ordering::Less)),
        (None, Some(Ok(_))) => Ok(Some(Ordering::Greater)),
        (None, None) => Ok(None),
    }
}

struct Merging<'a> {
    writer: RowWriter<'a>,
    /// The timestamp of the row deletion.
    shadow_us: i64,
    older_at_base: bool,
    newer_at_base: bool,
}

impl Merging<'_> {
    fn cells(mut self, mut older: Cells<'_>, mut newer: Cells<'_>) -> Result<(), Malformed> {
        let (mut one, mut other) = (older.next(), newer.next());
        while let Some(order) = step(&one, &other, |one, other| one.column.cmp(&other.column))? {
            match (order, one, other) {
                (Ordering::Equal, Some(Ok(first)), Some(Ok(second))) => self.both(first, second)?,
                (Ordering::Less, Some(Ok(cell)), _) => self.alone(cell, self.older_at_base)?,
                (Ordering::Greater, _, Some(Ok(cell))) => self.alone(cell, self.newer_at_base)?,
                _ => unreachable!("step() reports malformed cells and orders what is there"),
            }
            if order != Ordering::Greater {
                one = older.next();
            }
            if order != Ordering::Less {
                other = newer.next();
            }
        }
        Ok(())
    }

    /// Writes a cell that only one row has, or that won.
    fn alone(&mut self, cell: Cell<'_>, at_base: bool) -> Result<(), Malformed> {
        if let Content::Complex(complex) = cell.content {
            return self.complex(cell.column, complex, None);
        }
        if cell.timestamp_us > self.shadow_us {
            write_simple(&mut self.writer, cell, at_base);
        }
        Ok(())
    }

    fn both(&mut self, older: Cell<'_>, newer: Cell<'_>) -> Result<(), Malformed> {
        match (older.content, newer.content) {
            (Content::Complex(one), Content::Complex(other)) => return self.complex(older.column, one, Some(other)),
            (Content::Complex(_), _) | (_, Content::Complex(_)) => return Err(Malformed),
            _ => {}
        }
        if older.timestamp_us <= self.shadow_us {
            return self.alone(newer, self.newer_at_base);
        }
        if newer.timestamp_us <= self.shadow_us {
            return self.alone(older, self.older_at_base);
        }
        let older = Placed { cell: older, at_base: self.older_at_base };
        let Placed { cell, at_base } = survivor(older, Placed { cell: newer, at_base: self.newer_at_base });
        self.alone(cell, at_base)
    }

    fn complex(&mut self, column: ColumnId, one: Complex<'_>, other: Option<Complex<'_>>) -> Result<(), Malformed> {
        let deletion = one.deletion.max(other.and_then(|other| other.deletion));
        let deletion = deletion.filter(|deletion| deletion.timestamp_us > self.shadow_us);
        let shadow_us = deletion.map_or(self.shadow_us, |deletion| deletion.timestamp_us);
        self.writer.begin_complex(column, deletion);
        merge_elements(&mut self.writer, shadow_us, one.elements(), other.map(|other| other.elements()))?;
        self.writer.end_complex();
        Ok(())
    }
}

fn merge_elements(
    writer: &mut RowWriter<'_>,
    shadow_us: i64,
    mut first: Elements<'_>,
    mut second: Option<Elements<'_>>,
) -> Result<(), Malformed> {
    let mut next_second = || second.as_mut().and_then(Iterator::next);
    let (mut one, mut other) = (first.next(), next_second());
    while let Some(order) = step(&one, &other, |one, other| one.path.cmp(other.path))? {
        let winner = match (order, one, other) {
            (Ordering::Equal, Some(Ok(one)), Some(Ok(other))) => later_element(one, other),
            (Ordering::Less, Some(Ok(element)), _) | (Ordering::Greater, _, Some(Ok(element))) => element,
            _ => unreachable!("step() reports malformed elements and orders what is there"),
        };
        if winner.timestamp_us > shadow_us {
            write_element(writer, winner);
        }
        if order != Ordering::Greater {
            one = first.next();
        }
        if order != Ordering::Less {
            other = next_second();
        }
    }
    Ok(())
}

/// Writes any cell but a multi-cell one. `at_base`: its encoded form is from a row with the writer's base.
#[inline]
pub(super) fn write_simple(writer: &mut RowWriter<'_>, cell: Cell<'_>, at_base: bool) {
    let Cell { column, timestamp_us, content, encoded } = cell;
    if at_base {
        let row_flags = match content {
            Content::Value(_, None) => 0,
            Content::Value(_, Some(_)) | Content::Expired(_) => row_flag::EXPIRING,
            Content::Tombstone(_) => row_flag::TOMBSTONE,
            Content::Counter(..) => row_flag::COUNTER,
            Content::Complex(_) => unreachable!("multi-cell columns are written element by element"),
        };
        return writer.copy(column, encoded, row_flags);
    }
    match content {
        Content::Value(value, expiry) => writer.cell(column, timestamp_us, expiry, value),
        Content::Tombstone(local_s) => writer.tombstone(column, Deletion { timestamp_us, local_s }),
        Content::Expired(expiry) => writer.expired(column, timestamp_us, expiry),
        Content::Counter(sum, reset) => writer.push_counter(column, timestamp_us, sum, reset),
        Content::Complex(_) => unreachable!("multi-cell columns are written element by element"),
    }
}

/// Writes an element as it is.
pub(super) fn write_element(writer: &mut RowWriter<'_>, element: Element<'_>) {
    let Element { path, timestamp_us, content } = element;
    match content {
        Content::Tombstone(local_s) => writer.element_tombstone(path, Deletion { timestamp_us, local_s }),
        Content::Value(value, expiry) => writer.element(path, timestamp_us, expiry, value),
        Content::Expired(expiry) => writer.element_expired(path, timestamp_us, expiry),
        Content::Counter(..) | Content::Complex(_) => unreachable!("elements hold values and tombstones"),
    }
}
