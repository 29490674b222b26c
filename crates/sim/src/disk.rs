//! What outlasts the lives of a simulated node: its log and the data of its tablets.

use crate::engine::{SimEngine, SimLog};
use diorite_base::{GroupId, NodeId, TabletId};
use diorite_cluster::catalog::Placement;
use diorite_control::replicas::CATALOG_TABLET;
use diorite_raft::{ConfState, LogPosition};
use diorite_replica::Planted;
use diorite_storage::{Log, LogRecords, MemoryLog, MemoryRecords, MemoryTablet, ValueSemantics};
use std::collections::BTreeMap;
use std::sync::Arc;

/// See the top of this module.
#[derive(Default)]
pub struct Disk {
    /// What values of tables mean; without, they are plain.
    pub semantics: Option<Arc<dyn ValueSemantics>>,
    /// The log.
    pub log: MemoryLog,
    /// The data.
    pub tablets: BTreeMap<TabletId, Arc<MemoryTablet>>,
    /// What was made of child tablets before their parent tablets were split, and in which life: it counts in that one only.
    pub prepared: BTreeMap<TabletId, (u64, Arc<MemoryTablet>)>,
    /// Bugs to be planted.
    pub planted: Planted,
    /// A bug: new replicas take those for their first members that are wanted now.
    pub begins_as_wanted: bool,
}

impl Disk {
    /// The first members of a replica that is new.
    pub fn initial_voters<'a>(&self, placement: &'a Placement) -> &'a [NodeId] {
        if self.begins_as_wanted { &placement.replicas } else { &placement.initial_voters }
    }

    /// Whether the log says anything of a tablet. What there is of a child tablet otherwise is not finished, and counts for nothing.
    pub fn is_logged(&self, tablet: TabletId) -> bool {
        self.log.groups().contains(&GroupId::from(tablet))
    }

    /// Whether there are files of a tablet that count.
    pub fn has_files(&self, tablet: TabletId) -> bool {
        self.has_any_files(tablet) && self.is_logged(tablet)
    }

    fn has_any_files(&self, tablet: TabletId) -> bool {
        self.tablets.contains_key(&tablet) || self.prepared.contains_key(&tablet)
    }

    /// Makes a tablet that is not there, and writes its first members to the log, and what a child tablet must hold before it votes. Returns whether they are
    /// there: the power may go meanwhile.
    pub fn create(&mut self, log: &SimLog, tablet: TabletId, voters: &[NodeId], floor: Option<LogPosition>) -> bool {
        if floor.is_some() && !self.is_logged(tablet) {
            self.prepared.remove(&tablet);
            self.tablets.remove(&tablet);
        }
        let is_new = !self.has_any_files(tablet);
        if let Some((_, prepared)) = self.prepared.remove(&tablet).filter(|_| !self.is_logged(tablet)) {
            self.tablets.insert(tablet, prepared);
        }
        let semantics = self.semantics.clone().filter(|_| tablet != CATALOG_TABLET);
        let data = self.tablets.entry(tablet).or_insert_with(|| Arc::new(MemoryTablet::new(semantics)));
        keep_own(tablet, data, self.planted);
        let group = GroupId::from(tablet);
        let Ok(recovered) = log.recover(group) else { return false };
        let mut records = MemoryRecords::default();
        let held = recovered.last_acknowledged();
        if let Some(floor) = floor.filter(|floor| is_new && *floor > held) {
            let retired = records.retire(group, &recovered.hard_state, floor);
            assert!(retired.is_ok(), "memory takes everything");
        }
        if recovered.conf_state.voters.is_empty() {
            let voters = voters.iter().map(|node| node.0).collect();
            let noted = records.set_conf_state(group, &ConfState { voters, ..ConfState::default() });
            assert!(noted.is_ok(), "memory takes everything");
        }
        records.is_empty() || log.write(&mut records, true).is_ok()
    }

    /// Removes what is left of tablets that were dropped, and of replicas that were moved away while the node was down. Returns whether it is gone: the power may go
    /// meanwhile.
    pub fn remove_leftovers(
        &mut self,
        log: &SimLog,
        was_dropped: impl Fn(TabletId) -> bool,
        has_moved: impl Fn(TabletId) -> bool,
    ) -> bool {
        let mut records = MemoryRecords::default();
        for group in self.log.groups() {
            let tablet = TabletId(group.0);
            let Ok(recovered) = self.log.recover(group) else { continue };
            let is_replica = recovered.last.index > 0 || !recovered.conf_state.voters.is_empty();
            let done = if was_dropped(tablet) {
                records.remove(group);
                Ok(())
            } else if has_moved(tablet) && is_replica {
                records.retire(group, &recovered.hard_state, recovered.last_acknowledged())
            } else {
                continue;
            };
            assert!(done.is_ok(), "memory takes everything");
        }
        if !records.is_empty() && log.write(&mut records, true).is_err() {
            return false;
        }
        self.tablets.retain(|tablet, _| !was_dropped(*tablet) && !has_moved(*tablet));
        self.prepared.retain(|tablet, _| !was_dropped(*tablet) && !has_moved(*tablet));
        true
    }

    /// Removes a tablet's data, and what was prepared of it.
    pub fn remove(&mut self, tablet: TabletId) {
        self.tablets.remove(&tablet);
        self.prepared.remove(&tablet);
    }
}

/// Removes what is not the tablet's own, if its data was made of its parent tablet's.
fn keep_own(tablet: TabletId, data: &Arc<MemoryTablet>, planted: Planted) {
    let kept = diorite_replica::keep_own::<SimEngine>(tablet, data, planted);
    assert!(kept.is_ok(), "memory takes everything");
}
