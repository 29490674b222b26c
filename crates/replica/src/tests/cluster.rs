//! Several stores in one process: they elect, replicate, fail over and change members.

use super::*;
use crate::group::wire::Envelope;
use crate::lifecycle::copy::wire::{Frame, State};
use diorite_base::NodeId;
use diorite_raft::is_without_entries;
use diorite_rpc::{Lane, SendError, Transport};
use std::collections::BTreeMap;
use std::sync::{Mutex, RwLock, Weak};
use std::time::Duration;

/// Initial and wanted voters.
type Placed = (Vec<u64>, Vec<u64>);
/// A clock that tells the time of so many microseconds ago.
struct Behind(SystemClock, i64);

impl Clock for Behind {
    fn monotonic_ns(&self) -> u64 {
        self.0.monotonic_ns()
    }

    fn wall_us(&self) -> i64 {
        self.0.wall_us() - self.1
    }
}

/// A frame and who has sent it.
type Sent = (u64, Vec<u8>);
type Loses = fn(&Frame<'_>) -> bool;
type OnOpening = Box<dyn Fn(u64) + Send + Sync>;

/// Carries frames between the stores of one process, on the sender's thread. A node that is not there, or is cut off, is down.
#[derive(Default)]
pub(super) struct Hub {
    stores: RwLock<BTreeMap<u64, Weak<Store>>>,
    pub(super) cut: RwLock<Vec<u64>>,
    /// Pairs of nodes between which nothing passes, the lesser one first.
    parted: RwLock<Vec<(u64, u64)>>,
    /// Initial and wanted voters of tablets that are not of three.
    pub(super) placed: RwLock<BTreeMap<u64, Placed>>,
    /// Tablets that were split, as said by the nodes that led them.
    pub(super) splits: RwLock<Vec<(u64, SplitMark)>>,
    /// A node that does not know yet of the children of tablets that were split.
    pub(super) ignorant: RwLock<Option<u64>>,
    /// Every frame of consensus, once they are asked for.
    pub(super) frames: Mutex<Option<Vec<Sent>>>,
    /// Every frame of a copy, once they are asked for.
    pub(super) copies: Mutex<Option<Vec<Sent>>>,
    /// Says which frames of copies are lost without the sender's knowledge.
    pub(super) loses: RwLock<Option<Loses>>,
    /// Called when a store asks how a tablet is opened.
    pub(super) on_opening: RwLock<Option<OnOpening>>,
}

struct Port {
    node: NodeId,
    hub: Arc<Hub>,
}

impl Transport for Port {
    fn send(&self, to: NodeId, lane: Lane, frame: &[u8]) -> Result<(), SendError> {
        let cut = self.hub.cut.read().unwrap();
        let pair = (self.node.0.min(to.0), self.node.0.max(to.0));
        if cut.contains(&self.node.0) || cut.contains(&to.0) || self.hub.parted.read().unwrap().contains(&pair) {
            return Err(SendError::Down);
        }
        if let (Lane::Raft, Some(frames)) = (lane, &mut *self.hub.frames.lock().unwrap()) {
            frames.push((self.node.0, frame.to_vec()));
        }
        if let (Lane::Bulk, Some(frames)) = (lane, &mut *self.hub.copies.lock().unwrap()) {
            frames.push((self.node.0, frame.to_vec()));
        }
        if let (Lane::Bulk, Some(loses)) = (lane, *self.hub.loses.read().unwrap())
            && Frame::decode(frame).is_ok_and(|frame| loses(&frame))
        {
            return Ok(());
        }
        let store = self.hub.stores.read().unwrap().get(&to.0).and_then(Weak::upgrade).ok_or(SendError::Down)?;
        store.receive(self.node, lane, frame);
        Ok(())
    }
}

/// Opens every tablet where it was placed last, or as one of three initial voters.
struct Founded {
    node: u64,
    hub: Arc<Hub>,
}

impl Openings for Founded {
    fn opening(&self, tablet: TabletId) -> Option<OpenTablet> {
        if let Some(on_opening) = &*self.hub.on_opening.read().unwrap() {
            on_opening(self.node);
        }
        let placed = self.hub.placed.read().unwrap().get(&tablet.0).cloned();
        Some(placed.map_or_else(|| of_three(tablet.0), |(initial, voters)| placed_on(tablet.0, &initial, &voters)))
    }

    fn child(&self, _parent: TabletId, child: TabletId) -> ChildOpening {
        if *self.hub.ignorant.read().unwrap() == Some(self.node) {
            return ChildOpening::NotYet;
        }
        self.opening(child).map_or(ChildOpening::Never, |opening| ChildOpening::As(Box::new(opening)))
    }

    fn was_split(&self, mark: &SplitMark) {
        self.hub.splits.write().unwrap().push((self.node, mark.clone()));
    }
}

fn placed_on(tablet: u64, initial: &[u64], voters: &[u64]) -> OpenTablet {
    let nodes = |ids: &[u64]| ids.iter().copied().map(NodeId).collect::<Vec<_>>();
    let members = Members { voters: nodes(voters), learners: Vec::new() };
    OpenTablet { initial_voters: nodes(initial), members, ..plain(tablet) }
}

pub(super) fn of_three(tablet: u64) -> OpenTablet {
    let nodes: Vec<_> = (1..=3).map(NodeId).collect();
    let members = Members { voters: nodes.clone(), learners: Vec::new() };
    OpenTablet { initial_voters: nodes, members, ..plain(tablet) }
}

pub(super) struct Cluster {
    pub(super) hub: Arc<Hub>,
    pub(super) stores: BTreeMap<u64, Arc<Store>>,
    /// Removed after the stores have ended: a store whose files disappear takes its disk for failed, and ends the process.
    pub(super) homes: Vec<tempfile::TempDir>,
    /// By how many microseconds the clock of each node is behind that of the first, for each that comes later.
    behind_us: i64,
    pub(super) durability: Durability,
}

impl Cluster {
    pub(super) fn start(nodes: u64) -> Self {
        Self::start_with_clocks(nodes, 0)
    }

    fn start_with_clocks(nodes: u64, behind_us: i64) -> Self {
        let homes = (0..nodes).map(|_| tempfile::tempdir().unwrap()).collect();
        let mut cluster = Self::of(homes, behind_us, Durability::Fsync);
        (1..=nodes).for_each(|node| cluster.start_node(node));
        cluster
    }

    /// One whose nodes are not started yet.
    pub(super) fn of(homes: Vec<tempfile::TempDir>, behind_us: i64, durability: Durability) -> Self {
        Self { hub: Arc::default(), homes, stores: BTreeMap::new(), behind_us, durability }
    }

    pub(super) fn start_node(&mut self, node: u64) {
        let port = Port { node: NodeId(node), hub: Arc::clone(&self.hub) };
        let clock = Arc::new(Behind(SystemClock::new(), self.behind_us * (node as i64 - 1)));
        let home = self.homes[node as usize - 1].path();
        let store = start_durable(clock, &[home], LOG_BYTES, (node, self.durability), Arc::new(port));
        let store = Arc::new(store);
        let others = (1..=self.homes.len() as u64).filter(|other| *other != node).map(NodeId);
        self.hub.stores.write().unwrap().insert(node, Arc::downgrade(&store));
        store.set_openings(Arc::new(Founded { node, hub: Arc::clone(&self.hub) }));
        store.set_peers(others.collect());
        self.stores.insert(node, store);
    }

    pub(super) fn stop_node(&mut self, node: u64) {
        self.hub.stores.write().unwrap().remove(&node);
        let store = self.stores.remove(&node).unwrap();
        wait_for(|| Arc::strong_count(&store) == 1);
    }

    pub(super) fn open(&self, node: u64, tablet: u64, initial: &[u64], voters: &[u64]) {
        let open = placed_on(tablet, initial, voters);
        self.stores[&node].open(vec![open]).unwrap();
    }

    pub(super) fn leader(&self, tablet: u64) -> Option<u64> {
        let leads = |store: &Arc<Store>| {
            store.handle(TabletId(tablet)).is_some_and(|handle| handle.leadership() == Leadership::Here)
        };
        self.stores.iter().find(|(_, store)| leads(store)).map(|(node, _)| *node)
    }

    pub(super) fn wait_for_leader(&self, tablet: u64) -> u64 {
        wait_for(|| self.leader(tablet).is_some());
        self.leader(tablet).unwrap_or_else(|| self.wait_for_leader(tablet))
    }

    /// Adds one to a counter, wherever the leader is, until it is acknowledged: once, as an addition whose outcome is not known
    /// is looked for before it is repeated.
    pub(super) fn add(&self, tablet: u64, n: u64) {
        const FENCE: u64 = 1_000_000;
        let before = self.read(tablet, n);
        let write = |n| {
            let leader = self.wait_for_leader(tablet);
            write_all(&self.stores[&leader], vec![(tablet, add(n, 1))]).pop().unwrap()
        };
        wait_for(|| match write(n) {
            Ok(_) => true,
            // What stands before an acknowledged write in the log has been applied, or never will be.
            Err(KvError::Timeout(_)) => {
                wait_for(|| write(FENCE).is_ok());
                self.read(tablet, n) > before
            }
            Err(_) => false,
        });
    }

    /// The value on the leader, as soon as there is one with a lease.
    pub(super) fn read(&self, tablet: u64, n: u64) -> u64 {
        let mut found = None;
        wait_for(|| {
            let leader = self.leader(tablet).and_then(|node| self.stores[&node].handle(TabletId(tablet)));
            found = leader.and_then(|handle| handle.get(Permit::Lease, &key(n)).ok());
            found.is_some()
        });
        found.flatten().map_or(0, |value| number(&value))
    }

    /// The value that the replica on `node` has applied, leader or not; 0 while the replica is not open (a copy takes its place).
    pub(super) fn stored(&self, node: u64, tablet: u64, n: u64) -> u64 {
        let Some(handle) = self.stores[&node].handle(TabletId(tablet)) else { return 0 };
        handle.data().get(&key(n)).unwrap().map_or(0, |value| number(&value))
    }
}

/// Waits for something that must come about. The bound is generous and asserts nothing about speed.
pub(super) fn wait_for(mut is_so: impl FnMut() -> bool) {
    let (_never, wait) = sync_channel::<()>(1);
    let come = (0..18_000).any(|_| is_so() || wait.recv_timeout(Duration::from_millis(10)).is_ok());
    assert!(come, "waited in vain");
}

#[test]
fn three_replicas_elect_the_preferred_one_and_all_hold_what_was_acknowledged() {
    let cluster = Cluster::start(3);
    (1..=3).for_each(|node| cluster.open(node, 1_000, &[1, 2, 3], &[2, 3, 1]));
    wait_for(|| cluster.leader(1_000) == Some(2));
    for _ in 0..20 {
        cluster.add(1_000, 1);
    }
    assert_eq!(cluster.read(1_000, 1), 20);
    wait_for(|| (1..=3).all(|node| cluster.stored(node, 1_000, 1) == 20));
    let follower = cluster.stores[&1].handle(TabletId(1_000)).unwrap();
    assert_eq!(follower.leadership(), Leadership::Elsewhere(NodeId(2)));
    assert!(matches!(follower.get(Permit::Lease, &key(1)), Err(KvError::NotLeader { leader: Some(NodeId(2)), .. })));
}

#[test]
fn another_leads_when_the_leader_is_gone_and_the_returned_one_catches_up() {
    let mut cluster = Cluster::start(3);
    let open = |cluster: &Cluster, node| (1_000..1_008).for_each(|t| cluster.open(node, t, &[1, 2, 3], &[1, 2, 3]));
    (1..=3).for_each(|node| open(&cluster, node));
    (1_000..1_008).for_each(|tablet| cluster.add(tablet, 1));
    cluster.stop_node(1);
    (1_000..1_008).for_each(|tablet| cluster.add(tablet, 1));
    assert!((1_000..1_008).all(|tablet| cluster.read(tablet, 1) == 2));
    cluster.start_node(1);
    open(&cluster, 1);
    wait_for(|| (1_000..1_008).all(|tablet| cluster.stored(1, tablet, 1) == 2));
    // It is preferred, so it leads again after a while.
    wait_for(|| (1_000..1_008).all(|tablet| cluster.leader(tablet) == Some(1)));
    assert!((1_000..1_008).all(|tablet| cluster.read(tablet, 1) == 2));
}

#[test]
fn a_leader_whose_clock_is_behind_stamps_after_what_it_took_over() {
    // As far as clocks may be apart: the transfer takes less than that.
    let cluster = Cluster::start_with_clocks(3, 240_000);
    (1..=3).for_each(|node| cluster.open(node, 1_000, &[1, 2, 3], &[1, 2, 3]));
    wait_for(|| cluster.leader(1_000) == Some(1));
    let newest = |cluster: &Cluster| {
        let handle = cluster.stores[&cluster.wait_for_leader(1_000)].handle(TabletId(1_000)).unwrap();
        handle.data().applied_state().unwrap().newest_stamp_us
    };
    cluster.add(1_000, 1);
    let before = newest(&cluster);
    let members = Members { voters: [2, 1, 3].map(NodeId).to_vec(), learners: Vec::new() };
    (1..=3).for_each(|node| cluster.stores[&node].set_members(TabletId(1_000), members.clone()));
    wait_for(|| cluster.leader(1_000) == Some(2));
    cluster.add(1_000, 1);
    assert!(newest(&cluster) > before, "an acknowledged write has a lesser timestamp than one before it");
}

#[test]
fn a_leader_that_is_cut_off_does_not_answer_once_another_may_lead() {
    let cluster = Cluster::start(3);
    (1..=3).for_each(|node| cluster.open(node, 1_000, &[1, 2, 3], &[1, 2, 3]));
    wait_for(|| cluster.leader(1_000) == Some(1));
    cluster.add(1_000, 1);
    cluster.hub.cut.write().unwrap().push(1);
    let leads = |node: u64| cluster.stores[&node].handle(TabletId(1_000)).unwrap().leadership() == Leadership::Here;
    wait_for(|| {
        // At no moment do two of them: the others are looked at first, so that a change of leader in between is not taken for two.
        let others = leads(2) || leads(3);
        assert!(!(others && leads(1)), "two leaseholders");
        others
    });
    cluster.add(1_000, 1);
    assert!(cluster.stores[&1].handle(TabletId(1_000)).unwrap().get(Permit::Lease, &key(1)).is_err());
    cluster.hub.cut.write().unwrap().clear();
    wait_for(|| cluster.stored(1, 1_000, 1) == 2);
}

#[test]
fn a_leader_that_has_lost_its_quorum_steps_down_for_one_that_has_not() {
    let cluster = Cluster::start(5);
    let nodes = [1, 2, 3, 4, 5];
    nodes.into_iter().for_each(|node| cluster.open(node, 1_000, &nodes, &[2, 1, 3, 4, 5]));
    wait_for(|| cluster.leader(1_000) == Some(2));
    cluster.add(1_000, 1);
    // Of the three that are left only the first is in touch with both others; it has promised itself to the second.
    cluster.hub.cut.write().unwrap().extend([4, 5]);
    cluster.hub.parted.write().unwrap().push((2, 3));
    wait_for(|| cluster.leader(1_000) == Some(1));
    (0..5).for_each(|_| cluster.add(1_000, 1));
    // The second is preferred, and leads as soon as it can.
    cluster.hub.parted.write().unwrap().clear();
    wait_for(|| cluster.leader(1_000) == Some(2));
    assert_eq!(cluster.read(1_000, 1), 6);
}

#[test]
fn a_group_of_one_grows_to_three_and_survives_its_first_voter() {
    let mut cluster = Cluster::start(3);
    cluster.open(1, 1_000, &[1], &[1]);
    (0..10).for_each(|_| cluster.add(1_000, 1));
    cluster.open(2, 1_000, &[1], &[1, 2, 3]);
    cluster.open(3, 1_000, &[1], &[1, 2, 3]);
    let voters = vec![NodeId(1), NodeId(2), NodeId(3)];
    cluster.stores[&1].set_members(TabletId(1_000), Members { voters, learners: Vec::new() });
    wait_for(|| (1..=3).all(|node| cluster.stored(node, 1_000, 1) == 10));
    wait_for(|| cluster.stores[&3].voters(TabletId(1_000)).len() == 3);
    cluster.stop_node(1);
    cluster.add(1_000, 1);
    assert_eq!(cluster.read(1_000, 1), 11);
}

#[test]
fn writes_to_a_follower_are_refused_with_the_leaders_name() {
    let cluster = Cluster::start(3);
    (1..=3).for_each(|node| cluster.open(node, 1_000, &[1, 2, 3], &[1, 2, 3]));
    wait_for(|| cluster.leader(1_000) == Some(1));
    cluster.add(1_000, 1);
    let outcomes = write_all(&cluster.stores[&2], vec![(1_000, add(1, 1))]);
    assert!(matches!(outcomes[0], Err(KvError::NotLeader { leader: Some(NodeId(1)), .. })), "{outcomes:?}");
    cluster.stores[&1].release_leadership();
    wait_for(|| cluster.leader(1_000).is_some_and(|leader| leader != 1));
    assert_eq!(cluster.read(1_000, 1), 1);
}

#[test]
fn a_leader_that_has_transferred_leadership_sends_nothing_that_would_cancel_the_election() {
    let cluster = Cluster::start(3);
    let tablets = 1_000..1_030;
    for tablet in tablets.clone() {
        (1..=3).for_each(|node| cluster.open(node, tablet, &[1, 2, 3], &[1, 2, 3]));
    }
    tablets.clone().for_each(|tablet| wait_for(|| cluster.leader(tablet) == Some(1)));
    *cluster.hub.frames.lock().unwrap() = Some(Vec::new());
    let members = Members { voters: [2, 3, 1].map(NodeId).to_vec(), learners: Vec::new() };
    for tablet in tablets.clone() {
        (1..=3).for_each(|node| cluster.stores[&node].set_members(TabletId(tablet), members.clone()));
    }
    wait_for(|| {
        tablets.clone().for_each(|tablet| cluster.add(tablet, 1));
        tablets.clone().all(|tablet| cluster.leader(tablet) == Some(2))
    });
    let frames = cluster.hub.frames.lock().unwrap().take().unwrap();
    let mut released = BTreeMap::new();
    for (from, frame) in frames {
        for (group, envelope) in crate::group::wire::envelopes(&frame).unwrap() {
            match envelope {
                Envelope::Released { term, .. } => drop(released.insert((from, group), term)),
                Envelope::Raft { message, .. } if released.get(&(from, group)) == Some(&crate::Term(message.term)) => {
                    assert!(!is_without_entries(&message), "{group}: {message:?}");
                }
                _ => {}
            }
        }
    }
    assert!(!released.is_empty(), "nothing was transferred");
}

#[test]
fn a_node_that_stops_gives_its_vote_to_those_who_lead_next() {
    let mut cluster = Cluster::start(3);
    let tablets = 1_000..1_008;
    let open = |node| tablets.clone().for_each(|tablet| cluster.open(node, tablet, &[1, 2, 3], &[1, 2, 3]));
    (1..=3).for_each(open);
    wait_for(|| tablets.clone().all(|tablet| cluster.leader(tablet) == Some(1)));
    tablets.clone().for_each(|tablet| cluster.add(tablet, 1));
    // The other two can do without it only once one of them leads.
    cluster.hub.parted.write().unwrap().push((2, 3));
    cluster.stores[&1].release_leadership();
    assert!(cluster.stores[&1].wait_for_successors(Duration::from_secs(30)));
    // It is preferred, and would lead again after a while.
    let (_never, wait) = sync_channel::<()>(1);
    let _ = wait.recv_timeout(Duration::from_millis(2_500));
    assert!(tablets.clone().all(|tablet| cluster.leader(tablet) != Some(1)));
    cluster.stop_node(1);
    cluster.hub.parted.write().unwrap().clear();
    tablets.for_each(|tablet| cluster.add(tablet, 1));
}

#[test]
fn a_replica_that_the_log_can_no_longer_help_is_given_a_copy() {
    let mut cluster = Cluster::start(3);
    (1..=3).for_each(|node| cluster.open(node, 1_000, &[1, 2, 3], &[1, 2, 3]));
    wait_for(|| cluster.leader(1_000) == Some(1));
    cluster.add(1_000, 1);
    cluster.stop_node(3);
    for n in 0..50 {
        cluster.add(1_000, n % 5);
    }
    for node in 1..=2 {
        let store = &cluster.stores[&node];
        wait_for(|| cluster.stored(node, 1_000, 1) == 11);
        store.handle(TabletId(1_000)).unwrap().data().flush(true).unwrap();
        store.cut_log(TabletId(1_000));
    }
    (0..5).for_each(|n| cluster.add(1_000, n));
    cluster.start_node(3);
    cluster.stores[&3].open(vec![of_three(1_000)]).unwrap();
    let total = |cluster: &Cluster| (0..5).map(|n| cluster.stored(3, 1_000, n)).sum::<u64>();
    wait_for(|| total(&cluster) == 56);
    // It goes on from the copy: with another node gone it is needed for the quorum, and after a restart it still knows.
    cluster.stop_node(2);
    cluster.add(1_000, 1);
    cluster.stop_node(3);
    cluster.start_node(3);
    cluster.stores[&3].open(vec![of_three(1_000)]).unwrap();
    cluster.add(1_000, 1);
    wait_for(|| total(&cluster) == 58);
    let left: Vec<_> = std::fs::read_dir(cluster.homes[2].path().join("tablets")).unwrap().collect();
    assert_eq!(left.len(), 1, "{left:?}");
}

#[test]
fn the_log_stays_bounded_while_a_node_is_down_which_then_comes_back() {
    let mut cluster = Cluster::start(3);
    (1..=3).for_each(|node| cluster.open(node, 1_000, &[1, 2, 3], &[1, 2, 3]));
    wait_for(|| cluster.leader(1_000) == Some(1));
    cluster.add(1_000, 1);
    cluster.stop_node(3);
    let mut value = vec![0; 512 << 10];
    value[0] = 1;
    for n in 0..(6 * LOG_BYTES / (512 << 10)) {
        let mut mutation = Mutation::blind(None);
        mutation.push(OperationKind::Overwrite, false, &key(2 + n % 8), &value);
        assert!(write_all(&cluster.stores[&1], vec![(1_000, mutation)])[0].is_ok());
    }
    let log_bytes = |node: u64| cluster.stores[&node].disks()[0].log_bytes;
    wait_for(|| (1..=2).all(|node| log_bytes(node) <= 3 * LOG_BYTES));
    cluster.start_node(3);
    cluster.stores[&3].open(vec![of_three(1_000)]).unwrap();
    wait_for(|| (1..10).all(|n| cluster.stored(3, 1_000, n) == 1));
}

#[test]
fn a_follower_answers_those_who_ask_for_it_within_the_bound_and_not_when_it_is_cut_off() {
    const BOUND_NS: u64 = 2_000_000_000;
    let cluster = Cluster::start(3);
    (1..=3).for_each(|node| cluster.open(node, 1_000, &[1, 2, 3], &[1, 2, 3]));
    wait_for(|| cluster.leader(1_000) == Some(1));
    cluster.add(1_000, 1);
    let store = &cluster.stores[&2];
    let handle = store.handle(TabletId(1_000)).unwrap();
    assert!(handle.get(Permit::Staleness(BOUND_NS), &key(1)).is_err(), "nothing is known yet");
    wait_for(|| store.may_read_stale(&handle, BOUND_NS));
    // Asked after the write was acknowledged, so it is there.
    let read = || handle.get(Permit::Staleness(BOUND_NS), &key(1)).map(|value| value.map_or(0, |value| number(&value)));
    assert_eq!(read().unwrap(), 1);
    assert!(handle.get(Permit::Lease, &key(1)).is_err(), "it does not lead");
    cluster.hub.cut.write().unwrap().push(2);
    wait_for(|| !store.may_read_stale(&handle, BOUND_NS));
    assert!(read().is_err());
    cluster.hub.cut.write().unwrap().clear();
    wait_for(|| store.may_read_stale(&handle, BOUND_NS));
}

#[test]
fn a_replica_that_holds_as_much_as_a_copy_would_bring_refuses_it_and_goes_on() {
    let cluster = Cluster::start(3);
    (1..=3).for_each(|node| cluster.open(node, 1_000, &[1, 2, 3], &[1, 2, 3]));
    wait_for(|| cluster.leader(1_000) == Some(1));
    (0..20).for_each(|n| cluster.add(1_000, n % 5));
    let applied = |node: u64| cluster.stores[&node].handle(TabletId(1_000)).unwrap().data().applied_state().unwrap();
    wait_for(|| applied(3) == applied(1) && applied(2) == applied(1));
    *cluster.hub.copies.lock().unwrap() = Some(Vec::new());
    let before = cluster.stores[&3].handle(TabletId(1_000)).unwrap();
    // As when it had lost the acknowledgements of the third node, and its log did not reach back to the last that came.
    cluster.stores[&1].copies.provide(TabletId(1_000), NodeId(3), &[NodeId(2)]);
    let frames = || cluster.hub.copies.lock().unwrap().clone().unwrap();
    let is_answer = |frame: &[u8]| matches!(Frame::decode(frame), Ok(Frame::Answer { state: State::Broken, .. }));
    wait_for(|| frames().iter().any(|(from, frame)| *from == 2 && is_answer(frame)));
    let frames = frames();
    let sent = frames.iter().map(|(from, frame)| (*from, Frame::decode(frame).unwrap()));
    let refusals = sent.clone().filter(
        |(from, frame)| matches!(frame, Frame::Ended { failure, .. } if *from == 3 && failure.contains("holds as much")),
    );
    assert_eq!(refusals.count(), 1, "{frames:?}");
    assert!(!sent.clone().any(|(_, frame)| matches!(frame, Frame::Piece { .. })), "nothing was sent for nothing");
    // It was not even closed for a moment.
    assert!(Arc::ptr_eq(&before, &cluster.stores[&3].handle(TabletId(1_000)).unwrap()));
    cluster.add(1_000, 1);
    wait_for(|| cluster.stored(3, 1_000, 1) == 5);
    let left: Vec<_> = std::fs::read_dir(cluster.homes[2].path().join("tablets")).unwrap().collect();
    assert_eq!(left.len(), 1, "{left:?}");
}
