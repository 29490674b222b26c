//! The steps that a leader has appended to the log and that are not applied yet, as they were before they were encoded.
//!
//! Always true: what is found for an entry is what its bytes decode to: a position names one entry of the log, and the
//! leader of a term has appended it. Nothing has to be here: what is not found is decoded from the entry, as followers
//! do. Bounded by the bytes of the entries.

use diorite_raft::LogPosition;
use diorite_transact::step::Step;
use std::collections::VecDeque;

/// The most bytes of entries whose steps are kept.
const MOST_BYTES: usize = 256 << 10;

struct Appended {
    at: LogPosition,
    /// How many bytes they have when they are encoded.
    bytes: usize,
    steps: Vec<Step>,
}

/// See the top of this module.
#[derive(Default)]
pub(crate) struct AppendedSteps {
    entries: VecDeque<Appended>,
    bytes: usize,
}

impl AppendedSteps {
    /// The leader has appended an entry with these steps, of so many bytes. All of `steps` is taken.
    pub(crate) fn push(&mut self, at: LogPosition, bytes: usize, steps: impl Iterator<Item = Step>) {
        if self.bytes + bytes > MOST_BYTES {
            return steps.for_each(drop);
        }
        self.bytes += bytes;
        self.entries.push_back(Appended { at, bytes, steps: steps.collect() });
    }

    /// The steps of an entry that is about to be applied, if they are known. Those before it are dropped.
    pub(crate) fn take(&mut self, at: LogPosition, bytes: usize) -> Option<Vec<Step>> {
        while self.entries.front().is_some_and(|first| first.at.index <= at.index) {
            let first = self.entries.pop_front()?;
            self.bytes -= first.bytes;
            if (first.at, first.bytes) == (at, bytes) {
                return Some(first.steps);
            }
        }
        None
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use diorite_base::TabletId;
    use diorite_transact::TransactionId;

    fn steps(number: u64) -> Vec<Step> {
        vec![Step::Forget(vec![TransactionId { tablet: TabletId(7), term: 1, number }])]
    }

    #[test]
    fn steps_are_found_for_their_entry_alone_and_once() {
        let mut appended = AppendedSteps::default();
        for index in 1..=6 {
            appended.push(LogPosition::new(index, 3), 10, steps(index).into_iter());
        }
        assert_eq!(appended.take(LogPosition::new(1, 3), 10), Some(steps(1)));
        assert_eq!(appended.take(LogPosition::new(1, 3), 10), None);
        // Another leader's entry, and one of other bytes.
        assert_eq!(appended.take(LogPosition::new(2, 4), 10), None);
        assert_eq!(appended.take(LogPosition::new(3, 3), 11), None);
        // The one before it was applied without a look.
        assert_eq!(appended.take(LogPosition::new(5, 3), 10), Some(steps(5)));
        assert_eq!(appended.take(LogPosition::new(4, 3), 10), None);
        assert_eq!((appended.take(LogPosition::new(6, 3), 10), appended.bytes), (Some(steps(6)), 0));
    }

    #[test]
    fn no_more_is_kept_than_fits() {
        let mut appended = AppendedSteps::default();
        appended.push(LogPosition::new(1, 3), MOST_BYTES - 10, steps(1).into_iter());
        let mut left = steps(2);
        appended.push(LogPosition::new(2, 3), 11, left.drain(..));
        appended.push(LogPosition::new(3, 3), 10, steps(3).into_iter());
        assert!(left.is_empty());
        assert_eq!(appended.take(LogPosition::new(2, 3), 11), None);
        assert_eq!((appended.take(LogPosition::new(3, 3), 10), appended.bytes), (Some(steps(3)), 0));
    }
}
