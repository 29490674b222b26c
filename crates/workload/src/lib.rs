//! The load generator: `diorite workload` and `diorite bench`, clients of any CQL cluster.
//!
//! One operation goes: [`runner`] claims it from the budget and takes its intended start → [`workloads`] (or
//! [`pipelined`]) picks a key with [`row_set`] from [`key_state`], makes or checks the value with [`data`], and asks the
//! server → [`latency`] records it → once a second the runner drains the recorder for [`status`], the [`mod@bench`]
//! sampler and in the end the [`report`].
//!
//! Always true: every row that is read is checked against what this process knows was acknowledged, and the first
//! wrong, missing or stale one ends the run with its key and a non-zero exit; failed requests are counted, never
//! hidden by a retry; no crate of the server is linked, so what is measured is what a client sees.

pub mod arguments;
pub mod bench;
pub mod command;
pub mod data;
pub mod error;
pub mod key_state;
pub mod latency;
pub mod pipelined;
pub mod process;
pub mod report;
pub mod row_set;
pub mod runner;
pub mod session;
pub mod statements;
pub mod status;
pub(crate) mod timer;
pub mod timeseries;
pub mod transactions;
pub mod workloads;

pub use arguments::WorkloadArguments;
pub use bench::BenchArguments;
pub use command::run;
pub use error::WorkloadError;
