//! Why the planner gives no answer.

use thiserror::Error;

/// Why a question has no answer.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub enum PlanError {
    /// A number is out of its range.
    #[error("{what} has to be {range}")]
    OutOfRange {
        /// Which.
        what: &'static str,
        /// What it may be.
        range: String,
    },
}
