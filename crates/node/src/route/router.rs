//! The router's state, the frames that it gathers, and its timer.

use super::counters::RouteCounters;
use super::gathering::Gathering;
use super::options::{CatalogSource, RouteOptions};
use super::peer::Peer;
use super::read::Aggregation;
use super::request::Work;
use super::served::{Served, Serving};
use super::view::NodeView;
use super::wire;
use crate::aside::Aside;
use crate::disk_reads::{DiskReadState, DiskReads};
use ahash::AHashMap;
use arc_swap::ArcSwap;
use diorite_base::account::Account;
use diorite_base::random::{Random, SplitMix64};
use diorite_base::{Clock, GroupId, NodeId, TabletId};
use diorite_control::routing::{Routing, Target, Way};
use diorite_query::exec::pushdown::PartialAggregator;
use diorite_query::kv::Replicas;
use diorite_replica::{Leadership, Store};
use diorite_rpc::{Lane, SendError, Transport};
use parking_lot::RwLock;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Weak};
use tokio::sync::Notify;

/// The parts of a [`Router`].
pub(crate) struct RouterParts {
    pub(crate) node: NodeId,
    pub(crate) store: Arc<Store>,
    pub(crate) transport: Arc<dyn Transport>,
    pub(crate) catalogs: Arc<dyn CatalogSource>,
    pub(crate) clock: Arc<dyn Clock>,
    pub(crate) options: RouteOptions,
    /// Threads for reads that wait for the disk.
    pub(crate) disk: Arc<DiskReads>,
    /// Threads for long reads.
    pub(crate) aside: Arc<Aside>,
}

/// Threads that take work off the serving threads.
pub(super) struct Threads {
    pub(super) disk: Arc<DiskReads>,
    pub(super) aside: Arc<Aside>,
}

/// The traffic with other nodes.
pub(super) struct Nodes {
    /// The nodes that this node asks.
    pub(super) peers: ArcSwap<AHashMap<NodeId, Arc<Peer>>>,
    pub(super) serving: Arc<Serving>,
    /// The nodes that ask this node.
    pub(super) served: ArcSwap<AHashMap<NodeId, Arc<Served>>>,
    pub(super) gathering: Arc<Gathering>,
}

/// The router of a node: see [the module](super).
pub(crate) struct Router {
    pub(super) me: Weak<Router>,
    pub(super) node: NodeId,
    pub(super) store: Arc<Store>,
    pub(super) transport: Arc<dyn Transport>,
    pub(super) catalogs: Arc<dyn CatalogSource>,
    pub(super) aggregation: Arc<Aggregation>,
    pub(super) clock: Arc<dyn Clock>,
    pub(super) options: RouteOptions,
    /// Distinguishes this run of the process.
    incarnation: u64,
    pub(super) threads: Threads,
    /// Known leaders, and parked requests. Locked for one decision, never while a request is sent, carried out or
    /// ended.
    pub(super) routing: RwLock<Routing<Work>>,
    pub(super) nodes: Nodes,
    /// Whether the timer runs.
    is_armed: AtomicBool,
    arm: Notify,
    pub(super) counters: Arc<RouteCounters>,
}

impl Router {
    /// The caller has to call [`Router::spawn_tasks`], and to pass frames of `Lane::Requests`
    /// to [`Router::receive`].
    pub(crate) fn new(parts: RouterParts) -> Arc<Self> {
        let RouterParts { node, store, transport, catalogs, clock, options, disk, aside } = parts;
        let aggregator = PartialAggregator::limited(Arc::clone(&options.account), Arc::clone(&clock));
        let counters: Arc<RouteCounters> = Arc::default();
        let serving = Serving {
            transport: Arc::clone(&transport),
            counters: Arc::clone(&counters),
            limits: options.limits,
            account: Arc::clone(&options.account),
        };
        Arc::new_cyclic(|me| Self {
            me: Weak::clone(me),
            node,
            store,
            transport,
            aggregation: Arc::new(Aggregation { aggregator, catalogs: Arc::clone(&catalogs) }),
            catalogs,
            clock,
            incarnation: SplitMix64::from_entropy().next_u64(),
            threads: Threads { disk, aside },
            routing: RwLock::new(Routing::new(node, options.limits.of_requests(), options.timeouts)),
            options,
            nodes: Nodes {
                peers: ArcSwap::default(),
                serving: Arc::new(serving),
                served: ArcSwap::default(),
                gathering: Arc::default(),
            },
            is_armed: AtomicBool::new(false),
            arm: Notify::new(),
            counters,
        })
    }

    /// Starts its timer and its sender, on the runtime of the caller.
    pub(crate) fn spawn_tasks(self: &Arc<Self>) {
        tokio::spawn(Arc::clone(self).run_timer());
        tokio::spawn(Arc::clone(self).run_sender());
    }

    /// The account for requests.
    pub(crate) fn account(&self) -> &Arc<Account> {
        &self.options.account
    }

    /// Counters.
    pub(crate) fn counters(&self) -> &RouteCounters {
        &self.counters
    }

    /// The state of the threads that wait for disks.
    pub(crate) fn disk_reads(&self) -> DiskReadState {
        self.threads.disk.state()
    }

    /// The number of this node's requests that wait for another node's answer, and the number of parked requests.
    pub(crate) fn waiting(&self) -> (usize, usize) {
        (self.nodes.peers.load().values().map(|peer| peer.pending()).sum(), self.routing.read().parked())
    }

    /// This node's state, for routing.
    #[inline]
    pub(super) fn view(&self) -> NodeView<'_> {
        NodeView { store: &self.store, catalogs: &*self.catalogs }
    }

    /// The tablet's leader, as far as this node knows.
    pub(crate) fn leader(&self, tablet: TabletId) -> Option<NodeId> {
        self.other_leader(tablet, 0, None)
    }

    /// A possible leader of a tablet that `refused_by` does not lead. If none is known, each attempt names another
    /// node.
    pub(crate) fn other_leader(&self, tablet: TabletId, attempts: usize, refused_by: Option<NodeId>) -> Option<NodeId> {
        let now_ns = self.clock.monotonic_ns();
        match self.routing.read().way(tablet, attempts, refused_by, &self.view(), now_ns) {
            Ok(Way::Here) => Some(self.node),
            Ok(Way::Node(Target { node, .. })) => Some(node),
            Ok(Way::Nobody) | Err(_) => None,
        }
    }

    /// How many of a tablet's replicas must be up to serve the tablet, and how many are up.
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
    pub(super) fn leads(&self, tablet: TabletId) -> bool {
        self.store.tablets().get(&tablet).is_some_and(|handle| handle.leadership() == Leadership::Here)
    }

    pub(super) fn peer(&self, node: NodeId) -> Arc<Peer> {
        if let Some(peer) = self.nodes.peers.load().get(&node) {
            return Arc::clone(peer);
        }
        let fresh = Arc::new(Peer::new(node, self.incarnation, self.options.limits));
        self.nodes.peers.rcu(|peers| {
            let mut peers = AHashMap::clone(peers);
            peers.entry(node).or_insert_with(|| Arc::clone(&fresh));
            peers
        });
        // Peers are never removed, and this one is present now.
        self.nodes.peers.load().get(&node).map_or(fresh, Arc::clone)
    }

    /// Sends all submitted requests. Costs little if there are none.
    pub(crate) fn kick(&self) {
        self.send_gathered();
        self.store.kick();
    }

    /// Sends the requests and answers for other nodes that have been gathered, those for one node together. If there
    /// are none, it costs one load.
    pub(crate) fn send_gathered(&self) {
        if !self.nodes.gathering.take() {
            return;
        }
        let (peers, served) = (self.nodes.peers.load(), self.nodes.served.load());
        for peer in peers.values() {
            self.flush(peer, served.get(&peer.node).map(|served| &**served));
        }
        for served in served.values().filter(|served| !peers.contains_key(&served.node)) {
            let mut answers = served.take_gathered();
            served.send(&mut answers);
        }
    }

    /// Sends the gathered messages once every task that can run has run, so that the messages of these tasks are
    /// included.
    pub(crate) fn send_soon(&self) {
        self.nodes.gathering.leave_soon();
    }

    /// Sends the gathered messages whenever it is polled, and never completes. As the last branch of a `select!` it
    /// includes the messages of the other branches.
    pub(crate) async fn gathered(&self) {
        std::future::poll_fn(|_| {
            self.send_soon();
            std::task::Poll::Pending
        })
        .await
    }

    /// Sends after each call of [`Router::send_soon`], as long as the runtime runs. The caller spawns it.
    pub(crate) async fn run_sender(self: Arc<Self>) {
        loop {
            self.nodes.gathering.leave().await;
            tokio::task::yield_now().await;
            self.send_gathered();
        }
    }

    /// Sends the gathered messages for one node: requests, and answers to its own if it is `served`.
    pub(super) fn flush(&self, peer: &Peer, served: Option<&Served>) {
        let mut answers = served.map(Served::take_gathered).unwrap_or_default();
        let Some(outgoing) = peer.take_frame() else {
            if let Some(served) = served {
                served.send(&mut answers);
            }
            return;
        };
        let frames: [&[u8]; 2] = [&outgoing.frame, &answers];
        let frames = if answers.is_empty() { &frames[..1] } else { &frames };
        RouteCounters::add(&self.counters.frames_sent, 1);
        RouteCounters::add(&self.counters.answer_frames, u64::from(!answers.is_empty()));
        let sent = match outgoing.can_answer {
            true => self.transport.send_many(peer.node, Lane::Requests, frames),
            // It could not answer.
            false => Err(SendError::Down),
        };
        match sent {
            Ok(()) => {
                RouteCounters::add(&self.counters.forwarded, outgoing.ids.end - outgoing.ids.start);
                RouteCounters::add(&self.counters.sent_bytes, (outgoing.frame.len() + answers.len()) as u64);
                if let Some(lost) = peer.left(outgoing) {
                    self.end_disconnected(lost);
                }
            }
            Err(error) => {
                self.not_sent(peer.take_back(outgoing.ids), error);
                // The answers alone may fit.
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

    /// Starts the timer, since a request waits.
    pub(super) fn arm(&self) {
        if !self.is_armed.load(Ordering::SeqCst) && !self.is_armed.swap(true, Ordering::SeqCst) {
            self.arm.notify_one();
        }
    }

    /// Calls [`Router::tick`] periodically while requests wait, as long as the runtime runs. The caller spawns it.
    pub(crate) async fn run_timer(self: Arc<Self>) {
        loop {
            if self.waiting() == (0, 0) {
                self.is_armed.store(false, Ordering::SeqCst);
                // Requests that arrived before the timer was disarmed did not start it.
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
}
