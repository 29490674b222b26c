//! Time windows: rows with a time to live, in a table with `TimeWindowCompactionStrategy`, are written for several
//! windows, and should go without being written again.
//!
//! Always true: rows without a time to live, written beside the others, are all there in the end. Left out: how long
//! reads take meanwhile.

use std::time::Duration;

use diorite_base::clock::{Clock, SystemClock};
use futures::future::try_join_all;
use scylla::client::session::Session;
use scylla::statement::Consistency;
use scylla::statement::prepared::PreparedStatement;

use super::counters::{Counted, Counters};
use crate::WorkloadError;
use crate::report::Figure;
use crate::session::{execute_schema, prepare};
use crate::status::say;
use crate::timer::pause;

/// The size of the phase.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct WindowSizes {
    /// Rows that expire, in all.
    pub rows: usize,
    /// The time over which they are written.
    pub over: Duration,
    pub ttl_s: u64,
    /// How long to wait until the last window is one file; none of them expires in that time.
    pub last: Duration,
    /// How long to wait, at most, until they are gone.
    pub wait: Duration,
}

impl WindowSizes {
    /// For tests: nothing expires within it.
    pub const TINY: Self =
        Self { rows: 500, over: Duration::ZERO, ttl_s: 600, last: Duration::ZERO, wait: Duration::ZERO };
    /// Windows of one minute; the first one expires after all are written.
    pub const WHOLE: Self = Self {
        rows: 200_000,
        over: Duration::from_secs(120),
        ttl_s: 240,
        last: Duration::from_secs(90),
        wait: Duration::from_secs(240),
    };
}

/// Bytes of a row's content.
const BODY_BYTES: usize = 500;
/// Rows of one request after another, and the number of requests in flight.
const IN_FLIGHT: usize = 64;
/// Rows without a time to live.
const LASTING: i64 = 10;
/// The time between two looks at the counters.
const LOOK: Duration = Duration::from_secs(5);

pub(super) fn failed(error: impl std::fmt::Display) -> WorkloadError {
    WorkloadError::Server(error.to_string())
}

/// Runs the phase.
pub async fn run(
    session: &Session,
    counted: &Counted,
    sizes: WindowSizes,
    json: bool,
) -> Result<Vec<Figure>, WorkloadError> {
    say(json, &format!("time windows: {} rows of {BODY_BYTES} bytes that live {} s", sizes.rows, sizes.ttl_s));
    let windows = "compaction = {'class': 'TimeWindowCompactionStrategy', 'compaction_window_unit': 'MINUTES', \
                   'compaction_window_size': '1'}";
    let columns = "name text, number bigint, body text, PRIMARY KEY (name, number)";
    execute_schema(
        session,
        &format!("CREATE TABLE IF NOT EXISTS series ({columns}) WITH gc_grace_seconds = 0 AND {windows}"),
    )
    .await?;
    let insert = "INSERT INTO series (name, number, body) VALUES (?, ?, ?)";
    let lasting = prepare(session, insert, Consistency::Quorum).await?;
    let expiring = prepare(session, &format!("{insert} USING TTL {}", sizes.ttl_s), Consistency::Quorum).await?;
    for number in 0..LASTING {
        session.execute_unpaged(&lasting, ("lasting", number, "x")).await.map_err(failed)?;
    }
    let (before, held_before) = (counted.counters().await, counted.file_bytes().await);
    put(session, &expiring, sizes).await?;
    // The last window ends, and becomes one file.
    pause(sizes.last).await;
    let written = counted.counters().await;
    let gone = wait_until_gone(session, counted, &lasting, sizes).await?;
    let held = counted.file_bytes().await;
    let (rows,) = session
        .query_unpaged("SELECT count(*) FROM series WHERE name = 'lasting'", ())
        .await
        .map_err(failed)?
        .into_rows_result()
        .map_err(failed)?
        .first_row::<(i64,)>()
        .map_err(failed)?;
    if rows != LASTING {
        return Err(failed(format!("{rows} of {LASTING} rows that never expire are left")));
    }
    let data = (sizes.rows * BODY_BYTES) as f64;
    let share = |bytes: f64| bytes / data;
    let of_windows = written.zip(before).map(|(now, before)| share(now.since(&before).compacted_bytes));
    let of_expiry = gone.zip(written).map(|(now, before)| share(now.since(&before).compacted_bytes));
    Ok(vec![
        Figure::new("windows: bytes compacted per byte written, while they are written", of_windows, ""),
        Figure::new("windows: bytes compacted per byte that expires, after that", of_expiry, "")
            .with_goal("at most 0.05"),
        Figure::new(
            "windows: bytes left in files per byte that expired",
            held.zip(held_before).map(|(now, before)| share(now - before)),
            "",
        )
        .with_goal("at most 0.05"),
    ])
}

/// Writes the rows at an even rate.
async fn put(session: &Session, insert: &PreparedStatement, sizes: WindowSizes) -> Result<(), WorkloadError> {
    let (clock, mut random) = (SystemClock::new(), 1u64);
    let began_ns = clock.monotonic_ns();
    for (nth, numbers) in (0..sizes.rows as i64).collect::<Vec<_>>().chunks(IN_FLIGHT).enumerate() {
        let due = sizes.over.mul_f64((nth * IN_FLIGHT) as f64 / sizes.rows as f64);
        pause(due.saturating_sub(Duration::from_nanos(clock.monotonic_ns() - began_ns))).await;
        let bodies: Vec<String> = numbers.iter().map(|_| body(&mut random)).collect();
        let puts = numbers.iter().zip(&bodies).map(|(number, body)| {
            let name = format!("n{}", number % 100);
            async move { session.execute_unpaged(insert, (name, *number, body)).await }
        });
        try_join_all(puts).await.map_err(failed)?;
    }
    Ok(())
}

/// Text that does not become much smaller.
fn body(random: &mut u64) -> String {
    let mut next = || {
        *random = random.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        char::from(b'!' + ((*random >> 33) % 90) as u8)
    };
    (0..BODY_BYTES).map(|_| next()).collect()
}

/// Waits until all windows have expired and nothing is compacted any more, while a write now and then lets the log's
/// time pass; returns the counters then.
async fn wait_until_gone(
    session: &Session,
    counted: &Counted,
    lasting: &PreparedStatement,
    sizes: WindowSizes,
) -> Result<Option<Counters>, WorkloadError> {
    let looks = (sizes.wait.as_secs() / LOOK.as_secs()).max(1);
    for look in 0..looks {
        if !sizes.wait.is_zero() {
            pause(LOOK).await;
        }
        session.execute_unpaged(lasting, ("lasting", look as i64 % LASTING, "x")).await.map_err(failed)?;
    }
    Ok(counted.counters().await)
}
