//! The changes that a tablet writes at once, and what it counts of them.

use crate::distinct_keys::hash_of;
use crate::engine::TabletBatch;
use crate::keys::is_about_the_tablet;
use rust_rocksdb::WriteBatch;

/// Changes to be written atomically.
#[derive(Default)]
pub struct Batch {
    pub(super) inner: WriteBatch,
    /// Whether ranges are deleted: RocksDB does not list the keys of such a batch.
    pub(super) deletes_ranges: bool,
    /// The hash of each key.
    pub(super) keys: Vec<u64>,
    /// The value of the first row.
    pub(super) sample: Vec<u8>,
}

impl Batch {
    fn note(&mut self, key: &[u8], value: &[u8]) {
        if is_about_the_tablet(key) {
            return;
        }
        if self.keys.is_empty() {
            self.sample.extend_from_slice(value);
        }
        self.keys.push(hash_of(key));
    }
}

impl TabletBatch for Batch {
    fn put(&mut self, key: &[u8], value: &[u8]) {
        self.note(key, value);
        self.inner.put(key, value);
    }

    fn merge(&mut self, key: &[u8], operand: &[u8]) {
        self.note(key, operand);
        self.inner.merge(key, operand);
    }

    fn delete(&mut self, key: &[u8]) {
        self.inner.delete(key);
    }

    fn delete_range(&mut self, start: &[u8], end: &[u8]) {
        self.inner.delete_range(start, end);
        self.deletes_ranges = true;
    }

    fn clear(&mut self) {
        self.inner.clear();
        self.deletes_ranges = false;
        self.keys.clear();
        self.sample.clear();
    }
}
