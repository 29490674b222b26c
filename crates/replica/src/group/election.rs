//! Leadership: promises to leaders, elections when a leader's node is no longer supported, leases, and how a leader
//! ends its own.
//!
//! Always true:
//! - A follower that has acknowledged a leader under a support epoch neither votes for another nor campaigns while that epoch lasts, unless
//!   the leader has ended its lease for the rest of its term.
//! - After a start, while promises of the former life may be in force, the node neither votes nor campaigns.
//! - A leader that has released its term, and cannot be elected again, repeats that until it knows of a leader, and sends no
//!   heartbeat in that term: a follower that has missed the release, or forgotten it, would be bound for as long as the
//!   leader's node lives.
//! - A lease is published only after an entry of the leader's own term is applied, and never again in a term in which
//!   it was ended.
//! - A leader whose lease is in force ignores candidates.
//! - A leader that too few members support steps down, so that its supporters are free: another may reach a quorum
//!   where this one does not (some links are down, or one direction of them).
//! - In a joint configuration a lease needs a quorum of both sets of voters. A replica that does not know of the change
//!   yet can be elected only by a quorum of the old set, and one that knows the change is complete only by a quorum of
//!   the new set. Each of these quorums contains a member that the lease depends on.
//! - A replica that came back without its log (it was moved away and has returned) does not campaign until it holds as
//!   much as it had acknowledged (`diorite_raft::Recovered::floor`), and its votes count only if those of others show that
//!   the candidate holds everything (`diorite_raft::is_conditional_vote`). Its promise is kept by its store thread while
//!   the promise is in force, and over a restart by the wait after a start; a leader forgets the acknowledgements of
//!   members that are removed. So nothing depends on what such a replica has forgotten.
//! - A replica that was removed while it was away may campaign as long as it likes: voters that have acknowledged a
//!   leader ignore it, the others find its log too short, and its pre-vote requests end no term.

use crate::events::TabletEventKind;
use crate::group::lease::{Half, Lease};
use crate::group::promise::Promise;
use crate::group::replica::{Release, Replica};
use crate::group::suspects::report_lost;
use crate::group::timing::{PING_NS, QUIET_NS};
use crate::group::transact;
use crate::group::turn::Turn;
use crate::group::wire::Envelope;
use diorite_base::{NodeId, TabletId};
use diorite_raft::{Message, Supporter, Term};
use diorite_storage::Engine;
use std::sync::Arc;
use std::sync::atomic::Ordering;

/// How much later each further replica campaigns, nanoseconds, so that votes are not split.
const RANK_DELAY_NS: u64 = 150_000_000;

/// After how long a campaign is repeated, nanoseconds.
const CAMPAIGN_NS: u64 = 120_000_000;

/// How long a node that has ended its lease waits for another to lead, nanoseconds.
const RELEASE_TIMEOUT_NS: u64 = 1_000_000_000;

/// How often that time is doubled, at most, while this node notifies the voters again and again.
const MAX_DOUBLINGS: u32 = 6;

/// How long a leader without a lease, nanoseconds, may keep its supporters from voting for another.
const IN_VAIN_NS: u64 = 1_000_000_000;

/// A number below `bound` that differs between replicas and attempts, and is the same in every run.
fn spread(tablet: TabletId, node: NodeId, now_ns: u64, bound: u64) -> u64 {
    let mixed = (tablet.0 ^ node.0.rotate_left(32) ^ now_ns.rotate_left(16)).wrapping_mul(0x9E37_79B9_7F4A_7C15);
    (mixed >> 33) % bound
}

impl<E: Engine> Turn<E> {
    /// Whether this node still supports the leader in the epoch in which the promise was made.
    pub(crate) fn is_in_force(&self, promise: Promise) -> bool {
        self.support.given_epoch(promise.leader) == Some(promise.epoch)
    }
}

impl<E: Engine> Replica<E> {
    /// Sends a heartbeat to all members, unless this leader has ended its lease: then no member may be bound to it again.
    pub(crate) fn ping(&mut self, now_ns: u64) {
        self.visits.pinged_ns = now_ns;
        if !self.has_released() {
            self.group.ping();
        }
    }

    /// Plans when this replica campaigns: at once if it is the first in rank, later otherwise.
    pub(crate) fn plan_campaign(&mut self, me: NodeId, now_ns: u64) {
        let gone = self.group.leader();
        let voters = self.ranked_voters();
        let rank = voters.iter().filter(|voter| **voter != gone).position(|voter| *voter == me.0);
        let rank = rank.unwrap_or(voters.len()) as u64;
        self.visits.campaign_ns = now_ns + rank * RANK_DELAY_NS;
    }

    /// The leader to which this replica has made a promise, if the replica has received nothing from it since it was
    /// opened: a leader without pending work sends nothing.
    fn silent_leader(&self, turn: &Turn<E>) -> Option<NodeId> {
        let promise =
            self.following.promise.filter(|promise| self.group.leader() == 0 && turn.is_in_force(*promise))?;
        (promise.leader != turn.context.node.0).then_some(NodeId(promise.leader))
    }

    /// Notifies the leader that this replica was opened again: the replica may not know the last commits, as a copy has
    /// replaced its data.
    fn announce_reopened(&mut self, turn: &mut Turn<E>, leader: NodeId, now_ns: u64) {
        self.visits.pinged_ns = now_ns;
        turn.outbox.post_envelope(leader, self.group_id(), &Envelope::Opened);
    }

    /// Whether a promise, a lease, or a lost log forbids a vote for the candidate of a request.
    pub(crate) fn must_not_vote(&self, turn: &Turn<E>, request: &Message) -> bool {
        let candidate = request.from;
        !turn.context.may_vote()
            || self.is_barred_from(turn, request)
            || self.following.promise.is_some_and(|promise| promise.leader != candidate && turn.is_in_force(promise))
            || self.handle.lease.begin(|| turn.now_ns()).is_some()
    }

    /// A leader has ended its lease: the promise to it is void.
    pub(crate) fn on_released(&mut self, turn: &mut Turn<E>, from: NodeId, term: Term, candidate: u64) {
        let (me, now_ns) = (turn.context.node, turn.now_ns());
        if term != self.group.term() || self.group.leader() != from.0 {
            // A late message: of another term, or not from the leader.
            return;
        }
        self.leading.release = Release { term, ..Release::default() };
        self.following.promise = None;
        turn.activate(self);
        if candidate == 0 || candidate == me.0 {
            self.plan_campaign(me, now_ns);
            if candidate == me.0 {
                self.visits.campaign_ns = now_ns;
            }
            turn.schedule.released.push(self.id());
        } else {
            self.visits.campaign_ns = now_ns + 2 * RANK_DELAY_NS;
        }
    }

    /// Steps down, or transfers leadership to `candidate`, if this replica leads and another voter can.
    pub(crate) fn release(&mut self, turn: &mut Turn<E>, candidate: Option<NodeId>) {
        if !self.may_propose() || self.group.is_sole_voter() {
            return;
        }
        if transact::holds_promises(self, turn) {
            self.leading.releasing = Some(candidate.unwrap_or(NodeId(0)));
            return turn.activate(self);
        }
        self.end_lease_for_good(turn, candidate);
    }

    /// Ends a leader's lease for the rest of its term, so that `candidate`, or any voter, may be elected at once.
    pub(crate) fn end_lease_for_good(&mut self, turn: &mut Turn<E>, candidate: Option<NodeId>) {
        // In this order: reads that began under the lease fail before another can be elected.
        turn.context.counters.note_lease(self.handle.lease.publish(None));
        let term = self.group.term();
        self.leading.release = Release { term, ..Release::default() };
        self.leading.releasing = None;
        turn.context.note(self.id(), TabletEventKind::LeadershipReleased { to: candidate });
        self.notify_of_release(turn, candidate);
        turn.activate(self);
    }

    fn notify_of_release(&mut self, turn: &mut Turn<E>, candidate: Option<NodeId>) {
        let Release { term, notified_ns, notices } = &mut self.leading.release;
        *notified_ns = Some(turn.now_ns());
        *notices += 1;
        let released = Envelope::Released { term: *term, candidate: candidate.map_or(0, |node| node.0) };
        let term = *term;
        let mut bound = self.handle.roles.bound_in(term);
        // Those that are published may be of the turn before.
        bound.extend(self.group.all_voters());
        for node in bound.into_iter().filter(|node| *node != turn.context.node.0) {
            turn.outbox.post_envelope(NodeId(node), self.group_id(), &released);
        }
    }

    /// Whether this node has released a term, and knows of no leader since.
    fn awaits_successor(&self) -> bool {
        self.leading.release.notified_ns.is_some() && (self.has_released() || self.group.leader() == 0)
    }

    /// No voter was elected for a while after this node's release. If it may be elected itself, it campaigns, as those
    /// that are bound to it may vote for it. Otherwise it notifies the voters again: one may have missed the release, or
    /// was restarted since, has forgotten it, and is bound by an entry that it received afterwards.
    fn insist_on_release(&mut self, turn: &mut Turn<E>, now_ns: u64) {
        let Release { notified_ns, notices, .. } = self.leading.release;
        let wait_ns = RELEASE_TIMEOUT_NS << notices.saturating_sub(1).min(MAX_DOUBLINGS);
        if !self.awaits_successor() || notified_ns.is_none_or(|notified_ns| now_ns < notified_ns + wait_ns) {
            return;
        }
        if !self.may_campaign(turn, now_ns) {
            self.notify_of_release(turn, None);
        } else if self.group.is_leader() {
            self.group.step_down();
            self.visits.campaign_ns = now_ns;
            self.leading.vain_releases += 1;
        }
    }

    /// Carries out the due work of the group: campaigns, heartbeats, transfers, and stepping down without a quorum's support.
    pub(crate) fn look_after(&mut self, turn: &mut Turn<E>, now_ns: u64) {
        self.insist_on_release(turn, now_ns);
        if self.failure.is_some() || self.has_released() {
            return;
        }
        if !self.group.is_leader() {
            if self.group.is_recovering() {
                report_lost(self, turn, now_ns);
            } else if now_ns >= self.visits.pinged_ns + PING_NS
                && let Some(leader) = self.silent_leader(turn)
            {
                self.announce_reopened(turn, leader, now_ns);
            }
            self.campaign_if_due(turn, now_ns);
        } else if self.has_led_in_vain(turn, now_ns) {
            tracing::info!(tablet = %self.id(), "a quorum no longer supports this leader: it steps down, so that another replica can lead");
            self.end_lease_for_good(turn, None);
        } else {
            // While a group is written to, its members receive commit indexes with the next entries.
            let is_quiet = now_ns >= self.writes.proposed_ns + QUIET_NS;
            let is_ping_due = now_ns >= self.visits.pinged_ns + PING_NS;
            if is_ping_due && self.has_laggard(turn, is_quiet) {
                self.ping(now_ns);
            }
            self.reconcile(turn, now_ns);
        }
    }

    /// Whether too few members have supported this leader for a while, while those who do may not vote for another.
    fn has_led_in_vain(&mut self, turn: &Turn<E>, now_ns: u64) -> bool {
        if self.is_supported(turn, now_ns) || !self.has_bound(turn, now_ns) {
            self.leading.in_vain_since_ns = None;
            return false;
        }
        now_ns >= *self.leading.in_vain_since_ns.get_or_insert(now_ns) + IN_VAIN_NS
    }

    /// Whether enough members support this leader for a lease, even if it has ended its lease for another reason, such
    /// as a split.
    fn is_supported(&self, turn: &Turn<E>, now_ns: u64) -> bool {
        self.handle.lease.begin(|| now_ns).is_some()
            || self.supported_lease(turn).is_some_and(|lease| lease.holds(|| now_ns))
    }

    /// Whether a member supports this leader, and so may not vote for another.
    fn has_bound(&self, turn: &Turn<E>, now_ns: u64) -> bool {
        let term = self.group.term();
        self.group.progress().any(|member| {
            let epoch = self.leading.acknowledged.epoch(term, member.replica);
            let supporter = epoch.and_then(|epoch| turn.support.supporter(member.replica, epoch));
            supporter.is_some_and(|supporter| now_ns < supporter.until_ns())
        })
    }

    /// Whether this leader reaches a quorum, as far as its node knows. If not, its lease is about to end.
    fn has_quorum(&self, turn: &Turn<E>) -> bool {
        let members = self.group.members();
        let is_with = |voter: &&u64| {
            **voter == turn.context.node.0 || (turn.is_up(NodeId(**voter)) && self.has_acknowledged(turn, **voter))
        };
        let has_most = |voters: &[u64]| voters.is_empty() || voters.iter().filter(is_with).count() > voters.len() / 2;
        has_most(&members.voters) && has_most(&members.voters_outgoing)
    }

    fn is_voter(&self, turn: &Turn<E>) -> bool {
        self.group.all_voters().any(|voter| voter == turn.context.node.0)
    }

    /// Whether this replica may be elected, as far as it knows itself.
    fn may_campaign(&self, turn: &Turn<E>, now_ns: u64) -> bool {
        let is_fit = turn.context.may_vote() && !turn.fitness.is_leaving && !turn.fitness.clock_is_off;
        is_fit
            && self.failure.is_none()
            && self.is_voter(turn)
            && !turn.context.is_stalled(self.handle.disk())
            && !self.is_barred_itself(turn, now_ns)
    }

    fn campaign_if_due(&mut self, turn: &mut Turn<E>, now_ns: u64) {
        let me = turn.context.node;
        let is_bound = self.following.promise.is_some_and(|promise| turn.is_in_force(promise));
        if is_bound || now_ns < self.visits.campaign_ns || !self.may_campaign(turn, now_ns) {
            return;
        }
        self.visits.campaign_ns = now_ns + CAMPAIGN_NS + spread(self.id(), me, now_ns, CAMPAIGN_NS);
        turn.context.counters.campaigns.fetch_add(1, Ordering::Relaxed);
        self.campaign(turn);
    }

    pub(crate) fn campaign(&mut self, turn: &mut Turn<E>) {
        if let Err(error) = self.group.campaign() {
            self.fail(turn, &error.into());
        }
    }

    /// Whether a member whose node is up lacks entries, or has not acknowledged the leader under its current epoch, or,
    /// if `heeds_commits`, has not received the last commit index.
    fn has_laggard(&self, turn: &Turn<E>, heeds_commits: bool) -> bool {
        let (last, commit) = (self.group.last_index(), self.group.commit_index());
        self.group.progress().any(|member| {
            let is_behind = member.matched < last || (heeds_commits && member.committed < commit);
            let is_acknowledged = self.has_acknowledged(turn, member.replica);
            (is_behind || !is_acknowledged) && turn.is_up(NodeId(member.replica))
        })
    }

    /// Whether the member has acknowledged the leader under its current epoch, and so may vote.
    pub(crate) fn has_acknowledged(&self, turn: &Turn<E>, member: u64) -> bool {
        let epoch = self.leading.acknowledged.epoch(self.group.term(), member);
        epoch.is_some_and(|epoch| turn.support.is_supporter(member, epoch))
    }

    /// Whether nothing is due in the group, so that it need not be visited until an event.
    pub(crate) fn is_at_rest(&self, turn: &Turn<E>) -> bool {
        if self.leading.releasing.is_some() || transact::has_transactions(self) || self.awaits_successor() {
            return false;
        }
        if self.failure.is_some() {
            return true;
        }
        // Followers of a group that is written to receive the last commit index with the next entries, so it is not
        // checked whether they lack it.
        if !self.writes.waiting.is_empty() || turn.began_ns < self.writes.proposed_ns + QUIET_NS {
            return false;
        }
        if self.group.is_leader() {
            self.may_propose()
                && !self.has_laggard(turn, true)
                && self.is_as_wanted(turn)
                && (self.has_quorum(turn) || !self.has_bound(turn, turn.began_ns))
        } else {
            if self.group.is_recovering() || self.silent_leader(turn).is_some() {
                return false;
            }
            // A learner only receives.
            self.following.promise.is_some_and(|promise| turn.is_in_force(promise)) || !self.is_voter(turn)
        }
    }

    /// Publishes the lease that the current acknowledgements give.
    pub(crate) fn publish_lease(&mut self, turn: &Turn<E>) {
        let may_hold = self.failure.is_none() && self.may_propose() && self.group.is_established_leader();
        let lease = if may_hold { self.supported_lease(turn) } else { None };
        turn.context.counters.note_lease(self.handle.lease.publish(lease));
    }

    /// The lease that this leader's supporters give, if there are enough of them at any time.
    fn supported_lease(&self, turn: &Turn<E>) -> Option<Lease> {
        let (me, members, term) = (turn.context.node.0, self.group.members(), self.group.term());
        let known = |voter: u64| -> Option<Arc<Supporter>> {
            turn.support.supporter(voter, self.leading.acknowledged.epoch(term, voter)?)
        };
        let voters = Half::of(&members.voters, me, known)?;
        let outgoing = match members.voters_outgoing.as_slice() {
            [] => None,
            outgoing => Some(Half::of(outgoing, me, known)?),
        };
        Some(Lease::new(term, voters, outgoing))
    }

    /// Publishes changed state to other threads: leader, lease, and members.
    pub(crate) fn publish(&mut self, turn: &Turn<E>) {
        self.publish_lease(turn);
        let (me, leader, term) = (turn.context.node.0, self.group.leader(), self.group.term());
        let led_term = if self.group.is_leader() { term.0 } else { 0 };
        self.handle.roles.led_term.store(led_term, Ordering::Release);
        // In a joint configuration the new voters need the old ones.
        let members = self.group.members();
        let (voters, coming): (&[u64], &[u64]) =
            if self.group.is_joint() { (&members.voters_outgoing, &members.voters) } else { (&members.voters, &[]) };
        for (published, now) in [(&self.handle.roles.voters, voters), (&self.handle.roles.coming_voters, coming)] {
            if **published.load() != *now {
                published.store(Arc::new(now.to_vec()));
            }
        }
        self.publish_committed_members();
        self.note_progress_place();
        self.handle.health.is_recovering.store(self.group.is_recovering(), Ordering::Release);
        if self.handle.roles.leader.swap(leader, Ordering::AcqRel) != leader {
            self.note_leader(turn, leader, term);
        }
        if leader != me {
            self.leading.since_ns = None;
            self.leading.in_vain_since_ns = None;
            if leader != 0 {
                self.leading.vain_releases = 0;
            }
        }
    }

    fn note_leader(&self, turn: &Turn<E>, leader: u64, Term(term): Term) {
        let tablet = self.id();
        if leader == turn.context.node.0 {
            turn.context.counters.elections_won.fetch_add(1, Ordering::Relaxed);
            tracing::info!(event = "leader", %tablet, term, "this node leads a tablet");
        } else if leader != 0 {
            tracing::debug!(%tablet, leader, term, "leader changed");
        }
        let kind = match leader {
            0 => TabletEventKind::NoLeader { term },
            leader => TabletEventKind::Leader { leader: NodeId(leader), term },
        };
        turn.context.note(tablet, kind);
    }

    /// Returns whether the replica's lease was revoked while its thread was blocked.
    pub(crate) fn take_revocation(&mut self, now_ns: u64) -> bool {
        let term = self.group.term();
        let is_revoked =
            self.group.is_leader() && self.leading.release.term != term && self.handle.lease.is_revoked(term);
        if is_revoked {
            self.leading.release = Release { term, notified_ns: Some(now_ns), notices: 0 };
        }
        is_revoked
    }
}
