//! The settings of a store.

/// When a write counts as durable.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Durability {
    /// After an fsync, shared by all writes of the turn.
    Fsync,
    /// At once; the log is synced every so many milliseconds. A crash of the machine (not of the process) loses later
    /// writes.
    Interval(u64),
}

/// The settings of a store.
#[derive(Debug, Clone)]
pub struct StoreOptions {
    /// Distinguishes the lives of the node, and grows with them: microseconds since 1970 at its start.
    pub incarnation: u64,
    /// This node's id in the groups it is a member of.
    pub node: u64,
    /// Store threads.
    pub workers: usize,
    /// When writes are acknowledged.
    pub durability: Durability,
    /// Writes waiting per worker before new ones are refused.
    pub queue_proposals: usize,
    /// Bytes waiting per worker before new writes are refused.
    pub queue_bytes: usize,
    /// Log bytes not flushed yet, over all tablets, at which the oldest are flushed; bounds the replay at a restart.
    /// Less on a disk that is too small for such a log.
    pub replay_bytes: u64,
    /// Free bytes below which a disk takes no writes.
    pub disk_reserve_bytes: u64,
    /// Whether replicas that are the only ones of their tablets are opened with what is left of a damaged Raft log.
    pub accept_lost_log: bool,
    /// Tablets that are open at most; files that are open are limited by the system.
    pub most_tablets: usize,
}
