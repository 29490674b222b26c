//! A storage engine in memory, whose crashes can be staged: on request, writes that were not made durable are lost.
//!
//! Always true: a crash leaves what a disk would leave. A [`MemoryTablet`] comes back as of its last flush, data and
//! applied state together; a [`MemoryLog`] comes back with everything that was synced and a prefix of the batches
//! written since, each whole or not at all, as raft-engine's checksums leave them. Nothing here waits, reads a clock or
//! draws a random number: the simulation decides when a crash happens, how much of the log's tail survives it and how
//! long a write takes. The owner also starts compactions, of any of the keys. Left out: bytes on a disk.

mod log;
mod tablet;

pub use log::{MemoryLog, MemoryReader, MemoryRecords};
pub use tablet::{MemoryBatch, MemoryTablet};

use crate::engine::Engine;

/// Tablets and Raft log in memory.
#[derive(Clone, Copy, Debug)]
pub struct Memory;

impl Engine for Memory {
    type Tablet = MemoryTablet;
    type Log = MemoryLog;
}

#[cfg(test)]
mod tests;
