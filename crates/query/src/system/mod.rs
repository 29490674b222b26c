//! The tables that the server itself answers for: who the nodes are, what the schema is, and the empty ones that clients look into.
//!
//! Definitions are CQL text ([`definitions`]) read by the same code as a client's `CREATE TABLE`, so that the tables describe themselves in
//! `system_schema` like any other. Columns and their order are those of Cassandra 4.1, which the reported release version promises.
//!
//! Always true: rows are made on request from the catalog snapshot at hand and agree with one another; `schema_version` of a node is that of
//! the snapshot it serves, of which it has all.
//! What is left out: filtering and paging (the executor's, as for any table), and what has no meaning here: `system.partitions` has no rows
//! because its hash is not ours, estimates and traces are empty.

mod auth;
mod cells;
mod definitions;
mod nodes;
mod schema;
#[cfg(test)]
mod tests;

use crate::budget::Budget;
use crate::kv::{Kv, NodeInfo};
use diorite_cluster::catalog::Catalog;
use diorite_cql::protocol::CqlError;
use diorite_model::schema::{Keyspace, Table};
use std::sync::Arc;
use uuid::Uuid;

/// `release_version`: cqlsh leaves DESCRIBE to servers from 4.0 on; drivers read `system_virtual_schema` too.
pub const RELEASE_VERSION: &str = "4.1.0";
/// `cql_version`
pub const CQL_VERSION: &str = "3.4.6";
/// The newest protocol version.
pub const NATIVE_PROTOCOL_VERSION: &str = "5";
/// How tokens are made; drivers compute them by this name.
pub const PARTITIONER: &str = "org.apache.cassandra.dht.Murmur3Partitioner";

/// One row: a cell for each column in the order of the definition, in wire form.
pub type Row = Vec<Option<Vec<u8>>>;

/// What the rows are made from.
#[derive(Debug)]
pub struct Source {
    /// The catalog.
    pub catalog: Arc<Catalog>,
    /// This node.
    pub local: NodeInfo,
    /// The other members.
    pub peers: Vec<NodeInfo>,
    /// The version of the schema that each of them serves, in the same order.
    pub peer_schemas: Vec<Uuid>,
}

impl Source {
    /// The current state.
    pub fn new<K: Kv>(kv: &K) -> Self {
        let peers = kv.peers();
        let peer_schemas = peers.iter().map(|peer| kv.served_schema(peer.node)).collect();
        Self { catalog: kv.catalog(), local: kv.local_node(), peers, peer_schemas }
    }

    /// The rows of a system table; none for one that does not exist. They are charged as they are made, as much again for the form that they are read in: how
    /// many there are depends on the schema and the roles, not on who asks.
    pub fn rows(&self, keyspace: &str, name: &str, budget: &Budget) -> Result<Vec<Row>, CqlError> {
        let Some(table) = table(keyspace, name) else { return Ok(Vec::new()) };
        let (table, catalog) = (&*table, &*self.catalog);
        let rows: Box<dyn Iterator<Item = Row> + '_> = match (keyspace, name) {
            ("system", "local") => Box::new(std::iter::once(nodes::local(self, table))),
            ("system", "peers") => Box::new(nodes::peers(self, table).into_iter()),
            ("system", "peers_v2") => Box::new(nodes::peers_v2(self, table).into_iter()),
            ("system_schema", "keyspaces") => Box::new(schema::keyspaces(catalog, table)),
            ("system_schema", "scylla_keyspaces") => Box::new(schema::scylla_keyspaces(catalog, table)),
            ("system_schema", "tables") => Box::new(schema::tables(catalog, table)),
            ("system_schema", "columns") => Box::new(schema::columns(catalog, table)),
            ("system_schema", "types") => Box::new(schema::types(catalog, table)),
            ("system_virtual_schema", "keyspaces") => Box::new(schema::virtual_keyspaces(table)),
            ("system_virtual_schema", "tables") => Box::new(schema::virtual_tables(table)),
            ("system_virtual_schema", "columns") => Box::new(schema::virtual_columns(table)),
            ("system_auth", "roles") => Box::new(auth::roles(catalog, table)),
            ("system_auth", "role_members") => Box::new(auth::members(catalog, table)),
            ("system_auth", "role_permissions") => Box::new(auth::permissions(catalog, table)),
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
}

/// The definition of a system table.
pub fn table(keyspace: &str, name: &str) -> Option<Arc<Table>> {
    definitions::all().get(keyspace)?.tables.get(name).cloned()
}

/// What a row takes in memory.
fn row_bytes(row: &Row) -> usize {
    let cells: usize = row.iter().flatten().map(Vec::len).sum();
    cells + size_of::<Row>() + row.len() * size_of::<Option<Vec<u8>>>()
}

/// Whether a system table has few rows, whatever there is in the catalog.
pub fn is_short(keyspace: &str) -> bool {
    matches!(keyspace, "system" | "system_virtual_schema")
}

/// The server's own keyspaces with their tables by name.
pub fn keyspaces() -> impl Iterator<Item = (&'static Keyspace, Vec<&'static Arc<Table>>)> {
    definitions::all().values().map(|entry| (&entry.keyspace, entry.tables.values().collect()))
}

/// The server's own keyspace called `name`.
pub fn keyspace(name: &str) -> Option<&'static Keyspace> {
    definitions::all().get(name).map(|entry| &entry.keyspace)
}
