//! The cluster's own record: its identity, its settings, and the counters from which ids are assigned.
//!
//! Always true: an id is assigned once.

use diorite_base::{Level, NodeId, TabletId};
use serde::{Deserialize, Serialize};
use uuid::Uuid;

/// The first tablet id that is assigned; group ids below it are reserved for the catalog and similar groups.
pub const FIRST_TABLET_ID: u64 = 1_000;

/// The cluster's own record: its identity, its settings, and the counters from which ids are assigned.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Identity {
    /// Distinguishes clusters; `None` until the first command.
    pub cluster_id: Option<Uuid>,
    /// `cluster_name` as drivers see it.
    pub name: String,
    /// The smallest replication factor of a keyspace, and that of a keyspace that names none.
    pub replication_factor: u32,
    /// Grows by one with every change.
    pub version: u64,
    /// What operators have set for the whole cluster.
    #[serde(default)]
    pub settings: Settings,
    /// Whether clients have to log in; `None`: not decided yet, as in catalogs of earlier versions.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(super) requires_login: Option<bool>,
    /// The level of the cluster. Absent from catalogs of the first one.
    #[serde(default, skip_serializing_if = "Level::is_first")]
    pub(super) level: Level,
    pub(super) next_node: u64,
    pub(super) next_table: u64,
    pub(super) next_tablet: u64,
}

impl Identity {
    /// Whether the tablet's id has been assigned. A tablet with an assigned id and no placement was dropped.
    pub fn has_numbered(&self, tablet: TabletId) -> bool {
        tablet.0 < self.next_tablet
    }

    /// The id of the next tablet.
    pub fn next_tablet(&self) -> TabletId {
        TabletId(self.next_tablet)
    }

    /// Whether the node's id has been assigned. A node with an assigned id that is no member was removed.
    pub fn has_numbered_node(&self, node: NodeId) -> bool {
        node.0 < self.next_node
    }
}

/// The settings of the whole cluster, which operators change; each node has options of its own beside them.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct Settings {
    /// The rate limit of copies of replicas, bytes per second and node.
    pub copy_rate_bytes: u64,
    /// Whether the balancer moves nothing.
    pub balancing_is_paused: bool,
    /// How long a node may be silent before its replicas are rebuilt on others, milliseconds.
    pub replace_after_ms: u64,
    /// Zones in which leaders are to be, if replicas there are live; empty: all zones.
    pub preferred_leader_zones: Vec<String>,
    /// Tablets with more bytes in files are split; 0: only on request.
    pub split_bytes: u64,
    /// Tablets with more reads and writes a second, over a long enough time, are split; 0: only on request.
    pub split_operations_per_second: u64,
    /// Neighbours that have no more bytes in files together are merged, if the table has more tablets than it was
    /// created with; 0: never.
    pub merge_bytes: u64,
}

impl Default for Settings {
    fn default() -> Self {
        Self {
            copy_rate_bytes: 200_000_000,
            balancing_is_paused: false,
            // Long enough for a machine to be restarted.
            replace_after_ms: 15 * 60 * 1_000,
            preferred_leader_zones: Vec::new(),
            // About a hundred replicas for some terabytes on a node; small enough to be moved within minutes.
            split_bytes: 64 << 30,
            // More than one of many tablets should take of a node's cores.
            split_operations_per_second: 100_000,
            // Copied within a second.
            merge_bytes: 64 << 20,
        }
    }
}

impl Default for Identity {
    fn default() -> Self {
        Self {
            cluster_id: None,
            name: String::new(),
            replication_factor: 1,
            version: 0,
            settings: Settings::default(),
            requires_login: None,
            level: Level::FIRST,
            next_node: 1,
            next_table: 1,
            next_tablet: FIRST_TABLET_ID,
        }
    }
}
