//! Series of points that are written in batches of one partition and read backwards: which batches were sent, and which
//! points a read must find.
//!
//! Always true:
//!  - the points of a series are consecutive milliseconds from the start of the run; each batch has the next ones, so
//!    several writers may write one series at a time;
//!  - a read is of points before the first batch that is still being written, so each of their batches has an outcome:
//!    all points of an acknowledged batch are there, and of a batch that failed all or none, in order, up to the limit
//!    of the read.
//!
//! Half of the reads end at the newest point, as in yb-sample-apps; the others end at one of the last
//! [`LOOK_BACK_POINTS`]. Left out: what the points contain.

use std::collections::BTreeSet;
use std::sync::{Mutex, MutexGuard, PoisonError};

use diorite_base::random::{Random, SplitMix64};

use crate::arguments::DataShape;
use crate::error::Problem;

/// How far back a read may end.
const LOOK_BACK_POINTS: u64 = 10_000;

/// One series.
pub(super) struct Series {
    pub(super) name: String,
    batches: Mutex<Batches>,
}

/// The batches of a series, numbered from 0.
#[derive(Debug, Default)]
struct Batches {
    next: u64,
    /// All batches below have ended.
    ended: u64,
    /// Those that have ended before an earlier one.
    ended_early: BTreeSet<u64>,
    /// Those whose request failed. Grows with failed requests only.
    unknown: BTreeSet<u64>,
}

/// The points that a read asks for, numbered from 1: `first..=last`, the latest first.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Range {
    pub(super) first: u64,
    pub(super) last: u64,
    pub(super) limit: usize,
    batch_size: u64,
    /// The batches that may be missing.
    unknown: BTreeSet<u64>,
}

impl Series {
    /// A series without points.
    pub(super) fn new(name: String) -> Self {
        Self { name, batches: Mutex::default() }
    }

    /// Takes the next batch to write.
    pub(super) fn begin(&self) -> u64 {
        self.batches().begin()
    }

    /// The request of a batch has ended.
    pub(super) fn end(&self, number: u64, is_acknowledged: bool) {
        self.batches().end(number, is_acknowledged);
    }

    /// Some points to read; `None` if there are none yet.
    pub(super) fn some_range(&self, random: &mut SplitMix64, shape: DataShape) -> Option<Range> {
        let back = if random.below(2) == 0 { 0 } else { random.below(LOOK_BACK_POINTS) };
        self.batches().range(back, shape)
    }

    fn batches(&self) -> MutexGuard<'_, Batches> {
        self.batches.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Batches {
    /// Takes the next batch to write.
    fn begin(&mut self) -> u64 {
        self.next += 1;
        self.next - 1
    }

    /// The request of a batch has ended.
    fn end(&mut self, number: u64, is_acknowledged: bool) {
        if !is_acknowledged {
            self.unknown.insert(number);
        }
        self.ended_early.insert(number);
        while self.ended_early.remove(&self.ended) {
            self.ended += 1;
        }
    }

    /// The points to read up to `back` points before the newest one; `None` if there are none yet.
    fn range(&self, back: u64, shape: DataShape) -> Option<Range> {
        let batch_size = shape.batch_size as u64;
        let newest = self.ended * batch_size;
        let last = newest - back.min(newest.checked_sub(1)?);
        let first = (last + 1).saturating_sub(shape.read_span).max(1);
        let batches = (first - 1) / batch_size..=(last - 1) / batch_size;
        let unknown = self.unknown.range(batches).copied().collect();
        Some(Range { first, last, limit: shape.read_batch_size, batch_size, unknown })
    }
}

impl Range {
    /// Checks which points were found, in the order of the answer, of those that `is_asked` is true for.
    pub(super) fn check(&self, found: &[u64], is_asked: impl Fn(u64) -> bool) -> Result<(), Problem> {
        let mut found = found.iter().copied().take(self.limit + 1).peekable();
        let mut left = self.limit;
        let mut last = self.last;
        while last >= self.first && left > 0 {
            let batch = (last - 1) / self.batch_size;
            let first = (batch * self.batch_size + 1).max(self.first);
            let mut due = (first..=last).rev().filter(|&point| is_asked(point)).take(left).peekable();
            // Of a batch that failed there are all points or none.
            if found.peek() == due.peek() || !self.unknown.contains(&batch) {
                for point in due {
                    match found.next() {
                        Some(next) if next == point => left -= 1,
                        Some(next) => {
                            return Err(Problem::shape(format!("point {next} of the run where {point} is due")));
                        }
                        None => return Err(Problem::Missing),
                    }
                }
            }
            last = first - 1;
        }
        match found.next() {
            Some(next) => Err(Problem::shape(format!("point {next} of the run after the last one that is due"))),
            None => Ok(()),
        }
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "a failed unwrap is a failed test")]
    use super::*;

    fn shape() -> DataShape {
        DataShape { batch_size: 100, read_batch_size: 150, ..DataShape::default() }
    }

    fn check(range: &Range, found: &[u64]) -> Result<(), Problem> {
        range.check(found, |_| true)
    }

    /// Batches 0 to 4 have ended, batch 3 with an error.
    fn batches() -> Batches {
        let mut batches = Batches::default();
        (0..6).for_each(|_| _ = batches.begin());
        for number in [0, 2, 1, 4] {
            batches.end(number, true);
        }
        batches.end(3, false);
        batches
    }

    fn down(from: u64, to: u64) -> Vec<u64> {
        (to..=from).rev().collect()
    }

    #[test]
    fn reads_end_before_the_first_batch_that_is_being_written() {
        let mut batches = Batches::default();
        assert_eq!(batches.range(0, shape()), None);
        assert_eq!((batches.begin(), batches.begin()), (0, 1));
        batches.end(1, true);
        assert_eq!(batches.range(0, shape()), None);
        batches.end(0, true);
        let range = batches.range(0, shape()).unwrap();
        assert_eq!((range.first, range.last), (21, 200));
        let range = batches.range(5_000, shape()).unwrap();
        assert_eq!((range.first, range.last), (1, 1), "not before the first point");
    }

    #[test]
    fn acknowledged_points_are_all_there_in_reverse_order() {
        let range = batches().range(200, shape()).unwrap();
        assert_eq!((range.first, range.last, range.unknown.len()), (121, 300, 0));
        assert_eq!(check(&range, &down(300, 151)), Ok(()));
        assert_eq!(check(&range, &down(300, 152)), Err(Problem::Missing));
        assert!(check(&range, &down(300, 150)).is_err(), "more than the limit");
        assert!(check(&range, &down(299, 150)).is_err(), "the newest is missing");
        assert!(check(&range, &[down(300, 250), down(248, 150)].concat()).is_err(), "one between is missing");
        assert!(check(&range, &(151..=300).collect::<Vec<_>>()).is_err(), "forwards");
    }

    #[test]
    fn a_batch_that_failed_is_there_as_a_whole_or_not_at_all() {
        let range = batches().range(0, shape()).unwrap();
        assert_eq!((range.first, range.last), (321, 500));
        assert_eq!(range.unknown, BTreeSet::from([3]));
        assert_eq!(check(&range, &down(500, 351)), Ok(()), "it is there, up to the limit");
        assert_eq!(check(&range, &down(500, 401)), Ok(()), "it is not there");
        assert_eq!(check(&range, &down(500, 380)), Err(Problem::Missing), "a part of it");
        assert!(check(&range, &[down(500, 401), down(399, 351)].concat()).is_err(), "a part of it");
        assert_eq!(check(&range, &down(500, 402)), Err(Problem::Missing), "an acknowledged one before it");
    }

    #[test]
    fn of_some_points_exactly_those_are_due() {
        let range = batches().range(0, shape()).unwrap();
        let every = |step: u64, found: &[u64]| range.check(found, |point| point % step == 0);
        assert_eq!(every(50, &[500, 450, 400, 350]), Ok(()));
        assert_eq!(every(50, &[500, 450]), Ok(()), "the batch that failed is not there");
        assert_eq!(every(50, &[500, 450, 400]), Err(Problem::Missing), "a part of it");
        assert_eq!(every(50, &[500]), Err(Problem::Missing));
        assert!(every(50, &[500, 499, 450]).is_err(), "one that was not asked for");
        assert!(every(50, &[450, 500]).is_err(), "forwards");
        assert_eq!(every(1_000, &[]), Ok(()), "there are none");
        assert!(every(1_000, &[500]).is_err());
    }
}
