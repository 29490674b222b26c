//! The sources of the metrics.

use super::tables::Shown;
use crate::operate::Operations;
use crate::shared::Shared;
use parking_lot::Mutex;
use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

/// The sources of the node's metrics, beside the process itself.
pub(super) struct Source {
    pub(super) shared: Arc<Shared>,
    pub(super) operations: Arc<Operations>,
    pub(super) by_table: Mutex<Shown>,
}

impl Source {
    pub(super) fn new(shared: Arc<Shared>, operations: Arc<Operations>) -> Self {
        Self { shared, operations, by_table: Mutex::default() }
    }
}

impl fmt::Debug for Source {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Source")
    }
}

pub(super) fn read(counter: &AtomicU64) -> u64 {
    counter.load(Ordering::Relaxed)
}
