//! A group's part of a turn after its entries are durable: it applies committed entries, and publishes its state to
//! other threads.

use crate::events::TabletEventKind;
use crate::failures::Failed;
use crate::group::apply::MembersChanged;
use crate::group::catch_up::{LogAnswer, reads_of};
use crate::group::memory::Memory;
use crate::group::replica::Replica;
use crate::group::suspects;
use crate::group::transact;
use crate::group::turn::Turn;
use crate::group::wire::Envelope;
use diorite_base::NodeId;
use diorite_base::write::{KvError, Waited};
use diorite_raft::{ConfState, Entry, LogPosition, Message, Step};
use diorite_storage::{Engine, StorageError};
use std::sync::Arc;
use std::sync::atomic::Ordering;

/// How long a follower may defer applying committed entries, nanoseconds, so that more of them are written to its data
/// at once.
const APPLY_WITHIN_NS: u64 = 500_000_000;

fn members_event(members: &ConfState) -> TabletEventKind {
    TabletEventKind::Members {
        voters: members.voters.clone(),
        outgoing: members.voters_outgoing.clone(),
        learners: members.learners.clone(),
    }
}

impl<E: Engine> Replica<E> {
    /// Continues after the step is durable: sends the messages that had to wait for that, and applies committed
    /// entries.
    pub(crate) fn complete(&mut self, turn: &mut Turn<E>, mut step: Step) {
        if self.failure.is_some() {
            return;
        }
        let mut committed = std::mem::take(&mut step.committed);
        let mut messages = std::mem::take(&mut step.messages_after_persist);
        let (more, sendable) = self.group.persisted(step);
        committed.extend(more);
        messages.extend(sendable);
        if !committed.is_empty() {
            turn.context.counters.entries_committed.add(committed.len() as u64);
        }
        let deferred = &mut self.following.deferred;
        if deferred.is_empty() && committed.is_empty() {
            // There is nothing to apply.
        } else if self.may_defer(&committed) {
            if self.following.deferred.is_empty() {
                turn.schedule.deferred.push_back((turn.now_ns() + APPLY_WITHIN_NS, self.id()));
            }
            self.following.deferred.append(&mut committed);
        } else {
            if !self.following.deferred.is_empty() {
                committed.splice(..0, self.following.deferred.take());
            }
            if !self.apply(turn, &committed) {
                return;
            }
        }
        if !messages.is_empty() {
            turn.post(self, messages);
        }
    }

    /// Applies the entries that a follower has deferred.
    pub(crate) fn apply_deferred(&mut self, turn: &mut Turn<E>) {
        let committed = self.following.deferred.take();
        if self.apply(turn, &committed) {
            self.note_freshness();
        }
    }

    /// Applies committed entries; returns whether the replica can continue. It stops where a read wants a snapshot.
    fn apply(&mut self, turn: &mut Turn<E>, committed: &[Entry]) -> bool {
        let mut rest = committed;
        while let Some(index) = self.writes.transactions.next_pin() {
            let (until, after) = rest.split_at(rest.partition_point(|entry| entry.index <= index));
            if until.is_empty() || after.is_empty() {
                break;
            }
            if !self.apply_some(turn, until) {
                return false;
            }
            rest = after;
        }
        self.apply_some(turn, rest)
    }

    fn apply_some(&mut self, turn: &mut Turn<E>, committed: &[Entry]) -> bool {
        if self.failure.is_some() {
            return false;
        }
        let had_ended = self.has_ended();
        let applied = turn.applier.apply(self, committed, &mut turn.outcomes);
        let (has_ended, is_split) = (self.has_ended(), self.ending.split.is_some());
        let serves_again = self.has_outlived_its_end() || (had_ended && !has_ended);
        // Applied stamps are observed, so that this replica, once it leads, gives later stamps than everything that was
        // acknowledged, whatever its own clock says. Each tablet has stamps of its own.
        self.writes.stamps.observe(self.applied.newest_stamp_us);
        match applied {
            Ok(MembersChanged(false)) => {}
            Ok(MembersChanged(true)) => {
                self.forget_removed();
                turn.context.note(self.id(), members_event(self.group.members()));
                turn.activate(self);
                // Published before any message is sent that lets the new members act.
                self.publish_lease(turn);
            }
            Err(error) => {
                // A replica that can replace this one has applied the entry at which this one failed.
                self.fail_at(turn, &error, self.applied.index + 1);
                return false;
            }
        }
        if serves_again {
            self.publish_lease(turn);
        }
        if has_ended && !had_ended {
            // Published before any other node receives it: from then on another tablet may answer.
            self.publish_lease(turn);
            if is_split {
                self.on_split(turn);
            }
            transact::stop_leading_transactions(self, turn);
        }
        transact::after_apply(self, turn);
        true
    }

    /// The replica has been split, or was opened after a split.
    pub(crate) fn on_split(&mut self, turn: &mut Turn<E>) {
        self.publish_lease(turn);
        let Some(mark) = self.ending.split.clone() else { return };
        self.handle.children.split.store(Some(Arc::new(mark.clone())));
        let leads = self.group.is_leader();
        if leads {
            // The other replicas are notified at once.
            self.ping(turn.now_ns());
        }
        turn.context.note(self.id(), TabletEventKind::Split { children: mark.split.children });
        turn.touch(self);
        if let Some(splits) = turn.context.hooks.splits.get() {
            splits.split(&mark, leads);
        }
    }

    /// Checks whether this replica has reached the position that its leader answered.
    pub(crate) fn note_freshness(&mut self) {
        let applied = self.applied.index;
        if let Some(position) = self.following.position.take_if(|position| applied >= position.index) {
            self.handle.fresh_ns.fetch_max(position.asked_ns, Ordering::AcqRel);
        }
    }

    /// Ends the group's turn: publishes the leader and its lease, and finds out whether anything is still due.
    pub(crate) fn finish_turn(&mut self, turn: &mut Turn<E>) {
        self.visits.is_touched = false;
        let inputs = self.published_inputs(turn.support.changes());
        if self.published != Some(inputs) {
            self.publish(turn);
        }
        self.published = Some(inputs);
        self.note_freshness();
        if self.group.has_lacking()
            && let Some(copies) = turn.context.hooks.copies.get()
        {
            for member in self.group.take_lacking() {
                copies.lacks(self.id(), NodeId(member), &self.able());
            }
        }
        if self.group.has_fetches() {
            let log = &turn.logs[self.handle.disk()];
            turn.reads.extend(reads_of(self, log));
        }
        let was_active = self.visits.is_active;
        // Time has to pass for transactions in a replica that is alone, too.
        let is_alone = self.is_alone_for_good(turn.context.node) && !transact::has_transactions(self);
        let is_active = !is_alone && !self.is_at_rest(turn);
        if is_active && !was_active {
            turn.activate(self);
        } else if was_active && !is_active {
            turn.deactivate(self);
        }
        self.check();
    }

    /// Sends entries that were read from the log to the members that lack them.
    pub(crate) fn take_answer(&mut self, turn: &mut Turn<E>, answer: LogAnswer) {
        if self.failure.is_some() {
            return;
        }
        let (fetch, entries) = answer.into_parts();
        if let Err(error) = self.group.fetched(&fetch, entries) {
            self.fail(turn, &StorageError::Log(error.to_string()));
        }
        turn.touch(self);
    }

    /// The replica has failed. If it leads, another is to lead.
    pub(crate) fn fail(&mut self, turn: &mut Turn<E>, error: &StorageError) {
        self.fail_at(turn, error, self.applied.index);
    }

    /// The leader's log contradicts entries that are committed here. Its replica counts as intact, however little it
    /// has applied: a majority has lost entries that this replica holds.
    pub(crate) fn fail_contradicted(&mut self, turn: &mut Turn<E>, error: &StorageError) {
        self.fail_at(turn, error, 0);
    }

    /// As [`Self::fail`]; another replica is intact if it has applied `needed`.
    fn fail_at(&mut self, turn: &mut Turn<E>, error: &StorageError, needed: u64) {
        self.release(turn, None);
        if self.failure.is_some() {
            return;
        }
        let tablet = self.id();
        let failed = Failed { tablet, reason: error.to_string(), is_damage: error.is_damage(), needed };
        turn.context.failures.note(failed);
        tracing::error!(%tablet, %error, "a tablet replica stops");
        turn.context.note(tablet, TabletEventKind::Failed { reason: error.to_string() });
        self.failure = Some(error.to_string());
        turn.context.counters.note_lease(self.handle.lease.publish(None));
        turn.context.suspect_disk(self.handle.disk());
        turn.outcomes.fail(self.writes.waiting.take_all(), &KvError::Storage(error.to_string()));
    }

    /// The replica leaves its store thread and answers no more reads or writes. Returns the state of the replica that
    /// the node must remember.
    pub(crate) fn end(&mut self, turn: &mut Turn<E>) -> Memory {
        turn.context.counters.note_lease(self.handle.lease.publish(None));
        // These writes were proposed: other replicas decide their outcome.
        turn.outcomes.fail(self.writes.waiting.take_all(), &KvError::Timeout(Waited::ended()));
        transact::stop_leading_transactions(self, turn);
        turn.schedule.active.remove(&self.id());
        self.group.memory()
    }

    /// Counts replayed entries as unflushed, as the next start would have to replay them again. If there is one entry
    /// more than was stored, the new leader has appended it.
    pub(crate) fn note_replayed(&self, turn: &Turn<E>, stored_index: u64) {
        if self.applied.index <= stored_index + 1 {
            return;
        }
        let replayed_bytes = self.handle.memory_bytes();
        let position = turn.context.log_position.fetch_add(replayed_bytes, Ordering::Relaxed);
        self.handle.log.written_bytes.fetch_add(replayed_bytes, Ordering::Relaxed);
        self.handle.log.oldest_unflushed.fetch_min(position, Ordering::AcqRel);
    }

    /// Asks the leader for its applied position, for a reader of this replica.
    pub(crate) fn ask_position(&self, turn: &mut Turn<E>) {
        if let Some(leader) = self.leader_elsewhere(turn.context.node) {
            let asked_ns = turn.now_ns();
            turn.outbox.post_envelope(leader, self.group_id(), &Envelope::Ask { asked_ns });
        }
    }

    /// Notifies the leader that this node has prepared the tablet's child tablets.
    pub(crate) fn announce_prepared(&mut self, turn: &mut Turn<E>) {
        if let Some(leader) = self.leader_elsewhere(turn.context.node) {
            turn.outbox.post_envelope(leader, self.group_id(), &Envelope::Prepared);
            turn.touch(self);
        }
    }

    /// Notifies the voter that is to campaign first that the replica of a new child tablet is open here, so that its
    /// campaign can succeed.
    pub(crate) fn announce_opened(&mut self, turn: &mut Turn<E>) {
        if self.group.leader() != 0 {
            return;
        }
        let first = self.ranked_voters().first().copied();
        if let Some(first) = first.filter(|first| *first != turn.context.node.0) {
            turn.outbox.post_envelope(NodeId(first), self.group_id(), &Envelope::Opened);
            turn.touch(self);
        }
    }

    /// Whether this replica may not vote for the candidate: see [`suspects::is_barred`]. A conditional vote is not
    /// barred.
    pub(crate) fn is_barred_from(&self, turn: &Turn<E>, request: &Message) -> bool {
        let candidate = LogPosition::new(request.index, request.log_term);
        !suspects::has_lost_entries(self, turn) && suspects::is_barred(self, turn, candidate, turn.now_ns())
    }

    /// Whether a vote of this replica is a conditional one: see [`diorite_raft::is_conditional_vote`].
    pub(crate) fn votes_on_condition(&self, turn: &Turn<E>) -> bool {
        suspects::has_lost_entries(self, turn) && !turn.context.planted.vote_without_condition
    }

    /// Whether this replica may not campaign: see [`suspects::is_barred`].
    pub(crate) fn is_barred_itself(&self, turn: &Turn<E>, now_ns: u64) -> bool {
        suspects::is_barred(self, turn, self.group.last(), now_ns)
    }
}
