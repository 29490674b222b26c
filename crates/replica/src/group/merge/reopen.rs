//! A tablet that was to go stays: the merge was cancelled.
//!
//! The catalog has decided that the other tablet never stands in its place. Its leader then proposes an entry that opens it again, whether it has been closed or not:
//! what stands before the entry in the log, and the merge's `Close` wherever it comes, has no effect any more.
//!
//! Always true: the entry takes effect once, on the merge that it names and those before; a `Close` of a later merge is not undone by one that comes late.
//! Left out: who decides that a merge is cancelled (the catalog), and removing what the other tablet has taken in ([`super::MergeStep::Discard`]).

use crate::group::sealed::CLOSED;
use diorite_base::TabletId;
use diorite_base::bytes::{Malformed, Reader};
use diorite_raft::MarkedPayload;
use diorite_storage::{AppliedState, StorageError, TabletBatch, TabletData, absorbed_key};
use std::sync::Arc;

/// Marks the entry in its raft context. Its data is the number of the merge.
pub(crate) const REOPEN: &[u8] = b"reopen";

/// Up to which of its merges a tablet has given them up.
pub(super) fn given_up(tablet: TabletId, bytes: Option<&[u8]>) -> Result<Option<u64>, StorageError> {
    let corrupt = |Malformed| StorageError::Corrupt(format!("which merge {tablet} has given up"));
    bytes.map(|bytes| Reader::new(bytes).u64().map_err(corrupt)).transpose()
}

/// Whether a tablet that was to go has given up this merge, and so serves as before: its data says so.
pub fn has_given_up<T: TabletData>(tablet: TabletId, number: u64, data: &Arc<T>) -> Result<bool, StorageError> {
    let bytes = data.get(&absorbed_key(tablet.0))?;
    Ok(given_up(tablet, bytes.as_deref())?.is_some_and(|given_up| given_up >= number))
}

/// The entry.
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

    /// Carries it out on a tablet with this data.
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
