//! The plan of a restart of all nodes (`diorite_control::restart`): a node's own part, and the answer to the operator.

use super::report;
use diorite_admin::api::{NodeTurn, RestartPlan};
use diorite_base::{NodeId, TabletId};
use diorite_cluster::catalog::{Catalog, Placement};
use diorite_control::restart::{self, Recovery, Turn};
use diorite_replica::{Leadership, Store};
use std::collections::BTreeMap;

/// The part of the node `node`, whose process has run for `uptime_ms`, in the plan.
pub(super) fn recovery(node: NodeId, store: &Store, catalog: &Catalog, uptime_ms: u64) -> Recovery {
    let handles = store.tablets();
    let led = handles.values().filter(|handle| handle.leadership() == Leadership::Here);
    let recovering = handles.values().filter(|handle| handle.is_recovering()).map(|handle| handle.id());
    let copied = store.copies().into_iter().filter(|copy| copy.incoming).map(|copy| copy.tablet);
    let set_aside = report::set_aside(store).into_iter().map(|(tablet, _)| tablet);
    Recovery {
        uptime_ms,
        leads: led.map(|handle| handle.id()).collect(),
        incomplete: recovering.chain(copied).chain(set_aside).chain(missing(node, store, catalog)).collect(),
    }
}

/// The tablets of which the catalog places a replica on the node that is not open (yet).
fn missing(node: NodeId, store: &Store, catalog: &Catalog) -> Vec<TabletId> {
    let handles = store.tablets();
    let is_placed = |placement: &Placement| {
        placement.replicas.contains(&node) && !placement.split.is_some_and(|split| split.is_served)
    };
    let placed = catalog.tablets().filter(|(_, placement)| is_placed(placement)).map(|(tablet, _)| tablet);
    placed.filter(|tablet| !handles.contains_key(tablet)).collect()
}

/// The plan as operators see it. `leader` leads the catalog; `answers` has the parts of the nodes that answered in time.
pub(super) fn plan(
    catalog: &Catalog,
    answers: &BTreeMap<NodeId, Recovery>,
    leader: NodeId,
    elapsed_ms: u64,
) -> RestartPlan {
    let plan = restart::restart_plan(catalog, answers, leader, elapsed_ms);
    let turns = plan.nodes.iter().filter_map(|(node, turn)| {
        let found = catalog.node(*node)?;
        let turn = match turn {
            Turn::Restarted => "restarted",
            Turn::Next => "next",
            Turn::Later => "later",
        };
        Some(NodeTurn {
            node: *node,
            address: found.address().to_string(),
            zone: found.zone().to_owned(),
            turn: turn.to_owned(),
            uptime_ms: answers.get(node).map(|answer| answer.uptime_ms),
        })
    });
    RestartPlan {
        nodes: turns.collect(),
        next: plan.next,
        may_go: plan.next.is_some() && plan.waits_for.is_empty(),
        waits_for: plan.waits_for,
        interrupted: plan.interrupted,
    }
}
