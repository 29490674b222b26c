//! The progress of a copy, for operators.

use diorite_base::{NodeId, TabletId};
use parking_lot::Mutex;
use std::sync::atomic::{AtomicU64, Ordering};

/// The time over which a rate is measured, nanoseconds.
const SAMPLE_NS: u64 = 2_000_000_000;

/// A copy under way, as one of its two sides sees it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CopyStatus {
    /// The tablet.
    pub tablet: TabletId,
    /// The node whose replica is copied.
    pub from: NodeId,
    /// The node that gets the copy.
    pub to: NodeId,
    /// Whether this node receives it; otherwise it sends it.
    pub incoming: bool,
    /// Bytes that the receiver has, those held from an earlier attempt included.
    pub bytes_done: u64,
    /// Bytes of all files together.
    pub bytes_total: u64,
    /// Bytes per second, lately.
    pub rate: u64,
}

#[derive(Debug, Default, Clone, Copy)]
struct Sample {
    at_ns: u64,
    moved: u64,
    rate: u64,
}

/// Counts the bytes of one copy.
#[derive(Debug, Default)]
pub(crate) struct Meter {
    total: AtomicU64,
    done: AtomicU64,
    moved: AtomicU64,
    sample: Mutex<Sample>,
}

impl Meter {
    /// Begins a copy, or another attempt at it, of `total` bytes, of which `done` are there.
    pub(crate) fn begin(&self, total: u64, done: u64) {
        self.total.store(total, Ordering::Relaxed);
        self.done.store(done, Ordering::Relaxed);
    }

    /// Counts transferred bytes.
    pub(crate) fn moved(&self, bytes: u64, now_ns: u64) {
        self.done.fetch_add(bytes, Ordering::Relaxed);
        self.moved.fetch_add(bytes, Ordering::Relaxed);
        self.rate(now_ns);
    }

    /// Counts bytes that need not be transferred.
    pub(crate) fn spared(&self, bytes: u64) {
        self.done.fetch_add(bytes, Ordering::Relaxed);
    }

    fn rate(&self, now_ns: u64) -> u64 {
        let moved = self.moved.load(Ordering::Relaxed);
        let mut sample = self.sample.lock();
        if sample.at_ns == 0 {
            *sample = Sample { at_ns: now_ns, moved: 0, rate: 0 };
        }
        let passed_ns = now_ns.saturating_sub(sample.at_ns);
        let rate = u128::from(moved - sample.moved) * 1_000_000_000 / u128::from(passed_ns.max(1));
        let rate = u64::try_from(rate).unwrap_or(u64::MAX);
        if passed_ns >= SAMPLE_NS {
            *sample = Sample { at_ns: now_ns, moved, rate };
        }
        // The beginning of the first sample is used until the sample is complete.
        if sample.rate == 0 && passed_ns > SAMPLE_NS / 8 { rate } else { sample.rate }
    }

    pub(crate) fn status(&self, tablet: TabletId, from: NodeId, to: NodeId, incoming: bool, now_ns: u64) -> CopyStatus {
        let bytes_total = self.total.load(Ordering::Relaxed);
        let bytes_done = self.done.load(Ordering::Relaxed).min(bytes_total);
        CopyStatus { tablet, from, to, incoming, bytes_done, bytes_total, rate: self.rate(now_ns) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SECOND: u64 = 1_000_000_000;

    #[test]
    fn the_rate_is_that_of_the_last_seconds_and_what_was_spared_counts_as_done_only() {
        let meter = Meter::default();
        meter.begin(1_000, 0);
        meter.spared(400);
        meter.moved(0, 10 * SECOND);
        meter.moved(200, 11 * SECOND);
        let status = |now_ns| meter.status(TabletId(1), NodeId(1), NodeId(2), false, now_ns);
        assert_eq!((status(11 * SECOND).bytes_done, status(11 * SECOND).rate), (600, 200));
        meter.moved(200, 12 * SECOND);
        assert_eq!(status(12 * SECOND).rate, 200);
        assert_eq!(status(16 * SECOND).rate, 0, "it has come to a halt");
    }
}
