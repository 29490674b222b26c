//! What the cluster consists of and how that may change: the catalog's replicated state machine.
//!
//! Always true: nothing here does I/O, reads a clock or draws a random number; the same commands in the same order give the same
//! state on every replica. Left out: how commands reach the log (`replica`), and what CQL's rules for definitions are (`query`).

pub mod catalog;
