//! A member of the cluster, and its description of itself.
//!
//! Always true: a node is recognised by its host id; its node id is never assigned to another node.

use diorite_base::{Levels, NodeId};
use serde::{Deserialize, Serialize};
use std::net::{IpAddr, SocketAddr};
use uuid::Uuid;

/// A node's description of itself, with which it registers.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct NodeDescription {
    /// Created by the node with its data directory. The node is recognised by it.
    pub host_id: Uuid,
    /// The address of its listeners.
    pub address: IpAddr,
    /// Port of the CQL listener.
    pub cql_port: u16,
    /// Port of the node-to-node listener.
    pub rpc_port: u16,
    /// Port of the HTTP listener.
    pub http_port: u16,
    /// Data centre, as drivers see it.
    pub data_center: String,
    /// Zone (the rack, as drivers see it).
    pub zone: String,
    /// The address that other nodes dial, if it is not `address` and `rpc_port`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub node_address: Option<SocketAddr>,
    /// The levels that its program knows; not kept below [`diorite_base::Level::RECORDED`].
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub levels: Option<Levels>,
}

impl NodeDescription {
    /// The address that other nodes dial.
    pub fn node_address(&self) -> SocketAddr {
        self.node_address.unwrap_or(SocketAddr::new(self.address, self.rpc_port))
    }
}

/// A member of the cluster.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Node {
    /// Assigned by the catalog.
    pub id: NodeId,
    /// The node's description of itself.
    #[serde(flatten)]
    pub description: NodeDescription,
    /// Its state.
    #[serde(default, skip_serializing_if = "NodeState::is_active")]
    pub state: NodeState,
    /// Whether other nodes are to lead the tablets of which it holds replicas.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub leads_nothing: bool,
    /// The zone to which an operator has assigned it, whatever its own description says.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub assigned_zone: Option<String>,
}

impl Node {
    /// Its address.
    pub fn address(&self) -> IpAddr {
        self.description.address
    }

    /// The zone that is in force.
    pub fn zone(&self) -> &str {
        self.assigned_zone.as_deref().unwrap_or(&self.description.zone)
    }
}

/// The state of a member.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum NodeState {
    /// It holds replicas.
    #[default]
    Active,
    /// Its replicas are being moved to other nodes.
    Draining,
    /// It has been silent for so long that its replicas are rebuilt on other nodes.
    Dead,
}

impl NodeState {
    /// Whether it is [`NodeState::Active`].
    pub fn is_active(&self) -> bool {
        *self == NodeState::Active
    }
}
