//! The rows of system tables, by keyspace and name.
//!
//! Always true: a table that is not listed here is empty; rows are charged to the request that asks for them.

use super::definitions::table;
use super::source::{Row, Source};
use super::{auth, nodes, schema, traces};
use crate::budget::Budget;
use diorite_cql::protocol::CqlError;

/// The rows of a system table; `None` if it does not exist. They are charged as they are made, twice, as they are read
/// in another form: their number depends on the schema and the roles, not on the client.
pub fn rows(source: &Source, keyspace: &str, name: &str, budget: &Budget) -> Result<Vec<Row>, CqlError> {
    let Some(table) = table(keyspace, name) else { return Ok(Vec::new()) };
    let (table, catalog) = (&*table, &*source.catalog);
    let rows: Box<dyn Iterator<Item = Row> + '_> = match (keyspace, name) {
        ("system", "local") => Box::new(std::iter::once(nodes::local(source, table))),
        ("system", "peers") => Box::new(nodes::peers(source, table).into_iter()),
        ("system", "peers_v2") => Box::new(nodes::peers_v2(source, table).into_iter()),
        ("system_schema", "keyspaces") => Box::new(schema::keyspaces(catalog, table)),
        ("system_schema", "scylla_keyspaces") => Box::new(schema::scylla_keyspaces(catalog, table)),
        ("system_schema", "tables") => Box::new(schema::tables(catalog, table)),
        ("system_schema", "views") => Box::new(schema::views(catalog, table)),
        ("system_schema", "columns") => Box::new(schema::columns(catalog, table)),
        ("system_schema", "indexes") => Box::new(schema::indexes(catalog, table)),
        ("system_schema", "types") => Box::new(schema::types(catalog, table)),
        ("system_virtual_schema", "keyspaces") => Box::new(schema::virtual_keyspaces(table)),
        ("system_virtual_schema", "tables") => Box::new(schema::virtual_tables(table)),
        ("system_virtual_schema", "columns") => Box::new(schema::virtual_columns(table)),
        ("system_auth", "roles") => Box::new(auth::roles(catalog, table)),
        ("system_auth", "role_members") => Box::new(auth::members(catalog, table)),
        ("system_auth", "network_permissions") => Box::new(auth::networks(catalog, table)),
        ("system_auth", "cidr_permissions") => Box::new(auth::cidr_permissions(catalog, table)),
        ("system_auth", "cidr_groups") => Box::new(auth::cidr_groups(catalog, table)),
        ("system_auth", "role_permissions") => Box::new(auth::permissions(catalog, table)),
        ("system_traces", "sessions") => Box::new(traces::sessions(source, table)),
        ("system_traces", "events") => Box::new(traces::events(source, table)),
        _ => return Ok(Vec::new()),
    };
    let mut charged = Vec::new();
    for row in rows {
        budget.check()?;
        budget.take(2 * row_bytes(&row))?;
        charged.push(row);
    }
    Ok(charged)
}

/// The memory of a row.
fn row_bytes(row: &Row) -> usize {
    let cells: usize = row.iter().flatten().map(Vec::len).sum();
    cells + size_of::<Row>() + row.len() * size_of::<Option<Vec<u8>>>()
}

/// Whether the tables of a keyspace have the traces of the source.
pub fn has_traces(keyspace: &str) -> bool {
    keyspace == "system_traces"
}

/// Whether a system table has few rows, whatever there is in the catalog.
pub fn is_short(keyspace: &str) -> bool {
    matches!(keyspace, "system" | "system_virtual_schema")
}
