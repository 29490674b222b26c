//! Replicas that cannot be used: they are set aside, each with its reason, while the node serves all others.
//!
//! ```text
//! cannot be opened, or its log
//! has lost what was durable ─────┐
//! cannot apply an entry ─────────┤             damaged, and a leader elsewhere is past it ─▶ files aside, empty replica with what it must remember ─▶ whole: files go
//! damage found by a read, a      ├─▶ set aside
//! compaction, a scrub ───────────┤             anything else that may pass (space, descriptors) ─▶ opened again after a while
//! contradicted by its leader ────┘
//! ```
//!
//! Always true: a replica is rebuilt only once a node answers that leads the tablet under a lease and has applied more
//! than this one could, so that replicas which all fail at the same entry all stay as they are (a replica that its
//! leader contradicts is rebuilt whatever that leader has applied). Its former files stay on the disk until it is
//! complete again. It neither votes nor counts for a lease until it holds what it has acknowledged
//! (`diorite_raft::Recovered::floor`). If the only replica of a tablet is damaged, it continues to serve the data that
//! can be read, as it cannot be rebuilt. If its log is damaged, though, it serves nothing until an operator accepts the
//! loss ([`crate::StoreOptions::accept_lost_log`]), as acknowledged entries may be missing. Failed disks are handled
//! elsewhere (`disks`).

use crate::group::handle::{TabletHandle, storage_error};
use crate::group::memory::Memory;
use crate::lifecycle::asides::{Cause, LOOK_NS, again_ns};
use crate::lifecycle::command::Command;
use crate::lifecycle::copy::copies::Copies;
use crate::lifecycle::disks::Disk;
use crate::lifecycle::installing::wait_until_unused;
use crate::lifecycle::replicas::NodeReplicas;
use diorite_base::write::KvError;
use diorite_base::{GroupId, TabletId};
use diorite_raft::{HardState, LogPosition};
use diorite_storage::{LogBatch, LogRecords, StorageError};
use std::sync::Arc;
use std::sync::mpsc::sync_channel;

/// The next step for a replica that is set aside.
enum Next {
    Nothing,
    Forget,
    Reopen,
    Seek,
    Rebuild,
}

impl NodeReplicas {
    /// Sets aside the replicas that have failed since the last call, and carries out the next step for all that are set
    /// aside. For upkeep.
    pub(crate) fn look_after_replicas(&self, copies: &Copies) {
        self.find_damage();
        let failed = self.context.failures.take();
        for failed in failed {
            let Some(handle) = self.handle(failed.tablet) else { continue };
            // The replicas of a failed disk are handled together.
            if !self.disks[handle.disk()].log.has_failed() {
                let cause = Cause { reason: failed.reason, is_damage: failed.is_damage, needed: failed.needed };
                self.asides.note(failed.tablet, handle.disk(), cause, None, self.context.clock.monotonic_ns());
            }
        }
        let now_ns = self.context.clock.monotonic_ns();
        let due: Vec<TabletId> = {
            let mut asides = self.asides.lock();
            asides.retain(|_, aside| !self.disks[aside.disk].log.has_failed());
            asides.iter().filter(|(_, aside)| now_ns >= aside.next_ns).map(|(tablet, _)| *tablet).collect()
        };
        for tablet in due {
            self.look_after_aside(tablet, copies, now_ns);
        }
    }

    /// Damage that a read or a compaction has found: the replica stops, unless it is the only one.
    fn find_damage(&self) {
        for handle in self.tablets.load().values() {
            let background = || handle.data.has_failed().then(|| handle.data.background_error()).flatten();
            let found = match handle.health.damage.get() {
                Some(damage) => Some(damage.clone()),
                None => background().filter(StorageError::is_damage).map(|error| error.to_string()),
            };
            let Some(reason) = found.filter(|_| !self.asides.lock().contains_key(&handle.id())) else { continue };
            if self.is_alone(handle) {
                let cause = Cause { reason, is_damage: true, needed: 0 };
                self.asides.note(handle.id(), handle.disk(), cause, None, self.context.clock.monotonic_ns());
                self.asides.keep_only(handle.id());
            } else {
                self.command(handle, Command::Fail(handle.id(), reason));
            }
        }
    }

    fn look_after_aside(&self, tablet: TabletId, copies: &Copies, now_ns: u64) {
        let next = self.next_for(tablet, now_ns);
        let done = match next {
            Next::Nothing => Ok(()),
            Next::Forget => self.forget_aside(tablet),
            Next::Seek => {
                self.seek_leader(tablet);
                Ok(())
            }
            Next::Reopen => self.take_out(tablet, copies).and_then(|_| self.open_again(tablet)),
            Next::Rebuild => self.rebuild_aside(tablet, copies),
        };
        if let Err(error) = done {
            tracing::error!(%tablet, %error, "a replica that is set aside could not be brought back");
        }
    }

    fn next_for(&self, tablet: TabletId, now_ns: u64) -> Next {
        let is_wanted = self.opening(tablet).is_some();
        let is_whole = self.tablets.load().get(&tablet).is_some_and(|handle| !handle.is_recovering());
        let found = self.context.failures.leader(tablet);
        let mut asides = self.asides.lock();
        let Some(aside) = asides.get_mut(&tablet) else { return Next::Nothing };
        aside.next_ns = now_ns + LOOK_NS;
        if aside.is_rebuilding {
            return if is_whole || !is_wanted { Next::Forget } else { Next::Nothing };
        }
        if !is_wanted {
            return Next::Nothing;
        }
        let is_led = found.is_some_and(|leader| leader.applied >= aside.needed);
        if aside.is_damage && !is_led {
            return Next::Seek;
        }
        aside.attempts += 1;
        aside.next_ns = now_ns + again_ns(aside.attempts);
        if aside.is_damage { Next::Rebuild } else { Next::Reopen }
    }

    /// The replica is complete again, or is no longer wanted here.
    fn forget_aside(&self, tablet: TabletId) -> Result<(), KvError> {
        for disk in self.disks.working() {
            disk.directory.forget_aside(tablet.0).map_err(storage_error)?;
        }
        self.asides.lock().remove(&tablet);
        self.context.failures.forget(tablet);
        tracing::info!(event = "aside", %tablet, "a replica that was set aside is whole again");
        Ok(())
    }

    /// Asks the other nodes which of them leads.
    fn seek_leader(&self, tablet: TabletId) {
        let Some(opening) = self.opening(tablet) else { return };
        self.threads.command(self.worker_of(tablet), Command::SeekLeader(tablet, opening.members.voters));
    }

    /// Takes a failed replica out of its core, and waits until its files are unused.
    fn take_out(&self, tablet: TabletId, copies: &Copies) -> Result<Memory, KvError> {
        copies.cancel(&[tablet]);
        let handle: Option<Arc<TabletHandle>> = self.handle(tablet);
        if let Some(handle) = handle {
            let (sender, receiver) = sync_channel(1);
            self.command(&handle, Command::DetachFailed(tablet, sender));
            self.update_tablets(|tablets| {
                tablets.remove(&tablet);
            });
            let memory = receiver.recv().map_err(|_| KvError::Storage("the node is stopping".to_owned()))?;
            if let Some(aside) = self.asides.lock().get_mut(&tablet) {
                aside.memory = memory.or(aside.memory.take());
            }
            let files = handle.data.in_use();
            drop(handle);
            if !wait_until_unused(&files) {
                return Err(KvError::Storage("somebody still reads its files".to_owned()));
            }
        }
        let memory = self.asides.lock().get(&tablet).and_then(|aside| aside.memory.clone());
        memory.ok_or_else(|| KvError::Storage("what it has voted for and acknowledged cannot be read".to_owned()))
    }

    fn open_again(&self, tablet: TabletId) -> Result<(), KvError> {
        let Some(opening) = self.opening(tablet) else { return Ok(()) };
        self.installing.begin(&[tablet]);
        let opened = self.open(vec![opening]);
        let is_open = self.handle(tablet);
        self.close(&self.installing.end(&[tablet]));
        if let (Ok(()), Some(handle)) = (&opened, is_open)
            && !handle.is_recovering()
            && !self.context.failures.has(tablet)
        {
            self.forget_aside(tablet)?;
        }
        opened
    }

    /// Opens the replica empty, with what it must remember: its leader sends it the rest.
    fn rebuild_aside(&self, tablet: TabletId, copies: &Copies) -> Result<(), KvError> {
        let Some(opening) = self.opening(tablet) else { return Ok(()) };
        let Some(at) = self.asides.lock().get(&tablet).map(|aside| aside.disk) else { return Ok(()) };
        let (state, floor) = self.take_out(tablet, copies)?;
        self.installing.begin(&[tablet]);
        let opened = self.put_aside(tablet, at, &state, floor).and_then(|()| self.open(vec![opening]));
        if opened.is_ok()
            && let Some(aside) = self.asides.lock().get_mut(&tablet)
        {
            aside.is_rebuilding = true;
        }
        self.close(&self.installing.end(&[tablet]));
        tracing::warn!(event = "aside", %tablet, "a replica that was set aside is rebuilt from the others");
        opened
    }

    fn put_aside(&self, tablet: TabletId, at: usize, state: &HardState, floor: LogPosition) -> Result<(), KvError> {
        let disk: &Disk = &self.disks[at];
        let mut batch = LogBatch::default();
        batch.retire(GroupId::from(tablet), state, floor).map_err(storage_error)?;
        // In this order: after a crash in between, the replica comes back without files and with what it must remember.
        disk.log.write(&mut batch, true).map_err(storage_error)?;
        disk.directory.set_aside(tablet.0).map_err(storage_error)
    }

    /// Removes the set-aside files of replicas that are complete. To be called from time to time: the node may have
    /// been restarted in between.
    pub(crate) fn sweep_aside(&self) {
        for disk in self.disks.working() {
            for tablet in disk.directory.aside_ids().unwrap_or_default().into_iter().map(TabletId) {
                let is_whole = self.tablets.load().get(&tablet).is_some_and(|handle| !handle.is_recovering());
                if is_whole
                    && !self.asides.lock().contains_key(&tablet)
                    && let Err(error) = disk.directory.forget_aside(tablet.0)
                {
                    tracing::warn!(%tablet, %error, "what was set aside of a replica could not be removed");
                }
            }
            if let Err(error) = disk.log.forget_damaged_files() {
                let path = disk.directory.path().display();
                tracing::warn!(%path, %error, "the files of a damaged raft log could not be removed");
            }
        }
    }
}
