//! The inputs of decisions that only the node itself has: its replicas, and the nodes with which it exchanges
//! heartbeats.
//!
//! Always true: reading them changes nothing that a decision depends on. The node's store implements this, or the
//! simulation's.

use diorite_base::{NodeId, TabletId};
use diorite_cluster::catalog::{Catalog, CatalogMembers, Placement, Split};
use std::collections::BTreeSet;

/// The catalog's own tablet.
pub const CATALOG_TABLET: TabletId = TabletId(diorite_base::GroupId::CATALOG.0);

/// The members that a group is to have.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Members {
    /// The voters, preferred leader first.
    pub voters: Vec<NodeId>,
    /// The learners.
    pub learners: Vec<NodeId>,
}

impl Members {
    /// The members that a placement wants.
    pub fn of(placement: &Placement) -> Self {
        Self { voters: placement.replicas.clone(), learners: Vec::new() }
    }

    /// The members that the catalog's own group is to have; `None` while the catalog has no nodes.
    pub fn of_catalog(catalog: &Catalog) -> Option<Self> {
        catalog.nodes().next()?;
        let CatalogMembers { voters, learners } = catalog.catalog_members();
        Some(Self { voters, learners })
    }
}

/// The entry of a tablet's log that splits it.
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
    /// Whether its replica is sealed, because the tablet is being merged into another.
    fn is_sealed(&self, tablet: TabletId) -> bool;
    /// The entry that split its replica of a tablet, if it was split.
    fn split_entry(&self, tablet: TabletId) -> Option<SplitEntry>;
    /// Whether the child tablets of a tablet have been prepared here; if not, the preparation begins.
    fn have_prepared(&self, tablet: TabletId, split: &Split) -> bool;
    /// The other nodes that have reported that they prepared the child tablets of a tablet led here.
    fn prepared_elsewhere(&self, tablet: TabletId) -> BTreeSet<NodeId>;
    /// The index up to which each other replica of a tablet led here holds its log. `None`: not known now.
    fn matched(&self, tablet: TabletId) -> Option<Vec<(NodeId, u64)>>;
    /// The voters of a tablet, if this node leads it and they are as last requested, with no change under way.
    fn voters_in_place(&self, tablet: TabletId) -> Option<Vec<NodeId>>;
    /// Whether a node's heartbeats arrive, or it is this node.
    fn is_up(&self, node: NodeId) -> bool;
}
