//! Errors of the planner.

use thiserror::Error;

/// Why a question has no answer.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub enum PlanError {
    /// A number is out of its range.
    #[error("{what} has to be {range}")]
    OutOfRange {
        /// The number.
        what: &'static str,
        /// Its range.
        range: String,
    },
}
