//! Reading and building the wire form of collections, tuples, user-defined types and vectors, element by element.
//!
//! Always true: iterators stop at the first malformed element and report it; nothing is allocated but the output. The wire form is
//! `count i32 · (length i32 · bytes)*` for collections (maps: keys and values in turn, counted in pairs), `(length i32 · bytes)*` for
//! tuples and user-defined types, where a negative length is null and trailing elements may be missing.

use super::ValueError;
use crate::types::CqlType;

/// The elements of a list or set, or the keys and values of a map in turn. A negative length is refused.
pub fn elements(wire: &[u8]) -> Result<Elements<'_>, ValueError> {
    let _ = wire;
    unreachable!()
}

/// Iterator over elements.
#[derive(Debug, Clone)]
pub struct Elements<'a> {
    pub(crate) rest: &'a [u8],
    pub(crate) left: usize,
}

impl<'a> Iterator for Elements<'a> {
    type Item = Result<&'a [u8], ValueError>;
    fn next(&mut self) -> Option<Self::Item> {
        None
    }
}

/// The fields of a tuple or user-defined type; null is `None`. Ends where the bytes end.
pub fn fields(wire: &[u8]) -> Fields<'_> {
    Fields { rest: wire }
}

/// Iterator over fields.
#[derive(Debug, Clone)]
pub struct Fields<'a> {
    pub(crate) rest: &'a [u8],
}

impl<'a> Iterator for Fields<'a> {
    type Item = Result<Option<&'a [u8]>, ValueError>;
    fn next(&mut self) -> Option<Self::Item> {
        None
    }
}

/// Appends a collection's element count (of a map: pairs).
pub fn push_count(count: usize, out: &mut Vec<u8>) {
    out.extend_from_slice(&(count as i32).to_be_bytes());
}

/// Appends an element or field with its length; `None` is null (fields only).
pub fn push_element(element: Option<&[u8]>, out: &mut Vec<u8>) {
    match element {
        Some(bytes) => {
            out.extend_from_slice(&(bytes.len() as i32).to_be_bytes());
            out.extend_from_slice(bytes);
        }
        None => out.extend_from_slice(&(-1i32).to_be_bytes()),
    }
}

/// Appends one element of a `vector<T, n>`: bare if T has a fixed length, else with a variable-length length.
pub fn push_vector_element(element_type: &CqlType, element: &[u8], out: &mut Vec<u8>) {
    let _ = (element_type, element, out);
}
