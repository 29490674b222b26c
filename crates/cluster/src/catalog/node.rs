//! A member of the cluster, and what it says about itself.
//!
//! Always true: a node is recognised by its host id; its id is never given to another.

use diorite_base::NodeId;
use serde::{Deserialize, Serialize};
use std::net::{IpAddr, SocketAddr};
use uuid::Uuid;

/// What a node says about itself when it registers.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct NodeDescription {
    /// Made by the node when its store was created; how it is recognised.
    pub host_id: Uuid,
    /// Where it is reached.
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
    /// What other nodes dial, if that is not `address` and `rpc_port`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub node_address: Option<SocketAddr>,
}

impl NodeDescription {
    /// What other nodes dial.
    pub fn node_address(&self) -> SocketAddr {
        self.node_address.unwrap_or(SocketAddr::new(self.address, self.rpc_port))
    }
}

/// A member of the cluster.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Node {
    /// Assigned by the catalog.
    pub id: NodeId,
    /// What the node says about itself.
    #[serde(flatten)]
    pub description: NodeDescription,
    /// What it is there for.
    #[serde(default, skip_serializing_if = "NodeState::is_active")]
    pub state: NodeState,
    /// Whether others are to lead what it holds.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub leads_nothing: bool,
    /// The zone that an operator has put it in, whatever it says itself.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub assigned_zone: Option<String>,
}

impl Node {
    /// Its address.
    pub fn address(&self) -> IpAddr {
        self.description.address
    }

    /// The zone that counts.
    pub fn zone(&self) -> &str {
        self.assigned_zone.as_deref().unwrap_or(&self.description.zone)
    }
}

/// What a member of the cluster is there for.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum NodeState {
    /// It holds replicas.
    #[default]
    Active,
    /// It is to hold none any more.
    Draining,
    /// It has been silent for so long that its replicas are made anew elsewhere.
    Dead,
}

impl NodeState {
    /// Whether it is [`NodeState::Active`].
    pub fn is_active(&self) -> bool {
        *self == NodeState::Active
    }
}
