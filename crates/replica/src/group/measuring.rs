//! Measures rows, on a thread beside the store threads, so that no write waits.
//!
//! Always true: the operands of a row are merged to measure it only if their sizes together exceed the limit, and the
//! memory for that is charged to the node's account of requests first; a measurement that waits does not keep its
//! tablet open. Left out: which rows are measured ([`crate::group::row_sizes`]).

use diorite_base::TabletId;
use diorite_base::account::{Account, Refused};
use diorite_base::limits::MAX_ROW_BYTES;
use diorite_raft::Term;
use diorite_storage::{StorageError, TabletData};
use std::sync::{Arc, Weak};

/// The name of a row: its tablet, and hashes in place of its key. The hashes have secret keys and 128 bits together, so
/// that no two rows have the same name, not even on purpose. No effect may depend on their order.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(crate) struct RowName {
    pub(crate) tablet: TabletId,
    pub(crate) hashes: [u64; 2],
}

/// A row that is to be measured.
pub(crate) struct Wanted {
    pub(crate) name: RowName,
    /// The number of the measurement.
    pub(crate) number: u64,
    /// The term in which this node has led.
    pub(crate) term: Term,
    /// The row is measured once this index is applied; `None` while its entry is being proposed.
    pub(crate) after: Option<u64>,
    pub(crate) key: Vec<u8>,
}

/// A row to be measured, see [`crate::Core::take_measurements`].
pub struct SizeRead<T> {
    wanted: Wanted,
    data: Weak<T>,
}

/// The size of a row, for [`crate::Input`].
pub struct SizeAnswer {
    pub(crate) wanted: Wanted,
    /// `None` if the row could not be measured now.
    pub(crate) size_bytes: Result<Option<u64>, StorageError>,
}

impl<T: TabletData> SizeRead<T> {
    pub(crate) fn new(wanted: Wanted, data: &Arc<T>) -> Self {
        Self { wanted, data: Arc::downgrade(data) }
    }

    /// Measures the row; waits for the disk. The memory that this takes is charged to `account`, if there is one.
    pub fn carry_out(self, account: Option<&Arc<Account>>) -> SizeAnswer {
        let size_bytes = self.data.upgrade().map_or(Ok(None), |data| measure(&data, &self.wanted.key, account));
        SizeAnswer { wanted: self.wanted, size_bytes }
    }
}

fn measure<T: TabletData>(
    data: &Arc<T>,
    key: &[u8],
    account: Option<&Arc<Account>>,
) -> Result<Option<u64>, StorageError> {
    let unfolded_bytes = data.unfolded_bytes(key)?;
    if unfolded_bytes <= MAX_ROW_BYTES as u64 {
        return Ok(Some(unfolded_bytes));
    }
    let bytes = usize::try_from(unfolded_bytes).unwrap_or(usize::MAX);
    match account.map(|account| account.charge(bytes)).transpose() {
        Ok(_charge) => data.folded_bytes(key).map(Some),
        Err(Refused::Full { .. }) => Ok(None),
        // No read of these operands fits into this node's memory, whatever size they merge to.
        Err(Refused::TooLarge { .. }) => Ok(Some(unfolded_bytes)),
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "test data is known")]

    use super::*;
    use diorite_storage::{AppliedState, MemoryBatch, MemorySnapshot, MemoryTablet, ScanRange, TabletBatch};

    /// A tablet whose values have this many more bytes before their operands are merged.
    struct Unfolded(Arc<MemoryTablet>, u64);

    impl TabletData for Unfolded {
        type Batch = MemoryBatch;
        type Pinned = Arc<[u8]>;
        type Snapshot = MemorySnapshot;

        fn applied_state(&self) -> Result<AppliedState, StorageError> {
            self.0.applied_state()
        }

        fn apply(&self, batch: &mut MemoryBatch, state: &AppliedState) -> Result<(), StorageError> {
            self.0.apply(batch, state)
        }

        fn make_durable(&self) -> Result<(), StorageError> {
            self.0.make_durable()
        }

        fn snapshot(self: &Arc<Self>) -> MemorySnapshot {
            self.0.snapshot()
        }

        fn get(self: &Arc<Self>, key: &[u8]) -> Result<Option<Arc<[u8]>>, StorageError> {
            self.0.get(key)
        }

        fn unfolded_bytes(self: &Arc<Self>, key: &[u8]) -> Result<u64, StorageError> {
            Ok(self.folded_bytes(key)? + self.1)
        }

        fn scan(&self, _: &ScanRange<'_>, _: &mut dyn FnMut(&[u8], &[u8]) -> bool) -> Result<bool, StorageError> {
            unreachable!("rows are measured one by one")
        }
    }

    #[test]
    fn a_row_is_folded_only_if_it_may_be_too_large_and_there_is_memory() {
        let tablet = Arc::new(MemoryTablet::new(None));
        let mut batch = MemoryBatch::default();
        batch.put(b"key", &[7; 1_000]);
        tablet.apply(&mut batch, &AppliedState::default()).unwrap();
        let account = Account::root("all requests", 100 << 20);
        let size = |more_bytes: u64| {
            let data = Arc::new(Unfolded(Arc::clone(&tablet), more_bytes));
            let name = RowName { tablet: TabletId(7), hashes: [1, 2] };
            let wanted = Wanted { name, number: 1, term: Term(1), after: Some(1), key: b"key".to_vec() };
            let answer = SizeRead::new(wanted, &data).carry_out(Some(&account));
            assert_eq!(account.used_bytes(), 0, "the charge has ended");
            answer.size_bytes.unwrap()
        };
        let limit = MAX_ROW_BYTES as u64;
        assert_eq!(size(limit - 1_000), Some(limit), "the operands are within the limit");
        assert_eq!(size(limit), Some(1_000), "the operands exceed the limit, and the row does not");
        assert_eq!(size(200 << 20), Some((200 << 20) + 1_000), "no read of it would fit");
        let others = account.charge(90 << 20).unwrap();
        let name = RowName { tablet: TabletId(7), hashes: [1, 2] };
        let wanted = || Wanted { name, number: 1, term: Term(1), after: Some(1), key: b"key".to_vec() };
        let data = Arc::new(Unfolded(Arc::clone(&tablet), limit));
        let answer = SizeRead::new(wanted(), &data).carry_out(Some(&account));
        assert_eq!(answer.size_bytes.unwrap(), None, "there is no memory at the moment");
        drop(others);
        let read = SizeRead::new(wanted(), &data);
        drop(data);
        assert_eq!(read.carry_out(None).size_bytes.unwrap(), None, "its tablet is closed");
    }
}
