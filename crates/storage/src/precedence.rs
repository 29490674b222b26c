//! Threads that make way: whoever answers requests gets the processor before them.
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
    static MAKES_WAY: Cell<bool> = const { Cell::new(false) };
}

/// From now on the calling thread makes way for others. Where that cannot be had, it works as it did.
pub fn lower_priority() {
    if MAKES_WAY.replace(true) {
        return;
    }
    // Linux knows a nice value of each thread. That of the process's number is the first thread's; without a number it is the caller's, who may have
    // been started by one that makes way.
    let of_process = getpriority_process(Some(getpid()));
    let set = of_process.and_then(|nice| setpriority_process(None, nice + NICER));
    if let Err(error) = set {
        tracing::debug!(%error, "a background thread keeps its precedence");
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "a failed unwrap is a failed test")]

    use super::*;

    #[test]
    fn the_calling_thread_makes_way_once_and_no_other() {
        let nice = || getpriority_process(None).unwrap();
        let before = nice();
        std::thread::scope(|scope| {
            scope.spawn(|| {
                lower_priority();
                lower_priority();
                assert_eq!(nice(), (before + NICER).min(19));
            });
        });
        assert_eq!(nice(), before);
    }
}
