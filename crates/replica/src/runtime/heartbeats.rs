//! The heartbeat sender: a thread that sends heartbeats, withdraws support the moment it lapses, and checks whether the
//! wall clock can be trusted. It has no other work that could delay these.

use crate::lifecycle::command::Command;
use crate::lifecycle::replicas::NodeReplicas;
use crate::peers::liveness::Liveness;
use crate::runtime::queue::Queues;
use parking_lot::{Condvar, Mutex};
use std::time::Duration;

/// Wakes and stops the thread.
#[derive(Default)]
pub(crate) struct HeartbeatSender {
    closed: Mutex<bool>,
    wake: Condvar,
}

impl HeartbeatSender {
    pub(crate) fn close(&self) {
        *self.closed.lock() = true;
        self.wake.notify_all();
    }

    pub(crate) fn wake(&self) {
        self.wake.notify_all();
    }

    /// Waits this long; false when the store is closing.
    fn wait(&self, nanoseconds: u64) -> bool {
        let mut closed = self.closed.lock();
        if !*closed {
            self.wake.wait_for(&mut closed, Duration::from_nanos(nanoseconds));
        }
        !*closed
    }

    /// Sends heartbeats until the store closes.
    pub(crate) fn run(&self, replicas: &NodeReplicas, queues: &Queues) {
        let (clock, liveness) = (&replicas.context.clock, &replicas.context.liveness);
        let mut next_ns = clock.monotonic_ns();
        loop {
            let now_ns = clock.monotonic_ns();
            if now_ns >= next_ns {
                next_ns = now_ns + Liveness::PERIOD_NS;
                queues.change(&liveness.beat());
                if let Some(is_off) = liveness.look_at_clock() {
                    queues.iter().for_each(|queue| queue.command(Command::ClockIsOff(is_off)));
                }
                replicas.shared.set_present_s(u32::try_from(clock.wall_us().max(0) / 1_000_000).unwrap_or(u32::MAX));
            } else {
                queues.change(&liveness.expire());
            }
            let until_ns = liveness.next_lapse_ns().map_or(next_ns, |lapse_ns| lapse_ns.min(next_ns));
            if !self.wait(until_ns.saturating_sub(now_ns).max(1_000_000)) {
                return;
            }
        }
    }
}
