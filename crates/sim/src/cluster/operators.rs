//! Operators at work.

use crate::cluster::{Cluster, Event, Phase};
use crate::errands::Purpose;
use crate::joins::JoinEvent;
use crate::node::describe;
use crate::operators::OperatorEvent;
use crate::ranges::{CUTS, token};
use crate::rows::RowWorld;
use diorite_base::{Clock, NodeId, TabletId};
use diorite_cluster::catalog::{CancelledMerge, Catalog, Command, NodeState};
use diorite_control::changes::{Judge, Request};
use diorite_control::replicas::CATALOG_TABLET;
use diorite_replica::Permit;
use std::sync::Arc;

const MS: u64 = 1_000_000;

/// How often an operator looks whether something is done.
const LOOK_NS: u64 = 200 * MS;

/// The most members.
const MEMBERS: usize = 6;

impl Cluster {
    /// Lets the cluster be set up.
    pub fn begin_setting_up(&mut self) {
        self.later(MS, Event::Operator(OperatorEvent::SetUp));
    }

    /// Lets operators begin.
    pub fn begin_operating(&mut self) {
        if self.scenario.splits {
            let after_ns = self.operators.dice.milliseconds(200, 2_500);
            self.later(after_ns, Event::Operator(OperatorEvent::Split));
        }
        if self.scenario.merges {
            let after_ns = self.operators.dice.milliseconds(500, 3_000);
            self.later(after_ns, Event::Operator(OperatorEvent::Merge));
        }
    }

    /// An operator does something.
    pub fn operator_event(&mut self, event: OperatorEvent) {
        match event {
            OperatorEvent::SetUp => self.set_up(),
            OperatorEvent::Split | OperatorEvent::Merge if self.phase != Phase::Chaos => {}
            OperatorEvent::Split => {
                self.begin_split();
                let after_ns = self.operators.dice.milliseconds(100, 1_500);
                self.later(after_ns, Event::Operator(OperatorEvent::Split));
            }
            OperatorEvent::Merge => {
                self.begin_merge();
                let after_ns = self.operators.dice.milliseconds(100, 1_500);
                self.later(after_ns, Event::Operator(OperatorEvent::Merge));
            }
            OperatorEvent::Move(_) if self.phase != Phase::Chaos => {}
            OperatorEvent::Move(tablet) => self.move_reshaping(tablet),
            OperatorEvent::Propose(command) => self.propose_anywhere(&command),
            OperatorEvent::Retire(node) => self.retire_on(node),
            OperatorEvent::Replace(node) => self.replace_on(node),
        }
    }

    fn set_up(&mut self) {
        let newest = Arc::clone(&self.setting.newest);
        let version = newest.version();
        let is_served = |life: &crate::life::Life| life.has_started && life.served().version() == version;
        let all_serve = self.nodes.values().all(|node| node.life.as_ref().is_some_and(&is_served));
        let hosts = self.scenario.nodes.len() as u64;
        let are_all_ready = self.nodes.values().all(|node| node.life.as_ref().is_some_and(|life| life.ready.is_some()));
        let leads = self.nodes.values().any(|node| node.life.as_ref().is_some_and(|life| life.leads(CATALOG_TABLET)));
        // The first commands found the cluster; the tables come when all nodes are there.
        let may_join = newest.nodes().next().is_some() && self.operators.next_host <= hosts;
        if may_join {
            let host = self.operators.next_host;
            self.operators.next_host += 1;
            self.later(MS, Event::Join(JoinEvent::Ask(host)));
        } else if leads && all_serve && (version < 2 || (are_all_ready && self.nodes.len() as u64 == hosts)) {
            match self.operators.commands.front().cloned() {
                Some(_) if self.operators.is_setting_up => {}
                Some(command) => {
                    self.operators.is_setting_up = true;
                    self.propose(NodeId(1), &command, Purpose::SetUp);
                }
                None if self.is_all_led() => return self.later(0, Event::Open),
                None => {}
            }
        }
        assert!(self.now_ns() < 60_000 * MS, "the cluster is set up within a minute: {newest:?}");
        self.later(10 * MS, Event::Operator(OperatorEvent::SetUp));
    }

    fn is_all_led(&self) -> bool {
        let leads = |tablet: TabletId| {
            let mut lives = self.nodes.values().filter_map(|node| node.life.as_ref());
            lives.any(|life| life.handles.get(&tablet).is_some_and(|handle| handle.check(Permit::Lease).is_ok()))
        };
        self.setting.newest.tablets().all(|(tablet, _)| leads(tablet))
    }

    /// Proposes through some node that runs.
    pub fn propose_anywhere(&mut self, command: &Command) {
        self.propose_for(command, Purpose::Nothing);
    }

    fn propose_for(&mut self, command: &Command, purpose: Purpose) {
        let running: Vec<NodeId> = self.present().into_iter().filter(|id| self.running(*id).is_some()).collect();
        if !running.is_empty() {
            let node = *self.operators.dice.pick(&running);
            self.propose(node, command, purpose);
        }
    }

    /// What some node that runs serves: it may be old.
    pub fn some_snapshot(&mut self) -> Option<Arc<Catalog>> {
        let running: Vec<NodeId> = self.present().into_iter().filter(|id| self.running(*id).is_some()).collect();
        let node = (!running.is_empty()).then(|| *self.operators.dice.pick(&running))?;
        self.running(node).map(|life| Arc::clone(life.served()))
    }

    /// The tablets that clients write to.
    pub fn client_tablets(&self) -> Vec<TabletId> {
        if self.rows.is_some() {
            return self.setting.newest.tables().flat_map(|entry| &entry.tablets).map(|range| range.tablet).collect();
        }
        self.scenario.tablets.iter().flat_map(|root| self.served_of(*root)).collect()
    }

    /// A tablet that clients write to, and a token at which it can be split.
    fn some_cut(&mut self) -> Option<(TabletId, i64)> {
        if self.rows.is_some() {
            let at = RowWorld::cut(&mut self.operators.dice);
            let entries: Vec<_> = self.setting.newest.tables().collect();
            return Some((self.operators.dice.pick(&entries).tablet_of(at), at));
        }
        let served = self.client_tablets();
        let tablet = *self.operators.dice.pick(&served);
        let range = self.setting.ranges.of(tablet);
        let cuts: Vec<u64> = CUTS.into_iter().filter(|cut| *cut > range.start && *cut < range.end).collect();
        if cuts.is_empty() { None } else { Some((tablet, token(*self.operators.dice.pick(&cuts)))) }
    }

    fn begin_split(&mut self) {
        let Some((tablet, at)) = self.some_cut() else { return };
        let stays = self.operators.dice.chance(500);
        self.propose_anywhere(&Command::BeginSplit { tablet, at, stays });
        self.will_move(&[tablet]);
        if self.operators.dice.chance(100) {
            let after_ns = self.operators.dice.milliseconds(0, 500);
            self.later(after_ns, Event::Operator(OperatorEvent::Propose(Box::new(Command::CancelSplit { tablet }))));
        }
    }

    fn begin_merge(&mut self) {
        let of_tables: Vec<Vec<TabletId>> = match self.rows {
            Some(_) => {
                let tables = self.setting.newest.tables();
                tables.map(|entry| entry.tablets.iter().map(|range| range.tablet).collect()).collect()
            }
            None => self.scenario.tablets.iter().map(|root| self.served_of(*root)).collect(),
        };
        let neighbours = of_tables.iter().flat_map(|tablets| tablets.windows(2));
        let pairs: Vec<[TabletId; 2]> = neighbours.map(|pair| [pair[0], pair[1]]).collect();
        if pairs.is_empty() {
            return;
        }
        let [left, right] = *self.operators.dice.pick(&pairs);
        let (tablet, into) = if self.operators.dice.chance(500) { (left, right) } else { (right, left) };
        self.propose_anywhere(&Command::BeginMerge { tablet, into });
        self.will_move(&[tablet, into]);
        if self.operators.dice.chance(150) {
            let cancelled = CancelledMerge { reason: "an operator has cancelled it".to_owned(), unix_ms: 0 };
            let cancel = Command::CancelMerge { tablet, number: None, cancelled };
            let after_ns = self.operators.dice.milliseconds(0, 800);
            self.later(after_ns, Event::Operator(OperatorEvent::Propose(Box::new(cancel))));
        }
    }

    /// Asks the node that leads the catalog for something. Returns whether that proposes it.
    fn ask_leader(&mut self, request: Request) -> bool {
        let leads = |id: &NodeId| self.running(*id).is_some_and(|life| life.leads(CATALOG_TABLET));
        let Some(leader) = self.present().into_iter().find(leads) else { return false };
        let Some(life) = self.running(leader).filter(|life| !life.thread.waits()) else { return false };
        let state = life.core().describe(CATALOG_TABLET);
        let sets = state.into_iter().flat_map(|state| [state.voters, state.outgoing]);
        let catalog_voters: Vec<Vec<NodeId>> = sets.filter(|set| !set.is_empty()).collect();
        let (catalog, liveness) = (life.newest(), life.liveness().clone());
        let is_up = |node| node == leader || liveness.is_up(node);
        let wall_ms = life.clock.wall_us() / 1_000;
        let judge = Judge { node: leader, catalog: &catalog, is_up: &is_up, catalog_voters: &catalog_voters, wall_ms };
        match judge.command_of(request) {
            Ok((command, _)) => {
                self.propose(leader, &command, Purpose::Nothing);
                true
            }
            Err(_) => false,
        }
    }

    /// Lets another node join, if there are not too many.
    pub fn let_one_join(&mut self) {
        if self.present().len() < MEMBERS {
            let host = self.operators.next_host;
            self.operators.next_host += 1;
            self.later(0, Event::Join(JoinEvent::Ask(host)));
        }
    }

    /// Lets as many join as are needed to hold all replicas again.
    pub fn fill_up(&mut self) {
        let is_able = |node: &&Arc<diorite_cluster::catalog::Node>| {
            node.state.is_active() && self.nodes.get(&node.id).is_some_and(|node| !node.is_gone)
        };
        let able = self.setting.newest.nodes().filter(is_able).count();
        let is_known = |host: &u64| self.nodes.values().any(|node| node.description.host_id == describe(*host).host_id);
        let joining = (1..self.operators.next_host).filter(|host| !is_known(host)).count();
        for _ in able + joining..self.scenario.replicas {
            let host = self.operators.next_host;
            self.operators.next_host += 1;
            self.later(0, Event::Join(JoinEvent::Ask(host)));
        }
    }

    /// Begins to empty and remove a node.
    pub fn begin_to_retire(&mut self, node: NodeId) {
        self.later(0, Event::Operator(OperatorEvent::Retire(node)));
    }

    fn retire_on(&mut self, node: NodeId) {
        let newest = Arc::clone(&self.setting.newest);
        let Some(found) = newest.node(node).filter(|_| self.phase == Phase::Chaos) else { return };
        // While a lost node still counts as active, tables are placed there: the others are needed.
        let is_missed =
            self.operators.lost.and_then(|lost| newest.node(lost)).is_some_and(|lost| lost.state.is_active());
        if is_missed {
            return self.later(LOOK_NS, Event::Operator(OperatorEvent::Retire(node)));
        }
        if !self.ask_leader(Request::Remove { node }) && found.state == NodeState::Active {
            self.ask_leader(Request::Drain { node });
        }
        self.later(LOOK_NS, Event::Operator(OperatorEvent::Retire(node)));
    }

    /// Loses a machine with its disk for ever, if all that it held can be made anew.
    pub fn lose(&mut self, node: NodeId) {
        let is_safe = self.can_do_without(node)
            && self.operators.lost.is_none()
            && self.setting.newest.node(node).is_some()
            && self.scenario.sync_every_ms.is_none()
            // A table may be created before the node counts as dead: it needs a quorum of replicas on other nodes.
            && self.scenario.replicas > 1
            && self.setting.newest.nodes().filter(|other| other.id != node && other.state.is_active()).count() > 1;
        if !is_safe {
            return;
        }
        self.operators.lost = Some(node);
        let now_ns = self.now_ns();
        self.trace.event(now_ns, node.0, "lost", &[], String::new);
        self.end(node, true);
        if let Some(lost) = self.nodes.get_mut(&node) {
            lost.is_gone = true;
        }
        self.let_one_join();
        self.later(LOOK_NS, Event::Operator(OperatorEvent::Replace(node)));
    }

    /// Whether the leaders of all tablets have brought about what the catalog wants: no replica is on its way.
    pub fn are_groups_at_rest(&self) -> bool {
        let is_complete = |tablet: TabletId| {
            let mut lives = self.nodes.values().filter_map(|node| node.life.as_ref());
            lives.any(|life| life.handles.get(&tablet).is_some_and(|handle| handle.committed_voters().is_some()))
        };
        self.setting.newest.tablets().all(|(tablet, _)| is_complete(tablet)) && is_complete(CATALOG_TABLET)
    }

    fn replace_on(&mut self, node: NodeId) {
        let newest = Arc::clone(&self.setting.newest);
        let Some(found) = newest.node(node) else {
            self.operators.lost = None;
            return;
        };
        if found.state != NodeState::Dead {
            self.ask_leader(Request::Replace { node });
        } else {
            self.ask_leader(Request::Remove { node });
        }
        self.later(LOOK_NS, Event::Operator(OperatorEvent::Replace(node)));
    }

    /// Whether no machine is lost and a member still.
    pub fn is_nothing_lost(&self) -> bool {
        self.operators.lost.is_none()
    }

    /// Changes something about a node that is not about its data.
    pub fn operate_on(&mut self, node: NodeId) {
        let request = match self.operators.dice.range(0, 4) {
            0 => Request::SetZone { node, zone: Some(format!("zone-{}", self.operators.dice.range(0, 3))) },
            1 => Request::MoveLeaders { node, back: false },
            2 => Request::MoveLeaders { node, back: true },
            _ => Request::Undrain { node },
        };
        self.ask_leader(request);
    }

    /// Asks for `node` to lead a tablet, if some node knows the tablet.
    pub fn prefer(&mut self, node: NodeId) {
        let tablets = self.client_tablets();
        let tablet = *self.operators.dice.pick(&tablets);
        let Some(catalog) = self.some_snapshot() else { return };
        let Some(placement) = catalog.placement(tablet) else { return };
        let expected = placement.replicas.clone();
        let mut replicas = expected.clone();
        if let Some(at) = replicas.iter().position(|replica| *replica == node) {
            replicas.rotate_left(at);
            self.propose_anywhere(&Command::Place { tablet, expected, replicas, is_numbered: true });
        }
    }

    /// Wants replicas of a tablet on other nodes. Usually only when the last such change is done.
    pub fn relocate(&mut self) {
        let tablets = self.client_tablets();
        let tablet = *self.operators.dice.pick(&tablets);
        let is_rash = self.operators.dice.chance(200);
        self.relocate_one(tablet, is_rash, Purpose::Nothing);
    }

    /// Wants replicas of this tablet on other nodes.
    pub fn relocate_one(&mut self, tablet: TabletId, is_rash: bool, purpose: Purpose) {
        let Some(catalog) = self.some_snapshot() else { return };
        let Some(placement) = catalog.placement(tablet).filter(|placement| is_rash || !placement.is_moving()) else {
            return;
        };
        let nodes: Vec<NodeId> =
            catalog.nodes().map(|node| node.id).filter(|id| Some(*id) != self.operators.lost).collect();
        let expected = placement.replicas.clone();
        let replicas = self.operators.other_voters(&expected, &nodes);
        self.propose_for(&Command::Place { tablet, expected, replicas, is_numbered: true }, purpose);
    }
}
