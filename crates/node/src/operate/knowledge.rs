//! What the node that leads the catalog has been told by the others, and who is up.
//!
//! Always true: what was told longer ago than a few reporting intervals is known to be old; times are this node's monotonic clock's.

use super::report::{self, Report};
use diorite_base::NodeId;
use parking_lot::Mutex;
use std::collections::BTreeMap;
use std::sync::Arc;

/// A report is old after so many times the time in which the next was due.
const MISSED: u64 = 5;

/// The last thing that a node has told.
#[derive(Clone)]
pub(super) struct Told {
    pub(super) report: Arc<Report>,
    at_ns: u64,
}

impl Told {
    fn is_fresh(&self, now_ns: u64) -> bool {
        let due_ns = report::pause_after(&self.report).as_nanos() as u64;
        now_ns < self.at_ns + due_ns * MISSED
    }
}

#[derive(Default)]
struct State {
    told: BTreeMap<NodeId, Told>,
    /// Since when nodes are silent, as far as this node has watched.
    silent_since_ns: BTreeMap<NodeId, u64>,
}

/// See the top of this module.
#[derive(Default)]
pub(super) struct Knowledge {
    state: Mutex<State>,
}

impl Knowledge {
    /// A node has told how it is.
    pub(super) fn learn(&self, node: NodeId, report: Report, now_ns: u64) {
        self.state.lock().told.insert(node, Told { report: Arc::new(report), at_ns: now_ns });
    }

    /// What nodes have told lately.
    pub(super) fn fresh(&self, now_ns: u64) -> BTreeMap<NodeId, Arc<Report>> {
        let state = self.state.lock();
        let fresh = state.told.iter().filter(|(_, told)| told.is_fresh(now_ns));
        fresh.map(|(node, told)| (*node, Arc::clone(&told.report))).collect()
    }

    /// What nodes have told last, however long ago.
    pub(super) fn last(&self) -> BTreeMap<NodeId, Arc<Report>> {
        self.state.lock().told.iter().map(|(node, told)| (*node, Arc::clone(&told.report))).collect()
    }

    /// Takes in who is up; returns for how long, nanoseconds, the others have been silent.
    pub(super) fn watch(&self, nodes: impl Iterator<Item = (NodeId, bool)>, now_ns: u64) -> BTreeMap<NodeId, u64> {
        let mut state = self.state.lock();
        let mut silent = BTreeMap::new();
        for (node, is_up) in nodes {
            if !is_up {
                let since_ns = state.silent_since_ns.get(&node).copied().unwrap_or(now_ns);
                silent.insert(node, since_ns);
            }
        }
        state.silent_since_ns = silent;
        state.silent_since_ns.iter().map(|(node, since_ns)| (*node, now_ns - since_ns)).collect()
    }

    /// Nobody is watched any more: another node leads the catalog.
    pub(super) fn forget(&self) {
        *self.state.lock() = State::default();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const A: NodeId = NodeId(1);
    const B: NodeId = NodeId(2);

    #[test]
    fn reports_grow_old() {
        let knowledge = Knowledge::default();
        knowledge.learn(A, Report::default(), 1_000_000_000);
        assert!(knowledge.fresh(5_900_000_000).contains_key(&A));
        assert!(knowledge.fresh(6_000_000_000).is_empty());
        assert!(knowledge.last().contains_key(&A));
    }

    #[test]
    fn silence_counts_from_when_it_was_noticed_and_ends_with_the_first_word() {
        let knowledge = Knowledge::default();
        assert_eq!(knowledge.watch([(A, false), (B, true)].into_iter(), 10), BTreeMap::from([(A, 0)]));
        assert_eq!(knowledge.watch([(A, false), (B, false)].into_iter(), 25), BTreeMap::from([(A, 15), (B, 0)]));
        assert_eq!(knowledge.watch([(A, true), (B, false)].into_iter(), 30), BTreeMap::from([(B, 5)]));
        assert_eq!(knowledge.watch([(A, false), (B, false)].into_iter(), 40), BTreeMap::from([(A, 0), (B, 15)]));
    }
}
