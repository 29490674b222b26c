//! The storage engine of a simulated node: tablets and log in memory, with a disk that takes time to sync.
//!
//! Always true: a synced write takes time. The core waits for it on its own thread while everything else continues; the
//! write is durable and can be read when the time is over, and a crash before that may or may not leave it. A write
//! outside the core's thread (a replica is made, opened or closed) is synced when it returns, but frames that the core
//! sends after it leave only when the disk would have been ready.

use crate::clock::TrueTime;
use crate::dice::Dice;
use crate::network::Port;
use crate::waiting::WaitingPlace;
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

/// The log of one disk of a simulated node during one life.
pub struct SimLog {
    memory: MemoryLog,
    time: TrueTime,
    dice: Mutex<Dice>,
    port: Arc<Port>,
    place: Arc<WaitingPlace>,
    sync_us: AtomicU64,
    /// A sync that begins before this time ends no earlier than it.
    hangs_until_ns: AtomicU64,
    busy_until_ns: AtomicU64,
    has_failed: AtomicBool,
    is_given_up: AtomicBool,
}

impl SimLog {
    /// A log on a disk that usually takes up to `sync_us` microseconds to sync. The core waits in `place`; frames that
    /// it sends after other writes leave late through `port`.
    pub fn new(
        memory: MemoryLog,
        time: TrueTime,
        dice: Dice,
        (port, place): (Arc<Port>, Arc<WaitingPlace>),
        sync_us: u64,
    ) -> Self {
        Self {
            memory,
            time,
            dice: Mutex::new(dice),
            port,
            place,
            sync_us: AtomicU64::new(sync_us),
            hangs_until_ns: AtomicU64::new(0),
            busy_until_ns: AtomicU64::new(0),
            has_failed: AtomicBool::new(false),
            is_given_up: AtomicBool::new(false),
        }
    }

    /// Changes how long a sync takes, microseconds.
    pub fn set_sync_us(&self, sync_us: u64) {
        self.sync_us.store(sync_us, Ordering::Relaxed);
    }

    /// Lets no sync that begins before `until_ns` (true time) end before.
    pub fn hang(&self, until_ns: u64) {
        self.hangs_until_ns.fetch_max(until_ns, Ordering::Relaxed);
    }

    /// The true time until which the node waits for its disk after a write outside of the core's thread.
    pub fn busy_until_ns(&self) -> u64 {
        self.busy_until_ns.load(Ordering::Relaxed)
    }

    /// Begins to sync everything written so far; returns the position for [`Self::sync_to`], and the true time at which
    /// that is due.
    pub fn begin_sync(&self) -> (u64, u64) {
        (self.memory.position(), self.ready_ns())
    }

    /// A sync has come to its end.
    pub fn sync_to(&self, position: u64) {
        self.memory.sync_to(position);
    }

    /// The true time at which a sync that begins now ends.
    fn ready_ns(&self) -> u64 {
        let longest_us = self.sync_us.load(Ordering::Relaxed);
        let took_ns = self.dice.lock().range(longest_us / 4, longest_us) * US;
        (self.time.now_ns() + took_ns).max(self.hangs_until_ns.load(Ordering::Relaxed))
    }

    /// The disk fails: nothing is written to it any more, and the write under way has an unknown outcome.
    pub fn give_up(&self) {
        self.is_given_up.store(true, Ordering::Relaxed);
    }

    /// Whether the disk has not failed.
    pub fn works(&self) -> bool {
        !self.is_given_up.load(Ordering::Relaxed)
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
        let failed = || StorageError::Log("its disk has failed".to_owned());
        if !self.works() {
            return Err(failed());
        }
        let begun = self.memory.begin_write(records);
        if begun.is_err() {
            self.has_failed.store(true, Ordering::Relaxed);
        }
        if sync {
            let until_ns = self.ready_ns();
            if !self.place.wait_until(until_ns) {
                let until_ns = self.busy_until_ns().max(until_ns);
                self.busy_until_ns.store(until_ns, Ordering::Relaxed);
                self.port.hold_until(until_ns);
            }
        }
        if !self.works() {
            return Err(failed());
        }
        let size_bytes = begun?;
        self.memory.end_write(sync);
        Ok(size_bytes)
    }

    fn recover(&self, group: GroupId) -> Result<Recovered, StorageError> {
        self.memory.recover(group)
    }

    fn reader(&self, group: GroupId) -> MemoryReader {
        self.memory.reader(group)
    }
}
