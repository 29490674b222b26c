//! Live rows, packed again.
//!
//! Always true: rows with the same live values and expiries have the same packed form, whatever their timestamps. Left
//! out: keys.

use diorite_model::Malformed;
use diorite_model::row::{Deletion, Expiry, LiveContent, LiveRow, Marker, RowWriter, UNSTAMPED};
use diorite_model::schema::ColumnId;

/// The earlier of two expiries; `None` is never.
pub(super) fn sooner(one: Option<Expiry>, other: Option<Expiry>) -> Option<Expiry> {
    match (one, other) {
        (Some(one), Some(other)) => Some(if other.at_s < one.at_s { other } else { one }),
        (one, other) => one.or(other),
    }
}

/// When the last live value of a row expires, or its marker; `None`: never. `is_known`: whether the table has a column.
pub(super) fn last_expiry(row: &LiveRow<'_>, is_known: impl Fn(ColumnId) -> bool) -> Result<Option<Expiry>, Malformed> {
    let mut last: Option<Expiry> = None;
    // Returns whether it never expires.
    let mut see = |expiry: Option<Expiry>| {
        last = if expiry.is_none_or(|expiry| last.is_none_or(|last| expiry.at_s > last.at_s)) { expiry } else { last };
        expiry.is_none()
    };
    if row.marker().is_some_and(|marker| see(marker.expiry)) {
        return Ok(None);
    }
    for cell in row.cells() {
        let cell = cell?;
        if !is_known(cell.column) {
            continue;
        }
        let lasts = match cell.content {
            LiveContent::Value(_) | LiveContent::Counter(_) => see(cell.expiry),
            LiveContent::Complex(complex) => {
                let mut lasts = false;
                for element in complex.elements() {
                    lasts |= see(element?.expiry);
                }
                lasts
            }
        };
        if lasts {
            return Ok(None);
        }
    }
    Ok(last)
}

/// A row of the live values of some columns (ascending), which exists by itself and expires then, with all its values.
/// It replaces what was there before, even if it is merged with that; the deletion is made now. The elements of the
/// columns `numbered` are numbered.
///
/// # Errors
/// If the row is malformed.
pub fn packed(
    row: &LiveRow<'_>,
    (columns, numbered): (&[ColumnId], &[ColumnId]),
    expiry: Option<Expiry>,
    now_s: u32,
) -> Result<Vec<u8>, Malformed> {
    let mut out = Vec::new();
    let mut writer = RowWriter::new(&mut out, UNSTAMPED);
    writer.marker(Marker { timestamp_us: UNSTAMPED, expiry });
    writer.deletion(Deletion { timestamp_us: writer.before_base(), local_s: now_s });
    for cell in row.cells() {
        let cell = cell?;
        if columns.binary_search(&cell.column).is_err() {
            continue;
        }
        match cell.content {
            LiveContent::Value(wire) => writer.cell(cell.column, UNSTAMPED, sooner(cell.expiry, expiry), wire),
            LiveContent::Complex(complex) => {
                writer.begin_complex(cell.column, None);
                let is_numbered = numbered.contains(&cell.column);
                for (number, element) in (0u32..).zip(complex.elements()) {
                    let element = element?;
                    let number = number.to_be_bytes();
                    let path = if is_numbered { &number[..] } else { element.path };
                    writer.element(path, UNSTAMPED, sooner(element.expiry, expiry), element.value);
                }
                writer.end_complex();
            }
            // Tables with counters have no views.
            LiveContent::Counter(_) => {}
        }
    }
    Ok(out)
}

/// The live values of a row with their timestamps, and the greatest of these.
///
/// # Errors
/// If the row is malformed.
pub fn copied(row: &LiveRow<'_>) -> Result<(Vec<u8>, i64), Malformed> {
    let (mut out, mut newest_us) = (Vec::new(), i64::MIN);
    let mut writer = RowWriter::new(&mut out, 0);
    if let Some(marker) = row.marker() {
        newest_us = marker.timestamp_us;
        writer.marker(marker);
    }
    for cell in row.cells() {
        let cell = cell?;
        newest_us = newest_us.max(cell.timestamp_us);
        match cell.content {
            LiveContent::Value(wire) => writer.cell(cell.column, cell.timestamp_us, cell.expiry, wire),
            LiveContent::Complex(complex) => {
                writer.begin_complex(cell.column, None);
                for element in complex.elements() {
                    let element = element?;
                    writer.element(element.path, element.timestamp_us, element.expiry, element.value);
                }
                writer.end_complex();
            }
            LiveContent::Counter(_) => {}
        }
    }
    Ok((out, newest_us))
}
