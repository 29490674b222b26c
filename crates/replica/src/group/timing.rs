//! Times that several parts of a group keep to.

/// How long a member that lags is left alone after it was pinged, nanoseconds.
pub(crate) const PING_NS: u64 = 200_000_000;

/// A group to which nothing was written for this long, nanoseconds, sends its members the last commit index by itself.
pub(crate) const QUIET_NS: u64 = 100_000_000;
