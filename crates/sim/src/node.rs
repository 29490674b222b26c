//! A simulated node: a process, while it lives, and the disks that outlast its lives.
//!
//! In production a core has a thread of its own, heartbeats another, and the control plane a few; here all of them run
//! in events, so that the simulation controls what happens between two of them, and while a core waits for its disk.

use crate::copy::CatalogCopy;
use crate::dice::Dice;
use crate::disk::Disks;
use crate::life::{Life, wanted};
use crate::setting::{Joined, Quirks, Setting};
use diorite_base::{GroupId, Level, Levels, NodeId, TabletId};
use diorite_cluster::catalog::{CATALOG_INITIAL_VOTERS, NodeDescription};
use diorite_control::follower::opening;
use diorite_control::membership::Contacts;
use diorite_control::replicas::CATALOG_TABLET;
use diorite_control::upgrade::Noted;
use diorite_replica::{Durability, Members};
use diorite_storage::{Log, LogRecords, MemoryRecords, MemoryTablet, TabletData};
use std::sync::Arc;
use uuid::Uuid;

/// A node.
pub struct Node {
    /// Which.
    pub id: NodeId,
    /// The description with which it joins.
    pub description: NodeDescription,
    /// The answer to its join.
    pub joined: Joined,
    /// The process, if it runs.
    pub life: Option<Life>,
    /// It was removed from the cluster, or its machine is lost: it does not come back.
    pub is_gone: bool,
    /// Whether something that it had written to its log was lost since its last start.
    pub has_lost_power: bool,
    /// Whether the process is stopped for a while.
    pub is_paused: bool,
    /// Whether it is to be paused during the next read, after that has taken its value or before, and for how long, nanoseconds.
    pub pauses_in_read: Option<(bool, u64)>,
    /// Its deviations from the other nodes.
    pub quirks: Quirks,
    /// Its disks.
    pub disks: Disks,
    /// The highest level that its program knows.
    pub greatest: Level,
    /// The level of the cluster, and what operators have decided about the next one, as its disks have it.
    pub noted: Noted,
    /// Counts its lives.
    pub lives: u64,
}

/// The description of the node with this number. Numbers take the zones in turn.
pub fn describe(number: u64) -> NodeDescription {
    NodeDescription {
        host_id: Uuid::from_u128(u128::from(number)),
        address: std::net::IpAddr::from([10, 0, 0, number as u8]),
        cql_port: 9042,
        rpc_port: 7100,
        http_port: 7000,
        data_center: "datacenter1".to_owned(),
        zone: format!("zone-{}", number % 3),
        node_address: None,
        levels: None,
    }
}

/// The description of a node whose program knows levels up to this one.
pub fn described(description: &NodeDescription, greatest: Level) -> NodeDescription {
    let levels = (!greatest.is_first()).then_some(Levels { least: Level::FIRST, greatest });
    NodeDescription { levels, ..description.clone() }
}

impl Node {
    /// A node that was never started, with empty disks.
    pub fn new(id: NodeId, description: NodeDescription, joined: Joined, quirks: Quirks, disks: Disks) -> Self {
        Self {
            id,
            description,
            joined,
            life: None,
            is_gone: false,
            has_lost_power: false,
            is_paused: false,
            pauses_in_read: None,
            quirks,
            disks,
            greatest: Level::FIRST,
            noted: Noted { level: Level::FIRST, hold: None },
            lives: 0,
        }
    }

    /// The levels that its program knows.
    pub fn levels(&self) -> Levels {
        Levels { least: Level::FIRST, greatest: self.greatest }
    }

    /// Its description of itself. A program of the first level says nothing of levels.
    pub fn described(&self) -> NodeDescription {
        described(&self.description, self.greatest)
    }

    /// Whether the process runs and is not stopped.
    pub fn is_running(&self) -> bool {
        self.life.is_some() && !self.is_paused
    }

    /// Starts the process, which opens its copy of the catalog.
    pub fn start(&mut self, setting: &Setting, dice: &mut Dice) {
        assert!(self.life.is_none() && !self.is_gone, "a node has one process");
        self.lives += 1;
        if std::mem::take(&mut self.has_lost_power) && setting.durability != Durability::Fsync {
            self.disks.all.iter().for_each(|disk| disk.log.forget_floors());
        }
        let mut life = Life::new(self.id, self.lives, self.quirks, &self.disks, setting, dice);
        if let Some(at) = self.disks.create(&life.logs, CATALOG_TABLET, &CATALOG_INITIAL_VOTERS, None) {
            self.open_catalog(&mut life, Members::default(), at);
        }
        self.life = Some(life);
    }

    pub fn open_catalog(&self, life: &mut Life, members: Members, disk: usize) {
        let data = &self.disks.all[disk].tablets[&CATALOG_TABLET];
        life.copy = CatalogCopy::load(data, &life.copy_changed, self.levels());
        life.open(CATALOG_TABLET, members, data, disk);
    }

    /// Ends the process. `surviving`: how many of each log's batches that were not synced are found afterwards.
    pub fn end(&mut self, surviving: &[usize]) {
        self.life = None;
        self.is_paused = false;
        self.pauses_in_read = None;
        self.has_lost_power |= surviving.iter().zip(self.unsynced_batches()).any(|(kept, all)| *kept < all);
        self.disks.crash(surviving);
    }

    /// Puts a copy in the place of a tablet's data, if it is newer and the tablet is to be here. Returns whether it was.
    pub fn install(&mut self, tablet: TabletId, copy: MemoryTablet) -> bool {
        let Some(newest) = self.life.as_ref().map(Life::newest) else { return false };
        let index = |data: &MemoryTablet| data.applied_state().map_or(0, |state| state.index);
        let at = self.life.as_ref().and_then(|life| life.place(tablet));
        let data = at.and_then(|at| self.disks.all[at].tablets.get(&tablet));
        let is_newer = data.is_some_and(|data| index(&copy) > index(data));
        let (Some(members), Some(at)) = (wanted(&newest, self.id, tablet), at) else { return false };
        if !is_newer {
            if let Some(life) = &mut self.life {
                life.core().announce_data(tablet);
            }
            return false;
        }
        let Some(mut life) = self.life.take() else { return false };
        life.core().detach(tablet);
        self.disks.all[at].tablets.insert(tablet, Arc::new(copy));
        self.open_as(&mut life, tablet, members, at);
        self.life = Some(life);
        true
    }

    fn open_as(&self, life: &mut Life, tablet: TabletId, members: Members, at: usize) {
        if tablet == CATALOG_TABLET {
            self.open_catalog(life, members, at);
        } else {
            life.open(tablet, members, &self.disks.all[at].tablets[&tablet], at);
        }
    }

    /// Opens a replica that was set aside again, empty and with the state that it must remember: its leader sends it the rest. Returns whether it was opened.
    pub fn make_anew(&mut self, tablet: TabletId) -> bool {
        let Some(mut life) = self.life.take() else { return false };
        let is_anew = self.put_aside(&mut life, tablet);
        if is_anew {
            self.open_wanted(&mut life, tablet);
        }
        self.life = Some(life);
        is_anew
    }

    /// Removes the data of a replica, except for the state that it must remember. Returns whether it is removed: the power may fail meanwhile.
    fn put_aside(&mut self, life: &mut Life, tablet: TabletId) -> bool {
        life.asides.remove(&tablet);
        let (memory, at) = (life.core().detach_failed(tablet), life.place(tablet));
        let (Some((state, floor)), Some(at)) = (memory, at) else { return false };
        life.handles.remove(&tablet);
        let mut records = MemoryRecords::default();
        let retired = records.retire(GroupId::from(tablet), &state, floor);
        assert!(retired.is_ok(), "memory takes everything");
        let is_written = life.logs[at].write(&mut records, true).is_ok();
        if is_written {
            self.disks.all[at].remove(tablet);
        }
        is_written
    }

    fn open_wanted(&mut self, life: &mut Life, tablet: TabletId) {
        let newest = life.newest();
        let voters = match tablet {
            CATALOG_TABLET => CATALOG_INITIAL_VOTERS.to_vec(),
            tablet => {
                let opening = opening(&newest, self.id, tablet);
                opening.map_or(Vec::new(), |opening| self.disks.initial_voters(&opening.placement).to_vec())
            }
        };
        if let Some(members) = wanted(&newest, self.id, tablet)
            && let Some(at) = self.disks.create(&life.logs, tablet, &voters, None)
        {
            self.open_as(life, tablet, members, at);
        }
    }

    /// Sends heartbeats to those that the control plane says; gives whom it keeps in touch with.
    pub fn keep_in_touch(&self, setting: &Setting) -> Option<Contacts> {
        let contacts = self.contacts(setting)?;
        self.life.as_ref()?.liveness().set_peers(contacts.heartbeats.clone());
        Some(contacts)
    }

    /// Whom the control plane says that it keeps in touch with.
    pub fn contacts(&self, setting: &Setting) -> Option<Contacts> {
        let life = self.life.as_ref()?;
        let (named, encounters) = (&self.joined.members, life.control.admission.encounters());
        Some(Contacts::new(self.id, &life.newest(), named, &encounters, setting.control))
    }

    /// How many batches of each log a loss of power now could take.
    pub fn unsynced_batches(&self) -> Vec<usize> {
        self.disks.all.iter().map(|disk| disk.log.unsynced_batches()).collect()
    }

    /// Lets the power go during the write after the next `writes` to this disk's log, or not (`None`).
    pub fn fail_after(&self, disk: usize, writes: Option<u64>) {
        self.disks.all[disk].log.fail_after(writes);
    }
}
