//! The reports of other nodes to the node that leads the catalog, and which nodes are up.
//!
//! Always true: a report older than a few reporting intervals does not count; times are of this node's monotonic clock.

use crate::report::Report;
use diorite_base::{NodeId, TabletId};
use std::collections::{BTreeMap, HashMap, HashSet};
use std::sync::Arc;

/// A report is old after this many times the interval after which the next was due.
const MISSED: u64 = 5;

/// Nodes report at different moments. After a tablet's leader has reported that it stopped leading, the report of the
/// next leader may be missing for this many intervals: one until that node's next report, one in which it is elected.
const NEXT_LEADER: u32 = 2;

/// The state of the cluster at one moment, beside the catalog.
#[derive(Debug)]
pub struct Known<D = ()> {
    /// The current reports of nodes.
    pub reports: BTreeMap<NodeId, Arc<Report<D>>>,
    /// Which members are up.
    pub up: BTreeMap<NodeId, bool>,
    /// Tablets whose leader has just reported that it stopped leading: they may have another one that has not reported.
    pub leader_stopped: HashSet<TabletId>,
}

impl<D> Default for Known<D> {
    fn default() -> Self {
        Self { reports: BTreeMap::new(), up: BTreeMap::new(), leader_stopped: HashSet::new() }
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
    /// Until when the report of a tablet's next leader may be missing. Each report removes what has passed.
    leader_stopped_until_ns: HashMap<TabletId, u64>,
}

impl<D> Default for Knowledge<D> {
    fn default() -> Self {
        Self { told: BTreeMap::new(), silent_since_ns: BTreeMap::new(), leader_stopped_until_ns: HashMap::new() }
    }
}

impl<D> Knowledge<D> {
    /// Takes a node's report.
    pub fn learn(&mut self, node: NodeId, report: Report<D>, now_ns: u64) {
        self.leader_stopped_until_ns.retain(|_, until_ns| now_ns < *until_ns);
        let report = Arc::new(report);
        let last = self.told.insert(node, Told { report: Arc::clone(&report), at_ns: now_ns });
        let Some(last) = last.filter(|last| last.is_fresh(now_ns)) else { return };
        let leads: HashSet<_> = led(&report).collect();
        let mut stopped = led(&last.report).filter(|tablet| !leads.contains(tablet)).peekable();
        if stopped.peek().is_none() {
            return;
        }
        // The next leader may be a node with more tablets, which reports less often.
        let fresh = self.told.values().filter(|told| told.is_fresh(now_ns));
        let longest = fresh.map(|told| told.report.pause_after()).max().unwrap_or_default();
        let until_ns = now_ns + (longest * NEXT_LEADER).as_nanos() as u64;
        self.leader_stopped_until_ns.extend(stopped.map(|tablet| (tablet, until_ns)));
    }

    /// Tablets whose leader has just stopped leading.
    pub fn leader_stopped(&self, now_ns: u64) -> HashSet<TabletId> {
        let recent = self.leader_stopped_until_ns.iter().filter(|(_, until_ns)| now_ns < **until_ns);
        recent.map(|(tablet, _)| *tablet).collect()
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
    fn after_a_leader_has_stopped_another_may_not_have_reported_yet() {
        let tablet = TabletId(7);
        let replica = |tablet, leads| TabletReport { tablet, bytes: 0, disk: 0, leads, files: Files::default() };
        let report = |leads| Report { tablets: vec![replica(tablet, leads)], ..Report::default() };
        let seconds = |seconds: u64| seconds * 1_000_000_000;
        let mut knowledge: Knowledge = Knowledge::default();
        knowledge.learn(A, report(true), seconds(1));
        assert!(knowledge.leader_stopped(seconds(1)).is_empty());
        knowledge.learn(A, report(false), seconds(2));
        assert!(knowledge.leader_stopped(seconds(3)).contains(&tablet));
        knowledge.learn(A, report(false), seconds(3));
        assert!(knowledge.leader_stopped(seconds(3)).contains(&tablet));
        assert!(knowledge.leader_stopped(seconds(5)).is_empty(), "nobody leads it");
        // A replica that was removed leads no more, too. The other node reports every three seconds.
        let many = (100..2_100).map(|number| replica(TabletId(number), false));
        knowledge.learn(B, Report { tablets: many.collect(), ..Report::default() }, seconds(5));
        knowledge.learn(A, report(true), seconds(5));
        knowledge.learn(A, Report::default(), seconds(6));
        assert!(knowledge.leader_stopped(seconds(11)).contains(&tablet));
        assert!(knowledge.leader_stopped(seconds(13)).is_empty());
        // What a node led before a long silence tells nothing, nor does what another leader of the catalog was told.
        knowledge.learn(A, report(true), seconds(20));
        knowledge.learn(A, report(false), seconds(60));
        assert!(knowledge.leader_stopped(seconds(60)).is_empty());
        knowledge.learn(A, report(true), seconds(61));
        knowledge.learn(A, report(false), seconds(62));
        knowledge.forget();
        assert!(knowledge.leader_stopped(seconds(62)).is_empty());
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
