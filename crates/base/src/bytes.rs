//! Byte-level encodings shared by the formats on disk: LEB128 variable-length integers and bounds-checked reads.

use thiserror::Error;

/// Input ended early or held an impossible length.
#[derive(Debug, Error, PartialEq, Eq, Clone, Copy)]
#[error("encoded data is truncated or malformed")]
pub struct Malformed;

/// Appends `value` in LEB128 (1 to 10 bytes).
pub fn put_varint(out: &mut Vec<u8>, mut value: u64) {
    while value >= 0x80 {
        out.push(value as u8 | 0x80);
        value >>= 7;
    }
    out.push(value as u8);
}

/// Appends a varint length and the bytes.
pub fn put_slice(out: &mut Vec<u8>, slice: &[u8]) {
    put_varint(out, slice.len() as u64);
    out.extend_from_slice(slice);
}

/// A cursor over encoded bytes; every read is bounds-checked.
#[derive(Debug, Clone, Copy)]
pub struct Reader<'a> {
    rest: &'a [u8],
}

impl<'a> Reader<'a> {
    /// Reads from the start of `bytes`.
    pub fn new(bytes: &'a [u8]) -> Self {
        Self { rest: bytes }
    }

    /// The bytes that have not been read.
    pub fn rest(&self) -> &'a [u8] {
        self.rest
    }

    /// Whether everything has been read.
    pub fn is_empty(&self) -> bool {
        self.rest.is_empty()
    }

    /// The next `count` bytes.
    #[inline]
    pub fn take(&mut self, count: usize) -> Result<&'a [u8], Malformed> {
        let (head, tail) = self.rest.split_at_checked(count).ok_or(Malformed)?;
        self.rest = tail;
        Ok(head)
    }

    /// The next `N` bytes as an array.
    #[inline]
    pub fn array<const N: usize>(&mut self) -> Result<[u8; N], Malformed> {
        let (head, tail) = self.rest.split_first_chunk::<N>().ok_or(Malformed)?;
        self.rest = tail;
        Ok(*head)
    }

    /// One byte.
    #[inline]
    pub fn u8(&mut self) -> Result<u8, Malformed> {
        Ok(self.array::<1>()?[0])
    }

    /// A little-endian u32.
    #[inline]
    pub fn u32(&mut self) -> Result<u32, Malformed> {
        Ok(u32::from_le_bytes(self.array()?))
    }

    /// A little-endian i64.
    #[inline]
    pub fn i64(&mut self) -> Result<i64, Malformed> {
        Ok(i64::from_le_bytes(self.array()?))
    }

    /// A little-endian u64.
    #[inline]
    pub fn u64(&mut self) -> Result<u64, Malformed> {
        Ok(u64::from_le_bytes(self.array()?))
    }

    /// A LEB128 integer.
    #[inline]
    pub fn varint(&mut self) -> Result<u64, Malformed> {
        let mut value = 0u64;
        for shift in (0..64).step_by(7) {
            let byte = self.u8()?;
            if shift == 63 && byte > 1 {
                return Err(Malformed);
            }
            value |= u64::from(byte & 0x7f) << shift;
            if byte < 0x80 {
                return Ok(value);
            }
        }
        Err(Malformed)
    }

    /// As [`Self::varint`], but refuses all forms except the shortest, so that each value has one encoding.
    #[inline]
    pub fn shortest_varint(&mut self) -> Result<u64, Malformed> {
        let before = self.rest;
        let value = self.varint()?;
        match before[..before.len() - self.rest.len()] {
            [_, .., 0] => Err(Malformed),
            _ => Ok(value),
        }
    }

    /// As [`Self::slice`], with the shortest form of the length.
    #[inline]
    pub fn shortest_slice(&mut self) -> Result<&'a [u8], Malformed> {
        let length = usize::try_from(self.shortest_varint()?).map_err(|_| Malformed)?;
        self.take(length)
    }

    /// A varint length and that many bytes.
    #[inline]
    pub fn slice(&mut self) -> Result<&'a [u8], Malformed> {
        let length = usize::try_from(self.varint()?).map_err(|_| Malformed)?;
        self.take(length)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn varints_round_trip(value: u64) {
            let mut out = Vec::new();
            put_varint(&mut out, value);
            prop_assert_eq!(Reader::new(&out).varint(), Ok(value));
        }

        #[test]
        fn the_shortest_form_is_the_one_that_is_written(bytes: Vec<u8>) {
            let mut reader = Reader::new(&bytes);
            if let Ok(value) = reader.shortest_varint() {
                let mut out = Vec::new();
                put_varint(&mut out, value);
                prop_assert_eq!(&bytes[..bytes.len() - reader.rest().len()], &out);
            }
        }

        #[test]
        fn no_input_panics(bytes: Vec<u8>) {
            let mut reader = Reader::new(&bytes);
            while reader.slice().is_ok() && !reader.is_empty() {}
        }
    }

    #[test]
    fn a_length_past_the_end_is_refused() {
        assert_eq!(Reader::new(&[5, 1, 2]).slice(), Err(Malformed));
        assert_eq!(Reader::new(&[0xff; 11]).varint(), Err(Malformed));
        assert_eq!(
            (Reader::new(&[0x80, 0]).varint(), Reader::new(&[0x80, 0]).shortest_varint()),
            (Ok(0), Err(Malformed))
        );
        assert_eq!(Reader::new(&[0x81, 0, 7]).shortest_slice(), Err(Malformed));
    }
}
