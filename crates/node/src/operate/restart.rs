//! The plan of a restart of all nodes (`diorite_control::restart`), from the answers of all nodes.
//!
//! Always true: every node is asked for the present state; a node that does not answer in time counts as down.

use super::{Answer, Operations, in_json, report};
use diorite_admin::api::{Ask, NodeTurn, RestartPlan};
use diorite_base::{NodeId, TabletId};
use diorite_control::restart::{Recovery, Turn, restart_plan};
use diorite_replica::Leadership;
use futures::StreamExt;
use std::collections::BTreeMap;
use std::time::Duration;

/// How long a node is given to answer, and how many nodes are asked at a time.
const TIMEOUT: Duration = Duration::from_secs(2);
const ASKED_AT_A_TIME: usize = 32;

/// This node's part in the plan.
pub(super) fn recovery(operations: &Operations) -> Answer {
    let handles = operations.store.tablets();
    let led = handles.values().filter(|handle| handle.leadership() == Leadership::Here);
    let recovering = handles.values().filter(|handle| handle.is_recovering()).map(|handle| handle.id());
    let copied = operations.store.copies().into_iter().filter(|copy| copy.incoming).map(|copy| copy.tablet);
    let set_aside = report::set_aside(&operations.store).into_iter().map(|(tablet, _)| tablet);
    let missing = missing(operations);
    in_json(&Recovery {
        uptime_ms: (operations.clock.monotonic_ns() - operations.started_ns) / 1_000_000,
        leads: led.map(|handle| handle.id()).collect(),
        incomplete: recovering.chain(copied).chain(set_aside).chain(missing).collect(),
    })
}

/// The tablets of which the catalog places a replica here that is not open (yet).
fn missing(operations: &Operations) -> Vec<TabletId> {
    let catalog = operations.catalog.current();
    let handles = operations.store.tablets();
    let is_placed = |placement: &diorite_cluster::catalog::Placement| {
        placement.replicas.contains(&operations.node) && !placement.split.is_some_and(|split| split.is_served)
    };
    let placed = catalog.tablets().filter(|(_, placement)| is_placed(placement)).map(|(tablet, _)| tablet);
    placed.filter(|tablet| !handles.contains_key(tablet)).collect()
}

/// The plan; only for the node that leads the catalog.
pub(super) async fn plan(operations: &Operations, elapsed_ms: u64) -> Answer {
    let catalog = operations.catalog.current();
    let nodes: Vec<NodeId> = catalog.nodes().map(|node| node.id).collect();
    let asked = nodes.into_iter().map(|node| async move {
        let answer = operations.ask_any(node, Ask::Recovery, TIMEOUT).await;
        Some((node, serde_json::from_value::<Recovery>(answer.ok()?).ok()?))
    });
    let answers: BTreeMap<NodeId, Recovery> =
        futures::stream::iter(asked).buffer_unordered(ASKED_AT_A_TIME).filter_map(std::future::ready).collect().await;
    let plan = restart_plan(&catalog, &answers, operations.node, elapsed_ms);
    let turns = plan.nodes.iter().filter_map(|(node, turn)| {
        let found = catalog.node(*node)?;
        Some(NodeTurn {
            node: *node,
            address: found.address().to_string(),
            zone: found.zone().to_owned(),
            turn: match turn {
                Turn::Restarted => "restarted",
                Turn::Next => "next",
                Turn::Later => "later",
            }
            .to_owned(),
            uptime_ms: answers.get(node).map(|answer| answer.uptime_ms),
        })
    });
    in_json(&RestartPlan {
        nodes: turns.collect(),
        next: plan.next,
        may_go: plan.next.is_some() && plan.waits_for.is_empty(),
        waits_for: plan.waits_for,
        interrupted: plan.interrupted,
    })
}
