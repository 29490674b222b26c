//! Logs requests that took longer than a threshold.
//!
//! Always true: at most [`PER_SECOND`] lines a second are written, however many requests are slow; the next line says
//! how many were left out. A statement is shown without its values. While the threshold is off, the cost is one
//! comparison.

use parking_lot::Mutex;
use std::net::SocketAddr;
use std::sync::atomic::{AtomicU64, Ordering};

/// The most lines that are written in a second.
const PER_SECOND: u64 = 10;
const SECOND_NS: u64 = 1_000_000_000;
/// The threshold while the log of slow requests is off.
const OFF: u64 = u64::MAX;

#[derive(Default)]
struct Window {
    since_ns: u64,
    written: u64,
    passed_over: u64,
}

/// See the top of this module.
pub(crate) struct SlowQueries {
    threshold_ns: AtomicU64,
    window: Mutex<Window>,
}

/// A request that was slow.
pub(crate) struct SlowQuery<'a> {
    /// The statement without its values.
    pub(crate) statement: &'a str,
    pub(crate) keyspace: Option<&'a str>,
    pub(crate) operation: &'static str,
    pub(crate) client: Option<SocketAddr>,
    pub(crate) elapsed_ns: u64,
    /// The kind of error that it was answered with.
    pub(crate) error: Option<String>,
}

impl SlowQueries {
    /// `threshold_ms` is in milliseconds; `None` turns the log off.
    pub(crate) fn new(threshold_ms: Option<u64>) -> Self {
        let slow = Self { threshold_ns: AtomicU64::new(OFF), window: Mutex::default() };
        slow.set_threshold_ms(threshold_ms);
        slow
    }

    /// The threshold, milliseconds; `None`: off.
    pub(crate) fn threshold_ms(&self) -> Option<u64> {
        Some(self.threshold_ns.load(Ordering::Relaxed)).filter(|threshold| *threshold != OFF).map(|ns| ns / 1_000_000)
    }

    /// Sets the threshold, milliseconds; `None` turns the log off.
    pub(crate) fn set_threshold_ms(&self, threshold_ms: Option<u64>) {
        let threshold_ns = threshold_ms.map_or(OFF, |milliseconds| milliseconds.saturating_mul(1_000_000));
        self.threshold_ns.store(threshold_ns, Ordering::Relaxed);
    }

    /// Whether a request of this duration is slow.
    #[inline]
    pub(crate) fn is_slow(&self, elapsed_ns: u64) -> bool {
        elapsed_ns >= self.threshold_ns.load(Ordering::Relaxed)
    }

    /// Writes a line about a request that [is slow](Self::is_slow), unless there were too many already.
    #[cold]
    pub(crate) fn tell(&self, query: &SlowQuery<'_>, now_ns: u64) {
        let Some(passed_over) = self.admit(now_ns) else { return };
        tracing::warn!(
            event = "slow_query",
            statement = query.statement,
            keyspace = query.keyspace,
            operation = query.operation,
            elapsed_ms = query.elapsed_ns / 1_000_000,
            client = query.client.map(tracing::field::display),
            error = query.error.as_deref(),
            passed_over,
            "a slow query"
        );
    }

    /// If one more line may be written now: how many were left out since the last line.
    fn admit(&self, now_ns: u64) -> Option<u64> {
        let mut window = self.window.lock();
        if now_ns.saturating_sub(window.since_ns) >= SECOND_NS {
            window.since_ns = now_ns;
            window.written = 0;
        }
        if window.written >= PER_SECOND {
            window.passed_over += 1;
            return None;
        }
        window.written += 1;
        Some(std::mem::take(&mut window.passed_over))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_are_limited_and_what_is_passed_over_is_counted() {
        let slow = SlowQueries::new(None);
        let start = 5 * SECOND_NS;
        assert!((0..PER_SECOND).all(|n| slow.admit(start + n) == Some(0)));
        assert!((0..7).all(|n| slow.admit(start + n).is_none()));
        assert_eq!(slow.admit(start + SECOND_NS), Some(7));
        assert_eq!(slow.admit(start + SECOND_NS), Some(0));
    }

    #[test]
    fn the_threshold_can_be_set_and_taken_away() {
        let slow = SlowQueries::new(Some(3));
        assert_eq!(slow.threshold_ms(), Some(3));
        assert!(slow.is_slow(3_000_000) && !slow.is_slow(2_999_999));
        slow.set_threshold_ms(None);
        assert_eq!((slow.threshold_ms(), slow.is_slow(u64::MAX - 1)), (None, false));
        slow.set_threshold_ms(Some(0));
        assert!(slow.is_slow(0));
    }
}
