//! The load generator: `diorite workload` and `diorite bench`, clients of any CQL cluster.
//!
//! One operation goes: [`runner`] claims it from the budget and takes its intended start → [`workloads`] (or
//! [`pipelined`]) picks a key from [`key_state`], makes or checks the value with [`data`], and asks the server →
//! [`latency`] records it → once a second the runner drains the recorder for [`status`], the [`mod@bench`] sampler and
//! in the end the [`report`].
//!
//! Always true: every row that is read is checked against what this process knows was acknowledged, and the first
//! wrong, missing or stale one ends the run with its key and a non-zero exit; failed requests are counted, never
//! hidden by a retry; no crate of the server is linked, so what is measured is what a client sees.

pub mod arguments;
pub mod bench;
pub mod command;
pub mod data;
pub mod key_state;
pub mod latency;
pub mod pipelined;
pub mod process;
pub mod report;
pub mod runner;
pub mod session;
pub mod status;
pub mod timeseries;
pub mod workloads;

pub use arguments::WorkloadArguments;
pub use bench::BenchArguments;
pub use command::run;

use workloads::Violation;

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
