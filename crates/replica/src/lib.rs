//! The multi-raft store of one node: many tablet replicas, a few threads, one write path.
//!
//! ```text
//! submit ─▶ worker queue ─▶ turn: stamp, merge into one entry per tablet, propose
//!                                 one log batch, one fsync for all tablets of the turn
//!                                 apply what is committed, one RocksDB batch per tablet
//!                                 hand outcomes to the sinks, one wake-up per connection
//! ```
//!
//! Always true: a tablet belongs to one worker; only that worker's [`Core`] touches its Raft group and writes its data; a write is answered
//! after its entry is durable on a quorum and applied here; reads go straight to the data from any thread, while the replica holds the lease.
//! No timer stands on the write path: a batch is what arrived while the last fsync ran. Rows and CQL are unknown here: mutations are bytes, and
//! those that read are carried out by an `Evaluator`. A replica that the log can no longer help is given a
//! copy of another's files (`copy`). Left out: deciding who the members are.

mod apply;
mod aside;
mod catch_up;
mod clocks;
mod compaction;
mod context;
mod copy;
mod core;
mod counters;
mod departed;
mod describe;
mod disks;
mod election;
mod entry;
mod events;
mod flush_pace;
#[cfg(any(test, feature = "fuzzing"))]
pub mod fuzzing;
mod handle;
mod heart;
mod lease;
mod liveness;
mod members;
mod merge;
mod opening;
mod passing;
mod planted;
mod prefetch;
mod queue;
mod replica;
mod samples;
mod scrub;
mod split;
mod staleness;
mod stall;
mod store;
mod suspects;
mod upkeep;
mod waiters;
mod wire;
mod worker;

pub use apply::apply_alone;
pub use aside::SetAside;
pub use catch_up::{LogAnswer, LogRead};
pub use clocks::CLOCK_LIMIT_US;
pub use compaction::CompactionStatus;
pub use context::{Context, CopyRequests};
pub use copy::{ChildOpening, CopyStatus, Openings};
pub use core::{Core, Input, TICK_NS};
pub use counters::StoreCounters;
pub use describe::ReplicaState;
pub use diorite_raft::{DRIFT_PERMILLE, LEASE_NS};
pub use events::{TabletEvent, TabletEventKind};
pub use handle::{Leadership, Permit, TabletHandle, Visit};
pub use liveness::{LEAVING, Liveness, PeerListener};
pub use merge::{
    CLOSED, Closing, KeyRange, MergeAction, MergeDriver, MergeReply, MergeStep, Merging, Part, Superseded, has_given_up,
};
#[doc(hidden)]
pub use planted::Planted;
pub use replica::{Members, NO_DEADLINE, Opening, Proposal, Replica};
pub use scrub::ScrubStatus;
pub use split::{Split, SplitListener, SplitMark, begin_as_copy, begin_from_log, keep_own};
pub use store::{Durability, OnLoaded, OpenTablet, Refused, Reroute, Store, StoreOptions};
pub use wire::{Envelope, envelopes};

#[cfg(test)]
mod tests;
