//! Splitting a tablet in two.
//!
//! ```text
//! begin   the children get their ids, and are prepared
//! commit  from here on the split cannot be cancelled: the leader seals the tablet with an entry of its log that names the
//!         boundary
//! serve   that entry is applied: the children take the tablet's place in the table, with the same replicas
//! finish  a quorum of a child's replicas has begun where the tablet ended; once that is so for both children, the tablet
//!         is dropped
//! ```
//!
//! Always true: a tablet that is to be split does not move, nor do its children until the end, so all of them have the
//! same replicas and the same initial voters; no leader seals a tablet before the split is committed here, so that a
//! cancelled split has sealed nothing; until the end the parent keeps its placement, so that replicas that lag can
//! still learn from its log where it ended. Left out: what a replica does when it is split (`replica`), and which
//! tablets should be split (the balancer's).

use super::live::{drop_tablet, live};
use super::outcome::Rejection;
use super::snapshot::Catalog;
use super::step::{Done, Rejected, Step};
use super::tablet::{Origin, Placement, Split};
use diorite_base::TabletId;
use diorite_base::limits::MAX_TABLETS_PER_TABLE;
use diorite_model::schema::{TableEntry, TabletRange};
use std::sync::Arc;

pub(super) fn begin_split(catalog: &mut Catalog, tablet: TabletId, at: i64, stays: bool) -> Step {
    let (current, entry, place) = live(catalog, tablet)?;
    if current.split.is_some_and(|split| split.at == at) {
        return Ok(Done::Nothing);
    }
    if current.is_reshaping() || current.is_moving() {
        return Err(Rejected(Rejection::Conflict, format!("{tablet} is being moved, split or merged")));
    }
    let first = entry.tablets[place].first_token;
    let last = entry.tablets.get(place + 1).map_or(i64::MAX, |next| next.first_token - 1);
    if at <= first || at > last {
        let message = format!("{tablet} holds the tokens from {first} to {last}: it cannot be split at {at}");
        return Err(Rejected(Rejection::Invalid, message));
    }
    if entry.tablets.len() >= MAX_TABLETS_PER_TABLE as usize {
        let message = format!("a table has 1 to {MAX_TABLETS_PER_TABLE} tablets");
        return Err(Rejected(Rejection::Invalid, message));
    }
    let mut placement = Placement::clone(&current);
    let next = catalog.identity.next_tablet;
    catalog.identity.next_tablet += 2;
    let children = [TabletId(next), TabletId(next + 1)];
    placement.split = Some(Split { at, children, is_served: false, is_committed: false, stays });
    Arc::make_mut(&mut catalog.tablets).insert(tablet, Arc::new(placement));
    Ok(Done::Changed)
}

/// `children` distinguish this split from other splits of the tablet.
pub(super) fn commit_split(catalog: &mut Catalog, tablet: TabletId, children: [TabletId; 2]) -> Step {
    let (current, ..) = live(catalog, tablet)?;
    let split = current.split.filter(|split| split.children == children);
    let split = split.ok_or_else(|| Rejected(Rejection::Conflict, format!("the split of {tablet} was cancelled")))?;
    if split.is_committed {
        return Ok(Done::Nothing);
    }
    let split = Some(Split { is_committed: true, ..split });
    let placement = Arc::new(Placement { split, ..Placement::clone(&current) });
    Arc::make_mut(&mut catalog.tablets).insert(tablet, placement);
    Ok(Done::Changed)
}

pub(super) fn cancel_split(catalog: &mut Catalog, tablet: TabletId) -> Step {
    let split = catalog.tablets.get(&tablet).and_then(|placement| placement.split);
    if split.is_some_and(|split| split.is_committed || split.is_served) {
        let message = format!("the split of {tablet} is committed and cannot be cancelled");
        return Err(Rejected(Rejection::Conflict, message));
    }
    let (current, ..) = live(catalog, tablet)?;
    if split.is_none() {
        return Err(Rejected(Rejection::Invalid, format!("{tablet} is not being split")));
    }
    let placement = Arc::new(Placement { split: None, ..Placement::clone(&current) });
    Arc::make_mut(&mut catalog.tablets).insert(tablet, placement);
    Ok(Done::Changed)
}

pub(super) fn serve_split(catalog: &mut Catalog, tablet: TabletId, index: u64, term: u64) -> Step {
    let split = catalog.tablets.get(&tablet).and_then(|placement| placement.split);
    if split.is_some_and(|split| split.is_served) {
        return Ok(Done::Nothing);
    }
    let (current, entry, place) = live(catalog, tablet)?;
    let Some(split) = split else {
        return Err(Rejected(Rejection::Invalid, format!("{tablet} is not to be split")));
    };
    let origin = Origin { parent: tablet, index, term };
    let tablets = Arc::make_mut(&mut catalog.tablets);
    for child in split.children {
        // The parent's own initial voters would be wrong: once the parent is gone, a replica that begins with no data
        // would take a long outdated set of members for its own, perhaps with itself as the only voter.
        let initial_voters = current.replicas.clone();
        let parent = Placement { merge_number: 0, cancelled_merge: None, ..Placement::clone(&current) };
        let placement = Placement { split: None, origin: Some(origin), initial_voters, ..parent };
        tablets.insert(child, Arc::new(placement));
    }
    let served = Split { is_served: true, is_committed: true, ..split };
    tablets.insert(tablet, Arc::new(Placement { split: Some(served), ..Placement::clone(&current) }));
    let mut entry = TableEntry::clone(&entry);
    if split.stays && entry.least_tablets > 0 {
        entry.least_tablets += 1;
    }
    let [first, second] = split.children;
    entry.tablets[place].tablet = first;
    entry.tablets.insert(place + 1, TabletRange { tablet: second, first_token: split.at });
    Arc::make_mut(&mut catalog.tables).insert(entry.table.id, Arc::new(entry));
    Ok(Done::Changed)
}

/// One of the children no longer needs the tablet that was split. The tablet is dropped when neither does.
pub(super) fn end_split(catalog: &mut Catalog, tablet: TabletId) {
    let split = catalog.tablets.get(&tablet).and_then(|placement| placement.split);
    let needs_it = |child: &TabletId| catalog.tablets.get(child).is_some_and(|placement| placement.origin.is_some());
    if split.is_some_and(|split| split.is_served && !split.children.iter().any(needs_it)) {
        drop_tablet(catalog, tablet);
    }
}
