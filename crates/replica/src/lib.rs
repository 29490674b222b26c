//! The multi-raft store of one node: many tablet replicas, a few threads, one write path.
//!
//! ```text
//! submit ─▶ worker queue ─▶ turn: stamp, merge into one entry per tablet, propose
//!                                 one log batch, one fsync for all tablets of the turn
//!                                 apply what is committed, one RocksDB batch per tablet
//!                                 hand outcomes to the sinks, one wake-up per connection
//! ```
//!
//! Three layers, each of which uses only those below it: `runtime` (threads, queues, log writes), `lifecycle` (opening,
//! closing, copying and moving replicas), `group` (one tablet's Raft group). Beside them `peers`: which other nodes are
//! up, and their clocks.
//!
//! Always true: a tablet belongs to one store thread; only that thread's [`Core`] accesses its Raft group and writes
//! its data. A write is answered after its entry is durable on a quorum and applied here. Any thread reads the data
//! directly, while the replica holds the lease. The write path has no timer: a batch is what arrived during the last
//! fsync. Rows and CQL are unknown here: mutations are bytes, and an `Evaluator` carries out those that read. A member
//! that lacks entries which are no longer in the log is sent a copy of another replica's files (`lifecycle::copy`).
//! Left out: deciding which members a tablet has.

mod context;
mod counters;
mod events;
mod failures;
#[cfg(any(test, feature = "fuzzing"))]
pub mod fuzzing;
mod group;
mod lifecycle;
mod node_pins;
mod options;
mod peers;
mod planted;
mod prefetch;
mod progress;
mod runtime;
mod transaction_counters;

pub use context::{Context, CopyRequests};
pub use counters::StoreCounters;
pub use diorite_raft::{DRIFT_PERMILLE, LEASE_NS, LogPosition, Term};
pub use events::{TabletEvent, TabletEventKind};
pub use failures::FoundLeader;
pub use group::apply::apply_alone;
pub use group::catch_up::{LogAnswer, LogRead};
pub use group::describe::ReplicaState;
pub use group::handle::{Glance, Leadership, Permit, TabletHandle, Visit};
pub use group::index_notes::IndexNote;
pub use group::measuring::{SizeAnswer, SizeRead};
pub use group::memory::Memory;
pub use group::merge::{Closing, KeyRange, MergeReply, MergeStep, Merging, has_given_up};
pub use group::peer_calls::TransactionPeers;
pub use group::pins::{Committed, PinnedTablet, PinnedView};
pub use group::prepared::{PreparedTransaction, StagedRows};
pub use group::proposal::{NO_DEADLINE, Proposal, Refused, Reroute};
pub use group::replica::{Opening, Replica};
pub use group::sealed::CLOSED;
pub use group::split::{Split, SplitListener, SplitMark, begin_as_copy, begin_from_log, keep_own};
pub use group::stale::StaleEntries;
pub use group::wanted::Members;
pub use group::wire::{Envelope, envelopes};
pub use lifecycle::asides::SetAside;
pub use lifecycle::copy::meter::CopyStatus;
pub use lifecycle::merge_driver::{MergeAction, MergeDriver, Part, Superseded};
pub use lifecycle::openings::{ChildOpening, OnLoaded, OpenTablet, Openings};
pub use options::{Durability, StoreOptions};
pub use peers::clocks::CLOCK_LIMIT_US;
pub use peers::liveness::{LEAVING, Liveness, PeerListener};
#[doc(hidden)]
pub use planted::Planted;
pub use runtime::compaction::CompactionStatus;
pub use runtime::core::{Core, Input, TICK_NS};
pub use runtime::disk_watch::watch_threads;
pub use runtime::incoming::Incoming;
pub use runtime::scrub::ScrubStatus;
pub use runtime::store::Store;
pub use runtime::store_control::DiskState;
pub use transaction_counters::TransactionCounters;

#[cfg(test)]
mod tests;
