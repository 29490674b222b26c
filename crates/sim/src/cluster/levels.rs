//! Upgrades: nodes get programs of other releases while they are down, and the level of the cluster is raised.

use crate::checkers::Finding;
use crate::cluster::{Cluster, Event, Phase};
use crate::errands::Purpose;
use crate::levels::{HIGHEST, LevelEvent, Raise};
use crate::nemesis::Fault;
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
                    0..=6 => self.change_program(true),
                    7 => self.change_program(false),
                    _ => self.ask_to_finish(),
                }
                let after_ns = self.upgrades.dice.milliseconds(10, 300);
                self.later(after_ns, Event::Level(LevelEvent::Next));
            }
            LevelEvent::Replace(id) => {
                if let Some(node) = self.nodes.get_mut(&id) {
                    node.greatest = node.greatest.max(node.noted);
                }
                self.start(id);
            }
            LevelEvent::Agree(raise, at) => self.agree(raise, at),
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
        if node.levels().contains(node.noted) {
            return true;
        }
        let (now_ns, noted) = (self.now_ns(), node.noted);
        self.reached.refused_programs += 1;
        self.trace.event(now_ns, id.0, "refused", &noted.0.to_le_bytes(), || format!("the disks are at level {noted}"));
        let after_ns = self.upgrades.dice.milliseconds(10, 500);
        self.later(after_ns, Event::Level(LevelEvent::Replace(id)));
        false
    }

    fn ask_to_finish(&mut self) {
        let leads = |id: &NodeId| self.running(*id).is_some_and(|life| life.leads(CATALOG_TABLET));
        let Some(leader) = self.present().into_iter().find(leads) else { return };
        let planted = self.setting.control;
        let Some(life) = self.running(leader) else { return };
        let (catalog, liveness) = (life.newest(), life.liveness().clone());
        let is_up = |node| node == leader || liveness.is_up(node);
        let known = life.control.steering.known(&catalog, life.clock.monotonic_ns(), &is_up);
        if let Some(command) = Outlook::new(&catalog, &known, planted).command() {
            self.raise(leader, command, false);
        }
    }

    /// A node that leads the catalog has all members agree to a level, and then proposes it.
    pub fn raise(&mut self, leader: NodeId, command: Command, is_for_steering: bool) {
        let Some(life) = self.life(leader).map(|life| life.number) else { return };
        self.agree(Box::new(Raise { leader, life, command, is_for_steering }), 0);
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
        let is_parted =
            self.setting.network.is_blocked(leader, member) || self.setting.network.is_blocked(member, leader);
        let answers = self.running(member).is_some_and(|life| life.has_started) && !is_parted;
        match self.nodes.get_mut(&member).filter(|node| answers && node.levels().contains(*level)) {
            Some(node) => node.noted = node.noted.max(*level),
            None if self.upgrades.passes_over_nodes_that_are_down => {}
            None if raise.is_for_steering => return self.proposed(leader, None),
            None => return,
        }
        let after_ns = self.upgrades.dice.range(MS / 10, 50 * MS);
        self.later(after_ns, Event::Level(LevelEvent::Agree(raise, at + 1)));
    }

    /// No member runs a program that does not know the level of the cluster.
    pub(crate) fn check_levels(&self) -> Result<(), Finding> {
        let newest = &self.setting.newest;
        let is_below = |node: &&crate::node::Node| {
            node.life.is_some() && newest.node(node.id).is_some() && !node.levels().contains(newest.level())
        };
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
