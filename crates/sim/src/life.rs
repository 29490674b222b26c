//! A node's process: its core, its clocks and its share of the network, and its part of the control plane.

use crate::clock::NodeClock;
use crate::copy::{CatalogCopy, Changed};
use crate::core_thread::CoreThread;
use crate::dice::Dice;
use crate::disk::{Disk, Disks};
use crate::engine::{SimEngine, SimLog};
use crate::program::Programs;
use crate::routing::{LIMITS, NodeView, TIMEOUTS, Work};
use crate::rows::{Said, SameAnswers};
use crate::setting::{Quirks, Setting};
use crate::waiting::WaitingPlace;
use diorite_base::mutation::Evaluator;
use diorite_base::write::{Completion, WriteSink};
use diorite_base::{Clock, Levels, NodeId, TabletId};
use diorite_cluster::catalog::{Catalog, Split};
use diorite_control::follower::{self, Follower, opening};
use diorite_control::membership::{Admission, Readiness, Ready, Refusal};
use diorite_control::merging::Merging as MergePolicy;
use diorite_control::peers::{Announced, Peers};
use diorite_control::replicas::{CATALOG_TABLET, Members as Wanted, Replicas, SplitEntry};
use diorite_control::routing::Machine;
use diorite_control::splitting::Splitting;
use diorite_control::steering::Steering;
use diorite_raft::SupportChange;
use diorite_replica::{
    CLOSED, Context, CopyRequests, Core, Incoming, Input, LEAVING, Leadership, Liveness, LogRead, Members, Merging,
    Opening, PeerListener, Replica, SplitListener, SplitMark, TabletHandle, TransactionPeers,
};
use diorite_rpc::{Lane, Transport};
use diorite_storage::{MemoryReader, MemoryTablet};
use diorite_transact::peer::PeerCall;
use parking_lot::Mutex;
use std::cell::RefMut;
use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::sync::Arc;

/// Incarnations are drawn below this: epochs count up from them.
const INCARNATIONS: u64 = 1 << 40;

/// Outcomes of writes that wait to be sent to clients.
#[derive(Default)]
struct Sink(Mutex<Vec<Completion>>);

impl WriteSink for Sink {
    fn complete(&self, done: &mut Vec<Completion>) {
        self.0.lock().append(done);
    }
}

/// Members that need a copy of a tablet's data.
#[derive(Default)]
struct Lacking(Mutex<BTreeSet<(TabletId, NodeId)>>);

impl CopyRequests for Lacking {
    fn lacks(&self, tablet: TabletId, member: NodeId, _: &[NodeId]) {
        self.0.lock().insert((tablet, member));
    }
}

/// Calls of transactions to the leaders of other tablets.
#[derive(Default)]
struct PeerCalls(Mutex<Vec<(TabletId, PeerCall)>>);

impl TransactionPeers for PeerCalls {
    fn call(&self, tablet: TabletId, call: PeerCall) {
        self.0.lock().push((tablet, call));
    }
}

/// Replicas that have been split, with whether they led.
#[derive(Default)]
struct WereSplit(Mutex<Vec<(SplitMark, bool)>>);

impl SplitListener for WereSplit {
    fn split(&self, mark: &SplitMark, leads: bool) {
        self.0.lock().push((mark.clone(), leads));
    }
}

/// The state of another node, from its heartbeats.
#[derive(Clone, Copy, Debug)]
pub enum PeerChange {
    /// They arrive, or no longer.
    Live(bool),
    /// It announces this.
    Announced(Announced),
}

#[derive(Default)]
struct PeerChanges(Mutex<Vec<(NodeId, PeerChange)>>);

impl PeerListener for PeerChanges {
    fn changed(&self, node: NodeId, is_up: bool) {
        self.0.lock().push((node, PeerChange::Live(is_up)));
    }

    fn announced(&self, node: NodeId, number: u64) {
        let announced = match number {
            0 => Announced::Nothing,
            LEAVING => Announced::Leaving,
            version => Announced::Serves(version),
        };
        self.0.lock().push((node, PeerChange::Announced(announced)));
    }
}

/// Members that are wanted, as the core has them.
pub fn members(Wanted { voters, learners }: Wanted) -> Members {
    Members { voters, learners }
}

/// The members that the replica of a tablet on a node is to have; none if it is not to be there.
pub fn wanted(catalog: &Catalog, node: NodeId, tablet: TabletId) -> Option<Members> {
    match tablet {
        CATALOG_TABLET => Some(members(Wanted::of_catalog(catalog).unwrap_or_default())),
        tablet => opening(catalog, node, tablet).map(|opening| members(Wanted::of(&opening.placement))),
    }
}

/// A node's part of the control plane.
pub struct Control {
    /// Follows the catalog.
    pub follower: Follower,
    /// Splits tablets.
    pub splitting: Splitting,
    /// Merges tablets.
    pub merging: MergePolicy,
    /// Balances, while the node leads the catalog.
    pub steering: Steering,
    /// The peers as this node knows them.
    pub peers: Peers,
    /// Whether others have let it in.
    pub admission: Admission<Refusal>,
    /// Until it is ready.
    pub readiness: Option<Readiness>,
}

/// A node's process.
pub struct Life {
    /// Counts the lives of the node.
    pub number: u64,
    /// The life, as heartbeats name it.
    pub incarnation: u64,
    /// Its router.
    pub router: Machine<Work>,
    /// Whether its router's next retry is scheduled.
    pub router_ticks: bool,
    /// Its clocks.
    pub clock: Arc<NodeClock>,
    /// Its replicas, as other threads see them.
    pub handles: BTreeMap<TabletId, Arc<TabletHandle<MemoryTablet>>>,
    /// Its core, on its thread.
    pub thread: CoreThread,
    /// What waits for the core's next turn.
    pub input: Input,
    /// Its logs, one per disk.
    pub logs: Vec<Arc<SimLog>>,
    /// Failed disks whose replicas were already opened elsewhere.
    pub given_up: BTreeSet<usize>,
    /// Whether the core's next turn is scheduled.
    pub is_woken: bool,
    /// Whether the core's next tick is scheduled.
    pub will_tick: bool,
    /// Whether the core must tick.
    pub must_tick: bool,
    /// For each log: writes before this true time are durable.
    pub synced_ns: Vec<u64>,
    /// The true time at which lapsed support is looked for next.
    pub expires_ns: Option<u64>,
    /// Its copy of the catalog.
    pub copy: CatalogCopy,
    /// Whether that has changed.
    pub copy_changed: Changed,
    /// Its part of the control plane.
    pub control: Control,
    /// Whether it has opened its tablets and follows the catalog.
    pub has_started: bool,
    /// Whether the next action on the way to the newest snapshot is scheduled.
    pub follows: bool,
    /// How it became ready to serve clients, if it is.
    pub ready: Option<Ready>,
    /// The greatest version that a client had received when the process started.
    pub told_before: u64,
    /// Replicas that are set aside, each with the index that the leader must have applied before it is made anew.
    pub asides: BTreeMap<TabletId, u64>,
    /// Tablets whose child tablets have been prepared.
    pub prepared: BTreeSet<TabletId>,
    /// Tablets whose child tablets are being prepared.
    pub preparing: BTreeSet<TabletId>,
    /// Tablets whose child tablets are to be prepared, collected since the set was last taken.
    to_prepare: Mutex<BTreeSet<TabletId>>,
    /// Log reads that are under way.
    reads: VecDeque<LogRead<MemoryReader>>,
    context: Arc<Context>,
    /// If tablets hold real rows: what their programs have answered.
    said: Option<Arc<Said>>,
    sink: Arc<Sink>,
    lacking: Arc<Lacking>,
    were_split: Arc<WereSplit>,
    peer_calls: Arc<PeerCalls>,
    peer_changes: Arc<PeerChanges>,
}

impl Life {
    /// A process that starts now, without a replica.
    pub fn new(id: NodeId, number: u64, quirks: Quirks, disks: &Disks, setting: &Setting, dice: &mut Dice) -> Self {
        let (time, port) = (setting.time.clone(), setting.network.port(id));
        let Quirks { rate_error_ppm, wall_error_us, sync_us, .. } = quirks;
        let local_ns = dice.milliseconds(0, 10_000);
        let clock = Arc::new(NodeClock::new(time.clone(), local_ns, rate_error_ppm, wall_error_us));
        let disk_bits = dice.bits();
        let place: Arc<WaitingPlace> = Arc::default();
        let log = |(number, disk): (usize, &Disk)| {
            let dice = Dice::new(disk_bits, id.0 + 1_000 * number as u64);
            let ways = (Arc::clone(&port), Arc::clone(&place));
            Arc::new(SimLog::new(disk.log.clone(), time.clone(), dice, ways, sync_us))
        };
        let logs: Vec<Arc<SimLog>> = disks.all.iter().enumerate().map(log).collect();
        let (own_clock, incarnation) = (Arc::clone(&clock) as Arc<dyn Clock>, dice.range(1, INCARNATIONS));
        let context = Context::new(id, incarnation, setting.durability, own_clock, port as Arc<dyn Transport>);
        let context = Arc::new(context.plant(setting.planted));
        let (core, copy_changed) = (Core::new(Arc::clone(&context), logs.clone()), Changed::default());
        let control = Control {
            follower: Follower::new(id, setting.control),
            splitting: Splitting::new(id),
            merging: MergePolicy::new(id),
            steering: Steering::new(setting.timing),
            peers: Peers::default(),
            admission: Admission::default(),
            readiness: None,
        };
        let mut router = Machine::new(id, LIMITS, TIMEOUTS);
        router.plant(setting.control);
        let life = Self {
            number,
            incarnation,
            router,
            router_ticks: false,
            clock,
            handles: BTreeMap::new(),
            thread: CoreThread::new(core, place),
            input: Input::default(),
            synced_ns: vec![setting.time.now_ns(); logs.len()],
            logs,
            given_up: BTreeSet::new(),
            is_woken: false,
            will_tick: false,
            must_tick: false,
            expires_ns: None,
            copy: CatalogCopy::new(&copy_changed, Levels::FIRST),
            copy_changed,
            control,
            has_started: false,
            follows: false,
            ready: None,
            told_before: 0,
            asides: BTreeMap::new(),
            prepared: BTreeSet::new(),
            preparing: BTreeSet::new(),
            to_prepare: Mutex::default(),
            reads: VecDeque::new(),
            context,
            said: setting.said.clone(),
            sink: Arc::default(),
            lacking: Arc::default(),
            were_split: Arc::default(),
            peer_calls: Arc::default(),
            peer_changes: Arc::default(),
        };
        life.context.set_copies(Arc::clone(&life.lacking) as Arc<dyn CopyRequests>);
        life.context.set_transactions(Arc::clone(&life.peer_calls) as Arc<dyn TransactionPeers>);
        life.context.set_splits(Arc::clone(&life.were_split) as Arc<dyn SplitListener>);
        life.liveness().set_listener(Arc::clone(&life.peer_changes) as Arc<dyn PeerListener>);
        life
    }

    /// The core, which must not be waiting for its disk.
    pub fn core(&self) -> RefMut<'_, Core<SimEngine>> {
        self.thread.core()
    }

    /// Its side of the heartbeats.
    pub fn liveness(&self) -> &Arc<Liveness> {
        self.context.liveness()
    }

    /// The newest snapshot of the catalog that it knows.
    pub fn newest(&self) -> Arc<Catalog> {
        Arc::clone(follower::newest(&self.copy.current(), self.control.follower.served()))
    }

    /// The snapshot that it serves.
    pub fn served(&self) -> &Arc<Catalog> {
        self.control.follower.served()
    }

    /// Whether it serves clients.
    pub fn is_ready(&self) -> bool {
        self.ready.is_some()
    }

    /// Whether it leads a tablet, as far as it knows.
    pub fn leads(&self, tablet: TabletId) -> bool {
        self.handles.get(&tablet).is_some_and(|handle| handle.leadership() == Leadership::Here)
    }

    /// Runs a decision of the control plane, with the state of this node's replicas. The core must not be waiting.
    pub fn decide<T>(&mut self, node: NodeId, decide: impl FnOnce(&mut Control, &Local<'_>) -> T) -> T {
        let local = Local {
            node,
            handles: &self.handles,
            thread: &self.thread,
            liveness: self.context.liveness(),
            prepared: &self.prepared,
            to_prepare: &self.to_prepare,
        };
        decide(&mut self.control, &local)
    }

    /// Whether the power is gone.
    pub fn has_lost_power(&self) -> bool {
        self.logs.iter().any(|log| log.has_failed())
    }

    /// Whether all of its disks work.
    pub fn do_disks_work(&self) -> bool {
        self.logs.iter().all(|log| log.works())
    }

    /// The true time until which it waits for its disks after writes outside of the core's thread.
    pub fn busy_until_ns(&self) -> u64 {
        self.logs.iter().map(|log| log.busy_until_ns()).max().unwrap_or(0)
    }

    /// The disk of a replica that is open, if that disk works.
    pub fn place(&self, tablet: TabletId) -> Option<usize> {
        self.handles.get(&tablet).map(|handle| handle.disk()).filter(|at| self.logs[*at].works())
    }

    /// Transfers leadership away if a store thread of the node hangs. In production a thread does this.
    pub fn watch_threads(&self) {
        diorite_replica::watch_threads(&self.context, self.handles.values().map(|handle| &**handle));
    }

    /// Lets its router do something, by what the node knows now.
    pub fn route(&mut self, act: impl FnOnce(&mut Machine<Work>, &NodeView<'_>, u64)) {
        let view = NodeView {
            handles: &self.handles,
            liveness: self.context.liveness(),
            served: self.control.follower.served(),
        };
        let now_ns = self.clock.monotonic_ns();
        act(&mut self.router, &view, now_ns);
    }

    /// Opens a replica, whose data is on this disk.
    pub fn open(&mut self, tablet: TabletId, members: Members, data: &Arc<MemoryTablet>, disk: usize) {
        let evaluator: Arc<dyn Evaluator> = match &self.said {
            _ if tablet == CATALOG_TABLET => self.copy.evaluator(),
            Some(said) => Arc::new(Merging(SameAnswers::new(tablet, Arc::clone(said)))),
            None => Arc::new(Merging(Programs)),
        };
        let opening = Opening { tablet, members, evaluator };
        let replica = Replica::recover(&self.context, opening, Arc::clone(data), &*self.logs[disk], (0, disk));
        let replica = match replica {
            Ok(replica) => replica,
            // The power went while it was opened.
            Err(_) if self.has_lost_power() => return,
            Err(error) => panic!("{tablet} cannot be recovered: {error}"),
        };
        self.handles.insert(tablet, Arc::clone(replica.handle()));
        // Fails only if the log does, which is detected there.
        let opened = self.core().open(replica);
        assert!(
            opened.is_ok() || self.has_lost_power() || !self.logs[disk].works(),
            "{tablet} cannot be opened: {opened:?}"
        );
    }

    /// Asks who leads a tablet whose replica here is set aside; it is not wanted any more if it is not to be here.
    pub fn seek_leader(&mut self, node: NodeId, tablet: TabletId) {
        match wanted(&self.newest(), node, tablet) {
            Some(members) => self.core().seek_leader(tablet, &members.voters),
            None => drop(self.asides.remove(&tablet)),
        }
    }

    /// Takes what the core wants to have read from the log; returns how many such reads that is. Rows are measured at once, for the core's next turn.
    pub fn take_reads(&mut self) -> usize {
        let sizes = self.core().take_measurements().into_iter().map(|read| read.carry_out(None));
        self.input.sizes.extend(sizes);
        let reads = self.core().take_reads();
        let count = reads.len();
        self.reads.extend(reads);
        count
    }

    /// Carries out the first of them, as the log is now; the answer is for the core's next turn.
    pub fn read_log(&mut self) {
        let answer = self.reads.pop_front().map(LogRead::carry_out);
        self.input.answers.extend(answer);
    }

    /// Takes a frame of heartbeats or of replicas; returns whether the core has something to do with it.
    pub fn receive(&mut self, from: NodeId, lane: Lane, frame: &[u8]) -> bool {
        match lane {
            Lane::Control => {
                let changes = self.liveness().receive(from, frame);
                self.change(changes)
            }
            Lane::Raft => {
                let incoming = Incoming::of_frame(self.liveness(), from, frame);
                let incoming = incoming.unwrap_or_else(|_| panic!("a frame of {from} is malformed"));
                self.input.envelopes.extend(incoming);
                true
            }
            Lane::Requests | Lane::Bulk | Lane::Operations => false,
        }
    }

    /// Sends heartbeats; returns whether the core must react to what the detector noticed.
    pub fn beat(&mut self) -> bool {
        let changes = self.liveness().beat();
        self.change(changes)
    }

    /// Withdraws support that has lapsed; returns whether the core must react.
    pub fn expire(&mut self) -> bool {
        let changes = self.liveness().expire();
        self.change(changes)
    }

    /// The true time at which support lapses next, if no heartbeat arrives until then.
    pub fn next_lapse_ns(&self) -> Option<u64> {
        self.liveness().next_lapse_ns().map(|local_ns| self.clock.true_ns(local_ns))
    }

    /// Applies changes of support; returns whether the core must react.
    pub fn change(&mut self, changes: Vec<SupportChange>) -> bool {
        let is_concerned = !changes.is_empty();
        self.input.changes.extend(changes);
        is_concerned
    }

    /// Submits a write.
    pub fn submit(&mut self, tablet: TabletId, mutation: diorite_base::mutation::Mutation, token: u64) {
        let sink = Arc::clone(&self.sink) as Arc<dyn WriteSink>;
        let proposal = diorite_replica::Proposal::new(tablet, mutation, sink, token);
        self.input.proposals.push(proposal.expect("what is written here is within the limits"));
    }

    /// Members that need a copy of the data of a tablet, as was noticed since the last call.
    pub fn take_lacking(&self) -> BTreeSet<(TabletId, NodeId)> {
        std::mem::take(&mut self.lacking.0.lock())
    }

    /// Replicas that have been split since the last call, with whether they led.
    pub fn take_split(&self) -> Vec<(SplitMark, bool)> {
        std::mem::take(&mut self.were_split.0.lock())
    }

    /// Calls of transactions to other tablets since the last call, each with the tablet here that they are for.
    pub fn take_peer_calls(&self) -> Vec<(TabletId, PeerCall)> {
        std::mem::take(&mut self.peer_calls.0.lock())
    }

    /// The states that arrived with heartbeats since the last call.
    pub fn take_peer_changes(&self) -> Vec<(NodeId, PeerChange)> {
        std::mem::take(&mut self.peer_changes.0.lock())
    }

    /// Tablets whose child tablets are to be prepared, and are not yet.
    pub fn take_to_prepare(&mut self) -> Vec<TabletId> {
        let asked = std::mem::take(&mut *self.to_prepare.lock());
        asked.into_iter().filter(|tablet| self.preparing.insert(*tablet)).collect()
    }

    /// Outcomes of writes since the last call.
    pub fn take_outcomes(&self) -> Vec<Completion> {
        std::mem::take(&mut self.sink.0.lock())
    }
}

/// The state of a node's replicas, as its control plane sees it.
pub struct Local<'a> {
    node: NodeId,
    handles: &'a BTreeMap<TabletId, Arc<TabletHandle<MemoryTablet>>>,
    thread: &'a CoreThread,
    liveness: &'a Arc<Liveness>,
    prepared: &'a BTreeSet<TabletId>,
    to_prepare: &'a Mutex<BTreeSet<TabletId>>,
}

impl Replicas for Local<'_> {
    fn is_open(&self, tablet: TabletId) -> bool {
        self.handles.contains_key(&tablet)
    }

    fn leads(&self, tablet: TabletId) -> bool {
        self.handles.get(&tablet).is_some_and(|handle| handle.leadership() == Leadership::Here)
    }

    fn is_sealed(&self, tablet: TabletId) -> bool {
        self.handles.get(&tablet).is_some_and(|handle| handle.flags() & CLOSED != 0)
    }

    fn split_entry(&self, tablet: TabletId) -> Option<SplitEntry> {
        let mark = self.handles.get(&tablet)?.split()?;
        Some(SplitEntry { index: mark.index, term: mark.term })
    }

    fn have_prepared(&self, tablet: TabletId, _: &Split) -> bool {
        let is_prepared = self.prepared.contains(&tablet);
        if !is_prepared {
            self.to_prepare.lock().insert(tablet);
        }
        is_prepared
    }

    fn prepared_elsewhere(&self, tablet: TabletId) -> BTreeSet<NodeId> {
        self.handles.get(&tablet).map(|handle| handle.prepared_elsewhere()).unwrap_or_default()
    }

    fn matched(&self, tablet: TabletId) -> Option<Vec<(NodeId, u64)>> {
        self.thread.core().describe(tablet).map(|state| state.matched)
    }

    fn voters_in_place(&self, tablet: TabletId) -> Option<Vec<NodeId>> {
        self.handles.get(&tablet)?.committed_voters()
    }

    fn is_up(&self, node: NodeId) -> bool {
        node == self.node || self.liveness.is_up(node)
    }
}
