//! Latency histograms that many tasks record into and one observer reads once a second, and the pacing of an open loop.
//!
//! Always true: a recorded latency is in microseconds, between 1 and [`MAX_US`], with three significant digits; an
//! interval's numbers are exact merges, never averages of percentiles.
//!
//! An open loop corrects for coordinated omission by construction: operation `i` is *meant* to start at `i / rate`, and
//! its latency runs from there, however late a busy client got round to sending it. The runtime's timer ticks once a
//! millisecond, though, so a task that was idle and merely woke late is charged from its waking, up to
//! [`TIMER_SLACK_NS`]; a task that had no time to sleep is always charged in full.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, PoisonError};

use hdrhistogram::Histogram;
use serde::{Deserialize, Serialize};

/// The longest latency that is recorded exactly: two minutes.
pub const MAX_US: u64 = 120_000_000;
/// The lateness of an idle task's waking that is the timer's and not the server's.
pub const TIMER_SLACK_NS: u64 = 2_500_000;
/// Tasks share shards by number. More shards cost memory; fewer, contention.
const SHARDS: usize = 4;

/// The kinds of operation that are counted apart.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum OperationKind {
    /// A read of one row or one range.
    Read,
    /// A write of one row or one batch.
    Write,
}

/// Counters and a histogram of one kind of operation.
#[derive(Clone)]
pub struct Tally {
    /// Latencies of the operations that succeeded.
    pub latency_us: Histogram<u64>,
    /// Rows read or written; more than the operations when they are batches or ranges.
    pub rows: u64,
    /// Operations that failed.
    pub errors: u64,
}

impl Tally {
    /// An empty tally.
    pub fn new() -> Self {
        let latency_us =
            Histogram::new_with_bounds(1, MAX_US, 3).expect("the bounds are constants that hdrhistogram accepts");
        Self { latency_us, rows: 0, errors: 0 }
    }

    /// Adds the operations of `other`.
    pub fn merge(&mut self, other: &Self) {
        self.latency_us.add(&other.latency_us).expect("all histograms have the same bounds");
        self.rows += other.rows;
        self.errors += other.errors;
    }

    fn reset(&mut self) {
        self.latency_us.reset();
        self.rows = 0;
        self.errors = 0;
    }

    /// The tally in numbers, over `seconds`.
    pub fn summary(&self, seconds: f64) -> Summary {
        let histogram = &self.latency_us;
        let per_second = |count: u64| if seconds > 0.0 { count as f64 / seconds } else { 0.0 };
        let quantile = |share: f64| if histogram.is_empty() { 0 } else { histogram.value_at_quantile(share) };
        Summary {
            operations: histogram.len(),
            rows: self.rows,
            errors: self.errors,
            operations_per_second: per_second(histogram.len()),
            mean_us: if histogram.is_empty() { 0.0 } else { histogram.mean() },
            p50_us: quantile(0.50),
            p95_us: quantile(0.95),
            p99_us: quantile(0.99),
            p999_us: quantile(0.999),
            max_us: histogram.max(),
        }
    }
}

impl Default for Tally {
    fn default() -> Self {
        Self::new()
    }
}

/// The counts and latencies (in microseconds) of one kind of operation, as a report shows them.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct Summary {
    pub operations: u64,
    pub rows: u64,
    pub errors: u64,
    pub operations_per_second: f64,
    pub mean_us: f64,
    pub p50_us: u64,
    pub p95_us: u64,
    pub p99_us: u64,
    pub p999_us: u64,
    pub max_us: u64,
}

/// Reads and writes side by side.
#[derive(Clone, Default)]
pub struct Tallies {
    pub reads: Tally,
    pub writes: Tally,
}

impl Tallies {
    /// The tally of one kind.
    pub fn of(&mut self, kind: OperationKind) -> &mut Tally {
        match kind {
            OperationKind::Read => &mut self.reads,
            OperationKind::Write => &mut self.writes,
        }
    }

    /// Adds the operations of `other`.
    pub fn merge(&mut self, other: &Self) {
        self.reads.merge(&other.reads);
        self.writes.merge(&other.writes);
    }
}

/// The recorder of the tasks' latencies and errors.
pub struct Recorder {
    shards: Vec<Mutex<Tallies>>,
}

impl Recorder {
    /// A recorder that has seen nothing.
    pub fn new() -> Self {
        Self { shards: (0..SHARDS).map(|_| Mutex::default()).collect() }
    }

    /// An operation of `rows` rows succeeded after `latency_ns`. `task` spreads tasks over the shards.
    pub fn success(&self, task: usize, kind: OperationKind, latency_ns: u64, rows: u64) {
        self.with_shard(task, |tallies| {
            let tally = tallies.of(kind);
            tally.latency_us.saturating_record((latency_ns / 1_000).max(1));
            tally.rows += rows;
        });
    }

    /// Runs `record` with the shard of `task`; for callers that record many operations at once.
    pub fn with_shard(&self, task: usize, record: impl FnOnce(&mut Tallies)) {
        record(&mut self.shards[task % SHARDS].lock().unwrap_or_else(PoisonError::into_inner));
    }

    /// An operation failed.
    pub fn failure(&self, task: usize, kind: OperationKind) {
        self.with_shard(task, |tallies| tallies.of(kind).errors += 1);
    }

    /// Takes everything recorded since the last call.
    pub fn drain(&self) -> Tallies {
        let mut all = Tallies::default();
        for shard in &self.shards {
            let mut tallies = shard.lock().unwrap_or_else(PoisonError::into_inner);
            all.merge(&tallies);
            tallies.reads.reset();
            tallies.writes.reset();
        }
        all
    }
}

impl Default for Recorder {
    fn default() -> Self {
        Self::new()
    }
}

/// Hands out the intended start times of an open loop.
pub struct Schedule {
    start_ns: u64,
    operations_per_second: f64,
    next: AtomicU64,
}

impl Schedule {
    /// `operations_per_second` starts each second, evenly spaced, from `start_ns` on the monotonic clock.
    pub fn new(start_ns: u64, operations_per_second: f64) -> Self {
        Self { start_ns, operations_per_second, next: AtomicU64::new(0) }
    }

    /// The intended start of the next operation, on the monotonic clock.
    pub fn next_start_ns(&self) -> u64 {
        let index = self.next.fetch_add(1, Ordering::Relaxed);
        self.start_ns + (index as f64 * 1e9 / self.operations_per_second) as u64
    }
}

/// From when an operation's latency counts, given when it was meant to start, whether its task was idle until then, and
/// when it did start.
pub fn charged_start_ns(intended_ns: u64, was_idle: bool, actual_ns: u64) -> u64 {
    if was_idle && actual_ns.saturating_sub(intended_ns) <= TIMER_SLACK_NS { actual_ns } else { intended_ns }
}

#[cfg(test)]
mod tests;
