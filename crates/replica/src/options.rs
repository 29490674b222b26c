//! What a node decides about its store.

/// When a write counts as durable.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Durability {
    /// After an fsync, shared by all writes of the turn.
    Fsync,
    /// At once; the log is synced every so many milliseconds. A crash of the machine (not of the process) loses what came since.
    Interval(u64),
}

/// What the node decides about its store.
#[derive(Debug, Clone)]
pub struct StoreOptions {
    /// Differs with each life of the node, and grows with them: microseconds since 1970 at its start.
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
    /// Log bytes not yet flushed, over all tablets, before the oldest are flushed; bounds the replay at restart.
    /// Less where a disk is so small that its log is.
    pub replay_bytes: u64,
    /// Free bytes below which a disk takes no writes.
    pub disk_reserve_bytes: u64,
    /// Replicas that are the only ones of their tablets are opened with what is left of a damaged Raft log.
    pub accept_lost_log: bool,
}
