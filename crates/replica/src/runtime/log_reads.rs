//! The thread that reads the entries that members lack from the log, beside a store thread's turns.

use crate::group::catch_up::LogRead;
use crate::runtime::queue::Queue;
use diorite_base::Clock;
use diorite_storage::{GroupReader, run_at_lower_priority};
use std::sync::mpsc::Receiver;
use std::time::Duration;

/// The longest rest: what takes long waits for the disk more than it uses the processor, and a member that lags must not
/// wait for much more than that.
const LONGEST_REST: Duration = Duration::from_millis(10);

/// The rest after a read, as a multiple of what it took.
const REST: u64 = 3;

/// Carries out reads until the store thread that asks for them ends. Rests [`REST`] times as long as each read took:
/// threads at normal priority have to send, write and apply the entries as well, and while a node joins, several others
/// read for it.
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
        std::thread::sleep(Duration::from_nanos(REST * took_ns).min(LONGEST_REST));
    }
}
