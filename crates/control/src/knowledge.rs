//! The reports of other nodes to the node that leads the catalog, and which nodes are up.
//!
//! Always true: a report older than a few reporting intervals does not count; times are of this node's monotonic clock.

use crate::report::Report;
use diorite_base::NodeId;
use std::collections::BTreeMap;
use std::sync::Arc;

/// A report is old after this many times the interval after which the next was due.
const MISSED: u64 = 5;

/// The state of the cluster at one moment, beside the catalog.
#[derive(Debug)]
pub struct Known<D = ()> {
    /// The current reports of nodes.
    pub reports: BTreeMap<NodeId, Arc<Report<D>>>,
    /// Which members are up.
    pub up: BTreeMap<NodeId, bool>,
}

impl<D> Known<D> {
    /// Whether all nodes that are up have a current report.
    pub fn is_complete(&self) -> bool {
        self.up.iter().all(|(node, is_up)| !is_up || self.reports.contains_key(node))
    }
}

/// The last report of a node.
#[derive(Debug)]
struct Told<D> {
    report: Arc<Report<D>>,
    at_ns: u64,
}

impl<D> Told<D> {
    fn is_fresh(&self, now_ns: u64) -> bool {
        let due_ns = self.report.pause_after().as_nanos() as u64;
        now_ns < self.at_ns + due_ns * MISSED
    }
}

/// See the top of this module.
#[derive(Debug)]
pub struct Knowledge<D = ()> {
    told: BTreeMap<NodeId, Told<D>>,
    /// Since when nodes are silent, as far as this node has watched.
    silent_since_ns: BTreeMap<NodeId, u64>,
}

impl<D> Default for Knowledge<D> {
    fn default() -> Self {
        Self { told: BTreeMap::new(), silent_since_ns: BTreeMap::new() }
    }
}

impl<D> Knowledge<D> {
    /// Takes a node's report.
    pub fn learn(&mut self, node: NodeId, report: Report<D>, now_ns: u64) {
        self.told.insert(node, Told { report: Arc::new(report), at_ns: now_ns });
    }

    /// The current reports.
    pub fn fresh(&self, now_ns: u64) -> BTreeMap<NodeId, Arc<Report<D>>> {
        let fresh = self.told.iter().filter(|(_, told)| told.is_fresh(now_ns));
        fresh.map(|(node, told)| (*node, Arc::clone(&told.report))).collect()
    }

    /// The last reports, of any age.
    pub fn last(&self) -> BTreeMap<NodeId, Arc<Report<D>>> {
        self.told.iter().map(|(node, told)| (*node, Arc::clone(&told.report))).collect()
    }

    /// Records which nodes are up; returns how long the others have been silent, nanoseconds.
    pub fn watch(&mut self, nodes: impl Iterator<Item = (NodeId, bool)>, now_ns: u64) -> BTreeMap<NodeId, u64> {
        let mut silent = BTreeMap::new();
        for (node, is_up) in nodes {
            if !is_up {
                let since_ns = self.silent_since_ns.get(&node).copied().unwrap_or(now_ns);
                silent.insert(node, since_ns);
            }
        }
        self.silent_since_ns = silent;
        self.silent_since_ns.iter().map(|(node, since_ns)| (*node, now_ns - since_ns)).collect()
    }

    /// Stops watching: another node leads the catalog.
    pub fn forget(&mut self) {
        *self = Self::default();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const A: NodeId = NodeId(1);
    const B: NodeId = NodeId(2);

    #[test]
    fn reports_grow_old() {
        let mut knowledge: Knowledge = Knowledge::default();
        knowledge.learn(A, Report::default(), 1_000_000_000);
        assert!(knowledge.fresh(5_900_000_000).contains_key(&A));
        assert!(knowledge.fresh(6_000_000_000).is_empty());
        assert!(knowledge.last().contains_key(&A));
    }

    #[test]
    fn silence_counts_from_when_it_was_noticed_and_ends_with_the_first_word() {
        let mut knowledge: Knowledge = Knowledge::default();
        assert_eq!(knowledge.watch([(A, false), (B, true)].into_iter(), 10), BTreeMap::from([(A, 0)]));
        assert_eq!(knowledge.watch([(A, false), (B, false)].into_iter(), 25), BTreeMap::from([(A, 15), (B, 0)]));
        assert_eq!(knowledge.watch([(A, true), (B, false)].into_iter(), 30), BTreeMap::from([(B, 5)]));
        assert_eq!(knowledge.watch([(A, false), (B, false)].into_iter(), 40), BTreeMap::from([(A, 0), (B, 15)]));
    }
}
