//! The entries that wait to be written.
//!
//! Always true: both queues are bounded; to add an entry never waits for the writer, who takes all that there is at once and writes without the lock.

use parking_lot::{Condvar, Mutex};
use std::collections::VecDeque;
use std::time::Duration;

/// Entries that may wait, and bytes of them.
const MAX_ENTRIES: usize = 8_192;
const MAX_BYTES: usize = 4 << 20;
/// Failed logins and refused operations that may wait.
const MAX_REFUSED: usize = 256;
/// Of these at once, and in how long there may be one more.
const BURST: u64 = 64;
const INTERVAL_NS: u64 = 1_000_000_000;

/// What became of an entry.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Pushed {
    Queued,
    Dropped,
}

#[derive(Default)]
struct Waiting {
    entries: VecDeque<String>,
    bytes: usize,
    refused: VecDeque<String>,
    is_closed: bool,
    /// The writer has written everything and ends.
    has_ended: bool,
}

/// See the top of this module.
#[derive(Default)]
pub(super) struct Queue {
    waiting: Mutex<Waiting>,
    changed: Condvar,
}

impl Queue {
    pub(super) fn push(&self, line: String) -> Pushed {
        let mut waiting = self.waiting.lock();
        if waiting.is_closed || waiting.entries.len() >= MAX_ENTRIES || waiting.bytes + line.len() > MAX_BYTES {
            return Pushed::Dropped;
        }
        waiting.bytes += line.len();
        waiting.entries.push_back(line);
        self.changed.notify_one();
        Pushed::Queued
    }

    pub(super) fn push_refused(&self, line: String) -> Pushed {
        let mut waiting = self.waiting.lock();
        if waiting.is_closed || waiting.refused.len() >= MAX_REFUSED {
            return Pushed::Dropped;
        }
        waiting.refused.push_back(line);
        self.changed.notify_one();
        Pushed::Queued
    }

    /// Waits for entries, and takes all of them; none: no more will come.
    pub(super) fn take(&self) -> Vec<String> {
        let mut waiting = self.waiting.lock();
        while waiting.entries.is_empty() && waiting.refused.is_empty() && !waiting.is_closed {
            self.changed.wait(&mut waiting);
        }
        waiting.bytes = 0;
        let mut taken: Vec<String> = waiting.entries.drain(..).collect();
        taken.extend(waiting.refused.drain(..));
        if taken.is_empty() {
            waiting.has_ended = true;
            self.changed.notify_all();
        }
        taken
    }

    /// Takes no more entries, and waits until those that there are have been written.
    pub(super) fn close(&self, longest: Duration) {
        let mut waiting = self.waiting.lock();
        waiting.is_closed = true;
        self.changed.notify_all();
        let _ = self.changed.wait_while_for(&mut waiting, |waiting| !waiting.has_ended, longest);
    }
}

/// How many of these are kept in a time.
#[derive(Debug, Default)]
pub(super) struct Rate {
    /// When the whole burst is free again.
    free_ns: u64,
}

impl Rate {
    /// Whether one more is kept.
    pub(super) fn take(&mut self, now_ns: u64) -> bool {
        let next_ns = self.free_ns.max(now_ns) + INTERVAL_NS;
        let is_free = next_ns <= now_ns + BURST * INTERVAL_NS;
        if is_free {
            self.free_ns = next_ns;
        }
        is_free
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::Arc;

    #[test]
    fn failed_logins_push_nothing_else_out() {
        let queue = Queue::default();
        let count = |pushed: &dyn Fn(usize) -> Pushed| (0..20_000).filter(|at| pushed(*at) == Pushed::Queued).count();
        assert_eq!(count(&|at| queue.push_refused(format!("f{at}"))), MAX_REFUSED);
        assert_eq!(count(&|at| queue.push(format!("e{at}"))), MAX_ENTRIES);
        let taken = queue.take();
        assert_eq!(taken.len(), MAX_ENTRIES + MAX_REFUSED);
        assert!(taken[0] == "e0" && taken[MAX_ENTRIES] == "f0", "others come first");
        assert_eq!(queue.push("x".repeat(MAX_BYTES)), Pushed::Queued);
        assert_eq!(queue.push("x".to_owned()), Pushed::Dropped, "as many bytes as may wait");
    }

    #[test]
    fn what_was_queued_before_the_end_is_written() {
        let queue = Arc::new(Queue::default());
        assert_eq!(queue.push("last".to_owned()), Pushed::Queued);
        let of_writer = Arc::clone(&queue);
        #[allow(clippy::disallowed_methods, reason = "a test with a writer of its own")]
        let writer = std::thread::spawn(move || {
            let mut written = Vec::new();
            loop {
                match of_writer.take() {
                    taken if taken.is_empty() => return written,
                    taken => written.extend(taken),
                }
            }
        });
        queue.close(Duration::from_secs(30));
        assert_eq!(writer.join().ok(), Some(vec!["last".to_owned()]));
        assert_eq!(queue.push("late".to_owned()), Pushed::Dropped);
    }

    #[test]
    fn failed_logins_have_a_rate() {
        let mut rate = Rate::default();
        let mut count = |now_ns| (0..1_000).filter(|_| rate.take(now_ns)).count() as u64;
        assert_eq!(count(INTERVAL_NS), BURST);
        assert_eq!(count(4 * INTERVAL_NS), 3);
        assert_eq!(count(1_000 * INTERVAL_NS), BURST);
    }
}
