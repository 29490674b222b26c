//! The operations on each key are linearizable.

use super::Finding;
use diorite_history::{Operation, check_linearizable};

/// Judges a whole history.
pub fn check(at_ns: u64, operations: &[Operation]) -> Result<(), Finding> {
    check_linearizable(operations).map_err(|violation| Finding {
        checker: "linearizable",
        at_ns,
        message: violation.to_string(),
    })
}
