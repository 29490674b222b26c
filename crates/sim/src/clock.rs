//! Simulated time: true time, which only the simulation knows, and each node's clocks, each with its own error.

use diorite_base::Clock;
use parking_lot::Mutex;
use std::sync::Arc;
use std::sync::atomic::{AtomicI64, AtomicU64, Ordering};

/// The wall clock at the beginning of a run, microseconds since the epoch.
const EPOCH_US: i64 = 1_700_000_000_000_000;

/// True time, nanoseconds since the run began. Clones share it. As a [`Clock`] it is the clock of observers of the
/// whole cluster.
#[derive(Clone, Debug, Default)]
pub struct TrueTime(Arc<AtomicU64>);

impl TrueTime {
    /// Now.
    pub fn now_ns(&self) -> u64 {
        self.0.load(Ordering::Relaxed)
    }

    /// Moves on; never back.
    pub fn advance_to(&self, now_ns: u64) {
        assert!(now_ns >= self.now_ns(), "time does not go back");
        self.0.store(now_ns, Ordering::Relaxed);
    }
}

impl Clock for TrueTime {
    fn monotonic_ns(&self) -> u64 {
        self.now_ns()
    }

    fn wall_us(&self) -> i64 {
        EPOCH_US + (self.now_ns() / 1_000) as i64
    }
}

#[derive(Clone, Copy, Debug)]
struct Rate {
    /// The true time from which this rate is valid.
    true_ns: u64,
    /// The clock's value at that time.
    local_ns: u64,
    /// The rate error, parts per million; positive: too fast.
    error_ppm: i64,
    /// Whether the machine is suspended: the clock stands still.
    is_stopped: bool,
}

impl Rate {
    fn local_ns(&self, true_ns: u64) -> u64 {
        if self.is_stopped {
            return self.local_ns;
        }
        let elapsed = i128::from(true_ns - self.true_ns);
        self.local_ns + (elapsed + elapsed * i128::from(self.error_ppm) / 1_000_000) as u64
    }
}

/// A node's clocks during one life of it.
#[derive(Debug)]
pub struct NodeClock {
    time: TrueTime,
    rate: Mutex<Rate>,
    wall_error_us: AtomicI64,
}

impl NodeClock {
    /// The clocks of a node that starts now: the monotonic one begins at `local_ns` with a rate error of `error_ppm`,
    /// the wall clock is off by `wall_error_us`.
    pub fn new(time: TrueTime, local_ns: u64, error_ppm: i64, wall_error_us: i64) -> Self {
        let rate = Rate { true_ns: time.now_ns(), local_ns, error_ppm, is_stopped: false };
        Self { time, rate: Mutex::new(rate), wall_error_us: AtomicI64::new(wall_error_us) }
    }

    /// Changes the monotonic clock's rate from now on.
    pub fn set_rate(&self, error_ppm: i64) {
        self.change(|rate| rate.error_ppm = error_ppm);
    }

    /// The machine is suspended: the monotonic clock stops, as the kernel's does. The wall clock goes on.
    pub fn suspend(&self) {
        self.change(|rate| rate.is_stopped = true);
    }

    /// The machine goes on.
    pub fn resume(&self) {
        self.change(|rate| rate.is_stopped = false);
    }

    fn change(&self, change: impl FnOnce(&mut Rate)) {
        let true_ns = self.time.now_ns();
        let mut rate = self.rate.lock();
        (rate.local_ns, rate.true_ns) = (rate.local_ns(true_ns), true_ns);
        change(&mut rate);
    }

    /// Lets the wall clock jump.
    pub fn jump(&self, by_us: i64) {
        self.wall_error_us.fetch_add(by_us, Ordering::Relaxed);
    }

    /// The true time at which the monotonic clock will show `local_ns` at its present rate; not before now.
    pub fn true_ns(&self, local_ns: u64) -> u64 {
        let rate = *self.rate.lock();
        let ahead = i128::from(local_ns.saturating_sub(rate.local_ns));
        // Rounded up, so that the clock shows at least `local_ns` then.
        let elapsed = (ahead * 1_000_000) / i128::from(1_000_000 + rate.error_ppm) + 1;
        (rate.true_ns + elapsed as u64).max(self.time.now_ns())
    }
}

impl Clock for NodeClock {
    fn monotonic_ns(&self) -> u64 {
        self.rate.lock().local_ns(self.time.now_ns())
    }

    fn wall_us(&self) -> i64 {
        self.time.wall_us() + self.wall_error_us.load(Ordering::Relaxed)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_clock_that_is_fast_changes_its_rate_without_a_jump() {
        let time = TrueTime::default();
        let clock = NodeClock::new(time.clone(), 500, 10_000, 0);
        time.advance_to(1_000_000);
        assert_eq!(clock.monotonic_ns(), 1_010_500);
        clock.set_rate(-10_000);
        assert_eq!(clock.monotonic_ns(), 1_010_500);
        time.advance_to(2_000_000);
        assert_eq!(clock.monotonic_ns(), 2_000_500);
        let then = clock.true_ns(5_000_000);
        time.advance_to(then);
        assert!((5_000_000..5_000_010).contains(&clock.monotonic_ns()), "{}", clock.monotonic_ns());
    }

    #[test]
    fn the_monotonic_clock_of_a_suspended_machine_stands_still() {
        let time = TrueTime::default();
        let clock = NodeClock::new(time.clone(), 0, 0, 0);
        clock.suspend();
        time.advance_to(5_000);
        assert_eq!((clock.monotonic_ns(), clock.wall_us()), (0, EPOCH_US + 5));
        clock.resume();
        time.advance_to(7_000);
        assert_eq!(clock.monotonic_ns(), 2_000);
    }

    #[test]
    fn only_the_wall_clock_jumps() {
        let clock = NodeClock::new(TrueTime::default(), 7, 0, 0);
        clock.jump(-5);
        assert_eq!((clock.monotonic_ns(), clock.wall_us()), (7, EPOCH_US - 5));
    }
}
