//! Runs background threads at a lower priority than those that answer requests.
//!
//! Copies, flushes, compactions and reads of the log for members that lag use the processor for milliseconds at a time,
//! and requests that arrive meanwhile wait. The scheduler preempts a thread of lower weight sooner when another one
//! wakes (`sched(7)`, "The nice value").
//!
//! Always true: on busy processors such a thread still gets a third of the time of another thread, so that compactions,
//! for which writes would have to wait in the end, and copies, which restore redundancy, make progress.

use rustix::process::{getpid, getpriority_process, setpriority_process};
use std::cell::Cell;

/// The difference to the nice value of the process: a third of the weight.
const NICER: i32 = 5;

thread_local! {
    static HAS_LOWER_PRIORITY: Cell<bool> = const { Cell::new(false) };
}

/// Lowers the priority of the calling thread from now on. If the system refuses, it keeps its priority.
pub fn run_at_lower_priority() {
    if HAS_LOWER_PRIORITY.replace(true) {
        return;
    }
    // Linux keeps a nice value per thread. The process id names the first thread; without an id the call reads that of
    // the calling thread, which may have been started by a thread of lower priority.
    let of_process = getpriority_process(Some(getpid()));
    let set = of_process.and_then(|nice| setpriority_process(None, nice + NICER));
    if let Err(error) = set {
        tracing::debug!(%error, "a background thread keeps its priority");
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "a failed unwrap is a failed test")]

    use super::*;

    #[test]
    fn the_calling_thread_lowers_its_priority_once_and_no_other_thread_does() {
        let nice = || getpriority_process(None).unwrap();
        let before = nice();
        std::thread::scope(|scope| {
            scope.spawn(|| {
                run_at_lower_priority();
                run_at_lower_priority();
                assert_eq!(nice(), (before + NICER).min(19));
            });
        });
        assert_eq!(nice(), before);
    }
}
