//! A storage engine in memory that can simulate crashes: on request, writes that were not made durable are lost.
//!
//! Always true: a crash leaves the state that a disk would have. A [`MemoryTablet`] returns to its last flush, data and
//! applied state together; a [`MemoryLog`] keeps everything that was synced and a prefix of the batches written since,
//! each of them whole or not at all, as with raft-engine's checksums. Nothing here waits, reads a clock or draws a
//! random number: the simulation decides when a crash happens, how many of the log's unsynced batches survive it and
//! how long a write takes. The owner also starts compactions, of any of the keys. Left out: bytes on a disk.

mod log;
mod tablet;

pub use log::{MemoryLog, MemoryReader, MemoryRecords};
pub use tablet::{MemoryBatch, MemorySnapshot, MemoryTablet};

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
