//! Time: the [`Clock`] seam and the hybrid clock that stamps writes.
//!
//! Two kinds of time, never mixed: *monotonic* nanoseconds measure durations and leases inside one process;
//! *wall* microseconds since the Unix epoch stamp data and compute TTLs. Only [`SystemClock`] reads the machine's clocks.

use std::sync::atomic::{AtomicI64, Ordering};
use std::time::{Instant, SystemTime, UNIX_EPOCH};

/// Where time comes from. The simulation has its own implementation.
pub trait Clock: Send + Sync + 'static {
    /// Nanoseconds on this process's monotonic clock, from an arbitrary start.
    fn monotonic_ns(&self) -> u64;
    /// Microseconds since the Unix epoch; may jump.
    fn wall_us(&self) -> i64;
}

/// The machine's clocks.
#[derive(Debug, Clone)]
pub struct SystemClock {
    start: Instant,
}

impl SystemClock {
    /// A clock whose monotonic time starts now.
    #[allow(clippy::disallowed_methods, reason = "the one home of the machine's clocks")]
    pub fn new() -> Self {
        Self { start: Instant::now() }
    }
}

impl Default for SystemClock {
    fn default() -> Self {
        Self::new()
    }
}

impl Clock for SystemClock {
    fn monotonic_ns(&self) -> u64 {
        self.start.elapsed().as_nanos() as u64
    }

    #[allow(clippy::disallowed_methods, reason = "the one home of the machine's clocks")]
    fn wall_us(&self) -> i64 {
        // A clock set before 1970 reads as the epoch; the hybrid clock still moves forward from there.
        SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |elapsed| elapsed.as_micros() as i64)
    }
}

/// A hybrid logical clock (Kulkarni et al. 2014) in one 64-bit count of microseconds: it follows the wall clock, never
/// repeats and never goes back. Under a burst it runs ahead by one microsecond per stamp.
#[derive(Debug, Default)]
pub struct HybridClock {
    last_us: AtomicI64,
}

impl HybridClock {
    /// A clock that has issued nothing yet.
    pub fn new() -> Self {
        Self::default()
    }

    /// A stamp greater than every one issued or observed before, and not before `wall_us`.
    pub fn stamp(&self, wall_us: i64) -> i64 {
        self.reserve(wall_us, 1)
    }

    /// The first of `count` consecutive stamps, all greater than every earlier one.
    pub fn reserve(&self, wall_us: i64, count: u32) -> i64 {
        let mut last = self.last_us.load(Ordering::Relaxed);
        loop {
            let first = wall_us.max(last + 1);
            let next = first + i64::from(count.max(1)) - 1;
            match self.last_us.compare_exchange_weak(last, next, Ordering::AcqRel, Ordering::Relaxed) {
                Ok(_) => return first,
                Err(actual) => last = actual,
            }
        }
    }

    /// Never again issue a stamp at or below `stamp_us` (seen in a log or in a message).
    pub fn observe(&self, stamp_us: i64) {
        self.last_us.fetch_max(stamp_us, Ordering::AcqRel);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn stamps_increase_when_the_wall_clock_stands_still_or_goes_back() {
        let clock = HybridClock::new();
        assert_eq!(clock.stamp(100), 100);
        assert_eq!(clock.stamp(100), 101);
        assert_eq!(clock.stamp(50), 102);
        assert_eq!(clock.reserve(50, 10), 103);
        assert_eq!(clock.stamp(50), 113);
    }

    #[test]
    fn an_observed_stamp_is_never_issued_again() {
        let clock = HybridClock::new();
        clock.observe(1_000);
        assert_eq!(clock.stamp(10), 1_001);
    }
}
