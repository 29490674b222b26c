//! Times a pass of the balancer over 1,000 nodes with 200,000 tablets, for each rule that has something to do.
//! `cargo run --release -p diorite-cluster --example balancer_timing`

use diorite_base::{Clock, NodeId, SystemClock, TableId, TabletId};
use diorite_cluster::balance::{Action, DiskView, Limits, NodeState, NodeView, TabletView, View, balance, progress};
use diorite_cluster::catalog::Replication;
use diorite_cluster::plan::world::World;
use std::sync::Arc;

const NODES: u64 = 1_000;
const TABLETS: u64 = 200_000;
const TABLET_BYTES: u64 = 2_000_000_000;
const DISK_BYTES: u64 = 8_000_000_000_000;
const ZONES: [&str; 3] = ["a", "b", "c"];

fn node(id: u64) -> NodeView {
    let disk =
        DiskView { total_bytes: DISK_BYTES, free_bytes: DISK_BYTES, reserve_bytes: DISK_BYTES / 10, failed: false };
    NodeView {
        id: NodeId(id + 1),
        zone: ZONES[(id % 3) as usize].to_owned(),
        data_center: "dc".to_owned(),
        state: NodeState::Live,
        may_lead: true,
        disks: vec![disk],
    }
}

/// Tables of 200 tablets each, of unequal sizes, three replicas in three zones.
fn cluster() -> World {
    let wanted = Arc::new(Replication::Anywhere(3));
    let tablet = |id: u64| {
        let first = (id * 3 + id / (NODES / 3) * 2) % NODES;
        let replicas: Vec<NodeId> = (0..3).map(|at| NodeId((first + at) % NODES + 1)).collect();
        TabletView {
            id: TabletId(id),
            table: TableId(id / 200),
            bytes: TABLET_BYTES / 2 + (id * 7_919 % 101) * TABLET_BYTES / 100,
            wanted: Arc::clone(&wanted),
            leader: replicas.first().copied(),
            disks: replicas.iter().map(|node| (*node, 0)).collect(),
            replicas,
            leaving: Vec::new(),
            arriving: Vec::new(),
            is_reshaping: false,
        }
    };
    World::new(View {
        nodes: (0..NODES).map(node).collect(),
        tablets: (0..TABLETS).map(tablet).collect(),
        limits: Limits { leader_changes: 20_000, ..Limits::default() },
        preferred_leader_zones: Vec::new(),
        paused: false,
    })
}

fn time(clock: &impl Clock, what: &str, view: &View) -> Vec<Action> {
    let start = clock.monotonic_ns();
    let actions = balance(view);
    let middle = clock.monotonic_ns();
    let left = progress(view);
    let end = clock.monotonic_ns();
    println!(
        "{what:34} {:6.0} ms for {:6} actions; {:6.0} ms to foresee {:6} copies and {:6} leaders",
        (middle - start) as f64 / 1e6,
        actions.len(),
        (end - middle) as f64 / 1e6,
        left.copies_left,
        left.leader_changes_left,
    );
    actions
}

fn main() {
    let clock = SystemClock::new();
    let mut world = cluster();
    time(&clock, "as it was made", &world.view);
    // So many copies at once that a few passes are enough to get to where there is nothing left to do.
    world.view.limits.arriving_per_node = 1_000;
    world.view.limits.sending_per_node = 1_000;
    loop {
        let actions = balance(&world.view);
        if actions.is_empty() {
            break;
        }
        world.apply(&actions);
        world.finish_copies();
    }
    world.view.limits = Limits { leader_changes: 20_000, ..Limits::default() };
    time(&clock, "balanced", &world.view);
    let balanced = world.clone();
    (0..100).for_each(|id| world.add_node(node(NODES + id)));
    let actions = time(&clock, "100 nodes join", &world.view);
    world.apply(&actions);
    time(&clock, "the pass after that", &world.view);
    let mut world = balanced.clone();
    world.set_state(NodeId(1), NodeState::Dead);
    time(&clock, "a node is lost", &world.view);
    let mut world = balanced.clone();
    let zone = (0..NODES).filter(|id| id % 3 == 1).map(|id| NodeId(id + 1));
    zone.for_each(|id| world.set_state(id, NodeState::Dead));
    time(&clock, "a zone is lost", &world.view);
    let mut world = balanced;
    (1..=50).for_each(|id| world.set_state(NodeId(id), NodeState::Draining));
    time(&clock, "50 nodes are drained", &world.view);
}
