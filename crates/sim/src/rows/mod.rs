//! Real rows: CQL statements, planned by the query layer, against tablets that hold rows as the model defines them.
//!
//! In a share of the seeds all tablets are those of two tables, which are compacted at random moments, on each replica at others. Clients send statements of all kinds (lifetimes, timestamps of their own, conditions, static columns,
//! lists, maps, deletions of ranges, counters, batches over tablets), and the tablets' evaluator is the server's. What must hold: a program answers the same wherever
//! and whenever it is applied at its place in the log; replicas hold the same, as a reader sees it; what was only ever incremented, appended and inserted is there as
//! often as was answered; a statement that was refused has left nothing anywhere. A statement is carried out by one node, and what it asks of tablets goes through that node's router. Left out: splits and merges of such tablets.

mod clients;
mod event;
mod judge;
mod kv;
mod requests;
mod same;
mod schema;
mod seen;
mod statements;

pub use clients::RowClients;
pub use event::{FIRST_ROW_TOKEN, RowEvent};
pub use kv::read;
pub use same::{Said, SameAnswers};
pub use schema::RowWorld;
pub use seen::VisibleRows;
