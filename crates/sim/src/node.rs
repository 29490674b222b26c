//! A simulated node: a core, its clocks and its share of the network while it lives, and the disk that outlasts its lives.
//!
//! In production a core has a thread of its own, and heartbeats another; here both are turns that the simulation gives, so that what
//! happens between two of them, and while a core waits for its disk, is the simulation's to decide.

use crate::children::keep_own;
use crate::clock::{NodeClock, TrueTime};
use crate::core_thread::{CoreThread, WaitingPlace};
use crate::dice::Dice;
use crate::engine::{SimEngine, SimLog};
use crate::network::Network;
use crate::placement::Placement;
use crate::program::Programs;
use crate::rows::{RowWorld, Said, SameAnswers};
use crate::splits::KeyRange;
use diorite_base::mutation::Evaluator;
use diorite_base::write::{Completion, WriteSink};
use diorite_base::{Clock, GroupId, NodeId, TabletId};
use diorite_raft::{ConfState, SupportChange};
use diorite_replica::{
    Context, CopyRequests, Core, Durability, Input, LogRead, Members, Merging, Opening, Planted, Replica,
    SplitListener, SplitMark, TabletHandle, envelopes,
};
use diorite_rpc::{Lane, Transport};
use diorite_storage::{
    Log, LogRecords, MemoryLog, MemoryReader, MemoryRecords, MemoryTablet, TabletData, ValueSemantics,
};
use parking_lot::Mutex;
use std::cell::RefMut;
use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::sync::Arc;

/// Incarnations are drawn below this: epochs count up from them.
const INCARNATIONS: u64 = 1 << 40;

/// What is wrong with a node's clocks and disk.
#[derive(Clone, Copy, Debug)]
pub struct Quirks {
    /// The monotonic clock goes too fast by so many parts per million.
    pub rate_error_ppm: i64,
    /// The wall clock is off, microseconds.
    pub wall_error_us: i64,
    /// The longest usual sync, microseconds.
    pub sync_us: u64,
}

/// What all nodes of a cluster are made with.
pub struct Setting {
    /// The nodes.
    pub nodes: Vec<NodeId>,
    /// The tablets and where they are wanted.
    pub tablets: BTreeMap<TabletId, Placement>,
    /// The voters that each tablet begins with.
    pub founders: BTreeMap<TabletId, Vec<NodeId>>,
    /// The keys of every tablet that there is, was or will be.
    pub ranges: BTreeMap<TabletId, KeyRange>,
    /// Bugs to be planted.
    pub planted: Planted,
    /// If tablets hold real rows: what their programs have answered.
    pub said: Option<Arc<Said>>,
    /// When what is acknowledged is durable.
    pub durability: Durability,
    /// The network.
    pub network: Network,
    /// True time.
    pub time: TrueTime,
}

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

/// Replicas that have been split, with whether they led.
#[derive(Default)]
struct WereSplit(Mutex<Vec<(SplitMark, bool)>>);

impl SplitListener for WereSplit {
    fn split(&self, mark: &SplitMark, leads: bool) {
        self.0.lock().push((mark.clone(), leads));
    }
}

/// What outlasts the lives of a node.
#[derive(Default)]
pub(crate) struct Disk {
    /// What values mean; without, they are plain.
    semantics: Option<Arc<dyn ValueSemantics>>,
    pub(crate) log: MemoryLog,
    pub(crate) tablets: BTreeMap<TabletId, Arc<MemoryTablet>>,
    /// What was made of children before their parents were split, and in which life: it counts in that one only.
    pub(crate) prepared: BTreeMap<TabletId, (u64, Arc<MemoryTablet>)>,
}

/// A node's process.
pub struct Life {
    /// Counts the lives of the node.
    pub number: u64,
    /// Its clocks.
    pub clock: Arc<NodeClock>,
    /// Its replicas, as other threads see them.
    pub handles: BTreeMap<TabletId, Arc<TabletHandle<MemoryTablet>>>,
    /// Its core, on its thread.
    pub thread: CoreThread,
    /// What waits for the core's next turn.
    pub input: Input,
    /// Its log.
    pub log: Arc<SimLog>,
    /// Whether the core's next turn is scheduled.
    pub is_woken: bool,
    /// Whether the core's next look at what is due is scheduled.
    pub will_tick: bool,
    /// Whether the core is to look at what is due.
    pub must_tick: bool,
    /// What was written before this true time is durable.
    pub synced_ns: u64,
    /// The true time at which lapsed support is looked for next.
    pub expires_ns: Option<u64>,
    /// What is to be read from the log.
    reads: VecDeque<LogRead<MemoryReader>>,
    context: Arc<Context>,
    /// If tablets hold real rows: what their programs have answered.
    said: Option<Arc<Said>>,
    sink: Arc<Sink>,
    lacking: Arc<Lacking>,
    were_split: Arc<WereSplit>,
}

/// A node.
pub struct Node {
    /// Which.
    pub id: NodeId,
    /// The process, if it runs.
    pub life: Option<Life>,
    /// Whether something that it had written to its log was lost since its last start.
    pub has_lost_power: bool,
    /// Whether the process is stopped for a while.
    pub is_paused: bool,
    /// Whether it is to be paused during the next read, after that has taken its value or before, and for how long, nanoseconds.
    pub pauses_in_read: Option<(bool, u64)>,
    /// What is wrong with it.
    pub quirks: Quirks,
    /// What it has heard of where tablets are wanted; not lost when it ends.
    pub(crate) heard: BTreeMap<TabletId, Placement>,
    pub(crate) disk: Disk,
    pub(crate) lives: u64,
}

impl Node {
    /// A node that was never started, and knows where tablets are wanted in the beginning. They hold real rows, or plain values.
    pub fn new(id: NodeId, quirks: Quirks, heard: BTreeMap<TabletId, Placement>, has_rows: bool) -> Self {
        let disk = Disk { semantics: has_rows.then(RowWorld::semantics), ..Disk::default() };
        Self {
            id,
            life: None,
            has_lost_power: false,
            is_paused: false,
            pauses_in_read: None,
            quirks,
            heard,
            disk,
            lives: 0,
        }
    }

    /// Starts the process: it finds what its disk holds.
    pub fn start(&mut self, setting: &Setting, dice: &mut Dice) {
        assert!(self.life.is_none(), "a node has one process");
        self.lives += 1;
        if std::mem::take(&mut self.has_lost_power) && setting.durability != Durability::Fsync {
            self.disk.log.forget_floors();
        }
        let (time, port) = (setting.time.clone(), setting.network.port(self.id));
        let Quirks { rate_error_ppm, wall_error_us, sync_us } = self.quirks;
        let local_ns = dice.milliseconds(0, 10_000);
        let clock = Arc::new(NodeClock::new(time.clone(), local_ns, rate_error_ppm, wall_error_us));
        let disk_dice = Dice::new(dice.bits(), self.id.0);
        let place: Arc<WaitingPlace> = Arc::default();
        let ways = (Arc::clone(&port), Arc::clone(&place));
        let log = Arc::new(SimLog::new(self.disk.log.clone(), time, disk_dice, ways, sync_us));
        let incarnation = dice.range(1, INCARNATIONS);
        let context = Context::new(
            self.id,
            incarnation,
            setting.durability,
            Arc::clone(&clock) as Arc<dyn Clock>,
            port as Arc<dyn Transport>,
        );
        let context = Arc::new(context.plant(setting.planted));
        context.liveness().set_peers(setting.nodes.iter().copied().filter(|node| *node != self.id).collect());
        let core = Core::new(Arc::clone(&context), vec![Arc::clone(&log)]);
        let mut life = Life {
            number: self.lives,
            clock,
            handles: BTreeMap::new(),
            thread: CoreThread::new(core, place),
            input: Input::default(),
            log,
            is_woken: false,
            will_tick: false,
            must_tick: false,
            synced_ns: setting.time.now_ns(),
            expires_ns: None,
            reads: VecDeque::new(),
            context,
            said: setting.said.clone(),
            sink: Arc::default(),
            lacking: Arc::default(),
            were_split: Arc::default(),
        };
        life.context.set_copies(Arc::clone(&life.lacking) as Arc<dyn CopyRequests>);
        life.context.set_splits(Arc::clone(&life.were_split) as Arc<dyn SplitListener>);
        for (tablet, placement) in &self.heard {
            if self.disk.is_to_come(*tablet, placement) {
                continue;
            }
            if placement.is_on(self.id) {
                if self.disk.found(&life.log, *tablet, &setting.founders[tablet], placement.floor()) {
                    life.open(*tablet, placement.members.clone(), &self.disk.tablets[tablet]);
                }
            } else {
                self.disk.depart(*tablet);
            }
        }
        self.life = Some(life);
    }

    /// Hears where a tablet is wanted: takes it, lets go of it, or tells its replica. Returns whether it has let go of it.
    pub fn hear(&mut self, setting: &Setting, tablet: TabletId, placement: Placement) -> bool {
        let Some(life) = &mut self.life else { return false };
        if self.heard.get(&tablet).is_some_and(|known| known.version >= placement.version) {
            return false;
        }
        self.heard.insert(tablet, placement.clone());
        match (placement.is_on(self.id), life.handles.contains_key(&tablet)) {
            (true, true) => life.core().set_members(tablet, placement.members),
            (true, false) => {
                // Its parent's replica makes it, if there is one here.
                let is_made = placement.origin.is_some_and(|(parent, ..)| life.handles.contains_key(&parent));
                if !is_made && self.disk.found(&life.log, tablet, &setting.founders[&tablet], placement.floor()) {
                    life.open(tablet, placement.members, &self.disk.tablets[&tablet]);
                }
            }
            (false, true) => {
                // A parent that lagged until nobody needs it has not made its children: they begin empty.
                let children = placement.split.as_ref().map(|planned| planned.split.children);
                for child in children.into_iter().flatten() {
                    let Some(known) = self.heard.get(&child).filter(|known| known.is_on(self.id)) else { continue };
                    if !life.handles.contains_key(&child)
                        && self.disk.found(&life.log, child, &setting.founders[&child], known.floor())
                    {
                        life.open(child, known.members.clone(), &self.disk.tablets[&child]);
                    }
                }
                life.handles.remove(&tablet);
                // Otherwise the power is gone, and the next start sees to it.
                if life.core().close(tablet).is_ok() {
                    self.disk.tablets.remove(&tablet);
                }
                return true;
            }
            (false, false) => {}
        }
        false
    }

    /// Ends the process. `surviving`: how many of the log's batches that were not synced are found afterwards.
    pub fn end(&mut self, surviving: usize) {
        self.life = None;
        self.is_paused = false;
        self.pauses_in_read = None;
        self.has_lost_power |= surviving < self.unsynced_batches();
        self.disk.log = self.disk.log.crash(surviving);
        for data in self.disk.tablets.values_mut() {
            *data = Arc::new(data.crash());
        }
    }

    /// Puts a copy in the place of a tablet's data, if it is newer. Returns whether it was.
    pub fn install(&mut self, tablet: TabletId, copy: MemoryTablet) -> bool {
        let (Some(life), Some(data)) = (&mut self.life, self.disk.tablets.get_mut(&tablet)) else { return false };
        let Some(members) = self.heard.get(&tablet).map(|placement| placement.members.clone()) else { return false };
        let index = |data: &MemoryTablet| data.applied_state().map_or(0, |state| state.index);
        if index(&copy) <= index(data) {
            return false;
        }
        life.core().detach(tablet);
        *data = Arc::new(copy);
        life.open(tablet, members, data);
        true
    }

    /// How many of the log's batches a loss of power now could take.
    pub fn unsynced_batches(&self) -> usize {
        self.disk.log.unsynced_batches()
    }

    /// Lets the power go during the write after the next `writes`, or not (`None`).
    pub fn fail_after(&self, writes: Option<u64>) {
        self.disk.log.fail_after(writes);
    }
}

impl Disk {
    /// Whether the log says anything of a tablet. What there is of a child otherwise is not finished, and counts for nothing.
    pub(crate) fn is_logged(&self, tablet: TabletId) -> bool {
        self.log.groups().contains(&GroupId::from(tablet))
    }

    fn has_files(&self, tablet: TabletId) -> bool {
        self.tablets.contains_key(&tablet) || self.prepared.contains_key(&tablet)
    }

    /// Whether a child will be made by its parent's replica, when that learns that it was split.
    fn is_to_come(&self, tablet: TabletId, placement: &Placement) -> bool {
        let counts = |tablet| self.has_files(tablet) && self.is_logged(tablet);
        placement.origin.is_some_and(|(parent, ..)| counts(parent) && !counts(tablet))
    }

    /// Makes a tablet that is not there, and writes its first members to the log, and what a child must hold before it votes. Returns whether they are
    /// there: the power may go meanwhile.
    pub(crate) fn found(
        &mut self,
        log: &SimLog,
        tablet: TabletId,
        founders: &[NodeId],
        floor: Option<(u64, u64)>,
    ) -> bool {
        if floor.is_some() && !self.is_logged(tablet) {
            self.prepared.remove(&tablet);
            self.tablets.remove(&tablet);
        }
        let is_new = !self.has_files(tablet);
        if let Some((_, prepared)) = self.prepared.remove(&tablet).filter(|_| !self.is_logged(tablet)) {
            self.tablets.insert(tablet, prepared);
        }
        let data = self.tablets.entry(tablet).or_insert_with(|| Arc::new(MemoryTablet::new(self.semantics.clone())));
        keep_own(tablet, data);
        let group = GroupId::from(tablet);
        let Ok(recovered) = log.recover(group) else { return false };
        let mut records = MemoryRecords::default();
        let held = recovered.last_acknowledged();
        if let Some(floor) = floor.filter(|floor| is_new && (floor.1, floor.0) > (held.1, held.0)) {
            let retired = records.retire(group, &recovered.hard_state, floor);
            assert!(retired.is_ok(), "memory takes everything");
        }
        if recovered.conf_state.voters.is_empty() {
            let voters = founders.iter().map(|node| node.0).collect();
            let noted = records.set_conf_state(group, &ConfState { voters, ..ConfState::default() });
            assert!(noted.is_ok(), "memory takes everything");
        }
        records.is_empty() || log.write(&mut records, true).is_ok()
    }

    /// Removes what is left of a replica that was moved away while its node was down.
    fn depart(&mut self, tablet: TabletId) {
        let group = GroupId::from(tablet);
        let is_left = self.tablets.remove(&tablet).is_some();
        let Ok(recovered) = self.log.recover(group) else { return };
        if is_left && (recovered.last.0 > 0 || !recovered.conf_state.voters.is_empty()) {
            let mut records = MemoryRecords::default();
            let retired = records.retire(group, &recovered.hard_state, recovered.last_acknowledged());
            assert!(
                retired.is_ok() && self.log.write(&mut records, true).is_ok(),
                "a disk works while its node starts"
            );
        }
    }
}

impl Life {
    /// The core, which must not be waiting for its disk.
    pub fn core(&self) -> RefMut<'_, Core<SimEngine>> {
        self.thread.core()
    }

    pub(crate) fn open(&mut self, tablet: TabletId, members: Members, data: &Arc<MemoryTablet>) {
        let evaluator: Arc<dyn Evaluator> = match &self.said {
            Some(said) => Arc::new(Merging(SameAnswers::new(tablet, Arc::clone(said)))),
            None => Arc::new(Merging(Programs)),
        };
        let opening = Opening { tablet, members, evaluator };
        let replica = Replica::recover(&self.context, opening, Arc::clone(data), &*self.log, (0, 0));
        let replica = match replica {
            Ok(replica) => replica,
            // The power went while it was opened.
            Err(_) if self.log.has_failed() => return,
            Err(error) => panic!("{tablet} cannot be recovered: {error}"),
        };
        self.handles.insert(tablet, Arc::clone(replica.handle()));
        // Fails only if the log does, which is seen there.
        let opened = self.core().open(replica);
        assert!(opened.is_ok() || self.log.has_failed(), "{tablet} cannot be opened: {opened:?}");
    }

    /// Takes what the core wants to have read from the log; returns how many such reads that is.
    pub fn take_reads(&mut self) -> usize {
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

    /// Takes a frame; returns whether the core has something to do with it.
    pub fn receive(&mut self, from: NodeId, lane: Lane, frame: &[u8]) -> bool {
        match lane {
            Lane::Control => {
                let changes = self.context.liveness().receive(from, frame);
                self.change(changes)
            }
            Lane::Raft => {
                let envelopes = envelopes(frame).unwrap_or_else(|_| panic!("a frame of {from} is malformed"));
                self.input.envelopes.extend(envelopes.into_iter().map(|(group, envelope)| (from, group, envelope)));
                true
            }
            Lane::Requests | Lane::Bulk | Lane::Operations => false,
        }
    }

    /// Sends heartbeats; returns whether the core has something to do with what was noticed.
    pub fn beat(&mut self) -> bool {
        let changes = self.context.liveness().beat();
        self.change(changes)
    }

    /// Withdraws support that has lapsed; returns whether the core has something to do with it.
    pub fn expire(&mut self) -> bool {
        let changes = self.context.liveness().expire();
        self.change(changes)
    }

    /// The true time at which support lapses next, if nothing is heard until then.
    pub fn next_lapse_ns(&self) -> Option<u64> {
        self.context.liveness().next_lapse_ns().map(|local_ns| self.clock.true_ns(local_ns))
    }

    fn change(&mut self, changes: Vec<SupportChange>) -> bool {
        let is_concerned = !changes.is_empty();
        self.input.changes.extend(changes);
        is_concerned
    }

    /// Submits a write.
    pub fn submit(&mut self, tablet: TabletId, mutation: diorite_base::mutation::Mutation, token: u64) {
        let sink = Arc::clone(&self.sink) as Arc<dyn WriteSink>;
        let proposal = diorite_replica::Proposal::new(tablet, mutation, sink, token);
        self.input.proposals.push(proposal.expect("what clients ask here is within the limits"));
    }

    /// Members that need a copy of the data of a tablet, as was noticed since the last call.
    pub fn take_lacking(&self) -> BTreeSet<(TabletId, NodeId)> {
        std::mem::take(&mut self.lacking.0.lock())
    }

    /// Replicas that have been split since the last call, with whether they led.
    pub fn take_split(&self) -> Vec<(SplitMark, bool)> {
        std::mem::take(&mut self.were_split.0.lock())
    }

    /// Outcomes of writes since the last call.
    pub fn take_outcomes(&self) -> Vec<Completion> {
        std::mem::take(&mut self.sink.0.lock())
    }
}
