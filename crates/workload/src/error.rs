//! Why a run or an operation failed.
//!
//! Always true: a violation names the key and ends the run; a failed request is counted and does not.

use crate::data::{Mismatch, Version};

/// The ways in which a row that was read can be wrong.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Problem {
    /// The value is not one that was ever written to this key.
    Wrong(Mismatch),
    /// The row is not there although its write was acknowledged.
    Missing,
    /// The value is older than one that was acknowledged before the read began.
    Stale { found: Version, acknowledged: Version },
    /// The answer does not have the shape of the rows asked for.
    Shape(String),
}

impl Problem {
    /// An answer of another shape than that of the rows asked for.
    pub fn shape(detail: impl std::fmt::Display) -> Self {
        Self::Shape(detail.to_string())
    }
}

/// A row that differs from what was acknowledged. Ends the run.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Violation {
    /// The key, as it is in the table.
    pub key: String,
    pub problem: Problem,
}

impl std::fmt::Display for Violation {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let key = &self.key;
        match &self.problem {
            Problem::Wrong(mismatch) => write!(formatter, "wrong value at key {key}: {mismatch}"),
            Problem::Missing => write!(formatter, "missing row at key {key}: its write was acknowledged"),
            Problem::Stale { found, acknowledged } => {
                write!(
                    formatter,
                    "stale value at key {key}: version {found}, but {acknowledged} was acknowledged before"
                )
            }
            Problem::Shape(detail) => write!(formatter, "wrong answer for key {key}: {detail}"),
        }
    }
}

/// Why an operation did not succeed.
#[derive(Debug)]
pub enum Failure {
    /// There is nothing to do yet: no key exists, or all are being written.
    Nothing,
    /// The server or the connection failed the request.
    Request(String),
    /// A row that was read is wrong.
    Violation(Violation),
}

impl Failure {
    /// A request that the server or the connection failed.
    pub fn request(error: impl std::fmt::Display) -> Self {
        Self::Request(error.to_string())
    }

    /// What is wrong with a row that was read, with its key.
    pub fn violation(key: impl Into<String>, problem: Problem) -> Self {
        Self::Violation(Violation { key: key.into(), problem })
    }
}

/// Why a run ended early or did not begin.
#[derive(Debug, thiserror::Error)]
pub enum WorkloadError {
    /// The flags contradict each other or are out of range.
    #[error("{0}")]
    Arguments(String),
    /// The cluster could not be reached, or refused the keyspace or table.
    #[error("{0}")]
    Setup(String),
    /// A row that was read is not what was acknowledged.
    #[error("{0}")]
    Violation(Box<Violation>),
    /// Nothing has worked for a while.
    #[error("no request has succeeded for {seconds} s; the last error: {error}")]
    NoProgress { seconds: u64, error: String },
    /// The servers that the benchmark started are not as they should be.
    #[error("{0}")]
    Server(String),
    /// A server could not be started, or not be stopped.
    #[error(transparent)]
    Local(#[from] diorite_local::LocalError),
    /// A file or directory.
    #[error("{path}: {error}")]
    File { path: String, error: std::io::Error },
    /// The system refused threads.
    #[error("cannot start the client's threads: {0}")]
    Threads(std::io::Error),
}

impl WorkloadError {
    /// The exit code: 2 for a violation, 1 for everything else.
    pub fn exit_code(&self) -> u8 {
        if matches!(self, Self::Violation(_)) { 2 } else { 1 }
    }

    pub(crate) fn file(path: &std::path::Path, error: std::io::Error) -> Self {
        Self::File { path: path.display().to_string(), error }
    }
}
