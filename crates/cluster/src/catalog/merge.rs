//! Merging a tablet into its neighbour.
//!
//! ```text
//! begin   neither moves, is split or merged otherwise; the leader of the tablet that goes copies its rows to the one that stays, and closes it
//! serve   the one that stays has all of them: it stands in the place of both in the table, and the other is dropped
//! ```
//!
//! Always true: the two are neighbours of one table until the end, and the one that stays keeps its id and its group.
//! Left out: how the rows get there (`replica::merge` and the node), and which tablets had better be merged (the node's).

use super::apply::{Done, Rejected, Step};
use super::command::Rejection;
use super::{Catalog, Placement};
use diorite_base::TabletId;
use diorite_model::schema::TableEntry;
use serde::{Deserialize, Serialize};
use std::sync::Arc;

/// That a tablet is to be merged with a neighbour.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Merge {
    /// It goes: that one takes it in.
    Into(TabletId),
    /// It stays, and takes that one in.
    Of(TabletId),
}

impl Catalog {
    pub(super) fn begin_merge(&mut self, tablet: TabletId, into: TabletId) -> Step {
        let (current, entry, place) = self.live(tablet)?;
        if current.merge == Some(Merge::Into(into)) {
            return Ok(Done::Nothing);
        }
        let (other, _, other_place) = self.live(into)?;
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
        let tablets = Arc::make_mut(&mut self.tablets);
        let marked = |placement: &Placement, merge| Arc::new(Placement { merge: Some(merge), ..placement.clone() });
        tablets.insert(tablet, marked(&current, Merge::Into(into)));
        tablets.insert(into, marked(&other, Merge::Of(tablet)));
        Ok(Done::Changed)
    }

    pub(super) fn serve_merge(&mut self, tablet: TabletId, into: TabletId) -> Step {
        let is_asked_for = |placement: &Arc<Placement>| placement.merge == Some(Merge::Into(into));
        if !self.tablets.get(&tablet).is_some_and(is_asked_for) {
            // It was told before, or the table has been dropped or truncated meanwhile.
            return Ok(Done::Nothing);
        }
        let (_, entry, place) = self.live(tablet)?;
        let mut entry = TableEntry::clone(&entry);
        let gone = entry.tablets.remove(place);
        if let Some(stays) = entry.tablets.iter_mut().find(|range| range.tablet == into) {
            stays.first_token = stays.first_token.min(gone.first_token);
        }
        Arc::make_mut(&mut self.tables).insert(entry.table.id, Arc::new(entry));
        if let Some(stays) = self.tablets.get(&into).cloned() {
            let placement = Placement { merge: None, ..Placement::clone(&stays) };
            Arc::make_mut(&mut self.tablets).insert(into, Arc::new(placement));
        }
        self.drop_tablet(tablet);
        Ok(Done::Changed)
    }
}
