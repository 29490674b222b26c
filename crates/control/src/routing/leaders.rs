//! Leaders of tablets that this node has learned from answers, not from its own replicas.
//!
//! Always true: a false entry costs one refused request, which corrects it; memory is bounded. Left out: what the
//! node's own replicas know.

use ahash::AHashMap;
use diorite_base::{NodeId, TabletId};

/// With more entries than this, all are forgotten: they are learned again as needed.
const MAX_ENTRIES: usize = 1 << 17;
/// How long an entry outranks the node's own replica, which may be cut off from its group, nanoseconds.
const FRESH_NS: u64 = 1_000_000_000;

/// A learned leader.
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
    learned: AHashMap<TabletId, Learned>,
}

impl Leaders {
    pub(super) fn get(&self, tablet: TabletId) -> Option<Learned> {
        self.learned.get(&tablet).copied()
    }

    pub(super) fn learn(&mut self, tablet: TabletId, node: NodeId, now_ns: u64) {
        if self.learned.len() >= MAX_ENTRIES {
            self.learned.clear();
        }
        self.learned.insert(tablet, Learned { node, at_ns: now_ns });
    }

    /// `node` does not lead the tablet.
    pub(super) fn forget(&mut self, tablet: TabletId, node: NodeId) {
        if self.get(tablet).is_some_and(|learned| learned.node == node) {
            self.learned.remove(&tablet);
        }
    }

    /// `node` leads no tablet.
    pub(super) fn forget_node(&mut self, node: NodeId) {
        self.learned.retain(|_, learned| learned.node != node);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_remembered_is_bounded_and_of_the_node_that_is_named() {
        let mut leaders = Leaders::default();
        (0..=MAX_ENTRIES as u64).for_each(|tablet| leaders.learn(TabletId(tablet), NodeId(2), 5));
        assert_eq!(leaders.learned.len(), 1, "all others were forgotten");
        let tablet = TabletId(MAX_ENTRIES as u64);
        leaders.forget(tablet, NodeId(3));
        let learned = leaders.get(tablet).expect("another node was forgotten");
        assert!(learned.is_fresh(5 + FRESH_NS - 1) && !learned.is_fresh(5 + FRESH_NS));
        leaders.forget_node(NodeId(2));
        assert_eq!(leaders.get(tablet), None);
    }
}
