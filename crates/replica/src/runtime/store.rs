//! The store: the replicas of a node and the threads that run them.

use crate::context::Context;
use crate::group::handle::TabletHandle;
use crate::group::peer_calls::TransactionPeers;
use crate::group::proposal::{NO_DEADLINE, Proposal, Reroute};
use crate::group::row_sizes::MEASURED_AT_ONCE;
use crate::group::split::SplitListener;
use crate::group::transact;
use crate::lifecycle::command::{Command, StoreThreads};
use crate::lifecycle::copy::copies::Copies;
use crate::lifecycle::copy::dispatch::Requests;
use crate::lifecycle::copy::rehome;
use crate::lifecycle::disks::{Disk, Disks, disk_full};
use crate::lifecycle::openings::OpenTablet;
use crate::lifecycle::replicas::{NodeReplicas, TabletMap};
use crate::lifecycle::split::Splits;
use crate::options::{Durability, StoreOptions};
use crate::runtime::compaction::{self, Compactions};
use crate::runtime::disk_watch::{self, Watch};
use crate::runtime::heartbeats::HeartbeatSender;
use crate::runtime::incoming::Incoming;
use crate::runtime::log_reads::read_back;
use crate::runtime::measurements;
use crate::runtime::memory_gate::MemoryGate;
use crate::runtime::queue::{QueueLimits, Queues};
use crate::runtime::scrub::{Scrub, Scrubber};
use crate::runtime::upkeep;
use crate::runtime::worker::{READS_AT_ONCE, Worker};
use arc_swap::Guard;
use diorite_base::account::Account;
use diorite_base::bytes::Malformed;
use diorite_base::mutation::Mutation;
use diorite_base::write::{KvError, WriteSink};
use diorite_base::{Clock, GroupId, NodeId, TabletId};
use diorite_rpc::{Lane, Transport};
use diorite_storage::{DataDirectory, LOG_FILE_BYTES, Shared, StorageError, machine_boot};
use diorite_transact::TransactionId;
use diorite_transact::message::Status;
use parking_lot::Mutex;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::sync::mpsc::sync_channel;
use std::thread::JoinHandle;
use std::time::Duration;

/// All tablet replicas of a node.
pub struct Store {
    pub(crate) replicas: Arc<NodeReplicas>,
    pub(crate) queues: Arc<Queues>,
    pub(crate) copies: Arc<Copies>,
    pub(crate) splits: Arc<Splits>,
    memory: Arc<MemoryGate>,
    pub(crate) heartbeats: Arc<HeartbeatSender>,
    watch: Arc<Watch>,
    pub(crate) scrub: Arc<Scrub>,
    pub(crate) compactions: Arc<Compactions>,
    threads: Mutex<Vec<JoinHandle<()>>>,
}

impl Store {
    /// Opens the Raft logs and starts the threads; [`Store::open`] opens tablets.
    ///
    /// # Errors
    /// Those of the directories and their logs, or if a thread cannot be started.
    pub fn start(
        mut options: StoreOptions,
        shared: Arc<Shared>,
        directories: Vec<DataDirectory>,
        clock: Arc<dyn Clock>,
        transport: Arc<dyn Transport>,
    ) -> Result<Self, StorageError> {
        assert!(options.workers > 0 && !directories.is_empty(), "a store has a thread and a disk");
        let disks = open_disks(&mut options, &shared, directories, clock.wall_us())?;
        let limits = QueueLimits { proposals: options.queue_proposals, bytes: options.queue_bytes };
        let queues = Arc::new(Queues::new(options.workers, limits));
        // The incarnation distinguishes this life of the node from its earlier ones.
        let context = Context::new(NodeId(options.node), options.incarnation, options.durability, clock, transport);
        let threads: Arc<dyn StoreThreads> = Arc::clone(&queues) as _;
        let replicas = Arc::new(NodeReplicas::new(options, Arc::new(context), shared, disks, threads));
        let store = Self {
            copies: Arc::new(Copies::new(Arc::clone(&replicas))),
            replicas,
            queues,
            splits: Arc::default(),
            memory: Arc::default(),
            heartbeats: Arc::default(),
            watch: Arc::default(),
            scrub: Arc::default(),
            compactions: Arc::default(),
            threads: Mutex::default(),
        };
        store.start_threads()?;
        store.replicas.context.set_splits(Arc::clone(&store.splits) as Arc<dyn SplitListener>);
        store.replicas.context.set_copies(Arc::new(Requests(Arc::downgrade(&store.copies))));
        Ok(store)
    }

    fn start_threads(&self) -> Result<(), StorageError> {
        let (measurer, measurements) = sync_channel(self.queues.len() * MEASURED_AT_ONCE);
        let queues = Arc::clone(&self.queues);
        self.spawn("row-sizes", move |replicas| measurements::run(&replicas.context, &queues, &measurements))?;
        for number in 0..self.queues.len() {
            let (reader, reads) = sync_channel(READS_AT_ONCE);
            let (queues, memory) = (Arc::clone(&self.queues), Arc::clone(&self.memory));
            let worker = Worker::new(Arc::clone(&self.replicas), queues, memory, number, reader, measurer.clone());
            self.spawn(&format!("store-{number}"), move |_| worker.run())?;
            let queues = Arc::clone(&self.queues);
            self.spawn(&format!("log-reads-{number}"), move |replicas| {
                read_back(replicas.context.clock.as_ref(), &queues[number], &reads);
            })?;
        }
        let (memory, copies) = (Arc::clone(&self.memory), Arc::clone(&self.copies));
        self.spawn("upkeep", move |replicas| upkeep::run(replicas, &memory, &copies))?;
        let copies = Arc::clone(&self.copies);
        self.spawn("disks", move |replicas| rehome::run(replicas, &copies))?;
        let (heartbeats, queues) = (Arc::clone(&self.heartbeats), Arc::clone(&self.queues));
        self.spawn("heartbeat", move |replicas| heartbeats.run(replicas, &queues))?;
        let watch = Arc::clone(&self.watch);
        self.spawn("disk-watch", move |replicas| disk_watch::run(replicas, &watch))?;
        let scrub = Arc::clone(&self.scrub);
        self.spawn("scrub", move |replicas| Scrubber { scrub: &scrub, replicas }.run())?;
        let compactions = Arc::clone(&self.compactions);
        self.spawn("compactions", move |replicas| compaction::run(&compactions, replicas))?;
        let splits = Arc::clone(&self.splits);
        self.spawn("splits", move |replicas| splits.run(replicas))
    }

    /// Starts a thread of the store, which is joined at shutdown. If the thread panics, the process ends at once, as
    /// its memory can no longer be trusted; the next start replays what is durable.
    #[allow(clippy::disallowed_methods, reason = "the store's threads live here and are joined at shutdown")]
    fn spawn(&self, name: &str, body: impl FnOnce(&NodeReplicas) + Send + 'static) -> Result<(), StorageError> {
        let replicas = Arc::clone(&self.replicas);
        let guarded = move || {
            if std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| body(&replicas))).is_err() {
                tracing::error!("a store thread panicked, the node ends");
                std::process::abort();
            }
        };
        let spawned = std::thread::Builder::new().name(name.to_owned()).spawn(guarded);
        let failed =
            |source| StorageError::Io { action: "cannot start a thread for", path: "the store".into(), source };
        self.threads.lock().push(spawned.map_err(failed)?);
        Ok(())
    }

    /// Opens tablets, and creates those that do not exist yet. Returns when all of them serve and have applied their
    /// logs. An open tablet stays open, and receives the wanted members. A tablet that cannot be opened is set aside
    /// ([`Store::set_aside`]).
    ///
    /// # Errors
    /// Those of the disk, and those of the catalog's replica.
    pub fn open(&self, wanted: Vec<OpenTablet>) -> Result<(), KvError> {
        let tablets: Vec<TabletId> = wanted.iter().map(|open| open.tablet).collect();
        self.replicas.installing.begin(&tablets);
        let opened = self.replicas.open_closed(wanted);
        self.replicas.close(&self.replicas.installing.end(&tablets));
        opened
    }

    /// Closes tablets that were dropped or moved away: their data and log are removed. The few bytes that a replica
    /// must remember in case it is opened again stay in the log; for dropped tablets, [`Store::remove_orphans`] removes
    /// them too, at the next start.
    pub fn close(&self, tablets: &[TabletId]) {
        self.copies.cancel(tablets);
        self.replicas.close(tablets);
    }

    /// A tablet replica of this node.
    pub fn handle(&self, tablet: TabletId) -> Option<Arc<TabletHandle>> {
        self.replicas.handle(tablet)
    }

    /// All tablet replicas of this node, without counting references: for the read path.
    pub fn tablets(&self) -> Guard<Arc<TabletMap>> {
        self.replicas.tablets.load()
    }

    /// Sets the receiver of writes that cannot be proposed here. Once, before the node serves.
    pub fn set_reroute(&self, reroute: Arc<dyn Reroute>) {
        if self.replicas.context.hooks.reroute.set(reroute).is_err() {
            tracing::error!("the receiver of writes that cannot be proposed is already set");
        }
    }

    /// Sets what reaches the leaders of other tablets for transactions. Once, before the node serves.
    pub fn set_transactions(&self, peers: Arc<dyn TransactionPeers>) {
        self.replicas.context.set_transactions(peers);
    }

    /// Takes the answer to [`diorite_transact::peer::PeerCall::Ask`].
    pub fn transaction_learned(&self, tablet: TabletId, of: (TransactionId, i64), status: Status) {
        if let Some(handle) = self.handle(tablet) {
            self.replicas.command(&handle, Command::TransactionLearned(tablet, of, status));
        }
    }

    /// Takes the answer to [`diorite_transact::peer::PeerCall::Finish`].
    pub fn transaction_finished(&self, tablet: TabletId, id: TransactionId, participant: TabletId) {
        if let Some(handle) = self.handle(tablet) {
            self.replicas.command(&handle, Command::TransactionFinished(tablet, id, participant));
        }
    }

    /// Sets the account to which measuring rows is charged: that of the node's requests. Once, before the node serves.
    pub fn set_account(&self, account: Arc<Account>) {
        if self.replicas.context.hooks.account.set(account).is_err() {
            tracing::error!("the account for measuring rows is already set");
        }
    }

    /// Submits a write; its outcome goes to `sink`. [`Store::kick`] wakes the worker.
    pub fn submit(
        &self,
        tablet: TabletId,
        mutation: Mutation,
        sink: &Arc<dyn WriteSink>,
        token: u64,
    ) -> Result<(), KvError> {
        self.submit_until(tablet, mutation, sink, token, NO_DEADLINE)
    }

    /// As [`Store::submit`], for a request that ends at `deadline_ns` on the monotonic clock: a write that has not been
    /// proposed by then never is, and one that has been proposed is answered with [`KvError::Timeout`].
    pub fn submit_until(
        &self,
        tablet: TabletId,
        mutation: Mutation,
        sink: &Arc<dyn WriteSink>,
        token: u64,
        deadline_ns: u64,
    ) -> Result<(), KvError> {
        let proposal = Proposal::new(tablet, mutation, Arc::clone(sink), token)?.until(deadline_ns);
        let tablets = self.replicas.tablets.load();
        let Some(handle) = tablets.get(&tablet) else {
            // The replica is being moved between disks or replaced by a copy: its worker reroutes its writes.
            if !self.replicas.installing.contains(tablet) {
                return Err(KvError::NoSuchTablet(tablet));
            }
            return self.queues[self.replicas.worker_of(tablet)].submit(proposal);
        };
        let disk = &self.replicas.disks[handle.disk()];
        // A full disk still accepts the catalog's few bytes, without which no table could be dropped.
        let is_full = disk.full.load(Ordering::Relaxed) && tablet.0 != GroupId::CATALOG.0;
        if is_full && transact::adds_data(&proposal.mutation) {
            return Err(disk_full(disk, self.replicas.options.disk_reserve_bytes));
        }
        self.queues[handle.worker()].submit(proposal)
    }

    /// Receives a frame of another node on the control or the Raft lane.
    pub fn receive(&self, from: NodeId, lane: Lane, frame: &[u8]) {
        match lane {
            Lane::Control => self.queues.change(&self.replicas.context.liveness.receive(from, frame)),
            Lane::Raft => match Incoming::of_frame(&self.replicas.context.liveness, from, frame) {
                Ok(envelopes) => self.distribute(envelopes, frame.len()),
                Err(Malformed) => tracing::warn!(%from, "a malformed frame on the raft lane"),
            },
            Lane::Bulk => self.copies.receive(from, frame),
            Lane::Requests | Lane::Operations => {}
        }
    }

    /// A life of another node, as named by its heartbeats, has certainly ended: other nodes may lead its tablets
    /// without waiting for its leases. Returns whether that life was supported.
    pub fn node_ended(&self, node: NodeId, incarnation: u64) -> bool {
        let changes = self.replicas.context.liveness.ended(node, incarnation);
        self.queues.change(&changes);
        !changes.is_empty()
    }

    fn distribute(&self, envelopes: Vec<Incoming>, bytes: usize) {
        let workers = self.queues.len();
        if let [queue] = &**self.queues {
            queue.receive(envelopes.into_iter(), bytes);
            return;
        }
        let mut shares: Vec<Vec<Incoming>> = (0..workers).map(|_| Vec::new()).collect();
        for incoming in envelopes {
            shares[(incoming.group.0 % workers as u64) as usize].push(incoming);
        }
        for (queue, share) in self.queues.iter().zip(shares) {
            if !share.is_empty() {
                queue.receive(share.into_iter(), bytes / workers);
            }
        }
    }

    /// Whether this node's replica, leading or not, may answer a read of data that is up to `staleness_ns` old. If not,
    /// or not for much longer, its leader is asked for its position, so that later reads can be answered.
    pub fn may_read_stale(&self, handle: &TabletHandle, staleness_ns: u64) -> bool {
        let (may, asks) = handle.freshness(staleness_ns);
        if asks {
            self.replicas.command(handle, Command::Refresh(handle.id()));
        }
        may
    }

    /// Wakes the workers that have something to do.
    pub fn kick(&self) {
        for queue in self.queues.iter() {
            queue.kick();
        }
    }

    /// The shared storage resources.
    pub fn shared(&self) -> &Arc<Shared> {
        &self.replicas.shared
    }

    /// Finishes queued work and stops the threads. Writes submitted afterwards are refused.
    fn stop(&self) {
        self.replicas.disk_moves.close();
        self.copies.close();
        self.splits.close();
        for queue in self.queues.iter() {
            queue.close();
        }
        self.memory.close();
        self.heartbeats.close();
        self.watch.close();
        self.scrub.close();
        self.compactions.close();
        for thread in self.threads.lock().drain(..) {
            // A panic in a thread has been reported; the others still finish.
            let _ = thread.join();
        }
    }

    /// Stops, and flushes tablets until `timeout` has passed, so that the next start has little to replay. Unflushed
    /// writes are in the log.
    pub fn shutdown(&self, timeout: Duration) {
        self.stop();
        let deadline_ns = self.replicas.context.clock.monotonic_ns() + timeout.as_nanos() as u64;
        let mut tablets: Vec<_> = self.replicas.tablets.load().values().cloned().collect();
        // Tablets with the most bytes to replay come first.
        let unflushed = |handle: &TabletHandle| {
            handle.log.written_bytes.load(Ordering::Relaxed) - handle.log.flushed_bytes.load(Ordering::Relaxed)
        };
        tablets.sort_unstable_by_key(|handle| std::cmp::Reverse(unflushed(handle)));
        for handle in &tablets {
            if self.replicas.context.clock.monotonic_ns() > deadline_ns {
                tracing::info!("tablets are left to be replayed from the log at the next start");
                break;
            }
            let clean = handle.data.applied_state().ok() == handle.data.flushed_state().ok();
            if clean {
                continue;
            }
            if let Err(error) = handle.data.flush(true) {
                tracing::warn!(tablet = %handle.id(), %error, "could not flush at shutdown; the log will be replayed");
            }
        }
        for disk in self.replicas.disks.working() {
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

/// Opens the data directories.
fn open_disks(
    options: &mut StoreOptions,
    shared: &Shared,
    directories: Vec<DataDirectory>,
    wall_us: i64,
) -> Result<Disks, StorageError> {
    let mut disks = Vec::new();
    for directory in directories {
        directory.tidy(wall_us)?;
        let log_bytes = shared.options().log_bytes;
        let disk = Disk::open(directory, log_bytes, options.disk_reserve_bytes)?;
        begin_run(&disk, options.durability)?;
        if disk.log_limit_bytes < log_bytes {
            // Unflushed entries must fit into the log of a small disk as well. Otherwise entries are truncated that
            // other members still need.
            options.replay_bytes = options.replay_bytes.min((disk.log_limit_bytes / 2).max(LOG_FILE_BYTES));
        }
        disks.push(disk);
    }
    Ok(Disks::new(disks))
}

/// Checks whether the log on the disk has lost a part that was not durable, and records whether this run may lose one.
fn begin_run(disk: &Disk, durability: Durability) -> Result<(), StorageError> {
    let boot = machine_boot();
    if disk.directory.may_have_lost_writes(&boot)? {
        let replicas = disk.log.forget_floors()?;
        let path = disk.directory.path().display();
        tracing::warn!(
            %path,
            replicas,
            "the node did not stop in order, and the machine was started again: the last writes may be lost on this disk; its replicas ask the others"
        );
    }
    match durability {
        Durability::Fsync => disk.directory.end_run(),
        Durability::Interval(_) => disk.directory.begin_run(&boot),
    }
}

/// Makes the whole log on a disk durable and records that, as the node stops in order.
fn end_log(disk: &Disk) -> Result<(), StorageError> {
    disk.log.sync()?;
    disk.log.note_durable()?;
    disk.directory.end_run()
}
