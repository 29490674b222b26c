//! Details of one table, one tablet and one replica, of the last hour, and of a line of a log.
//!
//! Always true: the parts that a silent node would have sent are missing, and everything else is there.

use super::{TableStatus, TabletStatus};
use diorite_base::{NodeId, TabletId};
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;

/// A table.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct TableDetail {
    /// Its status.
    pub status: TableStatus,
    /// The statements that create it, with the user types that it needs.
    pub schema: String,
    /// Replicas and leaders on each node that holds any.
    pub nodes: Vec<TableShare>,
}

/// A node's share of a table.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct TableShare {
    /// The node.
    pub node: NodeId,
    /// Replicas.
    pub replicas: usize,
    /// Tablets that it leads.
    pub leaders: usize,
    /// Bytes of these replicas.
    pub bytes: u64,
}

/// A tablet.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct TabletDetail {
    /// Its status.
    pub status: TabletStatus,
    /// The descriptions of its replicas, by those nodes that answer.
    pub replicas: Vec<ReplicaDetail>,
    /// The latest events of its replicas, the newest first.
    pub events: Vec<TabletEvent>,
    /// Problems of its replicas, each with advice.
    #[serde(default)]
    pub advice: Vec<String>,
}

/// A replica's description of itself and of its group.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct ReplicaDetail {
    /// The node.
    pub node: NodeId,
    /// The tablet.
    pub tablet: TabletId,
    /// The data directory that holds it.
    pub disk: String,
    /// Its Raft term.
    pub term: u64,
    /// The leader, as far as the replica knows.
    pub leader: Option<NodeId>,
    /// Whether it holds the lease, and may answer reads alone.
    pub holds_lease: bool,
    /// How long the lease lasts without renewal, milliseconds. Absent also for a sole voter, whose lease does not end.
    pub lease_left_ms: Option<u64>,
    /// The first index in its log.
    pub first_index: u64,
    /// The last index in its log.
    pub last_index: u64,
    /// The last index known to be committed.
    pub commit_index: u64,
    /// The last index applied to its data.
    pub applied_index: u64,
    /// The group's voters, as far as the replica knows.
    pub voters: Vec<NodeId>,
    /// The former voters, in a joint configuration.
    pub outgoing: Vec<NodeId>,
    /// The learners.
    pub learners: Vec<NodeId>,
    /// For a leader: the index up to which each other member holds its log.
    pub matched: Vec<(NodeId, u64)>,
    /// Entries that wait for a quorum.
    pub waiting_entries: usize,
    /// Why it has failed, if it has.
    pub failure: Option<String>,
    /// Bytes of its data.
    pub bytes: u64,
    /// Bytes in memtables.
    pub memtable_bytes: u64,
    /// SSTables.
    pub sst_files: u64,
    /// The size of the SSTables.
    pub sst_bytes: u64,
    /// The uncompressed size of their content.
    pub content_bytes: Option<u64>,
    /// Keys, estimated by RocksDB.
    pub keys_estimate: u64,
    /// Reads served and writes applied since its node started.
    pub reads: u64,
    /// Writes applied since its node started.
    pub writes: u64,
    /// Its latest events, the oldest first.
    pub events: Vec<TabletEvent>,
}

/// An event of a replica.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct TabletEvent {
    /// The node.
    pub node: NodeId,
    /// The time, milliseconds since 1970 by that node's clock.
    pub unix_ms: i64,
    /// The event, in words.
    pub event: String,
}

/// The last hour of a node, or of the cluster.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct History {
    /// The time between two values.
    pub step_seconds: u64,
    /// The time of the last values; a multiple of the step, the same on every node.
    pub end_unix_seconds: u64,
    /// The values of each quantity by its name, oldest first, absent where they are unknown. All series are equally
    /// long.
    pub series: BTreeMap<String, Vec<Option<f64>>>,
}

/// A line of a log.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct LogLine {
    /// The time at which it was written.
    pub unix_seconds: f64,
    /// The level: `error`, `warn`, `info`, `debug` or `trace`.
    pub level: String,
    /// The module that wrote it.
    pub target: String,
    /// The text.
    pub message: String,
    /// The fields, by name.
    pub fields: BTreeMap<String, String>,
}
