//! The lease under which a leader answers reads alone. How support becomes a lease is told in `diorite_raft::SupportTable`'s module.

use arc_swap::ArcSwapOption;
use diorite_raft::Supporter;
use std::sync::Arc;

/// A leader's right to answer reads, for as long as enough followers support it.
#[derive(Debug)]
pub(crate) struct Lease {
    /// The term of the leadership: a node leads at most once in a term, so equal terms are one uninterrupted reign.
    term: u64,
    /// How many supporters it takes, beside the leader itself.
    needed: usize,
    supporters: Vec<Arc<Supporter>>,
}

impl Lease {
    pub(crate) fn new(term: u64, needed: usize, supporters: Vec<Arc<Supporter>>) -> Self {
        Self { term, needed, supporters }
    }

    /// Whether it has the same supporters as `other`, in the same term.
    pub(crate) fn is_same(&self, other: &Self) -> bool {
        let same = |(one, two): (&Arc<Supporter>, &Arc<Supporter>)| Arc::ptr_eq(one, two);
        (self.term, self.needed, self.supporters.len()) == (other.term, other.needed, other.supporters.len())
            && self.supporters.iter().zip(&other.supporters).all(same)
    }

    fn holds(&self, now_ns: impl Fn() -> u64) -> bool {
        if self.needed == 0 {
            return true;
        }
        let now_ns = now_ns();
        self.supporters.iter().filter(|supporter| now_ns < supporter.until_ns()).count() >= self.needed
    }
}

/// Where a replica's worker publishes its lease.
#[derive(Debug, Default)]
pub(crate) struct LeaseSlot {
    lease: ArcSwapOption<Lease>,
}

impl LeaseSlot {
    /// Replaces the lease. With `None` every read that has begun and not ended fails.
    pub(crate) fn publish(&self, lease: Option<Lease>) {
        let current = self.lease.load();
        let unchanged = match (&*current, &lease) {
            (None, None) => true,
            (Some(current), Some(lease)) => current.is_same(lease),
            _ => false,
        };
        if !unchanged {
            self.lease.store(lease.map(Arc::new));
        }
    }

    /// The term in which reads may begin now, if they may. The clock is asked only if time matters.
    pub(crate) fn begin(&self, now_ns: impl Fn() -> u64) -> Option<u64> {
        let lease = self.lease.load();
        lease.as_ref().filter(|lease| lease.holds(now_ns)).map(|lease| lease.term)
    }

    /// Whether the lease of `term` still holds: what was read since [`Self::begin`] was current. The process may have been paused at
    /// any point in between, so the clock is read now.
    pub(crate) fn still_holds(&self, term: u64, now_ns: impl Fn() -> u64) -> bool {
        let lease = self.lease.load();
        lease.as_ref().is_some_and(|lease| lease.term == term && lease.holds(now_ns))
    }
}
