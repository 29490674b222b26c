//! Self-observation of a node: durations of requests, resources of the process, and both over the last hour.
//!
//! Always true: memory is bounded, whatever the load; observing a request costs a few additions to memory that no other
//! thread writes, and one clock read for all requests that are answered together. Left out: the presentation
//! (`metrics`, `diorite_admin`).

pub(crate) mod history;
pub(crate) mod memory;
pub(crate) mod own;
pub(crate) mod process;
pub(crate) mod queries;
pub(crate) mod sampler;

use diorite_admin::api::AllocatorStatus;
use diorite_base::measure::{Distribution, Histogram};
use diorite_query::Operation;
use std::array;

/// Statistics of the process's allocator.
#[derive(Debug, Clone, Copy)]
pub struct Allocator {
    /// The allocator's own account, if it keeps one.
    pub status: fn() -> Option<AllocatorStatus>,
    /// Gives unused pages back to the system, at once. May take some milliseconds.
    pub purge: fn(),
}

/// How long requests of clients take: from reading them off the socket until their answer is about to be written to it.
pub(crate) struct Latencies {
    operations: [Histogram; Operation::COUNT],
}

impl Default for Latencies {
    fn default() -> Self {
        Self { operations: array::from_fn(|_| Histogram::default()) }
    }
}

impl Latencies {
    /// Records `count` requests that took `elapsed_ns` each.
    #[inline]
    pub(crate) fn record(&self, operation: Operation, elapsed_ns: u64, count: u64) {
        self.operations[operation as usize].record_many(elapsed_ns, count);
    }

    /// The durations of an operation since start.
    pub(crate) fn of(&self, operation: Operation) -> Distribution {
        self.operations[operation as usize].snapshot()
    }
}
