//! Starts a node, keeps it running until it is told to stop, and stops it.

use crate::awaited::write;
use crate::catalog::CatalogFollower;
use crate::config::{DurabilityOption, StartOptions};
use crate::error::StartError;
use crate::kv::NodeKv;
use crate::listener;
use crate::route::{CatalogSource, RouteOptions, Router};
use crate::semantics::RowSemantics;
use crate::shared::{ConnectionLimits, Shared as Connections};
use crate::{http, logging};
use diorite_base::mutation::Mutation;
use diorite_base::random::{Random, SplitMix64};
use diorite_base::{Clock, GroupId, NodeId, SystemClock, TabletId};
use diorite_cluster::catalog::{Command, NodeDescription};
use diorite_query::kv::NodeInfo;
use diorite_query::{EngineConfig, QueryEngine};
use diorite_replica::{Durability, Reroute, Store, StoreOptions};
use diorite_rpc::NoTransport;
use diorite_storage::{DataDirectory, Identity, Shared, StorageOptions};
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;
use tokio::net::TcpListener;
use tokio::signal::unix::{Signal, SignalKind, signal};
use tokio::sync::watch;
use uuid::Uuid;

/// A page of a result ends after the row that brings it to this many bytes.
const PAGE_BYTES: usize = 1 << 20;

/// The first node's id in the groups it is a member of, until the catalog numbers nodes.
const FIRST_NODE: u64 = 1;

/// How long tablets are flushed when the node is told to stop.
const FLUSH_PATIENCE: Duration = Duration::from_secs(5);

/// Runs a node until SIGTERM or SIGINT; then ends the process.
pub fn run(options: StartOptions) -> Result<(), StartError> {
    logging::install(&options);
    raise_file_limit();
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .enable_all()
        .thread_name("cql")
        .max_blocking_threads(128)
        .build()
        .map_err(|error| StartError::System("cannot start the runtime", error))?;
    runtime.block_on(serve(options))
}

async fn serve(options: StartOptions) -> Result<(), StartError> {
    // Before anything else: a signal that arrives during the start must stop the node in order as well, not kill it.
    let mut signals = StopSignals::listen()?;
    let cql_address = SocketAddr::new(options.listen, options.cql_port);
    let http_address = SocketAddr::new(options.listen, options.http_port);
    // Ports first: a second node on the same address must not touch any data.
    let cql = listen("CQL", cql_address).await?;
    let http = listen("HTTP", http_address).await?;
    let clock: Arc<dyn Clock> = Arc::new(SystemClock::new());
    let (directories, identity) = open_directories(&options)?;
    let store = Arc::new(start_store(&options, directories, &identity, &clock)?);
    let node = NodeId(identity.node);
    let catalog = CatalogFollower::open(&store, node)?;
    register(&store, &catalog, &options, &identity).await?;
    catalog.start()?;
    let source = Arc::clone(&catalog) as Arc<dyn CatalogSource>;
    let router = Router::new(
        node,
        Arc::clone(&store),
        Arc::new(NoTransport),
        source,
        Arc::clone(&clock),
        RouteOptions::default(),
    );
    store.set_reroute(Arc::clone(&router) as Arc<dyn Reroute>);
    tokio::spawn(Arc::clone(&router).run_timer());
    let kv = Arc::new(NodeKv {
        store: Arc::clone(&store),
        router,
        catalog,
        clock: Arc::clone(&clock),
        node: node_info(&options, &identity),
    });
    let config = EngineConfig {
        shards_per_node: options.shards_per_node,
        client_timestamps: options.client_timestamps,
        page_bytes: PAGE_BYTES,
        ..EngineConfig::default()
    };
    let engine = QueryEngine::new(Arc::clone(&kv), config);
    let memory_bytes = options.memory_limit_bytes() as usize;
    let limits = ConnectionLimits {
        connections: options.max_connections,
        running: (memory_bytes / 8 / PAGE_BYTES).clamp(32, 4_096),
        work_bytes: memory_bytes / 16,
    };
    let connections = Arc::new(Connections::new(kv, engine, limits));
    let (stop, stopped) = watch::channel(false);
    let serving_http = tokio::spawn(http::run(http, Arc::clone(&connections), options.clone(), stopped.clone()));
    let serving_cql = tokio::spawn(listener::run(cql, Arc::clone(&connections), stopped));
    tracing::info!(cql = %cql_address, http = %http_address, durability = %options.durability, "ready");
    signals.arrived().await;
    tracing::info!("stopping: no new connections, flushing");
    stop.send_replace(true);
    // Both end by themselves once told; a panic in one of them has been reported already.
    let _ = serving_cql.await;
    let _ = serving_http.await;
    let closing = Arc::clone(&store);
    let _ = tokio::task::spawn_blocking(move || closing.shutdown(FLUSH_PATIENCE)).await;
    tracing::info!("stopped");
    // Everything is durable; closing a thousand RocksDBs one by one would only take time.
    std::process::exit(0)
}

async fn listen(what: &'static str, address: SocketAddr) -> Result<TcpListener, StartError> {
    TcpListener::bind(address).await.map_err(|source| StartError::Listen { what, address, source })
}

/// Opens and, if new, claims the data directories; they must all belong to the same node.
fn open_directories(options: &StartOptions) -> Result<(Vec<DataDirectory>, Identity), StartError> {
    let mut directories = Vec::new();
    for path in &options.data_dir {
        directories.push(DataDirectory::open(path)?);
    }
    let known = directories.iter().find_map(|directory| directory.identity().cloned());
    let (cluster, host, node) = match &known {
        Some(identity) => (identity.cluster, identity.host, identity.node),
        None => (random_uuid(), random_uuid(), FIRST_NODE),
    };
    for directory in &mut directories {
        match directory.identity() {
            None => directory.claim(cluster, node, host)?,
            Some(found) if (found.cluster, found.host) == (cluster, host) => {}
            Some(found) => {
                return Err(StartError::Directories(format!(
                    "data directory {} belongs to host {} of cluster {}, the first one to host {host} of cluster {cluster}",
                    directory.path().display(),
                    found.host,
                    found.cluster
                )));
            }
        }
    }
    let identity = directories.first().and_then(|directory| directory.identity().cloned());
    let identity = identity.ok_or_else(|| StartError::Directories("no data directory was given".to_owned()))?;
    Ok((directories, identity))
}

fn random_uuid() -> Uuid {
    let mut random = SplitMix64::from_entropy();
    let bits = (u128::from(random.next_u64()) << 64) | u128::from(random.next_u64());
    uuid::Builder::from_random_bytes(bits.to_be_bytes()).into_uuid()
}

fn start_store(
    options: &StartOptions,
    directories: Vec<DataDirectory>,
    identity: &Identity,
    clock: &Arc<dyn Clock>,
) -> Result<Store, StartError> {
    let cores = std::thread::available_parallelism().map_or(1, usize::from);
    let memory_bytes = options.memory_limit_bytes();
    let storage = StorageOptions {
        compaction_rate_bytes: options.compaction_rate.0,
        space_amplification_percent: options.space_amplification,
        bloom_bits: options.bloom_bits,
        block_bytes: options.block_size.0 as usize,
        ..StorageOptions::for_memory(memory_bytes, cores)
    };
    let workers = if options.store_threads > 0 { options.store_threads } else { cores.div_ceil(4) };
    let store = StoreOptions {
        node: identity.node,
        workers,
        durability: match options.durability {
            DurabilityOption::Fsync => Durability::Fsync,
            DurabilityOption::Interval(every_ms) => Durability::Interval(every_ms),
        },
        queue_proposals: 64 << 10,
        queue_bytes: (memory_bytes / 16).clamp(16 << 20, 256 << 20) as usize,
        replay_bytes: options.replay_limit.0.min(memory_bytes / 4).max(16 << 20),
        disk_reserve_bytes: options.disk_reserve.0,
    };
    let shared = Shared::new(storage, Arc::new(RowSemantics), Arc::clone(clock))?;
    Ok(Store::start(store, shared, directories, Arc::clone(clock), Arc::new(NoTransport))?)
}

/// Gives a new cluster its identity, and tells the catalog where this node is reached.
async fn register(
    store: &Store,
    catalog: &CatalogFollower,
    options: &StartOptions,
    identity: &Identity,
) -> Result<(), StartError> {
    let current = catalog.current();
    let description = NodeDescription {
        host_id: identity.host,
        address: options.listen,
        cql_port: options.cql_port,
        rpc_port: options.node_port,
        http_port: options.http_port,
        data_center: options.data_center.clone(),
        zone: options.zone.clone(),
    };
    let mut commands = Vec::new();
    if current.identity().cluster_id.is_none() {
        commands.push(Command::Bootstrap {
            cluster_id: identity.cluster,
            name: options.cluster_name.clone(),
            replication_factor: 1,
        });
    }
    if current.node_by_host_id(identity.host).is_none_or(|node| node.description != description) {
        commands.push(Command::RegisterNode { node: description });
    }
    for command in commands {
        let mutation = Mutation::evaluated(None, &command.encode());
        write(store, TabletId(GroupId::CATALOG.0), mutation)
            .await
            .map_err(|error| StartError::Tablet { what: "the catalog".to_owned(), reason: error.to_string() })?;
    }
    Ok(())
}

fn node_info(options: &StartOptions, identity: &Identity) -> NodeInfo {
    NodeInfo {
        node: NodeId(identity.node),
        host_id: identity.host,
        address: options.listen,
        cql_port: options.cql_port,
        data_center: options.data_center.clone(),
        rack: options.zone.clone(),
        tokens: vec![i64::MIN],
    }
}

/// The signals that stop a node.
struct StopSignals {
    terminate: Signal,
    interrupt: Signal,
}

impl StopSignals {
    /// From here on the signals no longer end the process by themselves.
    fn listen() -> Result<Self, StartError> {
        let system = |error| StartError::System("cannot wait for signals", error);
        Ok(Self {
            terminate: signal(SignalKind::terminate()).map_err(system)?,
            interrupt: signal(SignalKind::interrupt()).map_err(system)?,
        })
    }

    async fn arrived(&mut self) {
        tokio::select! {
            _ = self.terminate.recv() => {}
            _ = self.interrupt.recv() => {}
        }
    }
}

/// Tablets hold files open: take as many descriptors as the system gives.
fn raise_file_limit() {
    use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
    let limit = getrlimit(Resource::Nofile);
    let raised = Rlimit { current: limit.maximum, maximum: limit.maximum };
    if let Err(error) = setrlimit(Resource::Nofile, raised) {
        tracing::warn!(%error, "could not raise the limit of open files");
    }
}
