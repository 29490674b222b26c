//! Waits of store threads for memory, and of upkeep for work.

use crate::lifecycle::replicas::NodeReplicas;
use crate::progress::{Falling, WorkProgress};
use parking_lot::{Condvar, Mutex};
use std::sync::atomic::Ordering;
use std::time::Duration;

/// How often a thread that waits for memory checks again.
const PERIOD: Duration = Duration::from_millis(100);

#[derive(Default)]
struct GateState {
    closed: bool,
    waiting: bool,
}

/// The condition on which store threads wait for memory, and the one on which upkeep waits for work.
#[derive(Default)]
pub(crate) struct MemoryGate {
    state: Mutex<GateState>,
    upkeep: Condvar,
    workers: Condvar,
}

impl MemoryGate {
    /// Waits while `pressed` returns true; it is called again after each round of upkeep.
    fn wait(&self, mut pressed: impl FnMut() -> bool) {
        let mut state = self.state.lock();
        while !state.closed && pressed() {
            state.waiting = true;
            self.upkeep.notify_one();
            self.workers.wait_for(&mut state, PERIOD);
        }
    }

    /// Holds a store thread back while memtables are far over their limit. If their size does not fall for long, a flush hangs, and
    /// from then on the thread counts as working, so that the watch sees that it hangs.
    pub(crate) fn wait_for_memory(&self, replicas: &NodeReplicas, progress: &WorkProgress) {
        let (shared, limit) = (&replicas.shared, replicas.shared.options().memtable_limit_bytes);
        if shared.memtable_usage_bytes() > limit + limit / 2 {
            replicas.context.counters.memory_waits.fetch_add(1, Ordering::Relaxed);
            let (clock, mut usage, mut hangs) = (&replicas.context.clock, Falling::default(), false);
            self.wait(|| {
                let now_bytes = shared.memtable_usage_bytes();
                if !hangs && usage.has_stopped(now_bytes, clock.monotonic_ns()) {
                    hangs = true;
                    progress.begin();
                }
                now_bytes > limit + limit / 4
            });
        }
    }

    /// Lets store threads that wait check again.
    pub(crate) fn notify_workers(&self) {
        self.workers.notify_all();
    }

    /// Ends all waits.
    pub(crate) fn close(&self) {
        self.state.lock().closed = true;
        self.upkeep.notify_all();
        self.workers.notify_all();
    }

    /// Waits for the next round of upkeep; false when the store is closing.
    pub(crate) fn next(&self, period: Duration) -> bool {
        let mut state = self.state.lock();
        if !state.closed && !state.waiting {
            self.upkeep.wait_for(&mut state, period);
        }
        state.waiting = false;
        !state.closed
    }
}
