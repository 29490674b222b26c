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
//! Always true: a replica is made anew only once a node answers that leads the tablet under a lease and has applied more than this one could, so that replicas which all fail at one entry all stay
//! as they are; its former files stay on the disk until it is whole again; it neither votes nor counts for a lease until it holds what it has acknowledged (`diorite_raft::Recovered::floor`).
//! The only replica of a tablet in which damage was found goes on serving what can be read: there is nothing to make it from. If its log is damaged, though, it serves nothing until an operator
//! accepts the loss ([`crate::StoreOptions::accept_lost_log`]): what was acknowledged may be missing. A failed disk is another matter (`disks`).

use crate::copy::{Copies, wait_until_unused};
use crate::disks::Disk;
use crate::handle::{TabletHandle, storage_error};
use crate::store::Inner;
use crate::worker::Command;
use diorite_base::write::KvError;
use diorite_base::{GroupId, NodeId, TabletId};
use diorite_raft::HardState;
use diorite_storage::{LogBatch, LogRecords, StorageError};
use std::sync::Arc;
use std::sync::mpsc::sync_channel;

/// How long after a replica was set aside something is done about it for the first time, nanoseconds, and how often it is seen to afterwards.
const LOOK_NS: u64 = 1_000_000_000;
/// How long after an attempt that did not help the next one is made, nanoseconds: twice as long each time, up to the second.
const AGAIN_NS: u64 = 10_000_000_000;
const AGAIN_AT_MOST_NS: u64 = 600_000_000_000;

/// Term and vote, and the last entry that may have been acknowledged.
type Memory = (HardState, (u64, u64));

/// A replica that was set aside.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SetAside {
    /// Of which tablet.
    pub tablet: TabletId,
    /// Why.
    pub reason: String,
    /// The data directory that it is in, as an index.
    pub disk: usize,
    /// It is being made anew from another.
    pub is_rebuilding: bool,
    /// There is no other to make it from; what can be read is served.
    pub is_only: bool,
}

/// What is known of one.
#[derive(Debug)]
pub(crate) struct Aside {
    reason: String,
    disk: usize,
    is_damage: bool,
    is_only: bool,
    /// What another replica must have applied to be well.
    needed: u64,
    /// What it must remember, once its core does not hold it any more.
    memory: Option<Memory>,
    /// When something is to be done next, nanoseconds.
    next_ns: u64,
    attempts: u32,
    is_rebuilding: bool,
}

/// What is done next about a replica.
enum Next {
    Nothing,
    Forget,
    Reopen,
    Seek,
    Rebuild,
}

impl Inner {
    /// All replicas of this node that are set aside, by tablet.
    pub(crate) fn set_asides(&self) -> Vec<SetAside> {
        let status = |(tablet, aside): (&TabletId, &Aside)| SetAside {
            tablet: *tablet,
            reason: aside.reason.clone(),
            disk: aside.disk,
            is_rebuilding: aside.is_rebuilding,
            is_only: aside.is_only,
        };
        self.aside.lock().iter().map(status).collect()
    }

    /// A replica could not be opened.
    pub(crate) fn set_unopened_aside(&self, tablet: TabletId, disk: usize, error: &StorageError) {
        let memory = self.disks[disk].log.memory(GroupId::from(tablet));
        self.note_aside(tablet, disk, (error.to_string(), error.is_damage(), 0), memory.ok());
    }

    fn note_aside(&self, tablet: TabletId, disk: usize, why: (String, bool, u64), memory: Option<Memory>) {
        let (reason, is_damage, needed) = why;
        tracing::error!(event = "aside", %tablet, reason, is_damage, "a replica is set aside; the others are served");
        let now_ns = self.context.clock.monotonic_ns();
        let mut asides = self.aside.lock();
        let before = asides.remove(&tablet);
        let attempts = before.as_ref().map_or(0, |aside| aside.attempts);
        let wait_ns = if attempts == 0 { LOOK_NS } else { again_ns(attempts) };
        let memory = memory.or_else(|| before.and_then(|aside| aside.memory));
        let next_ns = now_ns + wait_ns;
        let aside =
            Aside { reason, disk, is_damage, is_only: false, needed, memory, next_ns, attempts, is_rebuilding: false };
        asides.insert(tablet, aside);
    }

    /// Sets aside what has failed since, and does what is due about all that are. For upkeep.
    pub(crate) fn look_after_replicas(&self, copies: &Copies) {
        self.find_damage();
        let failed = std::mem::take(&mut *self.context.failed.lock());
        for failed in failed {
            let Some(handle) = self.tablets.load().get(&failed.tablet).cloned() else { continue };
            // What is on a failed disk is seen to together.
            if !self.disks[handle.disk].log.has_failed() {
                self.note_aside(failed.tablet, handle.disk, (failed.reason, failed.is_damage, failed.needed), None);
            }
        }
        let now_ns = self.context.clock.monotonic_ns();
        let due: Vec<TabletId> = {
            let mut asides = self.aside.lock();
            asides.retain(|_, aside| !self.disks[aside.disk].log.has_failed());
            asides.iter().filter(|(_, aside)| now_ns >= aside.next_ns).map(|(tablet, _)| *tablet).collect()
        };
        for tablet in due {
            self.look_after_aside(tablet, copies, now_ns);
        }
    }

    /// Damage that a read or a compaction has met: the replica stops, unless it is the only one.
    fn find_damage(&self) {
        for handle in self.tablets.load().values() {
            let background = || handle.data.has_failed().then(|| handle.data.background_error()).flatten();
            let found = match handle.damage.get() {
                Some(damage) => Some(damage.clone()),
                None => background().filter(StorageError::is_damage).map(|error| error.to_string()),
            };
            let Some(reason) = found.filter(|_| !self.aside.lock().contains_key(&handle.tablet)) else { continue };
            if self.is_alone(handle) {
                self.note_aside(handle.tablet, handle.disk, (reason, true, 0), None);
                self.keep_only(handle.tablet);
            } else {
                self.queues[handle.worker].command(Command::Fail(handle.tablet, reason));
            }
        }
    }

    /// Nothing is done about a replica that was set aside: it is the only one.
    pub(crate) fn keep_only(&self, tablet: TabletId) {
        if let Some(aside) = self.aside.lock().get_mut(&tablet) {
            (aside.is_only, aside.next_ns) = (true, u64::MAX);
        }
    }

    pub(crate) fn is_alone(&self, handle: &TabletHandle) -> bool {
        handle.voters.load().iter().all(|voter| *voter == self.context.node.0)
    }

    fn look_after_aside(&self, tablet: TabletId, copies: &Copies, now_ns: u64) {
        let next = self.next_for(tablet, copies, now_ns);
        let done = match next {
            Next::Nothing => Ok(()),
            Next::Forget => self.forget_aside(tablet),
            Next::Seek => {
                self.seek_leader(tablet, copies);
                Ok(())
            }
            Next::Reopen => self.take_out(tablet, copies).and_then(|_| self.open_again(tablet, copies)),
            Next::Rebuild => self.rebuild_aside(tablet, copies),
        };
        if let Err(error) = done {
            tracing::error!(%tablet, %error, "a replica that is set aside could not be brought back");
        }
    }

    fn next_for(&self, tablet: TabletId, copies: &Copies, now_ns: u64) -> Next {
        let is_wanted = copies.opening(tablet).is_some();
        let is_whole = self.tablets.load().get(&tablet).is_some_and(|handle| !handle.is_recovering());
        let found = self.context.sought.lock().get(&tablet).copied().flatten();
        let mut asides = self.aside.lock();
        let Some(aside) = asides.get_mut(&tablet) else { return Next::Nothing };
        aside.next_ns = now_ns + LOOK_NS;
        if aside.is_rebuilding {
            return if is_whole || !is_wanted { Next::Forget } else { Next::Nothing };
        }
        if !is_wanted {
            return Next::Nothing;
        }
        let is_led = found.is_some_and(|(_, applied)| applied >= aside.needed);
        if aside.is_damage && !is_led {
            return Next::Seek;
        }
        aside.attempts += 1;
        aside.next_ns = now_ns + again_ns(aside.attempts);
        if aside.is_damage { Next::Rebuild } else { Next::Reopen }
    }

    /// The replica is whole again, or is not wanted here any more.
    fn forget_aside(&self, tablet: TabletId) -> Result<(), KvError> {
        for disk in self.working_disks() {
            disk.directory.forget_aside(tablet.0).map_err(storage_error)?;
        }
        self.aside.lock().remove(&tablet);
        self.context.sought.lock().remove(&tablet);
        tracing::info!(event = "aside", %tablet, "a replica that was set aside is whole again");
        Ok(())
    }

    /// Asks the others who leads.
    fn seek_leader(&self, tablet: TabletId, copies: &Copies) {
        let Some(opening) = copies.opening(tablet) else { return };
        self.context.sought.lock().insert(tablet, None);
        let others: Vec<NodeId> =
            opening.members.voters.into_iter().filter(|node| *node != self.context.node).collect();
        self.queues[self.worker_of(tablet)].command(Command::Seek(tablet, others));
    }

    fn worker_of(&self, tablet: TabletId) -> usize {
        (tablet.0 % self.options.workers as u64) as usize
    }

    /// Takes a replica that has failed out of its core, and waits until nobody uses its files.
    fn take_out(&self, tablet: TabletId, copies: &Copies) -> Result<Memory, KvError> {
        copies.abandon(&[tablet]);
        let handle: Option<Arc<TabletHandle>> = self.tablets.load().get(&tablet).cloned();
        if let Some(handle) = handle {
            let (sender, receiver) = sync_channel(1);
            self.queues[handle.worker].command(Command::Abandon(tablet, sender));
            self.update_tablets(|tablets| {
                tablets.remove(&tablet);
            });
            let memory = receiver.recv().map_err(|_| KvError::Storage("the node is stopping".to_owned()))?;
            if let Some(aside) = self.aside.lock().get_mut(&tablet) {
                aside.memory = memory.or(aside.memory.take());
            }
            let files = handle.data.in_use();
            drop(handle);
            if !wait_until_unused(&files) {
                return Err(KvError::Storage("somebody still reads its files".to_owned()));
            }
        }
        let memory = self.aside.lock().get(&tablet).and_then(|aside| aside.memory.clone());
        memory.ok_or_else(|| KvError::Storage("what it has voted for and acknowledged cannot be read".to_owned()))
    }

    fn open_again(&self, tablet: TabletId, copies: &Copies) -> Result<(), KvError> {
        let Some(opening) = copies.opening(tablet) else { return Ok(()) };
        self.installing.begin(&[tablet]);
        let opened = self.open(vec![opening]);
        let is_open = self.tablets.load().get(&tablet).cloned();
        self.close(&self.installing.end(&[tablet]));
        if let (Ok(()), Some(handle)) = (&opened, is_open)
            && !handle.is_recovering()
            && self.context.failed.lock().iter().all(|failed| failed.tablet != tablet)
        {
            self.forget_aside(tablet)?;
        }
        opened
    }

    /// Opens the replica anew, empty, with what it must remember: its leader sends it the rest.
    fn rebuild_aside(&self, tablet: TabletId, copies: &Copies) -> Result<(), KvError> {
        let Some(opening) = copies.opening(tablet) else { return Ok(()) };
        let Some(at) = self.aside.lock().get(&tablet).map(|aside| aside.disk) else { return Ok(()) };
        let (state, floor) = self.take_out(tablet, copies)?;
        self.installing.begin(&[tablet]);
        let opened = self.put_aside(tablet, at, &state, floor).and_then(|()| self.open(vec![opening]));
        if opened.is_ok()
            && let Some(aside) = self.aside.lock().get_mut(&tablet)
        {
            aside.is_rebuilding = true;
        }
        self.close(&self.installing.end(&[tablet]));
        tracing::warn!(event = "aside", %tablet, "a replica that was set aside is made anew from the others");
        opened
    }

    fn put_aside(&self, tablet: TabletId, at: usize, state: &HardState, floor: (u64, u64)) -> Result<(), KvError> {
        let disk: &Disk = &self.disks[at];
        let mut batch = LogBatch::default();
        batch.retire(GroupId::from(tablet), state, floor).map_err(storage_error)?;
        // In this order: after a crash in between it comes back without files, and knows what it must.
        disk.log.write(&mut batch, true).map_err(storage_error)?;
        disk.directory.set_aside(tablet.0).map_err(storage_error)
    }

    /// Removes what was set aside of replicas that are whole. To be called now and then: the node may have been started again meanwhile.
    pub(crate) fn sweep_aside(&self) {
        for disk in self.working_disks() {
            for tablet in disk.directory.aside_ids().unwrap_or_default().into_iter().map(TabletId) {
                let is_whole = self.tablets.load().get(&tablet).is_some_and(|handle| !handle.is_recovering());
                if is_whole
                    && !self.aside.lock().contains_key(&tablet)
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

    /// A tablet is closed: nothing is done about its replica any more, and what is left of one that is not open goes.
    pub(crate) fn close_aside(&self, tablet: TabletId) {
        self.context.sought.lock().remove(&tablet);
        let Some(aside) = self.aside.lock().remove(&tablet) else { return };
        if self.tablets.load().contains_key(&tablet) {
            return;
        }
        let gone =
            self.discard(tablet, aside.disk).and_then(|()| self.disks[aside.disk].directory.forget_aside(tablet.0));
        if let Err(error) = gone {
            tracing::error!(%tablet, %error, "the data of a closed tablet stays until the next start");
        }
    }
}

fn again_ns(attempts: u32) -> u64 {
    AGAIN_NS.saturating_mul(1 << attempts.saturating_sub(1).min(16)).min(AGAIN_AT_MOST_NS)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn attempts_become_rarer_up_to_a_bound() {
        let waits: Vec<u64> = (1..9).map(|attempts| again_ns(attempts) / 1_000_000_000).collect();
        assert_eq!(waits, [10, 20, 40, 80, 160, 320, 600, 600]);
        assert_eq!(again_ns(u32::MAX), AGAIN_AT_MOST_NS);
    }
}
