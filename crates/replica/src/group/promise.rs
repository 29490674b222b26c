//! Promises of followers to their leader, and the acknowledgements that a leader has received.

use diorite_raft::{Epoch, Term};
use std::collections::BTreeMap;

/// A follower's promise: as long as this node supports `leader`'s node in `epoch`, the follower does not campaign and
/// votes for no other candidate.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Promise {
    pub(crate) leader: u64,
    pub(crate) epoch: Epoch,
}

/// For a leader: the epoch under which each member has acknowledged its term.
///
/// Always true: all acknowledgements are of one term; one of a later term replaces all others.
#[derive(Debug, Default)]
pub(crate) struct Acknowledgements {
    term: Term,
    epochs: BTreeMap<u64, Epoch>,
}

impl Acknowledgements {
    /// Records an acknowledgement; returns whether it changes anything.
    pub(crate) fn note(&mut self, term: Term, member: u64, epoch: Epoch) -> bool {
        if self.term != term {
            self.epochs.clear();
            self.term = term;
        }
        self.epochs.insert(member, epoch) != Some(epoch)
    }

    /// The epoch under which a member has acknowledged the leader of `term`.
    pub(crate) fn epoch(&self, term: Term, member: u64) -> Option<Epoch> {
        self.epochs.get(&member).copied().filter(|_| self.term == term)
    }

    /// The members that have acknowledged the leader of `term`.
    pub(crate) fn members(&self, term: Term) -> impl Iterator<Item = u64> + '_ {
        self.epochs.keys().copied().filter(move |_| self.term == term)
    }

    /// Voids all acknowledgements of the member.
    pub(crate) fn forget(&mut self, member: u64) {
        self.epochs.remove(&member);
    }

    /// Voids the acknowledgements of former members: a member that comes back has forgotten them, so nothing may depend
    /// on them.
    pub(crate) fn retain(&mut self, members: &[u64]) {
        self.epochs.retain(|member, _| members.contains(member));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn acknowledgements_are_of_one_term() {
        let mut known = Acknowledgements::default();
        assert!(
            known.note(Term(3), 1, Epoch(7)) && !known.note(Term(3), 1, Epoch(7)) && known.note(Term(3), 1, Epoch(8))
        );
        assert_eq!(
            (known.epoch(Term(3), 1), known.epoch(Term(4), 1), known.epoch(Term(3), 2)),
            (Some(Epoch(8)), None, None)
        );
        assert!(known.note(Term(4), 2, Epoch(9)));
        assert_eq!((known.epoch(Term(4), 1), known.epoch(Term(4), 2)), (None, Some(Epoch(9))));
        known.retain(&[1]);
        assert_eq!(known.epoch(Term(4), 2), None);
    }
}
