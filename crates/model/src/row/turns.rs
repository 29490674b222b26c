//! Writes of one row that follow one another within one entry of the log, and so have the same timestamp.
//!
//! Always true: of two cells with the same timestamp the one of the later write survives, where [`merge`] looks at
//! their values; a deletion of the row, or of all elements of a column, covers what the writes before it have set, and
//! nothing of those after it: it is kept with the timestamp before that of the cells. Left out: counters, whose changes
//! are added as ever.

use super::merging::{merge, write_element, write_simple};
use super::parts::{Deletion, NOTHING_DELETED, horizon};
use super::reader::{Cell, Complex, Content, RowReader};
use super::writer::RowWriter;
use crate::schema::ColumnId;
use diorite_base::bytes::Malformed;
use std::collections::BTreeMap;

/// Appends what `older`, the result for the writes so far, and the write `newer` make together.
///
/// # Errors
/// If a row is malformed.
pub fn follow(older: Option<&[u8]>, newer: &[u8], out: &mut Vec<u8>) -> Result<(), Malformed> {
    let following = RowReader::new(newer)?;
    let mut lowered = Vec::new();
    lower(newer, &following, &mut lowered)?;
    let Some(older) = older else {
        out.extend_from_slice(&lowered);
        return Ok(());
    };
    let mut left = Vec::new();
    remains(older, &following, &mut left)?;
    merge(&left, &lowered, out)
}

fn deleted_us(row: &RowReader<'_>) -> i64 {
    row.deletion().map_or(NOTHING_DELETED, |deletion| deletion.timestamp_us)
}

/// The row, with deletions of the row and of the elements of columns at its base timestamp moved to the one before.
fn lower(value: &[u8], row: &RowReader<'_>, out: &mut Vec<u8>) -> Result<(), Malformed> {
    let base_us = row.base_us();
    let is_at_base = |deletion: Deletion| deletion.timestamp_us == base_us;
    let mut is_lowered = row.deletion().is_some_and(is_at_base);
    for cell in row.cells() {
        is_lowered |= is_cleared(&cell?, is_at_base);
    }
    if !is_lowered {
        out.extend_from_slice(value);
        return Ok(());
    }
    let mut writer = RowWriter::bounded(out, base_us, horizon(value));
    let shadow_us = row.deletion().filter(|deletion| is_at_base(*deletion)).map_or(NOTHING_DELETED, |_| base_us);
    if let Some(marker) = row.marker().filter(|marker| marker.timestamp_us > shadow_us) {
        writer.marker(marker);
    }
    let before_us = writer.before_base();
    let lowered = |deletion: Deletion| match is_at_base(deletion) {
        true => Deletion { timestamp_us: before_us, ..deletion },
        false => deletion,
    };
    if let Some(deletion) = row.deletion() {
        writer.deletion(lowered(deletion));
    }
    for cell in row.cells() {
        let cell = cell?;
        match cell.content {
            Content::Complex(complex) if is_cleared(&cell, is_at_base) => {
                writer.begin_complex(cell.column, complex.deletion.map(lowered));
                write_newer(&mut writer, complex, base_us)?;
                writer.end_complex();
            }
            _ => write_after(&mut writer, cell, shadow_us, None)?,
        }
    }
    Ok(())
}

/// Whether all elements of a column are deleted by such a deletion.
fn is_cleared(cell: &Cell<'_>, is_so: impl Fn(Deletion) -> bool) -> bool {
    matches!(cell.content, Content::Complex(complex) if complex.deletion.is_some_and(is_so))
}

/// Writes the elements that are newer than `shadow_us`.
fn write_newer(writer: &mut RowWriter<'_>, complex: Complex<'_>, shadow_us: i64) -> Result<(), Malformed> {
    for element in complex.elements() {
        let element = element?;
        if element.timestamp_us > shadow_us {
            write_element(writer, element);
        }
    }
    Ok(())
}

/// What is left of the earlier writes when `newer` follows them.
fn remains(older: &[u8], newer: &RowReader<'_>, out: &mut Vec<u8>) -> Result<(), Malformed> {
    let row = RowReader::new(older)?;
    let shadow_us = deleted_us(newer);
    let mut writer = RowWriter::bounded(out, row.base_us(), horizon(older));
    let marked_us = newer.marker().map_or(NOTHING_DELETED, |marker| marker.timestamp_us);
    if let Some(marker) = row.marker().filter(|marker| marker.timestamp_us > shadow_us.max(marked_us)) {
        writer.marker(marker);
    }
    if let Some(deletion) = row.deletion() {
        writer.deletion(deletion);
    }
    let mut following = newer.cells().peekable();
    for cell in row.cells() {
        let cell = cell?;
        while following.peek().is_some_and(|next| matches!(next, Ok(next) if next.column < cell.column)) {
            following.next();
        }
        let same = match following.peek() {
            Some(Ok(next)) if next.column == cell.column => Some(*next),
            Some(Err(malformed)) => return Err(*malformed),
            _ => None,
        };
        let base_us = newer.base_us();
        write_after(&mut writer, cell, shadow_us, same.map(|next| (next, base_us)))?;
    }
    Ok(())
}

/// Writes what is newer than `shadow_us` of a cell, and than the cell that follows it, of a row with this base.
fn write_after(
    writer: &mut RowWriter<'_>,
    cell: Cell<'_>,
    shadow_us: i64,
    next: Option<(Cell<'_>, i64)>,
) -> Result<(), Malformed> {
    match (cell.content, next) {
        (Content::Complex(complex), None) => write_elements(writer, cell.column, complex, shadow_us, None),
        (Content::Complex(complex), Some((Cell { content: Content::Complex(next), .. }, base_us))) => {
            let cleared_us = next.deletion.map_or(NOTHING_DELETED, |deletion| match deletion.timestamp_us {
                // It is there for the elements beside it, and covers all earlier ones.
                before if before == base_us.wrapping_sub(1) => base_us,
                timestamp_us => timestamp_us,
            });
            write_elements(writer, cell.column, complex, shadow_us.max(cleared_us), Some(next))
        }
        (Content::Complex(_), Some(_)) => Err(Malformed),
        (Content::Counter(..), _) | (_, None) => {
            if cell.timestamp_us > shadow_us {
                write_simple(writer, cell, false);
            }
            Ok(())
        }
        (_, Some((next, _))) => {
            if cell.timestamp_us > shadow_us.max(next.timestamp_us) {
                write_simple(writer, cell, false);
            }
            Ok(())
        }
    }
}

fn write_elements(
    writer: &mut RowWriter<'_>,
    column: ColumnId,
    complex: Complex<'_>,
    shadow_us: i64,
    next: Option<Complex<'_>>,
) -> Result<(), Malformed> {
    let mut following: BTreeMap<&[u8], i64> = BTreeMap::new();
    if let Some(next) = next {
        for element in next.elements() {
            let element = element?;
            following.insert(element.path, element.timestamp_us);
        }
    }
    writer.begin_complex(column, complex.deletion.filter(|deletion| deletion.timestamp_us > shadow_us));
    for element in complex.elements() {
        let element = element?;
        let next_us = following.get(element.path).copied().unwrap_or(NOTHING_DELETED);
        if element.timestamp_us > shadow_us.max(next_us) {
            write_element(writer, element);
        }
    }
    writer.end_complex();
    Ok(())
}
