//! CassandraBatchTimeseries: a few metrics emit points, written as one logged batch of one partition and read back in
//! reverse order.
//!
//! Always true:
//!  - the points of a metric are consecutive milliseconds from the start of the run; each batch has the next ones, so
//!    several writers may write one metric at a time;
//!  - a read is of points before the first batch that is still being written, so each of their batches has an outcome:
//!    all points of an acknowledged batch are there, and of a batch that failed all or none, in order, up to the limit
//!    of the read;
//!  - a value is a function of metric and time.
//!
//! Half of the reads end at the newest point, as in yb-sample-apps; the others end at one of the last
//! [`LOOK_BACK_POINTS`].

use std::collections::BTreeSet;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use diorite_base::random::Random;
use scylla::client::session::Session;
use scylla::statement::Consistency;
use scylla::statement::batch::{Batch, BatchType};
use scylla::statement::prepared::PreparedStatement;

use super::scratch::Scratch;
use crate::WorkloadError;
use crate::arguments::DataShape;
use crate::data::point_text;
use crate::error::{Failure, Problem};
use crate::session::{batch, execute_schema, prepare, rows_of};
use crate::statements::Statements;

/// As many as yb-sample-apps has at most.
const METRICS: usize = 10;
/// A read asks for this many milliseconds.
const READ_SPAN: u64 = 180;
/// How far back a read may end.
const LOOK_BACK_POINTS: u64 = 10_000;
/// The size of a value.
const VALUE_BYTES: usize = 100;

/// One metric.
struct Metric {
    name: String,
    batches: Mutex<Batches>,
}

/// The batches of a metric, numbered from 0.
#[derive(Debug, Default)]
struct Batches {
    next: u64,
    /// All batches below have ended.
    ended: u64,
    /// Those that have ended before an earlier one.
    ended_early: BTreeSet<u64>,
    /// Those whose request failed. Grows with failed requests only.
    unknown: BTreeSet<u64>,
}

/// The points that a read asks for, numbered from 1: `first..=last`, the latest first.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Range {
    first: u64,
    last: u64,
    limit: usize,
    batch_size: u64,
    /// The batches that may be missing.
    unknown: BTreeSet<u64>,
}

/// The workload, shared by all tasks.
pub struct BatchTimeseries {
    session: Arc<Session>,
    batch: Batch,
    select: PreparedStatement,
    metrics: Vec<Metric>,
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
        let metrics = (0..METRICS)
            .map(|metric| Metric { name: format!("{prefix}:metric-{metric:05}"), batches: Mutex::default() });
        let batch = batch(BatchType::Logged, &insert, shape.batch_size);
        Ok(Self { session, batch, select, metrics: metrics.collect(), shape, start_ms })
    }

    /// Writes the next batch of some metric.
    pub(crate) async fn write(&self, scratch: &mut Scratch) -> Result<u64, Failure> {
        let index = scratch.random.below(METRICS as u64);
        let metric = &self.metrics[index as usize];
        let number = metric.batches().begin();
        let size = self.shape.batch_size as u64;
        let points = number * size + 1..=(number + 1) * size;
        let rows: Vec<_> =
            points.map(|point| (metric.name.as_str(), self.time(point), self.value(index, point))).collect();
        let sent = self.session.batch(&self.batch, &rows[..]).await;
        metric.batches().end(number, sent.is_ok());
        sent.map(|_| size).map_err(Failure::request)
    }

    /// Reads some points of a metric backwards and checks them.
    pub(crate) async fn read(&self, scratch: &mut Scratch) -> Result<u64, Failure> {
        let index = scratch.random.below(METRICS as u64);
        let metric = &self.metrics[index as usize];
        let back = if scratch.random.below(2) == 0 { 0 } else { scratch.random.below(LOOK_BACK_POINTS) };
        let range = metric.batches().range(back, self.shape).ok_or(Failure::Nothing)?;
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
        let found = found.and_then(|found| range.check(&found).map(|()| found.len() as u64));
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

impl Metric {
    fn batches(&self) -> MutexGuard<'_, Batches> {
        self.batches.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Batches {
    /// Takes the next batch to write.
    fn begin(&mut self) -> u64 {
        self.next += 1;
        self.next - 1
    }

    /// The request of a batch has ended.
    fn end(&mut self, number: u64, is_acknowledged: bool) {
        if !is_acknowledged {
            self.unknown.insert(number);
        }
        self.ended_early.insert(number);
        while self.ended_early.remove(&self.ended) {
            self.ended += 1;
        }
    }

    /// The points to read up to `back` points before the newest one; `None` if there are none yet.
    fn range(&self, back: u64, shape: DataShape) -> Option<Range> {
        let batch_size = shape.batch_size as u64;
        let newest = self.ended * batch_size;
        let last = newest - back.min(newest.checked_sub(1)?);
        let first = (last + 1).saturating_sub(READ_SPAN).max(1);
        let batches = (first - 1) / batch_size..=(last - 1) / batch_size;
        let unknown = self.unknown.range(batches).copied().collect();
        Some(Range { first, last, limit: shape.read_batch_size, batch_size, unknown })
    }
}

impl Range {
    /// Checks which points were found, in the order of the answer.
    fn check(&self, found: &[u64]) -> Result<(), Problem> {
        let mut found = found.iter().copied().take(self.limit + 1).peekable();
        let mut left = self.limit;
        let mut last = self.last;
        while last >= self.first && left > 0 {
            let batch = (last - 1) / self.batch_size;
            let first = (batch * self.batch_size + 1).max(self.first);
            // Of a batch that failed there are all points or none.
            if found.peek() == Some(&last) || !self.unknown.contains(&batch) {
                for point in (first..=last).rev().take(left) {
                    match found.next() {
                        Some(next) if next == point => left -= 1,
                        Some(next) => {
                            return Err(Problem::shape(format!("point {next} of the run where {point} is due")));
                        }
                        None => return Err(Problem::Missing),
                    }
                }
            }
            last = first - 1;
        }
        match found.next() {
            Some(next) => Err(Problem::shape(format!("point {next} of the run after the last one that is due"))),
            None => Ok(()),
        }
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "a failed unwrap is a failed test")]
    use super::*;

    fn shape() -> DataShape {
        DataShape { batch_size: 100, read_batch_size: 150, ..DataShape::default() }
    }

    /// Batches 0 to 4 have ended, batch 3 with an error.
    fn batches() -> Batches {
        let mut batches = Batches::default();
        (0..6).for_each(|_| _ = batches.begin());
        for number in [0, 2, 1, 4] {
            batches.end(number, true);
        }
        batches.end(3, false);
        batches
    }

    fn down(from: u64, to: u64) -> Vec<u64> {
        (to..=from).rev().collect()
    }

    #[test]
    fn reads_end_before_the_first_batch_that_is_being_written() {
        let mut batches = Batches::default();
        assert_eq!(batches.range(0, shape()), None);
        assert_eq!((batches.begin(), batches.begin()), (0, 1));
        batches.end(1, true);
        assert_eq!(batches.range(0, shape()), None);
        batches.end(0, true);
        let range = batches.range(0, shape()).unwrap();
        assert_eq!((range.first, range.last), (21, 200));
        let range = batches.range(5_000, shape()).unwrap();
        assert_eq!((range.first, range.last), (1, 1), "not before the first point");
    }

    #[test]
    fn acknowledged_points_are_all_there_in_reverse_order() {
        let range = batches().range(200, shape()).unwrap();
        assert_eq!((range.first, range.last, range.unknown.len()), (121, 300, 0));
        assert_eq!(range.check(&down(300, 151)), Ok(()));
        assert_eq!(range.check(&down(300, 152)), Err(Problem::Missing));
        assert!(range.check(&down(300, 150)).is_err(), "more than the limit");
        assert!(range.check(&down(299, 150)).is_err(), "the newest is missing");
        assert!(range.check(&[down(300, 250), down(248, 150)].concat()).is_err(), "one between is missing");
        assert!(range.check(&(151..=300).collect::<Vec<_>>()).is_err(), "forwards");
    }

    #[test]
    fn a_batch_that_failed_is_there_as_a_whole_or_not_at_all() {
        let range = batches().range(0, shape()).unwrap();
        assert_eq!((range.first, range.last), (321, 500));
        assert_eq!(range.unknown, BTreeSet::from([3]));
        assert_eq!(range.check(&down(500, 351)), Ok(()), "it is there, up to the limit");
        assert_eq!(range.check(&down(500, 401)), Ok(()), "it is not there");
        assert_eq!(range.check(&down(500, 380)), Err(Problem::Missing), "a part of it");
        assert!(range.check(&[down(500, 401), down(399, 351)].concat()).is_err(), "a part of it");
        assert_eq!(range.check(&down(500, 402)), Err(Problem::Missing), "an acknowledged one before it");
    }
}
