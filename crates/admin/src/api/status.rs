//! The status of a cluster, its nodes, tables and tablets.

use super::TabletState;
use diorite_base::{NodeId, TabletId};
use serde::{Deserialize, Serialize};

/// The state of the cluster.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct ClusterStatus {
    /// Its name.
    pub name: String,
    /// Its id.
    pub cluster_id: String,
    /// The smallest replication factor of a keyspace.
    pub replication_factor: u32,
    /// Whether clients have to log in; absent: not decided yet.
    #[serde(default)]
    pub requires_login: Option<bool>,
    /// The version of the catalog.
    pub catalog_version: u64,
    /// The node that leads the catalog. It gives this answer, and runs the balancer.
    pub leader: NodeId,
    /// Nodes that are members.
    pub nodes: usize,
    /// Those of them that are up.
    pub live_nodes: usize,
    /// The versions of the program on the nodes.
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
    /// Disks that refuse writes for lack of space, or have failed.
    #[serde(default)]
    pub full_disks: usize,
    /// Replicas that their nodes cannot use.
    #[serde(default)]
    pub set_aside: usize,
    /// The number of live nodes that have completed a scrub since they were started.
    #[serde(default)]
    pub scrubbed_nodes: usize,
    /// The earliest of the last complete scrubs of these nodes, milliseconds since 1970.
    #[serde(default)]
    pub scrubbed_ms: Option<i64>,
    /// How often scrubs have found damage since these nodes were started.
    #[serde(default)]
    pub scrub_damage_found: u64,
    /// How traffic between the nodes that are up is protected: `encrypted`, `open, on loopback` or `open, --insecure`.
    #[serde(default)]
    pub traffic: String,
    /// The state of the balancer.
    pub balancer: BalancerStatus,
    /// Problems that need an operator's attention, the worst first.
    pub warnings: Vec<String>,
}

impl ClusterStatus {
    /// Whether the loss of one more replica could lose data, or some data cannot be read or written. A node that is
    /// down and holds no replicas is no risk.
    pub fn is_at_risk(&self) -> bool {
        self.under_replicated + self.leaderless + self.unavailable + self.full_disks + self.set_aside > 0
    }
}

/// The state of the balancer.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct BalancerStatus {
    /// `idle`, `repairing`, `balancing`, `paused`, …
    pub state: String,
    /// The number of replicas that are being moved.
    pub moves: usize,
    /// Bytes still to be copied, as far as is known now.
    pub bytes_left: u64,
    /// The estimated time until then, seconds.
    pub eta_seconds: Option<u64>,
    /// Moves that cannot be made, with the reasons.
    pub stalled: Vec<String>,
    /// How many tablets with such moves are not listed.
    #[serde(default)]
    pub unlisted_stalled: u64,
    /// The rate limit of copies of replicas, bytes per second and node.
    pub copy_rate_bytes: u64,
    /// How long a node may be silent before its replicas are rebuilt on other nodes.
    pub replace_after_ms: u64,
    /// Zones in which leaders are to be; none: all zones.
    pub preferred_leader_zones: Vec<String>,
    /// Tablets with more bytes in files are split; 0: never.
    pub split_bytes: u64,
    /// Tablets with more reads and writes a second are split; 0: never.
    pub split_operations_per_second: u64,
    /// Neighbours that together have no more bytes in files than this are merged; 0: never.
    pub merge_bytes: u64,
}

/// The state of a node.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct NodeStatus {
    /// Its id.
    pub node: NodeId,
    /// Its host id.
    pub host_id: String,
    /// Its address for CQL clients.
    pub cql_address: String,
    /// The address of its HTTP port.
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
    /// Whether it votes in the catalog's group, as far as the node that answers knows.
    #[serde(default)]
    pub votes_in_catalog: bool,
    /// Replicas that it holds, or is to hold.
    pub replicas: usize,
    /// Tablets that it leads.
    pub leaders: usize,
    /// Bytes of tablets.
    pub tablet_bytes: u64,
    /// SSTables.
    pub sst_files: u64,
    /// The size of the SSTables.
    pub sst_bytes: u64,
    /// The uncompressed size of their content, if known; estimated from the tablets whose files were inspected since they changed.
    pub content_bytes: Option<u64>,
    /// The time since its last heartbeat reached the node that answers, milliseconds.
    pub last_heartbeat_ms: Option<u64>,
    /// How long its process has run, seconds.
    pub uptime_seconds: Option<u64>,
    /// The version of its program.
    pub program: Option<String>,
    /// The resident memory of the process.
    pub resident_bytes: Option<u64>,
    /// The memory limit of the process.
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
    /// The 99th percentile of the duration of reads.
    pub read_p99_seconds: Option<f64>,
    /// The 99th percentile of the duration of writes.
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

/// The state of a disk.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct DiskStatus {
    /// The data directory.
    pub path: String,
    /// Size of the file system.
    pub total_bytes: u64,
    /// Free bytes of the file system.
    pub free_bytes: u64,
    /// Bytes of tablets.
    pub tablet_bytes: u64,
    /// Bytes of the Raft log.
    pub log_bytes: u64,
    /// Replicas on it.
    pub replicas: usize,
    /// Whether writes are refused for lack of space.
    pub is_full: bool,
    /// Whether it has failed.
    pub has_failed: bool,
}

/// The state of a table.
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
    /// The wanted number of replicas of each tablet.
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

/// A page of a list of tablets.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct TabletPage {
    /// The tablets.
    pub tablets: Vec<TabletStatus>,
    /// The number of tablets that match the filter, on all pages.
    pub total: usize,
    /// The id after which the next page begins, if there is one.
    pub next_after: Option<u64>,
}

/// The state of a tablet.
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
    /// Its state.
    pub state: TabletState,
    /// Bytes of the largest replica.
    pub bytes: u64,
    /// SSTables of the replica that has most of them.
    pub sst_files: u64,
    /// Its replicas.
    pub replicas: Vec<ReplicaStatus>,
    /// The state of its split or merge, or how its last merge was cancelled.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reshaping: Option<String>,
}

/// A replica of a tablet.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ReplicaStatus {
    /// Its node.
    pub node: NodeId,
    /// `voter`, `arriving` or `leaving`.
    pub role: String,
    /// Whether its node is up.
    pub is_up: bool,
    /// Its size.
    pub bytes: Option<u64>,
    /// Its SSTables.
    pub sst_files: Option<u64>,
    /// The uncompressed size of the SSTables.
    pub content_bytes: Option<u64>,
}

/// A replica that is being moved.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct MoveStatus {
    /// The tablet.
    pub tablet: TabletId,
    /// The keyspace of its table.
    pub keyspace: String,
    /// Its table.
    pub table: String,
    /// The node that receives it; `None` if a replica is only removed.
    pub to: Option<NodeId>,
    /// The node that sends the data, if the replica is being copied.
    pub source: Option<NodeId>,
    /// The nodes whose replicas are removed afterwards.
    pub leaving: Vec<NodeId>,
    /// Bytes copied so far.
    pub bytes_done: u64,
    /// Bytes in all.
    pub bytes_total: u64,
    /// Bytes per second at the moment.
    pub rate_bytes: u64,
    /// The estimated time until it is complete, seconds.
    pub eta_seconds: Option<u64>,
}

/// The outcome of a change.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Done {
    /// The outcome, in words.
    pub message: String,
}
