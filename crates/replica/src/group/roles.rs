//! Who leads a tablet, and who its voters are, as other threads than its own see it.
//!
//! Always true: the store thread of the replica writes it. Left out: who has the lease ([`super::lease`]).

use arc_swap::{ArcSwap, ArcSwapOption};
use diorite_base::NodeId;
use diorite_raft::Term;
use std::collections::BTreeSet;
use std::sync::atomic::AtomicU64;

/// The leader and the voters.
#[derive(Default)]
pub(crate) struct Roles {
    /// The replica that leads, 0 if unknown.
    pub(crate) leader: AtomicU64,
    /// The term in which this replica leads; 0 if it does not.
    pub(crate) led_term: AtomicU64,
    /// The voters; in a joint configuration, the old ones.
    pub(crate) voters: ArcSwap<Vec<u64>>,
    /// In a joint configuration, the new voters; otherwise empty.
    pub(crate) coming_voters: ArcSwap<Vec<u64>>,
    /// Voters that the group no longer has, and the term in which they were removed.
    pub(crate) removed_voters: ArcSwap<(Term, BTreeSet<u64>)>,
    /// For a leader: the voters, if they are as wanted and no change is under way.
    pub(crate) committed_voters: ArcSwapOption<Vec<NodeId>>,
}

impl Roles {
    /// Whoever may be bound to the leader of a term: the voters, and those that were removed in that term, whose votes a
    /// replica needs that has not applied the change yet.
    pub(crate) fn bound_in(&self, term: Term) -> BTreeSet<u64> {
        let mut bound: BTreeSet<u64> =
            self.voters.load().iter().chain(self.coming_voters.load().iter()).copied().collect();
        let removed = self.removed_voters.load();
        if removed.0 == term {
            bound.extend(&removed.1);
        }
        bound
    }

    /// Whether `node` is the only voter and no change of the voters is under way. Voters that were removed do not count: no
    /// quorum includes them.
    pub(crate) fn is_sole_voter(&self, node: u64) -> bool {
        **self.voters.load() == [node] && self.coming_voters.load().is_empty()
    }
}
