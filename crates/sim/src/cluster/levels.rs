//! Upgrades: nodes get programs of other releases while they are down, and the level of the cluster is raised.

use crate::checkers::Finding;
use crate::cluster::{Cluster, Event, Phase};
use crate::errands::Purpose;
use crate::levels::{Decision, HIGHEST, LevelEvent, Raise};
use crate::nemesis::Fault;
use crate::node::Node;
use diorite_base::{Clock, NodeId};
use diorite_cluster::catalog::Command;
use diorite_control::replicas::CATALOG_TABLET;
use diorite_control::upgrade::Outlook;

const MS: u64 = 1_000_000;

impl Cluster {
    /// Lets operators upgrade nodes, in seeds that have several programs.
    pub fn begin_upgrades(&mut self) {
        if self.upgrades.is_on {
            let after_ns = self.upgrades.dice.milliseconds(0, 1_000);
            self.later(after_ns, Event::Level(LevelEvent::Next));
        }
    }

    /// Something happens in an upgrade.
    pub fn level_event(&mut self, event: LevelEvent) {
        match event {
            LevelEvent::Next if self.phase != Phase::Chaos => {}
            LevelEvent::Next => {
                match self.upgrades.dice.range(0, 10) {
                    0..=5 => self.change_program(true),
                    6 => self.change_program(false),
                    7 => self.decide(),
                    _ => self.ask_to_finish(),
                }
                let after_ns = self.upgrades.dice.milliseconds(10, 300);
                self.later(after_ns, Event::Level(LevelEvent::Next));
            }
            LevelEvent::Replace(id) => {
                if let Some(node) = self.nodes.get_mut(&id) {
                    node.greatest = node.greatest.max(node.noted.level);
                }
                self.start(id);
            }
            LevelEvent::Agree(raise, at) => self.agree(raise, at),
            LevelEvent::Note(decision, at) => self.note(decision, at),
        }
    }

    /// A node is stopped and gets the program of the next release, or of the one before.
    fn change_program(&mut self, is_upgrade: bool) {
        let present = self.present();
        let mut id = *self.upgrades.dice.pick(&present);
        if is_upgrade && self.upgrades.dice.chance(700) {
            // Those that are behind come first.
            let least = present.iter().filter_map(|id| self.nodes.get(id)).min_by_key(|node| (node.greatest, node.id));
            id = least.map_or(id, |node| node.id);
        }
        let newest = self.setting.newest.level();
        let Some(node) = self.nodes.get(&id).filter(|node| node.is_running()) else { return };
        let program = if is_upgrade { node.greatest.next() } else { node.greatest.previous() };
        // An operator upgrades by one release at a time, and does not go back once the upgrade is finished.
        if program == node.greatest || program > HIGHEST || program < newest || program > newest.next() {
            return;
        }
        let (now_ns, loses_power) = (self.now_ns(), self.upgrades.dice.chance(200));
        self.trace.event(now_ns, id.0, "program", &program.0.to_le_bytes(), || format!("knows up to level {program}"));
        self.end(id, loses_power);
        if let Some(node) = self.nodes.get_mut(&id) {
            node.greatest = program;
        }
        let after_ns = self.upgrades.dice.milliseconds(1, 500);
        self.queue.schedule(now_ns + after_ns, Event::Fault(Fault::Start(id)));
    }

    /// Whether a node's program may be started on its disks; if not, an operator is called.
    pub fn may_start(&mut self, id: NodeId) -> bool {
        let Some(node) = self.nodes.get(&id) else { return false };
        if node.levels().contains(node.noted.level) {
            return true;
        }
        let (now_ns, noted) = (self.now_ns(), node.noted.level);
        self.reached.refused_programs += 1;
        self.trace.event(now_ns, id.0, "refused", &noted.0.to_le_bytes(), || format!("the disks are at level {noted}"));
        let after_ns = self.upgrades.dice.milliseconds(10, 500);
        self.later(after_ns, Event::Level(LevelEvent::Replace(id)));
        false
    }

    fn ask_to_finish(&mut self) {
        let Some((leader, outlook)) = self.outlook() else { return };
        if let Some(command) = outlook.command() {
            self.upgrades.holds.finished.insert(outlook.level);
            self.raise(leader, command, None);
        }
    }

    /// The node that leads the catalog, and what it knows about an upgrade.
    fn outlook(&mut self) -> Option<(NodeId, Outlook)> {
        let leads = |id: &NodeId| self.running(*id).is_some_and(|life| life.leads(CATALOG_TABLET));
        let leader = self.present().into_iter().find(leads)?;
        Some((leader, self.outlook_of(leader)?))
    }

    fn outlook_of(&mut self, leader: NodeId) -> Option<Outlook> {
        let planted = self.setting.control;
        let life = self.running(leader)?;
        let (catalog, liveness) = (life.newest(), life.liveness().clone());
        let is_up = |node| node == leader || liveness.is_up(node);
        let known = life.control.steering.known(&catalog, life.clock.monotonic_ns(), &is_up);
        Some(Outlook::new(&catalog, &known, planted))
    }

    /// An operator holds the cluster at its level, or lets it go on.
    fn decide(&mut self) {
        let Some((leader, outlook)) = self.outlook() else { return };
        let Some(life) = self.life(leader).map(|life| life.number) else { return };
        let hold = outlook.decided(!outlook.is_held());
        let is_new = |id: &NodeId| self.nodes.get(id).is_some_and(|node| node.greatest > hold.level);
        let nodes: Vec<NodeId> = self.present().into_iter().filter(is_new).collect();
        if !nodes.is_empty() {
            self.upgrades.holds.begin(hold);
            self.note(Box::new(Decision { leader, life, hold, nodes }), 0);
        }
    }

    fn note(&mut self, decision: Box<Decision>, at: usize) {
        let Decision { leader, life, hold, ref nodes } = *decision;
        if self.running(leader).is_none_or(|running| running.number != life) {
            return;
        }
        let Some(node) = nodes.get(at).copied() else {
            self.reached.holds += u64::from(hold.is_held);
            let now_ns = self.now_ns();
            self.trace.event(now_ns, leader.0, "hold", &hold.number.to_le_bytes(), || format!("answered: {hold}"));
            return self.upgrades.holds.answer(hold, decision.nodes);
        };
        let answers = self.answers(leader, node);
        let Some(node) = self.nodes.get_mut(&node).filter(|_| answers) else { return };
        if node.noted.takes(hold).is_err() {
            return;
        }
        if node.noted.hold.is_none_or(|known| hold.overrules(&known)) {
            node.noted.hold = Some(hold);
        }
        let after_ns = self.upgrades.dice.range(MS / 10, 50 * MS);
        self.later(after_ns, Event::Level(LevelEvent::Note(decision, at + 1)));
    }

    /// Whether a node answers a question of another one.
    fn answers(&mut self, asking: NodeId, asked: NodeId) -> bool {
        let network = &self.setting.network;
        let is_parted = network.is_blocked(asking, asked) || network.is_blocked(asked, asking);
        self.running(asked).is_some_and(|life| life.has_started) && !is_parted
    }

    /// The balancer of a node that leads the catalog raises the level.
    pub fn raise_by_itself(&mut self, leader: NodeId, command: Command) {
        let overruled = self.outlook_of(leader).map_or(0, |outlook| outlook.overruled());
        self.raise(leader, command, Some(overruled));
    }

    /// A node that leads the catalog has all members agree to a level, and then proposes it; `overruled`: the number of
    /// the hold in spite of which they agree, if its balancer does it.
    fn raise(&mut self, leader: NodeId, command: Command, overruled: Option<u64>) {
        let Some(life) = self.life(leader).map(|life| life.number) else { return };
        let (is_for_steering, overruled) = (overruled.is_some(), overruled.unwrap_or(u64::MAX));
        self.agree(Box::new(Raise { leader, life, command, is_for_steering, overruled }), 0);
    }

    fn agree(&mut self, raise: Box<Raise>, at: usize) {
        let leader = raise.leader;
        let Command::RaiseLevel { level, members } = &raise.command else { return };
        if self.running(leader).is_none_or(|life| life.number != raise.life) {
            return;
        }
        let purpose = if raise.is_for_steering { Purpose::Steering } else { Purpose::Nothing };
        let Some(member) = members.get(at).copied() else {
            return self.propose(leader, &raise.command, purpose);
        };
        let (answers, planted) = (self.answers(leader, member), self.setting.control);
        let agrees =
            |node: &&mut Node| answers && node.noted.agrees(*level, raise.overruled, node.levels(), planted).is_ok();
        match self.nodes.get_mut(&member).filter(agrees) {
            Some(node) => node.noted.level = node.noted.level.max(*level),
            None if self.upgrades.passes_over_nodes_that_are_down => {}
            None if raise.is_for_steering => return self.proposed(leader, None),
            None => return,
        }
        let after_ns = self.upgrades.dice.range(MS / 10, 50 * MS);
        self.later(after_ns, Event::Level(LevelEvent::Agree(raise, at + 1)));
    }

    /// No member runs a program that does not know the level of the cluster, and no level is raised by itself that an
    /// operator holds.
    pub(crate) fn check_levels(&self) -> Result<(), Finding> {
        let newest = &self.setting.newest;
        let is_below = |node: &&Node| {
            node.life.is_some() && newest.node(node.id).is_some() && !node.levels().contains(newest.level())
        };
        let is_member = |id: &NodeId| newest.node(*id).is_some();
        if let Some(hold) = self.upgrades.holds.broken(newest.level(), is_member) {
            let message = format!("the cluster is at level {}, and an operator held it: {hold}", newest.level());
            return Err(Finding { checker: "levels", at_ns: self.now_ns(), message });
        }
        match self.nodes.values().find(is_below) {
            None => Ok(()),
            Some(node) => {
                let (level, levels) = (newest.level(), node.levels());
                let message = format!("{} runs a program that knows {levels}, the cluster is at {level}", node.id);
                Err(Finding { checker: "levels", at_ns: self.now_ns(), message })
            }
        }
    }
}
