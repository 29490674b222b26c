//! Paths: the addresses of elements within multi-cell columns.
//!
//! Always true: paths sort as their elements do. A set's or map's path is the order-preserving form of the element or key (see
//! [`crate::key`], whose canonical forms apply), a user-defined type's is the field's number, a list's is a time with tie breakers.

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

/// The path of an element appended to a list. `discriminator` tells concurrent writers apart (any number, e.g. random);
/// `sequence` numbers the elements of one write.
pub fn list_path_append(now_us: i64, discriminator: u32, sequence: u32) -> [u8; 16] {
    list_path(now_us, discriminator, sequence)
}

/// The path of an element put before a list. The elements of one write stay in the order of `sequence`.
pub fn list_path_prepend(now_us: i64, discriminator: u32, sequence: u32) -> [u8; 16] {
    // Mirrored at the epoch: a later write sorts further to the front.
    list_path(now_us.saturating_neg(), discriminator, sequence)
}

fn list_path(time_us: i64, discriminator: u32, sequence: u32) -> [u8; 16] {
    let time = u128::from((time_us as u64) ^ (1 << 63));
    ((time << 64) | (u128::from(discriminator) << 32) | u128::from(sequence)).to_be_bytes()
}
