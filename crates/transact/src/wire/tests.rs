//! The codec of calls and answers.

use super::*;
use crate::targets::Target;
use diorite_base::TableId;

fn id() -> TransactionId {
    TransactionId { tablet: TabletId(300), term: 7, number: 1_000 }
}

fn home() -> Home {
    Home { table: TableId(9), key: b"home".to_vec(), tells_readers: true }
}

pub(crate) fn calls() -> Vec<Call> {
    let participant = crate::Participant { table: TableId(9), tablet: TabletId(5), key: b"other".to_vec() };
    let program = Program(b"program".to_vec());
    let targets = Targets::default;
    let ending = Ending::Committed { prepared_us: 5, committed_us: 6 };
    let requests = vec![
        Request::Reserve { attempt: 2, targets: targets(), program: program.clone(), wait_ns: None },
        Request::Prepare { id: id(), home: home(), targets: targets(), program: program.clone(), wait_ns: Some(1_000) },
        Request::Commit {
            id: id(),
            prepared: vec![Prepared { participant: participant.clone(), stamp_us: -1 }],
            part: None,
        },
        Request::Commit {
            id: id(),
            prepared: vec![Prepared { participant, stamp_us: 1 }],
            part: Some(HomePart { attempt: 2, targets: targets(), program }),
        },
        Request::Release(id()),
        Request::Status { id: id(), of: Some((TabletId(1), 4)), at_us: None },
        Request::Status { id: id(), of: None, at_us: Some(i64::MIN) },
        Request::Finish { id: id(), ending },
        Request::Finish { id: id(), ending: Ending::Aborted },
        Request::Forget(vec![id(), id()]),
    ];
    let pinned = Targets::new(vec![Target::Row(b"k".to_vec())]);
    let others = [Call::Pin(77, pinned), Call::Unpin(PinId(u64::MAX))];
    requests.into_iter().map(Call::Request).chain(others).collect()
}

pub(crate) fn answers() -> Vec<Answer> {
    let refused = |reply| Answer::Reply { reply, of_program: b"why".to_vec() };
    let status = |status| Answer::plain(Reply::Status { id: id(), status });
    vec![
        Answer::Done,
        Answer::plain(Reply::Reserved { id: id(), attempt: 3 }),
        refused(Reply::NotReserved { attempt: 3, refusal: Refusal::ConditionFailed }),
        Answer::plain(Reply::Prepared { id: id(), stamp_us: 8 }),
        refused(Reply::NotPrepared { id: id(), refusal: Refusal::Held }),
        Answer::plain(Reply::NotPrepared { id: id(), refusal: Refusal::Unavailable }),
        Answer::plain(Reply::Committed { id: id(), committed_us: 9, next: None }),
        Answer::plain(Reply::Committed { id: id(), committed_us: 9, next: Some(1_001) }),
        Answer::plain(Reply::Lost(id())),
        status(Status::Aborted),
        status(Status::NotYet),
        status(Status::Committed(-5)),
        Answer::plain(Reply::Finished(id())),
        Answer::Pinned {
            pin: PinId(4),
            lease_ns: 1 << 40,
            staged: vec![Staged { id: id(), prepared_us: 3, home: home() }],
        },
        Answer::TooLate(i64::MAX),
    ]
}

#[test]
fn a_call_is_taken_to_its_leader_as_a_request() {
    for call in calls() {
        assert_eq!(call.to_mutation(), Mutation::request(&call.encode()));
    }
}

/// Whatever is decoded from changed, longer and shorter bytes is encoded to these.
fn check<T: PartialEq + std::fmt::Debug>(
    value: &T,
    encode: impl Fn(&T) -> Vec<u8>,
    decode: impl Fn(&[u8]) -> Result<T, Malformed>,
) {
    let bytes = encode(value);
    assert_eq!(decode(&bytes).as_ref(), Ok(value));
    assert_eq!(decode(&[bytes.as_slice(), &[0]].concat()), Err(Malformed));
    for at in 0..bytes.len() {
        let mut changed = bytes.clone();
        changed[at] ^= 0x81;
        for bytes in [&changed[..], &bytes[..at]] {
            if let Ok(read) = decode(bytes) {
                assert_eq!(encode(&read), bytes);
            }
        }
    }
}

#[test]
fn what_is_encoded_is_decoded_and_nothing_else() {
    calls().iter().for_each(|call| check(call, Call::encode, Call::decode));
    answers().iter().for_each(|answer| check(answer, Answer::encode, Answer::decode));
}
