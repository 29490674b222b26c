//! The limit of index builds on this node.
//!
//! Always true: over any longer time no more bytes are let through than the rate allows, whatever is done at a time; a
//! rate that changes counts from the next step on. Left out: waiting.

use parking_lot::Mutex;
use std::sync::atomic::{AtomicU64, Ordering};

const NS_PER_S: u128 = 1_000_000_000;

/// See the top of this module.
#[derive(Debug, Default)]
pub(crate) struct Pacer {
    /// Per second; 0: no limit.
    rate_bytes: AtomicU64,
    /// When all bytes that were let through are paid for.
    paid_ns: Mutex<u64>,
}

impl Pacer {
    pub(super) fn new(rate_bytes: u64) -> Self {
        Self { rate_bytes: AtomicU64::new(rate_bytes), paid_ns: Mutex::default() }
    }

    /// The limit in force.
    pub(crate) fn rate_bytes(&self) -> u64 {
        self.rate_bytes.load(Ordering::Relaxed)
    }

    pub(in crate::operate) fn set_rate(&self, rate_bytes: u64) {
        self.rate_bytes.store(rate_bytes, Ordering::Relaxed);
        // What was let through at the former rate is forgiven.
        *self.paid_ns.lock() = 0;
    }

    /// How long to wait after so many bytes.
    pub(super) fn pay(&self, bytes: u64, now_ns: u64) -> u64 {
        let rate_bytes = self.rate_bytes();
        if rate_bytes == 0 || bytes == 0 {
            return 0;
        }
        let cost_ns = u64::try_from(u128::from(bytes) * NS_PER_S / u128::from(rate_bytes)).unwrap_or(u64::MAX);
        let mut paid_ns = self.paid_ns.lock();
        *paid_ns = now_ns.max(*paid_ns).saturating_add(cost_ns);
        *paid_ns - now_ns
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bytes_are_paid_for_one_after_another() {
        let pacer = Pacer::new(1_000_000);
        let millisecond = 1_000_000;
        assert_eq!(pacer.pay(10_000, 0), 10 * millisecond);
        // Another tablet, at the same time.
        assert_eq!(pacer.pay(10_000, 0), 20 * millisecond);
        assert_eq!(pacer.pay(10_000, 15 * millisecond), 15 * millisecond);
        // What was not used is not made up for.
        assert_eq!(pacer.pay(10_000, 1_000 * millisecond), 10 * millisecond);
        pacer.set_rate(0);
        assert_eq!((pacer.pay(u64::MAX, 0), pacer.rate_bytes()), (0, 0));
        pacer.set_rate(2_000_000);
        assert_eq!(pacer.pay(10_000, 1_000 * millisecond), 5 * millisecond);
    }
}
