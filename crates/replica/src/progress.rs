//! How store threads and logs get on: what the watch over hanging disks (`runtime::disk_watch`) looks at.
//!
//! Always true: whoever works pays a store for a step and reads no clock; only the watch tells the time. Left out: what is done about a hang.

use parking_lot::Mutex;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

/// How long a log may take for one write, nanoseconds, before others are to lead.
const LOG_STALL_NS: u64 = 2_000_000_000;

/// How long a store thread may take for one step of anything else, nanoseconds: to read one row, to write one batch, to look after one group. Such a step is bounded
/// (`diorite_base::limits`) and usually takes less than a millisecond. A batch is allowed more than a log's write, because RocksDB delays a write while flushes or
/// compactions of the tablet are behind, which is load, and ends.
const STEP_STALL_NS: u64 = 5_000_000_000;

/// How the writing of a log gets on.
#[derive(Debug, Default)]
pub(crate) struct LogProgress {
    /// Since when a write is under way, nanoseconds; 0: none is.
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

/// In what a store thread hangs.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Stall {
    /// In a write of the Raft log.
    Log,
    /// In anything else: as a rule in a read or a write of a tablet's data.
    Step,
}

/// What the watch saw when it last found a thread at another step.
#[derive(Debug, Default)]
struct Seen {
    steps: u64,
    since_ns: u64,
}

/// How the work of a store thread gets on.
#[derive(Debug, Default)]
pub(crate) struct WorkProgress {
    pub(crate) log: LogProgress,
    /// Changes with every step; odd from [`Self::begin`] to [`Self::rest`]. Only the thread itself writes it.
    steps: AtomicU64,
    /// Only the watch uses it.
    seen: Mutex<Seen>,
    /// Leases were taken away since this was last asked.
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

    /// It goes on to the next step of it.
    pub(crate) fn step(&self) {
        self.advance(|steps| steps);
    }

    /// It waits, for something to do or for memory, for as long as it takes.
    pub(crate) fn rest(&self) {
        self.advance(|steps| steps & !1);
    }

    /// In what the thread hangs, if it does. To be called by the watch only, again and again: how long a step takes is known from when it was first seen.
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

    /// Leases of what this thread runs were taken away.
    pub(crate) fn note_revocation(&self) {
        self.has_revoked.store(true, Ordering::Release);
    }

    /// Whether leases were taken away and the thread has not found out.
    pub(crate) fn has_revoked(&self) -> bool {
        self.has_revoked.load(Ordering::Acquire)
    }

    /// The same; the thread finds out.
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
