//! The storage engine of a simulated node: tablets and log in memory, with a disk that takes time to sync.
//!
//! Always true: a sync has happened when the write returns, but what the core does after it leaves the node only when the disk would have
//! been ready. What is sent before the write leaves at once. So the order of all effects is that of a thread that waits for its disk.

use crate::clock::TrueTime;
use crate::dice::Dice;
use crate::network::Port;
use diorite_base::GroupId;
use diorite_raft::Recovered;
use diorite_storage::{Engine, Log, MemoryLog, MemoryReader, MemoryRecords, MemoryTablet, StorageError};
use parking_lot::Mutex;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

const US: u64 = 1_000;

/// Tablets and log of a simulated node.
#[derive(Clone, Copy, Debug)]
pub struct SimEngine;

impl Engine for SimEngine {
    type Tablet = MemoryTablet;
    type Log = SimLog;
}

/// The log of a simulated node during one life.
pub struct SimLog {
    memory: MemoryLog,
    time: TrueTime,
    dice: Mutex<Dice>,
    port: Arc<Port>,
    sync_us: AtomicU64,
    busy_until_ns: AtomicU64,
    has_failed: AtomicBool,
}

impl SimLog {
    /// A log on a disk that usually takes up to `sync_us` microseconds to sync; what the node sends then leaves through `port`.
    pub fn new(memory: MemoryLog, time: TrueTime, dice: Dice, port: Arc<Port>, sync_us: u64) -> Self {
        Self {
            memory,
            time,
            dice: Mutex::new(dice),
            port,
            sync_us: AtomicU64::new(sync_us),
            busy_until_ns: AtomicU64::new(0),
            has_failed: AtomicBool::new(false),
        }
    }

    /// Changes how long a sync takes, microseconds.
    pub fn set_sync_us(&self, sync_us: u64) {
        self.sync_us.store(sync_us, Ordering::Relaxed);
    }

    /// The true time until which the thread that writes waits for its disk.
    pub fn busy_until_ns(&self) -> u64 {
        self.busy_until_ns.load(Ordering::Relaxed)
    }

    /// Whether a write has failed: the power is gone.
    pub fn has_failed(&self) -> bool {
        self.has_failed.load(Ordering::Relaxed)
    }
}

impl Log for SimLog {
    type Records = MemoryRecords;
    type Reader = MemoryReader;

    fn write(&self, records: &mut MemoryRecords, sync: bool) -> Result<usize, StorageError> {
        let written = self.memory.write(records, sync);
        if written.is_err() {
            self.has_failed.store(true, Ordering::Relaxed);
        }
        if sync {
            let longest_us = self.sync_us.load(Ordering::Relaxed);
            let took_ns = self.dice.lock().range(longest_us / 4, longest_us) * US;
            let until_ns = self.busy_until_ns().max(self.time.now_ns()) + took_ns;
            self.busy_until_ns.store(until_ns, Ordering::Relaxed);
            self.port.hold_until(until_ns);
        }
        written
    }

    fn recover(&self, group: GroupId) -> Result<Recovered, StorageError> {
        self.memory.recover(group)
    }

    fn reader(&self, group: GroupId) -> MemoryReader {
        self.memory.reader(group)
    }
}
