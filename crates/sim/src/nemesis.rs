//! What goes wrong in a run, and when it is mended.

use crate::cluster::{Cluster, Event, Phase};
use crate::dice::Dice;
use crate::process::Command;
use crate::scenario::{CALM, FaultKind, Scenario};
use diorite_base::{NodeId, TabletId};
use diorite_replica::Permit;

const SECOND: u64 = 1_000_000_000;
const DAY_US: i64 = 86_400_000_000;

/// Something that goes wrong, or is mended.
#[derive(Clone, Debug)]
pub enum Fault {
    /// The next thing goes wrong.
    Next,
    /// Nothing goes wrong any more, and everything is mended.
    Calm,
    /// A node's process is started.
    Start(NodeId),
    /// A node that was stopped in an orderly way ends.
    End(NodeId),
    /// A paused process goes on.
    Resume(NodeId),
    /// The partition of this number ends.
    Heal(u64),
    /// A disk is as fast as usual.
    DiskMended(NodeId),
}

/// Decides what goes wrong.
pub struct Nemesis {
    kinds: Vec<FaultKind>,
    every_ns: u64,
    rate_error_ppm: i64,
    sync_us: u64,
    dice: Dice,
    partitions: u64,
    is_calm: bool,
    /// How many faults there were.
    pub faults: u64,
}

impl Nemesis {
    /// What goes wrong in a scenario.
    pub fn new(scenario: &Scenario, rate_error_ppm: i64, dice: Dice) -> Self {
        Self {
            kinds: scenario.kinds.clone(),
            every_ns: scenario.fault_every_ns,
            rate_error_ppm,
            sync_us: scenario.sync_us,
            dice,
            partitions: 0,
            is_calm: false,
            faults: 0,
        }
    }

    /// When the first thing goes wrong, nanoseconds: usually after there are leaders.
    pub fn first_ns(&mut self) -> u64 {
        self.dice.range(0, 2 * SECOND)
    }

    /// How long a node stays down, nanoseconds.
    pub fn down_ns(&mut self) -> u64 {
        if self.dice.chance(300) { self.dice.milliseconds(1, 100) } else { self.dice.milliseconds(100, 2_500) }
    }

    fn lasting_ns(&mut self) -> u64 {
        self.dice.milliseconds(50, 2_500)
    }

    /// Directed pairs between which nothing passes.
    fn partition(&mut self, nodes: &[NodeId]) -> Vec<(NodeId, NodeId)> {
        let pairs = || nodes.iter().flat_map(|one| nodes.iter().map(move |other| (*one, *other)));
        let lonely = *self.dice.pick(nodes);
        let another = *self.dice.pick(nodes);
        match self.dice.range(0, 6) {
            0 | 1 => pairs().filter(|(from, to)| (*from == lonely) != (*to == lonely)).collect(),
            2 => pairs().filter(|(from, to)| *from == lonely && *to != lonely).collect(),
            3 => pairs().filter(|(from, to)| *from != lonely && *to == lonely).collect(),
            4 => pairs().filter(|pair| *pair == (lonely, another) || *pair == (another, lonely)).collect(),
            _ => {
                let side = self.dice.bits();
                let is_left = |node: &NodeId| side >> node.0 & 1 == 1;
                pairs().filter(|(from, to)| is_left(from) != is_left(to)).collect()
            }
        }
    }
}

impl Cluster {
    /// Something goes wrong, or is mended.
    pub fn fault(&mut self, fault: Fault) {
        let now_ns = self.now_ns();
        match fault {
            Fault::Next if self.nemesis.is_calm => {}
            Fault::Next => {
                let kind = *self.nemesis.dice.pick(&self.nemesis.kinds.clone());
                self.nemesis.faults += 1;
                self.commit(kind);
                let next_ns = now_ns + self.nemesis.dice.range(1, self.nemesis.every_ns);
                self.queue.schedule(next_ns, Event::Fault(Fault::Next));
            }
            Fault::Calm => self.calm(),
            Fault::Start(node) => self.start(node),
            Fault::End(node) => {
                self.end(node, false);
                let after_ns = self.nemesis.down_ns();
                self.queue.schedule(now_ns + after_ns, Event::Fault(Fault::Start(node)));
            }
            Fault::Resume(node) => {
                self.trace.event(now_ns, node.0, "resume", &[], String::new);
                self.resume(node);
            }
            Fault::Heal(partition) => {
                if partition == self.nemesis.partitions {
                    self.trace.event(now_ns, 0, "heal", &[], String::new);
                    self.setting.network.heal();
                }
            }
            Fault::DiskMended(node) => {
                let sync_us = self.nemesis.sync_us;
                if let Some(life) = self.life(node) {
                    life.log.set_sync_us(sync_us);
                }
            }
        }
    }

    /// A disk stops to sync for a while.
    fn hang(&mut self, node: NodeId) {
        let until_ns = (self.now_ns() + self.nemesis.dice.milliseconds(500, 5_000)).min(self.scenario.chaos_ns);
        if let Some(life) = self.life(node) {
            life.log.hang(until_ns);
        }
    }

    fn commit(&mut self, kind: FaultKind) {
        let now_ns = self.now_ns();
        let nodes = self.scenario.nodes.clone();
        let node = self.victim();
        let lasting_ns = self.nemesis.lasting_ns();
        self.trace.event(now_ns, node.0, "fault", &[kind as u8], || format!("{kind:?}, {} ms", lasting_ns / 1_000_000));
        match kind {
            FaultKind::Crash => {
                let power_loss = self.nemesis.dice.chance(700);
                self.crash(node, power_loss);
            }
            FaultKind::TornWrite => {
                let writes = self.nemesis.dice.range(0, 4);
                if self.life(node).is_some() {
                    self.nodes[&node].fail_after(Some(writes));
                }
            }
            FaultKind::Blackout => nodes.iter().for_each(|node| self.crash(*node, true)),
            FaultKind::Pause => {
                if self.nemesis.dice.chance(500) {
                    self.pause(node, lasting_ns);
                } else if let Some(node) = self.nodes.get_mut(&node) {
                    node.pauses_in_read = Some((self.nemesis.dice.chance(500), lasting_ns));
                }
            }
            FaultKind::Suspend => {
                if let Some(life) = self.life(node) {
                    life.clock.suspend();
                }
                self.pause(node, lasting_ns);
            }
            FaultKind::Partition => self.part(&nodes, lasting_ns),
            FaultKind::Cut => {
                let other = *self.nemesis.dice.pick(&nodes);
                self.setting.network.cut(node, other);
            }
            FaultKind::SlowDisk => {
                let sync_us = self.nemesis.dice.range(5_000, 400_000);
                if let Some(life) = self.life(node) {
                    life.log.set_sync_us(sync_us);
                }
                self.queue.schedule(now_ns + lasting_ns, Event::Fault(Fault::DiskMended(node)));
            }
            FaultKind::Hang => self.hang(node),
            FaultKind::WallJump => {
                let most = 10i64.pow(self.nemesis.dice.range(3, 11) as u32);
                self.jump(node, most);
            }
            FaultKind::DayJump => {
                let days = self.nemesis.dice.range(1, 30) as i64;
                self.jump(node, days * DAY_US);
            }
            FaultKind::Rate => {
                let most = self.nemesis.rate_error_ppm;
                let error_ppm = *self.nemesis.dice.pick(&[-most, 0, most]);
                if let Some(life) = self.life(node) {
                    life.clock.set_rate(error_ppm);
                }
            }
            FaultKind::Members => self.prefer(node),
            FaultKind::Move => self.relocate(),
            FaultKind::Stop => {
                self.command(node, Command::Release);
                let after_ns = self.nemesis.dice.milliseconds(0, 400);
                self.queue.schedule(now_ns + after_ns, Event::Fault(Fault::End(node)));
            }
        }
    }

    fn jump(&mut self, node: NodeId, most_us: i64) {
        let by_us = self.nemesis.dice.range(0, 2 * most_us as u64) as i64 - most_us;
        if let Some(life) = self.life(node) {
            life.clock.jump(by_us);
        }
    }

    /// Whom it befalls: usually a node that leads something.
    fn victim(&mut self) -> NodeId {
        let leads = |node: &crate::node::Node| {
            node.life
                .as_ref()
                .is_some_and(|life| life.handles.values().any(|handle| handle.check(Permit::Lease).is_ok()))
        };
        let leaders: Vec<NodeId> = self.nodes.values().filter(|node| leads(node)).map(|node| node.id).collect();
        if leaders.is_empty() || self.nemesis.dice.chance(400) {
            return *self.nemesis.dice.pick(&self.scenario.nodes);
        }
        *self.nemesis.dice.pick(&leaders)
    }

    fn crash(&mut self, node: NodeId, power_loss: bool) {
        self.end(node, power_loss);
        let at_ns = self.now_ns() + self.nemesis.down_ns();
        self.queue.schedule(at_ns, Event::Fault(Fault::Start(node)));
    }

    fn part(&mut self, nodes: &[NodeId], lasting_ns: u64) {
        let now_ns = self.now_ns();
        let pairs = self.nemesis.partition(nodes);
        let stall = self.nemesis.dice.chance(500);
        self.trace.event(now_ns, 0, "partition", &[u8::from(stall)], || format!("stall: {stall}, {pairs:?}"));
        self.setting.network.block(pairs, stall);
        self.nemesis.partitions += 1;
        let heal = Fault::Heal(self.nemesis.partitions);
        self.queue.schedule(now_ns + lasting_ns, Event::Fault(heal));
    }

    /// The catalog wants `node` to lead a tablet; the nodes hear of it at different times.
    fn prefer(&mut self, node: NodeId) {
        let tablet: TabletId = *self.nemesis.dice.pick(&self.setting.served());
        let placement = self.setting.tablets.get_mut(&tablet).filter(|placement| !placement.is_reshaping());
        let Some(placement) = placement else { return };
        let voters = &mut placement.members.voters;
        if let Some(at) = voters.iter().position(|voter| *voter == node) {
            voters.rotate_left(at);
            placement.version += 1;
            self.announce(tablet);
        }
    }

    /// The catalog wants replicas of a tablet on other nodes. Usually only when the last such change is done.
    fn relocate(&mut self) {
        let tablet: TabletId = *self.nemesis.dice.pick(&self.setting.served());
        let is_rash = self.nemesis.dice.chance(200);
        let placement = self.setting.tablets.get_mut(&tablet).filter(|placement| !placement.is_reshaping());
        let Some(placement) = placement else { return };
        if !placement.leaving.is_empty() && !is_rash {
            return;
        }
        let voters = placement.other_voters(&self.scenario.nodes, &mut self.nemesis.dice);
        placement.want(voters);
        self.announce(tablet);
    }

    /// All nodes that run hear where a tablet is wanted, at different times, some of them late.
    pub fn announce(&mut self, tablet: TabletId) {
        let now_ns = self.now_ns();
        let placement = self.setting.tablets[&tablet].clone();
        self.trace
            .event(now_ns, 0, "placement", &placement.version.to_le_bytes(), || format!("{tablet} {placement:?}"));
        for node in self.scenario.nodes.clone() {
            let longest_ms = if self.nemesis.dice.chance(100) { 2_000 } else { 150 };
            let at_ns = now_ns + self.nemesis.dice.milliseconds(0, longest_ms);
            self.queue.schedule(at_ns, Event::Placement(node, tablet, placement.clone()));
        }
    }

    /// A node that has started hears, after a while, where all tablets are wanted now.
    pub fn brief(&mut self, node: NodeId) {
        let now_ns = self.now_ns();
        for (tablet, placement) in self.setting.tablets.clone() {
            let at_ns = now_ns + self.nemesis.dice.milliseconds(0, 400);
            self.queue.schedule(at_ns, Event::Placement(node, tablet, placement));
        }
    }

    /// Mends everything, and lets the clients see whether the cluster recovers.
    fn calm(&mut self) {
        let now_ns = self.now_ns();
        self.trace.event(now_ns, 0, "calm", &[], String::new);
        self.nemesis.is_calm = true;
        self.setting.network.calm(CALM);
        for node in self.scenario.nodes.clone() {
            self.nodes[&node].fail_after(None);
            self.start(node);
            self.resume(node);
            self.fault(Fault::DiskMended(node));
            self.brief(node);
        }
        self.phase = Phase::Recovery;
        for at in 0..self.scenario.tablets.len() as u32 {
            self.queue.schedule(now_ns, Event::Act(self.scenario.clients + at));
        }
        self.queue.schedule(now_ns, Event::Look);
    }
}
