//! CassandraBatchTimeseries: a few metrics emit points, written as one logged batch of one partition and read back in
//! reverse order.
//!
//! Always true: a value is a function of metric and time; [`super::batches`] says which points there are.

use std::sync::Arc;

use diorite_base::random::Random;
use scylla::client::session::Session;
use scylla::statement::Consistency;
use scylla::statement::batch::{Batch, BatchType};
use scylla::statement::prepared::PreparedStatement;

use super::batches::Series;
use super::scratch::Scratch;
use crate::WorkloadError;
use crate::arguments::DataShape;
use crate::data::point_text;
use crate::error::{Failure, Problem};
use crate::session::{batch, execute_schema, prepare, rows_of};
use crate::statements::Statements;

/// As many as yb-sample-apps has at most.
const METRICS: usize = 10;
/// The size of a value.
const VALUE_BYTES: usize = 100;

/// The workload, shared by all tasks.
pub struct BatchTimeseries {
    session: Arc<Session>,
    batch: Batch,
    select: PreparedStatement,
    metrics: Vec<Series>,
    shape: DataShape,
    start_ms: i64,
}

impl BatchTimeseries {
    /// Creates the table and prepares its statements; points count from `start_ms`.
    pub async fn new(
        session: Arc<Session>,
        prefix: &str,
        statements: &Statements,
        read_consistency: Consistency,
        shape: DataShape,
        start_ms: i64,
    ) -> Result<Self, WorkloadError> {
        execute_schema(&session, &statements.create_table).await?;
        let insert = prepare(&session, &statements.insert, Consistency::Quorum).await?;
        let select = prepare(&session, &statements.select, read_consistency).await?;
        let metrics = (0..METRICS).map(|metric| Series::new(format!("{prefix}:metric-{metric:05}")));
        let batch = batch(BatchType::Logged, &insert, shape.batch_size);
        Ok(Self { session, batch, select, metrics: metrics.collect(), shape, start_ms })
    }

    /// Writes the next batch of some metric.
    pub(crate) async fn write(&self, scratch: &mut Scratch) -> Result<u64, Failure> {
        let index = scratch.random.below(METRICS as u64);
        let metric = &self.metrics[index as usize];
        let number = metric.begin();
        let size = self.shape.batch_size as u64;
        let points = number * size + 1..=(number + 1) * size;
        let rows: Vec<_> =
            points.map(|point| (metric.name.as_str(), self.time(point), self.value(index, point))).collect();
        let sent = self.session.batch(&self.batch, &rows[..]).await;
        metric.end(number, sent.is_ok());
        sent.map(|_| size).map_err(Failure::request)
    }

    /// Reads some points of a metric backwards and checks them.
    pub(crate) async fn read(&self, scratch: &mut Scratch) -> Result<u64, Failure> {
        let index = scratch.random.below(METRICS as u64);
        let metric = &self.metrics[index as usize];
        let range = metric.some_range(&mut scratch.random, self.shape).ok_or(Failure::Nothing)?;
        let (after, before) = (self.time(range.first - 1), self.time(range.last + 1));
        let bound = (metric.name.as_str(), after, before, range.limit as i32);
        let answer = self.session.execute_unpaged(&self.select, bound).await.map_err(Failure::request)?;
        let found = rows_of(answer).and_then(|rows| {
            let rows = rows.rows::<(&str, i64, &str)>().map_err(Problem::shape)?;
            rows.map(|row| {
                let (name, time, value) = row.map_err(Problem::shape)?;
                let point = u64::try_from(time - self.start_ms).unwrap_or(0);
                if name != metric.name || value != self.value(index, point) {
                    return Err(Problem::shape(format!("a row of {name} with ts {time} that was never written")));
                }
                Ok(point)
            })
            .collect::<Result<Vec<u64>, _>>()
        });
        let key = || format!("({}, {after} < ts < {before})", metric.name);
        let found = found.and_then(|found| range.check(&found, |_| true).map(|()| found.len() as u64));
        found.map_err(|problem| Failure::violation(key(), problem))
    }

    fn time(&self, point: u64) -> i64 {
        self.start_ms + point as i64
    }

    fn value(&self, metric: u64, point: u64) -> String {
        // By time and not by number, so that points of an earlier run at the same times are the same.
        point_text(metric, self.time(point) as u64, VALUE_BYTES)
    }
}
