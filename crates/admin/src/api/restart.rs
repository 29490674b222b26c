//! The plan of a restart of all nodes, one after another.

use diorite_base::{NodeId, TabletId};
use serde::{Deserialize, Serialize};

/// The order of a restart, and whether the next node may be restarted now.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct RestartPlan {
    /// All nodes, in the order in which they are restarted.
    pub nodes: Vec<NodeTurn>,
    /// The node to restart next; `None`: all have been restarted.
    pub next: Option<NodeId>,
    /// Whether it may be restarted now.
    pub may_go: bool,
    /// Why nothing may be restarted now.
    pub waits_for: Vec<String>,
    /// The tablets that have no quorum while the next node is down, as they have too few replicas.
    pub interrupted: Vec<TabletId>,
}

impl RestartPlan {
    /// Whether all nodes have been restarted, and the last one has recovered.
    pub fn is_finished(&self) -> bool {
        self.next.is_none() && self.waits_for.is_empty()
    }
}

/// A node in the plan.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct NodeTurn {
    /// The node.
    pub node: NodeId,
    /// Its address.
    pub address: String,
    /// Its zone.
    pub zone: String,
    /// `restarted`, `next` or `later`.
    pub turn: String,
    /// How long its process has run, milliseconds, if it answers.
    pub uptime_ms: Option<u64>,
}
