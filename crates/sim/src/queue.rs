//! Future events, in order of time.
//!
//! Always true: of two events of one time, the one that was scheduled first happens first. So the order depends on nothing but the run.

use std::cmp::{Ordering, Reverse};
use std::collections::BinaryHeap;

struct Scheduled<E> {
    at_ns: u64,
    sequence: u64,
    event: E,
}

impl<E> Scheduled<E> {
    fn order(&self) -> (u64, u64) {
        (self.at_ns, self.sequence)
    }
}

impl<E> PartialEq for Scheduled<E> {
    fn eq(&self, other: &Self) -> bool {
        self.order() == other.order()
    }
}

impl<E> Eq for Scheduled<E> {}

impl<E> PartialOrd for Scheduled<E> {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl<E> Ord for Scheduled<E> {
    fn cmp(&self, other: &Self) -> Ordering {
        self.order().cmp(&other.order())
    }
}

/// Events by time.
pub struct EventQueue<E> {
    heap: BinaryHeap<Reverse<Scheduled<E>>>,
    sequence: u64,
}

impl<E> Default for EventQueue<E> {
    fn default() -> Self {
        Self { heap: BinaryHeap::new(), sequence: 0 }
    }
}

impl<E> EventQueue<E> {
    /// Lets `event` happen at `at_ns`.
    pub fn schedule(&mut self, at_ns: u64, event: E) {
        self.sequence += 1;
        self.heap.push(Reverse(Scheduled { at_ns, sequence: self.sequence, event }));
    }

    /// Takes the next event and its time.
    pub fn next(&mut self) -> Option<(u64, E)> {
        self.heap.pop().map(|Reverse(scheduled)| (scheduled.at_ns, scheduled.event))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn events_happen_by_time_and_then_in_the_order_of_scheduling() {
        let mut queue = EventQueue::default();
        for (at_ns, event) in [(5, 'd'), (1, 'a'), (3, 'b'), (3, 'c')] {
            queue.schedule(at_ns, event);
        }
        let order: String = std::iter::from_fn(|| queue.next()).map(|(_, event)| event).collect();
        assert_eq!(order, "abcd");
    }
}
