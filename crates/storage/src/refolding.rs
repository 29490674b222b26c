//! Notes when reads merge many operands of one key again and again, and asks for a flush that stores them as one.
//!
//! A flush merges the operands of each key that are in memory into one, beside the read and write paths. It changes how
//! a value is stored, never the value. It is worth its cost once reads have merged as many bytes as it will write.
//!
//! Always true: a key with few operands is never noted, and costs one comparison; no clock is read. Left out: operands
//! in files, of which each file holds one per key, and compactions, which merge those.

use std::sync::atomic::{AtomicU64, Ordering};

/// The smallest number of operands of a key that is noted.
const MANY_OPERANDS: usize = 256;

/// The approximate memory of an operand beside its own bytes: its key, its node, the pointer to it.
const OPERAND_BYTES: u64 = 64;

/// A flush is not worth it below this many bytes.
const LEAST_BYTES: u64 = 4 << 20;

/// The bytes that reads have merged since the last flush that was due because of them.
#[derive(Debug, Default)]
pub(crate) struct Refolding {
    bytes: AtomicU64,
    /// The most bytes that a single read has merged.
    largest_bytes: AtomicU64,
}

impl Refolding {
    /// Notes that a read merged operands of a key.
    #[inline]
    pub(crate) fn note<'a>(&self, count: usize, operands: impl Iterator<Item = &'a [u8]>) {
        if count >= MANY_OPERANDS {
            let bytes = operands.map(|operand| operand.len() as u64 + OPERAND_BYTES).sum();
            self.bytes.fetch_add(bytes, Ordering::Relaxed);
            self.largest_bytes.fetch_max(bytes, Ordering::Relaxed);
        }
    }

    /// Whether a flush is due, with this many bytes in memory. Returns true once; then counting begins anew.
    pub(crate) fn wants_flush(&self, memory_bytes: impl FnOnce() -> u64) -> bool {
        let bytes = self.bytes.load(Ordering::Relaxed);
        if bytes < LEAST_BYTES {
            return false;
        }
        let memory_bytes = memory_bytes();
        if bytes < memory_bytes {
            return false;
        }
        self.bytes.store(0, Ordering::Relaxed);
        // A read that merged more than the memtables hold has read files, where a flush does not help.
        self.largest_bytes.swap(0, Ordering::Relaxed) / 2 <= memory_bytes
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(refolding: &Refolding, count: usize) {
        refolding.note(count, std::iter::repeat_n(&[0u8; 100][..], count));
    }

    #[test]
    fn reads_pay_for_a_flush_before_they_get_one() {
        let refolding = Refolding::default();
        // 255 operands are too few to be noted, however often they are read.
        (0..100_000).for_each(|_| read(&refolding, 255));
        assert!(!refolding.wants_flush(|| 1));
        // 1.6 MB a read: the third read exceeds the least that a flush is worth.
        (0..2).for_each(|_| read(&refolding, 10_000));
        assert!(!refolding.wants_flush(|| 1 << 20));
        read(&refolding, 10_000);
        assert!(!refolding.wants_flush(|| 64 << 20), "writing all this would take longer than the reads did");
        assert!(refolding.wants_flush(|| 2 << 20));
        assert!(!refolding.wants_flush(|| 2 << 20), "it was due before, and is due once");
    }

    #[test]
    fn operands_in_files_are_not_flushed_for() {
        let refolding = Refolding::default();
        (0..10).for_each(|_| read(&refolding, 10_000));
        assert!(!refolding.wants_flush(|| 64 << 10));
        assert!(!refolding.wants_flush(|| 2 << 20));
    }
}
