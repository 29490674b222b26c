//! The flag of a tablet that is closed for a merge.

/// Flag of a tablet that is closed for a merge, and so is sealed. It is the highest bit, as evaluators number theirs
/// from the lowest.
pub const CLOSED: u64 = 1 << 63;
