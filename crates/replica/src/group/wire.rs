//! The messages between replicas of one tablet, as bytes. All envelopes of a turn to one node travel in one frame.
//!
//! ```text
//! frame    := version u8 (1) · envelope*
//! envelope := group varint · kind u8 · body
//! raft     (1): epoch varint · keep_from varint · message length and bytes (protobuf)
//! released (2): term varint · candidate varint
//! ask      (3): asked ns varint (on the asker's clock)
//! position (4): asked ns varint (as asked) · index varint
//! lost     (5): index varint
//! prepared (6), opened (7): nothing
//! append   (8): keep_from · to · from · term · log_term · index · commit · count, varints · entry*
//!   entry  := term varint · length varint · data
//! acknowledged (9): epoch · to · from · term · index · commit, varints
//! suspect (10): index varint
//! floor (11): term varint · index varint · last term varint
//! standing (12): index varint · term varint
//! ```
//!
//! Nearly all messages are entries and their acknowledgements. Those that the short forms `append` and `acknowledged`
//! can represent (entries without a context, with consecutive indexes after `index`) travel in these; all other
//! messages of consensus travel in its own encoding, as `raft`.
//!
//! `epoch`: in an acknowledgement, the support epoch of the promise to the leader, or 0. `keep_from`: in a leader's
//! message, the first log index that some member may still need.

use diorite_base::GroupId;
use diorite_base::bytes::{Malformed, Reader, put_slice, put_varint};
use diorite_raft::{Entry, EntryType, Epoch, Message, MessageType, Term};
use protobuf::{CodedOutputStream, Message as _};

const VERSION: u8 = 1;
const RAFT: u8 = 1;
const RELEASED: u8 = 2;
const ASK: u8 = 3;
const POSITION: u8 = 4;
const LOST: u8 = 5;
const PREPARED: u8 = 6;
const OPENED: u8 = 7;
const APPEND: u8 = 8;
const ACKNOWLEDGED: u8 = 9;
const SUSPECT: u8 = 10;
const FLOOR: u8 = 11;
const STANDING: u8 = 12;

/// One message between replicas.
#[derive(Debug, Clone)]
pub enum Envelope {
    /// A message of consensus.
    Raft {
        /// The support epoch of an acknowledgement, or [`Epoch::NONE`].
        epoch: Epoch,
        /// The first log index that a member may still need, in a leader's message.
        keep_from: u64,
        /// The message.
        message: Box<Message>,
    },
    /// The leader ends its lease for the rest of its term: promises to it are void.
    Released {
        /// The term that it led in.
        term: Term,
        /// The replica that should campaign, or 0.
        candidate: u64,
    },
    /// A follower asks for the leader's applied position.
    Ask {
        /// When it asked, on its own monotonic clock.
        asked_ns: u64,
    },
    /// The leader's answer, given under its lease.
    Position {
        /// `asked_ns` of the question.
        asked_ns: u64,
        /// An index at or after everything that was acknowledged before the question.
        index: u64,
    },
    /// A replica that was closed and opened empty holds no entry after this one, whatever it has acknowledged before.
    Lost {
        /// The last entry that it holds.
        index: u64,
    },
    /// A replica whose log may have lost its end: it does not know what it has acknowledged, and is not certain of
    /// entries after this one.
    Suspect {
        /// The last entry that it holds for certain.
        index: u64,
    },
    /// The leader's answer: the replica has acknowledged nothing after the end of the leader's log.
    Floor {
        /// The term in which it leads.
        term: Term,
        /// The last entry of its log.
        index: u64,
        /// Its term.
        last_term: u64,
    },
    /// The answer of a voter that does not lead: where its log ends.
    Standing {
        /// The last entry.
        index: u64,
        /// Its term.
        term: u64,
    },
    /// The sender has prepared the child tablets of this tablet, which is to be split.
    Prepared,
    /// The sender's replica was opened and knows of no leader: it is of a new child tablet, or was opened again.
    Opened,
}

/// Begins a frame.
pub(crate) fn begin_frame(out: &mut Vec<u8>) {
    out.push(VERSION);
}

/// Appends an envelope to a frame.
pub(crate) fn put_envelope(out: &mut Vec<u8>, group: GroupId, envelope: &Envelope) {
    if let Envelope::Raft { epoch, keep_from, message } = envelope {
        put_message(out, group, Attached { epoch: *epoch, keep_from: *keep_from }, message);
        return;
    }
    put_varint(out, group.0);
    match envelope {
        Envelope::Raft { .. } => {}
        Envelope::Released { term, candidate } => {
            out.push(RELEASED);
            put_varint(out, term.0);
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
        Envelope::Suspect { index } => {
            out.push(SUSPECT);
            put_varint(out, *index);
        }
        Envelope::Floor { term, index, last_term } => {
            out.push(FLOOR);
            [term.0, *index, *last_term].into_iter().for_each(|number| put_varint(out, number));
        }
        Envelope::Standing { index, term } => {
            out.push(STANDING);
            put_varint(out, *index);
            put_varint(out, *term);
        }
        Envelope::Prepared => out.push(PREPARED),
        Envelope::Opened => out.push(OPENED),
    }
}

/// The data that travels with a message of consensus, see [`Envelope::Raft`].
#[derive(Debug, Clone, Copy)]
pub(crate) struct Attached {
    pub(crate) epoch: Epoch,
    pub(crate) keep_from: u64,
}

/// Appends a consensus message to a frame, as an [`Envelope::Raft`].
pub(crate) fn put_message(out: &mut Vec<u8>, group: GroupId, attached: Attached, message: &Message) {
    let Attached { epoch, keep_from } = attached;
    put_varint(out, group.0);
    match message.get_msg_type() {
        MessageType::MsgAppend
            if epoch == Epoch::NONE && is_plain(message) && are_plain(&message.entries, message.index) =>
        {
            out.push(APPEND);
            let Message { to, from, term, log_term, index, commit, entries, .. } = message;
            for number in [keep_from, *to, *from, *term, *log_term, *index, *commit, entries.len() as u64] {
                put_varint(out, number);
            }
            for entry in entries {
                put_varint(out, entry.term);
                put_slice(out, &entry.data);
            }
        }
        MessageType::MsgAppendResponse
            if keep_from == 0 && is_plain(message) && message.log_term == 0 && message.entries.is_empty() =>
        {
            out.push(ACKNOWLEDGED);
            let Message { to, from, term, index, commit, .. } = message;
            for number in [epoch.0, *to, *from, *term, *index, *commit] {
                put_varint(out, number);
            }
        }
        _ => {
            out.push(RAFT);
            put_varint(out, epoch.0);
            put_varint(out, keep_from);
            let size = message.compute_size();
            put_varint(out, u64::from(size));
            out.reserve(size as usize);
            let mut stream = CodedOutputStream::vec(out);
            let written = message.write_to_with_cached_sizes(&mut stream).and_then(|()| stream.flush());
            assert!(written.is_ok(), "writing to memory does not fail");
        }
    }
}

/// Whether the message has no other content than kind, sender, receiver, terms, index, commit index and entries.
fn is_plain(message: &Message) -> bool {
    !message.reject
        && message.reject_hint == 0
        && message.request_snapshot == 0
        && message.commit_term == 0
        && (message.priority, message.deprecated_priority) == (0, 0)
        && message.context.is_empty()
        && !message.has_snapshot()
}

/// Whether these are the entries after `index`, with no other content than terms and data.
fn are_plain(entries: &[Entry], index: u64) -> bool {
    let is_plain = |(entry, index): (&Entry, u64)| {
        entry.get_entry_type() == EntryType::EntryNormal
            && entry.index == index
            && entry.context.is_empty()
            && !entry.sync_log
    };
    // The sum does not saturate: no log is so long.
    entries.iter().zip(index.saturating_add(1)..).all(is_plain)
}

fn append(reader: &mut Reader<'_>) -> Result<Envelope, Malformed> {
    let keep_from = reader.varint()?;
    let mut message = Message { to: reader.varint()?, from: reader.varint()?, ..Message::default() };
    message.set_msg_type(MessageType::MsgAppend);
    (message.term, message.log_term) = (reader.varint()?, reader.varint()?);
    (message.index, message.commit) = (reader.varint()?, reader.varint()?);
    let mut index = message.index;
    for _ in 0..reader.varint()? {
        index = index.checked_add(1).ok_or(Malformed)?;
        let term = reader.varint()?;
        let data = reader.slice()?.to_vec().into();
        message.entries.push(Entry { term, index, data, ..Entry::default() });
    }
    Ok(Envelope::Raft { epoch: Epoch::NONE, keep_from, message: Box::new(message) })
}

fn acknowledged(reader: &mut Reader<'_>) -> Result<Envelope, Malformed> {
    let epoch = Epoch(reader.varint()?);
    let mut message = Message { to: reader.varint()?, from: reader.varint()?, ..Message::default() };
    message.set_msg_type(MessageType::MsgAppendResponse);
    (message.term, message.index, message.commit) = (reader.varint()?, reader.varint()?, reader.varint()?);
    Ok(Envelope::Raft { epoch, keep_from: 0, message: Box::new(message) })
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
                let (epoch, keep_from) = (Epoch(reader.varint()?), reader.varint()?);
                let message = Message::parse_from_bytes(reader.slice()?).map_err(|_| Malformed)?;
                Envelope::Raft { epoch, keep_from, message: Box::new(message) }
            }
            RELEASED => Envelope::Released { term: Term(reader.varint()?), candidate: reader.varint()? },
            ASK => Envelope::Ask { asked_ns: reader.varint()? },
            POSITION => Envelope::Position { asked_ns: reader.varint()?, index: reader.varint()? },
            LOST => Envelope::Lost { index: reader.varint()? },
            SUSPECT => Envelope::Suspect { index: reader.varint()? },
            FLOOR => {
                Envelope::Floor { term: Term(reader.varint()?), index: reader.varint()?, last_term: reader.varint()? }
            }
            STANDING => Envelope::Standing { index: reader.varint()?, term: reader.varint()? },
            PREPARED => Envelope::Prepared,
            OPENED => Envelope::Opened,
            APPEND => append(&mut reader)?,
            ACKNOWLEDGED => acknowledged(&mut reader)?,
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
            Envelope::Raft { epoch: Epoch(9), keep_from: 1 << 40, message: Box::new(message) },
            Envelope::Released { term: Term(4), candidate: 2 },
            Envelope::Ask { asked_ns: 1 << 50 },
            Envelope::Position { asked_ns: 1 << 50, index: 12 },
            Envelope::Lost { index: 1 << 33 },
            Envelope::Suspect { index: 1 << 34 },
            Envelope::Floor { term: Term(3), index: 1 << 35, last_term: 2 },
            Envelope::Standing { index: 1 << 36, term: 7 },
            Envelope::Prepared,
            Envelope::Opened,
        ];
        let mut frame = Vec::new();
        begin_frame(&mut frame);
        sent.iter().for_each(|envelope| put_envelope(&mut frame, GroupId(1_000), envelope));
        let found = envelopes(&frame).expect("own encoding");
        assert_eq!(format!("{found:?}"), format!("{:?}", sent.map(|envelope| (GroupId(1_000), envelope))));
    }

    /// Messages of the kinds with a short form, some of which it cannot represent.
    fn message() -> impl Strategy<Value = Message> {
        let entry = (0..4u64, prop::collection::vec(any::<u8>(), 0..40), 0..40u8);
        let numbers = prop::array::uniform6(prop_oneof![0..4u64, any::<u64>()]);
        (numbers, prop::collection::vec(entry, 0..4), any::<bool>(), 0..20u8).prop_map(
            |([to, from, term, log_term, index, commit], entries, acknowledges, oddity)| {
                let mut message = Message { to, from, term, log_term, index, commit, ..Message::default() };
                if acknowledges {
                    message.set_msg_type(MessageType::MsgAppendResponse);
                    (message.log_term, message.reject) = (log_term * u64::from(oddity == 0), oddity == 1);
                    message.reject_hint = u64::from(oddity == 2);
                    message.request_snapshot = u64::from(oddity == 3);
                    return message;
                }
                message.set_msg_type(MessageType::MsgAppend);
                message.context = vec![1; usize::from(oddity == 0)].into();
                message.commit_term = u64::from(oddity == 1);
                for (place, (term, data, oddity)) in entries.into_iter().enumerate() {
                    let index = index.saturating_add(1 + place as u64 + u64::from(oddity == 0));
                    let mut entry = Entry { term, index, data: data.into(), ..Entry::default() };
                    entry.context = vec![2; usize::from(oddity == 1)].into();
                    if oddity == 2 {
                        entry.set_entry_type(EntryType::EntryConfChangeV2);
                    }
                    message.entries.push(entry);
                }
                message
            },
        )
    }

    proptest! {
        #[test]
        fn messages_come_back_as_they_went_in(sent in prop::collection::vec((message(), any::<u64>()), 1..5)) {
            let mut frame = Vec::new();
            begin_frame(&mut frame);
            for (message, number) in &sent {
                for (epoch, keep_from) in [(*number, *number), (0, *number), (*number, 0)] {
                    put_message(&mut frame, GroupId(7), Attached { epoch: Epoch(epoch), keep_from }, message);
                }
            }
            let mut found = envelopes(&frame).expect("own encoding").into_iter();
            for (message, number) in sent {
                for numbers in [(number, number), (0, number), (number, 0)] {
                    let Some((GroupId(7), Envelope::Raft { epoch, keep_from, message: found })) = found.next() else {
                        panic!("another group or kind");
                    };
                    prop_assert_eq!(((epoch.0, keep_from), &*found), (numbers, &message));
                }
            }
            prop_assert!(found.next().is_none());
        }

        #[test]
        fn no_input_panics(mut bytes: Vec<u8>, versioned: bool) {
            if versioned && !bytes.is_empty() {
                bytes[0] = VERSION;
            }
            let _ = envelopes(&bytes);
        }
    }
}
