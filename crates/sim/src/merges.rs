//! Merges of tablets, as a catalog would ask for them and hear of them. Nodes carry them out with `diorite_replica`'s driver; what that writes and reads goes
//! through the simulation.
//!
//! Always true: of two tablets that are merged neither moves nor is split. Until calm several nodes may drive one merge at a time, and each may give up at any moment:
//! nobody keeps them from it.

use crate::client::Answer;
use crate::cluster::{Cluster, Event, Phase};
use crate::dice::Dice;
use crate::node::Setting;
use crate::placement::Merge;
use crate::program;
use crate::splits::KeyRange;
use diorite_base::random::SplitMix64;
use diorite_base::write::KvError;
use diorite_base::{NodeId, TabletId};
use diorite_replica::{CLOSED, Closing, MergeAction, MergeDriver, MergeReply, MergeStep, Part, Permit};
use diorite_storage::TabletData;
use std::collections::BTreeMap;

/// Of how many of 1,000 seeds with splits tablets are merged as well.
const SHARE: u64 = 600;

/// Parts are so small that there are several.
const PART_BYTES: usize = 64;

/// How often a step is tried.
const TRIES: u32 = 12;

/// Writes of merges have numbers from here on.
pub const FIRST_TOKEN: u64 = 1 << 48;

/// What happens to merges.
#[derive(Clone, Debug)]
pub enum MergeEvent {
    /// The catalog wants two tablets to be merged.
    Begin,
    /// A driver does what is next.
    Go(u64),
    /// A step comes to a node.
    Write { drive: u64, turn: u64, node: NodeId, tablet: TabletId, step: MergeStep },
    /// A driver hears what came of a step, or nothing (`None`).
    Heard { drive: u64, turn: u64, answer: Option<Answer> },
}

/// One node's attempt at a merge.
struct Drive {
    node: NodeId,
    /// The process that drives; nothing is left of it in the next.
    life: u64,
    from: TabletId,
    into: TabletId,
    driver: MergeDriver,
    action: MergeAction,
    /// Counts what was sent.
    turn: u64,
    tries: u32,
}

/// Decides what is merged, and when.
pub struct Merges {
    dice: Dice,
    is_on: bool,
    /// A bug: tablets are copied as if they had been closed.
    never_close: bool,
    drives: BTreeMap<u64, Drive>,
    next_drive: u64,
    /// Writes without an outcome so far: which drive's, and its turn.
    waiting: BTreeMap<u64, (u64, u64)>,
    next_token: u64,
}

impl Merges {
    /// None, or some, by the dice.
    pub fn new(mut dice: Dice, allowed: bool, never_close: bool) -> Self {
        let is_on = dice.chance(SHARE) && allowed;
        let (drives, waiting) = (BTreeMap::new(), BTreeMap::new());
        Self { dice, is_on, never_close, drives, next_drive: 1, waiting, next_token: FIRST_TOKEN }
    }
}

impl Setting {
    /// Whether no tablet is being merged.
    pub fn are_merges_done(&self) -> bool {
        self.tablets.values().all(|placement| placement.is_dropped || placement.merge.is_none())
    }
}

impl Cluster {
    /// Begins to merge tablets, if this run does.
    pub fn begin_merges(&mut self) {
        if self.merges.is_on {
            let at_ns = self.merges.dice.milliseconds(500, 3_000);
            self.queue.schedule(at_ns, Event::Merge(MergeEvent::Begin));
        }
    }

    /// Something happens to merges.
    pub fn merge_event(&mut self, event: MergeEvent) {
        match event {
            MergeEvent::Begin if self.phase == Phase::Chaos => {
                self.begin_merge();
                let next_ns = self.now_ns() + self.merges.dice.milliseconds(100, 1_500);
                self.queue.schedule(next_ns, Event::Merge(MergeEvent::Begin));
            }
            MergeEvent::Begin => {}
            MergeEvent::Go(drive) => self.go(drive),
            MergeEvent::Write { drive, turn, node, tablet, step } => self.take_step((drive, turn), node, tablet, &step),
            MergeEvent::Heard { drive, turn, answer } => self.heard(drive, turn, answer),
        }
    }

    /// Wants two neighbours to be merged, if they are where they are wanted.
    fn begin_merge(&mut self) {
        let mut served: Vec<(KeyRange, TabletId)> =
            self.setting.served().into_iter().map(|tablet| (self.setting.ranges[&tablet], tablet)).collect();
        served.sort_by_key(|(range, _)| (range.root, range.start));
        let neighbours = served.windows(2).filter(|pair| pair[0].0.root == pair[1].0.root);
        let pairs: Vec<[TabletId; 2]> = neighbours
            .map(|pair| [pair[0].1, pair[1].1])
            .filter(|pair| pair.iter().all(|tablet| self.is_at_rest(*tablet)))
            .collect();
        if pairs.is_empty() {
            return;
        }
        let mut pair = *self.merges.dice.pick(&pairs);
        if self.merges.dice.chance(500) {
            pair.reverse();
        }
        let [from, into] = pair;
        for (tablet, merge) in [(from, Merge::Into(into)), (into, Merge::Of(from))] {
            if let Some(placement) = self.setting.tablets.get_mut(&tablet) {
                placement.version += 1;
                placement.merge = Some(merge);
            }
            self.announce(tablet);
        }
    }

    /// Lets nodes begin to drive merges that they have heard of, and now and then give up.
    pub fn advance_merges(&mut self) {
        let asked = self.setting.tablets.iter().filter(|(_, placement)| !placement.is_dropped);
        let asked = asked.filter_map(|(tablet, placement)| match placement.merge {
            Some(Merge::Into(into)) => Some((*tablet, into)),
            _ => None,
        });
        for (from, into) in asked.collect::<Vec<_>>() {
            for id in self.scenario.nodes.clone() {
                let node = &self.nodes[&id];
                let Some(life) = node.life.as_ref().filter(|_| !node.is_paused && node.knows_merge(from)) else {
                    continue;
                };
                let number = life.number;
                let Some(handle) = life.handles.get(&from) else { continue };
                let leads = handle.check(Permit::Lease).is_ok();
                let may_drive = leads || handle.flags() & CLOSED != 0;
                let own = self.merges.drives.iter().find(|(_, drive)| (drive.node, drive.from) == (id, from));
                match own.map(|(drive, _)| *drive) {
                    Some(drive) if self.phase == Phase::Chaos && self.merges.dice.chance(20) => {
                        self.merges.drives.remove(&drive);
                    }
                    Some(_) => {}
                    // Two that drive in turns may keep each other from the end for ever.
                    None if self.phase != Phase::Chaos
                        && self.merges.drives.values().any(|drive| drive.from == from) => {}
                    None if may_drive && self.merges.dice.chance(if leads { 300 } else { 100 }) => {
                        self.drive(id, number, from, into);
                    }
                    None => {}
                }
            }
        }
    }

    fn drive(&mut self, node: NodeId, life: u64, from: TabletId, into: TabletId) {
        let range = self.setting.ranges[&from];
        let keys = (program::key(range.start).to_vec(), program::key(range.end).to_vec());
        let (driver, action) = MergeDriver::begin(from, into, 1, keys, &mut SplitMix64::new(self.merges.dice.bits()));
        let id = self.merges.next_drive;
        self.merges.next_drive += 1;
        self.merges.drives.insert(id, Drive { node, life, from, into, driver, action, turn: 0, tries: 0 });
        let now_ns = self.now_ns();
        self.trace.event(now_ns, node.0, "drive", &id.to_le_bytes(), || format!("{id}: {from} into {into}"));
        self.go(id);
    }

    fn go_later(&mut self, drive: u64, longest_ms: u64) {
        let at_ns = self.now_ns() + self.merges.dice.milliseconds(0, longest_ms);
        self.queue.schedule(at_ns, Event::Merge(MergeEvent::Go(drive)));
    }

    /// A driver does what is next.
    fn go(&mut self, id: u64) {
        let Some(drive) = self.merges.drives.get_mut(&id) else { return };
        let node = &self.nodes[&drive.node];
        let life = node.life.as_ref().filter(|life| life.number == drive.life);
        let Some(handle) = life.and_then(|life| life.handles.get(&drive.from)).cloned() else {
            self.merges.drives.remove(&id);
            return;
        };
        if node.is_paused {
            return self.go_later(id, 50);
        }
        match drive.action.clone() {
            MergeAction::Write(tablet, step) => self.send_step(id, tablet, step),
            MergeAction::Read(range) => {
                let part = Part::read(&**handle.data(), &range, PART_BYTES);
                drive.action = drive.driver.read(range, part.expect("memory can be read"));
                self.go_later(id, 10);
            }
            MergeAction::Close if handle.flags() & CLOSED != 0 || self.merges.never_close => {
                let state = handle.data().applied_state().expect("memory can be read");
                drive.action = drive.driver.closed(Closing::from(&state));
                self.go_later(id, 10);
            }
            MergeAction::Close => {
                let from = drive.from;
                self.send_step(id, from, MergeStep::Close { tablet: from, number: 1 });
            }
            MergeAction::Serve => {
                let (from, into) = (drive.from, drive.into);
                self.merges.drives.remove(&id);
                self.serve_merge(from, into);
            }
        }
    }

    /// Sends a step to where the tablet is led, or elsewhere.
    fn send_step(&mut self, id: u64, tablet: TabletId, step: MergeStep) {
        let leads = |node: NodeId| {
            let life = self.nodes[&node].life.as_ref();
            life.and_then(|life| life.handles.get(&tablet)).is_some_and(|handle| handle.check(Permit::Lease).is_ok())
        };
        let leader = self.scenario.nodes.iter().copied().find(|node| leads(*node));
        let node = leader.filter(|_| self.merges.dice.chance(900));
        let node = node.unwrap_or_else(|| *self.merges.dice.pick(&self.scenario.nodes));
        let Some(drive) = self.merges.drives.get_mut(&id) else { return };
        drive.turn += 1;
        drive.tries += 1;
        if drive.tries > TRIES {
            self.merges.drives.remove(&id);
            return;
        }
        let (now_ns, turn) = (self.setting.time.now_ns(), drive.turn);
        self.trace
            .event(now_ns, drive.node.0, "step", &turn.to_le_bytes(), || format!("{id} to {node}: {tablet} {step:?}"));
        // Now and then one comes long after it was given up, and even twice.
        let copies = if self.merges.dice.chance(50) { 2 } else { 1 };
        for _ in 0..copies {
            let longest_ms = if self.merges.dice.chance(50) { 2_000 } else { 2 };
            let at_ns = now_ns + self.merges.dice.milliseconds(0, longest_ms);
            let event = MergeEvent::Write { drive: id, turn, node, tablet, step: step.clone() };
            self.queue.schedule(at_ns, Event::Merge(event));
        }
        let patience_ns = self.merges.dice.milliseconds(100, 1_000);
        let nothing = MergeEvent::Heard { drive: id, turn, answer: None };
        self.queue.schedule(now_ns + patience_ns, Event::Merge(nothing));
    }

    /// A step has come to a node.
    fn take_step(&mut self, (drive, turn): (u64, u64), node: NodeId, tablet: TabletId, step: &MergeStep) {
        let token = self.merges.next_token;
        self.merges.next_token += 1;
        let Some(life) = self.life(node) else { return };
        life.submit(tablet, step.mutation().expect("the rows here are small"), token);
        self.merges.waiting.insert(token, (drive, turn));
        self.wake(node);
    }

    /// A step has had an outcome.
    pub fn step_answered(&mut self, leaves_ns: u64, token: u64, answer: Answer) {
        let Some((drive, turn)) = self.merges.waiting.remove(&token) else { return };
        let at_ns = leaves_ns + self.merges.dice.milliseconds(0, 2);
        self.queue.schedule(at_ns, Event::Merge(MergeEvent::Heard { drive, turn, answer: Some(answer) }));
    }

    fn heard(&mut self, id: u64, turn: u64, answer: Option<Answer>) {
        let Some(drive) = self.merges.drives.get_mut(&id).filter(|drive| drive.turn == turn) else { return };
        // Whatever comes to this later is not waited for.
        drive.turn += 1;
        let is_closing = drive.action == MergeAction::Close;
        match answer {
            Some(Answer::Written(reply)) if !is_closing => {
                let reply = MergeReply::decode(&reply).expect("steps have replies");
                match drive.driver.written(reply) {
                    Ok(action) => {
                        (drive.action, drive.tries) = (action, 0);
                        self.go_later(id, 5);
                    }
                    Err(_) => {
                        self.merges.drives.remove(&id);
                    }
                }
            }
            // It is, or was, closed: seen as soon as that has been applied at the driver's.
            Some(Answer::Written(_) | Answer::Failed(KvError::NoSuchTablet(_))) if is_closing => self.go_later(id, 50),
            _ => self.go_later(id, 100),
        }
    }

    /// The tablet that stays stands in the place of both.
    fn serve_merge(&mut self, from: TabletId, into: TabletId) {
        let is_asked_for =
            self.setting.tablets.get(&from).is_some_and(|placement| placement.merge == Some(Merge::Into(into)));
        if !is_asked_for || self.setting.tablets[&from].is_dropped {
            return;
        }
        let (gone, stays) = (self.setting.ranges[&from], self.setting.ranges[&into]);
        let both = KeyRange { root: gone.root, start: gone.start.min(stays.start), end: gone.end.max(stays.end) };
        self.setting.ranges.insert(into, both);
        for (tablet, is_dropped) in [(from, true), (into, false)] {
            if let Some(placement) = self.setting.tablets.get_mut(&tablet) {
                placement.version += 1;
                placement.is_dropped = is_dropped;
                if !is_dropped {
                    placement.merge = None;
                }
            }
            self.announce(tablet);
        }
        self.wake_inspector(both.root);
    }
}
