//! The rows that the conditions of a batch name, and what kinds of conditions each row has.
//!
//! Always true: a condition is compared with the kind recorded for its row, not with each earlier condition, so the cost of a batch is linear; no
//! batch names more rows than [`limits::CONDITION_ROWS`], as replicas read each of them when they apply it. Left out: whether conditions hold.

use crate::error::{exceeded, invalid};
use crate::program::{RowTest, TestTree};
use crate::steps;
use diorite_base::limits;
use diorite_cql::protocol::CqlError;
use std::collections::HashMap;

/// The first condition of a row that excludes others.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Kind {
    Exists,
    NotExists,
    Columns,
    /// Excludes nothing.
    Expression,
}

/// See the top of this module.
#[derive(Debug, Default)]
pub(super) struct TestedRows(HashMap<Vec<u8>, Kind, ahash::RandomState>);

impl TestedRows {
    /// Counts the row of a condition that may exclude others.
    pub(super) fn count(&mut self, row: &[u8]) -> Result<(), CqlError> {
        self.add(row, &RowTest::Tree(TestTree::Exists))
    }

    /// Adds a condition on a row. An error if it excludes an earlier condition on the same row.
    pub(super) fn add(&mut self, row: &[u8], test: &RowTest) -> Result<(), CqlError> {
        steps::count(1);
        let kind = match test {
            RowTest::Exists => Kind::Exists,
            RowTest::NotExists => Kind::NotExists,
            RowTest::Columns(_) => Kind::Columns,
            RowTest::Tree(_) | RowTest::Unchanged(_) => Kind::Expression,
        };
        let Some(known) = self.0.get_mut(row) else {
            let what = || "a batch with conditions".to_owned();
            limits::check(&limits::CONDITION_ROWS, self.0.len() + 1, what).map_err(exceeded)?;
            self.0.insert(row.to_vec(), kind);
            return Ok(());
        };
        match (*known, kind) {
            (Kind::Exists, Kind::NotExists) | (Kind::NotExists, Kind::Exists) => {
                Err(invalid("Cannot mix IF EXISTS and IF NOT EXISTS conditions for the same row"))
            }
            (Kind::NotExists, Kind::Columns) | (Kind::Columns, Kind::NotExists) => {
                Err(invalid("Cannot mix IF conditions and IF NOT EXISTS for the same row"))
            }
            (Kind::Expression, kind) => {
                *known = kind;
                Ok(())
            }
            _ => Ok(()),
        }
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "test data is known")]

    use super::*;
    use proptest::prelude::*;

    fn test() -> impl Strategy<Value = RowTest> {
        prop_oneof![
            Just(RowTest::Exists),
            Just(RowTest::NotExists),
            Just(RowTest::Columns(Vec::new())),
            Just(RowTest::Tree(TestTree::Exists)),
        ]
    }

    /// Compares a condition with every one before it.
    fn mixed(known: &[(u8, RowTest)], row: u8, test: &RowTest) -> Option<&'static str> {
        known.iter().filter(|(other, _)| *other == row).find_map(|(_, known)| match (known, test) {
            (RowTest::Exists, RowTest::NotExists) | (RowTest::NotExists, RowTest::Exists) => {
                Some("Cannot mix IF EXISTS and IF NOT EXISTS conditions for the same row")
            }
            (RowTest::NotExists, RowTest::Columns(_)) | (RowTest::Columns(_), RowTest::NotExists) => {
                Some("Cannot mix IF conditions and IF NOT EXISTS for the same row")
            }
            _ => None,
        })
    }

    proptest! {
        #[test]
        fn conditions_exclude_each_other_as_if_each_were_compared_with_all(
            conditions in proptest::collection::vec((0u8..3, test()), 0..12),
        ) {
            let mut rows = TestedRows::default();
            for (at, (row, test)) in conditions.iter().enumerate() {
                let refusal = rows.add(&[*row], test).err().map(|error| error.message.into_owned());
                let wanted = mixed(&conditions[..at], *row, test);
                prop_assert_eq!(refusal.as_deref(), wanted);
                if wanted.is_some() {
                    break;
                }
            }
        }
    }

    #[test]
    fn the_rows_of_a_batch_are_limited_and_its_conditions_are_not() {
        let mut rows = TestedRows::default();
        let key = |at: usize| at.to_be_bytes();
        for at in 0..2 * limits::MAX_CONDITION_ROWS {
            rows.add(&key(at % limits::MAX_CONDITION_ROWS), &RowTest::Exists).unwrap();
        }
        let error = rows.add(&key(limits::MAX_CONDITION_ROWS), &RowTest::Exists).unwrap_err();
        assert!(
            error.message.contains("1025 rows is over the limit of 1024 rows (CONDITION_ROWS)"),
            "{}",
            error.message
        );
    }
}
