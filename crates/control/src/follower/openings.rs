//! The replicas that a node opens, at its start and later, and those that it removes as left-overs.
//!
//! Always true: the node's copy of the catalog may be behind, so a replica is removed only if the copy shows that it is
//! not to be here: the tablet has been numbered and is no longer placed, or it is placed on other nodes. The copy knows
//! every replica that was opened here, as it was made durable before.

use crate::replicas::CATALOG_TABLET;
use diorite_base::{NodeId, TabletId};
use diorite_cluster::catalog::{Catalog, Placement};
use diorite_model::schema::Table;
use std::collections::BTreeSet;
use std::sync::Arc;

/// A replica of a table's tablet that is to be opened.
#[derive(Clone, Debug, PartialEq)]
pub struct Opening {
    /// The tablet.
    pub tablet: TabletId,
    /// Its placement, with its initial voters.
    pub placement: Arc<Placement>,
    /// The table.
    pub table: Arc<Table>,
}

/// How a child tablet is opened on a node that holds its parent tablet.
#[derive(Clone, Debug, PartialEq)]
pub enum ChildOpening {
    /// Open it like this.
    As(Box<Opening>),
    /// It is not, or no longer, placed here.
    Never,
    /// The node does not know it yet.
    NotYet,
}

/// How a node opens its replica of a tablet; `None` if none is placed there.
pub fn opening(catalog: &Catalog, node: NodeId, tablet: TabletId) -> Option<Opening> {
    let placement = catalog.placement(tablet).filter(|placement| placement.is_held_by(node))?;
    let table = Arc::clone(&catalog.table_by_id(placement.table)?.table);
    Some(Opening { tablet, placement: Arc::clone(placement), table })
}

/// How the replica of its parent tablet opens a child tablet, on a node that serves `served` and whose copy of the
/// catalog is `newest`. The served snapshot has been carried out, and so is durable.
pub fn child_opening(
    served: &Catalog,
    newest: &Catalog,
    node: NodeId,
    parent: TabletId,
    child: TabletId,
) -> ChildOpening {
    if served.version() == 0 {
        // At the start of the node, a tablet may learn of its split before all are open.
        return ChildOpening::NotYet;
    }
    let as_placed =
        || opening(newest, node, child).map_or(ChildOpening::Never, |opening| ChildOpening::As(Box::new(opening)));
    let Some(placement) = served.placement(parent) else {
        // The parent tablet may itself be a child that the node knows only as numbered: it learns later where the
        // parent's children are placed.
        let is_to_come =
            |(_, other): (TabletId, &Arc<Placement>)| other.split.is_some_and(|split| split.children.contains(&parent));
        return match as_placed() {
            ChildOpening::Never if served.tablets().any(is_to_come) => ChildOpening::NotYet,
            opening => opening,
        };
    };
    if served.placement(child).is_some() {
        // It may have moved away already, if only its sibling still needs the parent tablet.
        return as_placed();
    }
    let is_known = placement.split.is_some_and(|split| split.children.contains(&child));
    match (is_known, served.table_of(parent)) {
        (true, Some(entry)) => {
            let (placement, table) = (Arc::clone(placement), Arc::clone(&entry.table));
            ChildOpening::As(Box::new(Opening { tablet: child, placement, table }))
        }
        (_, None) => ChildOpening::Never,
        // A child of a cancelled split.
        (false, Some(_)) if served.identity().has_numbered(child) => ChildOpening::Never,
        (false, Some(_)) => ChildOpening::NotYet,
    }
}

/// The replicas that a node opens when it starts. A child tablet without files whose parent tablet is here is left out:
/// its parent's replica makes it once that learns of the split.
pub fn openings_at_start(catalog: &Catalog, node: NodeId, has_files: impl Fn(TabletId) -> bool) -> Vec<Opening> {
    let is_to_come = |tablet: TabletId, placement: &Placement| {
        placement.origin.is_some_and(|origin| has_files(origin.parent) && !has_files(tablet))
    };
    let ours = catalog.tablets_on(node).filter(|(tablet, placement)| !is_to_come(*tablet, placement));
    ours.filter_map(|(tablet, _)| opening(catalog, node, tablet)).collect()
}

/// Left-overs: replicas on a node's disks that are not to be there, according to its copy of the catalog.
#[derive(Debug)]
pub struct Leftovers<'a> {
    catalog: &'a Catalog,
    node: NodeId,
    /// Child tablets that are numbered and not placed yet.
    coming: BTreeSet<TabletId>,
}

impl<'a> Leftovers<'a> {
    /// The left-overs of a node.
    pub fn new(catalog: &'a Catalog, node: NodeId) -> Self {
        let coming =
            catalog.tablets().filter_map(|(_, placement)| placement.split).flat_map(|split| split.children).collect();
        Self { catalog, node, coming }
    }

    /// Whether a tablet was dropped, for ever.
    pub fn was_dropped(&self, tablet: TabletId) -> bool {
        tablet != CATALOG_TABLET
            && self.catalog.identity().has_numbered(tablet)
            && !self.coming.contains(&tablet)
            && self.catalog.placement(tablet).is_none()
    }

    /// Whether a tablet is on other nodes now; it may come back.
    pub fn has_moved(&self, tablet: TabletId) -> bool {
        self.catalog.placement(tablet).is_some_and(|placement| !placement.is_held_by(self.node))
    }
}
