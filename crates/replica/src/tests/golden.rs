//! The golden bytes of what replicas write: entries of the log, records in a tablet's data, frames to other nodes.

use crate::group::entry::{Payload, mutations};
use crate::group::merge::{Closing, MergeReply, MergeStep, REOPEN, Reopening};
use crate::group::split::{SPLIT, Split, SplitMark};
use crate::group::wire::{Envelope, begin_frame, envelopes, put_envelope};
use crate::lifecycle::copy::wire::{Frame, Held, Listed, State};
use diorite_base::mutation::{Mutation, OperationKind};
use diorite_base::program::LoggedProgram;
use diorite_base::{GroupId, Levels, NodeId, TabletId};
use diorite_golden::{Decoded, Golden, kinds};
use diorite_raft::{ConfState, Entry, EntryType, Epoch, MarkedPayload, Message, MessageType, Term};
use protobuf::Message as _;

kinds!(ENVELOPES, envelope_kind(Envelope):
    Raft, Released, Ask, Position, Lost, Suspect, Floor, Standing, Prepared, Opened);
kinds!(MESSAGE_KINDS, message_kind(MessageType):
    MsgHup, MsgBeat, MsgPropose, MsgAppend, MsgAppendResponse, MsgRequestVote, MsgRequestVoteResponse, MsgSnapshot,
    MsgHeartbeat, MsgHeartbeatResponse, MsgUnreachable, MsgSnapStatus, MsgCheckQuorum, MsgTransferLeader, MsgTimeoutNow,
    MsgReadIndex, MsgReadIndexResp, MsgRequestPreVote, MsgRequestPreVoteResponse);
kinds!(COPY_FRAMES, copy_kind(Frame):
    Begin, Piece, Complete, End, Have, Credit, Ended, Alive, Ask, Answer, Reach, Reached, GivenUp);
kinds!(COPY_STATES, copy_state(State): UnderWay, Done, Refused, Broken);
kinds!(STEPS, step_kind(MergeStep): Close, Begin, Take, TakePiece, Finish, Discard);
kinds!(REPLIES, reply_kind(MergeReply): Done, Finished, Superseded);
kinds!(ENTRY_KINDS, entry_kind(EntryType): EntryNormal, EntryConfChange, EntryConfChangeV2);

fn golden<'a>(format: &'a str, kinds: &'a [&'a [&'a str]]) -> Golden<'a> {
    Golden { level: Levels::OWN.greatest.0, format, kinds }
}

fn split() -> Split {
    Split { boundary: vec![0x80, 0, 0, 0, 0, 0, 0, 1], children: [TabletId(1_001), TabletId(1_002)] }
}

fn entry(data: Vec<u8>, context: &[u8]) -> Entry {
    Entry { term: 3, index: 300, data: data.into(), context: context.to_vec().into(), ..Entry::default() }
}

fn payload() -> Vec<u8> {
    let mut mutation = Mutation::blind(None);
    mutation.push(OperationKind::Overwrite, true, b"key", &[0x41, 0, 0, 0, 0, 0, 0, 0, 0, 7]);
    mutation.stamp(1_700_000_000_000_000);
    let mut payload = Payload::default();
    payload.push_time(1_700_000_000_000_000, 864_000);
    payload.push(&mutation, 0);
    payload.take()
}

fn change_of_members(data: &[u8], kind: EntryType) -> Entry {
    let mut changed = entry(data.to_vec(), &[]);
    changed.set_entry_type(kind);
    changed
}

#[test]
fn entries_of_the_log_have_their_bytes() {
    let (v2, v1) = (EntryType::EntryConfChangeV2, EntryType::EntryConfChange);
    let entries = [
        ("of a new leader", entry(Vec::new(), &[])),
        ("writes", entry(payload(), &[])),
        ("split", entry(MarkedPayload::encode(&split()), SPLIT)),
        ("reopen", entry(MarkedPayload::encode(&Reopening::new(77)), REOPEN)),
        // `member-changes.txt` of the crate `raft` has all of these.
        ("a joint configuration", change_of_members(&[8, 2, 18, 2, 16, 4, 18, 4, 8, 1, 16, 1], v2)),
        ("the end of a joint configuration", change_of_members(&[], v2)),
        ("a change of members of an earlier version", change_of_members(&[16, 2, 24, 4], v1)),
    ];
    let written = entries.map(|(name, entry)| (name, entry.write_to_bytes().unwrap()));
    golden("entries", &[ENTRY_KINDS]).check(&written, |_, bytes| {
        let entry = Entry::parse_from_bytes(bytes).unwrap();
        let Entry { term, index, data, context, .. } = &entry;
        let content = match &context[..] {
            SPLIT => format!("{:?}", Split::decode(data).unwrap()),
            REOPEN => format!("{:?}", Reopening::decode(data).unwrap()),
            [] if entry.get_entry_type() == EntryType::EntryNormal => {
                format!("{:?}", mutations(data).unwrap().map(Result::unwrap).collect::<Vec<_>>())
            }
            context => format!("{context:?} {data:?}"),
        };
        let kind = entry.get_entry_type();
        let shown = format!("{kind:?}, index {index}, term {term}: {content}");
        Decoded { kinds: vec![entry_kind(&kind)], shown, encoded: Some(entry.write_to_bytes().unwrap()) }
    });
}

#[test]
fn records_in_a_tablets_data_have_their_bytes() {
    let mark = SplitMark { parent: TabletId(1_000), index: 300, term: 3, split: split() };
    let written = [("split", mark.encode())];
    golden("split-record", &[]).check(&written, |_, bytes| {
        let mark = SplitMark::decode(bytes).unwrap();
        Decoded { kinds: vec![], shown: format!("{mark:?}"), encoded: Some(mark.encode()) }
    });
    let mut members = ConfState::default();
    members.set_voters(vec![1, 2, 3]);
    members.set_learners(vec![4]);
    let mut joint = members.clone();
    joint.set_voters_outgoing(vec![1, 2, 5]);
    joint.set_learners_next(vec![5]);
    joint.set_auto_leave(true);
    let written = [("voters and a learner", &members), ("a joint configuration", &joint)];
    let written = written.map(|(name, members)| (name, members.write_to_bytes().unwrap()));
    golden("members-record", &[]).check(&written, |_, bytes| {
        let members = ConfState::parse_from_bytes(bytes).unwrap();
        Decoded { kinds: vec![], shown: format!("{members:?}"), encoded: Some(members.write_to_bytes().unwrap()) }
    });
}

#[test]
fn steps_of_merges_have_their_bytes() {
    let (from, attempt, range) = (TabletId(1_001), 9, (vec![1; 8], vec![2; 9]));
    let closing = Closing { newest_stamp_us: 1_700_000_000_000_000, newest_explicit_us: i64::MIN, flags: 1 };
    let rows = vec![(vec![1; 9], vec![7; 200]), (vec![1; 10], vec![])];
    let (key, piece) = (vec![1; 12], vec![3; 5]);
    let steps = [
        ("close", MergeStep::Close { tablet: from, number: 7 }),
        ("close, without a number", MergeStep::Close { tablet: TabletId(0), number: 0 }),
        ("begin", MergeStep::Begin { from, number: 7, attempt, range: range.clone() }),
        ("begin, without a number", MergeStep::Begin { from, number: 0, attempt, range: range.clone() }),
        ("take", MergeStep::Take { from, attempt, number: 1, instead_of: None, rows: rows.clone() }),
        ("take instead", MergeStep::Take { from, attempt, number: 2, instead_of: Some(range.clone()), rows }),
        (
            "take a piece",
            MergeStep::TakePiece {
                from,
                attempt,
                number: 3,
                instead_of: None,
                key: key.clone(),
                piece: piece.clone(),
                is_last: false,
            },
        ),
        (
            "take the last piece",
            MergeStep::TakePiece {
                from,
                attempt,
                number: 4,
                instead_of: Some(range.clone()),
                key,
                piece,
                is_last: true,
            },
        ),
        ("finish", MergeStep::Finish { from, attempt, parts: 4, closing }),
        ("discard", MergeStep::Discard { from, number: 7, range }),
    ];
    let written = steps.map(|(name, step)| (name, LoggedProgram::encode(&step)));
    golden("merge-steps", &[STEPS]).check(&written, |_, bytes| {
        let step = MergeStep::decode(bytes).unwrap();
        let encoded = Some(LoggedProgram::encode(&step));
        Decoded { kinds: vec![step_kind(&step)], shown: format!("{step:?}"), encoded }
    });
}

#[test]
fn replies_to_steps_of_merges_have_their_bytes() {
    let replies =
        [("done", MergeReply::Done), ("finished", MergeReply::Finished), ("superseded", MergeReply::Superseded)];
    golden("merge-replies", &[REPLIES]).check(&replies.map(|(name, reply)| (name, reply.encode())), |_, bytes| {
        let reply = MergeReply::decode(bytes).unwrap();
        Decoded { kinds: vec![reply_kind(&reply)], shown: format!("{reply:?}"), encoded: Some(reply.encode()) }
    });
}

fn message(kind: MessageType, change: impl FnOnce(&mut Message)) -> Envelope {
    let mut message = Message { to: 2, from: 1, term: 3, ..Message::default() };
    message.set_msg_type(kind);
    change(&mut message);
    Envelope::Raft { epoch: Epoch(0), keep_from: 0, message: Box::new(message) }
}

fn with_epoch(envelope: Envelope, epoch: u64, keep_from: u64) -> Envelope {
    match envelope {
        Envelope::Raft { message, .. } => Envelope::Raft { epoch: Epoch(epoch), keep_from, message },
        other => other,
    }
}

fn raft_messages() -> Vec<(&'static str, Envelope)> {
    use MessageType::{MsgAppend, MsgAppendResponse, MsgHeartbeat, MsgHeartbeatResponse};
    let entries = |message: &mut Message, context: &[u8]| {
        (message.log_term, message.index, message.commit) = (2, 299, 298);
        message.entries = vec![entry(payload(), context)].into();
    };
    let mut found = vec![
        ("append", with_epoch(message(MsgAppend, |message| entries(message, &[])), 0, 290)),
        ("append, with a mark", with_epoch(message(MsgAppend, |message| entries(message, b"split")), 0, 290)),
        ("acknowledged", with_epoch(message(MsgAppendResponse, |message| message.index = 300), 9, 0)),
        ("acknowledged, of a copy", message(MsgAppendResponse, |message| (message.index, message.log_term) = (300, 3))),
        (
            "rejected",
            message(MsgAppendResponse, |message| {
                (message.index, message.reject, message.reject_hint) = (300, true, 290);
            }),
        ),
        ("heartbeat", with_epoch(message(MsgHeartbeat, |message| message.commit = 300), 0, 7)),
        ("heartbeat answered", message(MsgHeartbeatResponse, |message| message.commit = 1)),
    ];
    use MessageType::{MsgRequestPreVote, MsgRequestPreVoteResponse, MsgRequestVote, MsgRequestVoteResponse};
    let votes = [
        ("vote", MsgRequestVote),
        ("vote answered", MsgRequestVoteResponse),
        ("pre-vote", MsgRequestPreVote),
        ("pre-vote answered", MsgRequestPreVoteResponse),
    ];
    found.extend(votes.map(|(name, kind)| {
        let position = |message: &mut Message| {
            (message.index, message.log_term, message.commit, message.commit_term) = (300, 3, 290, 2);
            message.reject = name.ends_with("answered");
            message.context = b"CampaignTransfer".to_vec().into();
        };
        (name, message(kind, position))
    }));
    found.extend([("time out", message(MessageType::MsgTimeoutNow, |_| ()))]);
    found
}

#[test]
fn frames_between_replicas_have_their_bytes() {
    let mut cases = raft_messages();
    cases.extend([
        ("released", Envelope::Released { term: Term(4), candidate: 2 }),
        ("ask", Envelope::Ask { asked_ns: 1 << 50 }),
        ("position", Envelope::Position { asked_ns: 1 << 50, index: 12 }),
        ("lost", Envelope::Lost { index: 1 << 33 }),
        ("suspect", Envelope::Suspect { index: 1 << 34 }),
        ("floor", Envelope::Floor { term: Term(3), index: 1 << 35, last_term: 2 }),
        ("standing", Envelope::Standing { index: 1 << 36, term: 7 }),
        ("prepared", Envelope::Prepared),
        ("opened", Envelope::Opened),
    ]);
    let framed = |envelopes: &[(GroupId, Envelope)]| {
        let mut frame = Vec::new();
        begin_frame(&mut frame);
        envelopes.iter().for_each(|(group, envelope)| put_envelope(&mut frame, *group, envelope));
        frame
    };
    let mut written: Vec<_> =
        cases.iter().map(|(name, envelope)| (*name, framed(&[(GroupId(1_000), envelope.clone())]))).collect();
    let all: Vec<_> = (1_000..).map(GroupId).zip(cases.into_iter().map(|(_, envelope)| envelope)).collect();
    written.push(("all in one frame", framed(&all)));
    golden("replica-frames", &[ENVELOPES, SENT]).check(&written, |_, bytes| {
        let found = envelopes(bytes).unwrap();
        let mut kinds: Vec<_> = found.iter().map(|(_, envelope)| envelope_kind(envelope)).collect();
        kinds.extend(found.iter().filter_map(|(_, envelope)| match envelope {
            Envelope::Raft { message, .. } => Some(message_kind(&message.get_msg_type())),
            _ => None,
        }));
        Decoded { kinds, shown: format!("{found:?}"), encoded: Some(framed(&found)) }
    });
}

/// The kinds of messages that replicas send one another; [`MESSAGE_KINDS`] has those of their library.
const SENT: &[&str] = &[
    "MessageType::MsgAppend",
    "MessageType::MsgAppendResponse",
    "MessageType::MsgRequestVote",
    "MessageType::MsgRequestVoteResponse",
    "MessageType::MsgHeartbeat",
    "MessageType::MsgHeartbeatResponse",
    "MessageType::MsgTimeoutNow",
    "MessageType::MsgRequestPreVote",
    "MessageType::MsgRequestPreVoteResponse",
];

#[test]
fn frames_of_copies_have_their_bytes() {
    let (copy, tablet) = (0x0102_0304_0506_0708, TabletId(1_000));
    let held = Held { name: "000012.sst".to_owned(), size: 1 << 33, crc: u32::MAX };
    let files = ["CURRENT", "000012.sst"].map(|name| Listed { name: name.to_owned(), size: 300 }).to_vec();
    let answer = |state| Frame::Answer { copy, state, failure: "busy" };
    let frames = [
        ("begin", Frame::Begin { copy, tablet, applied: 1 << 40, files }),
        ("piece", Frame::Piece { copy, name: "000012.sst", offset: 1 << 33, data: b"data" }),
        ("complete", Frame::Complete { copy, name: "CURRENT", size: 16, crc: 7 }),
        ("end", Frame::End { copy }),
        ("have", Frame::Have { copy, files: vec![held] }),
        ("credit", Frame::Credit { copy, allowed: 1 << 50, taken: 6 }),
        ("installed", Frame::Ended { copy, failure: "" }),
        ("ended", Frame::Ended { copy, failure: "no room" }),
        ("alive", Frame::Alive { copy }),
        ("ask", Frame::Ask { copy, tablet, to: NodeId(3), needed: 9 }),
        ("under way", answer(State::UnderWay)),
        ("done", answer(State::Done)),
        ("refused", answer(State::Refused)),
        ("broken off", answer(State::Broken)),
        ("reach", Frame::Reach { copy, tablet }),
        ("reached", Frame::Reached { copy, start: 1 << 35 }),
        ("given up", Frame::GivenUp { copy, failure: "no leader" }),
    ];
    let encoded = |frame: &Frame<'_>| {
        let mut out = Vec::new();
        frame.encode(&mut out);
        out
    };
    let written = frames.map(|(name, frame)| (name, encoded(&frame)));
    golden("copy-frames", &[COPY_FRAMES, COPY_STATES]).check(&written, |_, bytes| {
        let frame = Frame::decode(bytes).unwrap();
        let mut kinds = vec![copy_kind(&frame)];
        kinds.extend(match &frame {
            Frame::Answer { state, .. } => Some(copy_state(state)),
            _ => None,
        });
        Decoded { kinds, shown: format!("{frame:?}"), encoded: Some(encoded(&frame)) }
    });
}

/// A kind of message that the library gains is sent or not: that has to be decided.
#[test]
fn what_is_not_sent_is_local() {
    let local: Vec<_> = MESSAGE_KINDS.iter().filter(|kind| !SENT.contains(kind)).collect();
    assert_eq!(local.len(), 10, "{local:?}");
}
