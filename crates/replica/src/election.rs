//! Who leads: promises to leaders, elections when a leader's node is no longer supported, leases, and giving them up.
//!
//! Always true:
//! - A follower that has acknowledged a leader under a support epoch neither votes for another nor campaigns while that epoch lasts, unless
//!   the leader has given up its lease for the rest of its term.
//! - For as long after a start as promises of the former life may last, nothing is voted for and nobody campaigns.
//! - A lease is published only after an entry of the leader's own term is applied, and never again in a term in which it was given up.
//! - A leader with a lease in force does not listen to candidates.
//! - A leader that too few support gives up its lease, so that those who do are free: another may be in touch with a quorum where this one is not
//!   (some links are down, or one direction of them).
//! - While a group changes from one set of voters to another, a lease takes a quorum of both. Whoever does not know of the change yet can be elected only
//!   by a quorum of the old set, whoever knows that it is over only by one of the new: each meets one that the lease stands on.
//! - A replica that came back without its log (it was moved away and has returned) neither votes nor campaigns until it holds as much as it had
//!   acknowledged (`diorite_raft::Recovered::floor`). What it had promised is kept by its core for as long as the promise stands, and by the wait after a
//!   start beyond that; a leader forgets the acknowledgements of members that are removed. So what it has forgotten nobody stands on.
//! - A replica that was removed while it was away may campaign for as long as it likes: no voter that has acknowledged a leader listens, the others
//!   find its log too short, and as it asks before it begins a term, no term is disturbed.

use crate::catch_up::reads_of;
use crate::core::Core;
use crate::events::TabletEventKind;
use crate::lease::{Half, Lease};
use crate::replica::{Promise, Replica};
use crate::wire::Envelope;
use diorite_base::{GroupId, NodeId, TabletId};
use diorite_raft::{
    GroupError, Message, MessageType, SupportChange, is_acknowledgement, is_from_leader, is_vote_request,
    may_come_from_a_peer,
};
use diorite_storage::{Engine, StorageError};
use std::collections::BTreeSet;
use std::sync::atomic::Ordering;

/// How much later the next replica campaigns, nanoseconds, so that votes are not split.
const RANK_DELAY_NS: u64 = 150_000_000;

/// How long a campaign is given, nanoseconds, before it is repeated.
const CAMPAIGN_NS: u64 = 120_000_000;

/// How long a member that lags is left alone after it was asked for a sign of life, nanoseconds.
pub(crate) const PING_NS: u64 = 200_000_000;

/// A group to which nothing was written for this long, nanoseconds, tells its members of the last commit by itself.
pub(crate) const QUIET_NS: u64 = 100_000_000;

/// How long a node that has given up its lease waits for another to lead, nanoseconds.
const RELEASE_PATIENCE_NS: u64 = 1_000_000_000;

/// How long a leader without a lease, nanoseconds, keeps those who support it from voting for another.
const IN_VAIN_NS: u64 = 1_000_000_000;

/// A number below `bound` that differs between replicas and attempts and is the same in every run.
fn spread(tablet: TabletId, node: NodeId, now_ns: u64, bound: u64) -> u64 {
    let mixed = (tablet.0 ^ node.0.rotate_left(32) ^ now_ns.rotate_left(16)).wrapping_mul(0x9E37_79B9_7F4A_7C15);
    (mixed >> 33) % bound
}

impl<E: Engine> Core<E> {
    /// Reacts to a change of support between this node and another.
    pub(crate) fn on_support_change(&mut self, change: SupportChange) {
        let now_ns = self.context.clock.monotonic_ns();
        if let SupportChange::Withdrawn(node) = change {
            // What was promised to it under the epoch that is over binds nobody.
            let support = &self.support;
            self.promised
                .retain(|_, promise| promise.leader != node || support.given_epoch(node) == Some(promise.epoch));
        }
        let mut concerned: Vec<TabletId> = match change {
            SupportChange::Withdrawn(node) => self.tablets_where(|replica| {
                replica.group.leader() == node
                    || replica.promise.is_some_and(|promise| promise.leader == node)
                    || replica.leads(node)
            }),
            SupportChange::Given(node) | SupportChange::Received(node) => {
                self.tablets_where(|replica| replica.leads(node))
            }
        };
        concerned.sort_unstable();
        for tablet in concerned {
            match change {
                SupportChange::Withdrawn(_) => self.plan_campaign(tablet, now_ns),
                SupportChange::Given(_) | SupportChange::Received(_) => self.ping(tablet, now_ns),
            }
            self.disturb(tablet);
            self.touch(tablet);
            self.look_after(tablet, now_ns);
        }
    }

    fn tablets_where(&self, concerns: impl Fn(&Replica<E>) -> bool) -> Vec<TabletId> {
        self.replicas.iter().filter(|(_, replica)| concerns(replica)).map(|(tablet, _)| *tablet).collect()
    }

    pub(crate) fn ping(&mut self, tablet: TabletId, now_ns: u64) {
        if let Some(replica) = self.replicas.get_mut(&tablet) {
            replica.pinged_ns = now_ns;
            replica.group.ping();
        }
    }

    /// A new replica of a group with several voters: the first of the wanted voters is the first to try.
    pub(crate) fn begin_without_leader(&mut self, tablet: TabletId) {
        self.plan_campaign(tablet, self.context.clock.monotonic_ns());
    }

    /// Plans when this replica campaigns: at once if it is the first in rank, later otherwise.
    fn plan_campaign(&mut self, tablet: TabletId, now_ns: u64) {
        let me = self.context.node;
        let Some(replica) = self.replicas.get_mut(&tablet) else { return };
        let gone = replica.group.leader();
        let voters = replica.ranked_voters();
        let rank = voters.iter().filter(|voter| **voter != gone).position(|voter| *voter == me.0);
        let rank = rank.unwrap_or(voters.len()) as u64;
        replica.campaign_ns = now_ns + rank * RANK_DELAY_NS;
    }

    /// A member has lost its log. It is sent what it lacks, and its word counts from then on only.
    pub(crate) fn on_lost(&mut self, from: NodeId, tablet: TabletId, index: u64) {
        let now_ns = self.context.clock.monotonic_ns();
        let Some(replica) = self.replicas.get_mut(&tablet).filter(|replica| replica.group.is_leader()) else { return };
        replica.group.forget_progress(from.0, index);
        replica.acknowledged.remove(&from.0);
        replica.published = None;
        self.ping(tablet, now_ns);
        self.disturb(tablet);
    }

    /// Tells those who may lead that this replica holds less than it has acknowledged, so that one of them sends it what it lacks.
    fn tell_lost(&mut self, tablet: TabletId, now_ns: u64) {
        let me = self.context.node;
        let Some(replica) = self.replicas.get_mut(&tablet) else { return };
        if now_ns < replica.pinged_ns + PING_NS {
            return;
        }
        replica.pinged_ns = now_ns;
        let group = replica.group_id;
        let leader = replica.leader_elsewhere(me);
        let told: BTreeSet<NodeId> = match leader {
            Some(leader) => [leader].into(),
            None => {
                let voters = replica.members.voters.iter().copied().chain(replica.group.all_voters().map(NodeId));
                voters.filter(|node| *node != me).collect()
            }
        };
        let Some(lost) = self.confession(tablet, now_ns) else { return };
        for node in told {
            self.post_envelope(node, group, &lost);
        }
    }

    /// Who leads, by what this replica has promised, if it has not heard of it since it was opened: a leader of which nothing is due says nothing.
    fn unheard_leader(&self, replica: &Replica<E>) -> Option<NodeId> {
        let promise = replica.promise.filter(|promise| replica.group.leader() == 0 && self.stands(*promise))?;
        (promise.leader != self.context.node.0).then_some(NodeId(promise.leader))
    }

    /// Tells the leader that this replica was opened anew: of the last commits it may not know, as a copy took its data's place.
    fn tell_reopened(&mut self, tablet: TabletId, leader: NodeId, now_ns: u64) {
        let Some(replica) = self.replicas.get_mut(&tablet) else { return };
        replica.pinged_ns = now_ns;
        let group = replica.group_id;
        self.post_envelope(leader, group, &Envelope::Opened);
    }

    /// Takes what a replica on another node says.
    pub(crate) fn receive(&mut self, from: NodeId, group: GroupId, envelope: Envelope) {
        let tablet = TabletId(group.0);
        if let Envelope::Position { index, .. } = envelope {
            self.context.found_leader(tablet, from, index);
        }
        // A replica that is not here (yet, or any more) is like one that is down.
        if self.replicas.get(&tablet).is_none_or(|replica| replica.failure.is_some()) {
            return;
        }
        match envelope {
            Envelope::Raft { epoch, keep_from, message } => {
                if message.from != from.0 || message.to != self.context.node.0 || !may_come_from_a_peer(&message) {
                    tracing::warn!(%from, %group, "a consensus message that its sender cannot send");
                    return;
                }
                self.receive_message(tablet, epoch, keep_from, *message);
            }
            Envelope::Released { term, candidate } => self.on_released(from, tablet, term, candidate),
            Envelope::Ask { asked_ns } => self.on_ask(from, tablet, asked_ns),
            Envelope::Position { asked_ns, index } => self.on_position(tablet, asked_ns, index),
            Envelope::Lost { index } => self.on_lost(from, tablet, index),
            Envelope::Suspect { index } => self.on_suspect(from, tablet, index),
            Envelope::Floor { term, index, last_term } => self.on_floor(from, tablet, term, (index, last_term)),
            Envelope::Standing { index, term } => self.on_standing(from, tablet, (term, index)),
            Envelope::Prepared => self.on_prepared(from, tablet),
            Envelope::Opened => self.on_opened(from, tablet),
        }
        self.touch(tablet);
    }

    fn receive_message(&mut self, tablet: TabletId, epoch: u64, keep_from: u64, message: Message) {
        if is_vote_request(&message) && self.must_not_vote(tablet, &message) {
            return;
        }
        let (from, term) = (message.from, message.term);
        let (kind, previous, commit) = (message.get_msg_type(), message.index, message.commit);
        let (leads, acknowledges) = (is_from_leader(&message), is_acknowledgement(&message));
        let given_epoch = if leads { self.support.given_epoch(from) } else { None };
        let Some(replica) = self.replicas.get_mut(&tablet) else { return };
        let had_leader = replica.group.leader();
        if let Err(error) = replica.group.step(message) {
            if matches!(error, GroupError::Diverged { .. }) {
                self.fail(tablet, &StorageError::Corrupt(error.to_string()));
                return;
            }
            tracing::debug!(%tablet, from, %error, "a consensus message was not taken");
            return;
        }
        if leads && replica.group.term() == term && replica.group.leader() == from {
            let is_released = replica.released_term == term;
            replica.promise = given_epoch.filter(|_| !is_released).map(|epoch| Promise { leader: from, epoch });
            replica.keep_from = keep_from;
            let is_unbound = replica.promise.is_none() || had_leader != from;
            if replica.announces_copy {
                // Heartbeats come until the leader knows that its entries fit.
                replica.announces_copy = kind != MessageType::MsgAppend || previous < replica.applied.index;
                let message = replica.group.acknowledge_copy().filter(|_| replica.announces_copy);
                self.post(tablet, message.into_iter().collect());
            }
            if is_unbound {
                self.disturb(tablet);
            }
        } else if acknowledges && replica.group.is_leader() && replica.group.term() == term {
            // Not when it has answered to such word: a replica that has lost its log may hold less than it is told.
            if kind == MessageType::MsgAppendResponse {
                replica.tell_news();
            }
            if epoch == 0 {
                return;
            }
            if replica.acknowledged_term != term {
                replica.acknowledged.clear();
                replica.acknowledged_term = term;
            }
            if replica.acknowledged.insert(from, epoch) != Some(epoch) {
                replica.published = None;
                // It may have been restarted since, and what it had heard of commits is not in its log.
                replica.group.forget_commit(from, commit);
            }
        }
    }

    /// Whether a promise, a lease, or ignorance of former promises forbids a vote for `candidate`.
    fn must_not_vote(&self, tablet: TabletId, request: &Message) -> bool {
        let Some(replica) = self.replicas.get(&tablet) else { return true };
        let candidate = request.from;
        !self.context.may_vote()
            || self.is_barred_from(replica, request)
            || replica.promise.is_some_and(|promise| promise.leader != candidate && self.stands(promise))
            || replica.handle.lease.begin(|| self.context.clock.monotonic_ns()).is_some()
    }

    /// Whether this node still supports the leader in the epoch that the promise was made in.
    fn stands(&self, promise: Promise) -> bool {
        self.support.given_epoch(promise.leader) == Some(promise.epoch)
    }

    /// A leader has given up its lease: the promise to it is void.
    fn on_released(&mut self, from: NodeId, tablet: TabletId, term: u64, candidate: u64) {
        let (me, now_ns) = (self.context.node, self.context.clock.monotonic_ns());
        let Some(replica) = self.replicas.get_mut(&tablet) else { return };
        if term != replica.group.term() || replica.group.leader() != from.0 {
            return;
        }
        replica.released_term = term;
        replica.promise = None;
        self.disturb(tablet);
        if candidate == 0 || candidate == me.0 {
            self.plan_campaign(tablet, now_ns);
            if candidate == me.0
                && let Some(replica) = self.replicas.get_mut(&tablet)
            {
                replica.campaign_ns = now_ns;
            }
            self.called_upon.push(tablet);
        } else if let Some(replica) = self.replicas.get_mut(&tablet) {
            replica.campaign_ns = now_ns + 2 * RANK_DELAY_NS;
        }
    }

    /// Gives up the lease of a leader for the rest of its term, so that `candidate`, or anybody, may be elected at once.
    pub(crate) fn release(&mut self, tablet: TabletId, candidate: Option<NodeId>) {
        let Some(replica) = self.replicas.get_mut(&tablet) else { return };
        if !replica.may_propose() || replica.group.is_sole_voter() {
            return;
        }
        self.give_up(tablet, candidate);
    }

    fn give_up(&mut self, tablet: TabletId, candidate: Option<NodeId>) {
        let now_ns = self.context.clock.monotonic_ns();
        let me = self.context.node;
        let Some(replica) = self.replicas.get_mut(&tablet) else { return };
        // In this order: reads that began under the lease fail before anybody else can be elected.
        self.context.counters.note_lease(replica.handle.lease.publish(None));
        let term = replica.group.term();
        (replica.released_term, replica.released_ns) = (term, now_ns);
        self.context.note(tablet, TabletEventKind::HandedOver { to: candidate });
        let group = replica.group_id;
        let voters: Vec<u64> = replica.group.all_voters().filter(|voter| *voter != me.0).collect();
        let released = Envelope::Released { term, candidate: candidate.map_or(0, |node| node.0) };
        for voter in voters {
            self.post_envelope(NodeId(voter), group, &released);
        }
        self.disturb(tablet);
    }

    /// Does what is due in one group.
    pub(crate) fn look_after(&mut self, tablet: TabletId, now_ns: u64) {
        let Some(replica) = self.replicas.get(&tablet).filter(|replica| replica.failure.is_none()) else { return };
        if !replica.group.is_leader() {
            if replica.group.is_recovering() {
                self.tell_lost(tablet, now_ns);
            } else if let Some(leader) = self.unheard_leader(replica).filter(|_| now_ns >= replica.pinged_ns + PING_NS)
            {
                self.tell_reopened(tablet, leader, now_ns);
            }
            self.campaign_if_due(tablet, now_ns);
        } else if replica.has_released() {
            if now_ns >= replica.released_ns + RELEASE_PATIENCE_NS
                && !self.is_leaving
                && let Some(replica) = self.replicas.get_mut(&tablet)
            {
                replica.group.step_down();
                replica.campaign_ns = now_ns;
                replica.vain_releases += 1;
            }
        } else if self.has_led_in_vain(tablet, now_ns) {
            tracing::info!(%tablet, "too few support this node, which led: whoever is in touch with more may lead");
            self.give_up(tablet, None);
        } else {
            let Some(replica) = self.replicas.get(&tablet) else { return };
            // In a group that is written to, commits travel with the next entries.
            let is_quiet = now_ns >= replica.proposed_ns + QUIET_NS;
            let is_ping_due = now_ns >= replica.pinged_ns + PING_NS;
            if is_ping_due && self.has_laggard(replica, is_quiet) {
                self.ping(tablet, now_ns);
            }
            self.reconcile(tablet, now_ns);
        }
    }

    /// Whether too few have supported a leader for a while, and those who do may not vote for another.
    fn has_led_in_vain(&mut self, tablet: TabletId, now_ns: u64) -> bool {
        let Some(replica) = self.replicas.get(&tablet) else { return false };
        let is_in_vain = !self.is_supported(replica, now_ns) && self.has_bound(replica, now_ns);
        let Some(replica) = self.replicas.get_mut(&tablet) else { return false };
        if !is_in_vain {
            replica.in_vain_since_ns = None;
            return false;
        }
        now_ns >= *replica.in_vain_since_ns.get_or_insert(now_ns) + IN_VAIN_NS
    }

    /// Whether enough members support this leader for a lease, which it may have given up for another reason: it has been split.
    fn is_supported(&self, replica: &Replica<E>, now_ns: u64) -> bool {
        replica.handle.lease.begin(|| now_ns).is_some()
            || lease_of(replica, self.context.node, |node, epoch| self.support.supporter(node, epoch))
                .is_some_and(|lease| lease.holds(|| now_ns))
    }

    /// Whether a member supports this leader, and may so not vote for another.
    fn has_bound(&self, replica: &Replica<E>, now_ns: u64) -> bool {
        replica.group.progress().any(|member| {
            let epoch = replica.acknowledged.get(&member.replica);
            let epoch = epoch.filter(|_| replica.acknowledged_term == replica.group.term());
            let supporter = epoch.and_then(|epoch| self.support.supporter(member.replica, *epoch));
            supporter.is_some_and(|supporter| now_ns < supporter.until_ns())
        })
    }

    /// Whether this leader is in touch with a quorum, by what its node knows of others: where it is not, its lease is about to end.
    fn has_quorum(&self, replica: &Replica<E>) -> bool {
        let members = replica.group.members();
        let is_with = |voter: &&u64| {
            **voter == self.context.node.0
                || (self.support.is_up(NodeId(**voter)) && self.has_acknowledged(replica, **voter))
        };
        let has_most = |voters: &[u64]| voters.is_empty() || voters.iter().filter(is_with).count() > voters.len() / 2;
        has_most(&members.voters) && has_most(&members.voters_outgoing)
    }

    fn campaign_if_due(&mut self, tablet: TabletId, now_ns: u64) {
        let me = self.context.node;
        let may_campaign = self.context.may_vote() && !self.is_leaving && !self.clock_is_off;
        let Some(replica) = self.replicas.get(&tablet) else { return };
        if self.context.is_stalled(replica.handle.disk) {
            return;
        }
        let is_bound = replica.promise.is_some_and(|promise| self.stands(promise));
        let is_voter = replica.group.all_voters().any(|voter| voter == me.0);
        let has_forgotten = self.is_barred_itself(replica, now_ns);
        if is_bound || !is_voter || !may_campaign || has_forgotten || now_ns < replica.campaign_ns {
            return;
        }
        let Some(replica) = self.replicas.get_mut(&tablet) else { return };
        replica.campaign_ns = now_ns + CAMPAIGN_NS + spread(tablet, me, now_ns, CAMPAIGN_NS);
        self.context.counters.campaigns.fetch_add(1, Ordering::Relaxed);
        if let Err(error) = replica.group.campaign() {
            let error = StorageError::Corrupt(error.to_string());
            self.fail(tablet, &error);
        }
    }

    /// Whether a member whose node is up lacks entries, or has not acknowledged the leader under its current epoch; or, if `heeds_commits`, has
    /// not heard of the last commit.
    fn has_laggard(&self, replica: &Replica<E>, heeds_commits: bool) -> bool {
        let (last, commit) = (replica.group.last_index(), replica.group.commit_index());
        replica.group.progress().any(|member| {
            let is_behind = member.matched < last || (heeds_commits && member.committed < commit);
            let is_acknowledged = self.has_acknowledged(replica, member.replica);
            (is_behind || !is_acknowledged) && self.support.is_up(NodeId(member.replica))
        })
    }

    /// Whether the member has acknowledged the leader under its current epoch, and may vote.
    pub(crate) fn has_acknowledged(&self, replica: &Replica<E>, member: u64) -> bool {
        replica.acknowledged_term == replica.group.term()
            && replica.acknowledged.get(&member).is_some_and(|epoch| self.support.is_supporter(member, *epoch))
    }

    /// After a turn: says who leads, under which lease, and whether anything is still due.
    pub(crate) fn settle(&mut self, tablet: TabletId) {
        let support = self.support.changes();
        let Some(replica) = self.replicas.get_mut(&tablet) else { return };
        replica.touched = false;
        let basis = replica.basis(support);
        if replica.published != Some(basis) {
            self.publish(tablet);
        }
        let Some(replica) = self.replicas.get_mut(&tablet) else { return };
        replica.published = Some(basis);
        replica.note_freshness();
        if let Some(copies) = self.context.copies.get().filter(|_| replica.group.has_lacking()) {
            for member in replica.group.take_lacking() {
                copies.lacks(tablet, NodeId(member), &replica.able());
            }
        }
        if replica.group.has_fetches() {
            let log = &self.logs[replica.handle.disk];
            self.reads.extend(reads_of(replica, log));
        }
        let was_restless = replica.is_restless;
        let is_restless = !replica.is_alone_for_good(self.context.node) && !self.is_at_rest(tablet);
        if is_restless && !was_restless {
            self.disturb(tablet);
        } else if was_restless && !is_restless {
            self.calm(tablet);
        }
    }

    /// Tells other threads what has changed: who leads, under which lease, and with which members.
    fn publish(&mut self, tablet: TabletId) {
        self.publish_lease(tablet);
        let Some(replica) = self.replicas.get_mut(&tablet) else { return };
        let leader = replica.group.leader();
        let led_term = if replica.group.is_leader() { replica.group.term() } else { 0 };
        replica.handle.led_term.store(led_term, Ordering::Release);
        // While two sets decide, those who come cannot do without those who go.
        let members = replica.group.members();
        let voters = if replica.group.is_joint() { &members.voters_outgoing } else { &members.voters };
        if **replica.handle.voters.load() != *voters {
            replica.handle.voters.store(voters.clone().into());
        }
        replica.note_settled();
        replica.progress_at = replica.group.progress_at();
        replica.handle.is_recovering.store(replica.group.is_recovering(), Ordering::Release);
        if replica.handle.leader.swap(leader, Ordering::AcqRel) != leader {
            let term = replica.group.term();
            if leader == self.context.node.0 {
                self.context.counters.elections_won.fetch_add(1, Ordering::Relaxed);
                tracing::info!(event = "leader", %tablet, term, "this node leads a tablet");
            } else if leader != 0 {
                tracing::debug!(%tablet, leader, term, "leader changed");
            }
            self.context.note(
                tablet,
                match leader {
                    0 => TabletEventKind::NoLeader { term },
                    leader => TabletEventKind::Leader { leader: NodeId(leader), term },
                },
            );
        }
        if leader != self.context.node.0 {
            replica.leading_since_ns = None;
            replica.in_vain_since_ns = None;
            if leader != 0 {
                replica.vain_releases = 0;
            }
        }
    }

    /// Whether nothing is due in the group, so that it need not be looked at until something happens.
    fn is_at_rest(&self, tablet: TabletId) -> bool {
        let Some(replica) = self.replicas.get(&tablet) else { return true };
        if replica.failure.is_some() {
            return true;
        }
        // Followers of a group that is written to hear of the last commit with the next entries: there is no need to find out that they have not.
        if !replica.waiting.is_empty() || self.turned_ns < replica.proposed_ns + QUIET_NS {
            return false;
        }
        if replica.group.is_leader() {
            replica.may_propose()
                && !self.has_laggard(replica, true)
                && self.is_as_wanted(replica)
                && (self.has_quorum(replica) || !self.has_bound(replica, self.turned_ns))
        } else {
            if replica.group.is_recovering() || self.unheard_leader(replica).is_some() {
                return false;
            }
            // A learner has nothing to do but to listen.
            replica.promise.is_some_and(|promise| self.stands(promise))
                || replica.group.all_voters().all(|voter| voter != self.context.node.0)
        }
    }

    /// Publishes the lease that follows from who has acknowledged this node's leadership.
    pub(crate) fn publish_lease(&mut self, tablet: TabletId) {
        let Some(replica) = self.replicas.get_mut(&tablet) else { return };
        let lease = if replica.failure.is_none() && replica.may_propose() && replica.group.is_established_leader() {
            lease_of(replica, self.context.node, |node, epoch| self.support.supporter(node, epoch))
        } else {
            None
        };
        self.context.counters.note_lease(replica.handle.lease.publish(lease));
    }
}

fn lease_of<E: Engine>(
    replica: &Replica<E>,
    me: NodeId,
    supporter: impl Fn(u64, u64) -> Option<std::sync::Arc<diorite_raft::Supporter>>,
) -> Option<Lease> {
    let members = replica.group.members();
    let term = replica.group.term();
    if replica.acknowledged_term != term && !replica.group.is_sole_voter() {
        return None;
    }
    let known = |voter: u64| supporter(voter, *replica.acknowledged.get(&voter)?);
    let voters = Half::of(&members.voters, me.0, known)?;
    let outgoing = match members.voters_outgoing.as_slice() {
        [] => None,
        outgoing => Some(Half::of(outgoing, me.0, known)?),
    };
    Some(Lease::new(term, voters, outgoing))
}
