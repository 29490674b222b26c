//! The messages of the bulk lane. Integers are LEB128 unless given otherwise; a text is its length and its bytes.
//!
//! ```text
//! frame   := version u8 (2) · kind u8 · copy u64 LE · body
//! begin    (1): tablet · the log index up to which it holds everything, at least · count · (file name · size)*
//! piece    (2): file name · offset · data (the rest)
//! complete (3): file name · size · crc32
//! end      (4):
//! have     (5): count · (file name · size · crc32)*
//! credit   (6): bytes that may be sent, in all · bytes taken so far
//! ended    (7): reason (empty: installed)
//! alive    (8):
//! ask      (9): tablet · to · the log index that the copy must hold, at least
//! answer  (10): state u8 (0: under way, 1: done, 2: refused, 3: broken off) · reason
//! reach   (11): tablet
//! reached (12): index of the last entry that is not in the leader's log
//! given up(13): reason
//! ```
//!
//! 1 to 4, 8 and 13 are sent by the sender, 5 to 7 by the receiver. 9 is a leader's request that a follower send a copy, 11
//! the follower's question where the leader's log begins; 10 and 12 are the answers.

use diorite_base::bytes::{Malformed, Reader, put_slice, put_varint};
use diorite_base::{NodeId, TabletId};

const VERSION: u8 = 2;

/// A file of a copy, as its sender lists it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Listed {
    pub(crate) name: String,
    pub(crate) size: u64,
}

/// A file that is held, complete and durable.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Held {
    pub(crate) name: String,
    pub(crate) size: u64,
    pub(crate) crc: u32,
}

/// The state of a copy that a leader has asked for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum State {
    /// It is being sent.
    UnderWay = 0,
    /// It is installed.
    Done = 1,
    /// Another node has to send it.
    Refused = 2,
    /// The copy broke off; the received files are held.
    Broken = 3,
}

/// One frame of a copy.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Frame<'a> {
    /// A copy of a tablet follows, or the same copy starts anew with other files.
    Begin { copy: u64, tablet: TabletId, applied: u64, files: Vec<Listed> },
    /// A piece of a file; pieces of a file are sent in order, and the first one starts the file anew.
    Piece { copy: u64, name: &'a str, offset: u64, data: &'a [u8] },
    /// The file is complete.
    Complete { copy: u64, name: &'a str, size: u64, crc: u32 },
    /// All missing files were sent.
    End { copy: u64 },
    /// The receiver holds these files from an earlier attempt.
    Have { copy: u64, files: Vec<Held> },
    /// The credit granted and the bytes taken, both counted from the beginning of the copy.
    Credit { copy: u64, allowed: u64, taken: u64 },
    /// The receiver has installed the copy, or has failed to.
    Ended { copy: u64, failure: &'a str },
    /// A sign of life of a sender that has nothing to send at the moment.
    Alive { copy: u64 },
    /// A leader asks a follower to send a copy to another node.
    Ask { copy: u64, tablet: TabletId, to: NodeId, needed: u64 },
    /// The state of such a copy.
    Answer { copy: u64, state: State, failure: &'a str },
    /// A follower asks where the leader's log begins.
    Reach { copy: u64, tablet: TabletId },
    /// It begins after this index.
    Reached { copy: u64, start: u64 },
    /// The sender sends no more of this copy.
    GivenUp { copy: u64, failure: &'a str },
}

impl<'a> Frame<'a> {
    fn kind_and_copy(&self) -> (u8, u64) {
        match self {
            Self::Begin { copy, .. } => (1, *copy),
            Self::Piece { copy, .. } => (2, *copy),
            Self::Complete { copy, .. } => (3, *copy),
            Self::End { copy } => (4, *copy),
            Self::Have { copy, .. } => (5, *copy),
            Self::Credit { copy, .. } => (6, *copy),
            Self::Ended { copy, .. } => (7, *copy),
            Self::Alive { copy } => (8, *copy),
            Self::Ask { copy, .. } => (9, *copy),
            Self::Answer { copy, .. } => (10, *copy),
            Self::Reach { copy, .. } => (11, *copy),
            Self::Reached { copy, .. } => (12, *copy),
            Self::GivenUp { copy, .. } => (13, *copy),
        }
    }

    /// The number of the copy.
    pub(crate) fn copy(&self) -> u64 {
        self.kind_and_copy().1
    }

    pub(crate) fn encode(&self, out: &mut Vec<u8>) {
        let (kind, copy) = self.kind_and_copy();
        out.extend_from_slice(&[VERSION, kind]);
        out.extend_from_slice(&copy.to_le_bytes());
        match self {
            Self::Begin { tablet, applied, files, .. } => {
                put_varint(out, tablet.0);
                put_varint(out, *applied);
                put_varint(out, files.len() as u64);
                for file in files {
                    put_slice(out, file.name.as_bytes());
                    put_varint(out, file.size);
                }
            }
            Self::Piece { name, offset, data, .. } => {
                put_slice(out, name.as_bytes());
                put_varint(out, *offset);
                out.extend_from_slice(data);
            }
            Self::Complete { name, size, crc, .. } => put_held(out, name, *size, *crc),
            Self::End { .. } | Self::Alive { .. } => {}
            Self::Have { files, .. } => {
                put_varint(out, files.len() as u64);
                files.iter().for_each(|file| put_held(out, &file.name, file.size, file.crc));
            }
            Self::Credit { allowed, taken, .. } => {
                put_varint(out, *allowed);
                put_varint(out, *taken);
            }
            Self::Ended { failure, .. } | Self::GivenUp { failure, .. } => put_slice(out, failure.as_bytes()),
            Self::Ask { tablet, to, needed, .. } => {
                put_varint(out, tablet.0);
                put_varint(out, to.0);
                put_varint(out, *needed);
            }
            Self::Answer { state, failure, .. } => {
                out.push(*state as u8);
                put_slice(out, failure.as_bytes());
            }
            Self::Reach { tablet, .. } => put_varint(out, tablet.0),
            Self::Reached { start, .. } => put_varint(out, *start),
        }
    }

    pub(crate) fn decode(bytes: &'a [u8]) -> Result<Self, Malformed> {
        let mut reader = Reader::new(bytes);
        if reader.u8()? != VERSION {
            return Err(Malformed);
        }
        let (kind, copy) = (reader.u8()?, reader.u64()?);
        Ok(match kind {
            1 => {
                let (tablet, applied) = (TabletId(reader.varint()?), reader.varint()?);
                let listed =
                    |reader: &mut Reader<'a>| Ok(Listed { name: text(reader)?.to_owned(), size: reader.varint()? });
                Self::Begin { copy, tablet, applied, files: list(&mut reader, listed)? }
            }
            2 => Self::Piece { copy, name: text(&mut reader)?, offset: reader.varint()?, data: reader.rest() },
            3 => {
                let (name, size, crc) = held(&mut reader)?;
                Self::Complete { copy, name, size, crc }
            }
            4 => Self::End { copy },
            5 => {
                let owned = |reader: &mut Reader<'a>| {
                    let (name, size, crc) = held(reader)?;
                    Ok(Held { name: name.to_owned(), size, crc })
                };
                Self::Have { copy, files: list(&mut reader, owned)? }
            }
            6 => Self::Credit { copy, allowed: reader.varint()?, taken: reader.varint()? },
            7 => Self::Ended { copy, failure: text(&mut reader)? },
            8 => Self::Alive { copy },
            9 => {
                let (tablet, to) = (TabletId(reader.varint()?), NodeId(reader.varint()?));
                Self::Ask { copy, tablet, to, needed: reader.varint()? }
            }
            10 => {
                let state = match reader.u8()? {
                    0 => State::UnderWay,
                    1 => State::Done,
                    2 => State::Refused,
                    3 => State::Broken,
                    _ => return Err(Malformed),
                };
                Self::Answer { copy, state, failure: text(&mut reader)? }
            }
            11 => Self::Reach { copy, tablet: TabletId(reader.varint()?) },
            12 => Self::Reached { copy, start: reader.varint()? },
            13 => Self::GivenUp { copy, failure: text(&mut reader)? },
            _ => return Err(Malformed),
        })
    }
}

fn put_held(out: &mut Vec<u8>, name: &str, size: u64, crc: u32) {
    put_slice(out, name.as_bytes());
    put_varint(out, size);
    put_varint(out, u64::from(crc));
}

fn text<'a>(reader: &mut Reader<'a>) -> Result<&'a str, Malformed> {
    std::str::from_utf8(reader.slice()?).map_err(|_| Malformed)
}

fn held<'a>(reader: &mut Reader<'a>) -> Result<(&'a str, u64, u32), Malformed> {
    Ok((text(reader)?, reader.varint()?, u32::try_from(reader.varint()?).map_err(|_| Malformed)?))
}

fn list<'a, T>(
    reader: &mut Reader<'a>,
    one: impl Fn(&mut Reader<'a>) -> Result<T, Malformed>,
) -> Result<Vec<T>, Malformed> {
    // Capacity is not reserved: the count may be false.
    let count = reader.varint()?;
    let mut found = Vec::new();
    for _ in 0..count {
        found.push(one(reader)?);
    }
    Ok(found)
}

/// Reads arbitrary bytes as a frame, which must encode to the same bytes.
#[cfg(any(test, feature = "fuzzing"))]
pub(crate) fn check_frame(input: &[u8]) {
    if let Ok(frame) = Frame::decode(input) {
        let mut out = Vec::new();
        frame.encode(&mut out);
        assert_eq!(Frame::decode(&out), Ok(frame));
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn frames_come_back_as_they_went_in() {
        let listed = |name: &str, size| Listed { name: name.to_owned(), size };
        let held = |name: &str, size, crc| Held { name: name.to_owned(), size, crc };
        let frames = [
            Frame::Begin {
                copy: 1,
                tablet: TabletId(1_000),
                applied: 1 << 40,
                files: vec![listed("CURRENT", 16), listed("000012.sst", 1 << 33)],
            },
            Frame::Piece { copy: 2, name: "000012.sst", offset: 1 << 33, data: b"data" },
            Frame::Complete { copy: 3, name: "CURRENT", size: 16, crc: u32::MAX },
            Frame::End { copy: 3 },
            Frame::Have { copy: 3, files: vec![held("000012.sst", 1 << 33, 7)] },
            Frame::Credit { copy: 4, allowed: 1 << 50, taken: 6 },
            Frame::Ended { copy: u64::MAX, failure: "no room" },
            Frame::Alive { copy: 5 },
            Frame::Ask { copy: 6, tablet: TabletId(1_000), to: NodeId(3), needed: 9 },
            Frame::Answer { copy: 6, state: State::Refused, failure: "busy" },
            Frame::Reach { copy: 7, tablet: TabletId(1_000) },
            Frame::Reached { copy: 7, start: 1 << 35 },
            Frame::GivenUp { copy: 8, failure: "no leader" },
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
