//! Replicas of a node that have failed, and the leaders of their tablets.

use diorite_base::{NodeId, TabletId};
use parking_lot::Mutex;
use std::collections::BTreeMap;

/// A replica that has failed.
#[derive(Debug)]
pub(crate) struct Failed {
    pub(crate) tablet: TabletId,
    pub(crate) reason: String,
    /// Whether its stored data is damaged, or cannot be applied, as opposed to unreadable at the moment.
    pub(crate) is_damage: bool,
    /// A replica that has applied this index does not have the same problem.
    pub(crate) needed: u64,
}

/// A node that reports that it leads a tablet.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct FoundLeader {
    /// The node.
    pub node: NodeId,
    /// The index that its replica has applied.
    pub applied: u64,
}

/// Failed replicas, and the leaders of their tablets that are being looked for.
#[derive(Default)]
pub(crate) struct Failures {
    /// Replicas that have failed since the last [`Self::take`].
    failed: Mutex<Vec<Failed>>,
    /// Tablets whose leader is looked for, with the answer so far.
    sought: Mutex<BTreeMap<TabletId, Option<FoundLeader>>>,
}

impl Failures {
    pub(crate) fn note(&self, failed: Failed) {
        self.failed.lock().push(failed);
    }

    /// The replicas that have failed since the last call.
    pub(crate) fn take(&self) -> Vec<Failed> {
        std::mem::take(&mut *self.failed.lock())
    }

    /// Whether a replica of the tablet has failed since the last [`Self::take`].
    pub(crate) fn has(&self, tablet: TabletId) -> bool {
        self.failed.lock().iter().any(|failed| failed.tablet == tablet)
    }

    /// Begins to look for the tablet's leader, again if it was looked for before.
    pub(crate) fn seek(&self, tablet: TabletId) {
        self.sought.lock().insert(tablet, None);
    }

    /// Takes a node's report that it leads a tablet, if that is looked for.
    pub(crate) fn found(&self, tablet: TabletId, leader: FoundLeader) {
        if let Some(found) = self.sought.lock().get_mut(&tablet) {
            *found = Some(leader);
        }
    }

    /// The leader that has answered since [`Self::seek`], if any.
    pub(crate) fn leader(&self, tablet: TabletId) -> Option<FoundLeader> {
        self.sought.lock().get(&tablet).copied().flatten()
    }

    /// Ends the search for the tablet's leader.
    pub(crate) fn forget(&self, tablet: TabletId) {
        self.sought.lock().remove(&tablet);
    }
}
