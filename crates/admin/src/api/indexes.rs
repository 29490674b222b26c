//! The secondary indexes and materialized views of tables, and how far they have been built.
//!
//! Always true: what is known of a tablet is what the node that leads it says; a tablet for which none has answered
//! counts as unknown, never as built.

use diorite_base::{NodeId, TableId, TabletId};
use serde::{Deserialize, Serialize};

/// The path of the indexes.
pub const INDEXES: &str = "/api/v1/indexes";
/// The path of the limit of their builds.
pub const INDEX_RATE: &str = "/api/v1/indexes/rate";
/// The most tablets that are listed of an index, those that are furthest from complete.
pub const MOST_INDEXED_TABLETS: usize = 1_000;

/// An index, by the numbers that the catalog gave it and its table.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct IndexId {
    /// The table.
    pub table: TableId,
    /// The index among those of the table.
    pub index: u64,
}

/// How far an index, or a tablet of it, has been built. The order is that of the progress.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum IndexState {
    /// Of a unique index: rows that were there before have the same values. Of a view: a row cannot be in it.
    Failed,
    /// No node that leads it has answered; of the tablets that are known, all are complete.
    Unknown,
    /// It waits for the next index of its table that is not deferred.
    Deferred,
    /// The rows that were there before are not looked at yet.
    NotBegun,
    /// These rows are being indexed.
    Building,
    /// All rows are indexed.
    Ready,
}

/// The indexes of all tables.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct IndexList {
    /// The indexes, by keyspace, table and name.
    pub indexes: Vec<IndexStatus>,
    /// The nodes that did not answer, and why: the tablets that they lead are unknown.
    pub unanswered: Vec<String>,
}

/// An index.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct IndexStatus {
    /// The keyspace.
    pub keyspace: String,
    /// The table.
    pub table: String,
    /// Its name.
    pub name: String,
    /// What it is of, as in `CREATE INDEX`: a column, or `keys(column)` and the like; `unique` before that of a unique
    /// index; or `materialized view`.
    pub target: String,
    /// How far it has been built.
    pub state: IndexState,
    /// The share of the tablets that is indexed, estimated from tokens; unknown tablets count as nothing.
    pub done_permille: u16,
    /// The tablets of the table.
    pub tablets: usize,
    /// Those of them that are indexed completely.
    pub tablets_complete: usize,
    /// Those of which no leader has answered.
    pub tablets_unknown: usize,
    /// Rows indexed per second by all nodes, over the last seconds.
    pub rate_rows: u64,
    /// Their bytes per second.
    pub rate_bytes: u64,
    /// The estimated time until it is complete, while it is built.
    pub eta_seconds: Option<u64>,
    /// Of a unique index or a view that has failed: why.
    #[serde(default)]
    pub failure: Option<String>,
}

/// An index, tablet by tablet.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct IndexDetail {
    /// The whole index.
    #[serde(flatten)]
    pub status: IndexStatus,
    /// Its tablets, the least complete ones first, at most [`MOST_INDEXED_TABLETS`].
    pub listed: Vec<IndexedTablet>,
    /// The nodes that did not answer, and why.
    pub unanswered: Vec<String>,
}

/// A tablet of an index.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct IndexedTablet {
    /// The tablet.
    pub tablet: TabletId,
    /// The node that leads it and has answered.
    pub leader: Option<NodeId>,
    /// How far the tablet has been indexed.
    pub state: IndexState,
    /// The share of the tablet that is indexed, estimated from tokens.
    pub done_permille: u16,
}

/// The limit of index builds on a node.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct NodeIndexRate {
    /// The node.
    pub node: NodeId,
    /// Bytes of rows that it indexes per second; 0: no limit.
    pub rate_bytes: u64,
    /// Why it is unknown, if it is.
    pub failure: Option<String>,
}
