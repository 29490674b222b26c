//! Numbers of a group's log that must not be taken for each other.

use raft::eraftpb::Entry;
use std::fmt;

/// A term of a group: it has at most one leader.
#[derive(Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Term(pub u64);

impl fmt::Debug for Term {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

impl fmt::Display for Term {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

/// A place in a log: an entry's index and its term. Ordered as votes compare the ends of logs, by term and then by index.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Hash)]
pub struct LogPosition {
    /// The entry's index; 0 before the first one.
    pub index: u64,
    /// Its term.
    pub term: u64,
}

impl LogPosition {
    /// Before the first entry.
    pub const START: Self = Self::new(0, 0);

    /// Where `index` is of `term`.
    pub const fn new(index: u64, term: u64) -> Self {
        Self { index, term }
    }
}

impl From<&Entry> for LogPosition {
    fn from(entry: &Entry) -> Self {
        Self::new(entry.index, entry.term)
    }
}

impl PartialOrd for LogPosition {
    fn partial_cmp(&self, other: &Self) -> Option<std::cmp::Ordering> {
        Some(self.cmp(other))
    }
}

impl Ord for LogPosition {
    fn cmp(&self, other: &Self) -> std::cmp::Ordering {
        (self.term, self.index).cmp(&(other.term, other.index))
    }
}

impl fmt::Display for LogPosition {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} of term {}", self.index, self.term)
    }
}
