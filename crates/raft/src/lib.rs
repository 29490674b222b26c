//! One Raft group, sans-I/O: proposals, messages and ticks go in; entries to persist, messages to send and entries to
//! apply come out. The consensus core is the `raft` crate; this crate hides its call order and its storage trait.
//!
//! One turn of a group, as its caller drives it:
//!
//! 1. [`Group::propose`], [`Group::step`], [`Group::ping`] in any number;
//! 2. [`Group::ready`] gives a [`Step`]: send `messages` at once, write `entries` and `hard_state` to the log;
//! 3. when the log is durable, [`Group::persisted`] takes the step back and gives the entries that are now committed;
//! 4. when those are applied, [`Group::applied`];
//! 5. the entries that [`Group::take_fetches`] asks for are read from the log by another thread, and returned through
//!    [`Group::fetched`].
//!
//! Always true: nothing here reads a clock, spawns, locks or does I/O; only `persisted` reports a step's entries to
//! consensus as durable. A group of one voter takes the same turns as any other. There are no ticks: the support
//! between nodes ([`SupportTable`]) decides who leads, and an idle group does nothing. Left out: snapshots. A member
//! that lacks entries which are no longer in the log is sent a copy of the data by the layers above
//! ([`Group::take_lacking`], [`Group::acknowledge_copy`]).

mod change;
mod error;
mod fetch;
mod fetches;
mod group;
mod log;
mod logger;
mod marked;
mod messages;
mod position;
mod support;
mod votes;

pub use change::MemberChange;
pub use error::GroupError;
pub use fetch::Fetch;
pub use group::{Group, GroupOptions, MemberProgress, Step};
pub use log::{LogReadError, LogReader, Recovered, UNKNOWN_FLOOR, floor_without_log};
pub use marked::{MarkedPayload, ProvenPayload, Unproven};
pub use messages::{is_acknowledgement, is_from_leader, is_vote_request, is_without_entries, may_come_from_a_peer};
pub use position::{LogPosition, Term};
pub use raft::eraftpb::{ConfState, Entry, EntryType, HardState, Message, MessageType};
pub use support::{
    Beat, DRIFT_PERMILLE, Epoch, HEARTBEAT_NS, Heartbeat, LEASE_NS, SUPPORT_NS, Support, SupportChange, SupportTable,
    Supporter,
};
pub use votes::is_conditional_vote;

#[cfg(test)]
mod tests;
