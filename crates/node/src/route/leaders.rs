//! What this node has learned about who leads tablets: from answers, not from replicas of its own.
//!
//! Always true: a false entry costs one refused request, which corrects it; memory is bounded. Left out: what the node's own replicas know,
//! which the router asks first.

use ahash::AHashMap;
use diorite_base::{NodeId, TabletId};
use parking_lot::RwLock;

/// More entries than this and all are forgotten: they are learned again as they are needed.
const MAX_ENTRIES: usize = 1 << 17;
/// For this long an entry counts more than what the node's own replica says, which may be cut off from its group.
const FRESH_NS: u64 = 1_000_000_000;

/// A leader that was learned.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Learned {
    pub(super) node: NodeId,
    at_ns: u64,
}

impl Learned {
    pub(super) fn is_fresh(&self, now_ns: u64) -> bool {
        now_ns.saturating_sub(self.at_ns) < FRESH_NS
    }
}

/// See the top of this module.
#[derive(Debug, Default)]
pub(super) struct Leaders {
    learned: RwLock<AHashMap<TabletId, Learned>>,
}

impl Leaders {
    pub(super) fn get(&self, tablet: TabletId) -> Option<Learned> {
        self.learned.read().get(&tablet).copied()
    }

    pub(super) fn learn(&self, tablet: TabletId, node: NodeId, now_ns: u64) {
        let mut learned = self.learned.write();
        if learned.len() >= MAX_ENTRIES {
            learned.clear();
        }
        learned.insert(tablet, Learned { node, at_ns: now_ns });
    }

    /// `node` does not lead the tablet.
    pub(super) fn forget(&self, tablet: TabletId, node: NodeId) {
        if self.get(tablet).is_some_and(|learned| learned.node == node) {
            self.learned.write().remove(&tablet);
        }
    }

    /// `node` leads nothing any more.
    pub(super) fn forget_node(&self, node: NodeId) {
        self.learned.write().retain(|_, learned| learned.node != node);
    }
}
