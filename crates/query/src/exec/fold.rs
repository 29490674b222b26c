//! Aggregates and groups, folded where the rows are: a scan carries a [`Task`] to the node that leads the tablet, which answers with a [`Partial`] in
//! place of the rows.
//!
//! ```text
//! asking node (fold::read)                     leader of the tablet (fold::folder)
//! Unit ─▶ Task { statement, values, Partial } ───────▶ Folder: plan it (once), read a piece of the range,
//!   ▲                                                  go on from the Partial over its rows
//!   └──── Partial, and where the range goes on ◀───────┘
//! ```
//!
//! A task is the statement's text with its values: the leader plans it for the same version of the same table, so both mean the same by it. What
//! a leader cannot fold (its catalog is older or newer, a function failed) it declines; then the rows are fetched and folded by the node that asks,
//! which also finds the error again.
//!
//! Always true: a piece is bounded in bytes and entries, as any scan is, and is read under the same permit (lease, or a bound on its age); the leader
//! keeps nothing between two pieces of a range, so any of them may be asked for again. Left out: rows that are neither aggregated nor grouped.

mod codec;
mod folder;
mod partial;
mod read;
#[cfg(test)]
mod tests;

pub use codec::{Reply, Task};
pub use folder::Folder;
pub use partial::{Next, Partial, Piece};
pub use read::Unit;
