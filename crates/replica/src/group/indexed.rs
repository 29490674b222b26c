//! The entries of a tablet's indexes, written in the batches of its rows.
//!
//! Always true: whatever is put or merged under the key of a row, by a write, a program or a merge of tablets, has its
//! index entries in the same batch, or its tablet's indexes are incomplete from that row on. Entries are left out if one
//! entry of the log would write more than [`MAX_INDEX_BYTES`] of them: that follows from the entry, so it is the same on
//! every replica. The leader refuses such writes before the log ([`admitted`]); they remain for rows that another tablet
//! has taken, for programs whose values depend on rows, and for writes beside the step that begins an index. Without
//! indexes all this costs two comparisons for each value. Left out: what an entry is ([`diorite_base::row_index`]).

#[cfg(test)]
mod tests;

use crate::group::samples::KeySamples;
use crate::group::view::View;
use crate::progress::WorkProgress;
use diorite_base::limits::{self, INDEX_BYTES, MAX_INDEX_BYTES};
use diorite_base::mutation::{Body, EvaluationFailed, Evaluator, Mutation, MutationRef, TabletChanges, TabletView};
use diorite_base::row_index::{FIRST_ROW_KEY, RECORD_PREFIX, RowIndexes};
use diorite_base::write::KvError;
use diorite_storage::{StorageError, TabletBatch, TabletData};
use diorite_transact::maintained::is_unmaintained;
use diorite_transact::message::Program;
use diorite_transact::wire::Call;
use std::sync::Arc;

/// A batch with more bytes of index entries is written before the next entry of the log is applied.
const BATCH_BYTES: usize = 16 << 20;

/// The index entries of a batch.
#[derive(Debug, Default)]
pub(super) struct IndexAccount {
    /// The bytes that the entry of the log which is being applied has added.
    entry_bytes: usize,
    batch_bytes: usize,
    /// The smallest key of a row without its index entries.
    left_out: Option<Vec<u8>>,
    /// The batch may change what the tablet records of its indexes.
    changes_records: bool,
}

impl IndexAccount {
    /// The next entry of the log begins.
    pub(super) fn begin_entry(&mut self) {
        self.entry_bytes = 0;
    }

    /// The batch has been written, or dropped.
    pub(super) fn begin_batch(&mut self) {
        (self.batch_bytes, self.left_out, self.changes_records) = (0, None, false);
    }

    /// Whether the batch is to be written now.
    pub(super) fn is_full(&self) -> bool {
        self.batch_bytes > BATCH_BYTES
    }

    /// Whether the batch may change what the tablet records of its indexes. Asked when it is closed.
    pub(super) fn changes_records(&self) -> bool {
        self.changes_records
    }

    /// Before the batch is written: if index entries were left out, the indexes become incomplete.
    pub(super) fn close(
        &mut self,
        evaluator: &dyn Evaluator,
        view: &dyn TabletView,
        batch: &mut impl TabletBatch,
    ) -> Result<(), StorageError> {
        let Some(from) = self.left_out.take() else { return Ok(()) };
        self.changes_records = true;
        let again = evaluator.index_again(&from, view, &mut Records(batch));
        again.map_err(|EvaluationFailed(error)| StorageError::Corrupt(error))
    }

    fn leave_out(&mut self, key: &[u8]) {
        if self.left_out.as_deref().is_none_or(|first| key < first) {
            self.left_out = Some(key.to_vec());
        }
    }
}

/// Changes of the tablet's own records.
struct Records<'a, B>(&'a mut B);

impl<B: TabletBatch> TabletChanges for Records<'_, B> {
    fn put(&mut self, key: &[u8], value: &[u8]) {
        self.0.put(key, value);
    }

    fn merge(&mut self, key: &[u8], value: &[u8]) {
        self.0.merge(key, value);
    }

    fn delete(&mut self, key: &[u8]) {
        self.0.delete(key);
    }

    fn delete_range(&mut self, start: &[u8], end: &[u8]) {
        self.0.delete_range(start, end);
    }

    fn raise_flags(&mut self, _: u64) {}

    fn raise_stamps(&mut self, _: i64, _: i64) {}
}

/// A batch to which index entries are added.
pub(super) struct IndexedBatch<'a, B> {
    pub(super) batch: &'a mut B,
    account: &'a mut IndexAccount,
    indexes: Option<&'a dyn RowIndexes>,
}

impl<'a, B: TabletBatch> IndexedBatch<'a, B> {
    pub(super) fn new(batch: &'a mut B, account: &'a mut IndexAccount, indexes: Option<&'a dyn RowIndexes>) -> Self {
        Self { batch, account, indexes }
    }

    pub(super) fn put(&mut self, key: &[u8], value: &[u8]) {
        self.batch.put(key, value);
        self.index(key, value);
    }

    pub(super) fn merge(&mut self, key: &[u8], value: &[u8]) {
        self.batch.merge(key, value);
        self.index(key, value);
    }

    pub(super) fn delete(&mut self, key: &[u8]) {
        self.account.changes_records |= key.starts_with(&RECORD_PREFIX);
        self.batch.delete(key);
    }

    pub(super) fn delete_range(&mut self, start: &[u8], end: &[u8]) {
        self.account.changes_records |= start < FIRST_ROW_KEY.as_slice();
        self.batch.delete_range(start, end);
    }

    fn index(&mut self, key: &[u8], value: &[u8]) {
        if key.starts_with(&RECORD_PREFIX) {
            self.account.changes_records = true;
            return;
        }
        let Some(indexes) = self.indexes else { return };
        let left = MAX_INDEX_BYTES.saturating_sub(self.account.entry_bytes);
        if indexes.most_bytes(key.len(), value.len()) > left && indexes.size_bytes(key, value, left) > left {
            return self.account.leave_out(key);
        }
        let (batch, mut bytes) = (&mut *self.batch, 0);
        indexes.entries(key, value, &mut |key, value, is_merged| {
            bytes += key.len() + value.len();
            match is_merged {
                true => batch.merge(key, value),
                false => batch.put(key, value),
            }
        });
        self.account.entry_bytes += bytes;
        self.account.batch_bytes += bytes;
    }
}

/// About how many bytes of index entries follow from a write, and no fewer, beside `others` that share its entry of the
/// log. They are counted only if they may be too many.
///
/// # Errors
/// If they are more than [`MAX_INDEX_BYTES`], or if the write takes no notice of a unique index.
pub(crate) fn admitted(
    mutation: &Mutation,
    others: usize,
    (indexes, evaluator): (Option<&dyn RowIndexes>, &dyn Evaluator),
) -> Result<usize, KvError> {
    let Some(indexes) = indexes else { return Ok(0) };
    if is_unmaintained(mutation, indexes, evaluator) {
        return Err(KvError::Unmaintained);
    }
    // No key and no value of the write is longer than all of it.
    let most = indexes.most_bytes(mutation.size_bytes(), mutation.size_bytes());
    if others.saturating_add(most) <= MAX_INDEX_BYTES {
        return Ok(most);
    }
    let Ok(decoded) = MutationRef::decode(mutation.as_bytes()) else { return Ok(most) };
    let mut bytes = 0;
    match decoded.body() {
        Body::Blind(operations) => {
            for operation in operations.flatten() {
                if bytes <= MAX_INDEX_BYTES {
                    bytes += indexes.size_bytes(operation.key, operation.value, MAX_INDEX_BYTES);
                }
            }
        }
        Body::Evaluated(program) => bytes = evaluator.index_bytes(program, indexes, MAX_INDEX_BYTES),
        Body::Request(call) => {
            if let Some(Program(program)) = Call::program_of(call) {
                bytes = evaluator.index_bytes(&program, indexes, MAX_INDEX_BYTES);
            }
        }
        Body::Step(_) => {}
    }
    let what = || "what a write adds to the indexes of a tablet".to_owned();
    limits::check(&INDEX_BYTES, bytes, what).map_err(|exceeded| KvError::TooLarge(exceeded.to_string()))?;
    Ok(bytes)
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
