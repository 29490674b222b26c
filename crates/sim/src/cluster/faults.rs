//! Faults, as they happen.

use crate::cluster::{Cluster, Event, Phase};
use crate::faults::FaultKind;
use crate::nemesis::Fault;
use crate::scenario::WITHOUT_FAULTS;
use crate::schema::DdlEvent;
use crate::step::Command;
use diorite_base::NodeId;
use diorite_replica::Permit;

const DAY_US: i64 = 86_400_000_000;

impl Cluster {
    /// Something goes wrong, or is mended.
    pub fn fault(&mut self, fault: Fault) {
        let now_ns = self.now_ns();
        match fault {
            Fault::Next if self.nemesis.has_ended => {}
            Fault::Next => {
                let kind = *self.nemesis.dice.pick(&self.nemesis.kinds.clone());
                self.nemesis.faults += 1;
                self.commit(kind);
                let next_ns = now_ns + self.nemesis.dice.range(1, self.nemesis.every_ns);
                self.queue.schedule(next_ns, Event::Fault(Fault::Next));
            }
            Fault::MendAll => self.end_faults(),
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
                    life.logs.iter().for_each(|log| log.set_sync_us(sync_us));
                }
            }
        }
    }

    /// A disk stops to sync for a while.
    fn hang(&mut self, node: NodeId) {
        let until_ns = (self.now_ns() + self.nemesis.dice.milliseconds(500, 5_000)).min(self.scenario.chaos_ns);
        let disk = self.some_disk();
        if let Some(life) = self.life(node) {
            life.logs[disk].hang(until_ns);
        }
    }

    /// A machine sleeps: of its connections some have ended when it wakes up.
    fn sleep(&mut self, node: NodeId, nodes: &[NodeId], lasting_ns: u64) {
        if self.life(node).is_some() {
            self.reached.sleeps += 1;
        }
        for other in nodes.iter().filter(|other| **other != node) {
            if self.latest.chance(500) {
                self.setting.network.cut(node, *other);
            }
        }
        self.pause(node, lasting_ns);
    }

    fn commit(&mut self, kind: FaultKind) {
        let now_ns = self.now_ns();
        let nodes = self.present();
        let node = self.victim();
        let lasting_ns = self.nemesis.lasting_ns();
        self.trace.event(now_ns, node.0, "fault", &[kind as u8], || format!("{kind:?}, {} ms", lasting_ns / 1_000_000));
        if self.operate(kind, node) {
            return;
        }
        match kind {
            FaultKind::Crash => self.end_suddenly(node),
            FaultKind::TornWrite => {
                let writes = self.nemesis.dice.range(0, 4);
                if self.life(node).is_some() {
                    let disk = self.some_disk();
                    self.nodes[&node].fail_after(disk, Some(writes));
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
            FaultKind::Sleep => self.sleep(node, &nodes, lasting_ns),
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
            FaultKind::SlowDisk => self.slow_down(node, lasting_ns),
            FaultKind::Hang => self.hang(node),
            FaultKind::DiskFailure => self.fail_disk(node),
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
            FaultKind::Stop => {
                self.command(node, Command::Release);
                let after_ns = self.nemesis.dice.milliseconds(0, 400);
                self.queue.schedule(now_ns + after_ns, Event::Fault(Fault::End(node)));
            }
            FaultKind::Members
            | FaultKind::Move
            | FaultKind::Join
            | FaultKind::Retire
            | FaultKind::Lose
            | FaultKind::Operate => {}
        }
    }

    /// Does what operators do; whether it was such a thing.
    fn operate(&mut self, kind: FaultKind, node: NodeId) -> bool {
        match kind {
            FaultKind::Members => self.prefer(node),
            FaultKind::Move => self.relocate(),
            FaultKind::Join => self.let_one_join(),
            FaultKind::Retire => self.begin_to_retire(node),
            FaultKind::Lose => self.lose(node),
            FaultKind::Operate => self.operate_on(node),
            _ => return false,
        }
        true
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
            let present = self.present();
            return *self.nemesis.dice.pick(&present);
        }
        *self.nemesis.dice.pick(&leaders)
    }

    fn slow_down(&mut self, node: NodeId, lasting_ns: u64) {
        let sync_us = self.nemesis.dice.range(5_000, 400_000);
        let disk = self.some_disk();
        if let Some(life) = self.life(node) {
            life.logs[disk].set_sync_us(sync_us);
        }
        self.later(lasting_ns, Event::Fault(Fault::DiskMended(node)));
    }

    fn end_suddenly(&mut self, node: NodeId) {
        let power_loss = self.nemesis.dice.chance(700);
        self.crash(node, power_loss);
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

    /// Mends everything, and lets the clients see whether the cluster recovers.
    fn end_faults(&mut self) {
        let now_ns = self.now_ns();
        self.trace.event(now_ns, 0, "faults-end", &[], String::new);
        self.nemesis.has_ended = true;
        self.setting.network.set_weather(WITHOUT_FAULTS);
        for node in self.present() {
            (0..self.scenario.disks).for_each(|disk| self.nodes[&node].fail_after(disk, None));
            self.replace_disks(node);
            self.start(node);
            self.resume(node);
            self.fault(Fault::DiskMended(node));
        }
        self.phase = Phase::Recovery;
        if let Some(rows) = &mut self.rows {
            // It goes on when a client is answered, which happens seldom from now on: it ends as if its nodes had.
            rows.spawned.clear();
        }
        self.fill_up();
        self.wake_inspectors();
        for client in 0..self.scenario.ddl_clients {
            self.queue.schedule(now_ns, Event::Ddl(DdlEvent::Act(client)));
        }
        self.queue.schedule(now_ns, Event::Look);
    }
}
