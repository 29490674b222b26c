//! Real rows: CQL statements, planned by the query layer, against tablets that hold rows as the model defines them.
//!
//! In a share of the seeds all tablets belong to two tables, which are compacted at random moments, different ones on
//! each replica. Clients send statements of all kinds (TTLs, timestamps of their own, conditions, static columns,
//! lists, maps, deletions of ranges, counters, arithmetic, transaction blocks, batches over tablets, reads by an index,
//! rows that compete for unique values), and the tablets' evaluator is the server's. The index is built, cleaned, dropped and built again meanwhile, and tablets
//! are split and merged. Invariants: a program has the same result wherever and whenever it is applied at its place in the
//! log; replicas are equal for a reader; no two rows have the same unique value; numbers that are moved within a block
//! are neither lost nor made; increments, appends and inserts are there as often as was answered; a refused statement has
//! no effect anywhere; at rest each live value has its index entry, on each replica. One node carries out a statement, by
//! the tablets that it knows, and its requests to tablets go through that node's router. Left out: changes of the schema.

mod clients;
mod event;
mod indexed;
mod judge;
mod kv;
mod maintenance;
mod requests;
mod same;
mod schema;
mod seen;
mod statements;
mod unique;

pub use clients::RowClients;
pub use event::{FIRST_ROW_TOKEN, RowEvent};
pub use kv::read;
pub use same::{Said, SameAnswers};
pub use schema::RowWorld;
pub use seen::VisibleRows;
