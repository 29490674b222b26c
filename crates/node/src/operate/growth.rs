//! Finds tablets that have grown too large, and where to split them.
//!
//! Always true: a node looks at the tablets that it leads, and asks for one split at a time; what counts is the bytes of a tablet's own tokens, as children share
//! files with their siblings until these are compacted; a tablet whose bytes cannot be divided (one large partition) stays whole.

use crate::catalog::{CATALOG_TABLET, CatalogFollower};
use diorite_base::TabletId;
use diorite_cluster::catalog::{Catalog, Command};
use diorite_model::key::push_token_start;
use diorite_replica::{Leadership, Store, TabletHandle};
use diorite_storage::{AFTER_ALL_KEYS, StorageError};
use std::sync::Arc;

/// The lesser half is to have at least one part in so many of a tablet's bytes.
const LEAST_PART: u64 = 8;
/// Tokens that are tried at most until the halves are good enough.
const TRIES: u32 = 64;

/// The tokens of a tablet: the first, and the first after it, `None` at the end of the ring.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Tokens {
    pub(super) first: i64,
    pub(super) next: Option<i64>,
}

impl Tokens {
    /// Those of a tablet that a table consists of.
    pub(super) fn of(catalog: &Catalog, tablet: TabletId) -> Option<Self> {
        let ranges = &catalog.table_of(tablet)?.tablets;
        let at = ranges.iter().position(|range| range.tablet == tablet)?;
        Some(Self { first: ranges[at].first_token, next: ranges.get(at + 1).map(|range| range.first_token) })
    }

    /// The token in the middle; `None` if there is only one.
    pub(super) fn middle(self) -> Option<i64> {
        let next = self.next.map_or(1 << 63, i128::from);
        let middle = i64::try_from((i128::from(self.first) + next).div_euclid(2)).ok()?;
        (middle > self.first).then_some(middle)
    }

    pub(super) fn keys(self) -> (Vec<u8>, Vec<u8>) {
        let (mut start, mut end) = (Vec::new(), Vec::new());
        push_token_start(self.first, &mut start);
        match self.next {
            Some(next) => push_token_start(next, &mut end),
            None => end.extend_from_slice(AFTER_ALL_KEYS),
        }
        (start, end)
    }
}

/// The token that divides the bytes of a tablet best: halving, starting in the middle of its tokens. `None` if no token leaves a fair part on either side.
fn boundary<E>(tokens: Tokens, mut bytes: impl FnMut(Tokens) -> Result<u64, E>) -> Result<Option<i64>, E> {
    let mut within = tokens;
    for _ in 0..TRIES {
        let Some(at) = within.middle() else { return Ok(None) };
        let before = bytes(Tokens { next: Some(at), ..tokens })?;
        let after = bytes(Tokens { first: at, ..tokens })?;
        if before.min(after) >= (before + after).div_ceil(LEAST_PART) {
            return Ok(Some(at));
        }
        within = if before > after { Tokens { next: Some(at), ..within } } else { Tokens { first: at, ..within } };
    }
    Ok(None)
}

/// A split of one of the tablets that are led here, if one has more than `limit` bytes in files, and none is being split.
pub(super) fn next_split(store: &Store, catalog: &CatalogFollower, limit: u64) -> Option<Command> {
    let served = catalog.served();
    let leads =
        |tablet: &TabletId| handle_of(store, *tablet).is_some_and(|handle| handle.leadership() == Leadership::Here);
    let led: Vec<_> = served.tablets().filter(|(tablet, _)| *tablet != CATALOG_TABLET && leads(tablet)).collect();
    if limit == 0 || led.iter().any(|(_, placement)| placement.is_reshaping()) {
        return None;
    }
    led.iter().filter(|(_, placement)| !placement.is_moving()).find_map(|(tablet, _)| {
        let found = grown(&*handle_of(store, *tablet)?, Tokens::of(&served, *tablet)?, limit);
        let at = found.unwrap_or_else(|error| {
            tracing::warn!(%tablet, %error, "could not look at the size of a tablet");
            None
        })?;
        Some(Command::BeginSplit { tablet: *tablet, at, stays: false })
    })
}

fn handle_of(store: &Store, tablet: TabletId) -> Option<Arc<TabletHandle>> {
    store.handle(tablet)
}

/// Where to split a tablet, if it has more than `limit` bytes.
fn grown(handle: &TabletHandle, tokens: Tokens, limit: u64) -> Result<Option<i64>, StorageError> {
    let data = handle.data();
    if data.statistics().sst_bytes <= limit {
        return Ok(None);
    }
    let bytes = |tokens: Tokens| {
        let (start, end) = tokens.keys();
        data.bytes_within(&start, &end)
    };
    if bytes(tokens)? <= limit {
        return Ok(None);
    }
    boundary(tokens, bytes)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::convert::Infallible;

    /// Where the bytes are: tokens, each with as many.
    fn split(tokens: Tokens, held: &[(i64, u64)]) -> Option<i64> {
        let bytes = |part: Tokens| -> Result<u64, Infallible> {
            let within =
                held.iter().filter(|(token, _)| *token >= part.first && part.next.is_none_or(|next| *token < next));
            Ok(within.map(|(_, bytes)| bytes).sum())
        };
        boundary(tokens, bytes).unwrap_or_else(|never| match never {})
    }

    #[test]
    fn an_even_tablet_is_split_in_the_middle() {
        let ring = Tokens { first: i64::MIN, next: None };
        let even: Vec<_> = (-8..8).map(|n| (n << 60, 10)).collect();
        assert_eq!(split(ring, &even), Some(0));
        assert_eq!(split(Tokens { first: 0, next: Some(100) }, &[(1, 5), (99, 5)]), Some(50));
    }

    #[test]
    fn a_lopsided_one_where_its_bytes_are() {
        let held: Vec<_> = (0..100).map(|n| (1_000 + n, 10)).collect();
        let at = split(Tokens { first: i64::MIN, next: None }, &held).unwrap_or_default();
        assert!((1_012..=1_088).contains(&at), "{at}");
    }

    #[test]
    fn one_large_partition_cannot_be_divided() {
        assert_eq!(split(Tokens { first: i64::MIN, next: None }, &[(77, 1_000), (78, 10)]), None);
        assert_eq!(split(Tokens { first: 5, next: Some(6) }, &[(5, 1_000)]), None);
        assert_eq!(split(Tokens { first: 5, next: Some(7) }, &[(5, 1_000), (6, 1_000)]), Some(6));
        assert_eq!(split(Tokens { first: i64::MAX, next: None }, &[(i64::MAX, 1_000)]), None);
    }
}
