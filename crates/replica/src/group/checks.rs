//! The invariants of one group, checked at the end of each of its turns, in release builds too: a check compares a few
//! numbers that are at hand.
//!
//! A violation ends the process, as its memory can no longer be trusted; the next start replays what is durable.

use diorite_raft::Term;

/// The state of a group after a turn.
#[derive(Debug, Default, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Observed {
    pub(crate) term: Term,
    pub(crate) is_leader: bool,
    /// The latest term whose leader has ended its lease.
    pub(crate) released_term: Term,
    /// The term of the published lease, if there is one.
    pub(crate) lease_term: Option<Term>,
    /// Whether the tablet has been split, or closed for a merge.
    pub(crate) is_sealed: bool,
    /// Whether it is below its floor.
    pub(crate) is_recovering: bool,
    pub(crate) applied: u64,
    pub(crate) committed: u64,
    /// The last durable entry.
    pub(crate) durable: u64,
    pub(crate) newest_stamp_us: i64,
}

/// The state of a group after its last checked turn.
#[derive(Debug, Default)]
pub(crate) struct Checked(Observed);

impl Checked {
    /// Compares the state after this turn with that after the last one.
    ///
    /// # Panics
    /// If an invariant is violated.
    pub(crate) fn check(&mut self, now: Observed) {
        let before = std::mem::replace(&mut self.0, now);
        if let Some(term) = now.lease_term {
            assert!(now.is_leader && term == now.term, "a lease is that of the leader of the term: {now:?}");
            assert!(now.released_term != term, "a lease that was ended does not come back: {now:?}");
            assert!(!now.is_sealed, "a sealed tablet has no lease: {now:?}");
        }
        assert!(!(now.is_leader && now.is_recovering), "a replica below its floor does not lead: {now:?}");
        assert!(now.applied <= now.committed, "only what is committed is applied: {now:?}");
        assert!(now.applied <= now.durable, "only what is durable here is applied: {now:?}");
        assert!(
            before.term <= now.term && before.applied <= now.applied && before.committed <= now.committed,
            "terms, commit and applied indexes grow: {before:?}, {now:?}"
        );
        assert!(before.newest_stamp_us <= now.newest_stamp_us, "stamps grow with the log: {before:?}, {now:?}");
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const LEADER: Observed = Observed {
        term: Term(3),
        is_leader: true,
        released_term: Term(2),
        lease_term: Some(Term(3)),
        is_sealed: false,
        is_recovering: false,
        applied: 7,
        committed: 8,
        durable: 9,
        newest_stamp_us: 5,
    };

    fn is_refused(now: Observed) -> bool {
        std::panic::catch_unwind(|| Checked(LEADER).check(now)).is_err()
    }

    #[test]
    fn each_violation_is_found() {
        assert!(!is_refused(LEADER));
        assert!(!is_refused(Observed { term: Term(4), is_leader: false, lease_term: None, ..LEADER }));
        assert!(is_refused(Observed { is_leader: false, ..LEADER }), "a lease without a leader");
        assert!(is_refused(Observed { lease_term: Some(Term(2)), ..LEADER }), "a lease of another term");
        assert!(is_refused(Observed { released_term: Term(3), ..LEADER }), "a lease that was ended");
        assert!(is_refused(Observed { is_sealed: true, ..LEADER }), "a lease of a sealed tablet");
        assert!(is_refused(Observed { is_recovering: true, ..LEADER }), "a leader below its floor");
        assert!(is_refused(Observed { applied: 9, ..LEADER }), "applied and not committed");
        assert!(is_refused(Observed { durable: 6, ..LEADER }), "applied and not durable");
        assert!(is_refused(Observed { applied: 6, ..LEADER }), "applied before");
        assert!(is_refused(Observed { committed: 7, ..LEADER }), "committed before");
        assert!(
            is_refused(Observed { term: Term(2), lease_term: Some(Term(2)), released_term: Term(1), ..LEADER }),
            "a former term"
        );
        assert!(is_refused(Observed { newest_stamp_us: 4, ..LEADER }), "a stamp that goes back");
    }
}
