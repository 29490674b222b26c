//! The doors of this node: which other nodes are let in, what newcomers are answered, and where frames go.

use super::join::{Answer, Question};
use super::{RETRY, pause};
use crate::catalog::CatalogFollower;
use crate::operate::Operations;
use crate::route::Router;
use diorite_base::NodeId;
use diorite_cluster::catalog::{Catalog, Command, NodeDescription, Outcome};
use diorite_replica::Store;
use diorite_rpc::hello::{Hello, Refusal, RefusalKind};
use diorite_rpc::tcp::Gate;
use diorite_rpc::{Lane, Receiver};
use futures::FutureExt;
use futures::future::BoxFuture;
use std::net::IpAddr;
use std::sync::Arc;
use std::time::Duration;
use tokio::time::timeout;

/// How long a newcomer's registration is tried; less than its patience and than the transport's for an answer.
const REGISTER_PATIENCE: Duration = Duration::from_secs(15);

/// Hands frames to those who understand them.
pub(crate) struct Inbox {
    pub(crate) store: Arc<Store>,
    pub(crate) router: Arc<Router>,
    pub(crate) operations: Arc<Operations>,
}

impl Receiver for Inbox {
    fn receive(&self, from: NodeId, lane: Lane, frame: &[u8]) {
        match lane {
            Lane::Requests => self.router.receive(from, frame),
            Lane::Operations => self.operations.receive(from, frame),
            Lane::Control | Lane::Raft | Lane::Bulk => self.store.receive(from, lane, frame),
        }
    }
}

/// Decides by what the catalog says.
#[derive(Clone)]
pub(crate) struct Gatekeeper {
    pub(crate) node: NodeId,
    pub(crate) store: Arc<Store>,
    pub(crate) catalog: Arc<CatalogFollower>,
}

impl Gate for Gatekeeper {
    fn admit(&self, hello: &Hello) -> Result<(), Refusal> {
        let catalog = self.catalog.current();
        match catalog.node(hello.from) {
            Some(node) if node.description.host_id == hello.host => Ok(()),
            Some(node) => {
                let (id, owner) = (hello.from, node.description.host_id);
                let reason = format!("node id {id} belongs to host {owner}, not to {}", hello.host);
                Err(Refusal::new(RefusalKind::Duplicate, reason))
            }
            None if catalog.identity().has_numbered_node(hello.from) => {
                let reason = format!("node {} was removed from the cluster", hello.from);
                Err(Refusal::new(RefusalKind::Removed, reason))
            }
            // This node has just joined: the members tell it who they are.
            None if catalog.nodes().next().is_none() => Ok(()),
            None => Err(Refusal::new(RefusalKind::Unknown, format!("it does not know node {} yet", hello.from))),
        }
    }

    fn answer(&self, from: IpAddr, question: Vec<u8>) -> BoxFuture<'static, Result<Vec<u8>, Refusal>> {
        let gatekeeper = self.clone();
        async move {
            let question = Question::decode(&question).map_err(|why| Refusal::new(RefusalKind::Other, why))?;
            let answer = match question {
                Question::Join { node, replication_factor, program } => {
                    tracing::info!(%from, host = %node.host_id, program, "a node asks to join");
                    gatekeeper.let_join(node, replication_factor).await?
                }
                Question::Whereabouts { cluster } => gatekeeper.whereabouts(cluster)?,
            };
            Ok(answer.encode())
        }
        .boxed()
    }
}

fn not_yet(why: impl std::fmt::Display) -> Refusal {
    Refusal::new(RefusalKind::Unknown, format!("no node can join at the moment: {why}"))
}

impl Gatekeeper {
    async fn let_join(&self, node: NodeDescription, replication_factor: Option<u32>) -> Result<Answer, Refusal> {
        let catalog = self.catalog.current();
        if catalog.identity().cluster_id.is_none() || catalog.node(self.node).is_none() {
            return Err(not_yet("the node asked is starting itself"));
        }
        super::check_replication_factor(&catalog, replication_factor)
            .map_err(|error| Refusal::new(RefusalKind::Cluster, error))?;
        self.check_newcomer(&catalog, &node)?;
        let host = node.host_id;
        let command = Command::RegisterNode { node };
        let registering = async {
            loop {
                match self.catalog.change(&command).await {
                    Ok(reply) => return reply,
                    Err(error) => tracing::info!(%error, "could not register a node; trying again"),
                }
                pause(RETRY).await;
            }
        };
        let reply = timeout(REGISTER_PATIENCE, registering).await;
        let reply = reply.map_err(|_| not_yet("the catalog cannot be written"))?;
        match Outcome::decode(&reply) {
            Ok(Outcome::Rejected { message, .. }) => return Err(Refusal::new(RefusalKind::Duplicate, message)),
            Ok(_) => {}
            Err(error) => return Err(not_yet(error)),
        }
        let catalog = self.catalog.current();
        let joined = catalog.node_by_host_id(host).ok_or_else(|| not_yet("the catalog lags"))?;
        tracing::info!(node = %joined.id, %host, address = %joined.description.node_address(), "a node has joined");
        self.tell(&catalog, Some(joined.id))
    }

    /// The newcomer's identity may not be another's. That its addresses are not either is the catalog's to see: of two that ask at once, one comes first.
    fn check_newcomer(&self, catalog: &Catalog, node: &NodeDescription) -> Result<(), Refusal> {
        if let Some(known) = catalog.node_by_host_id(node.host_id)
            && (known.id == self.node || self.store.liveness().is_up(known.id))
        {
            let reason = format!("host id {} is node {}'s, which is running", node.host_id, known.id);
            return Err(Refusal::new(RefusalKind::Duplicate, reason));
        }
        Ok(())
    }

    fn whereabouts(&self, cluster: uuid::Uuid) -> Result<Answer, Refusal> {
        let catalog = self.catalog.current();
        match catalog.identity().cluster_id {
            Some(own) if own == cluster => self.tell(&catalog, None),
            Some(own) => {
                let reason =
                    format!("it belongs to cluster {own}, the data directory of this node to cluster {cluster}");
                Err(Refusal::new(RefusalKind::Cluster, reason))
            }
            None => Err(not_yet("the node asked is starting itself")),
        }
    }

    fn tell(&self, catalog: &Catalog, node: Option<NodeId>) -> Result<Answer, Refusal> {
        let identity = catalog.identity();
        Ok(Answer {
            cluster: identity.cluster_id.ok_or_else(|| not_yet("there is no cluster yet"))?,
            node,
            version: catalog.version(),
            members: catalog.nodes().map(|node| (node.id, node.description.node_address())).collect(),
        })
    }
}
