//! Moves replicas between the node's own disks, so that no disk fills while another has space: after a disk was added,
//! or as tablets grow unevenly.
//!
//! ```text
//! checkpoint (hard links) ─▶ copy at the copies' rate, again while much has changed        the replica serves
//! let others lead ─▶ detach the replica ─▶ what has changed since ─▶ its log ─▶ in its place on the other disk ─▶ open
//! ```
//!
//! Always true: one replica moves at a time. It moves with its log, so that consensus is not involved: nothing is
//! forgotten, and nothing is sent by other nodes. The files and the log on the new disk are complete and durable before
//! those on the old one are removed; after a crash in between, one of the two is opened and the other removed
//! (`crate::disks`). A move brings the two disks nearer to each other without changing which is fuller, so moves end.
//! Left out: the catalog's replica, which is small; balancing the load of disks, for which bytes are the measure;
//! several moves at a time.

use super::checkpoint::{Checkpoint, CopiedFile, files_of};
use super::copies::{Copies, LOOK_NS, PIECE_BYTES};
use super::error::CopyError;
use super::install::{discard_closed, reopen};
use super::staged::is_lasting;
use crate::events::TabletEventKind;
use crate::group::handle::{Leadership, TabletHandle};
use crate::group::memory::Memory;
use crate::lifecycle::command::Command;
use crate::lifecycle::disk_balance::{Replica, Usage, are_uneven, choose};
use crate::lifecycle::disks::Disk;
use crate::lifecycle::installing::wait_until_unused;
use crate::lifecycle::replicas::NodeReplicas;
use ahash::AHashMap;
use diorite_base::{GroupId, TabletId};
use diorite_raft::LogReader;
use diorite_storage::{LogBatch, LogRecords, StorageError, Tablet, run_at_lower_priority};
use std::collections::BTreeMap;
use std::fs::{self, File};
use std::io::{Read, Write};
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::sync::mpsc::sync_channel;
use std::time::Duration;

/// How often the disks are compared.
const PERIOD: Duration = Duration::from_secs(2);
/// The most passes while the replica serves: each copies only what has changed since the one before.
const PASSES: usize = 4;
/// If a pass has copied at most this much, the next one is made while the replica does not serve.
const SMALL_PASS_BYTES: u64 = 32 << 20;
/// How often to check whether another replica leads, and how many times.
const STEP_DOWN_CHECK: Duration = Duration::from_millis(10);
const STEP_DOWN_CHECKS: usize = 200;
/// How long after a failed move the replica stays where it is, nanoseconds.
const PAUSE_NS: u64 = 60_000_000_000;
/// The purposes of the directories in which files are gathered on the new disk, and wait to be removed on the old one.
/// The next start removes both.
const ARRIVING: &str = "arriving";
const LEAVING: &str = "leaving";
/// Log entries are copied in batches of about this size.
const LOG_BATCH_BYTES: u64 = 4 << 20;

/// Moves replicas until the store closes.
pub(crate) fn run(replicas: &NodeReplicas, copies: &Copies) {
    run_at_lower_priority();
    let mut failed_ns: AHashMap<TabletId, u64> = AHashMap::default();
    while replicas.disk_moves.wait(PERIOD) {
        renew_all(copies);
        let now_ns = replicas.context.clock.monotonic_ns();
        failed_ns.retain(|_, failed_ns| now_ns < *failed_ns + PAUSE_NS);
        let Some((tablet, to)) = next_move(replicas, &failed_ns) else { continue };
        let path = replicas.disks[to].directory.path().display();
        match rehome(copies, tablet, to) {
            Ok(bytes) => tracing::info!(event = "disk", %tablet, %path, bytes, "a replica was moved to another disk"),
            Err(error) => {
                failed_ns.insert(tablet, now_ns);
                tracing::warn!(%tablet, %path, %error, "a replica could not be moved to another disk");
            }
        }
    }
}

fn next_move(replicas: &NodeReplicas, failed_ns: &AHashMap<TabletId, u64>) -> Option<(TabletId, usize)> {
    if replicas.disks.len() < 2 || replicas.disk_moves.is_paused() {
        return None;
    }
    let usage = |disk: &Disk| Usage {
        free_bytes: disk.free_bytes.load(Ordering::Relaxed),
        total_bytes: disk.total_bytes.load(Ordering::Relaxed),
        works: !disk.log.has_failed(),
    };
    let disks: Vec<Usage> = replicas.disks.iter().map(usage).collect();
    // Checked before the sizes of replicas are read.
    if !are_uneven(&disks) {
        return None;
    }
    let tablets = replicas.tablets.load();
    let may_move = |tablet: TabletId| GroupId::from(tablet) != GroupId::CATALOG && !failed_ns.contains_key(&tablet);
    let candidates: Vec<_> = tablets
        .values()
        // A tablet that is or was split is removed soon; its children are made where it is.
        .filter(|handle| may_move(handle.id()) && handle.children.from.load(Ordering::Relaxed) == u64::MAX)
        .filter(|handle| handle.children.split.load().is_none())
        .map(|handle| Replica { tablet: handle.id(), disk: handle.disk(), bytes: handle.data.size_bytes() })
        .collect();
    choose(&disks, &candidates, replicas.options.disk_reserve_bytes)
}

/// A move under way.
struct Move<'a> {
    copies: &'a Copies,
    replicas: &'a NodeReplicas,
    tablet: TabletId,
    from: usize,
    to: usize,
    /// The directory in which its files are gathered.
    directory: PathBuf,
    /// The files that are copied and never change, with their sizes.
    held: BTreeMap<String, u64>,
    /// Bytes copied so far.
    bytes: u64,
}

/// Moves a replica of this node to another of its disks. Returns the bytes that were copied.
pub(crate) fn rehome(copies: &Copies, tablet: TabletId, to: usize) -> Result<u64, CopyError> {
    let replicas = &*copies.replicas;
    let from = replicas.handle(tablet).map(|handle| handle.disk()).ok_or(CopyError::NoReplica)?;
    if from == to || copies.receiving.lock().is_staging(tablet) {
        return Err(CopyError::Busy("it is there already, or a copy is about to take its place"));
    }
    let directory = replicas.disks[to].directory.staged(tablet.0, ARRIVING);
    let mut moving = Move { copies, replicas, tablet, from, to, directory, held: BTreeMap::new(), bytes: 0 };
    let moved = moving.gather().and_then(|()| moving.switch());
    // After the move the directory does not exist.
    let _ = fs::remove_dir_all(&moving.directory);
    moved?;
    let path = replicas.disks[to].directory.path().display().to_string();
    replicas.context.note(tablet, TabletEventKind::MovedToDisk { path, bytes: moving.bytes });
    replicas.context.counters.moved_to_disk(moving.bytes);
    Ok(moving.bytes)
}

/// Opens the replicas again whose tables have other options now.
fn renew_all(copies: &Copies) {
    let replicas = &*copies.replicas;
    let mut again = Vec::new();
    while let Some(tablet) = replicas.disk_moves.next_renewal() {
        match renew(copies, tablet) {
            Ok(true) => replicas.context.note(tablet, TabletEventKind::Renewed),
            Ok(false) => {}
            // It may be being opened, with the former options.
            Err(_) if replicas.opening(tablet).is_some() && replicas.handle(tablet).is_none() => again.push(tablet),
            Err(error) => {
                tracing::warn!(%tablet, %error, "a replica could not be opened with the options of its table");
            }
        }
    }
    replicas.disk_moves.renew_later(again);
}

/// Opens a replica again where it is, with the present options of its table. Other replicas lead meanwhile, if there
/// are any. Returns whether that was needed.
pub(crate) fn renew(copies: &Copies, tablet: TabletId) -> Result<bool, CopyError> {
    let replicas = &*copies.replicas;
    let handle = replicas.handle(tablet).ok_or(CopyError::NoReplica)?;
    let wanted = replicas.opening(tablet).ok_or(CopyError::NoReplica)?.options;
    if *handle.data().options() == wanted {
        return Ok(false);
    }
    // Leaves little to flush or replay while it does not serve.
    handle.data().flush(true)?;
    let at = handle.disk();
    drop(handle);
    let directory = PathBuf::new();
    let mut renewed = Move { copies, replicas, tablet, from: at, to: at, directory, held: BTreeMap::new(), bytes: 0 };
    renewed.reopened(|_, handle, _| {
        let in_use = handle.data().in_use();
        handle.data().flush(true)?;
        drop(handle);
        if wait_until_unused(&in_use) { Ok(()) } else { Err(CopyError::InUse) }
    })?;
    Ok(true)
}

impl Move<'_> {
    /// Copies the files while the replica serves, until little has changed in between.
    fn gather(&mut self) -> Result<(), CopyError> {
        // The files of an earlier attempt.
        let _ = fs::remove_dir_all(&self.directory);
        fs::create_dir_all(&self.directory).map_err(CopyError::io("stage its files"))?;
        for _ in 0..PASSES {
            if self.pass(true)? <= SMALL_PASS_BYTES {
                return Ok(());
            }
        }
        Err(CopyError::Outdated("it changes faster than it can be copied"))
    }

    /// Copies what has changed since the last pass; returns how many bytes.
    fn pass(&mut self, is_limited: bool) -> Result<u64, CopyError> {
        let handle = self.replicas.handle(self.tablet).ok_or(CopyError::NoReplica)?;
        let data = Arc::clone(handle.data());
        drop(handle);
        let (checkpoint, files) = self.checkpoint(&data)?;
        // Dropped, so that opening the tablet's files does not have to wait for this copy.
        drop(data);
        let copied = self.copy(&files, is_limited);
        drop(checkpoint);
        copied
    }

    fn checkpoint(&self, data: &Tablet) -> Result<(Checkpoint, Vec<CopiedFile>), CopyError> {
        let directory = self.replicas.disks[self.from].directory.staged(self.tablet.0, LEAVING);
        let checkpoint = Checkpoint { directory };
        data.checkpoint(&checkpoint.directory)?;
        let files = files_of(&checkpoint.directory).map_err(CopyError::io("list the files of a checkpoint"))?;
        Ok((checkpoint, files))
    }

    fn copy(&mut self, files: &[CopiedFile], is_limited: bool) -> Result<u64, CopyError> {
        let is_held = |held: &BTreeMap<String, u64>, file: &CopiedFile| held.get(&file.name) == Some(&file.size);
        let missing: u64 = files.iter().filter(|file| !is_held(&self.held, file)).map(|file| file.size).sum();
        let free_bytes = self.replicas.disks[self.to].free_bytes.load(Ordering::Relaxed);
        if free_bytes < missing.saturating_add(self.replicas.options.disk_reserve_bytes) {
            return Err(CopyError::NoSpace(missing));
        }
        let failed = || CopyError::io("copy its files");
        for entry in fs::read_dir(&self.directory).map_err(failed())? {
            let name = entry.map_err(failed())?.file_name();
            if !files.iter().any(|wanted| name == wanted.name.as_str()) {
                fs::remove_file(self.directory.join(&name)).map_err(failed())?;
            }
        }
        for file in files {
            if is_held(&self.held, file) {
                continue;
            }
            self.copy_file(file, is_limited)?;
            if is_lasting(&file.name) {
                self.held.insert(file.name.clone(), file.size);
            }
        }
        File::open(&self.directory).and_then(|directory| directory.sync_all()).map_err(failed())?;
        self.bytes += missing;
        Ok(missing)
    }

    fn copy_file(&self, file: &CopiedFile, is_limited: bool) -> Result<(), CopyError> {
        let failed = || CopyError::io(format!("copy {}", file.name));
        let mut source = File::open(&file.path).map_err(failed())?;
        let mut copy = File::create(self.directory.join(&file.name)).map_err(failed())?;
        let mut piece = vec![0; PIECE_BYTES];
        loop {
            let count = source.read(&mut piece).map_err(failed())?;
            if count == 0 {
                return copy.sync_all().map_err(failed());
            }
            if is_limited {
                self.wait_for_rate(count as u64)?;
            }
            copy.write_all(&piece[..count]).map_err(failed())?;
        }
    }

    /// Reads count towards the sending rate limit, writes towards the receiving one.
    fn wait_for_rate(&self, bytes: u64) -> Result<(), CopyError> {
        for limit in [&self.copies.limit_out, &self.copies.limit_in] {
            loop {
                let asked = limit.lock().ask(bytes, self.copies.now_ns());
                let Err(wait_ns) = asked else { break };
                if !self.replicas.disk_moves.wait(Duration::from_nanos(wait_ns.min(LOOK_NS))) {
                    return Err(CopyError::Stopping);
                }
            }
        }
        if self.replicas.tablets.load().contains_key(&self.tablet) { Ok(()) } else { Err(CopyError::NoReplica) }
    }

    /// Steps down, if another replica can lead, so that writers are not affected while this one is closed.
    fn step_down(&self) {
        for check in 0..STEP_DOWN_CHECKS {
            let Some(handle) = self.replicas.handle(self.tablet) else { return };
            if handle.roles.voters.load().len() < 2 {
                return;
            }
            match handle.leadership() {
                Leadership::Elsewhere(_) => return,
                Leadership::Here if check == 0 => {
                    self.replicas.command(&handle, Command::StepDown(self.tablet));
                }
                Leadership::Here | Leadership::Unknown => {}
            }
            drop(handle);
            if !self.replicas.disk_moves.wait(STEP_DOWN_CHECK) {
                return;
            }
        }
    }

    /// Detaches the replica and opens it on the other disk, or, if that fails, where it was.
    fn switch(&mut self) -> Result<(), CopyError> {
        self.reopened(Self::carry_over)
    }

    /// Detaches the replica, runs `while_detached`, and opens it again.
    fn reopened(
        &mut self,
        while_detached: impl FnOnce(&mut Self, Arc<TabletHandle>, &Memory) -> Result<(), CopyError>,
    ) -> Result<(), CopyError> {
        self.step_down();
        self.replicas.installing.begin(&[self.tablet]);
        let here = self.replicas.handle(self.tablet);
        let Some(handle) = here.filter(|handle| handle.disk() == self.from) else {
            self.replicas.close(&self.replicas.installing.end(&[self.tablet]));
            return Err(CopyError::NoReplica);
        };
        let (sender, receiver) = sync_channel(1);
        self.replicas.command(&handle, Command::DetachForMove(self.tablet, sender));
        let memory = receiver.recv();
        self.replicas.update_tablets(|tablets| {
            tablets.remove(&self.tablet);
        });
        let Ok(Some(memory)) = memory else {
            let _ = self.replicas.installing.end(&[self.tablet]);
            return Err(CopyError::Stopping);
        };
        let moved = while_detached(self, handle, &memory);
        self.open_again(&memory, moved)
    }

    /// Copies the rest of the files and the log to the other disk, and installs the files there.
    fn carry_over(&mut self, handle: Arc<TabletHandle>, memory: &Memory) -> Result<(), CopyError> {
        let (checkpoint, files) = self.checkpoint(handle.data())?;
        self.copy(&files, false)?;
        drop(checkpoint);
        let in_use = handle.data().in_use();
        drop(handle);
        if !wait_until_unused(&in_use) {
            return Err(CopyError::InUse);
        }
        self.carry_log(memory)?;
        let (old, new) = (&self.replicas.disks[self.from], &self.replicas.disks[self.to]);
        new.directory.install(self.tablet.0, &self.directory)?;
        // The replica lives on the new disk from now on. The old directory is renamed first, so that a partly removed
        // one is not taken for a tablet.
        let (place, aside) = (old.directory.tablet(self.tablet.0), old.directory.staged(self.tablet.0, LEAVING));
        match fs::rename(&place, &aside) {
            // What cannot be removed now is removed at the next start.
            Ok(()) => drop(fs::remove_dir_all(&aside)),
            Err(error) => {
                tracing::error!(path = %place.display(), %error, "files that were moved cannot be removed: the disk has failed");
                old.log.give_up();
            }
        }
        Ok(())
    }

    /// Makes the log on the new disk equal to that on the old one, durably.
    fn carry_log(&self, memory: &Memory) -> Result<(), StorageError> {
        let group = GroupId::from(self.tablet);
        let (old, new) = (&self.replicas.disks[self.from].log, &self.replicas.disks[self.to].log);
        let found = old.recover(group)?;
        let mut batch = LogBatch::default();
        batch.retire(group, &memory.0, found.floor)?;
        // The replica keeps its log, so its floor is not that of a replica without one.
        batch.set_floor(group, found.floor)?;
        batch.set_conf_state(group, &found.conf_state)?;
        if found.truncated.index > 0 {
            batch.truncate_to(group, found.truncated.index, found.truncated.term, found.truncated == found.last)?;
        }
        new.write(&mut batch, true)?;
        let (reader, mut next) = (old.reader(group), found.truncated.index + 1);
        while next <= found.last.index {
            let entries = reader.entries(next, found.last.index + 1, LOG_BATCH_BYTES)?;
            let last = entries.last().ok_or_else(|| StorageError::Corrupt(format!("{group} lacks entry {next}")))?;
            next = last.index + 1;
            batch.append(group, &entries, 0)?;
            new.write(&mut batch, next > found.last.index)?;
        }
        Ok(())
    }

    /// Opens the replica on the disk where it is now.
    fn open_again(&self, memory: &Memory, moved: Result<(), CopyError>) -> Result<(), CopyError> {
        let (replicas, tablet) = (self.replicas, self.tablet);
        if replicas.installing.is_closed(tablet) {
            return discard_closed(replicas, tablet, if moved.is_ok() { self.to } else { self.from });
        }
        let opened = if moved.is_ok() || replicas.disks.still_works(self.from) {
            reopen(replicas, tablet)
        } else {
            replicas.open_elsewhere(tablet, &memory.0, memory.1).map_err(CopyError::from)
        };
        let was_closed = replicas.installing.end(&[tablet]);
        if !was_closed.is_empty() {
            replicas.close(&was_closed);
            return Err(CopyError::Closed);
        }
        opened?;
        moved
    }
}
