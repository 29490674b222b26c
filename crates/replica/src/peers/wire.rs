//! The frames of the control lane, integers as LEB128:
//!
//! ```text
//! frame     := version u8 (1) · kind u8 · body
//! heartbeat (1): incarnation · sent ns · announced · incarnation and sent ns of the receiver's latest heartbeat that was received, or 0 and 0
//! support   (2): incarnation · sent ns (both of the heartbeat that it answers) · epoch · the sender's wall clock, microseconds, i64 (not from earlier versions)
//! ```
//!
//! `announced` is a number that the node announces to all others (the catalog version that it serves, or
//! [`crate::LEAVING`]). Always true: what later versions add to the end of a frame is ignored. Left out: what the
//! frames do ([`super::liveness`]).

use diorite_base::bytes::{Malformed, Reader, put_varint};
use diorite_raft::{Beat, Epoch, Heartbeat, Support};

pub(crate) const VERSION: u8 = 1;
pub(crate) const HEARTBEAT: u8 = 1;
const SUPPORT: u8 = 2;

/// A frame of the control lane.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Frame {
    /// The sender is alive.
    Beat { beat: Beat, announced: u64 },
    /// The answer. The wall clock is missing from earlier versions.
    Support { support: Support, wall_us: Option<i64> },
}

impl Frame {
    pub(crate) fn encode(&self) -> Vec<u8> {
        let mut out = vec![VERSION];
        match self {
            Self::Beat { beat, announced } => {
                out.push(HEARTBEAT);
                put_heartbeat(&mut out, beat.heartbeat);
                put_varint(&mut out, *announced);
                put_heartbeat(&mut out, beat.latest.unwrap_or(Heartbeat { incarnation: 0, sent_ns: 0 }));
            }
            Self::Support { support, wall_us } => {
                out.push(SUPPORT);
                put_heartbeat(&mut out, support.heartbeat);
                put_varint(&mut out, support.epoch.0);
                wall_us.iter().for_each(|wall_us| out.extend_from_slice(&wall_us.to_le_bytes()));
            }
        }
        out
    }

    pub(crate) fn decode(frame: &[u8]) -> Result<Self, Malformed> {
        let mut reader = Reader::new(frame);
        if reader.u8()? != VERSION {
            return Err(Malformed);
        }
        let kind = reader.u8()?;
        let (heartbeat, number) = (heartbeat(&mut reader)?, reader.varint()?);
        match kind {
            HEARTBEAT => {
                let latest = Some(self::heartbeat(&mut reader)?).filter(|latest| latest.incarnation != 0);
                Ok(Self::Beat { beat: Beat { heartbeat, latest }, announced: number })
            }
            SUPPORT => {
                let wall_us = if reader.is_empty() { None } else { Some(reader.i64()?) };
                Ok(Self::Support { support: Support { heartbeat, epoch: Epoch(number) }, wall_us })
            }
            _ => Err(Malformed),
        }
    }
}

fn put_heartbeat(out: &mut Vec<u8>, heartbeat: Heartbeat) {
    put_varint(out, heartbeat.incarnation);
    put_varint(out, heartbeat.sent_ns);
}

fn heartbeat(reader: &mut Reader<'_>) -> Result<Heartbeat, Malformed> {
    Ok(Heartbeat { incarnation: reader.varint()?, sent_ns: reader.varint()? })
}

#[cfg(test)]
mod tests {
    use super::*;
    use diorite_base::Levels;
    use diorite_golden::{Decoded, Golden, kinds};

    kinds!(FRAMES, kind_of(Frame): Beat, Support);

    #[test]
    fn frames_have_their_bytes() {
        let (heartbeat, epoch) = (Heartbeat { incarnation: 1 << 50, sent_ns: 300 }, Epoch(9));
        let latest = Some(Heartbeat { incarnation: 7, sent_ns: 1 << 40 });
        let support = Support { heartbeat, epoch };
        let frames = [
            ("first heartbeat", Frame::Beat { beat: Beat { heartbeat, latest: None }, announced: 0 }),
            ("heartbeat", Frame::Beat { beat: Beat { heartbeat, latest }, announced: 12 }),
            ("leaving", Frame::Beat { beat: Beat { heartbeat, latest }, announced: u64::MAX }),
            ("support", Frame::Support { support, wall_us: Some(-5) }),
            ("support without a clock", Frame::Support { support, wall_us: None }),
        ];
        let golden = Golden { level: Levels::OWN.greatest.0, format: "heartbeats", kinds: &[FRAMES] };
        golden.check(&frames.map(|(name, frame)| (name, frame.encode())), |_, bytes| {
            let frame = Frame::decode(bytes).expect("a frame");
            Decoded { kinds: vec![kind_of(&frame)], shown: format!("{frame:?}"), encoded: Some(frame.encode()) }
        });
    }
}
