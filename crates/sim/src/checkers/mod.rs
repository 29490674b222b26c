//! Invariants of every run, one checker per file.
//!
//! Always true: a checker changes nothing: a run is the same with and without it.

pub mod acknowledged;
pub(crate) mod leaseholder;
pub mod linearizable;
pub mod recovery;
pub mod replicas;

use std::fmt;

/// A violation that a checker has found.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Finding {
    /// The checker.
    pub checker: &'static str,
    /// The true time, nanoseconds.
    pub at_ns: u64,
    /// The violation.
    pub message: String,
}

impl fmt::Display for Finding {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} at {} ms: {}", self.checker, self.at_ns / 1_000_000, self.message)
    }
}
