//! Finds small neighbouring tablets to merge, on the node that leads the catalog.
//!
//! Always true: a pure function of the catalog, of the nodes' reports and of the time. Two tablets whose merge was
//! cancelled are not merged for a day. A table keeps as many tablets as it was created with, plus those that an
//! operator asked for. One merge is proposed at a time. Merged tablets are so small that they would have to grow
//! eightfold to be split.

use crate::knowledge::Known;
use diorite_base::TabletId;
use diorite_cluster::catalog::{Catalog, Command, Merge, Placement, Settings};
use std::collections::HashMap;

/// Two tablets are merged only if together they hold less than one part in this many of the split size.
const OF_SPLIT_SIZE: u64 = 8;

/// How long after a cancelled merge a tablet is not merged for its size, milliseconds.
const AFTER_CANCELLED_MS: i64 = 24 * 60 * 60 * 1_000;

/// The most bytes of files that two neighbours may have together to be merged for their size; 0: none are merged.
pub fn merge_limit(settings: &Settings) -> u64 {
    match settings.split_bytes {
        0 => settings.merge_bytes,
        split_bytes => settings.merge_bytes.min(split_bytes / OF_SPLIT_SIZE),
    }
}

/// Whether a merge makes progress. A cancelled merge, or one with a tablet without a leader, does not keep others
/// waiting.
fn is_merging<D>(placement: &Placement, tablet: TabletId, known: &Known<D>) -> bool {
    let Some(Merge::Into(into)) = placement.merge.filter(|_| !placement.is_merge_cancelled) else { return false };
    let is_led = |wanted: TabletId| {
        let mut reported = known.reports.values().flat_map(|report| &report.tablets);
        reported.any(|replica| replica.tablet == wanted && replica.leads)
    };
    is_led(tablet) && is_led(into)
}

/// Whether a merge of the tablet was cancelled recently.
fn was_cancelled(placement: &Placement, now_ms: i64) -> bool {
    let cancelled = placement.cancelled_merge.as_ref();
    cancelled.is_some_and(|cancelled| now_ms.abs_diff(cancelled.unix_ms) < AFTER_CANCELLED_MS.unsigned_abs())
}

/// A merge of two neighbours that are small enough, if there are such and no merge makes progress.
pub fn next_merge<D>(catalog: &Catalog, known: &Known<D>, now_ms: i64) -> Option<Command> {
    let settings = &catalog.identity().settings;
    let limit = merge_limit(settings);
    let is_busy = || catalog.tablets().any(|(tablet, placement)| is_merging(placement, tablet, known));
    if limit == 0 || settings.balancing_is_paused || is_busy() {
        return None;
    }
    // The size of a tablet on all of its nodes: if not all have reported it, it may be larger than known.
    let mut reported: HashMap<TabletId, (usize, u64)> = HashMap::new();
    for replica in known.reports.values().flat_map(|report| &report.tablets) {
        let (count, most) = reported.entry(replica.tablet).or_default();
        *count += 1;
        *most = replica.bytes.max(*most);
    }
    let bytes = |tablet: TabletId| {
        let placement = catalog.placement(tablet)?;
        let is_at_rest = !placement.is_reshaping() && !placement.is_moving() && !was_cancelled(placement, now_ms);
        let (count, most) = reported.get(&tablet)?;
        (is_at_rest && *count == placement.replicas.len()).then_some(*most)
    };
    let can_do_with_less = catalog.tables().filter(|entry| entry.tablets.len() > entry.least_tablets as usize);
    let mut neighbours = can_do_with_less
        .filter(|entry| entry.least_tablets > 0)
        .flat_map(|entry| entry.tablets.windows(2).map(|pair| [pair[0].tablet, pair[1].tablet]));
    neighbours.find_map(|[left, right]| {
        let (left_bytes, right_bytes) = (bytes(left)?, bytes(right)?);
        // The smaller one is copied.
        let (tablet, into) = if left_bytes < right_bytes { (left, right) } else { (right, left) };
        (left_bytes + right_bytes <= limit).then_some(Command::BeginMerge { tablet, into })
    })
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "test data is known")]

    use super::*;
    use crate::report::{Files, Report, TabletReport};
    use crate::testing::{description, table};
    use diorite_base::NodeId;
    use diorite_cluster::catalog::{CancelledMerge, Outcome, Setting};
    use diorite_model::schema::Keyspace;
    use std::collections::BTreeMap;
    use std::sync::Arc;
    use uuid::Uuid;

    const MIB: u64 = 1 << 20;
    const NOW_MS: i64 = 1_800_000_000_000;

    /// One node with a table that was created with two tablets, of which the first has been split.
    struct Case(Catalog);

    impl Case {
        fn new(stays: bool) -> Self {
            let keyspace = Keyspace { name: "shop".to_owned(), replication: BTreeMap::new(), durable_writes: true };
            let name = "c".to_owned();
            let mut case = Case(Catalog::default());
            case.apply(Command::Bootstrap {
                cluster_id: Uuid::from_u128(1),
                name,
                replication_factor: 1,
                requires_login: None,
                level: diorite_base::Level::FIRST,
            });
            case.apply(Command::RegisterNode { node: description(1) });
            case.apply(Command::CreateKeyspace { keyspace, if_not_exists: false });
            case.apply(Command::CreateTable { table: table(0), tablets: 2, if_not_exists: false });
            let first = case.tablets()[0];
            case.apply(Command::BeginSplit { tablet: first, at: i64::MIN / 2, stays });
            case.apply(Command::ServeSplit { tablet: first, index: 5, term: 1 });
            let finished = |tablet| diorite_cluster::catalog::FinishedTablet {
                tablet,
                voters: vec![NodeId(1)],
                move_number: None,
            };
            let tablets = case.tablets().into_iter().map(finished).collect();
            case.apply(Command::FinishMoves { tablets });
            case
        }

        fn apply(&mut self, command: Command) {
            let (next, outcome) = self.0.apply(&command);
            assert!(!matches!(outcome, Outcome::Rejected { .. }), "{command:?}: {outcome:?}");
            self.0 = next;
        }

        fn tablets(&self) -> Vec<TabletId> {
            self.0.tables().flat_map(|entry| entry.tablets.iter().map(|range| range.tablet)).collect()
        }

        /// The merge chosen for tablets of these sizes in MiB, in the order of their tokens; `None`: not reported.
        fn next(&self, sizes: [Option<u64>; 3]) -> Option<(usize, usize)> {
            let tablets = self.tablets();
            let reports = tablets.iter().zip(sizes).filter_map(|(tablet, mib)| {
                let bytes = mib? * MIB;
                Some(TabletReport { tablet: *tablet, bytes, disk: 0, leads: true, files: Files::default() })
            });
            let report: Report = Report { tablets: reports.collect(), ..Report::default() };
            let known = Known {
                reports: BTreeMap::from([(NodeId(1), Arc::new(report))]),
                up: BTreeMap::from([(NodeId(1), true)]),
                ..Known::default()
            };
            let place = |wanted| tablets.iter().position(|tablet| *tablet == wanted);
            match next_merge(&self.0, &known, NOW_MS)? {
                Command::BeginMerge { tablet, into } => Some((place(tablet)?, place(into)?)),
                other => panic!("{other:?}"),
            }
        }
    }

    #[test]
    fn neighbours_that_fit_are_merged_the_smaller_one_into_the_other() {
        let case = Case::new(false);
        assert_eq!(case.next([Some(10), Some(20), Some(100)]), Some((0, 1)));
        assert_eq!(case.next([Some(90), Some(30), Some(34)]), Some((1, 2)));
        assert_eq!(case.next([Some(64), Some(0), Some(64)]), Some((1, 0)), "no more than the limit");
        assert_eq!(case.next([Some(40), Some(25), Some(40)]), None, "more than the limit");
        assert_eq!(case.next([Some(1), None, Some(1)]), None, "nobody has said how large it is");
    }

    #[test]
    fn a_table_keeps_what_it_was_given() {
        let mut case = Case::new(true);
        assert_eq!(case.next([Some(1); 3]), None, "it was split for good");
        case = Case::new(false);
        let [first, second, _] = case.tablets()[..] else { panic!("three tablets") };
        case.apply(Command::BeginMerge { tablet: first, into: second });
        assert_eq!(case.next([Some(1); 3]), None, "one at a time");
        case.apply(Command::ServeMerge { tablet: first, into: second, number: None });
        assert_eq!(case.tablets().len(), 2);
        assert_eq!(case.next([Some(1), Some(1), None]), None, "as many as it was created with");
    }

    #[test]
    fn a_merge_that_was_cancelled_keeps_no_others_waiting_and_is_not_begun_again_soon() {
        let mut case = Case::new(false);
        let [first, second, third] = case.tablets()[..] else { panic!("three tablets") };
        let small = [Some(1); 3];
        let cancel = |ago_ms| {
            let cancelled = CancelledMerge { reason: "by hand".to_owned(), unix_ms: NOW_MS - ago_ms };
            Command::CancelMerge { tablet: first, number: None, cancelled }
        };
        case.apply(Command::BeginMerge { tablet: first, into: second });
        assert_eq!(case.next(small), None, "one at a time");
        case.apply(cancel(1_000));
        assert_eq!(case.next(small), None, "the third has no neighbour that is free");
        let number = case.0.placement(first).unwrap().merge_number;
        case.apply(Command::EndCancelledMerge { tablet: first, number });
        assert_eq!(case.next(small), Some((2, 1)), "the first is left alone");
        case.apply(Command::BeginMerge { tablet: third, into: second });
        case.apply(Command::ServeMerge { tablet: third, into: second, number: None });
        // An operator may begin it earlier; a day later, it is chosen as any other.
        case.apply(Command::BeginMerge { tablet: first, into: second });
        case.apply(cancel(AFTER_CANCELLED_MS));
        assert!(!was_cancelled(case.0.placement(first).unwrap(), NOW_MS));
    }

    #[test]
    fn settings_count() {
        let mut case = Case::new(false);
        let small = [Some(1); 3];
        case.apply(Command::Set { setting: Setting::SplitSize { bytes: 15 * MIB } });
        assert_eq!(case.next(small), None, "a split would follow soon");
        case.apply(Command::Set { setting: Setting::SplitSize { bytes: 0 } });
        assert!(case.next(small).is_some());
        case.apply(Command::Set { setting: Setting::Balancing { is_paused: true } });
        assert_eq!(case.next(small), None, "balancing is paused");
        case.apply(Command::Set { setting: Setting::Balancing { is_paused: false } });
        case.apply(Command::Set { setting: Setting::MergeSize { bytes: 0 } });
        assert_eq!(case.next(small), None, "merges for size are switched off");
    }
}
