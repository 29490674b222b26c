//! One table, one tablet, one replica, the last hour, a line of a log: what is asked for when somebody looks closer.
//!
//! Always true: what a node that does not answer would have to tell is missing, and everything else is there.

use super::{TableStatus, TabletStatus};
use diorite_base::{NodeId, TabletId};
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;

/// A table.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct TableDetail {
    /// How it is.
    pub status: TableStatus,
    /// The statements that make it again, with the user types that it needs.
    pub schema: String,
    /// Replicas and leaders on each node that holds any.
    pub nodes: Vec<TableShare>,
}

/// A node's share of a table.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct TableShare {
    /// Which node.
    pub node: NodeId,
    /// Replicas.
    pub replicas: usize,
    /// Tablets that it leads.
    pub leaders: usize,
    /// Bytes.
    pub bytes: u64,
}

/// A tablet.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct TabletDetail {
    /// How it is.
    pub status: TabletStatus,
    /// What its replicas say of themselves, of those whose nodes answer.
    pub replicas: Vec<ReplicaDetail>,
    /// The latest events of its replicas, the newest first.
    pub events: Vec<TabletEvent>,
    /// Problems of its replicas, each with advice, as text.
    #[serde(default)]
    pub advice: Vec<String>,
}

/// A replica, as it sees itself and its group.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct ReplicaDetail {
    /// On which node.
    pub node: NodeId,
    /// Of which tablet.
    pub tablet: TabletId,
    /// The data directory that it is in.
    pub disk: String,
    /// Its Raft term.
    pub term: u64,
    /// Who leads, as far as it knows.
    pub leader: Option<NodeId>,
    /// Whether it may answer reads alone now.
    pub holds_lease: bool,
    /// How long it holds without renewal, milliseconds. Absent also if the lease of a sole replica never ends.
    pub lease_left_ms: Option<u64>,
    /// The first index in its log.
    pub first_index: u64,
    /// The last one.
    pub last_index: u64,
    /// The last one known to be committed.
    pub commit_index: u64,
    /// The last one applied to its data.
    pub applied_index: u64,
    /// The group's voters, as it knows them.
    pub voters: Vec<NodeId>,
    /// The voters before, while both sets decide.
    pub outgoing: Vec<NodeId>,
    /// The learners.
    pub learners: Vec<NodeId>,
    /// Of a leader: up to which index each of the others holds its log.
    pub matched: Vec<(NodeId, u64)>,
    /// Entries that wait for a quorum.
    pub waiting_entries: usize,
    /// Why it cannot go on, if so.
    pub failure: Option<String>,
    /// Bytes of its data.
    pub bytes: u64,
    /// Bytes in memtables.
    pub memtable_bytes: u64,
    /// SSTables.
    pub sst_files: u64,
    /// Their size.
    pub sst_bytes: u64,
    /// The uncompressed size of their content.
    pub content_bytes: Option<u64>,
    /// Keys, estimated by RocksDB.
    pub keys_estimate: u64,
    /// Reads served and writes applied since its node started.
    pub reads: u64,
    /// See `reads`.
    pub writes: u64,
    /// Its latest events, the oldest first.
    pub events: Vec<TabletEvent>,
}

/// Something that happened to a replica.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct TabletEvent {
    /// On which node.
    pub node: NodeId,
    /// When, milliseconds since 1970 by that node's clock.
    pub unix_ms: i64,
    /// What, in words.
    pub event: String,
}

/// How a node, or the cluster, was in the last hour.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct History {
    /// The time between two values.
    pub step_seconds: u64,
    /// When the last values were taken; a multiple of the step, the same on every node.
    pub end_unix_seconds: u64,
    /// By the name of the quantity: its values, the oldest first, absent where they are unknown. All series are equally long.
    pub series: BTreeMap<String, Vec<Option<f64>>>,
}

/// A line of a log.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct LogLine {
    /// When it was written.
    pub unix_seconds: f64,
    /// The level: `error`, `warn`, `info`, `debug` or `trace`.
    pub level: String,
    /// The part of the program.
    pub target: String,
    /// The text.
    pub message: String,
    /// The fields, by name.
    pub fields: BTreeMap<String, String>,
}
