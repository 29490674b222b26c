//! Threads that run at lower priority: those that answer requests get the processor before them.
//!
//! Copies, flushes, compactions and reads of the log for members that lag take the processor for milliseconds at a time, and requests that come meanwhile
//! wait for it. A thread of lesser weight is owed less, so that one which wakes takes the processor from it sooner (`sched(7)`, "The nice value").
//!
//! Always true: on processors that are wanted all the time it still gets a third of what another thread gets, so that compactions, which
//! writes would have to wait for in the end, and copies, which safety waits for, go on.

use rustix::process::{getpid, getpriority_process, setpriority_process};
use std::cell::Cell;

/// How much nicer than the process: a third of the weight.
const NICER: i32 = 5;

thread_local! {
    static HAS_LOWER_PRIORITY: Cell<bool> = const { Cell::new(false) };
}

/// The calling thread runs at lower priority from now on. Where the system refuses, it keeps its priority.
pub fn run_at_lower_priority() {
    if HAS_LOWER_PRIORITY.replace(true) {
        return;
    }
    // Linux knows a nice value of each thread. That of the process's number is the first thread's; without a number it is the caller's, who may have
    // been started by a thread of lower priority.
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
