//! The tokens of one tablet as a range, and its range of keys.

use diorite_base::TabletId;
use diorite_cluster::catalog::Catalog;
use diorite_model::key::push_token_start;

/// A key after all keys of the data.
const AFTER_ALL_KEYS: &[u8] = &[0xFF; 9];

/// The tokens of a tablet: the first, and the end, exclusive; `None` at the end of the ring.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Tokens {
    /// The first.
    pub first: i64,
    /// The end, exclusive.
    pub next: Option<i64>,
}

impl Tokens {
    /// The tokens of a tablet of a table.
    pub fn of(catalog: &Catalog, tablet: TabletId) -> Option<Self> {
        let ranges = &catalog.table_of(tablet)?.tablets;
        let at = ranges.iter().position(|range| range.tablet == tablet)?;
        Some(Self { first: ranges[at].first_token, next: ranges.get(at + 1).map(|range| range.first_token) })
    }

    /// The token in the middle; `None` if there is only one.
    pub fn middle(self) -> Option<i64> {
        let next = self.next.map_or(1 << 63, i128::from);
        let middle = i64::try_from((i128::from(self.first) + next).div_euclid(2)).ok()?;
        (middle > self.first).then_some(middle)
    }

    /// Whether a token is in the range.
    pub fn contain(self, token: i64) -> bool {
        token >= self.first && self.next.is_none_or(|next| token < next)
    }

    /// The first key of these tokens, and the end, exclusive.
    pub fn keys(self) -> (Vec<u8>, Vec<u8>) {
        let (mut start, mut end) = (Vec::new(), Vec::new());
        // No row has the smallest token: under it are a tablet's own records and index entries.
        push_token_start(self.first.max(i64::MIN + 1), &mut start);
        match self.next {
            Some(next) => push_token_start(next, &mut end),
            None => end.extend_from_slice(AFTER_ALL_KEYS),
        }
        (start, end)
    }
}
