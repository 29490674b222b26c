//! Pairs of rows: their keys and values, which of them were written, and what must be found of each.
//!
//! Always true: the two rows of a pair are in two tablets of a table that has at least two; a pair is written once, by
//! one request; a pair whose request failed may be there or not.

use std::collections::BTreeSet;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};

use diorite_base::random::{Random, SplitMix64};

use crate::data::{KeyFormat, Version, check_value, write_value};
use crate::error::Problem;
use crate::session::tablet_of;

/// The numbers of rows that belong to a pair: the first row has the first of them, the second row the first one of the
/// others that is in another tablet.
const NUMBERS_OF_A_PAIR: u64 = 64;
/// Every row is written once.
const VERSION: Version = Version(1);

/// The shape of the rows: `k varchar`, `n bigint` (the row's number), `v blob`.
#[derive(Debug, Clone)]
pub struct PairShape {
    format: KeyFormat,
    value_size: usize,
    tablets: u32,
}

/// One row as it is written.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PairRow {
    pub key: String,
    pub number: i64,
    pub value: Vec<u8>,
}

impl PairShape {
    /// Rows of a table with so many tablets of equal size.
    pub fn new(format: KeyFormat, value_size: usize, tablets: u32) -> Self {
        assert!(tablets > 1, "the rows of a pair are in two tablets");
        Self { format, value_size, tablets }
    }

    /// How many tablets a table of these rows has.
    pub fn tablets(&self) -> u32 {
        self.tablets
    }

    /// The numbers of the two rows of a pair.
    pub fn numbers(&self, pair: u64) -> [u64; 2] {
        let first = pair * NUMBERS_OF_A_PAIR;
        let tablet = |number: u64| tablet_of(&self.format.name(number), self.tablets);
        let others = first + 1..first + NUMBERS_OF_A_PAIR - 1;
        let second = others.clone().find(|&number| tablet(number) != tablet(first));
        [first, second.unwrap_or(others.end)]
    }

    /// The key of a row.
    pub fn key(&self, number: u64) -> String {
        self.format.name(number)
    }

    /// A row.
    pub fn row(&self, number: u64) -> PairRow {
        let mut value = Vec::new();
        write_value(number, VERSION, self.value_size, &mut value);
        PairRow { key: self.key(number), number: number as i64, value }
    }

    /// Checks a row that was read of a pair with these numbers; which of the two it is.
    pub fn check_row(&self, numbers: [u64; 2], key: &str, number: i64, value: &[u8]) -> Result<usize, Problem> {
        let place = numbers.iter().position(|&number| self.key(number) == key);
        let place = place.ok_or_else(|| Problem::Shape(format!("the row of {key}")))?;
        if number != numbers[place] as i64 {
            return Err(Problem::Shape(format!("the number {number} instead of {}", numbers[place])));
        }
        check_value(numbers[place], self.value_size, value).map_err(Problem::Wrong)?;
        Ok(place)
    }
}

/// The pairs that were written.
#[derive(Debug, Default)]
pub struct Written {
    next: AtomicU64,
    /// Those whose request failed.
    unknown: Mutex<BTreeSet<u64>>,
}

impl Written {
    /// Takes the next pair to write.
    pub fn begin(&self) -> u64 {
        self.next.fetch_add(1, Ordering::Relaxed)
    }

    /// The request that wrote a pair has failed.
    pub fn fail(&self, pair: u64) {
        self.unknown().insert(pair);
    }

    /// Whether the request that wrote a pair was acknowledged; for pairs whose request has ended.
    pub fn is_acknowledged(&self, pair: u64) -> bool {
        !self.unknown().contains(&pair)
    }

    /// Any of the pairs, each equally often.
    pub fn choose(&self, random: &mut SplitMix64) -> Option<u64> {
        let written = self.next.load(Ordering::Relaxed);
        (written > 0).then(|| random.below(written))
    }

    /// Up to `limit` pairs to look at: the newest, those whose request failed, and any others.
    pub fn sample(&self, limit: usize, random: &mut SplitMix64) -> BTreeSet<u64> {
        let newest = self.next.load(Ordering::Relaxed).checked_sub(1);
        let mut chosen: BTreeSet<u64> = newest.into_iter().collect();
        chosen.extend(self.unknown().iter().rev().take(limit / 2));
        let further = limit.saturating_sub(chosen.len());
        chosen.extend((0..further).filter_map(|_| self.choose(random)));
        chosen
    }

    fn unknown(&self) -> MutexGuard<'_, BTreeSet<u64>> {
        self.unknown.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// What must be found of a pair.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Expectation {
    /// Rows that its request wrote, or that are asked for: 1 or 2.
    pub rows: usize,
    pub is_acknowledged: bool,
    /// A read shows all rows of the request or none, even if its outcome is unknown.
    pub is_all_or_none: bool,
    /// The rows have one `writetime`.
    pub has_one_time: bool,
}

impl Expectation {
    /// Checks the `writetime` of each row that was found (0 if it was not asked for); the row that the problem is about.
    pub fn check(&self, times_us: [Option<i64>; 2]) -> Result<(), (usize, Problem)> {
        if let Some(place) = (self.rows..2).find(|&place| times_us[place].is_some()) {
            return Err((place, Problem::Shape("a row that was never written".to_owned())));
        }
        let missing = (0..self.rows).find(|&place| times_us[place].is_none());
        let found = times_us.iter().flatten().count();
        match (missing, times_us) {
            (Some(place), _) if self.is_acknowledged => Err((place, Problem::Missing)),
            (Some(place), _) if self.is_all_or_none && found > 0 => {
                Err((place, Problem::Shape("only the other row of its transaction is there".to_owned())))
            }
            (_, [Some(first), Some(second)]) if self.has_one_time && first != second => {
                let message = format!("writetime {second}, but {first} of the other row of its request");
                Err((1, Problem::Shape(message)))
            }
            _ => Ok(()),
        }
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "a failed unwrap is a failed test")]
    use super::*;

    #[test]
    fn the_rows_of_a_pair_are_in_two_tablets_and_no_two_pairs_share_one() {
        let shape = PairShape::new(KeyFormat::new("key", 20), 32, 3);
        let mut seen = BTreeSet::new();
        for pair in 0..200 {
            let numbers = shape.numbers(pair);
            let tablets = numbers.map(|number| tablet_of(&shape.key(number), 3));
            assert_ne!(tablets[0], tablets[1]);
            assert!(numbers.into_iter().all(|number| seen.insert(number)));
        }
    }

    #[test]
    fn a_row_is_one_of_the_pair_with_its_own_number_and_value() {
        let shape = PairShape::new(KeyFormat::new("key", 0), 32, 8);
        let numbers = shape.numbers(7);
        let row = shape.row(numbers[1]);
        assert_eq!(shape.check_row(numbers, &row.key, row.number, &row.value).unwrap(), 1);
        assert!(shape.check_row(numbers, &row.key, row.number + 1, &row.value).is_err());
        assert!(shape.check_row(numbers, &row.key, row.number, &shape.row(numbers[0]).value).is_err());
        assert!(shape.check_row(shape.numbers(8), &row.key, row.number, &row.value).is_err());
    }

    #[test]
    fn failed_pairs_are_looked_at_and_may_be_missing() {
        let written = Written::default();
        let mut random = SplitMix64::new(1);
        assert!(written.sample(4, &mut random).is_empty() && written.choose(&mut random).is_none());
        (0..100).for_each(|_| _ = written.begin());
        written.fail(5);
        assert!(!written.is_acknowledged(5) && written.is_acknowledged(6));
        let sample = written.sample(10, &mut random);
        assert!(sample.contains(&5) && sample.contains(&99) && sample.len() <= 10);
    }

    #[test]
    fn an_acknowledged_pair_is_there_and_a_transaction_is_whole() {
        let block = Expectation { rows: 2, is_acknowledged: true, is_all_or_none: true, has_one_time: true };
        assert_eq!(block.check([Some(3), Some(3)]), Ok(()));
        assert_eq!(block.check([Some(3), None]), Err((1, Problem::Missing)));
        assert!(block.check([Some(3), Some(4)]).is_err());
        let failed = Expectation { is_acknowledged: false, ..block };
        assert_eq!((failed.check([None, None]), failed.check([Some(1), Some(1)])), (Ok(()), Ok(())));
        assert!(failed.check([None, Some(1)]).is_err());
        let unlogged = Expectation { is_all_or_none: false, has_one_time: false, ..failed };
        assert_eq!((unlogged.check([None, Some(1)]), unlogged.check([Some(2), Some(1)])), (Ok(()), Ok(())));
        let single = Expectation { rows: 1, ..block };
        assert_eq!(single.check([Some(0), None]), Ok(()));
        assert!(single.check([Some(0), Some(0)]).is_err());
    }
}
