//! Finds tablets that have grown too large, or have too much to do, and where to split them.
//!
//! Always true: a node looks at the tablets that it leads, and asks for one split at a time; what counts is the bytes of a tablet's own tokens, as children share
//! files with their siblings until these are compacted; a tablet whose bytes, or whose load, cannot be divided (one large or hot partition) stays whole.

use super::load::{Division, Loads, Look};
use crate::catalog::{CATALOG_TABLET, CatalogFollower};
use diorite_base::TabletId;
use diorite_cluster::catalog::{Catalog, Command, Placement, Settings};
use diorite_model::key::{push_token_start, token_of};
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

    /// Whether a token is one of these.
    pub(super) fn contain(self, token: i64) -> bool {
        token >= self.first && self.next.is_none_or(|next| token < next)
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

/// A tablet that is led here.
struct Led<'a> {
    tablet: TabletId,
    placement: &'a Placement,
    handle: Arc<TabletHandle>,
}

/// A split of one of the tablets that are led here, if one is over what `settings` allow, in bytes of files or in load, and none is being split. To be
/// asked every few seconds, as what tablets have to do is seen from one time to the next.
pub(super) fn next_split(
    store: &Store,
    catalog: &CatalogFollower,
    settings: &Settings,
    loads: &mut Loads,
    now_ns: u64,
) -> Option<Command> {
    let served = catalog.served();
    let tablets = served.tablets().filter(|(tablet, _)| *tablet != CATALOG_TABLET);
    let led = tablets.filter_map(|(tablet, placement)| {
        let handle = store.handle(tablet).filter(|handle| handle.leadership() == Leadership::Here)?;
        Some(Led { tablet, placement, handle })
    });
    let led: Vec<_> = led.collect();
    loads.look(now_ns, settings.split_operations_per_second, led.iter().map(look_at));
    // A merge that does not get on keeps no other tablet from being split.
    if led.iter().any(|led| led.placement.split.is_some() || led.placement.origin.is_some()) {
        return None;
    }
    let free = |led: &&Led<'_>| !led.placement.is_moving() && !led.placement.is_reshaping();
    let grown = led.iter().filter(free).find_map(|led| grown_split(led, &served, settings.split_bytes));
    grown.or_else(|| {
        let overloaded = loads.overloaded();
        let found = |tablet: &TabletId| led.iter().find(|led| led.tablet == *tablet).filter(free);
        overloaded.iter().filter_map(found).find_map(|led| busy_split(led, &served, loads))
    })
}

fn look_at<'a>(led: &'a Led<'_>) -> Look<impl FnOnce() -> Vec<i64> + use<'a>> {
    let handle = &led.handle;
    let (reads, writes) = handle.operations();
    let tokens = || handle.take_samples().iter().filter_map(|head| token_of(head).ok()).collect();
    Look { tablet: led.tablet, operations: reads.saturating_add(writes), tokens }
}

/// A split of a tablet with more than `limit` bytes; 0: there is no limit.
fn grown_split(led: &Led<'_>, catalog: &Catalog, limit: u64) -> Option<Command> {
    if limit == 0 {
        return None;
    }
    let found = grown(&led.handle, Tokens::of(catalog, led.tablet)?, limit).unwrap_or_else(|error| {
        tracing::warn!(tablet = %led.tablet, %error, "could not look at the size of a tablet");
        None
    });
    Some(Command::BeginSplit { tablet: led.tablet, at: found?, stays: false })
}

/// A split of a tablet that has too much to do.
fn busy_split(led: &Led<'_>, catalog: &Catalog, loads: &mut Loads) -> Option<Command> {
    let tablet = led.tablet;
    match loads.divide(tablet, Tokens::of(catalog, tablet)?) {
        // It is for its load, of which a merge for its size would know nothing.
        Division::At(at) => Some(Command::BeginSplit { tablet, at, stays: true }),
        Division::Unknown => None,
        Division::OneToken(token) => {
            if let Some(operations_per_second) = loads.tell(tablet) {
                tracing::info!(event = "split", %tablet, token, operations_per_second, "most of the load of a tablet is on one partition: it is not split");
            }
            None
        }
    }
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
