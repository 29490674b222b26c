//! The state of the keys that this process writes and reads: which numbers exist, the version each was last
//! acknowledged with, and which are being written now.
//!
//! Always true:
//!  - a key is written by one task at a time, so its versions reach the server in order and the last acknowledged one
//!    is the oldest that a strong read may return;
//!  - a key whose write failed or timed out is never written again by this process: the lost write may still take
//!    effect later, and would then look like a stale value;
//!  - every key below [`KeyState::readable`] was acknowledged, here or in an earlier run.
//!
//! Versions take four bytes per key and are kept for the first [`KeyState::new`]`.tracked_keys` numbers only. Later
//! keys are checked for wrong and missing values, and each rewrite repeats the same version, so order does not matter.

use std::collections::BTreeSet;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};
use std::sync::{Mutex, OnceLock, PoisonError};

use crate::data::Version;

const CHUNK_KEYS: usize = 1 << 16;
/// Set while a write of the key is under way, and for good once one has failed.
const BUSY: u32 = 1 << 31;
/// How far writers may run ahead of the oldest unacknowledged new key. A power of two.
const WINDOW_KEYS: u64 = 1 << 20;

type Chunk = Box<[AtomicU32]>;

/// The state of all keys of one run. Shared by every task.
pub struct KeyState {
    epoch_s: u32,
    /// The number of the first new key; those below exist from an earlier run.
    first_new: u64,
    next_new: AtomicU64,
    end_new: AtomicU64,
    /// All keys below are acknowledged.
    readable: AtomicU64,
    /// `window[n % WINDOW_KEYS] == n + 1` once new key `n` is acknowledged.
    window: Vec<AtomicU64>,
    /// The count of acknowledged writes by this process, by key number, and the [`BUSY`] bit.
    versions: Vec<OnceLock<Chunk>>,
    /// New keys whose only write failed: they may be there or not. Grows with failed requests only.
    lost: Mutex<BTreeSet<u64>>,
}

/// The right to write one key once. Hand it back through [`KeyState::acknowledge`] or [`KeyState::give_up`].
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct WriteTicket {
    /// The key's number.
    pub number: u64,
    /// The version to write.
    pub version: Version,
}

impl KeyState {
    /// Keys `0..first_new` exist; new ones are numbered up to `end_new` (exclusive). `epoch_s` tells this process's
    /// versions from those of other runs. Staleness is checked for the first `tracked_keys` numbers.
    pub fn new(epoch_s: u32, first_new: u64, end_new: u64, tracked_keys: u64) -> Self {
        let chunks = tracked_keys.min(end_new.max(first_new)).div_ceil(CHUNK_KEYS as u64);
        let window_keys = WINDOW_KEYS.min(end_new.saturating_sub(first_new).next_power_of_two());
        Self {
            epoch_s,
            first_new,
            next_new: AtomicU64::new(first_new),
            end_new: AtomicU64::new(end_new),
            readable: AtomicU64::new(first_new),
            window: (0..window_keys).map(|_| AtomicU64::new(0)).collect(),
            versions: (0..chunks).map(|_| OnceLock::new()).collect(),
            lost: Mutex::default(),
        }
    }

    /// The number of keys that can be read: all numbers below it are acknowledged.
    pub fn readable(&self) -> u64 {
        self.readable.load(Ordering::Acquire)
    }

    /// The number of keys handed out to writers or present before the run.
    pub fn generated(&self) -> u64 {
        self.next_new.load(Ordering::Relaxed)
    }

    /// The next key that does not exist yet. `None` when all exist, or when the oldest write under way lags so far
    /// behind that the window is full; [`KeyState::exhausted`] tells which.
    pub fn start_new(&self) -> Option<WriteTicket> {
        let (readable, end_new) = (self.readable(), self.end_new());
        let number = self
            .next_new
            .fetch_update(Ordering::AcqRel, Ordering::Relaxed, |next| {
                (next < end_new && next - readable.min(next) < self.window.len() as u64).then_some(next + 1)
            })
            .ok()?;
        if let Some(slot) = self.slot(number) {
            slot.fetch_or(BUSY, Ordering::AcqRel);
        }
        Some(WriteTicket { number, version: Version::new(self.epoch_s, 1) })
    }

    /// Whether every new key has been handed out.
    pub fn exhausted(&self) -> bool {
        self.next_new.load(Ordering::Relaxed) >= self.end_new()
    }

    /// The right to overwrite key `number`, unless another task is at it or an earlier write of it was lost.
    pub fn start_overwrite(&self, number: u64) -> Option<WriteTicket> {
        let Some(slot) = self.slot(number) else {
            return Some(WriteTicket { number, version: Version::new(self.epoch_s, 1) });
        };
        let count = slot.fetch_or(BUSY, Ordering::AcqRel);
        (count & BUSY == 0).then(|| WriteTicket { number, version: Version::new(self.epoch_s, count + 1) })
    }

    /// The server has acknowledged the write.
    pub fn acknowledge(&self, ticket: WriteTicket) {
        if let Some(slot) = self.slot(ticket.number) {
            slot.store(ticket.version.0 as u32, Ordering::Release);
        }
        self.finish(ticket.number);
    }

    /// The write failed, or its outcome is unknown. The key stays locked; if it is a new one, a reader may find it
    /// missing.
    pub fn give_up(&self, ticket: WriteTicket) {
        debug_assert_eq!(ticket.version.epoch_s(), self.epoch_s, "the ticket is of this run");
        if ticket.number >= self.first_new && ticket.version.count() == 1 {
            self.lost.lock().unwrap_or_else(PoisonError::into_inner).insert(ticket.number);
        }
        self.finish(ticket.number);
    }

    /// The server has certainly not done the write: the key can be overwritten again. Whether that is so: a new key that
    /// is not there yet cannot, and its ticket goes to [`KeyState::give_up`].
    pub fn withdraw(&self, ticket: WriteTicket) -> bool {
        let is_new = ticket.number >= self.first_new && ticket.version.count() == 1;
        let slot = self.slot(ticket.number).filter(|_| !is_new);
        slot.map(|slot| slot.fetch_and(!BUSY, Ordering::AcqRel)).is_some()
    }

    /// The oldest version that a read of the readable key `number`, started now, may return.
    pub fn oldest_allowed(&self, number: u64) -> Version {
        let acknowledged = self.slot(number).map_or(0, |slot| slot.load(Ordering::Acquire) & !BUSY);
        match (acknowledged, number < self.first_new) {
            // Written by an earlier run, at a version unknown here.
            (0, true) => Version::default(),
            // Beyond the tracked keys, or lost.
            (0, false) => Version::new(self.epoch_s, 1),
            (count, _) => Version::new(self.epoch_s, count),
        }
    }

    /// The newest version that may have been written by now to the readable key `number`.
    pub fn newest_possible(&self, number: u64) -> Version {
        let count = self.slot(number).map_or(BUSY, |slot| slot.load(Ordering::Acquire));
        Version::new(self.epoch_s, (count & !BUSY) + u32::from(count & BUSY != 0))
    }

    /// Whether a missing row would be right, because the only write of this new key failed.
    pub fn may_be_missing(&self, number: u64) -> bool {
        self.lost.lock().unwrap_or_else(PoisonError::into_inner).contains(&number)
    }

    /// Adds a new key at the end, instead of one that is not written again: a run of few keys goes on.
    pub fn extend(&self) {
        self.end_new.fetch_add(1, Ordering::Relaxed);
    }

    fn end_new(&self) -> u64 {
        self.end_new.load(Ordering::Relaxed)
    }

    /// Marks a new key as done and moves the readable end past every done key.
    fn finish(&self, number: u64) {
        if number < self.first_new {
            return;
        }
        let mask = self.window.len() as u64 - 1;
        self.window[(number & mask) as usize].store(number + 1, Ordering::SeqCst);
        loop {
            let end = self.readable.load(Ordering::SeqCst);
            if end >= self.end_new() || self.window[(end & mask) as usize].load(Ordering::SeqCst) != end + 1 {
                return;
            }
            // If another task has advanced it meanwhile, that task continues from there; this one reads it again.
            let _ = self.readable.compare_exchange(end, end + 1, Ordering::SeqCst, Ordering::SeqCst);
        }
    }

    fn slot(&self, number: u64) -> Option<&AtomicU32> {
        let chunk = self.versions.get(usize::try_from(number).ok()? / CHUNK_KEYS)?;
        let slots = chunk.get_or_init(|| (0..CHUNK_KEYS).map(|_| AtomicU32::new(0)).collect());
        slots.get(number as usize % CHUNK_KEYS)
    }
}

#[cfg(test)]
mod tests;
