//! What replicas of one tablet on different nodes tell each other, as bytes. All envelopes of a turn to one node travel in one frame.
//!
//! ```text
//! frame    := version u8 (1) · envelope*
//! envelope := group varint · kind u8 · body
//! raft     (1): epoch varint · keep_from varint · message length and bytes (protobuf)
//! released (2): term varint · candidate varint
//! ask      (3): asked ns varint (on the asker's clock)
//! position (4): asked ns varint (as asked) · index varint
//! lost     (5): index varint
//! ```
//!
//! `epoch`: of an acknowledgement, the support epoch that the promise to the leader stands under, or 0. `keep_from`: of a leader's message, the
//! first log index that some member may still need.

use diorite_base::GroupId;
use diorite_base::bytes::{Malformed, Reader, put_varint};
use diorite_raft::Message;
use protobuf::{CodedOutputStream, Message as _};

const VERSION: u8 = 1;
const RAFT: u8 = 1;
const RELEASED: u8 = 2;
const ASK: u8 = 3;
const POSITION: u8 = 4;
const LOST: u8 = 5;
const PREPARED: u8 = 6;
const OPENED: u8 = 7;

/// One message between replicas.
#[derive(Debug, Clone)]
pub enum Envelope {
    /// Consensus.
    Raft {
        /// The support epoch of an acknowledgement, or 0.
        epoch: u64,
        /// The first log index that a member may still need, if a leader says so.
        keep_from: u64,
        /// The message.
        message: Box<Message>,
    },
    /// The leader gives up its lease for the rest of its term: promises to it are void.
    Released {
        /// The term that it led in.
        term: u64,
        /// The replica that should campaign, or 0.
        candidate: u64,
    },
    /// A follower asks how far the log has been applied where it is led.
    Ask {
        /// When it asked, on its own monotonic clock.
        asked_ns: u64,
    },
    /// The leader's answer, given under its lease.
    Position {
        /// As asked.
        asked_ns: u64,
        /// Everything that was acknowledged before it was asked is at or before this index.
        index: u64,
    },
    /// A replica that was closed and opened anew holds no entry after this one, whatever it has acknowledged before.
    Lost {
        /// The last entry that it holds.
        index: u64,
    },
    /// The children of this tablet, which is to be split, are prepared at the sender.
    Prepared,
    /// The sender's replica is open and knows of no leader: it is a new child's, or was opened anew.
    Opened,
}

/// Begins a frame.
pub(crate) fn begin_frame(out: &mut Vec<u8>) {
    out.push(VERSION);
}

/// Appends an envelope to a frame.
pub(crate) fn put_envelope(out: &mut Vec<u8>, group: GroupId, envelope: &Envelope) {
    if let Envelope::Raft { epoch, keep_from, message } = envelope {
        put_message(out, group, (*epoch, *keep_from), message);
        return;
    }
    put_varint(out, group.0);
    match envelope {
        Envelope::Raft { .. } => {}
        Envelope::Released { term, candidate } => {
            out.push(RELEASED);
            put_varint(out, *term);
            put_varint(out, *candidate);
        }
        Envelope::Ask { asked_ns } => {
            out.push(ASK);
            put_varint(out, *asked_ns);
        }
        Envelope::Position { asked_ns, index } => {
            out.push(POSITION);
            put_varint(out, *asked_ns);
            put_varint(out, *index);
        }
        Envelope::Lost { index } => {
            out.push(LOST);
            put_varint(out, *index);
        }
        Envelope::Prepared => out.push(PREPARED),
        Envelope::Opened => out.push(OPENED),
    }
}

/// Appends a consensus message to a frame, as an [`Envelope::Raft`] with its epoch and where the log is to be kept from.
pub(crate) fn put_message(out: &mut Vec<u8>, group: GroupId, (epoch, keep_from): (u64, u64), message: &Message) {
    put_varint(out, group.0);
    out.push(RAFT);
    put_varint(out, epoch);
    put_varint(out, keep_from);
    let size = message.compute_size();
    put_varint(out, u64::from(size));
    out.reserve(size as usize);
    let mut stream = CodedOutputStream::vec(out);
    let written = message.write_to_with_cached_sizes(&mut stream).and_then(|()| stream.flush());
    assert!(written.is_ok(), "writing to memory does not fail");
}

/// The envelopes of a frame of the Raft lane.
pub fn envelopes(frame: &[u8]) -> Result<Vec<(GroupId, Envelope)>, Malformed> {
    let mut reader = Reader::new(frame);
    if reader.u8()? != VERSION {
        return Err(Malformed);
    }
    let mut found = Vec::new();
    while !reader.is_empty() {
        let group = GroupId(reader.varint()?);
        let envelope = match reader.u8()? {
            RAFT => {
                let (epoch, keep_from) = (reader.varint()?, reader.varint()?);
                let message = Message::parse_from_bytes(reader.slice()?).map_err(|_| Malformed)?;
                Envelope::Raft { epoch, keep_from, message: Box::new(message) }
            }
            RELEASED => Envelope::Released { term: reader.varint()?, candidate: reader.varint()? },
            ASK => Envelope::Ask { asked_ns: reader.varint()? },
            POSITION => Envelope::Position { asked_ns: reader.varint()?, index: reader.varint()? },
            LOST => Envelope::Lost { index: reader.varint()? },
            PREPARED => Envelope::Prepared,
            OPENED => Envelope::Opened,
            _ => return Err(Malformed),
        };
        found.push((group, envelope));
    }
    Ok(found)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn envelopes_come_back_as_they_went_in() {
        let message = Message { term: 7, to: 3, ..Message::default() };
        let sent = [
            Envelope::Raft { epoch: 9, keep_from: 1 << 40, message: Box::new(message) },
            Envelope::Released { term: 4, candidate: 2 },
            Envelope::Ask { asked_ns: 1 << 50 },
            Envelope::Position { asked_ns: 1 << 50, index: 12 },
            Envelope::Lost { index: 1 << 33 },
            Envelope::Prepared,
            Envelope::Opened,
        ];
        let mut frame = Vec::new();
        begin_frame(&mut frame);
        sent.iter().for_each(|envelope| put_envelope(&mut frame, GroupId(1_000), envelope));
        let found = envelopes(&frame).expect("own encoding");
        assert_eq!(format!("{found:?}"), format!("{:?}", sent.map(|envelope| (GroupId(1_000), envelope))));
    }

    proptest! {
        #[test]
        fn no_input_panics(mut bytes: Vec<u8>, versioned: bool) {
            if versioned && !bytes.is_empty() {
                bytes[0] = VERSION;
            }
            let _ = envelopes(&bytes);
        }
    }
}
