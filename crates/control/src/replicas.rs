//! What decisions depend on that only the node itself knows: its replicas, and which nodes it exchanges heartbeats with.
//!
//! Always true: looking changes nothing that a decision depends on. The node's store answers, or the simulation's.

use diorite_base::{NodeId, TabletId};
use diorite_cluster::catalog::{Catalog, CatalogMembers, Placement, Split};
use std::collections::BTreeSet;

/// The catalog's own tablet.
pub const CATALOG_TABLET: TabletId = TabletId(diorite_base::GroupId::CATALOG.0);

/// The members that a group is to have.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Members {
    /// Those that vote, the preferred leader first.
    pub voters: Vec<NodeId>,
    /// Those that only have a copy.
    pub learners: Vec<NodeId>,
}

impl Members {
    /// Those that a placement wants.
    pub fn of(placement: &Placement) -> Self {
        Self { voters: placement.replicas.clone(), learners: Vec::new() }
    }

    /// Those that the catalog's own group is to have; none while the catalog has no nodes.
    pub fn of_catalog(catalog: &Catalog) -> Option<Self> {
        catalog.nodes().next()?;
        let CatalogMembers { voters, learners } = catalog.catalog_members();
        Some(Self { voters, learners })
    }
}

/// The entry of a tablet's log that has split it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SplitEntry {
    /// Its index.
    pub index: u64,
    /// Its term.
    pub term: u64,
}

/// The replicas of one node.
pub trait Replicas {
    /// Whether the node has an open replica of a tablet.
    fn is_open(&self, tablet: TabletId) -> bool;
    /// Whether it leads a tablet.
    fn leads(&self, tablet: TabletId) -> bool;
    /// Whether its replica takes no writes any more, as the tablet is being merged into another.
    fn is_sealed(&self, tablet: TabletId) -> bool;
    /// How its replica of a tablet was split, if it was.
    fn split_entry(&self, tablet: TabletId) -> Option<SplitEntry>;
    /// Whether the child tablets of a tablet have been prepared here; preparing them begins if not.
    fn have_prepared(&self, tablet: TabletId, split: &Split) -> bool;
    /// The other nodes that have prepared the child tablets of a tablet that is led here, as far as they have said so.
    fn prepared_elsewhere(&self, tablet: TabletId) -> BTreeSet<NodeId>;
    /// Up to which index the other replicas of a tablet that is led here hold its log. `None`: that cannot be said now.
    fn matched(&self, tablet: TabletId) -> Option<Vec<(NodeId, u64)>>;
    /// The voters of a tablet, if this node leads it and they are those that it was last told to bring about, with no change under way.
    fn voters_in_place(&self, tablet: TabletId) -> Option<Vec<NodeId>>;
    /// Whether a node's heartbeats arrive, or it is this one.
    fn is_up(&self, node: NodeId) -> bool;
}
