//! The placement of a tablet's replicas, and whether the tablet is being split or merged.
//!
//! Always true: the initial voters of a tablet's group never change; until a split or merge has ended, its tablets keep
//! their placements.

use diorite_base::{NodeId, TableId, TabletId};
use serde::{Deserialize, Serialize};

/// The placement of a tablet's replicas, and its reshaping.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(from = "StoredPlacement")]
pub struct Placement {
    /// The table that the tablet belongs to, or belonged to before it was dropped.
    pub table: TableId,
    /// The nodes that are to hold a replica, the preferred leader first. The tablet's leader changes the members of its
    /// group to these.
    pub replicas: Vec<NodeId>,
    /// Those of `replicas` that do not vote yet: they are catching up.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub arriving: Vec<NodeId>,
    /// Nodes whose replica is removed as soon as the tablet's group consists of `replicas`.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub leaving: Vec<NodeId>,
    /// The members of its group before the first entry of its log; never changed. A replica that is opened anew starts
    /// from these, and learns later changes of members from the log.
    #[serde(rename = "founders")]
    pub initial_voters: Vec<NodeId>,
    /// The number of its last move, greater than those of all earlier moves; 0 if there was none, or one of an earlier
    /// version.
    #[serde(skip_serializing_if = "is_zero")]
    pub move_number: u64,
    /// The split, while the tablet is being split, and afterwards as long as the tablet is needed.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub split: Option<Split>,
    /// The tablet from which it was split off, as long as that one is needed.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub origin: Option<Origin>,
    /// The merge with a neighbour, while it is under way.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub merge: Option<Merge>,
    /// The number of its last merge, greater than those of all earlier merges; 0 if there was none, or one of an
    /// earlier version.
    #[serde(skip_serializing_if = "is_zero")]
    pub merge_number: u64,
    /// For the tablet that was to be dropped: whether the merge under way was cancelled, and is being undone.
    #[serde(skip_serializing_if = "is_false")]
    pub is_merge_cancelled: bool,
    /// For the tablet that was to be dropped: how its last merge was cancelled, if it was.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub cancelled_merge: Option<CancelledMerge>,
}

#[allow(clippy::trivially_copy_pass_by_ref, reason = "as serde calls it")]
fn is_zero(number: &u64) -> bool {
    *number == 0
}

#[allow(clippy::trivially_copy_pass_by_ref, reason = "as serde calls it")]
fn is_false(flag: &bool) -> bool {
    !*flag
}

impl Placement {
    /// The placement of a new tablet, whose group begins with voters on `replicas`.
    pub fn new(table: TableId, replicas: Vec<NodeId>) -> Self {
        let initial_voters = replicas.clone();
        let (arriving, leaving) = (Vec::new(), Vec::new());
        Self {
            table,
            initial_voters,
            replicas,
            arriving,
            leaving,
            move_number: 0,
            split: None,
            origin: None,
            merge: None,
            merge_number: 0,
            is_merge_cancelled: false,
            cancelled_merge: None,
        }
    }

    /// Whether its replicas must stay where they are, as the tablet is being split or merged, or comes from a split
    /// that has not ended.
    pub fn is_reshaping(&self) -> bool {
        self.split.is_some() || self.origin.is_some() || self.merge.is_some()
    }

    /// The nodes that hold a replica, or are to hold one.
    pub fn holders(&self) -> impl Iterator<Item = NodeId> + Clone + '_ {
        self.replicas.iter().chain(&self.leaving).copied()
    }

    /// Whether the node holds a replica, or is to hold one.
    pub fn is_held_by(&self, node: NodeId) -> bool {
        self.holders().any(|holder| holder == node)
    }

    /// Whether the members of its group still have to be changed to `replicas`.
    pub fn is_moving(&self) -> bool {
        !self.arriving.is_empty() || !self.leaving.is_empty()
    }
}

/// A stored placement. Before initial voters were stored, replicas did not change.
#[derive(Deserialize)]
struct StoredPlacement {
    table: TableId,
    replicas: Vec<NodeId>,
    #[serde(default)]
    arriving: Vec<NodeId>,
    #[serde(default)]
    leaving: Vec<NodeId>,
    #[serde(rename = "founders")]
    initial_voters: Option<Vec<NodeId>>,
    #[serde(default)]
    move_number: u64,
    split: Option<Split>,
    origin: Option<Origin>,
    merge: Option<Merge>,
    #[serde(default)]
    merge_number: u64,
    #[serde(default)]
    is_merge_cancelled: bool,
    cancelled_merge: Option<CancelledMerge>,
}

impl From<StoredPlacement> for Placement {
    fn from(stored: StoredPlacement) -> Self {
        Self {
            initial_voters: stored.initial_voters.unwrap_or_else(|| stored.replicas.clone()),
            table: stored.table,
            replicas: stored.replicas,
            arriving: stored.arriving,
            leaving: stored.leaving,
            move_number: stored.move_number,
            split: stored.split,
            origin: stored.origin,
            merge: stored.merge,
            merge_number: stored.merge_number,
            is_merge_cancelled: stored.is_merge_cancelled,
            cancelled_merge: stored.cancelled_merge,
        }
    }
}

/// A split of a tablet, under way or done.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Split {
    /// The first token of the second child.
    pub at: i64,
    /// The children, in the order of their tokens.
    pub children: [TabletId; 2],
    /// Whether the children have taken its place.
    pub is_served: bool,
    /// Whether the split can no longer be cancelled. Splits of earlier versions could not be cancelled.
    #[serde(default = "is_of_earlier_version")]
    pub is_committed: bool,
    /// Whether the larger number of tablets is to stay after the split, without merges.
    #[serde(default)]
    pub stays: bool,
}

fn is_of_earlier_version() -> bool {
    true
}

/// The beginning of a tablet that was split off.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Origin {
    /// The tablet that was split.
    pub parent: TabletId,
    /// The index of the entry of the parent's log that split it. The child's log begins there.
    pub index: u64,
    /// The term of that entry.
    pub term: u64,
}

/// A merge of a tablet with a neighbour.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Merge {
    /// This tablet is dropped: that one takes over its rows.
    Into(TabletId),
    /// This tablet stays, and takes over the rows of that one.
    Of(TabletId),
}

/// A cancelled merge, as recorded for the tablet that was to be dropped.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct CancelledMerge {
    /// The reason.
    pub reason: String,
    /// The time, by the clock of the node that cancelled it, milliseconds since the epoch.
    pub unix_ms: i64,
}
