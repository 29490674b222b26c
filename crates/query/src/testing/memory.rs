//! Tablets in memory.
//!
//! Always true: stamps follow the order of writes; overwriting follows the same rule as the replicated store's. Left
//! out: failures, except that a change of the catalog may remove tablets, and those that a test asks for.

mod leaders;
pub mod shared;
mod slow;
mod stored;
mod tablet;

use self::shared::{Transactions, Versions};
use self::tablet::{Changes, Tablet};
use crate::exec::pushdown::PartialAggregator;
use crate::exec::source::scan_entries;
use crate::index::{self, Unfinished};
use crate::kv::several::{self, Several};
use crate::kv::{
    Fetch, FetchRows, Fetched, IndexScan, Kv, KvError, NodeInfo, Now, Replicas, ScanChunk, ScanRequest, WriteReply,
    WriteSink,
};
use crate::program::TabletEvaluator;
use arc_swap::ArcSwap;
use diorite_base::mutation::{Body, EvaluationContext, Evaluator, Mutation, MutationRef, OperationKind};
use diorite_base::{Level, Levels, NodeId, TabletId};
use diorite_cluster::catalog::{Catalog, Command, NodeDescription};
use diorite_transact::version::DataVersion;
pub(super) use indexes::Uncompared;
use parking_lot::Mutex;
use std::collections::{HashMap, VecDeque};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicI64, AtomicU64, AtomicUsize, Ordering};
use std::task::Poll;
use uuid::Uuid;

mod indexes;

const START_US: i64 = 1_700_000_000_000_000;

/// The outcome of a write.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Fate {
    /// It is applied and answered.
    Applied,
    /// It is applied, and answered after so many polls.
    AppliedLate(usize),
    /// It is applied, and this error is returned after so many polls.
    AppliedUnheard(usize, KvError),
    /// It is refused with this.
    Refused(KvError),
}

/// Long work.
#[derive(Default)]
pub struct Long {
    /// How often some, or a drop, was moved to another thread.
    pub works: AtomicUsize,
    /// As if too much of it waited.
    pub is_refused: AtomicBool,
}

/// What is to happen after so many accesses, if this is the next one; otherwise one access less is left.
fn due<T>(planned: &mut Option<(usize, T)>) -> Option<T> {
    match planned {
        Some((0, _)) => planned.take().map(|(_, what)| what),
        Some((accesses, _)) => {
            *accesses -= 1;
            None
        }
        None => None,
    }
}

/// What others do while a statement is carried out.
pub type Meanwhile = Box<dyn FnOnce() + Send>;

/// What takes its time ([`slow`]).
#[derive(Default)]
struct Slow {
    /// Tablets whose leader does not answer reads.
    silent: Vec<TabletId>,
    /// How long the tablets of a change of the catalog take to open.
    opening_us: i64,
}

/// See the top of this module.
pub struct MemoryKv {
    catalog: ArcSwap<Catalog>,
    tablets: Mutex<HashMap<TabletId, Tablet>>,
    now_us: AtomicI64,
    last_stamp_us: AtomicI64,
    /// `get_now` answers that it would block.
    pub is_cold: AtomicBool,
    /// How many scans there were.
    pub scans: AtomicUsize,
    /// How many reads there were that may have to wait: of single rows here, and of anything anywhere.
    pub gets: AtomicUsize,
    pub fetches: AtomicUsize,
    /// The most entries that a scan has asked for; it gets three.
    pub most_entries: AtomicUsize,
    /// How many entries were brought to the node that asked.
    pub shipped: AtomicUsize,
    /// Folds are declined, as by a node whose catalog is older.
    pub declines_tasks: AtomicBool,
    aggregator: PartialAggregator,
    /// How many cold reads of named rows there are at the moment.
    waiting: AtomicUsize,
    /// How many cold reads of named rows there were at once.
    pub most_waiting: AtomicUsize,
    /// The leader of all tablets; `None`: this node. Requests are carried out here in either case.
    pub leader: Mutex<Option<NodeId>>,
    /// The error of every access to a tablet.
    pub failure: Mutex<Option<KvError>>,
    /// A tablet that cannot be accessed.
    failing_tablet: Mutex<Option<TabletId>>,
    /// What takes its time.
    slow: Mutex<Slow>,
    /// A change of the catalog after so many accesses to tablets, just before the next.
    pub interruption: Mutex<Option<(usize, Command)>>,
    /// After so many accesses, this happens before the next one.
    meanwhile: Mutex<Option<(usize, Meanwhile)>>,
    /// The outcomes of the next writes; later writes are applied.
    pub fates: Mutex<VecDeque<Fate>>,
    /// How many writes were sent.
    pub writes: AtomicUsize,
    /// When the write that was sent last ends.
    pub deadline_ns: AtomicU64,
    pub long: Long,
    pub discarded: AtomicUsize,
    /// After so many changes of the catalog, one fails with this.
    pub failing_change: Mutex<Option<(usize, KvError)>>,
    transactions: Transactions,
    /// Indexes are not built.
    leaves_indexes: AtomicBool,
    /// The tables and tablets of malformed rows that have ended statements.
    malformed: Mutex<Vec<(String, TabletId)>>,
}

impl MemoryKv {
    /// Of a cluster at this level.
    pub fn at_level(level: Level) -> Self {
        let node = NodeDescription {
            host_id: Uuid::from_u128(1),
            address: "127.0.0.1".parse().unwrap(),
            cql_port: 9042,
            rpc_port: 7100,
            http_port: 7000,
            data_center: "datacenter1".to_owned(),
            zone: "rack1".to_owned(),
            node_address: None,
            levels: Some(Levels::OWN),
        };
        let bootstrap = Command::Bootstrap {
            cluster_id: Uuid::from_u128(2),
            name: "test".to_owned(),
            replication_factor: 1,
            requires_login: None,
            level,
        };
        let (catalog, ..) = Catalog::default().apply(&bootstrap);
        let (catalog, ..) = catalog.apply(&Command::RegisterNode { node });
        Self {
            catalog: ArcSwap::from_pointee(catalog),
            tablets: Mutex::default(),
            now_us: AtomicI64::new(START_US),
            last_stamp_us: AtomicI64::new(0),
            is_cold: AtomicBool::new(false),
            scans: AtomicUsize::new(0),
            gets: AtomicUsize::new(0),
            fetches: AtomicUsize::new(0),
            most_entries: AtomicUsize::new(0),
            shipped: AtomicUsize::new(0),
            declines_tasks: AtomicBool::new(false),
            aggregator: PartialAggregator::default(),
            waiting: AtomicUsize::new(0),
            most_waiting: AtomicUsize::new(0),
            leader: Mutex::default(),
            failure: Mutex::default(),
            failing_tablet: Mutex::default(),
            slow: Mutex::default(),
            interruption: Mutex::default(),
            meanwhile: Mutex::default(),
            fates: Mutex::default(),
            writes: AtomicUsize::new(0),
            deadline_ns: AtomicU64::new(0),
            long: Long::default(),
            discarded: AtomicUsize::new(0),
            failing_change: Mutex::default(),
            transactions: Transactions::default(),
            leaves_indexes: AtomicBool::default(),
            malformed: Mutex::default(),
        }
    }

    fn stored(&self, id: TabletId, key: &[u8]) -> Result<Option<Vec<u8>>, KvError> {
        let tablets = self.tablets.lock();
        let Some(tablet) = tablets.get(&id) else { return Ok(None) };
        if tablet.is_locked(key) { Err(KvError::Locked(id)) } else { Ok(tablet.entries.get(key).cloned()) }
    }

    /// Moves time.
    pub fn advance_s(&self, seconds: i64) {
        self.now_us.fetch_add(seconds * 1_000_000, Ordering::Relaxed);
    }

    /// After so many accesses this is done before the next one. Returns what was to be done and was not.
    pub fn set_meanwhile(&self, meanwhile: Option<(usize, Meanwhile)>) -> Option<(usize, Meanwhile)> {
        std::mem::replace(&mut self.meanwhile.lock(), meanwhile)
    }

    /// Whether the tablet is there.
    fn check(&self, id: TabletId) -> Result<(), KvError> {
        let command = due(&mut self.interruption.lock());
        if let Some(command) = command {
            self.command(&command);
        }
        let happens = due(&mut self.meanwhile.lock());
        if let Some(happens) = happens {
            happens();
        }
        if let Some(failure) = self.failure.lock().clone() {
            return Err(failure);
        }
        if *self.failing_tablet.lock() == Some(id) {
            return Err(KvError::Unavailable(id));
        }
        match self.catalog.load().placement(id) {
            Some(_) => Ok(()),
            None => Err(KvError::NoSuchTablet(id)),
        }
    }

    fn apply(&self, id: TabletId, mutation: Mutation) -> Result<WriteReply, KvError> {
        self.apply_to(self.tablets.lock().entry(id).or_default(), mutation)
    }

    fn apply_to(&self, tablet: &mut Tablet, mut mutation: Mutation) -> Result<WriteReply, KvError> {
        let stamp_us = self.stamp(tablet.promised_us());
        tablet.newest_us = stamp_us;
        mutation.stamp(stamp_us);
        let read = MutationRef::decode(mutation.as_bytes()).unwrap();
        tablet.newest_explicit_us = tablet.newest_explicit_us.max(read.explicit_us);
        let newest_explicit_us = tablet.newest_explicit_us.unwrap_or(i64::MIN);
        match read.body() {
            Body::Blind(operations) => {
                for (nth, operation) in (0..).zip(operations) {
                    let operation = operation.unwrap();
                    let mut value = operation.value.to_vec();
                    if operation.is_unplaced {
                        TabletEvaluator.place(&mut value, stamp_us, nth);
                    }
                    match operation.kind {
                        OperationKind::Overwrite if stamp_us > newest_explicit_us => tablet.put(operation.key, &value),
                        _ => tablet.merge(operation.key, &value),
                    }
                }
                Ok(Vec::new())
            }
            Body::Evaluated(program) => {
                let context = EvaluationContext::new(stamp_us, newest_explicit_us);
                let mut changes = Changes::default();
                let reply = TabletEvaluator.evaluate(program, context, tablet, &mut changes).unwrap();
                changes.0.into_iter().for_each(|change| change(tablet));
                Ok(reply)
            }
            Body::Request(_) | Body::Step(_) => panic!("requests are answered and steps are made by leaders"),
        }
    }

    /// The answer to a read, at once.
    fn read(&self, tablet: TabletId, request: Fetch) -> Result<Fetched, KvError> {
        let tablets = self.tablets.lock();
        let empty = Tablet::default();
        let id = tablet;
        let mut tablet = tablets.get(&id).unwrap_or(&empty);
        let pinned;
        if let Some(read) = &request.pinned {
            pinned = tablet.as_pinned(read).ok_or(KvError::Locked(id))?;
            tablet = &pinned;
        } else if tablet.meets_lock(&request) {
            return Err(KvError::Locked(id));
        }
        let get = |key: &Vec<u8>| tablet.entries.get(key).cloned();
        let header = request.header.filter(|(flags, _)| tablet.flags & flags != 0);
        let version = match *self.transactions.versions.lock() {
            Versions::Elsewhere if request.wants_version => Some(version(tablet.newest_us.unsigned_abs())),
            Versions::KeptElsewhere if request.wants_version => Some(version(0)),
            _ => None,
        };
        let mut fetched = Fetched {
            version,
            header: header.and_then(|(_, key)| get(&key)),
            static_row: request.static_row.as_ref().and_then(get),
            ..Fetched::default()
        };
        match request.rows {
            FetchRows::Nothing => {}
            FetchRows::One(key) => fetched.row = get(&key),
            FetchRows::Range(range) => {
                self.scans.fetch_add(1, Ordering::Relaxed);
                let within = tablet.entries.range(range.start.clone()..range.end.clone());
                let entries: Vec<_> = within.map(|(key, value)| (key.clone(), value.clone())).collect();
                // Small chunks, so that tests see their seams.
                self.most_entries.fetch_max(range.max_entries, Ordering::Relaxed);
                let range = ScanRequest { max_entries: range.max_entries.min(3), ..range };
                fetched.chunk = scan_entries(&entries, &range);
            }
            FetchRows::Several(several) => {
                self.scans.fetch_add(1, Ordering::Relaxed);
                fetched.chunk = read_several(tablet, &several);
            }
            FetchRows::Index(scan) => {
                self.scans.fetch_add(1, Ordering::Relaxed);
                let scan = IndexScan { max_entries: scan.max_entries.min(3), ..scan };
                match index::read(tablet, &scan) {
                    Ok(found) => fetched.chunk = found.chunk,
                    Err(Unfinished::BeingBuilt) => return Err(KvError::IndexBeingBuilt),
                    Err(error) => panic!("memory can be read: {error:?}"),
                }
            }
        }
        if let Some(task) = &request.aggregate {
            let catalog = match self.declines_tasks.load(Ordering::Relaxed) {
                true => Arc::new(Catalog::default()),
                false => self.catalog.load_full(),
            };
            let partial = self.aggregator.aggregate(&catalog, task, &fetched);
            return Ok(Fetched { partial: Some(partial), ..Fetched::default() });
        }
        self.shipped.fetch_add(fetched.chunk.ends.len() + usize::from(fetched.row.is_some()), Ordering::Relaxed);
        Ok(fetched)
    }
}

/// Lets others go on.
pub async fn yield_once() {
    let mut has_yielded = false;
    std::future::poll_fn(|context| {
        if std::mem::replace(&mut has_yielded, true) {
            return Poll::Ready(());
        }
        context.waker().wake_by_ref();
        Poll::Pending
    })
    .await;
}

/// Reads spans in small chunks, so that tests see their seams.
fn read_several(tablet: &Tablet, several: &Several) -> ScanChunk {
    let mut chunk = ScanChunk { exhausted: true, ..ScanChunk::default() };
    for span in several::decode(&several.spans) {
        let span = span.expect("the other side encoded it");
        if span.if_flags != 0 && span.if_flags & tablet.flags == 0 {
            continue;
        }
        let within = tablet.entries.iter().filter(|(key, _)| match &span.end {
            None => **key == span.start,
            Some(end) => **key >= span.start && *key < end,
        });
        let mut entries: Vec<_> = within.collect();
        if several.reverse {
            entries.reverse();
        }
        for (key, value) in entries {
            if chunk.is_full(several.max_entries.min(3), several.max_bytes) {
                chunk.exhausted = false;
                return chunk;
            }
            chunk.push(key, value);
        }
    }
    chunk
}

fn version(changes: u64) -> DataVersion {
    DataVersion { node: NodeId(1), term: 1, changes }
}

impl Kv for MemoryKv {
    type Pinned = Vec<u8>;

    fn get_now(&self, tablet: TabletId, key: &[u8]) -> Result<Now<Option<Vec<u8>>>, KvError> {
        self.check(tablet)?;
        if self.is_cold.load(Ordering::Relaxed) {
            return Ok(Now::WouldBlock);
        }
        self.stored(tablet, key).map(Now::Ready)
    }

    async fn get(&self, tablet: TabletId, key: Vec<u8>, _: Option<u64>) -> Result<Option<Option<Vec<u8>>>, KvError> {
        self.gets.fetch_add(1, Ordering::Relaxed);
        self.check(tablet)?;
        if self.leader.lock().is_some() {
            return Ok(None);
        }
        yield_once().await;
        self.stored(tablet, &key).map(Some)
    }

    fn fetch_now(&self, tablet: TabletId, request: &Fetch) -> Result<Now<Fetched>, KvError> {
        let is_elsewhere = self.is_cold.load(Ordering::Relaxed) || self.leader.lock().is_some();
        if is_elsewhere || !matches!(request.rows, FetchRows::Index(_) | FetchRows::Range(_)) {
            return Ok(Now::WouldBlock);
        }
        self.check(tablet)?;
        self.read(tablet, request.clone()).map(Now::Ready)
    }

    async fn fetch(&self, tablet: TabletId, request: Fetch) -> Result<Fetched, KvError> {
        self.run_spawned();
        self.fetches.fetch_add(1, Ordering::Relaxed);
        self.check(tablet)?;
        self.reached(tablet, request.deadline_ns).await?;
        if self.is_cold.load(Ordering::Relaxed)
            && matches!(request.rows, FetchRows::One(_) | FetchRows::Several(_) | FetchRows::Index(_))
        {
            let waiting = self.waiting.fetch_add(1, Ordering::Relaxed) + 1;
            self.most_waiting.fetch_max(waiting, Ordering::Relaxed);
            let further = self.transactions.cold_polls.load(Ordering::Relaxed) * (tablet.0 as usize % 2);
            for _ in 0..=further {
                yield_once().await;
            }
            self.waiting.fetch_sub(1, Ordering::Relaxed);
        }
        let wants_version = request.wants_version;
        let fetched = self.read(tablet, request)?;
        if wants_version {
            // An answer takes its time.
            yield_once().await;
        }
        Ok(fetched)
    }

    fn flags(&self, tablet: TabletId) -> Result<u64, KvError> {
        self.check(tablet)?;
        Ok(self.tablets.lock().get(&tablet).map_or(0, |tablet| tablet.flags))
    }

    fn note_malformed(&self, table: &str, tablet: TabletId) {
        self.malformed.lock().push((table.to_owned(), tablet));
    }

    fn version(&self, id: TabletId) -> Option<DataVersion> {
        match *self.transactions.versions.lock() {
            Versions::Unknown | Versions::Elsewhere | Versions::KeptElsewhere => None,
            Versions::Known => {
                Some(version(self.tablets.lock().get(&id).map_or(0, |tablet| tablet.newest_us.unsigned_abs())))
            }
            Versions::Kept => Some(version(0)),
        }
    }

    fn submit(
        &self,
        tablet: TabletId,
        mutation: Mutation,
        sink: &Arc<dyn WriteSink>,
        token: u64,
    ) -> Result<(), KvError> {
        self.check(tablet)?;
        self.check_maintained(tablet, &mutation)?;
        let fate = self.fates.lock().pop_front().unwrap_or(Fate::Applied);
        if let Fate::Refused(error) = fate {
            return Err(error);
        }
        let mutation = match self.queue(tablet, mutation, Some((Arc::clone(sink), token))) {
            Ok(_) => return Ok(()),
            Err(mutation) => mutation,
        };
        let applied = self.apply(tablet, mutation);
        let outcome = if let Fate::AppliedUnheard(_, error) = fate { Err(error) } else { applied };
        sink.complete(&mut vec![(token, outcome)]);
        Ok(())
    }

    fn kick(&self) {}

    async fn write(
        &self,
        tablet: TabletId,
        mutation: Mutation,
        deadline_ns: Option<u64>,
    ) -> Result<WriteReply, KvError> {
        self.run_spawned();
        self.writes.fetch_add(1, Ordering::Relaxed);
        self.deadline_ns.store(deadline_ns.unwrap_or(u64::MAX), Ordering::Relaxed);
        let fate = self.fates.lock().pop_front().unwrap_or(Fate::Applied);
        if let Fate::Refused(error) = fate {
            return Err(error);
        }
        self.check(tablet)?;
        self.check_maintained(tablet, &mutation)?;
        let applied = match MutationRef::decode(mutation.as_bytes()).unwrap().body() {
            Body::Request(call) => self.call(tablet, call).await?,
            _ => match self.queue(tablet, mutation, None) {
                Ok(number) => self.answer(number).await?,
                Err(mutation) => self.apply(tablet, mutation)?,
            },
        };
        let (polls, outcome) = match fate {
            Fate::AppliedLate(polls) => (polls, Ok(applied)),
            Fate::AppliedUnheard(polls, error) => (polls, Err(error)),
            Fate::Applied | Fate::Refused(_) => (0, Ok(applied)),
        };
        for _ in 0..polls {
            yield_once().await;
        }
        outcome
    }

    fn catalog(&self) -> Arc<Catalog> {
        self.catalog.load_full()
    }

    async fn run_long<T: Send>(&self, work: impl FnOnce() -> T + Send) -> Result<T, KvError> {
        if self.long.is_refused.load(Ordering::Relaxed) {
            return Err(KvError::Overloaded("too many long statements wait"));
        }
        Ok(self.finish_long(work).await)
    }

    async fn finish_long<T: Send>(&self, work: impl FnOnce() -> T + Send) -> T {
        self.long.works.fetch_add(1, Ordering::Relaxed);
        work()
    }

    fn discard(&self, garbage: Box<dyn Send>) {
        self.discarded.fetch_add(1, Ordering::Relaxed);
        drop(garbage);
    }

    async fn change_catalog(&self, command: &Command, deadline_ns: Option<u64>) -> Result<Vec<u8>, KvError> {
        self.begun(deadline_ns)?;
        if let Some((before, error)) = &mut *self.failing_change.lock() {
            match before.checked_sub(1) {
                Some(left) => *before = left,
                None => return Err(error.clone()),
            }
        }
        let proven = command.proven_at(self.catalog.load().level())?;
        let (catalog, outcome) = self.catalog.load().apply(&Command::decode(proven.as_bytes()).unwrap());
        self.catalog.store(Arc::new(catalog));
        self.keep_indexes();
        self.opened();
        Ok(outcome.encode())
    }

    fn local_node(&self) -> NodeInfo {
        NodeInfo {
            node: NodeId(1),
            host_id: Uuid::from_u128(1),
            address: "127.0.0.1".parse().unwrap(),
            cql_port: 9042,
            data_center: "datacenter1".to_owned(),
            rack: "rack1".to_owned(),
            tokens: vec![0],
        }
    }

    fn peers(&self) -> Vec<NodeInfo> {
        Vec::new()
    }

    fn replicas(&self, _: TabletId) -> Replicas {
        Replicas { required: 2, alive: 1 }
    }

    fn leader(&self, _tablet: TabletId) -> Option<NodeId> {
        Some(self.leader.lock().unwrap_or(NodeId(1)))
    }

    fn spawn(&self, work: impl Future<Output = ()> + Send + 'static) {
        self.keep(Box::pin(work));
    }

    async fn pause(&self, duration_ns: u64) {
        self.elapse_us((duration_ns / 1_000) as i64);
        yield_once().await;
    }

    fn now_us(&self) -> i64 {
        self.now_us.load(Ordering::Relaxed)
    }

    fn monotonic_ns(&self) -> u64 {
        self.elapsed_ns()
    }
}
