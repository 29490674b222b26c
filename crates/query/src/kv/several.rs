//! Keys and ranges of one tablet that are read together, for an aggregate of the rows that an `IN` names.
//!
//! Always true: they are kept in the form in which they are sent, each key without the prefix that it shares with the
//! one before; no bytes make reading them panic, or allocate more than a key's length. Left out: where the entries come
//! from, and their meaning.

use super::chunk::ScanChunk;
use diorite_base::bytes::{Malformed, Reader, put_slice, put_varint};

const KEY: u8 = 0;
const KEY_IF: u8 = 1;
const RANGE: u8 = 2;

/// A key, or a range of keys.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Span {
    /// The key, or the first key.
    pub start: Vec<u8>,
    /// The first key after the range; `None`: it is the one key `start`.
    pub end: Option<Vec<u8>>,
    /// It is read only if the tablet has any of these flags; 0: always. For single keys.
    pub if_flags: u64,
}

impl Span {
    /// A key.
    pub fn key(key: Vec<u8>) -> Self {
        Self { start: key, end: None, if_flags: 0 }
    }

    /// A key that is read only if the tablet has any of these flags.
    pub fn key_if(flags: u64, key: Vec<u8>) -> Self {
        Self { start: key, end: None, if_flags: flags }
    }

    /// A range.
    pub fn range(start: Vec<u8>, end: Vec<u8>) -> Self {
        Self { start, end: Some(end), if_flags: 0 }
    }

    /// The part of it at or after `from`; in reverse, before it.
    pub fn clipped(mut self, from: &[u8], reverse: bool) -> Option<Self> {
        match (&mut self.end, reverse) {
            (None, false) => return (self.start.as_slice() >= from).then_some(self),
            (None, true) => return (self.start.as_slice() < from).then_some(self),
            (Some(_), false) if self.start.as_slice() < from => self.start = from.to_vec(),
            (Some(end), true) if end.as_slice() > from => *end = from.to_vec(),
            (Some(_), _) => {}
        }
        self.end.as_ref().is_some_and(|end| self.start < *end).then_some(self)
    }

    /// Its size in memory.
    pub fn size_bytes(&self) -> usize {
        self.start.len() + self.end.as_ref().map_or(0, Vec::len)
    }
}

/// Several spans, read one after the other as if they were one range.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Several {
    /// The spans, encoded.
    pub spans: Vec<u8>,
    /// Ranges are read from their ends.
    pub reverse: bool,
    /// Stop after this many entries.
    pub max_entries: usize,
    /// Stop once this many bytes of keys and values are gathered.
    pub max_bytes: usize,
}

fn shared_bytes(a: &[u8], b: &[u8]) -> usize {
    a.iter().zip(b).take_while(|(a, b)| a == b).count()
}

/// Encodes spans.
pub fn encode(spans: &[Span]) -> Vec<u8> {
    let mut out = Vec::new();
    let mut before: &[u8] = &[];
    let put = |out: &mut Vec<u8>, before: &[u8], key: &[u8]| {
        let shared = shared_bytes(before, key);
        put_varint(out, shared as u64);
        put_slice(out, &key[shared..]);
    };
    for span in spans {
        match &span.end {
            None if span.if_flags == 0 => out.push(KEY),
            None => {
                out.push(KEY_IF);
                put_varint(&mut out, span.if_flags);
            }
            Some(_) => out.push(RANGE),
        }
        put(&mut out, before, &span.start);
        if let Some(end) = &span.end {
            put(&mut out, &span.start, end);
        }
        before = &span.start;
    }
    out
}

/// The next span, after one that began with `before`.
fn decode_next(reader: &mut Reader<'_>, before: &[u8]) -> Result<Span, Malformed> {
    let key = |reader: &mut Reader<'_>, before: &[u8]| {
        let shared = usize::try_from(reader.varint()?).map_err(|_| Malformed)?;
        Ok([before.get(..shared).ok_or(Malformed)?, reader.slice()?].concat())
    };
    match reader.u8()? {
        KEY => Ok(Span::key(key(reader, before)?)),
        KEY_IF => Ok(Span::key_if(reader.varint()?, key(reader, before)?)),
        RANGE => {
            let start = key(reader, before)?;
            let end = key(reader, &start)?;
            Ok(Span::range(start, end))
        }
        _ => Err(Malformed),
    }
}

/// Decodes spans, one at a time.
pub fn decode(spans: &[u8]) -> impl Iterator<Item = Result<Span, Malformed>> {
    let mut reader = Reader::new(spans);
    let mut before = Vec::new();
    let mut is_broken = false;
    std::iter::from_fn(move || {
        if reader.is_empty() || is_broken {
            return None;
        }
        let span = decode_next(&mut reader, &before);
        match &span {
            Ok(span) => before.clone_from(&span.start),
            Err(_) => is_broken = true,
        }
        Some(span)
    })
}

impl ScanChunk {
    /// Whether it has as much as was asked for.
    pub fn is_full(&self, max_entries: usize, max_bytes: usize) -> bool {
        !self.ends.is_empty() && (self.ends.len() >= max_entries || self.buffer.len() >= max_bytes)
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "test data is known")]

    use super::*;
    use proptest::prelude::*;

    fn span() -> impl Strategy<Value = Span> {
        let key = || proptest::collection::vec(0u8..2, 0..6);
        prop_oneof![
            key().prop_map(Span::key),
            (1u64.., key()).prop_map(|(flags, key)| Span::key_if(flags, key)),
            (key(), key()).prop_map(|(start, end)| Span::range(start, end)),
        ]
    }

    proptest! {
        #[test]
        fn spans_come_back_as_they_went(spans in proptest::collection::vec(span(), 0..8)) {
            let again: Result<Vec<Span>, _> = decode(&encode(&spans)).collect();
            prop_assert_eq!(again.unwrap(), spans);
        }

        #[test]
        fn no_bytes_panic(bytes: Vec<u8>) {
            let _ = decode(&bytes).count();
        }

        #[test]
        fn what_is_clipped_has_the_keys_that_are_left(span in span(), from in proptest::collection::vec(0u8..2, 0..6), reverse: bool, key in proptest::collection::vec(0u8..2, 0..6)) {
            let has = |span: &Span| match &span.end {
                None => span.start == key,
                Some(end) => span.start <= key && key < *end,
            };
            let is_left = if reverse { key < from } else { key >= from };
            prop_assert_eq!(span.clone().clipped(&from, reverse).is_some_and(|left| has(&left)), has(&span) && is_left);
        }
    }
}
