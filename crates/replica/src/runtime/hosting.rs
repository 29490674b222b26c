//! How replicas come to a store thread and leave it, and what else its node asks of one of them.

use crate::events::TabletEventKind;
use crate::failures::FoundLeader;
use crate::group::describe::{ReplicaState, state_of};
use crate::group::memory::Memory;
use crate::group::replica::Replica;
use crate::group::split::Split;
use crate::group::turn::Turn;
use crate::group::wanted::Members;
use crate::group::wire::Envelope;
use crate::runtime::core::Core;
use diorite_base::write::KvError;
use diorite_base::{GroupId, NodeId, TabletId};
use diorite_raft::LogPosition;
use diorite_storage::{Engine, LogRecords, StorageError};
use std::collections::BTreeSet;
use std::sync::atomic::Ordering;

impl<E: Engine> Core<E> {
    /// Takes a replica and applies what is known to be committed. The sole voter of a group then leads and replays the rest of its log at once;
    /// otherwise a leader is found later.
    ///
    /// # Errors
    /// If the replica cannot apply what its log holds.
    pub fn open(&mut self, replica: impl Into<Box<Replica<E>>>) -> Result<(), KvError> {
        let mut replica = replica.into();
        let tablet = replica.id();
        let stored_index = replica.applied.index;
        replica.following.promise = self.promised.remove(&tablet);
        self.turn.touch(&mut replica);
        self.turn.activate(&mut replica);
        self.replicas.insert(tablet, replica);
        self.advance();
        self.with(tablet, |replica, turn| {
            replica.apply_deferred(turn);
            if replica.group.is_sole_voter() && replica.group.has_only_lost_its_end() {
                // Nobody else knows what that was. Without its log it would not know either who votes.
                replica.group.learn_floor(LogPosition::START);
            }
            // Only now are the members known: the data may be of a time when there were fewer.
            if replica.group.is_sole_voter() && !replica.group.is_recovering() {
                replica.campaign(turn);
            } else {
                replica.plan_campaign(turn.context.node, turn.now_ns());
            }
            if replica.ending.split.is_some() {
                replica.on_split(turn);
            }
            turn.touch(replica);
        });
        self.advance();
        self.turn.context.note(tablet, TabletEventKind::Opened { applied: stored_index });
        let opened = self.with(tablet, |replica, turn| {
            replica.note_replayed(turn, stored_index);
            replica.failure.clone().map_or(Ok(()), |failure| Err(KvError::Storage(failure)))
        });
        opened.unwrap_or(Ok(()))
    }

    /// Acts on a replica, if it is here.
    fn with<T>(&mut self, tablet: TabletId, act: impl FnOnce(&mut Replica<E>, &mut Turn<E>) -> T) -> Option<T> {
        self.replicas.get_mut(&tablet).map(|replica| act(replica, &mut self.turn))
    }

    /// Acts on a replica, if it is here, has it visited, and carries out what follows. A replica that has left meanwhile needs nothing.
    fn act(&mut self, tablet: TabletId, act: impl FnOnce(&mut Replica<E>, &mut Turn<E>)) {
        self.with(tablet, |replica, turn| {
            act(replica, turn);
            turn.touch(replica);
        });
        self.advance();
    }

    /// Closes a replica: when this returns its log is gone, durably, and its data may be removed, not before.
    ///
    /// The replica may come back, empty, under the same id: the tablet was moved away and is moved here again. Others may still depend on what it
    /// said in its former life: acknowledgements that a leader counts (they may even be on their way still), a vote in a term that is not over, a promise
    /// that a lease is made of. So these three are remembered: how far it may have acknowledged, with term and vote, in the log; the promise here,
    /// for as long as it is in force (after a restart of the process nobody votes until all promises have lapsed).
    ///
    /// # Errors
    /// If the log cannot be written.
    pub fn close(&mut self, tablet: TabletId) -> Result<(), KvError> {
        let Some(mut replica) = self.replicas.remove(&tablet) else { return Ok(()) };
        let (state, floor) = replica.end(&mut self.turn);
        self.keep_promise(&replica);
        self.turn.context.events.forget(tablet);
        let disk = replica.handle.disk();
        let retired = self.records[disk].retire(replica.group_id(), &state, floor);
        let failed = self.flush_logs(true);
        self.turn.outcomes.deliver();
        self.notify_leader(tablet);
        let is_lost = failed.into_iter().find(|(failed, _)| *failed == disk);
        let written = retired.and(is_lost.map_or(Ok(()), |(_, error)| Err(error)));
        written.map_err(|error| KvError::Storage(error.to_string()))
    }

    /// Notifies the leader that has counted on a replica which was just closed, durably.
    fn notify_leader(&mut self, tablet: TabletId) {
        let leader = self.promised.get(&tablet).map(|promise| promise.leader);
        if let Some(leader) = leader.filter(|leader| *leader != self.turn.context.node.0) {
            self.departed.note(tablet, leader);
            self.post_departed(self.turn.now_ns());
            self.send();
        }
    }

    /// Detaches a replica that has failed, or whose disk has; returns what it must remember should it be opened again. `None` if it is not here.
    pub fn detach_failed(&mut self, tablet: TabletId) -> Option<Memory> {
        self.with(tablet, |replica, turn| replica.release(turn, None));
        self.send();
        let mut replica = self.replicas.remove(&tablet)?;
        let memory = replica.end(&mut self.turn);
        self.keep_promise(&replica);
        self.turn.outcomes.deliver();
        Some(memory)
    }

    /// Steps down in a tablet, so that another replica leads, whichever is first.
    pub fn step_down(&mut self, tablet: TabletId) {
        self.act(tablet, |replica, turn| replica.release(turn, None));
    }

    /// Transfers leadership of a tablet, or steps down.
    #[cfg(test)]
    pub(crate) fn transfer_leadership(&mut self, tablet: TabletId, to: Option<NodeId>) {
        self.with(tablet, |replica, turn| replica.release(turn, to));
    }

    /// Detaches a replica that is about to be opened again with the same data and log, on another disk; what is committed is applied. Returns what it must
    /// remember if these are lost on the way. `None` if it is not here.
    pub fn detach_for_move(&mut self, tablet: TabletId) -> Option<Memory> {
        self.step_down(tablet);
        self.with(tablet, Replica::apply_deferred);
        self.detach(tablet)
    }

    fn keep_promise(&mut self, replica: &Replica<E>) {
        if let Some(promise) = replica.following.promise {
            self.promised.insert(replica.id(), promise);
        }
    }

    /// Detaches a replica whose data is about to be replaced by a copy; its log records stay, and so does what it has promised to its
    /// leader, whose lease may depend on that. Returns what it must remember; `None` if it is not here.
    pub fn detach(&mut self, tablet: TabletId) -> Option<Memory> {
        let mut replica = self.replicas.remove(&tablet)?;
        let memory = replica.end(&mut self.turn);
        self.keep_promise(&replica);
        // A truncation that waits for the next write must not come after what the copy will write: it would take the log back behind it.
        self.flush_logs(false);
        self.turn.outcomes.deliver();
        Some(memory)
    }

    /// Truncates the log where the data is durable; written with the next batch. What another member may still need stays, unless `force`.
    pub fn truncate(&mut self, tablet: TabletId, flushed: u64, force: bool) {
        // Nodes that join follow the catalog from its first entry.
        if GroupId::from(tablet) == GroupId::CATALOG {
            return;
        }
        let Some(replica) = self.replicas.get_mut(&tablet) else { return };
        if flushed > replica.applied.index {
            // It is an index of another log than this replica's. What is durable of this one is not known.
            let applied = replica.applied.index;
            tracing::error!(%tablet, flushed, applied, "the durable data is ahead of what was applied: the log is not truncated");
            return;
        }
        let wanted = flushed;
        let children_from = replica.handle.children.from.load(Ordering::Relaxed);
        let kept_from = if force { u64::MAX } else { replica.keep_from().min(children_from) };
        let index = wanted.min(kept_from.saturating_sub(1));
        replica.handle.log.is_held_back.store(index < wanted, Ordering::Relaxed);
        match replica.group.truncate_to(index) {
            Ok(Some(term)) => {
                replica.handle.log.start.store(index, Ordering::Release);
                let is_end = replica.group.last_index() == index;
                let written = self.records[replica.handle.disk()].truncate_to(replica.group_id(), index, term, is_end);
                if let Err(error) = written {
                    tracing::warn!(%tablet, %error, "could not record a log truncation");
                }
            }
            Ok(None) => {}
            Err(error) => tracing::warn!(%tablet, index, %error, "could not truncate the log"),
        }
    }

    /// Sets the members that the catalog wants.
    pub fn set_members(&mut self, tablet: TabletId, members: Members) {
        self.act(tablet, |replica, turn| replica.set_members(turn, members));
    }

    /// Steps down everywhere, so that others lead, and campaigns no more: this node is about to stop.
    pub fn step_down_for_stop(&mut self) {
        self.turn.fitness.is_leaving = true;
        self.step_down_everywhere();
    }

    /// This node's clock differs from the others', or agrees with them again: while it differs it leads nothing that another could lead, and does not campaign. It votes.
    pub fn set_clock_is_off(&mut self, is_off: bool) {
        self.turn.fitness.clock_is_off = is_off;
        if is_off {
            self.step_down_everywhere();
        }
    }

    fn step_down_everywhere(&mut self) {
        for tablet in self.tablets_where(Replica::may_propose) {
            self.with(tablet, |replica, turn| replica.release(turn, None));
        }
        self.advance();
    }

    /// What the replica has stored is damaged: it stops.
    pub(crate) fn fail_damaged(&mut self, tablet: TabletId, reason: String) {
        self.act(tablet, |replica, turn| replica.fail(turn, &StorageError::Corrupt(reason)));
    }

    /// Writes the time to a tablet's log, if it is led here and not written to.
    pub fn pass_time(&mut self, tablet: TabletId) {
        self.act(tablet, |replica, turn| replica.pass_time(turn.context.clock.wall_us()));
    }

    /// Splits a tablet, if it is led here and nothing else is under way with it; otherwise nothing happens.
    pub fn split(&mut self, tablet: TabletId, split: &Split) {
        self.act(tablet, |replica, turn| replica.propose_split(turn, split));
    }

    /// Opens a tablet again that was to be taken in by another in the merge of this number, which the catalog has cancelled. Nothing happens if it is not led here, or if
    /// that is under way or done; to be called until [`crate::has_given_up`].
    pub fn reopen(&mut self, tablet: TabletId, number: u64) {
        self.act(tablet, |replica, _| {
            if let Err(error) = replica.propose_reopening(number) {
                tracing::warn!(%tablet, number, %error, "could not propose to open a tablet again whose merge was cancelled");
            }
        });
    }

    /// Asks the leader how far the log is, for a replica that somebody wants to read from.
    pub fn refresh(&mut self, tablet: TabletId) {
        self.with(tablet, |replica, turn| replica.ask_position(turn));
        self.advance();
    }

    /// The replicas that have failed since the last call because what they hold is of no use, each with what whoever leads must have applied before it is made anew.
    pub fn take_damaged(&mut self) -> Vec<(TabletId, u64)> {
        let failed = self.turn.context.failures.take();
        failed.into_iter().filter(|failed| failed.is_damage).map(|failed| (failed.tablet, failed.needed)).collect()
    }

    /// Asks who leads a tablet whose replica here cannot go on; the answer is [`Self::found_leader`]. Asked are those that are to vote, and those that vote as far as that replica
    /// knows: one that is to leave may lead still.
    pub fn seek_leader(&mut self, tablet: TabletId, voters: &[NodeId]) {
        let (me, asked_ns) = (self.turn.context.node, self.turn.now_ns());
        self.turn.context.failures.seek(tablet);
        let known = self.replicas.get(&tablet).into_iter().flat_map(|replica| replica.group.all_voters()).map(NodeId);
        let asked: BTreeSet<NodeId> = voters.iter().copied().chain(known).filter(|node| *node != me).collect();
        for node in asked {
            self.turn.outbox.post_envelope(node, GroupId::from(tablet), &Envelope::Ask { asked_ns });
        }
        self.advance();
    }

    /// Who leads a tablet, and how much it has applied, if somebody has said so since the leader was last sought.
    pub fn found_leader(&self, tablet: TabletId) -> Option<FoundLeader> {
        self.turn.context.failures.leader(tablet)
    }

    /// This node has prepared the child tablets of a tablet: its leader is notified, with the next turn.
    pub fn announce_prepared(&mut self, tablet: TabletId) {
        self.with(tablet, Replica::announce_prepared);
    }

    /// A replica of a new child tablet is open here: the voter that is to campaign first is notified, with the next turn.
    pub fn announce_opened(&mut self, tablet: TabletId) {
        self.with(tablet, Replica::announce_opened);
    }

    /// A replica was sent a copy that holds no more than itself: its leader is told what it holds, as it would send that again and again.
    pub fn announce_data(&mut self, tablet: TabletId) {
        self.with(tablet, |replica, _| replica.following.announces_data = true);
    }

    /// How the replica is now; `None` if there is none.
    pub fn describe(&self, tablet: TabletId) -> Option<ReplicaState> {
        let replica = self.replicas.get(&tablet)?;
        Some(state_of(replica, self.turn.now_ns()))
    }
}
