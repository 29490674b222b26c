//! Handles the failure of a node's data disk.
//!
//! A disk has failed when its Raft log cannot be written, or when something else on it has failed and a test file
//! cannot be written and made durable there. Its replicas stop, others lead, and each is opened again, empty, on
//! another disk of the node. What it must remember (term, vote, last position that it may have acknowledged) is known
//! in memory and is written to the other disk's log first, so the replica does not vote until its leader has sent it as
//! much again.
//!
//! Always true: nothing is written to a disk that has failed. A replica that is the only voter of its group stays
//! closed, as no other could send it anything. A tablet found on two disks (one had failed and is back) is opened where
//! more was acknowledged, and the other's files are removed. The catalog's replica is rebuilt like any other, from the
//! first entry of its log, while the node uses the catalog in its memory. When everything that a disk held is on
//! others, including what must be remembered of replicas that have left the node, the others record that the node may
//! be started without it (`diorite_storage::companions`). The process ends if no other disk works, or if no other node
//! has a vote in the catalog's group.

use crate::group::handle::TabletHandle;
use crate::lifecycle::command::Command;
use crate::lifecycle::copy::copies::Copies;
use crate::lifecycle::replicas::NodeReplicas;
use diorite_base::write::KvError;
use diorite_base::{GroupId, TabletId};
use diorite_storage::{DataDirectory, LogBatch, LogRecords, StorageError, companions};
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::sync::mpsc::sync_channel;

impl NodeReplicas {
    /// Examines failures on disks, and opens the replicas of a failed disk on others. For upkeep.
    pub(crate) fn handle_disk_failures(&self, copies: &Copies) {
        for handle in self.tablets.load().values() {
            if handle.health.read_failed.load(Ordering::Relaxed)
                && handle.health.read_failed.swap(false, Ordering::Relaxed)
            {
                self.context.suspect_disk(handle.disk());
            }
        }
        for (at, disk) in self.disks.iter().enumerate() {
            if self.context.take_suspicion(at)
                && self.disks.is_working(at)
                && let Err(error) = disk.directory.probe()
            {
                tracing::error!(event = "disk", path = %disk.directory.path().display(), %error, "a disk has failed");
                disk.log.give_up();
            }
            if disk.log.has_failed() && !disk.is_given_up.swap(true, Ordering::Relaxed) {
                self.give_up_disk(at, copies);
            }
        }
    }

    fn give_up_disk(&self, failed: usize, copies: &Copies) {
        let path = self.disks[failed].directory.path().display();
        let mut lost: Vec<_> = self.tablets.load().values().filter(|handle| handle.disk() == failed).cloned().collect();
        // The catalog's replica first.
        lost.sort_unstable_by_key(|handle| handle.id());
        tracing::error!(%path, replicas = lost.len(), "a disk has failed; its replicas are rebuilt on the others");
        let is_catalog = |handle: &TabletHandle| GroupId::from(handle.id()) == GroupId::CATALOG;
        let catalog_is_lost = lost.iter().any(|handle| is_catalog(handle) && self.is_alone(handle));
        if catalog_is_lost || self.disks.working().next().is_none() {
            tracing::error!(%path, catalog_is_lost, "the node cannot do without this disk and ends; replace the node");
            std::process::abort();
        }
        let mut is_all_elsewhere = self.keep_memories(failed, &lost);
        for handle in lost {
            let tablet = handle.id();
            if self.is_alone(&handle) {
                tracing::error!(%tablet, "the only replica of a tablet is on a disk that has failed: it stays closed");
                is_all_elsewhere = false;
                continue;
            }
            if let Err(error) = self.rebuild(handle, copies) {
                tracing::error!(%tablet, %error, "a replica of a failed disk could not be opened on another");
                is_all_elsewhere = false;
            }
        }
        if is_all_elsewhere {
            let working: Vec<&DataDirectory> = self.disks.working().map(|disk| &disk.directory).collect();
            match companions::let_go(&working, &self.disks[failed].directory) {
                Ok(()) => {
                    tracing::info!(%path, "all that was on the failed disk is on others: the node can be started without it")
                }
                Err(error) => tracing::error!(%path, %error, "it cannot be noted that the node can do without a disk"),
            }
        }
    }

    /// Opens a replica of a failed disk, empty, on another.
    fn rebuild(&self, handle: Arc<TabletHandle>, copies: &Copies) -> Result<(), KvError> {
        let tablet = handle.id();
        copies.cancel(&[tablet]);
        let (sender, receiver) = sync_channel(1);
        self.command(&handle, Command::DetachFailed(tablet, sender));
        self.update_tablets(|tablets| {
            tablets.remove(&tablet);
        });
        drop(handle);
        match receiver.recv() {
            Ok(Some((state, floor))) => self.open_elsewhere(tablet, &state, floor),
            // It was closed meanwhile, or the node stops.
            Ok(None) => Ok(()),
            Err(_) => Err(KvError::Storage("the node is stopping".to_owned())),
        }
    }

    /// Copies to another log what only the failed disk's log holds of replicas that are not open, because they have
    /// left the node. The failed log keeps these records in memory. Returns whether all of them are copied now.
    fn keep_memories(&self, failed: usize, open: &[Arc<TabletHandle>]) -> bool {
        let log = &self.disks[failed].log;
        let Some(to) = self.disks.working().next() else { return false };
        let kept = || -> Result<(), StorageError> {
            let mut batch = LogBatch::default();
            let is_open = |group: &GroupId| open.iter().any(|handle| GroupId::from(handle.id()) == *group);
            for group in log.groups().into_iter().filter(|group| !is_open(group)) {
                if self.installing.contains(TabletId(group.0)) {
                    return Err(StorageError::Corrupt(format!("{group} is being opened")));
                }
                let found = log.recover(group)?;
                let (floor, known) = (found.last_acknowledged(), to.log.recover(group)?.last_acknowledged());
                let is_held = self.disks.working().any(|disk| disk.directory.tablet(group.0).is_dir());
                if !is_held && floor > known {
                    batch.retire(group, &found.hard_state, floor)?;
                }
            }
            if batch.is_empty() { Ok(()) } else { to.log.write(&mut batch, true).map(drop) }
        };
        let kept = kept();
        if let Err(error) = &kept {
            tracing::error!(%error, "the floors of closed replicas cannot be taken from a failed disk");
        }
        kept.is_ok()
    }
}
