//! The lease under which a leader answers reads alone. How support becomes a lease is explained at
//! `diorite_raft::SupportTable`.

use arc_swap::ArcSwapOption;
use diorite_raft::{Supporter, Term};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

/// The support of one set of voters.
#[derive(Debug)]
pub(crate) struct Half {
    /// How many supporters are needed, beside the leader itself if it is one of the voters.
    needed: usize,
    supporters: Vec<Arc<Supporter>>,
}

impl Half {
    /// The support that a leader has from `voters`; `None` if it is too little. `supporter` returns the support of a
    /// voter that acknowledged the leader.
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

    /// The monotonic time at which too few voters support the lease, unless they renew it; `None` if it needs no support.
    fn until_ns(&self) -> Option<u64> {
        let mut until_ns: Vec<u64> = self.supporters.iter().map(|supporter| supporter.until_ns()).collect();
        until_ns.sort_unstable_by(|one, other| other.cmp(one));
        until_ns.get(self.needed.checked_sub(1)?).copied()
    }

    fn holds(&self, now_ns: u64) -> bool {
        self.supporters.iter().filter(|supporter| now_ns < supporter.until_ns()).count() >= self.needed
    }
}

/// A leader's right to answer reads while enough followers support it: a quorum of the voters, and, in a joint
/// configuration, of both sets, because another leader needs a quorum of each.
#[derive(Debug)]
pub(crate) struct Lease {
    /// The term of the leadership. A node leads at most once in a term, so equal terms mean uninterrupted leadership.
    term: Term,
    voters: Half,
    /// The old voters, in a joint configuration.
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

    /// When it ends unless it is renewed; `None`: never.
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

/// The change that publishing a lease made.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[must_use = "changes of leases are counted"]
pub(crate) enum LeaseChange {
    /// Reads may begin, and could not before.
    Taken,
    /// Reads may no longer begin.
    Lost,
    /// Whether reads may begin has not changed, even if the supporters have.
    Nothing,
}

/// The place where a store thread publishes the lease of a replica.
#[derive(Debug, Default)]
pub(crate) struct LeaseSlot {
    lease: ArcSwapOption<Lease>,
    /// The latest term whose lease another thread has revoked.
    revoked_term: AtomicU64,
}

impl LeaseSlot {
    /// Replaces the lease. With `None`, every read that has begun and not ended fails.
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
                // Another thread may have revoked the lease since the check above.
                self.lease.store(None);
            }
        }
        change
    }

    /// Revokes the lease of `term` for good, while the store thread is blocked; returns whether it was not revoked
    /// before.
    pub(crate) fn revoke(&self, term: Term) -> bool {
        let was_later = self.revoked_term.fetch_max(term.0, Ordering::SeqCst);
        self.lease.rcu(|lease| lease.as_ref().filter(|lease| lease.term > term).cloned());
        was_later < term.0
    }

    /// Whether the lease of `term` was revoked.
    pub(crate) fn is_revoked(&self, term: Term) -> bool {
        term.0 <= self.revoked_term.load(Ordering::SeqCst)
    }

    /// The term in which reads may begin now, if they may. A revoked lease permits none, even in the moment in which
    /// its thread publishes it. The clock is read only if the lease can end.
    pub(crate) fn begin(&self, now_ns: impl Fn() -> u64) -> Option<Term> {
        let lease = self.lease.load();
        let in_force = |lease: &&Arc<Lease>| !self.is_revoked(lease.term) && lease.holds(now_ns);
        lease.as_ref().filter(in_force).map(|lease| lease.term)
    }

    /// How long the lease lasts unless it is renewed: `None` if none is in force, `Some(None)` if it needs no support
    /// and does not end.
    pub(crate) fn left_ns(&self, now_ns: u64) -> Option<Option<u64>> {
        let lease = self.lease.load();
        let lease = lease.as_ref().filter(|lease| lease.holds(|| now_ns))?;
        Some(lease.until_ns().map(|until_ns| until_ns.saturating_sub(now_ns)))
    }

    /// The term in which a read may begin. The lease is checked at the end of the read, so it need not be in force now.
    pub(crate) fn term(&self) -> Option<Term> {
        self.lease.load().as_ref().map(|lease| lease.term)
    }

    /// Whether the lease of `term` still holds. Then everything read since [`Self::term`] or [`Self::begin`] was
    /// current. The process may have been paused at any point in between, so the clock is read now.
    pub(crate) fn still_holds(&self, term: Term, now_ns: impl Fn() -> u64) -> bool {
        let lease = self.lease.load();
        lease.as_ref().is_some_and(|lease| lease.term == term && !self.is_revoked(term) && lease.holds(now_ns))
    }
}
