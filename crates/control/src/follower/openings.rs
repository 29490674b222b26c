//! Which replicas a node opens, when it starts and later, and what it removes as a left-over.
//!
//! Always true: the node's copy of the catalog may be behind, so only what it knows to be gone is removed: tablets that were numbered once and
//! are not placed any more, and replicas that are placed elsewhere. A replica that was opened since is known to the copy, as that was
//! made durable before.

use crate::replicas::CATALOG_TABLET;
use diorite_base::{NodeId, TabletId};
use diorite_cluster::catalog::{Catalog, Placement};
use diorite_model::schema::Table;
use std::collections::BTreeSet;
use std::sync::Arc;

/// A replica of a table's tablet that is to be opened.
#[derive(Clone, Debug, PartialEq)]
pub struct Opening {
    /// Of which tablet.
    pub tablet: TabletId,
    /// Where its replicas are wanted, and where it began.
    pub placement: Arc<Placement>,
    /// The table.
    pub table: Arc<Table>,
}

/// How a child tablet is opened on a node that holds its parent tablet.
#[derive(Clone, Debug, PartialEq)]
pub enum ChildOpening {
    /// So.
    As(Box<Opening>),
    /// It is not to be here, or not any more.
    Never,
    /// The node does not know yet.
    NotYet,
}

/// How a node opens its replica of a tablet; none if it is to have none.
pub fn opening(catalog: &Catalog, node: NodeId, tablet: TabletId) -> Option<Opening> {
    let placement = catalog.placement(tablet).filter(|placement| placement.is_held_by(node))?;
    let table = Arc::clone(&catalog.table_by_id(placement.table)?.table);
    Some(Opening { tablet, placement: Arc::clone(placement), table })
}

/// How a child tablet is opened by the replica of its parent tablet, on a node that serves `served` and whose copy of the catalog is `newest`. What is served has been carried
/// out, and so made durable.
pub fn child_opening(
    served: &Catalog,
    newest: &Catalog,
    node: NodeId,
    parent: TabletId,
    child: TabletId,
) -> ChildOpening {
    if served.version() == 0 {
        // At the start of the node: a tablet may learn that it was split before all are open.
        return ChildOpening::NotYet;
    }
    let as_placed =
        || opening(newest, node, child).map_or(ChildOpening::Never, |opening| ChildOpening::As(Box::new(opening)));
    let Some(placement) = served.placement(parent) else {
        // The parent tablet may be a child itself, which the node knows only as one that is to come: it learns later where that one's children are.
        let is_to_come =
            |(_, other): (TabletId, &Arc<Placement>)| other.split.is_some_and(|split| split.children.contains(&parent));
        return match as_placed() {
            ChildOpening::Never if served.tablets().any(is_to_come) => ChildOpening::NotYet,
            opening => opening,
        };
    };
    if served.placement(child).is_some() {
        // It may have moved away already, if its sibling is what still needs the parent tablet.
        return as_placed();
    }
    let is_known = placement.split.is_some_and(|split| split.children.contains(&child));
    match (is_known, served.table_of(parent)) {
        (true, Some(entry)) => {
            let (placement, table) = (Arc::clone(placement), Arc::clone(&entry.table));
            ChildOpening::As(Box::new(Opening { tablet: child, placement, table }))
        }
        (_, None) => ChildOpening::Never,
        // Of a split that was cancelled.
        (false, Some(_)) if served.identity().has_numbered(child) => ChildOpening::Never,
        (false, Some(_)) => ChildOpening::NotYet,
    }
}

/// The replicas that a node opens when it starts. A child tablet without files whose parent tablet is here is made by its parent's replica, when that learns that it was split.
pub fn openings_at_start(catalog: &Catalog, node: NodeId, has_files: impl Fn(TabletId) -> bool) -> Vec<Opening> {
    let is_to_come = |tablet: TabletId, placement: &Placement| {
        placement.origin.is_some_and(|origin| has_files(origin.parent) && !has_files(tablet))
    };
    let ours = catalog.tablets_on(node).filter(|(tablet, placement)| !is_to_come(*tablet, placement));
    ours.filter_map(|(tablet, _)| opening(catalog, node, tablet)).collect()
}

/// What is left on a node's disks of tablets that it is not to hold, as its copy of the catalog has it.
#[derive(Debug)]
pub struct Leftovers<'a> {
    catalog: &'a Catalog,
    node: NodeId,
    /// Child tablets that are numbered and not placed yet.
    coming: BTreeSet<TabletId>,
}

impl<'a> Leftovers<'a> {
    /// Those of a node.
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
