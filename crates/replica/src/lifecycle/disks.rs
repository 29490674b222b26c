//! The data disks of a node: where tablets are, what their logs remember, and how full they are.
//!
//! Always true: nothing is written to a disk that has failed; a tablet found on two disks (one had failed and is back)
//! is opened where more was acknowledged, and the other's files are removed.

use crate::group::handle::storage_error;
use crate::lifecycle::openings::OpenTablet;
use crate::progress::LogProgress;
use diorite_base::write::KvError;
use diorite_base::{GroupId, TabletId};
use diorite_raft::{HardState, LogPosition, Recovered, UNKNOWN_FLOOR};
use diorite_storage::{DataDirectory, LOG_FILE_BYTES, LogBatch, LogRecords, RaftLog, StorageError};
use parking_lot::Mutex;
use std::ops::Deref;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

/// One data disk.
pub(crate) struct Disk {
    pub(crate) directory: DataDirectory,
    pub(crate) log: RaftLog,
    /// The progress of the syncs of [`crate::Durability::Interval`].
    pub(crate) sync_progress: LogProgress,
    /// The size of the log, bytes, above which it is truncated even if other members lack entries.
    pub(crate) log_limit_bytes: u64,
    pub(crate) free_bytes: AtomicU64,
    pub(crate) total_bytes: AtomicU64,
    pub(crate) full: AtomicBool,
    /// Whether the disk has failed and its replicas are being rebuilt.
    pub(crate) is_given_up: AtomicBool,
}

/// The share of a disk that its log may take is one in this number: freeing a full disk must be worth something. The
/// log needs a few files, though.
const LOG_SHARE: u64 = 8;
const LEAST_LOG_BYTES: u64 = 4 * LOG_FILE_BYTES;

/// The size that the log may take on a disk of this size, bytes, if it may take `wanted_bytes` on a large one.
fn log_limit(wanted_bytes: u64, disk_bytes: u64) -> u64 {
    wanted_bytes.min((disk_bytes / LOG_SHARE).max(LEAST_LOG_BYTES))
}

/// What the logs of a node's disks remember of a replica.
pub(crate) struct Remembered {
    /// The newest term and vote.
    pub(crate) state: HardState,
    /// The greatest position that it has acknowledged for certain.
    pub(crate) held: LogPosition,
    /// A log of another disk may have lost its end: the replica may have acknowledged more.
    pub(crate) is_in_doubt: bool,
}

/// How far a replica has acknowledged for certain: the end of its log may be lost.
fn known_acknowledged(recovered: &Recovered) -> LogPosition {
    if recovered.floor == UNKNOWN_FLOOR { recovered.last } else { recovered.last_acknowledged() }
}

impl Disk {
    /// Opens the log in a data directory, which may take `log_bytes` on a large disk, and reads how full its disk is.
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
            is_given_up: AtomicBool::new(false),
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

/// The data disks of a node.
pub(crate) struct Disks {
    all: Vec<Disk>,
    /// Data directories that this node was started without, as everything on them is elsewhere.
    pub(crate) missing: Mutex<Vec<String>>,
    /// The log position when the free space was last read.
    space_seen_at: AtomicU64,
}

impl Deref for Disks {
    type Target = [Disk];

    fn deref(&self) -> &[Disk] {
        &self.all
    }
}

impl Disks {
    pub(crate) fn new(all: Vec<Disk>) -> Self {
        Self { all, missing: Mutex::default(), space_seen_at: AtomicU64::new(0) }
    }

    /// The disks that have not failed.
    pub(crate) fn working(&self) -> impl Iterator<Item = &Disk> {
        self.all.iter().filter(|disk| !disk.log.has_failed())
    }

    pub(crate) fn is_working(&self, disk: usize) -> bool {
        !self.all[disk].log.has_failed()
    }

    /// The disk that holds the tablet: if several do, the one on which more was acknowledged; if none does, the one
    /// with the most free space per tablet. A replica that was rebuilt and remembers what its predecessor had
    /// acknowledged ranks below that predecessor, should its disk be back: as much was acknowledged there, and its log
    /// holds the entries. A log that may have lost its end counts as far as it goes.
    pub(crate) fn place(&self, tablet: TabletId, counts: &mut [u64]) -> Result<usize, KvError> {
        let disks = &self.all;
        let working = (0..disks.len()).filter(|disk| self.is_working(*disk));
        let holding = working.clone().filter(|disk| disks[*disk].directory.tablet(tablet.0).is_dir());
        let mut best = None;
        for disk in holding {
            // An error of the log is reported when the replica is opened.
            let recovered = disks[disk].log.recover(GroupId::from(tablet)).unwrap_or_default();
            let rank = [known_acknowledged(&recovered), recovered.last];
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
        self.working().any(|disk| disk.directory.tablet(tablet.0).is_dir())
    }

    /// What a replica that is opened on disk `to`, whose log holds `own` of it, has to remember, of all disks' logs.
    pub(crate) fn remembered(&self, tablet: TabletId, to: usize, own: &Recovered) -> Result<Remembered, KvError> {
        let mut all = Remembered { state: own.hard_state.clone(), held: own.last_acknowledged(), is_in_doubt: false };
        for (_, disk) in self.all.iter().enumerate().filter(|(at, _)| *at != to && self.is_working(*at)) {
            let former = disk.log.recover(GroupId::from(tablet)).map_err(storage_error)?;
            all.held = all.held.max(known_acknowledged(&former));
            all.is_in_doubt |= former.floor == UNKNOWN_FLOOR;
            // A node votes once in a term, so that of one term no two records name different votes.
            let age = |state: &HardState| (state.term, state.vote != 0);
            if age(&former.hard_state) > age(&all.state) {
                (all.state.term, all.state.vote) = (former.hard_state.term, former.hard_state.vote);
            }
        }
        Ok(all)
    }

    /// Removes what other disks remember and hold of tablets that are opened on one disk, where everything is durable
    /// now.
    pub(crate) fn forget_elsewhere(&self, placed: &[(OpenTablet, usize)]) -> Result<(), KvError> {
        for (at, disk) in self.all.iter().enumerate().filter(|(at, _)| self.all.len() > 1 && self.is_working(*at)) {
            let known = disk.log.groups();
            let mut batch = LogBatch::default();
            for tablet in placed.iter().filter(|(_, place)| *place != at).map(|(open, _)| open.tablet) {
                let path = disk.directory.tablet(tablet.0);
                if path.is_dir() {
                    tracing::warn!(%tablet, path = %path.display(), "a tablet was on two disks: the older replica is removed");
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

    /// Whether some log has a record of a tablet. Data of a child tablet without one is incomplete and is not used.
    pub(crate) fn is_logged(&self, tablet: TabletId) -> bool {
        self.working().any(|disk| disk.log.groups().contains(&GroupId::from(tablet)))
    }

    /// Removes the data of a replica that is not open, and its log except for what it must remember.
    pub(crate) fn discard(&self, tablet: TabletId, disk: usize) -> Result<(), StorageError> {
        let (group, disk) = (GroupId::from(tablet), &self.all[disk]);
        let recovered = disk.log.recover(group)?;
        let mut batch = LogBatch::default();
        batch.retire(group, &recovered.hard_state, recovered.last_acknowledged())?;
        disk.log.write(&mut batch, true)?;
        let path = disk.directory.tablet(tablet.0);
        if path.is_dir() {
            let failed = |source| StorageError::Io { action: "cannot remove", path: path.clone(), source };
            std::fs::remove_dir_all(&path).map_err(failed)?;
        }
        Ok(())
    }

    /// Whether a test file can be written to the disk. If not, the disk counts as failed from now on.
    pub(crate) fn still_works(&self, disk: usize) -> bool {
        if self.is_working(disk) && self.all[disk].directory.probe().is_err() {
            self.all[disk].log.give_up();
        }
        self.is_working(disk)
    }

    /// Reads the free space ahead of time if much was written since it was last read: the reserve must not be used up
    /// between two rounds.
    pub(crate) fn watch_space_while_writing(&self, position: u64, reserve_bytes: u64) {
        let seen_at = self.space_seen_at.load(Ordering::Relaxed);
        if position.saturating_sub(seen_at) > reserve_bytes / 16 {
            self.watch_space(position, reserve_bytes);
        }
    }

    /// Refuses writes to a disk that is nearly full, and accepts them again when there is space. `position`: the end of
    /// the log.
    pub(crate) fn watch_space(&self, position: u64, reserve_bytes: u64) {
        self.space_seen_at.store(position, Ordering::Relaxed);
        for disk in &self.all {
            let Ok((free_bytes, total_bytes)) = disk.directory.space_bytes() else { continue };
            disk.free_bytes.store(free_bytes, Ordering::Relaxed);
            disk.total_bytes.store(total_bytes, Ordering::Relaxed);
            let was_full = disk.full.load(Ordering::Relaxed);
            // More than the reserve must be free before writes are accepted again, so that the state does not flap.
            let full = free_bytes < if was_full { reserve_bytes + reserve_bytes / 8 } else { reserve_bytes };
            if full != was_full {
                disk.full.store(full, Ordering::Relaxed);
                let path = disk.directory.path().display();
                tracing::warn!(event = "disk", %path, free_mb = free_bytes >> 20, full, "disk space crossed the reserve");
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use diorite_raft::Entry;
    use tempfile::TempDir;
    use uuid::Uuid;

    const TABLET: TabletId = TabletId(1_000);
    const GROUP: GroupId = GroupId(1_000);

    struct Two {
        disks: Disks,
        home: TempDir,
    }

    impl Two {
        fn new() -> Self {
            let home = tempfile::tempdir().unwrap();
            let open = |name: &str| {
                let mut directory = DataDirectory::open(&home.path().join(name)).unwrap();
                directory.claim(Uuid::from_u128(1), 1, Uuid::from_u128(2), diorite_base::Level::FIRST).unwrap();
                Disk::open(directory, 1 << 30, 0).unwrap()
            };
            let disks = Disks::new(vec![open("a"), open("b")]);
            Self { home, disks }
        }

        /// Makes one of them hold files of the tablet.
        fn with_files(self, disk: &str) -> Self {
            std::fs::create_dir_all(self.home.path().join(disk).join("tablets").join(TABLET.0.to_string())).unwrap();
            self
        }

        /// Writes entries up to an index to a log, the last ones in that term.
        fn with_entries(self, disk: usize, last: LogPosition, state: &HardState) -> Self {
            let entry = |index| Entry { index, term: last.term, ..Entry::default() };
            let entries: Vec<Entry> = (1..=last.index).map(entry).collect();
            self.write(disk, |batch| {
                batch.append(GROUP, &entries, 0).unwrap();
                batch.set_hard_state(GROUP, state).unwrap();
            })
        }

        fn write(self, disk: usize, records: impl FnOnce(&mut LogBatch)) -> Self {
            let mut batch = LogBatch::default();
            records(&mut batch);
            self.disks[disk].log.write(&mut batch, true).unwrap();
            self
        }

        /// The disk on which the tablet is opened, and what it has to remember there.
        fn opened(&self) -> (usize, u64, u64, LogPosition, bool) {
            let disk = self.disks.place(TABLET, &mut [0, 0]).unwrap();
            let own = self.disks[disk].log.recover(GROUP).unwrap();
            let all = self.disks.remembered(TABLET, disk, &own).unwrap();
            (disk, all.state.term, all.state.vote, all.held, all.is_in_doubt)
        }
    }

    fn voted(term: u64, vote: u64) -> HardState {
        HardState { term, vote, ..HardState::default() }
    }

    #[test]
    fn a_disk_that_is_back_with_a_log_in_doubt_does_not_replace_the_replica_made_since() {
        let (first, last) = (LogPosition::new(5, 2), LogPosition::new(9, 4));
        let disks = Two::new().with_files("a").with_entries(0, first, &voted(2, 1));
        let disks = disks.with_files("b").with_entries(1, last, &voted(5, 3));
        let disks = disks.write(0, |batch| batch.set_floor(GROUP, UNKNOWN_FLOOR).unwrap());
        assert_eq!(
            disks.opened(),
            (1, 5, 3, last, true),
            "what was acknowledged last is there; others say whether it is all"
        );
    }

    #[test]
    fn a_replica_whose_log_is_whole_yields_to_its_successor_only_once_that_has_come_further() {
        let first = LogPosition::new(5, 2);
        let disks = Two::new().with_files("a").with_entries(0, first, &voted(2, 1));
        let disks = disks.with_files("b").write(1, |batch| batch.retire(GROUP, &voted(3, 7), first).unwrap());
        assert_eq!(disks.opened(), (0, 3, 7, first, false), "the vote is the successor's");
        let next = LogPosition::new(6, 3);
        let disks = disks.with_entries(1, next, &voted(3, 7));
        assert_eq!(disks.opened(), (1, 3, 7, next, false));
    }

    #[test]
    fn what_a_log_in_doubt_may_have_acknowledged_is_not_forgotten_with_it() {
        // The successor's log was damaged, and lost what it had acknowledged; then the first disk was back.
        let (first, left) = (LogPosition::new(4, 2), LogPosition::new(3, 2));
        let disks = Two::new().with_files("a").with_entries(0, first, &voted(2, 1));
        let disks = disks.with_files("b").with_entries(1, left, &voted(2, 1));
        let disks = disks.write(1, |batch| batch.set_floor(GROUP, UNKNOWN_FLOOR).unwrap());
        assert_eq!(disks.opened(), (0, 2, 1, first, true));
    }

    #[test]
    fn of_one_term_the_record_with_a_vote_counts() {
        let last = LogPosition::new(5, 2);
        let disks = Two::new().with_files("a").with_entries(0, last, &voted(3, 0));
        let disks = disks.write(1, |batch| batch.retire(GROUP, &voted(3, 2), LogPosition::START).unwrap());
        assert_eq!(disks.opened(), (0, 3, 2, last, false));
    }

    #[test]
    fn a_log_takes_an_eighth_of_a_small_disk_and_not_less_than_it_can_work_with() {
        const MIB: u64 = 1 << 20;
        assert_eq!(log_limit(512 * MIB, 1 << 40), 512 * MIB);
        assert_eq!(log_limit(512 * MIB, 2_048 * MIB), 256 * MIB);
        assert_eq!(log_limit(128 * MIB, 256 * MIB), 64 * MIB);
        assert_eq!(log_limit(4 * MIB, 256 * MIB), 4 * MIB);
    }
}
