//! Safety of actions, checked against the view that they were made from.

use super::*;
use std::collections::{BTreeMap, BTreeSet};

/// A view with lookups.
struct Judge<'a> {
    view: &'a View,
    nodes: BTreeMap<NodeId, &'a NodeView>,
    tablets: BTreeMap<TabletId, &'a TabletView>,
}

/// # Panics
/// If an action is not safe.
pub(super) fn check(view: &View, actions: &[Action]) {
    let judge = Judge {
        view,
        nodes: view.nodes.iter().map(|node| (node.id, node)).collect(),
        tablets: view.tablets.iter().map(|tablet| (tablet.id, tablet)).collect(),
    };
    let mut seen = BTreeSet::new();
    for action in actions {
        assert!(seen.insert(action.tablet()), "one action per tablet and pass: {action:?}");
        let tablet = judge.tablets[&action.tablet()];
        assert!(!tablet.is_reshaping, "{tablet:?} is being split or merged: {action:?}");
        match action {
            Action::Place { replicas, reason, .. } => judge.check_place(tablet, replicas, *reason),
            Action::Lead { leader, .. } => judge.check_lead(tablet, *leader),
        }
    }
    judge.check_limits(actions);
}

impl Judge<'_> {
    fn is_lost(&self, tablet: &TabletView, node: NodeId) -> bool {
        let Some(view) = self.nodes.get(&node) else { return true };
        let disk = tablet.disk_on(node).and_then(|disk| view.disks.get(disk));
        view.state == NodeState::Dead || disk.is_some_and(|disk| disk.failed)
    }

    fn answers(&self, tablet: &TabletView, node: NodeId) -> bool {
        let state = self.nodes.get(&node).map(|node| node.state);
        matches!(state, Some(NodeState::Live | NodeState::Draining)) && !self.is_lost(tablet, node)
    }

    fn stays(&self, tablet: &TabletView, node: NodeId) -> bool {
        self.answers(tablet, node) && self.nodes[&node].state == NodeState::Live
    }

    /// In how many zones of a data centre (or of all) the tablet has a replica that stays.
    fn zones(&self, tablet: &TabletView, nodes: &[NodeId], data_center: Option<&str>) -> usize {
        let staying = nodes.iter().filter(|node| self.stays(tablet, **node)).map(|node| self.nodes[node]);
        let here = staying.filter(|node| data_center.is_none_or(|name| node.data_center == name));
        here.map(|node| (&node.data_center, &node.zone)).collect::<BTreeSet<_>>().len()
    }

    fn data_center(&self, node: NodeId) -> Option<&str> {
        self.nodes.get(&node).map(|node| node.data_center.as_str())
    }

    fn check_zones(&self, tablet: &TabletView, replicas: &[NodeId]) {
        for (data_center, wanted) in parts(tablet) {
            let [before, after] = [&tablet.replicas[..], replicas].map(|nodes| self.zones(tablet, nodes, data_center));
            assert!(after >= before.min(wanted as usize), "fewer zones: {replicas:?} instead of {tablet:?}");
        }
    }

    fn check_place(&self, tablet: &TabletView, replicas: &[NodeId], reason: Reason) {
        let what = || format!("{reason}: {replicas:?} instead of {tablet:?}");
        let distinct: BTreeSet<_> = replicas.iter().collect();
        assert_eq!(distinct.len(), replicas.len(), "a node holds one replica of a tablet: {}", what());
        assert!(!replicas.is_empty(), "{}", what());
        let is_repair = matches!(reason, Reason::Lost | Reason::Missing | Reason::Surplus);
        assert!(is_repair || !self.view.paused, "paused: {}", what());
        let lost_arrival = tablet.arriving.iter().any(|arrival| self.is_lost(tablet, arrival.node));
        let lost = tablet.replicas.iter().filter(|node| self.is_lost(tablet, **node)).count();
        let cannot_end = lost_arrival || 2 * lost >= tablet.replicas.len();
        assert!(!tablet.is_changing() || cannot_end, "one change at a time: {}", what());
        let voters: Vec<NodeId> = tablet.voters().collect();
        let answering = voters.iter().filter(|node| self.answers(tablet, **node)).count();
        assert!(answering > voters.len() / 2, "no quorum: {}", what());
        let live = |nodes: &[NodeId]| nodes.iter().filter(|node| self.stays(tablet, **node)).count();
        let answers = |nodes: &[NodeId]| nodes.iter().filter(|node| self.answers(tablet, **node)).count();
        for (data_center, wanted) in parts(tablet) {
            let here = |nodes: &[NodeId]| -> Vec<NodeId> {
                let is_here = |node: &&NodeId| data_center.is_none_or(|name| self.data_center(**node) == Some(name));
                nodes.iter().filter(is_here).copied().collect()
            };
            let (before, after) = (here(&tablet.replicas), here(replicas));
            assert!(live(&after) >= live(&before).min(wanted as usize), "fewer live voters: {}", what());
            assert!(answers(&after) >= answers(&before).min(wanted as usize), "fewer live voters: {}", what());
        }
        assert!(2 * answers(replicas) > replicas.len(), "no quorum afterwards: {}", what());
        self.check_zones(tablet, replicas);
        for node in replicas.iter().filter(|node| !tablet.replicas.contains(node)) {
            assert_eq!(self.nodes[node].state, NodeState::Live, "{}", what());
        }
    }

    fn check_lead(&self, tablet: &TabletView, leader: NodeId) {
        assert!(tablet.replicas.contains(&leader) && tablet.replicas[0] != leader, "{leader} of {tablet:?}");
        assert!(self.stays(tablet, leader), "{leader} of {tablet:?}");
        assert!(!tablet.is_changing() && !self.view.paused, "{leader} of {tablet:?}");
    }

    /// Copies in both directions, and space on disks, including everything under way.
    fn check_limits(&self, actions: &[Action]) {
        let mut world = World::new(self.view.clone());
        world.apply(actions);
        let before = [ends(self.view, true), ends(self.view, false)];
        let after = [ends(&world.view, true), ends(&world.view, false)];
        let most = [self.view.limits.arriving_per_node, self.view.limits.sending_per_node];
        for ((before, after), most) in before.iter().zip(&after).zip(most) {
            for (node, copies) in after {
                if copies.len() > before.get(node).map_or(0, Vec::len) {
                    self.check_pipe(*node, copies, most);
                }
            }
        }
        let mut room_taken: BTreeMap<NodeId, u64> = BTreeMap::new();
        for action in actions {
            let Action::Place { tablet, replicas, .. } = action else { continue };
            let tablet = self.tablets[tablet];
            let new = |node: &&NodeId| !tablet.replicas.contains(node) && !tablet.leaving.contains(node);
            for node in replicas.iter().filter(new) {
                let disks = &self.nodes[node].disks;
                let has_room = |disk: &DiskView| !disk.failed && disk.room_bytes() >= tablet.bytes.max(1);
                assert!(disks.is_empty() || disks.iter().any(has_room), "{node} has no room for {tablet:?}");
                *room_taken.entry(*node).or_default() += tablet.bytes;
            }
        }
        for (node, taken) in room_taken {
            let disks = &self.nodes[&node].disks;
            let room: u64 = disks.iter().map(DiskView::room_bytes).sum();
            assert!(disks.is_empty() || taken <= room, "{node} would pass its soft limit");
        }
    }

    fn check_pipe(&self, node: NodeId, copies: &[u64], most: u32) {
        let limits = self.view.limits;
        let window_bytes = limits.bytes_per_second * Limits::WINDOW_S;
        let but_last = copies.iter().sum::<u64>() - copies.iter().max().copied().unwrap_or(0);
        let is_small = copies.len() <= (most * Limits::SMALL_COPIES) as usize && but_last < window_bytes;
        assert!(limits.bytes_per_second > 0, "copies are switched off");
        assert!(copies.len() <= most as usize || is_small, "{} copies at one end of {node}: {copies:?}", copies.len());
    }
}

/// The parts of a tablet's replication: where, and how many.
fn parts(tablet: &TabletView) -> Vec<(Option<&str>, u32)> {
    match &*tablet.wanted {
        Replication::Anywhere(wanted) => vec![(None, *wanted)],
        Replication::PerDataCenter(parts) => {
            parts.iter().map(|(name, wanted)| (Some(name.as_str()), *wanted)).collect()
        }
    }
}

/// The copies in one direction of each node: the remaining bytes of each.
fn ends(view: &View, is_arriving: bool) -> BTreeMap<NodeId, Vec<u64>> {
    let mut ends: BTreeMap<NodeId, Vec<u64>> = BTreeMap::new();
    for arrival in view.tablets.iter().flat_map(|tablet| &tablet.arriving) {
        let end = if is_arriving { Some(arrival.node) } else { arrival.from };
        end.into_iter().for_each(|end| ends.entry(end).or_default().push(arrival.bytes_left));
    }
    ends
}
