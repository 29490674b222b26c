//! CassandraStockTicker: tickers that emit points, each written to the raw table, and every 60th to the minutely table
//! too; a read returns the newest point of one ticker.
//!
//! Always true:
//!  - a ticker has one writer at a time, its points are consecutive milliseconds from the start of the run, and none is
//!    in the future, so that a later run finds no newer ones;
//!  - the newest point that a read finds is at least the newest one that was acknowledged before the read was sent, and
//!    at most the newest one that was sent before the answer;
//!  - a ticker whose write failed is not written again.
//!
//! One read in 60 is of the minutely table, which yb-sample-apps never reads.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use diorite_base::clock::{Clock, SystemClock};
use diorite_base::random::Random;
use scylla::client::session::Session;
use scylla::statement::Consistency;
use scylla::statement::prepared::PreparedStatement;
use scylla::value::CqlTimestamp;

use super::scratch::Scratch;
use crate::WorkloadError;
use crate::data::point_text;
use crate::error::{Failure, Problem};
use crate::session::{execute_schema, prepare, rows_of};
use crate::statements::Statements;

/// Every so many points one is written to the minutely table too, and as many reads are of the raw table.
const POINTS_PER_MINUTE: u64 = 60;
/// The size of a value.
const VALUE_BYTES: usize = 32;
/// Set while a point is being written, and for good once a write has failed.
const BUSY: u64 = 1 << 63;

/// The statements of one of the two tables.
struct Table {
    insert: PreparedStatement,
    select: PreparedStatement,
}

/// One ticker. Its points are numbered from 1.
#[derive(Default)]
struct Ticker {
    name: String,
    /// The last acknowledged point of the raw table, and [`BUSY`].
    raw: AtomicU64,
    /// The last acknowledged point of the minutely table.
    minutely: AtomicU64,
}

/// What the newest point of a ticker can be.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Bounds {
    oldest: u64,
    newest: u64,
    /// Points are multiples of this.
    step: u64,
}

/// The workload, shared by all tasks.
pub struct StockTicker {
    session: Arc<Session>,
    raw: Table,
    minutely: Table,
    tickers: Vec<Ticker>,
    clock: SystemClock,
    start_ms: i64,
}

impl StockTicker {
    /// Creates the raw and the minutely table and prepares their statements; points count from `start_ms`.
    pub async fn new(
        session: Arc<Session>,
        prefix: &str,
        [raw, minutely]: [&Statements; 2],
        read_consistency: Consistency,
        tickers: usize,
        start_ms: i64,
    ) -> Result<Self, WorkloadError> {
        let tickers = (0..tickers).map(|ticker| Ticker::new(format!("{prefix}:ticker-{ticker}")));
        Ok(Self {
            raw: Table::create(&session, raw, read_consistency).await?,
            minutely: Table::create(&session, minutely, read_consistency).await?,
            session,
            tickers: tickers.collect(),
            clock: SystemClock::new(),
            start_ms,
        })
    }

    /// Writes the next point of some ticker.
    pub(crate) async fn write(&self, scratch: &mut Scratch) -> Result<u64, Failure> {
        let now_ms = self.clock.wall_us() / 1_000;
        let last_due = u64::try_from(now_ms - self.start_ms).unwrap_or(0);
        let (index, point) = (0..16)
            .find_map(|_| {
                let index = scratch.random.below(self.tickers.len() as u64);
                self.tickers[index as usize].begin(last_due).map(|point| (index, point))
            })
            .ok_or(Failure::Nothing)?;
        let ticker = &self.tickers[index as usize];
        self.insert(&self.raw, index, point).await?;
        if point.is_multiple_of(POINTS_PER_MINUTE) {
            ticker.raw.store(point | BUSY, Ordering::Release);
            self.insert(&self.minutely, index, point).await?;
            ticker.minutely.store(point, Ordering::Release);
            ticker.raw.store(point, Ordering::Release);
            return Ok(2);
        }
        ticker.raw.store(point, Ordering::Release);
        Ok(1)
    }

    async fn insert(&self, table: &Table, index: u64, point: u64) -> Result<(), Failure> {
        let (time, value) = (self.time(point), point_text(index, point, VALUE_BYTES));
        let bound = (self.tickers[index as usize].name.as_str(), time, value);
        self.session.execute_unpaged(&table.insert, bound).await.map(|_| ()).map_err(Failure::request)
    }

    /// Reads the newest point of some ticker and checks it.
    pub(crate) async fn read(&self, scratch: &mut Scratch) -> Result<u64, Failure> {
        let reads_minutely = scratch.random.below(POINTS_PER_MINUTE) == 0;
        let choose = |is_minutely: bool, scratch: &mut Scratch| {
            (0..64).find_map(|_| {
                let index = scratch.random.below(self.tickers.len() as u64);
                let oldest = self.tickers[index as usize].acknowledged(is_minutely);
                (oldest > 0).then_some((is_minutely, index, oldest))
            })
        };
        // Before the first minute all reads are of the raw table.
        let minutely = reads_minutely.then(|| choose(true, scratch)).flatten();
        let (is_minutely, index, oldest) = minutely.or_else(|| choose(false, scratch)).ok_or(Failure::Nothing)?;
        let (ticker, table) = (&self.tickers[index as usize], if is_minutely { &self.minutely } else { &self.raw });
        let answer = self.session.execute_unpaged(&table.select, (ticker.name.as_str(),)).await;
        let rows = rows_of(answer.map_err(Failure::request)?);
        let bounds = ticker.bounds(is_minutely, oldest);
        let checked = rows.and_then(|rows| {
            if rows.rows_num() > 1 {
                return Err(Problem::shape(format!("{} rows instead of one", rows.rows_num())));
            }
            let row = rows.maybe_first_row::<(&str, CqlTimestamp, &str)>().map_err(Problem::shape)?;
            let (name, time, value) = row.ok_or(Problem::Missing)?;
            if name != ticker.name {
                return Err(Problem::shape(format!("the row of {name}")));
            }
            bounds.check(index, time.0 - self.start_ms, value)
        });
        let table = if is_minutely { "minutely" } else { "raw" };
        checked.map_err(|problem| Failure::violation(format!("{} of the {table} table", ticker.name), problem))?;
        Ok(1)
    }

    fn time(&self, point: u64) -> CqlTimestamp {
        CqlTimestamp(self.start_ms + point as i64)
    }
}

impl Table {
    async fn create(session: &Session, statements: &Statements, reads: Consistency) -> Result<Self, WorkloadError> {
        execute_schema(session, &statements.create_table).await?;
        Ok(Self {
            insert: prepare(session, &statements.insert, Consistency::Quorum).await?,
            select: prepare(session, &statements.select, reads).await?,
        })
    }
}

impl Ticker {
    fn new(name: String) -> Self {
        Self { name, ..Self::default() }
    }

    /// The right to write the next point, which is not later than `last_due`.
    fn begin(&self, last_due: u64) -> Option<u64> {
        let taken = self.raw.fetch_update(Ordering::AcqRel, Ordering::Relaxed, |last| {
            (last & BUSY == 0 && last < last_due).then_some(last | BUSY)
        });
        taken.ok().map(|last| last + 1)
    }

    /// The last acknowledged point, or 0.
    fn acknowledged(&self, is_minutely: bool) -> u64 {
        let point = if is_minutely { &self.minutely } else { &self.raw };
        point.load(Ordering::Acquire) & !BUSY
    }

    /// After an answer to a read that began when `oldest` was the last acknowledged point.
    fn bounds(&self, is_minutely: bool, oldest: u64) -> Bounds {
        let raw = self.raw.load(Ordering::Acquire);
        let newest = (raw & !BUSY) + u64::from(raw & BUSY != 0);
        Bounds { oldest, newest, step: if is_minutely { POINTS_PER_MINUTE } else { 1 } }
    }
}

impl Bounds {
    /// Checks the point of a ticker that was found `point` milliseconds after the start of the run.
    fn check(self, ticker: u64, point: i64, value: &str) -> Result<(), Problem> {
        let Self { oldest, newest, step } = self;
        let point = u64::try_from(point).unwrap_or(0);
        if point < oldest {
            return Err(Problem::shape(format!("stale point {point}, but {oldest} was acknowledged before")));
        }
        if point > newest || !point.is_multiple_of(step) {
            return Err(Problem::shape(format!("point {point} was never written; the newest one is {newest}")));
        }
        if value != point_text(ticker, point, VALUE_BYTES) {
            return Err(Problem::shape(format!("the value {value:?} of point {point} was never written")));
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_ticker_has_one_writer_and_no_point_of_the_future() {
        let ticker = Ticker::new("t".into());
        assert_eq!(ticker.begin(0), None, "nothing is due");
        assert_eq!(ticker.begin(9), Some(1));
        assert_eq!(ticker.begin(9), None, "it is being written");
        assert_eq!(ticker.bounds(false, 0), Bounds { oldest: 0, newest: 1, step: 1 });
        ticker.raw.store(1, Ordering::Release);
        assert_eq!(ticker.begin(1), None);
        assert_eq!(ticker.begin(2), Some(2));
        assert_eq!((ticker.acknowledged(false), ticker.acknowledged(true)), (1, 0));
    }

    #[test]
    fn stale_foreign_and_unwritten_points_are_found() {
        let bounds = Bounds { oldest: 60, newest: 61, step: 1 };
        let value = |ticker, point| point_text(ticker, point, VALUE_BYTES);
        assert_eq!(bounds.check(3, 60, &value(3, 60)), Ok(()));
        assert_eq!(bounds.check(3, 61, &value(3, 61)), Ok(()), "not acknowledged yet");
        assert!(bounds.check(3, 59, &value(3, 59)).is_err(), "stale");
        assert!(bounds.check(3, -5, &value(3, 60)).is_err(), "of an earlier run");
        assert!(bounds.check(3, 62, &value(3, 62)).is_err(), "never written");
        assert!(bounds.check(3, 60, &value(4, 60)).is_err(), "of another ticker");
        assert!(bounds.check(3, 61, &value(3, 60)).is_err(), "of another point");
        let minutely = Bounds { step: POINTS_PER_MINUTE, ..bounds };
        assert_eq!(minutely.check(3, 60, &value(3, 60)), Ok(()));
        assert!(minutely.check(3, 61, &value(3, 61)).is_err(), "no whole minute");
    }
}
