//! This node's answers to questions about itself, whichever node was asked.

use super::{Allocator, memory, queries};
use crate::config::SlowQueryOption;
use crate::logging::{Level, Logging, UnknownLevel};
use crate::operate::{CheckedKeys, Own};
use crate::shared::Shared;
use diorite_admin::api::{Activity, Done, Failure, FailureKind, LogChange, LogFilter, LogStatus, NodeQuestion};
use diorite_base::TableId;
use diorite_base::account::Meter;
use diorite_cql::protocol::CqlError;
use diorite_query::budget::Budget;
use diorite_query::engine::{Comparison, RowComparer};
use diorite_rpc::tcp::TcpTransport;
use futures::future::BoxFuture;
use futures::{StreamExt, TryStreamExt};
use serde_json::Value;
use std::sync::Arc;
use uuid::Uuid;

/// The level of lines that are shown if none is asked for.
const SHOWN_LEVEL: &str = "info";

/// Rows that are compared at a time, for a unique index, and the most memory of each.
const COMPARED_AT_ONCE: usize = 16;
const MAX_COMPARED_BYTES: usize = 16 << 20;

/// The sources of the answers.
pub(crate) struct Observed {
    pub(crate) shared: Arc<Shared>,
    pub(crate) transport: Arc<TcpTransport>,
    /// The options in force.
    pub(crate) configuration: Value,
    pub(crate) memory_limit_bytes: u64,
    pub(crate) allocator: Allocator,
}

/// So long the rows of a step are looked at: whoever has asked waits for the answer.
const CHECKED_NS: u64 = 8_000_000_000;

/// The memory of the comparison of one row, and when it ends.
fn compared_budget(shared: &Shared, deadline_ns: u64) -> Arc<Budget> {
    let meter = Meter::new(&shared.account, MAX_COMPARED_BYTES);
    Arc::new(Budget::watching(meter, deadline_ns, Arc::clone(&shared.kv.clock)))
}

impl Observed {
    /// Bytes that wait to be sent to other nodes.
    fn lanes_bytes(&self) -> u64 {
        self.transport.statistics().iter().map(|(.., lane)| lane.bytes_waiting).sum()
    }
}

impl Own for Observed {
    fn activity(&self) -> Activity {
        self.shared.history.latest()
    }

    fn compare_rows(
        &self,
        table: TableId,
        index: u64,
        rows: Vec<Vec<u8>>,
    ) -> BoxFuture<'static, Result<Comparison, CqlError>> {
        let shared = Arc::clone(&self.shared);
        Box::pin(async move {
            let one = |row: Vec<u8>| {
                let shared = Arc::clone(&shared);
                async move {
                    let budget = compared_budget(&shared, u64::MAX);
                    RowComparer::of(&shared.engine).compare_row(table, index, &row, &budget).await
                }
            };
            let mut comparing = futures::stream::iter(rows).map(one).buffer_unordered(COMPARED_AT_ONCE);
            while let Some(found) = comparing.next().await {
                match found? {
                    Comparison::Alone => {}
                    found => return Ok(found),
                }
            }
            Ok(Comparison::Alone)
        })
    }

    fn finish_covering(&self, table: TableId, view: u64, may_remove: bool) -> BoxFuture<'static, Result<(), CqlError>> {
        let shared = Arc::clone(&self.shared);
        Box::pin(async move { RowComparer::of(&shared.engine).finish_covering(table, view, may_remove).await })
    }

    fn check_rows(
        &self,
        table: TableId,
        index: u64,
        entries: bool,
        keys: Vec<Vec<u8>>,
    ) -> BoxFuture<'static, Result<CheckedKeys, CqlError>> {
        let shared = Arc::clone(&self.shared);
        let deadline_ns = shared.kv.clock.monotonic_ns().saturating_add(CHECKED_NS);
        Box::pin(async move {
            let one = |key: Vec<u8>| {
                let shared = Arc::clone(&shared);
                async move {
                    let budget = compared_budget(&shared, deadline_ns);
                    let comparer = RowComparer::of(&shared.engine);
                    let found = comparer.check((table, index), &key, entries, &budget).await;
                    found.map(|found| (key, found))
                }
            };
            futures::stream::iter(keys).map(one).buffered(COMPARED_AT_ONCE).try_collect().await
        })
    }

    fn answer(&self, question: NodeQuestion) -> Result<Value, Failure> {
        let shown = match question {
            NodeQuestion::History => Ok(self.shared.history.to_json()),
            NodeQuestion::Queries => serde_json::to_value(queries::look(&self.shared)),
            NodeQuestion::Memory => serde_json::to_value(memory::look(
                &self.shared,
                self.lanes_bytes(),
                self.memory_limit_bytes,
                (self.allocator.status)(),
            )),
            NodeQuestion::Logs(filter) => Ok(logs(&self.shared.logging, filter)?),
            NodeQuestion::Configuration => Ok(self.configuration.clone()),
            NodeQuestion::Cancel { number } => match self.shared.engine.activity().cancel(number) {
                true => serde_json::to_value(Done { message: format!("request {number} is ended") }),
                false => {
                    let message = format!("no request with the number {number} runs on this node");
                    return Err(Failure::new(FailureKind::NotFound, message));
                }
            },
            NodeQuestion::Trace { session } => {
                let session = session.parse::<Uuid>().map_err(|error| invalid(format!("session: {error}")))?;
                serde_json::to_value(self.shared.engine.traces().find(session))
            }
            NodeQuestion::Logging(change) => serde_json::to_value(log(&self.shared.logging, &change)?),
        };
        shown.map_err(|error| Failure::new(FailureKind::Unavailable, error.to_string()))
    }
}

fn invalid(message: impl Into<String>) -> Failure {
    Failure::new(FailureKind::Invalid, message)
}

fn logs(logging: &Logging, filter: LogFilter) -> Result<Value, Failure> {
    // An empty field of a form selects nothing.
    let level = filter.level.filter(|level| !level.is_empty());
    let level: Level =
        level.as_deref().unwrap_or(SHOWN_LEVEL).parse().map_err(|error: UnknownLevel| invalid(error.to_string()))?;
    Ok(logging.recent.last(level, filter.limit))
}

/// Changes how this node logs. If a value cannot be parsed, nothing is changed.
fn log(logging: &Logging, change: &LogChange) -> Result<LogStatus, Failure> {
    let slow_query = change.slow_query.as_deref().map(str::parse::<SlowQueryOption>).transpose();
    let slow_query = slow_query.map_err(|error| invalid(format!("slow_query: {error}")))?;
    if let Some(levels) = &change.levels {
        logging.set_levels(levels).map_err(|error| invalid(format!("levels: {error}")))?;
    }
    if let Some(SlowQueryOption(threshold_ms)) = slow_query {
        logging.slow.set_threshold_ms(threshold_ms);
    }
    Ok(LogStatus {
        levels: logging.levels(),
        slow_query: SlowQueryOption(logging.slow.threshold_ms()).to_string(),
        format: logging.format().to_string(),
    })
}
