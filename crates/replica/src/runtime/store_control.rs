//! What the node asks of its store beside reads and writes: members, splits, copies, disks, scrubs, and how all that gets on.

use crate::counters::StoreCounters;
use crate::events::TabletEvent;
use crate::group::describe::ReplicaState;
use crate::group::handle::TabletHandle;
use crate::group::split::{Split, SplitMark};
use crate::group::wanted::Members;
use crate::lifecycle::asides::SetAside;
use crate::lifecycle::command::Command;
use crate::lifecycle::copy::meter::CopyStatus;
use crate::lifecycle::copy::receiving::INCOMING;
use crate::lifecycle::openings::Openings;
use crate::peers::liveness::Liveness;
use crate::runtime::compaction::CompactionStatus;
use crate::runtime::queue::Queue;
use crate::runtime::scrub::ScrubStatus;
use crate::runtime::store::Store;
use diorite_base::{GroupId, NodeId, TabletId};
use diorite_raft::Recovered;
use diorite_storage::{LogBatch, LogRecords, StorageError, TableOptions};
use std::collections::BTreeSet;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::sync::mpsc::sync_channel;
use std::time::Duration;

/// How long somebody who asks how a replica is waits for its thread.
const DESCRIBE_TIMEOUT: Duration = Duration::from_secs(2);

/// How a disk of the node is.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct DiskState {
    /// Its data directory.
    pub path: String,
    /// Bytes that are free.
    pub free_bytes: u64,
    /// Its size.
    pub total_bytes: u64,
    /// Bytes of its Raft log.
    pub log_bytes: u64,
    /// Whether it refuses writes for lack of space.
    pub is_full: bool,
    /// Whether it has failed: nothing is on it any more that this node uses.
    pub has_failed: bool,
}

impl Store {
    /// Names who knows how tablets are opened; without it no copies of replicas are taken. Once, before the node serves.
    pub fn set_openings(&self, openings: Arc<dyn Openings>) {
        self.replicas.set_openings(openings);
    }

    /// The copies of replicas that this node sends and receives now.
    pub fn copies(&self) -> Vec<CopyStatus> {
        self.copies.statuses()
    }

    /// How fast copies are sent from this node, and received by it, bytes per second over all of them in either direction. Holds from now on, for those
    /// under way too.
    pub fn set_copy_rate(&self, bytes_per_second: u64) {
        self.copies.set_rate(bytes_per_second);
    }

    /// Whether replicas stay on the disks on which they are, though some are fuller than others.
    pub fn pause_disk_moves(&self, is_paused: bool) {
        self.replicas.disk_moves.pause(is_paused);
    }

    /// Names data directories that the node was started without: they count as failed disks. Once, after the start.
    pub fn set_missing_disks(&self, paths: Vec<String>) {
        *self.replicas.disks.missing.lock() = paths;
    }

    /// Removes data and log records of tablets that `is_orphan` says are gone for ever: left by a crash between a drop and its clean-up, and what
    /// [`Store::close`] keeps. Not for tablets that are placed on other nodes now: see [`Store::remove_departed`].
    pub fn remove_orphans(&self, is_orphan: impl Fn(TabletId) -> bool) -> Result<(), StorageError> {
        self.remove_unopened(is_orphan, |group, _, batch| {
            batch.remove(group);
            Ok(())
        })
    }

    /// Removes data and log of replicas that are not open and that `has_departed` says were moved to other nodes, while this one was down or just before it
    /// went down. What such a replica must remember, should the tablet come back, stays in the log.
    pub fn remove_departed(&self, has_departed: impl Fn(TabletId) -> bool) -> Result<(), StorageError> {
        self.remove_unopened(has_departed, |group, recovered, batch| {
            batch.retire(group, &recovered.hard_state, recovered.last_acknowledged())
        })
    }

    fn remove_unopened(
        &self,
        is_meant: impl Fn(TabletId) -> bool,
        forget: impl Fn(GroupId, &Recovered, &mut LogBatch) -> Result<(), StorageError>,
    ) -> Result<(), StorageError> {
        let is_meant = |tablet| is_meant(tablet) && self.handle(tablet).is_none();
        for disk in self.replicas.disks.working() {
            let mut batch = LogBatch::default();
            for group in disk.log.groups() {
                if is_meant(TabletId(group.0)) {
                    forget(group, &disk.log.recover(group)?, &mut batch)?;
                }
            }
            disk.log.write(&mut batch, true)?;
            let data = disk.directory.tablet_ids()?.into_iter().map(|id| (id, disk.directory.tablet(id)));
            let staged = disk.directory.staged_ids(INCOMING)?.into_iter();
            let staged = staged.map(|id| (id, disk.directory.staged(id, INCOMING)));
            for (_, path) in data.chain(staged).filter(|(id, _)| is_meant(TabletId(*id))) {
                std::fs::remove_dir_all(&path).map_err(|source| StorageError::Io {
                    action: "cannot remove",
                    path,
                    source,
                })?;
            }
        }
        Ok(())
    }

    /// The replicas of this node that cannot be used, and why, by tablet.
    pub fn set_aside(&self) -> Vec<SetAside> {
        self.replicas.asides.list()
    }

    /// Reads everything that this node holds once, at so many bytes per second (0: as fast as it can); damage sets replicas aside.
    pub fn scrub(&self, rate_bytes: u64) {
        self.scrub.begin(rate_bytes);
    }

    /// Ends that.
    pub fn stop_scrub(&self) {
        self.scrub.stop();
    }

    /// How that gets on, or how the last one ended.
    pub fn scrub_status(&self) -> ScrubStatus {
        self.scrub.status()
    }

    /// Over how many days the node spreads reading everything once by itself; 0: it does not.
    pub fn set_scrub_days(&self, days: u64) {
        self.scrub.set_days(days);
    }

    /// How a tablet replica of this node is; waits for its thread, up to [`DESCRIBE_TIMEOUT`]. `None` if it is not here or its thread is held up.
    pub fn describe(&self, tablet: TabletId) -> Option<ReplicaState> {
        let handle = self.handle(tablet)?;
        let (sender, answer) = sync_channel(1);
        self.replicas.command(&handle, Command::Describe(tablet, sender));
        answer.recv_timeout(DESCRIBE_TIMEOUT).ok().flatten()
    }

    /// What has happened lately to a tablet replica of this node, the oldest first.
    pub fn events(&self, tablet: TabletId) -> Vec<TabletEvent> {
        self.replicas.context.events.of(tablet)
    }

    /// The members that a tablet is wanted to have.
    pub fn set_members(&self, tablet: TabletId, members: Members) {
        if let Some(handle) = self.handle(tablet) {
            self.replicas.command(&handle, Command::Members(tablet, members));
        }
    }

    /// Compacts all that this node holds, one tablet after another. Returns at once.
    pub fn compact(&self) {
        self.compactions.order();
    }

    /// How that gets on.
    pub fn compaction_status(&self) -> CompactionStatus {
        self.compactions.status()
    }

    /// What the options of a tablet's table say about its files. If its replica here was opened with others it is opened again, soon: one after another,
    /// while other replicas lead.
    pub fn set_table_options(&self, tablet: TabletId, options: TableOptions) {
        // One that is not here may be on its way, opened with what was said before.
        if self.handle(tablet).is_none_or(|handle| *handle.data().options() != options) {
            self.replicas.disk_moves.renew(tablet);
        }
    }

    /// Splits a tablet if it is led here, and if that is not under way already. Its children are opened here and on the other nodes that hold it.
    pub fn split(&self, tablet: TabletId, split: Split) {
        if let Some(handle) = self.handle(tablet) {
            self.replicas.command(&handle, Command::Split(tablet, split));
        }
    }

    /// Forgets what was prepared for a split of this tablet that was cancelled.
    pub fn cancel_split(&self, tablet: TabletId, children: [TabletId; 2]) {
        self.splits.forget(tablet);
        if let Some(handle) = self.handle(tablet) {
            handle.forget_children();
        }
        self.close(&children);
    }

    /// Opens a tablet again, if it is led here, that was to go in the merge of this number: the catalog has cancelled it. To be repeated until [`crate::has_given_up`].
    pub fn reopen(&self, tablet: TabletId, number: u64) {
        if let Some(handle) = self.handle(tablet) {
            self.replicas.command(&handle, Command::Reopen(tablet, number));
        }
    }

    /// Tells the leader of a tablet that is to be split that its children have been prepared here.
    pub fn tell_prepared(&self, tablet: TabletId) {
        if let Some(handle) = self.handle(tablet) {
            self.replicas.command(&handle, Command::AnnouncePrepared(tablet));
        }
    }

    /// The other nodes that have prepared the children of a tablet that is led here, as far as they have said so.
    pub fn prepared_elsewhere(&self, tablet: TabletId) -> BTreeSet<NodeId> {
        self.handle(tablet).map(|handle| handle.prepared_elsewhere()).unwrap_or_default()
    }

    /// Makes what will be the children of a tablet that is to be split, as far as that can be done before; whether that is done. Does not wait.
    pub fn prepare_split(&self, tablet: TabletId, split: &Split) -> bool {
        self.splits.prepare(tablet, split)
    }

    /// Whether there are files of a tablet here, whether it is open or not. What was only prepared of a child before a restart does not count: its parent's
    /// replica makes it anew.
    pub fn has_files(&self, tablet: TabletId) -> bool {
        self.replicas.disks.has_files(tablet) && self.replicas.disks.is_logged(tablet)
    }

    /// How this node's replica of a tablet was split, if it was.
    pub fn split_of(&self, tablet: TabletId) -> Option<SplitMark> {
        self.handle(tablet)?.split()
    }

    /// The voters of a tablet, if this node leads it under a lease and they are exactly those that [`Store::set_members`] has named last, with the
    /// learners: committed, applied, known to a quorum of them, and with no change under way. What other nodes hold of the tablet is not needed any more.
    pub fn committed_voters(&self, tablet: TabletId) -> Option<Vec<NodeId>> {
        self.handle(tablet)?.committed_voters()
    }

    /// The voters of a tablet, as its replica on this node knows them; while they change, those before.
    pub fn voters(&self, tablet: TabletId) -> Vec<NodeId> {
        let handle = self.handle(tablet);
        handle.map_or_else(Vec::new, |handle| handle.roles.voters.load().iter().copied().map(NodeId).collect())
    }

    /// The sets of voters that decide in a tablet's group, a majority of each, as its replica on this node knows them: one, and while it changes two.
    pub fn voter_sets(&self, tablet: TabletId) -> Vec<Vec<NodeId>> {
        let Some(handle) = self.handle(tablet) else { return Vec::new() };
        let sets = [handle.roles.voters.load_full(), handle.roles.coming_voters.load_full()];
        let nodes = |set: Arc<Vec<u64>>| set.iter().copied().map(NodeId).collect();
        sets.into_iter().filter(|set| !set.is_empty()).map(nodes).collect()
    }

    /// Cuts the log of a tablet to what is not flushed yet, whatever other members lack.
    #[cfg(test)]
    pub(crate) fn cut_log(&self, tablet: TabletId) {
        let Some(handle) = self.handle(tablet) else { return };
        if let Ok(state) = handle.data.flushed_state() {
            let command = Command::Flushed { tablet, index: state.index, force: true };
            self.replicas.command(&handle, command);
        }
    }

    /// Lets other nodes lead, as this one is about to stop; returns when they have been told.
    pub fn release_leadership(&self) {
        let replies: Vec<_> = self
            .queues
            .iter()
            .map(|queue| {
                let (sender, receiver) = sync_channel(1);
                queue.command(Command::StepDownAll(sender));
                receiver
            })
            .collect();
        for reply in replies {
            // A worker that is gone leads nothing.
            let _ = reply.recv();
        }
    }

    /// Waits until others lead what they can lead, for at most `timeout`; whether they do. They may need this node's vote: one that stopped as soon as it had said that
    /// others may lead would leave them to wait for each other.
    pub fn wait_for_successors(&self, timeout: Duration) -> bool {
        const STEP: Duration = Duration::from_millis(2);
        let clock = &self.replicas.context.clock;
        let deadline_ns = clock.monotonic_ns() + timeout.as_nanos() as u64;
        while self.tablets().values().any(|handle| self.is_orphan(handle)) {
            if clock.monotonic_ns() > deadline_ns {
                return false;
            }
            #[allow(clippy::disallowed_methods, reason = "the thread that stops a node has nothing else to do")]
            std::thread::sleep(STEP);
        }
        true
    }

    /// Whether no other node leads a tablet although one could.
    fn is_orphan(&self, handle: &TabletHandle) -> bool {
        let me = self.replicas.context.node.0;
        let could_lead = |voter: &u64| *voter != me && self.liveness().is_up(NodeId(*voter));
        [0, me].contains(&handle.roles.leader.load(Ordering::Acquire))
            && handle.roles.voters.load().iter().any(could_lead)
    }

    /// Counters of the write path.
    pub fn counters(&self) -> &StoreCounters {
        &self.replicas.context.counters
    }

    /// Writes waiting in the queues, and refused so far because a queue was full.
    pub fn queue_state(&self) -> (usize, u64) {
        let waiting = self.queues.iter().map(Queue::len).sum();
        let refused = self.queues.iter().map(|queue| queue.refused.load(Ordering::Relaxed)).sum();
        (waiting, refused)
    }

    /// Bytes of writes and messages that wait in the queues, and how many may, of either.
    pub fn queued_bytes(&self) -> (usize, usize) {
        let queues = &self.queues;
        (queues.iter().map(Queue::bytes).sum(), queues.len() * self.replicas.options.queue_bytes)
    }

    /// The disks, in the order in which handles number them. Those that the node was started without come last.
    pub fn disks(&self) -> Vec<DiskState> {
        let present = self.replicas.disks.iter().map(|disk| DiskState {
            path: disk.directory.path().display().to_string(),
            free_bytes: disk.free_bytes.load(Ordering::Relaxed),
            total_bytes: disk.total_bytes.load(Ordering::Relaxed),
            log_bytes: disk.log.used_bytes(),
            is_full: disk.full.load(Ordering::Relaxed),
            has_failed: disk.log.has_failed(),
        });
        let missing = self.replicas.disks.missing.lock();
        let missing =
            missing.iter().map(|path| DiskState { path: path.clone(), has_failed: true, ..DiskState::default() });
        present.chain(missing).collect()
    }

    /// Which nodes are up, and the number that each announces.
    pub fn liveness(&self) -> &Arc<Liveness> {
        self.replicas.context.liveness()
    }

    /// Names the other nodes, to which heartbeats go.
    pub fn set_peers(&self, peers: Vec<NodeId>) {
        self.replicas.context.liveness.set_peers(peers);
        self.heartbeats.wake();
    }
}
