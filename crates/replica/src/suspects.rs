//! Replicas whose log may have lost its end: with `--durability interval` the power went before it was durable.
//!
//! Such a replica does not know how far it has acknowledged, so others may count on entries that it does not hold any more. It asks ([`Envelope::Suspect`]). A leader
//! of its term forgets what it has acknowledged, sends it what it lacks, and says where the leader's own log ends: the replica has acknowledged no more than that, and is like any other as
//! soon as it holds as much ([`Envelope::Floor`]). Without a leader the other voters say where their logs end ([`Envelope::Standing`]). Once all have, or a quorum has and the others have been
//! waited for, it may vote for whoever is not behind any of them, and campaign if that is so of itself: the longest log that is left wins.
//!
//! Always true: terms and votes are durable before they are told, in every mode, so that no term has two leaders and no index of a term two entries; of what was acknowledged only that can be
//! lost which was not durable on a quorum, as every quorum that elects has a member that holds the rest. What a replica has applied that the next leader's log contradicts is noticed
//! (`GroupError::Diverged`) before anything follows it: the replica is set aside and made anew. Left out: finding out that the power was lost, which is the data directory's.

use crate::core::Core;
use crate::election::PING_NS;
use crate::replica::Replica;
use crate::wire::Envelope;
use diorite_base::{NodeId, TabletId};
use diorite_raft::Message;
use diorite_storage::Engine;
use std::collections::BTreeMap;

/// How long what a voter has said of its log counts, nanoseconds: it says so again and again.
const FRESH_NS: u64 = 5 * PING_NS;

/// How long voters that say nothing are waited for, nanoseconds, if a quorum has said something: what only they hold is lost otherwise.
const OTHERS_PATIENCE_NS: u64 = 30_000_000_000;

/// Where a log ends: term and index, as votes compare it.
pub(crate) type End = (u64, u64);

/// What the other voters have said of their logs.
#[derive(Debug, Default)]
pub(crate) struct Standings {
    heard: BTreeMap<u64, (End, u64)>,
    since_ns: Option<u64>,
}

impl Standings {
    /// From now on others are waited for, if they are not already.
    fn begin(&mut self, now_ns: u64) {
        self.since_ns.get_or_insert(now_ns);
    }

    fn note(&mut self, node: u64, end: End, now_ns: u64) {
        self.heard.insert(node, (end, now_ns));
    }

    /// The end that a log must have reached whose holder may lead; `None`: too little is known of the others. `sets`: the voters, and those before while both decide.
    fn least(&self, me: u64, own: End, sets: [&[u64]; 2], now_ns: u64) -> Option<End> {
        let fresh = |voter: &u64| {
            self.heard.get(voter).filter(|(_, heard_ns)| now_ns < heard_ns + FRESH_NS).map(|(end, _)| *end)
        };
        let is_known = |voter: &&u64| **voter == me || fresh(voter).is_some();
        let are_all_known = sets.iter().all(|voters| voters.iter().all(|voter| is_known(&voter)));
        let is_quorum_known =
            sets.iter().all(|voters| voters.is_empty() || voters.iter().filter(is_known).count() > voters.len() / 2);
        let has_waited = self.since_ns.is_some_and(|since_ns| now_ns >= since_ns + OTHERS_PATIENCE_NS);
        let others = sets.into_iter().flatten().filter(|voter| **voter != me).filter_map(fresh);
        (are_all_known || (is_quorum_known && has_waited)).then(|| others.fold(own, End::max))
    }
}

impl<E: Engine> Core<E> {
    /// Whether the replica has lost what it had acknowledged, so that it must not let a log lead that ends here.
    pub(crate) fn is_barred(&self, replica: &Replica<E>, candidate: End, now_ns: u64) -> bool {
        if !replica.group.is_recovering() || self.context.planted.forget_floor {
            return false;
        }
        if !replica.group.has_unknown_floor() {
            return true;
        }
        let (index, term) = replica.group.last();
        let members = replica.group.members();
        let sets = [members.voters.as_slice(), members.voters_outgoing.as_slice()];
        let least = replica.standings.least(self.context.node.0, (term, index), sets, now_ns);
        least.is_none_or(|least| candidate < least)
    }

    /// Whether it may not vote for whoever asks for it.
    pub(crate) fn is_barred_from(&self, replica: &Replica<E>, request: &Message) -> bool {
        self.is_barred(replica, (request.log_term, request.index), self.context.clock.monotonic_ns())
    }

    /// Whether it may not campaign.
    pub(crate) fn is_barred_itself(&self, replica: &Replica<E>, now_ns: u64) -> bool {
        let (index, term) = replica.group.last();
        self.is_barred(replica, (term, index), now_ns)
    }

    /// What a replica that is recovering says, and to whom.
    pub(crate) fn confession(&mut self, tablet: TabletId, now_ns: u64) -> Option<Envelope> {
        let replica = self.replicas.get_mut(&tablet)?;
        Some(if replica.group.has_unknown_floor() {
            replica.standings.begin(now_ns);
            // What comes after that need not be what was acknowledged in that place.
            Envelope::Suspect { index: replica.group.commit_index() }
        } else {
            Envelope::Lost { index: replica.group.last_index() }
        })
    }

    /// A member may have lost the end of its log.
    pub(crate) fn on_suspect(&mut self, from: NodeId, tablet: TabletId, index: u64) {
        self.on_lost(from, tablet, index);
        let Some(replica) = self.replicas.get(&tablet) else { return };
        let (last, last_term) = replica.group.last();
        let answer = if replica.group.is_leader() {
            // All that it has acknowledged in this term is in this log, and so is all that was committed with its help before.
            Envelope::Floor { term: replica.group.term(), index: last, last_term }
        } else {
            Envelope::Standing { index: last, term: last_term }
        };
        let group = replica.group_id;
        self.post_envelope(from, group, &answer);
    }

    /// The leader says how far this replica may have acknowledged at most.
    pub(crate) fn on_floor(&mut self, from: NodeId, tablet: TabletId, term: u64, floor: (u64, u64)) {
        let Some(replica) = self.replicas.get_mut(&tablet) else { return };
        if replica.group.term() == term && replica.group.leader() == from.0 {
            replica.group.learn_floor(floor);
            self.disturb(tablet);
        }
    }

    /// A voter says where its log ends.
    pub(crate) fn on_standing(&mut self, from: NodeId, tablet: TabletId, end: End) {
        let now_ns = self.context.clock.monotonic_ns();
        if let Some(replica) = self.replicas.get_mut(&tablet) {
            replica.standings.note(from.0, end, now_ns);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const ME: u64 = 1;

    fn least(standings: &Standings, now_ns: u64) -> Option<End> {
        standings.least(ME, (3, 10), [&[1, 2, 3], &[]], now_ns)
    }

    #[test]
    fn the_longest_log_of_all_or_after_a_while_of_a_quorum_is_what_may_lead() {
        let mut standings = Standings::default();
        standings.begin(0);
        assert_eq!(least(&standings, 0), None);
        standings.note(2, (3, 8), 0);
        assert_eq!(least(&standings, 0), None, "the third may hold more");
        standings.note(3, (3, 12), 0);
        assert_eq!(least(&standings, 0), Some((3, 12)));
        standings.note(3, (2, 40), 1);
        assert_eq!(least(&standings, 1), Some((3, 10)), "terms come first");
        assert_eq!(least(&standings, FRESH_NS + 1), None, "that was long ago");
        standings.note(2, (3, 11), OTHERS_PATIENCE_NS);
        assert_eq!(least(&standings, OTHERS_PATIENCE_NS - 1), None);
        assert_eq!(least(&standings, OTHERS_PATIENCE_NS), Some((3, 11)), "the third was waited for");
        assert_eq!(least(&standings, OTHERS_PATIENCE_NS + FRESH_NS), None, "alone it is no quorum");
    }

    #[test]
    fn while_two_sets_decide_both_have_to_be_known() {
        let mut standings = Standings::default();
        standings.begin(0);
        standings.note(2, (3, 8), OTHERS_PATIENCE_NS);
        let of_both = |standings: &Standings| standings.least(ME, (3, 10), [&[1, 2], &[4, 5]], OTHERS_PATIENCE_NS);
        assert_eq!(of_both(&standings), None);
        standings.note(4, (4, 1), OTHERS_PATIENCE_NS);
        assert_eq!(of_both(&standings), None);
        standings.note(5, (1, 1), OTHERS_PATIENCE_NS);
        assert_eq!(of_both(&standings), Some((4, 1)));
    }
}
