//! Changes a group's members to those that the catalog wants, and transfers leadership to the preferred leader.
//!
//! New voters start as learners. When all of them have (nearly) all entries, one change enters a joint configuration of
//! the present and the wanted voters, and a second one leaves it. So no step of a move has fewer voters than the table
//! asks for, or an even number of them.
//!
//! Always true: a leader never takes part in its own removal. A leader that is not among the wanted voters transfers
//! leadership to one that is, before the change if such a voter exists, or between its two steps, in the joint
//! configuration; the next leader continues. A change begins only if a quorum of the wanted voters is up and has all
//! entries, so that it does not stall half-way.

use crate::events::TabletEventKind;
use crate::group::replica::Replica;
use crate::group::turn::Turn;
use crate::group::wanted::Members;
use diorite_base::NodeId;
use diorite_raft::{ConfState, MemberChange, MemberProgress};
use diorite_storage::Engine;
use std::collections::BTreeSet;
use std::sync::Arc;

/// A learner that lacks at most this many entries may become a voter.
const NEARLY: u64 = 128;

/// How long a leader leads, nanoseconds, before it transfers leadership to the preferred leader. Doubled after each
/// transfer that elected nobody (the preferred node may be up and unable to reach the others), up to 32 times.
const TRANSFER_AFTER_NS: u64 = 2_000_000_000;

/// How long a leader that is not among the wanted voters leads, nanoseconds, before it transfers leadership: a transfer
/// that has failed is not repeated at once.
const TRANSFER_UNWANTED_NS: u64 = 500_000_000;

/// The next step of a group that this node leads.
enum Due {
    Change(MemberChange),
    /// Transfer leadership to the first of these nodes that can lead, once this node has led for so long, nanoseconds.
    Transfer(Vec<NodeId>, u64),
    /// Append an entry after the last change, which shows the members that the change is committed.
    Confirm,
}

impl<E: Engine> Turn<E> {
    /// The next learner to remove or add. Removals come first: the log keeps entries that a learner lacks.
    fn change_of_learners(&self, wanted: &Members, now: &ConfState) -> Option<MemberChange> {
        if let Some(surplus) = now.learners.iter().find(|node| !wanted.contains(**node)) {
            return Some(MemberChange::RemoveLearner(*surplus));
        }
        let is_member = |node: &NodeId| now.voters.contains(&node.0) || now.learners.contains(&node.0);
        let mut missing = wanted.voters.iter().chain(&wanted.learners).copied().filter(|node| !is_member(node));
        let first = missing.clone().next()?;
        Some(MemberChange::AddLearner(missing.find(|node| self.is_up(*node)).unwrap_or(first).0))
    }
}

impl<E: Engine> Replica<E> {
    /// Sets the members that the catalog wants.
    pub(crate) fn set_members(&mut self, turn: &mut Turn<E>, members: Members) {
        if self.members.wanted != members {
            let (voters, learners) = (members.voters.clone(), members.learners.clone());
            turn.context.note(self.id(), TabletEventKind::Wanted { voters, learners });
        }
        self.members.wanted = members;
        self.published = None;
        turn.activate(self);
        turn.touch(self);
    }

    /// Whether members and leader are as the catalog wants, as far as that is possible now.
    pub(crate) fn is_as_wanted(&self, turn: &Turn<E>) -> bool {
        self.due(turn).is_none()
    }

    /// The next step, if this node leads the group and a step is due.
    fn due(&self, turn: &Turn<E>) -> Option<Due> {
        let (wanted, now) = (&self.members.wanted, self.group.members());
        let me = turn.context.node;
        if !now.voters.contains(&me.0) {
            // This leader was elected by voters that leave, or has applied its own removal, which an earlier leader had
            // proposed.
            let preferred = wanted.voters.iter().copied().filter(|node| now.voters.contains(&node.0));
            let others = now.voters.iter().copied().map(NodeId).filter(|node| !wanted.voters.contains(node));
            let after_ns = if self.group.is_joint() { TRANSFER_UNWANTED_NS } else { 0 };
            return Some(Due::Transfer(preferred.chain(others).collect(), after_ns));
        }
        if self.group.is_joint() {
            return Some(Due::Change(MemberChange::LeaveJoint));
        }
        if wanted.voters.is_empty() {
            return None;
        }
        if let Some(change) = turn.change_of_learners(wanted, now) {
            return Some(Due::Change(change));
        }
        if let Some(change) = change_of_voters(wanted, now) {
            let others: Vec<NodeId> =
                wanted.voters.iter().copied().filter(|node| *node != me && now.voters.contains(&node.0)).collect();
            let is_first = wanted.voters.contains(&me) || others.iter().all(|node| !turn.is_up(*node));
            if is_first || !self.is_ready(turn, &change) {
                return Some(Due::Change(change));
            }
            return Some(Due::Transfer(others, TRANSFER_UNWANTED_NS));
        }
        if self.group.commit_index() <= self.members.index {
            return Some(Due::Confirm);
        }
        let may_lead = |node: &NodeId| *node != me && turn.is_up(*node) && !turn.context.liveness.is_clock_apart(*node);
        let preferred = wanted.voters.first().copied().filter(may_lead);
        preferred.map(|node| Due::Transfer(vec![node], TRANSFER_AFTER_NS << self.leading.vain_releases.min(5)))
    }

    /// Takes the next step towards the wanted members and leader.
    pub(crate) fn reconcile(&mut self, turn: &mut Turn<E>, now_ns: u64) {
        if !self.group.is_established_leader() {
            self.leading.since_ns = None;
            return;
        }
        let since_ns = *self.leading.since_ns.get_or_insert(now_ns);
        match self.due(turn) {
            Some(Due::Change(change)) => self.change_members(turn, &change),
            Some(Due::Transfer(nodes, after_ns)) if now_ns >= since_ns + after_ns => {
                self.transfer_leadership(turn, &nodes);
            }
            Some(Due::Confirm) if self.group.last_index() <= self.members.index => self.confirm_members(),
            Some(Due::Transfer(..) | Due::Confirm) | None => {}
        }
    }

    fn confirm_members(&mut self) {
        if let Err(error) = self.group.propose(Vec::new()) {
            tracing::warn!(tablet = %self.id(), %error, "could not confirm a change of members");
        }
    }

    fn change_members(&mut self, turn: &Turn<E>, change: &MemberChange) {
        if self.group.is_changing_members() || !self.is_ready(turn, change) {
            return;
        }
        let tablet = self.id();
        match self.group.propose_member_change(change) {
            Ok(()) => tracing::info!(%tablet, ?change, "changing members"),
            Err(error) => tracing::warn!(%tablet, ?change, %error, "could not propose a change of members"),
        }
    }

    /// Whether a change would not stall the group.
    fn is_ready(&self, turn: &Turn<E>, change: &MemberChange) -> bool {
        match change {
            // A node that cannot be reached would only keep the log from being truncated.
            MemberChange::AddLearner(node) => turn.is_up(NodeId(*node)),
            MemberChange::RemoveLearner(_) | MemberChange::LeaveJoint => true,
            MemberChange::EnterJoint { add, demote, remove } => {
                let last = self.group.last_index();
                let has_nearly_all = |member: &MemberProgress| {
                    member.matched + NEARLY >= last && self.has_acknowledged(turn, member.replica)
                };
                let able: Vec<u64> =
                    self.group.progress().filter(has_nearly_all).map(|member| member.replica).collect();
                let now = &self.group.members().voters;
                let kept = now.iter().filter(|voter| !demote.contains(voter) && !remove.contains(voter));
                let coming: Vec<u64> = kept.chain(add).copied().collect();
                let is_able = |voter: &&u64| **voter == turn.context.node.0 || able.contains(voter);
                add.iter().all(|voter| able.contains(voter)) && coming.iter().filter(is_able).count() > coming.len() / 2
            }
        }
    }

    /// Transfers leadership to the first of `nodes` that is up and was sent all entries: they arrive before the
    /// release. Later writes are routed to the new leader.
    fn transfer_leadership(&mut self, turn: &mut Turn<E>, nodes: &[NodeId]) {
        let last = self.group.last_index();
        let has_all = |node: &NodeId| {
            let is_sent = |member: MemberProgress| {
                member.replica == node.0 && member.sent >= last && member.matched + NEARLY >= last
            };
            self.has_acknowledged(turn, node.0)
                && turn.is_up(*node)
                && self.group.members().voters.contains(&node.0)
                && self.group.progress().any(is_sent)
        };
        if let Some(next) = nodes.iter().copied().find(has_all) {
            tracing::debug!(tablet = %self.id(), to = %next, "transferring leadership");
            self.release(turn, Some(next));
        }
    }

    /// The first log index that a member may still need. A leader computes it; a follower has received it.
    pub(crate) fn keep_from(&self) -> u64 {
        if self.group.is_leader() {
            self.group.progress().map(|member| member.matched + 1).min().unwrap_or(u64::MAX)
        } else if self.group.is_sole_voter() {
            u64::MAX
        } else {
            self.following.keep_from
        }
    }

    /// Whether `me` is the only member, no other is wanted, and no change is left to be made.
    pub(crate) fn is_alone_for_good(&self, me: NodeId) -> bool {
        self.group.is_sole_voter()
            && self.group.members().learners.is_empty()
            && self.members.wanted.learners.is_empty()
            && self.members.wanted.voters.iter().all(|node| *node == me)
            && self.group.commit_index() > self.members.index
    }

    /// The other voters that have nearly all committed entries.
    pub(crate) fn able(&self) -> Vec<NodeId> {
        let (commit, voters) = (self.group.commit_index(), &self.group.members().voters);
        let is_able = |member: &MemberProgress| member.matched + NEARLY >= commit && voters.contains(&member.replica);
        self.group.progress().filter(is_able).map(|member| NodeId(member.replica)).collect()
    }

    /// Notes which of the former voters are none any more.
    pub(crate) fn note_removed(&self, before: &[u64]) {
        let (term, voters) = (self.group.term(), self.group.all_voters().collect::<BTreeSet<u64>>());
        let published = &self.handle.roles.removed_voters;
        let known = published.load();
        let mut removed = if known.0 == term { known.1.clone() } else { BTreeSet::new() };
        removed.extend(before.iter().filter(|voter| !voters.contains(voter)));
        published.store(Arc::new((term, removed)));
    }

    /// Forgets the acknowledgements of former members.
    pub(crate) fn forget_removed(&mut self) {
        let remaining: Vec<u64> = self.group.progress().map(|member| member.replica).collect();
        self.leading.acknowledged.retain(&remaining);
        self.published = None;
    }

    /// Publishes whether the members are as wanted, with no change under way.
    pub(crate) fn publish_committed_members(&self) {
        let has_committed_wanted = self.has_committed_wanted();
        let noted = self.handle.roles.committed_voters.load();
        let voters = &self.members.wanted.voters;
        match &*noted {
            None if has_committed_wanted => self.handle.roles.committed_voters.store(Some(Arc::new(voters.clone()))),
            Some(noted) if has_committed_wanted && **noted != *voters => {
                self.handle.roles.committed_voters.store(Some(Arc::new(voters.clone())));
            }
            Some(_) if !has_committed_wanted => self.handle.roles.committed_voters.store(None),
            _ => {}
        }
    }

    /// Whether this leader knows that the members are exactly the wanted ones, and that a quorum of them knows it
    /// durably: whichever of them leads next, the removed members are not needed.
    fn has_committed_wanted(&self) -> bool {
        let (now, wanted) = (self.group.members(), &self.members.wanted);
        let same = |now: &[u64], wanted: &[NodeId]| {
            now.len() == wanted.len() && wanted.iter().all(|node| now.contains(&node.0))
        };
        !wanted.voters.is_empty()
            && same(&now.voters, &wanted.voters)
            && same(&now.learners, &wanted.learners)
            && !self.group.is_joint()
            && self.group.is_established_leader()
            && !self.group.is_changing_members()
            && self.group.commit_index() > self.members.index
    }
}

/// The change from the present voters to the wanted ones, if they differ.
fn change_of_voters(wanted: &Members, now: &ConfState) -> Option<MemberChange> {
    let is_wanted = |voter: &u64| wanted.voters.contains(&NodeId(*voter));
    let is_learner = |voter: &u64| wanted.learners.contains(&NodeId(*voter));
    let add: Vec<u64> = wanted.voters.iter().map(|node| node.0).filter(|node| !now.voters.contains(node)).collect();
    let (demote, remove): (Vec<u64>, Vec<u64>) =
        now.voters.iter().copied().filter(|voter| !is_wanted(voter)).partition(is_learner);
    let is_change = !add.is_empty() || !demote.is_empty() || !remove.is_empty();
    is_change.then_some(MemberChange::EnterJoint { add, demote, remove })
}
