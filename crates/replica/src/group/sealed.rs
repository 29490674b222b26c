//! The flag of a tablet that is closed for a merge.

/// Flag of a tablet: it is sealed, as another is to take in its rows. The highest bit, as evaluators number theirs from the lowest.
pub const CLOSED: u64 = 1 << 63;
