//! Where a key is in the token range of its tablet.
//!
//! Always true: a share is between 0 and 1, and does not fall when the key grows. It is an estimate: partitions are
//! spread over the tokens evenly, but may have any size. Left out: the bytes before a key, which storage knows for
//! files only.

use diorite_base::TabletId;
use diorite_model::key::token_of;
use diorite_model::schema::TableEntry;

/// The tokens of a tablet, both inclusive.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Tokens {
    first: i64,
    last: i64,
}

impl Tokens {
    /// Those of all tablets of a table, in order.
    pub(super) fn of_all(entry: &TableEntry) -> impl Iterator<Item = (TabletId, Self)> + '_ {
        let ends = entry.tablets.iter().skip(1).map(|next| next.first_token.saturating_sub(1)).chain([i64::MAX]);
        entry.tablets.iter().zip(ends).map(|(range, last)| (range.tablet, Self { first: range.first_token, last }))
    }

    /// Those of one tablet, unless it was split or merged.
    pub(super) fn of(entry: &TableEntry, tablet: TabletId) -> Option<Self> {
        Self::of_all(entry).find(|(of, _)| *of == tablet).map(|(_, tokens)| tokens)
    }

    /// Whether a token is one of them.
    pub(super) fn contain(self, token: i64) -> bool {
        (self.first..=self.last).contains(&token)
    }

    /// The share of the tokens before that of a key.
    pub(super) fn share_before(self, key: &[u8]) -> f64 {
        let token = token_of(key).map_or(self.first, |token| token.clamp(self.first, self.last));
        let distance = |from: i64, to: i64| i128::from(to) - i128::from(from);
        // What begins with the greatest token is the end of all rows.
        let is_end = token == i64::MAX;
        let before = distance(self.first, token) + i128::from(is_end);
        before as f64 / (distance(self.first, self.last) + 1).max(1) as f64
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use diorite_base::row_index::FIRST_ROW_KEY;
    use diorite_model::key::push_token_start;
    use diorite_storage::AFTER_ALL_KEYS;

    fn key(token: i64) -> Vec<u8> {
        let mut key = Vec::new();
        push_token_start(token, &mut key);
        key.push(7);
        key
    }

    #[test]
    fn the_share_of_a_tablet_grows_with_the_token() {
        let whole = Tokens { first: i64::MIN, last: i64::MAX };
        assert!(whole.share_before(&FIRST_ROW_KEY) < 1e-9);
        assert_eq!(whole.share_before(&key(0)), 0.5);
        assert_eq!(whole.share_before(AFTER_ALL_KEYS), 1.0);
        let part = Tokens { first: 1_000, last: 1_999 };
        assert_eq!(part.share_before(&FIRST_ROW_KEY), 0.0);
        assert_eq!(part.share_before(&key(1_250)), 0.25);
        assert!(part.share_before(AFTER_ALL_KEYS) <= 1.0);
        assert_eq!(part.share_before(b"short"), 0.0);
        assert_eq!([999, 1_000, 1_999, 2_000].map(|token| part.contain(token)), [false, true, true, false]);
    }
}
