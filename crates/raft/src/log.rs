//! The part of the log that a group uses, and the view of it that the consensus core reads.
//!
//! Entries that are not applied yet stay in memory, so that a usual turn never reads the log. Older entries are read
//! through [`LogReader`]; those for other members are read outside the turns (see [`crate::Fetch`]).

use crate::fetches::Fetches;
use crate::position::LogPosition;
use raft::eraftpb::{ConfState, Entry, HardState, Snapshot};
use raft::{Error, GetEntriesContext, RaftState, Result, Storage, StorageError};
use std::cell::{RefCell, RefMut};
use std::collections::{BTreeSet, VecDeque};

/// Why entries could not be read back.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum LogReadError {
    /// The entries are damaged, or missing where the log should hold them: another attempt does not help.
    #[error("{0}")]
    Damaged(String),
    /// The system refused the read: out of memory, out of file descriptors, an error of the disk.
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
    /// The last entry that this replica may have acknowledged before its log was removed; [`LogPosition::START`] if its
    /// log was never removed. While the log is below this position, by term and then by index, the replica has lost
    /// entries that it acknowledged: it follows a leader, but does not campaign, and its votes are conditional
    /// (`votes`). It still knows its term and
    /// vote. So every leader that it follows is of no earlier term than any leader that it acknowledged entries to, and
    /// was elected by others; that leader's log holds every entry that was committed with this replica's help. Once
    /// this log reaches the floor again, or holds an entry of a later term, it holds all of these entries too.
    ///
    /// [`UNKNOWN_FLOOR`]: the log may have lost its end, and it is not known how far it went. For a log that was
    /// removed, or is incomplete for another reason, see [`floor_without_log`].
    pub floor: LogPosition,
}

/// The floor of a replica whose log may have lost its end: how far it has acknowledged is unknown until a leader
/// reports an upper bound.
pub const UNKNOWN_FLOOR: LogPosition = LogPosition::new(u64::MAX, u64::MAX);

/// The value of [`Recovered::floor`] for a replica whose log is gone and that may have acknowledged entries up to
/// `floor`. If that is unknown, the floor is any entry of the current term. It is not [`UNKNOWN_FLOOR`]: with that, the
/// replica would judge a candidate by comparing the logs of others, as if its own log still held all that was durable.
pub fn floor_without_log(floor: LogPosition, state: &HardState) -> LogPosition {
    if floor == UNKNOWN_FLOOR { LogPosition::new(UNKNOWN_FLOOR.index, state.term) } else { floor }
}

/// How much of the log is read at a time where it is only looked through.
const READ_BYTES: u64 = 1 << 20;

/// The log as the consensus core sees it.
pub(crate) struct LogView<L> {
    reader: L,
    hard_state: HardState,
    conf_state: ConfState,
    truncated: LogPosition,
    last: LogPosition,
    /// The newest entries, contiguous, ending at `last`.
    recent: VecDeque<Entry>,
    /// The positions where each term begins, from some index to the end of the log. Kept in memory because every
    /// message needs a term.
    terms: VecDeque<LogPosition>,
    /// Members that lack entries which are no longer in the log.
    lacking: RefCell<BTreeSet<u64>>,
    fetches: RefCell<Fetches>,
    floor: LogPosition,
}

impl Recovered {
    /// The later of the former floor and the end of the log: what a replica that leaves must remember.
    pub fn last_acknowledged(&self) -> LogPosition {
        self.last.max(self.floor)
    }

    /// The floor from now on if the end of the log may be lost.
    pub fn floor_with_lost_end(&self) -> LogPosition {
        if self.floor == UNKNOWN_FLOOR || self.last >= self.floor {
            return UNKNOWN_FLOOR;
        }
        // The log was removed before, and has not reached its floor since.
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

    /// Whether the durable log ends below the floor.
    pub(crate) fn is_below_floor(&self) -> bool {
        self.last < self.floor
    }

    /// Takes entries that have become durable. They replace all entries from the index of the first one on.
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

    /// Whether `state` differs from the recorded state in term or vote.
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

    /// The borrow must not be held while consensus is called.
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

impl<L: LogReader> LogView<L> {
    /// Whether one of the entries `first..=last` is such an entry. One read may return fewer entries than it was asked
    /// for, so this reads until all of them were seen.
    pub(crate) fn holds_any(&self, first: u64, last: u64, is_such: impl Fn(&Entry) -> bool) -> Result<bool> {
        let mut next = first;
        while next <= last {
            let entries = self.entries(next, last + 1, READ_BYTES, GetEntriesContext::empty(false))?;
            if entries.is_empty() {
                return Err(Error::Store(StorageError::Unavailable));
            }
            if entries.iter().any(&is_such) {
                return Ok(true);
            }
            next += entries.len() as u64;
        }
        Ok(false)
    }
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
        // The layers above copy data; a member that has received its copy reports it.
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

    /// Gives one entry at a time.
    struct OneByOne;

    impl LogReader for OneByOne {
        fn entries(&self, low: u64, _: u64, _: u64) -> std::result::Result<Vec<Entry>, LogReadError> {
            Ok(vec![Entry { index: low, term: 2, ..Entry::default() }])
        }
    }

    #[test]
    fn an_entry_is_found_in_what_was_read_back_and_in_what_came_after_a_restart() {
        let recovered = Recovered { last: LogPosition::new(20, 2), applied: 18, ..Recovered::default() };
        let mut log = LogView::new(recovered, OneByOne);
        log.append(vec![Entry { index: 21, term: 2, ..Entry::default() }]);
        let holds = |first, last, index| log.holds_any(first, last, |entry| entry.index == index).ok();
        assert_eq!((holds(19, 21, 19), holds(19, 21, 20), holds(19, 21, 21)), (Some(true), Some(true), Some(true)));
        assert_eq!((holds(19, 21, 22), holds(22, 21, 21), holds(19, 22, 23)), (Some(false), Some(false), None));
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
