//! The data disks of a node: which of them a tablet is on, and what happens when one fails.
//!
//! A disk has failed when its Raft log cannot be written, or when something else on it has failed and a file cannot be written and made durable there. Its
//! replicas stop, others lead, and each is opened again, empty, on another disk of the node. What it must remember (term, vote, how far it has
//! acknowledged) is known in memory and goes into the other disk's log first, so it does not vote until its leader has sent it as much again.
//!
//! Always true: nothing is written to a disk that has failed; a replica that is the only voter of its group stays closed, as nobody could send it anything; a
//! tablet found on two disks (one had failed and is back) is opened where more was acknowledged, and the other's files go. The process ends if
//! no other disk works, or if the catalog's replica was on the one that failed.

use crate::copy::Copies;
use crate::handle::storage_error;
use crate::store::{Inner, OpenTablet};
use crate::worker::Command;
use diorite_base::write::KvError;
use diorite_base::{GroupId, TabletId};
use diorite_storage::{DataDirectory, LogBatch, LogRecords, RaftLog, StorageError};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::mpsc::sync_channel;

/// One data disk.
pub(crate) struct Disk {
    pub(crate) directory: DataDirectory,
    pub(crate) log: RaftLog,
    pub(crate) free_bytes: AtomicU64,
    pub(crate) total_bytes: AtomicU64,
    pub(crate) full: AtomicBool,
    /// It has failed, and what was on it is being taken care of.
    pub(crate) is_abandoned: AtomicBool,
}

/// The error of a write to a full disk.
pub(crate) fn disk_full(disk: &Disk, reserve_bytes: u64) -> KvError {
    KvError::DiskFull(format!(
        "{} has {} MB free, below the reserve of {} MB; writes are refused until space returns",
        disk.directory.path().display(),
        disk.free_bytes.load(Ordering::Relaxed) >> 20,
        reserve_bytes >> 20
    ))
}

impl Inner {
    /// The disks that have not failed.
    pub(crate) fn working_disks(&self) -> impl Iterator<Item = &Disk> {
        self.disks.iter().filter(|disk| !disk.log.has_failed())
    }

    fn is_working(&self, disk: usize) -> bool {
        !self.disks[disk].log.has_failed()
    }

    /// The disk that holds the tablet, of several the one on which more was acknowledged; otherwise the one with the most room per tablet.
    pub(crate) fn place(&self, tablet: TabletId, counts: &mut [u64]) -> Result<usize, KvError> {
        let disks = &self.disks;
        let working = (0..disks.len()).filter(|disk| self.is_working(*disk));
        let holding = working.clone().filter(|disk| disks[*disk].directory.tablet(tablet.0).is_dir());
        let mut best: Option<((u64, u64), usize)> = None;
        for disk in holding {
            let recovered = disks[disk].log.recover(GroupId::from(tablet)).map_err(storage_error)?;
            let (index, term) = recovered.last_acknowledged();
            if best.is_none_or(|(most, _)| (term, index) > most) {
                best = Some(((term, index), disk));
            }
        }
        let room = |index: usize| disks[index].free_bytes.load(Ordering::Relaxed) / (counts[index] + 1);
        let roomiest = || working.clone().max_by_key(|&index| (room(index), usize::MAX - index));
        let none = || KvError::Storage("no disk of this node works".to_owned());
        let chosen = best.map(|(_, disk)| disk).or_else(roomiest).ok_or_else(none)?;
        counts[chosen] += 1;
        Ok(chosen)
    }

    /// Whether a working disk holds files of the tablet.
    pub(crate) fn has_files(&self, tablet: TabletId) -> bool {
        self.working_disks().any(|disk| disk.directory.tablet(tablet.0).is_dir())
    }

    /// A replica that was here before may come back on another disk: what it must remember goes with it, into `batch`.
    pub(crate) fn move_memory(&self, tablet: TabletId, to: usize, batch: &mut LogBatch) -> Result<(), KvError> {
        let group = GroupId::from(tablet);
        for (_, disk) in self.disks.iter().enumerate().filter(|(at, _)| *at != to && self.is_working(*at)) {
            let former = disk.log.recover(group).map_err(storage_error)?;
            let own = self.disks[to].log.recover(group).map_err(storage_error)?;
            let (floor, own) = (former.last_acknowledged(), own.last_acknowledged());
            if (floor.1, floor.0) > (own.1, own.0) {
                batch.retire(group, &former.hard_state, floor).map_err(storage_error)?;
            }
        }
        Ok(())
    }

    /// Removes what other disks remember and hold of tablets that are opened on one: that is durable there now.
    pub(crate) fn forget_elsewhere(&self, placed: &[(OpenTablet, usize)]) -> Result<(), KvError> {
        for (at, disk) in self.disks.iter().enumerate().filter(|(at, _)| self.disks.len() > 1 && self.is_working(*at)) {
            let known = disk.log.groups();
            let mut batch = LogBatch::default();
            for tablet in placed.iter().filter(|(_, place)| *place != at).map(|(open, _)| open.tablet) {
                let path = disk.directory.tablet(tablet.0);
                if path.is_dir() {
                    tracing::warn!(%tablet, path = %path.display(), "a tablet was on two disks: what is older goes");
                    let failed = |source| StorageError::Io { action: "cannot remove", path: path.clone(), source };
                    std::fs::remove_dir_all(&path).map_err(failed).map_err(storage_error)?;
                }
                if known.contains(&GroupId::from(tablet)) {
                    batch.remove(GroupId::from(tablet));
                }
            }
            if !batch.is_empty() {
                disk.log.write(&mut batch, true).map_err(storage_error)?;
            }
        }
        Ok(())
    }

    /// Looks into what has failed on disks, and opens what was on a disk that has failed as a whole on others. For upkeep.
    pub(crate) fn look_after_disks(&self, copies: &Copies) {
        for handle in self.tablets.load().values() {
            if handle.read_failed.load(Ordering::Relaxed) && handle.read_failed.swap(false, Ordering::Relaxed) {
                self.context.suspect_disk(handle.disk);
            }
        }
        for (at, disk) in self.disks.iter().enumerate() {
            if self.context.take_suspicion(at)
                && self.is_working(at)
                && let Err(error) = disk.directory.probe()
            {
                tracing::error!(event = "disk", path = %disk.directory.path().display(), %error, "a disk has failed");
                disk.log.give_up();
            }
            if disk.log.has_failed() && !disk.is_abandoned.swap(true, Ordering::Relaxed) {
                self.abandon_disk(at, copies);
            }
        }
    }

    fn abandon_disk(&self, failed: usize, copies: &Copies) {
        let path = self.disks[failed].directory.path().display();
        let mut lost: Vec<_> = self.tablets.load().values().filter(|handle| handle.disk == failed).cloned().collect();
        lost.sort_unstable_by_key(|handle| handle.tablet);
        tracing::error!(%path, replicas = lost.len(), "a disk has failed; its replicas are rebuilt on the others");
        let holds_catalog = lost.iter().any(|handle| GroupId::from(handle.tablet) == GroupId::CATALOG);
        if holds_catalog || self.working_disks().next().is_none() {
            tracing::error!(%path, holds_catalog, "the node cannot do without this disk and ends; replace the node");
            std::process::abort();
        }
        for handle in lost {
            let tablet = handle.tablet;
            if handle.voters.load().len() < 2 {
                tracing::error!(%tablet, "the only replica of a tablet is on a disk that has failed: it stays closed");
                continue;
            }
            copies.abandon(&[tablet]);
            let (sender, receiver) = sync_channel(1);
            self.queues[handle.worker].command(Command::Abandon(tablet, sender));
            self.update_tablets(|tablets| {
                tablets.remove(&tablet);
            });
            drop(handle);
            let rebuilt = match receiver.recv() {
                Ok(Some((state, floor))) => self.open_elsewhere(tablet, &state, floor, copies),
                // Closed meanwhile, or the node stops.
                Ok(None) | Err(_) => Ok(()),
            };
            if let Err(error) = rebuilt {
                tracing::error!(%tablet, %error, "a replica of a failed disk could not be opened on another");
            }
        }
    }

    fn open_elsewhere(
        &self,
        tablet: TabletId,
        state: &diorite_raft::HardState,
        floor: (u64, u64),
        copies: &Copies,
    ) -> Result<(), KvError> {
        let Some(opening) = copies.opening(tablet) else { return Ok(()) };
        let mut counts = vec![0; self.disks.len()];
        let disk = &self.disks[self.place(tablet, &mut counts)?];
        let mut batch = LogBatch::default();
        batch.retire(GroupId::from(tablet), state, floor).map_err(storage_error)?;
        disk.log.write(&mut batch, true).map_err(storage_error)?;
        self.open(vec![opening])
    }
}
