//! A whole cluster in one thread: takes one event after another and lets each part do what it does then.
//!
//! Always true: between two events nothing happens; an event's effects are events. What a paused process would do waits until it runs again,
//! in order. All decisions come from the seed, so that the same seed is the same run.

use crate::checkers::acknowledged::Losses;
use crate::checkers::replicas::Replicas;
use crate::checkers::{Finding, leaseholder};
use crate::client::{Answer, Asked, Clients};
use crate::clock::TrueTime;
use crate::dice::Dice;
use crate::merges::{MergeEvent, Merges};
use crate::nemesis::{Fault, Nemesis};
use crate::network::{Network, Parcel};
use crate::node::{Node, Quirks, Setting};
use crate::placement::{self, Placement};
use crate::process::Step;
use crate::queue::EventQueue;
use crate::rows::{RowClients, RowEvent, RowWorld};
use crate::run::{Options, Planting};
use crate::scenario::Scenario;
use crate::splits::{KeyRange, SplitEvent, Splits};
use crate::trace::Trace;
use diorite_base::{NodeId, TabletId};
use diorite_replica::{Durability, Permit};
use diorite_storage::MemoryTablet;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

/// How often it is looked whether moves are done, nanoseconds.
const SETTLE_NS: u64 = 60_000_000;

/// The number of the first tablet that others are split into.
const FIRST_CHILD: u64 = 2_000;

/// Something that happens.
#[derive(Clone)]
pub enum Event {
    /// A frame comes to the end of its way.
    Arrive(Parcel),
    /// A process does something.
    Process(NodeId, u64, Step),
    /// A request comes to its node.
    Request(Asked),
    /// An answer comes to its client.
    Answer(Asked, Answer),
    /// A client waits no longer.
    GiveUp(u32, u64),
    /// A client does something.
    Act(u32),
    /// Something goes wrong, or is mended.
    Fault(Fault),
    /// A node hears where a tablet is wanted.
    Placement(NodeId, TabletId, Placement),
    /// It is looked whether moves are done.
    Settle,
    /// Something happens to a statement.
    Row(RowEvent),
    /// A copy of a tablet's data has come to a node.
    Copied(NodeId, TabletId, Arc<MemoryTablet>),
    /// Something happens to splits.
    Split(SplitEvent),
    /// Something happens to merges.
    Merge(MergeEvent),
    /// The run is looked at: has it recovered?
    Look,
}

impl Event {
    /// The node that does it, unless it is stopped.
    fn place(&self) -> Option<NodeId> {
        match self {
            Event::Arrive(parcel) => Some(parcel.link.1),
            Event::Process(node, ..) | Event::Placement(node, ..) | Event::Copied(node, ..) => Some(*node),
            Event::Request(asked) => Some(asked.node),
            Event::Merge(MergeEvent::Write { node, .. }) => Some(*node),
            Event::Row(event) => event.place(),
            _ => None,
        }
    }

    /// Whether it takes the node's core, which may be waiting for its disk.
    fn needs_core(&self) -> bool {
        match self {
            Event::Process(_, _, step) => matches!(step, Step::Turn | Step::MakeChildren(_) | Step::Command(_)),
            Event::Placement(..) | Event::Copied(..) => true,
            _ => false,
        }
    }
}

/// What clients do at the moment.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Phase {
    /// Anything, while things go wrong.
    Chaos,
    /// They insert until one insert of each tablet is acknowledged.
    Recovery,
    /// They read every register once.
    Inspection,
}

/// A cluster and all that surrounds it.
pub struct Cluster {
    /// What the seed stands for.
    pub scenario: Scenario,
    /// The nodes.
    pub nodes: BTreeMap<NodeId, Node>,
    /// What the nodes are made with.
    pub setting: Setting,
    /// The clients, then one more per tablet for recovery and inspection.
    pub clients: Clients,
    /// What goes wrong.
    pub nemesis: Nemesis,
    /// What happened.
    pub trace: Trace,
    /// What is still to happen.
    pub queue: EventQueue<Event>,
    /// What is split.
    pub splits: Splits,
    /// What is merged.
    pub merges: Merges,
    /// Clients of real rows, if tablets hold such.
    pub rows: Option<RowClients>,
    /// Decisions of everything that has no dice of its own.
    pub dice: Dice,
    /// What the clients do.
    pub phase: Phase,
    /// Of the inspecting clients: what is to be read still.
    pub to_read: BTreeMap<u32, Vec<u64>>,
    /// The tablets that have taken a write in [`Phase::Recovery`].
    pub recovered: Vec<TabletId>,
    /// Writes that were submitted and not answered, by request.
    pub(crate) waiting: BTreeMap<u64, Asked>,
    /// Copies under way.
    pub(crate) copying: BTreeSet<(TabletId, NodeId)>,
    /// What processes will do when they are resumed.
    pub(crate) backlog: BTreeMap<NodeId, Vec<Event>>,
    /// What waits for cores that wait for their disks.
    pub(crate) queued: BTreeMap<NodeId, Vec<Event>>,
    pub(crate) replicas: Replicas,
    /// What losses of power may have taken that was acknowledged.
    pub(crate) losses: Losses,
    pub(crate) clients_only: bool,
}

impl Cluster {
    /// A cluster whose nodes start now.
    pub fn new(seed: u64, options: &Options) -> Self {
        let mut dice = Dice::new(seed, 1);
        let mut more = Dice::new(seed, 6);
        let mut scenario = Scenario::new(&mut dice, &mut more, options);
        let time = TrueTime::default();
        let rows = scenario
            .row_tablets
            .map(|count| RowClients::new(RowWorld::new(time.clone(), count, &mut more), Dice::new(seed, 7)));
        if let Some(rows) = &rows {
            scenario.tablets.clone_from(&rows.world.tablets);
        }
        let network = Network::new(time.clone(), scenario.weather, Dice::new(seed, 2));
        let (tablets, founders) = placement::first(&scenario, &mut dice);
        let heard = tablets.clone();
        let planted = options.bug.map_or_else(Default::default, Planting::in_the_core);
        let ranges = tablets.keys().map(|tablet| (*tablet, KeyRange::all(*tablet))).collect();
        let durability = scenario.sync_every_ms.map_or(Durability::Fsync, Durability::Interval);
        let setting = Setting {
            nodes: scenario.nodes.clone(),
            tablets,
            founders,
            ranges,
            planted,
            durability,
            said: rows.as_ref().map(|rows| rows.world.said()),
            network,
            time: time.clone(),
        };
        let is_fast = options.bug == Some(Planting::FastClock);
        let rate_error_ppm = if is_fast { 400_000 } else { scenario.rate_error_ppm };
        let nodes = scenario.nodes.iter().map(|&id| {
            let quirks = Quirks {
                rate_error_ppm: dice.range(0, 2 * rate_error_ppm as u64 + 1) as i64 - rate_error_ppm,
                wall_error_us: dice.range(0, 1_000_000) as i64 - 500_000,
                sync_us: scenario.sync_us,
            };
            (id, Node::new(id, quirks, heard.clone(), rows.is_some()))
        });
        let nodes = nodes.collect();
        let clients = Clients::new(scenario.clients + scenario.tablets.len() as u32, time);
        let mut cluster = Self {
            nodes,
            setting,
            clients,
            nemesis: Nemesis::new(&scenario, rate_error_ppm, Dice::new(seed, 3)),
            trace: Trace::new(options.print),
            queue: EventQueue::default(),
            splits: Splits::new(Dice::new(seed, 4), FIRST_CHILD, !options.without_splits && rows.is_none()),
            merges: Merges::new(
                Dice::new(seed, 5),
                !options.without_merges && rows.is_none(),
                options.bug == Some(Planting::NeverClose),
            ),
            rows,
            dice,
            phase: Phase::Chaos,
            to_read: BTreeMap::new(),
            recovered: Vec::new(),
            waiting: BTreeMap::new(),
            copying: BTreeSet::new(),
            backlog: BTreeMap::new(),
            queued: BTreeMap::new(),
            replicas: Replicas::new(scenario.sync_every_ms.is_some()),
            losses: Losses::default(),
            clients_only: options.clients_only,
            scenario,
        };
        cluster.open();
        cluster
    }

    fn open(&mut self) {
        for node in self.scenario.nodes.clone() {
            self.start(node);
        }
        for client in 0..self.scenario.clients {
            let at_ns = self.dice.milliseconds(0, 1_000);
            self.queue.schedule(at_ns, Event::Act(client));
        }
        let first = self.nemesis.first_ns();
        self.queue.schedule(first, Event::Fault(Fault::Next));
        self.queue.schedule(SETTLE_NS, Event::Settle);
        self.queue.schedule(self.scenario.chaos_ns, Event::Fault(Fault::Calm));
        self.begin_splits();
        self.begin_merges();
    }

    /// True time, nanoseconds.
    pub fn now_ns(&self) -> u64 {
        self.setting.time.now_ns()
    }

    /// Takes the next event. `None` if there is none.
    pub fn step(&mut self) -> Option<Result<(), Finding>> {
        let (at_ns, event) = self.queue.next()?;
        self.setting.time.advance_to(at_ns);
        self.happen(event);
        self.collect();
        Some(self.check())
    }

    pub(crate) fn happen(&mut self, event: Event) {
        if let Some(place) = event.place() {
            let node = &self.nodes[&place];
            if node.is_paused {
                self.backlog.entry(place).or_default().push(event);
                return;
            }
            if node.life.as_ref().is_some_and(|life| life.thread.waits()) && event.needs_core() {
                self.queued.entry(place).or_default().push(event);
                return;
            }
        }
        match event {
            Event::Arrive(parcel) => self.arrive(parcel),
            Event::Process(node, life, step) => {
                if self.nodes[&node].life.as_ref().is_some_and(|current| current.number == life) {
                    self.process(node, step);
                }
            }
            Event::Request(asked) => self.request(asked),
            Event::Answer(asked, answer) => self.answered(asked.client, asked.request, Some(&answer)),
            Event::GiveUp(client, request) => self.answered(client, request, None),
            Event::Act(client) => self.act(client),
            Event::Fault(fault) => self.fault(fault),
            Event::Placement(node, tablet, placement) => {
                if self.nodes[&node].life.is_some() {
                    self.hear(node, tablet, placement);
                }
            }
            Event::Row(event) => self.row_event(event),
            Event::Settle => self.settle(),
            Event::Copied(node, tablet, copy) => self.copied(node, tablet, &copy),
            Event::Split(event) => self.split_event(event),
            Event::Merge(event) => self.merge_event(event),
            Event::Look => self.look(),
        }
    }

    /// The process of a node, if it runs.
    pub fn life(&mut self, node: NodeId) -> Option<&mut crate::node::Life> {
        self.nodes.get_mut(&node).and_then(|node| node.life.as_mut())
    }

    /// Schedules what the current process of `node` does at `at_ns`.
    pub fn schedule(&mut self, at_ns: u64, node: NodeId, step: Step) {
        if let Some(number) = self.life(node).map(|life| life.number) {
            self.queue.schedule(at_ns, Event::Process(node, number, step));
        }
    }

    /// Lets replicas go that leaders say are not needed any more.
    fn settle(&mut self) {
        let now_ns = self.now_ns();
        self.queue.schedule(now_ns + SETTLE_NS, Event::Settle);
        for tablet in self.setting.tablets.keys().copied().collect::<Vec<_>>() {
            let placement = &self.setting.tablets[&tablet];
            let is_child = placement.origin.is_some();
            if placement.leaving.is_empty() && !is_child {
                continue;
            }
            let Some(voters) = self.settled(tablet) else { continue };
            if is_child {
                self.settle_child(tablet, &voters);
            } else if let Some(placement) = self.setting.tablets.get_mut(&tablet) {
                let before = placement.version;
                placement.settle(&voters);
                if placement.version != before {
                    self.announce(tablet);
                }
            }
        }
        self.advance_splits();
        self.advance_merges();
    }

    /// Takes what was sent.
    fn collect(&mut self) {
        for (at_ns, parcel) in self.setting.network.take_under_way() {
            self.queue.schedule(at_ns, Event::Arrive(parcel));
        }
    }

    fn check(&mut self) -> Result<(), Finding> {
        if self.clients_only {
            return Ok(());
        }
        let now_ns = self.now_ns();
        let mut holders = Vec::new();
        for (&tablet, &range) in &self.setting.ranges {
            for (id, node) in &self.nodes {
                let handle = node.life.as_ref().and_then(|life| life.handles.get(&tablet));
                let Some(handle) = handle else { continue };
                if handle.check(Permit::Lease).is_ok() {
                    holders.push((tablet, range, *id));
                }
                self.replicas.observe(now_ns, *id, tablet, handle.data())?;
            }
        }
        leaseholder::check(now_ns, &holders)
    }
}
