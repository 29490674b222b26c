//! The tablets that tables consist of, and how they are dropped.
//!
//! Always true: a dropped tablet is remembered until every node that held it has removed it.

use super::outcome::Rejection;
use super::snapshot::Catalog;
use super::step::Rejected;
use super::tablet::Placement;
use diorite_base::TabletId;
use diorite_model::schema::{TableEntry, TabletRange};
use std::sync::Arc;

/// A tablet that a table consists of: its placement, its table, and its index in the table's tablets.
pub(super) fn live(catalog: &Catalog, tablet: TabletId) -> Result<(Arc<Placement>, Arc<TableEntry>, usize), Rejected> {
    let found = catalog.tablets.get(&tablet).and_then(|placement| {
        let entry = catalog.tables.get(&placement.table)?;
        let place = entry.tablets.iter().position(|range| range.tablet == tablet)?;
        Some((Arc::clone(placement), Arc::clone(entry), place))
    });
    found.ok_or_else(|| Rejected(Rejection::Invalid, format!("there is no {tablet}")))
}

pub(super) fn drop_tablets(catalog: &mut Catalog, entry: &TableEntry) {
    for TabletRange { tablet, .. } in &entry.tablets {
        let Some(placement) = drop_tablet(catalog, *tablet) else { continue };
        // Nodes may already have prepared the children, or may still hold the parent.
        for child in placement.split.iter().flat_map(|split| split.children) {
            leave_to_drop(catalog, child, &placement);
        }
        if let Some(origin) = placement.origin {
            drop_tablet(catalog, origin.parent);
        }
    }
}

/// Removes a tablet from the catalog; the nodes that hold it are to close their replicas.
pub(super) fn drop_tablet(catalog: &mut Catalog, tablet: TabletId) -> Option<Arc<Placement>> {
    let placement = Arc::make_mut(&mut catalog.tablets).remove(&tablet)?;
    leave_to_drop(catalog, tablet, &placement);
    Some(placement)
}

/// Records that the holders named by `placement` may have files of `tablet`, which is dropped.
fn leave_to_drop(catalog: &mut Catalog, tablet: TabletId, placement: &Placement) {
    let placement = Placement::new(placement.table, placement.holders().collect());
    Arc::make_mut(&mut catalog.dropped).insert(tablet, Arc::new(placement));
}
