//! A copy takes the place of a replica's data, on the engine in memory.

use super::*;
use crate::group::promise::Promise;
use crate::group::wire::Envelope;
use crate::peers::wire::{HEARTBEAT, VERSION};
use crate::runtime::incoming::Incoming;
use diorite_base::bytes::put_varint;
use diorite_raft::{ConfState, Epoch, Message, MessageType};
use diorite_storage::{
    AppliedState, Log, LogRecords, Memory, MemoryBatch, MemoryLog, MemoryRecords, MemoryTablet, TabletData,
};

const TABLET: TabletId = TabletId(1_000);

/// A core with one replica, the only voter of its group, and what opens another one in its place.
fn core() -> (Core<Memory>, Arc<MemoryLog>, impl Fn(u64) -> Replica<Memory>) {
    let (clock, log) = (Arc::new(SystemClock::new()), Arc::new(MemoryLog::default()));
    let mut records = MemoryRecords::default();
    let members = ConfState { voters: vec![1], ..ConfState::default() };
    records.set_conf_state(GroupId::from(TABLET), &members).unwrap();
    log.write(&mut records, true).unwrap();
    let context = Arc::new(Context::new(NodeId(1), 7, Durability::Fsync, clock, Arc::new(NoTransport)));
    let core = Core::<Memory>::new(Arc::clone(&context), vec![Arc::clone(&log)]);
    let of_replica = Arc::clone(&log);
    let replica_at = move |index| {
        let opening = Opening { tablet: TABLET, members: Members::default(), evaluator: Arc::new(Doubler) };
        let data = MemoryTablet::new(None);
        if index > 0 {
            let state = AppliedState { index, term: 1, ..AppliedState::default() };
            data.apply(&mut MemoryBatch::default(), &state).unwrap();
        }
        Replica::recover(&context, opening, Arc::new(data), &*of_replica, (0, 0)).unwrap()
    };
    (core, log, replica_at)
}

#[test]
fn a_truncation_that_waits_does_not_take_the_log_back_behind_a_copy() {
    let (mut core, log, replica_at) = core();
    core.open(replica_at(0)).unwrap();
    assert_eq!(log.recover(GroupId::from(TABLET)).unwrap().last.index, 1, "the entry of the new leader");
    core.truncate(TABLET, 1, true);
    core.detach(TABLET);
    core.open(replica_at(9)).unwrap();
    let recovered = log.recover(GroupId::from(TABLET)).unwrap();
    assert_eq!((recovered.truncated, recovered.last.index), (LogPosition::new(9, 1), 10));
}

#[test]
fn what_a_replica_has_promised_outlasts_the_data_that_a_copy_replaces() {
    let (mut core, _log, replica_at) = core();
    core.open(replica_at(0)).unwrap();
    let promise = Promise { leader: 2, epoch: Epoch(5) };
    core.replicas.get_mut(&TABLET).unwrap().following.promise = Some(promise);
    core.detach(TABLET);
    core.open(replica_at(9)).unwrap();
    assert_eq!(core.replicas[&TABLET].following.promise, Some(promise));
}

#[test]
fn a_replica_that_was_closed_comes_back_bound_by_what_it_has_said_and_does_not_lead() {
    let (mut core, log, replica_at) = core();
    core.open(replica_at(0)).unwrap();
    assert!(core.replicas[&TABLET].group.is_leader(), "it is the only voter");
    let promise = Promise { leader: 2, epoch: Epoch(5) };
    core.replicas.get_mut(&TABLET).unwrap().following.promise = Some(promise);
    core.close(TABLET).unwrap();
    let recovered = log.recover(GroupId::from(TABLET)).unwrap();
    assert_eq!(
        (recovered.last, recovered.floor),
        (LogPosition::START, LogPosition::new(1, 1)),
        "durable when it is closed"
    );
    let mut records = MemoryRecords::default();
    let voters = ConfState { voters: vec![1], ..ConfState::default() };
    records.set_conf_state(GroupId::from(TABLET), &voters).unwrap();
    log.write(&mut records, true).unwrap();
    core.open(replica_at(0)).unwrap();
    let replica = &core.replicas[&TABLET];
    assert!(replica.group.is_recovering() && !replica.group.is_leader());
    assert_eq!(replica.following.promise, Some(promise));
    // With data that holds as much again it is a voter like before, here the only one.
    core.detach(TABLET);
    core.open(replica_at(9)).unwrap();
    let replica = &core.replicas[&TABLET];
    assert!(!replica.group.is_recovering() && replica.group.is_leader());
}

/// A replica of three that holds eight entries, and its context.
fn follower() -> (Arc<Context>, Core<Memory>) {
    let (clock, log) = (Arc::new(SystemClock::new()), Arc::new(MemoryLog::default()));
    let mut records = MemoryRecords::default();
    let voters = ConfState { voters: vec![1, 2, 3], ..ConfState::default() };
    records.set_conf_state(GroupId::from(TABLET), &voters).unwrap();
    log.write(&mut records, true).unwrap();
    let context = Arc::new(Context::new(NodeId(1), 7, Durability::Fsync, clock, Arc::new(NoTransport)));
    let mut core = Core::<Memory>::new(Arc::clone(&context), vec![Arc::clone(&log)]);
    let data = MemoryTablet::new(None);
    let state = AppliedState { index: 8, term: 1, ..AppliedState::default() };
    data.apply(&mut MemoryBatch::default(), &state).unwrap();
    let opening = Opening { tablet: TABLET, members: Members::default(), evaluator: Arc::new(Doubler) };
    core.open(Replica::recover(&context, opening, Arc::new(data), &*log, (0, 0)).unwrap()).unwrap();
    (context, core)
}

/// A message of node 2, which leads in term 1.
fn from_leader(kind: MessageType, previous: u64, supported: Option<Epoch>) -> Incoming {
    let mut message = Message::default();
    message.set_msg_type(kind);
    (message.from, message.to, message.term) = (2, 1, 1);
    (message.index, message.log_term, message.commit) = (previous, u64::from(previous > 0), 8);
    let envelope = Envelope::Raft { epoch: Epoch::NONE, keep_from: 0, message: Box::new(message) };
    Incoming { from: NodeId(2), supported, group: GroupId::from(TABLET), envelope }
}

#[test]
fn a_message_of_a_former_process_of_the_leader_promises_nothing_to_the_new_one() {
    let (context, mut core) = follower();
    let liveness = context.liveness();
    // A heartbeat of a process of node 2, which has received one of this node, and never one that is too old.
    let heartbeat = |incarnation: u8| {
        let mut frame = vec![VERSION, HEARTBEAT, incarnation, 1, 0, 7];
        put_varint(&mut frame, 1 << 50);
        frame
    };
    let mut supported = Vec::new();
    for incarnation in [11, 12] {
        liveness.receive(NodeId(2), &heartbeat(incarnation));
        supported.push(liveness.given_epoch(2));
        liveness.ended(NodeId(2), u64::from(incarnation));
    }
    liveness.receive(NodeId(2), &heartbeat(13));
    let now = liveness.given_epoch(2);
    assert!(now.is_some() && supported.iter().all(|epoch| epoch.is_some() && *epoch != now), "{supported:?}, {now:?}");
    for (supported, promised) in [(supported[0], None), (None, None), (now, now), (supported[1], None)] {
        core.receive(from_leader(MessageType::MsgHeartbeat, 0, supported));
        let promise = core.replicas[&TABLET].following.promise;
        assert_eq!(promise.map(|promise| promise.epoch), promised, "{supported:?}");
    }
}

#[test]
fn a_replica_says_how_far_its_copy_reaches_until_entries_come_that_follow_on_it() {
    let (_context, mut core) = follower();
    let mut receive = |kind, previous: u64| {
        core.receive(from_leader(kind, previous, None));
        core.replicas[&TABLET].following.announces_data
    };
    assert!(receive(MessageType::MsgHeartbeat, 0));
    // The leader sent this before it knew of the copy. Its next answer may be that its log does not reach back that far.
    assert!(receive(MessageType::MsgAppend, 9), "these entries do not fit");
    assert!(receive(MessageType::MsgHeartbeat, 0), "the announcement was lost, and is made again");
    assert!(!receive(MessageType::MsgAppend, 8));
}
