//! Entries that a member lacks and that are no longer in memory: they are read from the log by another thread than the
//! one that runs the group's turns.
//!
//! A log is shared by many groups, so reading one group's entries back takes far longer than a turn and would delay all
//! writes of the store thread. So consensus asks for entries ([`Group::take_fetches`]), another thread reads them
//! ([`Fetch::read`]), and the group sends them once they have been read ([`Group::fetched`]). One piece at a time is
//! read for each member: the next one is asked for when the member has acknowledged the last, or when there is
//! something new to send.

use crate::error::GroupError;
use crate::group::Group;
use crate::log::{LogReadError, LogReader, store_error};
use crate::position::Term;
use raft::eraftpb::Entry;

/// Bytes that are read and sent at a time: the work of one turn at the sender and at the receiver.
const PIECE_BYTES: u64 = 256 << 10;

/// Entries to be read from the log for a member that lacks them.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Fetch {
    low: u64,
    high: u64,
    /// The term of the leader that asks. While it leads, no entry of its log is replaced.
    term: Term,
}

impl Fetch {
    /// Reads the first of the entries, up to a limit in bytes. Blocks on the disk.
    pub fn read(&self, reader: &impl LogReader) -> Result<Vec<Entry>, LogReadError> {
        reader.entries(self.low, self.high, PIECE_BYTES)
    }
}

impl<L: LogReader> Group<L> {
    /// Whether [`Self::take_fetches`] would return anything.
    pub fn has_fetches(&self) -> bool {
        self.node.store().fetches().is_any_wanted()
    }

    /// Entries that must be read from the log. Each fetch is to be answered by [`Self::fetched`]. At most one is under
    /// way for each member.
    pub fn take_fetches(&mut self) -> Vec<Fetch> {
        let term = self.term();
        let mut fetches = self.node.store().fetches();
        let wanted = std::mem::take(&mut fetches.wanted);
        fetches.under_way.extend(wanted.keys());
        wanted.into_iter().map(|(low, high)| Fetch { low, high, term }).collect()
    }

    /// Sends to a member the entries that were read for it. An error if entries cannot be read that the log should
    /// hold.
    pub fn fetched(&mut self, fetch: &Fetch, entries: Result<Vec<Entry>, LogReadError>) -> Result<(), GroupError> {
        self.node.store().fetches().under_way.remove(&fetch.low);
        if !self.is_leader() {
            return Ok(());
        }
        match entries {
            // The fetch is of a former term, or of a former life of this replica: the log may hold other entries there
            // by now. The member is asked about again.
            _ if fetch.term != self.term() => {}
            Ok(entries) => self.node.store().fetches().fetched = Some((fetch.low, entries)),
            // The log was truncated in the meantime: the member will be found to need a copy.
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
