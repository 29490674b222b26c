//! Makes child tablets when a tablet is split. `diorite_replica`'s store does the same with files and a thread of its
//! own; the log records and the removal of the sibling's rows are the store's own code.

use crate::life::members;
use crate::node::Node;
use crate::setting::Setting;
use diorite_base::{GroupId, TabletId};
use diorite_control::follower::{ChildOpening, Opening, child_opening};
use diorite_control::replicas::Members as Wanted;
use diorite_raft::{ConfState, LogPosition};
use diorite_replica::{SplitMark, begin_as_copy, begin_from_log};
use diorite_storage::{Log, LogRecords, MemoryRecords, TabletData};
use std::sync::Arc;

impl Node {
    /// How the child tablets of a tablet are opened here; `None`: the node does not know them yet.
    fn child_openings(&self, parent: TabletId, children: [TabletId; 2]) -> Option<Vec<Opening>> {
        let life = self.life.as_ref()?;
        let (served, newest) = (Arc::clone(life.served()), life.newest());
        let mut openings = Vec::new();
        for child in children {
            match child_opening(&served, &newest, self.id, parent, child) {
                ChildOpening::As(opening) => openings.push(*opening),
                ChildOpening::Never => {}
                ChildOpening::NotYet => return None,
            }
        }
        Some(openings)
    }

    /// Makes the data of a tablet's child tablets as of now, if the tablet is here and is to be split. Returns whether
    /// to try again, as the node does not know the children yet.
    pub fn prepare(&mut self, parent: TabletId) -> bool {
        let Some(life) = &self.life else { return false };
        let split = life.newest().placement(parent).and_then(|placement| placement.split);
        let (Some(handle), Some(split)) = (life.handles.get(&parent).cloned(), split) else { return false };
        let Some(children) = self.child_openings(parent, split.children) else { return true };
        if handle.split().is_none()
            && let Ok(held) = handle.data().applied_state()
        {
            handle.keep_for_children(held.index + 1);
            for child in children.into_iter().map(|opening| opening.tablet) {
                let is_logged = self.disks.is_logged(&life.logs, child);
                let disk = &mut self.disks.all[handle.disk()];
                let is_prepared = disk.prepared.get(&child).is_some_and(|(life, _)| *life == self.lives);
                if !is_logged && !is_prepared {
                    disk.prepared.insert(child, (self.lives, Arc::new(handle.data().checkpoint())));
                }
            }
        }
        if let Some(life) = &mut self.life {
            life.prepared.insert(parent);
        }
        false
    }

    /// Makes the child tablets of a tablet that was split here, and opens them. Returns whether to try again, as the
    /// node does not know them yet.
    pub fn make_children(&mut self, setting: &Setting, mark: &SplitMark) -> bool {
        let Some(life) = &self.life else { return false };
        let Some(handle) = life.handles.get(&mark.parent).cloned() else { return false };
        let Some(children) = self.child_openings(mark.parent, mark.split.children) else { return true };
        // Children are made on their parent's disk.
        let log = Arc::clone(&life.logs[handle.disk()]);
        handle.keep_for_children(u64::MAX);
        let mut records = MemoryRecords::default();
        for Opening { tablet, placement, .. } in &children {
            if self.disks.is_logged(&life.logs, *tablet) {
                continue;
            }
            let group = GroupId::from(*tablet);
            let disk = &mut self.disks.all[handle.disk()];
            let usable = disk.prepared.remove(tablet).filter(|(number, _)| *number == self.lives);
            let added = usable.filter(|(_, data)| {
                let held = data.applied_state().unwrap_or_default();
                let reader = log.reader(GroupId::from(mark.parent));
                let begun = begin_from_log(&held, mark, &reader, group, &mut records, setting.planted);
                begun.expect("memory takes everything")
            });
            let data = match added {
                Some((_, data)) => data,
                None => {
                    let begun = begin_as_copy(mark, group, &mut records);
                    assert!(begun.is_ok(), "memory takes everything");
                    Arc::new(handle.data().checkpoint())
                }
            };
            disk.tablets.insert(*tablet, data);
            let voters = self.disks.initial_voters(placement).iter().map(|node| node.0).collect();
            let noted = records.set_conf_state(group, &ConfState { voters, ..ConfState::default() });
            assert!(noted.is_ok(), "memory takes everything");
        }
        if !records.is_empty() && log.write(&mut records, true).is_err() {
            return false;
        }
        for opening in children {
            self.open(&opening);
            if let Some(life) = &mut self.life {
                life.prepared.remove(&mark.parent);
                life.core().announce_opened(opening.tablet);
            }
        }
        false
    }

    /// Opens a replica; one that is open receives the wanted members.
    pub fn open(&mut self, opening: &Opening) {
        let Some(life) = &mut self.life else { return };
        let (tablet, placement) = (opening.tablet, &opening.placement);
        let wanted = members(Wanted::of(placement));
        let floor = placement.origin.map(|origin| LogPosition::new(origin.index, origin.term));
        if life.handles.contains_key(&tablet) {
            life.core().set_members(tablet, wanted);
            return;
        }
        let voters = self.disks.initial_voters(placement).to_vec();
        if let Some(at) = self.disks.create(&life.logs, tablet, &voters, floor) {
            life.open(tablet, wanted, &self.disks.all[at].tablets[&tablet], at);
        }
    }

    /// Closes a replica and removes its data. Returns whether it was open.
    pub fn close(&mut self, tablet: TabletId) -> bool {
        let Some(life) = &mut self.life else { return false };
        let Some(handle) = life.handles.remove(&tablet) else {
            self.disks.all.iter_mut().for_each(|disk| {
                disk.prepared.remove(&tablet);
            });
            return false;
        };
        // Otherwise power is lost, and the next start removes the rest.
        if life.core().close(tablet).is_ok() {
            self.disks.all[handle.disk()].remove(tablet);
        }
        true
    }
}
