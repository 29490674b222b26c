//! The heartbeat thread: sends heartbeats, withdraws support the moment it lapses, and looks whether the wall clock can be believed. It does nothing else, so that nothing else
//! delays it.

use crate::liveness::Liveness;
use crate::store::Inner;
use crate::worker::Command;
use parking_lot::{Condvar, Mutex};
use std::time::Duration;

/// Wakes and stops the thread.
#[derive(Default)]
pub(crate) struct Heart {
    closed: Mutex<bool>,
    wake: Condvar,
}

impl Heart {
    pub(crate) fn close(&self) {
        *self.closed.lock() = true;
        self.wake.notify_all();
    }

    pub(crate) fn wake(&self) {
        self.wake.notify_all();
    }

    /// Waits; false when the store is closing.
    fn wait(&self, nanoseconds: u64) -> bool {
        let mut closed = self.closed.lock();
        if !*closed {
            self.wake.wait_for(&mut closed, Duration::from_nanos(nanoseconds));
        }
        !*closed
    }
}

/// Runs until the store closes.
pub(crate) fn run(inner: &Inner) {
    let (clock, liveness) = (&inner.context.clock, &inner.context.liveness);
    let mut next_ns = clock.monotonic_ns();
    loop {
        let now_ns = clock.monotonic_ns();
        if now_ns >= next_ns {
            next_ns = now_ns + Liveness::PERIOD_NS;
            inner.change(&liveness.beat());
            if let Some(is_off) = liveness.look_at_clock() {
                inner.queues.iter().for_each(|queue| queue.command(Command::ClockIsOff(is_off)));
            }
            inner.shared.set_present_s(u32::try_from(clock.wall_us().max(0) / 1_000_000).unwrap_or(u32::MAX));
        } else {
            inner.change(&liveness.expire());
        }
        let until_ns = liveness.next_lapse_ns().map_or(next_ns, |lapse_ns| lapse_ns.min(next_ns));
        if !inner.heart.wait(until_ns.saturating_sub(now_ns).max(1_000_000)) {
            return;
        }
    }
}
