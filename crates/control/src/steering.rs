//! Steering of the cluster, on the node that leads the catalog: dead nodes, moves of the balancer, merges of small
//! tablets, whether clients have to log in as long as that is not decided, and the level of the cluster.
//!
//! ```text
//! Tick ─▶ Summarize ─▶ Propose (a node's state) … ─▶ Decide ─▶ Propose (a move, a merge) … ─▶ Rest
//! ```
//!
//! Always true: a node that has been silent for the configured time is declared dead before its replicas are rebuilt,
//! and alive again as soon as its heartbeats arrive. The balancer's actions are proposed in its order, each with the
//! state that it was decided on, and none after a proposal that failed. Nothing is moved until all nodes that are up
//! have reported.

use crate::access;
use crate::knowledge::{Knowledge, Known};
use crate::planted::Planted;
use crate::report::Report;
use crate::shrink::next_merge;
use crate::upgrade::{Deadline, GRACE_NS, Outlook};
use crate::view::{command_of, reason_name, view};
use diorite_base::NodeId;
use diorite_cluster::balance::{Action, balance};
use diorite_cluster::catalog::{Catalog, Command, NodeState, Outcome};
use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;
use std::time::Duration;

/// The pause between two ticks.
pub const INTERVAL: Duration = Duration::from_millis(500);

/// Durations.
#[derive(Clone, Copy, Debug)]
pub struct Timing {
    /// How many ticks there are between two checks while nothing happens.
    pub idle_ticks: u32,
    /// After this node has begun to lead the catalog, how long other nodes have to show that they live before they
    /// count as silent, nanoseconds.
    pub grace_ns: u64,
    /// How often a summary of the cluster is made for operators, nanoseconds.
    pub summary_ns: u64,
    /// How long all members have been able to go on to the next level before it is raised by itself, nanoseconds.
    pub upgrade_ns: u64,
    /// Bugs of tests.
    pub planted: Planted,
}

impl Default for Timing {
    fn default() -> Self {
        Self {
            idle_ticks: 4,
            grace_ns: 2_000_000_000,
            summary_ns: 5_000_000_000,
            upgrade_ns: GRACE_NS,
            planted: Planted::default(),
        }
    }
}

/// The inputs at the moment of an event.
pub struct Moment<'a> {
    /// This node's monotonic clock.
    pub now_ns: u64,
    /// Its wall clock, milliseconds.
    pub wall_ms: i64,
    /// Whether it leads the catalog.
    pub leads: bool,
    /// The newest snapshot that it knows.
    pub catalog: &'a Arc<Catalog>,
    /// Whether heartbeats of a node arrive, or it is this node.
    pub is_up: &'a dyn Fn(NodeId) -> bool,
}

/// An event.
#[derive(Debug)]
pub enum Event {
    /// Another [`INTERVAL`] is over.
    Tick,
    /// [`Task::Summarize`] is done.
    Summarized,
    /// The outcome of [`Task::Propose`]; `None`: the proposal failed, or its outcome is unknown.
    Proposed(Option<Outcome>),
    /// [`Task::Decide`] is done.
    Decided(Decision),
}

/// The next task, whose end is to be reported as an [`Event`].
#[derive(Debug)]
pub enum Task<D = ()> {
    /// None until the next [`Event::Tick`].
    Rest,
    /// As [`Task::Rest`]; this node no longer leads the catalog, and its summaries are out of date.
    Retire,
    /// Make a summary of the cluster for operators.
    Summarize,
    /// Propose this to the catalog.
    Propose(Proposal),
    /// Call [`Deciding::decide`], on a thread that may take its time.
    Decide(Deciding<D>),
}

/// A command for the catalog, and why.
#[derive(Clone, Debug, PartialEq)]
pub struct Proposal {
    /// The command.
    pub command: Command,
    /// The reason.
    pub because: Because,
}

/// The reason of a proposal.
#[derive(Clone, Debug, PartialEq)]
pub enum Because {
    /// A node has been silent for this long; `None`: its heartbeats arrive again.
    Silence(Option<Duration>),
    /// The balancer has decided it.
    Balance(Action),
    /// Two neighbouring tablets are small.
    Small,
    /// The catalog is of an earlier version, which did not decide it.
    Undecided,
    /// All members have known the next level for long enough.
    Upgraded,
}

/// The inputs of a decision.
#[derive(Debug)]
pub struct Deciding<D = ()> {
    catalog: Arc<Catalog>,
    known: Known<D>,
    wall_ms: i64,
}

impl<D> Deciding<D> {
    /// The actions of the balancer. Takes a while for a large cluster.
    pub fn decide(self) -> Decision {
        let actions = balance(&view(&self.catalog, &self.known));
        let merge = next_merge(&self.catalog, &self.known, self.wall_ms);
        let moved = actions.into_iter().filter_map(|action| {
            let command = command_of(&self.catalog, &action)?;
            Some(Proposal { command, because: Because::Balance(action) })
        });
        let merged = merge.map(|command| Proposal { command, because: Because::Small });
        Decision { proposals: moved.chain(merged).collect() }
    }
}

/// The actions of the balancer, in their order.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Decision {
    proposals: Vec<Proposal>,
}

/// The kind of the proposals under way.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Stage {
    /// States of nodes; a decision follows.
    States,
    /// Actions of the balancer.
    Actions,
}

/// See the top of this module.
#[derive(Debug)]
pub struct Steering<D = ()> {
    timing: Timing,
    knowledge: Knowledge<D>,
    leading_since_ns: Option<u64>,
    summarized_ns: u64,
    last_version: u64,
    idle: u32,
    stage: Stage,
    proposals: VecDeque<Proposal>,
    decided: BTreeMap<String, u64>,
    deadline: Deadline,
}

impl<D> Default for Steering<D> {
    fn default() -> Self {
        Self::new(Timing::default())
    }
}

impl<D> Steering<D> {
    /// A node that has not led the catalog yet.
    pub fn new(timing: Timing) -> Self {
        Self {
            timing,
            knowledge: Knowledge::default(),
            leading_since_ns: None,
            summarized_ns: 0,
            last_version: 0,
            idle: 0,
            stage: Stage::Actions,
            proposals: VecDeque::new(),
            decided: BTreeMap::new(),
            deadline: Deadline::default(),
        }
    }

    /// Takes a node's report.
    pub fn learn(&mut self, node: NodeId, report: Report<D>, now_ns: u64) {
        self.knowledge.learn(node, report, now_ns);
    }

    /// The last reports, of any age.
    pub fn last(&self) -> BTreeMap<NodeId, Arc<Report<D>>> {
        self.knowledge.last()
    }

    /// The number of decisions of the balancer here, by reason.
    pub fn decided(&self) -> &BTreeMap<String, u64> {
        &self.decided
    }

    /// How long until the level of the cluster is raised by itself, nanoseconds; `None`: it is not to be.
    pub fn upgrade_left_ns(&self, now_ns: u64) -> Option<u64> {
        self.deadline.left_ns(now_ns, self.timing.upgrade_ns)
    }

    /// The state of the cluster, as known now.
    pub fn known(&self, catalog: &Catalog, now_ns: u64, is_up: &dyn Fn(NodeId) -> bool) -> Known<D> {
        Known {
            reports: self.knowledge.fresh(now_ns),
            up: catalog.nodes().map(|node| (node.id, is_up(node.id))).collect(),
            leader_stopped: self.knowledge.leader_stopped(now_ns),
        }
    }

    /// Takes an event; returns the next task.
    pub fn on(&mut self, event: Event, moment: &Moment<'_>) -> Task<D> {
        match event {
            Event::Tick => self.tick(moment),
            Event::Summarized => self.look(moment),
            Event::Decided(decision) => {
                self.proposals = decision.proposals.into();
                self.stage = Stage::Actions;
                self.propose(moment)
            }
            Event::Proposed(None) => {
                // Later proposals may depend on it.
                self.proposals.clear();
                Task::Rest
            }
            Event::Proposed(Some(_)) => self.propose(moment),
        }
    }

    fn tick(&mut self, moment: &Moment<'_>) -> Task<D> {
        if !moment.leads {
            return match self.leading_since_ns.take() {
                Some(_) => {
                    self.knowledge.forget();
                    self.deadline = Deadline::default();
                    Task::Retire
                }
                None => Task::Rest,
            };
        }
        if moment.now_ns < *self.leading_since_ns.get_or_insert(moment.now_ns) + self.timing.grace_ns {
            return Task::Rest;
        }
        if moment.now_ns >= self.summarized_ns + self.timing.summary_ns {
            self.summarized_ns = moment.now_ns;
            return Task::Summarize;
        }
        self.look(moment)
    }

    /// Checks the nodes, unless nothing happens and the last check was recent.
    fn look(&mut self, moment: &Moment<'_>) -> Task<D> {
        let version = moment.catalog.version();
        self.idle = if version == self.last_version { self.idle + 1 } else { 0 };
        self.last_version = version;
        if !self.idle.is_multiple_of(self.timing.idle_ticks) {
            return Task::Rest;
        }
        self.proposals = self.states(moment).into();
        let known = self.known(moment.catalog, moment.now_ns, moment.is_up);
        let decision = access::decision(moment.catalog, &known);
        self.proposals.extend(decision.map(|command| Proposal { command, because: Because::Undecided }));
        let outlook = Outlook::new(moment.catalog, &known, self.timing.planted);
        let raise = self.deadline.look(&outlook, moment.now_ns, self.timing.upgrade_ns);
        self.proposals.extend(raise.map(|command| Proposal { command, because: Because::Upgraded }));
        self.stage = Stage::States;
        self.propose(moment)
    }

    /// Proposals to declare nodes dead, or alive again.
    fn states(&mut self, moment: &Moment<'_>) -> Vec<Proposal> {
        let catalog = moment.catalog;
        let silent =
            self.knowledge.watch(catalog.nodes().map(|node| (node.id, (moment.is_up)(node.id))), moment.now_ns);
        let longest_ns = catalog.identity().settings.replace_after_ms.saturating_mul(1_000_000);
        let changed = catalog.nodes().filter_map(|node| {
            let silence_ns = silent.get(&node.id).copied();
            let state = match (node.state, silence_ns) {
                (NodeState::Dead, None) => NodeState::Active,
                (NodeState::Active | NodeState::Draining, Some(silence_ns)) if silence_ns >= longest_ns => {
                    NodeState::Dead
                }
                _ => return None,
            };
            let because = Because::Silence(silence_ns.map(Duration::from_nanos));
            Some(Proposal { command: Command::SetNodeState { node: node.id, state }, because })
        });
        changed.collect()
    }

    /// The next proposal, or the task after the last one.
    fn propose(&mut self, moment: &Moment<'_>) -> Task<D> {
        if let Some(next) = self.proposals.pop_front() {
            if let Because::Balance(action) = &next.because {
                *self.decided.entry(reason_name(action)).or_default() += 1;
            }
            return Task::Propose(next);
        }
        if self.stage == Stage::Actions {
            return Task::Rest;
        }
        let known = self.known(moment.catalog, moment.now_ns, moment.is_up);
        if !known.is_complete() {
            return Task::Rest;
        }
        Task::Decide(Deciding { catalog: Arc::clone(moment.catalog), known, wall_ms: moment.wall_ms })
    }
}

#[cfg(test)]
mod tests;
