//! Membership: joining a cluster, being admitted by the members, admitting others, and knowing their addresses.
//!
//! ```text
//! new directory ──▶ join ──question──▶ a member: gate ──▶ catalog: RegisterNode
//!                    │◀── cluster, node id, members ──────────┘
//! any start ──▶ transport dials the members ──hello──▶ their gate ──refusal──▶ admission ──▶ the start fails with one line
//! catalog changes ──▶ follow ──▶ transport
//! ```
//!
//! Always true: a directory is claimed only after the cluster has given the node its id. Where nodes have certificates, a node becomes
//! a member with a join token only. A node whose catalog is empty
//! trusts every node of its cluster, as it has nothing to compare with, and receives the rest from the catalog's group.
//! Left out: leaving a cluster (`crate::operate` and the catalog), and encryption.

mod admission;
mod gate;
#[cfg(test)]
mod golden;
mod join;
pub(crate) mod metrics;
mod named;

pub(crate) use admission::Admission;
use gate::{Gatekeeper, Inbox};
use join::Failure;
pub(crate) use join::{Applicant, JOIN_TIMEOUT, Joined, join};
pub(crate) use named::Named;

use crate::address::resolve;
use crate::catalog::{CATALOG_TABLET, CatalogFollower, CatalogWriter, as_mutation};
use crate::config::{NodeAddress, StartOptions};
use crate::error::StartError;
use crate::guard::Guard;
use crate::life_key::LifeKey;
use crate::operate::Operations;
use crate::pause::pause;
use crate::route::Router;
use ahash::AHashMap;
use diorite_base::mutation::Mutation;
use diorite_base::write::{KvError, WriteReply};
use diorite_base::{Clock, Levels, NodeId};
use diorite_cluster::catalog::{Command, NodeDescription, Outcome, Rejection};
use diorite_control::membership::{
    COPY_TIMEOUT, Contacts, Facts, RETRY, Readiness, Ready, STEP, Step, addresses, registering, returning, unrecorded,
};
use diorite_control::planted::Planted;
use diorite_replica::{PeerListener, Store};
use diorite_rpc::Lane;
use diorite_rpc::tcp::TcpTransport;
use diorite_storage::Identity;
use futures::future::BoxFuture;
use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;
use tokio::net::TcpListener;
use tokio::time::timeout;

/// How long a starting node waits for the members' answers before it serves.
const ADMISSION_TIMEOUT: Duration = Duration::from_secs(2);
/// How long to wait for the catalog's leader to answer with its version.
const READY_TIMEOUT: Duration = Duration::from_secs(10);
/// How long a start waits until the catalog has a changed address; after that it is registered in the background.
const REGISTER_TIMEOUT: Duration = Duration::from_secs(3);

/// How many members are asked about nodes that are not known, how long each may take, and the pause before the next ones.
const ASKED_AT_ONCE: usize = 3;
const ASK_TIMEOUT: Duration = Duration::from_secs(2);
const ASK_PAUSE: Duration = Duration::from_millis(500);

/// The description of this node.
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
        levels: Some(Levels::OWN),
    })
}

/// The notice that this node's guard sends to the members once the node's process has ended.
pub(crate) fn end_notice(node: NodeId, life: u64, key: LifeKey) -> Vec<u8> {
    join::Question::Ended { node, life, key }.encode()
}

/// Writes to the catalog, on whichever node it is led.
pub(crate) struct RoutedWriter(pub(crate) Arc<Router>);

impl CatalogWriter for RoutedWriter {
    fn write(&self, mutation: Mutation, deadline_ns: Option<u64>) -> BoxFuture<'_, Result<WriteReply, KvError>> {
        Box::pin(self.0.write_until(CATALOG_TABLET, mutation, deadline_ns))
    }
}

/// Passes changes of other nodes' status on to all that need them.
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

/// The parts of a running member that deal with other nodes.
pub(crate) struct Membership {
    pub(crate) transport: Arc<TcpTransport>,
    pub(crate) guard: Guard,
    pub(crate) admission: Arc<Admission>,
    /// Members that the copy of the catalog does not have yet.
    pub(crate) named: Arc<Named>,
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

    /// Accepts connections of other nodes from now on, and dials the known members: those in the catalog's copy on
    /// disk, or in the answer of the node that let this one join.
    pub(crate) fn open_doors(&self, listener: TcpListener, joined: Option<&Joined>) {
        let inbox = Inbox {
            store: Arc::clone(&self.store),
            router: Arc::clone(&self.router),
            operations: Arc::clone(&self.operations),
        };
        let gate = Gatekeeper {
            node: self.node(),
            store: Arc::clone(&self.store),
            catalog: Arc::clone(&self.catalog),
            router: Arc::clone(&self.router),
            incarnations: Arc::clone(self.transport.incarnations()),
            named: Arc::clone(&self.named),
            admission: Arc::clone(&self.admission),
            clock: Arc::clone(&self.clock),
            log: Arc::default(),
        };
        self.named.learn(joined.iter().flat_map(|joined| joined.members()));
        self.transport.listen(listener, Arc::new(inbox), Arc::new(gate));
        self.keep_in_touch(&joined.iter().flat_map(|joined| joined.members()).collect());
    }

    /// Exchanges heartbeats with the known members, dials them, and names them to the guard. `named`: the members that
    /// the answer to the question to join named.
    fn keep_in_touch(&self, named: &BTreeMap<NodeId, SocketAddr>) {
        let encounters = self.admission.encounters();
        let contacts = Contacts::new(self.node(), &self.catalog.current(), named, &encounters, Planted::default());
        self.store.set_peers(contacts.heartbeats);
        if let Some(dialled) = contacts.dialled {
            self.guard
                .set_members(dialled.values().copied().filter(|address| *address != self.description.node_address()));
            self.transport.set_peers(&dialled.into_iter().collect::<AHashMap<_, _>>());
        }
    }

    /// Waits until every member that can be reached has admitted this node or refused it; fails if none has admitted it
    /// and one has refused it finally.
    pub(crate) async fn admitted(&self) -> Result<(), StartError> {
        let members = addresses(&self.catalog.current());
        let others: Vec<NodeId> = members.into_keys().filter(|node| *node != self.node()).collect();
        let _ = timeout(ADMISSION_TIMEOUT, self.admission.have_answered(&others)).await;
        self.admission.verdict()
    }

    /// Waits until a copy of the catalog that was lost with a disk is complete again. Until then the copy lacks what
    /// this node's disks hold, and nothing must be done because of it.
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
            self.keep_in_touch(&BTreeMap::new());
            tokio::select! {
                () = pause(RETRY) => {}
                refused = self.admission.refused() => return Err(refused),
            }
        }
    }

    /// Founds the cluster, if this node is its first one and has not done so yet.
    pub(crate) async fn found(
        &self,
        name: &str,
        replication_factor: Option<u32>,
        requires_login: bool,
    ) -> Result<(), StartError> {
        let command = Command::Bootstrap {
            cluster_id: self.identity.cluster,
            name: name.to_owned(),
            replication_factor: replication_factor.unwrap_or(1),
            requires_login: Some(requires_login),
            level: self.identity.level,
        };
        let writing = async {
            loop {
                match self.write(&command).await {
                    // The group of one voter is about to elect its leader.
                    Err(KvError::Unavailable(_) | KvError::NotLeader { .. } | KvError::Timeout(_)) => {
                        pause(RETRY).await
                    }
                    outcome => return outcome.map(|_| ()),
                }
            }
        };
        let written = timeout(COPY_TIMEOUT, writing).await.unwrap_or(Err(KvError::Unavailable(CATALOG_TABLET)));
        written.map_err(|error| StartError::Tablet { what: "the catalog".to_owned(), reason: error.to_string() })
    }

    /// Registers this node's address with the catalog, unless the catalog has it. Continues in the background if it
    /// takes long.
    pub(crate) async fn register(self: &Arc<Self>) -> Result<(), StartError> {
        let Some(command) = registering(&self.catalog.current(), self.node(), &self.description) else {
            return Ok(());
        };
        let membership = Arc::clone(self);
        let mut registering = tokio::spawn(async move { membership.register_until_done(command).await });
        match timeout(REGISTER_TIMEOUT, &mut registering).await {
            Ok(Ok(registered)) => registered,
            // Either the task has failed because the node stops, or it continues in the background.
            Ok(Err(_)) | Err(_) => Ok(()),
        }
    }

    /// Follows the members, and keeps the record of this node up to date, from now on. To be called on the runtime.
    pub(crate) fn keep_up(self: &Arc<Self>) {
        tokio::spawn(Arc::clone(self).follow());
        tokio::spawn(Arc::clone(self).keep_registered());
    }

    /// Registers the levels that this node's program knows, whenever the catalog is to have them and has not. Runs as
    /// long as the node.
    async fn keep_registered(self: Arc<Self>) {
        let mut versions = self.catalog.versions();
        loop {
            match unrecorded(&self.catalog.served(), self.node(), &self.description) {
                Some(command) => {
                    if let Err(error) = self.write(&command).await {
                        tracing::info!(%error, "the levels of this node's program cannot be registered yet");
                    }
                    let _ = timeout(RETRY, versions.changed()).await;
                }
                // The sender lives as long as `self`.
                None => drop(versions.changed().await),
            }
        }
    }

    async fn register_until_done(&self, command: Command) -> Result<(), StartError> {
        let mut is_logged = false;
        loop {
            match self.write(&command).await {
                Ok(version) => return version.map(drop),
                Err(error) if !std::mem::replace(&mut is_logged, true) => {
                    tracing::info!(%error, "this node's address cannot be written to the catalog yet");
                }
                Err(_) => {}
            }
            pause(RETRY).await;
        }
    }

    /// Returns the catalog's version that includes the command. The inner error is permanent.
    async fn write(&self, command: &Command) -> Result<Result<u64, StartError>, KvError> {
        let reply = self.router.write(CATALOG_TABLET, as_mutation(command, self.catalog.current().level())?).await?;
        match Outcome::decode(&reply) {
            Ok(Outcome::Rejected { rejection: Rejection::NoSuchNode, .. }) => Ok(Err(StartError::Removed(self.node()))),
            Ok(Outcome::Rejected { message, .. }) => Err(KvError::Storage(message)),
            Ok(outcome) => Ok(Ok(outcome.version())),
            Err(error) => Err(KvError::Storage(error.to_string())),
        }
    }

    /// A member that comes back is ready when its copy of the catalog includes everything that was acknowledged before.
    pub(crate) async fn caught_up(&self) -> Result<Ready, StartError> {
        self.ready(Readiness::returning(self.clock.monotonic_ns(), Planted::default())).await
    }

    /// Waits until the catalog's copy of a node that has just joined contains the node, and the catalog's group has its
    /// wanted voters.
    pub(crate) async fn joined(&self, joined: &Joined) -> Result<Ready, StartError> {
        self.ready(Readiness::joined(joined.version(), self.clock.monotonic_ns())).await
    }

    async fn ready(&self, readiness: Readiness) -> Result<Ready, StartError> {
        tokio::select! {
            ready = self.get_ready(readiness) => ready,
            refused = self.admission.refused() => Err(refused),
        }
    }

    async fn get_ready(&self, mut readiness: Readiness) -> Result<Ready, StartError> {
        let mut versions = self.catalog.versions();
        loop {
            let (served, newest) = (self.catalog.served(), self.catalog.current());
            let voters = self.store.voters(CATALOG_TABLET);
            let facts = Facts { now_ns: self.clock.monotonic_ns(), served: &served, newest: &newest, voters };
            match readiness.look(&facts) {
                Step::Ready(how) => {
                    self.log_ready(how);
                    return Ok(how);
                }
                Step::NoCopy => {
                    return Err(StartError::Join(format!(
                        "joined the cluster as node {}, but its catalog has not arrived within {} s: start again when the members are up",
                        self.node(),
                        COPY_TIMEOUT.as_secs()
                    )));
                }
                Step::Ask => {
                    // Usually changes nothing; the answer names the version that the catalog is at.
                    let command = returning(&newest, self.node(), &self.description);
                    // Readiness waits no longer than this for the leader in any case.
                    let answer = timeout(READY_TIMEOUT, self.write(&command)).await;
                    let version = answer.ok().and_then(|written| {
                        written
                            .inspect_err(|error| tracing::debug!(%error, "the catalog's leader cannot be asked yet"))
                            .ok()
                    });
                    readiness.answered(version.transpose()?, self.clock.monotonic_ns());
                }
                Step::Wait => {
                    let _ = timeout(STEP, versions.changed()).await;
                }
            }
        }
    }

    fn log_ready(&self, how: Ready) {
        match how {
            Ready::Current => {}
            Ready::LeaderUnreachable => {
                let version = self.catalog.served_version();
                tracing::warn!(version, "the catalog's leader cannot be reached: serving the copy on disk");
            }
            Ready::VotersMissing => {
                tracing::warn!("not all nodes that are to vote in the catalog's group do so yet: serving nevertheless");
            }
        }
    }

    /// Keeps heartbeats and the transport in line with the members in the catalog, as long as the node runs. Only one
    /// task may do this: of two concurrent updates the one with the older snapshot could come last.
    pub(crate) async fn follow(self: Arc<Self>) {
        let mut versions = self.catalog.versions();
        loop {
            self.keep_in_touch(&BTreeMap::new());
            tokio::select! {
                changed = versions.changed() => if changed.is_err() { return },
                () = self.admission.someone_new() => {}
            }
        }
    }

    /// Asks the nodes named by `--join` for the members' current addresses, as the addresses that this member knows may
    /// be old.
    pub(crate) async fn look_around(&self, applicant: &Applicant, seeds: &[NodeAddress]) -> Result<(), StartError> {
        for seed in seeds {
            let members = match applicant.whereabouts(seed, self.identity.cluster, self.clock.as_ref()).await {
                Ok(members) => members,
                Err(Failure::Final(why)) => return Err(StartError::Join(why)),
                Err(Failure::Passing(why)) => {
                    tracing::info!(%why, "a node named by --join does not send the addresses of the members");
                    continue;
                }
            };
            self.named.learn(members.iter().copied());
            for (node, address) in members.into_iter().filter(|(node, _)| *node != self.node()) {
                if !self.transport.is_connected(node, Lane::Control) {
                    self.transport.suggest(node, address);
                }
            }
        }
        Ok(())
    }
}

impl Membership {
    /// Asks known members about nodes that dial and are not in the copy of the catalog, as long as the node runs.
    pub(crate) async fn keep_asking(self: Arc<Self>, applicant: Applicant, seeds: Vec<NodeAddress>) {
        let mut round = 0;
        loop {
            self.named.missing().await;
            let members = addresses(&self.catalog.current()).into_iter().filter(|(node, _)| *node != self.node());
            let known = members.map(|(_, address)| NodeAddress::from(address));
            let asked: Vec<NodeAddress> = known.chain(seeds.iter().cloned()).collect();
            for nth in 0..asked.len().min(ASKED_AT_ONCE) {
                let address = &asked[(round + nth) % asked.len()];
                let answer = applicant.whereabouts(address, self.identity.cluster, self.clock.as_ref());
                match timeout(ASK_TIMEOUT, answer).await {
                    Ok(Ok(members)) => self.named.learn(members),
                    Ok(Err(failure)) => tracing::debug!(?failure, "a node does not say where the members are"),
                    Err(_) => tracing::debug!(%address, "a node does not say in time where the members are"),
                }
                if self.named.has_all() {
                    break;
                }
            }
            round += ASKED_AT_ONCE;
            self.named.has_asked();
            pause(ASK_PAUSE).await;
        }
    }
}

/// Reads arbitrary bytes as a question of a node that wants to join.
#[cfg(any(test, feature = "fuzzing"))]
pub(crate) fn check_question(input: &[u8]) {
    if let Ok(question) = join::Question::decode(input) {
        drop(format!("{question:?}"));
    }
}
