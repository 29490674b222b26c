//! Aggregate pushdown: rows are aggregated or grouped where they are stored. A scan carries a [`Task`] to the node that
//! leads the tablet, which answers with a partial aggregate in place of the rows.
//!
//! ```text
//! asking node (ask)                            leader of the tablet (leader)
//! Unit ─▶ Task { statement, values, partial aggregate } ─▶ PartialAggregator: plan it (once), read a piece of
//!   ▲                                                      the range, go on from the partial aggregate over its rows
//!   └──── partial aggregate, and where the range goes on ◀┘
//! ```
//!
//! A task is the statement's text with its values: the leader plans it for the same version of the same table, so both
//! nodes give it the same meaning. A leader declines a task that it cannot carry out (its catalog is older or newer, or
//! a function failed); then the asking node fetches and aggregates the rows, and reports the error if there is one.
//!
//! Always true: a piece is bounded in bytes and entries, like any scan, and is read under the same permit (lease, or a
//! bound on its age). The leader keeps no state between two pieces of a range, so any of them can be repeated. Left
//! out: rows that are neither aggregated nor grouped.

mod advance;
mod ask;
#[cfg(test)]
mod golden;
mod leader;
mod task;
#[cfg(test)]
mod tests;
mod unit;

pub(in crate::exec) use ask::Asking;
pub use leader::PartialAggregator;
pub use task::{Reply, Task};
pub(in crate::exec) use unit::{Unit, named_units};
