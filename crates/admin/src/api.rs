//! What operators ask of a cluster, and what it answers: the JSON of the HTTP interface, of `diorite admin --json`, and of the question from the node
//! that was asked to the one that knows.
//!
//! Always true: every answer is about the whole cluster, whichever node was asked. Sizes are bytes, times what their names say.

use diorite_base::{NodeId, TabletId};
use serde::{Deserialize, Serialize};

/// What is asked.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "ask", rename_all = "snake_case")]
pub enum Ask {
    /// How the cluster is: [`ClusterStatus`].
    Status,
    /// The nodes: a list of [`NodeStatus`].
    Nodes,
    /// The tables: a list of [`TableStatus`].
    Tables,
    /// The tablets: a [`TabletPage`].
    Tablets(TabletFilter),
    /// The replicas that are on their way: a list of [`MoveStatus`].
    Moves,
    /// Changes something: [`Done`].
    Change(Change),
}

/// What is to be changed.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "change", rename_all = "snake_case")]
pub enum Change {
    /// Moves everything off a node, which goes on serving until then.
    Drain {
        /// Which.
        node: NodeId,
    },
    /// A node that was drained, or is being drained, is to hold replicas again.
    Undrain {
        /// Which.
        node: NodeId,
    },
    /// Ends the membership of a node that holds no replicas.
    Remove {
        /// Which.
        node: NodeId,
    },
    /// Makes the replicas of a node that is down anew elsewhere, now.
    Replace {
        /// Which.
        node: NodeId,
    },
    /// Lets other nodes lead what a node leads, as before it is stopped for a while.
    MoveLeaders {
        /// Which.
        node: NodeId,
        /// Lets it lead again.
        back: bool,
    },
    /// Puts a node into a zone, whatever it says itself.
    SetZone {
        /// Which.
        node: NodeId,
        /// The zone; none: what the node says.
        zone: Option<String>,
    },
    /// Splits a tablet in two.
    Split {
        /// Which.
        tablet: TabletId,
    },
    /// Sets what copies of replicas may take.
    SetRate {
        /// Bytes per second and node.
        bytes_per_second: u64,
    },
    /// Lets the balancer work, or not.
    SetBalancing {
        /// Whether it leaves everything where it is.
        is_paused: bool,
    },
    /// Sets how long a node may be silent before its replicas are made anew elsewhere.
    SetReplaceAfter {
        /// How long.
        milliseconds: u64,
    },
    /// Sets the zones in which leaders are to be.
    SetLeaderZones {
        /// The zones; none: anywhere.
        zones: Vec<String>,
    },
}

/// Which tablets are wanted.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct TabletFilter {
    /// Of this keyspace.
    pub keyspace: Option<String>,
    /// Of tables of this name.
    pub table: Option<String>,
    /// With a replica on this node.
    pub node: Option<u64>,
    /// Only this one.
    pub tablet: Option<u64>,
    /// After this one, in the order of their ids.
    pub after: Option<u64>,
    /// At most so many; 1,000 if not given, and at most 10,000.
    pub limit: Option<usize>,
}

/// Why an answer is not what was asked for.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, thiserror::Error)]
#[error("{message}")]
pub struct Failure {
    /// What sort of reason.
    pub kind: FailureKind,
    /// The reason in words.
    pub message: String,
}

/// Sorts of reasons, by what whoever asked may do.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum FailureKind {
    /// There is no such thing: ask for another.
    NotFound,
    /// It would do harm: change something else first.
    Refused,
    /// It cannot be understood: ask otherwise.
    Invalid,
    /// Nobody can say at the moment: ask again.
    Unavailable,
}

impl Failure {
    /// A reason.
    pub fn new(kind: FailureKind, message: impl Into<String>) -> Self {
        Self { kind, message: message.into() }
    }
}

/// How the cluster is.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct ClusterStatus {
    /// Its name.
    pub name: String,
    /// Its id.
    pub cluster_id: String,
    /// Replicas per tablet that every keyspace has at least.
    pub replication_factor: u32,
    /// The version of the catalog.
    pub catalog_version: u64,
    /// The node that leads the catalog, and so answers here and runs the balancer.
    pub leader: NodeId,
    /// Nodes that are members.
    pub nodes: usize,
    /// Those of them that are up.
    pub live_nodes: usize,
    /// Tables.
    pub tables: usize,
    /// Tablets.
    pub tablets: usize,
    /// Tablets with fewer live replicas than wanted.
    pub under_replicated: usize,
    /// Tablets that nobody is known to lead.
    pub leaderless: usize,
    /// Tablets of which no quorum of replicas is up.
    pub unavailable: usize,
    /// What the balancer does.
    pub balancer: BalancerStatus,
    /// What an operator had better look at, worst first.
    pub warnings: Vec<String>,
}

impl ClusterStatus {
    /// Whether losing one more replica could lose data, or some data cannot be reached.
    pub fn is_at_risk(&self) -> bool {
        self.under_replicated > 0 || self.unavailable > 0
    }
}

/// What the balancer does.
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
    /// What it cannot do, and why.
    pub stuck: Vec<String>,
    /// What copies of replicas may take, bytes per second and node.
    pub copy_rate_bytes: u64,
    /// How long a node may be silent before its replicas are made anew elsewhere.
    pub replace_after_ms: u64,
    /// Zones in which leaders are to be; none: anywhere.
    pub preferred_leader_zones: Vec<String>,
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
    /// What it is there for: `active`, `draining` or `dead`.
    pub state: String,
    /// Whether it may lead tablets.
    pub may_lead: bool,
    /// Replicas that it holds, or is to.
    pub replicas: usize,
    /// Tablets that it leads.
    pub leaders: usize,
    /// Bytes of tablets.
    pub tablet_bytes: u64,
    /// Since when its process runs, seconds.
    pub uptime_seconds: Option<u64>,
    /// The version of its program.
    pub program: Option<String>,
    /// Memory that the process uses.
    pub resident_bytes: Option<u64>,
    /// Processor time that the process has used.
    pub cpu_seconds: Option<f64>,
    /// Its disks.
    pub disks: Vec<DiskStatus>,
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
    /// Tablets with fewer live replicas than wanted.
    pub under_replicated: usize,
}

/// Some tablets.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct TabletPage {
    /// The tablets.
    pub tablets: Vec<TabletStatus>,
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
    /// Bytes of the largest replica.
    pub bytes: u64,
    /// Its replicas.
    pub replicas: Vec<ReplicaStatus>,
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
