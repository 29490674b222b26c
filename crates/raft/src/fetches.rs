//! Which entries of a log are to be read, are being read and were read for members that lack them ([`crate::Fetch`]).

use raft::eraftpb::Entry;
use std::collections::{BTreeMap, BTreeSet};

/// The entries of a log that are to be read, are being read, or were read.
#[derive(Default)]
pub(crate) struct Fetches {
    /// First index and end (exclusive) of the entries to read, by member.
    pub(crate) wanted: BTreeMap<u64, u64>,
    pub(crate) under_way: BTreeSet<u64>,
    pub(crate) fetched: Option<(u64, Vec<Entry>)>,
}

impl Fetches {
    /// Entries from `low` on, if they were read just now. If not, they are asked for.
    pub(crate) fn entries(&mut self, low: u64, high: u64) -> Option<Vec<Entry>> {
        if let Some((_, entries)) = self.fetched.as_ref().filter(|(first, _)| *first == low) {
            return Some(entries.clone());
        }
        if !self.under_way.contains(&low) {
            self.wanted.insert(low, high);
        }
        None
    }

    pub(crate) fn is_any_wanted(&self) -> bool {
        !self.wanted.is_empty()
    }
}
