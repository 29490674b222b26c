//! The data disks of a node: which of them a tablet is on, and what happens when one fails.
//!
//! A disk has failed when its Raft log cannot be written, or when something else on it has failed and a file cannot be written and made durable there. Its
//! replicas stop, others lead, and each is opened again, empty, on another disk of the node. What it must remember (term, vote, how far it has
//! acknowledged) is known in memory and goes into the other disk's log first, so it does not vote until its leader has sent it as much again.
//!
//! Always true: nothing is written to a disk that has failed; a replica that is the only voter of its group stays closed, as nobody could send it anything; a
//! tablet found on two disks (one had failed and is back) is opened where more was acknowledged, and the other's files go. The catalog's replica is rebuilt like
//! any other, from the first entry of its log, while the node goes by what it knows of the catalog in memory. When all that a disk held is on others, what must be
//! remembered of replicas that have left the node included, the others note that the node may be started without it (`diorite_storage::companions`). The process
//! ends if no other disk works, or if nobody else has a vote in the catalog's group.

use crate::copy::Copies;
use crate::handle::{TabletHandle, storage_error};
use crate::stall::LogProgress;
use crate::store::{Inner, OpenTablet};
use crate::worker::Command;
use diorite_base::write::KvError;
use diorite_base::{GroupId, TabletId};
use diorite_storage::{DataDirectory, LOG_FILE_BYTES, LogBatch, LogRecords, RaftLog, StorageError, companions};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::mpsc::sync_channel;

/// One data disk.
pub(crate) struct Disk {
    pub(crate) directory: DataDirectory,
    pub(crate) log: RaftLog,
    /// How the syncs of [`crate::Durability::Interval`] get on.
    pub(crate) sync_progress: LogProgress,
    /// What the log may take, bytes; then it is cut even where other members lack entries.
    pub(crate) log_limit_bytes: u64,
    pub(crate) free_bytes: AtomicU64,
    pub(crate) total_bytes: AtomicU64,
    pub(crate) full: AtomicBool,
    /// It has failed, and what was on it is being taken care of.
    pub(crate) is_abandoned: AtomicBool,
}

/// A log takes no more of its disk than one part in so many: what a full disk is rid of must be worth something. It needs some files to work with, though.
const LOG_SHARE: u64 = 8;
const LEAST_LOG_BYTES: u64 = 4 * LOG_FILE_BYTES;

/// What the log on a disk of that size may take, bytes, if it may take `wanted_bytes` on a large one.
fn log_limit(wanted_bytes: u64, disk_bytes: u64) -> u64 {
    wanted_bytes.min((disk_bytes / LOG_SHARE).max(LEAST_LOG_BYTES))
}

impl Disk {
    /// Opens the log in a data directory, which may take `log_bytes` on a large disk, and looks at how full its disk is.
    pub(crate) fn open(directory: DataDirectory, log_bytes: u64, reserve_bytes: u64) -> Result<Self, StorageError> {
        let (free_bytes, total_bytes) = directory.space_bytes()?;
        let log_limit_bytes = log_limit(log_bytes, total_bytes);
        let held: Vec<GroupId> = directory.tablet_ids()?.into_iter().map(GroupId).collect();
        Ok(Self {
            log: RaftLog::open(&directory.log(), log_limit_bytes, &held)?,
            sync_progress: LogProgress::default(),
            log_limit_bytes,
            directory,
            full: AtomicBool::new(free_bytes < reserve_bytes),
            free_bytes: AtomicU64::new(free_bytes),
            total_bytes: AtomicU64::new(total_bytes),
            is_abandoned: AtomicBool::new(false),
        })
    }
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

    /// The disk that holds the tablet, of several the one on which more was acknowledged; otherwise the one with the most room per tablet. A replica that was made anew, and
    /// remembers what the one before it had acknowledged, yields to that one itself, should its disk be back: as much was acknowledged there, and it is in the log.
    pub(crate) fn place(&self, tablet: TabletId, counts: &mut [u64]) -> Result<usize, KvError> {
        let disks = &self.disks;
        let working = (0..disks.len()).filter(|disk| self.is_working(*disk));
        let holding = working.clone().filter(|disk| disks[*disk].directory.tablet(tablet.0).is_dir());
        let mut best = None;
        for disk in holding {
            // What cannot be read there is told when it is opened.
            let recovered = disks[disk].log.recover(GroupId::from(tablet)).unwrap_or_default();
            let ((index, term), (last, last_term)) = (recovered.last_acknowledged(), recovered.last);
            let rank = [(term, index), (last_term, last)];
            if best.is_none_or(|(most, _)| rank > most) {
                best = Some((rank, disk));
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

    /// Whether something can be written to the disk. If not, it is taken for failed from now on.
    pub(crate) fn still_works(&self, disk: usize) -> bool {
        if self.is_working(disk) && self.disks[disk].directory.probe().is_err() {
            self.disks[disk].log.give_up();
        }
        self.is_working(disk)
    }

    fn abandon_disk(&self, failed: usize, copies: &Copies) {
        let path = self.disks[failed].directory.path().display();
        let mut lost: Vec<_> = self.tablets.load().values().filter(|handle| handle.disk == failed).cloned().collect();
        // The catalog's first.
        lost.sort_unstable_by_key(|handle| handle.tablet);
        tracing::error!(%path, replicas = lost.len(), "a disk has failed; its replicas are rebuilt on the others");
        let is_alone = |handle: &TabletHandle| handle.voters.load().iter().all(|voter| *voter == self.context.node.0);
        let is_catalog = |handle: &TabletHandle| GroupId::from(handle.tablet) == GroupId::CATALOG;
        let catalog_is_lost = lost.iter().any(|handle| is_catalog(handle) && is_alone(handle));
        if catalog_is_lost || self.working_disks().next().is_none() {
            tracing::error!(%path, catalog_is_lost, "the node cannot do without this disk and ends; replace the node");
            std::process::abort();
        }
        let mut is_all_elsewhere = self.keep_memories(failed, &lost);
        for handle in lost {
            let tablet = handle.tablet;
            if is_alone(&handle) {
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
            let working: Vec<&DataDirectory> = self.working_disks().map(|disk| &disk.directory).collect();
            match companions::let_go(&working, &self.disks[failed].directory) {
                Ok(()) => {
                    tracing::info!(%path, "all that was on the failed disk is on others: the node can be started without it")
                }
                Err(error) => tracing::error!(%path, %error, "it cannot be noted that the node can do without a disk"),
            }
        }
    }

    /// Opens a replica of a disk that has failed, empty, on another.
    fn rebuild(&self, handle: Arc<TabletHandle>, copies: &Copies) -> Result<(), KvError> {
        let tablet = handle.tablet;
        copies.abandon(&[tablet]);
        let (sender, receiver) = sync_channel(1);
        self.queues[handle.worker].command(Command::Abandon(tablet, sender));
        self.update_tablets(|tablets| {
            tablets.remove(&tablet);
        });
        drop(handle);
        match receiver.recv() {
            Ok(Some((state, floor))) => self.open_elsewhere(tablet, &state, floor, copies),
            // Closed meanwhile, or the node stops.
            Ok(None) => Ok(()),
            Err(_) => Err(KvError::Storage("the node is stopping".to_owned())),
        }
    }

    /// What must be remembered of replicas that are not open (they have left the node) and that only the failed disk's log knows goes into another's. Of that the
    /// log keeps everything in memory. Returns whether all of it is there now.
    fn keep_memories(&self, failed: usize, open: &[Arc<TabletHandle>]) -> bool {
        let log = &self.disks[failed].log;
        let Some(to) = self.working_disks().next() else { return false };
        let kept = || -> Result<(), StorageError> {
            let mut batch = LogBatch::default();
            let is_open = |group: &GroupId| open.iter().any(|handle| GroupId::from(handle.tablet) == *group);
            for group in log.groups().into_iter().filter(|group| !is_open(group)) {
                if self.installing.lock().contains_key(&TabletId(group.0)) {
                    return Err(StorageError::Corrupt(format!("{group} is being opened")));
                }
                let found = log.recover(group)?;
                let (floor, known) = (found.last_acknowledged(), to.log.recover(group)?.last_acknowledged());
                let is_held = self.working_disks().any(|disk| disk.directory.tablet(group.0).is_dir());
                if !is_held && (floor.1, floor.0) > (known.1, known.0) {
                    batch.retire(group, &found.hard_state, floor)?;
                }
            }
            if batch.is_empty() { Ok(()) } else { to.log.write(&mut batch, true).map(drop) }
        };
        let kept = kept();
        if let Err(error) = &kept {
            tracing::error!(%error, "what must be remembered of replicas that have left cannot be taken from a failed disk");
        }
        kept.is_ok()
    }

    /// Opens a replica, empty and with what it must remember, on a disk that works.
    pub(crate) fn open_elsewhere(
        &self,
        tablet: TabletId,
        state: &diorite_raft::HardState,
        floor: (u64, u64),
        copies: &Copies,
    ) -> Result<(), KvError> {
        let Some(opening) = copies.opening(tablet) else {
            // It has left the node meanwhile; the catalog never does.
            let is_catalog = GroupId::from(tablet) == GroupId::CATALOG;
            let none = || KvError::Storage("the node has not started yet".to_owned());
            return if is_catalog { Err(none()) } else { Ok(()) };
        };
        let mut counts = vec![0; self.disks.len()];
        let disk = &self.disks[self.place(tablet, &mut counts)?];
        let mut batch = LogBatch::default();
        batch.retire(GroupId::from(tablet), state, floor).map_err(storage_error)?;
        disk.log.write(&mut batch, true).map_err(storage_error)?;
        self.open(vec![opening])
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_log_takes_an_eighth_of_a_small_disk_and_not_less_than_it_can_work_with() {
        const MIB: u64 = 1 << 20;
        assert_eq!(log_limit(512 * MIB, 1 << 40), 512 * MIB);
        assert_eq!(log_limit(512 * MIB, 2_048 * MIB), 256 * MIB);
        assert_eq!(log_limit(128 * MIB, 256 * MIB), 64 * MIB);
        assert_eq!(log_limit(4 * MIB, 256 * MIB), 4 * MIB);
    }
}
