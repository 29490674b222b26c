//! The reports of other nodes to the node that leads the catalog, and which nodes are up.
//!
//! Always true: a report older than a few reporting intervals does not count; times are of this node's monotonic clock.

use crate::report::Report;
use diorite_base::{NodeId, TabletId};
use std::collections::{BTreeMap, HashMap, HashSet};
use std::sync::Arc;

/// A report is old after this many times the interval after which the next was due.
const MISSED: u64 = 5;

/// Reports are of different moments: the next leader of a tablet may be missing in reports for this many intervals
/// after its last leader has reported that it leads no more.
const SUCCESSION: u64 = 2;

/// The state of the cluster at one moment, beside the catalog.
#[derive(Debug)]
pub struct Known<D = ()> {
    /// The current reports of nodes.
    pub reports: BTreeMap<NodeId, Arc<Report<D>>>,
    /// Which members are up.
    pub up: BTreeMap<NodeId, bool>,
    /// Tablets that may have a leader though none is reported: their last leader has just reported that it leads no more.
    pub changing_leader: HashSet<TabletId>,
}

impl<D> Default for Known<D> {
    fn default() -> Self {
        Self { reports: BTreeMap::new(), up: BTreeMap::new(), changing_leader: HashSet::new() }
    }
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

/// The tablets that the reporting node leads.
fn led<D>(report: &Report<D>) -> impl Iterator<Item = TabletId> {
    report.tablets.iter().filter(|replica| replica.leads).map(|replica| replica.tablet)
}

/// See the top of this module.
#[derive(Debug)]
pub struct Knowledge<D = ()> {
    told: BTreeMap<NodeId, Told<D>>,
    /// Since when nodes are silent, as far as this node has watched.
    silent_since_ns: BTreeMap<NodeId, u64>,
    /// Until when a tablet's next leader may be missing in reports; passed times are removed with each report.
    succession_ns: HashMap<TabletId, u64>,
}

impl<D> Default for Knowledge<D> {
    fn default() -> Self {
        Self { told: BTreeMap::new(), silent_since_ns: BTreeMap::new(), succession_ns: HashMap::new() }
    }
}

impl<D> Knowledge<D> {
    /// Takes a node's report.
    pub fn learn(&mut self, node: NodeId, report: Report<D>, now_ns: u64) {
        let until_ns = now_ns + report.pause_after().as_nanos() as u64 * SUCCESSION;
        self.succession_ns.retain(|_, until_ns| now_ns < *until_ns);
        let report = Arc::new(report);
        let last = self.told.insert(node, Told { report: Arc::clone(&report), at_ns: now_ns });
        let Some(last) = last.filter(|last| last.is_fresh(now_ns)) else { return };
        let leads: HashSet<_> = led(&report).collect();
        let ended = led(&last.report).filter(|tablet| !leads.contains(tablet));
        self.succession_ns.extend(ended.map(|tablet| (tablet, until_ns)));
    }

    /// Tablets whose next leader may be missing in reports.
    pub fn changing_leader(&self, now_ns: u64) -> HashSet<TabletId> {
        self.succession_ns.iter().filter(|(_, until_ns)| now_ns < **until_ns).map(|(tablet, _)| *tablet).collect()
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
    use crate::report::{Files, TabletReport};

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
    fn a_tablet_whose_leader_has_just_ended_may_have_another_until_all_have_reported() {
        let report = |leads| {
            let tablet = TabletId(7);
            let replica = TabletReport { tablet, bytes: 0, disk: 0, leads, files: Files::default() };
            Report { tablets: vec![replica], ..Report::default() }
        };
        let seconds = |seconds: u64| seconds * 1_000_000_000;
        let mut knowledge: Knowledge = Knowledge::default();
        knowledge.learn(A, report(true), seconds(1));
        assert!(knowledge.changing_leader(seconds(1)).is_empty());
        knowledge.learn(A, report(false), seconds(2));
        assert!(knowledge.changing_leader(seconds(3)).contains(&TabletId(7)));
        knowledge.learn(A, report(false), seconds(3));
        assert!(knowledge.changing_leader(seconds(3)).contains(&TabletId(7)));
        assert!(knowledge.changing_leader(seconds(5)).is_empty(), "nobody has come after");
        // What it has led before a long silence tells nothing.
        knowledge.learn(B, report(true), seconds(5));
        knowledge.learn(B, report(false), seconds(60));
        assert!(knowledge.changing_leader(seconds(60)).is_empty());
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
