//! What the cores of a node share.

use crate::counters::StoreCounters;
use crate::events::{Events, TabletEventKind};
use crate::failures::Failures;
use crate::group::proposal::Reroute;
use crate::group::split::SplitListener;
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

/// What the cores of a node share.
pub struct Context {
    pub(crate) node: NodeId,
    pub(crate) durability: Durability,
    pub(crate) clock: Arc<dyn Clock>,
    pub(crate) counters: StoreCounters,
    /// What has happened to replicas lately.
    pub(crate) events: Events,
    /// Log bytes appended by this process so far, over all tablets.
    pub(crate) log_position: AtomicU64,
    pub(crate) transport: Arc<dyn Transport>,
    pub(crate) liveness: Arc<Liveness>,
    pub(crate) hooks: Hooks,
    pub(crate) disks: DiskWatch,
    pub(crate) failures: Failures,
    pub(crate) planted: Planted,
}

/// Whom the cores notify of what is not theirs to do. Each is named once.
#[derive(Default)]
pub(crate) struct Hooks {
    /// Takes writes that cannot be proposed here; without one they are answered with `KvError::NotLeader`.
    pub(crate) reroute: OnceLock<Arc<dyn Reroute>>,
    /// Copies data to members that the log can no longer help.
    pub(crate) copies: OnceLock<Arc<dyn CopyRequests>>,
    /// Makes the children of replicas that were split.
    pub(crate) splits: OnceLock<Arc<dyn SplitListener>>,
    /// Charged for the memory that measuring rows takes; without one it is charged to nobody.
    pub(crate) account: OnceLock<Arc<Account>>,
}

/// How the disks and their logs get on; disks by bit.
#[derive(Default)]
pub(crate) struct DiskWatch {
    /// Something has failed that is to be looked into.
    suspect: AtomicU64,
    /// The log makes no progress: nobody leads there.
    pub(crate) stalled: AtomicU64,
    /// Of each core, in order.
    pub(crate) progress: Mutex<Vec<Arc<WorkProgress>>>,
}

/// Is notified of members that need a copy of the data.
pub trait CopyRequests: Send + Sync + 'static {
    /// `member` lacks entries of a tablet led here that are no longer in the log; the voters `able` have (nearly) all. Told again and again until it has got a
    /// copy. Must not wait.
    fn lacks(&self, tablet: TabletId, member: NodeId, able: &[NodeId]);
}

impl Context {
    /// A node that starts now. `incarnation` tells this life of the node from its earlier ones.
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
            planted: Planted::default(),
        }
    }

    /// Names who copies data to members that the log can no longer help. Once; without it they wait.
    pub fn set_copies(&self, copies: Arc<dyn CopyRequests>) {
        if self.hooks.copies.set(copies).is_err() {
            tracing::error!("copies are made by somebody already");
        }
    }

    /// Names who makes the children of replicas that were split. Once; without it nobody does.
    pub fn set_splits(&self, splits: Arc<dyn SplitListener>) {
        if self.hooks.splits.set(splits).is_err() {
            tracing::error!("the children of split replicas are made by somebody already");
        }
    }

    /// Notes what has happened to a replica.
    pub(crate) fn note(&self, tablet: TabletId, kind: TabletEventKind) {
        self.events.note(tablet, self.clock.wall_us(), kind);
    }

    /// Plants bugs, if this was built to have some.
    #[doc(hidden)]
    pub fn plant(mut self, planted: Planted) -> Self {
        self.planted = planted.allowed();
        self
    }

    /// Something on this disk has failed: whether all of it has will be looked into.
    pub(crate) fn suspect_disk(&self, disk: usize) {
        self.disks.suspect.fetch_or(1 << (disk % 64), Ordering::Relaxed);
    }

    /// Whether something on this disk has failed since this was last asked.
    pub(crate) fn take_suspicion(&self, disk: usize) -> bool {
        let bit = 1 << (disk % 64);
        self.disks.suspect.load(Ordering::Relaxed) & bit != 0
            && self.disks.suspect.fetch_and(!bit, Ordering::Relaxed) & bit != 0
    }

    /// How another core gets on.
    pub(crate) fn watched(&self) -> Arc<WorkProgress> {
        let progress = Arc::new(WorkProgress::default());
        self.disks.progress.lock().push(Arc::clone(&progress));
        progress
    }

    /// Whether the log of this disk makes no progress.
    pub(crate) fn is_stalled(&self, disk: usize) -> bool {
        self.disks.stalled.load(Ordering::Relaxed) & (1 << (disk % 64)) != 0
    }

    /// Whether this node may vote and campaign: what it promised in a former life has lapsed.
    pub(crate) fn may_vote(&self) -> bool {
        self.planted.ignore_restart_wait || self.liveness.may_vote()
    }

    /// This node's side of the heartbeats.
    pub fn liveness(&self) -> &Arc<Liveness> {
        &self.liveness
    }
}
