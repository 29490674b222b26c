//! Lists of tablets: filtered, sorted, page by page.
//!
//! Always true: before a tablet is known to be on the page, only the values that filter and order need are computed, so
//! that a page of ten thousand tablets costs little more than one of a hundred; equal tablets are in the order of their
//! ids, so that pages do not overlap.

use super::sight::Sight;
use diorite_admin::api::{
    Failure, FailureKind, ReplicaStatus, TabletFilter, TabletOrder, TabletPage, TabletState, TabletStatus,
};
use diorite_base::{NodeId, TabletId};
use diorite_cluster::catalog::{Merge, Placement};
use diorite_model::schema::TableEntry;
use std::cmp::Ordering;
use std::sync::Arc;

/// Tablets on a page: the default, and the maximum.
const PAGE: usize = 1_000;
const LARGEST_PAGE: usize = 10_000;

/// A tablet that fits the filter.
struct Found<'s> {
    tablet: TabletId,
    entry: &'s TableEntry,
    placement: &'s Arc<Placement>,
    first_token: i64,
    last_token: i64,
    state: TabletState,
}

pub(super) fn tablets(sight: &Sight, filter: &TabletFilter) -> Result<TabletPage, Failure> {
    check_named(sight, filter)?;
    let limit = filter.limit.unwrap_or(PAGE).clamp(1, LARGEST_PAGE);
    let mut found = find(sight, filter);
    let total = found.len();
    if let Some(after) = filter.after {
        found.retain(|one| one.tablet.0 > after);
    }
    order(sight, filter, &mut found);
    let mut rest = found.into_iter().skip(filter.skip.unwrap_or(0)).peekable();
    let page: Vec<TabletStatus> = rest.by_ref().take(limit).map(|one| status(sight, &one)).collect();
    // A page can continue after an id only in the order of ids.
    let is_by_id = filter.sort == TabletOrder::Tablet && !filter.descending;
    let next_after = page.last().filter(|_| is_by_id && rest.peek().is_some()).map(|last| last.tablet.0);
    Ok(TabletPage { tablets: page, total, next_after })
}

/// Fails if there is no such keyspace, table or node: a misspelt name is no reason for an empty list.
fn check_named(sight: &Sight, filter: &TabletFilter) -> Result<(), Failure> {
    let missing = |what: String| Err(Failure::new(FailureKind::NotFound, format!("there is no {what}")));
    let is_in = |entry: &TableEntry| filter.keyspace.as_ref().is_none_or(|keyspace| *keyspace == entry.table.keyspace);
    if let Some(table) = &filter.table {
        if !sight.catalog.tables().any(|entry| entry.table.name == *table && is_in(entry)) {
            let keyspace = filter.keyspace.as_ref().map_or_else(String::new, |keyspace| format!("{keyspace}."));
            return missing(format!("table {keyspace}{table}"));
        }
    } else if let Some(keyspace) = &filter.keyspace
        && sight.catalog.keyspace(keyspace).is_none()
    {
        return missing(format!("keyspace {keyspace}"));
    }
    let mut nodes = filter.node.iter().chain(&filter.leader).map(|node| NodeId(*node));
    match nodes.find(|node| sight.catalog.node(*node).is_none()) {
        Some(node) => missing(format!("node {node}")),
        None => Ok(()),
    }
}

fn find<'s>(sight: &'s Sight, filter: &TabletFilter) -> Vec<Found<'s>> {
    let mut found = Vec::new();
    for entry in sight.catalog.tables() {
        let (keyspace, table) = (&entry.table.keyspace, &entry.table.name);
        if filter.keyspace.as_ref().is_some_and(|wanted| wanted != keyspace)
            || filter.table.as_ref().is_some_and(|wanted| wanted != table)
        {
            continue;
        }
        let is_named = filter.search.as_ref().is_none_or(|text| format!("{keyspace}.{table}").contains(text.as_str()));
        let wanted = sight.catalog.replication_of(keyspace).total();
        for (at, range) in entry.tablets.iter().enumerate() {
            let tablet = range.tablet;
            let Some(placement) = sight.catalog.placement(tablet) else { continue };
            let is_searched = || filter.search.as_ref().is_none_or(|text| tablet.0.to_string().contains(text.as_str()));
            let is_wanted = filter.tablet.is_none_or(|id| id == tablet.0)
                && filter.node.is_none_or(|node| placement.is_held_by(NodeId(node)))
                && filter.leader.is_none_or(|node| sight.leaders.get(&tablet) == Some(&NodeId(node)))
                && (is_named || is_searched());
            let state = sight.state(tablet, placement, wanted);
            if is_wanted && filter.state.is_none_or(|wanted| wanted == state) {
                let last_token = entry.tablets.get(at + 1).map_or(i64::MAX, |next| next.first_token - 1);
                found.push(Found { tablet, entry, placement, first_token: range.first_token, last_token, state });
            }
        }
    }
    found
}

fn order(sight: &Sight, filter: &TabletFilter, found: &mut [Found<'_>]) {
    let files = |one: &Found<'_>| most_files(sight, one.tablet);
    let name = |one: &Found<'_>| (one.entry.table.keyspace.clone(), one.entry.table.name.clone(), one.first_token);
    let leader = |one: &Found<'_>| sight.leaders.get(&one.tablet).copied();
    let compare = |a: &Found<'_>, b: &Found<'_>| -> Ordering {
        match filter.sort {
            TabletOrder::Tablet => a.tablet.cmp(&b.tablet),
            TabletOrder::Table => name(a).cmp(&name(b)),
            TabletOrder::FirstToken => a.first_token.cmp(&b.first_token),
            TabletOrder::Bytes => sight.largest(a.tablet).cmp(&sight.largest(b.tablet)),
            TabletOrder::SstFiles => files(a).cmp(&files(b)),
            TabletOrder::Leader => leader(a).cmp(&leader(b)),
            TabletOrder::State => a.state.cmp(&b.state),
        }
    };
    found.sort_unstable_by(|a, b| {
        let wanted = if filter.descending { compare(b, a) } else { compare(a, b) };
        wanted.then(a.tablet.cmp(&b.tablet))
    });
}

fn most_files(sight: &Sight, tablet: TabletId) -> u64 {
    sight.replicas(tablet).iter().map(|(_, report)| report.files.files).max().unwrap_or(0)
}

fn status(sight: &Sight, found: &Found<'_>) -> TabletStatus {
    let Found { tablet, entry, placement, first_token, last_token, state } = *found;
    TabletStatus {
        tablet,
        keyspace: entry.table.keyspace.clone(),
        table: entry.table.name.clone(),
        first_token,
        last_token,
        leader: sight.leaders.get(&tablet).copied(),
        state,
        bytes: sight.largest(tablet),
        sst_files: most_files(sight, tablet),
        replicas: placement.holders().map(|node| replica_status(sight, tablet, placement, node)).collect(),
        reshaping: reshaping(placement),
    }
}

/// The state of a tablet's split or merge, as the predicate of a sentence; `None` if there is none.
fn reshaping(placement: &Placement) -> Option<String> {
    let why = placement.cancelled_merge.as_ref().map_or("", |cancelled| &cancelled.reason);
    match (placement.split, placement.merge) {
        (Some(split), _) if split.is_committed => Some("is being split".to_owned()),
        (Some(_), _) => Some("is being split; this can still be cancelled".to_owned()),
        (None, Some(Merge::Into(into))) if placement.is_merge_cancelled => {
            Some(format!("is serving again: its merge into tablet {} was cancelled and is being undone: {why}", into.0))
        }
        (None, Some(Merge::Into(into))) => Some(format!("is being merged into tablet {}", into.0)),
        (None, Some(Merge::Of(goes))) => Some(format!("is taking over the rows of tablet {}", goes.0)),
        (None, None) if placement.cancelled_merge.is_some() => Some(format!("had its last merge cancelled: {why}")),
        (None, None) => None,
    }
}

fn replica_status(sight: &Sight, tablet: TabletId, placement: &Placement, node: NodeId) -> ReplicaStatus {
    let role = if placement.arriving.contains(&node) {
        "arriving"
    } else if placement.leaving.contains(&node) {
        "leaving"
    } else {
        "voter"
    };
    let report = sight.replica(tablet, node);
    ReplicaStatus {
        node,
        role: role.to_owned(),
        is_up: sight.is_up(node),
        bytes: report.map(|report| report.bytes),
        sst_files: report.map(|report| report.files.files),
        content_bytes: report.and_then(|report| report.files.content_bytes),
    }
}
