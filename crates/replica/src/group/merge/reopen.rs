//! Opens a tablet again whose merge was cancelled.
//!
//! The catalog has decided that the other tablet does not serve in place of this one. The tablet's leader then proposes
//! an entry that opens the tablet again, whether it has been closed or not: after that entry the merge's `Close` has no
//! effect, wherever it is in the log.
//!
//! Always true: the entry acts on the merge that it names and on earlier ones; it does not undo the `Close` of a later
//! merge, even if it is applied late. Left out: the decision to cancel a merge (the catalog), and removing the rows
//! that the other tablet has taken over ([`super::MergeStep::Discard`]).

use crate::group::sealed::CLOSED;
use diorite_base::TabletId;
use diorite_base::bytes::{Malformed, Reader};
use diorite_raft::MarkedPayload;
use diorite_storage::{AppliedState, StorageError, TabletBatch, TabletData, absorbed_key};
use std::sync::Arc;

/// Marks the entry in its raft context. The entry's data is the number of the merge.
pub(crate) const REOPEN: &[u8] = b"reopen";

/// The number of the last cancelled merge of a tablet.
pub(super) fn given_up(tablet: TabletId, bytes: Option<&[u8]>) -> Result<Option<u64>, StorageError> {
    let corrupt = |Malformed| StorageError::Corrupt(format!("the number of the cancelled merge of {tablet}"));
    bytes.map(|bytes| Reader::new(bytes).u64().map_err(corrupt)).transpose()
}

/// Whether the tablet's data records that this merge was cancelled, so that the tablet serves as before.
pub fn has_given_up<T: TabletData>(tablet: TabletId, number: u64, data: &Arc<T>) -> Result<bool, StorageError> {
    let bytes = data.get(&absorbed_key(tablet.0))?;
    Ok(given_up(tablet, bytes.as_deref())?.is_some_and(|given_up| given_up >= number))
}

/// The entry that opens a tablet again.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Reopening {
    number: u64,
}

impl MarkedPayload for Reopening {
    const MARK: &'static [u8] = REOPEN;
    const MAX_BYTES: usize = 8;

    fn encode(&self) -> Vec<u8> {
        self.number.to_le_bytes().to_vec()
    }

    fn decode(bytes: &[u8]) -> Option<Self> {
        Reopening::decode(bytes).ok()
    }
}

impl Reopening {
    pub(crate) fn new(number: u64) -> Self {
        Self { number }
    }

    pub(crate) fn decode(bytes: &[u8]) -> Result<Self, Malformed> {
        let mut reader = Reader::new(bytes);
        let reopening = Self { number: reader.u64()? };
        if reader.is_empty() { Ok(reopening) } else { Err(Malformed) }
    }

    /// Applies the entry to a tablet with this data.
    pub(crate) fn apply<T: TabletData>(
        self,
        tablet: TabletId,
        data: &Arc<T>,
        batch: &mut T::Batch,
        state: &mut AppliedState,
    ) -> Result<(), StorageError> {
        if !has_given_up(tablet, self.number, data)? {
            batch.put(&absorbed_key(tablet.0), &self.number.to_le_bytes());
            state.flags &= !CLOSED;
        }
        Ok(())
    }
}
