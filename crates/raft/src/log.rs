//! What a group needs of its log, and the view of it that the consensus core reads.
//!
//! Entries that are not applied yet stay in memory, so that the usual turn never reads the log back; older ones come
//! through [`LogReader`], those for other members beside the turns (see [`crate::Fetch`]).

use crate::fetches::Fetches;
use crate::position::LogPosition;
use raft::eraftpb::{ConfState, Entry, HardState, Snapshot};
use raft::{Error, GetEntriesContext, RaftState, Result, Storage, StorageError};
use std::cell::{RefCell, RefMut};
use std::collections::{BTreeSet, VecDeque};

/// Why entries could not be read back.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum LogReadError {
    /// They are damaged, or missing where the log should hold them: to try again does not help.
    #[error("{0}")]
    Damaged(String),
    /// The system refused: space, file descriptors, an error of the disk.
    #[error("{0}")]
    Failed(String),
}

/// Reads back entries of one group from the durable log.
pub trait LogReader {
    /// Entries `low..high`, all of which are durable and not compacted away; stops early past `max_bytes` (at least one is returned).
    fn entries(&self, low: u64, high: u64, max_bytes: u64) -> std::result::Result<Vec<Entry>, LogReadError>;
}

/// A group's durable state as found at start.
#[derive(Debug, Clone, Default)]
pub struct Recovered {
    /// Term, vote and commit index.
    pub hard_state: HardState,
    /// The voters and learners.
    pub conf_state: ConfState,
    /// The last entry that was compacted away; [`LogPosition::START`] if none was.
    pub truncated: LogPosition,
    /// The last entry in the log; equal to `truncated` if the log holds none.
    pub last: LogPosition,
    /// The last index applied to the durable state machine.
    pub applied: u64,
    /// The last entry that this replica may have acknowledged before its log was removed; [`LogPosition::START`] if it never was. As long as its log is
    /// behind that, by term and then by index, the replica is like one whose disk has lost what it promised: it may listen, but neither
    /// vote nor campaign. Term and vote it still knows. So a leader that it follows is of no earlier term than any that it acknowledged anything to, and was
    /// elected by others; that leader's log holds everything that was committed with its help. Once its own log reaches the floor again, or has an entry of a later term than
    /// that, it holds all of this too.
    ///
    /// [`UNKNOWN_FLOOR`]: the end of the log may be lost, and nobody knows how far it went. Of a log that is gone, or is not whole otherwise, see [`floor_without_log`].
    pub floor: LogPosition,
}

/// The floor of a replica whose log may have lost its end: how far it has acknowledged is not known until a leader says how far that can be at most.
pub const UNKNOWN_FLOOR: LogPosition = LogPosition::new(u64::MAX, u64::MAX);

/// What [`Recovered::floor`] is once the log is gone of a replica that may have acknowledged up to `floor`. If that is not known, it is any entry of the current term:
/// [`UNKNOWN_FLOOR`] would let the replica judge whoever asks for its vote by what the others' logs hold, as if its own still held all that was durable.
pub fn floor_without_log(floor: LogPosition, state: &HardState) -> LogPosition {
    if floor == UNKNOWN_FLOOR { LogPosition::new(UNKNOWN_FLOOR.index, state.term) } else { floor }
}

/// The log as the consensus core sees it.
pub(crate) struct LogView<L> {
    reader: L,
    hard_state: HardState,
    conf_state: ConfState,
    truncated: LogPosition,
    last: LogPosition,
    /// The newest entries, contiguous, ending at `last`.
    recent: VecDeque<Entry>,
    /// Terms of the log from some index on to its end: where each begins. Asked for with every message, so that they must not be read back.
    terms: VecDeque<LogPosition>,
    /// Members that lack entries which are no longer in the log.
    lacking: RefCell<BTreeSet<u64>>,
    fetches: RefCell<Fetches>,
    floor: LogPosition,
}

impl Recovered {
    /// The later of what it may have acknowledged before and what its log holds: what a replica that goes away now must remember.
    pub fn last_acknowledged(&self) -> LogPosition {
        self.last.max(self.floor)
    }

    /// Its floor if the end of its log may be lost from now on.
    pub fn floor_with_lost_end(&self) -> LogPosition {
        if self.floor == UNKNOWN_FLOOR || self.last >= self.floor {
            return UNKNOWN_FLOOR;
        }
        // Its log was removed, and was not whole again.
        floor_without_log(UNKNOWN_FLOOR, &self.hard_state)
    }
}

impl<L: LogReader> LogView<L> {
    pub(crate) fn new(recovered: Recovered, reader: L) -> Self {
        assert!(recovered.truncated.index <= recovered.last.index, "a log ends after its start");
        Self {
            reader,
            hard_state: recovered.hard_state,
            conf_state: recovered.conf_state,
            truncated: recovered.truncated,
            last: recovered.last,
            recent: VecDeque::new(),
            terms: VecDeque::from([recovered.last]),
            lacking: RefCell::default(),
            fetches: RefCell::default(),
            floor: recovered.floor,
        }
    }

    pub(crate) fn floor(&self) -> LogPosition {
        self.floor
    }

    pub(crate) fn set_floor(&mut self, floor: LogPosition) {
        self.floor = floor;
    }

    /// Whether the durable log ends before what was acknowledged once.
    pub(crate) fn is_below_floor(&self) -> bool {
        self.last < self.floor
    }

    /// Takes entries that have become durable; they replace any from the first one's index on.
    pub(crate) fn append(&mut self, entries: Vec<Entry>) {
        let (Some(first), Some(last)) = (entries.first(), entries.last()) else { return };
        assert!(first.index <= self.last.index + 1, "the log has no gaps");
        self.last = LogPosition::from(last);
        while self.terms.back().is_some_and(|begin| begin.index >= first.index) {
            self.terms.pop_back();
        }
        for entry in &entries {
            if self.terms.back().is_none_or(|begin| begin.term != entry.term) {
                self.terms.push_back(LogPosition::from(entry));
            }
        }
        while self.recent.back().is_some_and(|entry| entry.index >= first.index) {
            self.recent.pop_back();
        }
        self.recent.extend(entries);
    }

    pub(crate) fn set_conf_state(&mut self, conf_state: ConfState) {
        self.conf_state = conf_state;
    }

    pub(crate) fn set_hard_state(&mut self, hard_state: HardState) {
        self.hard_state = hard_state;
    }

    /// Whether `state` has another term or vote than what was recorded last.
    pub(crate) fn is_new_vote(&self, state: &HardState) -> bool {
        (state.term, state.vote) != (self.hard_state.term, self.hard_state.vote)
    }

    /// Forgets the in-memory copies of entries up to `index`.
    pub(crate) fn evict_to(&mut self, index: u64) {
        while self.recent.front().is_some_and(|entry| entry.index <= index) {
            self.recent.pop_front();
        }
    }

    /// Records that entries up to `index` are about to be dropped from the log; returns the term of the last of them.
    pub(crate) fn truncate_to(&mut self, index: u64) -> Result<u64> {
        let term = self.term(index)?;
        self.truncated = LogPosition::new(index, term);
        self.evict_to(index);
        while self.terms.get(1).is_some_and(|begin| begin.index <= index) {
            self.terms.pop_front();
        }
        Ok(term)
    }

    /// The last durable entry.
    pub(crate) fn last(&self) -> LogPosition {
        self.last
    }

    pub(crate) fn truncated(&self) -> LogPosition {
        self.truncated
    }

    pub(crate) fn conf_state(&self) -> &ConfState {
        &self.conf_state
    }

    pub(crate) fn has_lacking(&self) -> bool {
        !self.lacking.borrow().is_empty()
    }

    pub(crate) fn take_lacking(&self) -> BTreeSet<u64> {
        self.lacking.take()
    }

    /// Not to be held while consensus is called.
    pub(crate) fn fetches(&self) -> RefMut<'_, Fetches> {
        self.fetches.borrow_mut()
    }

    fn recent_first(&self) -> u64 {
        self.recent.front().map_or(self.last.index + 1, |entry| entry.index)
    }
}

pub(crate) fn store_error(error: LogReadError) -> Error {
    Error::Store(StorageError::Other(Box::new(error)))
}

impl<L: LogReader> Storage for LogView<L> {
    fn initial_state(&self) -> Result<RaftState> {
        Ok(RaftState::new(self.hard_state.clone(), self.conf_state.clone()))
    }

    fn entries(
        &self,
        low: u64,
        high: u64,
        max_size: impl Into<Option<u64>>,
        context: GetEntriesContext,
    ) -> Result<Vec<Entry>> {
        if low <= self.truncated.index {
            return Err(Error::Store(StorageError::Compacted));
        }
        if high > self.last.index + 1 {
            return Err(Error::Store(StorageError::Unavailable));
        }
        let max_bytes = max_size.into().unwrap_or(u64::MAX);
        let recent_first = self.recent_first();
        if low < recent_first && context.can_async() {
            let fetched = self.fetches().entries(low, high.min(recent_first));
            return fetched.ok_or(Error::Store(StorageError::LogTemporarilyUnavailable));
        }
        if low < recent_first {
            return self.reader.entries(low, high.min(recent_first), max_bytes).map_err(store_error);
        }
        let start = (low - recent_first) as usize;
        let wanted = self.recent.range(start..start + (high - low) as usize);
        let mut entries = Vec::with_capacity(wanted.len());
        let mut size_bytes = 0u64;
        for entry in wanted {
            size_bytes += entry.data.len() as u64 + 16;
            if size_bytes > max_bytes && !entries.is_empty() {
                break;
            }
            entries.push(entry.clone());
        }
        Ok(entries)
    }

    fn term(&self, index: u64) -> Result<u64> {
        if index == self.truncated.index {
            return Ok(self.truncated.term);
        }
        if index == self.last.index {
            return Ok(self.last.term);
        }
        if index < self.truncated.index {
            return Err(Error::Store(StorageError::Compacted));
        }
        if index > self.last.index {
            return Err(Error::Store(StorageError::Unavailable));
        }
        let after = self.terms.partition_point(|begin| begin.index <= index);
        if let Some(begin) = after.checked_sub(1).and_then(|at| self.terms.get(at)) {
            return Ok(begin.term);
        }
        let entries = self.reader.entries(index, index + 1, u64::MAX).map_err(store_error)?;
        entries.first().map(|entry| entry.term).ok_or(Error::Store(StorageError::Unavailable))
    }

    fn first_index(&self) -> Result<u64> {
        Ok(self.truncated.index + 1)
    }

    fn last_index(&self) -> Result<u64> {
        Ok(self.last.index)
    }

    fn snapshot(&self, _request_index: u64, to: u64) -> Result<Snapshot> {
        // Data is copied outside of consensus; a member that has got its copy says so.
        self.lacking.borrow_mut().insert(to);
        Err(Error::Store(StorageError::SnapshotTemporarilyUnavailable))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Nothing is read back.
    struct Unread;

    impl LogReader for Unread {
        fn entries(&self, low: u64, _: u64, _: u64) -> std::result::Result<Vec<Entry>, LogReadError> {
            Err(LogReadError::Failed(format!("{low} was read")))
        }
    }

    #[test]
    fn terms_are_known_without_reading_also_of_what_was_replaced_evicted_and_truncated() {
        let recovered = Recovered {
            truncated: LogPosition::new(3, 1),
            last: LogPosition::new(5, 2),
            applied: 5,
            ..Recovered::default()
        };
        let mut log = LogView::new(recovered, Unread);
        let entries = |range: std::ops::RangeInclusive<u64>, term| {
            range.map(|index| Entry { index, term, ..Entry::default() }).collect::<Vec<_>>()
        };
        log.append(entries(6..=9, 2));
        log.append(entries(8..=10, 4));
        log.append(entries(11..=12, 5));
        log.evict_to(12);
        let terms: Vec<u64> = (5..=12).map(|index| log.term(index).unwrap_or(0)).collect();
        assert_eq!(terms, [2, 2, 2, 4, 4, 4, 5, 5]);
        assert!(log.term(4).is_err(), "not known here");
        assert_eq!(log.truncate_to(9).ok(), Some(4));
        assert_eq!((log.term(9).ok(), log.term(10).ok(), log.term(12).ok()), (Some(4), Some(4), Some(5)));
        assert!(log.term(8).is_err());
    }
}
