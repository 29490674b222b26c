//! The upgrade of a cluster from one release to the next.

use diorite_base::{Level, Levels, NodeId};
use serde::{Deserialize, Serialize};

/// How far an upgrade is.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct UpgradeStatus {
    /// The level of the cluster.
    pub level: Level,
    /// How far the upgrade to the next level is.
    pub state: UpgradeState,
    /// Why the upgrade cannot be finished.
    pub blocked_by: Vec<String>,
    /// How long until it is finished by itself, seconds; `None`: it is not to be.
    pub finishes_in_s: Option<u64>,
    /// The nodes, by id.
    pub nodes: Vec<NodeLevels>,
}

/// How far the upgrade to the next level is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum UpgradeState {
    /// No node has a program that knows a higher level.
    Finished,
    /// Not all nodes have one. Any node may go back.
    UnderWay,
    /// All nodes have one. Any node may go back until it is finished.
    Ready,
    /// The same, and an operator holds it.
    Held,
}

/// The program of a node.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct NodeLevels {
    /// The node.
    pub node: NodeId,
    /// Its address.
    pub address: String,
    /// Whether it is up.
    pub is_up: bool,
    /// The version of its program, as of its last report.
    pub program: Option<String>,
    /// The levels that the program knows, as of its last report.
    pub levels: Option<Levels>,
}
