//! State that the cores of a node share.

use crate::counters::StoreCounters;
use crate::events::{Events, TabletEventKind};
use crate::failures::Failures;
use crate::group::peer_calls::TransactionPeers;
use crate::group::proposal::Reroute;
use crate::group::split::SplitListener;
use crate::node_pins::NodePins;
use crate::options::Durability;
use crate::peers::liveness::Liveness;
use crate::planted::Planted;
use crate::progress::WorkProgress;
use diorite_base::account::Account;
use diorite_base::{Clock, NodeId, TabletId};
use diorite_rpc::Transport;
use parking_lot::Mutex;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, OnceLock};

/// State that the cores of a node share.
pub struct Context {
    pub(crate) node: NodeId,
    pub(crate) durability: Durability,
    pub(crate) clock: Arc<dyn Clock>,
    pub(crate) counters: StoreCounters,
    /// The last events of each replica.
    pub(crate) events: Events,
    /// Log bytes appended by this process so far, over all tablets.
    pub(crate) log_position: AtomicU64,
    pub(crate) transport: Arc<dyn Transport>,
    pub(crate) liveness: Arc<Liveness>,
    pub(crate) hooks: Hooks,
    pub(crate) disks: DiskWatch,
    pub(crate) failures: Failures,
    pins: NodePins,
    pub(crate) planted: Planted,
}

/// Functions of other modules that the cores call. Each is set once.
#[derive(Default)]
pub(crate) struct Hooks {
    /// Takes writes that cannot be proposed here; without one, they are answered with `KvError::NotLeader`.
    pub(crate) reroute: OnceLock<Arc<dyn Reroute>>,
    /// Copies data to members that lack entries which are no longer in the log.
    pub(crate) copies: OnceLock<Arc<dyn CopyRequests>>,
    /// Makes the child tablets of replicas that were split.
    pub(crate) splits: OnceLock<Arc<dyn SplitListener>>,
    /// Reaches the leaders of other tablets for transactions; without it, what others have left unfinished stays so.
    pub(crate) transactions: OnceLock<Arc<dyn TransactionPeers>>,
    /// Charged for the memory that measuring rows takes; without one it is charged to nobody.
    pub(crate) account: OnceLock<Arc<Account>>,
}

/// The state of the disks and their logs; one bit for each disk.
#[derive(Default)]
pub(crate) struct DiskWatch {
    /// Disks on which something has failed, to be examined.
    suspect: AtomicU64,
    /// Disks whose log makes no progress: no replica on them leads.
    pub(crate) stalled: AtomicU64,
    /// The progress of each core, in order.
    pub(crate) progress: Mutex<Vec<Arc<WorkProgress>>>,
}

/// Receives requests for copies of data.
pub trait CopyRequests: Send + Sync + 'static {
    /// `member` lacks entries of a tablet led here that are no longer in the log; the voters `able` have (nearly) all.
    /// Called again and again until the member has a copy. Must not wait.
    fn lacks(&self, tablet: TabletId, member: NodeId, able: &[NodeId]);
}

impl Context {
    /// The state of a node that starts now. `incarnation` distinguishes this life of the node from its earlier ones.
    pub fn new(
        node: NodeId,
        incarnation: u64,
        durability: Durability,
        clock: Arc<dyn Clock>,
        transport: Arc<dyn Transport>,
    ) -> Self {
        Self {
            node,
            durability,
            counters: StoreCounters::default(),
            events: Events::default(),
            log_position: AtomicU64::new(0),
            liveness: Arc::new(Liveness::new(incarnation, Arc::clone(&clock), Arc::clone(&transport))),
            clock,
            transport,
            hooks: Hooks::default(),
            disks: DiskWatch::default(),
            failures: Failures::default(),
            pins: NodePins::new(incarnation, node),
            planted: Planted::default(),
        }
    }

    /// Sets the receiver of copy requests. Once; without it, such members wait.
    pub fn set_copies(&self, copies: Arc<dyn CopyRequests>) {
        if self.hooks.copies.set(copies).is_err() {
            tracing::error!("copies are made by somebody already");
        }
    }

    /// Sets the listener that makes child tablets. Once; without it, none are made.
    pub fn set_splits(&self, splits: Arc<dyn SplitListener>) {
        if self.hooks.splits.set(splits).is_err() {
            tracing::error!("the children of split replicas are made by somebody already");
        }
    }

    /// The names and the number of the snapshots that are kept for reads.
    pub(crate) fn pins(&self) -> &NodePins {
        &self.pins
    }

    /// Sets what reaches the leaders of other tablets. Once.
    pub fn set_transactions(&self, peers: Arc<dyn TransactionPeers>) {
        if self.hooks.transactions.set(peers).is_err() {
            tracing::error!("the leaders of other tablets are reached already");
        }
    }

    /// Records an event of a replica.
    pub(crate) fn note(&self, tablet: TabletId, kind: TabletEventKind) {
        self.events.note(tablet, self.clock.wall_us(), kind);
    }

    /// Plants bugs, in builds that have any.
    #[doc(hidden)]
    pub fn plant(mut self, planted: Planted) -> Self {
        self.planted = planted.allowed();
        self
    }

    /// Something on this disk has failed: upkeep will examine whether the whole disk has.
    pub(crate) fn suspect_disk(&self, disk: usize) {
        self.disks.suspect.fetch_or(1 << (disk % 64), Ordering::Relaxed);
    }

    /// Whether something on this disk has failed since the last call.
    pub(crate) fn take_suspicion(&self, disk: usize) -> bool {
        let bit = 1 << (disk % 64);
        self.disks.suspect.load(Ordering::Relaxed) & bit != 0
            && self.disks.suspect.fetch_and(!bit, Ordering::Relaxed) & bit != 0
    }

    /// Adds the progress of another core.
    pub(crate) fn watched(&self) -> Arc<WorkProgress> {
        let progress = Arc::new(WorkProgress::default());
        self.disks.progress.lock().push(Arc::clone(&progress));
        progress
    }

    /// Whether the log of this disk makes no progress.
    pub(crate) fn is_stalled(&self, disk: usize) -> bool {
        self.disks.stalled.load(Ordering::Relaxed) & (1 << (disk % 64)) != 0
    }

    /// Whether this node may vote and campaign: the promises of its former life have lapsed.
    pub(crate) fn may_vote(&self) -> bool {
        self.planted.ignore_restart_wait || self.liveness.may_vote()
    }

    /// This node's side of the heartbeats.
    pub fn liveness(&self) -> &Arc<Liveness> {
        &self.liveness
    }
}
