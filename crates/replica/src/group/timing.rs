//! Durations that several parts of a group use.

/// How long after a ping a member that lags is pinged again, nanoseconds.
pub(crate) const PING_NS: u64 = 200_000_000;

/// A group without writes for this long, nanoseconds, sends its members the last commit index in a message of its own.
pub(crate) const QUIET_NS: u64 = 100_000_000;
