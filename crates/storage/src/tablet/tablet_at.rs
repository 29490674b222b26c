//! A tablet as it was at one moment, for as long as it is held.
//!
//! Always true: all reads see the same batches. Compaction keeps what they see, except values that it removes because
//! they have ended: RocksDB's compaction filters do not know of snapshots. So a snapshot holds files and memory back:
//! whoever takes one bounds how many there are and how long they live.

use super::{Tablet, scan_options};
use crate::engine::{ScanRange, TabletSnapshot};
use crate::error::StorageError;
use rust_rocksdb::{ReadOptions, Snapshot};
use std::sync::Arc;

/// See the top of this module.
pub struct TabletAt {
    // The options refer to the snapshot, and the snapshot to the tablet: fields are dropped in this order.
    options: ReadOptions,
    snapshot: Snapshot<'static>,
    tablet: Arc<Tablet>,
}

impl TabletAt {
    pub(super) fn new(tablet: &Arc<Tablet>) -> Self {
        let snapshot = tablet.db.snapshot();
        // SAFETY: the snapshot borrows from `tablet.db`, which lives in the Arc that the result holds beside it and
        // which is dropped after the snapshot; the snapshot never leaves `TabletAt`.
        let snapshot = unsafe { std::mem::transmute::<Snapshot<'_>, Snapshot<'static>>(snapshot) };
        let mut options = ReadOptions::default();
        options.set_snapshot(&snapshot);
        Self { options, snapshot, tablet: Arc::clone(tablet) }
    }
}

impl TabletSnapshot for TabletAt {
    fn get(&self, key: &[u8]) -> Result<Option<Vec<u8>>, StorageError> {
        Ok(self.tablet.db.get_pinned_opt(key, &self.options)?.map(|slice| slice.to_vec()))
    }

    fn scan(&self, range: &ScanRange<'_>, visit: &mut dyn FnMut(&[u8], &[u8]) -> bool) -> Result<bool, StorageError> {
        let mut options = scan_options(range);
        options.set_snapshot(&self.snapshot);
        self.tablet.iterate(options, range, visit)
    }
}
