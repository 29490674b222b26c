//! A whole cluster in one thread, from one seed: a lossy and reordering network, partitions, crashes that lose what was not synced, torn
//! log tails, slow disks, pauses, clocks that drift and jump; clients that read and write meanwhile, and checkers that look on.
//!
//! What runs is the production code of `raft` and `replica` down to the storage engine's traits; the disk, the network, the clocks and the
//! threads are simulated. Always true: the same seed is the same run, event by event, and [`Report::hash`] says so; a run reads no clock, no
//! entropy and no order of a hash table. Left out: what stands above the replica layer (routing, CQL, the catalog), and the transport of copies of whole
//! replicas (they arrive, sooner or later). In a share of the seeds tablets
//! are split, children too: `splits` and `merges` play the catalog, `children` the store's thread that makes them (what it writes to the log, and removes from the data, is the store's own).

pub mod checkers;
mod children;
mod client;
mod clock;
mod cluster;
mod core_thread;
mod dice;
mod engine;
mod merges;
mod nemesis;
mod network;
mod node;
mod placement;
mod process;
mod program;
mod queue;
mod requests;
mod rows;
mod run;
mod scenario;
mod splits;
#[cfg(test)]
mod tests;
mod text;
mod trace;

pub use client::Tally;
pub use run::{Options, Planting, Report, run};
pub use scenario::{FURTHER_KINDS, FaultKind};
