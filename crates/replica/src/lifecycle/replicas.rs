//! The tablet replicas of a node, and the state that they share.

use crate::context::Context;
use crate::group::handle::TabletHandle;
use crate::lifecycle::asides::Asides;
use crate::lifecycle::command::{Command, StoreThreads};
use crate::lifecycle::disk_balance::DiskMoves;
use crate::lifecycle::disks::Disks;
use crate::lifecycle::installing::Installing;
use crate::lifecycle::openings::{ChildOpening, OpenTablet, Openings};
use crate::options::StoreOptions;
use ahash::AHashMap;
use arc_swap::ArcSwap;
use diorite_base::TabletId;
use diorite_storage::{Shared, Tablet};
use parking_lot::Mutex;
use std::sync::{Arc, OnceLock, Weak};

/// The tablets of a node by id.
pub type TabletMap = AHashMap<TabletId, Arc<TabletHandle>>;

/// The data of a child tablet that was made before its parent was split.
pub(crate) struct Prepared {
    pub(crate) disk: usize,
    pub(crate) data: Arc<Tablet>,
}

/// The tablet replicas of a node.
pub(crate) struct NodeReplicas {
    pub(crate) options: StoreOptions,
    pub(crate) context: Arc<Context>,
    pub(crate) shared: Arc<Shared>,
    pub(crate) disks: Disks,
    pub(crate) threads: Arc<dyn StoreThreads>,
    /// The open replicas.
    pub(crate) tablets: ArcSwap<TabletMap>,
    /// Tells how tablets are opened.
    openings: OnceLock<Arc<dyn Openings>>,
    /// Replicas that are set aside.
    pub(crate) asides: Asides,
    pub(crate) installing: Installing,
    pub(crate) disk_moves: DiskMoves,
    /// The data of child tablets that was made before their parents were split.
    pub(crate) prepared: Mutex<AHashMap<TabletId, Prepared>>,
    /// Files of closed replicas that readers may still use: they are removed when the last reader ends, and no other
    /// replica may be opened there before.
    pub(crate) going: Mutex<AHashMap<TabletId, Weak<()>>>,
}

impl NodeReplicas {
    pub(crate) fn new(
        options: StoreOptions,
        context: Arc<Context>,
        shared: Arc<Shared>,
        disks: Disks,
        threads: Arc<dyn StoreThreads>,
    ) -> Self {
        Self {
            options,
            context,
            shared,
            disks,
            threads,
            tablets: ArcSwap::default(),
            openings: OnceLock::new(),
            asides: Asides::default(),
            installing: Installing::default(),
            disk_moves: DiskMoves::default(),
            prepared: Mutex::default(),
            going: Mutex::default(),
        }
    }

    pub(crate) fn set_openings(&self, openings: Arc<dyn Openings>) {
        if self.openings.set(openings).is_err() {
            tracing::error!("how tablets are opened is known already");
        }
    }

    /// How a replica of this node is opened; `None` if it has none of the tablet (any more).
    pub(crate) fn opening(&self, tablet: TabletId) -> Option<OpenTablet> {
        self.openings.get()?.opening(tablet)
    }

    /// How a child tablet of a tablet that was split is opened here.
    pub(crate) fn child_opening(&self, parent: TabletId, child: TabletId) -> ChildOpening {
        self.openings.get().map_or(ChildOpening::NotYet, |openings| openings.child(parent, child))
    }

    pub(crate) fn openings(&self) -> Option<&Arc<dyn Openings>> {
        self.openings.get()
    }

    /// The open replica of a tablet.
    pub(crate) fn handle(&self, tablet: TabletId) -> Option<Arc<TabletHandle>> {
        self.tablets.load().get(&tablet).cloned()
    }

    /// The store thread that runs a tablet's replica.
    pub(crate) fn worker_of(&self, tablet: TabletId) -> usize {
        (tablet.0 % self.options.workers as u64) as usize
    }

    /// Sends a command to the thread that runs this replica.
    pub(crate) fn command(&self, handle: &TabletHandle, command: Command) {
        self.threads.command(handle.worker(), command);
    }

    pub(crate) fn update_tablets(&self, change: impl Fn(&mut TabletMap)) {
        self.tablets.rcu(|tablets| {
            let mut tablets = TabletMap::clone(tablets);
            change(&mut tablets);
            tablets
        });
    }

    /// Whether no other node has a vote in the tablet.
    pub(crate) fn is_alone(&self, handle: &TabletHandle) -> bool {
        handle.roles.voters.load().iter().all(|voter| *voter == self.context.node.0)
    }
}
