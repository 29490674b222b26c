//! Who the other nodes are: becoming a member of a cluster, being let in by the members, letting others in, and knowing where they are.
//!
//! ```text
//! new directory ──▶ join ──question──▶ a member: gate ──▶ catalog: RegisterNode
//!                    │◀── cluster, node id, members ──────────┘
//! any start ──▶ transport dials the members ──hello──▶ their gate ──refusal──▶ admission ──▶ the start fails with one line
//! catalog changes ──▶ follow ──▶ transport
//! ```
//!
//! Always true: a directory is claimed only after the cluster has given the node its number; a node whose catalog is empty still trusts whoever
//! is of its cluster, as it has nothing to compare with, and is told the rest by the catalog's group.
//! Left out: leaving a cluster (`crate::operate` and the catalog), and encryption.

mod admission;
mod gate;
mod join;
pub(crate) mod metrics;

pub(crate) use admission::Admission;
use gate::{Gatekeeper, Inbox};
pub(crate) use join::{Applicant, JOIN_PATIENCE, Joined, join};

use crate::catalog::{CATALOG_TABLET, CatalogFollower, CatalogWriter, as_mutation};
use crate::config::{NodeAddress, StartOptions};
use crate::error::StartError;
use crate::operate::Operations;
use crate::route::Router;
use ahash::AHashMap;
use diorite_base::mutation::Mutation;
use diorite_base::write::{KvError, WriteReply};
use diorite_base::{Clock, NodeId};
use diorite_cluster::catalog::{Catalog, Command, NodeDescription, Outcome};
use diorite_replica::{PeerListener, Store};
use diorite_rpc::Lane;
use diorite_rpc::tcp::TcpTransport;
use diorite_storage::Identity;
use futures::future::BoxFuture;
use std::collections::BTreeSet;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;
use tokio::net::TcpListener;
use tokio::time::timeout;

/// How long a starting node waits for the members' word before it serves.
const ADMISSION_PATIENCE: Duration = Duration::from_secs(2);
/// How long a start waits until the catalog knows a changed address; after that it is told in the background.
const REGISTER_PATIENCE: Duration = Duration::from_secs(3);
/// How long a node that has just joined waits for its copy of the catalog.
const COPY_PATIENCE: Duration = Duration::from_secs(60);
/// How long a node that was away waits for what the catalog has become meanwhile, before it serves what it has on disk.
const CATCH_UP_PATIENCE: Duration = Duration::from_secs(10);
/// How long a node that has just joined waits until the catalog is on the nodes that are to hold it; then others may be missing, and it serves.
const SETTLE_PATIENCE: Duration = Duration::from_secs(10);
/// How often it looks.
const SETTLE_STEP: Duration = Duration::from_millis(20);
/// The pause between two attempts at what did not work.
const RETRY: Duration = Duration::from_millis(200);

/// Waits before something is tried again.
pub(crate) async fn pause(duration: Duration) {
    #[allow(clippy::disallowed_methods, reason = "a shell's timer: nobody says when to try again")]
    tokio::time::sleep(duration).await;
}

/// The first address that `address` stands for.
pub(crate) async fn resolve(address: &NodeAddress) -> Result<SocketAddr, std::io::Error> {
    let port = address.port.unwrap_or(NodeAddress::DEFAULT_PORT);
    let mut found = tokio::net::lookup_host((address.host.as_str(), port)).await?;
    found.next().ok_or_else(|| std::io::Error::new(std::io::ErrorKind::NotFound, "the name has no address"))
}

/// What this node says about itself.
pub(crate) async fn describe(options: &StartOptions, host: uuid::Uuid) -> Result<NodeDescription, StartError> {
    let node_address = match &options.advertise_node_address {
        Some(address) => Some(resolve(address).await.map_err(|error| {
            StartError::Join(format!("--advertise-node-address {address} cannot be resolved: {error}"))
        })?),
        None => None,
    };
    Ok(NodeDescription {
        host_id: host,
        address: options.listen,
        cql_port: options.cql_port,
        rpc_port: options.node_port,
        http_port: options.http_port,
        data_center: options.data_center.clone(),
        zone: options.zone.clone(),
        node_address,
    })
}

/// Writes to the catalog wherever it is led.
pub(crate) struct RoutedWriter(pub(crate) Arc<Router>);

impl CatalogWriter for RoutedWriter {
    fn write(&self, mutation: Mutation) -> BoxFuture<'_, Result<WriteReply, KvError>> {
        Box::pin(self.0.write(CATALOG_TABLET, mutation))
    }
}

/// Passes on to all who want to know that nodes come and go.
pub(crate) struct Arrivals {
    pub(crate) router: Arc<Router>,
    pub(crate) catalog: Arc<CatalogFollower>,
}

impl PeerListener for Arrivals {
    fn changed(&self, node: NodeId, is_up: bool) {
        if is_up {
            self.router.node_up(node);
        } else {
            self.router.node_down(node);
        }
        self.catalog.changed(node, is_up);
    }

    fn announced(&self, node: NodeId, number: u64) {
        self.catalog.announced(node, number);
    }
}

/// What a running member needs of the others.
pub(crate) struct Membership {
    pub(crate) transport: Arc<TcpTransport>,
    pub(crate) admission: Arc<Admission>,
    pub(crate) store: Arc<Store>,
    pub(crate) router: Arc<Router>,
    pub(crate) catalog: Arc<CatalogFollower>,
    pub(crate) operations: Arc<Operations>,
    pub(crate) clock: Arc<dyn Clock>,
    pub(crate) identity: Identity,
    pub(crate) description: NodeDescription,
}

impl Membership {
    fn node(&self) -> NodeId {
        NodeId(self.identity.node)
    }

    /// Lets others in from now on, and dials the members that are known: from the catalog's copy on disk, or from the answer of who let this
    /// node join.
    pub(crate) fn open_doors(&self, listener: TcpListener, joined: Option<&Joined>) {
        let inbox = Inbox {
            store: Arc::clone(&self.store),
            router: Arc::clone(&self.router),
            operations: Arc::clone(&self.operations),
        };
        let gate = Gatekeeper { node: self.node(), store: Arc::clone(&self.store), catalog: Arc::clone(&self.catalog) };
        self.transport.listen(listener, Arc::new(inbox), Arc::new(gate));
        let mut members = addresses(&self.catalog.current());
        if members.is_empty() {
            members.extend(joined.iter().flat_map(|joined| joined.members()));
        }
        self.keep_in_touch(&members);
    }

    /// Keeps in touch with the members, as far as they are known.
    fn meet(&self) {
        let members = addresses(&self.catalog.current());
        if members.is_empty() {
            // Not told yet who the members are: heartbeats go to whoever has been met.
            self.store.set_peers(self.admission.met());
        } else {
            self.keep_in_touch(&members);
        }
    }

    fn keep_in_touch(&self, members: &AHashMap<NodeId, SocketAddr>) {
        self.store.set_peers(members.keys().copied().filter(|node| *node != self.node()).collect());
        self.transport.set_peers(members);
    }

    /// Waits until every member that can be reached has let this node in or not; fails if none has and one said that none will.
    pub(crate) async fn admitted(&self) -> Result<(), StartError> {
        let members = addresses(&self.catalog.current());
        let others: Vec<NodeId> = members.into_keys().filter(|node| *node != self.node()).collect();
        let _ = timeout(ADMISSION_PATIENCE, self.admission.heard_from(&others)).await;
        self.admission.verdict()
    }

    /// A copy of the catalog that was lost with a disk, and was not whole again when the process ended, says less than what this node's disks hold: nothing is done
    /// by it. Waits until the others have sent as much as there was.
    pub(crate) async fn whole(&self) -> Result<(), StartError> {
        let mut is_logged = false;
        loop {
            let store = Arc::clone(&self.store);
            let state = tokio::task::spawn_blocking(move || store.describe(CATALOG_TABLET)).await;
            if state.is_ok_and(|state| state.is_some_and(|state| !state.is_recovering)) {
                return Ok(());
            }
            if !std::mem::replace(&mut is_logged, true) {
                tracing::warn!("the copy of the catalog was lost with a disk: waiting for the other nodes to send it");
            }
            self.meet();
            tokio::select! {
                () = pause(RETRY) => {}
                refused = self.admission.refused() => return Err(refused),
            }
        }
    }

    /// Founds the cluster, if this node is its first one and has not done so yet.
    pub(crate) async fn found(&self, name: &str, replication_factor: Option<u32>) -> Result<(), StartError> {
        let command = Command::Bootstrap {
            cluster_id: self.identity.cluster,
            name: name.to_owned(),
            replication_factor: replication_factor.unwrap_or(1),
        };
        let writing = async {
            loop {
                match self.write(&command).await {
                    // The group of one is about to elect itself.
                    Err(KvError::Unavailable(_) | KvError::NotLeader { .. } | KvError::Timeout(_)) => {
                        pause(RETRY).await
                    }
                    outcome => return outcome.map(|_| ()),
                }
            }
        };
        let written = timeout(COPY_PATIENCE, writing).await.unwrap_or(Err(KvError::Unavailable(CATALOG_TABLET)));
        written.map_err(|error| StartError::Tablet { what: "the catalog".to_owned(), reason: error.to_string() })
    }

    /// Tells the catalog where this node is, if it has another idea. What takes longer goes on in the background.
    pub(crate) async fn register(self: &Arc<Self>) -> Result<(), StartError> {
        let current = self.catalog.current();
        let known = current.node_by_host_id(self.identity.host);
        if known.is_some_and(|node| node.description == self.description) {
            return Ok(());
        }
        let membership = Arc::clone(self);
        let mut registering = tokio::spawn(async move { membership.register_until_done().await });
        match timeout(REGISTER_PATIENCE, &mut registering).await {
            Ok(Ok(registered)) => registered,
            // Abandoned: the node stops. Or it takes its time.
            Ok(Err(_)) | Err(_) => Ok(()),
        }
    }

    async fn register_until_done(&self) -> Result<(), StartError> {
        let command = Command::RegisterNode { node: self.description.clone() };
        let mut is_logged = false;
        loop {
            match self.write(&command).await {
                Ok(_) => return Ok(()),
                Err(error) if !std::mem::replace(&mut is_logged, true) => {
                    tracing::info!(%error, "the catalog cannot be told this node's address yet");
                }
                Err(_) => {}
            }
            pause(RETRY).await;
        }
    }

    /// Returns the catalog's version that includes the command.
    async fn write(&self, command: &Command) -> Result<u64, KvError> {
        let reply = self.router.write(CATALOG_TABLET, as_mutation(command)?).await?;
        match Outcome::decode(&reply) {
            Ok(Outcome::Rejected { message, .. }) => Err(KvError::Storage(message)),
            Ok(outcome) => Ok(outcome.version()),
            Err(error) => Err(KvError::Storage(error.to_string())),
        }
    }

    /// A member that comes back serves nothing before its copy of the catalog has all that was acknowledged before: clients would be told that
    /// what they have made does not exist. Its disk may not know of the last changes that they were committed, even of those that it served. If the
    /// catalog's leader cannot be asked for a while, what there is has to do.
    pub(crate) async fn caught_up(&self) -> Result<(), StartError> {
        // Changes nothing, as the catalog knows this node or is being told; the answer names the version that says so.
        let command = Command::RegisterNode { node: self.description.clone() };
        let mut versions = self.catalog.versions();
        let catching_up = async {
            let newest = loop {
                match self.write(&command).await {
                    Ok(version) => break version,
                    Err(error) => tracing::debug!(%error, "the catalog's leader cannot be asked yet"),
                }
                pause(RETRY).await;
            };
            // The sender lives as long as the catalog's follower.
            let _ = versions.wait_for(|served| *served >= newest).await;
        };
        tokio::select! {
            waited = timeout(CATCH_UP_PATIENCE, catching_up) => {
                if waited.is_err() {
                    let version = self.catalog.served_version();
                    tracing::warn!(version, "the catalog's leader cannot be reached: serving the copy on disk");
                }
                Ok(())
            }
            refused = self.admission.refused() => Err(refused),
        }
    }

    /// A node that has just joined serves nothing before its copy of the catalog knows it, and is not ready before the catalog is where it is wanted: who has seen all
    /// nodes become ready may take it that any one of them can be lost.
    pub(crate) async fn taken_in(&self, joined: &Joined) -> Result<(), StartError> {
        self.copied(joined).await?;
        let settled = async {
            while !self.is_catalog_settled() {
                pause(SETTLE_STEP).await;
            }
        };
        if timeout(SETTLE_PATIENCE, settled).await.is_err() {
            tracing::warn!("the catalog is not on all nodes yet that are to hold it: serving all the same");
        }
        Ok(())
    }

    /// Whether those decide about the catalog who shall, and nobody else does, as far as this node's copy knows.
    fn is_catalog_settled(&self) -> bool {
        let wanted: BTreeSet<NodeId> = self.catalog.current().catalog_members().voters.into_iter().collect();
        self.store.voters(CATALOG_TABLET).into_iter().collect::<BTreeSet<_>>() == wanted
    }

    async fn copied(&self, joined: &Joined) -> Result<(), StartError> {
        let mut versions = self.catalog.versions();
        let copied = versions.wait_for(|version| *version >= joined.version());
        tokio::select! {
            waited = timeout(COPY_PATIENCE, copied) => match waited {
                Ok(_) => Ok(()),
                Err(_) => Err(StartError::Join(format!(
                    "joined the cluster as node {}, but its catalog has not arrived within {} s: start again when the members are up",
                    self.node(),
                    COPY_PATIENCE.as_secs()
                ))),
            },
            refused = self.admission.refused() => Err(refused),
        }
    }

    /// Keeps heartbeats and the transport to the members that the catalog has. Runs as long as the node, and nobody else decides that meanwhile: of
    /// two who do, the one with the older snapshot may be the last.
    pub(crate) async fn follow(self: Arc<Self>) {
        let mut versions = self.catalog.versions();
        loop {
            self.meet();
            tokio::select! {
                changed = versions.changed() => if changed.is_err() { return },
                () = self.admission.someone_new() => {}
            }
        }
    }

    /// Asks the nodes named by `--join` where the members are now, for a member whose own knowledge may be old.
    pub(crate) async fn look_around(&self, applicant: Applicant, seeds: &[NodeAddress]) -> Result<(), StartError> {
        for seed in seeds {
            let members = applicant.whereabouts(seed, self.identity.cluster, self.clock.as_ref()).await?;
            for (node, address) in members.into_iter().filter(|(node, _)| *node != self.node()) {
                if !self.transport.is_connected(node, Lane::Control) {
                    self.transport.suggest(node, address);
                }
            }
        }
        Ok(())
    }
}

/// Where the members are dialled, as the catalog has it.
fn addresses(catalog: &Catalog) -> AHashMap<NodeId, SocketAddr> {
    catalog.nodes().map(|node| (node.id, node.description.node_address())).collect()
}

/// Refuses a replication factor that differs from the one that the cluster was founded with.
pub(crate) fn check_replication_factor(catalog: &Catalog, given: Option<u32>) -> Result<(), StartError> {
    let identity = catalog.identity();
    match given {
        Some(given) if identity.cluster_id.is_some() && given != identity.replication_factor => {
            Err(StartError::ReplicationFactor { given, decided: identity.replication_factor })
        }
        _ => Ok(()),
    }
}

/// Reads arbitrary bytes as a question of who wants to join.
#[cfg(any(test, feature = "fuzzing"))]
pub(crate) fn check_question(input: &[u8]) {
    if let Ok(question) = join::Question::decode(input) {
        drop(format!("{question:?}"));
    }
}
