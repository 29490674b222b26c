//! The state of the cluster and its changes: the catalog's replicated state machine, the balancer that places replicas,
//! and the planner that predicts how long changes take.
//!
//! Always true: nothing here does I/O, reads a clock or draws a random number; the same commands in the same order give
//! the same state on every replica. Left out: how commands reach the log (`replica`), and CQL's rules for definitions
//! (`query`).

pub mod balance;
pub mod catalog;
#[cfg(any(test, feature = "fuzzing"))]
pub mod fuzzing;
pub mod plan;
