//! Which tablet answers for a key, or for the home of a transaction, by the newest catalog.
//!
//! Left out: who leads it (the [`crate::kv::Kv`] seam).

use diorite_base::{TableId, TabletId};
use diorite_cluster::catalog::Catalog;
use diorite_model::key;
use diorite_model::schema::TabletRange;
use diorite_transact::Home;

/// The tablet that holds a token.
pub fn tablet_of(tablets: &[TabletRange], token: i64) -> TabletId {
    let after = tablets.partition_point(|range| range.first_token <= token);
    tablets[after.saturating_sub(1)].tablet
}

/// The tablet of a key; none if its table was dropped.
pub fn tablet_at(catalog: &Catalog, table: TableId, key: &[u8]) -> Option<TabletId> {
    let entry = catalog.table_by_id(table)?;
    Some(tablet_of(&entry.tablets, key::token_of(key).ok()?))
}

/// The tablet that answers for a home: that of the transaction's id as long as it exists, then the one that has its key.
pub fn tablet_of_home(catalog: &Catalog, tablet: TabletId, home: &Home) -> Option<TabletId> {
    match catalog.placement(tablet) {
        Some(_) => Some(tablet),
        None => tablet_at(catalog, home.table, &home.key),
    }
}
