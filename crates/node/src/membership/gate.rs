//! Admission of other nodes, answers to nodes that want to join, and dispatch of frames.

use super::admission::Admission;
use super::join::{Answer, Question};
use super::named::Named;
use crate::catalog::CatalogFollower;
use crate::error::StartError;
use crate::join_token::JoinToken;
use crate::life_key::LifeKey;
use crate::operate::Operations;
use crate::pause::pause;
use crate::route::Router;
use diorite_base::connections::LogLimit;
use diorite_base::{Clock, NodeId};
use diorite_cluster::catalog::{Catalog, Command, NodeDescription, Outcome, Rejection};
use diorite_control::membership::{
    self, Dialler, NotJoining, RETRY, Shown, admit, check_replication_factor, joining, welcome, whereabouts,
};
use diorite_replica::Store;
use diorite_rpc::hello::{Hello, Refusal, RefusalKind};
use diorite_rpc::tcp::{Asker, Gate, Incarnations};
use diorite_rpc::{ConnectionEvent, Lane, Receiver};
use futures::FutureExt;
use futures::future::BoxFuture;
use parking_lot::Mutex;
use std::fmt;
use std::net::IpAddr;
use std::sync::Arc;
use std::time::Duration;
use tokio::time::timeout;

/// How long the registration of a new node is tried. The new node, and the transport, wait longer for the answer.
const REGISTER_TIMEOUT: Duration = Duration::from_secs(15);

/// Dispatches frames to their receivers.
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

    fn connection(&self, node: NodeId, lane: Lane, event: ConnectionEvent<'_>) {
        match lane {
            Lane::Requests => self.router.connection(node, event),
            Lane::Operations => self.operations.connection(node, event),
            // Consensus sends again, and copies wait for their acknowledgements.
            Lane::Control | Lane::Raft | Lane::Bulk => {}
        }
    }
}

/// Admits nodes that are in the catalog, and answers the questions of others.
#[derive(Clone)]
pub(crate) struct Gatekeeper {
    pub(crate) node: NodeId,
    pub(crate) store: Arc<Store>,
    pub(crate) catalog: Arc<CatalogFollower>,
    pub(crate) router: Arc<Router>,
    /// The incarnations of the other nodes' processes that connected last.
    pub(crate) incarnations: Arc<Incarnations>,
    /// Members that the copy of the catalog does not have yet.
    pub(crate) named: Arc<Named>,
    /// Learns of newer members that dial.
    pub(crate) admission: Arc<Admission>,
    /// Time.
    pub(crate) clock: Arc<dyn Clock>,
    /// Bounds what is logged of nodes that may not join.
    pub(crate) log: Arc<Mutex<LogLimit>>,
}

/// A node that wants to join, with what it has shown and said.
struct Newcomer {
    asker: Asker,
    node: NodeDescription,
    replication_factor: Option<u32>,
    token: Option<JoinToken>,
}

impl Gate for Gatekeeper {
    fn admit(&self, hello: &Hello, asker: &Asker) -> Result<(), Refusal> {
        let (catalog, dialler) = (self.catalog.current(), Dialler { node: hello.from, host: hello.host });
        let admitted = with_certificate(asker, |covers| match covers {
            Some(covers) => self.named.judged(covers, |certified| admit(&catalog, dialler, Some(certified))),
            None => admit(&catalog, dialler, None),
        });
        if admitted.is_ok() {
            self.admission.called(hello.from, hello.address, &catalog);
        }
        admitted.map_err(|why| {
            if why.kind == membership::RefusalKind::Unknown && asker.has_certificate() && self.named.miss(hello.from) {
                tracing::debug!(node = %hello.from, from = %asker.address, "a node dials that is not known here: members are asked");
            }
            refusal(why)
        })
    }

    fn answer(&self, asker: Asker, question: Vec<u8>) -> BoxFuture<'static, Result<Vec<u8>, Refusal>> {
        let gatekeeper = self.clone();
        async move {
            let question = Question::decode(&question)
                .map_err(|error| Refusal::new(RefusalKind::Other, format!("the question cannot be read: {error}")))?;
            let answer = match question {
                Question::Join { node, replication_factor, program, token } => {
                    tracing::info!(from = %asker.address, host = %node.host_id, program, "a node asks to join");
                    check_address(&asker, &node)?;
                    gatekeeper.let_join(Newcomer { asker, node, replication_factor, token }).await?
                }
                Question::Whereabouts { cluster } => {
                    let catalog = gatekeeper.catalog.current();
                    with_certificate(&asker, |covers| whereabouts(&catalog, cluster, covers)).map_err(refusal)?.into()
                }
                Question::Ended { node, life, key } => {
                    gatekeeper.note_end(node, life, &key);
                    return Ok(Vec::new());
                }
            };
            Ok(answer.encode())
        }
        .boxed()
    }
}

/// A refusal in the transport's type.
fn refusal(membership::Refusal { kind, reason }: membership::Refusal) -> Refusal {
    let kind = match kind {
        membership::RefusalKind::Cluster => RefusalKind::Cluster,
        membership::RefusalKind::Duplicate => RefusalKind::Duplicate,
        membership::RefusalKind::Unknown => RefusalKind::Unknown,
        membership::RefusalKind::Removed => RefusalKind::Removed,
        // A program that knows of no levels ends, too.
        membership::RefusalKind::Level => RefusalKind::Version,
        membership::RefusalKind::Address => RefusalKind::Other,
    };
    Refusal::new(kind, reason)
}

/// Calls `decide` with the addresses that the certificate of a node covers; `None` if traffic is open.
fn with_certificate<T>(asker: &Asker, decide: impl FnOnce(Option<membership::Covers<'_>>) -> T) -> T {
    let covers = |address: IpAddr| asker.may_be_at(address);
    decide(asker.has_certificate().then_some(&covers))
}

/// Others will dial it there, and it has to show a certificate of that address.
fn check_address(asker: &Asker, node: &NodeDescription) -> Result<(), Refusal> {
    let address = node.node_address().ip();
    if asker.may_be_at(address) {
        return Ok(());
    }
    let reason = format!("the certificate of this node does not cover {address}, where other nodes are to reach it");
    Err(Refusal::new(RefusalKind::Other, reason))
}

fn not_yet(why: impl std::fmt::Display) -> Refusal {
    Refusal::new(RefusalKind::Unknown, format!("no node can join at the moment: {why}"))
}

impl Gatekeeper {
    /// Handles the notice of a node's guard that a life of the node has ended. `key` is the proof: hashed with the
    /// life, it must give the incarnation in the handshakes of the process that connected last. Support is given to one
    /// life, so a notice that is late or repeated changes nothing.
    fn note_end(&self, node: NodeId, life: u64, key: &LifeKey) {
        if self.incarnations.of(node) == Some(key.incarnation(life)) && self.store.node_ended(node, life) {
            tracing::warn!(event = "node", %node, "the guard of a node reports that the node's process has ended");
            self.router.node_ended(node);
        }
    }

    async fn let_join(&self, newcomer: Newcomer) -> Result<Answer, Refusal> {
        let (catalog, host) = (self.catalog.current(), newcomer.node.host_id);
        let command = self.joining(&catalog, &newcomer)?;
        let registering = async {
            loop {
                match self.catalog.change(&command).await {
                    Ok(reply) => return reply,
                    Err(error) => tracing::info!(%error, "could not register a node; trying again"),
                }
                pause(RETRY).await;
            }
        };
        let reply = timeout(REGISTER_TIMEOUT, registering).await;
        let reply = reply.map_err(|_| not_yet("the catalog cannot be written"))?;
        match Outcome::decode(&reply) {
            Ok(Outcome::Rejected { rejection: Rejection::NoSuchToken, message, .. }) => {
                return Err(self.refuse_token(&newcomer, &message));
            }
            // The level was raised meanwhile.
            Ok(Outcome::Rejected { rejection: Rejection::Conflict, message, .. }) => return Err(not_yet(message)),
            Ok(Outcome::Rejected { message, .. }) => return Err(Refusal::new(RefusalKind::Duplicate, message)),
            Ok(_) => {}
            Err(error) => return Err(not_yet(error)),
        }
        let welcome = welcome(&self.catalog.current(), host).map_err(refusal)?;
        tracing::info!(node = ?welcome.node, %host, "a node has joined");
        Ok(welcome.into())
    }

    fn joining(&self, catalog: &Catalog, newcomer: &Newcomer) -> Result<Command, Refusal> {
        let Newcomer { asker, node, replication_factor, token } = newcomer;
        let command = with_certificate(asker, |covers| {
            let token = token.as_ref().and_then(JoinToken::shown);
            let now_ms = self.clock.wall_us() / 1_000;
            let shown = covers.map_or(Shown::Nothing, |covers| Shown::Certificate { covers, token, now_ms });
            joining(catalog, self.node, node.clone(), shown, |node| self.store.liveness().is_up(node))
        });
        let command = command.map_err(|why| match why {
            NotJoining::Refused(why) => refusal(why),
            NotJoining::InvalidToken(why) => self.refuse_token(newcomer, &why),
            NotJoining::NoToken => {
                self.log_refusal(newcomer, &"it has shown no join token");
                let reason = "a node joins this cluster with a join token: `diorite admin join-token` on a member makes one, --join-token-file names its file";
                Refusal::new(RefusalKind::Other, reason)
            }
        })?;
        check_replication_factor(catalog, *replication_factor)
            .map_err(|differs| Refusal::new(RefusalKind::Cluster, StartError::from(differs)))?;
        Ok(command)
    }

    /// Whoever has shown the token is not told what is wrong with it.
    fn refuse_token(&self, newcomer: &Newcomer, why: &dyn fmt::Display) -> Refusal {
        self.log_refusal(newcomer, why);
        Refusal::new(RefusalKind::Other, "the join token is not valid")
    }

    fn log_refusal(&self, newcomer: &Newcomer, why: &dyn fmt::Display) {
        let from = newcomer.asker.address;
        if self.log.lock().may_log(from.into(), self.clock.monotonic_ns()) {
            let host = newcomer.node.host_id;
            tracing::warn!(event = "security", %from, %host, %why, "a node may not join; no further line about its address for a minute");
        }
    }
}
