//! Merging a tablet into its neighbour.
//!
//! ```text
//! begin   neither tablet moves, is split or takes part in another merge; the leader of the tablet that is to be dropped
//!         copies its rows to the one that stays, and closes it
//! serve   the tablet that stays has all rows: it takes the place of both in the table, and the other one is dropped
//! cancel  in place of serve: the closed tablet is opened again, and the other one removes the rows that it has taken over
//! end     the cancelled merge is undone: both tablets may move, be split and merged again
//! ```
//!
//! Always true: the two are neighbours of one table until the end, and the one that stays keeps its id and its group.
//! The first of the commands "serve" and "cancel" decides for good whether a merge is served: so a leader that opens
//! the tablet again knows that no other tablet serves its rows. Each merge has a number, greater than those of all
//! merges before it, by which late steps of earlier merges are recognised. Left out: how the rows are copied
//! (`replica::merge` and the node), and which tablets should be merged (the node's).

use super::live::{drop_tablet, live};
use super::outcome::Rejection;
use super::snapshot::Catalog;
use super::step::{Done, Rejected, Step};
use super::tablet::{CancelledMerge, Merge, Placement};
use diorite_base::TabletId;
use diorite_model::schema::TableEntry;
use std::sync::Arc;

pub(super) fn begin_merge(catalog: &mut Catalog, tablet: TabletId, into: TabletId) -> Step {
    let (current, entry, place) = live(catalog, tablet)?;
    if current.merge == Some(Merge::Into(into)) && !current.is_merge_cancelled {
        return Ok(Done::Nothing);
    }
    let (other, _, other_place) = live(catalog, into)?;
    if other.table != current.table || place.abs_diff(other_place) != 1 {
        let message = format!("{tablet} and {into} are not neighbours in one table");
        return Err(Rejected(Rejection::Invalid, message));
    }
    for (tablet, placement) in [(tablet, &current), (into, &other)] {
        if placement.is_reshaping() || placement.is_moving() {
            return Err(Rejected(Rejection::Conflict, format!("{tablet} is being moved, split or merged")));
        }
    }
    debug_assert!(entry.tablets.len() > 1, "neighbours are two");
    // Every command that changes the catalog has a version of its own.
    let merge_number = catalog.identity.version + 1;
    let tablets = Arc::make_mut(&mut catalog.tablets);
    let marked = |placement: &Placement, merge| {
        let cancelled_merge = None;
        Arc::new(Placement { merge: Some(merge), merge_number, cancelled_merge, ..placement.clone() })
    };
    tablets.insert(tablet, marked(&current, Merge::Into(into)));
    tablets.insert(into, marked(&other, Merge::Of(tablet)));
    Ok(Done::Changed)
}

pub(super) fn serve_merge(catalog: &mut Catalog, tablet: TabletId, into: TabletId, number: Option<u64>) -> Step {
    // Commands of earlier versions have no number.
    let is_asked_for = |placement: &Arc<Placement>| {
        placement.merge == Some(Merge::Into(into)) && number.is_none_or(|number| number == placement.merge_number)
    };
    let Some(current) = catalog.tablets.get(&tablet).filter(|placement| is_asked_for(placement)) else {
        // The merge was served before, or the table has been dropped or truncated meanwhile.
        return Ok(Done::Nothing);
    };
    if current.is_merge_cancelled {
        return Err(Rejected(Rejection::Conflict, format!("the merge of {tablet} into {into} was cancelled")));
    }
    let (_, entry, place) = live(catalog, tablet)?;
    let mut entry = TableEntry::clone(&entry);
    let gone = entry.tablets.remove(place);
    if let Some(stays) = entry.tablets.iter_mut().find(|range| range.tablet == into) {
        stays.first_token = stays.first_token.min(gone.first_token);
    }
    Arc::make_mut(&mut catalog.tables).insert(entry.table.id, Arc::new(entry));
    if let Some(stays) = catalog.tablets.get(&into).cloned() {
        let placement = Placement { merge: None, ..Placement::clone(&stays) };
        Arc::make_mut(&mut catalog.tablets).insert(into, Arc::new(placement));
    }
    drop_tablet(catalog, tablet);
    Ok(Done::Changed)
}

/// `tablet`: either of the two tablets; `number`: if given, only the merge of this number is cancelled.
pub(super) fn cancel_merge(
    catalog: &mut Catalog,
    tablet: TabletId,
    number: Option<u64>,
    cancelled: &CancelledMerge,
) -> Step {
    let (found, ..) = live(catalog, tablet)?;
    let goes = match found.merge {
        Some(Merge::Into(_)) => tablet,
        Some(Merge::Of(goes)) => goes,
        None => return Err(Rejected(Rejection::Invalid, format!("{tablet} is not being merged"))),
    };
    let (current, ..) = live(catalog, goes)?;
    if current.is_merge_cancelled || number.is_some_and(|number| number != current.merge_number) {
        return Ok(Done::Nothing);
    }
    let cancelled_merge = Some(cancelled.clone());
    let placement = Placement { is_merge_cancelled: true, cancelled_merge, ..Placement::clone(&current) };
    Arc::make_mut(&mut catalog.tablets).insert(goes, Arc::new(placement));
    Ok(Done::Changed)
}

/// The tablet that was to be dropped is open again, and the other one holds none of its rows.
pub(super) fn end_cancelled_merge(catalog: &mut Catalog, tablet: TabletId, number: u64) -> Step {
    let is_meant = |placement: &Arc<Placement>| placement.is_merge_cancelled && placement.merge_number == number;
    let Some(current) = catalog.tablets.get(&tablet).filter(|placement| is_meant(placement)).cloned() else {
        return Ok(Done::Nothing);
    };
    let other = match current.merge {
        Some(Merge::Into(into)) => catalog.tablets.get(&into).map(|other| (into, Arc::clone(other))),
        _ => None,
    };
    let tablets = Arc::make_mut(&mut catalog.tablets);
    let placement = Placement { merge: None, is_merge_cancelled: false, ..Placement::clone(&current) };
    tablets.insert(tablet, Arc::new(placement));
    if let Some((into, other)) = other.filter(|(_, other)| other.merge == Some(Merge::Of(tablet))) {
        tablets.insert(into, Arc::new(Placement { merge: None, ..Placement::clone(&other) }));
    }
    Ok(Done::Changed)
}
