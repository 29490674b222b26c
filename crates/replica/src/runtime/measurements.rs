//! The thread that measures rows for all store threads of a node. It measures one row at a time, so that only one row
//! is in memory.

use crate::context::Context;
use crate::group::measuring::SizeRead;
use crate::runtime::queue::Queues;
use diorite_storage::{Tablet, run_at_lower_priority};
use std::sync::mpsc::Receiver;

/// A row to be measured.
pub(crate) struct Measurement {
    /// The store thread that asked.
    pub(crate) worker: usize,
    pub(crate) read: SizeRead<Tablet>,
}

/// Measures until the store threads end.
pub(crate) fn run(context: &Context, queues: &Queues, wanted: &Receiver<Measurement>) {
    run_at_lower_priority();
    while let Ok(Measurement { worker, read }) = wanted.recv() {
        queues[worker].measured(read.carry_out(context.hooks.account.get()));
    }
}
