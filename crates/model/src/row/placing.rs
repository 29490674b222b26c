//! Gives the elements that a write adds to lists their paths, once the write has its stamp.
//!
//! The node that plans a write does not know which writes come before it, and its clock may differ from others'. So it
//! leaves placeholders, and each replica fills in the write's stamp, which grows with the log, when it applies the
//! entry.
//!
//! Always true: the row keeps its length and the order of its elements; an element with a path keeps it. Left out:
//! malformed rows, which stay as they are.

use super::path::{UNPLACED_APPEND, UNPLACED_PREPEND, list_path_append, list_path_prepend};
use super::{Content, RowReader};
use diorite_base::bytes::Malformed;

/// Replaces the placeholders in a row, which is the `nth` of the write with this stamp.
pub fn place_lists(row: &mut [u8], stamp_us: i64, nth: u32) {
    let Ok(paths) = unplaced_paths(row) else { return };
    for (at, path) in paths {
        let placed = match path {
            Unplaced::Append(sequence) => list_path_append(stamp_us, nth, sequence),
            Unplaced::Prepend(sequence) => list_path_prepend(stamp_us, nth, sequence),
        };
        row[at..at + placed.len()].copy_from_slice(&placed);
    }
}

/// Whether a row stays well formed when its lists get their places, whatever the stamp: of the elements of a list all
/// have placeholders, or none. Placeholders keep their order; where others are among them depends on the stamp.
pub fn may_be_placed(row: &[u8]) -> bool {
    has_pure_lists(row).unwrap_or(false)
}

fn has_pure_lists(row: &[u8]) -> Result<bool, Malformed> {
    for cell in RowReader::new(row)?.cells() {
        let Content::Complex(complex) = cell?.content else { continue };
        let (mut placed, mut unplaced) = (false, false);
        for element in complex.elements() {
            match Unplaced::of(element?.path) {
                Some(_) => unplaced = true,
                None => placed = true,
            }
        }
        if placed && unplaced {
            return Ok(false);
        }
    }
    Ok(true)
}

enum Unplaced {
    Append(u32),
    Prepend(u32),
}

impl Unplaced {
    fn of(path: &[u8]) -> Option<Self> {
        let (begin, sequence) = path.split_at_checked(UNPLACED_APPEND.len())?;
        let sequence = u32::from_be_bytes(sequence.try_into().ok()?);
        match begin {
            begin if begin == UNPLACED_APPEND => Some(Self::Append(sequence)),
            begin if begin == UNPLACED_PREPEND => Some(Self::Prepend(sequence)),
            _ => None,
        }
    }
}

/// Where the placeholders are in a row.
fn unplaced_paths(row: &[u8]) -> Result<Vec<(usize, Unplaced)>, Malformed> {
    let mut paths = Vec::new();
    for cell in RowReader::new(row)?.cells() {
        let Content::Complex(complex) = cell?.content else { continue };
        for element in complex.elements() {
            let path = element?.path;
            if let Some(unplaced) = Unplaced::of(path) {
                paths.push((path.as_ptr().addr() - row.as_ptr().addr(), unplaced));
            }
        }
    }
    Ok(paths)
}
