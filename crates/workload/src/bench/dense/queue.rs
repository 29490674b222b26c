//! Deleted and expired rows, and one hot row: a queue from which every row is taken out again, rows that expire,
//! conditional updates of a counter; and rows that expire in time windows ([`super::windows`]).
//!
//! Always true: the first row of the queue is read all the time while rows come and go, and every answer is the row
//! that is next; the counter ends at the number of acknowledged updates. Left out: several consumers, which would race
//! for the same rows.

use std::time::Duration;

use diorite_base::clock::{Clock, SystemClock};
use futures::future::try_join_all;
use scylla::client::session::Session;
use scylla::statement::Consistency;
use scylla::statement::prepared::PreparedStatement;
use scylla::value::{CqlValue, Row};

use super::counters::Counted;
use super::windows::{self, WindowSizes, failed};
use crate::WorkloadError;
use crate::arguments::ConnectionArguments;
use crate::report::Figure;
use crate::session::{connect, execute_schema, prepare, use_keyspace};
use crate::status::say;
use crate::timer::pause;

/// The size of the phase.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct QueueSizes {
    /// Rows that go through the queue.
    pub rows: usize,
    /// How long expiring rows live.
    pub ttl_s: u64,
    /// How long to wait until the last reads.
    pub rest: Duration,
    /// Rounds of the hot row, of each client.
    pub rounds: usize,
    /// Time windows.
    pub windows: WindowSizes,
}

impl QueueSizes {
    /// For tests.
    pub const TINY: Self =
        Self { rows: 2_000, ttl_s: 1, rest: Duration::from_secs(1), rounds: 50, windows: WindowSizes::TINY };
    /// The limits of the goals.
    pub const WHOLE: Self =
        Self { rows: 100_000, ttl_s: 5, rest: Duration::from_secs(60), rounds: 2_000, windows: WindowSizes::WHOLE };
}

/// Rows of one request.
const BATCH: usize = 64;
/// Requests in flight.
const IN_FLIGHT: usize = 16;
/// The time between two reads of the first row.
const LOOK: Duration = Duration::from_millis(5);
const CLIENTS: usize = 8;
/// The number of reads after the pause.
const LAST_LOOKS: usize = 200;

/// Runs the whole phase.
pub async fn run(
    connection: &ConnectionArguments,
    counted: &Counted,
    sizes: QueueSizes,
    json: bool,
) -> Result<Vec<Figure>, WorkloadError> {
    let session = connect(connection, connection.connections).await?;
    use_keyspace(&session, connection).await?;
    let mut figures = Vec::new();
    for (name, what, options) in [
        ("queue", Kind::TakenOut, String::new()),
        ("expiry", Kind::Expiring, format!(" WITH default_time_to_live = {}", sizes.ttl_s)),
    ] {
        say(json, &format!("{name}: {} rows in and out, the first one looked at meanwhile", sizes.rows));
        let queue = Queue::new(&session, name, &options, sizes, what).await?;
        let before = counted.counters().await;
        figures.extend(queue.run().await?);
        let passed = counted.counters().await.zip(before).map(|(now, before)| now.since(&before).dead_rows_passed);
        figures.push(Figure::new(format!("{name}: dead rows that reads went past"), passed, ""));
    }
    say(json, &format!("hot row: {CLIENTS} clients, {} conditional updates each", sizes.rounds));
    figures.extend(hot_row(&session, sizes.rounds).await?);
    figures.extend(windows::run(&session, counted, sizes.windows, json).await?);
    Ok(figures)
}

/// The ways in which rows disappear.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Kind {
    /// They are deleted, the first one first.
    TakenOut,
    /// They expire.
    Expiring,
}

struct Queue<'s> {
    session: &'s Session,
    name: &'static str,
    kind: Kind,
    sizes: QueueSizes,
    insert: PreparedStatement,
    delete: PreparedStatement,
    first: PreparedStatement,
}

impl<'s> Queue<'s> {
    async fn new(
        session: &'s Session,
        name: &'static str,
        options: &str,
        sizes: QueueSizes,
        kind: Kind,
    ) -> Result<Self, WorkloadError> {
        let columns = "name text, number bigint, body text, PRIMARY KEY (name, number)";
        execute_schema(session, &format!("CREATE TABLE IF NOT EXISTS {name} ({columns}){options}")).await?;
        let quorum = Consistency::Quorum;
        let of = |statement: String| async move { prepare(session, &statement, quorum).await };
        Ok(Self {
            session,
            name,
            kind,
            sizes,
            insert: of(format!("INSERT INTO {name} (name, number, body) VALUES ('q', ?, ?)")).await?,
            delete: of(format!("DELETE FROM {name} WHERE name = 'q' AND number = ?")).await?,
            first: of(format!("SELECT number, body FROM {name} WHERE name = 'q' LIMIT 1")).await?,
        })
    }

    async fn run(&self) -> Result<Vec<Figure>, WorkloadError> {
        let clock = SystemClock::new();
        let done = std::sync::atomic::AtomicBool::new(false);
        let work = async {
            self.put_in().await?;
            match self.kind {
                Kind::TakenOut => self.take_out().await?,
                Kind::Expiring => pause(Duration::from_secs(self.sizes.ttl_s + 3)).await,
            }
            done.store(true, std::sync::atomic::Ordering::Relaxed);
            Ok::<(), WorkloadError>(())
        };
        let looks = async {
            let mut looks = Vec::new();
            while !done.load(std::sync::atomic::Ordering::Relaxed) {
                looks.push(self.look(&clock).await?.0);
                pause(LOOK).await;
            }
            Ok(looks)
        };
        let ((), looks) = tokio::try_join!(work, looks)?;
        let mut after = Vec::new();
        pause(self.sizes.rest).await;
        for _ in 0..LAST_LOOKS.min(self.sizes.rows) {
            let (took_ms, first) = self.look(&clock).await?;
            if let Some(first) = first {
                return Err(failed(format!("row {first} of {} is there again", self.name)));
            }
            after.push(took_ms);
        }
        let (name, rest_s) = (self.name, self.sizes.rest.as_secs());
        let most = |looks: &[f64]| looks.iter().copied().reduce(f64::max);
        Ok(vec![
            Figure::new(format!("{name}: LIMIT 1 while rows come and go, longest"), most(&looks), "ms")
                .with_goal("at most 30"),
            Figure::new(format!("{name}: the same, p50"), middle(looks), "ms"),
            Figure::new(format!("{name}: LIMIT 1 after {rest_s} s, longest"), most(&after), "ms")
                .with_goal("at most 2"),
            Figure::new(format!("{name}: the same, p50"), middle(after), "ms"),
        ])
    }

    /// Reads the first row: milliseconds, and its number.
    async fn look(&self, clock: &SystemClock) -> Result<(f64, Option<i64>), WorkloadError> {
        let began_ns = clock.monotonic_ns();
        let found = self.session.execute_unpaged(&self.first, ()).await.map_err(failed)?;
        let took_ms = (clock.monotonic_ns() - began_ns) as f64 / 1e6;
        let rows = found.into_rows_result().map_err(failed)?;
        let first = rows.maybe_first_row::<(i64, String)>().map_err(failed)?;
        Ok((took_ms, first.map(|(number, _)| number)))
    }

    async fn put_in(&self) -> Result<(), WorkloadError> {
        let body = "x".repeat(100);
        for numbers in (0..self.sizes.rows as i64).collect::<Vec<_>>().chunks(BATCH * IN_FLIGHT) {
            let puts = numbers.iter().map(|number| self.session.execute_unpaged(&self.insert, (*number, &body)));
            try_join_all(puts).await.map_err(failed)?;
        }
        Ok(())
    }

    /// Takes rows out from the first on, as many at a time as consumers that work together do.
    async fn take_out(&self) -> Result<(), WorkloadError> {
        let clock = SystemClock::new();
        for numbers in (0..self.sizes.rows as i64).collect::<Vec<_>>().chunks(BATCH) {
            let (_, first) = self.look(&clock).await?;
            if first != numbers.first().copied() {
                return Err(failed(format!("the first row of {} is {first:?}, not {:?}", self.name, numbers.first())));
            }
            let takes = numbers.iter().map(|number| self.session.execute_unpaged(&self.delete, (*number,)));
            try_join_all(takes).await.map_err(failed)?;
        }
        Ok(())
    }
}

fn middle(mut values: Vec<f64>) -> Option<f64> {
    values.sort_by(f64::total_cmp);
    values.get(values.len() / 2).copied()
}

/// Clients that increment the same cell, each from the value it saw last.
async fn hot_row(session: &Session, rounds: usize) -> Result<Vec<Figure>, WorkloadError> {
    execute_schema(session, "CREATE TABLE IF NOT EXISTS hot (k text PRIMARY KEY, n bigint)").await?;
    session.query_unpaged("INSERT INTO hot (k, n) VALUES ('hot', 0)", ()).await.map_err(failed)?;
    let mut update = prepare(session, "UPDATE hot SET n = ? WHERE k = 'hot' IF n = ?", Consistency::Quorum).await?;
    // A refused update shows the value it found, an applied one does not.
    update.set_use_cached_result_metadata(false);
    let clock = SystemClock::new();
    let began_ns = clock.monotonic_ns();
    let client = async |_: usize| {
        let (mut seen, mut done, mut longest_ms) = (0_i64, 0_i64, 0.0_f64);
        for _ in 0..rounds {
            let sent_ns = clock.monotonic_ns();
            let answer = session.execute_unpaged(&update, (seen + 1, seen)).await.map_err(failed)?;
            longest_ms = longest_ms.max((clock.monotonic_ns() - sent_ns) as f64 / 1e6);
            let row = answer.into_rows_result().map_err(failed)?.first_row::<Row>().map_err(failed)?;
            let is_applied = row.columns.first().is_some_and(|cell| *cell == Some(CqlValue::Boolean(true)));
            done += i64::from(is_applied);
            seen = match row.columns.get(1) {
                _ if is_applied => seen + 1,
                Some(Some(CqlValue::BigInt(found))) => *found,
                _ => return Err(failed("a refused update does not show what it found")),
            };
        }
        Ok::<_, WorkloadError>((done, longest_ms))
    };
    let clients = try_join_all((0..CLIENTS).map(client)).await?;
    let seconds = (clock.monotonic_ns() - began_ns) as f64 / 1e9;
    let done: i64 = clients.iter().map(|(done, _)| done).sum();
    let found = session.query_unpaged("SELECT n FROM hot WHERE k = 'hot'", ()).await.map_err(failed)?;
    let (counted,) = found.into_rows_result().map_err(failed)?.first_row::<(i64,)>().map_err(failed)?;
    if counted != done {
        return Err(failed(format!("the hot row says {counted} after {done} updates that were acknowledged")));
    }
    let longest_ms = clients.iter().map(|(_, longest_ms)| *longest_ms).fold(0.0, f64::max);
    let rate = (CLIENTS * rounds) as f64 / seconds;
    Ok(vec![
        Figure::new(format!("hot row: conditional updates of {CLIENTS} clients"), rate, "rounds/s")
            .with_goal("at least 1000"),
        Figure::new("hot row: of these, applied", done as f64 / (CLIENTS * rounds) as f64 * 100.0, "%"),
        Figure::new("hot row: longest round", longest_ms, "ms"),
    ])
}
