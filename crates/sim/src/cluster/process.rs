//! The nodes' processes: they start and end, take turns, wait for their disks, flush and copy.

use crate::checkers::Finding;
use crate::client::Answer;
use crate::cluster::{Cluster, Event};
use crate::engine::SimEngine;
use crate::nemesis::Fault;
use crate::network::Parcel;
use crate::node::Node;
use crate::step::{Command, Duty, Step};
use crate::text;
use diorite_base::write::WriteReply;
use diorite_base::{NodeId, TabletId};
use diorite_control::follower::Leftovers;
use diorite_control::replicas::CATALOG_TABLET;
use diorite_replica::{Core, Liveness, SplitMark, TICK_NS};
use diorite_rpc::Lane;
use diorite_storage::{MemoryTablet, TabletData};
use std::sync::Arc;

const US: u64 = 1_000;

/// Entries are small here. A longer frame has messages that cause each other.
const LONGEST_FRAME: usize = 256 << 10;

impl Cluster {
    /// Starts a node's process, unless it runs.
    pub fn start(&mut self, id: NodeId) {
        let (now_ns, told) = (self.now_ns(), self.schema.told());
        let is_down = self.nodes.get(&id).is_some_and(|node| node.life.is_none() && !node.is_gone);
        if !is_down || !self.may_start(id) {
            return;
        }
        let Some(node) = self.nodes.get_mut(&id) else { return };
        node.start(&self.setting, &mut self.dice);
        if let Some(life) = &mut node.life {
            life.told_before = told;
        }
        node.keep_in_touch(&self.setting);
        self.trace.event(now_ns, id.0, "start", &[], || format!("{:?}", node.quirks));
        self.schedule(now_ns, id, Step::Beat);
        let gone = Leftovers::new(&self.setting.newest, id);
        let tablets: Vec<TabletId> =
            self.setting.ranges.tablets().filter(|tablet| !gone.was_dropped(*tablet)).collect();
        for tablet in tablets.into_iter().chain([CATALOG_TABLET]) {
            let after_ns = self.dice.range(1, self.scenario.flush_every_ns);
            self.schedule(now_ns + after_ns, id, Step::Flush(tablet));
        }
        if self.scenario.sync_every_ms.is_some() {
            (0..self.scenario.disks).for_each(|disk| self.schedule(now_ns, id, Step::SyncLog(disk)));
            // Otherwise no acknowledged entry is lost, and no replica is contradicted.
            self.schedule(now_ns, id, Step::Duty(Duty::LookAfter));
        }
        self.schedule(now_ns, id, Step::WatchDisks);
        self.after_core(id);
        self.follow_soon(id, 5);
    }

    pub(crate) fn make_children(&mut self, id: NodeId, mark: SplitMark) {
        let now_ns = self.now_ns();
        self.trace.event(now_ns, id.0, "make", &mark.index.to_le_bytes(), || format!("children of {}", mark.parent));
        self.note_reshaping(mark.parent);
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
        let mut surviving = unsynced.clone();
        if power_loss {
            surviving.iter_mut().for_each(|batches| *batches = self.dice.range(0, *batches as u64 + 1) as usize);
        }
        let incarnation = node.life.as_ref().map(|life| life.incarnation);
        if let Some(life) = node.life.as_ref().filter(|_| surviving != unsynced) {
            let synced_ns = life.synced_ns.iter().copied().min();
            self.losses.note(synced_ns.unwrap_or(0), now_ns);
        }
        node.end(&surviving);
        self.setting.network.end(id);
        // The machine stays up, and so does the guard.
        if let Some(incarnation) = incarnation.filter(|_| !power_loss) {
            self.notify_end(id, incarnation);
        }
        self.backlog.remove(&id);
        self.queued.remove(&id);
        self.copying.retain(|(_, member)| *member != id);
        self.replicas.forget(id);
        self.routed.forget(id);
        self.trace.event(now_ns, id.0, "end", &[u8::from(power_loss), surviving[0] as u8], || {
            format!("power lost: {power_loss}, {surviving:?} of {unsynced:?} unsynced batches survive")
        });
    }

    /// Resumes a paused process: its delayed events happen now.
    pub fn resume(&mut self, id: NodeId) {
        let now_ns = self.now_ns();
        if let Some(node) = self.nodes.get_mut(&id) {
            node.is_paused = false;
            if let Some(life) = &node.life {
                life.clock.resume();
            }
        }
        for event in self.backlog.remove(&id).unwrap_or_default() {
            self.queue.schedule(now_ns, event);
        }
    }

    pub(crate) fn arrive(&mut self, parcel: Parcel) {
        let now_ns = self.now_ns();
        let Some(parcel) = self.setting.network.arrive(parcel) else { return };
        let (from, node, lane) = parcel.link;
        if self.life(node).is_none() {
            return;
        }
        if self.setting.network.is_new(&parcel) && !self.admits(node, from) {
            self.setting.network.part_from(node, from);
            return;
        }
        if lane == Lane::Control {
            self.dial_back(node, from);
        }
        let mut detail = vec![from.0 as u8, lane as u8];
        detail.extend_from_slice(&parcel.frame);
        self.trace.event(now_ns, node.0, "frame", &detail, || text::frame(from, lane, &parcel.frame));
        if lane == Lane::Requests {
            return self.request_frame(from, node, &parcel.frame);
        }
        if parcel.frame.len() > LONGEST_FRAME {
            let message = format!("{node}: a frame of {} bytes from {from}: messages multiply", parcel.frame.len());
            self.found = self.found.take().or(Some(Finding { checker: "frames", at_ns: now_ns, message }));
        }
        let Some(life) = self.life(node) else { return };
        if life.receive(from, lane, &parcel.frame) {
            self.wake(node);
        }
        self.peers_changed(node);
        self.plan_expiry(node);
    }

    /// Lets the core take a turn soon.
    pub fn wake(&mut self, node: NodeId) {
        let now_ns = self.now_ns();
        // A thread takes a moment to wake up, in which more events may arrive.
        let after_ns = self.dice.range(1, 50) * US;
        let Some(life) = self.life(node).filter(|life| !life.is_woken) else { return };
        life.is_woken = true;
        let at_ns = (now_ns + after_ns).max(life.busy_until_ns());
        self.schedule(at_ns, node, Step::Turn);
    }

    pub(crate) fn process(&mut self, node: NodeId, step: Step) {
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
            Step::ReadValue(token, term) => self.read_value(token, term),
            Step::ReadEnd(token, term, given) => self.read_end(token, term, given),
            Step::Served(token, ended) => self.served_later(token, ended),
            Step::RouterTick => self.router_tick(node),
            Step::ReadLog => {
                let Some(life) = self.life(node) else { return };
                life.read_log();
                self.wake(node);
            }
            Step::Flush(tablet) => self.flush(node, tablet),
            Step::Prepare(tablet) => {
                let now_ns = self.now_ns();
                self.trace.event(now_ns, node.0, "prepare", &tablet.0.to_le_bytes(), || format!("{tablet}"));
                if self.nodes.get_mut(&node).is_some_and(|node| node.prepare(tablet)) {
                    self.schedule(now_ns + 20_000 * US, node, Step::Prepare(tablet));
                } else if let Some(life) = self.life(node) {
                    life.preparing.remove(&tablet);
                }
            }
            Step::Follow => self.follow(node),
            Step::StillDown(other) => {
                if let Some(life) = self.life(node) {
                    life.control.peers.still_down(other);
                }
            }
            Step::Duty(duty) => self.duty(node, duty),
            Step::MakeChildren(mark) => self.make_children(node, mark),
            Step::SyncLog(disk) => self.sync_log(node, disk),
            Step::LogSynced(disk, position, since_ns) => {
                let Some(life) = self.life(node) else { return };
                life.logs[disk].sync_to(position);
                life.synced_ns[disk] = since_ns;
            }
            Step::WatchDisks => self.watch_disks(node),
            Step::GiveUpDisk(disk) => self.give_up_disk(node, disk),
            Step::Command(command) => self.begin(node, move |core| command.carry_out(core)),
            Step::Synced => {
                let Some(life) = self.life(node).filter(|life| life.thread.waits()) else { return };
                if life.has_lost_power() {
                    return self.lose_power(node);
                }
                let until_ns = life.thread.go_on();
                self.went_on(node, until_ns);
            }
        }
    }

    /// Begins to sync the log while others write to it; again and again.
    fn sync_log(&mut self, node: NodeId, disk: usize) {
        let (now_ns, every_ms) = (self.now_ns(), self.scenario.sync_every_ms.unwrap_or(1));
        let Some(life) = self.life(node) else { return };
        let (position, until_ns) = life.logs[disk].begin_sync();
        self.schedule(until_ns, node, Step::LogSynced(disk, position, now_ns));
        self.schedule(until_ns.max(now_ns + every_ms * 1_000 * US), node, Step::SyncLog(disk));
    }

    /// Lets a node's core do something that may take a while.
    pub(crate) fn begin(&mut self, node: NodeId, task: impl FnOnce(&mut Core<SimEngine>) + 'static) {
        let Some(life) = self.life(node) else { return };
        let until_ns = life.thread.begin(task);
        self.went_on(node, until_ns);
    }

    /// The core has gone on, up to where it waits for its disk until then, if it does.
    pub(crate) fn went_on(&mut self, node: NodeId, until_ns: Option<u64>) {
        self.after_core(node);
        match until_ns {
            Some(until_ns) => self.schedule(until_ns, node, Step::Synced),
            None => {
                let now_ns = self.now_ns();
                for event in self.queued.remove(&node).unwrap_or_default() {
                    self.queue.schedule(now_ns, event);
                }
            }
        }
    }

    /// Tells a node's core something, at once or when it does not wait any more.
    pub fn command(&mut self, node: NodeId, command: Command) {
        if let Some(number) = self.life(node).map(|life| life.number) {
            self.happen(Event::Process(node, number, Step::Command(command)));
        }
    }

    /// The power goes where the log was being written.
    pub(crate) fn lose_power(&mut self, node: NodeId) {
        self.end(node, true);
        let at_ns = self.now_ns() + self.nemesis.down_ns();
        self.queue.schedule(at_ns, Event::Fault(Fault::Start(node)));
    }

    pub(crate) fn noticed(&mut self, node: NodeId, is_concerned: bool) {
        if is_concerned {
            self.wake(node);
        }
        self.peers_changed(node);
        self.plan_expiry(node);
    }

    /// Schedules the next look for lapsed support, if it is not scheduled.
    pub(crate) fn plan_expiry(&mut self, node: NodeId) {
        let Some(life) = self.life(node) else { return };
        let Some(lapse_ns) = life.next_lapse_ns() else { return };
        if life.expires_ns.is_none_or(|planned_ns| lapse_ns < planned_ns) {
            life.expires_ns = Some(lapse_ns);
            self.schedule(lapse_ns, node, Step::Expire);
        }
    }

    pub(crate) fn turn(&mut self, node: NodeId) {
        let now_ns = self.now_ns();
        let Some(life) = self.life(node) else { return };
        life.is_woken = false;
        if life.busy_until_ns() > now_ns {
            self.wake(node);
            return;
        }
        let (mut input, must_tick) = (std::mem::take(&mut life.input), std::mem::take(&mut life.must_tick));
        self.begin(node, move |core| {
            if !input.is_empty() {
                core.turn(&mut input);
            }
            if must_tick {
                core.tick();
            }
        });
    }

    /// Takes what the core has brought about, beside frames.
    pub fn after_core(&mut self, node: NodeId) {
        let now_ns = self.now_ns();
        let Some(life) = self.life(node) else { return };
        if life.has_lost_power() && !life.thread.waits() {
            return self.lose_power(node);
        }
        let leaves_ns = now_ns.max(life.busy_until_ns());
        let (outcomes, lacking, split) = (life.take_outcomes(), life.take_lacking(), life.take_split());
        let waits = life.thread.waits();
        let reads = if waits { 0 } else { life.take_reads() };
        if !waits && life.core().wants_tick() && !life.will_tick {
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
        self.call_peers(node);
        if self.life(node).is_some_and(|life| life.copy_changed.take()) {
            self.catalog_changed(node);
        }
    }

    pub(crate) fn flush(&mut self, node: NodeId, tablet: TabletId) {
        let now_ns = self.now_ns();
        let hard = self.dice.chance(self.scenario.hard_cuts);
        let is_flushed = self.dice.chance(700);
        if Leftovers::new(&self.setting.newest, node).was_dropped(tablet) {
            return;
        }
        let after_ns = self.dice.range(1, self.scenario.flush_every_ns);
        self.schedule(now_ns + after_ns, node, Step::Flush(tablet));
        let syncs_late = self.scenario.sync_every_ms.is_some();
        let Some(found) = self.nodes.get(&node) else { return };
        let Some(life) = &found.life else { return };
        let Some(handle) = life.handles.get(&tablet) else { return };
        if syncs_late {
            // Sync the logs first: after a loss of power, flushed state must not be ahead of the log.
            found.disks.all.iter().for_each(|disk| disk.log.sync());
        }
        // A log may be truncated without a flush before, up to the state that was already durable.
        if is_flushed {
            handle.data().flush();
        }
        let data = Arc::clone(handle.data());
        let flushed = data.flushed_state().index;
        let applied = data.applied_state().map_or(0, |state| state.index);
        self.compact(node, tablet, &data);
        assert!(flushed <= applied, "{tablet}: entry {flushed} is durable, and only {applied} is applied");
        self.command(node, Command::Truncate(tablet, flushed, hard));
    }

    /// Now and then compacts the flushed values of some keys, as RocksDB compacts files at any time: no reader may see
    /// a difference.
    fn compact(&mut self, node: NodeId, tablet: TabletId, data: &MemoryTablet) {
        if self.rows.is_none() || tablet == CATALOG_TABLET || !self.latest.chance(self.scenario.compactions) {
            return;
        }
        let now_ns = self.now_ns();
        self.trace.event(now_ns, node.0, "compact", &tablet.0.to_le_bytes(), || format!("{tablet}"));
        let share = *self.latest.pick(&[200, 700, 1_000]);
        let compacted = data.compact(&mut |_| self.latest.chance(share));
        assert!(compacted.is_ok(), "what programs have written is whole: {compacted:?}");
        self.reached.compactions += 1;
        if !self.clients_only
            && let Err(finding) = self.replicas.compacted(now_ns, node, tablet, data)
        {
            self.found = self.found.take().or(Some(finding));
        }
    }

    /// Begins a copy of a tablet's data for a member that the log can no longer serve, unless one is under way.
    pub(crate) fn copy(&mut self, from: NodeId, tablet: TabletId, member: NodeId) {
        let now_ns = self.now_ns();
        if self.copying.contains(&(tablet, member)) {
            return;
        }
        let source = if self.dice.chance(500) { self.follower(from, tablet, member) } else { from };
        let syncs_late = self.scenario.sync_every_ms.is_some();
        let Some(found) = self.nodes.get(&source) else { return };
        let Some(handle) = found.life.as_ref().and_then(|life| life.handles.get(&tablet)) else { return };
        if syncs_late {
            // A checkpoint flushes, and the log is synced before that: a copy has nothing that its source could lose.
            found.disks.all.iter().for_each(|disk| disk.log.sync());
            handle.data().flush();
        }
        let copy = Arc::new(handle.data().checkpoint());
        self.copying.insert((tablet, member));
        self.trace.event(now_ns, source.0, "copy", &member.0.to_le_bytes(), || format!("{tablet} to {member}"));
        // Now and then the copy takes so long that the data has changed much when it arrives.
        let longest_ms = if self.dice.chance(200) { 2_000 } else { 100 };
        let arrives_ns = now_ns + self.dice.milliseconds(1, longest_ms);
        self.queue.schedule(arrives_ns, Event::Copied(member, tablet, copy));
    }

    /// A follower that may send a copy in the place of its leader, or the leader.
    pub(crate) fn follower(&mut self, leader: NodeId, tablet: TabletId, member: NodeId) -> NodeId {
        let start = self.life(leader).and_then(|life| life.handles.get(&tablet)).map_or(0, |handle| handle.log_start());
        let holds = |node: &Node| {
            let handle = node.life.as_ref().and_then(|life| life.handles.get(&tablet));
            handle.is_some_and(|handle| handle.data().applied_state().is_ok_and(|state| state.index >= start))
        };
        let others = self.nodes.values().filter(|node| node.id != leader && node.id != member && holds(node));
        let others: Vec<NodeId> = others.map(|node| node.id).collect();
        if others.is_empty() { leader } else { *self.dice.pick(&others) }
    }

    pub(crate) fn copied(&mut self, node: NodeId, tablet: TabletId, copy: &MemoryTablet) {
        let now_ns = self.now_ns();
        self.copying.remove(&(tablet, node));
        let Some(place) = self.nodes.get_mut(&node) else { return };
        let installed = place.install(tablet, copy.checkpoint());
        self.trace
            .event(now_ns, node.0, "copied", &[u8::from(installed)], || format!("{tablet}, installed: {installed}"));
        self.after_core(node);
    }
}
