//! Disks that hang and fail, the nodes' reactions, and their replacement.
//!
//! In production, a thread of its own lets others lead while a log makes no progress, and upkeep opens the replicas of
//! a failed disk on others; both are checked here equally often. A disk that has failed is back when the node is
//! started again, like a disk that a controller had lost: with its data, unless all of that is on others; then an empty
//! disk is in its place.

use crate::cluster::{Cluster, Event};
use crate::errands::{Errand, Purpose};
use crate::nemesis::Fault;
use crate::step::Step;
use diorite_base::{NodeId, TabletId};
use diorite_cluster::catalog::Placement;
use diorite_control::replicas::CATALOG_TABLET;
use std::sync::Arc;

/// The interval at which a node checks its disks, nanoseconds.
const WATCH_NS: u64 = 100_000_000;

impl Cluster {
    /// One of the disks of a node.
    pub fn some_disk(&mut self) -> usize {
        match self.scenario.disks {
            1 => 0,
            disks => self.latest.range(0, disks as u64) as usize,
        }
    }

    /// A node checks its disks for hanging writes.
    pub fn watch_disks(&mut self, id: NodeId) {
        let now_ns = self.now_ns();
        let Some(life) = self.life(id) else { return };
        life.watch_threads();
        let failed = (0..life.logs.len()).filter(|disk| !life.logs[*disk].works());
        let new: Vec<usize> = failed.filter(|disk| !life.given_up.contains(disk)).collect();
        life.given_up.extend(&new);
        for disk in new {
            self.schedule(now_ns, id, Step::GiveUpDisk(disk));
        }
        self.schedule(now_ns + WATCH_NS, id, Step::WatchDisks);
    }

    /// Fails a disk of a node, if the other nodes can replace its data.
    pub fn fail_disk(&mut self, id: NodeId) {
        let disk = self.some_disk();
        let Some(life) = self.running(id) else { return };
        let is_last = (0..life.logs.len()).filter(|other| life.logs[*other].works()).count() < 2;
        if is_last || !life.has_started || !life.is_ready() || !self.can_do_without(id) {
            return;
        }
        let now_ns = self.now_ns();
        self.reached.failed_disks += 1;
        self.trace.event(now_ns, id.0, "disk fails", &[disk as u8], || format!("disk {disk}"));
        if let Some(life) = self.life(id) {
            life.logs[disk].give_up();
        }
        let after_ns = self.latest.milliseconds(0, 4_000);
        if self.latest.chance(400) && now_ns + after_ns < self.scenario.chaos_ns {
            self.later(after_ns, Event::Fault(Fault::End(id)));
        }
    }

    /// Whether everything on a node can be rebuilt: a majority of each group is on other nodes, and complete.
    pub fn can_do_without(&self, id: NodeId) -> bool {
        let newest = &self.setting.newest;
        let running = |other: &&NodeId| **other != id && self.running(**other).is_some_and(|life| life.has_started);
        let is_safe = |placement: &Placement| {
            let others = placement.replicas.iter().filter(running).count();
            !placement.is_moving() && !placement.is_reshaping() && others > placement.replicas.len() / 2
        };
        let voters = newest.catalog_members().voters;
        newest.tablets_on(id).all(|(_, placement)| is_safe(placement))
            && voters.iter().filter(running).count() > voters.len() / 2
            && self.are_groups_at_rest()
            && self.are_replicas_whole()
            && !self.is_placing()
    }

    /// Whether a command that may place a tablet on other nodes is on its way: on this one alone, perhaps.
    fn is_placing(&self) -> bool {
        let places = |errand: &Errand| {
            errand.tablet == CATALOG_TABLET && matches!(errand.purpose, Purpose::Nothing | Purpose::Move(_))
        };
        self.errands.under_way.values().any(places)
    }

    /// Whether all replicas hold all entries that they have acknowledged.
    pub fn are_replicas_whole(&self) -> bool {
        let lacks = |(tablet, placement): (TabletId, &Arc<Placement>)| {
            let lives = placement.replicas.iter().filter_map(|node| self.nodes.get(node)?.life.as_ref());
            lives.into_iter().any(|life| !life.handles.contains_key(&tablet))
        };
        if self.setting.newest.tablets().any(lacks) {
            return false;
        }
        let mut handles =
            self.nodes.values().filter_map(|node| node.life.as_ref()).flat_map(|life| life.handles.values());
        let do_disks_work = self.nodes.values().all(|node| node.life.as_ref().is_none_or(|life| life.do_disks_work()));
        do_disks_work && !handles.any(|handle| handle.is_recovering())
    }

    /// A node opens the replicas of a failed disk on others.
    pub fn give_up_disk(&mut self, id: NodeId, failed: usize) {
        let now_ns = self.now_ns();
        let Some(node) = self.nodes.get_mut(&id) else { return };
        let Some(rebuilt) = node.give_up_disk(failed) else {
            // In production the process ends, and the node is replaced.
            self.trace.event(now_ns, id.0, "cannot go on", &[], String::new);
            return self.later(0, Event::Fault(Fault::End(id)));
        };
        self.trace.event(now_ns, id.0, "rebuild", &[failed as u8], || format!("from disk {failed}: {rebuilt:?}"));
        for tablet in rebuilt {
            self.replicas.forget_one(id, tablet);
            self.reached.rebuilt += 1;
        }
        self.after_core(id);
    }

    /// The node is started again if a disk of it has failed.
    pub fn replace_disks(&mut self, id: NodeId) {
        if self.life(id).is_some_and(|life| !life.do_disks_work()) {
            self.end(id, false);
        }
    }
}
