//! The status of a cluster, its nodes, tables and tablets.

use super::TabletState;
use diorite_base::{NodeId, TabletId};
use serde::{Deserialize, Serialize};

/// How the cluster is.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct ClusterStatus {
    /// Its name.
    pub name: String,
    /// Its id.
    pub cluster_id: String,
    /// Replicas per tablet that every keyspace has at least.
    pub replication_factor: u32,
    /// Whether clients have to log in; absent: not decided yet.
    #[serde(default)]
    pub requires_login: Option<bool>,
    /// The version of the catalog.
    pub catalog_version: u64,
    /// The node that leads the catalog, and so answers here and runs the balancer.
    pub leader: NodeId,
    /// Nodes that are members.
    pub nodes: usize,
    /// Those of them that are up.
    pub live_nodes: usize,
    /// The versions of the program that nodes run.
    pub programs: Vec<String>,
    /// Tables.
    pub tables: usize,
    /// Tablets.
    pub tablets: usize,
    /// Tablets with a known leader.
    pub leaders: usize,
    /// Tablets with fewer live replicas than wanted.
    pub under_replicated: usize,
    /// Tablets without a known leader.
    pub leaderless: usize,
    /// Tablets of which no quorum of replicas is up.
    pub unavailable: usize,
    /// Bytes of data, each tablet once.
    pub bytes: u64,
    /// Bytes of all replicas.
    pub replica_bytes: u64,
    /// Reads per second, over all nodes that are up.
    pub reads_per_second: f64,
    /// Writes per second, over all nodes that are up.
    pub writes_per_second: f64,
    /// Disks that refuse writes for want of space, or have failed.
    #[serde(default)]
    pub full_disks: usize,
    /// Replicas that their nodes cannot use.
    #[serde(default)]
    pub set_aside: usize,
    /// Nodes, of those that are up, that have read everything they hold since they were started.
    #[serde(default)]
    pub scrubbed_nodes: usize,
    /// Since when none of these has read everything again, milliseconds since 1970.
    #[serde(default)]
    pub scrubbed_ms: Option<i64>,
    /// How often scrubs have found damage since these nodes were started.
    #[serde(default)]
    pub scrub_damage_found: u64,
    /// The state of the balancer.
    pub balancer: BalancerStatus,
    /// What an operator had better look at, worst first.
    pub warnings: Vec<String>,
}

impl ClusterStatus {
    /// Whether losing one more replica could lose data, or some data cannot be reached or written. A node that is down and holds nothing (any more) is no
    /// risk.
    pub fn is_at_risk(&self) -> bool {
        self.under_replicated + self.leaderless + self.unavailable + self.full_disks + self.set_aside > 0
    }
}

/// The state of the balancer.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct BalancerStatus {
    /// `idle`, `repairing`, `balancing`, `paused`, …
    pub state: String,
    /// Replicas on their way.
    pub moves: usize,
    /// Bytes that are still to be copied, as far as is known now.
    pub bytes_left: u64,
    /// When that is done, seconds from now.
    pub eta_seconds: Option<u64>,
    /// Moves that it cannot make, with the reasons.
    pub stalled: Vec<String>,
    /// What copies of replicas may take, bytes per second and node.
    pub copy_rate_bytes: u64,
    /// How long a node may be silent before its replicas are made anew elsewhere.
    pub replace_after_ms: u64,
    /// Zones in which leaders are to be; none: anywhere.
    pub preferred_leader_zones: Vec<String>,
    /// Tablets with more bytes in files are split; 0: never.
    pub split_bytes: u64,
    /// Tablets with more reads and writes a second are split; 0: never.
    pub split_operations_per_second: u64,
    /// Neighbours with at most so many bytes of files together are merged; 0: never.
    pub merge_bytes: u64,
}

/// How a node is.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct NodeStatus {
    /// Its id.
    pub node: NodeId,
    /// Its host id.
    pub host_id: String,
    /// Where CQL clients reach it.
    pub cql_address: String,
    /// Where its HTTP port is.
    pub http_address: String,
    /// Data centre.
    pub data_center: String,
    /// Zone.
    pub zone: String,
    /// Whether its heartbeats arrive.
    pub is_up: bool,
    /// Its state in the catalog: `active`, `draining` or `dead`.
    pub state: String,
    /// Whether it may lead tablets.
    pub may_lead: bool,
    /// Replicas that it holds, or is to.
    pub replicas: usize,
    /// Tablets that it leads.
    pub leaders: usize,
    /// Bytes of tablets.
    pub tablet_bytes: u64,
    /// SSTables.
    pub sst_files: u64,
    /// Their size.
    pub sst_bytes: u64,
    /// The uncompressed size of their content, if known; estimated from the tablets whose files were inspected since they changed.
    pub content_bytes: Option<u64>,
    /// How long ago its last heartbeat has reached the node that answers, milliseconds.
    pub last_heartbeat_ms: Option<u64>,
    /// Since when its process runs, seconds.
    pub uptime_seconds: Option<u64>,
    /// The version of its program.
    pub program: Option<String>,
    /// Memory that the process uses.
    pub resident_bytes: Option<u64>,
    /// Memory that it was given.
    pub memory_limit_bytes: Option<u64>,
    /// Processor time that the process has used.
    pub cpu_seconds: Option<f64>,
    /// Processors that it may use.
    pub processors: Option<u64>,
    /// Its activity in the last seconds.
    pub activity: Activity,
    /// Its disks.
    pub disks: Vec<DiskStatus>,
}

/// The activity of a node in the last seconds; absent where it is unknown.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct Activity {
    /// Reads of clients.
    pub reads_per_second: Option<f64>,
    /// Writes of clients.
    pub writes_per_second: Option<f64>,
    /// The time that all but one read in a hundred stayed below.
    pub read_p99_seconds: Option<f64>,
    /// The same of writes.
    pub write_p99_seconds: Option<f64>,
    /// Processors in use.
    pub cpu_cores: Option<f64>,
    /// Reads of disks.
    pub disk_reads_per_second: Option<f64>,
    /// Writes to disks.
    pub disk_writes_per_second: Option<f64>,
    /// Bytes read from disks.
    pub disk_read_bytes_per_second: Option<f64>,
    /// Bytes written to disks.
    pub disk_written_bytes_per_second: Option<f64>,
    /// Compactions under way.
    pub compactions_running: Option<f64>,
}

/// How a disk is.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct DiskStatus {
    /// The data directory.
    pub path: String,
    /// Size of the file system.
    pub total_bytes: u64,
    /// Free of it.
    pub free_bytes: u64,
    /// Bytes of tablets.
    pub tablet_bytes: u64,
    /// Bytes of the Raft log.
    pub log_bytes: u64,
    /// Replicas on it.
    pub replicas: usize,
    /// Whether writes are refused for want of space.
    pub is_full: bool,
    /// Whether it has failed.
    pub has_failed: bool,
}

/// How a table is.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct TableStatus {
    /// Its keyspace.
    pub keyspace: String,
    /// Its name.
    pub name: String,
    /// Its id for drivers.
    pub id: String,
    /// Tablets.
    pub tablets: usize,
    /// Replicas wanted of each tablet.
    pub replication_factor: u32,
    /// Bytes of the leaders' replicas: the data once.
    pub bytes: u64,
    /// Bytes of all replicas.
    pub replica_bytes: u64,
    /// The uncompressed size of the SSTables of the leaders' replicas, if known.
    pub content_bytes: Option<u64>,
    /// SSTables of all replicas.
    pub sst_files: u64,
    /// Tablets with fewer live replicas than wanted.
    pub under_replicated: usize,
    /// Tablets without a known leader.
    pub leaderless: usize,
}

/// Some tablets.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct TabletPage {
    /// The tablets.
    pub tablets: Vec<TabletStatus>,
    /// How many fit the filter, on all pages.
    pub total: usize,
    /// Where the next page begins, if there is one.
    pub next_after: Option<u64>,
}

/// How a tablet is.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct TabletStatus {
    /// Its id.
    pub tablet: TabletId,
    /// The keyspace of its table.
    pub keyspace: String,
    /// Its table.
    pub table: String,
    /// Its first token.
    pub first_token: i64,
    /// Its last token.
    pub last_token: i64,
    /// The node that leads it.
    pub leader: Option<NodeId>,
    /// How it stands.
    pub state: TabletState,
    /// Bytes of the largest replica.
    pub bytes: u64,
    /// SSTables of the replica that has most of them.
    pub sst_files: u64,
    /// Its replicas.
    pub replicas: Vec<ReplicaStatus>,
    /// How it is being split or merged, or how its last merge was cancelled.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reshaping: Option<String>,
}

/// A replica of a tablet.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ReplicaStatus {
    /// Where it is.
    pub node: NodeId,
    /// `voter`, `arriving` or `leaving`.
    pub role: String,
    /// Whether its node is up.
    pub is_up: bool,
    /// Its size.
    pub bytes: Option<u64>,
    /// Its SSTables.
    pub sst_files: Option<u64>,
    /// The uncompressed size of their content.
    pub content_bytes: Option<u64>,
}

/// A replica on its way.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct MoveStatus {
    /// Of which tablet.
    pub tablet: TabletId,
    /// The keyspace of its table.
    pub keyspace: String,
    /// Its table.
    pub table: String,
    /// Where it comes to; none if one only goes.
    pub to: Option<NodeId>,
    /// Who sends the data, if it is being copied.
    pub source: Option<NodeId>,
    /// The nodes whose replicas go when it has come.
    pub leaving: Vec<NodeId>,
    /// Copied so far.
    pub bytes_done: u64,
    /// Bytes in all.
    pub bytes_total: u64,
    /// Bytes per second at the moment.
    pub rate_bytes: u64,
    /// When it is done, seconds from now.
    pub eta_seconds: Option<u64>,
}

/// Something was changed.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Done {
    /// What, in words.
    pub message: String,
}
