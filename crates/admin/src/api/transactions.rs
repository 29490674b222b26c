//! The transactions that are prepared: their rows are locked until their homes have decided.

use super::TabletState;
use diorite_base::{NodeId, TabletId};
use serde::{Deserialize, Serialize};
use std::fmt;

/// The most transactions that are listed, the oldest ones.
pub const MOST_PREPARED: usize = 1_000;

/// The transactions that are prepared in tablets, each once for every tablet.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct PreparedTransactions {
    /// The oldest ones, at most [`MOST_PREPARED`], oldest first.
    pub transactions: Vec<PreparedTransaction>,
    /// The number of all.
    pub total: usize,
    /// The nodes that did not answer, and why: what is prepared in the tablets that they lead is missing.
    pub unanswered: Vec<String>,
}

/// A transaction that is prepared in a tablet.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct PreparedTransaction {
    /// The tablet.
    pub tablet: TabletId,
    /// The keyspace of its table.
    pub keyspace: String,
    /// Its table.
    pub table: String,
    /// The node that leads it.
    pub leader: NodeId,
    /// The transaction.
    pub transaction: TransactionName,
    /// For how long it has been prepared.
    pub age_ms: u64,
    /// The rows and ranges that it locks in this tablet.
    pub rows: usize,
    /// About the bytes that it has staged in this tablet.
    pub staged_bytes: usize,
    /// The tablet that decides.
    pub home: TransactionHome,
}

/// The name of a transaction.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub struct TransactionName {
    /// The home tablet when it began.
    pub tablet: TabletId,
    /// The term of that tablet's leader.
    pub term: u64,
    /// A number that the leader gave it.
    pub number: u64,
}

impl fmt::Display for TransactionName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}/{}", self.tablet.0, self.term, self.number)
    }
}

/// The home of a transaction.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct TransactionHome {
    /// The tablet that has its key now; `None`: its table was dropped.
    pub tablet: Option<TabletId>,
    /// The keyspace of its table.
    pub keyspace: String,
    /// Its table.
    pub table: String,
    /// The node that leads it, if one does.
    pub leader: Option<NodeId>,
    /// Its state: a home that is `leaderless` or `unavailable` decides nothing.
    pub state: Option<TabletState>,
}

impl TransactionHome {
    /// Why it does not decide, if it does not.
    pub fn obstacle(&self) -> Option<&'static str> {
        match (self.tablet, self.state) {
            (None, _) => Some("dropped"),
            (Some(_), Some(TabletState::Unavailable)) => Some("no quorum"),
            (Some(_), Some(TabletState::Leaderless)) => Some("no leader"),
            (Some(_), _) => None,
        }
    }
}
