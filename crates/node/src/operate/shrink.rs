//! Finds neighbours that have become so small that one tablet will do, on the node that leads the catalog.
//!
//! Always true: a pure function of the catalog and of what nodes have reported; a table keeps the tablets that it was created with, and those that somebody wanted; one merge is asked for at
//! a time; two that are merged would have to grow eightfold to be split.

use super::steer::Known;
use diorite_base::TabletId;
use diorite_cluster::catalog::{Catalog, Command};
use std::collections::HashMap;

/// Two tablets are not merged unless they hold less than one part in so many of what a tablet is split at.
const OF_SPLIT_SIZE: u64 = 8;

/// A merge of two neighbours that have no more than `limit` bytes together, if there are such and none is under way.
pub(super) fn next_merge(catalog: &Catalog, known: &Known) -> Option<Command> {
    let settings = &catalog.identity().settings;
    let limit = match settings.split_bytes {
        0 => settings.merge_bytes,
        split_bytes => settings.merge_bytes.min(split_bytes / OF_SPLIT_SIZE),
    };
    if limit == 0 || settings.balancing_is_paused || catalog.tablets().any(|(_, placement)| placement.merge.is_some()) {
        return None;
    }
    // What a tablet has on every one of its nodes: one that is not reported by all may hold more than is known.
    let mut reported: HashMap<TabletId, (usize, u64)> = HashMap::new();
    for replica in known.reports.values().flat_map(|report| &report.tablets) {
        let (count, most) = reported.entry(replica.tablet).or_default();
        *count += 1;
        *most = replica.bytes.max(*most);
    }
    let bytes = |tablet: TabletId| {
        let placement = catalog.placement(tablet)?;
        let is_at_rest = !placement.is_reshaping() && !placement.is_moving();
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
