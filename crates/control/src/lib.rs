//! The control plane: a node's decisions about the cluster, as inputs → commands.
//!
//! ```text
//! catalog snapshots, replicas, who is up, time, outcomes ──▶ follower, splitting, merging, membership ──▶ actions
//! reports of all nodes, on the node that leads the catalog ──▶ steering, growth, shrink, changes ──────▶ commands
//!                                                              (pure)                                      │
//!           node: sockets, threads, timers, the store ◀────────────────────────────────────────────────────┘
//! ```
//!
//! Always true: nothing here reads a clock, waits, spawns, locks or does I/O. Time is an input; actions are answers
//! that the shell (`diorite_node`, or the simulation) carries out, whose outcome it reports back. The same inputs give
//! the same commands. Every change of the cluster is a command to the catalog that names the state it was decided on,
//! so that two nodes that both believe to lead the catalog do no harm.
//! Left out: which replicas should be moved (`diorite_cluster::balance`), what a replica does (`diorite_replica`), and
//! the text of answers to operators.

pub mod access;
pub mod answering;
pub mod changes;
pub mod follower;
pub mod growth;
pub mod knowledge;
pub mod load;
pub mod membership;
pub mod merging;
pub mod peers;
#[doc(hidden)]
pub mod planted;
pub mod replicas;
pub mod report;
pub mod restart;
pub mod routing;
pub mod shrink;
pub mod splitting;
pub mod steering;
#[cfg(test)]
mod testing;
pub mod tokens;
pub mod upgrade;
pub mod view;
