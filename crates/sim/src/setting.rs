//! The common settings of all nodes of a cluster, what is known of it as a whole, and the differences between nodes.

use crate::clock::TrueTime;
use crate::network::Network;
use crate::options::Planting;
use crate::ranges::Ranges;
use crate::rows::Said;
use diorite_base::NodeId;
use diorite_cluster::catalog::Catalog;
use diorite_control::planted::Planted as ControlPlanted;
use diorite_control::steering::Timing;
use diorite_replica::{Durability, Planted};
use diorite_storage::ValueSemantics;
use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::sync::Arc;

/// The errors of a node's clocks, and its disks.
#[derive(Clone, Copy, Debug)]
pub struct Quirks {
    /// The monotonic clock goes too fast by so many parts per million.
    pub rate_error_ppm: i64,
    /// The wall clock is off, microseconds.
    pub wall_error_us: i64,
    /// The longest usual sync, microseconds.
    pub sync_us: u64,
    /// How many data disks it has.
    pub disks: usize,
}

/// The common settings of all nodes of a cluster, and facts about the cluster as a whole.
pub struct Setting {
    /// The newest snapshot of the catalog that some node has applied.
    pub newest: Arc<Catalog>,
    /// The keys of tablets.
    pub ranges: Ranges,
    /// Bugs to be planted in replicas.
    pub planted: Planted,
    /// Bugs to be planted in the control plane.
    pub control: ControlPlanted,
    /// A bug that is planted in what the simulation does itself.
    pub planting: Option<Planting>,
    /// If tablets hold real rows: what their programs have answered.
    pub said: Option<Arc<Said>>,
    /// If tablets hold real rows: what their values mean.
    pub semantics: Option<Arc<dyn ValueSemantics>>,
    /// When acknowledged writes are durable.
    pub durability: Durability,
    /// The network.
    pub network: Network,
    /// True time.
    pub time: TrueTime,
    /// How long the balancer waits for things.
    pub timing: Timing,
}

/// The answer to a node's join.
#[derive(Clone, Debug, Default)]
pub struct Joined {
    /// The version of the catalog in which it became a member. `None`: it is the first node.
    pub version: Option<u64>,
    /// The members.
    pub members: BTreeMap<NodeId, SocketAddr>,
}
