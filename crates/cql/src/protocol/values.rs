//! Bound values of a request, read in place.
//!
//! Always true: a [`Values`] was traversed once when it was decoded, so iterating over it cannot fail and takes no
//! memory. Left out: the meaning of the bytes, which depends on the statement's types.

use super::version::Version;
use super::wire::{Malformed, Reader};

/// One bound value.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Value<'a> {
    /// The encoded value; may be empty.
    Set(&'a [u8]),
    /// `null`: deletes the cell.
    Null,
    /// Not set (v4): leaves the cell alone.
    Unset,
}

impl<'a> Value<'a> {
    /// The bytes, when there are any.
    pub fn bytes(self) -> Option<&'a [u8]> {
        match self {
            Value::Set(bytes) => Some(bytes),
            Value::Null | Value::Unset => None,
        }
    }
}

/// The values bound to one statement, in wire order, with or without names.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Values<'a> {
    count: u16,
    named: bool,
    /// From v4 on, a length of -2 means "unset"; before, every negative length means null.
    has_unset: bool,
    bytes: &'a [u8],
}

impl<'a> Values<'a> {
    /// Reads `[short]` and that many values (each preceded by its name when `named`).
    #[inline]
    pub(super) fn decode(reader: &mut Reader<'a>, version: Version, named: bool) -> Result<Self, Malformed> {
        let has_unset = version >= Version::V4;
        let count = reader.u16("number of values")?;
        let start = reader.rest();
        for _ in 0..count {
            if named {
                reader.string("value name")?;
            }
            let length = reader.i32("value length")?;
            if let Ok(length) = usize::try_from(length) {
                reader.take(length, "value")?;
            } else if has_unset && length < -2 {
                return Err(Malformed::Invalid("value length"));
            }
        }
        let bytes = &start[..start.len() - reader.rest().len()];
        Ok(Self { count, named, has_unset, bytes })
    }

    /// How many there are.
    pub fn len(&self) -> usize {
        usize::from(self.count)
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.count == 0
    }

    /// Whether each has a name.
    pub fn is_named(&self) -> bool {
        self.named && self.count > 0
    }

    /// The encoded values, for copying them elsewhere.
    pub fn as_bytes(&self) -> &'a [u8] {
        self.bytes
    }

    /// The values in order.
    #[inline]
    pub fn iter(&self) -> ValuesIter<'a> {
        ValuesIter {
            remaining: self.count,
            named: self.named,
            has_unset: self.has_unset,
            reader: Reader::new(self.bytes),
        }
    }

    /// The values with their names; `None` for each name when they go by position.
    pub fn iter_named(&self) -> impl Iterator<Item = (Option<&'a str>, Value<'a>)> + use<'a> {
        let mut values = self.iter();
        std::iter::from_fn(move || values.next_named())
    }

    /// The value at `index`; walks the ones before it.
    pub fn get(&self, index: usize) -> Option<Value<'a>> {
        self.iter().nth(index)
    }
}

impl<'a> IntoIterator for Values<'a> {
    type Item = Value<'a>;
    type IntoIter = ValuesIter<'a>;

    fn into_iter(self) -> ValuesIter<'a> {
        self.iter()
    }
}

/// See [`Values::iter`].
#[derive(Clone, Debug)]
pub struct ValuesIter<'a> {
    remaining: u16,
    named: bool,
    has_unset: bool,
    reader: Reader<'a>,
}

impl<'a> ValuesIter<'a> {
    fn next_named(&mut self) -> Option<(Option<&'a str>, Value<'a>)> {
        self.remaining = self.remaining.checked_sub(1)?;
        let name = if self.named { Some(self.reader.string("").ok()?) } else { None };
        Some((name, self.value()?))
    }

    #[inline]
    fn value(&mut self) -> Option<Value<'a>> {
        let length = self.reader.i32("").ok()?;
        match usize::try_from(length) {
            Ok(length) => self.reader.take(length, "").ok().map(Value::Set),
            Err(_) if length == -2 && self.has_unset => Some(Value::Unset),
            Err(_) => Some(Value::Null),
        }
    }
}

impl<'a> Iterator for ValuesIter<'a> {
    type Item = Value<'a>;

    #[inline]
    fn next(&mut self) -> Option<Value<'a>> {
        self.remaining = self.remaining.checked_sub(1)?;
        if self.named {
            self.reader.short_bytes("").ok()?;
        }
        self.value()
    }

    fn size_hint(&self) -> (usize, Option<usize>) {
        (usize::from(self.remaining), Some(usize::from(self.remaining)))
    }
}

impl ExactSizeIterator for ValuesIter<'_> {}
