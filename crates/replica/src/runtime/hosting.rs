//! How replicas come to a store thread and leave it, and the node's requests to a single replica.

use crate::events::TabletEventKind;
use crate::failures::FoundLeader;
use crate::group::describe::{ReplicaState, state_of};
use crate::group::memory::Memory;
use crate::group::replica::Replica;
use crate::group::split::Split;
use crate::group::transact;
use crate::group::turn::Turn;
use crate::group::wanted::Members;
use crate::group::wire::Envelope;
use crate::runtime::core::Core;
use diorite_base::write::KvError;
use diorite_base::{GroupId, NodeId, TabletId};
use diorite_raft::LogPosition;
use diorite_storage::{Engine, LogRecords, StorageError};
use diorite_transact::TransactionId;
use diorite_transact::message::Status;
use std::collections::BTreeSet;
use std::sync::atomic::Ordering;

impl<E: Engine> Core<E> {
    /// Adopts a replica, and applies the entries that are known to be committed. The sole voter of a group then leads
    /// and replays the rest of its log at once; otherwise a leader is found later.
    ///
    /// # Errors
    /// If the replica cannot apply an entry of its log.
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
                // No other replica knows the lost entries. A replica that has lost its whole log would not even know
                // who votes.
                replica.group.learn_floor(LogPosition::START);
            }
            // The members are known only now: the data may be older than a change of members.
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

    /// Calls `act` with a replica, if it is here.
    fn with<T>(&mut self, tablet: TabletId, act: impl FnOnce(&mut Replica<E>, &mut Turn<E>) -> T) -> Option<T> {
        self.replicas.get_mut(&tablet).map(|replica| act(replica, &mut self.turn))
    }

    /// Calls `act` with a replica, if it is here, lets the replica be visited, and carries out the effects.
    fn act(&mut self, tablet: TabletId, act: impl FnOnce(&mut Replica<E>, &mut Turn<E>)) {
        self.with(tablet, |replica, turn| {
            act(replica, turn);
            turn.touch(replica);
        });
        self.advance();
    }

    /// Closes a replica. When this returns, its log has been removed durably, and only then may its data be removed.
    ///
    /// The replica may be opened again, empty, under the same id: the tablet was moved away and is moved back. Other
    /// members may still depend on the former replica: on acknowledgements that a leader counts (they may even be under
    /// way still), on a vote in a term that has not ended, on a promise that a lease needs. So these are remembered:
    /// the log keeps the last position that may have been acknowledged, with term and vote; this thread keeps the
    /// promise while it is in force (after a restart of the process no replica votes until all promises have lapsed).
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

    /// Notifies the leader that counted on a replica which was just closed, durably.
    fn notify_leader(&mut self, tablet: TabletId) {
        let leader = self.promised.get(&tablet).map(|promise| promise.leader);
        if let Some(leader) = leader.filter(|leader| *leader != self.turn.context.node.0) {
            self.departed.note(tablet, leader);
            self.post_departed(self.turn.now_ns());
            self.send();
        }
    }

    /// Detaches a replica that has failed, or whose disk has failed; returns the state that it must remember when it is
    /// opened again. `None` if it is not here.
    pub fn detach_failed(&mut self, tablet: TabletId) -> Option<Memory> {
        self.with(tablet, |replica, turn| replica.release(turn, None));
        self.send();
        let mut replica = self.replicas.remove(&tablet)?;
        let memory = replica.end(&mut self.turn);
        self.keep_promise(&replica);
        self.turn.outcomes.deliver();
        Some(memory)
    }

    /// Steps down in a tablet, so that any other replica leads.
    pub fn step_down(&mut self, tablet: TabletId) {
        self.act(tablet, |replica, turn| replica.release(turn, None));
    }

    /// Transfers leadership of a tablet to a candidate, or steps down.
    #[cfg(test)]
    pub(crate) fn transfer_leadership(&mut self, tablet: TabletId, to: Option<NodeId>) {
        self.with(tablet, |replica, turn| replica.release(turn, to));
    }

    /// Detaches a replica that is about to be opened again with the same data and log on another disk; committed
    /// entries are applied first. Returns the state that it must remember if these are lost on the way. `None` if it is
    /// not here.
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

    /// Detaches a replica whose data is about to be replaced by a copy. Its log records stay, and so does its promise
    /// to its leader, whose lease may depend on that. Returns the state that it must remember; `None` if it is not
    /// here.
    pub fn detach(&mut self, tablet: TabletId) -> Option<Memory> {
        let mut replica = self.replicas.remove(&tablet)?;
        let memory = replica.end(&mut self.turn);
        self.keep_promise(&replica);
        // A pending truncation must not be written after the copy's own log records: it would set the log's start back.
        self.flush_logs(false);
        self.turn.outcomes.deliver();
        Some(memory)
    }

    /// Truncates the log up to the durable data; the record is written with the next batch. Entries that another member
    /// may still need stay, unless `force`.
    pub fn truncate(&mut self, tablet: TabletId, flushed: u64, force: bool) {
        // Nodes that join follow the catalog from its first entry.
        if GroupId::from(tablet) == GroupId::CATALOG {
            return;
        }
        let Some(replica) = self.replicas.get_mut(&tablet) else { return };
        if flushed > replica.applied.index {
            // The index belongs to another log than this replica's. How much of this one is durable in the data is not
            // known.
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

    /// Steps down in all tablets, so that others lead, and campaigns no more: this node is about to stop.
    pub fn step_down_for_stop(&mut self) {
        self.turn.fitness.is_leaving = true;
        self.step_down_everywhere();
    }

    /// Sets whether this node's clock differs from the others'. While it does, the node leads no tablet that another
    /// node can lead, and does not campaign. It still votes.
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

    /// The replica stops, since data that it has stored is damaged.
    pub(crate) fn fail_damaged(&mut self, tablet: TabletId, reason: String) {
        self.act(tablet, |replica, turn| replica.fail(turn, &StorageError::Corrupt(reason)));
    }

    /// Writes the time to a tablet's log, if this node leads the tablet and it is idle.
    pub fn pass_time(&mut self, tablet: TabletId) {
        self.act(tablet, |replica, turn| replica.pass_time(turn.context.clock.wall_us()));
    }

    /// The home of a transaction that a tablet has prepared has answered [`diorite_transact::peer::PeerCall::Ask`].
    pub fn transaction_learned(&mut self, tablet: TabletId, (id, prepared_us): (TransactionId, i64), status: Status) {
        self.act(tablet, |replica, turn| transact::transaction_learned(replica, turn, id, prepared_us, status));
    }

    /// A participant of a transaction whose home a tablet is has answered [`diorite_transact::peer::PeerCall::Finish`].
    pub fn transaction_finished(&mut self, tablet: TabletId, id: TransactionId, participant: TabletId) {
        self.act(tablet, |replica, turn| transact::transaction_finished(replica, turn, id, participant));
    }

    /// Splits a tablet, if this node leads it and no change of members is under way; otherwise nothing happens.
    pub fn split(&mut self, tablet: TabletId, split: &Split) {
        self.act(tablet, |replica, turn| replica.propose_split(turn, split));
    }

    /// Opens a tablet again after the catalog has cancelled the merge of this number. Nothing happens if this node does
    /// not lead the tablet, or if that is under way or done. The caller repeats this until [`crate::has_given_up`].
    pub fn reopen(&mut self, tablet: TabletId, number: u64) {
        self.act(tablet, |replica, _| {
            if let Err(error) = replica.propose_reopening(number) {
                tracing::warn!(%tablet, number, %error, "could not propose to open a tablet again whose merge was cancelled");
            }
        });
    }

    /// Asks the leader for its applied position, for a client that wants to read from this replica.
    pub fn refresh(&mut self, tablet: TabletId) {
        self.with(tablet, |replica, turn| replica.ask_position(turn));
        self.advance();
    }

    /// The replicas that have failed since the last call because their data is damaged, each with the index that a
    /// leader must have applied before the replica is rebuilt from it.
    pub fn take_damaged(&mut self) -> Vec<(TabletId, u64)> {
        let failed = self.turn.context.failures.take();
        failed.into_iter().filter(|failed| failed.is_damage).map(|failed| (failed.tablet, failed.needed)).collect()
    }

    /// Asks for the leader of a tablet whose replica here has failed; [`Self::found_leader`] returns the answer. Asked
    /// are the wanted voters, and the present voters as far as that replica knows them: a voter that is to leave may
    /// still lead.
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

    /// The leader of a tablet and its applied index, if a leader has answered since [`Self::seek_leader`] last asked.
    pub fn found_leader(&self, tablet: TabletId) -> Option<FoundLeader> {
        self.turn.context.failures.leader(tablet)
    }

    /// Notifies the leader of a tablet, with the next turn, that this node has prepared the child tablets.
    pub fn announce_prepared(&mut self, tablet: TabletId) {
        self.with(tablet, Replica::announce_prepared);
    }

    /// Notifies the voter that is to campaign first, with the next turn, that the replica of a new child tablet is open
    /// here.
    pub fn announce_opened(&mut self, tablet: TabletId) {
        self.with(tablet, Replica::announce_opened);
    }

    /// Lets a replica report to its leader how much it holds: it was sent a copy that it does not need, and would be
    /// sent copies again and again.
    pub fn announce_data(&mut self, tablet: TabletId) {
        self.with(tablet, |replica, _| replica.following.announces_data = true);
    }

    /// The state of a replica; `None` if it is not here.
    pub fn describe(&self, tablet: TabletId) -> Option<ReplicaState> {
        let replica = self.replicas.get(&tablet)?;
        Some(state_of(replica, self.turn.now_ns()))
    }
}
