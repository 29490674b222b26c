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

    /// Whether a node that does not count as restarted may have been: its process has run for less than `elapsed_ms`, the
    /// time since the restart began when the plan arrived.
    pub(crate) fn is_doubtful(&self, elapsed_ms: u64) -> bool {
        let is_younger = |node: &NodeTurn| node.uptime_ms.is_some_and(|uptime_ms| uptime_ms < elapsed_ms);
        self.nodes.iter().any(|node| node.turn != "restarted" && is_younger(node))
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
    /// How long its process had run when the question arrived, milliseconds, if it answers.
    pub uptime_ms: Option<u64>,
}
