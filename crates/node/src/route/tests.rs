//! Routers over real stores, in one process: frames between nodes are carried on the sender's thread.
#![allow(clippy::unwrap_used, reason = "tests")]

mod by_index;
mod failures;
mod hops;
mod moments;
mod rows;
mod wire;

use super::{CatalogSource, RouteOptions, Router, RouterParts};
use crate::aside::Aside;
use crate::disk_reads::DiskReads;
use crate::semantics::RowSemantics;
use arc_swap::ArcSwap;
use diorite_base::mutation::{Mutation, OperationKind};
use diorite_base::write::{Completion, KvError, WriteReply, WriteSink};
use diorite_base::{Clock, Level, NodeId, SystemClock, TableId, TabletId};
use diorite_cluster::catalog::{Catalog, Command, NodeDescription};
use diorite_model::row::{Content, RowReader, RowWriter, UNSTAMPED};
use diorite_model::schema::{Column, ColumnKind, Keyspace, Table};
use diorite_model::types::CqlType;
use diorite_query::kv::{Fetch, FetchRows, Fetched};
use diorite_query::program::TabletEvaluator;
use diorite_replica::{Durability, Leadership, Members, OpenTablet, PeerListener, Reroute, Store, StoreOptions};
use diorite_rpc::{Lane, SendError, Transport};
use diorite_storage::{DataDirectory, Shared, StorageOptions, TableOptions, Values};
use parking_lot::{Mutex, RwLock};
use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Weak};
use std::time::Duration;
use uuid::Uuid;

const KEYSPACE: &str = "ks";

/// The network of the test, with its faults.
#[derive(Default)]
struct Hub {
    members: RwLock<BTreeMap<u64, Listener>>,
    /// Nodes that are cut off from all others.
    cut: RwLock<BTreeSet<u64>>,
    /// Nodes to which requests and answers are lost on the way.
    losing: RwLock<BTreeSet<u64>>,
    /// Nodes for which the sender has no capacity for answers.
    full_of_answers: RwLock<BTreeSet<u64>>,
}

/// The receiver of frames at a node, and the listener for changes of others.
#[derive(Clone)]
struct Listener {
    store: Weak<Store>,
    router: Weak<Router>,
}

impl PeerListener for Listener {
    fn changed(&self, node: NodeId, is_up: bool) {
        let Some(router) = self.router.upgrade() else { return };
        if is_up { router.node_up(node) } else { router.node_down(node) }
    }

    fn announced(&self, _: NodeId, _: u64) {}
}

struct Port {
    node: NodeId,
    hub: Arc<Hub>,
}

impl Transport for Port {
    fn send(&self, to: NodeId, lane: Lane, frame: &[u8]) -> Result<(), SendError> {
        let is_cut = |node: NodeId| self.hub.cut.read().contains(&node.0);
        if is_cut(self.node) || is_cut(to) {
            return Err(SendError::Down);
        }
        let member = self.hub.members.read().get(&to.0).cloned();
        let Listener { store, router } = member.ok_or(SendError::Down)?;
        let is_answer = lane == Lane::Requests
            && matches!(super::wire::read_frame(frame), Ok((super::wire::FrameKind::Answers, ..)));
        if is_answer && self.hub.full_of_answers.read().contains(&to.0) {
            return Err(SendError::Full);
        }
        if lane != Lane::Requests {
            store.upgrade().ok_or(SendError::Down)?.receive(self.node, lane, frame);
        } else if !self.hub.losing.read().contains(&to.0) {
            router.upgrade().ok_or(SendError::Down)?.receive(self.node, frame);
        }
        Ok(())
    }
}

/// The catalog that one node serves; tests let it fall behind.
#[derive(Default)]
struct Served(ArcSwap<Catalog>);

impl CatalogSource for Served {
    fn catalog(&self) -> Arc<Catalog> {
        self.0.load_full()
    }
}

struct Member {
    store: Arc<Store>,
    router: Arc<Router>,
    catalog: Arc<Served>,
    _home: tempfile::TempDir,
}

struct Cluster {
    hub: Arc<Hub>,
    catalog: Catalog,
    members: BTreeMap<u64, Member>,
}

impl Drop for Cluster {
    /// Stops the stores before their folders are deleted. A store and its router hold each other, so the store is not
    /// dropped with its member, and a store whose disk is gone ends the process.
    fn drop(&mut self) {
        for member in self.members.values() {
            member.store.shutdown(Duration::ZERO);
        }
    }
}

fn node(number: u64) -> NodeDescription {
    NodeDescription {
        host_id: Uuid::from_u128(u128::from(number)),
        address: [127, 0, 0, number as u8].into(),
        cql_port: 9042,
        rpc_port: 7100,
        http_port: 7000,
        data_center: "datacenter1".to_owned(),
        zone: "rack1".to_owned(),
        node_address: None,
        levels: None,
    }
}

fn catalog(nodes: u64, replication_factor: u32, tablets: u32) -> Catalog {
    let (cluster_id, name) = (Uuid::from_u128(9), "test".to_owned());
    let mut commands =
        vec![Command::Bootstrap { cluster_id, name, replication_factor, requires_login: None, level: Level::FIRST }];
    commands.extend((1..=nodes).map(|number| Command::RegisterNode { node: node(number) }));
    let text = |text: &str| text.to_owned();
    let replication = BTreeMap::from([
        (text("class"), text("SimpleStrategy")),
        (text("replication_factor"), replication_factor.to_string()),
    ]);
    let keyspace = Keyspace { name: text(KEYSPACE), replication, durable_writes: true };
    commands.push(Command::CreateKeyspace { keyspace, if_not_exists: false });
    let column = |id, name: &str, kind| Column { id, name: name.to_owned(), data_type: CqlType::Text, kind };
    let table = Table {
        id: TableId(0),
        uuid: Uuid::from_u128(7),
        keyspace: text(KEYSPACE),
        name: text("t"),
        version: 0,
        columns: vec![column(0, "k", ColumnKind::PartitionKey), column(1, "v", ColumnKind::Regular)],
        next_column_id: 2,
        indexes: Vec::new(),
        deferred_indexes: Vec::new(),
        index_of: None,
        views: Vec::new(),
        view: None,
        default_ttl_s: 0,
        gc_grace_s: 864_000,
        options: BTreeMap::new(),
    };
    commands.push(Command::CreateTable { table, tablets, if_not_exists: false });
    commands.iter().fold(Catalog::default(), |catalog, command| catalog.apply(command).0)
}

fn start_store(home: &std::path::Path, node: u64, transport: Arc<dyn Transport>) -> Arc<Store> {
    let clock: Arc<dyn Clock> = Arc::new(SystemClock::new());
    let storage = StorageOptions::for_memory(64 << 20, 2);
    let shared = Shared::new(storage, Arc::new(RowSemantics)).unwrap();
    let mut directory = DataDirectory::open(home).unwrap();
    directory.claim(Uuid::from_u128(9), node, Uuid::from_u128(u128::from(node)), Level::FIRST).unwrap();
    let options = StoreOptions {
        incarnation: clock.wall_us().unsigned_abs(),
        node,
        workers: 1,
        durability: Durability::Fsync,
        queue_proposals: 10_000,
        queue_bytes: 64 << 20,
        replay_bytes: 64 << 20,
        disk_reserve_bytes: 0,
        accept_lost_log: false,
        most_tablets: usize::MAX,
    };
    Arc::new(Store::start(options, shared, vec![directory], clock, transport).unwrap())
}

impl Cluster {
    /// Nodes 1 to `nodes`, with one table of as many tablets as nodes.
    async fn start(nodes: u64, replication_factor: u32, options: RouteOptions) -> Self {
        let catalog = catalog(nodes, replication_factor, nodes as u32);
        let hub: Arc<Hub> = Arc::default();
        let mut members = BTreeMap::new();
        for number in 1..=nodes {
            let home = tempfile::tempdir().unwrap();
            let port = || Arc::new(Port { node: NodeId(number), hub: Arc::clone(&hub) });
            let store = start_store(home.path(), number, port());
            store.set_peers((1..=nodes).filter(|other| *other != number).map(NodeId).collect());
            let served = Arc::new(Served::default());
            served.0.store(Arc::new(catalog.clone()));
            let source = Arc::clone(&served) as Arc<dyn CatalogSource>;
            let router = Router::new(RouterParts {
                node: NodeId(number),
                store: Arc::clone(&store),
                transport: port(),
                catalogs: source,
                clock: Arc::new(SystemClock::new()),
                options: options.clone(),
                disk: Arc::new(DiskReads::new(1, 2).unwrap()),
                aside: Arc::new(Aside::new(1).unwrap()),
            });
            store.set_reroute(Arc::clone(&router) as Arc<dyn Reroute>);
            tokio::spawn(Arc::clone(&router).run_timer());
            tokio::spawn(Arc::clone(&router).run_sender());
            let listener = Listener { store: Arc::downgrade(&store), router: Arc::downgrade(&router) };
            store.liveness().set_listener(Arc::new(listener.clone()));
            hub.members.write().insert(number, listener);
            members.insert(number, Member { store, router, catalog: served, _home: home });
        }
        let cluster = Self { hub, catalog, members };
        cluster.open_tablets();
        // All nodes are up for each other.
        let is_up = |node: u64, other: u64| cluster.members[&node].store.liveness().is_up(NodeId(other));
        wait_for(|| (1..=nodes).all(|a| (1..=nodes).all(|b| a == b || is_up(a, b)))).await;
        cluster
    }

    fn open_tablets(&self) {
        for (tablet, placement) in self.catalog.tablets() {
            for replica in &placement.replicas {
                self.members[&replica.0].store.open(vec![self.open(tablet)]).unwrap();
            }
        }
    }

    fn open(&self, tablet: TabletId) -> OpenTablet {
        let voters = self.catalog.placement(tablet).unwrap().replicas.clone();
        OpenTablet {
            tablet,
            evaluator: Arc::new(TabletEvaluator),
            gc_grace_s: 0,
            initial_voters: voters.clone(),
            floor: None,
            members: Members { voters, learners: Vec::new() },
            values: Values::Rows,
            options: TableOptions::default(),
            on_loaded: None,
        }
    }

    fn router(&self, node: u64) -> &Router {
        &self.members[&node].router
    }

    fn leads(&self, node: u64, tablet: TabletId) -> bool {
        let handle = self.members[&node].store.handle(tablet);
        handle.is_some_and(|handle| handle.leadership() == Leadership::Here)
    }

    /// The first tablet whose replicas `is_wanted` accepts.
    fn tablet(&self, is_wanted: impl Fn(&[NodeId]) -> bool) -> TabletId {
        let found = self.catalog.tablets().find(|(_, placement)| is_wanted(&placement.replicas));
        found.map(|(tablet, _)| tablet).unwrap()
    }

    async fn wait_for_leader(&self, tablet: TabletId) -> u64 {
        wait_for(|| self.members.keys().any(|node| self.leads(*node, tablet))).await;
        *self.members.keys().find(|node| self.leads(**node, tablet)).unwrap()
    }

    async fn fetch(&self, node: u64, tablet: TabletId, fetch: Fetch) -> Result<Fetched, KvError> {
        let router = self.router(node);
        sent(router, router.fetch(tablet, fetch)).await
    }

    async fn get(&self, node: u64, tablet: TabletId, key: &[u8]) -> Result<Option<Vec<u8>>, KvError> {
        self.fetch(node, tablet, one(key)).await.map(|fetched| fetched.row.map(|row| unpacked(&row)))
    }

    async fn put(&self, node: u64, tablet: TabletId, key: &[u8], value: &[u8]) -> Result<WriteReply, KvError> {
        self.router(node).write(tablet, put(key, value)).await
    }
}

/// Runs a request as a connection does: its requests to other nodes are sent when it waits.
async fn sent<T>(router: &Router, request: impl Future<Output = T>) -> T {
    tokio::select! {
        biased;
        outcome = request => outcome,
        () = router.gathered() => unreachable!("it is never ready"),
    }
}

fn one(key: &[u8]) -> Fetch {
    Fetch { rows: FetchRows::One(key.to_vec()), ..Fetch::default() }
}

/// A row whose only cell has this value.
fn packed(value: &[u8]) -> Vec<u8> {
    let mut row = Vec::new();
    RowWriter::new(&mut row, UNSTAMPED).cell(1, UNSTAMPED, None, value);
    row
}

/// The value of the only cell of a row.
fn unpacked(row: &[u8]) -> Vec<u8> {
    let cell = RowReader::new(row).unwrap().cells().next().unwrap().unwrap();
    let Content::Value(value, _) = cell.content else { panic!("a value") };
    value.to_vec()
}

fn put(key: &[u8], value: &[u8]) -> Mutation {
    let mut mutation = Mutation::blind(None);
    mutation.push(OperationKind::Overwrite, false, key, &packed(value));
    mutation
}

/// Waits for a condition that must become true. The timeout is long and asserts nothing about speed.
async fn wait_for(mut is_so: impl FnMut() -> bool) {
    for _ in 0..18_000 {
        if is_so() {
            return;
        }
        #[allow(clippy::disallowed_methods, reason = "a test waits for other threads")]
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
    panic!("waited in vain");
}

type Outcomes = BTreeMap<u64, Result<WriteReply, KvError>>;

/// Outcomes by tag, and the number of calls of the sink.
#[derive(Default)]
struct Collected {
    done: Mutex<(Outcomes, usize)>,
}

impl WriteSink for Collected {
    fn complete(&self, done: &mut Vec<Completion>) {
        let mut known = self.done.lock();
        known.0.extend(done.drain(..));
        known.1 += 1;
    }
}

impl Collected {
    async fn all(self: &Arc<Self>, count: usize) -> Outcomes {
        wait_for(|| self.done.lock().0.len() >= count).await;
        self.done.lock().0.clone()
    }
}
