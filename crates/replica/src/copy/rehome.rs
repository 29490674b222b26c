//! Moves replicas between the node's own disks, so that none fills while another has room: after a disk was added, or as tablets grow unevenly.
//!
//! ```text
//! checkpoint (hard links) ─▶ copy at the copies' rate, again while much has changed        the replica serves
//! let others lead ─▶ let go of the replica ─▶ what has changed since ─▶ its log ─▶ in its place on the other disk ─▶ open
//! ```
//!
//! Always true: one replica at a time; it goes with its log, so that consensus does not notice: nothing is forgotten, and nothing has to come from other nodes. The
//! files and the log on the new disk are complete and durable before those on the old one go; after a crash in between, one of the two is opened and the other
//! removed (`crate::disks`). A move brings the two disks nearer to each other without changing which is the fuller one, so moves end. Left out: the catalog's
//! replica, which is small; evening out the load of disks, of which bytes are taken as the measure; more than one move at a time.

use super::install::wait_until_unused;
use super::send::{Checkpoint, files_of};
use super::staged::is_lasting;
use super::{Copies, LOOK_NS, PIECE_BYTES};
use crate::events::TabletEventKind;
use crate::handle::{Leadership, TabletHandle};
use crate::store::Inner;
use crate::worker::Command;
use ahash::AHashMap;
use diorite_base::{GroupId, TabletId};
use diorite_raft::{HardState, LogReader};
use diorite_storage::{LogBatch, LogRecords, StorageError, run_at_lower_priority};
use parking_lot::{Condvar, Mutex};
use std::collections::{BTreeMap, BTreeSet};
use std::fs::{self, File};
use std::io::{Read, Write};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::sync_channel;
use std::time::Duration;

/// How often the disks are compared.
const PERIOD: Duration = Duration::from_secs(2);
/// How far apart the used shares of two disks are before something is moved.
const UNEVEN: f64 = 0.1;
/// What is smaller than this, or than this share of what would have to move, is not worth it.
const LEAST_BYTES: f64 = (1 << 20) as f64;
const LEAST_SHARE: f64 = 0.01;
/// Passes that are made while the replica serves, at most: each copies only what has changed since the one before.
const PASSES: usize = 4;
/// If a pass has copied no more than this, the next one may be made while the replica does not serve.
const SMALL_PASS_BYTES: u64 = 32 << 20;
/// How often it is looked whether another replica leads, and how many times.
const HAND_OVER_CHECK: Duration = Duration::from_millis(10);
const HAND_OVER_CHECKS: usize = 200;
/// How long a replica is left where it is after a move has failed, nanoseconds.
const PAUSE_NS: u64 = 60_000_000_000;
/// What the directories are called in which files are gathered on the new disk, and taken leave of on the old one. The next start removes both.
const ARRIVING: &str = "arriving";
const LEAVING: &str = "leaving";
/// Log entries are carried over in batches of about this size.
const LOG_BATCH_BYTES: u64 = 4 << 20;

/// What a disk holds.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Usage {
    pub(crate) free_bytes: u64,
    pub(crate) total_bytes: u64,
    /// It has not failed.
    pub(crate) works: bool,
}

impl Usage {
    fn used(&self) -> f64 {
        1.0 - self.free_bytes as f64 / self.total_bytes.max(1) as f64
    }
}

/// The working disks, the fullest first, and the emptiest of them.
fn by_use(disks: &[Usage]) -> Option<(Vec<usize>, usize)> {
    let mut working: Vec<usize> =
        (0..disks.len()).filter(|at| disks[*at].works && disks[*at].total_bytes > 0).collect();
    working.sort_by(|a, b| disks[*b].used().total_cmp(&disks[*a].used()));
    let emptiest = working.pop()?;
    Some((working, emptiest))
}

/// Whether any disk is so much fuller than another that something should move.
fn are_uneven(disks: &[Usage]) -> bool {
    let apart = |(fuller, emptiest): (Vec<usize>, usize)| {
        fuller.first().is_some_and(|fullest| disks[*fullest].used() - disks[emptiest].used() >= UNEVEN)
    };
    by_use(disks).is_some_and(apart)
}

/// The next replica to move, and to which disk. `replicas`: tablet, disk, bytes.
pub(crate) fn choose(
    disks: &[Usage],
    replicas: &[(TabletId, usize, u64)],
    reserve_bytes: u64,
) -> Option<(TabletId, usize)> {
    let (fuller, to) = by_use(disks)?;
    let room_bytes = disks[to].free_bytes.saturating_sub(reserve_bytes);
    for from in fuller {
        let apart = disks[from].used() - disks[to].used();
        if apart < UNEVEN {
            return None;
        }
        // As many bytes as would make the two equal. Of what is no more than that the largest: that takes the fewest moves.
        let even_bytes = apart / (1.0 / disks[from].total_bytes as f64 + 1.0 / disks[to].total_bytes as f64);
        let least_bytes = LEAST_BYTES.max(even_bytes * LEAST_SHARE);
        let fits = |bytes: u64| (least_bytes..=even_bytes).contains(&(bytes as f64)) && bytes <= room_bytes;
        let candidates = replicas.iter().filter(|(_, at, bytes)| *at == from && fits(*bytes));
        if let Some((tablet, ..)) = candidates.max_by_key(|(tablet, _, bytes)| (*bytes, std::cmp::Reverse(*tablet))) {
            return Some((*tablet, to));
        }
    }
    None
}

/// When the thread that moves replicas ends, whether it may move any, and which it is to open again where they are.
#[derive(Default)]
pub(crate) struct DiskMoves {
    closed: Mutex<bool>,
    changed: Condvar,
    is_paused: AtomicBool,
    /// Each at most once.
    renewals: Mutex<BTreeSet<TabletId>>,
}

impl DiskMoves {
    pub(crate) fn close(&self) {
        *self.closed.lock() = true;
        self.changed.notify_all();
    }

    /// A replica's files are to be written in another way from now on.
    pub(crate) fn renew(&self, tablet: TabletId) {
        self.renewals.lock().insert(tablet);
        self.changed.notify_all();
    }

    pub(crate) fn pause(&self, is_paused: bool) {
        self.is_paused.store(is_paused, Ordering::Relaxed);
    }

    /// Waits; false when the store is closing.
    fn wait(&self, period: Duration) -> bool {
        let mut closed = self.closed.lock();
        if !*closed {
            self.changed.wait_for(&mut closed, period);
        }
        !*closed
    }
}

/// Runs until the store closes.
pub(crate) fn run(inner: &Inner, copies: &Copies) {
    run_at_lower_priority();
    let mut failed_ns: AHashMap<TabletId, u64> = AHashMap::default();
    while inner.disk_moves.wait(PERIOD) {
        copies.renew_all();
        let now_ns = inner.context.clock.monotonic_ns();
        failed_ns.retain(|_, failed_ns| now_ns < *failed_ns + PAUSE_NS);
        let Some((tablet, to)) = inner.next_disk_move(&failed_ns) else { continue };
        let path = inner.disks[to].directory.path().display();
        match copies.rehome(tablet, to) {
            Ok(bytes) => tracing::info!(event = "disk", %tablet, %path, bytes, "a replica was moved to another disk"),
            Err(error) => {
                failed_ns.insert(tablet, now_ns);
                tracing::warn!(%tablet, %path, error, "a replica could not be moved to another disk");
            }
        }
    }
}

impl Inner {
    fn next_disk_move(&self, failed_ns: &AHashMap<TabletId, u64>) -> Option<(TabletId, usize)> {
        if self.disks.len() < 2 || self.disk_moves.is_paused.load(Ordering::Relaxed) {
            return None;
        }
        let usage = |disk: &crate::disks::Disk| Usage {
            free_bytes: disk.free_bytes.load(Ordering::Relaxed),
            total_bytes: disk.total_bytes.load(Ordering::Relaxed),
            works: !disk.log.has_failed(),
        };
        let disks: Vec<Usage> = self.disks.iter().map(usage).collect();
        // Before anybody is asked for sizes.
        if !are_uneven(&disks) {
            return None;
        }
        let tablets = self.tablets.load();
        let may_move = |tablet: TabletId| GroupId::from(tablet) != GroupId::CATALOG && !failed_ns.contains_key(&tablet);
        let replicas: Vec<_> = tablets
            .values()
            // One that is or was split goes soon; its children are made where it is.
            .filter(|handle| may_move(handle.tablet) && handle.children_from.load(Ordering::Relaxed) == u64::MAX)
            .filter(|handle| handle.split.load().is_none())
            .map(|handle| (handle.tablet, handle.disk, handle.data.size_bytes()))
            .collect();
        choose(&disks, &replicas, self.options.disk_reserve_bytes)
    }
}

/// Term and vote, and the last entry that may have been acknowledged.
type Memory = (HardState, (u64, u64));

/// A move under way.
struct Move<'a> {
    copies: &'a Copies,
    inner: &'a Inner,
    tablet: TabletId,
    from: usize,
    to: usize,
    /// Where its files are gathered.
    directory: PathBuf,
    /// The files that are there and never change, with their sizes.
    held: BTreeMap<String, u64>,
    /// Bytes copied so far.
    bytes: u64,
}

impl Copies {
    /// Moves a replica of this node to another of its disks. Returns the bytes that were copied.
    pub(crate) fn rehome(&self, tablet: TabletId, to: usize) -> Result<u64, String> {
        let inner = &*self.inner;
        let from = inner.tablets.load().get(&tablet).map(|handle| handle.disk).ok_or("the replica is gone")?;
        if from == to || self.receiving.lock().is_staging(tablet) {
            return Err("it is there already, or a copy is about to take its place".to_owned());
        }
        let directory = inner.disks[to].directory.staged(tablet.0, ARRIVING);
        let mut moving = Move { copies: self, inner, tablet, from, to, directory, held: BTreeMap::new(), bytes: 0 };
        let moved = moving.gather().and_then(|()| moving.switch());
        // After the move it is gone.
        let _ = fs::remove_dir_all(&moving.directory);
        moved?;
        let path = inner.disks[to].directory.path().display().to_string();
        inner.context.note(tablet, TabletEventKind::MovedToDisk { path, bytes: moving.bytes });
        inner.context.counters.moved_to_disk(moving.bytes);
        Ok(moving.bytes)
    }
}

impl Copies {
    /// Opens the replicas again whose tables have other options now.
    fn renew_all(&self) {
        let mut again = Vec::new();
        loop {
            let Some(tablet) = self.inner.disk_moves.renewals.lock().pop_first() else { break };
            match self.renew(tablet) {
                Ok(true) => self.inner.context.note(tablet, TabletEventKind::Renewed),
                Ok(false) => {}
                // It may be on its way, opened with what was said before.
                Err(_) if self.opening(tablet).is_some() && !self.inner.tablets.load().contains_key(&tablet) => {
                    again.push(tablet)
                }
                Err(error) => {
                    tracing::warn!(%tablet, error, "a replica could not be opened with the options of its table")
                }
            }
        }
        self.inner.disk_moves.renewals.lock().extend(again);
    }

    /// Opens a replica again where it is, with what its table's options say now. Others lead meanwhile, if there are any. Whether that was needed.
    pub(crate) fn renew(&self, tablet: TabletId) -> Result<bool, String> {
        let handle = self.inner.tablets.load().get(&tablet).cloned().ok_or("the replica is gone")?;
        let wanted = self.opening(tablet).ok_or("the replica is gone")?.options;
        if *handle.data().options() == wanted {
            return Ok(false);
        }
        // What is left to be flushed or replayed while it does not serve is little then.
        handle.data().flush(true).map_err(|error| error.to_string())?;
        let (inner, at) = (&*self.inner, handle.disk);
        drop(handle);
        let directory = PathBuf::new();
        Move { copies: self, inner, tablet, from: at, to: at, directory, held: BTreeMap::new(), bytes: 0 }.reopened(
            |_, handle, _| {
                let in_use = handle.data().in_use();
                handle.data().flush(true).map_err(|error| error.to_string())?;
                drop(handle);
                if wait_until_unused(&in_use) { Ok(()) } else { Err("somebody still reads the old data".to_owned()) }
            },
        )?;
        Ok(true)
    }
}

impl Move<'_> {
    /// Copies the files while the replica serves, until little has changed in between.
    fn gather(&mut self) -> Result<(), String> {
        // What an attempt before has left.
        let _ = fs::remove_dir_all(&self.directory);
        fs::create_dir_all(&self.directory).map_err(|error| format!("cannot stage its files: {error}"))?;
        for _ in 0..PASSES {
            if self.pass(true)? <= SMALL_PASS_BYTES {
                return Ok(());
            }
        }
        Err("it changes faster than it can be copied".to_owned())
    }

    /// Copies what has changed since the last pass; returns how many bytes.
    fn pass(&mut self, is_paced: bool) -> Result<u64, String> {
        let data = {
            let handle = self.inner.tablets.load().get(&self.tablet).cloned();
            handle.map(|handle| Arc::clone(handle.data())).ok_or("the replica is gone")?
        };
        let (checkpoint, files) = self.checkpoint(&data)?;
        // Nobody must have to wait for this copy to open the tablet's files anew.
        drop(data);
        let copied = self.copy(&files, is_paced);
        drop(checkpoint);
        copied
    }

    #[allow(clippy::type_complexity, reason = "the list is what `files_of` says")]
    fn checkpoint(&self, data: &diorite_storage::Tablet) -> Result<(Checkpoint, Vec<(String, PathBuf, u64)>), String> {
        let directory = self.inner.disks[self.from].directory.staged(self.tablet.0, LEAVING);
        let checkpoint = Checkpoint { directory };
        data.checkpoint(&checkpoint.directory).map_err(|error| error.to_string())?;
        let files = files_of(&checkpoint.directory).map_err(|error| error.to_string())?;
        Ok((checkpoint, files))
    }

    fn copy(&mut self, files: &[(String, PathBuf, u64)], is_paced: bool) -> Result<u64, String> {
        let is_held = |held: &BTreeMap<String, u64>, name: &String, size| held.get(name) == Some(size);
        let missing: u64 =
            files.iter().filter(|(name, _, size)| !is_held(&self.held, name, size)).map(|(_, _, size)| size).sum();
        let free_bytes = self.inner.disks[self.to].free_bytes.load(Ordering::Relaxed);
        if free_bytes < missing.saturating_add(self.inner.options.disk_reserve_bytes) {
            return Err(format!("{missing} bytes do not fit on the disk"));
        }
        let failed = |error: std::io::Error| format!("cannot copy its files: {error}");
        for entry in fs::read_dir(&self.directory).map_err(failed)? {
            let name = entry.map_err(failed)?.file_name();
            if !files.iter().any(|(wanted, ..)| name == wanted.as_str()) {
                fs::remove_file(self.directory.join(&name)).map_err(failed)?;
            }
        }
        for (name, path, size) in files {
            if is_held(&self.held, name, size) {
                continue;
            }
            self.copy_file(name, path, is_paced)?;
            if is_lasting(name) {
                self.held.insert(name.clone(), *size);
            }
        }
        File::open(&self.directory).and_then(|directory| directory.sync_all()).map_err(failed)?;
        self.bytes += missing;
        Ok(missing)
    }

    fn copy_file(&self, name: &str, path: &Path, is_paced: bool) -> Result<(), String> {
        let failed = |error: std::io::Error| format!("cannot copy {name}: {error}");
        let mut source = File::open(path).map_err(failed)?;
        let mut copy = File::create(self.directory.join(name)).map_err(failed)?;
        let mut piece = vec![0; PIECE_BYTES];
        loop {
            let count = source.read(&mut piece).map_err(failed)?;
            if count == 0 {
                return copy.sync_all().map_err(failed);
            }
            if is_paced {
                self.wait_for_pace(count as u64)?;
            }
            copy.write_all(&piece[..count]).map_err(failed)?;
        }
    }

    /// What is read here counts like what is sent, what is written like what is received.
    fn wait_for_pace(&self, bytes: u64) -> Result<(), String> {
        for pace in [&self.copies.pace_out, &self.copies.pace_in] {
            loop {
                let asked = pace.lock().ask(bytes, self.copies.now_ns());
                let Err(wait_ns) = asked else { break };
                if !self.inner.disk_moves.wait(Duration::from_nanos(wait_ns.min(LOOK_NS))) {
                    return Err("the node is stopping".to_owned());
                }
            }
        }
        if self.inner.tablets.load().contains_key(&self.tablet) {
            Ok(())
        } else {
            Err("the replica is gone".to_owned())
        }
    }

    /// Lets another replica lead, if there is one: its writers do not notice then that this one is away for a moment.
    fn hand_over(&self) {
        for check in 0..HAND_OVER_CHECKS {
            let Some(handle) = self.inner.tablets.load().get(&self.tablet).cloned() else { return };
            if handle.voters.load().len() < 2 {
                return;
            }
            match handle.leadership() {
                Leadership::Elsewhere(_) => return,
                Leadership::Here if check == 0 => {
                    self.inner.queues[handle.worker].command(Command::Yield(self.tablet));
                }
                Leadership::Here | Leadership::Unknown => {}
            }
            drop(handle);
            if !self.inner.disk_moves.wait(HAND_OVER_CHECK) {
                return;
            }
        }
    }

    /// Lets go of the replica and opens it on the other disk; where it was, if that fails.
    fn switch(&mut self) -> Result<(), String> {
        self.reopened(Self::carry_over)
    }

    /// Closes the replica, does what can only be done then, and opens it again.
    fn reopened(
        &mut self,
        meanwhile: impl FnOnce(&mut Self, Arc<TabletHandle>, &Memory) -> Result<(), String>,
    ) -> Result<(), String> {
        self.hand_over();
        self.inner.installing.begin(&[self.tablet]);
        let here = self.inner.tablets.load().get(&self.tablet).cloned();
        let Some(handle) = here.filter(|handle| handle.disk == self.from) else {
            self.inner.close(&self.inner.installing.end(&[self.tablet]));
            return Err("the replica is gone".to_owned());
        };
        let (sender, receiver) = sync_channel(1);
        self.inner.queues[handle.worker].command(Command::Vacate(self.tablet, sender));
        let memory = receiver.recv();
        self.inner.update_tablets(|tablets| {
            tablets.remove(&self.tablet);
        });
        let Ok(Some(memory)) = memory else {
            let _ = self.inner.installing.end(&[self.tablet]);
            return Err("the node is stopping".to_owned());
        };
        let moved = meanwhile(self, handle, &memory);
        self.open_again(&memory, moved)
    }

    /// Brings what is left of the files, and the log, to the other disk, and puts the files in their place.
    fn carry_over(&mut self, handle: Arc<TabletHandle>, memory: &Memory) -> Result<(), String> {
        let (checkpoint, files) = self.checkpoint(handle.data())?;
        self.copy(&files, false)?;
        drop(checkpoint);
        let in_use = handle.data().in_use();
        drop(handle);
        if !wait_until_unused(&in_use) {
            return Err("somebody still reads the old data".to_owned());
        }
        self.carry_log(memory).map_err(|error| error.to_string())?;
        let (old, new) = (&self.inner.disks[self.from], &self.inner.disks[self.to]);
        new.directory.install(self.tablet.0, &self.directory).map_err(|error| error.to_string())?;
        // It lives there from now on. The old files go as a whole or not at all: what is left of them must not be taken for a tablet.
        let (place, aside) = (old.directory.tablet(self.tablet.0), old.directory.staged(self.tablet.0, LEAVING));
        match fs::rename(&place, &aside) {
            // What cannot be removed now goes at the next start.
            Ok(()) => drop(fs::remove_dir_all(&aside)),
            Err(error) => {
                tracing::error!(path = %place.display(), %error, "files that were moved cannot be removed: the disk has failed");
                old.log.give_up();
            }
        }
        Ok(())
    }

    /// The log on the new disk becomes what it is on the old one, durably.
    fn carry_log(&self, memory: &Memory) -> Result<(), StorageError> {
        let group = GroupId::from(self.tablet);
        let (old, new) = (&self.inner.disks[self.from].log, &self.inner.disks[self.to].log);
        let found = old.recover(group)?;
        let mut batch = LogBatch::default();
        batch.retire(group, &memory.0, found.floor)?;
        batch.set_conf_state(group, &found.conf_state)?;
        if found.truncated.0 > 0 {
            batch.truncate_to(group, found.truncated.0, found.truncated.1, found.truncated == found.last)?;
        }
        new.write(&mut batch, true)?;
        let (reader, mut next) = (old.reader(group), found.truncated.0 + 1);
        while next <= found.last.0 {
            let entries = reader.entries(next, found.last.0 + 1, LOG_BATCH_BYTES).map_err(StorageError::Corrupt)?;
            let last = entries.last().ok_or_else(|| StorageError::Corrupt(format!("{group} lacks entry {next}")))?;
            next = last.index + 1;
            batch.append(group, &entries, 0)?;
            new.write(&mut batch, next > found.last.0)?;
        }
        Ok(())
    }

    /// Opens the replica, wherever it is now.
    fn open_again(&self, memory: &Memory, moved: Result<(), String>) -> Result<(), String> {
        let (inner, tablet) = (self.inner, self.tablet);
        if inner.installing.lock().get(&tablet).copied().unwrap_or(false) {
            // Whoever closed it must not find it open, nor any of it left. An open that waits goes on after that.
            let discarded = inner.discard(tablet, if moved.is_ok() { self.to } else { self.from });
            let _ = inner.installing.end(&[tablet]);
            discarded.map_err(|error| error.to_string())?;
            return Err("the replica was closed meanwhile".to_owned());
        }
        let opened = if moved.is_ok() || inner.still_works(self.from) {
            self.copies.reopen(tablet)
        } else {
            let elsewhere = inner.open_elsewhere(tablet, &memory.0, memory.1, self.copies);
            elsewhere.map_err(|error| error.to_string())
        };
        let was_closed = inner.installing.end(&[tablet]);
        if !was_closed.is_empty() {
            inner.close(&was_closed);
            return Err("the replica was closed meanwhile".to_owned());
        }
        opened?;
        moved
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const GB: u64 = 1 << 30;

    fn disk(free_gb: u64, total_gb: u64) -> Usage {
        Usage { free_bytes: free_gb * GB, total_bytes: total_gb * GB, works: true }
    }

    fn replica(id: u64, at: usize, gb: u64) -> (TabletId, usize, u64) {
        (TabletId(id), at, gb * GB)
    }

    /// Carries out what is chosen until nothing is; returns the tablets that moved.
    fn settle(disks: &mut [Usage], replicas: &mut [(TabletId, usize, u64)]) -> Vec<u64> {
        let mut moved = Vec::new();
        while let Some((tablet, to)) = choose(disks, replicas, GB) {
            assert!(moved.len() < 100, "moves end");
            let (_, at, bytes) = replicas.iter_mut().find(|(id, ..)| *id == tablet).expect("one of them");
            disks[*at].free_bytes += *bytes;
            disks[to].free_bytes -= *bytes;
            *at = to;
            moved.push(tablet.0);
        }
        moved
    }

    #[test]
    fn an_added_disk_takes_its_share_in_the_fewest_moves() {
        let mut disks = [disk(20, 100), disk(200, 200)];
        let mut replicas: Vec<_> = (0..8).map(|id| replica(id, 0, 10)).collect();
        assert_eq!(settle(&mut disks, &mut replicas), [0, 1, 2, 3, 4]);
        // 30 of 100 and 50 of 200: the rest would change which of them is the fuller one.
        assert!((disks[0].used() - disks[1].used()).abs() < UNEVEN);
    }

    #[test]
    fn what_is_even_enough_or_too_big_to_help_stays() {
        assert_eq!(choose(&[disk(50, 100), disk(59, 100)], &[replica(1, 0, 4)], GB), None);
        // The one tablet would only make the other disk the full one.
        assert_eq!(choose(&[disk(40, 100), disk(100, 100)], &[replica(1, 0, 60)], GB), None);
        // Nothing of ours on the full disk, and crumbs.
        assert_eq!(choose(&[disk(10, 100), disk(90, 100)], &[(TabletId(1), 0, 4_096), replica(2, 1, 5)], GB), None);
        assert_eq!(choose(&[disk(10, 100)], &[replica(1, 0, 4)], GB), None);
    }

    #[test]
    fn a_failed_disk_and_one_without_room_take_no_part() {
        let failed = Usage { works: false, ..disk(100, 100) };
        assert_eq!(choose(&[disk(10, 100), failed], &[replica(1, 0, 4)], GB), None);
        assert_eq!(choose(&[disk(0, 10), disk(3, 10)], &[replica(1, 0, 1)], 3 * GB), None);
    }

    #[test]
    fn the_next_fullest_disk_is_relieved_where_the_fullest_holds_nothing_that_can_move() {
        let disks = [disk(1, 100), disk(20, 100), disk(90, 100)];
        assert_eq!(choose(&disks, &[replica(7, 1, 5), replica(8, 1, 6)], GB), Some((TabletId(8), 2)));
    }
}
