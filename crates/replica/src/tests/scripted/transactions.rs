//! Calls of transactions, beside writes and beside the end of their tablet.

use super::*;
use diorite_base::TableId;
use diorite_transact::message::{Program, Refusal, Reply, Request};
use diorite_transact::step::Ending;
use diorite_transact::targets;
use diorite_transact::targets::Targets;
use diorite_transact::wire::{Answer, Call};
use diorite_transact::{Home, Participant, Prepared, TransactionId};

/// A transaction whose home is another tablet.
const ELSEWHERE: TransactionId = TransactionId { tablet: TabletId(2_000), term: 3, number: 1 };

impl Trio {
    fn submit_call(&mut self, token: u64, request: Request) {
        self.submit(1, token, Mutation::request(&Call::Request(request).encode()));
    }

    fn answer(&self, token: u64) -> Option<Result<Answer, KvError>> {
        self.outcome(1, token).map(|outcome| outcome.map(|reply| Answer::decode(&reply).unwrap()))
    }

    fn reply(&self, token: u64) -> Option<Reply> {
        match self.answer(token)? {
            Ok(Answer::Reply { reply, .. }) => Some(reply),
            other => panic!("no reply: {other:?}"),
        }
    }

    fn call(&mut self, token: u64, request: Request) -> Option<Reply> {
        self.submit_call(token, request);
        self.deliver();
        self.reply(token)
    }

    /// The replies to requests that arrive in one turn, and how many entries of the log they take.
    fn calls(&mut self, token: u64, requests: Vec<Request>) -> (Vec<Reply>, u64) {
        let index = |trio: &Self| trio.nodes[&1].handle.data().applied_state().unwrap().index;
        let (before, tokens) = (index(self), token..token + requests.len() as u64);
        let node = self.nodes.get_mut(&1).unwrap();
        let sink = Arc::clone(&node.outcomes) as Arc<dyn WriteSink>;
        for (token, request) in tokens.clone().zip(requests) {
            let call = Mutation::request(&Call::Request(request).encode());
            node.input
                .proposals
                .push(Proposal::new(TABLET, call, Arc::clone(&sink), token).unwrap().until(NO_DEADLINE));
        }
        node.core.turn(&mut node.input);
        self.deliver();
        (tokens.map(|token| self.reply(token).unwrap()).collect(), index(self) - before)
    }

    fn reserve(&mut self, token: u64, n: u64) -> TransactionId {
        match self.call(token, reserve(n)) {
            Some(Reply::Reserved { id, .. }) => id,
            other => panic!("not reserved: {other:?}"),
        }
    }

    fn wall_us(&self) -> i64 {
        self.nodes[&1].clock.wall_us()
    }

    fn horizons_s(&self) -> Vec<u32> {
        self.nodes.values().map(|node| node.handle.data().applied_state().unwrap().horizon.now_s).collect()
    }
}

fn reserve(n: u64) -> Request {
    Request::Reserve { attempt: 1, targets: Targets::default(), program: Program(key(n)), wait_ns: Some(u64::MAX) }
}

fn prepare(id: TransactionId, n: u64) -> Request {
    prepare_program(id, key(n))
}

fn prepare_program(id: TransactionId, program: Vec<u8>) -> Request {
    let home = Home { table: TableId(7), key: key(99), tells_readers: true };
    Request::Prepare { id, home, targets: Targets::default(), program: Program(program), wait_ns: None }
}

fn pin(at_us: i64) -> Mutation {
    Mutation::request(&Call::Pin(at_us, Targets::new(vec![targets::Target::Row(key(1))])).encode())
}

/// Reads of several tablets without snapshots depend on it: whoever has looked for prepared rows before finds another version.
#[test]
fn a_prepare_has_changed_the_version_before_it_is_answered() {
    let mut trio = Trio::new();
    assert!(trio.write(1, 1, add(1, 1)).unwrap().is_ok());
    let version = |trio: &Trio| trio.nodes[&1].handle.version().unwrap();
    let before = version(&trio);
    assert_eq!(version(&trio), before);
    let reply = trio.call(2, prepare(ELSEWHERE, 1));
    assert!(matches!(reply, Some(Reply::Prepared { .. })), "{reply:?}");
    assert_ne!(version(&trio), before);
}

#[test]
fn calls_that_cannot_be_true_do_nothing() {
    let mut trio = Trio::new();
    let far_us = trio.wall_us() + DAY_US;
    let participant = Participant { table: TableId(7), tablet: TabletId(2_000), key: key(99) };
    let committed = |stamp_us| Ending::Committed { prepared_us: 1, committed_us: stamp_us };
    let calls = [
        pin(far_us),
        pin(i64::MAX),
        Mutation::request(b"?"),
        Mutation::request(&[]),
        Mutation::request(&Call::Request(Request::Status { id: ELSEWHERE, of: None, at_us: Some(far_us) }).encode()),
        Mutation::request(
            &Call::Request(Request::Commit {
                id: ELSEWHERE,
                prepared: vec![Prepared { participant, stamp_us: far_us + DAY_US }],
                part: None,
            })
            .encode(),
        ),
        Mutation::request(&Call::Request(Request::Finish { id: ELSEWHERE, ending: committed(i64::MAX) }).encode()),
        Mutation::request(&Call::Request(prepare(TransactionId { tablet: TABLET, ..ELSEWHERE }, 1)).encode()),
    ];
    for (token, call) in (10..).zip(calls) {
        let outcome = trio.write(1, token, call);
        assert!(matches!(outcome, Some(Err(KvError::TooLarge(_)))), "{token}: {outcome:?}");
    }
    assert!(trio.write(1, 1, add(1, 1)).unwrap().is_ok());
    assert!(trio.newest_stamp_us(1) < far_us, "nothing was stamped above these");
    // The same, as they are sent in earnest.
    let id = trio.reserve(2, 1);
    assert!(trio.write(1, 3, pin(trio.newest_stamp_us(1) + 1_000_000)).unwrap().is_ok());
    assert!(matches!(trio.call(4, prepare(ELSEWHERE, 2)), Some(Reply::Prepared { .. })));
    assert!(matches!(
        trio.call(5, Request::Commit { id, prepared: Vec::new(), part: None }),
        Some(Reply::Committed { .. })
    ));
}

/// It would stop one leader after the other, and nothing of it is in the log.
#[test]
fn a_program_that_cannot_be_evaluated_ends_its_transaction_alone() {
    let mut trio = Trio::new();
    let reserved = trio.call(
        1,
        Request::Reserve { attempt: 1, targets: Targets::default(), program: Program(POISON.to_vec()), wait_ns: None },
    );
    assert_eq!(reserved, Some(Reply::NotReserved { attempt: 1, refusal: Refusal::ConditionFailed }));
    let prepared = trio.call(2, prepare_program(ELSEWHERE, POISON.to_vec()));
    assert_eq!(prepared, Some(Reply::NotPrepared { id: ELSEWHERE, refusal: Refusal::ConditionFailed }));
    assert!(trio.write(1, 3, add(1, 1)).unwrap().is_ok(), "its replica goes on");
    let next = trio.call(4, prepare(TransactionId { number: 2, ..ELSEWHERE }, 1));
    assert!(matches!(next, Some(Reply::Prepared { .. })), "{next:?}");
}

#[test]
fn writes_that_waited_for_a_row_are_proposed_before_whoever_came_after_them() {
    let mut trio = Trio::new();
    let first = trio.reserve(1, 1);
    trio.submit(1, 2, add(1, 1));
    trio.submit_call(3, reserve(1));
    trio.submit(1, 4, add(1, 2));
    trio.deliver();
    assert_eq!((trio.outcome(1, 2), trio.answer(3), trio.outcome(1, 4)), (None, None, None));
    assert!(trio.write(1, 5, add(2, 1)).unwrap().is_ok(), "another row");
    // The lock ends when the commit is applied.
    assert!(matches!(
        trio.call(6, Request::Commit { id: first, prepared: Vec::new(), part: None }),
        Some(Reply::Committed { .. })
    ));
    let Some(Reply::Reserved { id: second, .. }) = trio.reply(3) else { panic!("not reserved") };
    assert_eq!((trio.outcome(1, 2), trio.outcome(1, 4)), (Some(Ok(Vec::new())), None));
    trio.call(7, Request::Commit { id: second, prepared: Vec::new(), part: None });
    assert_eq!(trio.outcome(1, 4), Some(Ok(Vec::new())));
    // (0 * 2 + 1) * 2 + 2
    assert_eq!(trio.nodes[&1].handle.data().get(&key(1)).unwrap().map(|value| number(&value)), Some(4));
}

#[test]
fn a_program_is_not_kept_waiting_by_a_write_that_was_never_proposed() {
    let mut trio = Trio::new();
    let now_ns = trio.now_ns.load(Ordering::Relaxed);
    // In one turn: a write whose request has ended, and a transaction.
    let node = trio.nodes.get_mut(&1).unwrap();
    let sink = Arc::clone(&node.outcomes) as Arc<dyn WriteSink>;
    let call = Mutation::request(&Call::Request(reserve(1)).encode());
    let proposals = [(1, add(1, 1), now_ns), (2, call, NO_DEADLINE)];
    for (token, mutation, deadline_ns) in proposals {
        let proposal = Proposal::new(TABLET, mutation, Arc::clone(&sink), token).unwrap();
        node.input.proposals.push(proposal.until(deadline_ns));
    }
    node.core.turn(&mut node.input);
    trio.deliver();
    assert!(matches!(trio.outcome(1, 1), Some(Err(KvError::Overloaded(_)))));
    assert!(matches!(trio.reply(2), Some(Reply::Reserved { .. })));
}

#[test]
fn time_passes_for_transactions_in_a_replica_that_is_alone() {
    let (log, data) = (MemoryLog::default(), MemoryTablet::new(Some(Arc::new(Sums))));
    let mut records = MemoryRecords::default();
    let (group, state) = (GroupId::from(TABLET), HardState { term: 4, ..HardState::default() });
    records.set_hard_state(group, &state).unwrap();
    records.set_conf_state(group, &ConfState { voters: vec![1], ..ConfState::default() }).unwrap();
    log.write(&mut records, true).unwrap();
    let (now_ns, air) = (Arc::new(AtomicU64::new(MS)), Arc::new(Air::default()));
    let node = Trio::start(1, 1, Durability::Fsync, (&now_ns, &air), (log, data));
    let mut trio = Trio { now_ns, air, nodes: BTreeMap::from([(1, node)]), cut: Vec::new() };
    trio.run(3_000);
    assert!(trio.write(1, 1, add(1, 1)).unwrap().is_ok(), "it leads");
    trio.run(3_000);
    trio.reserve(2, 1);
    // Its coordinator sends nothing more.
    trio.submit(1, 3, add(1, 1));
    assert_eq!(trio.outcome(1, 3), None);
    trio.run(4_000);
    assert!(matches!(trio.outcome(1, 3), Some(Err(KvError::Overloaded(_)))), "it has waited long enough");
    trio.run(4_000);
    assert!(trio.write(1, 4, add(1, 1)).unwrap().is_ok(), "the reservation has ended");
}

#[test]
fn an_id_is_issued_once_also_by_a_tablet_that_was_closed_and_opened_again() {
    let mut trio = Trio::new();
    let first = trio.reserve(1, 1);
    trio.submit_call(2, Request::Release(first));
    trio.run(100);
    assert_eq!(replied(trio.write(1, 3, close(7))), Some(MergeReply::Done));
    trio.run(1_000);
    trio.nodes.values_mut().for_each(|node| node.core.reopen(TABLET, 7));
    trio.deliver();
    // Those that are to begin are held back for a while beside an end.
    trio.run(3_000);
    let second = trio.reserve(4, 1);
    assert!(second.term == first.term && second.number > first.number, "{first} {second}");
}

#[test]
fn nothing_that_a_prepared_program_may_read_expires_before_it_has_ended() {
    let mut trio = Trio::new();
    assert!(matches!(trio.call(1, prepare(ELSEWHERE, 1)), Some(Reply::Prepared { .. })));
    let prepared_s = u32::try_from(trio.newest_stamp_us(1) / 1_000_000).unwrap();
    for token in 10..20 {
        trio.run(1_000);
        assert!(trio.write(1, token, add(2, 1)).unwrap().is_ok());
    }
    trio.run(1_000);
    assert_eq!(trio.horizons_s(), [prepared_s; 3]);
    assert_eq!(
        trio.call(2, Request::Finish { id: ELSEWHERE, ending: Ending::Aborted }),
        Some(Reply::Finished(ELSEWHERE))
    );
    assert!(trio.write(1, 3, add(2, 1)).unwrap().is_ok());
    trio.run(1_000);
    // What is reserved, which only the leader knows, has to find the same for some seconds, too.
    assert_eq!(trio.horizons_s(), [prepared_s + 1; 3]);
}

/// Replicas may have removed what has expired by the horizon. Run as of a later second, a program may find nothing to
/// add to, although it was possible when it was tested: a part of a committed transaction would be missing.
#[test]
fn no_program_is_run_as_of_a_later_second_than_that_in_which_it_was_tested() {
    let value = |trio: &Trio, n: u64| trio.nodes[&1].handle.data().get(&key(n)).unwrap().map(|value| number(&value));
    let commit = |id| Request::Commit { id, prepared: Vec::new(), part: None };
    let mut trio = Trio::new();
    assert!(trio.write(1, 1, add(1, 3)).unwrap().is_ok());
    let reads = trio.reserve(2, 1);
    let overwrites = [key(2).as_slice(), OVERWRITES].concat();
    let Request::Reserve { attempt, targets, wait_ns, .. } = reserve(2) else { panic!("another request") };
    let overwriting = Request::Reserve { attempt, targets, program: Program(overwrites), wait_ns };
    let Some(Reply::Reserved { id: overwrites, .. }) = trio.call(3, overwriting) else { panic!("not reserved") };
    trio.run(1_000);
    // Before its first step, the horizon of a tablet follows its writes at once.
    assert!(trio.write(1, 4, add(5, 1)).unwrap().is_ok());
    assert_eq!(trio.call(5, commit(reads)), Some(Reply::Lost(reads)));
    assert_eq!(value(&trio, 1), Some(3));
    let reply = trio.call(6, commit(overwrites));
    assert!(matches!(reply, Some(Reply::Committed { .. })), "it depends on no second: {reply:?}");
    assert_eq!(value(&trio, 2), Some(OVERWRITTEN));
    // From then on what has expired stays for some seconds.
    let reads = trio.reserve(7, 1);
    trio.run(1_000);
    assert!(trio.write(1, 8, add(5, 1)).unwrap().is_ok());
    assert!(matches!(trio.call(9, commit(reads)), Some(Reply::Committed { .. })), "the row is free, and kept");
    assert_eq!(value(&trio, 1), Some(6));
}

/// Its programs are run as of a second that may be long after the clock's.
#[test]
fn a_transaction_whose_other_tablet_is_far_ahead_is_tested_again_as_of_then() {
    let mut trio = Trio::new();
    let participant = Participant { table: TableId(7), tablet: TabletId(2_000), key: key(99) };
    let prepared = vec![Prepared { participant, stamp_us: trio.wall_us() + DAY_US / 2 }];
    let commit = |id| Request::Commit { id, prepared: prepared.clone(), part: None };
    let first = trio.reserve(1, 1);
    assert_eq!(trio.call(2, commit(first)), Some(Reply::Lost(first)));
    let second = trio.reserve(3, 1);
    let reply = trio.call(4, commit(second));
    assert!(matches!(reply, Some(Reply::Committed { .. })), "{reply:?}");
}

#[test]
fn reads_that_follow_each_other_do_not_put_off_the_end_of_a_tablet() {
    let mut trio = Trio::new();
    for token in 1..20 {
        let newest_us = trio.newest_stamp_us(1).max(trio.wall_us());
        trio.submit(1, token, pin(newest_us + 1));
        let split = Split { boundary: key(5), children: [TabletId(1_001), TabletId(1_002)] };
        trio.nodes.get_mut(&1).unwrap().core.split(TABLET, &split);
        trio.deliver();
        trio.run_step();
    }
    assert!(trio.nodes.values().all(|node| node.handle.split().is_some()), "it is split");
}

#[test]
fn steps_of_one_turn_share_an_entry_where_nothing_speaks_against_it() {
    let mut trio = Trio::new();
    (1..4).for_each(|n| assert!(trio.write(1, n, add(n, 1)).unwrap().is_ok()));
    let id = |number| TransactionId { number, ..ELSEWHERE };
    let (prepared, entries) = trio.calls(10, (1..4).map(|n| prepare(id(n), n)).collect());
    assert_eq!(entries, 1);
    let finish = |reply: &Reply| match *reply {
        Reply::Prepared { id, stamp_us } => {
            Request::Finish { id, ending: Ending::Committed { prepared_us: stamp_us, committed_us: stamp_us + 1 } }
        }
        ref other => panic!("not prepared: {other:?}"),
    };
    let (finished, entries) = trio.calls(20, prepared.iter().map(finish).collect());
    assert_eq!((finished, entries), ((1..4).map(|n| Reply::Finished(id(n))).collect(), 1));
    // Followers apply later.
    trio.run(1_000);
    for node in trio.nodes.values() {
        let values = (1..4).map(|n| node.handle.data().get(&key(n)).unwrap().map(|value| number(&value)));
        assert_eq!(values.collect::<Vec<_>>(), [Some(2); 3], "each program has run once");
    }

    let (_, entries) = trio.calls(30, [4, EDITED, 5].map(|n| prepare(id(n), n)).to_vec());
    assert_eq!(entries, 3, "what edits stored values may write much");

    let long = |n: u64| match prepare(id(n), n) {
        Request::Prepare { id, home, targets, program, wait_ns } => {
            Request::Prepare { id, home: Home { key: vec![7; 3_000], ..home }, targets, program, wait_ns }
        }
        other => other,
    };
    let (_, entries) = trio.calls(40, (6..9).map(long).collect());
    assert_eq!(entries, 2);

    let later_us = trio.newest_stamp_us(1).max(trio.wall_us()) + 100_000;
    let participant = || Participant { table: TableId(7), tablet: TabletId(2_000), key: key(99) };
    let commit = |id, stamps: &[i64]| Request::Commit {
        id,
        prepared: stamps.iter().map(|stamp_us| Prepared { participant: participant(), stamp_us: *stamp_us }).collect(),
        part: None,
    };
    let ids: Vec<TransactionId> = (20..24).map(|n| trio.reserve(n + 30, n)).collect();
    let (_, entries) = trio.calls(60, vec![commit(ids[0], &[]), commit(ids[1], &[later_us])]);
    assert_eq!(entries, 2, "only the second one has to wait for the later second");
    let (_, entries) = trio.calls(70, vec![commit(ids[2], &[later_us + 100_000]), commit(ids[3], &[])]);
    assert_eq!(entries, 1);
}

#[test]
fn what_only_writes_rows_shares_a_batch_with_other_entries_and_is_seen_by_what_reads() {
    let carry_out = |trio: &mut Trio, token: u64, id: TransactionId, program: Vec<u8>| {
        let prepared = trio.call(token, prepare_program(id, program));
        let Some(Reply::Prepared { stamp_us, .. }) = prepared else { panic!("not prepared: {prepared:?}") };
        let ending = Ending::Committed { prepared_us: stamp_us, committed_us: stamp_us + 1 };
        assert_eq!(trio.call(token + 1, Request::Finish { id, ending }), Some(Reply::Finished(id)));
    };
    let changes = |trio: &Trio| trio.nodes[&2].handle.transacted.changes().unwrap();
    // Of a follower, which applies several entries at once; the value of the row on all nodes.
    let changes_and_value = |first: Vec<u8>| {
        let mut trio = Trio::new();
        assert!(trio.write(1, 1, add(1, 3)).unwrap().is_ok());
        trio.run(1_000);
        let before = changes(&trio);
        carry_out(&mut trio, 10, ELSEWHERE, first);
        carry_out(&mut trio, 20, TransactionId { number: 2, ..ELSEWHERE }, key(1));
        assert!(trio.write(1, 30, add(1, 1)).unwrap().is_ok());
        trio.run(1_000);
        let value = |node: &Node| node.handle.data().get(&key(1)).unwrap().map(|value| number(&value));
        let values: Vec<_> = trio.nodes.values().map(value).collect();
        assert!(values.iter().all(|found| *found == values[0]), "{values:?}");
        assert!(trio.nodes.values().all(|node| node.handle.prepared_transactions().is_empty()));
        (changes(&trio) - before, values[0])
    };
    let (apart, doubled) = changes_and_value(key(1));
    assert_eq!(doubled, Some(3 * 2 * 2 + 1));
    let (shared, overwritten) = changes_and_value([key(1).as_slice(), OVERWRITES].concat());
    assert_eq!(overwritten, Some(OVERWRITTEN * 2 + 1));
    assert!(shared < apart, "{shared}, {apart}");
}
