//! The tablets as the query layer sees them: its reads and writes wait here until the simulation has carried them to a
//! node and back.
//!
//! Always true: one event polls one statement; only the answers that it waits for wake it.

use crate::clock::TrueTime;
use diorite_base::account::Account;
use diorite_base::mutation::{Body, Mutation, MutationRef};
use diorite_base::{Clock, Levels, NodeId, TabletId};
use diorite_cluster::catalog::{Catalog, Command, CoveringOutcome, NodeDescription};
use diorite_model::entry;
use diorite_model::schema::{Table, TableEntry};
use diorite_query::exec::source::scan_entries;
use diorite_query::index;
use diorite_query::kv::{
    Fetch, FetchRows, Fetched, IndexScan, Kv, KvError, NodeInfo, Now, ScanChunk, WriteReply, WriteSink, several,
};
use diorite_query::program::Program;
use diorite_replica::{Committed, PinnedView, TabletHandle};
use diorite_storage::{MemoryTablet, ScanRange, StorageError, TabletData};
use diorite_transact::message::{HomePart, Request};
use diorite_transact::version::DataVersion;
use diorite_transact::wire::{Answer, Call, PinId};
use parking_lot::Mutex;
use std::collections::BTreeMap;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::task::{Poll, Waker};
use uuid::Uuid;

/// The most memory of the stale index entries that one read notes.
const STALE_BYTES: usize = 1 << 20;

/// A statement's request to a tablet.
#[derive(Clone, Debug)]
#[allow(clippy::large_enum_variant, reason = "there are few at a time")]
pub enum Asked {
    /// To write.
    Write(Mutation),
    /// To read.
    Fetch(Fetch),
    /// To wait so long, nanoseconds.
    Pause(u64),
}

/// The outcome of a request.
pub type Answered = Result<Given, KvError>;

/// A tablet's answer.
#[derive(Clone, Debug)]
pub enum Given {
    /// The answer to a write.
    Written(WriteReply),
    /// The entries read.
    Fetched(Fetched),
    /// The time has passed.
    Nothing,
}

/// How much of the schema a node knows.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Knows {
    /// The tables, but neither the view nor the covering index.
    Tables,
    /// These as well.
    Views,
    /// And the column that their table has got, and the view with it.
    Columns,
    /// And that the covering index is complete, once it is.
    All,
}

/// The catalogs with the tablets of the beginning, by what nodes know.
struct Defined {
    newest: Arc<Catalog>,
    views: Arc<Catalog>,
    tables: Arc<Catalog>,
    /// Once the covering index was found complete.
    all: Option<Arc<Catalog>>,
}

#[derive(Default)]
struct Calls {
    next: u64,
    /// Asked since this was last taken.
    new: Vec<(u64, TabletId, Asked)>,
    answers: BTreeMap<u64, Answered>,
    /// Who waits for which answer: parts of a statement are polled only once they are woken.
    waiting: BTreeMap<u64, Waker>,
}

/// See the top of this module.
pub struct SimKv {
    catalog: Mutex<Arc<Catalog>>,
    defined: Mutex<Defined>,
    /// These with the cluster's tablets, by the version of the cluster's.
    followed: Mutex<BTreeMap<(u64, Knows), Arc<Catalog>>>,
    time: TrueTime,
    calls: Mutex<Calls>,
    /// The changes of the catalog that were asked for.
    definitions: Mutex<Vec<Command>>,
    /// Work that outlives its statement.
    spawned: Mutex<Vec<Spawned>>,
    /// The versions of tablets at this moment, as if statements were carried out where each is led.
    versions: Mutex<BTreeMap<TabletId, DataVersion>>,
    /// A bug: transactions do not test what they have read of unique columns and of rows that views follow.
    leaves_tests_out: AtomicBool,
}

/// Work that outlives its statement.
pub type Spawned = Pin<Box<dyn Future<Output = ()> + Send>>;

impl SimKv {
    /// A cluster of one node, as far as this snapshot knows: statements need tables and tablets of it only.
    pub fn new(time: TrueTime) -> Self {
        let node = NodeDescription {
            host_id: Uuid::from_u128(1),
            address: std::net::IpAddr::from([127, 0, 0, 1]),
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
            name: "sim".to_owned(),
            replication_factor: 1,
            requires_login: None,
            level: Levels::OWN.greatest,
        };
        let (catalog, ..) = Catalog::default().apply(&bootstrap);
        let (catalog, ..) = catalog.apply(&Command::RegisterNode { node });
        let catalog = Arc::new(catalog);
        Self {
            defined: Mutex::new(Defined {
                newest: Arc::clone(&catalog),
                views: Arc::clone(&catalog),
                tables: Arc::clone(&catalog),
                all: None,
            }),
            catalog: Mutex::new(catalog),
            followed: Mutex::default(),
            time,
            calls: Mutex::default(),
            definitions: Mutex::default(),
            spawned: Mutex::default(),
            versions: Mutex::default(),
            leaves_tests_out: AtomicBool::new(false),
        }
    }

    /// Plants a bug: transactions do not test what they have read of unique columns and of rows that views follow.
    pub fn leave_tests_out(&self) {
        self.leaves_tests_out.store(true, Ordering::Relaxed);
    }

    /// The view and the covering index are created next: nodes that do not know them yet have the catalog of now.
    pub fn before_views(&self) {
        let mut defined = self.defined.lock();
        defined.tables = Arc::clone(&defined.newest);
    }

    /// A column is added next to the table of the view: nodes that do not know it yet have the catalog of now.
    pub fn before_columns(&self) {
        let mut defined = self.defined.lock();
        defined.views = Arc::clone(&defined.newest);
    }

    /// From now on statements find the tables' tablets as this catalog of the cluster has them. All else is as it was: what
    /// statements may contain does not depend on the cluster's level.
    pub fn follow(&self, cluster: &Catalog, knows: Knows) {
        let defined = self.defined.lock();
        let (knows, of) = match (knows, &defined.all) {
            (Knows::Tables, _) => (knows, &defined.tables),
            (Knows::Views, _) => (knows, &defined.views),
            (Knows::All, Some(all)) => (knows, all),
            _ => (Knows::Columns, &defined.newest),
        };
        let mut followed = self.followed.lock();
        let with_tablets = || Arc::new(with_tablets_of(of, cluster));
        *self.catalog.lock() = Arc::clone(followed.entry((cluster.version(), knows)).or_insert_with(with_tablets));
    }

    /// Whether the covering index was found complete.
    pub fn is_covering_complete(&self) -> bool {
        self.defined.lock().all.is_some()
    }

    /// It was found complete: nodes come to know that.
    fn finish_covering(&self, command: &Command) -> Vec<u8> {
        let mut defined = self.defined.lock();
        let (changed, outcome) = defined.newest.apply(command);
        defined.all.get_or_insert_with(|| Arc::new(changed));
        outcome.encode()
    }

    /// Sets the versions of tablets.
    pub fn set_versions(&self, versions: BTreeMap<TabletId, DataVersion>) {
        *self.versions.lock() = versions;
    }

    /// The changes of the catalog that were asked for: with these the cluster itself has the same tables, and tablets of
    /// the same numbers. Indexes and views are left out, which a cluster of the first level refuses: their steps are
    /// proposed anyway.
    pub fn definitions(&self) -> Vec<Command> {
        let definitions = self.definitions.lock();
        let is_left_out =
            |command: &Command| matches!(command, Command::AlterTable { .. } | Command::CreateView { .. });
        definitions.iter().filter(|command| !is_left_out(command)).cloned().collect()
    }

    /// The requests since the last call: number, tablet and request.
    pub fn take_new(&self) -> Vec<(u64, TabletId, Asked)> {
        std::mem::take(&mut self.calls.lock().new)
    }

    /// Work that has been begun since the last call.
    pub fn take_spawned(&self) -> Vec<Spawned> {
        std::mem::take(&mut self.spawned.lock())
    }

    /// Answers a request.
    pub fn answer(&self, call: u64, answer: Answered) {
        let mut calls = self.calls.lock();
        calls.answers.insert(call, answer);
        let waker = calls.waiting.remove(&call);
        drop(calls);
        waker.into_iter().for_each(Waker::wake);
    }

    async fn call(&self, tablet: TabletId, asked: Asked) -> Answered {
        let call = {
            let mut calls = self.calls.lock();
            calls.next += 1;
            let call = calls.next;
            calls.new.push((call, tablet, asked));
            call
        };
        std::future::poll_fn(|context| {
            let mut calls = self.calls.lock();
            if let Some(answer) = calls.answers.remove(&call) {
                return Poll::Ready(answer);
            }
            calls.waiting.insert(call, context.waker().clone());
            Poll::Pending
        })
        .await
    }
}

/// The part of a transaction that maintains unique indexes and views, without its guards.
fn without_tests(mutation: Mutation) -> Mutation {
    let Ok(Body::Request(call)) = MutationRef::decode(mutation.as_bytes()).map(|decoded| decoded.body()) else {
        return mutation;
    };
    let Ok(Call::Request(mut request)) = Call::decode(call) else { return mutation };
    if let Request::Reserve { program, .. }
    | Request::Prepare { program, .. }
    | Request::Commit { part: Some(HomePart { program, .. }), .. } = &mut request
    {
        let Ok(mut decoded) = Program::decode(&program.0) else { return mutation };
        decoded.maintained.iter_mut().for_each(|maintained| maintained.guards.clear());
        program.0 = decoded.encode();
    }
    Mutation::request(&Call::Request(request).encode())
}

/// A catalog whose tables have the tablets that they have in another one, if that has the tables.
fn with_tablets_of(catalog: &Catalog, cluster: &Catalog) -> Catalog {
    let is_tablet = |key: &[u8]| key.starts_with(b"tablet/");
    let all =
        |of: &Catalog| of.puts_since(&Catalog::default()).into_iter().filter_map(|(key, value)| Some((key, value?)));
    if catalog.tables().any(|entry| cluster.table_by_id(entry.table.id).is_none()) {
        return catalog.clone();
    }
    let mut stored: BTreeMap<Vec<u8>, Vec<u8>> = all(catalog).filter(|(key, _)| !is_tablet(key)).collect();
    stored.extend(all(cluster).filter(|(key, _)| is_tablet(key)));
    for (key, value) in stored.iter_mut().filter(|(key, _)| key.starts_with(b"table/")) {
        let mut entry: TableEntry = serde_json::from_slice(value).expect("the catalog has written it");
        let of_cluster = cluster.table_by_id(entry.table.id);
        entry.tablets = of_cluster.map(|entry| entry.tablets.clone()).unwrap_or_default();
        *value = serde_json::to_vec(&entry).unwrap_or_else(|error| panic!("{key:?}: {error}"));
    }
    Catalog::load(stored).expect("both catalogs are whole")
}

impl Kv for SimKv {
    type Pinned = Vec<u8>;

    fn get_now(&self, _: TabletId, _: &[u8]) -> Result<Now<Option<Vec<u8>>>, KvError> {
        Ok(Now::WouldBlock)
    }

    async fn fetch(&self, tablet: TabletId, request: Fetch) -> Result<Fetched, KvError> {
        match self.call(tablet, Asked::Fetch(request)).await? {
            Given::Fetched(fetched) => Ok(fetched),
            Given::Written(_) | Given::Nothing => unreachable!("a read is answered with what was read"),
        }
    }

    fn flags(&self, tablet: TabletId) -> Result<u64, KvError> {
        // Asked only after a read that did not wait; none does that.
        Err(KvError::Unavailable(tablet))
    }

    fn version(&self, tablet: TabletId) -> Option<DataVersion> {
        self.versions.lock().get(&tablet).copied()
    }

    fn submit(&self, tablet: TabletId, _: Mutation, _: &Arc<dyn WriteSink>, _: u64) -> Result<(), KvError> {
        // Statements go the general way.
        Err(KvError::Unavailable(tablet))
    }

    fn kick(&self) {}

    async fn write(&self, tablet: TabletId, mutation: Mutation, _: Option<u64>) -> Result<WriteReply, KvError> {
        let mutation = match self.leaves_tests_out.load(Ordering::Relaxed) {
            true => without_tests(mutation),
            false => mutation,
        };
        match self.call(tablet, Asked::Write(mutation)).await? {
            Given::Written(reply) => Ok(reply),
            Given::Fetched(_) | Given::Nothing => unreachable!("a write is answered with its reply"),
        }
    }

    fn leader(&self, _: TabletId) -> Option<NodeId> {
        None
    }

    fn catalog(&self) -> Arc<Catalog> {
        Arc::clone(&self.catalog.lock())
    }

    async fn change_catalog(&self, command: &Command, _: Option<u64>) -> Result<Vec<u8>, KvError> {
        command.proven_at(self.catalog.lock().level())?;
        if let Command::FinishCovering { outcome, .. } = command {
            assert_eq!(*outcome, CoveringOutcome::Ready, "all rows fit into views");
            return Ok(self.finish_covering(command));
        }
        self.definitions.lock().push(command.clone());
        let mut catalog = self.catalog.lock();
        let (changed, outcome) = catalog.apply(command);
        for entry in changed.tables().filter(|entry| catalog.table_by_id(entry.table.id).is_none()) {
            // The cluster has the table of a unique index, and a view, as one of its own.
            if entry.table.index_of.is_some() || entry.table.view.is_some() {
                let table = Table { index_of: None, view: None, ..Table::clone(&entry.table) };
                let tablets = entry.tablets.len() as u32;
                self.definitions.lock().push(Command::CreateTable { table, tablets, if_not_exists: false });
            }
        }
        *catalog = Arc::new(changed);
        self.defined.lock().newest = Arc::clone(&catalog);
        Ok(outcome.encode())
    }

    fn local_node(&self) -> NodeInfo {
        NodeInfo {
            node: NodeId(1),
            host_id: Uuid::from_u128(1),
            address: std::net::IpAddr::from([127, 0, 0, 1]),
            cql_port: 9042,
            data_center: "datacenter1".to_owned(),
            rack: "rack1".to_owned(),
            tokens: vec![0],
        }
    }

    fn peers(&self) -> Vec<NodeInfo> {
        Vec::new()
    }

    fn now_us(&self) -> i64 {
        self.time.wall_us()
    }

    fn monotonic_ns(&self) -> u64 {
        self.time.now_ns()
    }

    fn spawn(&self, work: impl Future<Output = ()> + Send + 'static) {
        self.spawned.lock().push(Box::pin(work));
    }

    async fn pause(&self, duration_ns: u64) {
        // It has no tablet.
        let _ = self.call(TabletId(0), Asked::Pause(duration_ns)).await;
    }
}

/// Answers a read from a tablet's data at one moment, or in a snapshot.
///
/// # Errors
/// If a row is prepared by a transaction, or the snapshot is not kept any more.
pub fn read(handle: &TabletHandle<MemoryTablet>, request: &Fetch) -> Result<Fetched, KvError> {
    let Some(pinned) = &request.pinned else {
        let data = handle.data();
        if let FetchRows::Index(scan) = &request.rows {
            let start = index::first_row(scan);
            handle.check_range(&ScanRange { start, end: &scan.end, reverse: false, expected_entries: 0 })?;
            return Ok(read_index(&Moment { data, flags: handle.flags() }, handle, scan));
        }
        let get = |key: &[u8]| {
            handle.check_row(key)?;
            Ok(data.get(key).expect("memory can be read").map(|value| value.to_vec()))
        };
        let scan = |range: &ScanRange<'_>, visit: &mut Visit<'_>| {
            handle.check_range(range)?;
            data.scan(range, visit).map_err(|error| KvError::Storage(error.to_string()))
        };
        return read_from(handle.flags(), &get, &scan, request);
    };
    let kept = handle.pinned(pinned.pin).ok_or_else(|| KvError::Locked(handle.id()))?;
    let committed: Vec<Committed> = pinned
        .committed
        .iter()
        .map(|it| Committed { id: it.id, prepared_us: it.prepared_us, committed_us: it.committed_us })
        .collect();
    let by_index = matches!(request.rows, FetchRows::Index(_));
    let view = kept.view(&committed, by_index, &mut |_| Ok(()))?;
    if let FetchRows::Index(scan) = &request.rows {
        return Ok(read_index(&PinnedMoment(&view), handle, scan));
    }
    // A snapshot gives all that it has, as in production.
    let request = Fetch { judged_s: None, ..request.clone() };
    read_from(view.flags(), &|key| view.get(key), &|range, visit| view.scan(range, visit), &request)
}

/// Answers a read from a tablet's data at one moment, whatever is prepared or was to be read in a snapshot.
pub fn read_stored(handle: &TabletHandle<MemoryTablet>, request: &Fetch) -> Fetched {
    let data = handle.data();
    if let FetchRows::Index(scan) = &request.rows {
        return read_index(&Moment { data, flags: handle.flags() }, handle, scan);
    }
    let get = |key: &[u8]| Ok(data.get(key).expect("memory can be read").map(|value| value.to_vec()));
    let scan = |range: &ScanRange<'_>, visit: &mut Visit<'_>| Ok(data.scan(range, visit).expect("memory can be read"));
    read_from(handle.flags(), &get, &scan, request).expect("memory can be read")
}

/// Answers what a statement asks the leader of a tablet when nothing else happens: snapshots are not needed then.
pub fn at_rest(mutation: &Mutation) -> Answered {
    let call = match MutationRef::decode(mutation.as_bytes()).map(|read| read.body()) {
        Ok(Body::Request(bytes)) => Call::decode(bytes).ok(),
        _ => None,
    };
    let answer = match call {
        Some(Call::Pin(..)) => Answer::Pinned { pin: PinId(0), lease_ns: 1 << 40, staged: Vec::new() },
        _ => Answer::Done,
    };
    Ok(Given::Written(answer.encode()))
}

type Visit<'v> = dyn FnMut(&[u8], &[u8]) -> bool + 'v;
type GetRow<'r> = dyn Fn(&[u8]) -> Result<Option<Vec<u8>>, KvError> + 'r;
type ScanRows<'r> = dyn Fn(&ScanRange<'_>, &mut Visit<'_>) -> Result<bool, KvError> + 'r;

fn read_from(flags: u64, get_row: &GetRow<'_>, scan: &ScanRows<'_>, request: &Fetch) -> Result<Fetched, KvError> {
    let get = |key: &Vec<u8>| get_row(key);
    let entries_of = |start: &[u8], end: &[u8]| {
        let mut entries = Vec::new();
        let range = ScanRange { start, end, reverse: false, expected_entries: 0 };
        scan(&range, &mut |key, value| {
            // As a scan of a tablet does that knows when its reader judges expiry.
            if request.judged_s.is_none_or(|judged_s| !entry::is_dead(value, judged_s)) {
                entries.push((key.to_vec(), value.to_vec()));
            }
            true
        })?;
        Ok::<_, KvError>(entries)
    };
    let header = request.header.as_ref().filter(|(asked, _)| asked & flags != 0);
    let mut fetched = Fetched {
        header: header.map(|(_, key)| get(key)).transpose()?.flatten(),
        static_row: request.static_row.as_ref().map(get).transpose()?.flatten(),
        ..Fetched::default()
    };
    match &request.rows {
        FetchRows::Nothing => {}
        FetchRows::One(key) => fetched.row = get(key)?,
        FetchRows::Range(range) => fetched.chunk = scan_entries(&entries_of(&range.start, &range.end)?, range),
        FetchRows::Several(several) => {
            let mut chunk = ScanChunk { exhausted: true, ..ScanChunk::default() };
            for span in several::decode(&several.spans).map_while(Result::ok) {
                let is_meant = span.if_flags == 0 || span.if_flags & flags != 0;
                let mut entries = match &span.end {
                    _ if !is_meant => Vec::new(),
                    Some(end) => entries_of(&span.start, end)?,
                    None => get(&span.start)?.map(|value| (span.start.clone(), value)).into_iter().collect(),
                };
                if several.reverse {
                    entries.reverse();
                }
                entries.iter().for_each(|(key, value)| chunk.push(key, value));
            }
            fetched.chunk = chunk;
        }
        FetchRows::Index(_) => unreachable!("it was read before"),
    }
    Ok(fetched)
}

/// Answers a read by index, and notes the stale entries that it has met.
fn read_index<M: index::Moment>(moment: &M, handle: &TabletHandle<MemoryTablet>, scan: &IndexScan) -> Fetched {
    match index::read(moment, scan) {
        Ok(found) => {
            handle.note_stale(found.stale, &Account::root("all requests", STALE_BYTES));
            Fetched { chunk: found.chunk, ..Fetched::default() }
        }
        Err(_) => panic!("memory can be read, and tablets are small"),
    }
}

/// A snapshot of a tablet.
struct PinnedMoment<'p>(&'p PinnedView<'p, <MemoryTablet as TabletData>::Snapshot>);

impl index::Moment for PinnedMoment<'_> {
    type Error = KvError;
    type Value = Vec<u8>;

    fn flags(&self) -> u64 {
        self.0.flags()
    }

    fn get(&self, key: &[u8]) -> Result<Option<Vec<u8>>, KvError> {
        self.0.get(key)
    }

    fn scan(&self, start: &[u8], end: &[u8], visit: &mut dyn FnMut(&[u8], &[u8]) -> bool) -> Result<bool, KvError> {
        self.0.scan(&ScanRange { start, end, reverse: false, expected_entries: 0 }, visit)
    }

    fn hold(&self, _: usize) -> Result<(), KvError> {
        Ok(())
    }
}

/// A tablet's data in memory, which does not change while it is read.
struct Moment<'d> {
    data: &'d Arc<MemoryTablet>,
    flags: u64,
}

impl index::Moment for Moment<'_> {
    type Error = StorageError;
    type Value = Vec<u8>;

    fn flags(&self) -> u64 {
        self.flags
    }

    fn get(&self, key: &[u8]) -> Result<Option<Vec<u8>>, StorageError> {
        Ok(self.data.get(key)?.map(|value| value.to_vec()))
    }

    fn scan(
        &self,
        start: &[u8],
        end: &[u8],
        visit: &mut dyn FnMut(&[u8], &[u8]) -> bool,
    ) -> Result<bool, StorageError> {
        self.data.scan(&ScanRange { start, end, reverse: false, expected_entries: 0 }, visit)
    }

    fn hold(&self, _: usize) -> Result<(), StorageError> {
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use diorite_model::row::{Expiry, RowWriter};
    use diorite_query::kv::ScanRequest;

    #[test]
    fn a_range_lacks_what_has_expired_for_its_reader() {
        let (key, mut value) = (vec![7; 9], Vec::new());
        RowWriter::new(&mut value, 5).cell(1, 5, Some(Expiry { ttl_s: 10, at_s: 100 }), b"value");
        let get = |_: &[u8]| Ok(Some(value.clone()));
        let scan = |_: &ScanRange<'_>, visit: &mut Visit<'_>| Ok(visit(&key, &value));
        let found = |judged_s: Option<u32>| {
            let range = ScanRequest { start: vec![7], end: vec![8], reverse: false, max_entries: 9, max_bytes: 1_000 };
            let request = Fetch { rows: FetchRows::Range(range), judged_s, ..Fetch::default() };
            read_from(0, &get, &scan, &request).expect("memory can be read").chunk.ends.len()
        };
        assert_eq!([None, Some(50), Some(200)].map(found), [1, 1, 0]);
    }
}
