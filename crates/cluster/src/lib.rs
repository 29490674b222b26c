//! What the cluster consists of and how that may change: the catalog's replicated state machine, the balancer that says where replicas belong,
//! and the planner that says how long it takes them to get there.
//!
//! Always true: nothing here does I/O, reads a clock or draws a random number; the same commands in the same order give the same
//! state on every replica. Left out: how commands reach the log (`replica`), and what CQL's rules for definitions are (`query`).

pub mod balance;
pub mod catalog;
#[cfg(any(test, feature = "fuzzing"))]
pub mod fuzzing;
pub mod plan;
