//! The bytes on the operations lane (`docs/formats/operations.md`): a byte each for the format and the kind, then the
//! content. Integers are little-endian; texts are JSON and extend to the end.
//!
//! ```text
//! report (1): JSON
//! ask    (2): incarnation u64 · id u64 · JSON
//! answer (3): incarnation u64 · id u64 · 1 if it failed, otherwise 0 · JSON
//! ```

use diorite_base::bytes::{Malformed, Reader};

const VERSION: u8 = 1;
const REPORT: u8 = 1;
const ASK: u8 = 2;
const ANSWER: u8 = 3;

/// A frame of the lane.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Frame<'a> {
    /// The report of the sender.
    Report(&'a [u8]),
    /// A question. The incarnation distinguishes runs of the asking process.
    Ask { incarnation: u64, id: u64, question: &'a [u8] },
    /// The answer to it.
    Answer { incarnation: u64, id: u64, has_failed: bool, answer: &'a [u8] },
}

impl<'a> Frame<'a> {
    pub(super) fn encode(&self) -> Vec<u8> {
        let mut out = vec![VERSION];
        match self {
            Frame::Report(report) => {
                out.push(REPORT);
                out.extend_from_slice(report);
            }
            Frame::Ask { incarnation, id, question } => {
                out.push(ASK);
                out.extend_from_slice(&incarnation.to_le_bytes());
                out.extend_from_slice(&id.to_le_bytes());
                out.extend_from_slice(question);
            }
            Frame::Answer { incarnation, id, has_failed, answer } => {
                out.push(ANSWER);
                out.extend_from_slice(&incarnation.to_le_bytes());
                out.extend_from_slice(&id.to_le_bytes());
                out.push(u8::from(*has_failed));
                out.extend_from_slice(answer);
            }
        }
        out
    }

    pub(super) fn decode(frame: &'a [u8]) -> Result<Self, Malformed> {
        let mut reader = Reader::new(frame);
        if reader.u8()? != VERSION {
            return Err(Malformed);
        }
        match reader.u8()? {
            REPORT => Ok(Frame::Report(reader.rest())),
            ASK => Ok(Frame::Ask { incarnation: reader.u64()?, id: reader.u64()?, question: reader.rest() }),
            ANSWER => Ok(Frame::Answer {
                incarnation: reader.u64()?,
                id: reader.u64()?,
                has_failed: reader.u8()? != 0,
                answer: reader.rest(),
            }),
            _ => Err(Malformed),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn frames_survive_their_encoding(incarnation: u64, id: u64, has_failed: bool, text: Vec<u8>) {
            let frames = [
                Frame::Report(&text),
                Frame::Ask { incarnation, id, question: &text },
                Frame::Answer { incarnation, id, has_failed, answer: &text },
            ];
            for frame in frames {
                let encoded = frame.encode();
                prop_assert_eq!(Frame::decode(&encoded), Ok(frame));
            }
        }

        #[test]
        fn no_bytes_make_decoding_panic(bytes: Vec<u8>) {
            let _ = Frame::decode(&bytes);
        }
    }
}
