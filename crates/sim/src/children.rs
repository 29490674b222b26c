//! What a simulated node does when a tablet is split: `diorite_replica`'s store does the same with files and a thread of its own, and shares what is written to
//! the log, and what is removed from the data.

use crate::engine::SimEngine;
use crate::node::{Node, Setting};
use crate::placement::Merge;
use diorite_base::{GroupId, TabletId};
use diorite_raft::ConfState;
use diorite_replica::{SplitMark, begin_as_copy, begin_from_log};
use diorite_storage::{Log, LogRecords, MemoryRecords, TabletData};
use std::sync::Arc;

impl Node {
    /// Whether it has heard that the tablet is to be split, or was.
    pub fn knows_split(&self, tablet: TabletId) -> bool {
        self.heard.get(&tablet).is_some_and(|placement| placement.split.is_some())
    }

    /// Whether it has heard that the tablet is to be taken in by another.
    pub fn knows_merge(&self, tablet: TabletId) -> bool {
        self.heard.get(&tablet).is_some_and(|placement| matches!(placement.merge, Some(Merge::Into(_))))
    }

    /// Makes the children's data as of now, if the tablet is here, is to be split and was not yet.
    pub fn prepare(&mut self, parent: TabletId) {
        let Some(life) = &self.life else { return };
        let planned = self.heard.get(&parent).and_then(|placement| placement.split.as_ref());
        let (Some(handle), Some(planned)) = (life.handles.get(&parent), planned) else { return };
        if handle.split().is_some() {
            return;
        }
        let Ok(held) = handle.data().applied_state() else { return };
        handle.keep_for_children(held.index + 1);
        for child in planned.split.children {
            let is_prepared = self.disk.prepared.get(&child).is_some_and(|(life, _)| *life == self.lives);
            if !self.disk.is_logged(child) && !is_prepared {
                self.disk.prepared.insert(child, (self.lives, Arc::new(handle.data().checkpoint())));
            }
        }
    }

    /// Makes the children of a tablet that was split here, and opens them. Returns whether that is to be tried again: the node does not know of them yet.
    pub fn make_children(&mut self, setting: &Setting, mark: &SplitMark) -> bool {
        let Some(life) = &self.life else { return false };
        let Some(handle) = life.handles.get(&mark.parent) else { return false };
        if !self.knows_split(mark.parent) {
            return true;
        }
        handle.keep_for_children(u64::MAX);
        let mut records = MemoryRecords::default();
        // One that has moved away since is no concern of this node's.
        let is_here = |child: &TabletId| self.heard.get(child).is_none_or(|placement| placement.is_on(self.id));
        let children: Vec<TabletId> = mark.split.children.into_iter().filter(is_here).collect();
        for child in children.iter().copied() {
            if self.disk.is_logged(child) {
                continue;
            }
            let group = GroupId::from(child);
            let usable = self.disk.prepared.remove(&child).filter(|(number, _)| *number == self.lives);
            let added = usable.filter(|(_, data)| {
                let held = data.applied_state().unwrap_or_default();
                let reader = life.log.reader(GroupId::from(mark.parent));
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
            self.disk.tablets.insert(child, data);
            let voters = setting.founders[&child].iter().map(|node| node.0).collect();
            let noted = records.set_conf_state(group, &ConfState { voters, ..ConfState::default() });
            assert!(noted.is_ok(), "memory takes everything");
        }
        if !records.is_empty() && life.log.write(&mut records, true).is_err() {
            return false;
        }
        for child in children {
            let placement = self.heard.get(&child).unwrap_or(&self.heard[&mark.parent]);
            let members = placement.members.clone();
            let Some(life) = &mut self.life else { return false };
            if life.handles.contains_key(&child) {
                life.core().set_members(child, members.clone());
            } else if self.disk.found(&life.log, child, &setting.founders[&child], None) {
                life.open(child, members.clone(), &self.disk.tablets[&child]);
            }
            life.core().announce_opened(child);
        }
        false
    }
}

/// Removes what is not the tablet's own, if its data was made of its parent's.
pub fn keep_own(tablet: TabletId, data: &Arc<diorite_storage::MemoryTablet>) {
    let kept = diorite_replica::keep_own::<SimEngine>(tablet, data);
    assert!(kept.is_ok(), "memory takes everything");
}
