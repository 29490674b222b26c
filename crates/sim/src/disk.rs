//! The part of a simulated node that outlasts its processes: its data disks, each with a log and the data of tablets.
//!
//! A tablet is on one disk, together with its log. It is on two only after a disk had failed and is back: then it is
//! opened where more was acknowledged, as in `diorite_replica`'s `lifecycle::disks`, of which this is the counterpart.

use crate::engine::{SimEngine, SimLog};
use diorite_base::{GroupId, NodeId, TabletId};
use diorite_cluster::catalog::Placement;
use diorite_control::replicas::CATALOG_TABLET;
use diorite_raft::{ConfState, HardState, LogPosition};
use diorite_replica::Planted;
use diorite_storage::{Log, LogRecords, MemoryLog, MemoryRecords, MemoryTablet, ValueSemantics};
use std::collections::BTreeMap;
use std::sync::Arc;

/// One data disk.
#[derive(Default)]
pub struct Disk {
    /// The log.
    pub log: MemoryLog,
    /// The data.
    pub tablets: BTreeMap<TabletId, Arc<MemoryTablet>>,
    /// Prepared data of child tablets, with the life that made it: it is valid in that life only.
    pub prepared: BTreeMap<TabletId, (u64, Arc<MemoryTablet>)>,
    /// Whether everything on it is on others: the node starts without it, with an empty disk in its place.
    pub is_let_go: bool,
}

/// The data disks of a node.
#[derive(Default)]
pub struct Disks {
    /// All of them.
    pub all: Vec<Disk>,
    /// What values of tables mean; without, they are plain.
    pub semantics: Option<Arc<dyn ValueSemantics>>,
    /// Bugs to be planted.
    pub planted: Planted,
    /// A planted bug: a new replica uses the wanted members as its initial voters.
    pub begins_as_wanted: bool,
    /// A planted bug: a replica that is opened on another disk after a failure remembers nothing.
    pub forgets_with_disk: bool,
}

impl Disk {
    /// Whether the log has a record of a tablet. Data of a child tablet without such a record is incomplete and not used.
    pub fn is_logged(&self, tablet: TabletId) -> bool {
        self.log.groups().contains(&GroupId::from(tablet))
    }

    fn has_any_files(&self, tablet: TabletId) -> bool {
        self.tablets.contains_key(&tablet) || self.prepared.contains_key(&tablet)
    }

    /// Removes a tablet's data and its prepared children.
    pub fn remove(&mut self, tablet: TabletId) {
        self.tablets.remove(&tablet);
        self.prepared.remove(&tablet);
    }

    /// Removes left-overs of tablets that were dropped, and of replicas that were moved away. Returns whether that is
    /// done.
    fn remove_leftovers(
        &mut self,
        log: &SimLog,
        was_dropped: &impl Fn(TabletId) -> bool,
        has_moved: &impl Fn(TabletId) -> bool,
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
}

impl Disks {
    /// The first members of a replica that is new.
    pub fn initial_voters<'a>(&self, placement: &'a Placement) -> &'a [NodeId] {
        if self.begins_as_wanted { &placement.replicas } else { &placement.initial_voters }
    }

    /// Whether the log of a working disk has a record of a tablet.
    pub fn is_logged(&self, logs: &[Arc<SimLog>], tablet: TabletId) -> bool {
        self.all.iter().zip(logs).any(|(disk, log)| log.works() && disk.is_logged(tablet))
    }

    /// Whether there are files of a tablet that count.
    pub fn has_files(&self, tablet: TabletId) -> bool {
        self.all.iter().any(|disk| disk.has_any_files(tablet) && disk.is_logged(tablet))
    }

    /// The disk that holds the tablet, of several the one on which more was acknowledged; otherwise the one with the fewest tablets. None: no disk works.
    fn place(&self, logs: &[Arc<SimLog>], tablet: TabletId) -> Option<usize> {
        let working = (0..self.all.len()).filter(|at| logs[*at].works());
        let holding = working.clone().filter(|at| self.all[*at].has_any_files(tablet));
        let mut best = None;
        for at in holding {
            let Ok(recovered) = self.all[at].log.recover(GroupId::from(tablet)) else { continue };
            let rank = [recovered.last_acknowledged(), recovered.last];
            if best.is_none_or(|(most, _)| rank > most) {
                best = Some((rank, at));
            }
        }
        best.map(|(_, at)| at).or_else(|| working.min_by_key(|at| (self.all[*at].tablets.len(), *at)))
    }

    /// Makes a new tablet: writes its initial voters and its floor (as a child tablet, or as it was on another disk) to
    /// the log. Returns its disk; `None`: power was lost meanwhile, or no disk works.
    pub fn create(
        &mut self,
        logs: &[Arc<SimLog>],
        tablet: TabletId,
        voters: &[NodeId],
        floor: Option<LogPosition>,
    ) -> Option<usize> {
        if floor.is_some() && !self.is_logged(logs, tablet) {
            self.all.iter_mut().for_each(|disk| disk.remove(tablet));
        }
        let at = self.place(logs, tablet)?;
        let (semantics, planted) = (self.semantics.clone().filter(|_| tablet != CATALOG_TABLET), self.planted);
        let others = self.remembered(logs, tablet, at);
        let disk = &mut self.all[at];
        let is_new = !disk.has_any_files(tablet);
        if let Some((_, prepared)) = disk.prepared.remove(&tablet).filter(|_| !disk.is_logged(tablet)) {
            disk.tablets.insert(tablet, prepared);
        }
        let data = disk.tablets.entry(tablet).or_insert_with(|| Arc::new(MemoryTablet::new(semantics)));
        keep_own(tablet, data, planted);
        let group = GroupId::from(tablet);
        let recovered = logs[at].recover(group).ok()?;
        let mut records = MemoryRecords::default();
        let own = recovered.last_acknowledged();
        let held = others.iter().map(|(_, held)| *held).fold(own, LogPosition::max);
        let mut state = recovered.hard_state.clone();
        for (other, _) in others {
            if (other.term, other.vote != 0) > (state.term, state.vote != 0) {
                (state.term, state.vote) = (other.term, other.vote);
            }
        }
        let floor = floor.filter(|floor| is_new && *floor > held).unwrap_or(held);
        if floor > own {
            let retired = records.retire(group, &state, floor);
            assert!(retired.is_ok(), "memory takes everything");
        } else if state != recovered.hard_state {
            let noted = records.set_hard_state(group, &state);
            assert!(noted.is_ok(), "memory takes everything");
        }
        if recovered.conf_state.voters.is_empty() {
            let voters = voters.iter().map(|node| node.0).collect();
            let noted = records.set_conf_state(group, &ConfState { voters, ..ConfState::default() });
            assert!(noted.is_ok(), "memory takes everything");
        }
        let is_written = records.is_empty() || logs[at].write(&mut records, true).is_ok();
        (is_written && self.forget_elsewhere(logs, tablet, at)).then_some(at)
    }

    /// The terms, votes and positions that the logs of other disks remember of a tablet.
    fn remembered(&self, logs: &[Arc<SimLog>], tablet: TabletId, at: usize) -> Vec<(HardState, LogPosition)> {
        let others = (0..self.all.len()).filter(|other| *other != at && logs[*other].works());
        let recovered = others.filter_map(|other| self.all[other].log.recover(GroupId::from(tablet)).ok());
        recovered.map(|found| (found.hard_state.clone(), found.last_acknowledged())).collect()
    }

    /// Removes what other disks remember and hold of a tablet that is opened on one: that is durable there now.
    fn forget_elsewhere(&mut self, logs: &[Arc<SimLog>], tablet: TabletId, at: usize) -> bool {
        let others = self.all.iter_mut().zip(logs).enumerate().filter(|(other, (_, log))| *other != at && log.works());
        others.map(|(_, other)| other).all(|(disk, log)| {
            disk.remove(tablet);
            let mut records = MemoryRecords::default();
            if disk.is_logged(tablet) {
                records.remove(GroupId::from(tablet));
            }
            records.is_empty() || log.write(&mut records, true).is_ok()
        })
    }

    /// Removes the files of dropped tablets, and of replicas that were moved away while the node was down. Returns whether
    /// they are gone: the power may fail meanwhile.
    pub fn remove_leftovers(
        &mut self,
        logs: &[Arc<SimLog>],
        was_dropped: impl Fn(TabletId) -> bool,
        has_moved: impl Fn(TabletId) -> bool,
    ) -> bool {
        let mut working = self.all.iter_mut().zip(logs).filter(|(_, log)| log.works());
        working.all(|(disk, log)| disk.remove_leftovers(log, &was_dropped, &has_moved))
    }

    /// Puts the disks into the state after a crash. `surviving`: how many unsynced batches of each log survive.
    pub fn crash(&mut self, surviving: &[usize]) {
        for (disk, surviving) in self.all.iter_mut().zip(surviving) {
            if disk.is_let_go {
                *disk = Disk::default();
                continue;
            }
            disk.log = disk.log.crash(*surviving);
            for data in disk.tablets.values_mut() {
                *data = Arc::new(data.crash());
            }
        }
    }

    /// Copies to another disk what only the failed disk's log holds of replicas that are not open. Returns whether all
    /// of it is there now.
    pub fn keep_memories(&self, logs: &[Arc<SimLog>], failed: usize, is_open: impl Fn(TabletId) -> bool) -> bool {
        let Some(to) = (0..self.all.len()).find(|at| logs[*at].works()) else { return false };
        let mut records = MemoryRecords::default();
        let closed = self.all[failed].log.groups().into_iter().filter(|group| !is_open(TabletId(group.0)));
        for group in closed {
            let (Ok(found), Ok(known)) = (self.all[failed].log.recover(group), self.all[to].log.recover(group)) else {
                return false;
            };
            let floor = found.last_acknowledged();
            let holds = |(disk, log): (&Disk, &Arc<SimLog>)| log.works() && disk.has_any_files(TabletId(group.0));
            if !self.all.iter().zip(logs).any(holds) && floor > known.last_acknowledged() {
                let kept = records.retire(group, &found.hard_state, floor);
                assert!(kept.is_ok(), "memory takes everything");
            }
        }
        records.is_empty() || logs[to].write(&mut records, true).is_ok()
    }

    /// Notes durably on a working disk what a replica must remember that is opened again, empty. Returns whether it is there.
    pub fn remember(&self, logs: &[Arc<SimLog>], tablet: TabletId, state: &HardState, floor: LogPosition) -> bool {
        let Some(to) = self.place(logs, tablet) else { return false };
        if self.forgets_with_disk {
            return true;
        }
        let mut records = MemoryRecords::default();
        let retired = records.retire(GroupId::from(tablet), state, floor);
        assert!(retired.is_ok(), "memory takes everything");
        logs[to].write(&mut records, true).is_ok()
    }
}

/// Removes the keys outside the tablet's range, if its data was made from its parent tablet's.
fn keep_own(tablet: TabletId, data: &Arc<MemoryTablet>, planted: Planted) {
    let kept = diorite_replica::keep_own::<SimEngine>(tablet, data, planted);
    assert!(kept.is_ok(), "memory takes everything");
}
