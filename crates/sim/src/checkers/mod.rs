//! What must hold in every run, one checker per file.
//!
//! Always true: a checker only looks; a run with it and one without take the same course.

pub mod acknowledged;
pub(crate) mod leaseholder;
pub mod linearizable;
pub mod recovery;
pub mod replicas;

use std::fmt;

/// What a checker has found.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Finding {
    /// Which checker.
    pub checker: &'static str,
    /// When, nanoseconds of true time.
    pub at_ns: u64,
    /// What is wrong.
    pub message: String,
}

impl fmt::Display for Finding {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} at {} ms: {}", self.checker, self.at_ns / 1_000_000, self.message)
    }
}
