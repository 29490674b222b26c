//! Nodes, zones, tables and tablets with their loads in a pass of the balancer.
//!
//! The unit of load is the average replica: a node's bytes divided by the size of the average replica, so that bytes
//! and counts have equal weight. Loads of nodes are divided by the node's weight: the size of its disks over that of
//! the average node.

use super::ranking::Measure;
use super::view::{Limits, NodeState, TabletView};
use diorite_base::NodeId;

/// The copies under way in one direction at a node.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Pipe {
    pub copies: u32,
    pub bytes: u64,
}

impl Pipe {
    pub(super) fn add(&mut self, bytes: u64) {
        self.copies += 1;
        self.bytes += bytes;
    }

    /// Whether one more may start.
    pub(super) fn is_open(&self, copies: u32, limits: &Limits) -> bool {
        let window_bytes = limits.bytes_per_second.saturating_mul(Limits::WINDOW_S);
        let are_small = self.bytes < window_bytes && self.copies < copies.saturating_mul(Limits::SMALL_COPIES);
        limits.bytes_per_second > 0 && copies > 0 && (self.copies < copies || are_small)
    }
}

/// The copies under way in both directions at a node.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Pipes {
    pub receiving: Pipe,
    pub sending: Pipe,
}

/// The disks of a node, in its order.
pub(super) struct Disks {
    /// The bytes that each may still take; empty if the disks are not known, which counts as space.
    pub rooms: Vec<u64>,
    /// How much fuller each is than the node, from -1 to 1.
    pub excess: Vec<f64>,
    pub failed: Vec<bool>,
}

/// A node and its loads.
pub(super) struct Node {
    pub id: NodeId,
    pub state: NodeState,
    pub may_lead: bool,
    /// Index into [`super::ledger::Ledger::zones`].
    pub zone: u32,
    /// Whether it is live and has a working disk.
    pub accepts: bool,
    /// The size of its disks over that of the average node.
    pub weight: f64,
    /// Its bytes, in average replicas.
    pub bytes: f64,
    pub replicas: u32,
    /// Tablets that it is the preferred leader of.
    pub leaders: u32,
    pub pipes: Pipes,
    /// Tablets with a replica here, according to the view.
    pub tablets: Vec<u32>,
    pub disks: Disks,
}

impl Node {
    /// Its load by a measure, divided by its weight.
    pub fn load(&self, by: Measure) -> f64 {
        match by {
            Measure::Bytes => self.bytes / self.weight,
            Measure::Count => f64::from(self.replicas) / self.weight,
        }
    }

    /// Whether a disk takes this many bytes. An empty tablet too needs a disk below its soft limit.
    pub(super) fn has_room(&self, bytes: u64) -> bool {
        self.disks.rooms.is_empty() || self.disks.rooms.iter().any(|room| *room >= bytes.max(1))
    }

    /// Subtracts the bytes of a coming replica from the disk with the most space, where the node would put it.
    pub(super) fn reserve(&mut self, bytes: u64) {
        if let Some(most) = self.disks.rooms.iter_mut().max() {
            *most = most.saturating_sub(bytes);
        }
    }

    pub(super) fn answers(&self) -> bool {
        matches!(self.state, NodeState::Live | NodeState::Draining)
    }
}

/// A zone of a data centre.
pub(super) struct Zone {
    pub data_center: u32,
    /// Nodes in it that accept replicas.
    pub accepting: u32,
    /// Whether leaders should be here if possible.
    pub is_preferred: bool,
}

/// A tablet, with nodes by index.
pub(super) struct Tablet<'a> {
    pub view: &'a TabletView,
    /// Index into [`super::ledger::Ledger::tables`].
    pub table: u32,
    /// In average replicas.
    pub size: f64,
    /// Whether it gets no action, or no further one, in this pass.
    pub is_done: bool,
    pub(super) first: u32,
    pub(super) count: u32,
}

/// One node's share of one table.
#[derive(Clone, Copy, Debug)]
pub(super) struct Share {
    pub node: u32,
    pub replicas: u32,
    /// The size of the replicas, in average replicas.
    pub size: f64,
    pub leaders: u32,
}

/// A table's tablets, and the nodes' shares of them.
#[derive(Default)]
pub(super) struct Table {
    pub tablets: Vec<u32>,
    pub shares: Vec<Share>,
}

impl Table {
    pub fn share(&self, node: u32) -> Share {
        let found = self.shares.binary_search_by_key(&node, |share| share.node);
        found.map_or(Share { node, replicas: 0, size: 0.0, leaders: 0 }, |at| self.shares[at])
    }

    pub(super) fn share_mut(&mut self, node: u32) -> &mut Share {
        let at = self.shares.binary_search_by_key(&node, |share| share.node).unwrap_or_else(|at| {
            self.shares.insert(at, Share { node, replicas: 0, size: 0.0, leaders: 0 });
            at
        });
        &mut self.shares[at]
    }
}

/// The state of a replica's node and disk.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Standing {
    Live,
    Draining,
    Suspect,
    Lost,
}

/// The nodes among which a choice is made.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Scope {
    Anywhere,
    DataCenter(u32),
    /// A data centre without nodes.
    Nowhere,
}
