//! The progress of store threads and logs, which the watch over hanging disks (`runtime::disk_watch`) reads.
//!
//! Always true: a step costs its thread one store to memory and no clock read; only the watch reads the clock. Left out:
//! the reaction to a hang.

use parking_lot::Mutex;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

/// The longest time for one write of a log, nanoseconds; after it other nodes are to lead.
const LOG_STALL_NS: u64 = 2_000_000_000;

/// The longest time for any other step of a store thread, nanoseconds: reading one row, writing one batch, one visit to a
/// group. A step is bounded (`diorite_base::limits`) and usually takes less than a millisecond. The limit is longer than that
/// of a log's write, because RocksDB delays writes while a tablet's flushes or compactions are behind.
const STEP_STALL_NS: u64 = 5_000_000_000;

/// The longest time for which the size of memtables may fail to fall while threads wait for that, nanoseconds. They
/// fall when a flush ends; a flush takes seconds, on a slow disk and at a low rate limit some tens of seconds.
const MEMORY_STALL_NS: u64 = 60_000_000_000;

/// A quantity that is expected to fall.
#[derive(Debug, Default)]
pub(crate) struct Falling {
    /// The least value so far, and when it was first seen, nanoseconds.
    least: Option<(usize, u64)>,
}

impl Falling {
    /// Whether it has not fallen for [`MEMORY_STALL_NS`].
    pub(crate) fn has_stopped(&mut self, value: usize, now_ns: u64) -> bool {
        match self.least {
            Some((least, since_ns)) if value >= least => now_ns >= since_ns + MEMORY_STALL_NS,
            _ => {
                self.least = Some((value, now_ns));
                false
            }
        }
    }
}

/// The progress of a log's writes.
#[derive(Debug, Default)]
pub(crate) struct LogProgress {
    /// When the write under way began, nanoseconds; 0: none is under way.
    since_ns: AtomicU64,
}

impl LogProgress {
    pub(crate) fn begin(&self, now_ns: u64) {
        self.since_ns.store(now_ns.max(1), Ordering::Relaxed);
    }

    pub(crate) fn end(&self) {
        self.since_ns.store(0, Ordering::Relaxed);
    }

    pub(crate) fn is_stalled(&self, now_ns: u64) -> bool {
        let since_ns = self.since_ns.load(Ordering::Relaxed);
        since_ns != 0 && now_ns >= since_ns + LOG_STALL_NS
    }
}

/// The step in which a store thread hangs.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Stall {
    /// A write of the Raft log.
    Log,
    /// Any other, usually a read or a write of a tablet's data.
    Step,
}

/// The last change of step that the watch saw.
#[derive(Debug, Default)]
struct Seen {
    steps: u64,
    since_ns: u64,
}

/// The progress of a store thread.
#[derive(Debug, Default)]
pub(crate) struct WorkProgress {
    pub(crate) log: LogProgress,
    /// Changes with every step; odd from [`Self::begin`] to [`Self::rest`]. Only the thread itself writes it.
    steps: AtomicU64,
    /// Only the watch uses it.
    seen: Mutex<Seen>,
    /// Leases of the thread's tablets were revoked, and the thread has not been notified.
    has_revoked: AtomicBool,
}

impl WorkProgress {
    fn advance(&self, next: impl Fn(u64) -> u64) {
        self.steps.store(next(self.steps.load(Ordering::Relaxed).wrapping_add(2)), Ordering::Relaxed);
    }

    /// The thread has something to do.
    pub(crate) fn begin(&self) {
        self.advance(|steps| steps | 1);
    }

    /// It begins the next step.
    pub(crate) fn step(&self) {
        self.advance(|steps| steps);
    }

    /// It waits for work, or for memory ([`Falling`]).
    pub(crate) fn rest(&self) {
        self.advance(|steps| steps & !1);
    }

    /// The step in which the thread hangs, if it does. For the watch only, which calls it periodically: a step is timed from
    /// the call that first sees it.
    pub(crate) fn look(&self, now_ns: u64) -> Option<Stall> {
        let (steps, mut seen) = (self.steps.load(Ordering::Relaxed), self.seen.lock());
        if seen.steps != steps {
            *seen = Seen { steps, since_ns: now_ns };
        }
        if self.log.is_stalled(now_ns) {
            return Some(Stall::Log);
        }
        (steps & 1 == 1 && now_ns >= seen.since_ns + STEP_STALL_NS).then_some(Stall::Step)
    }

    /// Leases of the thread's tablets were revoked.
    pub(crate) fn note_revocation(&self) {
        self.has_revoked.store(true, Ordering::Release);
    }

    /// Whether leases were revoked and the thread has not been notified.
    pub(crate) fn has_revoked(&self) -> bool {
        self.has_revoked.load(Ordering::Acquire)
    }

    /// The same; afterwards the thread counts as notified.
    pub(crate) fn take_revocation(&self) -> bool {
        self.has_revoked() && self.has_revoked.swap(false, Ordering::AcqRel)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const S: u64 = 1_000_000_000;

    #[test]
    fn a_thread_hangs_that_stays_at_one_step_and_not_one_that_goes_on_or_waits() {
        let progress = WorkProgress::default();
        assert_eq!((progress.look(S), progress.look(100 * S)), (None, None), "it has never worked");
        progress.begin();
        assert_eq!((progress.look(100 * S), progress.look(105 * S - 1)), (None, None));
        progress.step();
        assert_eq!((progress.look(105 * S), progress.look(110 * S - 1)), (None, None), "it has gone on");
        assert_eq!(progress.look(110 * S), Some(Stall::Step));
        progress.rest();
        assert_eq!((progress.look(111 * S), progress.look(200 * S)), (None, None), "it waits");
        progress.step();
        assert_eq!((progress.look(201 * S), progress.look(300 * S)), (None, None), "a step outside of work is none");
    }

    #[test]
    fn what_should_fall_has_stopped_once_it_has_not_fallen_for_long() {
        let mut usage = Falling::default();
        assert!(!usage.has_stopped(100, S) && !usage.has_stopped(100, 61 * S - 1));
        assert!(!usage.has_stopped(99, 61 * S) && !usage.has_stopped(120, 121 * S - 1), "it has fallen");
        assert!(usage.has_stopped(99, 121 * S));
    }

    #[test]
    fn a_thread_that_waits_for_memory_in_vain_hangs() {
        let progress = WorkProgress::default();
        progress.begin();
        progress.rest();
        assert_eq!((progress.look(S), progress.look(100 * S)), (None, None), "it waits");
        progress.begin();
        assert_eq!((progress.look(100 * S), progress.look(105 * S)), (None, Some(Stall::Step)));
    }

    #[test]
    fn a_log_is_given_less_than_other_steps() {
        let progress = WorkProgress::default();
        progress.begin();
        progress.log.begin(10 * S);
        assert_eq!((progress.look(10 * S), progress.look(12 * S - 1)), (None, None));
        assert_eq!(progress.look(12 * S), Some(Stall::Log));
        progress.log.end();
        assert_eq!((progress.look(13 * S), progress.look(15 * S)), (None, Some(Stall::Step)));
    }
}
