//! Paths: the addresses of elements within multi-cell columns.
//!
//! Always true: paths sort as their elements do. The path of a set element or map key is its order-preserving form (see
//! [`crate::key`], whose canonical forms apply); the path of a field of a user-defined type is the field's number; the
//! path of a list element is the timestamp that the log gave to the write, with tie breakers. So lists are in the order
//! of the log, whatever the clocks of the nodes that planned the writes.

use crate::key::push_component;
use crate::types::CqlType;
use crate::value::ValueError;

/// Appends the path of a set element, or of a map entry by its key: the order-preserving form of `wire`.
pub fn element_path(element_type: &CqlType, wire: &[u8], out: &mut Vec<u8>) -> Result<(), ValueError> {
    push_component(element_type, wire, out)
}

/// The path of field `index` of a user-defined type.
pub fn field_path(index: u16) -> [u8; 2] {
    index.to_be_bytes()
}

/// The path of an element appended to a list by the write with this stamp, which no other write of the tablet has.
/// `nth` numbers the rows of one write, `sequence` the elements of one row.
pub fn list_path_append(stamp_us: i64, nth: u32, sequence: u32) -> [u8; 16] {
    list_path(stamp_us, nth, sequence)
}

/// The path of an element put before a list. Later writes, and later rows of one write, sort further to the front; elements of one row stay in the order of
/// `sequence`.
pub fn list_path_prepend(stamp_us: i64, nth: u32, sequence: u32) -> [u8; 16] {
    // The time is negated, so that later writes sort first.
    list_path(stamp_us.saturating_neg(), !nth, sequence)
}

/// A placeholder for [`list_path_append`] until the write has its stamp: see [`super::place_lists`].
pub fn unplaced_list_path_append(sequence: u32) -> [u8; 16] {
    unplaced(UNPLACED_APPEND, sequence)
}

/// A placeholder for [`list_path_prepend`] until the write has its stamp. It sorts before
/// [`unplaced_list_path_append`], as the final paths do.
pub fn unplaced_list_path_prepend(sequence: u32) -> [u8; 16] {
    unplaced(UNPLACED_PREPEND, sequence)
}

/// Prefix of the placeholder paths; no timestamp and no column of a key begins with it.
pub(super) const UNPLACED_APPEND: [u8; 12] = [0xFF, 0xFF, 0xFF, 0xFF, 0xFF, 0xFF, 0xFF, 0xFF, 0, 0, 0, 0];
pub(super) const UNPLACED_PREPEND: [u8; 12] = [0; 12];

fn unplaced(begin: [u8; 12], sequence: u32) -> [u8; 16] {
    let mut path = [0; 16];
    path[..12].copy_from_slice(&begin);
    path[12..].copy_from_slice(&sequence.to_be_bytes());
    path
}

fn list_path(time_us: i64, nth: u32, sequence: u32) -> [u8; 16] {
    let time = u128::from((time_us as u64) ^ (1 << 63));
    ((time << 64) | (u128::from(nth) << 32) | u128::from(sequence)).to_be_bytes()
}
