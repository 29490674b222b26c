//! The tables of the server itself: the nodes, the schema, traced requests, and empty ones that clients read.
//!
//! Definitions are CQL text ([`definitions`]) read by the same code as a client's `CREATE TABLE`, so that the tables describe themselves in
//! `system_schema` like any other. Columns and their order are those of Cassandra 4.1, which the reported release version promises.
//!
//! Always true: rows are made on request from the catalog snapshot at hand and agree with one another; `schema_version` of a node is that of
//! the snapshot it serves, of which it has all.
//! What is left out: filtering and paging (the executor's, as for any table), and what has no meaning here: `system.partitions` has no rows
//! because its hash is not ours, estimates are empty.

mod auth;
mod cells;
mod definitions;
mod nodes;
mod rows;
mod schema;
mod source;
#[cfg(test)]
mod tests;
mod traces;

pub use definitions::{keyspace, keyspaces, table};
pub use rows::{has_traces, is_short, rows};
pub use source::{CQL_VERSION, NATIVE_PROTOCOL_VERSION, PARTITIONER, RELEASE_VERSION, Row, Source};
