//! Three cores in one thread, on engines in memory: every frame, every turn and every look at the clock is a step of the test.

mod releases;
mod script;
mod transactions;

use super::*;
use crate::group::split::Split;
use crate::{CLOSED, Incoming, MergeReply, MergeStep};
use diorite_base::TrustedClock;
use diorite_raft::{ConfState, HardState, LogPosition, UNKNOWN_FLOOR};
use diorite_rpc::{Lane, SendError};
use diorite_storage::{Log, LogRecords, Memory, MemoryLog, MemoryRecords, MemoryTablet, TabletData};
use std::collections::{BTreeMap, VecDeque};
use std::sync::atomic::{AtomicI64, AtomicU64, Ordering};

const TABLET: TabletId = TabletId(1_000);
const EPOCH_US: i64 = 1_700_000_000_000_000;
const DAY_US: i64 = 86_400_000_000;
const MS: u64 = 1_000_000;

type Handle = Arc<TabletHandle<MemoryTablet>>;
/// Who sends to whom on which lane, and what.
type Frame = (u64, u64, Lane, Vec<u8>);

struct ByHand {
    now_ns: Arc<AtomicU64>,
    ahead_us: AtomicI64,
}

impl Clock for ByHand {
    fn monotonic_ns(&self) -> u64 {
        self.now_ns.load(Ordering::Relaxed)
    }

    fn wall_us(&self) -> i64 {
        EPOCH_US + (self.monotonic_ns() / 1_000) as i64 + self.ahead_us.load(Ordering::Relaxed)
    }
}

/// Messages under way, and the state that is inspected when one is sent.
#[derive(Default)]
struct Air {
    frames: Mutex<VecDeque<Frame>>,
    /// The messages sent since the last inspection.
    sent: Mutex<Vec<Frame>>,
    /// Bytes to look for in frames of consensus, and whether the sender answered reads when it sent such a frame.
    marked: Mutex<(Vec<u8>, Vec<bool>)>,
    handles: Mutex<BTreeMap<u64, Handle>>,
}

struct Port(u64, Arc<Air>);

impl Transport for Port {
    fn send(&self, to: NodeId, lane: Lane, frame: &[u8]) -> Result<(), SendError> {
        let mut marked = self.1.marked.lock().unwrap();
        let mark = marked.0.clone();
        if lane == Lane::Raft && !mark.is_empty() && frame.windows(mark.len()).any(|window| window == mark) {
            let answers = self.1.handles.lock().unwrap()[&self.0].check(Permit::Lease).is_ok();
            marked.1.push(answers);
        }
        let frame = (self.0, to.0, lane, frame.to_vec());
        self.1.sent.lock().unwrap().push(frame.clone());
        self.1.frames.lock().unwrap().push_back(frame);
        Ok(())
    }
}

#[derive(Default)]
struct Outcomes(Mutex<Vec<Completion>>);

impl WriteSink for Outcomes {
    fn complete(&self, done: &mut Vec<Completion>) {
        self.0.lock().unwrap().append(done);
    }
}

struct Node {
    context: Arc<Context>,
    core: Core<Memory>,
    clock: Arc<ByHand>,
    handle: Handle,
    input: Input,
    outcomes: Arc<Outcomes>,
}

impl Node {
    /// One turn, and the turns that its log reads cause.
    fn turn(&mut self) {
        self.core.turn(&mut self.input);
        loop {
            self.input.answers.extend(self.core.take_reads().into_iter().map(LogRead::carry_out));
            self.input.sizes.extend(self.core.take_measurements().into_iter().map(|read| read.carry_out(None)));
            if self.input.is_empty() {
                return;
            }
            self.core.turn(&mut self.input);
        }
    }
}

struct Trio {
    now_ns: Arc<AtomicU64>,
    air: Arc<Air>,
    nodes: BTreeMap<u64, Node>,
    /// Pairs between which nothing passes on the lane of consensus, or at all.
    cut: Vec<(u64, u64, bool)>,
}

impl Trio {
    /// Led by the first node.
    fn new() -> Self {
        let mut trio = Self::of(3, Durability::Fsync);
        trio.run(3_000);
        assert_eq!(trio.leader(), Some(1));
        trio
    }

    /// So many nodes that have just started; the first three are the initial voters.
    fn of(nodes: u64, durability: Durability) -> Self {
        let (now_ns, air) = (Arc::new(AtomicU64::new(MS)), Arc::new(Air::default()));
        let start = |node| Self::start(node, nodes, durability, (&now_ns, &air), Self::empty());
        let nodes = (1..=nodes).map(|node| (node, start(node))).collect();
        Self { now_ns, air, nodes, cut: Vec::new() }
    }

    /// A log that knows the initial voters, and no data.
    fn empty() -> (MemoryLog, MemoryTablet) {
        let (log, data) = (MemoryLog::default(), MemoryTablet::new(Some(Arc::new(Sums))));
        let mut records = MemoryRecords::default();
        let voters = ConfState { voters: vec![1, 2, 3], ..ConfState::default() };
        records.set_conf_state(GroupId::from(TABLET), &voters).unwrap();
        log.write(&mut records, true).unwrap();
        (log, data)
    }

    /// Starts a node of so many on what its disk holds.
    fn start(
        node: u64,
        nodes: u64,
        durability: Durability,
        (now_ns, air): (&Arc<AtomicU64>, &Arc<Air>),
        (log, data): (MemoryLog, MemoryTablet),
    ) -> Node {
        let clock = Arc::new(ByHand { now_ns: Arc::clone(now_ns), ahead_us: AtomicI64::new(0) });
        let trusted = Arc::new(TrustedClock::new(Arc::clone(&clock) as Arc<dyn Clock>));
        let port = Arc::new(Port(node, Arc::clone(air)));
        let life = node + now_ns.load(Ordering::Relaxed);
        let context = Arc::new(Context::new(NodeId(node), life, durability, trusted, port));
        context.liveness().set_peers((1..=nodes).filter(|other| *other != node).map(NodeId).collect());
        let data = Arc::new(data);
        let members = Members { voters: [1, 2, 3].map(NodeId).to_vec(), learners: Vec::new() };
        let opening = Opening { tablet: TABLET, members, evaluator: Arc::new(Merging(Doubler)) };
        let replica = Replica::<Memory>::recover(&context, opening, data, &log, (0, 0)).unwrap();
        let handle = Arc::clone(replica.handle());
        air.handles.lock().unwrap().insert(node, Arc::clone(&handle));
        let mut core = Core::new(Arc::clone(&context), vec![Arc::new(log)]);
        core.open(replica).unwrap();
        Node { context, core, clock, handle, input: Input::default(), outcomes: Arc::default() }
    }

    /// Lets so many milliseconds pass, as in production.
    fn run(&mut self, milliseconds: u64) {
        for _ in 0..milliseconds / 50 {
            self.run_step();
        }
    }

    /// Lets 50 milliseconds pass; in every other step nodes send heartbeats.
    fn run_step(&mut self) {
        let now_ms = self.now_ns.fetch_add(50 * MS, Ordering::Relaxed) / MS;
        for node in self.nodes.values_mut() {
            if (now_ms / 50).is_multiple_of(2) {
                node.input.changes.extend(node.context.liveness().beat());
                if let Some(is_off) = node.context.liveness().look_at_clock() {
                    node.core.set_clock_is_off(is_off);
                }
            }
            node.input.changes.extend(node.context.liveness().expire());
            node.turn();
            node.core.tick();
        }
        self.deliver();
    }

    /// Delivers all messages that are under way, and those that they cause.
    fn deliver(&mut self) {
        loop {
            let Some((from, to, lane, frame)) = self.air.frames.lock().unwrap().pop_front() else { return };
            let is_lost = |(one, other, all): &(u64, u64, bool)| {
                [(from, to), (to, from)].contains(&(*one, *other)) && (*all || lane == Lane::Raft)
            };
            if self.cut.iter().any(is_lost) {
                continue;
            }
            let Some(node) = self.nodes.get_mut(&to) else { continue };
            match lane {
                Lane::Control => node.input.changes.extend(node.context.liveness().receive(NodeId(from), &frame)),
                Lane::Raft => {
                    let liveness = node.context.liveness();
                    node.input.envelopes.extend(Incoming::of_frame(liveness, NodeId(from), &frame).unwrap());
                }
                _ => {}
            }
            node.turn();
        }
    }

    fn answers(&self, node: u64) -> bool {
        self.nodes[&node].handle.check(Permit::Lease).is_ok()
    }

    /// Who answers reads; never two.
    fn leader(&self) -> Option<u64> {
        let mut leaders = (1..=3).filter(|node| self.answers(*node));
        let leader = leaders.next();
        assert_eq!(leaders.next(), None, "two answer");
        leader
    }

    /// A write reaches the node; nothing is delivered yet.
    fn submit(&mut self, node: u64, token: u64, mutation: Mutation) {
        self.submit_until(node, token, mutation, NO_DEADLINE);
    }

    /// The same, of a request that ends at this time.
    fn submit_until(&mut self, node: u64, token: u64, mutation: Mutation, deadline_ns: u64) {
        let node = self.nodes.get_mut(&node).unwrap();
        let sink = Arc::clone(&node.outcomes) as Arc<dyn WriteSink>;
        node.input.proposals.push(Proposal::new(TABLET, mutation, sink, token).unwrap().until(deadline_ns));
        node.core.turn(&mut node.input);
    }

    fn outcome(&self, node: u64, token: u64) -> Option<Result<WriteReply, KvError>> {
        let outcomes = self.nodes[&node].outcomes.0.lock().unwrap();
        outcomes.iter().find(|(found, _)| *found == token).map(|(_, outcome)| outcome.clone())
    }

    fn write(&mut self, node: u64, token: u64, mutation: Mutation) -> Option<Result<WriteReply, KvError>> {
        self.submit(node, token, mutation);
        self.deliver();
        self.outcome(node, token)
    }

    fn newest_stamp_us(&self, node: u64) -> i64 {
        self.nodes[&node].handle.data().applied_state().unwrap().newest_stamp_us
    }

    fn set_clock(&mut self, node: u64, ahead_us: i64) {
        self.nodes[&node].clock.ahead_us.store(ahead_us, Ordering::Relaxed);
    }

    /// The frames with `mark` that are sent from now on: whether their sender answers reads when it sends them.
    fn look_for(&self, mark: &[u8]) {
        *self.air.marked.lock().unwrap() = (mark.to_vec(), Vec::new());
    }

    fn answered_when_sent(&self) -> Vec<bool> {
        self.air.marked.lock().unwrap().1.clone()
    }
}

fn close(number: u64) -> Mutation {
    MergeStep::Close { tablet: TABLET, number }.mutation().unwrap()
}

fn replied(outcome: Option<Result<WriteReply, KvError>>) -> Option<MergeReply> {
    outcome.and_then(Result::ok).map(|reply| MergeReply::decode(&reply).unwrap())
}

/// It is made anew with the members that the tablet had first, which may have been this node alone.
#[test]
fn a_replica_without_its_log_does_not_lead_alone_whatever_it_has_acknowledged() {
    let starts = |floor: LogPosition, is_removed: bool| {
        let (log, data) = (MemoryLog::default(), MemoryTablet::new(Some(Arc::new(Sums))));
        let mut records = MemoryRecords::default();
        let (group, state) = (GroupId::from(TABLET), HardState { term: 4, ..HardState::default() });
        let voters = ConfState { voters: vec![1], ..ConfState::default() };
        if is_removed {
            records.retire(group, &state, floor).unwrap();
        } else {
            records.set_hard_state(group, &state).unwrap();
            records.set_floor(group, floor).unwrap();
        }
        records.set_conf_state(group, &voters).unwrap();
        log.write(&mut records, true).unwrap();
        let (now_ns, air) = (Arc::new(AtomicU64::new(MS)), Arc::new(Air::default()));
        let node = Trio::start(1, 1, Durability::Interval(1_000), (&now_ns, &air), (log, data));
        let mut trio = Trio { now_ns, air, nodes: BTreeMap::from([(1, node)]), cut: Vec::new() };
        trio.run(60_000);
        trio.nodes[&1].core.replicas[&TABLET].group.is_leader()
    };
    assert!(!starts(UNKNOWN_FLOOR, true));
    assert!(!starts(LogPosition::new(9, 4), true));
    assert!(starts(UNKNOWN_FLOOR, false), "it has its log, and nobody else knows what followed");
}

#[test]
fn reads_end_before_an_entry_that_ends_the_tablet_leaves_the_node() {
    for is_split in [false, true] {
        let mut trio = Trio::new();
        assert!(trio.write(1, 1, add(1, 1)).unwrap().is_ok());
        if is_split {
            trio.look_for(b"split");
            let split = Split { boundary: key(5), children: [TabletId(1_001), TabletId(1_002)] };
            trio.nodes.get_mut(&1).unwrap().core.split(TABLET, &split);
        } else {
            trio.look_for(&[0xF1, 4]);
            trio.submit(1, 2, close(7));
        }
        // It may be committed, and another tablet answer, as soon as others have it.
        assert_eq!(trio.answered_when_sent(), [false; 2], "{is_split}");
        assert!(!trio.answers(1));
        trio.deliver();
        trio.run(1_000);
        assert_eq!(trio.leader(), None, "it has ended");
    }
}

#[test]
fn who_led_a_tablet_that_was_split_does_not_step_down() {
    let mut trio = Trio::new();
    let split = Split { boundary: key(5), children: [TabletId(1_001), TabletId(1_002)] };
    trio.nodes.get_mut(&1).unwrap().core.split(TABLET, &split);
    trio.deliver();
    trio.run(1_000);
    assert!(trio.leader().is_none() && trio.nodes.values().all(|node| node.handle.split().is_some()), "it is split");
    let campaigns = |trio: &Trio| {
        trio.nodes.values().map(|node| node.context.counters.campaigns.load(Ordering::Relaxed)).sum::<u64>()
    };
    let before = campaigns(&trio);
    // More than a leader without support waits: this one has no lease any more, and all the support.
    trio.run(10_000);
    assert_eq!(campaigns(&trio), before);
    assert!(trio.nodes[&1].core.replicas[&TABLET].group.is_leader());
}

#[test]
fn a_leader_whose_entry_to_end_the_tablet_is_lost_leaves_it_to_others_to_go_on() {
    let mut trio = Trio::new();
    trio.cut = vec![(1, 2, true), (1, 3, true)];
    trio.submit(1, 1, close(7));
    trio.run(3_000);
    let leader = trio.leader().expect("the others go on");
    assert!(leader != 1 && trio.write(leader, 2, add(1, 1)).unwrap().is_ok());
    trio.cut.clear();
    trio.run(8_000);
    assert_eq!(trio.leader(), Some(1), "it is preferred, and serves in a later term");
    assert!(trio.write(1, 3, add(1, 1)).unwrap().is_ok());
}

#[test]
fn a_tablet_whose_merge_is_cancelled_serves_again_and_does_not_close_late() {
    let mut trio = Trio::new();
    assert_eq!(replied(trio.write(1, 1, close(7))), Some(MergeReply::Done));
    trio.run(1_000);
    assert!(trio.leader().is_none() && trio.nodes[&2].handle.flags() & CLOSED != 0);
    let reopen = |trio: &mut Trio, number| {
        trio.nodes.values_mut().for_each(|node| node.core.reopen(TABLET, number));
        trio.deliver();
        trio.run(500);
    };
    reopen(&mut trio, 7);
    let has_given_up = |trio: &Trio, number| {
        trio.nodes.values().all(|node| crate::has_given_up(TABLET, number, node.handle.data()).unwrap())
    };
    assert_eq!((trio.leader(), has_given_up(&trio, 7), has_given_up(&trio, 8)), (Some(1), true, false));
    assert!(trio.write(1, 2, add(1, 1)).unwrap().is_ok());
    // Late messages of that merge, and of those before it, close nothing.
    for number in [7, 6] {
        assert_eq!(replied(trio.write(1, 10 + number, close(number))), Some(MergeReply::Superseded));
        trio.run(100);
        assert_eq!(trio.leader(), Some(1), "{number}");
    }
    // The next one does, and a late word that the first was cancelled does not open it.
    assert_eq!(replied(trio.write(1, 3, close(8))), Some(MergeReply::Done));
    reopen(&mut trio, 7);
    assert_eq!(trio.leader(), None);
    reopen(&mut trio, 8);
    assert_eq!(trio.leader(), Some(1));
    assert!(trio.write(1, 4, add(1, 1)).unwrap().is_ok());
}

#[test]
fn a_merge_that_is_cancelled_before_the_tablet_closes_never_closes_it() {
    let mut trio = Trio::new();
    // In one turn of the leader: the entry that closes it comes after the one that gives the merge up.
    trio.nodes.get_mut(&1).unwrap().core.reopen(TABLET, 7);
    assert_eq!(replied(trio.write(1, 1, close(7))), Some(MergeReply::Superseded));
    trio.run(500);
    assert_eq!(trio.leader(), Some(1));
}

#[test]
fn writers_of_two_leaderships_are_told_what_became_of_their_own_entries() {
    let mut trio = Trio::new();
    trio.cut = vec![(1, 2, true), (1, 3, true)];
    // None of these leaves the node.
    (10..20).for_each(|token| trio.submit(1, token, add(1, 1)));
    while trio.leader().is_none_or(|leader| leader == 1) {
        trio.run(50);
    }
    let leader = trio.leader().unwrap();
    assert!(trio.write(leader, 1, add(2, 1)).unwrap().is_ok());
    trio.cut.clear();
    // Within the time that writers wait it leads again, with a shorter log.
    trio.run(400);
    trio.nodes.get_mut(&leader).unwrap().core.transfer_leadership(TABLET, Some(NodeId(1)));
    trio.nodes.get_mut(&leader).unwrap().core.turn(&mut Input::default());
    trio.deliver();
    trio.run(50);
    assert_eq!(trio.leader(), Some(1));
    let old: Vec<_> = (10..20).map(|token| trio.outcome(1, token)).collect();
    assert!(old.iter().all(|outcome| *outcome == Some(Err(KvError::Unavailable(TABLET)))), "{old:?}");
    assert_eq!(trio.write(1, 30, add(3, 1)), Some(Ok(Vec::new())), "at once, behind nobody");
    assert_eq!(trio.nodes[&1].handle.data().get(&key(1)).unwrap(), None, "nothing was done");
}

#[test]
fn a_write_ends_with_its_request_and_is_not_proposed_after_it() {
    let mut trio = Trio::new();
    // Nothing is committed, and the lease goes on.
    trio.cut = vec![(1, 2, false), (1, 3, false)];
    let now_ns = trio.now_ns.load(Ordering::Relaxed);
    trio.submit_until(1, 10, add(1, 1), now_ns + 100 * MS);
    trio.submit(1, 11, add(2, 1));
    trio.submit_until(1, 12, add(3, 1), now_ns);
    assert!(matches!(trio.outcome(1, 12), Some(Err(KvError::Overloaded(_)))), "{:?}", trio.outcome(1, 12));
    trio.run(50);
    assert_eq!(trio.outcome(1, 10), None, "it has time");
    trio.run(150);
    let Some(Err(KvError::Timeout(waited))) = trio.outcome(1, 10) else { panic!("{:?}", trio.outcome(1, 10)) };
    assert_eq!((waited.received, waited.required), (1, 2), "the leader's own log");
    assert!((100..200).contains(&waited.after_ms), "{waited:?}");
    assert_eq!(trio.outcome(1, 11), None, "whoever says no time waits as long as writes are waited for");
    trio.cut.clear();
    trio.run(1_000);
    let values = [1, 2, 3].map(|number| trio.nodes[&1].handle.data().get(&key(number)).unwrap().is_some());
    assert_eq!(values, [true, true, false], "what is in the log is carried out");
}

#[test]
fn a_clock_that_jumps_a_day_stamps_nothing_and_leads_nothing_until_it_is_set_right() {
    let mut trio = Trio::new();
    trio.set_clock(1, DAY_US);
    // Before anybody has looked.
    assert!(trio.write(1, 1, add(1, 1)).unwrap().is_ok());
    assert!(trio.newest_stamp_us(1) < EPOCH_US + DAY_US / 2, "the day ahead is in a timestamp");
    trio.run(1_000);
    let leader = trio.leader().expect("another leads");
    assert_ne!(leader, 1);
    assert!(trio.nodes[&1].context.liveness().clock_is_off_us().is_some_and(|ahead_us| ahead_us < -DAY_US / 2));
    assert!(trio.write(leader, 1, add(1, 1)).unwrap().is_ok());
    assert!(trio.newest_stamp_us(leader) < EPOCH_US + DAY_US / 2);
    // It is preferred, and is not handed anything.
    for _ in 0..100 {
        trio.run(100);
        assert_eq!(trio.leader(), Some(leader));
    }
    trio.set_clock(1, 0);
    trio.run(5_000);
    assert_eq!(trio.leader(), Some(1));
    assert_eq!(trio.nodes[&1].context.liveness().clock_is_off_us(), None);
}

#[test]
fn a_timestamp_of_a_client_takes_no_part_in_the_leaders() {
    let mut trio = Trio::new();
    let mut mutation = Mutation::blind(Some(i64::MAX));
    mutation.push(OperationKind::Merge, false, &key(1), &1u64.to_le_bytes());
    assert!(trio.write(1, 1, mutation).unwrap().is_ok());
    assert!(trio.write(1, 2, add(1, 1)).unwrap().is_ok());
    let state = trio.nodes[&1].handle.data().applied_state().unwrap();
    assert!(state.newest_explicit_us == i64::MAX && state.newest_stamp_us < EPOCH_US + DAY_US, "{state:?}");
}

#[test]
fn a_jump_of_the_wall_clock_voids_a_lease_until_it_is_renewed() {
    let mut trio = Trio::new();
    trio.set_clock(1, -DAY_US);
    assert!(trio.answers(1));
    trio.nodes[&1].context.liveness().look_at_clock();
    assert!(!trio.answers(1), "how long the machine stood still is not known");
}

#[test]
fn a_leader_that_does_not_know_of_a_drop_serves_no_longer_than_its_followers_are_there() {
    let mut trio = Trio::new();
    for node in [2, 3] {
        trio.nodes.get_mut(&node).unwrap().core.close(TABLET).unwrap();
    }
    trio.deliver();
    trio.run(100);
    assert!(!trio.answers(1), "its followers are gone, though their nodes are up");
    trio.run(3_000);
    assert!(!trio.answers(1));
    // The first word of it may be lost.
    let mut trio = Trio::new();
    trio.cut = vec![(1, 2, false), (1, 3, false)];
    for node in [2, 3] {
        trio.nodes.get_mut(&node).unwrap().core.close(TABLET).unwrap();
    }
    trio.deliver();
    trio.cut.clear();
    trio.run(2_000);
    assert!(!trio.answers(1));
}
