//! Time: the [`Clock`] seam and the hybrid clock that stamps writes.
//!
//! Two kinds of time, never mixed: *monotonic* nanoseconds measure durations and leases inside one process; *wall*
//! microseconds since the Unix epoch stamp data and compute TTLs. Only [`SystemClock`], and the node's own clock, read
//! the machine's clocks.
//!
//! A wall clock can be set, to any time and at any moment, by people, time daemons and hypervisors. So a node uses a
//! [`TrustedClock`]: the wall clock as it was last adopted, and the monotonic time since. A change of the machine's
//! clock takes effect only when the node adopts it.

use std::sync::Arc;
use std::sync::atomic::{AtomicI64, Ordering};
use std::time::{Instant, SystemTime, UNIX_EPOCH};

/// A source of time. The simulation has its own implementation.
pub trait Clock: Send + Sync + 'static {
    /// Nanoseconds on this process's monotonic clock, from an arbitrary start.
    fn monotonic_ns(&self) -> u64;
    /// Microseconds since the Unix epoch; may jump.
    fn wall_us(&self) -> i64;
    /// How far the machine's wall clock is ahead of [`Self::wall_us`], microseconds: by how much it has been set since
    /// it was last adopted. 0 for a clock without adoption.
    fn step_us(&self) -> i64 {
        0
    }
    /// Adopts the machine's wall clock as it is now.
    fn adopt(&self) {}
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

/// A machine's clocks, except that the wall clock ignores changes of the machine's: the wall time as last adopted, and
/// the monotonic time since.
#[derive(Clone)]
pub struct TrustedClock {
    machine: Arc<dyn Clock>,
    /// The wall time at the start of the monotonic clock, microseconds.
    origin_us: Arc<AtomicI64>,
}

impl std::fmt::Debug for TrustedClock {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "TrustedClock(origin {} us)", self.origin_us.load(Ordering::Relaxed))
    }
}

/// Monotonic nanoseconds as microseconds, to be added to wall times.
fn microseconds(monotonic_ns: u64) -> i64 {
    // The value is below 2^54.
    (monotonic_ns / 1_000) as i64
}

impl TrustedClock {
    /// Trusts the wall clock of `machine` as it is now. Clones are the same clock.
    pub fn new(machine: Arc<dyn Clock>) -> Self {
        let clock = Self { machine, origin_us: Arc::default() };
        clock.adopt();
        clock
    }
}

impl Clock for TrustedClock {
    fn monotonic_ns(&self) -> u64 {
        self.machine.monotonic_ns()
    }

    fn wall_us(&self) -> i64 {
        self.origin_us.load(Ordering::Relaxed).saturating_add(microseconds(self.machine.monotonic_ns()))
    }

    fn step_us(&self) -> i64 {
        self.machine.wall_us().saturating_sub(self.wall_us())
    }

    fn adopt(&self) {
        let origin_us = self.machine.wall_us().saturating_sub(microseconds(self.machine.monotonic_ns()));
        self.origin_us.store(origin_us, Ordering::Relaxed);
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

    /// The stamp that [`Self::stamp`] would give now.
    pub fn next(&self, wall_us: i64) -> i64 {
        wall_us.max(self.last_us.load(Ordering::Relaxed).saturating_add(1))
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

    #[derive(Default)]
    struct ByHand {
        monotonic_ns: AtomicI64,
        wall_us: AtomicI64,
    }

    impl Clock for ByHand {
        fn monotonic_ns(&self) -> u64 {
            self.monotonic_ns.load(Ordering::Relaxed) as u64
        }

        fn wall_us(&self) -> i64 {
            self.wall_us.load(Ordering::Relaxed)
        }
    }

    #[test]
    fn a_wall_clock_that_is_set_takes_no_effect_before_it_is_adopted() {
        let machine = Arc::new(ByHand::default());
        machine.monotonic_ns.store(5_000_000, Ordering::Relaxed);
        machine.wall_us.store(1_000_000, Ordering::Relaxed);
        let clock = TrustedClock::new(Arc::clone(&machine) as Arc<dyn Clock>);
        assert_eq!((clock.wall_us(), clock.step_us()), (1_000_000, 0));
        machine.monotonic_ns.store(7_000_000, Ordering::Relaxed);
        machine.wall_us.store(86_401_002_000, Ordering::Relaxed);
        assert_eq!((clock.wall_us(), clock.step_us()), (1_002_000, 86_400_000_000));
        assert_eq!(clock.monotonic_ns(), 7_000_000);
        let same = clock.clone();
        clock.adopt();
        assert_eq!((same.wall_us(), same.step_us()), (86_401_002_000, 0));
    }

    #[test]
    fn an_observed_stamp_is_never_issued_again() {
        let clock = HybridClock::new();
        clock.observe(1_000);
        assert_eq!((clock.next(10), clock.next(2_000)), (1_001, 2_000));
        assert_eq!(clock.stamp(10), 1_001);
    }
}
