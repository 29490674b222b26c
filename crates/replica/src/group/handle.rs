//! The handle of a tablet replica, for other threads: they read its data while it holds the lease, and read its state.

mod glance;

pub use glance::Glance;

use crate::group::lease::LeaseSlot;
use crate::group::misses::Misses;
use crate::group::pins::PinnedTablet;
use crate::group::prepared::{PreparedNow, PreparedTransaction};
use crate::group::roles::Roles;
use crate::group::samples::KeySamples;
use crate::group::split::SplitMark;
use crate::group::stale::StaleEntries;
use crate::group::transacted::Transacted;
use crate::planted::Planted;
use arc_swap::ArcSwapOption;
use diorite_base::account::Account;
use diorite_base::write::KvError;
use diorite_base::{Clock, NodeId, TabletId};
use diorite_raft::Term;
use diorite_storage::{Moment, PinnedValue, ScanRange, StorageError, Tablet, TabletData, UNKNOWN_GRACE_S};
use diorite_transact::version::DataVersion;
use diorite_transact::wire::PinId;
use parking_lot::Mutex;
use std::collections::BTreeSet;
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering};
use std::sync::{Arc, OnceLock};

/// The shortest time between two requests for the leader's position, nanoseconds.
const MIN_REFRESH_NS: u64 = 5_000_000;

/// The leadership of a tablet, as far as its replica on this node knows.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Leadership {
    /// This replica leads and may serve.
    Here,
    /// The replica on that node leads.
    Elsewhere(NodeId),
    /// The leader is not known.
    Unknown,
}

/// The condition under which a read is valid.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Permit {
    /// The lease of the leader: the read is linearizable.
    Lease,
    /// The replica, leader or not, holds everything that was acknowledged this long ago, nanoseconds.
    Staleness(u64),
}

/// A read under way.
enum Begun {
    InTerm(Term),
    Within(u64),
}

/// Sizes of a replica's log.
pub(crate) struct LogSizes {
    /// Index of the last truncated entry.
    pub(crate) start: AtomicU64,
    /// Bytes appended since the process started.
    pub(crate) written_bytes: AtomicU64,
    /// `written_bytes` when the last flush began.
    pub(crate) flushed_bytes: AtomicU64,
    /// The node-wide log position at which the oldest unflushed write was appended; `u64::MAX` if all is flushed.
    pub(crate) oldest_unflushed: AtomicU64,
    /// Members that lag keep the log from being truncated further.
    pub(crate) is_held_back: AtomicBool,
}

/// The child tablets of a tablet that is to be split, or was.
pub(crate) struct Children {
    /// The first log index that prepared child tablets lack; `u64::MAX` if there are none.
    pub(crate) from: AtomicU64,
    /// For a leader: the nodes that have prepared them.
    pub(crate) prepared: Mutex<BTreeSet<NodeId>>,
    /// How the tablet was split.
    pub(crate) split: ArcSwapOption<SplitMark>,
}

/// Failures of reads, and of the log.
#[derive(Default)]
pub(crate) struct Health {
    /// Whether the replica is below its floor.
    pub(crate) is_recovering: AtomicBool,
    /// Whether a read has failed since upkeep last checked.
    pub(crate) read_failed: AtomicBool,
    /// The damage that a read has found, if any.
    pub(crate) damage: OnceLock<String>,
}

/// The load of a tablet.
#[derive(Default)]
pub(crate) struct Load {
    pub(crate) reads: AtomicU64,
    pub(crate) writes: AtomicU64,
    /// Sampled keys of reads and writes.
    pub(crate) samples: KeySamples,
    /// How many reads by key were looked up in memory in vain.
    pub(crate) misses: Misses,
    /// Index entries that readers have found stale.
    pub(crate) stale: Mutex<StaleEntries>,
}

/// A tablet replica, as seen from any thread.
pub struct TabletHandle<T: TabletData = Tablet> {
    tablet: TabletId,
    worker: usize,
    disk: usize,
    node: NodeId,
    clock: Arc<dyn Clock>,
    /// When the leader was last asked for its position, for a reader of this replica.
    refreshed_ns: AtomicU64,
    pub(crate) data: Arc<T>,
    pub(crate) lease: LeaseSlot,
    pub(crate) roles: Roles,
    /// For a follower: the monotonic time before which everything acknowledged is held by this replica; 0 if unknown.
    pub(crate) fresh_ns: AtomicU64,
    pub(crate) flags: AtomicU64,
    /// `gc_grace_seconds` of the table according to the catalog. The leader writes it to the log.
    pub(crate) gc_grace_s: AtomicU32,
    pub(crate) log: LogSizes,
    pub(crate) children: Children,
    pub(crate) health: Health,
    pub(crate) load: Load,
    pub(crate) transacted: Transacted<T::Snapshot>,
    pub(crate) planted: Planted,
}

impl<T: TabletData> TabletHandle<T> {
    pub(crate) fn new(
        tablet: TabletId,
        data: Arc<T>,
        (worker, disk): (usize, usize),
        flags: u64,
        node: NodeId,
        clock: Arc<dyn Clock>,
    ) -> Self {
        let log = LogSizes {
            start: AtomicU64::new(0),
            written_bytes: AtomicU64::new(0),
            flushed_bytes: AtomicU64::new(0),
            oldest_unflushed: AtomicU64::new(u64::MAX),
            is_held_back: AtomicBool::new(false),
        };
        let children =
            Children { from: AtomicU64::new(u64::MAX), prepared: Mutex::default(), split: ArcSwapOption::empty() };
        Self {
            tablet,
            worker,
            disk,
            node,
            clock,
            refreshed_ns: AtomicU64::new(0),
            data,
            lease: LeaseSlot::default(),
            roles: Roles::default(),
            fresh_ns: AtomicU64::new(0),
            flags: AtomicU64::new(flags),
            gc_grace_s: AtomicU32::new(UNKNOWN_GRACE_S),
            log,
            children,
            health: Health::default(),
            load: Load::default(),
            transacted: Transacted::default(),
            planted: Planted::default(),
        }
    }

    /// The index of the store thread that runs the replica.
    pub(crate) fn worker(&self) -> usize {
        self.worker
    }

    pub(crate) fn memory_bytes(&self) -> u64 {
        self.data.memory_bytes()
    }

    /// Its id.
    pub fn id(&self) -> TabletId {
        self.tablet
    }

    /// The index of its data directory.
    pub fn disk(&self) -> usize {
        self.disk
    }

    /// The data, for its sizes.
    pub fn data(&self) -> &Arc<T> {
        &self.data
    }

    /// Whether the replica lost entries that it had acknowledged and does not hold as much again: until then it counts
    /// for no quorum.
    pub fn is_recovering(&self) -> bool {
        self.health.is_recovering.load(Ordering::Acquire)
    }

    /// The flag bits that evaluated mutations have raised. A flag is raised before the data that belongs to it can be
    /// read: a reader that reads the data first and then finds a flag not raised has read a moment before it was.
    pub fn flags(&self) -> u64 {
        self.flags.load(Ordering::Acquire)
    }

    /// Reads served and writes applied since the start.
    pub fn operations(&self) -> (u64, u64) {
        (self.load.reads.load(Ordering::Relaxed), self.load.writes.load(Ordering::Relaxed))
    }

    /// Samples of keys (their first eight bytes) since the last call: one operation in 64, at most the newest 64. Only
    /// a leader samples; other replicas apply writes too.
    pub fn take_samples(&self) -> Vec<[u8; 8]> {
        self.load.samples.take()
    }

    /// Notes index entries whose rows do not have the value any more, for this node to remove them; their memory is
    /// charged to `account`.
    pub fn note_stale(&self, entries: Vec<Vec<u8>>, account: &Arc<Account>) {
        if !entries.is_empty() {
            self.load.stale.lock().add(entries, account);
        }
    }

    /// The index entries that readers have found stale since the last call.
    pub fn take_stale(&self) -> StaleEntries {
        std::mem::take(&mut *self.load.stale.lock())
    }

    /// Counts an operation: one relaxed addition to the tablet's own cache line, next to the lease that was just read.
    #[inline]
    fn count_read(&self, key: &[u8]) {
        let nth = self.load.reads.fetch_add(1, Ordering::Relaxed);
        self.load.samples.offer(nth, key);
    }

    /// What is known of recent look-ups in memory.
    pub fn misses(&self) -> &Misses {
        &self.load.misses
    }

    /// Whether this time on the monotonic clock, if it is given, has passed.
    pub fn is_past(&self, deadline_ns: Option<u64>) -> bool {
        deadline_ns.is_some_and(|deadline_ns| self.clock.monotonic_ns() >= deadline_ns)
    }

    /// Who leads the tablet.
    pub fn leadership(&self) -> Leadership {
        if self.lease.begin(|| self.lease_clock_ns()).is_some() {
            return Leadership::Here;
        }
        match NodeId(self.roles.leader.load(Ordering::Acquire)) {
            NodeId(0) => Leadership::Unknown,
            leader if leader == self.node => Leadership::Unknown,
            leader => Leadership::Elsewhere(leader),
        }
    }

    /// For a leader with a lease: the voters, if they are as wanted and no change is under way; see
    /// [`crate::Store::committed_voters`].
    pub fn committed_voters(&self) -> Option<Vec<NodeId>> {
        let term = self.begin_read().ok()?;
        let voters = self.roles.committed_voters.load_full()?;
        self.finish_read(term).ok()?;
        Some(voters.to_vec())
    }

    /// Sets how long deletions are kept, seconds.
    pub fn set_gc_grace_s(&self, gc_grace_s: u32) {
        self.gc_grace_s.store(gc_grace_s, Ordering::Relaxed);
    }

    /// The split of the tablet, if it was split.
    pub fn split(&self) -> Option<SplitMark> {
        self.children.split.load_full().map(|mark| SplitMark::clone(&mark))
    }

    /// For a leader: the other nodes that have prepared its child tablets.
    pub fn prepared_elsewhere(&self) -> BTreeSet<NodeId> {
        self.children.prepared.lock().clone()
    }

    /// The split was cancelled: forgets who has prepared the child tablets, and keeps no log for them.
    pub fn forget_children(&self) {
        self.keep_for_children(u64::MAX);
        self.children.prepared.lock().clear();
    }

    /// Keeps the log from this index on, which prepared child tablets lack; `u64::MAX`: there are none.
    pub fn keep_for_children(&self, from: u64) {
        self.children.from.store(from, Ordering::Relaxed);
    }

    /// Index of the last truncated entry.
    pub fn log_start(&self) -> u64 {
        self.log.start.load(Ordering::Acquire)
    }

    /// Begins a read on a replica that has a lease, valid or not: validity is checked once for the whole read, at its
    /// end, by [`Self::finish_read`] with the term that this returns.
    pub fn begin_read(&self) -> Result<Term, KvError> {
        self.lease.term().ok_or_else(|| self.not_leader())
    }

    /// Ends a read: an error if the data may have been out of date. The lease is checked after the data was read,
    /// because a process that was paused in between must not answer with outdated data.
    pub fn finish_read(&self, term: Term) -> Result<(), KvError> {
        if self.lease.still_holds(term, || self.lease_clock_ns()) { Ok(()) } else { Err(self.not_leader()) }
    }

    /// The time that leases are compared with. With the bug planted, no lease ever ends.
    fn lease_clock_ns(&self) -> u64 {
        if self.planted.answer_without_lease { 0 } else { self.clock.monotonic_ns() }
    }

    /// Whether a read that may be this old, nanoseconds, can be answered here; and whether to ask the leader for its
    /// position now.
    pub(crate) fn freshness(&self, staleness_ns: u64) -> (bool, bool) {
        let now_ns = self.clock.monotonic_ns();
        let age_ns = now_ns.saturating_sub(self.fresh_ns.load(Ordering::Acquire));
        let asked_ns = self.refreshed_ns.load(Ordering::Relaxed);
        let is_due =
            age_ns > staleness_ns / 2 && now_ns.saturating_sub(asked_ns) > (staleness_ns / 8).max(MIN_REFRESH_NS);
        let asks = is_due
            && self.refreshed_ns.compare_exchange(asked_ns, now_ns, Ordering::Relaxed, Ordering::Relaxed).is_ok();
        (self.is_within(staleness_ns), asks)
    }

    fn is_within(&self, staleness_ns: u64) -> bool {
        let fresh_ns = self.fresh_ns.load(Ordering::Acquire);
        fresh_ns != 0 && self.clock.monotonic_ns().saturating_sub(fresh_ns) <= staleness_ns
    }

    /// Whether a read may be answered here now.
    pub fn check(&self, permit: Permit) -> Result<(), KvError> {
        self.finish(&self.begin(permit)?)
    }

    fn begin(&self, permit: Permit) -> Result<Begun, KvError> {
        match permit {
            Permit::Lease => self.begin_read().map(Begun::InTerm),
            Permit::Staleness(most_ns) if self.is_within(most_ns) => Ok(Begun::Within(most_ns)),
            Permit::Staleness(_) => Err(self.not_leader()),
        }
    }

    fn finish(&self, begun: &Begun) -> Result<(), KvError> {
        match begun {
            Begun::InTerm(term) => self.finish_read(*term),
            Begun::Within(most_ns) if self.is_within(*most_ns) => Ok(()),
            Begun::Within(_) => Err(self.not_leader()),
        }
    }

    /// Fails if a transaction has prepared the row. Before the row is read: see [`crate::group::prepared`].
    ///
    /// # Errors
    /// [`KvError::Locked`]
    #[inline]
    pub fn check_row(&self, key: &[u8]) -> Result<(), KvError> {
        self.transacted.prepared.now().map_or(Ok(()), |now| self.unless(now.contains(key)))
    }

    /// The same for a range of rows.
    ///
    /// # Errors
    /// [`KvError::Locked`]
    #[inline]
    pub fn check_range(&self, range: &ScanRange<'_>) -> Result<(), KvError> {
        self.transacted.prepared.now().map_or(Ok(()), |now| self.unless(now.overlap(range.start, range.end)))
    }

    fn unless(&self, is_locked: bool) -> Result<(), KvError> {
        if is_locked { Err(KvError::Locked(self.tablet)) } else { Ok(()) }
    }

    /// The version of the data, if this replica may answer for it, no change is being made, and readers meet all that is
    /// prepared. Several reads between two equal versions have found the tablet as it was at each moment between them.
    pub fn version(&self) -> Option<DataVersion> {
        let changes = self.transacted.changes().filter(|_| self.transacted.prepared.are_met())?;
        let term = self.begin_read().ok()?;
        self.finish_read(term).ok()?;
        let changes = if self.planted.keep_version { 0 } else { changes };
        Some(DataVersion { node: self.node, term: term.0, changes })
    }

    /// A snapshot that a read of several tablets keeps, if it still does.
    pub fn pinned(&self, pin: PinId) -> Option<Arc<PinnedTablet<T::Snapshot>>> {
        self.transacted.pins.get(pin, self.clock.monotonic_ns())
    }

    /// The transactions that are prepared here.
    pub fn prepared_transactions(&self) -> Vec<PreparedTransaction> {
        self.transacted.prepared.at(self.clock.wall_us())
    }

    /// How many snapshots reads of several tablets keep.
    pub fn snapshots_kept(&self) -> usize {
        self.transacted.pins.len()
    }

    /// Notes a failed read. Upkeep checks whether the disk is the cause.
    pub(crate) fn failed_to_read(&self, error: StorageError) -> KvError {
        if error.is_damage() {
            // Only the first damage is kept: one is enough to set the replica aside.
            let _ = self.health.damage.set(error.to_string());
        }
        self.health.read_failed.store(true, Ordering::Relaxed);
        storage_error(error)
    }

    #[cold]
    fn not_leader(&self) -> KvError {
        let leader = Some(NodeId(self.roles.leader.load(Ordering::Acquire)));
        let leader = leader.filter(|leader| leader.0 != 0 && *leader != self.node);
        KvError::NotLeader { tablet: self.tablet, leader }
    }
}

/// Several reads of one tablet, of one moment and under one permit. The results may be used once [`Self::finish`] has
/// succeeded.
pub struct Visit<'h> {
    handle: &'h TabletHandle,
    /// What transactions had prepared before that moment.
    prepared: Option<PreparedNow>,
    moment: Moment<'h>,
    begun: Begun,
}

impl Visit<'_> {
    /// The flag bits that evaluated mutations had raised by that moment, or shortly after.
    pub fn flags(&self) -> u64 {
        self.handle.flags()
    }

    fn check_row(&self, key: &[u8]) -> Result<(), KvError> {
        self.prepared.as_ref().map_or(Ok(()), |now| self.handle.unless(now.contains(key)))
    }

    fn check_range(&self, range: &ScanRange<'_>) -> Result<(), KvError> {
        self.prepared.as_ref().map_or(Ok(()), |now| self.handle.unless(now.overlap(range.start, range.end)))
    }

    /// Reads from memory; `None` if the disk would have to be asked.
    ///
    /// # Errors
    /// If the data cannot be read.
    pub fn get_cached(&self, key: &[u8]) -> Result<Option<Option<PinnedValue>>, KvError> {
        self.check_row(key)?;
        let found = self.moment.get_cached(key).map_err(|error| self.handle.failed_to_read(error))?;
        if found.is_some() {
            self.handle.count_read(key);
        }
        Ok(found)
    }

    /// Reads; may wait for the disk.
    ///
    /// # Errors
    /// If the data cannot be read.
    pub fn get(&self, key: &[u8]) -> Result<Option<PinnedValue>, KvError> {
        self.check_row(key)?;
        self.handle.count_read(key);
        self.moment.get(key).map_err(|error| self.handle.failed_to_read(error))
    }

    /// Scans the live entries of a range, see [`Tablet::scan_live`]; may wait for the disk.
    ///
    /// # Errors
    /// If the data cannot be read.
    pub fn scan(
        &self,
        range: &ScanRange<'_>,
        judged_s: Option<u32>,
        visit: &mut dyn FnMut(&[u8], &[u8]) -> bool,
    ) -> Result<bool, KvError> {
        self.check_range(range)?;
        self.handle.count_read(range.start);
        self.moment.scan_live(range, judged_s, visit).map_err(|error| self.handle.failed_to_read(error))
    }

    /// Scans live entries from memory, see [`Tablet::scan_live_cached`].
    ///
    /// # Errors
    /// If the data cannot be read.
    pub fn scan_cached(
        &self,
        range: &ScanRange<'_>,
        judged_s: Option<u32>,
        visit: &mut dyn FnMut(&[u8], &[u8]) -> bool,
    ) -> Result<Option<bool>, KvError> {
        self.check_range(range)?;
        let found = self.moment.scan_live_cached(range, judged_s, visit);
        let found = found.map_err(|error| self.handle.failed_to_read(error))?;
        if found.is_some() {
            self.handle.count_read(range.start);
        }
        Ok(found)
    }

    /// Fails if a transaction has prepared a row of `start..end`: the entries of an index that follow from it are not
    /// there yet.
    ///
    /// # Errors
    /// [`KvError::Locked`]
    pub fn check_rows(&self, start: &[u8], end: &[u8]) -> Result<(), KvError> {
        self.check_range(&ScanRange { start, end, reverse: false, expected_entries: 0 })
    }

    /// See [`TabletHandle::note_stale`]. Followers do not remove entries.
    pub fn note_stale(&self, entries: Vec<Vec<u8>>, account: &Arc<Account>) {
        if matches!(self.begun, Begun::InTerm(_)) {
            self.handle.note_stale(entries, account);
        }
    }

    /// Ends the reads.
    ///
    /// # Errors
    /// If the values read may have been out of date.
    pub fn finish(&self) -> Result<(), KvError> {
        self.handle.finish(&self.begun)
    }
}

impl TabletHandle {
    /// Begins several reads of one moment.
    ///
    /// # Errors
    /// If the replica may not answer now.
    pub fn visit(&self, permit: Permit) -> Result<Visit<'_>, KvError> {
        let begun = self.begin(permit)?;
        let prepared = self.transacted.prepared.now();
        Ok(Visit { handle: self, prepared, moment: self.data.moment(), begun })
    }

    /// Reads from memory; `None` if the disk would have to be asked.
    pub fn get_cached(&self, permit: Permit, key: &[u8]) -> Result<Option<Option<PinnedValue>>, KvError> {
        let begun = self.begin(permit)?;
        self.check_row(key)?;
        let found = self.data.get_cached(key).map_err(|error| self.failed_to_read(error))?;
        self.finish(&begun)?;
        if found.is_some() {
            self.count_read(key);
        }
        Ok(found)
    }

    /// Reads; may wait for the disk.
    pub fn get(&self, permit: Permit, key: &[u8]) -> Result<Option<PinnedValue>, KvError> {
        let begun = self.begin(permit)?;
        self.check_row(key)?;
        self.count_read(key);
        let found = self.data.get(key).map_err(|error| self.failed_to_read(error))?;
        self.finish(&begun)?;
        Ok(found)
    }

    /// Scans the live entries of a range, see [`Tablet::scan_live`]; may wait for the disk.
    pub fn scan(
        &self,
        permit: Permit,
        range: &ScanRange<'_>,
        judged_s: Option<u32>,
        visit: &mut dyn FnMut(&[u8], &[u8]) -> bool,
    ) -> Result<bool, KvError> {
        let begun = self.begin(permit)?;
        self.check_range(range)?;
        self.count_read(range.start);
        let exhausted = self.data.scan_live(range, judged_s, visit).map_err(|error| self.failed_to_read(error))?;
        self.finish(&begun)?;
        Ok(exhausted)
    }

    /// Scans live entries from memory, see [`Tablet::scan_live_cached`].
    pub fn scan_cached(
        &self,
        permit: Permit,
        range: &ScanRange<'_>,
        judged_s: Option<u32>,
        visit: &mut dyn FnMut(&[u8], &[u8]) -> bool,
    ) -> Result<Option<bool>, KvError> {
        let begun = self.begin(permit)?;
        self.check_range(range)?;
        let found = self.data.scan_live_cached(range, judged_s, visit).map_err(|error| self.failed_to_read(error))?;
        self.finish(&begun)?;
        if found.is_some() {
            self.count_read(range.start);
        }
        Ok(found)
    }
}

pub(crate) fn storage_error(error: StorageError) -> KvError {
    KvError::Storage(error.to_string())
}
