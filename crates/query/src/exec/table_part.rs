//! Parts of tables that are written to.
//!
//! Always true: whether a part was written before is decided by its tokens, not by its tablet, because the tablet may have been split or merged
//! since. The decision takes logarithmic time. Left out: what is written ([`super::modify`]).

use crate::steps;
use diorite_base::{TableId, TabletId};
use diorite_model::schema::TabletRange;
use std::collections::HashMap;
use std::ops::RangeInclusive;

/// A part of a table that is written to: what one tablet holds of it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TablePart {
    /// The table.
    pub table: TableId,
    /// The tablet that held it when the write was gathered.
    pub tablet: TabletId,
    /// Its tokens.
    pub tokens: RangeInclusive<i64>,
}

impl TablePart {
    pub(crate) fn holding(token: i64, table: TableId, tablets: &[TabletRange]) -> Self {
        let after = tablets.partition_point(|range| range.first_token <= token);
        let range = &tablets[after.saturating_sub(1)];
        let last = tablets.get(after).map_or(i64::MAX, |next| next.first_token - 1);
        Self { table, tablet: range.tablet, tokens: range.first_token..=last }
    }
}

/// Parts of tables where a write has taken effect.
#[derive(Debug, Default)]
pub(super) struct WrittenParts {
    /// First and last tokens, ascending and apart from each other.
    tokens: HashMap<TableId, Vec<(i64, i64)>, ahash::RandomState>,
}

impl WrittenParts {
    pub(super) fn new(parts: &[TablePart]) -> Self {
        let mut written = Self::default();
        for part in parts {
            written.tokens.entry(part.table).or_default().push((*part.tokens.start(), *part.tokens.end()));
        }
        for ranges in written.tokens.values_mut() {
            ranges.sort_unstable();
            ranges.dedup_by(|next, known| {
                let overlaps = next.0 <= known.1;
                if overlaps {
                    known.1 = known.1.max(next.1);
                }
                overlaps
            });
        }
        written
    }

    pub(super) fn contains(&self, table: TableId, token: i64) -> bool {
        let Some(ranges) = self.tokens.get(&table) else { return false };
        steps::count(steps::among(ranges.len()));
        let after = ranges.partition_point(|(first, _)| *first <= token);
        after.checked_sub(1).is_some_and(|at| token <= ranges[at].1)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn part(table: u32, tokens: RangeInclusive<i64>) -> TablePart {
        TablePart { table: TableId(table.into()), tablet: TabletId(1), tokens }
    }

    #[test]
    fn what_was_written_is_known_by_tokens_whatever_tablets_have_become_of_it() {
        let written = WrittenParts::new(&[
            part(1, 50..=60),
            part(1, i64::MIN..=-5),
            part(1, 55..=70),
            part(1, 52..=53),
            part(2, 1..=1),
        ]);
        let tokens = |table: u32, tokens: RangeInclusive<i64>| {
            tokens.filter(|token| written.contains(TableId(table.into()), *token)).collect::<Vec<_>>()
        };
        assert_eq!(tokens(1, -7..=80), [-7, -6, -5].into_iter().chain(50..=70).collect::<Vec<_>>());
        assert_eq!((tokens(2, -3..=3), tokens(3, -3..=3)), (vec![1], vec![]));
        assert!(written.contains(TableId(1), i64::MIN));
    }

    #[test]
    fn many_written_parts_are_not_compared_one_by_one() {
        let parts: Vec<TablePart> = (0..10_000).map(|at| part(1, 10 * at..=10 * at + 5)).collect();
        let written = WrittenParts::new(&parts);
        let (found, steps) = steps::of(|| (0..1_000).filter(|token| written.contains(TableId(1), *token)).count());
        assert!(found == 600 && steps <= 20_000, "{found} found, {steps} steps");
    }
}
