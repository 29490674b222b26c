//! The balancer's tests: golden scripts for every rule, properties over random clusters, and a thousand nodes.
//!
//! All of them carry out actions on a `plan::world::World`, and [`safety`] checks every action against its view.

mod properties;
mod safety;
mod scripts;
mod thousand;

use super::*;
use crate::catalog::Replication;
use crate::plan::world::World;
use diorite_base::{NodeId, TableId, TabletId};
use std::sync::Arc;

const GB: u64 = 1_000_000_000;

fn node(id: u64, zone: &str, disk_bytes: u64) -> NodeView {
    let disk = DiskView { total_bytes: disk_bytes, free_bytes: disk_bytes, reserve_bytes: 0, failed: false };
    NodeView {
        id: NodeId(id),
        zone: zone.to_owned(),
        data_center: "dc".to_owned(),
        state: NodeState::Live,
        may_lead: true,
        disks: vec![disk],
    }
}

fn tablet(id: u64, table: u64, bytes: u64, wanted: &Arc<Replication>, replicas: &[u64]) -> TabletView {
    let replicas: Vec<NodeId> = replicas.iter().copied().map(NodeId).collect();
    TabletView {
        id: TabletId(id),
        table: TableId(table),
        bytes,
        wanted: Arc::clone(wanted),
        leader: replicas.first().copied(),
        disks: replicas.iter().map(|node| (*node, 0)).collect(),
        replicas,
        leaving: Vec::new(),
        arriving: Vec::new(),
        is_reshaping: false,
    }
}

fn view(nodes: Vec<NodeView>, tablets: Vec<TabletView>) -> View {
    let mut view =
        View { nodes, tablets, limits: Limits::default(), preferred_leader_zones: Vec::new(), paused: false };
    fill_disks(&mut view);
    view
}

/// Subtracts the tablets' bytes from the nodes' first disks.
fn fill_disks(view: &mut View) {
    for tablet in &view.tablets {
        for (on, disk) in &tablet.disks {
            if let Some(node) = view.nodes.iter_mut().find(|node| node.id == *on) {
                node.disks[*disk].free_bytes = node.disks[*disk].free_bytes.saturating_sub(tablet.bytes);
            }
        }
    }
}

/// Runs the balancer until there are no actions left, as if copies took no time, and checks every step. Returns the
/// number of passes.
fn run_until_idle(world: &mut World, most_passes: usize) -> usize {
    for pass in 0..most_passes {
        let actions = balance(&world.view);
        safety::check(&world.view, &actions);
        if actions.is_empty() && world.is_idle() {
            return pass;
        }
        world.apply(&actions);
        world.finish_copies();
    }
    panic!("not idle after {most_passes} passes");
}

/// Replicas, bytes and preferred leaders of each node, by id.
fn loads(view: &View) -> Vec<(NodeId, usize, u64, usize)> {
    let mut nodes: Vec<NodeId> = view.nodes.iter().map(|node| node.id).collect();
    nodes.sort_unstable();
    let load = |id: NodeId| {
        let here = || view.tablets.iter().filter(|tablet| tablet.replicas.contains(&id));
        let leads = view.tablets.iter().filter(|tablet| tablet.replicas.first() == Some(&id)).count();
        (id, here().count(), here().map(|tablet| tablet.bytes).sum(), leads)
    };
    nodes.into_iter().map(load).collect()
}
