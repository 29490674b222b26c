//! The inputs of answers to operators, as of one moment: the catalog, the nodes' reports, and which nodes are up.
//!
//! Always true: answers from these inputs do no I/O and take no lock, so any thread can compute them; tests use
//! invented clusters.

use super::Known;
use super::report::{Report, SetAside};
use diorite_admin::api::TabletState;
use diorite_base::{NodeId, TabletId};
use diorite_cluster::catalog::{Catalog, Placement};
use diorite_control::report::TabletReport;
use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::sync::Arc;

/// The inputs of answers.
pub(super) struct Sight {
    /// The node that answers.
    pub(super) me: NodeId,
    pub(super) catalog: Arc<Catalog>,
    pub(super) known: Known,
    /// The last reports, including those of nodes that are down.
    pub(super) last: BTreeMap<NodeId, Arc<Report>>,
    /// The time since the last heartbeat of each other node, nanoseconds.
    pub(super) silence_ns: BTreeMap<NodeId, u64>,
    /// The set-aside replicas of nodes, by their reports or by later answers.
    pub(super) set_aside: BTreeMap<NodeId, SetAside>,
    /// The nodes that vote in the catalog's group, as far as is known here.
    pub(super) catalog_voters: BTreeSet<NodeId>,
    replicas: HashMap<TabletId, Vec<(NodeId, TabletReport)>>,
    pub(super) leaders: HashMap<TabletId, NodeId>,
}

impl Sight {
    pub(super) fn new(
        me: NodeId,
        catalog: Arc<Catalog>,
        known: Known,
        last: BTreeMap<NodeId, Arc<Report>>,
        silence_ns: BTreeMap<NodeId, u64>,
    ) -> Self {
        let mut replicas: HashMap<TabletId, Vec<(NodeId, TabletReport)>> = HashMap::new();
        let mut leaders = HashMap::new();
        for (node, report) in &known.reports {
            for replica in &report.tablets {
                replicas.entry(replica.tablet).or_default().push((*node, *replica));
                if replica.leads && known.up.get(node).copied().unwrap_or(false) {
                    leaders.insert(replica.tablet, *node);
                }
            }
        }
        let set_aside = known.reports.iter().map(|(node, report)| (*node, report.details.set_aside.clone())).collect();
        let catalog_voters = BTreeSet::new();
        Self { me, catalog, known, last, silence_ns, set_aside, catalog_voters, replicas, leaders }
    }

    /// Adds the sets of voters of the catalog's group: one, or two during a change.
    pub(super) fn with_catalog_voters(mut self, sets: Vec<Vec<NodeId>>) -> Self {
        self.catalog_voters = sets.into_iter().flatten().collect();
        self
    }

    /// Adds answers that nodes have given since their reports.
    pub(super) fn with_set_aside(mut self, fresh: BTreeMap<NodeId, SetAside>) -> Self {
        self.set_aside.extend(fresh);
        self
    }

    pub(super) fn is_up(&self, node: NodeId) -> bool {
        self.known.up.get(&node).copied().unwrap_or(false)
    }

    /// The reported replicas of a tablet.
    pub(super) fn replicas(&self, tablet: TabletId) -> &[(NodeId, TabletReport)] {
        self.replicas.get(&tablet).map_or(&[], Vec::as_slice)
    }

    /// The report on one replica.
    pub(super) fn replica(&self, tablet: TabletId, node: NodeId) -> Option<&TabletReport> {
        self.replicas(tablet).iter().find(|(on, _)| *on == node).map(|(_, report)| report)
    }

    /// The number of voters that are up and hold all data, and the number of all voters. A leaving replica counts until
    /// the arriving ones have replaced it: a move puts nothing at risk.
    fn voters(&self, tablet: TabletId, placement: &Placement) -> (usize, usize) {
        let voters = || placement.holders().filter(|node| !placement.arriving.contains(node));
        let lacks_data =
            |node| self.known.reports.get(&node).is_some_and(|report| report.incomplete.binary_search(&tablet).is_ok());
        (voters().filter(|node| self.is_up(*node) && !lacks_data(*node)).count(), voters().count())
    }

    /// Whether no quorum of the tablet's replicas is up.
    pub(super) fn is_unavailable(&self, tablet: TabletId, placement: &Placement) -> bool {
        let (up, all) = self.voters(tablet, placement);
        up <= all / 2
    }

    /// Whether the tablet is known to have no leader. Unknown is, and does not count: a tablet that is newer than its
    /// holders' last reports, one whose leader has just stopped leading, and one with a holder that is up and has not
    /// reported, as after the catalog's leader has changed.
    pub(super) fn is_leaderless(&self, tablet: TabletId, placement: &Placement) -> bool {
        if self.leaders.contains_key(&tablet) || self.known.leader_stopped.contains(&tablet) {
            return false;
        }
        let mut has_received = false;
        for node in placement.holders().filter(|node| self.is_up(*node)) {
            let Some(report) = self.known.reports.get(&node) else { return false };
            has_received |= report.next_tablet.is_none_or(|next| tablet.0 < next);
        }
        // Nobody is up who could report.
        has_received || placement.holders().all(|node| !self.is_up(node))
    }

    /// Whether fewer than `wanted` replicas of the tablet are up with all their data.
    pub(super) fn is_under_replicated(&self, tablet: TabletId, placement: &Placement, wanted: u32) -> bool {
        self.voters(tablet, placement).0 < wanted as usize
    }

    /// The worst state that is true of a tablet which should have `wanted` replicas.
    pub(super) fn state(&self, tablet: TabletId, placement: &Placement, wanted: u32) -> TabletState {
        if self.is_unavailable(tablet, placement) {
            TabletState::Unavailable
        } else if self.is_leaderless(tablet, placement) {
            TabletState::Leaderless
        } else if self.is_under_replicated(tablet, placement, wanted) {
            TabletState::UnderReplicated
        } else if placement.is_moving() {
            TabletState::Moving
        } else {
            TabletState::Ok
        }
    }

    /// The size of a tablet's largest replica.
    pub(super) fn largest(&self, tablet: TabletId) -> u64 {
        self.replicas(tablet).iter().map(|(_, report)| report.bytes).max().unwrap_or(0)
    }
}
