//! Names of the view as indices: nodes, tables, data centres and zones.
//!
//! Always true: names are sorted, so that an index is found by binary search. Left out: tablets, which are entered one by one
//! ([`super::ledger`]).

use super::holdings::{Disks, Node, Pipes, Zone};
use super::view::{DiskView, NodeState, NodeView, View};
use diorite_base::{NodeId, TableId};
use std::collections::BTreeMap;

/// Everything that has a name in the view, sorted, so that indices stand for names.
pub(super) struct Names<'a> {
    pub(super) nodes: Vec<NamedNode<'a>>,
    pub(super) tables: Vec<TableId>,
    pub(super) data_centers: Vec<&'a str>,
    pub(super) zones: BTreeMap<(&'a str, &'a str), u32>,
    /// The average of what nodes' disks hold, where known.
    pub(super) mean_bytes: f64,
}

/// A member, or a node that tablets name and that is no member (any more).
pub(super) struct NamedNode<'a> {
    pub(super) id: NodeId,
    pub(super) view: Option<&'a NodeView>,
}

impl<'a> Names<'a> {
    pub(super) fn new(view: &'a View) -> Self {
        let mut nodes: Vec<NamedNode<'_>> =
            view.nodes.iter().map(|node| NamedNode { id: node.id, view: Some(node) }).collect();
        nodes.sort_by_key(|node| node.id);
        let mut strangers: Vec<NodeId> = view
            .tablets
            .iter()
            .flat_map(|tablet| tablet.replicas.iter().chain(&tablet.leaving).copied())
            .filter(|id| nodes.binary_search_by_key(id, |node| node.id).is_err())
            .collect();
        strangers.sort_unstable();
        strangers.dedup();
        nodes.extend(strangers.into_iter().map(|id| NamedNode { id, view: None }));
        nodes.sort_by_key(|node| node.id);
        let mut tables: Vec<TableId> = view.tablets.iter().map(|tablet| tablet.table).collect();
        tables.sort_unstable();
        tables.dedup();
        let mut data_centers: Vec<&str> = view.nodes.iter().map(|node| node.data_center.as_str()).collect();
        data_centers.sort_unstable();
        data_centers.dedup();
        let mut zones: BTreeMap<_, _> =
            view.nodes.iter().map(|node| ((node.data_center.as_str(), node.zone.as_str()), 0)).collect();
        zones.values_mut().zip(0..).for_each(|(index, at)| *index = at);
        let known: Vec<f64> = view.nodes.iter().map(usable_bytes).filter(|bytes| *bytes > 0.0).collect();
        let mean_bytes = if known.is_empty() { 1.0 } else { known.iter().sum::<f64>() / known.len() as f64 };
        Self { nodes, tables, data_centers, zones, mean_bytes }
    }

    pub(super) fn node(&self, id: NodeId) -> u32 {
        self.nodes.binary_search_by_key(&id, |node| node.id).expect("nodes come from the tablets, too") as u32
    }
}

fn usable_bytes(node: &NodeView) -> f64 {
    node.disks.iter().filter(|disk| !disk.failed).map(|disk| disk.total_bytes as f64).sum()
}

pub(super) fn new_node(node: &NamedNode<'_>, names: &Names<'_>) -> Node {
    let disks: &[DiskView] = node.view.map_or(&[], |view| &view.disks);
    let state = node.view.map_or(NodeState::Dead, |view| view.state);
    let has_disk = disks.is_empty() || disks.iter().any(|disk| !disk.failed);
    let bytes = node.view.map_or(0.0, usable_bytes);
    let used = |disk: &DiskView| disk.total_bytes.saturating_sub(disk.free_bytes) as f64;
    let total: f64 = disks.iter().map(|disk| disk.total_bytes as f64).sum();
    let fill = disks.iter().map(used).sum::<f64>() / total.max(1.0);
    Node {
        id: node.id,
        state,
        may_lead: node.view.is_some_and(|view| view.may_lead),
        zone: node.view.map_or(u32::MAX, |view| names.zones[&(view.data_center.as_str(), view.zone.as_str())]),
        accepts: state == NodeState::Live && has_disk,
        weight: if bytes > 0.0 { bytes / names.mean_bytes } else { 1.0 },
        bytes: 0.0,
        replicas: 0,
        leaders: 0,
        pipes: Pipes::default(),
        tablets: Vec::new(),
        disks: Disks {
            rooms: disks.iter().map(DiskView::room_bytes).collect(),
            excess: disks.iter().map(|disk| used(disk) / (disk.total_bytes.max(1) as f64) - fill).collect(),
            failed: disks.iter().map(|disk| disk.failed).collect(),
        },
    }
}

pub(super) fn new_zones(view: &View, names: &Names<'_>, nodes: &[Node]) -> Vec<Zone> {
    let preferred = &view.preferred_leader_zones;
    let zones = names.zones.iter().map(|((data_center, zone), index)| Zone {
        data_center: names.data_centers.binary_search(data_center).expect("zones are in data centres") as u32,
        accepting: nodes.iter().filter(|node| node.zone == *index && node.accepts).count() as u32,
        is_preferred: preferred.is_empty() || preferred.iter().any(|name| name == zone),
    });
    zones.collect()
}
