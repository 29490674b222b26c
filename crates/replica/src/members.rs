//! Brings a group's members in line with what the catalog wants, one change at a time, and leads where the catalog prefers.
//!
//! A new voter starts as a learner and is given its vote once it has (nearly) all of the log; voters that are no longer wanted go last.

use crate::core::Core;
use crate::replica::{Members, Replica};
use diorite_base::{NodeId, TabletId};
use diorite_raft::MemberChange;
use diorite_storage::{Engine, StorageError};

/// A learner that lacks no more than this many entries is given its vote.
const NEARLY: u64 = 128;

/// How long a leader leads, nanoseconds, before it hands over to the node that the catalog prefers.
const HAND_OVER_AFTER_NS: u64 = 2_000_000_000;

impl<E: Engine> Core<E> {
    /// Sets the members that the catalog wants.
    pub fn set_members(&mut self, tablet: TabletId, members: Members) {
        let Some(replica) = self.replicas.get_mut(&tablet) else { return };
        replica.members = members;
        self.restless.insert(tablet);
        self.touch(tablet);
        self.advance();
    }

    /// Gives up all leases, so that others lead: this node is about to stop.
    pub fn release_all(&mut self) {
        let mut led: Vec<TabletId> =
            self.replicas.iter().filter(|(_, replica)| replica.may_propose()).map(|(tablet, _)| *tablet).collect();
        led.sort_unstable();
        for tablet in led {
            self.release(tablet, None);
        }
        self.advance();
    }

    /// Whether the members and the leader are those that the catalog wants, as far as that can be brought about now.
    pub(crate) fn is_as_wanted(&self, replica: &Replica<E>) -> bool {
        self.next_change(replica).is_none() && !self.should_hand_over(replica)
    }

    /// The next change of a led group, if one is due.
    fn next_change(&self, replica: &Replica<E>) -> Option<MemberChange> {
        let wanted = &replica.members;
        if wanted.voters.is_empty() {
            return None;
        }
        let now = replica.group.members();
        let is_member = |node: u64| now.voters.contains(&node) || now.learners.contains(&node);
        let all = || wanted.voters.iter().chain(&wanted.learners).map(|node| node.0);
        if let Some(missing) = all().find(|node| !is_member(*node)) {
            return Some(MemberChange::AddLearner(missing));
        }
        if let Some(unvoting) = wanted.voters.iter().map(|node| node.0).find(|node| !now.voters.contains(node)) {
            return Some(MemberChange::AddVoter(unvoting));
        }
        let me = self.context.node.0;
        let surplus =
            now.voters.iter().chain(&now.learners).copied().find(|&node| node != me && !wanted.contains(node));
        surplus.map(MemberChange::Remove)
    }

    /// Whether another node should lead, is up and has everything.
    fn should_hand_over(&self, replica: &Replica<E>) -> bool {
        let Some(preferred) = replica.members.voters.first().filter(|node| **node != self.context.node) else {
            return false;
        };
        replica.group.members().voters.contains(&preferred.0) && self.context.liveness.is_up(*preferred)
    }

    /// Takes the next step towards the wanted members and leader.
    pub(crate) fn reconcile(&mut self, tablet: TabletId, now_ns: u64) {
        let Some(replica) = self.replicas.get_mut(&tablet) else { return };
        if !replica.group.is_established_leader() {
            replica.leading_since_ns = None;
            return;
        }
        let since_ns = *replica.leading_since_ns.get_or_insert(now_ns);
        let Some(replica) = self.replicas.get(&tablet) else { return };
        if let Some(change) = self.next_change(replica) {
            self.change_members(tablet, change);
        } else if self.should_hand_over(replica) && now_ns >= since_ns + HAND_OVER_AFTER_NS {
            self.hand_over(tablet);
        }
    }

    fn change_members(&mut self, tablet: TabletId, change: MemberChange) {
        let Some(replica) = self.replicas.get_mut(&tablet) else { return };
        if replica.group.is_changing_members() {
            return;
        }
        let is_ready = match change {
            // A node that cannot be reached would only hold back the log.
            MemberChange::AddLearner(node) => self.context.liveness.is_up(NodeId(node)),
            MemberChange::AddVoter(node) => {
                let last = replica.group.last_index();
                replica.group.progress().any(|member| member.replica == node && member.matched + NEARLY >= last)
            }
            MemberChange::Remove(_) => true,
        };
        if !is_ready {
            return;
        }
        match replica.group.propose_member_change(change) {
            Ok(()) => tracing::info!(%tablet, ?change, "changing members"),
            Err(error) => {
                let error = StorageError::Corrupt(error.to_string());
                tracing::warn!(%tablet, ?change, %error, "could not propose a change of members");
            }
        }
    }

    /// Lets the preferred node lead, if it has everything: what is proposed meanwhile goes to it.
    fn hand_over(&mut self, tablet: TabletId) {
        let Some(replica) = self.replicas.get(&tablet) else { return };
        let Some(preferred) = replica.members.voters.first().copied() else { return };
        let last = replica.group.last_index();
        let has_all = replica.group.progress().any(|member| member.replica == preferred.0 && member.matched == last);
        if has_all {
            tracing::debug!(%tablet, to = %preferred, "handing over");
            self.release(tablet, Some(preferred));
        }
    }
}

impl<E: Engine> Replica<E> {
    /// The first log index that a member may still need. A leader knows; a follower has been told.
    pub(crate) fn keep_from(&self) -> u64 {
        if self.group.is_leader() {
            self.group.progress().map(|member| member.matched + 1).min().unwrap_or(u64::MAX)
        } else if self.group.is_sole_voter() {
            u64::MAX
        } else {
            self.keep_from
        }
    }
}
