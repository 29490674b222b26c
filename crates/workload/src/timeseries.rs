//! CassandraTimeseries: users with metrics on nodes emit points, written as one logged batch per user, node and tick (a
//! row for each metric, each its own partition) and read back as the last ticks of one metric.
//!
//! Always true: a stream (one user's node) has one writer at a time and its ticks are consecutive milliseconds from the
//! start of the run, so a read of acknowledged ticks must return exactly those, in order; a stream whose batch failed
//! is not written again. Values are text of 32 characters computed from stream, metric and tick.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use diorite_base::random::Random;
use scylla::client::session::Session;
use scylla::statement::Consistency;
use scylla::statement::batch::{Batch, BatchType};
use scylla::statement::prepared::PreparedStatement;
use scylla::value::CqlTimestamp;

use crate::WorkloadError;
use crate::data::point_text;
use crate::error::{Failure, Problem};
use crate::session::{batch, execute_schema, prepare, rows_of};
use crate::statements::Statements;
use crate::workloads::scratch::Scratch;

const USERS: usize = 100;
/// A user has between 5 and 10 metrics and as many nodes.
const MIN_PER_USER: usize = 5;
const SPREAD_PER_USER: usize = 6;
/// The most ticks one read asks for.
const READ_TICKS: u64 = 10;
/// The size of a value.
const VALUE_BYTES: usize = 32;
const BUSY: u64 = 1 << 63;

/// One user's node.
struct Stream {
    user: String,
    node: String,
    metrics: usize,
    /// The last acknowledged tick, and [`BUSY`] while the next is being written.
    state: AtomicU64,
}

/// The workload, shared by all tasks.
pub struct Timeseries {
    session: Arc<Session>,
    /// Batches of 5 to 10 inserts, by number of metrics less the smallest.
    batches: Vec<Batch>,
    select: PreparedStatement,
    streams: Vec<Stream>,
    start_ms: i64,
}

impl Timeseries {
    /// Creates the table and prepares its statements; ticks count from `start_ms`.
    pub async fn new(
        session: Arc<Session>,
        prefix: &str,
        statements: &Statements,
        read_consistency: Consistency,
        start_ms: i64,
    ) -> Result<Self, WorkloadError> {
        execute_schema(&session, &statements.create_table).await?;
        let insert = prepare(&session, &statements.insert, Consistency::Quorum).await?;
        let select = prepare(&session, &statements.select, read_consistency).await?;
        let sizes = MIN_PER_USER..MIN_PER_USER + SPREAD_PER_USER;
        let batches = sizes.map(|size| batch(BatchType::Logged, &insert, size));
        Ok(Self { batches: batches.collect(), session, select, streams: streams(prefix), start_ms })
    }

    pub(crate) async fn write(&self, scratch: &mut Scratch) -> Result<u64, Failure> {
        let (index, stream, last) = (0..16)
            .find_map(|_| {
                let index = scratch.random.below(self.streams.len() as u64);
                let stream = &self.streams[index as usize];
                let before = stream.state.fetch_or(BUSY, Ordering::AcqRel);
                (before & BUSY == 0).then_some((index, stream, before))
            })
            .ok_or(Failure::Nothing)?;
        let tick = last + 1;
        let timestamp = CqlTimestamp(self.start_ms + tick as i64);
        let metrics: Vec<String> = (0..stream.metrics).map(metric_name).collect();
        let values: Vec<String> = (0..stream.metrics).map(|metric| value_text(index, metric, tick)).collect();
        let rows: Vec<_> = std::iter::zip(&metrics, &values)
            .map(|(metric, value)| {
                (stream.user.as_str(), metric.as_str(), stream.node.as_str(), timestamp, value.as_str())
            })
            .collect();
        let batch = &self.batches[stream.metrics - MIN_PER_USER];
        match self.session.batch(batch, &rows[..]).await {
            Ok(_) => {
                stream.state.store(tick, Ordering::Release);
                Ok(rows.len() as u64)
            }
            Err(error) => Err(Failure::request(error)),
        }
    }

    pub(crate) async fn read(&self, scratch: &mut Scratch) -> Result<u64, Failure> {
        let (index, stream, last) = (0..64)
            .find_map(|_| {
                let index = scratch.random.below(self.streams.len() as u64);
                let stream = &self.streams[index as usize];
                let last = stream.state.load(Ordering::Acquire) & !BUSY;
                (last > 0).then_some((index, stream, last))
            })
            .ok_or(Failure::Nothing)?;
        let metric = scratch.random.below(stream.metrics as u64) as usize;
        let first = last.saturating_sub(READ_TICKS) + 1;
        let (after, before) = (self.start_ms + first as i64 - 1, self.start_ms + last as i64 + 1);
        let metric_id = metric_name(metric);
        let bound = (&stream.user, &metric_id, &stream.node, CqlTimestamp(after), CqlTimestamp(before));
        let answer = self.session.execute_unpaged(&self.select, bound).await;
        let answer = answer.map_err(Failure::request)?;
        let violation = |problem| {
            let key = format!("({}, {metric_id}, {}, {after} < ts < {before})", stream.user, stream.node);
            Failure::violation(key, problem)
        };
        let shape = |error: &dyn std::fmt::Display| violation(Problem::Shape(error.to_string()));
        let rows = rows_of(answer).map_err(violation)?;
        let mut rows = rows.rows::<(&str, &str, &str, CqlTimestamp, &str)>().map_err(|error| shape(&error))?;
        for tick in first..=last {
            let row = rows.next().ok_or_else(|| violation(Problem::Missing))?.map_err(|error| shape(&error))?;
            let expected_ts = self.start_ms + tick as i64;
            if (row.0, row.1, row.2, row.3.0) != (&stream.user, &metric_id, &stream.node, expected_ts) {
                return Err(shape(&format!(
                    "the row of {:?} where ts {expected_ts} is due",
                    (row.0, row.1, row.2, row.3.0)
                )));
            }
            if row.4 != value_text(index, metric, tick) {
                return Err(shape(&format!("the value {:?} at ts {expected_ts} was never written", row.4)));
            }
        }
        match rows.next() {
            Some(_) => Err(shape(&format!("more than the {} rows that were written", last + 1 - first))),
            None => Ok(last + 1 - first),
        }
    }
}

fn streams(prefix: &str) -> Vec<Stream> {
    let users = (0..USERS).flat_map(|user| {
        let metrics = MIN_PER_USER + user % SPREAD_PER_USER;
        let nodes = MIN_PER_USER + user / SPREAD_PER_USER % SPREAD_PER_USER;
        (0..nodes).map(move |node| (user, node, metrics))
    });
    users
        .map(|(user, node, metrics)| Stream {
            user: format!("{prefix}:user-{user}"),
            node: format!("node-{node:05}"),
            metrics,
            state: AtomicU64::new(0),
        })
        .collect()
}

fn metric_name(metric: usize) -> String {
    format!("metric-{metric:05}.yyy")
}

fn value_text(stream: u64, metric: usize, tick: u64) -> String {
    point_text(stream << 8 | metric as u64, tick, VALUE_BYTES)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn streams_have_five_to_ten_metrics_and_distinct_names() {
        let streams = streams("key");
        assert!(streams.iter().all(|stream| (5..=10).contains(&stream.metrics)));
        let names: std::collections::BTreeSet<_> = streams.iter().map(|stream| (&stream.user, &stream.node)).collect();
        assert_eq!(names.len(), streams.len());
        assert!(streams.len() > 500);
    }

    #[test]
    fn values_differ_by_stream_metric_and_tick() {
        let values = [value_text(0, 0, 1), value_text(1, 0, 1), value_text(0, 1, 1), value_text(0, 0, 2)];
        assert_eq!(values.iter().collect::<std::collections::BTreeSet<_>>().len(), 4);
        assert!(values.iter().all(|value| value.len() == 32));
    }
}
