//! Starts a node, runs it until a signal or an error stops it, and stops it.

use crate::aside::Aside;
use crate::audit::AuditLog;
use crate::buffers::ALLOWANCE_BYTES;
use crate::catalog::CatalogFollower;
use crate::config::{DurabilityOption, StartOptions};
use crate::disk_reads::DiskReads;
use crate::entrance::{Entrance, Here};
use crate::error::StartError;
use crate::guard::Guard;
use crate::join_token::JoinToken;
use crate::kv::NodeKv;
use crate::life_key::LifeKey;
use crate::listener::{self, Door};
use crate::logging::Logging;
use crate::machine::MachineClock;
use crate::membership::{
    self, Admission, Applicant, Arrivals, JOIN_TIMEOUT, Joined, Membership, Named, RoutedWriter, end_notice,
};
use crate::metrics::NodeMetrics;
use crate::node_tls::Traffic;
use crate::observe::Allocator;
use crate::observe::own::Observed;
use crate::observe::sampler;
use crate::operate::{AnyNode, Operations, ReportOptions};
use crate::passwords::Passwords;
use crate::program::Program;
use crate::route::{CatalogSource, Peers, RouteOptions, Router, RouterParts};
use crate::semantics::RowSemantics;
use crate::shared::{Access, ConnectionLimits, Shared as Connections, SharedParts};
use crate::signals::{Signals, end};
use crate::tls::Tls;
use crate::{directories, http, login, machine, reload};
use diorite_admin::NodeView;
use diorite_base::account::Account;
use diorite_base::random::{self, Random, SplitMix64};
use diorite_base::{Clock, Levels, NodeId, TrustedClock};
use diorite_cluster::catalog::NodeDescription;
use diorite_control::access::Setting;
use diorite_control::membership::{FIRST_NODE, Ready, check_replication_factor};
use diorite_query::audit::{Audit, Auditor};
use diorite_query::kv::NodeInfo;
use diorite_query::{EngineConfig, QueryEngine};
use diorite_replica::{
    CLOCK_LIMIT_US, DRIFT_PERMILLE, Durability, LEASE_NS, LEAVING, Openings, Reroute, Store, StoreOptions,
};
use diorite_rpc::Transport;
use diorite_rpc::tcp::{Observer, TcpOptions, TcpTransport};
use diorite_storage::{DataDirectory, Identity, Shared, StorageOptions, companions};
use std::net::SocketAddr;
use std::process::Command;
use std::sync::Arc;
use std::time::Duration;
use tokio::net::TcpListener;
use tokio::runtime::Handle;
use tokio::sync::watch;
use uuid::Uuid;

/// A page of a result ends after the row that brings it to this many bytes.
const PAGE_BYTES: usize = 1 << 20;

/// The memory that requests may hold even on the smallest node: enough for one request of the largest size.
const MIN_REQUEST_MEMORY_BYTES: usize = 64 << 20;
/// The connections that even the smallest node accepts.
const MIN_CONNECTIONS: usize = 1_024;
/// How often the node checks which requests have passed their deadline.
const EXPIRY_TICK: Duration = Duration::from_millis(20);

/// Requests hold much memory when they hold this fraction of their limit: an eighth.
const MUCH_OF_ACCOUNT: usize = 8;
/// One second, in ticks.
const TICKS_AFTER_MUCH: u32 = 50;

/// A serving thread that always has work checks after this many turns of tasks which sockets have become ready: a turn
/// of a connection may take a millisecond, and that connection's next requests wait as long as those of others.
const TURNS_PER_LOOK: u32 = 16;

/// How long a stopping node waits until other nodes lead the tablets that it led.
const SUCCESSOR_TIMEOUT: Duration = Duration::from_secs(1);

/// How long a stopping node flushes tablets.
const FLUSH_TIMEOUT: Duration = Duration::from_secs(5);

/// Runs a node until SIGTERM or SIGINT; then ends the process.
pub fn run(options: StartOptions, program: Program) -> Result<(), StartError> {
    let mut runtime = tokio::runtime::Builder::new_multi_thread();
    runtime.enable_all().thread_name("cql").max_blocking_threads(128).worker_threads(options.serving_threads());
    runtime.event_interval(TURNS_PER_LOOK);
    let runtime = runtime.build().map_err(|error| StartError::System("cannot start the runtime", error))?;
    // Signals come before all else: one that arrives during the start must not kill the node.
    let signals = Signals::catch(&runtime)?;
    machine::keep_files_private();
    let logging = Logging::install(&options);
    machine::raise_file_limit();
    if !options.core_dumps {
        machine::forbid_core_dumps();
    }
    runtime.block_on(serve(options, logging, program, signals))
}

/// Lets other nodes and clients know that the node is about to end: no node waits for it, and clients use others.
fn leave(store: &Store, stop: &watch::Sender<bool>) {
    tracing::info!("stopping: no new connections, flushing");
    store.liveness().announce(LEAVING);
    stop.send_replace(true);
}

async fn serve(
    options: StartOptions,
    logging: Arc<Logging>,
    program: Program,
    signals: Signals,
) -> Result<(), StartError> {
    let Signals { starting, mut serving, configuration, certificates } = signals;
    // A task of its own: a start may block this thread, while it replays a log.
    let starting = tokio::spawn(starting.end_process());
    let tls = Tls::open(&options)?;
    let traffic = Traffic::decide(&options).await?;
    let metrics_token = http::metrics_token(&options)?;
    let cql_address = SocketAddr::new(options.listen, options.cql_port);
    let http_address = SocketAddr::new(options.listen, options.http_port);
    // Ports first: a second node on the same address must not touch any data.
    let cql = Door::take(cql_address).await;
    let cql = cql.map_err(|source| StartError::Listen { what: "CQL", address: cql_address, source })?;
    let http = listen("HTTP", http_address).await?;
    let (stop, stopped) = watch::channel(false);
    let (serves, served) = watch::channel(None);
    let clock = trusted_clock();
    let audit = AuditLog::open(&options, &clock)?;
    let http_tls = tls.as_ref().filter(|_| options.http_tls).map(Tls::for_http);
    let serving_http = http::run(http, served, http::gate(&options), http_tls, Arc::clone(&clock), stopped.clone());
    let serving_http = tokio::spawn(serving_http);
    let nodes = listen("other nodes", SocketAddr::new(options.listen, options.node_port)).await?;
    let (mut directories, lost) = directories::open(&options)?;
    let belonging = belong(&options, &traffic, &mut directories, clock.as_ref()).await?;
    companions::enroll(&directories.iter().collect::<Vec<_>>(), random_uuid)?;
    let node = start_node(&options, &traffic, directories, belonging, nodes, &clock, program.guard).await?;
    starting.abort();
    let Running { kv, membership, was_current } = node;
    let store = Arc::clone(&kv.store);
    store.set_missing_disks(lost);
    let (engine, limits) = engine(&options, &kv, audit.clone());
    let account = Arc::clone(kv.router.account());
    let access = access(&options, &kv, was_current, audit.clone(), tls.clone());
    let connections = Arc::new(Connections::new(SharedParts { kv, engine, account, limits, access, logging }));
    tokio::spawn(end_expired(Arc::clone(&connections)));
    let member = Arc::clone(&membership);
    tokio::spawn(traffic.follow(certificates, move || member.guard.certificates_changed(), stopped.clone()));
    if let Some(file) = program.configuration {
        tokio::spawn(reload::follow(file, configuration, options.clone(), Arc::clone(&connections.logging)));
    }
    tokio::spawn(give_memory_back(Arc::clone(&connections), program.allocator));
    if let Some(tls) = tls {
        tokio::spawn(tls.follow(stopped.clone()));
    }
    let view = show(&options, &connections, &membership, program.allocator);
    serves.send_replace(Some(http::routes(&options, &connections, metrics_token, view)));
    let serving_cql = tokio::spawn(listener::run(cql, Arc::clone(&connections), stopped));
    tracing::info!(cql = %cql_address, http = %http_address, durability = %options.durability, "ready");
    let reason = tokio::select! {
        () = serving.arrived() => Ok(()),
        refused = membership.admission.refused() => return Err(refused),
        removed = membership.catalog.removed() => Err(removed),
    };
    leave(&store, &stop);
    // Both servers end by themselves after the notice. A panic in one of them has been reported already.
    let _ = serving_cql.await;
    let _ = serving_http.await;
    let _ = tokio::task::spawn_blocking(move || close(&store)).await;
    if let Some(audit) = audit {
        audit.close();
    }
    tracing::info!("stopped");
    // A node that was removed reports that as its error.
    reason?;
    end()
}

/// Ends all leadership of this node, and flushes.
fn close(store: &Store) {
    // Other nodes lead from now on, without first having to notice that the leader is missing.
    store.release_leadership();
    store.wait_for_successors(SUCCESSOR_TIMEOUT);
    store.shutdown(FLUSH_TIMEOUT);
}

/// Starts the node's observation of itself, and makes it available to other nodes and over HTTP.
fn show(
    options: &StartOptions,
    connections: &Arc<Connections>,
    membership: &Arc<Membership>,
    allocator: Allocator,
) -> NodeView {
    let (transport, operations) = (&membership.transport, &membership.operations);
    let observed = Observed {
        shared: Arc::clone(connections),
        transport: Arc::clone(transport),
        configuration: http::configuration(options),
        memory_limit_bytes: options.memory_limit_bytes(),
        allocator,
    };
    operations.set_own(Arc::new(observed));
    tokio::spawn(sampler::run(Arc::clone(connections), Arc::clone(operations)));
    let metrics = NodeMetrics::new(Arc::clone(connections), Arc::clone(transport), Arc::clone(operations));
    let operator = Arc::new(AnyNode(Arc::clone(operations)));
    NodeView { node: connections.kv.node.node, metrics: Arc::new(metrics), operator }
}

/// How clients get in, from now on.
fn access(
    options: &StartOptions,
    kv: &Arc<NodeKv>,
    was_current: bool,
    audit: Option<Arc<AuditLog>>,
    tls: Option<Arc<Tls>>,
) -> Access {
    let setting = Setting { requires_login: options.auth, was_current };
    let here = Here { address: options.listen, data_center: options.data_center.clone() };
    let entrance = Entrance::open(Arc::clone(&kv.catalog) as Arc<dyn CatalogSource>, setting, here);
    if entrance.may_need_first_role() {
        tokio::spawn(login::found_roles(Arc::clone(kv)));
    }
    tokio::spawn(Arc::clone(&entrance).follow(kv.catalog.versions()));
    let (passwords, has_certificate_roles) = (Passwords::new(Arc::clone(kv), audit), options.tls_client_roles);
    Access { entrance, passwords, tls, has_certificate_roles }
}

/// What answers statements, and how much of it at a time.
fn engine(
    options: &StartOptions,
    kv: &Arc<NodeKv>,
    audit: Option<Arc<AuditLog>>,
) -> (Arc<QueryEngine<NodeKv>>, ConnectionLimits) {
    let memory_bytes = options.memory_limit_bytes() as usize;
    let config = EngineConfig {
        tablets_per_node: options.tablets_per_node,
        most_tablets_per_node: machine::most_tablets(),
        client_timestamps: options.client_timestamps,
        page_bytes: PAGE_BYTES,
        auditor: Auditor(audit.map(|audit| audit as Arc<dyn Audit>)),
        prepared_cache_bytes: (memory_bytes / 16).clamp(8 << 20, 64 << 20),
        ..EngineConfig::default()
    };
    // The uncharged allowances of all connections together may not exceed a sixteenth of the memory limit.
    let most_connections = (memory_bytes / 16 / ALLOWANCE_BYTES).max(MIN_CONNECTIONS);
    if options.max_connections > most_connections {
        tracing::info!(limit = most_connections, "--memory-limit allows fewer connections than --max-connections");
    }
    let limits = ConnectionLimits {
        connections: options.max_connections.min(most_connections),
        running: (memory_bytes / 8 / PAGE_BYTES).clamp(32, 4_096),
        request_timeout_ns: options.request_timeout.saturating_mul(1_000_000),
    };
    (QueryEngine::new(Arc::clone(kv), config), limits)
}

fn route_options(options: &StartOptions) -> RouteOptions {
    let defaults = RouteOptions { account: request_account(options), ..RouteOptions::default() };
    let timeout = Duration::from_millis(options.request_timeout);
    RouteOptions { short_timeout: Some(timeout).filter(|timeout| *timeout < defaults.timeouts.write), ..defaults }
}

/// The account for the requests of clients and of other nodes: three sixteenths of the memory limit. Half of the limit
/// is the cache's, an eighth is that of the store's queues; the rest is for connections, prepared statements, and
/// memory without an account.
fn request_account(options: &StartOptions) -> Arc<Account> {
    let share = options.memory_limit_bytes() as usize / 16 * 3;
    Account::root("all requests", share.max(MIN_REQUEST_MEMORY_BYTES))
}

/// Ends requests that have passed their deadline, as long as the node runs.
async fn end_expired(connections: Arc<Connections>) {
    loop {
        #[allow(clippy::disallowed_methods, reason = "the one timer for the deadlines of all requests")]
        tokio::time::sleep(EXPIRY_TICK).await;
        connections.engine.activity().end_expired(connections.kv.clock.monotonic_ns());
    }
}

/// While requests hold much memory, and for a second afterwards, returns the memory that they have freed to the system
/// at once. Otherwise the allocator would keep it for ten seconds, as unused pages in each of its arenas, and the
/// process would be several times as large as its accounts. One purge runs at a time, on a thread of lower priority,
/// and begins a tick or more after the last one: it returns what requests have freed in that time.
async fn give_memory_back(connections: Arc<Connections>, allocator: Allocator) {
    let much = connections.account.limit_bytes() / MUCH_OF_ACCOUNT;
    let mut left = 0;
    loop {
        #[allow(clippy::disallowed_methods, reason = "the one timer that looks at the memory of requests")]
        tokio::time::sleep(EXPIRY_TICK).await;
        left = if connections.account.used_bytes() > much { TICKS_AFTER_MUCH } else { left.saturating_sub(1) };
        if left > 0 && connections.kv.aside.begin(allocator.purge).await.is_err() {
            tracing::error!("freeing memory panicked");
        }
    }
}

async fn listen(what: &'static str, address: SocketAddr) -> Result<TcpListener, StartError> {
    TcpListener::bind(address).await.map_err(|source| StartError::Listen { what, address, source })
}

/// Whose node this is.
struct Belonging {
    identity: Identity,
    description: NodeDescription,
    applicant: Applicant,
    /// The answer to this node's question to join, if it has just joined.
    joined: Option<Joined>,
}

/// Determines to which node of which cluster the directories belong: the directories name it, or the cluster to join
/// assigns it, or the node is the first one of a new cluster. Claims new directories.
async fn belong(
    options: &StartOptions,
    traffic: &Traffic,
    directories: &mut [DataDirectory],
    clock: &dyn Clock,
) -> Result<Belonging, StartError> {
    let none = || StartError::Directories("no data directory was given".to_owned());
    let known = directories.iter().find_map(|directory| directory.identity());
    let host = match &known {
        Some(identity) => identity.host,
        None if options.join.is_empty() => random_uuid(),
        None => directories.first().ok_or_else(none)?.joining_host(random_uuid())?,
    };
    let description = membership::describe(options, host).await?;
    let advertise = description.node_address();
    let max_clock_skew = Duration::from_millis(options.max_clock_skew);
    let tls = traffic.credentials();
    let applicant = Applicant { bind: options.listen, advertise, max_clock_skew, timeout: JOIN_TIMEOUT, tls };
    let joined = match &known {
        None if !options.join.is_empty() => {
            let token = JoinToken::given(options.join_token_file.as_deref())?;
            Some(membership::join(&applicant, &options.join, description.clone(), options.rf, token, clock).await?)
        }
        _ => None,
    };
    let (cluster, node, level) = match (&known, &joined) {
        (Some(identity), _) => (identity.cluster, identity.node, identity.level),
        (None, Some(joined)) => (joined.cluster, joined.node.0, joined.level()?),
        (None, None) => (random_uuid(), FIRST_NODE.0, Levels::OWN.greatest),
    };
    for directory in directories.iter_mut().filter(|directory| directory.identity().is_none()) {
        directory.claim(cluster, node, host, level)?;
    }
    let identity = directories.first().and_then(|directory| directory.identity()).ok_or_else(none)?;
    Ok(Belonging { identity, description, applicant, joined })
}

/// A node that serves requests of others.
struct Running {
    kv: Arc<NodeKv>,
    membership: Arc<Membership>,
    /// Whether its copy of the catalog is known to have been current.
    was_current: bool,
}

/// The clock of the whole node. Logs the clock and the assumptions about it.
fn trusted_clock() -> Arc<dyn Clock> {
    let machine = MachineClock::new();
    tracing::info!(
        event = "clock",
        leases_by = machine.name(),
        drift_permille = DRIFT_PERMILLE,
        lease_ms = LEASE_NS / 1_000_000,
        limit_ms = CLOCK_LIMIT_US / 1_000,
        "leases last by this clock, which may run too fast or too slow by so much; wall clocks of nodes may differ by the limit"
    );
    Arc::new(TrustedClock::new(Arc::new(machine)))
}

/// Opens the replicas in the directories, contacts the other members, and returns once the catalog is served.
async fn start_node(
    options: &StartOptions,
    traffic: &Traffic,
    directories: Vec<DataDirectory>,
    belonging: Belonging,
    listener: TcpListener,
    clock: &Arc<dyn Clock>,
    guard: Command,
) -> Result<Running, StartError> {
    let Belonging { identity, description, applicant, joined } = belonging;
    let node = NodeId(identity.node);
    let admission = Arc::new(Admission::default());
    let Outside { life, transport, guard } =
        reach_out((options, traffic), &identity, &description, &admission, clock, guard)?;
    let sending = Arc::clone(&transport) as Arc<dyn Transport>;
    let store = Arc::new(start_store(options, directories, (node, life), clock, &sending)?);
    store.set_scrub_days(options.scrub_days);
    let catalog = CatalogFollower::open(&store, node, clock)?;
    check_replication_factor(&catalog.current(), options.rf)?;
    let aside = Arc::new(Aside::new(options.serving_threads())?);
    let threads = (Arc::new(DiskReads::new(options.data_dir.len(), options.disk_read_threads())?), Arc::clone(&aside));
    let router = start_router(node, route_options(options), &store, sending, &catalog, clock, threads);
    let asker = Operations::new(
        node,
        Arc::clone(&store),
        Arc::clone(&router),
        Arc::clone(&catalog),
        Arc::clone(&transport) as Arc<dyn Transport>,
        Arc::clone(clock),
        ReportOptions::new(options, traffic),
    );
    let membership = Arc::new(Membership {
        transport,
        guard,
        admission,
        named: Arc::new(Named::new(!options.join.is_empty())),
        operations: Arc::clone(&asker),
        store: Arc::clone(&store),
        router: Arc::clone(&router),
        catalog: Arc::clone(&catalog),
        clock: Arc::clone(clock),
        identity: identity.clone(),
        description,
    });
    // Set before the start waits for the copy of the catalog, which may have to be rebuilt.
    store.set_openings(Arc::clone(&catalog) as Arc<dyn Openings>);
    membership.open_doors(listener, joined.as_ref());
    tokio::spawn(Arc::clone(&membership).keep_asking(applicant.clone(), options.join.clone()));
    if joined.is_none() {
        membership.look_around(&applicant, &options.join).await?;
        membership.admitted().await?;
        membership.whole().await?;
        if catalog.current().identity().cluster_id.is_none() && identity.node == FIRST_NODE.0 {
            membership.found(&options.cluster_name, options.rf, options.auth).await?;
        }
        membership.register().await?;
    }
    let arrivals = Arrivals { router: Arc::clone(&router), catalog: Arc::clone(&catalog) };
    store.liveness().set_listener(Arc::new(arrivals));
    catalog.start(Arc::new(RoutedWriter(Arc::clone(&router))))?;
    membership.keep_up();
    tokio::spawn(Arc::clone(&asker).run());
    let ready = match &joined {
        Some(joined) => membership.joined(joined).await?,
        None => membership.caught_up().await?,
    };
    let (node, clock, tablets_per_node) = (node_info(options, &identity), Arc::clone(clock), options.tablets_per_node);
    let kv = NodeKv { store, router, catalog, clock, node, asker, tablets_per_node, aside, rest: Default::default() };
    Ok(Running { kv: Arc::new(kv), membership, was_current: ready != Ready::LeaderUnreachable })
}

/// Starts the router of a node, to which the store passes requests that it refuses.
fn start_router(
    node: NodeId,
    options: RouteOptions,
    store: &Arc<Store>,
    transport: Arc<dyn Transport>,
    catalog: &Arc<CatalogFollower>,
    clock: &Arc<dyn Clock>,
    (disk, aside): (Arc<DiskReads>, Arc<Aside>),
) -> Arc<Router> {
    let router = Router::new(RouterParts {
        node,
        store: Arc::clone(store),
        transport,
        catalogs: Arc::clone(catalog) as Arc<dyn CatalogSource>,
        clock: Arc::clone(clock),
        options,
        disk,
        aside,
    });
    store.set_reroute(Arc::clone(&router) as Arc<dyn Reroute>);
    store.set_account(Arc::clone(router.account()));
    store.set_transactions(Arc::new(Peers::new(&router, store)));
    router.spawn_tasks();
    router
}

fn tcp_options(
    (options, traffic): (&StartOptions, &Traffic),
    identity: &Identity,
    description: &NodeDescription,
    clock: &Arc<dyn Clock>,
    incarnation: u64,
) -> TcpOptions {
    let mut jitter = SplitMix64::from_entropy();
    TcpOptions {
        cluster: identity.cluster,
        node: NodeId(identity.node),
        host: identity.host,
        incarnation,
        bind: Some(options.listen),
        advertise: description.node_address(),
        max_clock_skew: Duration::from_millis(options.max_clock_skew),
        buffer_bytes: TcpOptions::BUFFER_BYTES,
        opening_timeout: TcpOptions::OPENING_TIMEOUT,
        tls: traffic.credentials(),
        clock: Arc::clone(clock),
        seed: jitter.next_u64(),
    }
}

/// The connections of a life of the node to other nodes.
struct Outside {
    life: u64,
    transport: Arc<TcpTransport>,
    guard: Guard,
}

fn reach_out(
    (options, traffic): (&StartOptions, &Traffic),
    identity: &Identity,
    description: &NodeDescription,
    admission: &Arc<Admission>,
    clock: &Arc<dyn Clock>,
    guard: Command,
) -> Result<Outside, StartError> {
    let key = LifeKey::random();
    let life = clock.wall_us().unsigned_abs();
    let transport = tcp_options((options, traffic), identity, description, clock, key.incarnation(life));
    let observer = Arc::clone(admission) as Arc<dyn Observer>;
    let transport = Arc::new(TcpTransport::new(transport, observer, Handle::current()));
    let notice = String::from_utf8(end_notice(NodeId(identity.node), life, key)).expect("questions are text");
    let guard = match options.guard {
        true => Guard::start(guard, notice, (options.listen, options.max_clock_skew), traffic.directory()),
        false => Guard::default(),
    };
    Ok(Outside { life, transport, guard })
}

fn random_uuid() -> Uuid {
    uuid::Builder::from_random_bytes(random::secret()).into_uuid()
}

fn start_store(
    options: &StartOptions,
    directories: Vec<DataDirectory>,
    (node, life): (NodeId, u64),
    clock: &Arc<dyn Clock>,
    transport: &Arc<dyn Transport>,
) -> Result<Store, StartError> {
    let memory_bytes = options.memory_limit_bytes();
    let replay_bytes = options.replay_limit.0.min(memory_bytes / 4).max(16 << 20);
    let mut for_memory = StorageOptions::for_memory(memory_bytes, machine::processors());
    if let Some(cache) = options.block_cache {
        for_memory.set_cache(cache.0);
    }
    let storage = StorageOptions {
        // With a smaller log, the files that are written between two checks for removable files would fill it, and
        // members that lag a little would need a copy.
        log_bytes: (2 * replay_bytes).max(128 << 20),
        compaction_rate_bytes: options.compaction_rate.0,
        space_amplification_percent: options.space_amplification,
        bloom_bits: options.bloom_bits,
        block_bytes: options.block_size.0 as usize,
        direct_io: has_direct_io(options, &directories),
        ..for_memory
    };
    let store = StoreOptions {
        incarnation: life,
        node: node.0,
        workers: options.writing_threads(),
        durability: match options.durability {
            DurabilityOption::Fsync => Durability::Fsync,
            DurabilityOption::Interval(every_ms) => Durability::Interval(every_ms),
        },
        queue_proposals: 64 << 10,
        // A sixteenth of the memory limit for the writes of all threads, and as much for messages.
        queue_bytes: (memory_bytes / 16 / options.writing_threads() as u64).clamp(16 << 20, 256 << 20) as usize,
        replay_bytes,
        disk_reserve_bytes: options.disk_reserve.0,
        accept_lost_log: options.accept_lost_log,
        most_tablets: machine::most_tablets() as usize,
    };
    let shared = Shared::new(storage, Arc::new(RowSemantics))?;
    Ok(Store::start(store, shared, directories, Arc::clone(clock), Arc::clone(transport))?)
}

/// Whether data files are read and written past the page cache: the option must be set, and all disks must support it.
fn has_direct_io(options: &StartOptions, directories: &[DataDirectory]) -> bool {
    let unable = directories.iter().find(|directory| !directory.reads_directly());
    if let Some(directory) = unable.filter(|_| options.direct_reads) {
        let path = directory.path().display().to_string();
        tracing::warn!(
            event = "disk",
            path,
            "the file system has no direct I/O: data is read and written through the page cache"
        );
    }
    options.direct_reads && unable.is_none()
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
