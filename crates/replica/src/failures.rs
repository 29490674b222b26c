//! Replicas of a node that cannot go on, and who leads instead of them.

use diorite_base::{NodeId, TabletId};
use parking_lot::Mutex;
use std::collections::BTreeMap;

/// A replica that cannot go on.
#[derive(Debug)]
pub(crate) struct Failed {
    pub(crate) tablet: TabletId,
    pub(crate) reason: String,
    /// What it has stored is damaged, or cannot be applied.
    pub(crate) is_damage: bool,
    /// A replica that has applied that much is not in the same state.
    pub(crate) needed: u64,
}

/// A node that leads a tablet, by its own word.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct FoundLeader {
    /// The node.
    pub node: NodeId,
    /// How much it has applied.
    pub applied: u64,
}

/// See the top of this module.
#[derive(Default)]
pub(crate) struct Failures {
    /// Since somebody looked last.
    failed: Mutex<Vec<Failed>>,
    /// Tablets whose leader is sought, and who has said to lead it.
    sought: Mutex<BTreeMap<TabletId, Option<FoundLeader>>>,
}

impl Failures {
    pub(crate) fn note(&self, failed: Failed) {
        self.failed.lock().push(failed);
    }

    /// Those since this was last called.
    pub(crate) fn take(&self) -> Vec<Failed> {
        std::mem::take(&mut *self.failed.lock())
    }

    /// Whether a replica of the tablet has failed since they were taken.
    pub(crate) fn has(&self, tablet: TabletId) -> bool {
        self.failed.lock().iter().any(|failed| failed.tablet == tablet)
    }

    /// Whoever leads the tablet is sought, again.
    pub(crate) fn seek(&self, tablet: TabletId) {
        self.sought.lock().insert(tablet, None);
    }

    /// Takes what a node has said that leads a tablet, if that is sought.
    pub(crate) fn found(&self, tablet: TabletId, leader: FoundLeader) {
        if let Some(found) = self.sought.lock().get_mut(&tablet) {
            *found = Some(leader);
        }
    }

    /// Who leads a tablet, if somebody has said so since it was last sought.
    pub(crate) fn leader(&self, tablet: TabletId) -> Option<FoundLeader> {
        self.sought.lock().get(&tablet).copied().flatten()
    }

    /// The leader of the tablet is sought no more.
    pub(crate) fn forget(&self, tablet: TabletId) {
        self.sought.lock().remove(&tablet);
    }
}
