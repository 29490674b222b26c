//! The handshake of a connection: who dials, which node is meant, and why the connection may be refused.
//!
//! Always true: magic and protocol version come first and never change their form, so that nodes of different versions
//! can report that.
//! Left out: the content of a question, which the node defines.

use crate::Lane;
use diorite_base::bytes::{Malformed, Reader};
use diorite_base::{Level, NodeId};
use std::fmt;
use std::net::SocketAddr;
use thiserror::Error;
use uuid::Uuid;

/// The version of frames, hellos and frame contents. Nodes of different versions do not communicate.
pub const PROTOCOL_VERSION: u32 = 2;

/// The first bytes of every connection, and of every answer to it.
pub(crate) const MAGIC: [u8; 8] = *b"DIORITE\0";
/// Magic and version.
pub(crate) const PREAMBLE_BYTES: usize = 12;
/// The largest answer: the answer to a question lists all members.
pub(crate) const MAX_HELLO_BYTES: usize = 1 << 20;
/// The largest hello or question: its sender need not be a node.
pub(crate) const MAX_OPENING_BYTES: usize = 16 << 10;

const LANE: u8 = 1;
const QUESTION: u8 = 2;
const ACCEPTED: u8 = 0;
const REFUSED: u8 = 1;

/// A dialler's request for one lane.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Hello {
    /// The dialler's cluster.
    pub cluster: Uuid,
    /// The dialler's node id.
    pub from: NodeId,
    /// The dialler's host id.
    pub host: Uuid,
    /// The node that it means to reach.
    pub to: NodeId,
    /// Differs with each start of the dialler's process.
    pub incarnation: u64,
    /// The lane of the connection.
    pub lane: Lane,
    /// The address at which the dialler is dialled.
    pub address: SocketAddr,
}

/// The first frame of a connection.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Opening {
    Lane(Hello),
    /// One question and one answer, then the connection ends: for nodes that are not members yet.
    Question(Vec<u8>),
}

/// Why a connection is refused.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum RefusalKind {
    /// Another protocol version.
    Version,
    /// Another cluster.
    Cluster,
    /// The dialler meant to reach another node: the address belongs to this one now.
    Misdirected,
    /// The dialler's node id belongs to another host, or to another process that is running.
    Duplicate,
    /// The clocks differ by too much.
    Clock,
    /// The node is not known here as a member, or an earlier process of it may still be there; that may change.
    Unknown,
    /// A reason that this version does not know.
    Other,
    /// The node was a member and has been removed, for ever.
    Removed,
}

impl RefusalKind {
    const ALL: [Self; 8] = [
        Self::Version,
        Self::Cluster,
        Self::Misdirected,
        Self::Duplicate,
        Self::Clock,
        Self::Unknown,
        Self::Other,
        Self::Removed,
    ];

    /// Whether a retry cannot help, so that the refused node should stop.
    pub fn is_final(self) -> bool {
        matches!(self, Self::Version | Self::Cluster | Self::Duplicate | Self::Clock | Self::Removed)
    }

    fn code(self) -> u8 {
        self as u8
    }

    fn from_code(code: u8) -> Self {
        Self::ALL.get(usize::from(code)).copied().unwrap_or(Self::Other)
    }
}

/// A refused connection, with one line of text from the node that was dialled.
#[derive(Clone, Debug, Error, PartialEq, Eq)]
#[error("{reason}")]
pub struct Refusal {
    /// The kind, which says what to do.
    pub kind: RefusalKind,
    /// The line.
    pub reason: String,
}

impl Refusal {
    /// A refusal with its line.
    pub fn new(kind: RefusalKind, reason: impl fmt::Display) -> Self {
        Self { kind, reason: reason.to_string() }
    }

    pub(crate) fn version(theirs: u32) -> Self {
        let reason = format!(
            "protocol version {theirs} is not spoken here, {PROTOCOL_VERSION} is: run the same version of diorite on all nodes"
        );
        Self { kind: RefusalKind::Version, reason }
    }
}

/// Magic and version.
pub(crate) fn preamble() -> [u8; PREAMBLE_BYTES] {
    let mut preamble = [0; PREAMBLE_BYTES];
    preamble[..8].copy_from_slice(&MAGIC);
    preamble[8..].copy_from_slice(&PROTOCOL_VERSION.to_le_bytes());
    preamble
}

/// The version that a preamble names, if it is one.
pub(crate) fn version_of(preamble: [u8; PREAMBLE_BYTES]) -> Option<u32> {
    let [magic @ .., a, b, c, d] = preamble;
    (magic == MAGIC).then(|| u32::from_le_bytes([a, b, c, d]))
}

impl Opening {
    /// The body of the opening frame; `wall_us` is the dialler's wall clock.
    pub(crate) fn encode(&self, wall_us: i64) -> Vec<u8> {
        let mut out = Vec::new();
        match self {
            Self::Lane(hello) => {
                out.push(LANE);
                out.extend_from_slice(&wall_us.to_le_bytes());
                out.push(hello.lane as u8);
                out.extend_from_slice(hello.cluster.as_bytes());
                out.extend_from_slice(hello.host.as_bytes());
                out.extend_from_slice(&hello.from.0.to_le_bytes());
                out.extend_from_slice(&hello.to.0.to_le_bytes());
                out.extend_from_slice(&hello.incarnation.to_le_bytes());
                out.extend_from_slice(hello.address.to_string().as_bytes());
            }
            Self::Question(question) => {
                out.push(QUESTION);
                out.extend_from_slice(&wall_us.to_le_bytes());
                out.extend_from_slice(question);
            }
        }
        out
    }

    /// Reads the body, with the dialler's wall clock.
    pub(crate) fn decode(body: &[u8]) -> Result<(Self, i64), Malformed> {
        let mut reader = Reader::new(body);
        let purpose = reader.u8()?;
        let wall_us = reader.i64()?;
        let opening = match purpose {
            LANE => {
                let lane = *Lane::ALL.get(usize::from(reader.u8()?)).ok_or(Malformed)?;
                Self::Lane(Hello {
                    lane,
                    cluster: Uuid::from_bytes(reader.array()?),
                    host: Uuid::from_bytes(reader.array()?),
                    from: NodeId(reader.u64()?),
                    to: NodeId(reader.u64()?),
                    incarnation: reader.u64()?,
                    address: std::str::from_utf8(reader.rest())
                        .ok()
                        .and_then(|text| text.parse().ok())
                        .ok_or(Malformed)?,
                })
            }
            QUESTION => Self::Question(reader.rest().to_vec()),
            _ => return Err(Malformed),
        };
        Ok((opening, wall_us))
    }
}

/// The body of an answer: accepted (with the answer to a question), or refused.
pub(crate) fn encode_answer(answer: &Result<Vec<u8>, Refusal>) -> Vec<u8> {
    match answer {
        Ok(answer) => [&[ACCEPTED], answer.as_slice()].concat(),
        Err(refusal) => [&[REFUSED, refusal.kind.code()], refusal.reason.as_bytes()].concat(),
    }
}

/// The content of an accepted answer to a lane: the highest level that the listener's program knows.
pub(crate) fn encode_level(level: Level) -> Vec<u8> {
    level.0.to_le_bytes().to_vec()
}

/// Reads the level. Programs that know of no levels answer nothing; later ones may add to it.
pub(crate) fn decode_level(answer: &[u8]) -> Level {
    Reader::new(answer).u32().map_or(Level::FIRST, Level)
}

/// Reads an answer.
pub(crate) fn decode_answer(body: &[u8]) -> Result<Result<Vec<u8>, Refusal>, Malformed> {
    match body {
        [ACCEPTED, answer @ ..] => Ok(Ok(answer.to_vec())),
        [REFUSED, kind, reason @ ..] => {
            Ok(Err(Refusal::new(RefusalKind::from_code(*kind), String::from_utf8_lossy(reason))))
        }
        _ => Err(Malformed),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn hello() -> Hello {
        Hello {
            cluster: Uuid::from_u128(1),
            from: NodeId(2),
            host: Uuid::from_u128(3),
            to: NodeId(4),
            incarnation: 5,
            lane: Lane::Requests,
            address: "[::1]:7100".parse().unwrap(),
        }
    }

    /// The bytes of each level, which later programs read and write as they are.
    #[test]
    fn the_handshake_of_every_level_has_its_bytes() {
        let levels = [
            (Level(1), include_str!("../testdata/level-1/handshake.txt")),
            (Level(2), include_str!("../testdata/level-2/handshake.txt")),
        ];
        let hex = |bytes: &[u8]| bytes.iter().map(|byte| format!("{byte:02x}")).collect::<String>();
        let hello = hello();
        for (level, golden) in levels {
            // Programs of the first level do not say so.
            let said = if level.is_first() { Vec::new() } else { encode_level(level) };
            let written = [
                ("preamble", preamble().to_vec()),
                ("lane", Opening::Lane(hello.clone()).encode(-7)),
                ("question", Opening::Question(b"may I?".to_vec()).encode(-7)),
                ("refused", encode_answer(&Err(Refusal::new(RefusalKind::Unknown, "no")))),
                ("answered", encode_answer(&Ok(vec![9]))),
                ("accepted", encode_answer(&Ok(said.clone()))),
            ];
            let lines = written.iter().map(|(name, bytes)| format!("{name} {}\n", hex(bytes)));
            assert_eq!(lines.collect::<String>(), golden, "level {level}");
            assert_eq!(decode_level(&said), level);
        }
    }

    #[test]
    fn hellos_and_answers_are_read_as_written() {
        let hello = hello();
        for opening in [Opening::Lane(hello), Opening::Question(b"may I?".to_vec())] {
            let encoded = opening.encode(-7);
            assert_eq!(Opening::decode(&encoded), Ok((opening, -7)));
            assert_eq!(Opening::decode(&encoded[..5]), Err(Malformed));
        }
        for kind in RefusalKind::ALL {
            let refused = Err(Refusal::new(kind, "no"));
            assert_eq!(decode_answer(&encode_answer(&refused)), Ok(refused));
        }
        assert_eq!(decode_answer(&encode_answer(&Ok(vec![9]))), Ok(Ok(vec![9])));
        assert_eq!(decode_level(&encode_level(Level(7))), Level(7));
        assert_eq!(decode_level(&[encode_level(Level(7)), vec![1]].concat()), Level(7));
        assert_eq!(decode_level(&[]), Level::FIRST);
        assert_eq!(version_of(preamble()), Some(PROTOCOL_VERSION));
        assert_eq!(version_of(*b"GET / HTTP/1"), None);
    }
}
