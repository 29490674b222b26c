//! The cluster's own record: who it is, what is set for all of it, and the counters that ids come from.
//!
//! Always true: ids are handed out once.

use diorite_base::{NodeId, TabletId};
use serde::{Deserialize, Serialize};
use uuid::Uuid;

/// The first tablet id that is handed out; group ids below it are reserved for the catalog and its like.
pub const FIRST_TABLET_ID: u64 = 1_000;

/// The cluster's own record: who it is, and the counters that ids come from.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Identity {
    /// Tells clusters apart; `None` until the first command.
    pub cluster_id: Option<Uuid>,
    /// `cluster_name` as drivers see it.
    pub name: String,
    /// Replicas per tablet that every keyspace has at least, and that one has which does not say.
    pub replication_factor: u32,
    /// Grows by one with every change.
    pub version: u64,
    /// What operators have set for the whole cluster.
    #[serde(default)]
    pub settings: Settings,
    /// Whether clients have to log in; `None`: not decided yet, as in catalogs of earlier versions.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(super) requires_login: Option<bool>,
    pub(super) next_node: u64,
    pub(super) next_table: u64,
    pub(super) next_tablet: u64,
}

impl Identity {
    /// Whether the number of a tablet has been given out already. Those that have and are placed nowhere were dropped, for ever.
    pub fn has_numbered(&self, tablet: TabletId) -> bool {
        tablet.0 < self.next_tablet
    }

    /// The number that the next tablet gets.
    pub fn next_tablet(&self) -> TabletId {
        TabletId(self.next_tablet)
    }

    /// Whether the number of a node has been given out already. Those that have and are no members were removed, for ever.
    pub fn has_numbered_node(&self, node: NodeId) -> bool {
        node.0 < self.next_node
    }
}

/// What operators have set for the whole cluster, beside each node's own options.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct Settings {
    /// What copies of replicas may take, bytes per second and node.
    pub copy_rate_bytes: u64,
    /// Whether the balancer leaves everything where it is.
    pub balancing_is_paused: bool,
    /// How long a node may be silent before its replicas are made anew elsewhere, milliseconds.
    pub replace_after_ms: u64,
    /// Zones in which leaders are to be, where they have live replicas; empty: anywhere.
    pub preferred_leader_zones: Vec<String>,
    /// Tablets with more bytes in files are split; 0: none is unless somebody asks for it.
    pub split_bytes: u64,
    /// Tablets with more reads and writes a second, for as long as it takes to be sure, are split; 0: none is unless somebody asks for it.
    pub split_operations_per_second: u64,
    /// Neighbours with no more than this in files together are merged, where a table has more tablets than it was created with; 0: never.
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
            // About a hundred replicas for some terabytes on a node: small enough to be moved in minutes.
            split_bytes: 64 << 30,
            // More than one of many tablets should take of a node's cores.
            split_operations_per_second: 100_000,
            // Copied in a second.
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
            next_node: 1,
            next_table: 1,
            next_tablet: FIRST_TABLET_ID,
        }
    }
}
