//! Where a tablet's replicas are, and whether it is being split or merged.
//!
//! Always true: the initial voters of a tablet's group never change; until a split or merge is over, its tablets keep their placements.

use diorite_base::{NodeId, TableId, TabletId};
use serde::{Deserialize, Serialize};

/// Where a tablet's replicas are.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(from = "StoredPlacement")]
pub struct Placement {
    /// The table it belongs (or, once dropped, belonged) to.
    pub table: TableId,
    /// The nodes that are to hold a replica, the preferred leader first. The tablet's leader brings its group's members in line with it.
    pub replicas: Vec<NodeId>,
    /// Those of `replicas` that may not vote yet: they are being brought up to date.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub arriving: Vec<NodeId>,
    /// Nodes that hold a replica which goes as soon as the tablet's group consists of `replicas`.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub leaving: Vec<NodeId>,
    /// The members of its group before the first entry of its log; never changed. Whoever opens a replica anew starts from these, and
    /// learns from the log who came and went since.
    #[serde(rename = "founders")]
    pub initial_voters: Vec<NodeId>,
    /// It is being split into two, or was and is still needed.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub split: Option<Split>,
    /// The tablet that it was split off from, as long as that is still needed.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub origin: Option<Origin>,
    /// It is being merged with a neighbour.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub merge: Option<Merge>,
    /// The number of its last merge, greater than those of all merges before that; 0 if it had none, or one of an earlier version.
    #[serde(skip_serializing_if = "is_zero")]
    pub merge_number: u64,
    /// Of the tablet that was to go: the merge under way was cancelled, and what it has done is being undone.
    #[serde(skip_serializing_if = "is_false")]
    pub is_merge_cancelled: bool,
    /// Of the tablet that was to go: how its last merge was cancelled, if it was.
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
    /// A new tablet's, whose group begins with voters on `replicas`.
    pub fn new(table: TableId, replicas: Vec<NodeId>) -> Self {
        let initial_voters = replicas.clone();
        let (arriving, leaving) = (Vec::new(), Vec::new());
        Self {
            table,
            initial_voters,
            replicas,
            arriving,
            leaving,
            split: None,
            origin: None,
            merge: None,
            merge_number: 0,
            is_merge_cancelled: false,
            cancelled_merge: None,
        }
    }

    /// Whether its replicas have to stay where they are, as it is being split or merged, or comes from a split that is not over.
    pub fn is_reshaping(&self) -> bool {
        self.split.is_some() || self.origin.is_some() || self.merge.is_some()
    }

    /// The nodes that hold a replica, or are to.
    pub fn holders(&self) -> impl Iterator<Item = NodeId> + Clone + '_ {
        self.replicas.iter().chain(&self.leaving).copied()
    }

    /// Whether the node holds a replica, or is to.
    pub fn is_held_by(&self, node: NodeId) -> bool {
        self.holders().any(|holder| holder == node)
    }

    /// Whether its group is yet to become what `replicas` says.
    pub fn is_moving(&self) -> bool {
        !self.arriving.is_empty() || !self.leaving.is_empty()
    }
}

/// A placement as it is stored; before initial voters were stored, replicas did not change.
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
            split: stored.split,
            origin: stored.origin,
            merge: stored.merge,
            merge_number: stored.merge_number,
            is_merge_cancelled: stored.is_merge_cancelled,
            cancelled_merge: stored.cancelled_merge,
        }
    }
}

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

/// That a tablet is to be merged with a neighbour.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Merge {
    /// It goes: that one takes it in.
    Into(TabletId),
    /// It stays, and takes that one in.
    Of(TabletId),
}

/// A merge that was cancelled, as it is remembered of the tablet that was to go.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct CancelledMerge {
    /// Why.
    pub reason: String,
    /// When, by the clock of whoever asked for it, milliseconds since the epoch.
    pub unix_ms: i64,
}
