//! Nodes that become members: they ask one that is, which asks the catalog, and start when they have their number.

use crate::cluster::{Cluster, Event};
use crate::disk::{Disk, Disks};
use crate::errands::Purpose;
use crate::joins::JoinEvent;
use crate::node::{Node, describe, described};
use crate::options::Planting;
use crate::setting::{Joined, Quirks};
use diorite_base::NodeId;
use diorite_cluster::catalog::Outcome;
use diorite_control::membership::{NotJoining, Refusal, RefusalKind, Shown, addresses, joining, welcome};

impl Cluster {
    /// Something happens to a node that is not a member yet.
    pub fn join_event(&mut self, event: JoinEvent) {
        match event {
            JoinEvent::Ask(host) => self.ask_to_join(host),
            JoinEvent::Answer(host, member) => self.welcome(host, member),
        }
    }

    fn ask_again(&mut self, host: u64) {
        let after_ns = self.some_ms(50, 300);
        self.later(after_ns, Event::Join(JoinEvent::Ask(host)));
    }

    fn ask_to_join(&mut self, host: u64) {
        let is_known = self.nodes.values().any(|node| node.description.host_id == describe(host).host_id);
        if is_known {
            return;
        }
        let members: Vec<NodeId> = self.present().into_iter().filter(|id| self.running(*id).is_some()).collect();
        if members.is_empty() {
            return self.ask_again(host);
        }
        let member = *self.dice.pick(&members);
        let program = self.upgrades.program_of(host);
        let Some(life) = self.running(member) else { return };
        let liveness = life.liveness().clone();
        let description = described(&describe(host), program);
        match joining(&life.newest(), member, description, Shown::Nothing, |node| liveness.is_up(node)) {
            Ok(command) => self.propose(member, &command, Purpose::Join(host)),
            Err(NotJoining::Refused(Refusal { kind: RefusalKind::Level, .. })) => {
                self.upgrades.refused(host);
                self.ask_again(host);
            }
            Err(_) => self.ask_again(host),
        }
    }

    /// The catalog has answered a member that was asked to let a node join.
    pub fn joined(&mut self, host: u64, member: NodeId, outcome: Option<Outcome>) {
        let is_done =
            matches!(outcome, Some(Outcome::Registered { .. } | Outcome::Unchanged { .. } | Outcome::Applied { .. }));
        // Now and then the answer is lost, and the host asks again.
        if !is_done || self.dice.chance(100) {
            return self.ask_again(host);
        }
        let after_ns = self.some_ms(1, 20);
        self.later(after_ns, Event::Join(JoinEvent::Answer(host, member)));
    }

    fn welcome(&mut self, host: u64, member: NodeId) {
        let description = describe(host);
        let welcome = self.running(member).and_then(|life| welcome(&life.newest(), description.host_id).ok());
        let known = self.nodes.values().any(|node| node.description.host_id == description.host_id);
        let Some(welcome) = welcome.filter(|_| !known) else { return self.ask_again(host) };
        let Some(id) = welcome.node else { return };
        let joined = Joined { version: Some(welcome.version), members: welcome.members.into_iter().collect() };
        self.add_node(id, host, joined);
        if let Some(node) = self.nodes.get_mut(&id) {
            node.noted.level = welcome.level;
        }
        self.start(id);
    }

    /// A node gets its number.
    pub fn add_node(&mut self, id: NodeId, host: u64, joined: Joined) {
        let quirks = Quirks {
            rate_error_ppm: self.dice.range(0, 2 * self.rate_error_ppm as u64 + 1) as i64 - self.rate_error_ppm,
            wall_error_us: self.dice.range(0, 1_000_000) as i64 - 500_000,
            sync_us: self.scenario.sync_us,
            disks: self.scenario.disks,
        };
        let now_ns = self.now_ns();
        self.trace.event(now_ns, id.0, "member", &host.to_le_bytes(), || format!("host {host}, {joined:?}"));
        let disks = Disks {
            all: (0..quirks.disks).map(|_| Disk::default()).collect(),
            semantics: self.setting.semantics.clone(),
            planted: self.setting.planted,
            begins_as_wanted: self.setting.planting == Some(Planting::BeginAsWanted),
            forgets_with_disk: self.setting.planting == Some(Planting::ForgetWithDisk),
        };
        let mut node = Node::new(id, describe(host), joined, quirks, disks);
        node.greatest = self.upgrades.program_of(host);
        self.nodes.insert(id, node);
    }

    /// Whether every member that runs exchanges heartbeats with all others that do, and no node runs that is no member.
    pub fn are_members_in_touch(&self) -> bool {
        let members = addresses(&self.setting.newest);
        let running: Vec<NodeId> = members.keys().copied().filter(|id| self.running(*id).is_some()).collect();
        let is_up = |one: NodeId, other: NodeId| {
            one == other || self.running(one).is_some_and(|life| life.liveness().is_up(other))
        };
        let strangers = self.nodes.values().filter(|node| !members.contains_key(&node.id) && node.life.is_some());
        running.iter().all(|one| running.iter().all(|other| is_up(*one, *other))) && strangers.count() == 0
    }
}
