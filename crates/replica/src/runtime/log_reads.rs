//! The thread that reads back from the log what members lack, beside a store thread's turns.

use crate::group::catch_up::LogRead;
use crate::runtime::queue::Queue;
use diorite_base::Clock;
use diorite_storage::{GroupReader, run_at_lower_priority};
use std::sync::mpsc::Receiver;
use std::time::Duration;

/// A disk that is slow must not be waited for twice.
const LONGEST_REST: Duration = Duration::from_millis(20);

/// Carries out reads until the store thread that asks for them ends. Rests as long as it reads: what it reads is also to be sent, written and applied, by
/// threads that run at normal priority.
#[allow(
    clippy::disallowed_methods,
    reason = "a rest waits for nothing but time; it is short, so that the end of the store need not end it"
)]
pub(crate) fn read_back(clock: &dyn Clock, queue: &Queue, reads: &Receiver<LogRead<GroupReader>>) {
    run_at_lower_priority();
    while let Ok(read) = reads.recv() {
        let began_ns = clock.monotonic_ns();
        queue.answer(read.carry_out());
        let took_ns = clock.monotonic_ns().saturating_sub(began_ns);
        std::thread::sleep(Duration::from_nanos(took_ns).min(LONGEST_REST));
    }
}
