//! Adding and losing nodes: the balancer runs on an imagined cluster, and copies take the time that the rate limit
//! gives them.
//!
//! Always true: the cluster is balanced at first and has tablets of one size; each receiving and each sending node
//! keeps to the rate (`World`). Time runs from the moment when the new nodes join, or when the lost ones fall silent.
//! The balancer runs again whenever a copy has ended.
//!
//! Left out: data that is written meanwhile; the time for opening and catching up (`Question::copy_efficiency` covers
//! it).

use super::question::{Question, TABLETS_PER_NODE};
use super::world::World;
use crate::balance::{DiskView, Limits, NodeState, NodeView, TabletView, View, balance, progress};
use crate::catalog::Replication;
use diorite_base::{NodeId, TableId, TabletId};
use serde::Serialize;
use std::sync::Arc;

/// More tablets than this, or than [`SIMULATED_PER_NODE`] for each node, are simulated as this many larger ones.
const SIMULATED_TABLETS: u32 = 1_000;
const SIMULATED_PER_NODE: u32 = 10;

/// The number of samples of the nodes' bytes, evenly over the duration of the change.
const SAMPLES: usize = 61;

/// The kind of change.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum ChangeKind {
    /// Nodes join.
    Add,
    /// Nodes fall silent for good.
    Lose,
}

/// The course of a change.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Change {
    /// Its kind.
    pub kind: ChangeKind,
    /// The number of nodes.
    pub nodes: u32,
    /// Seconds until copying starts: 0 for nodes that join, the time until nodes are replaced for nodes that are lost.
    pub starts_after_s: f64,
    /// Seconds until the first new replica serves; `None` if nothing was copied.
    pub first_replica_after_s: Option<f64>,
    /// Seconds until everything is in its place.
    pub ends_after_s: f64,
    /// Replicas copied, as simulated.
    pub copies: u64,
    /// Bytes copied.
    pub copied_bytes: u64,
    /// The most bytes that any node receives, and its average rate.
    pub busiest_receiver: Flow,
    /// The same for what any node sends.
    pub busiest_sender: Flow,
    /// Tablets that cannot get their wanted replicas.
    #[serde(rename = "stuck_tablets")]
    pub stalled_tablets: u64,
    /// Node ids, in the order of the samples' bytes.
    pub node_ids: Vec<NodeId>,
    /// Bytes on every node over time.
    pub samples: Vec<Sample>,
}

/// Bytes through one end of a node.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize)]
pub struct Flow {
    /// In all.
    pub bytes: u64,
    /// On average, from the start of copying to the end.
    pub bytes_per_second: f64,
}

/// What every node holds at one moment.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Sample {
    /// Seconds since the change began.
    pub at_s: f64,
    /// Bytes on each node, in the order of `Change::node_ids`.
    pub bytes: Vec<u64>,
}

impl Change {
    pub(super) fn warnings(&self) -> Option<String> {
        (self.stalled_tablets > 0).then(|| match self.kind {
            ChangeKind::Add => "some tablets cannot get all their replicas even with the new nodes".to_owned(),
            ChangeKind::Lose => {
                "after the loss some tablets cannot get back all their replicas: too few nodes, or a quorum is lost"
                    .to_owned()
            }
        })
    }
}

/// The cluster before the change, balanced.
fn cluster(question: &Question) -> World {
    let nodes: Vec<NodeView> = (0..question.nodes).map(|at| node(question, at)).collect();
    let tablets = question.tablets.unwrap_or(question.nodes * TABLETS_PER_NODE);
    let tablets = tablets.min(SIMULATED_TABLETS.max(question.nodes * SIMULATED_PER_NODE));
    let bytes = question.data_bytes / u64::from(tablets) / u64::from(question.replication);
    let wanted = Arc::new(Replication::Anywhere(question.replication));
    let tablet = |at: u32| {
        let turn = |replica: u32| NodeId(u64::from((at + replica) % question.nodes) + 1);
        let replicas: Vec<NodeId> = (0..question.replication).map(turn).collect();
        TabletView {
            id: TabletId(u64::from(at) + 1),
            table: TableId(1),
            bytes,
            wanted: Arc::clone(&wanted),
            leader: replicas.first().copied(),
            disks: replicas.iter().map(|node| (*node, 0)).collect(),
            replicas,
            leaving: Vec::new(),
            arriving: Vec::new(),
            is_reshaping: false,
        }
    };
    let rate = question.rate_bytes_per_second as f64 * question.copy_efficiency;
    let limits = Limits { bytes_per_second: rate as u64, ..Limits::default() };
    let tablets: Vec<TabletView> = (0..tablets).map(tablet).collect();
    let mut view = View { nodes, tablets, limits, preferred_leader_zones: Vec::new(), paused: false };
    for tablet in &view.tablets {
        for (on, _) in &tablet.disks {
            let disk = &mut view.nodes[on.0 as usize - 1].disks[0];
            disk.free_bytes = disk.free_bytes.saturating_sub(bytes);
        }
    }
    let mut world = World::new(view);
    loop {
        let actions = balance(&world.view);
        if actions.is_empty() {
            return world;
        }
        world.apply(&actions);
        world.finish_copies();
    }
}

/// Node `at`, with disks that hold several times its share if none are given.
fn node(question: &Question, at: u32) -> NodeView {
    let share = question.data_bytes.div_ceil(u64::from(question.nodes));
    let total_bytes = question.node.disk_bytes_per_node.unwrap_or(share.saturating_mul(4)).max(1);
    NodeView {
        id: NodeId(u64::from(at) + 1),
        zone: format!("zone{}", at % question.zones + 1),
        data_center: "datacenter1".to_owned(),
        state: NodeState::Live,
        may_lead: true,
        disks: vec![DiskView { total_bytes, free_bytes: total_bytes, reserve_bytes: 0, failed: false }],
    }
}

/// Measurements during a change.
struct Watch {
    samples: Vec<Sample>,
    copies: u64,
    first_replica_after_s: Option<f64>,
    received: Vec<u64>,
    sent: Vec<u64>,
}

pub(super) fn simulate(question: &Question, kind: ChangeKind) -> Change {
    let mut world = cluster(question);
    let nodes = match kind {
        ChangeKind::Add => question.add,
        ChangeKind::Lose => question.lose,
    };
    let mut samples = vec![sample(&world)];
    let starts_after_s = match kind {
        ChangeKind::Add => {
            (0..nodes).for_each(|new| world.add_node(node(question, question.nodes + new)));
            0.0
        }
        ChangeKind::Lose => {
            let lost = (question.nodes - nodes..question.nodes).map(|at| NodeId(u64::from(at) + 1));
            lost.for_each(|id| world.set_state(id, NodeState::Dead));
            question.replace_after_s as f64
        }
    };
    world.now_s = starts_after_s;
    samples.push(sample(&world));
    let all = world.view.nodes.len();
    let mut watch =
        Watch { samples, copies: 0, first_replica_after_s: None, received: vec![0; all], sent: vec![0; all] };
    copy(&mut world, &mut watch);
    let seconds = world.now_s - starts_after_s;
    let busiest = |bytes: &[u64]| {
        let bytes = bytes.iter().max().copied().unwrap_or(0);
        Flow { bytes, bytes_per_second: if seconds > 0.0 { bytes as f64 / seconds } else { 0.0 } }
    };
    Change {
        kind,
        nodes,
        starts_after_s,
        first_replica_after_s: watch.first_replica_after_s,
        ends_after_s: world.now_s,
        copies: watch.copies,
        copied_bytes: watch.received.iter().sum(),
        busiest_receiver: busiest(&watch.received),
        busiest_sender: busiest(&watch.sent),
        stalled_tablets: progress(&world.view).stalled_total,
        node_ids: world.view.nodes.iter().map(|node| node.id).collect(),
        samples: thin(&watch.samples, all),
    }
}

/// Runs the balancer and the copies until there is nothing left to do.
fn copy(world: &mut World, watch: &mut Watch) {
    loop {
        let actions = balance(&world.view);
        world.apply(&actions);
        if world.is_idle() {
            if actions.is_empty() {
                return;
            }
            continue;
        }
        let before = arrivals(&world.view);
        // Every copy has a sender that answers, as nodes are lost only before the first copy: so some copy ends.
        world.advance(f64::MAX);
        let after = arrivals(&world.view);
        for (key @ (_, to, from), left) in &before {
            let moved = left - after.iter().find(|(other, _)| other == key).map_or(0, |(_, left)| *left);
            watch.received[to.0 as usize - 1] += moved;
            watch.sent[from.0 as usize - 1] += moved;
        }
        let ended = (before.len() - after.len()) as u64;
        watch.copies += ended;
        if ended > 0 && watch.first_replica_after_s.is_none() {
            watch.first_replica_after_s = Some(world.now_s);
        }
        watch.samples.push(sample(world));
    }
}

type Copy = ((TabletId, NodeId, NodeId), u64);

/// The remaining bytes of copies under way.
fn arrivals(view: &View) -> Vec<Copy> {
    let all = view.tablets.iter().flat_map(|tablet| tablet.arriving.iter().map(move |arrival| (tablet.id, arrival)));
    let copies = all.map(|(tablet, arrival)| {
        let from = arrival.from.expect("a copy is started only where a voter answers");
        ((tablet, arrival.node, from), arrival.bytes_left)
    });
    copies.collect()
}

fn sample(world: &World) -> Sample {
    let bytes = |node: &NodeView| match node.state {
        NodeState::Dead => 0,
        _ => node.disks.iter().map(|disk| disk.total_bytes - disk.free_bytes).sum(),
    };
    Sample { at_s: world.now_s, bytes: world.view.nodes.iter().map(bytes).collect() }
}

/// Reduces the samples to the number that is kept, each the last one at its time; nodes that were not there yet hold
/// nothing.
fn thin(samples: &[Sample], nodes: usize) -> Vec<Sample> {
    let end_s = samples.last().map_or(0.0, |sample| sample.at_s);
    let at = |at_s: f64| {
        let after = samples.partition_point(|sample| sample.at_s <= at_s);
        let found = samples.get(after.saturating_sub(1)).cloned();
        let next = samples.get(after);
        let mut found = found.unwrap_or(Sample { at_s, bytes: Vec::new() });
        found.bytes.resize(nodes, 0);
        // Copies progress evenly between two events.
        if let Some(next) = next.filter(|next| next.bytes.len() == nodes) {
            let part = (at_s - found.at_s) / (next.at_s - found.at_s);
            for (bytes, to) in found.bytes.iter_mut().zip(&next.bytes) {
                *bytes = (*bytes as f64 + (*to as f64 - *bytes as f64) * part) as u64;
            }
        }
        Sample { at_s, bytes: found.bytes }
    };
    (0..SAMPLES).map(|step| at(end_s * step as f64 / (SAMPLES - 1) as f64)).collect()
}
