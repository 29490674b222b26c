//! Writers that wait for the entries that this replica has proposed, until the log decides their outcome.
//!
//! An entry is identified by its index *and* its term: a replica that led, followed and leads again has proposed
//! entries of two terms at the same indexes, and only one of each is committed.
//!
//! Always true: the queue is ascending by term, then by index, as terms grow and a leader only appends. An applied
//! entry decides: the entry with the same index and term is applied; every entry of a lesser term that is not applied
//! yet never will be, as the terms of a log do not decrease. An index alone decides nothing. An entry stays in the
//! queue when the requests of all its writers have ended. Left out: what writers receive.

use crate::group::proposal::{NO_DEADLINE, Waiter};
use diorite_raft::LogPosition;
use std::collections::VecDeque;

/// A proposed entry with waiters.
pub(crate) struct Waiting {
    pub(crate) at: LogPosition,
    pub(crate) since_ns: u64,
    pub(crate) waiters: Vec<Waiter>,
}

/// The fate of a proposed entry, as decided by the entry that is being applied.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Fate {
    /// It is the entry that is being applied.
    Applied,
    /// It is not in the committed log and never will be: it had no effect.
    Never,
}

/// All waiters of one replica.
pub(crate) struct Waiters {
    queue: VecDeque<Waiting>,
    /// The earliest end of any writer's request.
    earliest_ns: u64,
}

impl Default for Waiters {
    fn default() -> Self {
        Self { queue: VecDeque::new(), earliest_ns: NO_DEADLINE }
    }
}

impl Waiters {
    /// Adds the waiters of an entry that was just proposed.
    pub(crate) fn push(&mut self, waiting: Waiting) {
        let follows = |last: &Waiting| last.at < waiting.at;
        assert!(self.queue.back().is_none_or(follows), "entries are proposed in the order of their terms and indexes");
        let earliest_ns = waiting.waiters.iter().map(|waiter| waiter.deadline_ns).min();
        self.earliest_ns = self.earliest_ns.min(earliest_ns.unwrap_or(NO_DEADLINE));
        self.queue.push_back(waiting);
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.queue.is_empty()
    }

    /// The number of entries with waiters.
    pub(crate) fn len(&self) -> usize {
        self.queue.len()
    }

    /// The next waiting entry that is decided by the entry being applied; call it until there is none. All entries
    /// before that one have been applied.
    pub(crate) fn next_decided(&mut self, applied: LogPosition) -> Option<(Fate, Waiting)> {
        let first = self.queue.front()?;
        if first.at > applied {
            return None;
        }
        let fate = if first.at == applied { Fate::Applied } else { Fate::Never };
        self.queue.pop_front().map(|first| (fate, first))
    }

    /// The next entry that has waited since `since_ns` or longer.
    pub(crate) fn next_since(&mut self, since_ns: u64) -> Option<Waiting> {
        if self.queue.front()?.since_ns > since_ns { None } else { self.queue.pop_front() }
    }

    /// Removes writers whose requests have ended; returns each with the index of its entry and the time since when it
    /// has waited. Examines the queue only if there is such a writer.
    pub(crate) fn take_due(&mut self, now_ns: u64) -> Vec<(u64, u64, Waiter)> {
        let mut due = Vec::new();
        if now_ns < self.earliest_ns {
            return due;
        }
        self.earliest_ns = NO_DEADLINE;
        for Waiting { at, since_ns, waiters } in &mut self.queue {
            let ended = waiters.extract_if(.., |waiter| waiter.deadline_ns <= now_ns);
            due.extend(ended.map(|waiter| (at.index, *since_ns, waiter)));
            let left = waiters.iter().map(|waiter| waiter.deadline_ns).min();
            self.earliest_ns = self.earliest_ns.min(left.unwrap_or(NO_DEADLINE));
        }
        due
    }

    /// Removes and returns all waiters.
    pub(crate) fn take_all(&mut self) -> Vec<Waiter> {
        self.queue.drain(..).flat_map(|waiting| waiting.waiters).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use diorite_base::write::{Completion, WriteSink};
    use std::sync::Arc;

    /// Waiting entries, by index and term, proposed one nanosecond after the other.
    fn waiters(entries: &[(u64, u64)]) -> Waiters {
        let mut waiters = Waiters::default();
        for ((index, term), since_ns) in entries.iter().copied().zip(0..) {
            waiters.push(Waiting { at: LogPosition::new(index, term), since_ns, waiters: Vec::new() });
        }
        waiters
    }

    fn apply(waiters: &mut Waiters, index: u64, term: u64) -> Vec<(u64, u64, Fate)> {
        std::iter::from_fn(|| waiters.next_decided(LogPosition::new(index, term)))
            .map(|(fate, waiting)| (waiting.at.index, waiting.at.term, fate))
            .collect()
    }

    #[test]
    fn leadership_that_goes_there_and_back_leaves_nobody_behind() {
        // The replica led in term 5 and proposed entries up to 14, of which the next leader kept those up to 10; it
        // leads again in term 7, from 12 on.
        let mut waiters = waiters(&[(10, 5), (11, 5), (12, 5), (13, 5), (14, 5), (13, 7), (14, 7)]);
        assert_eq!(apply(&mut waiters, 10, 5), [(10, 5, Fate::Applied)]);
        let never = |index| (index, 5, Fate::Never);
        assert_eq!(apply(&mut waiters, 11, 6), [never(11), never(12), never(13), never(14)]);
        assert_eq!(apply(&mut waiters, 12, 7), []);
        assert_eq!(apply(&mut waiters, 13, 7), [(13, 7, Fate::Applied)], "not behind an entry that will never come");
        assert_eq!(apply(&mut waiters, 14, 7), [(14, 7, Fate::Applied)]);
        assert!(waiters.is_empty());
    }

    #[test]
    fn an_entry_of_the_same_index_and_another_term_proves_nothing_of_a_later_one() {
        // Entry 12 of another leader, of term 6, was not in this leader's log in term 7, and came back with the leader
        // of term 8.
        let mut waiters = waiters(&[(12, 7)]);
        assert_eq!(apply(&mut waiters, 12, 6), []);
        assert_eq!(apply(&mut waiters, 13, 8), [(12, 7, Fate::Never)]);
    }

    #[test]
    fn a_request_ends_by_itself_and_its_entry_stays() {
        struct Nobody;
        impl WriteSink for Nobody {
            fn complete(&self, done: &mut Vec<Completion>) {
                done.clear();
            }
        }
        let sink: Arc<dyn WriteSink> = Arc::new(Nobody);
        let waiting = |index, deadlines: &[u64]| {
            let waiter = |&deadline_ns| Waiter { sink: Arc::clone(&sink), token: deadline_ns, deadline_ns };
            Waiting { at: LogPosition::new(index, 1), since_ns: index, waiters: deadlines.iter().map(waiter).collect() }
        };
        let mut waiters = Waiters::default();
        waiters.push(waiting(1, &[NO_DEADLINE, 50]));
        waiters.push(waiting(2, &[40, 70]));
        let mut due = |now_ns| {
            let due = waiters.take_due(now_ns).into_iter();
            due.map(|(index, since_ns, waiter)| (index, since_ns, waiter.token)).collect::<Vec<_>>()
        };
        assert_eq!(due(39), []);
        assert_eq!(due(50), [(1, 1, 50), (2, 2, 40)]);
        assert_eq!(due(69), []);
        assert_eq!(due(70), [(2, 2, 70)]);
        assert_eq!(due(u64::MAX - 1), []);
        assert_eq!(apply(&mut waiters, 1, 1), [(1, 1, Fate::Applied)]);
        assert_eq!(apply(&mut waiters, 2, 1), [(2, 1, Fate::Applied)]);
    }

    #[test]
    fn who_has_waited_too_long_is_found_in_order() {
        let mut waiters = waiters(&[(1, 1), (2, 1), (3, 1)]);
        let expired: Vec<u64> = std::iter::from_fn(|| waiters.next_since(1)).map(|waiting| waiting.at.index).collect();
        assert_eq!((expired.as_slice(), waiters.len()), (&[1, 2][..], 1));
    }
}
