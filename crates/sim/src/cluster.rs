//! A whole cluster in one thread: takes one event after another and runs the part of the cluster that it concerns.
//!
//! Always true: between two events nothing happens; the effects of an event are events. Events of a paused process wait
//! until it is resumed, in order. All decisions come from the seed, so that the same seed gives the same run.

mod asides;
mod batches;
mod ddl;
mod disks;
mod duties;
mod ends;
mod errands;
mod faults;
mod follow;
mod joins;
mod levels;
mod merging;
mod operators;
mod overlaps;
mod process;
mod requests;
mod routing;

use crate::batches::Batches;
use crate::checkers::acknowledged::Losses;
use crate::checkers::replicas::Replicas;
use crate::checkers::{Finding, leaseholder};
use crate::client::{Answer, Asked, Clients};
use crate::clock::TrueTime;
use crate::dice::Dice;
use crate::drives::Drives;
use crate::errands::{ErrandEvent, Errands};
use crate::guards::{EndNotice, Guards};
use crate::joins::JoinEvent;
use crate::levels::{LevelEvent, Upgrades};
use crate::nemesis::{Fault, Nemesis};
use crate::network::{Network, Parcel};
use crate::node::Node;
use crate::operators::{OperatorEvent, Operators, plain_tables};
use crate::options::{Options, Planting};
use crate::queue::EventQueue;
use crate::ranges::{KeyRange, Ranges};
use crate::reached::Reached;
use crate::routing::Routed;
use crate::rows::{RowClients, RowEvent, RowWorld};
use crate::scenario::{Scenario, WITHOUT_FAULTS};
use crate::schema::{DdlEvent, Schema};
use crate::setting::{Joined, Setting};
use crate::step::{Duty, Step};
use crate::trace::Trace;
use diorite_base::{NodeId, TableId, TabletId};
use diorite_control::report::Report;
use diorite_control::steering::Timing;
use diorite_replica::{Durability, Permit};
use diorite_storage::MemoryTablet;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

/// An event.
#[derive(Clone)]
pub enum Event {
    /// A frame arrives.
    Arrive(Parcel),
    /// A process takes a step of its own.
    Process(NodeId, u64, Step),
    /// A request arrives at its node.
    Request(Asked),
    /// Entries of a batch are planned again.
    PlanBatch(u64, Vec<(u64, u64)>),
    /// An answer comes to its client.
    Answer(Asked, Answer),
    /// A client gives up waiting.
    GiveUp(u32, u64),
    /// A client does something.
    Act(u32),
    /// A fault begins or ends.
    Fault(Fault),
    /// An event of a statement.
    Row(RowEvent),
    /// A copy of a tablet's data arrives at a node.
    Copied(NodeId, TabletId, Arc<MemoryTablet>),
    /// A node's report arrives at another.
    Report(NodeId, NodeId, Box<Report>),
    /// A node is notified that the process of another has ended.
    Ended(EndNotice),
    /// An event of a node's own write.
    Errand(ErrandEvent),
    /// An event of a client that changes the schema.
    Ddl(DdlEvent),
    /// An event of a node that joins.
    Join(JoinEvent),
    /// An operator does something.
    Operator(OperatorEvent),
    /// Something happens in an upgrade.
    Level(LevelEvent),
    /// A merge driver takes its next action.
    Drive(u64),
    /// The cluster is set up: clients and faults begin.
    Open,
    /// Check whether the cluster has recovered.
    Look,
}

impl Event {
    /// The node of the event; the event waits while that is paused.
    fn place(&self) -> Option<NodeId> {
        match self {
            Event::Arrive(parcel) => Some(parcel.link.1),
            Event::Process(node, ..) | Event::Copied(node, ..) | Event::Report(_, node, _) => Some(*node),
            Event::Request(asked) => Some(asked.node),
            Event::Ended(notice) => Some(notice.to),
            Event::Row(event) => event.place(),
            _ => None,
        }
    }

    /// Whether the event needs the node's core, which may be waiting for its disk.
    fn needs_core(&self) -> bool {
        match self {
            Event::Process(_, _, step) => matches!(
                step,
                Step::Turn
                    | Step::MakeChildren(_)
                    | Step::Command(_)
                    | Step::Follow
                    | Step::GiveUpDisk(_)
                    | Step::Duty(Duty::Finish | Duty::Merge | Duty::GetReady | Duty::LookAfter)
            ),
            Event::Copied(..) => true,
            _ => false,
        }
    }
}

/// The phase of the run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Phase {
    /// Clients send all kinds of requests, and there are faults.
    Chaos,
    /// They insert until one insert of each tablet is acknowledged.
    Recovery,
    /// They read every register once.
    Inspection,
}

/// A cluster with its surroundings.
pub struct Cluster {
    /// The scenario of the seed.
    pub scenario: Scenario,
    /// The nodes.
    pub nodes: BTreeMap<NodeId, Node>,
    /// The common settings of the nodes.
    pub setting: Setting,
    /// The clients, then one more per tablet for recovery and inspection.
    pub clients: Clients,
    /// Decides which faults are injected, and when.
    pub nemesis: Nemesis,
    /// What happened.
    pub trace: Trace,
    /// Future events.
    pub queue: EventQueue<Event>,
    /// What operators do.
    pub operators: Operators,
    /// The programs of nodes.
    pub(crate) upgrades: Upgrades,
    /// The states of the nodes' guards.
    pub(crate) guards: Guards,
    /// What nodes write of their own.
    pub errands: Errands,
    /// Where such writes have been submitted.
    pub(crate) errand_places: BTreeMap<u64, NodeId>,
    /// The merges that nodes carry out.
    pub drives: Drives,
    /// Clients that change the schema, and what must hold of the catalog.
    pub schema: Schema,
    /// A violation found in the present event.
    pub(crate) found: Option<Finding>,
    /// The greatest error of the monotonic clocks' rates, parts per million.
    pub(crate) rate_error_ppm: i64,
    /// Clients of real rows, if tablets hold rows.
    pub rows: Option<RowClients>,
    /// Random decisions of everything without a sequence of its own.
    pub dice: Dice,
    /// Random decisions of parts that were added later, so that older seeds keep their runs.
    pub latest: Dice,
    /// The phase of the clients.
    pub phase: Phase,
    /// The keys that inspecting clients have yet to read.
    pub to_read: BTreeMap<u32, Vec<u64>>,
    /// The tablets that have taken a write in [`Phase::Recovery`].
    pub recovered: Vec<TabletId>,
    /// Requests without an answer.
    pub(crate) waiting: BTreeMap<u64, Asked>,
    /// Requests that routers have sent and that nodes carry out.
    pub(crate) routed: Routed,
    /// Batches under way.
    pub(crate) batches: Batches,
    /// Copies under way.
    pub(crate) copying: BTreeSet<(TabletId, NodeId)>,
    /// Events of paused processes.
    pub(crate) backlog: BTreeMap<NodeId, Vec<Event>>,
    /// Events that wait for cores that wait for their disks.
    pub(crate) queued: BTreeMap<NodeId, Vec<Event>>,
    pub(crate) replicas: Replicas,
    /// Losses of power that may have destroyed acknowledged writes.
    pub(crate) losses: Losses,
    pub(crate) clients_only: bool,
    /// How often the events of interest have happened.
    pub reached: Reached,
}

fn timing(options: &Options) -> Timing {
    Timing {
        idle_ticks: 2,
        grace_ns: 400_000_000,
        upgrade_ns: 1_500_000_000,
        planted: options.bug.map_or_else(Default::default, Planting::in_the_control_plane),
        ..Timing::default()
    }
}

impl Cluster {
    /// A cluster whose nodes start now.
    pub fn new(seed: u64, options: &Options) -> Self {
        let (mut dice, mut more, mut latest) = (Dice::new(seed, 1), Dice::new(seed, 6), Dice::new(seed, 8));
        let mut scenario = Scenario::new(&mut dice, &mut more, &mut latest, options);
        let time = TrueTime::default();
        let rows = scenario.row_tablets.map(|count| {
            RowClients::new(RowWorld::new(time.clone(), count, &mut more, options.bug), Dice::new(seed, 7))
        });
        if let Some(rows) = &rows {
            scenario.tablets.clone_from(&rows.world.tablets);
        }
        let network = Network::new(time.clone(), WITHOUT_FAULTS, Dice::new(seed, 2));
        let durability = scenario.sync_every_ms.map_or(Durability::Fsync, Durability::Interval);
        let setting = Setting {
            newest: Arc::default(),
            ranges: Ranges::default(),
            planted: options.bug.map_or_else(Default::default, Planting::in_the_core),
            control: options.bug.map_or_else(Default::default, Planting::in_the_control_plane),
            planting: options.bug,
            durability,
            said: rows.as_ref().map(|rows| rows.world.said()),
            semantics: rows.as_ref().map(|_| RowWorld::semantics(options.bug == Some(Planting::CompactEarly))),
            network,
            time: time.clone(),
            timing: timing(options),
        };
        let rate_error_ppm = if options.bug == Some(Planting::FastClock) { 400_000 } else { scenario.rate_error_ppm };
        let clients = Clients::new(scenario.clients + scenario.tablets.len() as u32, time);
        let visible = rows.as_ref().map(|rows| rows.world.visible());
        let replicas = Replicas::new(scenario.sync_every_ms.is_some(), visible);
        let mut cluster = Self {
            nodes: BTreeMap::new(),
            setting,
            clients,
            nemesis: Nemesis::new(&scenario, rate_error_ppm, Dice::new(seed, 3)),
            trace: Trace::new(options.print),
            queue: EventQueue::default(),
            operators: Operators::new(&scenario, Dice::new(seed, 4)),
            upgrades: Upgrades::new(Dice::new(seed, 10), options.bug),
            guards: Guards::new(Dice::new(seed, 9), options.bug == Some(Planting::BelieveAnyEnd)),
            errands: Errands::default(),
            errand_places: BTreeMap::new(),
            drives: Drives::new(Dice::new(seed, 5), options.bug == Some(Planting::NeverClose)),
            schema: Schema::default(),
            found: None,
            rate_error_ppm,
            rows,
            dice,
            latest,
            phase: Phase::Chaos,
            to_read: BTreeMap::new(),
            recovered: Vec::new(),
            waiting: BTreeMap::new(),
            routed: Routed::default(),
            batches: Batches::default(),
            copying: BTreeSet::new(),
            backlog: BTreeMap::new(),
            queued: BTreeMap::new(),
            replicas,
            reached: Reached::default(),
            losses: Losses::default(),
            clients_only: options.clients_only,
            scenario,
        };
        cluster.define_tables();
        // The first node founds the cluster, alone.
        cluster.add_node(NodeId(1), 1, Joined::default());
        cluster.start(NodeId(1));
        cluster.begin_setting_up();
        cluster
    }

    /// Defines the tables of the cluster.
    fn define_tables(&mut self) {
        let tables = match &self.rows {
            Some(rows) => rows.world.kv.definitions(),
            None => plain_tables(&self.scenario),
        };
        if self.rows.is_none() {
            for (number, tablet) in (1..).zip(&self.scenario.tablets) {
                self.setting.ranges.add_root(TableId(number), *tablet);
            }
        }
        self.operators.define(tables);
    }

    /// The cluster is set up: clients and faults begin, for the duration of the scenario.
    fn open(&mut self) {
        let now_ns = self.now_ns();
        self.scenario.chaos_ns += now_ns;
        self.setting.network.set_weather(self.scenario.weather);
        for client in 0..self.scenario.clients {
            let after_ns = self.some_ms(0, 300);
            self.later(after_ns, Event::Act(client));
        }
        let first_ns = now_ns + self.nemesis.first_ns();
        self.queue.schedule(first_ns, Event::Fault(Fault::Next));
        self.queue.schedule(self.scenario.chaos_ns, Event::Fault(Fault::MendAll));
        self.begin_operating();
        self.begin_upgrades();
        self.begin_ddl();
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
            // A node that has an id and was never started cannot be reached.
            let Some(node) = self.nodes.get(&place) else { return };
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
            Event::PlanBatch(request, entries) => self.plan_batch(request, entries, true),
            Event::Answer(asked, answer) => self.answered(asked.client, asked.request, Some(&answer)),
            Event::GiveUp(client, request) => self.answered(client, request, None),
            Event::Act(client) => self.act(client),
            Event::Fault(fault) => self.fault(fault),
            Event::Row(event) => self.row_event(event),
            Event::Copied(node, tablet, copy) => self.copied(node, tablet, &copy),
            Event::Report(from, node, report) => self.learn_report(from, node, *report),
            Event::Ended(notice) => self.learn_end(notice),
            Event::Errand(event) => self.errand_event(event),
            Event::Ddl(event) => self.ddl_event(event),
            Event::Join(event) => self.join_event(event),
            Event::Operator(event) => self.operator_event(event),
            Event::Level(event) => self.level_event(event),
            Event::Drive(drive) => self.drive(drive),
            Event::Open => self.open(),
            Event::Look => self.look(),
        }
    }

    /// The process of a node, if it runs.
    pub fn life(&mut self, node: NodeId) -> Option<&mut crate::life::Life> {
        self.nodes.get_mut(&node).and_then(|node| node.life.as_mut())
    }

    /// Schedules a step of the current process of `node` at `at_ns`.
    pub fn schedule(&mut self, at_ns: u64, node: NodeId, step: Step) {
        if let Some(number) = self.life(node).map(|life| life.number) {
            self.queue.schedule(at_ns, Event::Process(node, number, step));
        }
    }

    /// Schedules the arrival of sent frames.
    fn collect(&mut self) {
        for (at_ns, parcel) in self.setting.network.take_under_way() {
            self.queue.schedule(at_ns, Event::Arrive(parcel));
        }
    }

    fn check(&mut self) -> Result<(), Finding> {
        // A violation seen by a statement is one that clients see.
        if let Some(found) = self.found.take().filter(|found| !self.clients_only || found.checker == "rows") {
            return Err(found);
        }
        if self.clients_only {
            return Ok(());
        }
        self.check_levels()?;
        let now_ns = self.now_ns();
        let mut holders: Vec<(TabletId, KeyRange, NodeId)> = Vec::new();
        for (id, node) in &self.nodes {
            let Some(life) = &node.life else { continue };
            for (tablet, handle) in &life.handles {
                if handle.check(Permit::Lease).is_ok() {
                    holders.push((*tablet, self.setting.ranges.of(*tablet), *id));
                }
                self.replicas.observe(now_ns, *id, *tablet, handle.data())?;
            }
        }
        leaseholder::check(now_ns, &holders)
    }
}
