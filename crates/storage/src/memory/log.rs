//! The Raft log of one disk in memory, and the part of it that a crash leaves.

use crate::engine::{Log, LogRecords};
use crate::error::StorageError;
use crate::recorded::RecordedEntry;
use diorite_base::GroupId;
use diorite_raft::{ConfState, Entry, HardState, LogPosition, LogReadError, LogReader, Recovered, floor_without_log};
use parking_lot::Mutex;
use protobuf::Message;
use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;

/// The approximate size of a record beside its entry or state.
const RECORD_BYTES: usize = 16;

#[derive(Clone)]
enum Record {
    Append(GroupId, Vec<RecordedEntry>),
    HardState(GroupId, HardState),
    ConfState(GroupId, ConfState),
    /// Drops entries up to the first index, and continues after the second, which has that term.
    Restart(GroupId, u64, u64, u64),
    Remove(GroupId),
    /// Drops everything except term and vote and the last position that may have been acknowledged.
    Retire(GroupId, HardState, LogPosition),
    Floor(GroupId, LogPosition),
}

impl Record {
    fn size_bytes(&self) -> usize {
        RECORD_BYTES
            + match self {
                Record::Append(_, recorded) => recorded.iter().map(|recorded| recorded.compute_size() as usize).sum(),
                Record::HardState(_, state) => state.compute_size() as usize,
                Record::ConfState(_, state) => state.compute_size() as usize,
                Record::Restart(..) | Record::Remove(_) | Record::Retire(..) | Record::Floor(..) => 0,
            }
    }
}

/// Records of any number of groups, to be written atomically.
#[derive(Clone, Default)]
pub struct MemoryRecords {
    records: Vec<Record>,
}

impl LogRecords for MemoryRecords {
    fn append(&mut self, group: GroupId, entries: &[Entry], commit: u64) -> Result<(), StorageError> {
        if !entries.is_empty() {
            let mut recorded = Vec::new();
            RecordedEntry::all(entries, commit, &mut recorded);
            self.records.push(Record::Append(group, recorded));
        }
        Ok(())
    }

    fn set_hard_state(&mut self, group: GroupId, state: &HardState) -> Result<(), StorageError> {
        self.records.push(Record::HardState(group, state.clone()));
        Ok(())
    }

    fn set_conf_state(&mut self, group: GroupId, state: &ConfState) -> Result<(), StorageError> {
        self.records.push(Record::ConfState(group, state.clone()));
        Ok(())
    }

    fn truncate_to(&mut self, group: GroupId, index: u64, term: u64, _: bool) -> Result<(), StorageError> {
        self.restart_after(group, index, index, term)
    }

    fn restart_after(&mut self, group: GroupId, last: u64, index: u64, term: u64) -> Result<(), StorageError> {
        self.records.push(Record::Restart(group, last.max(index), index, term));
        Ok(())
    }

    fn remove(&mut self, group: GroupId) {
        self.records.push(Record::Remove(group));
    }

    fn retire(&mut self, group: GroupId, state: &HardState, floor: LogPosition) -> Result<(), StorageError> {
        self.records.push(Record::Retire(group, state.clone(), floor_without_log(floor, state)));
        Ok(())
    }

    fn set_floor(&mut self, group: GroupId, floor: LogPosition) -> Result<(), StorageError> {
        self.records.push(Record::Floor(group, floor));
        Ok(())
    }

    fn is_empty(&self) -> bool {
        self.records.is_empty()
    }
}

#[derive(Clone, Default)]
struct GroupRecords {
    hard_state: HardState,
    conf_state: ConfState,
    truncated: LogPosition,
    /// The entries, without gaps.
    entries: VecDeque<RecordedEntry>,
    floor: LogPosition,
}

impl GroupRecords {
    fn append(&mut self, recorded: &[RecordedEntry]) {
        let Some(first) = recorded.first().map(|recorded| recorded.entry.index) else { return };
        if let (Some(oldest), Some(newest)) = (self.entries.front(), self.entries.back()) {
            assert!(first >= oldest.entry.index, "what was dropped from the log is not written again");
            assert!(first <= newest.entry.index + 1, "the log has no gaps");
        }
        while self.entries.back().is_some_and(|recorded| recorded.entry.index >= first) {
            self.entries.pop_back();
        }
        self.entries.extend(recorded.iter().cloned());
    }

    fn recovered(&self) -> Recovered {
        let newest = self.entries.back().filter(|recorded| recorded.entry.index > self.truncated.index);
        let mut hard_state = self.hard_state.clone();
        hard_state.commit = hard_state.commit.max(newest.map_or(0, |recorded| recorded.commit));
        Recovered {
            hard_state,
            conf_state: self.conf_state.clone(),
            truncated: self.truncated,
            last: newest.map_or(self.truncated, |recorded| LogPosition::from(&recorded.entry)),
            applied: 0,
            floor: self.floor,
        }
    }
}

#[derive(Clone, Default)]
struct Groups(BTreeMap<GroupId, GroupRecords>);

impl Groups {
    fn take(&mut self, batch: &MemoryRecords) {
        for record in &batch.records {
            match record {
                Record::Append(group, recorded) => self.0.entry(*group).or_default().append(recorded),
                Record::HardState(group, state) => self.0.entry(*group).or_default().hard_state = state.clone(),
                Record::ConfState(group, state) => self.0.entry(*group).or_default().conf_state = state.clone(),
                Record::Restart(group, last, index, term) => {
                    let records = self.0.entry(*group).or_default();
                    records.truncated = LogPosition::new(*index, *term);
                    while records.entries.front().is_some_and(|recorded| recorded.entry.index <= *last) {
                        records.entries.pop_front();
                    }
                }
                Record::Remove(group) => {
                    self.0.remove(group);
                }
                Record::Retire(group, state, floor) => {
                    let kept = GroupRecords { hard_state: state.clone(), floor: *floor, ..GroupRecords::default() };
                    self.0.insert(*group, kept);
                }
                Record::Floor(group, floor) => self.0.entry(*group).or_default().floor = *floor,
            }
        }
    }
}

#[derive(Default)]
struct Contents {
    /// The written state.
    live: Groups,
    /// The durable state.
    durable: Groups,
    /// Batches written since the last sync, in order.
    unsynced: Vec<MemoryRecords>,
    /// The number of batches that are durable, of all batches ever written.
    synced: u64,
    /// The write under way: a crash may leave it, and it cannot be read yet.
    under_way: Option<MemoryRecords>,
    /// How many more writes succeed before the disk fails, if it is to fail.
    failing_after: Option<u64>,
}

/// The log of one disk; clones share it.
#[derive(Clone, Default)]
pub struct MemoryLog {
    contents: Arc<Mutex<Contents>>,
}

impl MemoryLog {
    /// Makes everything written so far durable.
    pub fn sync(&self) {
        self.sync_to(self.position());
    }

    /// The position that includes everything written by now.
    pub fn position(&self) -> u64 {
        let contents = self.contents.lock();
        contents.synced + contents.unsynced.len() as u64
    }

    /// Makes everything durable that was written up to this position.
    pub fn sync_to(&self, position: u64) {
        let contents = &mut *self.contents.lock();
        let count = position.saturating_sub(contents.synced).min(contents.unsynced.len() as u64);
        for batch in contents.unsynced.drain(..count as usize) {
            contents.durable.take(&batch);
        }
        contents.synced += count;
    }

    /// The number of batches that a crash now may lose.
    pub fn unsynced_batches(&self) -> usize {
        let contents = self.contents.lock();
        contents.unsynced.len() + usize::from(contents.under_way.is_some())
    }

    /// Begins a write and empties `records`: from now on a crash may leave them. They can be read after
    /// [`Self::end_write`]. There may be one write at a time.
    pub fn begin_write(&self, records: &mut MemoryRecords) -> Result<usize, StorageError> {
        let contents = &mut *self.contents.lock();
        assert!(contents.under_way.is_none(), "one write at a time");
        let batch = std::mem::take(records);
        match &mut contents.failing_after {
            Some(0) => {
                // The first write to fail was under way; the next ones find the power gone.
                contents.failing_after = Some(u64::MAX);
                contents.unsynced.push(batch);
                return Err(StorageError::Log("the write was cut".to_owned()));
            }
            Some(u64::MAX) => return Err(StorageError::Log("the disk is gone".to_owned())),
            Some(writes) => *writes -= 1,
            None => {}
        }
        let size_bytes = batch.records.iter().map(Record::size_bytes).sum();
        contents.under_way = Some(batch);
        Ok(size_bytes)
    }

    /// Ends the write that [`Self::begin_write`] has begun; with `sync`, it and everything before it is durable.
    pub fn end_write(&self, sync: bool) {
        let contents = &mut *self.contents.lock();
        if let Some(batch) = contents.under_way.take() {
            contents.live.take(&batch);
            contents.unsynced.push(batch);
        }
        if sync {
            contents.synced += contents.unsynced.len() as u64;
            for batch in contents.unsynced.drain(..) {
                contents.durable.take(&batch);
            }
        }
    }

    /// Records durably, for every group with members except the catalog's, that the end of its log may be lost: see
    /// [`crate::RaftLog::forget_floors`].
    pub fn forget_floors(&self) {
        let contents = &mut *self.contents.lock();
        for groups in [&mut contents.live, &mut contents.durable] {
            let others = groups.0.iter_mut().filter(|(group, _)| **group != GroupId::CATALOG);
            let known = others.map(|(_, records)| records).filter(|records| !records.conf_state.voters.is_empty());
            known.for_each(|records| records.floor = records.recovered().floor_with_lost_end());
        }
    }

    /// Lets `writes` more writes succeed; `None` lets all succeed. The next one is cut by a loss of power: it fails,
    /// and its records remain as if they had not been synced. All later writes fail without having written anything.
    pub fn fail_after(&self, writes: Option<u64>) {
        self.contents.lock().failing_after = writes;
    }

    /// The log after a crash that spared the first `surviving` of the unsynced batches. Readers of this log are not
    /// affected.
    pub fn crash(&self, surviving: usize) -> Self {
        let contents = self.contents.lock();
        let mut durable = contents.durable.clone();
        for batch in contents.unsynced.iter().chain(&contents.under_way).take(surviving) {
            durable.take(batch);
        }
        let live = durable.clone();
        Self { contents: Arc::new(Mutex::new(Contents { live, durable, ..Contents::default() })) }
    }

    /// All groups that have records here.
    pub fn groups(&self) -> Vec<GroupId> {
        self.contents.lock().live.0.keys().copied().collect()
    }
}

impl Log for MemoryLog {
    type Records = MemoryRecords;
    type Reader = MemoryReader;

    fn write(&self, records: &mut MemoryRecords, sync: bool) -> Result<usize, StorageError> {
        let size_bytes = self.begin_write(records)?;
        self.end_write(sync);
        Ok(size_bytes)
    }

    fn recover(&self, group: GroupId) -> Result<Recovered, StorageError> {
        Ok(self.contents.lock().live.0.get(&group).map(GroupRecords::recovered).unwrap_or_default())
    }

    fn reader(&self, group: GroupId) -> MemoryReader {
        MemoryReader { contents: Arc::clone(&self.contents), group }
    }
}

/// Reads one group's entries.
pub struct MemoryReader {
    contents: Arc<Mutex<Contents>>,
    group: GroupId,
}

impl LogReader for MemoryReader {
    fn entries(&self, low: u64, high: u64, max_bytes: u64) -> Result<Vec<Entry>, LogReadError> {
        let contents = self.contents.lock();
        let Some(records) = contents.live.0.get(&self.group).filter(|_| low < high) else { return Ok(Vec::new()) };
        let (Some(oldest), Some(newest)) = (records.entries.front(), records.entries.back()) else {
            return Err(LogReadError::Damaged("entry not found".to_owned()));
        };
        if low < oldest.entry.index {
            return Err(LogReadError::Damaged("entry compacted".to_owned()));
        }
        if high > newest.entry.index + 1 {
            return Err(LogReadError::Damaged("entry not found".to_owned()));
        }
        let start = (low - oldest.entry.index) as usize;
        let mut entries = Vec::new();
        let mut total_bytes = 0;
        for recorded in records.entries.range(start..start + (high - low) as usize) {
            total_bytes += u64::from(recorded.compute_size());
            if total_bytes > max_bytes && !entries.is_empty() {
                break;
            }
            entries.push(recorded.entry.clone());
        }
        Ok(entries)
    }
}
