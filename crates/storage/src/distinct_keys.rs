//! An estimate of the number of different keys that a tablet stores.
//!
//! The difference between entries in files and different keys is what a compaction of everything would remove
//! ([`crate::merging`]). The estimate is a HyperLogLog sketch, which cannot forget a key; each compaction of everything
//! therefore builds a new one, of the keys that it keeps and of those written meanwhile.
//!
//! Always true: while a number is known, every stored key is counted in it. Left out: whether a key still has a live
//! value; tablets with values that expire or are deleted are not counted.

use ahash::RandomState;
use hyperloglockless::HyperLogLog;
use parking_lot::Mutex;
use std::sync::atomic::{AtomicBool, Ordering};

/// 2^12 registers of one byte: a standard error of 1.6 %.
const PRECISION: u8 = 12;

type Sketch = HyperLogLog<RandomState>;

/// The same hash in all sketches of a process.
fn hasher() -> RandomState {
    RandomState::with_seeds(0x6b65_7973, 0x6f66, 0x6f6e_6520, 0x7461_626c)
}

fn sketch() -> Box<Sketch> {
    Box::new(Sketch::with_hasher(PRECISION, hasher()))
}

/// The hash of a key, for [`DistinctKeys::write`].
pub(crate) fn hash_of(key: &[u8]) -> u64 {
    hasher().hash_one(key)
}

/// The keys of one tablet.
#[derive(Default)]
pub(crate) struct DistinctKeys {
    sketches: Mutex<Sketches>,
    /// Whether a compaction of everything runs, so that keys are worth the lock.
    is_rebuilding: AtomicBool,
}

#[derive(Default)]
struct Sketches {
    /// All stored keys; `None`: unknown.
    stored: Option<Box<Sketch>>,
    /// The keys seen since the running compaction of everything began.
    rebuilt: Option<Box<Sketch>>,
}

impl DistinctKeys {
    /// The tablet is empty, so its keys are known.
    pub(crate) fn start_empty(&self) {
        self.sketches.lock().stored = Some(sketch());
    }

    /// Keys with these hashes are written.
    pub(crate) fn write(&self, hashes: &[u64]) {
        let mut sketches = self.sketches.lock();
        let Sketches { stored, rebuilt } = &mut *sketches;
        for sketch in [stored, rebuilt].into_iter().flatten() {
            hashes.iter().for_each(|hash| sketch.insert_hash(*hash));
        }
    }

    /// The tablet has values that go without a write to their keys: the number is unknown until everything has been
    /// compacted without such a value being written.
    pub(crate) fn forget(&self) {
        *self.sketches.lock() = Sketches::default();
        self.is_rebuilding.store(false, Ordering::Release);
    }

    /// A compaction of everything begins.
    pub(crate) fn begin_rebuilding(&self) {
        self.sketches.lock().rebuilt = Some(sketch());
        self.is_rebuilding.store(true, Ordering::Release);
    }

    /// A compaction keeps this key, or a read has met it.
    pub(crate) fn meet(&self, key: &[u8]) {
        if self.is_rebuilding.load(Ordering::Acquire)
            && let Some(rebuilt) = &mut self.sketches.lock().rebuilt
        {
            rebuilt.insert_hash(hash_of(key));
        }
    }

    /// The compaction of everything has ended. If it was cut short, too few keys are counted, which makes the next one
    /// come early.
    pub(crate) fn end_rebuilding(&self) {
        let mut sketches = self.sketches.lock();
        if let Some(rebuilt) = sketches.rebuilt.take() {
            sketches.stored = Some(rebuilt);
        }
        self.is_rebuilding.store(false, Ordering::Release);
    }

    /// The estimated number; `None` if it is unknown.
    pub(crate) fn count(&self) -> Option<u64> {
        self.sketches.lock().stored.as_ref().map(|stored| stored.raw_count().max(0.0) as u64)
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "a failed unwrap is a failed test")]

    use super::*;

    fn write(keys: &DistinctKeys, of: std::ops::Range<u64>) {
        keys.write(&of.map(|n| hash_of(&n.to_be_bytes())).collect::<Vec<_>>());
    }

    fn is_about(count: Option<u64>, expected: u64) -> bool {
        count.is_some_and(|count| count.abs_diff(expected) * 100 < expected * 6)
    }

    #[test]
    fn keys_count_once_and_those_that_a_compaction_removed_no_more() {
        let keys = DistinctKeys::default();
        write(&keys, 0..10);
        assert_eq!(keys.count(), None, "the tablet was not known to be empty");
        keys.start_empty();
        write(&keys, 0..100_000);
        write(&keys, 50_000..100_000);
        assert!(is_about(keys.count(), 100_000), "{:?}", keys.count());

        keys.begin_rebuilding();
        (0..20_000_u64).for_each(|n| keys.meet(&n.to_be_bytes()));
        write(&keys, 10_000..30_000);
        assert!(is_about(keys.count(), 100_000), "until it has ended: {:?}", keys.count());
        keys.end_rebuilding();
        assert!(is_about(keys.count(), 30_000), "{:?}", keys.count());
        (40_000..90_000_u64).for_each(|n| keys.meet(&n.to_be_bytes()));
        assert!(is_about(keys.count(), 30_000), "reads are not writes: {:?}", keys.count());
    }

    #[test]
    fn a_forgotten_number_comes_back_with_the_next_compaction_of_everything() {
        let keys = DistinctKeys::default();
        keys.start_empty();
        keys.begin_rebuilding();
        keys.forget();
        keys.end_rebuilding();
        assert_eq!(keys.count(), None);
        keys.begin_rebuilding();
        write(&keys, 0..10_000);
        keys.end_rebuilding();
        assert!(is_about(keys.count(), 10_000), "{:?}", keys.count());
    }
}
