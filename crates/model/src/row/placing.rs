//! Gives the elements that a write adds to lists their places, once the log has said when it comes.
//!
//! Whoever plans a write does not know which writes come before it, and its clock need not agree with others'. So it leaves the places open, and every replica
//! fills in the write's timestamp, which grows with the log, when it applies the entry.
//!
//! Always true: the row keeps its length and the order of its elements; what has a place keeps it. Left out: rows that are malformed; they stay as they are.

use super::path::{UNPLACED_APPEND, UNPLACED_PREPEND, list_path_append, list_path_prepend};
use super::{Content, RowReader};
use diorite_base::bytes::Malformed;

/// Fills in the paths of elements that were added to lists by the write with this timestamp; the row is its `nth`.
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

/// Where in a row paths are that have no place yet.
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
