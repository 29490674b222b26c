//! A whole cluster in one thread, from one seed: a lossy and reordering network, partitions, crashes that lose unsynced
//! data, torn log tails, slow disks, pauses, clocks that drift and jump; clients that read and write meanwhile, and
//! checkers.
//!
//! The production code of `raft`, `replica`, `cluster` and `control` runs down to the storage engine's traits: whole
//! nodes with the catalog's group, each of which follows the catalog, reports, balances, splits, merges and becomes
//! ready as in production. The disk, the network, the clocks and the threads are simulated. Always true: the same seed
//! gives the same run, event by event, which [`Report::hash`] shows; a run reads no clock, no entropy and no order of a
//! hash table. Requests of clients go through the nodes' routers; nodes' own writes go through `errands`. Left out: the
//! transport of copies of whole replicas (they arrive sooner or later). `children` replaces the store's thread that
//! makes child tablets; the log records and the removal of rows are the store's own code.

mod batches;
pub mod checkers;
mod children;
mod client;
mod clock;
mod cluster;
mod copy;
mod core_thread;
mod dice;
mod disk;
mod drives;
mod engine;
mod errands;
mod faults;
mod guards;
mod joins;
mod levels;
mod life;
mod nemesis;
mod network;
mod node;
mod operators;
mod options;
mod program;
mod queue;
mod ranges;
mod reached;
mod rebuild;
mod routing;
mod rows;
mod run;
mod scenario;
mod schema;
mod setting;
mod step;
#[cfg(test)]
mod tests;
mod text;
mod trace;
mod waiting;

pub use client::Tally;
pub use faults::{FURTHER_KINDS, FaultKind};
pub use options::{Options, Planting};
pub use reached::Reached;
pub use run::{Report, run};
