//! Periodic work of nodes: they report, balance while they lead the catalog, advance splits and merges, report
//! completed moves to the catalog, and become ready.

use crate::cluster::{Cluster, Event};
use crate::errands::Purpose;
use crate::step::{Command as CoreCommand, Duty, Step};
use diorite_base::{Clock, NodeId};
use diorite_cluster::catalog::Outcome;
use diorite_control::follower::forgettable;
use diorite_control::membership::{Facts, Step as ReadyStep, registering, returning, unrecorded};
use diorite_control::replicas::{CATALOG_TABLET, Replicas};
use diorite_control::report::{DiskReport, Files, Report, TabletReport};
use diorite_control::splitting::{SplitStep, serve_split};
use diorite_control::steering::{Because, Event as SteeringEvent, Moment, Proposal, Task};
use diorite_replica::{Leadership, Split, SplitMark};
use diorite_storage::TabletData;

const MS: u64 = 1_000_000;

impl Cluster {
    /// A node has started.
    pub fn begin_duties(&mut self, id: NodeId) {
        for duty in [Duty::Report, Duty::Steer, Duty::Finish, Duty::Merge, Duty::GetReady] {
            let at_ns = self.now_ns() + self.dice.range(0, 50 * MS);
            self.schedule(at_ns, id, Step::Duty(duty));
        }
    }

    /// A node does something that it does now and then.
    pub fn duty(&mut self, id: NodeId, duty: Duty) {
        let rhythm = self.scenario.rhythm;
        let period_ms = match duty {
            Duty::Report => rhythm.report_ms,
            Duty::Steer => rhythm.steer_ms,
            Duty::Finish => rhythm.finish_ms,
            Duty::Merge => rhythm.merge_ms,
            Duty::GetReady => 20,
            Duty::LookAfter => 100,
        };
        match duty {
            Duty::Report => self.report(id),
            Duty::Steer => self.steer(id, SteeringEvent::Tick),
            Duty::Finish => self.finish(id),
            Duty::Merge => self.look_for_merges(id),
            Duty::LookAfter => self.look_after_replicas(id),
            Duty::GetReady => {
                if !self.get_ready(id) {
                    return;
                }
            }
        }
        let at_ns = self.now_ns() + period_ms * MS;
        self.schedule(at_ns, id, Step::Duty(duty));
    }

    /// A node reports to the one that leads the catalog.
    fn report(&mut self, id: NodeId) {
        let (levels, description) = (self.nodes[&id].levels(), self.nodes[&id].described());
        let hold = self.nodes[&id].noted.hold.filter(|_| !levels.greatest.is_first());
        let Some(life) = self.life(id) else { return };
        let tablets = life.handles.iter().filter(|(tablet, _)| **tablet != CATALOG_TABLET);
        let tablets = tablets.map(|(tablet, handle)| TabletReport {
            tablet: *tablet,
            bytes: handle.data().applied_state().map_or(0, |state| state.index),
            disk: 0,
            leads: handle.leadership() == Leadership::Here,
            files: Files::default(),
        });
        let disk = DiskReport { total_bytes: 1 << 40, free_bytes: 1 << 39, ..DiskReport::default() };
        let report = Report {
            disks: vec![disk],
            tablets: tablets.collect(),
            next_tablet: Some(life.served().identity().next_tablet().0),
            levels,
            hold,
            ..Report::default()
        };
        let unrecorded = unrecorded(&life.newest(), id, &description);
        let leader = match life.handles.get(&CATALOG_TABLET).map(|handle| handle.leadership()) {
            Some(Leadership::Here) => id,
            Some(Leadership::Elsewhere(leader)) => leader,
            Some(Leadership::Unknown) | None => return,
        };
        let after_ns = self.dice.range(20_000, 3 * MS);
        self.later(after_ns, Event::Report(id, leader, Box::new(report)));
        if let Some(command) = unrecorded {
            self.propose(id, &command, Purpose::Nothing);
        }
    }

    /// A report has come to a node.
    pub fn learn_report(&mut self, from: NodeId, at: NodeId, report: Report) {
        if self.setting.network.is_blocked(from, at) {
            return;
        }
        let Some(life) = self.life(at) else { return };
        let now_ns = life.clock.monotonic_ns();
        life.control.steering.learn(from, report, now_ns);
    }

    /// Something has happened that the balancer of a node waits for.
    fn steer(&mut self, id: NodeId, event: SteeringEvent) {
        let mut event = event;
        loop {
            let Some(life) = self.life(id) else { return };
            let (catalog, leads, liveness) = (life.newest(), life.leads(CATALOG_TABLET), life.liveness().clone());
            let is_up = |node| node == id || liveness.is_up(node);
            let moment = Moment {
                now_ns: life.clock.monotonic_ns(),
                wall_ms: life.clock.wall_us() / 1_000,
                leads,
                catalog: &catalog,
                is_up: &is_up,
            };
            event = match life.control.steering.on(event, &moment) {
                Task::Rest | Task::Retire => return,
                Task::Summarize => SteeringEvent::Summarized,
                Task::Decide(deciding) => SteeringEvent::Decided(deciding.decide()),
                Task::Propose(Proposal { command, because: Because::Upgraded }) => {
                    return self.raise_by_itself(id, command);
                }
                Task::Propose(proposal) => return self.propose(id, &proposal.command, Purpose::Steering),
            };
        }
    }

    /// The catalog has answered the balancer of a node.
    pub fn proposed(&mut self, id: NodeId, outcome: Option<Outcome>) {
        self.steer(id, SteeringEvent::Proposed(outcome));
    }

    /// A node advances the splits of its tablets, and reports complete ones to the catalog.
    fn finish(&mut self, id: NodeId) {
        let Some(life) = self.life(id) else { return };
        let (steps, finished) = life.decide(id, |control, local| {
            let served = std::sync::Arc::clone(control.follower.served());
            (control.splitting.next(&served, local), control.splitting.finished(&served, local))
        });
        for step in steps {
            match step {
                SplitStep::TellPrepared(tablet) => {
                    self.note_reshaping(tablet);
                    if let Some(life) = self.life(id) {
                        life.core().announce_prepared(tablet);
                        // The next turn of the core sends the posted messages.
                        life.must_tick = true;
                    }
                    self.wake(id);
                }
                SplitStep::Propose(command) | SplitStep::Commit(command) => {
                    self.propose(id, &command, Purpose::Nothing);
                }
                SplitStep::Split(tablet, split) => {
                    let now_ns = self.now_ns();
                    self.trace.event(now_ns, id.0, "split", &tablet.0.to_le_bytes(), || format!("{tablet} {split:?}"));
                    self.note_reshaping(tablet);
                    let boundary = crate::program::key(crate::ranges::key(split.at)).to_vec();
                    let split = Split { boundary, children: split.children };
                    self.command(id, CoreCommand::Split(tablet, split));
                    break;
                }
            }
        }
        if let Some(command) = finished {
            self.propose(id, &command, Purpose::Nothing);
        }
        self.forget_dropped(id);
        let prepares = self.life(id).map(|life| life.take_to_prepare()).unwrap_or_default();
        for tablet in prepares {
            self.prepare_later(id, tablet);
        }
    }

    /// Tells the catalog which dropped tablets are gone here.
    pub fn forget_dropped(&mut self, id: NodeId) {
        let Some(life) = self.life(id) else { return };
        let command =
            life.decide(id, |control, local| forgettable(control.follower.served(), id, local as &dyn Replicas));
        if let Some(command) = command {
            self.propose(id, &command, Purpose::Nothing);
        }
    }

    /// A replica of a node has been split: its child tablets are made a little later, and the catalog is told, or not.
    pub fn was_split(&mut self, node: NodeId, mark: SplitMark, leads: bool) {
        let now_ns = self.now_ns();
        self.trace
            .event(now_ns, node.0, "was split", &mark.index.to_le_bytes(), || format!("{mark:?}, leads: {leads}"));
        if leads && self.dice.chance(800) {
            let entry = diorite_control::replicas::SplitEntry { index: mark.index, term: mark.term };
            self.propose(node, &serve_split(mark.parent, entry), Purpose::Nothing);
        }
        let longest_ms = if self.dice.chance(200) { 1_500 } else { 20 };
        let made_ns = now_ns + self.dice.milliseconds(0, longest_ms);
        self.schedule(made_ns, node, Step::MakeChildren(mark));
    }

    /// A node looks whether it is ready. Returns whether it has to look again.
    fn get_ready(&mut self, id: NodeId) -> bool {
        let description = self.nodes[&id].described();
        let Some(life) = self.life(id) else { return false };
        let (served, newest) = (std::sync::Arc::clone(life.served()), life.newest());
        let voters = life.core().describe(CATALOG_TABLET).map(|state| state.voters).unwrap_or_default();
        let now_ns = life.clock.monotonic_ns();
        let Some(readiness) = &mut life.control.readiness else { return false };
        let step = readiness.look(&Facts { now_ns, served: &served, newest: &newest, voters });
        match step {
            ReadyStep::Wait => true,
            ReadyStep::Ask => {
                let command = registering(&newest, id, &description);
                self.propose(id, &command.unwrap_or_else(|| returning(&newest, id, &description)), Purpose::Ask);
                true
            }
            // In production the process ends, and an operator starts it again; here it waits on.
            ReadyStep::NoCopy => true,
            ReadyStep::Ready(how) => {
                life.control.readiness = None;
                life.ready = Some(how);
                let told_before = life.told_before;
                let now_ns = self.now_ns();
                self.trace
                    .event(now_ns, id.0, "ready", &[], || format!("{how:?}, serves version {}", served.version()));
                if let Err(finding) = self.schema.ready(now_ns, id, how, served.version(), told_before) {
                    self.found = self.found.take().or(Some(finding));
                }
                false
            }
        }
    }
}
