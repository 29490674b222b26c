//! Finds tablets that are too large or too loaded, and where to split them.
//!
//! Always true: a node examines the tablets that it leads, and asks for one split at a time. Only the bytes of a
//! tablet's own tokens count, as children share files with their siblings until these are compacted. A tablet whose
//! bytes, or whose load, cannot be divided (one large or hot partition) is not split.

use crate::load::{Division, Loads, Look};
use crate::tokens::Tokens;
use diorite_base::TabletId;
use diorite_cluster::catalog::{Catalog, Command, Placement, Settings};

/// The smaller half must have at least one part in this many of a tablet's bytes.
const LEAST_PART: u64 = 8;
/// The most tokens that are tried until the halves are good enough.
const TRIES: u32 = 64;

/// The token that divides a tablet's bytes best, by bisection from the middle of its tokens. `None` if no token leaves
/// enough bytes on both sides.
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

/// A replica that leads, as far as splitting needs it. Its methods may read files.
pub trait LedReplica {
    /// Reads and writes since it was opened.
    fn operations(&self) -> u64;

    /// Tokens of a sample of its requests since the last call.
    fn take_tokens(&self) -> Vec<i64>;

    /// Bytes of its files.
    fn file_bytes(&self) -> u64;

    /// Bytes of its files within these tokens, or why they cannot be determined.
    fn bytes_within(&self, tokens: Tokens) -> Result<u64, FilesUnreadable>;
}

/// Why the size of a tablet's files cannot be determined.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct FilesUnreadable(pub String);

/// A tablet that is led here.
struct Led<'a, R> {
    tablet: TabletId,
    placement: &'a Placement,
    replica: R,
}

/// A finding about a tablet that is not split.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Noticed {
    /// The tablet could not be examined.
    Unreadable {
        /// The tablet.
        tablet: TabletId,
        /// The error.
        error: String,
    },
    /// Most of its load is on one partition. Reported once for each overload.
    OnePartition {
        /// The tablet.
        tablet: TabletId,
        /// The partition's token.
        token: i64,
        /// The tablet's load.
        operations_per_second: u64,
    },
}

/// The result of examining the tablets that are led here.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Grown {
    /// The split to propose.
    pub command: Option<Command>,
    /// Findings to report to operators.
    pub noticed: Vec<Noticed>,
}

/// A split of one of the tablets that are led here, if one exceeds the limits in `settings` (bytes of files, or load)
/// and none is being split. `led` returns the replica of a tablet if it leads. To be called every few seconds, as load
/// is measured between calls.
pub fn next_split<R: LedReplica>(
    served: &Catalog,
    led: impl Fn(TabletId) -> Option<R>,
    settings: &Settings,
    loads: &mut Loads,
    now_ns: u64,
) -> Grown {
    let tablets = served.tablets();
    let led: Vec<_> =
        tablets.filter_map(|(tablet, placement)| Some(Led { tablet, placement, replica: led(tablet)? })).collect();
    loads.look(now_ns, settings.split_operations_per_second, led.iter().map(look_at));
    // A stalled merge does not keep other tablets from being split.
    if led.iter().any(|led| led.placement.split.is_some() || led.placement.origin.is_some()) {
        return Grown::default();
    }
    let mut noticed = Vec::new();
    let free = |led: &&Led<'_, R>| !led.placement.is_moving() && !led.placement.is_reshaping();
    let grown = led.iter().filter(free).find_map(|led| grown_split(led, served, settings.split_bytes, &mut noticed));
    let command = grown.or_else(|| {
        let overloaded = loads.overloaded();
        let found = |tablet: &TabletId| led.iter().find(|led| led.tablet == *tablet).filter(free);
        let busy = overloaded.iter().filter_map(found);
        busy.map(|led| led.tablet)
            .collect::<Vec<_>>()
            .into_iter()
            .find_map(|tablet| busy_split(tablet, served, loads, &mut noticed))
    });
    Grown { command, noticed }
}

fn look_at<'a, R: LedReplica>(led: &'a Led<'_, R>) -> Look<impl FnOnce() -> Vec<i64> + use<'a, R>> {
    let tokens = || led.replica.take_tokens();
    Look { tablet: led.tablet, operations: led.replica.operations(), tokens }
}

/// A split of a tablet with more than `limit` bytes; 0: there is no limit.
fn grown_split<R: LedReplica>(
    led: &Led<'_, R>,
    catalog: &Catalog,
    limit: u64,
    noticed: &mut Vec<Noticed>,
) -> Option<Command> {
    if limit == 0 {
        return None;
    }
    let found = grown(&led.replica, Tokens::of(catalog, led.tablet)?, limit).unwrap_or_else(|error| {
        noticed.push(Noticed::Unreadable { tablet: led.tablet, error: error.0 });
        None
    });
    Some(Command::BeginSplit { tablet: led.tablet, at: found?, stays: false })
}

/// A split of an overloaded tablet.
fn busy_split(tablet: TabletId, catalog: &Catalog, loads: &mut Loads, noticed: &mut Vec<Noticed>) -> Option<Command> {
    match loads.divide(tablet, Tokens::of(catalog, tablet)?) {
        // It is a split for load, which a merge for size must not undo.
        Division::At(at) => Some(Command::BeginSplit { tablet, at, stays: true }),
        Division::Unknown => None,
        Division::OneToken(token) => {
            if let Some(operations_per_second) = loads.tell(tablet) {
                noticed.push(Noticed::OnePartition { tablet, token, operations_per_second });
            }
            None
        }
    }
}

/// Where to split a tablet, if it has more than `limit` bytes.
fn grown(replica: &impl LedReplica, tokens: Tokens, limit: u64) -> Result<Option<i64>, FilesUnreadable> {
    if replica.file_bytes() <= limit || replica.bytes_within(tokens)? <= limit {
        return Ok(None);
    }
    boundary(tokens, |part| replica.bytes_within(part))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::{apply, cluster};
    use std::convert::Infallible;

    /// Where to split if the bytes are at these tokens.
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

    /// A replica with bytes at these tokens, and with this many operations, all on one token.
    #[derive(Clone)]
    struct Replica {
        held: Vec<(i64, u64)>,
        operations: u64,
        token: i64,
    }

    impl LedReplica for Replica {
        fn operations(&self) -> u64 {
            self.operations
        }

        fn take_tokens(&self) -> Vec<i64> {
            vec![self.token; 4]
        }

        fn file_bytes(&self) -> u64 {
            self.held.iter().map(|(_, bytes)| bytes).sum()
        }

        fn bytes_within(&self, tokens: Tokens) -> Result<u64, FilesUnreadable> {
            if self.held.is_empty() {
                return Err(FilesUnreadable("its files cannot be read".to_owned()));
            }
            Ok(self.held.iter().filter(|(token, _)| tokens.contain(*token)).map(|(_, bytes)| bytes).sum())
        }
    }

    fn settings(split_bytes: u64) -> Settings {
        Settings { split_bytes, split_operations_per_second: 100, ..Settings::default() }
    }

    #[test]
    fn one_tablet_is_split_at_a_time_and_only_where_it_is_led() {
        let mut catalog = cluster(3, 2);
        let tablets: Vec<TabletId> = catalog.tablets().map(|(tablet, _)| tablet).collect();
        let large = Replica { held: vec![(1, 60), (1 << 62, 60)], operations: 0, token: 0 };
        let look = |catalog: &Catalog, limit| {
            let led = |tablet| (tablet == tablets[1]).then(|| large.clone());
            next_split(catalog, led, &settings(limit), &mut Loads::default(), 0)
        };
        assert_eq!(look(&catalog, 120), Grown::default(), "no more than the limit");
        let Some(command @ Command::BeginSplit { tablet, stays: false, .. }) = look(&catalog, 119).command else {
            panic!("it is too large")
        };
        assert_eq!(tablet, tablets[1]);
        apply(&mut catalog, command);
        assert_eq!(look(&catalog, 119), Grown::default(), "it is being split");
    }

    #[test]
    fn a_load_on_one_partition_is_noticed_once() {
        let catalog = cluster(3, 1);
        let (tablet, _) = catalog.tablets().next().expect("a table has tablets");
        let (mut loads, mut found) = (Loads::default(), Vec::new());
        for second in 0..60 {
            let replica = Replica { held: vec![(1, 1)], operations: second * 1_000, token: 5 };
            let led = |_| Some(replica.clone());
            let grown = next_split(&catalog, led, &settings(0), &mut loads, second * 1_000_000_000);
            assert_eq!(grown.command, None);
            found.extend(grown.noticed);
        }
        let noticed = Noticed::OnePartition { tablet, token: 5, operations_per_second: 1_000 };
        assert_eq!(found, [noticed]);
    }
}
