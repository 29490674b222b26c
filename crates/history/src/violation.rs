//! The findings of checkers.

use crate::operation::{Ended, Operation, Value, shown};
use std::fmt::Write;
use thiserror::Error;

/// The most operations and keys that one message prints.
const SHOWN: usize = 40;

/// Why a history does not pass. After [`Violation::Undecided`] and [`Violation::Malformed`] the database may still be
/// right.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
pub enum Violation {
    /// No order of the key's operations agrees with the answers and with real time.
    #[error("key {key} is not linearizable: {reason}{}", listed(excerpt))]
    NotLinearizable {
        /// The key.
        key: u64,
        /// The contradiction.
        reason: String,
        /// Operations that cannot all be as they were answered, by start.
        excerpt: Vec<Operation>,
    },
    /// Acknowledged writes are missing, or have other values.
    #[error("{} acknowledged writes are lost:{}", lost.len(), listed_keys(lost))]
    LostWrites {
        /// Key, acknowledged value, found value.
        lost: Vec<(u64, Value, Value)>,
    },
    /// A value was found that nobody wrote.
    #[error("key {key} holds {found}, which nobody wrote")]
    Invented {
        /// The key.
        key: u64,
        /// The value.
        found: u64,
    },
    /// A counter differs from the sum of its increments.
    #[error("a counter is {found}, with {acknowledged} increments acknowledged and {unknown} of unknown outcome")]
    Counter {
        /// Increments acknowledged.
        acknowledged: u64,
        /// Increments that may have happened.
        unknown: u64,
        /// The counter's value.
        found: u64,
    },
    /// A list that was only appended to differs from its appends.
    #[error("{reason}; the list is {found:?}")]
    List {
        /// The contradiction.
        reason: String,
        /// The list.
        found: Vec<u64>,
    },
    /// A write to several places is in some of them only, or is in some although it was refused.
    #[error("write {number} has ended as {ended:?} and is in {found} of {places} places")]
    Several {
        /// The number written.
        number: u64,
        /// The outcome.
        ended: Ended,
        /// The number of places where it is.
        found: usize,
        /// The number of places that it was written to.
        places: usize,
    },
    /// A cell with a lifetime was not there during it, or was there after it.
    #[error("cell {key}: {reason}")]
    Expiring {
        /// The cell.
        key: u64,
        /// The contradiction.
        reason: String,
    },
    /// A read found parts of different writes, though one batch writes all parts.
    #[error("a read of key {key} is torn: {parts:?}")]
    Torn {
        /// The key.
        key: u64,
        /// The value of each part.
        parts: Vec<Value>,
    },
    /// The budget did not suffice, so this is no pass.
    #[error(
        "undecided: key {key} needs more than {budget} configurations, or has more than {} operations at once",
        crate::search::MOST_OPEN
    )]
    Undecided {
        /// The key.
        key: u64,
        /// Configurations visited.
        budget: usize,
    },
    /// The history itself is wrong: the test has to be corrected.
    #[error("not a history: {0}")]
    Malformed(String),
}

fn listed(excerpt: &[Operation]) -> String {
    let mut text = String::new();
    // An excerpt becomes impossible at its end.
    let skipped = excerpt.len().saturating_sub(SHOWN);
    if skipped > 0 {
        let _ = write!(text, "\n  ({skipped} earlier operations)");
    }
    for operation in &excerpt[skipped..] {
        let _ = write!(text, "\n  {operation}");
    }
    text
}

fn listed_keys(lost: &[(u64, Value, Value)]) -> String {
    let mut text = String::new();
    for (key, written, found) in lost.iter().take(SHOWN) {
        let _ = write!(text, "\n  key {key}: wrote {}, found {}", shown(*written), shown(*found));
    }
    if lost.len() > SHOWN {
        let _ = write!(text, "\n  and {} more", lost.len() - SHOWN);
    }
    text
}
