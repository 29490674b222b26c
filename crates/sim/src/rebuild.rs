//! Handles the failure of a disk of a simulated node, as `diorite_replica`'s `lifecycle::disk_failure` does with files.

use crate::life::members;
use crate::node::Node;
use diorite_base::TabletId;
use diorite_cluster::catalog::CATALOG_INITIAL_VOTERS;
use diorite_control::follower::opening;
use diorite_control::replicas::{CATALOG_TABLET, Members as Wanted};

impl Node {
    /// Opens the replicas of a failed disk on other disks, empty. Returns those that were opened. `None`: the node cannot continue without the disk.
    pub fn give_up_disk(&mut self, failed: usize) -> Option<Vec<TabletId>> {
        let life = self.life.as_mut()?;
        let (node, works) = (self.id, life.logs.iter().any(|log| log.works()));
        let held = life.handles.iter().filter(|(_, handle)| handle.disk() == failed);
        // The catalog's replica is the first.
        let held: Vec<TabletId> = held.map(|(tablet, _)| *tablet).collect();
        let is_alone = |tablet: &TabletId| {
            let state = life.core().describe(*tablet);
            state.is_some_and(|state| state.outgoing.is_empty() && state.voters == [node])
        };
        let (alone, lost): (Vec<TabletId>, Vec<TabletId>) = held.iter().copied().partition(is_alone);
        if !works || alone.contains(&CATALOG_TABLET) {
            return None;
        }
        let mut is_all_elsewhere = self.disks.keep_memories(&life.logs, failed, |tablet| held.contains(&tablet));
        // No other replica could send them anything: they stay closed.
        is_all_elsewhere &= alone.is_empty();
        let mut rebuilt = Vec::new();
        for tablet in lost {
            match self.rebuild(tablet) {
                true => rebuilt.push(tablet),
                false => is_all_elsewhere = false,
            }
        }
        self.disks.all[failed].is_let_go = is_all_elsewhere;
        Some(rebuilt)
    }

    /// Opens a replica of a disk that has failed, empty, on another. Returns whether that is done, as far as it is wanted here.
    fn rebuild(&mut self, tablet: TabletId) -> bool {
        let Some(mut life) = self.life.take() else { return false };
        let memory = life.core().detach_failed(tablet);
        life.handles.remove(&tablet);
        let Some((state, floor)) = memory else {
            self.life = Some(life);
            return true;
        };
        let newest = life.newest();
        let is_remembered = self.disks.remember(&life.logs, tablet, &state, floor);
        if is_remembered && tablet == CATALOG_TABLET {
            // Until it is complete the node uses the snapshot that it serves.
            let wanted = members(Wanted::of_catalog(&newest).unwrap_or_default());
            if let Some(at) = self.disks.create(&life.logs, tablet, &CATALOG_INITIAL_VOTERS, None) {
                self.open_catalog(&mut life, wanted, at);
            }
        }
        self.life = Some(life);
        if is_remembered
            && tablet != CATALOG_TABLET
            && let Some(opening) = opening(&newest, self.id, tablet)
        {
            self.open(&opening);
        }
        is_remembered
    }
}
