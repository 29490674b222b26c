//! The lease under which a leader answers reads alone. How support becomes a lease is told in `diorite_raft::SupportTable`'s module.

use arc_swap::ArcSwapOption;
use diorite_raft::{Supporter, Term};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

/// The support of one set of voters.
#[derive(Debug)]
pub(crate) struct Half {
    /// How many supporters it takes, beside the leader itself if that is one of the voters.
    needed: usize,
    supporters: Vec<Arc<Supporter>>,
}

impl Half {
    /// The support that a leader has of `voters`; `None` if it is too little at any time. `supporter` knows who acknowledged the leader.
    pub(crate) fn of(voters: &[u64], me: u64, supporter: impl Fn(u64) -> Option<Arc<Supporter>>) -> Option<Self> {
        let needed = voters.len() / 2 + usize::from(!voters.contains(&me));
        let supporters: Vec<_> = voters.iter().filter(|voter| **voter != me).filter_map(|id| supporter(*id)).collect();
        (supporters.len() >= needed).then_some(Self { needed, supporters })
    }

    fn is_same(&self, other: &Self) -> bool {
        let same = |(one, two): (&Arc<Supporter>, &Arc<Supporter>)| Arc::ptr_eq(one, two);
        (self.needed, self.supporters.len()) == (other.needed, other.supporters.len())
            && self.supporters.iter().zip(&other.supporters).all(same)
    }

    /// The monotonic time at which the support becomes too little, if nobody renews it; `None` if none is needed.
    fn until_ns(&self) -> Option<u64> {
        let mut until_ns: Vec<u64> = self.supporters.iter().map(|supporter| supporter.until_ns()).collect();
        until_ns.sort_unstable_by(|one, other| other.cmp(one));
        until_ns.get(self.needed.checked_sub(1)?).copied()
    }

    fn holds(&self, now_ns: u64) -> bool {
        self.supporters.iter().filter(|supporter| now_ns < supporter.until_ns()).count() >= self.needed
    }
}

/// A leader's right to answer reads, for as long as enough followers support it: a quorum of the voters, and of both sets of voters while there
/// are two, because another leader could be elected by a quorum of either together with one of the other.
#[derive(Debug)]
pub(crate) struct Lease {
    /// The term of the leadership: a node leads at most once in a term, so equal terms are one uninterrupted reign.
    term: Term,
    voters: Half,
    /// The voters before, while the group changes from them to the others.
    outgoing: Option<Half>,
}

impl Lease {
    pub(crate) fn new(term: Term, voters: Half, outgoing: Option<Half>) -> Self {
        Self { term, voters, outgoing }
    }

    /// Whether it has the same supporters as `other`, in the same term.
    pub(crate) fn is_same(&self, other: &Self) -> bool {
        let outgoing = match (&self.outgoing, &other.outgoing) {
            (None, None) => true,
            (Some(one), Some(two)) => one.is_same(two),
            _ => false,
        };
        self.term == other.term && outgoing && self.voters.is_same(&other.voters)
    }

    /// When it ends if nobody renews it; `None`: never.
    fn until_ns(&self) -> Option<u64> {
        let outgoing = self.outgoing.as_ref().and_then(Half::until_ns);
        self.voters.until_ns().into_iter().chain(outgoing).min()
    }

    pub(crate) fn holds(&self, now_ns: impl Fn() -> u64) -> bool {
        if self.voters.needed == 0 && self.outgoing.is_none() {
            return true;
        }
        let now_ns = now_ns();
        self.voters.holds(now_ns) && self.outgoing.as_ref().is_none_or(|half| half.holds(now_ns))
    }
}

/// What became of a lease.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[must_use = "changes of leases are counted"]
pub(crate) enum LeaseChange {
    /// Reads may begin, which they might not before.
    Taken,
    /// The other way round.
    Lost,
    /// Neither: also if other followers support it now.
    Nothing,
}

/// Where a replica's worker publishes its lease.
#[derive(Debug, Default)]
pub(crate) struct LeaseSlot {
    lease: ArcSwapOption<Lease>,
    /// The latest term whose lease somebody else than the worker has taken away.
    revoked_term: AtomicU64,
}

impl LeaseSlot {
    /// Replaces the lease. With `None` every read that has begun and not ended fails.
    pub(crate) fn publish(&self, lease: Option<Lease>) -> LeaseChange {
        let lease = lease.filter(|lease| !self.is_revoked(lease.term));
        let current = self.lease.load();
        let unchanged = match (&*current, &lease) {
            (None, None) => true,
            (Some(current), Some(lease)) => current.is_same(lease),
            _ => false,
        };
        let change = match (&*current, &lease) {
            (None, Some(_)) => LeaseChange::Taken,
            (Some(_), None) => LeaseChange::Lost,
            _ => LeaseChange::Nothing,
        };
        if !unchanged {
            let term = lease.as_ref().map(|lease| lease.term);
            self.lease.store(lease.map(Arc::new));
            if term.is_some_and(|term| self.is_revoked(term)) {
                // In between: whoever did that may have taken away the one before.
                self.lease.store(None);
            }
        }
        change
    }

    /// Takes the lease of `term` away, for ever, while the worker cannot; whether that was not so already.
    pub(crate) fn revoke(&self, term: Term) -> bool {
        let was_later = self.revoked_term.fetch_max(term.0, Ordering::SeqCst);
        self.lease.rcu(|lease| lease.as_ref().filter(|lease| lease.term > term).cloned());
        was_later < term.0
    }

    /// Whether it was.
    pub(crate) fn is_revoked(&self, term: Term) -> bool {
        term.0 <= self.revoked_term.load(Ordering::SeqCst)
    }

    /// The term in which reads may begin now, if they may. The clock is asked only if time matters.
    pub(crate) fn begin(&self, now_ns: impl Fn() -> u64) -> Option<Term> {
        let lease = self.lease.load();
        lease.as_ref().filter(|lease| lease.holds(now_ns)).map(|lease| lease.term)
    }

    /// How long the lease lasts if nobody renews it: `None` if there is none in force, `Some(None)` if it needs nobody's support and lasts for good.
    pub(crate) fn left_ns(&self, now_ns: u64) -> Option<Option<u64>> {
        let lease = self.lease.load();
        let lease = lease.as_ref().filter(|lease| lease.holds(|| now_ns))?;
        Some(lease.until_ns().map(|until_ns| until_ns.saturating_sub(now_ns)))
    }

    /// The term in which a read may begin whose end looks at the lease again: whether it holds now does not matter.
    pub(crate) fn term(&self) -> Option<Term> {
        self.lease.load().as_ref().map(|lease| lease.term)
    }

    /// Whether the lease of `term` still holds: what was read since [`Self::term`] or [`Self::begin`] was current. The process may have been paused at
    /// any point in between, so the clock is read now.
    pub(crate) fn still_holds(&self, term: Term, now_ns: impl Fn() -> u64) -> bool {
        let lease = self.lease.load();
        lease.as_ref().is_some_and(|lease| lease.term == term && lease.holds(now_ns))
    }
}
