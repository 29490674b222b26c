//! Splitting a tablet in two.
//!
//! ```text
//! begin   the children get their ids, and are prepared
//! commit  from here on the split cannot be cancelled: the leader stops the tablet with an entry of its log that says where to split
//! serve   that entry is applied: the children stand in the tablet's place in the table, with the same replicas
//! finish  a quorum of a child's replicas has begun where the tablet ended; when that is so of both, the tablet is dropped
//! ```
//!
//! Always true: a tablet that is to be split does not move, nor do its children until the end, so all of them have the same replicas and the same
//! founders; no leader stops a tablet before the split is committed here, so that one that is cancelled has stopped nothing; until the end the tablet has its placement, so that replicas that lag still learn from its log where it ended.
//! Left out: what a replica does when it is split (`replica`), and which tablets had better be split (the balancer's).

use super::apply::{Done, Rejected, Step};
use super::command::Rejection;
use super::{Catalog, Placement};
use diorite_base::TabletId;
use diorite_base::limits::MAX_TABLETS_PER_TABLE;
use diorite_model::schema::{TableEntry, TabletRange};
use serde::{Deserialize, Serialize};
use std::sync::Arc;

/// That a tablet is, or was, to be split.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Split {
    /// The first token of the second child.
    pub at: i64,
    /// The children, in the order of their tokens.
    pub children: [TabletId; 2],
    /// Whether the children have taken its place.
    pub is_served: bool,
    /// Whether it cannot be cancelled any more. Splits of earlier versions could not be.
    #[serde(default = "is_of_earlier_version")]
    pub is_committed: bool,
    /// Whether the table is to keep as many tablets as it has then.
    #[serde(default)]
    pub stays: bool,
}

fn is_of_earlier_version() -> bool {
    true
}

/// Where a tablet that was split off began.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Origin {
    /// The tablet that was split.
    pub parent: TabletId,
    /// The entry of the parent's log that split it: its index. What a replica of the child holds begins there.
    pub index: u64,
    /// And its term.
    pub term: u64,
}

impl Catalog {
    pub(super) fn begin_split(&mut self, tablet: TabletId, at: i64, stays: bool) -> Step {
        let (current, entry, place) = self.live(tablet)?;
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
        let next = self.identity.next_tablet;
        self.identity.next_tablet += 2;
        let children = [TabletId(next), TabletId(next + 1)];
        placement.split = Some(Split { at, children, is_served: false, is_committed: false, stays });
        Arc::make_mut(&mut self.tablets).insert(tablet, Arc::new(placement));
        Ok(Done::Changed)
    }

    /// `children` tell the split that is meant from others of the tablet.
    pub(super) fn commit_split(&mut self, tablet: TabletId, children: [TabletId; 2]) -> Step {
        let (current, ..) = self.live(tablet)?;
        let split = current.split.filter(|split| split.children == children);
        let split =
            split.ok_or_else(|| Rejected(Rejection::Conflict, format!("the split of {tablet} was cancelled")))?;
        if split.is_committed {
            return Ok(Done::Nothing);
        }
        let split = Some(Split { is_committed: true, ..split });
        let placement = Arc::new(Placement { split, ..Placement::clone(&current) });
        Arc::make_mut(&mut self.tablets).insert(tablet, placement);
        Ok(Done::Changed)
    }

    pub(super) fn cancel_split(&mut self, tablet: TabletId) -> Step {
        let split = self.tablets.get(&tablet).and_then(|placement| placement.split);
        if split.is_some_and(|split| split.is_committed || split.is_served) {
            let message =
                format!("the split of {tablet} is past the point where it could be cancelled: it ends by itself");
            return Err(Rejected(Rejection::Conflict, message));
        }
        let (current, ..) = self.live(tablet)?;
        if split.is_none() {
            return Err(Rejected(Rejection::Invalid, format!("{tablet} is not being split")));
        }
        let placement = Arc::new(Placement { split: None, ..Placement::clone(&current) });
        Arc::make_mut(&mut self.tablets).insert(tablet, placement);
        Ok(Done::Changed)
    }

    pub(super) fn serve_split(&mut self, tablet: TabletId, index: u64, term: u64) -> Step {
        let split = self.tablets.get(&tablet).and_then(|placement| placement.split);
        if split.is_some_and(|split| split.is_served) {
            return Ok(Done::Nothing);
        }
        let (current, entry, place) = self.live(tablet)?;
        let Some(split) = split else {
            return Err(Rejected(Rejection::Invalid, format!("{tablet} is not to be split")));
        };
        let origin = Origin { parent: tablet, index, term };
        let tablets = Arc::make_mut(&mut self.tablets);
        for child in split.children {
            // Not the founders of the tablet: a replica that begins with nothing, when nobody needs the tablet any more, would take a set of members for
            // its own that is long out of date, and may be itself alone.
            let founders = current.replicas.clone();
            let parent = Placement { merge_number: 0, cancelled_merge: None, ..Placement::clone(&current) };
            let placement = Placement { split: None, origin: Some(origin), founders, ..parent };
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
        Arc::make_mut(&mut self.tables).insert(entry.table.id, Arc::new(entry));
        Ok(Done::Changed)
    }

    /// One of the children does without the tablet that was split; when both do, it is dropped.
    pub(super) fn end_split(&mut self, tablet: TabletId) {
        let split = self.tablets.get(&tablet).and_then(|placement| placement.split);
        let needs_it = |child: &TabletId| self.tablets.get(child).is_some_and(|placement| placement.origin.is_some());
        if split.is_some_and(|split| split.is_served && !split.children.iter().any(needs_it)) {
            self.drop_tablet(tablet);
        }
    }

    /// A tablet that a table consists of: its placement, its table, and which of the table's tablets it is.
    pub(super) fn live(&self, tablet: TabletId) -> Result<(Arc<Placement>, Arc<TableEntry>, usize), Rejected> {
        let found = self.tablets.get(&tablet).and_then(|placement| {
            let entry = self.tables.get(&placement.table)?;
            let place = entry.tablets.iter().position(|range| range.tablet == tablet)?;
            Some((Arc::clone(placement), Arc::clone(entry), place))
        });
        found.ok_or_else(|| Rejected(Rejection::Invalid, format!("there is no {tablet}")))
    }
}
