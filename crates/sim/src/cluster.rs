//! A whole cluster in one thread: takes one event after another and lets each part do what it does then.
//!
//! Always true: between two events nothing happens; an event's effects are events. What a paused process would do waits until it runs again,
//! in order. All decisions come from the seed, so that the same seed is the same run.

use crate::checkers::replicas::Replicas;
use crate::checkers::{Finding, leaseholder};
use crate::client::{Answer, Ask, Asked, Clients};
use crate::clock::TrueTime;
use crate::dice::Dice;
use crate::merges::{FIRST_TOKEN, MergeEvent, Merges};
use crate::nemesis::{Fault, Nemesis};
use crate::network::{Network, Parcel};
use crate::node::{Node, Quirks, Setting};
use crate::placement::{self, Placement};
use crate::program;
use crate::queue::EventQueue;
use crate::run::{Options, Planting};
use crate::scenario::Scenario;
use crate::splits::{KeyRange, SplitEvent, Splits};
use crate::text;
use crate::trace::Trace;
use diorite_base::write::{KvError, WriteReply};
use diorite_base::{NodeId, TabletId};
use diorite_replica::{Liveness, Permit, SplitMark, TICK_NS};
use diorite_storage::{MemoryTablet, TabletData};
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

const US: u64 = 1_000;

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
    /// A copy of a tablet's data has come to a node.
    Copied(NodeId, TabletId, Arc<MemoryTablet>),
    /// Something happens to splits.
    Split(SplitEvent),
    /// Something happens to merges.
    Merge(MergeEvent),
    /// The run is looked at: has it recovered?
    Look,
}

/// What a process does on its own.
#[derive(Clone, Debug)]
pub enum Step {
    /// Sends heartbeats.
    Beat,
    /// Withdraws support that has lapsed.
    Expire,
    /// The core takes a turn.
    Turn,
    /// The core is to look at what is due.
    Tick,
    /// A read that has begun takes its value.
    ReadValue(Asked, u64),
    /// A read ends.
    ReadEnd(Asked, u64, program::Value),
    /// What a member lacks is read from the log.
    ReadLog,
    /// A tablet is flushed, and its log cut.
    Flush(TabletId),
    /// What is to be a tablet's children is made beforehand.
    Prepare(TabletId),
    /// The children of a tablet that was split are made.
    MakeChildren(SplitMark),
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
    /// Decisions of everything that has no dice of its own.
    pub dice: Dice,
    /// What the clients do.
    pub phase: Phase,
    /// Of the inspecting clients: what is to be read still.
    pub to_read: BTreeMap<u32, Vec<u64>>,
    /// The tablets that have taken a write in [`Phase::Recovery`].
    pub recovered: Vec<TabletId>,
    /// Writes that were submitted and not answered, by request.
    waiting: BTreeMap<u64, Asked>,
    /// Copies under way.
    copying: BTreeSet<(TabletId, NodeId)>,
    /// What processes will do when they are resumed.
    backlog: BTreeMap<NodeId, Vec<Event>>,
    replicas: Replicas,
    clients_only: bool,
}

impl Cluster {
    /// A cluster whose nodes start now.
    pub fn new(seed: u64, options: &Options) -> Self {
        let mut dice = Dice::new(seed, 1);
        let scenario = Scenario::new(&mut dice);
        let time = TrueTime::default();
        let network = Network::new(time.clone(), scenario.weather, Dice::new(seed, 2));
        let (tablets, founders) = placement::first(&scenario, &mut dice);
        let heard = tablets.clone();
        let planted = options.bug.map_or_else(Default::default, Planting::in_the_core);
        let ranges = tablets.keys().map(|tablet| (*tablet, KeyRange::all(*tablet))).collect();
        let nodes = scenario.nodes.clone();
        let setting = Setting { nodes, tablets, founders, ranges, planted, network, time: time.clone() };
        let rate_error_ppm = match options.bug {
            Some(Planting::FastClock) => 400_000,
            _ => scenario.rate_error_ppm,
        };
        let nodes = scenario.nodes.iter().map(|&id| {
            let quirks = Quirks {
                rate_error_ppm: dice.range(0, 2 * rate_error_ppm as u64 + 1) as i64 - rate_error_ppm,
                wall_error_us: dice.range(0, 1_000_000) as i64 - 500_000,
                sync_us: scenario.sync_us,
            };
            (id, Node::new(id, quirks, heard.clone()))
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
            splits: Splits::new(Dice::new(seed, 4), FIRST_CHILD, !options.without_splits),
            merges: Merges::new(Dice::new(seed, 5), !options.without_merges, options.bug == Some(Planting::NeverClose)),
            dice,
            phase: Phase::Chaos,
            to_read: BTreeMap::new(),
            recovered: Vec::new(),
            waiting: BTreeMap::new(),
            copying: BTreeSet::new(),
            backlog: BTreeMap::new(),
            replicas: Replicas::default(),
            clients_only: options.clients_only,
            scenario,
        };
        cluster.begin();
        cluster
    }

    fn begin(&mut self) {
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

    fn happen(&mut self, event: Event) {
        let place = match &event {
            Event::Arrive(parcel) => Some(parcel.link.1),
            Event::Process(node, ..) | Event::Placement(node, ..) | Event::Copied(node, ..) => Some(*node),
            Event::Request(asked) => Some(asked.node),
            Event::Merge(MergeEvent::Write { node, .. }) => Some(*node),
            _ => None,
        };
        if let Some(place) = place
            && self.nodes[&place].is_paused
        {
            self.backlog.entry(place).or_default().push(event);
            return;
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

    /// Starts a node's process, unless it runs.
    pub fn start(&mut self, id: NodeId) {
        let now_ns = self.now_ns();
        let Some(node) = self.nodes.get_mut(&id).filter(|node| node.life.is_none()) else { return };
        node.start(&self.setting, &mut self.dice);
        self.trace.event(now_ns, id.0, "start", &[], || format!("{:?}", node.quirks));
        self.schedule(now_ns, id, Step::Beat);
        for tablet in self.setting.ranges.keys().copied().collect::<Vec<_>>() {
            let after_ns = self.dice.range(1, self.scenario.flush_every_ns);
            self.schedule(now_ns + after_ns, id, Step::Flush(tablet));
        }
        self.brief(id);
        self.after_core(id);
    }

    /// A node hears where a tablet is wanted, and what a catalog that says so says of others.
    fn hear(&mut self, id: NodeId, tablet: TabletId, placement: Placement) {
        let mut first = Vec::new();
        if let Some((parent, ..)) = placement.origin {
            first.push(parent);
        }
        if let Some(planned) = placement.split.as_ref().filter(|_| placement.is_dropped) {
            first.extend(planned.split.children);
        }
        for other in first {
            let known = self.nodes[&id].heard.get(&other);
            let is_known = known.is_some_and(|known| placement.is_dropped || known.split.is_some());
            if !is_known {
                self.hear(id, other, self.setting.tablets[&other].clone());
            }
        }
        let is_new_split = placement.split.is_some() && !self.nodes[&id].knows_split(tablet);
        let Some(node) = self.nodes.get_mut(&id) else { return };
        if node.hear(&self.setting, tablet, placement) {
            self.replicas.forget_one(id, tablet);
            let now_ns = self.setting.time.now_ns();
            self.trace.event(now_ns, id.0, "closed", &tablet.0.to_le_bytes(), || format!("{tablet}"));
        }
        if is_new_split && self.splits.dice.chance(700) {
            let at_ns = self.now_ns() + self.splits.dice.milliseconds(0, 300);
            self.schedule(at_ns, id, Step::Prepare(tablet));
        }
        self.after_core(id);
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

    fn make_children(&mut self, id: NodeId, mark: SplitMark) {
        let now_ns = self.now_ns();
        self.trace.event(now_ns, id.0, "make", &mark.index.to_le_bytes(), || format!("children of {}", mark.parent));
        let Some(node) = self.nodes.get_mut(&id) else { return };
        if node.make_children(&self.setting, &mark) {
            let at_ns = self.now_ns() + 20_000 * US;
            self.schedule(at_ns, id, Step::MakeChildren(mark));
        }
        self.after_core(id);
    }

    /// Ends a node's process; with `power_loss` its disk's tail may be lost.
    pub fn end(&mut self, id: NodeId, power_loss: bool) {
        let now_ns = self.now_ns();
        let Some(node) = self.nodes.get_mut(&id).filter(|node| node.life.is_some()) else { return };
        let unsynced = node.unsynced_batches();
        let surviving = if power_loss { self.dice.range(0, unsynced as u64 + 1) as usize } else { unsynced };
        node.end(surviving);
        self.setting.network.end(id);
        self.backlog.remove(&id);
        self.copying.retain(|(_, member)| *member != id);
        self.replicas.forget(id);
        self.trace.event(now_ns, id.0, "end", &[u8::from(power_loss), surviving as u8], || {
            format!("power lost: {power_loss}, {surviving} of {unsynced} unsynced batches survive")
        });
    }

    /// Resumes a paused process: what it would have done meanwhile it does now.
    pub fn resume(&mut self, id: NodeId) {
        let now_ns = self.now_ns();
        if let Some(node) = self.nodes.get_mut(&id) {
            node.is_paused = false;
        }
        for event in self.backlog.remove(&id).unwrap_or_default() {
            self.queue.schedule(now_ns, event);
        }
    }

    fn arrive(&mut self, parcel: Parcel) {
        let now_ns = self.now_ns();
        let Some(parcel) = self.setting.network.arrive(parcel) else { return };
        let (from, node, lane) = parcel.link;
        let mut detail = vec![from.0 as u8, lane as u8];
        detail.extend_from_slice(&parcel.frame);
        self.trace.event(now_ns, node.0, "frame", &detail, || text::frame(from, lane, &parcel.frame));
        let Some(life) = self.life(node) else { return };
        if life.receive(from, lane, &parcel.frame) {
            self.wake(node);
        }
        self.plan_expiry(node);
    }

    /// Lets the core take a turn soon.
    pub fn wake(&mut self, node: NodeId) {
        let now_ns = self.now_ns();
        // A thread takes a moment to wake up, in which more may come.
        let after_ns = self.dice.range(1, 50) * US;
        let Some(life) = self.life(node).filter(|life| !life.is_woken) else { return };
        life.is_woken = true;
        let at_ns = (now_ns + after_ns).max(life.log.busy_until_ns());
        self.schedule(at_ns, node, Step::Turn);
    }

    fn process(&mut self, node: NodeId, step: Step) {
        match step {
            Step::Beat => {
                let Some(life) = self.life(node) else { return };
                let is_concerned = life.beat();
                let next_ns = life.clock.true_ns(diorite_base::Clock::monotonic_ns(&*life.clock) + Liveness::PERIOD_NS);
                self.schedule(next_ns, node, Step::Beat);
                self.noticed(node, is_concerned);
            }
            Step::Expire => {
                let Some(life) = self.life(node) else { return };
                life.expires_ns = None;
                let is_concerned = life.expire();
                self.noticed(node, is_concerned);
            }
            Step::Turn => self.turn(node),
            Step::Tick => {
                let Some(life) = self.life(node) else { return };
                (life.will_tick, life.must_tick) = (false, true);
                self.wake(node);
            }
            Step::ReadValue(asked, term) => self.read_value(asked, term),
            Step::ReadEnd(asked, term, value) => self.read_end(asked, term, value),
            Step::ReadLog => {
                let Some(life) = self.life(node) else { return };
                life.read_log();
                self.wake(node);
            }
            Step::Flush(tablet) => self.flush(node, tablet),
            Step::Prepare(tablet) => {
                let now_ns = self.now_ns();
                self.trace.event(now_ns, node.0, "prepare", &tablet.0.to_le_bytes(), || format!("{tablet}"));
                if let Some(node) = self.nodes.get_mut(&node) {
                    node.prepare(tablet);
                }
            }
            Step::MakeChildren(mark) => self.make_children(node, mark),
        }
    }

    fn noticed(&mut self, node: NodeId, is_concerned: bool) {
        if is_concerned {
            self.wake(node);
        }
        self.plan_expiry(node);
    }

    /// Schedules the next look for lapsed support, if it is not scheduled.
    fn plan_expiry(&mut self, node: NodeId) {
        let Some(life) = self.life(node) else { return };
        let Some(lapse_ns) = life.next_lapse_ns() else { return };
        if life.expires_ns.is_none_or(|planned_ns| lapse_ns < planned_ns) {
            life.expires_ns = Some(lapse_ns);
            self.schedule(lapse_ns, node, Step::Expire);
        }
    }

    fn turn(&mut self, node: NodeId) {
        let now_ns = self.now_ns();
        let Some(life) = self.life(node) else { return };
        life.is_woken = false;
        if life.log.busy_until_ns() > now_ns {
            self.wake(node);
            return;
        }
        if !life.input.is_empty() {
            life.core.turn(&mut life.input);
        }
        if std::mem::take(&mut life.must_tick) {
            life.core.tick();
        }
        self.after_core(node);
    }

    /// Takes what the core has brought about, beside frames.
    pub fn after_core(&mut self, node: NodeId) {
        let now_ns = self.now_ns();
        let Some(life) = self.life(node) else { return };
        if life.log.has_failed() {
            self.end(node, true);
            let after_ns = self.nemesis.down_ns();
            self.queue.schedule(now_ns + after_ns, Event::Fault(Fault::Start(node)));
            return;
        }
        let leaves_ns = now_ns.max(life.log.busy_until_ns());
        let (outcomes, lacking, split) = (life.take_outcomes(), life.take_lacking(), life.take_split());
        let reads = life.take_reads();
        if life.core.wants_tick() && !life.will_tick {
            life.will_tick = true;
            let at_ns = life.clock.true_ns(diorite_base::Clock::monotonic_ns(&*life.clock) + TICK_NS);
            self.schedule(at_ns, node, Step::Tick);
        }
        for (token, outcome) in outcomes {
            let answer = outcome.map_or_else(Answer::Failed, |reply: WriteReply| Answer::Written(reply));
            self.reply(leaves_ns, token, answer);
        }
        for _ in 0..reads {
            let after_ns = self.dice.milliseconds(0, 10);
            self.schedule(leaves_ns + after_ns, node, Step::ReadLog);
        }
        for (tablet, member) in lacking {
            self.copy(node, tablet, member);
        }
        for (mark, leads) in split {
            self.was_split(node, mark, leads);
        }
    }

    fn flush(&mut self, node: NodeId, tablet: TabletId) {
        let now_ns = self.now_ns();
        let hard = self.dice.chance(self.scenario.hard_cuts);
        let after_ns = self.dice.range(1, self.scenario.flush_every_ns);
        self.schedule(now_ns + after_ns, node, Step::Flush(tablet));
        let Some(life) = self.life(node) else { return };
        let Some(handle) = life.handles.get(&tablet) else { return };
        handle.data().flush();
        let flushed = handle.data().flushed_state().index;
        life.core.truncate(tablet, flushed, hard);
    }

    /// Begins a copy of a tablet's data for a member that the log can no longer help, unless one is under way.
    fn copy(&mut self, from: NodeId, tablet: TabletId, member: NodeId) {
        let now_ns = self.now_ns();
        if self.copying.contains(&(tablet, member)) {
            return;
        }
        let source = if self.dice.chance(500) { self.follower(from, tablet, member) } else { from };
        let Some(handle) = self.life(source).and_then(|life| life.handles.get(&tablet)) else { return };
        let copy = Arc::new(handle.data().checkpoint());
        self.copying.insert((tablet, member));
        self.trace.event(now_ns, source.0, "copy", &member.0.to_le_bytes(), || format!("{tablet} to {member}"));
        // Now and then it takes so long that much has changed when it is there.
        let longest_ms = if self.dice.chance(200) { 2_000 } else { 100 };
        let arrives_ns = now_ns + self.dice.milliseconds(1, longest_ms);
        self.queue.schedule(arrives_ns, Event::Copied(member, tablet, copy));
    }

    /// A follower that may send a copy in the place of its leader, or the leader.
    fn follower(&mut self, leader: NodeId, tablet: TabletId, member: NodeId) -> NodeId {
        let start = self.life(leader).and_then(|life| life.handles.get(&tablet)).map_or(0, |handle| handle.log_start());
        let holds = |node: &Node| {
            let handle = node.life.as_ref().and_then(|life| life.handles.get(&tablet));
            handle.is_some_and(|handle| handle.data().applied_state().is_ok_and(|state| state.index >= start))
        };
        let others = self.nodes.values().filter(|node| node.id != leader && node.id != member && holds(node));
        let others: Vec<NodeId> = others.map(|node| node.id).collect();
        if others.is_empty() { leader } else { *self.dice.pick(&others) }
    }

    fn copied(&mut self, node: NodeId, tablet: TabletId, copy: &MemoryTablet) {
        let now_ns = self.now_ns();
        self.copying.remove(&(tablet, node));
        let Some(place) = self.nodes.get_mut(&node) else { return };
        let installed = place.install(tablet, copy.checkpoint());
        self.trace
            .event(now_ns, node.0, "copied", &[u8::from(installed)], || format!("{tablet}, installed: {installed}"));
        self.after_core(node);
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

/// Requests and answers.
impl Cluster {
    fn act(&mut self, client: u32) {
        let (now_ns, nodes) = (self.now_ns(), self.scenario.nodes.clone());
        let own = client.checked_sub(self.scenario.clients).map(|at| self.scenario.tablets[at as usize]);
        let (tablet, ask) = match (self.phase, own) {
            (Phase::Chaos, None) => {
                let tablet = *self.dice.pick(&self.scenario.tablets);
                (tablet, self.clients.choose(client, tablet, &mut self.dice))
            }
            (Phase::Recovery, Some(tablet)) if !self.clients.is_busy(client) => match self.next_to_recover(tablet) {
                Some(part) => (tablet, self.clients.write_within(&self.setting.ranges[&part])),
                None => return,
            },
            (Phase::Inspection, Some(tablet)) => match self.to_read.get(&client).and_then(|keys| keys.last()) {
                Some(key) => (tablet, Ask::Read(*key)),
                None => return,
            },
            _ => return,
        };
        let target = self.route(tablet, ask.key());
        let asked = self.clients.ask(client, (tablet, target), ask, &nodes, &mut self.dice);
        self.trace.event(now_ns, 0, "ask", &asked.request.to_le_bytes(), || format!("{asked:?}"));
        let arrives_ns = now_ns + self.dice.range(20, 500) * US;
        self.queue.schedule(arrives_ns, Event::Request(asked));
        let patience_ns = self.dice.milliseconds(200, 2_500);
        self.queue.schedule(now_ns + patience_ns, Event::GiveUp(client, asked.request));
    }

    /// Which of the tablets that came of one has not taken a write in [`Phase::Recovery`].
    fn next_to_recover(&self, root: TabletId) -> Option<TabletId> {
        self.setting.served_of(root).into_iter().find(|tablet| !self.recovered.contains(tablet))
    }

    /// Lets the client that sees whether a tablet recovers see to those that came of it.
    pub fn wake_inspector(&mut self, root: TabletId) {
        let place = self.scenario.tablets.iter().position(|tablet| *tablet == root);
        if let Some(place) = place.filter(|_| self.phase == Phase::Recovery) {
            let now_ns = self.now_ns();
            self.queue.schedule(now_ns, Event::Act(self.scenario.clients + place as u32));
        }
    }

    fn request(&mut self, asked: Asked) {
        let now_ns = self.now_ns();
        let Some(life) = self.life(asked.node) else {
            self.send_answer(now_ns, asked, Answer::Refused);
            return;
        };
        match asked.ask.mutation() {
            Some(mutation) => {
                life.submit(asked.target, mutation, asked.request);
                self.waiting.insert(asked.request, asked);
                self.wake(asked.node);
            }
            None => match begin_read(life, asked.target) {
                Ok(term) => {
                    let at_ns = now_ns + self.read_pause_ns();
                    self.schedule(at_ns, asked.node, Step::ReadValue(asked, term));
                    self.pause_in_read(asked.node, false);
                }
                Err(error) => self.send_answer(now_ns, asked, Answer::Failed(error)),
            },
        }
    }

    /// Pauses the process now if it is to be paused in a read, before or after that has taken its value.
    fn pause_in_read(&mut self, node: NodeId, has_value: bool) {
        let Some(node) = self.nodes.get_mut(&node) else { return };
        if node.pauses_in_read.is_some_and(|(after_value, _)| after_value == has_value)
            && let Some((_, lasting_ns)) = node.pauses_in_read.take()
        {
            let id = node.id;
            self.pause(id, lasting_ns);
        }
    }

    /// Pauses a process, if it runs.
    pub fn pause(&mut self, id: NodeId, lasting_ns: u64) {
        let now_ns = self.now_ns();
        let Some(node) = self.nodes.get_mut(&id).filter(|node| node.life.is_some()) else { return };
        node.is_paused = true;
        self.trace.event(now_ns, id.0, "pause", &[], || format!("{} ms", lasting_ns / 1_000_000));
        self.queue.schedule(now_ns + lasting_ns, Event::Fault(Fault::Resume(id)));
    }

    /// How long a read is held up between two of its parts: hardly ever.
    fn read_pause_ns(&mut self) -> u64 {
        if self.dice.chance(50) { self.dice.milliseconds(0, 5) } else { 0 }
    }

    fn read_value(&mut self, asked: Asked, term: u64) {
        let Some(life) = self.life(asked.node) else { return };
        let Ask::Read(key) = asked.ask else { return };
        // A replica that was closed meanwhile says nothing more.
        let Some(handle) = life.handles.get(&asked.target) else { return };
        let found = handle.data().get(&program::key(key));
        let found = found.unwrap_or_else(|error| panic!("memory cannot be read: {error}"));
        let value = found.and_then(|bytes| program::decode(&bytes));
        let at_ns = self.now_ns() + self.read_pause_ns();
        self.schedule(at_ns, asked.node, Step::ReadEnd(asked, term, value));
        self.pause_in_read(asked.node, true);
    }

    fn read_end(&mut self, asked: Asked, term: u64, value: program::Value) {
        let now_ns = self.now_ns();
        let Some(life) = self.life(asked.node) else { return };
        let answer = match life.handles.get(&asked.target).map(|handle| handle.finish_read(term)) {
            Some(Ok(())) => Answer::Found(value),
            Some(Err(error)) => Answer::Failed(error),
            None => Answer::Failed(KvError::NoSuchTablet(asked.target)),
        };
        self.send_answer(now_ns, asked, answer);
    }

    fn reply(&mut self, leaves_ns: u64, token: u64, answer: Answer) {
        if token >= FIRST_TOKEN {
            return self.step_answered(leaves_ns, token, answer);
        }
        if let Some(asked) = self.waiting.remove(&token) {
            self.send_answer(leaves_ns, asked, answer);
        }
    }

    fn send_answer(&mut self, leaves_ns: u64, asked: Asked, answer: Answer) {
        let arrives_ns = leaves_ns + self.dice.range(20, 500) * US;
        self.queue.schedule(arrives_ns, Event::Answer(asked, answer));
    }

    fn answered(&mut self, client: u32, request: u64, answer: Option<&Answer>) {
        if !self.clients.is_waiting(client, request) {
            return;
        }
        let (now_ns, nodes) = (self.now_ns(), self.scenario.nodes.clone());
        let told = format!("{answer:?}");
        self.trace
            .event(now_ns, 0, "answer", told.as_bytes(), || format!("client {client}, request {request}: {told}"));
        let target = self.clients.target(client);
        let is_done = self.clients.answered(client, answer, &nodes, &mut self.dice);
        let own = client.checked_sub(self.scenario.clients).map(|at| self.scenario.tablets[at as usize]);
        match (self.phase, own) {
            (Phase::Recovery, Some(tablet)) if is_done => {
                self.recovered.extend(target);
                if self.next_to_recover(tablet).is_none() {
                    return;
                }
            }
            (Phase::Inspection, Some(_)) if is_done => {
                self.to_read.entry(client).or_default().pop();
            }
            _ => {}
        }
        let think_ns = match answer {
            // Whoever is refused tries again a little later.
            Some(Answer::Refused | Answer::Failed(_)) => self.dice.milliseconds(2, 80),
            _ => self.dice.range(US, self.scenario.think_ns),
        };
        self.queue.schedule(now_ns + think_ns, Event::Act(client));
    }
}

fn begin_read(life: &crate::node::Life, tablet: TabletId) -> Result<u64, KvError> {
    life.handles.get(&tablet).ok_or(KvError::NoSuchTablet(tablet))?.begin_read()
}
