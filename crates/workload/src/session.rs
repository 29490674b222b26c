//! The driver session of a run: connecting, preparing, and what all workloads do with batches and answers.
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
use scylla::errors::{DbError, ExecutionError, RequestAttemptError};
use scylla::policies::load_balancing::DefaultPolicy;
use scylla::policies::retry::{DefaultRetryPolicy, FallthroughRetryPolicy, RetryPolicy};
use scylla::response::query_result::{QueryResult, QueryRowsResult};
use scylla::routing::partitioner::{Murmur3Partitioner, Partitioner};
use scylla::statement::Consistency;
use scylla::statement::batch::{Batch, BatchType};
use scylla::statement::prepared::PreparedStatement;
use scylla::statement::unprepared::Statement;

use crate::WorkloadError;
use crate::arguments::ConnectionArguments;
use crate::error::Problem;
use crate::statements::Statements;

/// The longest time for a schema statement.
const SCHEMA_TIMEOUT: Duration = Duration::from_secs(120);

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
        // Without the names of tables it would know no tablets. Their columns it need not know.
        .fetch_full_schema_metadata(false)
        .cluster_metadata_refresh_interval(Duration::from_secs(60));
    if let (Some(user), Some(password)) = (&arguments.username, &arguments.password) {
        builder = builder.user(user, password);
    }
    let session = builder.build().await;
    session.map_err(|error| WorkloadError::Setup(format!("cannot connect to {}: {error}", nodes.join(", "))))
}

/// Runs one schema statement, which may take longer than requests on rows may.
pub async fn execute_schema(session: &Session, statement: &str) -> Result<(), WorkloadError> {
    let mut request = Statement::new(statement);
    request.set_request_timeout(Some(SCHEMA_TIMEOUT));
    let result = session.query_unpaged(request, ()).await;
    result.map(|_| ()).map_err(|error| WorkloadError::Setup(format!("{statement}: {error}")))
}

/// Creates the table and its indexes where they are missing.
pub async fn create_table(session: &Session, statements: &Statements) -> Result<(), WorkloadError> {
    execute_schema(session, &statements.create_table).await?;
    for statement in &statements.create_indexes {
        execute_schema(session, statement).await?;
    }
    Ok(())
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

/// A batch that sends one statement so many times.
pub fn batch(kind: BatchType, statement: &PreparedStatement, rows: usize) -> Batch {
    let mut batch = Batch::new(kind);
    batch.set_consistency(Consistency::Quorum);
    (0..rows).for_each(|_| batch.append_statement(statement.clone()));
    batch
}

/// The rows of an answer.
pub fn rows_of(answer: QueryResult) -> Result<QueryRowsResult, Problem> {
    answer.into_rows_result().map_err(Problem::shape)
}

/// Whether the server has certainly done nothing: it said so, or the request was not sent.
pub fn is_refused(error: &ExecutionError) -> bool {
    match error {
        ExecutionError::ConnectionPoolError(_) | ExecutionError::EmptyPlan => true,
        ExecutionError::LastAttemptError(RequestAttemptError::DbError(error, _)) => {
            matches!(error, DbError::Overloaded | DbError::Unavailable { .. })
        }
        _ => false,
    }
}

/// The tablet, from 0, of the partition of one text, in a table whose tablets split the ring evenly.
pub fn tablet_of(key: &str, tablets: u32) -> usize {
    let token = Murmur3Partitioner.hash_one(key.as_bytes()).value();
    // Tokens begin at the lowest number: flipping the sign bit makes that 0.
    let place = u128::from(token as u64 ^ 1 << 63);
    ((place * u128::from(tablets)) >> 64) as usize
}
