//! Reading and building the wire form of collections, tuples, user-defined types and vectors, element by element.
//!
//! Always true: iterators stop at the first malformed element and report it; nothing is allocated but the output. The wire form is
//! `count i32 · (length i32 · bytes)*` for collections (maps: keys and values in turn, counted in pairs), `(length i32 · bytes)*` for
//! tuples and user-defined types, where a negative length is null and trailing elements may be missing, and bare elements for vectors
//! (each after its length if elements vary in length).

use super::ValueError;
use crate::types::CqlType;

/// The elements of a list or set.
pub fn elements(wire: &[u8]) -> Result<Elements<'_>, ValueError> {
    let (count, rest) = read_count(wire)?;
    Ok(Elements { rest, left: count })
}

/// The keys and values of a map in turn.
pub fn keys_and_values(wire: &[u8]) -> Result<Elements<'_>, ValueError> {
    let (count, rest) = read_count(wire)?;
    Ok(Elements { rest, left: count.saturating_mul(2) })
}

/// The entries of a map.
pub fn entries(wire: &[u8]) -> Result<Entries<'_>, ValueError> {
    keys_and_values(wire).map(Entries)
}

fn read_count(wire: &[u8]) -> Result<(usize, &[u8]), ValueError> {
    let (head, rest) =
        wire.split_first_chunk::<4>().ok_or_else(|| unexpected("not enough bytes to read a collection"))?;
    let count = i32::from_be_bytes(*head);
    match usize::try_from(count) {
        // Each element takes at least its length, so a count beyond that is false and must not size a buffer.
        Ok(count) if count <= rest.len() / 4 => Ok((count, rest)),
        _ => Err(unexpected("not enough bytes to read a collection")),
    }
}

fn unexpected(message: &str) -> ValueError {
    ValueError(message.to_owned())
}

/// Reads `length i32 · bytes`; `None` is null.
fn read_element<'a>(rest: &mut &'a [u8]) -> Result<Option<&'a [u8]>, ValueError> {
    let (head, tail) = rest.split_first_chunk::<4>().ok_or_else(|| unexpected("not enough bytes to read a value"))?;
    let Ok(length) = usize::try_from(i32::from_be_bytes(*head)) else {
        *rest = tail;
        return Ok(None);
    };
    let (element, tail) =
        tail.split_at_checked(length).ok_or_else(|| unexpected("not enough bytes to read a value"))?;
    *rest = tail;
    Ok(Some(element))
}

/// Iterator over the elements of a collection. Bytes past the last element are an error, as a null element is.
#[derive(Debug, Clone)]
pub struct Elements<'a> {
    rest: &'a [u8],
    left: usize,
}

impl<'a> Elements<'a> {
    /// How many are left, if none is malformed.
    pub fn remaining(&self) -> usize {
        self.left
    }
}

impl<'a> Iterator for Elements<'a> {
    type Item = Result<&'a [u8], ValueError>;

    fn next(&mut self) -> Option<Self::Item> {
        if self.left == 0 {
            if self.rest.is_empty() {
                return None;
            }
            self.rest = &[];
            return Some(Err(unexpected("unexpected extraneous bytes after collection value")));
        }
        self.left -= 1;
        let element = read_element(&mut self.rest)
            .and_then(|element| element.ok_or_else(|| unexpected("null is not supported inside collections")));
        if element.is_err() {
            (self.rest, self.left) = (&[], 0);
        }
        Some(element)
    }
}

/// Iterator over the entries of a map. Whatever is malformed in a key or a value is an error of its entry.
#[derive(Debug, Clone)]
pub struct Entries<'a>(Elements<'a>);

impl<'a> Iterator for Entries<'a> {
    type Item = Result<(&'a [u8], &'a [u8]), ValueError>;

    fn next(&mut self) -> Option<Self::Item> {
        let key = match self.0.next()? {
            Ok(key) => key,
            Err(error) => return Some(Err(error)),
        };
        let value = self.0.next().unwrap_or_else(|| Err(unexpected("a map entry has no value")));
        Some(value.map(|value| (key, value)))
    }
}

/// The fields of a tuple or user-defined type; null is `None`. Ends where the bytes end.
pub fn fields(wire: &[u8]) -> Fields<'_> {
    Fields { rest: wire }
}

/// Iterator over fields.
#[derive(Debug, Clone)]
pub struct Fields<'a> {
    rest: &'a [u8],
}

impl<'a> Iterator for Fields<'a> {
    type Item = Result<Option<&'a [u8]>, ValueError>;

    fn next(&mut self) -> Option<Self::Item> {
        if self.rest.is_empty() {
            return None;
        }
        let field = read_element(&mut self.rest);
        if field.is_err() {
            self.rest = &[];
        }
        Some(field)
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

/// Leaves room for an `i32` (a length or a count) that [`patch`] fills in; returns its place.
pub(crate) fn reserve(out: &mut Vec<u8>) -> usize {
    out.extend_from_slice(&[0; 4]);
    out.len() - 4
}

/// Fills in a reserved count.
pub(crate) fn patch(out: &mut [u8], at: usize, value: usize) {
    out[at..at + 4].copy_from_slice(&(value as i32).to_be_bytes());
}

/// Fills in a reserved length: of everything after it.
pub(crate) fn patch_length(out: &mut [u8], at: usize) {
    patch(out, at, out.len() - at - 4);
}

/// The elements of a `vector<element_type, dimension>`.
pub fn vector_elements<'a>(element_type: &CqlType, dimension: u16, wire: &'a [u8]) -> VectorElements<'a> {
    VectorElements { rest: wire, left: usize::from(dimension), fixed: element_type.vector_element_length() }
}

/// Iterator over the elements of a vector.
#[derive(Debug, Clone)]
pub struct VectorElements<'a> {
    rest: &'a [u8],
    left: usize,
    fixed: Option<usize>,
}

impl<'a> VectorElements<'a> {
    fn read(&mut self) -> Result<&'a [u8], ValueError> {
        let length = match self.fixed {
            Some(length) => length,
            None => read_unsigned_vint(&mut self.rest)
                .and_then(|length| usize::try_from(length).ok())
                .ok_or_else(|| unexpected("not enough bytes to read a vector"))?,
        };
        let (element, rest) =
            self.rest.split_at_checked(length).ok_or_else(|| unexpected("not enough bytes to read a vector"))?;
        self.rest = rest;
        Ok(element)
    }
}

impl<'a> Iterator for VectorElements<'a> {
    type Item = Result<&'a [u8], ValueError>;

    fn next(&mut self) -> Option<Self::Item> {
        if self.left == 0 {
            if self.rest.is_empty() {
                return None;
            }
            self.rest = &[];
            return Some(Err(unexpected("unexpected extraneous bytes after vector value")));
        }
        self.left -= 1;
        let element = self.read();
        if element.is_err() {
            (self.rest, self.left) = (&[], 0);
        }
        Some(element)
    }
}

/// Appends one element of a `vector<T, n>`: bare if T has a fixed length there, else after its length.
pub fn push_vector_element(element_type: &CqlType, element: &[u8], out: &mut Vec<u8>) {
    if element_type.vector_element_length().is_none() {
        push_unsigned_vint(element.len() as u64, out);
    }
    out.extend_from_slice(element);
}

/// Appends Cassandra's unsigned variable-length integer: as many leading one bits as bytes follow the first.
pub fn push_unsigned_vint(value: u64, out: &mut Vec<u8>) {
    let bits = 64 - value.leading_zeros() as usize;
    let extra = if bits > 56 { 8 } else { bits.saturating_sub(1) / 7 };
    if extra == 8 {
        out.push(0xFF);
    } else {
        let head = (value >> (8 * extra)) as u8;
        out.push(head | !(0xFFu16 >> extra) as u8);
    }
    out.extend_from_slice(&value.to_be_bytes()[8 - extra..]);
}

/// Reads Cassandra's unsigned variable-length integer.
pub fn read_unsigned_vint(rest: &mut &[u8]) -> Option<u64> {
    let (&head, tail) = rest.split_first()?;
    let extra = head.leading_ones() as usize;
    let (bytes, tail) = tail.split_at_checked(extra)?;
    let start = u64::from(head) & (0xFFu64 >> extra);
    *rest = tail;
    Some(bytes.iter().fold(start, |value, &byte| (value << 8) | u64::from(byte)))
}

/// A signed value in the zig-zag form of the same encoding, as `duration` uses it.
pub fn push_signed_vint(value: i64, out: &mut Vec<u8>) {
    push_unsigned_vint(((value << 1) ^ (value >> 63)) as u64, out);
}

/// Reads a zig-zag value.
pub fn read_signed_vint(rest: &mut &[u8]) -> Option<i64> {
    let value = read_unsigned_vint(rest)?;
    Some((value >> 1) as i64 ^ -((value & 1) as i64))
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn vints_have_cassandras_form() {
        let encode = |value| {
            let mut out = Vec::new();
            push_unsigned_vint(value, &mut out);
            out
        };
        assert_eq!(encode(0), [0]);
        assert_eq!(encode(127), [127]);
        assert_eq!(encode(128), [0x80, 0x80]);
        assert_eq!(encode(16383), [0xBF, 0xFF]);
        assert_eq!(encode(16384), [0xC0, 0x40, 0x00]);
        assert_eq!(encode(u64::MAX), [0xFF; 9]);
    }

    proptest! {
        #[test]
        fn vints_round_trip(value: u64, shift in 0u32..64) {
            let value = value >> shift;
            let mut out = Vec::new();
            push_unsigned_vint(value, &mut out);
            push_signed_vint(value as i64, &mut out);
            let mut rest = &out[..];
            prop_assert_eq!(read_unsigned_vint(&mut rest), Some(value));
            prop_assert_eq!(read_signed_vint(&mut rest), Some(value as i64));
            prop_assert!(rest.is_empty());
        }

        #[test]
        fn no_input_panics(bytes: Vec<u8>) {
            if let Ok(elements) = elements(&bytes) { elements.for_each(drop) }
            if let Ok(entries) = entries(&bytes) { entries.for_each(drop) }
            fields(&bytes).for_each(drop);
            vector_elements(&CqlType::Text, 3, &bytes).for_each(drop);
        }
    }
}
