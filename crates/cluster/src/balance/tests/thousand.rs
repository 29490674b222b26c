//! A thousand nodes with two hundred thousand tablets: grown, with a zone lost, drained; in the end everything is in
//! its place.

use super::*;

const NODES: u64 = 1_000;
const TABLETS: u64 = 200_000;
const BYTES: u64 = 20_000_000;

/// Nodes in three zones, and tables of 200 tablets each; replicas as evenly as the balancer leaves them.
fn cluster(nodes: u64, tablets: u64) -> World {
    let made = (0..nodes).map(|id| node(id + 1, ["a", "b", "c"][(id % 3) as usize], 100 * GB)).collect();
    let wanted = Arc::new(Replication::Anywhere(3));
    let tablets = (0..tablets).map(|id| {
        let table = id / 200;
        // Three neighbours are in three zones; a table's tablets are on different ones, and the next round starts one further.
        let first = (id * 3 + id / (nodes / 3) * 2) % nodes;
        let replicas: Vec<u64> = (0..3).map(|at| (first + at) % nodes + 1).collect();
        // Sizes from half to one and a half times the average.
        tablet(id, table, BYTES / 2 + (id * 7_919 % 101) * BYTES / 100, &wanted, &replicas)
    });
    let mut made = view(made, tablets.collect());
    // Enough at once that a few passes suffice.
    made.limits.arriving_per_node = 1_000;
    made.limits.sending_per_node = 1_000;
    made.limits.leader_changes = 20_000;
    World::new(made)
}

/// The ratio of the greatest to the least value, over the nodes that hold replicas.
fn spread(view: &View, of: impl Fn(&(NodeId, usize, u64, usize)) -> f64) -> f64 {
    let live: Vec<NodeId> =
        view.nodes.iter().filter(|node| node.state == NodeState::Live).map(|node| node.id).collect();
    let per_node = quick_loads(view);
    let all: Vec<f64> = per_node.iter().filter(|load| live.contains(&load.0)).map(of).collect();
    let (least, most) =
        all.iter().fold((f64::MAX, 0.0), |(least, most), load| (f64::min(least, *load), f64::max(most, *load)));
    (most - least) / (all.iter().sum::<f64>() / all.len() as f64)
}

/// As `loads`, in one pass over the tablets.
fn quick_loads(view: &View) -> Vec<(NodeId, usize, u64, usize)> {
    let mut loads: Vec<(NodeId, usize, u64, usize)> = view.nodes.iter().map(|node| (node.id, 0, 0, 0)).collect();
    loads.sort_unstable();
    for tablet in &view.tablets {
        for (rank, replica) in tablet.replicas.iter().enumerate() {
            let at = loads.binary_search_by_key(replica, |load| load.0).unwrap();
            let load = &mut loads[at];
            (load.1, load.2, load.3) = (load.1 + 1, load.2 + tablet.bytes, load.3 + usize::from(rank == 0));
        }
    }
    loads
}

fn balance_all(world: &mut World, most_passes: usize) -> usize {
    let mut history = Vec::new();
    for pass in 0..most_passes {
        let actions = balance(&world.view);
        if actions.is_empty() {
            return pass;
        }
        let mut reasons: std::collections::BTreeMap<Reason, usize> = std::collections::BTreeMap::new();
        actions.iter().for_each(|action| *reasons.entry(action.reason()).or_default() += 1);
        history.push(reasons);
        world.apply(&actions);
        world.finish_copies();
    }
    panic!("not idle after {most_passes} passes: {history:?}");
}

fn assert_balanced(world: &World, what: &str) {
    let bytes = spread(&world.view, |load| load.2 as f64);
    let leaders = spread(&world.view, |load| load.3 as f64);
    assert!(bytes <= 0.1, "{what}: bytes are spread by {bytes}");
    assert!(leaders <= 0.1, "{what}: leaders are spread by {leaders}");
    let left = progress(&world.view);
    assert_eq!((left.activity, left.copies_left, left.stalled_total), (Activity::Idle, 0, 0), "{what}");
}

#[test]
fn a_thousand_nodes_grow_lose_a_zone_and_drain() {
    let mut world = cluster(NODES, TABLETS);
    balance_all(&mut world, 40);
    assert_balanced(&world, "at first");
    for id in NODES..NODES + 51 {
        world.add_node(node(id + 1, ["a", "b", "c"][(id % 3) as usize], 100 * GB));
    }
    balance_all(&mut world, 40);
    assert_balanced(&world, "grown by 51 nodes");
    for id in 1..=30 {
        world.set_state(NodeId(id), NodeState::Draining);
    }
    balance_all(&mut world, 60);
    assert!(quick_loads(&world.view)[..30].iter().all(|load| load.1 == 0), "drained nodes are empty");
    assert_balanced(&world, "30 nodes drained");
}

#[test]
fn a_zone_of_a_large_cluster_is_lost() {
    let mut world = cluster(300, 20_000);
    balance_all(&mut world, 20);
    let zone: Vec<NodeId> = world.view.nodes.iter().filter(|node| node.zone == "b").map(|node| node.id).collect();
    zone.iter().for_each(|id| world.set_state(*id, NodeState::Dead));
    let left = progress(&world.view);
    assert_eq!((left.activity, left.under_replicated, left.leaderless), (Activity::Repairing, 20_000, 0));
    balance_all(&mut world, 100);
    assert_balanced(&world, "without a zone");
    assert_eq!(progress(&world.view).under_replicated, 0);
    zone.iter().for_each(|id| world.set_state(*id, NodeState::Live));
    balance_all(&mut world, 100);
    assert_balanced(&world, "the zone is back");
    let zone_of = |id: &NodeId| &world.view.nodes[id.0 as usize - 1].zone;
    for tablet in &world.view.tablets {
        let zones: std::collections::BTreeSet<&String> = tablet.replicas.iter().map(zone_of).collect();
        assert_eq!(zones.len(), 3, "{tablet:?}");
    }
}

#[test]
fn progress_foresees_what_is_then_done() {
    let mut world = cluster(30, 600);
    balance_all(&mut world, 20);
    world.add_node(node(31, "a", 100 * GB));
    let foreseen = progress(&world.view);
    let (mut copies, mut bytes) = (0, 0);
    loop {
        let actions = balance(&world.view);
        if actions.is_empty() {
            break;
        }
        let places = actions.iter().filter(|action| matches!(action, Action::Place { .. }));
        places.for_each(|action| {
            copies += 1;
            bytes += world.tablet(action.tablet()).unwrap().bytes;
        });
        world.apply(&actions);
        world.finish_copies();
    }
    let difference = foreseen.bytes_left.abs_diff(bytes) as f64 / bytes as f64;
    assert!(
        difference < 0.1,
        "foreseen {} bytes in {} copies, done {bytes} in {copies}",
        foreseen.bytes_left,
        foreseen.copies_left
    );
}
