//! Merges as nodes carry them out: the policy is the control plane's, each step is from `diorite_replica`'s driver; its
//! writes and reads go through the simulation.
//!
//! Always true: a driver lives as long as its process, which may end at any moment.

use crate::cluster::{Cluster, Event};
use crate::drives::Drive;
use crate::errands::{Ended, Purpose, outcome};
use diorite_base::random::SplitMix64;
use diorite_base::write::KvError;
use diorite_base::{Clock, NodeId, TabletId};
use diorite_cluster::catalog::Outcome;
use diorite_control::merging::{Asked, Broken, Undo, serve, undo};
use diorite_control::tokens::Tokens;
use diorite_query::index::adopted_records;
use diorite_replica::{CLOSED, Closing, MergeAction, MergeDriver, MergeReply, MergeStep, Part, has_given_up};
use diorite_storage::{DataView, TabletData};

/// Parts are so small that there are several.
const PART_BYTES: usize = 64;

/// How often a step is tried until the merge breaks off.
const TRIES: u32 = 5;

impl Cluster {
    /// A node looks for merges to drive, and cleans up after cancelled ones.
    pub fn look_for_merges(&mut self, id: NodeId) {
        let Some(life) = self.life(id) else { return };
        let number = life.number;
        let due = life.decide(id, |control, local| {
            let served = std::sync::Arc::clone(control.follower.served());
            control.merging.due(&served, local)
        });
        for merge in due.cancelled {
            self.undo_merge(id, merge);
        }
        let is_busy = self.drives.under_way.values().any(|drive| (drive.node, drive.life) == (id, number));
        let Some(merge) = due.next.filter(|_| !is_busy) else { return };
        let Some(range) = self.life(id).and_then(|life| Tokens::of(life.served(), merge.tablet)) else { return };
        let mut random = SplitMix64::new(self.drives.dice.bits());
        let (driver, action) = MergeDriver::begin(merge.tablet, merge.into, merge.number, range.keys(), &mut random);
        let drive = self.drives.next;
        self.drives.next += 1;
        self.drives.under_way.insert(drive, Drive { node: id, life: number, merge, driver, action, tries: 0 });
        let now_ns = self.now_ns();
        self.trace.event(now_ns, id.0, "drive", &drive.to_le_bytes(), || format!("{drive}: {merge:?}"));
        self.drive(drive);
    }

    fn undo_merge(&mut self, id: NodeId, merge: Asked) {
        self.note_reshaping(merge.tablet);
        let Some(life) = self.life(id) else { return };
        let Some(handle) = life.handles.get(&merge.tablet).cloned() else { return };
        let has_given_up = has_given_up(merge.tablet, merge.number, handle.data()).expect("memory can be read");
        let next = life.decide(id, |control, local| undo(merge, has_given_up, control.follower.served(), local));
        match next {
            Some(Undo::Reopen) => {
                life.core().reopen(merge.tablet, merge.number);
                self.after_core(id);
            }
            Some(Undo::Remove { range }) => {
                let step = MergeStep::undo(merge.tablet, merge.number, range);
                let mutation = step.mutation().expect("the step is small");
                self.begin_errand(id, merge.into, mutation, Purpose::UndoMerge(merge));
            }
            Some(Undo::Nothing) | None => {}
        }
    }

    fn drive_later(&mut self, drive: u64, longest_ms: u64) {
        let after_ns = self.drives.dice.milliseconds(0, longest_ms);
        self.later(after_ns, Event::Drive(drive));
    }

    /// A driver takes the next step of its merge.
    pub fn drive(&mut self, id: u64) {
        let Some(drive) = self.drives.under_way.get_mut(&id) else { return };
        let node = &self.nodes[&drive.node];
        let Some(life) = node.life.as_ref().filter(|life| life.number == drive.life) else {
            self.drives.under_way.remove(&id);
            return;
        };
        if node.is_paused {
            return self.drive_later(id, 50);
        }
        let Some(handle) = life.handles.get(&drive.merge.tablet).cloned() else {
            return self.broke_off(id, &Broken::Elsewhere);
        };
        match drive.action.clone() {
            MergeAction::Write(tablet, step) => self.send_step(id, tablet, &step),
            MergeAction::Read(range) => {
                let part = Part::read(&**handle.data(), &range, PART_BYTES);
                drive.action = drive.driver.read(range, part.expect("memory can be read"));
                self.drive_later(id, 10);
            }
            MergeAction::Close if handle.flags() & CLOSED != 0 || self.drives.never_close => {
                let state = handle.data().applied_state().expect("memory can be read");
                let records = adopted_records(&DataView(handle.data())).expect("memory can be read");
                drive.action = drive.driver.closed(Closing::from(&state), records);
                self.drive_later(id, 10);
            }
            MergeAction::Close if drive.tries > TRIES => self.broke_off(id, &Broken::Elsewhere),
            MergeAction::Close => {
                drive.tries += 1;
                let (tablet, number) = (drive.merge.tablet, drive.merge.number);
                self.send_step(id, tablet, &MergeStep::Close { tablet, number });
            }
            MergeAction::Serve => {
                let (node, merge) = (drive.node, drive.merge);
                self.propose(node, &serve(merge), Purpose::Merge(id));
            }
        }
    }

    fn send_step(&mut self, id: u64, tablet: TabletId, step: &MergeStep) {
        let Some(drive) = self.drives.under_way.get(&id) else { return };
        let (now_ns, node) = (self.setting.time.now_ns(), drive.node);
        self.trace.event(now_ns, node.0, "step", &id.to_le_bytes(), || format!("{id}: {tablet} {step:?}"));
        self.note_reshaping(tablet);
        let mutation = step.mutation().expect("the rows here are small");
        // Now and then one comes twice.
        if self.drives.dice.chance(50) {
            self.begin_errand(node, tablet, mutation.clone(), Purpose::Nothing);
        }
        self.begin_errand(node, tablet, mutation, Purpose::Merge(id));
    }

    /// A step, or a command to the catalog, has ended.
    pub fn step_ended(&mut self, id: u64, ended: Ended) {
        let Some(drive) = self.drives.under_way.get_mut(&id) else { return };
        match (drive.action.clone(), ended) {
            (MergeAction::Serve, ended) => match outcome(&ended) {
                Some(Outcome::Rejected { .. }) => self.broke_off(id, &Broken::Elsewhere),
                Some(_) => self.merge_done(id),
                None => self.broke_off(id, &Broken::Here("the catalog cannot be told".to_owned())),
            },
            (MergeAction::Close, Ok(reply)) => match MergeReply::decode(&reply).expect("steps have replies") {
                MergeReply::Superseded => self.broke_off(id, &Broken::Elsewhere),
                // It is seen as soon as it is applied here.
                _ => self.drive_later(id, 50),
            },
            (MergeAction::Close, Err(KvError::NoSuchTablet(_))) => self.drive_later(id, 50),
            (_, Ok(reply)) => match drive.driver.written(MergeReply::decode(&reply).expect("steps have replies")) {
                Ok(action) => {
                    (drive.action, drive.tries) = (action, 0);
                    self.drive_later(id, 5);
                }
                Err(_) => self.broke_off(id, &Broken::Elsewhere),
            },
            (_, Err(KvError::Timeout(_) | KvError::Unavailable(_) | KvError::Overloaded(_))) if drive.tries < TRIES => {
                drive.tries += 1;
                self.drive_later(id, 100);
            }
            (_, Err(error)) => self.broke_off(id, &Broken::Here(error.to_string())),
        }
    }

    fn merge_done(&mut self, id: u64) {
        let Some(drive) = self.drives.under_way.remove(&id) else { return };
        if let Some(life) = self.life(drive.node).filter(|life| life.number == drive.life) {
            life.control.merging.done(drive.merge);
        }
    }

    fn broke_off(&mut self, id: u64, why: &Broken) {
        let Some(Drive { node, life: number, merge, .. }) = self.drives.under_way.remove(&id) else { return };
        let now_ns = self.now_ns();
        self.trace.event(now_ns, node.0, "broke off", &id.to_le_bytes(), || format!("{id}: {why:?}"));
        let Some(life) = self.life(node).filter(|life| life.number == number) else { return };
        let is_sealed = life.handles.get(&merge.tablet).is_some_and(|handle| handle.flags() & CLOSED != 0);
        let wall_ms = life.clock.wall_us() / 1_000;
        if let Some(cancel) = life.control.merging.broke_off(merge, why, is_sealed, wall_ms) {
            self.propose(node, &cancel, Purpose::Nothing);
        }
    }
}
