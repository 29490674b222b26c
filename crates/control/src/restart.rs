//! A restart of all nodes, one after another: the order, and whether the next node may be restarted now.
//!
//! Always true: a node may be restarted only if the others can do without it, and the nodes that were restarted before
//! it have recovered: they answer, their replicas are whole, and they lead the tablets that they are to lead. So at
//! most one replica of a tablet is missing at a time. Every answer is of this moment: nodes are asked, and the periodic
//! reports, which are seconds old, are not used.
//! Left out: stopping and starting nodes, which is up to whoever runs them.

use diorite_base::{NodeId, TabletId};
use diorite_cluster::catalog::{Catalog, Node, Placement};
use serde::{Deserialize, Serialize};
use std::collections::{BTreeMap, BTreeSet};

/// The most tablets that a reason names.
const NAMED_TABLETS: usize = 5;

/// A node's answer about its own recovery.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Recovery {
    /// How long its process has run, milliseconds.
    pub uptime_ms: u64,
    /// The tablets that it leads, the catalog's included; ascending.
    pub leads: BTreeSet<TabletId>,
    /// The tablets whose replica is incomplete, or cannot be used; ascending.
    pub incomplete: BTreeSet<TabletId>,
}

impl Recovery {
    /// As it was `ago_ms` milliseconds ago, or later: when the operator's question arrived, which says how long ago the
    /// restart of the cluster began. A process that is younger than that restart must not look older because its answer
    /// took long.
    pub fn as_of(self, ago_ms: u64) -> Self {
        Self { uptime_ms: self.uptime_ms.saturating_sub(ago_ms), ..self }
    }
}

/// The part of a node in the plan.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Turn {
    /// Its process began after the restart of the cluster did.
    Restarted,
    /// It is the next.
    Next,
    /// It comes after the next.
    Later,
}

/// The plan of a restart.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RestartPlan {
    /// All nodes, in the order in which they are restarted.
    pub nodes: Vec<(NodeId, Turn)>,
    /// The node to restart next; `None`: all have been restarted.
    pub next: Option<NodeId>,
    /// Why nothing may be restarted now; empty: the next node may be.
    pub waits_for: Vec<String>,
    /// The tablets that have no quorum while the next node is down, as they have too few replicas; ascending.
    pub interrupted: Vec<TabletId>,
}

/// The plan, `elapsed_ms` milliseconds after the restart of the cluster began. `answers` has the answers of the nodes
/// that answered in time. `leader` leads the catalog.
pub fn restart_plan(
    catalog: &Catalog,
    answers: &BTreeMap<NodeId, Recovery>,
    leader: NodeId,
    elapsed_ms: u64,
) -> RestartPlan {
    let mut order: Vec<&Node> = catalog.nodes().map(|node| &**node).collect();
    let leading_zone = catalog.node(leader).map(|node| node.zone().to_owned());
    // Zone by zone, so that at each moment only one zone lacks a node or has one that has just returned. The catalog's
    // leader is the last, so that the catalog is led by another node once only.
    order.sort_by_key(|node| {
        let is_in_leading_zone = leading_zone.as_deref() == Some(node.zone());
        (is_in_leading_zone, node.zone().to_owned(), node.id == leader, node.id)
    });
    let is_restarted = |node: NodeId| answers.get(&node).is_some_and(|answer| answer.uptime_ms < elapsed_ms);
    let (done, left): (Vec<NodeId>, Vec<NodeId>) = order.iter().map(|node| node.id).partition(|id| is_restarted(*id));
    let next = left.first().copied();
    let turn = |node: &NodeId| (*node, if Some(*node) == next { Turn::Next } else { Turn::Later });
    RestartPlan {
        nodes: done.iter().map(|node| (*node, Turn::Restarted)).chain(left.iter().map(turn)).collect(),
        next,
        waits_for: reasons_to_wait(catalog, answers),
        interrupted: next.map_or_else(Vec::new, |node| interrupted_by(catalog, node)),
    }
}

/// The tablets of which a quorum needs `node`, with all other nodes up.
fn interrupted_by(catalog: &Catalog, node: NodeId) -> Vec<TabletId> {
    let needs_it = |placement: &Placement| {
        let voters: Vec<NodeId> =
            placement.replicas.iter().copied().filter(|holder| !placement.arriving.contains(holder)).collect();
        voters.contains(&node) && voters.len() < 3
    };
    catalog.tablets().filter(|(_, placement)| needs_it(placement)).map(|(tablet, _)| tablet).collect()
}

fn reasons_to_wait(catalog: &Catalog, answers: &BTreeMap<NodeId, Recovery>) -> Vec<String> {
    let mut reasons = Vec::new();
    for node in catalog.nodes() {
        match answers.get(&node.id) {
            None => reasons.push(format!("node {} ({}) does not answer", node.id, node.address())),
            Some(answer) if !answer.incomplete.is_empty() => reasons.push(format!(
                "node {} ({}) is still recovering its replicas of {}",
                node.id,
                node.address(),
                names(answer.incomplete.iter().copied())
            )),
            Some(_) => {}
        }
    }
    let leaders: BTreeMap<TabletId, NodeId> =
        answers.iter().flat_map(|(node, answer)| answer.leads.iter().map(|tablet| (*tablet, *node))).collect();
    let those = |is_so: &dyn Fn(TabletId, &Placement) -> bool| -> Vec<TabletId> {
        catalog.tablets().filter(|(tablet, placement)| is_so(*tablet, placement)).map(|(tablet, _)| tablet).collect()
    };
    // A tablet whose children serve in its place is led by nobody.
    let is_served = |placement: &Placement| !placement.split.is_some_and(|split| split.is_served);
    let leaderless = those(&|tablet, placement| is_served(placement) && !leaders.contains_key(&tablet));
    let moving = those(&|_, placement| placement.is_moving());
    let away = those(&|tablet, placement| {
        let preferred = placement.replicas.first().and_then(|node| catalog.node(*node));
        let may_lead = preferred.filter(|node| node.state.is_active() && !node.leads_nothing);
        may_lead.is_some_and(|node| leaders.get(&tablet).is_some_and(|leader| *leader != node.id))
    });
    let counted = [
        (leaderless, "without a leader"),
        (moving, "with a replica that is being moved"),
        (away, "whose preferred leader does not lead yet"),
    ];
    let counted = counted.into_iter().filter(|(tablets, _)| !tablets.is_empty());
    reasons.extend(counted.map(|(tablets, what)| format!("{} {what}", names(tablets.into_iter()))));
    reasons
}

/// `tablets 4, 5`, `tablets 4, 5, 6, 7, 8 and 12 more`
fn names(tablets: impl ExactSizeIterator<Item = TabletId>) -> String {
    let more = tablets.len().saturating_sub(NAMED_TABLETS);
    let named: Vec<String> = tablets.take(NAMED_TABLETS).map(|tablet| tablet.0.to_string()).collect();
    let more = if more > 0 { format!(" and {more} more") } else { String::new() };
    format!("tablets {}{more}", named.join(", "))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::replicas::CATALOG_TABLET;
    use crate::testing::{apply, cluster, description};
    use diorite_cluster::catalog::Command;

    /// Answers of nodes that have run for long and lead what they are to lead; the first leads the catalog.
    fn healthy(catalog: &Catalog) -> BTreeMap<NodeId, Recovery> {
        let mut answers: BTreeMap<NodeId, Recovery> =
            catalog.nodes().map(|node| (node.id, Recovery { uptime_ms: 1_000_000, ..Recovery::default() })).collect();
        answers.get_mut(&NodeId(1)).unwrap().leads.insert(CATALOG_TABLET);
        for (tablet, placement) in catalog.tablets() {
            answers.get_mut(&placement.replicas[0]).unwrap().leads.insert(tablet);
        }
        answers
    }

    fn order(plan: &RestartPlan) -> Vec<u64> {
        plan.nodes.iter().map(|(node, _)| node.0).collect()
    }

    #[test]
    fn zones_go_one_after_another_and_the_leader_of_the_catalog_last() {
        let mut catalog = cluster(6, 6);
        // Zones are named by the number, modulo 5.
        apply(&mut catalog, Command::AssignZone { node: NodeId(2), zone: Some("zone-1".to_owned()) });
        let answers = healthy(&catalog);
        let plan = restart_plan(&catalog, &answers, NodeId(1), 60_000);
        assert_eq!(order(&plan), [5, 3, 4, 2, 6, 1]);
        assert_eq!((plan.next, &plan.waits_for[..]), (Some(NodeId(5)), &[][..]));
    }

    #[test]
    fn a_node_that_began_since_then_is_done_and_when_all_are_nothing_is_left() {
        let catalog = cluster(3, 6);
        let mut answers = healthy(&catalog);
        answers.get_mut(&NodeId(2)).unwrap().uptime_ms = 59_000;
        let plan = restart_plan(&catalog, &answers, NodeId(1), 60_000);
        assert_eq!(plan.nodes, [(NodeId(2), Turn::Restarted), (NodeId(3), Turn::Next), (NodeId(1), Turn::Later)]);
        answers.values_mut().for_each(|answer| answer.uptime_ms = 59_000);
        assert_eq!(restart_plan(&catalog, &answers, NodeId(1), 60_000).next, None);
    }

    #[test]
    fn a_node_that_was_restarted_is_done_however_late_its_answer_comes() {
        let catalog = cluster(3, 6);
        let mut answers = healthy(&catalog);
        // The restart began 2 s before the question, the process 1 s, and the answer took 5 s.
        let late = Recovery { uptime_ms: 6_000, ..answers[&NodeId(2)].clone() };
        answers.insert(NodeId(2), late.as_of(5_000));
        let plan = restart_plan(&catalog, &answers, NodeId(1), 2_000);
        assert_eq!(plan.nodes[0], (NodeId(2), Turn::Restarted));
    }

    #[test]
    fn nothing_goes_while_a_node_is_down_recovers_or_does_not_lead_again() {
        let catalog = cluster(3, 6);
        let whole = healthy(&catalog);
        let tablet = catalog.tablets().next().unwrap().0;
        let leader = catalog.placement(tablet).unwrap().replicas[0];
        let other = catalog.nodes().map(|node| node.id).find(|node| *node != leader).unwrap();
        let waits_for = |change: &dyn Fn(&mut BTreeMap<NodeId, Recovery>)| {
            let mut answers = whole.clone();
            change(&mut answers);
            restart_plan(&catalog, &answers, NodeId(1), 60_000).waits_for.join("; ")
        };
        assert_eq!(waits_for(&|_| {}), "");
        let down = waits_for(&|answers| drop(answers.remove(&leader)));
        assert!(down.contains("does not answer") && down.contains("without a leader"), "{down}");
        let recovering = waits_for(&|answers| {
            answers.get_mut(&other).unwrap().incomplete.insert(tablet);
        });
        assert!(recovering.contains("is still recovering its replicas of tablets"), "{recovering}");
        let away = waits_for(&|answers| {
            answers.get_mut(&leader).unwrap().leads.remove(&tablet);
            answers.get_mut(&other).unwrap().leads.insert(tablet);
        });
        assert_eq!(away, format!("tablets {} whose preferred leader does not lead yet", tablet.0));
    }

    #[test]
    fn tablets_that_need_the_next_node_are_named() {
        let catalog = cluster(3, 2);
        assert_eq!(restart_plan(&catalog, &healthy(&catalog), NodeId(1), 60_000).interrupted, []);
        let small = cluster(1, 2);
        let all: Vec<TabletId> = small.tablets().map(|(tablet, _)| tablet).collect();
        assert_eq!(restart_plan(&small, &healthy(&small), NodeId(1), 60_000).interrupted, all);
    }

    #[test]
    fn nothing_goes_while_replicas_are_moved() {
        let mut catalog = cluster(4, 1);
        let (tablet, placement) = catalog.tablets().next().map(|(tablet, found)| (tablet, found.clone())).unwrap();
        let spare = (1..=4).map(NodeId).find(|node| !placement.replicas.contains(node)).unwrap();
        let expected = placement.replicas.clone();
        let replicas = vec![expected[0], expected[1], spare];
        apply(&mut catalog, Command::Place { tablet, expected, replicas, is_numbered: true });
        let plan = restart_plan(&catalog, &healthy(&catalog), NodeId(1), 60_000);
        assert_eq!(plan.waits_for, [format!("tablets {} with a replica that is being moved", tablet.0)]);
    }

    #[test]
    fn a_node_that_is_not_to_lead_is_not_waited_for_as_a_leader() {
        let mut catalog = cluster(3, 3);
        apply(&mut catalog, Command::RegisterNode { node: description(4) });
        let tablet = catalog.tablets().next().unwrap().0;
        let leader = catalog.placement(tablet).unwrap().replicas[0];
        apply(&mut catalog, Command::SetLeading { node: leader, leads_nothing: true });
        let mut answers = healthy(&catalog);
        let led = std::mem::take(&mut answers.get_mut(&leader).unwrap().leads);
        answers.get_mut(&NodeId(4)).unwrap().leads.extend(led);
        assert_eq!(restart_plan(&catalog, &answers, NodeId(4), 60_000).waits_for, [""; 0]);
    }
}
