//! An imagined cluster: it carries out the balancer's actions and copies replicas at the rates that nodes allow.
//!
//! Always true: a node receives and sends at most at its rate, shared fairly (max-min) among its copies; a replica
//! votes when its last byte has arrived, and leaving replicas are removed at that moment; disks are filled by the bytes
//! that have arrived. Only [`World::advance`] moves the time.
//!
//! Left out: elections (the preferred leader leads at once), the log that a copy catches up with, disks of a node sharing its rate.

use crate::balance::{Action, Arrival, NodeState, TabletView, View};
use diorite_base::{NodeId, TabletId};
use std::collections::BTreeMap;

/// See the top of this module.
#[derive(Clone, Debug)]
pub struct World {
    /// The cluster as the balancer sees it.
    pub view: View,
    /// Seconds since the start.
    pub now_s: f64,
    nodes: BTreeMap<NodeId, usize>,
    tablets: BTreeMap<TabletId, usize>,
    /// Tablets whose members are changing.
    changing: Vec<usize>,
    /// Fractions of bytes that copies have received beyond whole ones.
    remainders: BTreeMap<(usize, NodeId), f64>,
}

/// A copy under way: indexes into the view, and its rate.
struct Copying {
    tablet: usize,
    to: NodeId,
    from: Option<NodeId>,
    bytes_left: u64,
    rate: f64,
}

/// The number and the remaining bytes of the copies that each node sends.
type Sending = BTreeMap<NodeId, (u32, u64)>;

fn add_copy(sending: &mut Sending, from: NodeId, bytes: u64) {
    let entry = sending.entry(from).or_default();
    *entry = (entry.0 + 1, entry.1 + bytes);
}

impl World {
    /// A cluster with this view.
    pub fn new(view: View) -> Self {
        let nodes = view.nodes.iter().enumerate().map(|(at, node)| (node.id, at)).collect();
        let tablets = view.tablets.iter().enumerate().map(|(at, tablet)| (tablet.id, at)).collect();
        let changing = (0..view.tablets.len()).filter(|at| view.tablets[*at].is_changing()).collect();
        Self { view, now_s: 0.0, nodes, tablets, changing, remainders: BTreeMap::new() }
    }

    /// Adds a node.
    pub fn add_node(&mut self, node: crate::balance::NodeView) {
        self.nodes.insert(node.id, self.view.nodes.len());
        self.view.nodes.push(node);
    }

    /// Changes the state of a node. Nodes that do not answer lead nothing.
    pub fn set_state(&mut self, node: NodeId, state: NodeState) {
        if let Some(at) = self.nodes.get(&node) {
            self.view.nodes[*at].state = state;
        }
        for at in 0..self.view.tablets.len() {
            self.elect(at);
        }
        self.replace_senders();
    }

    /// Copies from nodes that no longer answer continue from others.
    fn replace_senders(&mut self) {
        let mut sending = self.sending();
        for at in self.changing.clone() {
            let answering: Vec<NodeId> =
                self.view.tablets[at].voters().filter(|node| self.has_data(at, *node)).collect();
            for which in 0..self.view.tablets[at].arriving.len() {
                let arrival = &mut self.view.tablets[at].arriving[which];
                if arrival.from.is_none_or(|from| !answering.contains(&from)) {
                    let busy = |voter: &NodeId| (sending.get(voter).copied().unwrap_or_default(), *voter);
                    arrival.from = answering.iter().copied().min_by_key(busy);
                    arrival.from.into_iter().for_each(|from| add_copy(&mut sending, from, arrival.bytes_left));
                }
            }
        }
    }

    /// Whether no tablet's members are changing.
    pub fn is_idle(&self) -> bool {
        self.changing.is_empty()
    }

    /// The tablet with that id.
    pub fn tablet(&self, id: TabletId) -> Option<&TabletView> {
        self.tablets.get(&id).map(|at| &self.view.tablets[*at])
    }

    /// Carries out the balancer's actions.
    pub fn apply(&mut self, actions: &[Action]) {
        let mut sending = self.sending();
        for action in actions {
            let Some(at) = self.tablets.get(&action.tablet()).copied() else { continue };
            match action {
                Action::Place { replicas, .. } => self.place(at, replicas, &mut sending),
                Action::Lead { leader, .. } => {
                    let replicas = &mut self.view.tablets[at].replicas;
                    if let Some(rank) = replicas.iter().position(|node| node == leader) {
                        replicas[..=rank].rotate_right(1);
                    }
                }
            }
            self.elect(at);
        }
    }

    /// The number and the remaining bytes of the copies that each node sends.
    fn sending(&self) -> Sending {
        let mut sending = Sending::new();
        for at in &self.changing {
            for arrival in &self.view.tablets[*at].arriving {
                arrival.from.into_iter().for_each(|from| add_copy(&mut sending, from, arrival.bytes_left));
            }
        }
        sending
    }

    fn place(&mut self, at: usize, replicas: &[NodeId], sending: &mut Sending) {
        let voters: Vec<NodeId> = self.view.tablets[at].voters().collect();
        let was_changing = self.view.tablets[at].is_changing();
        let disks: Vec<(NodeId, usize)> = replicas
            .iter()
            .filter(|node| self.view.tablets[at].disk_on(**node).is_none())
            .filter_map(|node| Some((*node, self.roomiest_disk(*node)?)))
            .collect();
        let answering: Vec<NodeId> = voters.iter().copied().filter(|node| self.has_data(at, *node)).collect();
        let tablet = &mut self.view.tablets[at];
        for gone in tablet.arriving.iter().filter(|arrival| !replicas.contains(&arrival.node)) {
            self.remainders.remove(&(at, gone.node));
        }
        tablet.arriving.retain(|arrival| replicas.contains(&arrival.node));
        tablet.disks.retain(|(node, _)| voters.contains(node) || replicas.contains(node));
        for node in replicas.iter().filter(|node| !voters.contains(node)) {
            if tablet.arriving.iter().any(|arrival| arrival.node == *node) {
                continue;
            }
            let from = answering.iter().copied().min_by_key(|voter| {
                let (copies, bytes) = sending.get(voter).copied().unwrap_or_default();
                (copies, tablet.leader == Some(*voter), bytes, tablet.turn(*voter))
            });
            from.into_iter().for_each(|from| add_copy(sending, from, tablet.bytes));
            tablet.arriving.push(Arrival { node: *node, from, bytes_left: tablet.bytes });
        }
        tablet.leaving = voters.into_iter().filter(|node| !replicas.contains(node)).collect();
        tablet.replicas = replicas.to_vec();
        tablet.disks.extend(disks);
        if !was_changing {
            self.changing.push(at);
        }
    }

    fn roomiest_disk(&self, node: NodeId) -> Option<usize> {
        let disks = &self.view.nodes[*self.nodes.get(&node)?].disks;
        (0..disks.len()).max_by_key(|disk| (disks[*disk].room_bytes(), std::cmp::Reverse(*disk)))
    }

    fn answers(&self, node: NodeId) -> bool {
        let state = self.nodes.get(&node).map(|at| self.view.nodes[*at].state);
        matches!(state, Some(NodeState::Live | NodeState::Draining))
    }

    /// Whether a voter answers and its disk works.
    fn has_data(&self, at: usize, node: NodeId) -> bool {
        let disk = self.nodes.get(&node).and_then(|index| {
            let disk = self.view.tablets[at].disk_on(node)?;
            self.view.nodes[*index].disks.get(disk)
        });
        self.answers(node) && disk.is_none_or(|disk| !disk.failed)
    }

    /// The first voter that answers leads, if a quorum does.
    fn elect(&mut self, at: usize) {
        let voters: Vec<NodeId> = self.view.tablets[at].voters().collect();
        let answering = voters.iter().filter(|node| self.has_data(at, **node)).count();
        let first = voters.iter().copied().find(|node| self.has_data(at, *node));
        self.view.tablets[at].leader = first.filter(|_| answering > voters.len() / 2);
    }

    /// Ends every change that is under way, as if copies took no time.
    pub fn finish_copies(&mut self) {
        for at in std::mem::take(&mut self.changing) {
            for arrival in std::mem::take(&mut self.view.tablets[at].arriving) {
                self.take_disk(at, arrival.node, arrival.bytes_left);
            }
            self.leave(at);
        }
        self.remainders.clear();
    }

    /// Lets time pass until the first copies have ended, or `most_s` have passed, and returns the time that passed.
    pub fn advance(&mut self, most_s: f64) -> f64 {
        let copies = self.copies();
        let ends = copies.iter().filter(|copy| copy.rate > 0.0).map(|copy| copy.bytes_left as f64 / copy.rate);
        let step_s = ends.fold(most_s, f64::min);
        for copy in copies {
            self.receive(&copy, step_s);
        }
        self.now_s += step_s;
        let tablets = std::mem::take(&mut self.changing);
        let (done, rest) = tablets.into_iter().partition(|at| self.view.tablets[*at].arriving.is_empty());
        self.changing = rest;
        let done: Vec<usize> = done;
        done.into_iter().for_each(|at| self.leave(at));
        step_s
    }

    fn receive(&mut self, copy: &Copying, step_s: f64) {
        let remainder = self.remainders.entry((copy.tablet, copy.to)).or_insert(0.0);
        let bytes = copy.rate * step_s + *remainder;
        // Rounding can cost half a byte; a copy that is that close is done.
        let whole = ((bytes + 0.5).floor() as u64).min(copy.bytes_left);
        *remainder = bytes - whole as f64;
        self.take_disk(copy.tablet, copy.to, whole);
        let arriving = &mut self.view.tablets[copy.tablet].arriving;
        if whole == copy.bytes_left {
            arriving.retain(|arrival| arrival.node != copy.to);
            self.remainders.remove(&(copy.tablet, copy.to));
        } else if let Some(arrival) = arriving.iter_mut().find(|arrival| arrival.node == copy.to) {
            arrival.bytes_left -= whole;
        }
    }

    fn take_disk(&mut self, tablet: usize, node: NodeId, bytes: u64) {
        let (Some(at), Some(disk)) = (self.nodes.get(&node), self.view.tablets[tablet].disk_on(node)) else { return };
        if let Some(disk) = self.view.nodes[*at].disks.get_mut(disk) {
            disk.free_bytes = disk.free_bytes.saturating_sub(bytes);
        }
    }

    /// Removes the leaving members, with their files.
    fn leave(&mut self, at: usize) {
        for node in std::mem::take(&mut self.view.tablets[at].leaving) {
            let tablet = &mut self.view.tablets[at];
            let disk = tablet.disk_on(node);
            let bytes = tablet.bytes;
            tablet.disks.retain(|(on, _)| *on != node);
            if let (Some(index), Some(disk)) = (self.nodes.get(&node), disk) {
                let disk = &mut self.view.nodes[*index].disks[disk];
                disk.free_bytes = (disk.free_bytes + bytes).min(disk.total_bytes);
            }
        }
        self.elect(at);
    }

    /// The copies under way with their rates. Each direction at each node shares its rate among its copies: the
    /// direction with the smallest share fixes the rate of its copies, and the rest is shared by the others.
    fn copies(&self) -> Vec<Copying> {
        let mut copies: Vec<Copying> = Vec::new();
        for tablet in self.changing.iter().copied() {
            for Arrival { node, from, bytes_left } in &self.view.tablets[tablet].arriving {
                copies.push(Copying { tablet, to: *node, from: *from, bytes_left: *bytes_left, rate: 0.0 });
            }
        }
        copies.retain(|copy| self.answers(copy.to) && copy.from.is_none_or(|from| self.answers(from)));
        let rate = self.view.limits.bytes_per_second as f64;
        let mut ends: BTreeMap<(bool, NodeId), (f64, Vec<usize>)> = BTreeMap::new();
        for (at, copy) in copies.iter().enumerate() {
            ends.entry((true, copy.to)).or_insert((rate, Vec::new())).1.push(at);
            copy.from.into_iter().for_each(|from| ends.entry((false, from)).or_insert((rate, Vec::new())).1.push(at));
        }
        while let Some((narrow, share)) = ends
            .iter()
            .map(|(end, (rate, copies))| (*end, rate / copies.len() as f64))
            .min_by(|a, b| a.1.total_cmp(&b.1).then(a.0.cmp(&b.0)))
        {
            let (_, decided) = ends.remove(&narrow).expect("it was just found");
            for at in decided {
                copies[at].rate = share;
                let others = [Some((true, copies[at].to)), copies[at].from.map(|from| (false, from))];
                for end in others.into_iter().flatten() {
                    if let Some((rate, at_end)) = ends.get_mut(&end) {
                        *rate = (*rate - share).max(0.0);
                        at_end.retain(|other| *other != at);
                    }
                }
            }
            ends.retain(|_, (_, copies)| !copies.is_empty());
        }
        copies
    }
}
