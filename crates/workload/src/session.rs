//! The driver session and the schema of a run, with exactly the statements that yb-sample-apps sends.
//!
//! The driver is set up for little CPU on the client: one execution profile, no retries (a retry would hide an error
//! and lengthen a latency), no speculative requests, cached result metadata, requests that are due together in one write.
//! Besides the connections asked for, the driver keeps one more, idle, for its metadata.
//!
//! Left out: TLS.

use std::num::NonZeroUsize;
use std::sync::Arc;
use std::time::Duration;

use scylla::client::PoolSize;
use scylla::client::execution_profile::ExecutionProfile;
use scylla::client::session::Session;
use scylla::client::session_builder::SessionBuilder;
use scylla::policies::load_balancing::DefaultPolicy;
use scylla::policies::retry::{DefaultRetryPolicy, FallthroughRetryPolicy, RetryPolicy};
use scylla::routing::partitioner::{Murmur3Partitioner, Partitioner};
use scylla::statement::Consistency;
use scylla::statement::prepared::PreparedStatement;

use crate::WorkloadError;
use crate::arguments::{ConnectionArguments, WorkloadKind};

/// Connects to the cluster with `connections` per node.
pub async fn connect(arguments: &ConnectionArguments, connections: usize) -> Result<Session, WorkloadError> {
    let retries: Arc<dyn RetryPolicy> =
        if arguments.retries { Arc::new(DefaultRetryPolicy::new()) } else { Arc::new(FallthroughRetryPolicy::new()) };
    let profile = ExecutionProfile::builder()
        .consistency(Consistency::Quorum)
        .request_timeout(Some(Duration::from_millis(arguments.cql_read_timeout_ms)))
        .retry_policy(retries)
        .speculative_execution_policy(None)
        .load_balancing_policy(DefaultPolicy::builder().token_aware(arguments.tablet_aware.unwrap_or(true)).build())
        .build();
    let nodes = arguments.contact_points();
    let mut builder = SessionBuilder::new()
        .known_nodes(&nodes)
        .pool_size(PoolSize::PerHost(NonZeroUsize::new(connections).unwrap_or(NonZeroUsize::MIN)))
        .default_execution_profile_handle(profile.into_handle())
        .tcp_nodelay(true)
        .connection_timeout(Duration::from_secs(10))
        .fetch_schema_metadata(false)
        .cluster_metadata_refresh_interval(Duration::from_secs(60));
    if let (Some(user), Some(password)) = (&arguments.username, &arguments.password) {
        builder = builder.user(user, password);
    }
    let session = builder.build().await;
    session.map_err(|error| WorkloadError::Setup(format!("cannot connect to {}: {error}", nodes.join(", "))))
}

/// Runs one schema statement.
pub async fn execute_schema(session: &Session, statement: &str) -> Result<(), WorkloadError> {
    let result = session.query_unpaged(statement, ()).await;
    result.map(|_| ()).map_err(|error| WorkloadError::Setup(format!("{statement}: {error}")))
}

/// Creates the keyspace if it is missing and makes it the session's.
pub async fn use_keyspace(session: &Session, arguments: &ConnectionArguments) -> Result<(), WorkloadError> {
    let keyspace = &arguments.keyspace;
    let replication = format!("{{'class': 'SimpleStrategy', 'replication_factor' : {}}}", arguments.replication);
    let statement = format!("CREATE KEYSPACE IF NOT EXISTS {keyspace} WITH REPLICATION = {replication};");
    execute_schema(session, &statement).await?;
    let used = session.use_keyspace(keyspace, false).await;
    used.map_err(|error| WorkloadError::Setup(format!("USE {keyspace}: {error}")))
}

/// Prepares a statement; results keep the metadata of the preparation.
pub async fn prepare(
    session: &Session,
    statement: &str,
    consistency: Consistency,
) -> Result<PreparedStatement, WorkloadError> {
    let prepared = session.prepare(statement).await;
    let mut prepared = prepared.map_err(|error| WorkloadError::Setup(format!("{statement}: {error}")))?;
    prepared.set_use_cached_result_metadata(true);
    prepared.set_consistency(consistency);
    // All that is prepared here writes or reads rows as a whole; it matters only where retries are asked for.
    prepared.set_is_idempotent(true);
    Ok(prepared)
}

/// The tablet, from 0, of the partition of one text, in a table whose tablets split the ring evenly.
pub fn tablet_of(key: &str, tablets: u32) -> usize {
    let token = Murmur3Partitioner.hash_one(key.as_bytes()).value();
    // Tokens begin at the lowest number: flipping the sign bit makes that 0.
    let place = u128::from(token as u64 ^ 1 << 63);
    ((place * u128::from(tablets)) >> 64) as usize
}

/// The statements of one workload.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Statements {
    pub create_table: String,
    pub insert: String,
    pub select: String,
}

impl Statements {
    /// The table's name when the command line gives none.
    pub fn default_table(kind: WorkloadKind) -> &'static str {
        match kind {
            WorkloadKind::KeyValue | WorkloadKind::BatchKeyValue => "CassandraKeyValue",
            WorkloadKind::RangeKeyValue => "CassandraRangeKeyValue",
            WorkloadKind::Timeseries => "ts_metrics_raw",
        }
    }

    /// The statements for `table`.
    pub fn new(kind: WorkloadKind, table: &str, ttl_s: Option<u64>, tablets: Option<u32>) -> Self {
        let options: Vec<String> = ttl_s
            .map(|seconds| format!("default_time_to_live = {seconds}"))
            .into_iter()
            .chain(tablets.map(|tablets| format!("tablets = {tablets}")))
            .collect();
        let options = if options.is_empty() { String::new() } else { format!(" WITH {}", options.join(" AND ")) };
        let (columns, insert, select) = match kind {
            WorkloadKind::KeyValue | WorkloadKind::BatchKeyValue => {
                ("k varchar, v blob, primary key (k)", "(k, v) VALUES (?, ?)", ("k, v", "k = ?"))
            }
            WorkloadKind::RangeKeyValue => (
                "k varchar, r1 varchar, r2 varchar, r3 varchar, v blob, primary key ((k), r1, r2, r3)",
                "(k, r1, r2, r3, v) VALUES (?, ?, ?, ?, ?)",
                ("k, r1, r2, r3, v", "k = ? AND r1 = ? AND r2 = ? AND r3 = ?"),
            ),
            WorkloadKind::Timeseries => (
                "user_id varchar, metric_id varchar, node_id varchar, ts timestamp, value varchar, \
                 primary key ((user_id, metric_id), node_id, ts)",
                "(user_id, metric_id, node_id, ts, value) VALUES (:user_id, :metric_id, :node_id, :ts, :value)",
                (
                    "*",
                    "user_id = :userId AND metric_id = :metricId AND node_id = :nodeId AND ts > :startTs AND ts < :endTs",
                ),
            ),
        };
        Self {
            create_table: format!("CREATE TABLE IF NOT EXISTS {table} ({columns}){options};"),
            insert: format!("INSERT INTO {table} {insert};"),
            select: format!("SELECT {} FROM {table} WHERE {};", select.0, select.1),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn statements_are_those_of_the_published_client() {
        let statements = Statements::new(WorkloadKind::KeyValue, "CassandraKeyValue", None, None);
        assert_eq!(
            statements.create_table,
            "CREATE TABLE IF NOT EXISTS CassandraKeyValue (k varchar, v blob, primary key (k));"
        );
        assert_eq!(statements.insert, "INSERT INTO CassandraKeyValue (k, v) VALUES (?, ?);");
        assert_eq!(statements.select, "SELECT k, v FROM CassandraKeyValue WHERE k = ?;");
        let statements = Statements::new(WorkloadKind::Timeseries, "ts_metrics_raw", Some(86_400), Some(4));
        assert!(statements.create_table.ends_with(") WITH default_time_to_live = 86400 AND tablets = 4;"));
    }
}
