//! What statements about tables may not do to materialized views, nor to tables that have some.
//!
//! Always true: the messages are Cassandra's. Left out: statements about views ([`super::view`]).

use crate::error::invalid;
use diorite_cql::protocol::CqlError;
use diorite_model::schema::Table;

/// The most views of a table: a write of a row may be a transaction over as many tablets, and as many again.
const MAX_VIEWS: usize = 16;

/// Refuses a statement about tables that names a view.
pub(super) fn check_table(table: &Table, message: &'static str) -> Result<(), CqlError> {
    if table.view.is_some() { Err(invalid(message)) } else { Ok(()) }
}

/// Refuses to drop a table that has views.
pub(super) fn check_no_views(table: &Table) -> Result<(), CqlError> {
    let names: Vec<&str> = table.named_views().map(|view| view.name.as_str()).collect();
    if names.is_empty() {
        return Ok(());
    }
    let names = names.join(", ");
    Err(invalid(format!("Cannot drop a table when materialized views still depend on it ({names})")))
}

/// Refuses to drop a column of a table that has views or covering indexes.
pub(super) fn check_no_dependents(table: &Table, column: &str) -> Result<(), CqlError> {
    let name = &table.name;
    if table.named_views().next().is_some() {
        return Err(invalid(format!("Cannot drop column {column} on base table {name} with materialized views")));
    }
    match table.views.first() {
        Some(view) => Err(invalid(format!("Cannot drop column {column} on table {name} with the {}", view.title()))),
        None => Ok(()),
    }
}

/// Whether a table can have one more view, with a name or hidden.
pub(super) fn check_count(base: &Table) -> Result<(), CqlError> {
    let deferred = base.deferred_indexes.iter().filter(|index| index.covering.is_some()).count();
    let all = base.views.len() + deferred;
    if all < MAX_VIEWS {
        return Ok(());
    }
    let name = &base.name;
    let of = if base.named_views().count() < all { " and covering indexes" } else { "" };
    Err(invalid(format!("table {name} has {MAX_VIEWS} materialized views{of}, which is the maximum")))
}
