//! Aggregate pushdown: rows are aggregated or grouped where they are. A scan carries a [`Task`] to the node that leads the tablet, which
//! answers with a partial aggregate in place of the rows.
//!
//! ```text
//! asking node (ask)                            leader of the tablet (leader)
//! Unit ─▶ Task { statement, values, partial aggregate } ─▶ PartialAggregator: plan it (once), read a piece of
//!   ▲                                                      the range, go on from the partial aggregate over its rows
//!   └──── partial aggregate, and where the range goes on ◀┘
//! ```
//!
//! A task is the statement's text with its values: the leader plans it for the same version of the same table, so both mean the same by it. What
//! a leader cannot aggregate (its catalog is older or newer, a function failed) it declines; then the rows are fetched and aggregated by the
//! node that asks, which also finds the error again.
//!
//! Always true: a piece is bounded in bytes and entries, as any scan is, and is read under the same permit (lease, or a bound on its age); the leader
//! keeps nothing between two pieces of a range, so any of them may be asked for again. Left out: rows that are neither aggregated nor grouped.

mod advance;
mod ask;
mod leader;
mod task;
#[cfg(test)]
mod tests;
mod unit;

pub(in crate::exec) use ask::Asking;
pub use leader::PartialAggregator;
pub use task::{Reply, Task};
pub(in crate::exec) use unit::{Unit, named_units};
