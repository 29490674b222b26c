//! The node's requests to its store other than reads and writes: members, splits, copies, disks, scrubs, and the state
//! of all these.

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
use crate::lifecycle::disks::Disk;
use crate::lifecycle::openings::Openings;
use crate::peers::liveness::Liveness;
use crate::runtime::compaction::CompactionStatus;
use crate::runtime::queue::Queue;
use crate::runtime::scrub::ScrubStatus;
use crate::runtime::store::Store;
use diorite_base::{GroupId, Hold, Level, NodeId, TabletId};
use diorite_raft::Recovered;
use diorite_storage::{LogBatch, LogRecords, StorageError, TableOptions};
use std::collections::BTreeSet;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::sync::mpsc::sync_channel;
use std::time::Duration;

/// How long a description of a replica waits for the replica's thread.
const DESCRIBE_TIMEOUT: Duration = Duration::from_secs(2);

/// The state of a disk of the node.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct DiskState {
    /// Its data directory.
    pub path: String,
    /// Free bytes.
    pub free_bytes: u64,
    /// Its size, bytes.
    pub total_bytes: u64,
    /// Bytes of its Raft log.
    pub log_bytes: u64,
    /// Whether it refuses writes for lack of space.
    pub is_full: bool,
    /// Whether it has failed: the node uses no data on it any more.
    pub has_failed: bool,
}

impl Store {
    /// Sets the source of the settings with which tablets are opened. Without it the node accepts no copies of
    /// replicas. Once, before the node serves.
    pub fn set_openings(&self, openings: Arc<dyn Openings>) {
        self.replicas.set_openings(openings);
    }

    /// The copies of replicas that this node is sending and receiving.
    pub fn copies(&self) -> Vec<CopyStatus> {
        self.copies.statuses()
    }

    /// Sets the rate limit of copies, bytes per second over all copies in either direction, sent or received. Applies
    /// from now on, also to copies under way.
    pub fn set_copy_rate(&self, bytes_per_second: u64) {
        self.copies.set_rate(bytes_per_second);
    }

    /// Notes the level of the cluster on each disk that has not failed. Durable when it returns: from then on no
    /// program starts there that does not know the level.
    pub fn note_level(&self, level: Level) -> Result<(), StorageError> {
        self.replicas.disks.working().try_for_each(|disk| disk.directory.raise(level))
    }

    /// The highest level that a disk of the node has noted.
    pub fn noted_level(&self) -> Level {
        let noted = |disk: &Disk| disk.directory.identity().map(|identity| identity.level);
        self.replicas.disks.working().filter_map(noted).max().unwrap_or(Level::FIRST)
    }

    /// What an operator has decided about the next level, as far as this node's disks know.
    pub fn hold(&self) -> Option<Hold> {
        let noted = self.replicas.disks.working().filter_map(|disk| disk.directory.hold());
        noted.reduce(|one, other| if other.overrules(&one) { other } else { one })
    }

    /// Notes an operator's decision on each disk that has not failed. Durable when it returns.
    pub fn note_hold(&self, decided: Hold) -> Result<(), StorageError> {
        self.replicas.disks.working().try_for_each(|disk| disk.directory.note_hold(decided))
    }

    /// Sets whether replicas stay on their disks even if some disks are fuller than others.
    pub fn pause_disk_moves(&self, is_paused: bool) {
        self.replicas.disk_moves.pause(is_paused);
    }

    /// Sets the data directories that the node was started without: they count as failed disks. Once, after the start.
    pub fn set_missing_disks(&self, paths: Vec<String>) {
        *self.replicas.disks.missing.lock() = paths;
    }

    /// Removes data and log records of tablets that are gone for ever, according to `is_orphan`: remains of a crash
    /// between a drop and its clean-up, and the records that [`Store::close`] keeps. Not for tablets that are placed on
    /// other nodes now: see [`Store::remove_departed`].
    pub fn remove_orphans(&self, is_orphan: impl Fn(TabletId) -> bool) -> Result<(), StorageError> {
        self.remove_unopened(is_orphan, |group, _, batch| {
            batch.remove(group);
            Ok(())
        })
    }

    /// Removes data and log of replicas that are not open and that were moved to other nodes, according to
    /// `has_departed`, while this node was down or just before it went down. The state that such a replica must
    /// remember, in case the tablet is moved back, stays in the log.
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

    /// The set-aside replicas of this node, with the reasons.
    pub fn set_aside(&self) -> Vec<SetAside> {
        self.replicas.asides.list()
    }

    /// Begins a scrub: reads everything on this node once, at this many bytes per second (0: no limit). Damage sets
    /// replicas aside.
    pub fn scrub(&self, rate_bytes: u64) {
        self.scrub.begin(rate_bytes);
    }

    /// Ends the scrub that is under way.
    pub fn stop_scrub(&self) {
        self.scrub.stop();
    }

    /// The progress of the scrub, or the result of the last one.
    pub fn scrub_status(&self) -> ScrubStatus {
        self.scrub.status()
    }

    /// Sets the number of days over which the node spreads the scrubs that run by themselves; 0: none run.
    pub fn set_scrub_days(&self, days: u64) {
        self.scrub.set_days(days);
    }

    /// The state of this node's replica of a tablet. Waits for its thread, up to [`DESCRIBE_TIMEOUT`]. `None` if the
    /// replica is not here or its thread does not answer.
    pub fn describe(&self, tablet: TabletId) -> Option<ReplicaState> {
        let handle = self.handle(tablet)?;
        let (sender, answer) = sync_channel(1);
        self.replicas.command(&handle, Command::Describe(tablet, sender));
        answer.recv_timeout(DESCRIBE_TIMEOUT).ok().flatten()
    }

    /// The recent events of this node's replica of a tablet, oldest first.
    pub fn events(&self, tablet: TabletId) -> Vec<TabletEvent> {
        self.replicas.context.events.of(tablet)
    }

    /// Sets the wanted members of a tablet.
    pub fn set_members(&self, tablet: TabletId, members: Members) {
        if let Some(handle) = self.handle(tablet) {
            self.replicas.command(&handle, Command::Members(tablet, members));
        }
    }

    /// Orders a compaction of all tablets of this node, one after another. Returns at once.
    pub fn compact(&self) {
        self.compactions.order();
    }

    /// The progress of the compaction.
    pub fn compaction_status(&self) -> CompactionStatus {
        self.compactions.status()
    }

    /// Sets the file options of a tablet. If its replica here was opened with other options, it is opened again soon,
    /// one replica after another, while other replicas lead.
    pub fn set_table_options(&self, tablet: TabletId, options: TableOptions) {
        // A replica that is not open may be about to open with the former options.
        if self.handle(tablet).is_none_or(|handle| *handle.data().options() != options) {
            self.replicas.disk_moves.renew(tablet);
        }
    }

    /// Splits a tablet, if this node leads it and no split is under way. The nodes that hold the tablet, this one
    /// included, open its children.
    pub fn split(&self, tablet: TabletId, split: Split) {
        if let Some(handle) = self.handle(tablet) {
            self.replicas.command(&handle, Command::Split(tablet, split));
        }
    }

    /// Discards what was prepared for a split of this tablet that was cancelled.
    pub fn cancel_split(&self, tablet: TabletId, children: [TabletId; 2]) {
        self.splits.forget(tablet);
        if let Some(handle) = self.handle(tablet) {
            handle.forget_children();
        }
        self.close(&children);
    }

    /// Opens a tablet again, if this node leads it, after the catalog has cancelled the merge of this number. The
    /// caller repeats this until [`crate::has_given_up`].
    pub fn reopen(&self, tablet: TabletId, number: u64) {
        if let Some(handle) = self.handle(tablet) {
            self.replicas.command(&handle, Command::Reopen(tablet, number));
        }
    }

    /// Notifies the leader of a tablet that is to be split that this node has prepared the children.
    pub fn tell_prepared(&self, tablet: TabletId) {
        if let Some(handle) = self.handle(tablet) {
            self.replicas.command(&handle, Command::AnnouncePrepared(tablet));
        }
    }

    /// The other nodes that have reported to this node, the tablet's leader, that they have prepared the children.
    pub fn prepared_elsewhere(&self, tablet: TabletId) -> BTreeSet<NodeId> {
        self.handle(tablet).map(|handle| handle.prepared_elsewhere()).unwrap_or_default()
    }

    /// Prepares the children of a tablet that is to be split, as far as that can be done before the split; returns
    /// whether they are prepared. Does not wait.
    pub fn prepare_split(&self, tablet: TabletId, split: &Split) -> bool {
        self.splits.prepare(tablet, split)
    }

    /// Whether this node has files of a tablet, open or not. Files of a child that were prepared before a restart do
    /// not count: the parent's replica prepares them anew.
    pub fn has_files(&self, tablet: TabletId) -> bool {
        self.replicas.disks.has_files(tablet) && self.replicas.disks.is_logged(tablet)
    }

    /// The split of this node's replica of a tablet, if it was split.
    pub fn split_of(&self, tablet: TabletId) -> Option<SplitMark> {
        self.handle(tablet)?.split()
    }

    /// The voters of a tablet, if this node leads it under a lease and its members are exactly those that
    /// [`Store::set_members`] was last given: committed, applied, known to a quorum, and with no change under way.
    /// Replicas of the tablet on other nodes are then no longer needed.
    pub fn committed_voters(&self, tablet: TabletId) -> Option<Vec<NodeId>> {
        self.handle(tablet)?.committed_voters()
    }

    /// The voters of a tablet as known to its replica on this node; during a change, the former ones.
    pub fn voters(&self, tablet: TabletId) -> Vec<NodeId> {
        let handle = self.handle(tablet);
        handle.map_or_else(Vec::new, |handle| handle.roles.voters.load().iter().copied().map(NodeId).collect())
    }

    /// The sets of voters that decide in a tablet's group, each by a majority, as known to its replica on this node:
    /// one set, or two during a change.
    pub fn voter_sets(&self, tablet: TabletId) -> Vec<Vec<NodeId>> {
        let Some(handle) = self.handle(tablet) else { return Vec::new() };
        let sets = [handle.roles.voters.load_full(), handle.roles.coming_voters.load_full()];
        let nodes = |set: Arc<Vec<u64>>| set.iter().copied().map(NodeId).collect();
        sets.into_iter().filter(|set| !set.is_empty()).map(nodes).collect()
    }

    /// Truncates the log of a tablet up to the flushed data, whatever other members lack.
    #[cfg(test)]
    pub(crate) fn cut_log(&self, tablet: TabletId) {
        let Some(handle) = self.handle(tablet) else { return };
        if let Ok(state) = handle.data.flushed_state() {
            let command = Command::Flushed { tablet, index: state.index, force: true };
            self.replicas.command(&handle, command);
        }
    }

    /// Steps down in all tablets, as this node is about to stop; returns when the other nodes have been notified.
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
            // A worker that has ended leads no tablet.
            let _ = reply.recv();
        }
    }

    /// Waits until other nodes lead the tablets that they can lead, for at most `timeout`; returns whether they do.
    /// They may need this node's vote: if it stopped right after it stepped down, they could not elect a leader.
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

    /// The number of writes that wait in the queues, and the number refused so far because a queue was full.
    pub fn queue_state(&self) -> (usize, u64) {
        let waiting = self.queues.iter().map(Queue::len).sum();
        let refused = self.queues.iter().map(|queue| queue.refused.load(Ordering::Relaxed)).sum();
        (waiting, refused)
    }

    /// The bytes of writes and messages that wait in the queues, and the limit for each of the two.
    pub fn queued_bytes(&self) -> (usize, usize) {
        let queues = &self.queues;
        (queues.iter().map(Queue::bytes).sum(), queues.len() * self.replicas.options.queue_bytes)
    }

    /// The disks, in the order of the indexes in handles. Those that the node was started without come last.
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

    /// Sets the other nodes, to which heartbeats are sent.
    pub fn set_peers(&self, peers: Vec<NodeId>) {
        self.replicas.context.liveness.set_peers(peers);
        self.heartbeats.wake();
    }
}
