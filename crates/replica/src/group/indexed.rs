//! The entries of a tablet's indexes, written in the batches of its rows.
//!
//! Always true: whatever is put or merged under the key of a row, by a write, a program or a merge of tablets, has its
//! index entries in the same batch. Without indexes that costs one comparison for each value. Left out: what an entry
//! is ([`diorite_base::row_index`]).

use crate::group::samples::KeySamples;
use crate::group::view::View;
use crate::progress::WorkProgress;
use diorite_base::mutation::Evaluator;
use diorite_base::row_index::RowIndexes;
use diorite_storage::{StorageError, TabletBatch, TabletData};
use std::sync::Arc;

/// A batch to which index entries are added.
pub(super) struct IndexedBatch<'a, B> {
    pub(super) batch: &'a mut B,
    indexes: Option<&'a dyn RowIndexes>,
}

impl<'a, B: TabletBatch> IndexedBatch<'a, B> {
    pub(super) fn new(batch: &'a mut B, indexes: Option<&'a dyn RowIndexes>) -> Self {
        Self { batch, indexes }
    }

    pub(super) fn put(&mut self, key: &[u8], value: &[u8]) {
        self.batch.put(key, value);
        self.index(key, value);
    }

    pub(super) fn merge(&mut self, key: &[u8], value: &[u8]) {
        self.batch.merge(key, value);
        self.index(key, value);
    }

    fn index(&mut self, key: &[u8], value: &[u8]) {
        let Some(indexes) = self.indexes else { return };
        let batch = &mut *self.batch;
        indexes.entries(key, value, &mut |key, value, is_merged| match is_merged {
            true => batch.merge(key, value),
            false => batch.put(key, value),
        });
    }
}

/// The indexes that a tablet's data specifies.
pub(super) fn indexes_of<T: TabletData>(
    data: &Arc<T>,
    evaluator: &dyn Evaluator,
    flags: u64,
) -> Result<Option<Arc<dyn RowIndexes>>, StorageError> {
    let (samples, progress) = (KeySamples::default(), WorkProgress::default());
    let view = View { data, samples: &samples, nth: 0, progress: &progress };
    evaluator.row_indexes(flags, &view).map_err(|failed| StorageError::Corrupt(failed.to_string()))
}
