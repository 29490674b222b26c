//! The flags of a tablet that are not an evaluator's.

/// Flag of a tablet that is closed for a merge, and so is sealed. It is the highest bit, as evaluators number theirs
/// from the lowest.
pub const CLOSED: u64 = 1 << 63;

/// Flag of a tablet that has applied a step of a transaction, and may hold records of transactions.
pub const TRANSACTIONS: u64 = 1 << 62;
