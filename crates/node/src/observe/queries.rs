//! The cost of statements, and the running ones.

use crate::shared::Shared;
use diorite_admin::api::{QueryActivity, QueryStatus, RunningQuery};
use diorite_query::activity::{RunningRequest, StatementSummary};
use diorite_query::kv::Kv;

/// Running requests that are shown.
const SHOWN: usize = 100;
const NS_PER_S: f64 = 1e9;

/// Reads the statistics of statements and the running requests now.
pub(crate) fn look(shared: &Shared) -> QueryActivity {
    let activity = shared.engine.activity();
    let now_ns = shared.kv.clock.monotonic_ns();
    let now_unix_s = u64::try_from(shared.kv.now_us()).unwrap_or(0) / 1_000_000;
    let unix_s = |used_s: u64| now_unix_s.saturating_sub((now_ns / 1_000_000_000).saturating_sub(used_s));
    let mut queries: Vec<QueryStatus> =
        activity.summaries().iter().map(|summary| status(summary, unix_s(summary.used_s))).collect();
    queries.sort_unstable_by(|one, two| two.total_seconds.total_cmp(&one.total_seconds));
    let (running, running_count) = activity.running(SHOWN);
    let running = running.iter().map(|request| running_query(request, now_ns)).collect();
    QueryActivity { queries, running, running_count }
}

fn status(summary: &StatementSummary, last_unix_seconds: u64) -> QueryStatus {
    let longest = summary.longest_us as f64 / 1e6;
    QueryStatus {
        statement: summary.statement.as_ref().map(|statement| statement.text.clone()),
        keyspace: summary.statement.as_ref().and_then(|statement| statement.keyspace.clone()),
        count: summary.times.count(),
        mean_seconds: summary.times.mean_seconds().unwrap_or(0.0),
        // The bucket may end after the longest duration.
        p99_seconds: summary.times.quantile_seconds(0.99).unwrap_or(0.0).min(longest),
        max_seconds: longest,
        total_seconds: summary.times.sum_seconds(),
        rows: summary.rows,
        errors: summary.errors,
        last_unix_seconds,
    }
}

fn running_query(request: &RunningRequest, now_ns: u64) -> RunningQuery {
    RunningQuery {
        number: request.number,
        memory_bytes: request.budget.meter().used_bytes() as u64,
        statement: request.statement.text.clone(),
        keyspace: request.statement.keyspace.clone(),
        seconds_running: now_ns.saturating_sub(request.arrived_ns) as f64 / NS_PER_S,
        client: request.client.map(|client| client.to_string()),
    }
}
