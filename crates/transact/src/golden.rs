//! The golden bytes of steps, calls and answers.
#![allow(clippy::unwrap_used, reason = "tests")]

use crate::ids::{Home, Participant, Prepared, TransactionId};
use crate::message::{Refusal, Reply, Request, Status};
use crate::step::{Commit, Ending, Operation, Prepare, Step, decode_steps, encode_steps};
use crate::targets::{Target, Targets};
use crate::wire::tests::{answers, calls};
use crate::wire::{Answer, Call};
use diorite_base::{Levels, TableId, TabletId};
use diorite_golden::{Decoded, Golden, kinds};
use std::sync::Arc;

kinds!(STEPS, step_kind(Step): Prepare, Commit, Finish, Forget);
kinds!(ENDINGS, ending_kind(Ending): Aborted, Committed);
kinds!(TARGETS, target_kind(Target): Row, Range);
kinds!(CALLS, call_kind(Call): Request, Pin, Unpin);
kinds!(REQUESTS, request_kind(Request): Reserve, Prepare, Commit, Release, Status, Finish, Forget);
kinds!(ANSWERS, answer_kind(Answer): Done, Reply, Pinned, TooLate);
kinds!(REPLIES, reply_kind(Reply):
    Reserved, NotReserved, Prepared, NotPrepared, Committed, Lost, Status, Finished);
kinds!(REFUSALS, refusal_kind(Refusal): Held, ConditionFailed, Unavailable);
kinds!(STATUSES, status_kind(Status): Committed, NotYet, Aborted);

fn golden<'a>(format: &'a str, kinds: &'a [&'a [&'a str]]) -> Golden<'a> {
    Golden { level: Levels::OWN.greatest.0, format, kinds }
}

fn id() -> TransactionId {
    TransactionId { tablet: TabletId(300), term: 7, number: 1_000 }
}

fn steps() -> Vec<(&'static str, Vec<u8>)> {
    let key = || b"row".to_vec();
    let operations: Arc<[Operation]> =
        Arc::new([Operation { key: key(), now_s: 1_700_000_000, program: b"program".to_vec() }]);
    let range = Target::Range { start: b"s".to_vec(), end: b"t".to_vec() };
    let targets = Targets::new(vec![Target::Row(key()), range]);
    let home = Home { table: TableId(9), key: b"home".to_vec(), tells_readers: true };
    let participant = Participant { table: TableId(10), tablet: TabletId(301), key: key() };
    let prepare = Prepare { id: id(), home, targets, operations: operations.clone() };
    let prepared = vec![Prepared { participant, stamp_us: 1_700_000_000_000_000 }];
    let committed = Ending::Committed { prepared_us: 1_700_000_000_000_000, committed_us: 1_700_000_000_000_001 };
    let steps = [
        ("prepare", Step::Prepare(prepare)),
        ("commit", Step::Commit(Commit { id: id(), prepared, operations })),
        ("finish, committed", Step::Finish { id: id(), ending: committed }),
        ("finish, aborted", Step::Finish { id: id(), ending: Ending::Aborted }),
        ("forget", Step::Forget(vec![id(), id()])),
    ];
    steps.into_iter().map(|(name, step)| (name, encode_steps(&[step]))).collect()
}

#[test]
fn steps_have_their_bytes() {
    golden("steps", &[STEPS, ENDINGS, TARGETS]).check(&steps(), |_, bytes| {
        let steps = decode_steps(bytes).unwrap();
        let mut kinds = Vec::new();
        for step in &steps {
            kinds.push(step_kind(step));
            match step {
                Step::Prepare(prepare) => kinds.extend(prepare.targets.iter().map(target_kind)),
                Step::Finish { ending, .. } => kinds.push(ending_kind(ending)),
                Step::Commit(_) | Step::Forget(_) => {}
            }
        }
        Decoded { kinds, shown: format!("{steps:?}"), encoded: Some(encode_steps(&steps)) }
    });
}

/// Cases by their numbers.
fn numbered(cases: Vec<Vec<u8>>, names: &[&'static str]) -> Vec<(&'static str, Vec<u8>)> {
    assert_eq!(cases.len(), names.len());
    names.iter().copied().zip(cases).collect()
}

#[test]
fn calls_have_their_bytes() {
    let written = calls().iter().map(Call::encode).collect();
    let names = [
        "reserve",
        "prepare",
        "commit",
        "commit without a reservation",
        "release",
        "status of a prepare",
        "status at a stamp",
        "finish, committed",
        "finish, aborted",
        "forget",
        "pin",
        "unpin",
    ];
    golden("calls", &[CALLS, REQUESTS]).check(&numbered(written, &names), |_, bytes| {
        let call = Call::decode(bytes).unwrap();
        let mut kinds = vec![call_kind(&call)];
        if let Call::Request(request) = &call {
            kinds.push(request_kind(request));
        }
        Decoded { kinds, shown: format!("{call:?}"), encoded: Some(call.encode()) }
    });
}

#[test]
fn answers_have_their_bytes() {
    let written = answers().iter().map(Answer::encode).collect();
    let names = [
        "done",
        "reserved",
        "a condition failed at home",
        "prepared",
        "held",
        "unavailable",
        "committed",
        "committed, and a number in advance",
        "lost",
        "aborted",
        "not yet",
        "committed at",
        "finished",
        "pinned",
        "too late",
    ];
    golden("answers", &[ANSWERS, REPLIES, REFUSALS, STATUSES]).check(&numbered(written, &names), |_, bytes| {
        let answer = Answer::decode(bytes).unwrap();
        let mut kinds = vec![answer_kind(&answer)];
        if let Answer::Reply { reply, .. } = &answer {
            kinds.push(reply_kind(reply));
            match reply {
                Reply::NotReserved { refusal, .. } | Reply::NotPrepared { refusal, .. } => {
                    kinds.push(refusal_kind(refusal));
                }
                Reply::Status { status, .. } => kinds.push(status_kind(status)),
                _ => {}
            }
        }
        Decoded { kinds, shown: format!("{answer:?}"), encoded: Some(answer.encode()) }
    });
}
