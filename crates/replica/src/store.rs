//! The store: what the node holds, opens, submits to and reads from.

use crate::aside::{Aside, SetAside};
use crate::catch_up::read_back;
use crate::compaction::{self, CompactionStatus, Compactions, OpenTablets};
use crate::context::Context;
use crate::copy::{Copies, CopyStatus, DiskMoves, INCOMING, Installing, Openings, Requests, move_between_disks};
use crate::counters::StoreCounters;
use crate::describe::ReplicaState;
use crate::disks::{Disk, disk_full};
use crate::events::TabletEvent;
use crate::handle::TabletHandle;
use crate::heart::{self, Heart};
use crate::liveness::Liveness;
use crate::queue::{Queue, QueueLimits};
use crate::replica::{Members, NO_DEADLINE, Proposal};
use crate::scrub::{self, Scrub, ScrubStatus};
use crate::split::{Prepared, Split, SplitListener, SplitMark, Splits};
use crate::stall::{self, Watch};
use crate::upkeep::{self, MemoryGate};
use crate::wire::{self, Envelope};
use crate::worker::{Command, READS_AT_ONCE, Worker};
use ahash::AHashMap;
use arc_swap::{ArcSwap, Guard};
use diorite_base::bytes::Malformed;
use diorite_base::mutation::{Evaluator, Mutation};
use diorite_base::write::{KvError, WriteSink};
use diorite_base::{Clock, GroupId, NodeId, TabletId};
use diorite_raft::{Recovered, SupportChange};
use diorite_rpc::{Lane, Transport};
use diorite_storage::{
    DataDirectory, LOG_FILE_BYTES, LogBatch, LogRecords, Shared, StorageError, TableOptions, Tablet, Values,
    machine_boot,
};
use parking_lot::Mutex;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc::sync_channel;
use std::sync::{Arc, Weak};
use std::thread::JoinHandle;
use std::time::Duration;

/// How long somebody who asks how a replica is waits for its thread.
const DESCRIBE_PATIENCE: Duration = Duration::from_secs(2);

/// When a write counts as durable.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Durability {
    /// After an fsync, shared by all writes of the turn.
    Fsync,
    /// At once; the log is synced every so many milliseconds. A crash of the machine (not of the process) loses what came since.
    Interval(u64),
}

/// What the node decides about its store.
#[derive(Debug, Clone)]
pub struct StoreOptions {
    /// This node's id in the groups it is a member of.
    pub node: u64,
    /// Store threads.
    pub workers: usize,
    /// When writes are acknowledged.
    pub durability: Durability,
    /// Writes waiting per worker before new ones are refused.
    pub queue_proposals: usize,
    /// Bytes waiting per worker before new writes are refused.
    pub queue_bytes: usize,
    /// Log bytes not yet flushed, over all tablets, before the oldest are flushed; bounds the replay at restart.
    /// Less where a disk is so small that its log is.
    pub replay_bytes: u64,
    /// Free bytes below which a disk takes no writes.
    pub disk_reserve_bytes: u64,
    /// Replicas that are the only ones of their tablets are opened with what is left of a damaged Raft log.
    pub accept_lost_log: bool,
}

/// A tablet replica to open.
pub struct OpenTablet {
    /// Which.
    pub tablet: TabletId,
    /// Carries out its evaluated mutations.
    pub evaluator: Arc<dyn Evaluator>,
    /// How long tombstones are kept where they may matter, seconds.
    pub gc_grace_s: u32,
    /// The voters before the first log entry; the same on every replica, for ever.
    pub founders: Vec<NodeId>,
    /// The members that are wanted now.
    pub members: Members,
    /// What it is to hold before it votes, if nothing of it is here yet: index and term of an entry that it begins after.
    pub floor: Option<(u64, u64)>,
    /// What its values are.
    pub values: Values,
    /// How its files are written.
    pub options: TableOptions,
    /// Called with the stored data before the log behind it is replayed.
    pub on_loaded: Option<OnLoaded>,
}

/// Looks at a tablet's stored data; an error keeps the tablet closed.
pub type OnLoaded = Box<dyn FnOnce(&Tablet) -> Result<(), String> + Send>;

/// The tablets of a node by id.
pub(crate) type TabletMap = AHashMap<TabletId, Arc<TabletHandle>>;

pub(crate) struct Inner {
    pub(crate) options: StoreOptions,
    pub(crate) context: Arc<Context>,
    pub(crate) shared: Arc<Shared>,
    pub(crate) disks: Vec<Disk>,
    pub(crate) queues: Vec<Queue>,
    pub(crate) tablets: ArcSwap<TabletMap>,
    pub(crate) memory: MemoryGate,
    pub(crate) heart: Heart,
    pub(crate) watch: Watch,
    pub(crate) scrub: Scrub,
    pub(crate) compactions: Compactions,
    /// Replicas that cannot be used.
    pub(crate) aside: Mutex<BTreeMap<TabletId, Aside>>,
    /// The log position at which the free space of the disks was last looked at.
    pub(crate) space_looked_at: AtomicU64,
    pub(crate) installing: Installing,
    pub(crate) disk_moves: DiskMoves,
    /// Data directories that this node was started without, as all that was on them is elsewhere.
    pub(crate) missing_disks: Mutex<Vec<String>>,
    /// The data of children that were made before their parents were split.
    pub(crate) prepared: Mutex<AHashMap<TabletId, Prepared>>,
    /// Files of closed replicas that somebody may still read: they go when the last reader does, and another cannot be opened in their place before.
    pub(crate) going: Mutex<AHashMap<TabletId, Weak<()>>>,
}

impl OpenTablets for Inner {
    fn ids(&self) -> Vec<TabletId> {
        self.tablets.load().keys().copied().collect()
    }

    fn data(&self, tablet: TabletId) -> Option<Arc<Tablet>> {
        self.tablets.load().get(&tablet).map(|handle| Arc::clone(&handle.data))
    }
}

impl Inner {
    /// Tells all workers of changes of support.
    pub(crate) fn change(&self, changes: &[SupportChange]) {
        if !changes.is_empty() {
            self.queues.iter().for_each(|queue| queue.change(changes));
        }
    }

    /// Holds a worker back while memtables are far over their limit.
    pub(crate) fn wait_for_memory(&self) {
        let limit = self.shared.options().memtable_limit_bytes;
        if self.shared.memtable_usage_bytes() > limit + limit / 2 {
            self.context.counters.memory_waits.fetch_add(1, Ordering::Relaxed);
            self.memory.wait(|| self.shared.memtable_usage_bytes() > limit + limit / 4);
        }
    }
}

/// A write that this node's replica could not propose because it does not lead. Nothing was done with it.
pub struct Refused {
    /// The tablet.
    pub tablet: TabletId,
    /// The write, as submitted.
    pub mutation: Mutation,
    /// Where its outcome goes.
    pub sink: Arc<dyn WriteSink>,
    /// What names it there.
    pub token: u64,
    /// When it ends, on the monotonic clock; [`NO_DEADLINE`] if nobody says.
    pub deadline_ns: u64,
    /// Who leads the tablet, if known.
    pub leader: Option<NodeId>,
}

/// Finds another way for writes that were submitted to a replica that does not lead.
pub trait Reroute: Send + Sync + 'static {
    /// Takes over (and empties) `refused`; their sinks are told by whoever finishes them. Must not wait.
    fn reroute(&self, refused: &mut Vec<Refused>);
}

/// All tablet replicas of a node.
pub struct Store {
    pub(crate) inner: Arc<Inner>,
    pub(crate) copies: Arc<Copies>,
    splits: Arc<Splits>,
    threads: Mutex<Vec<JoinHandle<()>>>,
}

impl Store {
    /// Opens the Raft logs and starts the threads; tablets are opened by [`Store::open`].
    pub fn start(
        mut options: StoreOptions,
        shared: Arc<Shared>,
        directories: Vec<DataDirectory>,
        clock: Arc<dyn Clock>,
        transport: Arc<dyn Transport>,
    ) -> Result<Self, StorageError> {
        assert!(options.workers > 0 && !directories.is_empty(), "a store has a thread and a disk");
        let mut disks = Vec::new();
        for directory in directories {
            directory.tidy(clock.wall_us())?;
            let log_bytes = shared.options().log_bytes;
            let disk = Disk::open(directory, log_bytes, options.disk_reserve_bytes)?;
            begin_run(&disk, options.durability)?;
            if disk.log_limit_bytes < log_bytes {
                // What is not flushed must fit into the log of a small disk as it does on a large one: what does not is cut off while others need it.
                options.replay_bytes = options.replay_bytes.min((disk.log_limit_bytes / 2).max(LOG_FILE_BYTES));
            }
            disks.push(disk);
        }
        let limits = QueueLimits { proposals: options.queue_proposals, bytes: options.queue_bytes };
        // The time of the start tells this life of the node from its earlier ones.
        let incarnation = clock.wall_us().unsigned_abs();
        let context = Context::new(NodeId(options.node), incarnation, options.durability, clock, transport);
        let inner = Arc::new(Inner {
            queues: (0..options.workers).map(|_| Queue::new(limits)).collect(),
            options,
            context: Arc::new(context),
            shared,
            disks,
            tablets: ArcSwap::default(),
            memory: MemoryGate::default(),
            heart: Heart::default(),
            watch: Watch::default(),
            scrub: Scrub::default(),
            compactions: Compactions::default(),
            aside: Mutex::default(),
            space_looked_at: AtomicU64::new(0),
            installing: Installing::default(),
            disk_moves: DiskMoves::default(),
            missing_disks: Mutex::default(),
            prepared: Mutex::default(),
            going: Mutex::default(),
        });
        let copies = Arc::new(Copies::new(Arc::clone(&inner)));
        let mut threads = Vec::new();
        for number in 0..inner.options.workers {
            let (reader, reads) = sync_channel(READS_AT_ONCE);
            let worker = Worker::new(Arc::clone(&inner), number, reader);
            threads.push(spawn(format!("store-{number}"), move || worker.run())?);
            let for_reads = Arc::clone(&inner);
            threads.push(spawn(format!("log-reads-{number}"), move || {
                read_back(for_reads.context.clock.as_ref(), &for_reads.queues[number], &reads);
            })?);
        }
        let (for_upkeep, copies_of_upkeep) = (Arc::clone(&inner), Arc::clone(&copies));
        threads.push(spawn("upkeep".to_owned(), move || upkeep::run(&for_upkeep, &copies_of_upkeep))?);
        let (for_moves, copies_of_moves) = (Arc::clone(&inner), Arc::clone(&copies));
        threads.push(spawn("disks".to_owned(), move || move_between_disks(&for_moves, &copies_of_moves))?);
        threads.extend(start_watching(&inner)?);
        let splits = Arc::new(Splits::default());
        inner.context.set_splits(Arc::clone(&splits) as Arc<dyn SplitListener>);
        let (for_splits, inner_of_splits, copies_of_splits) =
            (Arc::clone(&splits), Arc::clone(&inner), Arc::clone(&copies));
        threads.push(spawn("splits".to_owned(), move || for_splits.run(&inner_of_splits, &copies_of_splits))?);
        if inner.context.copies.set(Arc::new(Requests(Arc::downgrade(&copies)))).is_err() {
            tracing::error!("a fresh context has no copies");
        }
        Ok(Self { inner, copies, splits, threads: Mutex::new(threads) })
    }

    /// Opens tablets, making those that do not exist yet, and returns when all of them serve: what the log holds is applied.
    /// One that is open already stays so, and hears what is wanted of it. One that cannot be opened is set aside ([`Store::set_aside`]).
    ///
    /// # Errors
    /// Those of the disk, and those of the catalog's replica.
    pub fn open(&self, wanted: Vec<OpenTablet>) -> Result<(), KvError> {
        let tablets: Vec<TabletId> = wanted.iter().map(|open| open.tablet).collect();
        self.inner.installing.begin(&tablets);
        let opened = self.inner.open_closed(wanted);
        self.inner.close(&self.inner.installing.end(&tablets));
        opened
    }

    /// Names who knows how tablets are opened; without it no copies of replicas are taken. Once, before the node serves.
    pub fn set_openings(&self, openings: Arc<dyn Openings>) {
        self.copies.set_openings(openings);
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
        self.inner.disk_moves.pause(is_paused);
    }

    /// Names data directories that the node was started without: they count as failed disks. Once, after the start.
    pub fn set_missing_disks(&self, paths: Vec<String>) {
        *self.inner.missing_disks.lock() = paths;
    }

    /// Lets go of tablets, which were dropped or moved away, and removes their data and log. What a replica must remember should it ever come back stays in
    /// the log, a few bytes; of dropped tablets [`Store::remove_orphans`] removes that too, at the next start.
    pub fn close(&self, tablets: &[TabletId]) {
        self.copies.abandon(tablets);
        self.inner.close(tablets);
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
        for disk in self.inner.working_disks() {
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
        self.inner.set_asides()
    }

    /// Reads everything that this node holds once, at so many bytes per second (0: as fast as it can); damage sets replicas aside.
    pub fn scrub(&self, rate_bytes: u64) {
        self.inner.scrub.begin(rate_bytes);
    }

    /// Ends that.
    pub fn stop_scrub(&self) {
        self.inner.scrub.stop();
    }

    /// How that gets on, or how the last one ended.
    pub fn scrub_status(&self) -> ScrubStatus {
        self.inner.scrub.status()
    }

    /// Over how many days the node spreads reading everything once by itself; 0: it does not.
    pub fn set_scrub_days(&self, days: u64) {
        self.inner.scrub.set_days(days);
    }

    /// A tablet replica of this node.
    pub fn handle(&self, tablet: TabletId) -> Option<Arc<TabletHandle>> {
        self.inner.tablets.load().get(&tablet).cloned()
    }

    /// How a tablet replica of this node is; waits for its thread, up to [`DESCRIBE_PATIENCE`]. `None` if it is not here or its thread is held up.
    pub fn describe(&self, tablet: TabletId) -> Option<ReplicaState> {
        let handle = self.handle(tablet)?;
        let (sender, answer) = sync_channel(1);
        self.inner.queues[handle.worker].command(Command::Describe(tablet, sender));
        answer.recv_timeout(DESCRIBE_PATIENCE).ok().flatten()
    }

    /// What has happened lately to a tablet replica of this node, the oldest first.
    pub fn events(&self, tablet: TabletId) -> Vec<TabletEvent> {
        self.inner.context.events.of(tablet)
    }

    /// All tablet replicas of this node, without counting references: for the read path.
    pub fn tablets(&self) -> Guard<Arc<AHashMap<TabletId, Arc<TabletHandle>>>> {
        self.inner.tablets.load()
    }

    /// Names who takes writes that cannot be proposed here. Once, before the node serves.
    pub fn set_reroute(&self, reroute: Arc<dyn Reroute>) {
        if self.inner.context.reroute.set(reroute).is_err() {
            tracing::error!("writes that cannot be proposed are rerouted already");
        }
    }

    /// Submits a write; its outcome goes to `sink`. The worker is woken by [`Store::kick`].
    pub fn submit(
        &self,
        tablet: TabletId,
        mutation: Mutation,
        sink: &Arc<dyn WriteSink>,
        token: u64,
    ) -> Result<(), KvError> {
        self.submit_until(tablet, mutation, sink, token, NO_DEADLINE)
    }

    /// The same, of a request that ends at `deadline_ns` of the monotonic clock: a write that has not been proposed by then never is, and one that has been is answered
    /// by [`KvError::Timeout`].
    pub fn submit_until(
        &self,
        tablet: TabletId,
        mutation: Mutation,
        sink: &Arc<dyn WriteSink>,
        token: u64,
        deadline_ns: u64,
    ) -> Result<(), KvError> {
        let frees_space = mutation.is_deletion();
        let proposal = Proposal::new(tablet, mutation, Arc::clone(sink), token)?.until(deadline_ns);
        let tablets = self.inner.tablets.load();
        let Some(handle) = tablets.get(&tablet) else {
            // Between two disks, or while a copy takes its place, its worker finds others for it.
            if !self.inner.installing.lock().contains_key(&tablet) {
                return Err(KvError::NoSuchTablet(tablet));
            }
            let worker = (tablet.0 % self.inner.options.workers as u64) as usize;
            return self.inner.queues[worker].submit(proposal);
        };
        let disk = &self.inner.disks[handle.disk];
        // What frees space is taken to the end, and so is the catalog's little, without which no table could be dropped.
        let frees_space = frees_space || tablet.0 == GroupId::CATALOG.0;
        if disk.full.load(Ordering::Relaxed) && !frees_space {
            return Err(disk_full(disk, self.inner.options.disk_reserve_bytes));
        }
        self.inner.queues[handle.worker].submit(proposal)
    }

    /// Takes a frame of another node on the control or the Raft lane.
    pub fn receive(&self, from: NodeId, lane: Lane, frame: &[u8]) {
        match lane {
            Lane::Control => self.inner.change(&self.inner.context.liveness.receive(from, frame)),
            Lane::Raft => match wire::envelopes(frame) {
                Ok(envelopes) => self.distribute(from, envelopes, frame.len()),
                Err(Malformed) => tracing::warn!(%from, "a malformed frame on the raft lane"),
            },
            Lane::Bulk => self.copies.receive(from, frame),
            Lane::Requests | Lane::Operations => {}
        }
    }

    fn distribute(&self, from: NodeId, envelopes: Vec<(GroupId, Envelope)>, bytes: usize) {
        let workers = self.inner.queues.len();
        if let [queue] = self.inner.queues.as_slice() {
            queue.receive(from, envelopes.into_iter(), bytes);
            return;
        }
        let mut shares: Vec<Vec<(GroupId, Envelope)>> = (0..workers).map(|_| Vec::new()).collect();
        for (group, envelope) in envelopes {
            shares[(group.0 % workers as u64) as usize].push((group, envelope));
        }
        for (queue, share) in self.inner.queues.iter().zip(shares) {
            if !share.is_empty() {
                queue.receive(from, share.into_iter(), bytes / workers);
            }
        }
    }

    /// Which nodes are up, and the number that each announces.
    pub fn liveness(&self) -> &Arc<Liveness> {
        self.inner.context.liveness()
    }

    /// Names the other nodes, to which heartbeats go.
    pub fn set_peers(&self, peers: Vec<NodeId>) {
        self.inner.context.liveness.set_peers(peers);
        self.inner.heart.wake();
    }

    /// The members that a tablet is wanted to have.
    pub fn set_members(&self, tablet: TabletId, members: Members) {
        if let Some(handle) = self.handle(tablet) {
            self.inner.queues[handle.worker].command(Command::Members(tablet, members));
        }
    }

    /// Compacts all that this node holds, one tablet after another. Returns at once.
    pub fn compact(&self) {
        self.inner.compactions.order();
    }

    /// How that gets on.
    pub fn compaction_status(&self) -> CompactionStatus {
        self.inner.compactions.status()
    }

    /// What the options of a tablet's table say about its files. If its replica here was opened with others it is opened again, soon: one after another,
    /// while other replicas lead.
    pub fn set_table_options(&self, tablet: TabletId, options: TableOptions) {
        // One that is not here may be on its way, opened with what was said before.
        if self.handle(tablet).is_none_or(|handle| *handle.data().options() != options) {
            self.inner.disk_moves.renew(tablet);
        }
    }

    /// Splits a tablet if it is led here, and if that is not under way already. Its children are opened here and on the other nodes that hold it.
    pub fn split(&self, tablet: TabletId, split: Split) {
        if let Some(handle) = self.handle(tablet) {
            self.inner.queues[handle.worker].command(Command::Split(tablet, split));
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
            self.inner.queues[handle.worker].command(Command::Reopen(tablet, number));
        }
    }

    /// Tells the leader of a tablet that is to be split that its children have been prepared here.
    pub fn tell_prepared(&self, tablet: TabletId) {
        if let Some(handle) = self.handle(tablet) {
            self.inner.queues[handle.worker].command(Command::TellPrepared(tablet));
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
        self.inner.has_files(tablet) && self.inner.is_logged(tablet)
    }

    /// How this node's replica of a tablet was split, if it was.
    pub fn split_of(&self, tablet: TabletId) -> Option<SplitMark> {
        self.handle(tablet)?.split()
    }

    /// The voters of a tablet, if this node leads it under a lease and they are exactly those that [`Store::set_members`] has named last, with the
    /// learners: committed, applied, known to a quorum of them, and with no change under way. What other nodes hold of the tablet is not needed any more.
    pub fn settled(&self, tablet: TabletId) -> Option<Vec<NodeId>> {
        self.handle(tablet)?.settled()
    }

    /// The voters of a tablet, as its replica on this node knows them; while they change, those before.
    pub fn voters(&self, tablet: TabletId) -> Vec<NodeId> {
        let handle = self.handle(tablet);
        handle.map_or_else(Vec::new, |handle| handle.voters.load().iter().copied().map(NodeId).collect())
    }

    /// Cuts the log of a tablet to what is not flushed yet, whatever other members lack.
    #[cfg(test)]
    pub(crate) fn cut_log(&self, tablet: TabletId) {
        let Some(handle) = self.handle(tablet) else { return };
        if let Ok(state) = handle.data.flushed_state() {
            let command = Command::Flushed { tablet, index: state.index, force: true };
            self.inner.queues[handle.worker].command(command);
        }
    }

    /// Whether the replica on this node, whoever leads, may answer a read that may be this old, nanoseconds. If not, or not for much longer, its
    /// leader is asked how far it is, so that it soon may.
    pub fn may_read_stale(&self, handle: &TabletHandle, staleness_ns: u64) -> bool {
        let (may, asks) = handle.freshness(staleness_ns);
        if asks {
            self.inner.queues[handle.worker].command(Command::Refresh(handle.tablet));
        }
        may
    }

    /// Lets other nodes lead, as this one is about to stop; returns when they have been told.
    pub fn release_leadership(&self) {
        let replies: Vec<_> = self
            .inner
            .queues
            .iter()
            .map(|queue| {
                let (sender, receiver) = sync_channel(1);
                queue.command(Command::Release(sender));
                receiver
            })
            .collect();
        for reply in replies {
            // A worker that is gone leads nothing.
            let _ = reply.recv();
        }
    }

    /// Waits until others lead what they can lead, for at most `patience`; whether they do. They may need this node's vote: one that stopped as soon as it had said that
    /// others may lead would leave them to wait for each other.
    pub fn wait_for_successors(&self, patience: Duration) -> bool {
        const STEP: Duration = Duration::from_millis(2);
        let clock = &self.inner.context.clock;
        let deadline_ns = clock.monotonic_ns() + patience.as_nanos() as u64;
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
        let me = self.inner.context.node.0;
        let could_lead = |voter: &u64| *voter != me && self.liveness().is_up(NodeId(*voter));
        [0, me].contains(&handle.leader.load(Ordering::Acquire)) && handle.voters.load().iter().any(could_lead)
    }

    /// Wakes the workers that have been given something to do.
    pub fn kick(&self) {
        for queue in &self.inner.queues {
            queue.kick();
        }
    }

    /// The shared storage resources.
    pub fn shared(&self) -> &Arc<Shared> {
        &self.inner.shared
    }

    /// Counters of the write path.
    pub fn counters(&self) -> &StoreCounters {
        &self.inner.context.counters
    }

    /// Writes waiting in the queues, and refused so far because a queue was full.
    pub fn queue_state(&self) -> (usize, u64) {
        let waiting = self.inner.queues.iter().map(Queue::len).sum();
        let refused = self.inner.queues.iter().map(|queue| queue.refused.load(Ordering::Relaxed)).sum();
        (waiting, refused)
    }

    /// Bytes of writes and messages that wait in the queues, and how many may, of either.
    pub fn queued_bytes(&self) -> (usize, usize) {
        let queues = &self.inner.queues;
        (queues.iter().map(Queue::bytes).sum(), queues.len() * self.inner.options.queue_bytes)
    }

    /// For each disk whether it has failed: nothing is on it any more that this node uses. As many as [`Store::disks`].
    pub fn failed_disks(&self) -> Vec<bool> {
        let missing = self.inner.missing_disks.lock().len();
        self.inner.disks.iter().map(|disk| disk.log.has_failed()).chain(std::iter::repeat_n(true, missing)).collect()
    }

    /// For each disk: its path, free and total bytes, Raft log bytes, and whether it refuses writes. Those that the node was started without come last.
    pub fn disks(&self) -> Vec<(String, u64, u64, u64, bool)> {
        let present = self.inner.disks.iter().map(|disk| {
            (
                disk.directory.path().display().to_string(),
                disk.free_bytes.load(Ordering::Relaxed),
                disk.total_bytes.load(Ordering::Relaxed),
                disk.log.used_bytes(),
                disk.full.load(Ordering::Relaxed),
            )
        });
        let missing = self.inner.missing_disks.lock();
        present.chain(missing.iter().map(|path| (path.clone(), 0, 0, 0, false))).collect()
    }

    /// Finishes what is queued and stops the threads. Writes submitted afterwards are refused.
    fn stop(&self) {
        self.inner.disk_moves.close();
        self.copies.close();
        self.splits.close();
        for queue in &self.inner.queues {
            queue.close();
        }
        self.inner.memory.close();
        self.inner.heart.close();
        self.inner.watch.close();
        self.inner.scrub.close();
        self.inner.compactions.close();
        for thread in self.threads.lock().drain(..) {
            // A thread that panicked has said so; the others still finish.
            let _ = thread.join();
        }
    }

    /// Stops, and flushes tablets until `patience` is over, so that the next start has little to replay. What is not flushed by then is in
    /// the log.
    pub fn shutdown(&self, patience: Duration) {
        self.stop();
        let deadline_ns = self.inner.context.clock.monotonic_ns() + patience.as_nanos() as u64;
        let mut tablets: Vec<_> = self.inner.tablets.load().values().cloned().collect();
        // The most to replay first.
        let unflushed = |handle: &TabletHandle| {
            handle.logged_bytes.load(Ordering::Relaxed) - handle.flushed_bytes.load(Ordering::Relaxed)
        };
        tablets.sort_unstable_by_key(|handle| std::cmp::Reverse(unflushed(handle)));
        for handle in &tablets {
            if self.inner.context.clock.monotonic_ns() > deadline_ns {
                tracing::info!("tablets are left to be replayed from the log at the next start");
                break;
            }
            let clean = handle.data.applied_state().ok() == handle.data.flushed_state().ok();
            if clean {
                continue;
            }
            if let Err(error) = handle.data.flush(true) {
                tracing::warn!(tablet = %handle.tablet, %error, "could not flush at shutdown; the log will be replayed");
            }
        }
        for disk in self.inner.working_disks() {
            if let Err(error) = end_log(disk) {
                tracing::error!(%error, "could not sync the raft log at shutdown");
            }
        }
    }
}

impl Drop for Store {
    fn drop(&mut self) {
        self.stop();
    }
}

/// Starts those that look after other nodes, the logs and what is stored.
fn start_watching(inner: &Arc<Inner>) -> Result<[JoinHandle<()>; 4], StorageError> {
    let (for_heart, for_watch, for_scrub) = (Arc::clone(inner), Arc::clone(inner), Arc::clone(inner));
    let for_compactions = Arc::clone(inner);
    Ok([
        spawn("heartbeat".to_owned(), move || heart::run(&for_heart))?,
        spawn("log-watch".to_owned(), move || stall::run(&for_watch))?,
        spawn("scrub".to_owned(), move || scrub::run(&for_scrub))?,
        spawn("compactions".to_owned(), move || compaction::run(&for_compactions.compactions, &*for_compactions))?,
    ])
}

/// Notes that the log on the disk will end with what is not durable, if so, and finds out whether it has lost such an end.
fn begin_run(disk: &Disk, durability: Durability) -> Result<(), StorageError> {
    let boot = machine_boot();
    if disk.directory.may_have_lost_writes(&boot)? {
        let replicas = disk.log.forget_floors()?;
        let path = disk.directory.path().display();
        tracing::warn!(
            %path,
            replicas,
            "the node did not stop in order, and the machine was started again: what was written last may be lost here; its replicas ask the others"
        );
    }
    match durability {
        Durability::Fsync => disk.directory.end_run(),
        Durability::Interval(_) => disk.directory.begin_run(&boot),
    }
}

/// The node stops in order: all of the log on a disk is durable, and this is noted.
fn end_log(disk: &Disk) -> Result<(), StorageError> {
    disk.log.sync()?;
    disk.log.note_durable()?;
    disk.directory.end_run()
}

/// Starts a thread of the store. If it panics the process ends at once,
/// as nothing that it holds in memory can be trusted; the next start replays what is durable.
#[allow(clippy::disallowed_methods, reason = "the store's threads live here and are joined at shutdown")]
fn spawn(name: String, body: impl FnOnce() + Send + 'static) -> Result<JoinHandle<()>, StorageError> {
    let guarded = move || {
        if std::panic::catch_unwind(std::panic::AssertUnwindSafe(body)).is_err() {
            tracing::error!("a store thread panicked, the node ends");
            std::process::abort();
        }
    };
    std::thread::Builder::new().name(name).spawn(guarded).map_err(|source| StorageError::Io {
        action: "cannot start a thread for",
        path: "the store".into(),
        source,
    })
}
