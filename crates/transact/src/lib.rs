//! One-shot transactions over several tablets: their state machines, their steps in the log, and the locks of a tablet.
//!
//! ```text
//! client ── all statements ──▶ coordinator
//!   1  reserve ──▶ home's leader                  memory only: lock, evaluate, issue an id
//!   2  prepare ──▶ leaders of the participants    one entry each: lock and stage rows, with a stamp
//!   3  commit  ──▶ home's leader                  one entry: the home's rows, and the decision
//!      answer to the client
//!   4  finish  ──▶ participants                   one entry each: staged rows become visible, locks go
//!   5  forget  ──▶ home                           many at a time
//! ```
//!
//! [`coordinator`] drives a transaction; [`leader`] is what the leader of a tablet does, with [`locks`] in its memory;
//! [`records`] is what every replica keeps, a function of the applied [`step`]s; [`snapshot`] reads several tablets as
//! of one stamp, [`version`] without one if they do not change; [`wire`] has the bytes between them. `query` drives
//! coordinators and reads, `replica` holds records and leaders.
//!
//! Always true: nothing here reads a clock, waits, spawns or does I/O. Time is an input; the same inputs give the same
//! actions. The invariants of the protocol are in `tests::invariants`, which an exhaustive search over small clusters
//! checks in every state (`docs/decisions/2026-11-26-one-shot-transactions.md`).
//! Left out: what a row, a program or a frame is, and splits and merges of tablets.

pub mod coordinator;
#[cfg(test)]
mod golden;
pub mod ids;
pub mod in_flight;
pub mod leader;
pub mod locks;
pub mod maintained;
pub mod message;
pub mod peer;
#[doc(hidden)]
pub mod planted;
pub mod records;
pub mod snapshot;
pub mod step;
pub mod targets;
#[cfg(test)]
mod tests;
pub mod timing;
pub mod version;
pub mod wire;

pub use ids::{Home, Participant, Prepared, TransactionId};
