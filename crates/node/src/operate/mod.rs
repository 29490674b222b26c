//! Operations: nodes' reports, operators' questions and changes, and the balancer.
//!
//! ```text
//! every node ──report──▶ the node that leads the catalog ◀──ask── any node ◀──HTTP── operator
//!                          │ view = catalog + reports + who is up
//!                          ▼
//!                        balance(view) ──▶ commands ──▶ catalog ──▶ nodes open, copy, vote, close
//! every node that leads a tablet on the move ──FinishMoves──▶ catalog
//! ```
//!
//! Always true: only the node that leads the catalog answers and balances, by its newest snapshot; the rest of its
//! knowledge (sizes, leaders, which nodes are up) is from reports received since it leads, and nothing is moved until
//! all live nodes have reported. Every decision is a command to the catalog that names the state it was decided on, so
//! that two nodes that both believe to lead do no harm.
//! Left out: the decisions (`diorite_control`), the placement policy (`diorite_cluster::balance`), and moving data
//! (`diorite_replica`).

mod answers;
mod asked;
mod changes;
mod cidr_groups;
mod closer;
mod compaction;
mod finish;
#[cfg(test)]
mod golden;
mod growth;
mod history;
mod indexes;
mod kept;
mod merge;
mod own;
mod questions;
mod report;
mod restart;
mod scrub;
mod sight;
mod steer;
mod tablets;
#[cfg(test)]
mod tests;
mod transactions;
mod upgrade;
mod wire;

use crate::catalog::{CATALOG_TABLET, CatalogFollower, LocalReplicas};
use crate::route::Router;
use asked::Questions;
use diorite_admin::Operator;
use diorite_admin::api::{Activity, Ask, Change, ClusterStatus, Failure, FailureKind, NodeQuestion};
use diorite_base::random::{Random, SplitMix64};
use diorite_base::{Clock, NodeId};
use diorite_control::steering::Steering;
use diorite_replica::{Leadership, Store};
use diorite_rpc::{ConnectionEvent, Lane, SendError, Transport};
use futures::future::BoxFuture;
pub(crate) use indexes::record::IndexRecord;
pub(crate) use own::{CheckedKeys, Own};
use parking_lot::Mutex;
pub(crate) use report::ReportOptions;
use serde::Serialize;
use serde_json::Value;
use std::collections::BTreeMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, OnceLock};
use std::time::Duration;
use tokio::runtime::Handle;
use tokio::sync::Semaphore;
use uuid::Uuid;
use wire::Frame;

/// How long the node that leads the catalog is given to answer.
const ANSWER_TIMEOUT: Duration = Duration::from_secs(20);
/// How long a node is given to answer a client that waits for a trace. Drivers ask again.
const TRACE_TIMEOUT: Duration = Duration::from_secs(1);
/// How often the leader of the catalog is asked a question, how often to make a change, and the pause between two
/// attempts: a leader changes within a second, on a busy machine within a few.
const ATTEMPTS: usize = 8;
const ATTEMPTS_TO_CHANGE: usize = 20;
const ASK_AGAIN: Duration = Duration::from_millis(250);
/// How often an answer is sent, with the same pause, while there is no connection.
const ATTEMPTS_TO_ANSWER: usize = 8;
/// Questions of other nodes that are answered at a time.
const AT_A_TIME: usize = 64;

type Answer = Result<Value, Failure>;
type Known = diorite_control::knowledge::Known<report::Details>;

/// Reports, operators' requests and the balancer of this node.
pub(crate) struct Operations {
    node: NodeId,
    runtime: Handle,
    store: Arc<Store>,
    router: Arc<Router>,
    catalog: Arc<CatalogFollower>,
    transport: Arc<dyn Transport>,
    clock: Arc<dyn Clock>,
    /// Distinguishes runs of this process.
    incarnation: u64,
    started_ns: u64,
    options: ReportOptions,
    /// The questions to other nodes that wait for answers.
    asked: Questions,
    answering: Arc<Semaphore>,
    /// Held while something about levels is noted on the disks.
    noting: Arc<Mutex<()>>,
    /// The nodes' reports, and the decisions from them.
    steering: Mutex<Steering<report::Details>>,
    /// The last merged history of the cluster.
    history: kept::Kept,
    /// What was done about indexes here.
    indexes: Arc<IndexRecord>,
    /// Bytes of SSTable files here, as of the last report.
    sst_bytes: AtomicU64,
    own: OnceLock<Arc<dyn Own>>,
    /// The state of the cluster a few seconds ago, while this node leads the catalog.
    summary: Mutex<Option<Arc<ClusterStatus>>>,
}

impl Operations {
    /// Must be called on the runtime. The caller has to spawn [`Self::run`], and to pass frames of `Lane::Operations`
    /// to [`Self::receive`].
    pub(crate) fn new(
        node: NodeId,
        store: Arc<Store>,
        router: Arc<Router>,
        catalog: Arc<CatalogFollower>,
        transport: Arc<dyn Transport>,
        clock: Arc<dyn Clock>,
        options: ReportOptions,
    ) -> Arc<Self> {
        Arc::new(Self {
            node,
            runtime: Handle::current(),
            store,
            router,
            catalog,
            transport,
            incarnation: SplitMix64::from_entropy().next_u64(),
            started_ns: clock.monotonic_ns(),
            clock,
            indexes: Arc::new(IndexRecord::new(options.index_rate_bytes)),
            options,
            asked: Questions::default(),
            answering: Arc::new(Semaphore::new(AT_A_TIME)),
            noting: Arc::default(),
            steering: Mutex::default(),
            history: kept::Kept::default(),
            sst_bytes: AtomicU64::new(0),
            own: OnceLock::new(),
            summary: Mutex::default(),
        })
    }

    /// Sets the source of answers about this node alone, once. Without it, this node does not answer such questions.
    pub(crate) fn set_own(&self, own: Arc<dyn Own>) {
        if self.own.set(own).is_err() {
            tracing::error!("the source of answers about this node is already set");
        }
    }

    /// The state of the cluster a few seconds ago, if this node leads the catalog.
    pub(crate) fn summary(&self) -> Option<Arc<ClusterStatus>> {
        self.summary.lock().clone()
    }

    /// The number of the balancer's decisions on this node, by reason.
    pub(crate) fn decided(&self) -> BTreeMap<String, u64> {
        self.steering.lock().decided().clone()
    }

    /// Why this node should not be given requests now; `None` if it can serve them.
    pub(crate) fn unready(&self) -> Option<String> {
        let is_led = match self.store.handle(CATALOG_TABLET).map(|handle| handle.leadership()) {
            Some(Leadership::Here) => true,
            Some(Leadership::Elsewhere(leader)) => self.is_up(leader),
            Some(Leadership::Unknown) | None => false,
        };
        (!is_led).then(|| "no leader of the catalog is known".to_owned())
    }

    /// What was done about indexes on this node.
    pub(crate) fn indexes(&self) -> &IndexRecord {
        &self.indexes
    }

    /// Bytes of SSTable files of this node, as of the last report.
    pub(crate) fn sst_bytes(&self) -> u64 {
        self.sst_bytes.load(Ordering::Relaxed)
    }

    /// Reports this node, notifies the catalog of groups that match it, and balances while this node leads the catalog.
    /// Runs as long as the node.
    pub(crate) async fn run(self: Arc<Self>) {
        let indexing = indexes::Indexing {
            store: &self.store,
            router: &self.router,
            catalog: &self.catalog,
            clock: &*self.clock,
            runtime: &self.runtime,
            record: &self.indexes,
            own: &self.own,
        };
        futures::join!(
            self.keep_reporting(),
            self.keep_finishing(),
            self.keep_merging(),
            indexing.run(),
            self.keep_steering()
        );
    }

    fn local(&self) -> LocalReplicas<'_> {
        LocalReplicas::new(self.node, &self.store)
    }

    /// Whether this node leads the catalog.
    fn leads(&self) -> bool {
        self.store.handle(CATALOG_TABLET).is_some_and(|handle| handle.leadership() == Leadership::Here)
    }

    async fn keep_reporting(&self) {
        loop {
            let uptime_s = (self.clock.monotonic_ns() - self.started_ns) / 1_000_000_000;
            self.measure_contents().await;
            let activity = self.own.get().map_or_else(Activity::default, |own| own.activity());
            // The catalog is read before the list of this node's tablets.
            let catalog = self.catalog.served();
            let report = report::make(self.node, &self.store, &catalog, uptime_s, &self.options, activity);
            let pause = report.pause_after();
            self.sst_bytes.store(report.details.sst_bytes, Ordering::Relaxed);
            match self.router.leader(CATALOG_TABLET) {
                Some(leader) if leader == self.node => {
                    self.steering.lock().learn(self.node, report, self.clock.monotonic_ns())
                }
                Some(leader) => {
                    let report = serde_json::to_vec(&report).expect("reports have string keys");
                    // A lost report is followed by another.
                    let _ = self.transport.send(leader, Lane::Operations, &Frame::Report(&report).encode());
                }
                None => {}
            }
            crate::pause::pause(pause).await;
        }
    }

    async fn measure_contents(&self) {
        let store = Arc::clone(&self.store);
        if self.runtime.spawn_blocking(move || report::measure_contents(&store)).await.is_err() {
            tracing::error!("measuring what tablets hold panicked");
        }
    }

    /// Takes a frame of `Lane::Operations` from another node. Never waits.
    pub(crate) fn receive(self: &Arc<Self>, from: NodeId, frame: &[u8]) {
        match Frame::decode(frame) {
            Ok(Frame::Report(report)) => match serde_json::from_slice(report) {
                Ok(report) => self.steering.lock().learn(from, report, self.clock.monotonic_ns()),
                Err(error) => tracing::warn!(%from, %error, "a report cannot be read"),
            },
            Ok(Frame::Ask { incarnation, id, question }) => self.answer(from, incarnation, id, question),
            Ok(Frame::Answer { incarnation, id, has_failed, answer }) if incarnation == self.incarnation => {
                let Some(waiting) = self.asked.answered(id) else { return };
                let strange = |error: serde_json::Error| {
                    unavailable(format!("node {from} sent an answer that cannot be read: {error}"))
                };
                let answer = match has_failed {
                    true => Err(serde_json::from_slice(answer).unwrap_or_else(strange)),
                    false => serde_json::from_slice(answer).map_err(strange),
                };
                // The asking task may have given up.
                let _ = waiting.send(answer);
            }
            Ok(Frame::Answer { .. }) => {}
            Err(_) => tracing::warn!(%from, "a malformed frame on the operations lane"),
        }
    }

    fn answer(self: &Arc<Self>, from: NodeId, incarnation: u64, id: u64, question: &[u8]) {
        let ask = serde_json::from_slice(question);
        let turn = Arc::clone(&self.answering).try_acquire_owned();
        let operations = Arc::clone(self);
        self.runtime.spawn(async move {
            let answer = match (ask, &turn) {
                (Ok(ask), Ok(_)) => operations.answer_here(ask).await,
                (Err(error), _) => {
                    Err(Failure::new(FailureKind::Invalid, format!("the question cannot be read: {error}")))
                }
                (_, Err(_)) => Err(not_begun("too many questions at a time")),
            };
            let (has_failed, text) = match &answer {
                Ok(value) => (false, value.to_string()),
                Err(failure) => (true, serde_json::to_string(failure).expect("failures have string keys")),
            };
            let frame = Frame::Answer { incarnation, id, has_failed, answer: text.as_bytes() }.encode();
            let attempts = if turn.is_ok() { ATTEMPTS_TO_ANSWER } else { 1 };
            operations.send_answer(from, &frame, attempts).await;
        });
    }

    /// Sends an answer, as soon as there is a connection. If there is none for long, or too much waits for the node that
    /// asked, that runs into its timeout.
    async fn send_answer(&self, to: NodeId, frame: &[u8], attempts: usize) {
        for attempt in 1..=attempts {
            match self.transport.send(to, Lane::Operations, frame) {
                Err(SendError::Down) if attempt < attempts => crate::pause::pause(ASK_AGAIN).await,
                _ => return,
            }
        }
    }

    /// A connection of `Lane::Operations` to or from a node has begun or ended. Questions that may be lost with it, or
    /// their answers, end now.
    pub(crate) fn connection(&self, node: NodeId, event: ConnectionEvent<'_>) {
        match event {
            ConnectionEvent::OutgoingBegan => {}
            ConnectionEvent::OutgoingEnded { unsent } => {
                let id_of = |frame: &&[u8]| match Frame::decode(frame) {
                    Ok(Frame::Ask { id, .. }) => Some(id),
                    _ => None,
                };
                self.asked.disconnected(node, &unsent.iter().filter_map(id_of).collect::<Vec<_>>());
            }
            ConnectionEvent::IncomingBegan => self.asked.set_can_answer(node, true),
            ConnectionEvent::IncomingEnded => {
                self.asked.set_can_answer(node, false);
                self.asked.disconnected(node, &[]);
            }
        }
    }

    /// This node's answer. Unless the question is about this node itself, it should lead the catalog.
    async fn answer_here(&self, ask: Ask) -> Answer {
        match ask {
            Ask::Replica { tablet } => self.replica_here(tablet).await,
            Ask::Outline => self.outline_here(),
            Ask::SetAside => in_json(&report::set_aside(&self.store)),
            Ask::Recovery => self.recovery_here(),
            Ask::ScrubHere(order) => self.scrub_here(order),
            Ask::AgreeToLevelHere { level, overruled } => self.agree_to_level_here(level, overruled).await,
            Ask::NoteHoldHere(hold) => self.note_hold_here(hold).await,
            Ask::CompactionHere(order) => self.compaction_here(order),
            Ask::TransactionsHere => self.transactions_here(),
            Ask::IndexesHere { of } => self.indexes_here(of).await,
            Ask::CheckIndexHere(part) => self.check_index_here(part).await,
            Ask::LimitIndexesHere { rate_bytes } => self.limit_indexes_here(rate_bytes),
            Ask::Node { question, .. } => self.answer_of_itself(question),
            ask => self.answer_leading(ask).await,
        }
    }

    /// The answer of this node, which should lead the catalog.
    async fn answer_leading(&self, ask: Ask) -> Answer {
        if !self.leads() {
            return Err(not_begun("the catalog's leader has just changed: ask again"));
        }
        match ask {
            Ask::Change(change) => self.carry_out(change).await,
            Ask::JoinTokens => self.list_join_tokens(),
            Ask::Upgrade => self.upgrade_status(),
            Ask::CidrGroups => self.list_cidr_groups(),
            Ask::Tablet { tablet } => self.tablet_everywhere(tablet).await,
            Ask::RestartPlan { elapsed_ms } => self.restart_plan(elapsed_ms).await,
            Ask::Scrub(order) => self.scrub_everywhere(order).await,
            Ask::Compaction(order) => self.compaction_everywhere(order).await,
            Ask::Transactions => self.transactions_everywhere().await,
            Ask::LimitIndexes { rate_bytes } => self.limit_indexes_everywhere(rate_bytes).await,
            Ask::Indexes => self.indexes_everywhere().await,
            Ask::Index { keyspace, name } => self.index_everywhere(&keyspace, &name).await,
            question => self.look_up(question).await,
        }
    }

    fn answer_of_itself(&self, question: NodeQuestion) -> Answer {
        let own = self.own.get().ok_or_else(|| unavailable(format!("node {} is still starting", self.node)))?;
        own.answer(question)
    }

    /// A node's answer about itself; `None` is this node.
    async fn ask_about(&self, node: Option<NodeId>, question: NodeQuestion) -> Answer {
        let Some(node) = node.filter(|node| *node != self.node) else { return self.answer_of_itself(question) };
        if self.catalog.current().node(node).is_none() {
            return Err(Failure::new(FailureKind::NotFound, format!("there is no node {node}")));
        }
        self.ask_node(node, &Ask::Node { node: Some(node), question }, ANSWER_TIMEOUT).await
    }

    /// The trace of a request that another node has coordinated, as that node keeps it.
    pub(crate) async fn trace_of(&self, node: NodeId, session: Uuid) -> Answer {
        // The id of the node comes from a client.
        if self.catalog.current().node(node).is_none() {
            return Err(Failure::new(FailureKind::NotFound, format!("there is no node {node}")));
        }
        let question = NodeQuestion::Trace { session: session.to_string() };
        self.ask_node(node, &Ask::Node { node: Some(node), question }, TRACE_TIMEOUT).await
    }

    /// The answer of the node that leads the catalog. A question is asked again while that node is being found; a
    /// change only if it was certainly not begun, or if to make it twice is to make it.
    async fn ask_leader(&self, ask: Ask) -> Answer {
        let attempts = if matches!(ask, Ask::Change(_)) { ATTEMPTS_TO_CHANGE } else { ATTEMPTS };
        let (mut refused_by, mut unanswered) = (None, None);
        let mut attempt = 0;
        loop {
            // A node that has just refused is skipped once. So every second attempt goes to a node that is not thought
            // to lead, each time to another one.
            let leader = self.router.other_leader(CATALOG_TABLET, attempt / 2, refused_by);
            let failure = match self.ask_as_leader(leader, ask.clone()).await {
                Err(failure) if may_be_asked_again(&ask, failure.kind) => failure,
                answer => return answer,
            };
            let is_unanswered = failure.kind == FailureKind::Unavailable && matches!(ask, Ask::Change(_));
            attempt += 1;
            if attempt == attempts || (is_unanswered && unanswered.is_some()) {
                // A refusal of a later attempt does not say that the one without an answer changed nothing.
                return Err(unanswered.unwrap_or(failure));
            }
            // A node that has not answered may lead all the same.
            refused_by = leader.filter(|_| !is_unanswered);
            unanswered = unanswered.or(Some(failure).filter(|_| is_unanswered));
            crate::pause::pause(ASK_AGAIN).await;
        }
    }

    async fn ask_as_leader(&self, leader: Option<NodeId>, ask: Ask) -> Answer {
        match leader {
            Some(leader) if leader == self.node => self.answer_here(ask).await,
            Some(leader) => self.ask_node(leader, &ask, ANSWER_TIMEOUT).await,
            None => Err(not_begun("the catalog has no leader at the moment: ask again")),
        }
    }

    /// Asks a node, which may be this one, a question about itself.
    async fn ask_any(&self, node: NodeId, ask: Ask, timeout: Duration) -> Answer {
        if node == self.node {
            // Boxed because of recursion: some answers of a node are made from others' answers.
            return Box::pin(self.answer_here(ask)).await;
        }
        self.ask_node(node, &ask, timeout).await
    }

    async fn ask_node(&self, node: NodeId, ask: &Ask, timeout: Duration) -> Answer {
        if ask.least_level() > self.transport.level(node, Lane::Operations) {
            return Err(Failure::new(FailureKind::Refused, too_early(node)));
        }
        let Some((open, answer)) = self.asked.open(node) else {
            return Err(not_begun(format!("node {node} cannot be asked: its answer could not arrive")));
        };
        let question = serde_json::to_vec(ask).expect("questions have string keys");
        let frame = Frame::Ask { incarnation: self.incarnation, id: open.id, question: &question }.encode();
        if let Err(error) = self.transport.send(node, Lane::Operations, &frame) {
            return Err(not_begun(format!("node {node} cannot be asked: {error}")));
        }
        match tokio::time::timeout(timeout, answer).await {
            Ok(Ok(answer)) => answer,
            _ => Err(unavailable(format!("node {node} does not answer"))),
        }
    }
}

/// A node that is asked is not connected, or runs a program that does not know the question.
fn too_early(node: NodeId) -> String {
    format!("the program of node {} does not know the question yet: upgrade that node first", node.0)
}

/// Whether to make a change twice is to make it: it sets a value, whatever the value was.
fn is_repeatable(change: &Change) -> bool {
    matches!(
        change,
        Change::SetRate { .. }
            | Change::SetBalancing { .. }
            | Change::SetReplaceAfter { .. }
            | Change::SetSplitSize { .. }
            | Change::SetSplitLoad { .. }
            | Change::SetMergeSize { .. }
            | Change::SetLeaderZones { .. }
    )
}

fn may_be_asked_again(ask: &Ask, failed: FailureKind) -> bool {
    match failed {
        FailureKind::NotBegun => true,
        // A question is lost with the connection that it, or its answer, is sent on.
        FailureKind::Unavailable => match ask {
            Ask::Change(change) => is_repeatable(change),
            _ => true,
        },
        FailureKind::NotFound
        | FailureKind::Unauthenticated
        | FailureKind::Forbidden
        | FailureKind::Refused
        | FailureKind::Invalid => false,
    }
}

fn not_begun(message: impl Into<String>) -> Failure {
    Failure::new(FailureKind::NotBegun, message)
}

fn unavailable(message: impl Into<String>) -> Failure {
    Failure::new(FailureKind::Unavailable, message)
}

/// Encodes an answer as JSON.
fn in_json(found: &impl Serialize) -> Answer {
    serde_json::to_value(found).map_err(|error| unavailable(error.to_string()))
}

/// Answers operators on any node, by asking the node that has the answer.
pub(crate) struct AnyNode(pub(crate) Arc<Operations>);

impl Operator for AnyNode {
    fn unready(&self) -> Option<String> {
        self.0.unready()
    }

    fn ask(&self, ask: Ask) -> BoxFuture<'static, Answer> {
        let operations = Arc::clone(&self.0);
        Box::pin(async move {
            match ask {
                Ask::Node { node, question } => operations.ask_about(node, question).await,
                Ask::History => operations.cluster_history().await,
                Ask::CheckIndex(wanted) => operations.check_index(wanted).await,
                ask => operations.ask_leader(ask).await,
            }
        })
    }
}

/// Reads arbitrary bytes as a frame of `Lane::Operations`.
#[cfg(any(test, feature = "fuzzing"))]
pub(crate) fn check_frame(input: &[u8]) {
    match Frame::decode(input) {
        Ok(Frame::Report(report)) => drop(serde_json::from_slice::<report::Report>(report)),
        Ok(Frame::Ask { question, .. }) => drop(serde_json::from_slice::<Ask>(question)),
        Ok(Frame::Answer { answer, .. }) => drop(serde_json::from_slice::<Failure>(answer)),
        Err(_) => {}
    }
}
