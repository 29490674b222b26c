//! A tablet on RocksDB as the replica layer uses it.

use super::{Batch, PinnedValue, REMOVED_PASSED, Tablet, TabletAt, scan_options};
use crate::applied::AppliedState;
use crate::engine::{ScanRange, TabletData};
use crate::error::StorageError;
use crate::measured::{Measure, measured};
use rust_rocksdb::ErrorKind;
use std::sync::Arc;

impl TabletData for Tablet {
    type Batch = Batch;
    type Pinned = PinnedValue;
    type Snapshot = TabletAt;

    fn applied_state(&self) -> Result<AppliedState, StorageError> {
        Self::applied_state(self)
    }

    fn apply(&self, batch: &mut Batch, state: &AppliedState) -> Result<(), StorageError> {
        self.hangs[1].wait();
        Self::apply(self, batch, state)
    }

    fn make_durable(&self) -> Result<(), StorageError> {
        self.flush(true)
    }

    fn memory_bytes(&self) -> u64 {
        self.memtable_bytes()
    }

    fn snapshot(self: &Arc<Self>) -> TabletAt {
        TabletAt::new(self)
    }

    fn get(self: &Arc<Self>, key: &[u8]) -> Result<Option<PinnedValue>, StorageError> {
        self.hangs[0].wait();
        Self::get(self, key)
    }

    fn unfolded_bytes(self: &Arc<Self>, key: &[u8]) -> Result<u64, StorageError> {
        measured(Measure::Parts, || Self::get(self, key))
    }

    fn folded_bytes(self: &Arc<Self>, key: &[u8]) -> Result<u64, StorageError> {
        measured(Measure::Whole, || Self::get(self, key))
    }

    fn scan(&self, range: &ScanRange<'_>, visit: &mut dyn FnMut(&[u8], &[u8]) -> bool) -> Result<bool, StorageError> {
        Self::scan(self, range, visit)
    }

    fn scan_briefly(
        &self,
        range: &ScanRange<'_>,
        visit: &mut dyn FnMut(&[u8], &[u8]) -> bool,
    ) -> Result<bool, StorageError> {
        let mut options = scan_options(range);
        options.set_max_skippable_internal_keys(REMOVED_PASSED);
        match self.iterate(options, range, visit) {
            Err(StorageError::Engine(error)) if error.kind() == ErrorKind::Incomplete => Ok(false),
            ended => ended.map(|_| true),
        }
    }
}
