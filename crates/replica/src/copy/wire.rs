//! What travels on the bulk lane. Integers are LEB128 unless given otherwise.
//!
//! ```text
//! frame := version u8 (1) · kind u8 · copy u64 LE · body
//! begin (1): tablet · the log index up to which it holds everything, at least
//! piece (2): file name length and bytes · offset · data (the rest)
//! end   (3): files · bytes (of all files together)
//! taken (4): bytes (received so far)
//! ended (5): reason length and bytes (empty: installed)
//! ```

use diorite_base::TabletId;
use diorite_base::bytes::{Malformed, Reader, put_slice, put_varint};

const VERSION: u8 = 1;

/// One frame of a copy.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Frame<'a> {
    /// A copy of a tablet follows.
    Begin { copy: u64, tablet: TabletId, applied: u64 },
    /// A piece of a file; pieces of a file come in order.
    Piece { copy: u64, name: &'a str, offset: u64, data: &'a [u8] },
    /// That was all.
    End { copy: u64, files: u64, bytes: u64 },
    /// The receiver has taken so many bytes.
    Taken { copy: u64, bytes: u64 },
    /// The receiver has installed the copy, or not.
    Ended { copy: u64, failure: &'a str },
}

impl<'a> Frame<'a> {
    pub(super) fn encode(&self, out: &mut Vec<u8>) {
        let (kind, copy) = match self {
            Self::Begin { copy, .. } => (1, copy),
            Self::Piece { copy, .. } => (2, copy),
            Self::End { copy, .. } => (3, copy),
            Self::Taken { copy, .. } => (4, copy),
            Self::Ended { copy, .. } => (5, copy),
        };
        out.extend_from_slice(&[VERSION, kind]);
        out.extend_from_slice(&copy.to_le_bytes());
        match self {
            Self::Begin { tablet, applied, .. } => {
                put_varint(out, tablet.0);
                put_varint(out, *applied);
            }
            Self::Piece { name, offset, data, .. } => {
                put_slice(out, name.as_bytes());
                put_varint(out, *offset);
                out.extend_from_slice(data);
            }
            Self::End { files, bytes, .. } => {
                put_varint(out, *files);
                put_varint(out, *bytes);
            }
            Self::Taken { bytes, .. } => put_varint(out, *bytes),
            Self::Ended { failure, .. } => put_slice(out, failure.as_bytes()),
        }
    }

    pub(super) fn decode(bytes: &'a [u8]) -> Result<Self, Malformed> {
        let mut reader = Reader::new(bytes);
        if reader.u8()? != VERSION {
            return Err(Malformed);
        }
        let (kind, copy) = (reader.u8()?, reader.u64()?);
        let text = |bytes: &'a [u8]| std::str::from_utf8(bytes).map_err(|_| Malformed);
        Ok(match kind {
            1 => Self::Begin { copy, tablet: TabletId(reader.varint()?), applied: reader.varint()? },
            2 => Self::Piece { copy, name: text(reader.slice()?)?, offset: reader.varint()?, data: reader.rest() },
            3 => Self::End { copy, files: reader.varint()?, bytes: reader.varint()? },
            4 => Self::Taken { copy, bytes: reader.varint()? },
            5 => Self::Ended { copy, failure: text(reader.slice()?)? },
            _ => return Err(Malformed),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn frames_come_back_as_they_went_in() {
        let frames = [
            Frame::Begin { copy: 1, tablet: TabletId(1_000), applied: 1 << 40 },
            Frame::Piece { copy: 2, name: "000012.sst", offset: 1 << 33, data: b"data" },
            Frame::End { copy: 3, files: 4, bytes: 5 },
            Frame::Taken { copy: 4, bytes: 6 },
            Frame::Ended { copy: u64::MAX, failure: "no room" },
        ];
        for frame in frames {
            let mut bytes = Vec::new();
            frame.encode(&mut bytes);
            assert_eq!(Frame::decode(&bytes), Ok(frame));
        }
    }

    proptest! {
        #[test]
        fn no_input_panics(mut bytes: Vec<u8>, versioned: bool) {
            if versioned && !bytes.is_empty() {
                bytes[0] = VERSION;
            }
            let _ = Frame::decode(&bytes);
        }
    }
}
