//! The storage engine that the replica layer uses. RocksDB with raft-engine is one; the memory engine, whose crashes
//! can be staged, is another.

use crate::applied::AppliedState;
use crate::error::StorageError;
use diorite_base::GroupId;
use diorite_raft::{ConfState, Entry, HardState, LogPosition, LogReader, Recovered};
use std::ops::Deref;
use std::sync::Arc;

/// A key range to be scanned.
#[derive(Debug, Clone, Copy)]
pub struct ScanRange<'a> {
    /// The first key, inclusive.
    pub start: &'a [u8],
    /// The end, exclusive.
    pub end: &'a [u8],
    /// Whether the scan goes from the end to the start.
    pub reverse: bool,
    /// The expected number of entries: long scans do not fill the cache.
    pub expected_entries: usize,
}

/// Changes to a tablet, to be written atomically.
pub trait TabletBatch: Default + Send {
    /// Replaces the value of `key`.
    fn put(&mut self, key: &[u8], value: &[u8]);
    /// Merges `operand` into the value of `key`.
    fn merge(&mut self, key: &[u8], operand: &[u8]);
    /// Removes `key`.
    fn delete(&mut self, key: &[u8]);
    /// Removes every key of `start..end`.
    fn delete_range(&mut self, start: &[u8], end: &[u8]);
    /// Empties the batch, and keeps its buffer for reuse.
    fn clear(&mut self);
}

/// The data of one tablet replica: one thread writes, any thread reads.
pub trait TabletData: Send + Sync + 'static {
    /// Changes to be written atomically.
    type Batch: TabletBatch;
    /// A value that stays readable while this is held.
    type Pinned: Deref<Target = [u8]> + Send;
    /// The tablet as it was at one moment.
    type Snapshot: TabletSnapshot;

    /// The applied state.
    fn applied_state(&self) -> Result<AppliedState, StorageError>;
    /// Writes `batch` and the state that it leads to, atomically; a later flush makes it durable. May keep the batch's
    /// buffer for reuse.
    fn apply(&self, batch: &mut Self::Batch, state: &AppliedState) -> Result<(), StorageError>;
    /// Makes applied writes durable.
    fn make_durable(&self) -> Result<(), StorageError>;
    /// The approximate number of bytes that a crash would lose, and that the log would have to replay.
    fn memory_bytes(&self) -> u64 {
        0
    }
    /// The tablet as it is now. What is deleted later is kept while this is held.
    fn snapshot(self: &Arc<Self>) -> Self::Snapshot;
    /// Reads a value, from disk if necessary.
    fn get(self: &Arc<Self>, key: &[u8]) -> Result<Option<Self::Pinned>, StorageError>;
    /// The size of the operands that a read of `key` merges, bytes; finding it needs no further memory. Not less than
    /// [`Self::folded_bytes`], except for the bytes with which cells and elements keep their own timestamps.
    fn unfolded_bytes(self: &Arc<Self>, key: &[u8]) -> Result<u64, StorageError> {
        self.folded_bytes(key)
    }
    /// The size of the merged value of `key`; finding it needs at most [`Self::unfolded_bytes`] of memory.
    fn folded_bytes(self: &Arc<Self>, key: &[u8]) -> Result<u64, StorageError> {
        Ok(self.get(key)?.map_or(0, |value| value.len() as u64))
    }
    /// Calls `visit` with each entry of the range until it returns false. Returns whether the range was exhausted.
    fn scan(&self, range: &ScanRange<'_>, visit: &mut dyn FnMut(&[u8], &[u8]) -> bool) -> Result<bool, StorageError>;
    /// As [`Self::scan`], but stops early where many removed entries follow one another. Returns false if it stopped
    /// early, and true if `visit` has seen all entries or has returned false.
    fn scan_briefly(
        &self,
        range: &ScanRange<'_>,
        visit: &mut dyn FnMut(&[u8], &[u8]) -> bool,
    ) -> Result<bool, StorageError> {
        self.scan(range, visit).map(|_| true)
    }
}

/// A tablet as it was at one moment, for any thread.
pub trait TabletSnapshot: Send + Sync + 'static {
    /// Reads a value, from disk if necessary.
    fn get(&self, key: &[u8]) -> Result<Option<Vec<u8>>, StorageError>;
    /// As [`TabletData::scan`]. Rows of which nothing is left may be passed over.
    fn scan(&self, range: &ScanRange<'_>, visit: &mut dyn FnMut(&[u8], &[u8]) -> bool) -> Result<bool, StorageError>;
}

/// Records of any number of groups, to be written to a log together.
pub trait LogRecords: Default + Send {
    /// Appends entries of one group; they replace the log's entries from the index of the first one on. `commit` is a
    /// known commit index, or 0: as long as the last of these entries is the log's last, recovery takes at least
    /// `commit` as committed.
    fn append(&mut self, group: GroupId, entries: &[Entry], commit: u64) -> Result<(), StorageError>;
    /// Records a group's term, vote and commit index.
    fn set_hard_state(&mut self, group: GroupId, state: &HardState) -> Result<(), StorageError>;
    /// Records a group's voters and learners.
    fn set_conf_state(&mut self, group: GroupId, state: &ConfState) -> Result<(), StorageError>;
    /// Drops a group's entries up to and including `index`, whose term is kept. `is_end`: the log holds none after it.
    fn truncate_to(&mut self, group: GroupId, index: u64, term: u64, is_end: bool) -> Result<(), StorageError>;
    /// Drops all of a group's entries, the last of which has index `last`, and continues after `index`, whose term is
    /// kept: the data contains everything up to there.
    fn restart_after(&mut self, group: GroupId, last: u64, index: u64, term: u64) -> Result<(), StorageError>;
    /// Drops all of a group's records.
    fn remove(&mut self, group: GroupId);
    /// Drops all of a group's records except those that must outlive a replica which leaves: its term and vote, and the
    /// position of the last entry that it may have acknowledged.
    fn retire(&mut self, group: GroupId, state: &HardState, floor: LogPosition) -> Result<(), StorageError>;
    /// Records the floor of a group's replica ([`Recovered::floor`]).
    fn set_floor(&mut self, group: GroupId, floor: LogPosition) -> Result<(), StorageError>;
    /// Whether there is no record to write.
    fn is_empty(&self) -> bool;
}

/// The Raft log of one disk, shared by its tablets.
pub trait Log: Send + Sync + 'static {
    /// Records to be written atomically.
    type Records: LogRecords;
    /// Reads one group's entries.
    type Reader: LogReader + Send;

    /// Writes and empties `records`; with `sync`, durable when it returns. Returns the bytes written.
    fn write(&self, records: &mut Self::Records, sync: bool) -> Result<usize, StorageError>;
    /// The state of a group according to the log; `applied` is not set, as only the tablet's data records it.
    fn recover(&self, group: GroupId) -> Result<Recovered, StorageError>;
    /// A reader of one group's entries.
    fn reader(&self, group: GroupId) -> Self::Reader;
}

/// A storage engine: the forms of tablets and of the Raft log.
pub trait Engine: Send + Sync + 'static {
    /// A tablet's data.
    type Tablet: TabletData;
    /// The Raft log of one disk.
    type Log: Log;
}
