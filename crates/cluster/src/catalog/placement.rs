//! Which nodes hold the replicas of a new tablet, and which of them should lead it.
//!
//! Always true: a pure function of the snapshot, so every replica of the catalog computes the same placement; a tablet
//! never has two replicas on one node. Left out: later changes: missing replicas, and moves to better nodes (the
//! balancer's).

use super::node::Node;
use super::replication::Replication;
use super::snapshot::Catalog;
use super::tablet::Placement;
use diorite_base::{NodeId, TabletId};
use diorite_model::schema::{Table, TableEntry, TabletRange};
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

/// The load of a node, for an even spread.
#[derive(Clone, Copy, Default)]
struct Load {
    /// The number of replicas it holds.
    replicas: usize,
    /// The number of tablets of which it is the preferred leader.
    leaders: usize,
}

type Loads = BTreeMap<NodeId, Load>;

/// Gives `table` fresh tablets that split the ring evenly; see [`TableEntry::least_tablets`].
pub(super) fn add_tablets(catalog: &mut Catalog, table: Arc<Table>, count: u32, least_tablets: u32) {
    let replication = catalog.replication_of(&table.keyspace);
    let mut loads = loads(catalog);
    let mut ranges = Vec::new();
    for index in 0..count {
        let tablet = TabletId(catalog.identity.next_tablet);
        catalog.identity.next_tablet += 1;
        let (first_token, _) = part_of_ring(index, count);
        let mut replicas: Vec<NodeId> =
            choose_leader(catalog, &replication, index, count, &loads).into_iter().collect();
        if let Some(load) = replicas.first().and_then(|leader| loads.get_mut(leader)) {
            load.leaders += 1;
            load.replicas += 1;
        }
        fill(catalog, &replication, &mut replicas, &mut loads);
        let placement = Placement::new(table.id, replicas);
        Arc::make_mut(&mut catalog.tablets).insert(tablet, Arc::new(placement));
        ranges.push(TabletRange { tablet, first_token });
    }
    let (id, entry) = (table.id, TableEntry { table, tablets: ranges, least_tablets });
    Arc::make_mut(&mut catalog.tables).insert(id, Arc::new(entry));
}

fn loads(catalog: &Catalog) -> Loads {
    let mut loads: Loads = catalog.nodes.keys().map(|node| (*node, Load::default())).collect();
    for placement in catalog.tablets.values() {
        for replica in &placement.replicas {
            loads.entry(*replica).or_default().replicas += 1;
        }
        if let Some(leader) = placement.replicas.first() {
            loads.entry(*leader).or_default().leaders += 1;
        }
    }
    loads
}

/// The preferred leader of a new table's tablet `index` of `count`. If all nodes can lead equally many tablets, they
/// lead in the order of their ids, which matches the tokens that drivers receive for nodes (`peers::tokens_of`).
/// Otherwise the node that leads the fewest tablets comes first, so that many small tables are spread as well as a
/// large one.
fn choose_leader(
    catalog: &Catalog,
    replication: &Replication,
    index: u32,
    count: u32,
    loads: &Loads,
) -> Option<NodeId> {
    let able: Vec<NodeId> = active_nodes(catalog)
        .filter(|node| replication.uses(&node.description.data_center))
        .map(|node| node.id)
        .collect();
    // A keyspace of a data centre without nodes is still served, by the nodes of other data centres.
    let able = if able.is_empty() { active_nodes(catalog).map(|node| node.id).collect() } else { able };
    if (count as usize).is_multiple_of(able.len()) {
        return able.get(index as usize % able.len().max(1)).copied();
    }
    able.into_iter().min_by_key(|node| {
        let load = loads.get(node).copied().unwrap_or_default();
        (load.leaders, load.replicas, *node)
    })
}

/// The nodes that may receive replicas: active ones, or all if none is active.
fn active_nodes(catalog: &Catalog) -> impl Iterator<Item = &Arc<Node>> + Clone {
    let none_is_active = !catalog.nodes.values().any(|node| node.state.is_active());
    catalog.nodes.values().filter(move |node| none_is_active || node.state.is_active())
}

/// Adds nodes to `replicas` until there are as many as wanted, or no node is left.
fn fill(catalog: &Catalog, replication: &Replication, replicas: &mut Vec<NodeId>, loads: &mut Loads) {
    match replication {
        Replication::Anywhere(wanted) => fill_from(active_nodes(catalog), *wanted, replicas, loads),
        Replication::PerDataCenter(wanted) => {
            for (data_center, wanted) in wanted {
                let nodes = active_nodes(catalog).filter(|node| node.description.data_center == *data_center);
                fill_from(nodes, *wanted, replicas, loads);
            }
        }
    }
}

/// Adds nodes to `replicas` until `wanted` of `nodes` are among them: those with the fewest replicas, from different
/// zones if there are enough zones.
fn fill_from<'a>(
    nodes: impl Iterator<Item = &'a Arc<Node>> + Clone,
    wanted: u32,
    replicas: &mut Vec<NodeId>,
    loads: &mut Loads,
) {
    let present: Vec<&Arc<Node>> = nodes.clone().filter(|node| replicas.contains(&node.id)).collect();
    let mut zones: BTreeSet<&str> = present.iter().map(|node| node.zone()).collect();
    for _ in present.len()..wanted as usize {
        let candidates = nodes.clone().filter(|node| !replicas.contains(&node.id));
        let best = candidates.min_by_key(|node| {
            let zone_is_taken = zones.contains(node.zone());
            (zone_is_taken, loads.get(&node.id).map_or(0, |load| load.replicas), node.id)
        });
        let Some(node) = best else { break };
        zones.insert(node.zone());
        loads.entry(node.id).or_default().replicas += 1;
        replicas.push(node.id);
    }
}

/// The first and the last token of part `index` when the ring is split evenly into `count`, as the tablets of a new table do.
///
/// # Panics
/// If `index` is not less than `count`.
pub fn part_of_ring(index: u32, count: u32) -> (i64, i64) {
    assert!(index < count, "the ring has {count} parts");
    let last = if index + 1 == count { i64::MAX } else { start_of_part(index + 1, count) - 1 };
    (start_of_part(index, count), last)
}

fn start_of_part(index: u32, count: u32) -> i64 {
    let offset = (u128::from(index) << 64) / u128::from(count);
    // `offset` is below 2^64 as `index < count`; shifting the ring's start to `i64::MIN` flips the sign bit.
    (offset as u64 ^ (1 << 63)) as i64
}
