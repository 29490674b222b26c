//! The protocol as a whole: an exhaustive search over small clusters that drives the state machines of this crate, with
//! its invariants, and bugs that it has to find.

mod client;
mod explore;
mod invariants;
mod late;
mod moves;
mod quiet;
mod scenarios;
mod snapshots;
mod tablet;
mod world;
