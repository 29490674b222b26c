//! The statements of a node, and the requests that it carries out.

use serde::{Deserialize, Serialize};

/// The costs of a node's statements since they were first seen, and the running requests.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct QueryActivity {
    /// The statements; those with the greatest total time come first.
    pub queries: Vec<QueryStatus>,
    /// The running requests, the longest first, 100 at most.
    pub running: Vec<RunningQuery>,
    /// The number of running requests.
    pub running_count: usize,
}

/// The costs of a statement.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct QueryStatus {
    /// Its text without constants; `None` for all statements together that are not listed separately.
    pub statement: Option<String>,
    /// The keyspace of unqualified names in it.
    pub keyspace: Option<String>,
    /// The number of its requests.
    pub count: u64,
    /// The mean duration of a request.
    pub mean_seconds: f64,
    /// The 99th percentile of the durations.
    pub p99_seconds: f64,
    /// The longest duration.
    pub max_seconds: f64,
    /// The sum of the durations.
    pub total_seconds: f64,
    /// The rows that the requests returned.
    pub rows: u64,
    /// The number of failed requests.
    pub errors: u64,
    /// The time of the last answer.
    pub last_unix_seconds: u64,
}

/// A running request.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct RunningQuery {
    /// Its number on the node that carries it out, which [`super::NodeQuestion::Cancel`] takes.
    #[serde(default)]
    pub number: u64,
    /// The memory that it holds, bytes.
    #[serde(default)]
    pub memory_bytes: u64,
    /// Its text without constants.
    pub statement: String,
    /// The keyspace of unqualified names in it.
    pub keyspace: Option<String>,
    /// How long it has run.
    pub seconds_running: f64,
    /// The address of the client.
    pub client: Option<String>,
}
