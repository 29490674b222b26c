//! Routing: a request for a tablet that another node leads takes one hop to that node.
//!
//! ```text
//! asking node                                            leader
//! route ─▶ Peer::add ─▶ send_gathered: one frame ─────▶ Router::serve: reads from memory answered at once,
//!   │        ▲                                             reads from disk and writes when they are done
//!   │        └─ Parked ◀─ refused, or nobody leads           │
//!   └─ here: the store         Outcomes ◀── one frame ◀──────┘ with its own requests
//! ```
//!
//! Always true: a request is never forwarded by the node that it was sent to; a write is sent again only if it certainly was not proposed; a
//! read may be. Whoever asked is told by the deadline at the latest: [`KvError::Unavailable`] if nothing was done, [`KvError::Timeout`] if
//! that is not known. Everything that waits is bounded. One coarse timer serves all requests, and only while some wait.
//! Left out: who is up (`diorite_replica::Liveness` knows), and carrying bytes (`diorite_rpc`).

mod ask;
mod leaders;
mod parked;
mod peer;
mod read;
mod request;
mod serve;
#[cfg(test)]
mod tests;
mod wire;

use crate::aside::Aside;
use crate::disk_reads::{DiskReadState, DiskReads};
use ahash::AHashMap;
use arc_swap::ArcSwap;
use diorite_base::account::Account;
use diorite_base::random::{Random, SplitMix64};
use diorite_base::write::KvError;
use diorite_base::{Clock, GroupId, NodeId, TabletId};
use diorite_cluster::catalog::Catalog;
use diorite_query::exec::fold::Folder;
use diorite_query::kv::Replicas;
use diorite_replica::{Leadership, Store};
use diorite_rpc::{Lane, Transport};
use leaders::Leaders;
use parked::Parked;
use peer::Peer;
use read::Folding;
use serve::Served;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Weak};
use std::time::Duration;
use tokio::sync::Notify;

/// Bounds of what waits for (or is worked on for) one other node.
#[derive(Debug, Clone, Copy)]
pub(crate) struct RouteLimits {
    /// Requests.
    pub(crate) requests: usize,
    /// Bytes of requests.
    pub(crate) bytes: usize,
    /// A frame leaves once it holds this many bytes, without waiting for [`Router::send_gathered`].
    pub(crate) frame_bytes: usize,
}

/// What can be set about routing.
#[derive(Debug, Clone)]
pub(crate) struct RouteOptions {
    /// How long a read is waited for.
    pub(crate) read_patience: Duration,
    /// How long a write is waited for.
    pub(crate) write_patience: Duration,
    /// How long a request of a client may take, where that is less than a write is waited for.
    pub(crate) short_timeout: Option<Duration>,
    /// How long a tablet that its node does not know is waited for: one of two catalogs is behind.
    pub(crate) missing_patience: Duration,
    /// How often it is looked whether something has expired, or a leader is known now.
    pub(crate) tick: Duration,
    /// For each other node.
    pub(crate) limits: RouteLimits,
    /// What requests may hold: those of other nodes together with those of clients.
    pub(crate) account: Arc<Account>,
}

impl Default for RouteOptions {
    fn default() -> Self {
        Self {
            // As Cassandra's read_request_timeout and write_request_timeout.
            read_patience: Duration::from_secs(5),
            write_patience: Duration::from_secs(2),
            short_timeout: None,
            missing_patience: Duration::from_secs(1),
            tick: Duration::from_millis(25),
            limits: RouteLimits { requests: 32 << 10, bytes: 64 << 20, frame_bytes: 128 << 10 },
            account: Account::root("all requests", 256 << 20),
        }
    }
}

/// Counters of routing, since start.
#[derive(Debug, Default)]
pub(crate) struct RouteCounters {
    /// Requests of this node's clients for tablets that it leads itself.
    pub(crate) local: AtomicU64,
    /// Reads of this node's clients that were answered by its replica though another leads, as they may be old.
    pub(crate) followed: AtomicU64,
    /// Requests that left for another node, each time they did.
    pub(crate) forwarded: AtomicU64,
    /// Frames of requests that left.
    pub(crate) frames_sent: AtomicU64,
    /// Requests of other nodes that arrived.
    pub(crate) received: AtomicU64,
    /// Frames of answers that left.
    pub(crate) answer_frames: AtomicU64,
    /// Requests that were sent again.
    pub(crate) retried: AtomicU64,
    /// Requests of other nodes that were refused because this node does not lead the tablet.
    pub(crate) refused_not_leader: AtomicU64,
    /// Bytes of frames of requests and answers that left.
    pub(crate) sent_bytes: AtomicU64,
    /// Reads of other nodes that were folded here, so that their rows did not travel.
    pub(crate) folded: AtomicU64,
    /// Reads from memory that were carried out by the threads for long work.
    pub(crate) long_reads: AtomicU64,
    /// Requests that were not answered by their deadline.
    pub(crate) timed_out: AtomicU64,
    /// Requests refused because too many are on their way already.
    pub(crate) overloaded: AtomicU64,
    /// Frames that could not be decoded.
    pub(crate) malformed: AtomicU64,
}

impl RouteCounters {
    pub(super) fn add(counter: &AtomicU64, count: u64) {
        counter.fetch_add(count, Ordering::Relaxed);
    }
}

/// Where the newest catalog that this node serves is found.
pub(crate) trait CatalogSource: Send + Sync + 'static {
    /// The catalog.
    fn catalog(&self) -> Arc<Catalog>;
}

/// Where a request goes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Route {
    Here,
    /// To a node that is known, or (a probe) guessed, to lead.
    Node {
        node: NodeId,
        is_known: bool,
    },
    /// Nobody is left to ask.
    Nobody,
}

/// Asked without a refusal being followed by a pause: the nodes of a tablet, and one more that a refusal names.
const MAX_ATTEMPTS: usize = 4;

/// Where reads run that would hold up the other requests of a task.
#[derive(Clone)]
pub(crate) struct Threads {
    /// Those that wait for the disk.
    pub(crate) disk: Arc<DiskReads>,
    /// Those that take long.
    pub(crate) aside: Arc<Aside>,
}

/// See the top of this module.
pub(crate) struct Router {
    me: Weak<Router>,
    node: NodeId,
    store: Arc<Store>,
    transport: Arc<dyn Transport>,
    catalogs: Arc<dyn CatalogSource>,
    folding: Arc<Folding>,
    clock: Arc<dyn Clock>,
    options: RouteOptions,
    /// Tells this run of the process from others.
    incarnation: u64,
    threads: Threads,
    leaders: Leaders,
    peers: ArcSwap<AHashMap<NodeId, Arc<Peer>>>,
    served: ArcSwap<AHashMap<NodeId, Arc<Served>>>,
    parked: Parked,
    /// Some frame that is being gathered may have something in it.
    has_frames: AtomicBool,
    /// It shall leave.
    leaving: Notify,
    /// The timer runs.
    is_armed: AtomicBool,
    arm: Notify,
    counters: Arc<RouteCounters>,
}

impl Router {
    /// A router of `node`. [`Router::run_timer`] and [`Router::run_sender`] have to be spawned, and frames of `Lane::Requests` given to [`Router::receive`].
    pub(crate) fn new(
        node: NodeId,
        store: Arc<Store>,
        transport: Arc<dyn Transport>,
        catalogs: Arc<dyn CatalogSource>,
        clock: Arc<dyn Clock>,
        (options, threads): (RouteOptions, Threads),
    ) -> Arc<Self> {
        let folder = Folder::limited(Arc::clone(&options.account), Arc::clone(&clock));
        Arc::new_cyclic(|me| Self {
            me: Weak::clone(me),
            node,
            store,
            transport,
            folding: Arc::new(Folding { folder, catalogs: Arc::clone(&catalogs) }),
            catalogs,
            clock,
            options,
            incarnation: SplitMix64::from_entropy().next_u64(),
            threads,
            leaders: Leaders::default(),
            peers: ArcSwap::default(),
            served: ArcSwap::default(),
            parked: Parked::default(),
            has_frames: AtomicBool::new(false),
            leaving: Notify::new(),
            is_armed: AtomicBool::new(false),
            arm: Notify::new(),
            counters: Arc::default(),
        })
    }

    /// What requests may hold.
    pub(crate) fn account(&self) -> &Arc<Account> {
        &self.options.account
    }

    /// Counters.
    pub(crate) fn counters(&self) -> &RouteCounters {
        &self.counters
    }

    /// What the threads that wait for disks are doing.
    pub(crate) fn disk_reads(&self) -> DiskReadState {
        self.threads.disk.state()
    }

    /// Requests of this node that wait for another's answer, and those that wait for a leader.
    pub(crate) fn waiting(&self) -> (usize, usize) {
        (self.peers.load().values().map(|peer| peer.pending()).sum(), self.parked.len())
    }

    /// Who leads a tablet, as far as is known without asking.
    pub(crate) fn leader(&self, tablet: TabletId) -> Option<NodeId> {
        self.other_leader(tablet, 0, None)
    }

    /// Who may lead a tablet that `refused_by` says it does not lead; among nodes of which no more is known, another one with each attempt.
    pub(crate) fn other_leader(&self, tablet: TabletId, attempts: usize, refused_by: Option<NodeId>) -> Option<NodeId> {
        match self.route(tablet, attempts, refused_by) {
            Ok(Route::Here) => Some(self.node),
            Ok(Route::Node { node, .. }) => Some(node),
            Ok(Route::Nobody) | Err(_) => None,
        }
    }

    /// How many of a tablet's replicas must be up for it to be served, and how many are.
    pub(crate) fn replicas(&self, tablet: TabletId) -> Replicas {
        let catalog = self.catalogs.catalog();
        let holders = match catalog.placement(tablet) {
            Some(placement) => placement.replicas.clone(),
            None if tablet.0 == GroupId::CATALOG.0 => catalog.catalog_members().voters,
            None => Vec::new(),
        };
        let alive = holders.iter().filter(|node| **node == self.node || self.store.liveness().is_up(**node)).count();
        Replicas { required: (holders.len() / 2 + 1) as u32, alive: alive as u32 }
    }

    /// Whether this node leads the tablet and may serve it.
    fn leads(&self, tablet: TabletId) -> bool {
        self.store.tablets().get(&tablet).is_some_and(|handle| handle.leadership() == Leadership::Here)
    }

    /// Whether the tablet was split, and its children have taken its place.
    fn is_split(&self, tablet: TabletId) -> bool {
        let catalog = self.catalogs.catalog();
        catalog.placement(tablet).is_some_and(|placement| placement.split.is_some_and(|split| split.is_served))
    }

    /// Whether the tablet comes from a split: nodes may be about to open it.
    fn is_coming(&self, tablet: TabletId) -> bool {
        self.catalogs.catalog().placement(tablet).is_some_and(|placement| placement.origin.is_some())
    }

    /// Whether a node other than this one is up.
    fn may_ask(&self, node: NodeId) -> bool {
        node != self.node && self.store.liveness().is_up(node)
    }

    /// Where a request goes that has been refused `attempts` times in a row, the last time by `refused_by`.
    fn route(&self, tablet: TabletId, attempts: usize, refused_by: Option<NodeId>) -> Result<Route, KvError> {
        let local = self.store.tablets().get(&tablet).map(|handle| handle.leadership());
        if local == Some(Leadership::Here) {
            return Ok(Route::Here);
        }
        let may_ask = |node: NodeId| Some(node) != refused_by && self.may_ask(node);
        let learned = self.leaders.get(tablet);
        let fresh = learned.filter(|learned| learned.is_fresh(self.clock.monotonic_ns()));
        let told = match local {
            Some(Leadership::Elsewhere(node)) => Some(node),
            _ => None,
        };
        let known = [fresh.map(|learned| learned.node), told, learned.map(|learned| learned.node)];
        if let Some(node) = known.into_iter().flatten().find(|node| may_ask(*node)) {
            return Ok(Route::Node { node, is_known: true });
        }
        let catalog = self.catalogs.catalog();
        let candidates: Vec<NodeId> = match catalog.placement(tablet) {
            Some(placement) => placement.holders().filter(|node| may_ask(*node)).collect(),
            // Its replicas are not in the catalog; every node has a copy and knows its leader.
            None if tablet.0 == GroupId::CATALOG.0 => {
                catalog.nodes().map(|node| node.id).filter(|node| may_ask(*node)).collect()
            }
            None => return Err(KvError::NoSuchTablet(tablet)),
        };
        Ok(match candidates.get(attempts % candidates.len().max(1)) {
            Some(node) => Route::Node { node: *node, is_known: false },
            None => Route::Nobody,
        })
    }

    fn peer(&self, node: NodeId) -> Arc<Peer> {
        if let Some(peer) = self.peers.load().get(&node) {
            return Arc::clone(peer);
        }
        let fresh = Arc::new(Peer::new(node, self.incarnation, self.options.limits));
        self.peers.rcu(|peers| {
            let mut peers = AHashMap::clone(peers);
            peers.entry(node).or_insert_with(|| Arc::clone(&fresh));
            peers
        });
        // Nothing is ever removed, and it was just put there if it was not before.
        self.peers.load().get(&node).map_or(fresh, Arc::clone)
    }

    /// Sends on its way all that was submitted. Cheap if there is nothing.
    pub(crate) fn kick(&self) {
        self.send_gathered();
        self.store.kick();
    }

    /// Sends the requests and answers for other nodes that have been gathered, those for one node together. If there are none it costs one load.
    pub(crate) fn send_gathered(&self) {
        if !self.has_frames.load(Ordering::SeqCst) || !self.has_frames.swap(false, Ordering::SeqCst) {
            return;
        }
        let (peers, served) = (self.peers.load(), self.served.load());
        for peer in peers.values() {
            self.flush(peer, served.get(&peer.node).map(|served| &**served));
        }
        for served in served.values().filter(|served| !peers.contains_key(&served.node)) {
            let mut answers = served.take_gathered();
            served.send(&mut answers);
        }
    }

    /// What has been gathered leaves once every task that can run has run, so that it takes along what these gather.
    pub(crate) fn send_soon(&self) {
        if self.has_frames.load(Ordering::SeqCst) {
            self.leaving.notify_one();
        }
    }

    /// Never ready; has sent what was gathered whenever it is polled. As the last branch of a `select!` it sees what the others have gathered.
    pub(crate) async fn gathered(&self) {
        std::future::poll_fn(|_| {
            self.send_soon();
            std::task::Poll::Pending
        })
        .await
    }

    /// Sends what [`Router::send_soon`] was called for, for as long as the runtime runs: to be spawned.
    pub(crate) async fn run_sender(self: Arc<Self>) {
        loop {
            self.leaving.notified().await;
            tokio::task::yield_now().await;
            self.send_gathered();
        }
    }

    /// Sends what is gathered for one node: requests, and answers to its own if it is `served`.
    fn flush(&self, peer: &Peer, served: Option<&Served>) {
        let mut answers = served.map(Served::take_gathered).unwrap_or_default();
        let Some(outgoing) = peer.take_frame() else {
            if let Some(served) = served {
                served.send(&mut answers);
            }
            return;
        };
        let frames: [&[u8]; 2] = [&outgoing.frame, &answers];
        let frames = if answers.is_empty() { &frames[..1] } else { &frames };
        match self.transport.send_many(peer.node, Lane::Requests, frames) {
            Ok(()) => {
                RouteCounters::add(&self.counters.forwarded, outgoing.ids.end - outgoing.ids.start);
                RouteCounters::add(&self.counters.frames_sent, 1);
                RouteCounters::add(&self.counters.answer_frames, u64::from(!answers.is_empty()));
                RouteCounters::add(&self.counters.sent_bytes, (outgoing.frame.len() + answers.len()) as u64);
                peer.recycle(outgoing.frame);
            }
            Err(error) => {
                self.not_sent(peer.take_back(outgoing.ids), error);
                // There may be room for these.
                if let Some(served) = served {
                    served.send(&mut answers);
                }
            }
        }
    }

    /// Takes a frame of `Lane::Requests` from another node. Never waits.
    pub(crate) fn receive(&self, from: NodeId, frame: &[u8]) {
        let outcome = match wire::read_frame(frame) {
            Ok((wire::FrameKind::Requests, incarnation, items)) => self.serve(from, incarnation, items),
            Ok((wire::FrameKind::Answers, incarnation, items)) => self.take_answers(from, incarnation, items),
            Err(malformed) => Err(malformed),
        };
        if outcome.is_err() && self.counters.malformed.fetch_add(1, Ordering::Relaxed) == 0 {
            tracing::warn!(%from, bytes = frame.len(), "a frame of requests cannot be decoded; further ones are only counted");
        }
    }

    /// A node is gone: what was asked of it and may be asked of another is, without waiting for the next look.
    pub(crate) fn node_down(&self, node: NodeId) {
        self.leaders.forget_node(node);
        let peer = self.peers.load().get(&node).cloned();
        self.retry(peer.map(|peer| peer.take_reads()).unwrap_or_default());
        self.send_gathered();
    }

    /// A node is up (again): what waits for a leader may find it there.
    pub(crate) fn node_up(&self, _node: NodeId) {
        if self.parked.len() > 0 {
            self.look_for_leaders();
            self.kick();
        }
    }

    /// Wakes the timer, as something waits.
    fn arm(&self) {
        if !self.is_armed.load(Ordering::SeqCst) && !self.is_armed.swap(true, Ordering::SeqCst) {
            self.arm.notify_one();
        }
    }

    /// Looks after what waits, for as long as the runtime runs: to be spawned.
    pub(crate) async fn run_timer(self: Arc<Self>) {
        loop {
            if self.waiting() == (0, 0) {
                self.is_armed.store(false, Ordering::SeqCst);
                // What came in before it was disarmed did not wake it.
                if self.waiting() == (0, 0) {
                    self.arm.notified().await;
                }
                self.is_armed.store(true, Ordering::SeqCst);
            }
            #[allow(clippy::disallowed_methods, reason = "the one timer of routing: everything it does is in `tick`")]
            tokio::time::sleep(self.options.tick).await;
            self.tick();
        }
    }

    /// Ends what has expired, asks again what is not answered, and looks whether leaders are known that are waited for.
    pub(crate) fn tick(&self) {
        self.kick();
        let now_ns = self.clock.monotonic_ns();
        let peers: Vec<Arc<Peer>> = self.peers.load().values().cloned().collect();
        for peer in peers {
            let (expired, again) = peer.take_due(now_ns).into_iter().partition(|due| due.deadline_ns <= now_ns);
            self.expire(expired, true);
            self.retry(again);
        }
        if self.parked.len() > 0 {
            self.expire(self.parked.take(|request| request.deadline_ns <= now_ns), false);
            self.look_for_leaders();
        }
        self.kick();
    }
}

/// Reads arbitrary bytes as a frame of `Lane::Requests`.
#[cfg(any(test, feature = "fuzzing"))]
pub(crate) fn check_frame(input: &[u8]) {
    match wire::read_frame(input) {
        Ok((wire::FrameKind::Requests, _, mut items)) => {
            while !items.is_empty() {
                let Ok(request) = wire::read_request(&mut items) else { return };
                match request.operation {
                    wire::OperationRef::Fetch(fetch) => {
                        if let diorite_query::kv::FetchRows::Several(several) = fetch.to_fetch().rows {
                            diorite_query::kv::several::decode(&several.spans).for_each(drop);
                        }
                    }
                    wire::OperationRef::Write(mutation, _) => {
                        if let Ok(mut mutation) = serve::checked(request.tablet, mutation) {
                            mutation.stamp(1);
                        }
                    }
                }
            }
        }
        Ok((wire::FrameKind::Answers, _, mut items)) => {
            while !items.is_empty() {
                if wire::read_answer(&mut items, diorite_base::TabletId).is_err() {
                    return;
                }
            }
        }
        Err(_) => {}
    }
}
