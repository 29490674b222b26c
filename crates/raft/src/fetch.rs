//! Entries that a member lacks and that are no longer in memory: they are read from the log beside the group's turns.
//!
//! A log is shared by many groups, so that reading a group's entries back takes far longer than a turn: it would hold up all writes of the thread. So consensus asks
//! ([`Group::take_fetches`]), somebody reads ([`Fetch::read`]), and what was read is sent when it is there ([`Group::fetched`]). One piece at a time for each member: the
//! next one is asked for when the member has acknowledged it, or when there is something new to send.

use crate::group::{Group, GroupError};
use crate::log::{LogReadError, LogReader, store_error};
use crate::position::Term;
use raft::eraftpb::Entry;

/// What is read, and sent, at a time, bytes: it is one turn's work on either side.
const PIECE_BYTES: u64 = 256 << 10;

/// Entries to be read from the log for a member that lacks them.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Fetch {
    low: u64,
    high: u64,
    /// The term of the leader that asks. As long as it leads nothing of its log is replaced.
    term: Term,
}

impl Fetch {
    /// Reads the first of them, up to a limit in bytes. Waits for the disk.
    pub fn read(&self, reader: &impl LogReader) -> Result<Vec<Entry>, LogReadError> {
        reader.entries(self.low, self.high, PIECE_BYTES)
    }
}

impl<L: LogReader> Group<L> {
    /// Whether [`Self::take_fetches`] has something.
    pub fn has_fetches(&self) -> bool {
        self.node.store().fetches().is_any_wanted()
    }

    /// What is to be read from the log, each to be answered by [`Self::fetched`]. No more than one for each member is under way.
    pub fn take_fetches(&mut self) -> Vec<Fetch> {
        let term = self.term();
        let mut fetches = self.node.store().fetches();
        let wanted = std::mem::take(&mut fetches.wanted);
        fetches.under_way.extend(wanted.keys());
        wanted.into_iter().map(|(low, high)| Fetch { low, high, term }).collect()
    }

    /// Sends to members what was read for them. An error if entries cannot be read that the log should hold.
    pub fn fetched(&mut self, fetch: &Fetch, entries: Result<Vec<Entry>, LogReadError>) -> Result<(), GroupError> {
        self.node.store().fetches().under_way.remove(&fetch.low);
        if !self.is_leader() {
            return Ok(());
        }
        match entries {
            // Of a former term, or a former life of this replica: it may have other entries there now, and asks again.
            _ if fetch.term != self.term() => {}
            Ok(entries) => self.node.store().fetches().fetched = Some((fetch.low, entries)),
            // It was cut in the meantime: the member is found to need a copy.
            Err(_) if fetch.low <= self.node.store().truncated().index => {}
            Err(error) => return Err(store_error(error).into()),
        }
        let me = self.node.raft.id;
        let progress = self.node.raft.prs().iter();
        let lacking = progress.filter(|(id, member)| **id != me && member.next_idx == fetch.low && !member.is_paused());
        let lacking: Vec<u64> = lacking.map(|(id, _)| *id).collect();
        for member in lacking {
            self.node.raft.send_append(member);
        }
        self.node.store().fetches().fetched = None;
        Ok(())
    }
}
