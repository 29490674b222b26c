//! The heart of a store thread, without the thread: proposals, messages and events go in, log writes, messages and outcomes come out.
//!
//! ```text
//! turn: take events and messages, propose what waits (one entry per tablet)
//!       send what may leave before it is durable
//!       one log write per disk, one fsync for all tablets
//!       apply what is committed, send what had to wait, answer
//! ```
//!
//! Always true: nothing is sent that promises durability, a vote or support before the log write that it stands on; writes are answered
//! after their entry is applied, which followers may put off for a while; groups in which nothing happens are not looked at. The order of all effects follows from the inputs, the
//! clock and the log alone. Elections, promises and leases are in `election.rs`, members in `members.rs`, what is read back from the log in `catch_up.rs`.

use crate::apply::{Applier, MembersChanged, Outcomes};
use crate::catch_up::{LogAnswer, LogRead};
use crate::context::{Context, Failed};
use crate::departed::Departed;
use crate::events::TabletEventKind;
use crate::liveness::SupportView;
use crate::merge::is_step;
use crate::prefetch::prefetch;
use crate::replica::{Promise, Proposal, Replica, Waiter};
use crate::stall::LogProgress;
use crate::store::{Durability, Refused};
use crate::wire::{self, Envelope};
use ahash::AHashMap;
use diorite_base::write::{KvError, Waited};
use diorite_base::{GroupId, NodeId, TabletId};
use diorite_raft::{
    ConfState, Entry, EntryType, HardState, Message, Step, SupportChange, is_acknowledgement, tells_nothing_new,
};
use diorite_rpc::Lane;
use diorite_storage::{Engine, Log, LogRecords, StorageError};
use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::sync::Arc;
use std::sync::atomic::Ordering;

/// How often groups in which something is due are looked at without being touched, nanoseconds.
pub const TICK_NS: u64 = 50_000_000;

/// How long a follower may put off applying what is committed, nanoseconds, so that more of it is written to its data at once.
const APPLY_WITHIN_NS: u64 = 500_000_000;

/// How long a proposed write is waited for before its writer is told that the outcome is unknown, nanoseconds.
const WRITE_PATIENCE_NS: u64 = 1_800_000_000;

/// What reaches a core in one turn.
#[derive(Default)]
pub struct Input {
    /// Writes, in order.
    pub proposals: Vec<Proposal>,
    /// What replicas on other nodes say, with the node, in order of arrival.
    pub envelopes: Vec<(NodeId, GroupId, Envelope)>,
    /// Changes of support between this node and others.
    pub changes: Vec<SupportChange>,
    /// What was read from the log, as [`Core::take_reads`] has asked.
    pub answers: Vec<LogAnswer>,
}

impl Input {
    /// Whether there is nothing.
    pub fn is_empty(&self) -> bool {
        self.proposals.is_empty() && self.envelopes.is_empty() && self.changes.is_empty() && self.answers.is_empty()
    }
}

/// The replicas of one store thread.
pub struct Core<E: Engine> {
    pub(crate) context: Arc<Context>,
    pub(crate) logs: Vec<Arc<E::Log>>,
    /// Since when a log is being written, for those who watch that.
    pub(crate) progress: Arc<LogProgress>,
    /// One batch of records per disk.
    pub(crate) records: Vec<<E::Log as Log>::Records>,
    /// Each in a place of its own, so that finding one touches nothing of the others.
    pub(crate) replicas: AHashMap<TabletId, Box<Replica<E>>>,
    /// What this node knows of support between nodes.
    pub(crate) support: SupportView,
    /// When the last turn or tick began, nanoseconds.
    pub(crate) turned_ns: u64,
    /// The time of day when the last turn began, microseconds.
    turned_wall_us: i64,
    /// Replicas to look at in this turn.
    touched: Vec<TabletId>,
    /// Replicas whose leader has given up its lease in this turn and which may lead after it.
    pub(crate) called_upon: Vec<TabletId>,
    /// The node is about to stop: it leads nothing any more, and only votes.
    pub(crate) is_leaving: bool,
    /// This node's clock has left the others'.
    pub(crate) clock_is_off: bool,
    /// The replicas of a round, and their steps; kept for their memory.
    round: (Vec<TabletId>, Vec<(TabletId, Step)>),
    /// Replicas in which something is due: no leader, a member that lags, a writer who waits.
    pub(crate) restless: BTreeSet<TabletId>,
    /// Replicas that put off applying what is committed, with when they shall have done it, nanoseconds, in that order.
    pub(crate) deferred: VecDeque<(u64, TabletId)>,
    outbox: BTreeMap<NodeId, Vec<u8>>,
    pub(crate) outcomes: Outcomes,
    refused: Vec<Refused>,
    /// What members lack that is to be read from the log.
    pub(crate) reads: Vec<LogRead<<E::Log as Log>::Reader>>,
    /// What replicas had promised that were let go of and may be opened again, as long as it stands.
    pub(crate) promised: BTreeMap<TabletId, Promise>,
    /// Replicas that were closed while a leader elsewhere counted on them.
    pub(crate) departed: Departed,
    applier: Applier<E>,
}

impl<E: Engine> Core<E> {
    /// A core that writes to `logs`, one per disk.
    pub fn new(context: Arc<Context>, logs: Vec<Arc<E::Log>>) -> Self {
        Self {
            support: SupportView::new(Arc::clone(&context.liveness)),
            progress: context.watched(),
            context,
            records: logs.iter().map(|_| Default::default()).collect(),
            logs,
            replicas: AHashMap::default(),
            turned_ns: 0,
            turned_wall_us: 0,
            touched: Vec::new(),
            called_upon: Vec::new(),
            is_leaving: false,
            clock_is_off: false,
            round: Default::default(),
            restless: BTreeSet::new(),
            deferred: VecDeque::new(),
            outbox: BTreeMap::new(),
            outcomes: Outcomes::default(),
            refused: Vec::new(),
            reads: Vec::new(),
            promised: BTreeMap::new(),
            departed: Departed::default(),
            applier: Applier::default(),
        }
    }

    /// Whether [`Self::tick`] has something to do within [`TICK_NS`].
    pub fn wants_tick(&self) -> bool {
        !self.restless.is_empty() || !self.deferred.is_empty() || !self.departed.is_empty()
    }

    /// Takes a replica and applies what is known to be committed. The sole voter of a group then leads and replays the rest of its log at once;
    /// otherwise a leader is found later.
    pub fn open(&mut self, replica: impl Into<Box<Replica<E>>>) -> Result<(), KvError> {
        let mut replica = replica.into();
        let tablet = replica.id();
        let stored_index = replica.applied.index;
        replica.promise = self.promised.remove(&tablet);
        self.replicas.insert(tablet, replica);
        self.touch(tablet);
        self.disturb(tablet);
        self.advance();
        self.apply_deferred(tablet);
        if let Some(replica) = self.replicas.get_mut(&tablet).filter(|replica| replica.group.is_sole_voter()) {
            // Nobody else knows what the end of its log was, if that is lost.
            replica.group.learn_floor((0, 0));
        }
        // Only now are the members known: the data may be of a time when there were fewer.
        let leads_alone =
            |replica: &&mut Box<Replica<E>>| replica.group.is_sole_voter() && !replica.group.is_recovering();
        if let Some(replica) = self.replicas.get_mut(&tablet).filter(leads_alone) {
            if let Err(error) = replica.group.campaign() {
                self.fail(tablet, &StorageError::Corrupt(error.to_string()));
            }
        } else {
            self.begin_without_leader(tablet);
        }
        if self.replicas.get(&tablet).is_some_and(|replica| replica.split.is_some()) {
            self.on_split(tablet);
        }
        self.touch(tablet);
        self.advance();
        self.note_replayed(tablet, stored_index);
        self.context.note(tablet, TabletEventKind::Opened { applied: stored_index });
        match self.replicas.get(&tablet).and_then(|replica| replica.failure.clone()) {
            Some(failure) => Err(KvError::Storage(failure)),
            None => Ok(()),
        }
    }

    /// What was replayed would have to be replayed again: it counts as unflushed. One entry more than was stored is the new leader's own.
    fn note_replayed(&self, tablet: TabletId, stored_index: u64) {
        let Some(replica) = self.replicas.get(&tablet).filter(|replica| replica.applied.index > stored_index + 1)
        else {
            return;
        };
        let handle = &replica.handle;
        let replayed_bytes = handle.memory_bytes();
        let position = self.context.log_position.fetch_add(replayed_bytes, Ordering::Relaxed);
        handle.logged_bytes.fetch_add(replayed_bytes, Ordering::Relaxed);
        handle.oldest_unflushed.fetch_min(position, Ordering::AcqRel);
    }

    /// Lets go of a replica and its log, durably when this returns: its data may be removed then, and not before.
    ///
    /// The replica may come back, empty, under the same id: the tablet was moved away and is moved here again. Others may still stand on what it
    /// said in its former life: acknowledgements that a leader counts (they may even be on their way still), a vote in a term that is not over, a promise
    /// that a lease is made of. So these three are remembered: how far it may have acknowledged, with term and vote, in the log; the promise here,
    /// for as long as it stands (after a restart of the process nobody votes until all promises have lapsed).
    pub fn close(&mut self, tablet: TabletId) -> Result<(), KvError> {
        let Some(mut replica) = self.replicas.remove(&tablet) else { return Ok(()) };
        self.context.counters.note_lease(replica.handle.lease.publish(None));
        // These were proposed: what becomes of them others decide.
        for waiter in replica.waiting.take_all() {
            self.outcomes.push(waiter, Err(KvError::Timeout(Waited::default())));
        }
        self.restless.remove(&tablet);
        self.context.events.forget(tablet);
        self.keep_promise(&replica);
        let (state, floor) = replica.group.memory();
        let disk = replica.handle.disk;
        let retired = self.records[disk].retire(replica.group_id, &state, floor);
        let failed = self.write_logs(Sync::InEveryMode);
        failed.iter().for_each(|(disk, error)| self.fail_disk(*disk, error));
        self.outcomes.deliver();
        self.tell_departed(tablet);
        let is_lost = failed.into_iter().find(|(failed, _)| *failed == disk);
        let written = retired.and(is_lost.map_or(Ok(()), |(_, error)| Err(error)));
        written.map_err(|error| KvError::Storage(error.to_string()))
    }

    /// Lets go of a replica whose disk has failed; returns what it must remember should it be opened again: term and vote, and index and term of the
    /// last entry that it may have acknowledged. `None` if it is not here.
    pub fn abandon(&mut self, tablet: TabletId) -> Option<(HardState, (u64, u64))> {
        self.release(tablet, None);
        self.send();
        let mut replica = self.replicas.remove(&tablet)?;
        self.context.counters.note_lease(replica.handle.lease.publish(None));
        for waiter in replica.waiting.take_all() {
            self.outcomes.push(waiter, Err(KvError::Timeout(Waited::default())));
        }
        self.restless.remove(&tablet);
        self.keep_promise(&replica);
        self.outcomes.deliver();
        Some(replica.group.memory())
    }

    /// Lets another replica lead, whichever is first.
    pub fn give_way(&mut self, tablet: TabletId) {
        self.release(tablet, None);
        self.touch(tablet);
        self.advance();
    }

    /// Lets go of a replica that is about to be opened again with the same data and log, on another disk; what is committed is applied. Returns what it must
    /// remember if these are lost on the way. `None` if it is not here.
    pub fn vacate(&mut self, tablet: TabletId) -> Option<(HardState, (u64, u64))> {
        self.give_way(tablet);
        self.apply_deferred(tablet);
        let memory = self.replicas.get(&tablet)?.group.memory();
        self.detach(tablet);
        Some(memory)
    }

    fn keep_promise(&mut self, replica: &Replica<E>) {
        if let Some(promise) = replica.promise {
            self.promised.insert(replica.id(), promise);
        }
    }

    /// Lets go of a replica whose data is about to be replaced by a copy; its log records stay, and so does what it has promised to its
    /// leader: the leader's lease may stand on that.
    pub fn detach(&mut self, tablet: TabletId) {
        let Some(mut replica) = self.replicas.remove(&tablet) else { return };
        self.context.counters.note_lease(replica.handle.lease.publish(None));
        for waiter in replica.waiting.take_all() {
            self.outcomes.push(waiter, Err(KvError::Timeout(Waited::default())));
        }
        self.restless.remove(&tablet);
        self.keep_promise(&replica);
        // A truncation that waits for the next write must not come after what the copy will write: it would take the log back behind it.
        for (disk, error) in self.write_logs(Sync::No) {
            self.fail_disk(disk, &error);
        }
        self.outcomes.deliver();
    }

    /// Cuts the log where the data is durable; written with the next batch. What another member may still need stays, unless `force`.
    pub fn truncate(&mut self, tablet: TabletId, flushed: u64, force: bool) {
        let Some(replica) = self.replicas.get_mut(&tablet) else { return };
        // Nodes that join follow the catalog from its first entry.
        if replica.group_id == GroupId::CATALOG {
            return;
        }
        if flushed > replica.applied.index {
            // It is an index of another log than this replica's. What is durable of this one is not known.
            let applied = replica.applied.index;
            tracing::error!(%tablet, flushed, applied, "the durable data is ahead of what was applied: the log is not cut");
            return;
        }
        let wanted = flushed;
        let children_from = replica.handle.children_from.load(Ordering::Relaxed);
        let kept_from = if force { u64::MAX } else { replica.keep_from().min(children_from) };
        let index = wanted.min(kept_from.saturating_sub(1));
        replica.handle.log_held_back.store(index < wanted, Ordering::Relaxed);
        match replica.group.truncate_to(index) {
            Ok(Some(term)) => {
                replica.handle.log_start.store(index, Ordering::Release);
                let is_end = replica.group.last_index() == index;
                let written = self.records[replica.handle.disk].truncate_to(replica.group_id, index, term, is_end);
                if let Err(error) = written {
                    tracing::warn!(%tablet, %error, "could not record a log truncation");
                }
            }
            Ok(None) => {}
            Err(error) => tracing::warn!(%tablet, index, %error, "could not truncate the log"),
        }
    }

    /// Fetches from memory what comes next and after that, while something else is done: of many groups none is in the processor's caches when it is its turn.
    /// What a replica points to can be asked for only when the replica itself is there.
    fn fetch_ahead(&self, mut coming: impl Iterator<Item = TabletId>) {
        if let Some(replica) = coming.next().and_then(|tablet| self.replicas.get(&tablet)) {
            replica.fetch_ahead();
        }
        if let Some(replica) = coming.next().and_then(|tablet| self.replicas.get(&tablet)) {
            prefetch(&**replica);
        }
    }

    pub(crate) fn touch(&mut self, tablet: TabletId) {
        if let Some(replica) = self.replicas.get_mut(&tablet)
            && !replica.touched
        {
            replica.touched = true;
            self.touched.push(tablet);
        }
    }

    /// Something is due in the replica: it is looked at in every tick, until it has settled.
    pub(crate) fn disturb(&mut self, tablet: TabletId) {
        if let Some(replica) = self.replicas.get_mut(&tablet) {
            replica.is_restless = true;
            self.restless.insert(tablet);
        }
    }

    pub(crate) fn calm(&mut self, tablet: TabletId) {
        self.restless.remove(&tablet);
        if let Some(replica) = self.replicas.get_mut(&tablet) {
            replica.is_restless = false;
        }
    }

    /// One turn. `input` is emptied.
    pub fn turn(&mut self, input: &mut Input) {
        self.turned_ns = self.context.clock.monotonic_ns();
        self.turned_wall_us = self.context.clock.wall_us();
        self.take_revocations();
        for change in input.changes.drain(..) {
            self.on_support_change(change);
        }
        let mut envelopes = input.envelopes.drain(..);
        while let Some((from, group, envelope)) = envelopes.next() {
            self.fetch_ahead(envelopes.as_slice().iter().map(|(_, group, _)| TabletId(group.0)));
            self.receive(from, group, envelope);
        }
        // Only now: an entry of the old leader that came after its word would call off what had been begun.
        for tablet in std::mem::take(&mut self.called_upon) {
            self.look_after(tablet, self.context.clock.monotonic_ns());
        }
        for answer in input.answers.drain(..) {
            self.take_answer(answer);
        }
        let mut proposals = input.proposals.drain(..);
        while let Some(proposal) = proposals.next() {
            self.fetch_ahead(proposals.as_slice().iter().map(|proposal| proposal.tablet));
            let tablet = proposal.tablet;
            match self.replicas.get_mut(&tablet) {
                Some(replica) => {
                    replica.fresh.push(proposal);
                    self.touch(tablet);
                }
                // It was closed since it was submitted: others may know where it is.
                None => self.refused.push(proposal.refuse(None)),
            }
        }
        self.advance();
    }

    /// Looks after the groups in which something is due. To be called about every [`TICK_NS`] while [`Self::wants_tick`].
    pub fn tick(&mut self) {
        let now_ns = self.context.clock.monotonic_ns();
        self.turned_ns = now_ns;
        self.take_revocations();
        while let Some((_, tablet)) = self.deferred.front().copied().filter(|(due_ns, _)| now_ns >= *due_ns) {
            self.deferred.pop_front();
            self.apply_deferred(tablet);
        }
        self.tell_departed_again(now_ns);
        for tablet in self.restless.clone() {
            self.expire_waiting(tablet, now_ns);
            if self.replicas.get_mut(&tablet).is_some_and(|replica| !replica.is_look_due(now_ns)) {
                continue;
            }
            self.look_after(tablet, now_ns);
            self.touch(tablet);
        }
        self.advance();
    }

    /// Writers who have waited too long are told that the outcome is unknown.
    fn expire_waiting(&mut self, tablet: TabletId, now_ns: u64) {
        let Some(replica) = self.replicas.get_mut(&tablet) else { return };
        for (index, since_ns, waiter) in replica.waiting.take_due(now_ns) {
            let (received, required) = replica.group.acknowledgements(index);
            let waited = Waited { after_ms: now_ns.saturating_sub(since_ns) / 1_000_000, received, required };
            self.outcomes.push(waiter, Err(KvError::Timeout(waited)));
        }
        let Some(since_ns) = now_ns.checked_sub(WRITE_PATIENCE_NS) else { return };
        while let Some(waiting) = replica.waiting.next_since(since_ns) {
            let (received, required) = replica.group.acknowledgements(waiting.index);
            let waited = Waited { after_ms: WRITE_PATIENCE_NS / 1_000_000, received, required };
            for waiter in waiting.waiters {
                self.outcomes.push(waiter, Err(KvError::Timeout(waited)));
            }
        }
    }

    /// Proposes what has come to a tablet in this turn.
    fn propose_fresh(&mut self, tablet: TabletId) {
        let Some(replica) = self.replicas.get_mut(&tablet).filter(|replica| !replica.fresh.is_empty()) else { return };
        if let Some(failure) = &replica.failure {
            let error = KvError::Storage(failure.clone());
            for proposal in replica.fresh.drain(..) {
                self.outcomes.push(proposal.waiter, Err(error.clone()));
            }
        } else if replica.may_propose() && replica.may_stamp() {
            let context = &self.context;
            context.counters.proposals.add(replica.fresh.len() as u64);
            let wall_us = self.turned_wall_us;
            let failed = replica.propose_fresh(self.turned_ns, &context.counters, wall_us);
            for (waiter, error) in failed {
                self.outcomes.push(waiter, Err(error));
            }
        } else {
            let leader = replica.leader_elsewhere(self.context.node);
            self.refused.extend(replica.fresh.drain(..).map(|proposal| proposal.refuse(leader)));
        }
    }

    /// Turns the touched groups until none has anything left to do. With many of them a group's memory is not in the processor's caches when it is its turn:
    /// so each is gone to twice, once up to the log write and once from there to its end.
    pub(crate) fn advance(&mut self) {
        let (mut due, mut steps) = std::mem::take(&mut self.round);
        let mut known = 0;
        loop {
            // Those that were touched since the last round, and those in which something was done: nothing has happened to the others.
            due.extend_from_slice(self.touched.get(known..).unwrap_or_default());
            known = self.touched.len();
            let must_sync = self.gather(&due, &mut steps);
            due.clear();
            self.send();
            for (disk, error) in self.write_logs(must_sync) {
                self.fail_disk(disk, &error);
            }
            if steps.is_empty() {
                break;
            }
            self.take_revocations();
            let mut durable = steps.drain(..);
            while let Some((tablet, step)) = durable.next() {
                self.fetch_ahead(durable.as_slice().iter().map(|(tablet, _)| *tablet));
                self.complete(tablet, step);
                if self.replicas.get(&tablet).is_some_and(|replica| replica.group.has_more()) {
                    due.push(tablet);
                } else {
                    self.settle(tablet);
                }
            }
        }
        self.round = (due, steps);
        for tablet in std::mem::take(&mut self.touched) {
            if self.replicas.get(&tablet).is_some_and(|replica| replica.touched) {
                self.settle(tablet);
            }
        }
        self.send();
        self.outcomes.deliver();
        self.reroute();
    }

    fn reroute(&mut self) {
        if self.refused.is_empty() {
            return;
        }
        if let Some(reroute) = self.context.reroute.get() {
            reroute.reroute(&mut self.refused);
        }
        // What nobody has taken is told as it is.
        for refused in self.refused.drain(..) {
            let error = KvError::NotLeader { tablet: refused.tablet, leader: refused.leader };
            let Refused { sink, token, deadline_ns, .. } = refused;
            self.outcomes.push(Waiter { sink, token, deadline_ns }, Err(error));
        }
        self.outcomes.deliver();
    }

    /// Collects the groups' steps and puts their log records into the batches, and what may be sent at once into the outbox.
    fn gather(&mut self, due: &[TabletId], steps: &mut Vec<(TabletId, Step)>) -> Sync {
        let mut must_sync = Sync::No;
        for (place, tablet) in due.iter().copied().enumerate() {
            self.fetch_ahead(due[place + 1..].iter().copied());
            self.propose_fresh(tablet);
            let Some(replica) = self.replicas.get_mut(&tablet) else { continue };
            if replica.failure.is_some() {
                continue;
            }
            let step = replica.group.ready();
            let log = &mut self.records[replica.handle.disk];
            let noted = replica.group.take_new_floor().map_or(Ok(()), |floor| {
                must_sync = Sync::InEveryMode;
                log.set_floor(replica.group_id, floor)
            });
            if let Err(error) = noted {
                self.fail(tablet, &error);
                continue;
            }
            let Some(mut step) = step else {
                self.settle(tablet);
                continue;
            };
            let appended = match &step.hard_state {
                Some(state) => log.set_hard_state(replica.group_id, state),
                None => Ok(()),
            }
            .and_then(|()| log.append(replica.group_id, &step.entries, step.commit));
            if let Err(error) = appended {
                self.fail(tablet, &error);
                continue;
            }
            note_logged(&self.context, replica, &step);
            must_sync = must_sync.max(needed_sync(self.context.durability, replica, &step));
            let is_stalled = self.context.is_stalled(replica.handle.disk);
            post(&mut self.outbox, replica, std::mem::take(&mut step.messages), is_stalled);
            steps.push((tablet, step));
        }
        must_sync
    }

    /// Writes what was gathered; returns the disks on which that has failed, with the reason.
    fn write_logs(&mut self, must_sync: Sync) -> Vec<(usize, StorageError)> {
        let mut failed = Vec::new();
        let is_wanted = match self.context.durability {
            Durability::Fsync => must_sync >= Sync::UnlessPaced,
            Durability::Interval(_) => must_sync >= Sync::InEveryMode,
        };
        let sync = is_wanted && !self.context.planted.skip_fsync;
        for (disk, (log, records)) in self.logs.iter().zip(&mut self.records).enumerate() {
            if records.is_empty() {
                continue;
            }
            let started_ns = self.context.clock.monotonic_ns();
            self.progress.begin(started_ns);
            let written = log.write(records, sync);
            self.progress.end();
            match written {
                Ok(bytes) => {
                    let elapsed_ns = self.context.clock.monotonic_ns() - started_ns;
                    self.context.counters.observe_log_write(bytes, elapsed_ns, sync);
                }
                Err(error) => {
                    *records = Default::default();
                    failed.push((disk, error));
                }
            }
        }
        failed
    }

    /// The step is durable: sends what had to wait for that and applies what is committed.
    fn complete(&mut self, tablet: TabletId, mut step: Step) {
        let Some(replica) = self.replicas.get_mut(&tablet).filter(|replica| replica.failure.is_none()) else { return };
        let mut committed = std::mem::take(&mut step.committed);
        let mut messages = std::mem::take(&mut step.messages_after_persist);
        let (more, sendable) = replica.group.persisted(step);
        committed.extend(more);
        messages.extend(sendable);
        if !committed.is_empty() {
            self.context.counters.entries_committed.add(committed.len() as u64);
        }
        if replica.may_defer(&committed) {
            if replica.deferred.is_empty() && !committed.is_empty() {
                self.deferred.push_back((self.context.clock.monotonic_ns() + APPLY_WITHIN_NS, tablet));
            }
            replica.deferred.append(&mut committed);
        } else if !committed.is_empty() || !replica.deferred.is_empty() {
            if !replica.deferred.is_empty() {
                committed.splice(..0, replica.deferred.take());
            }
            if !self.apply(tablet, &committed) {
                return;
            }
        }
        if !messages.is_empty() {
            self.post(tablet, messages);
        }
    }

    /// Applies what a follower has put off.
    pub(crate) fn apply_deferred(&mut self, tablet: TabletId) {
        let Some(replica) = self.replicas.get_mut(&tablet) else { return };
        let committed = replica.deferred.take();
        if self.apply(tablet, &committed) {
            self.note_freshness(tablet);
        }
    }

    /// Applies committed entries; whether the replica can go on.
    fn apply(&mut self, tablet: TabletId, committed: &[Entry]) -> bool {
        let Some(replica) = self.replicas.get_mut(&tablet).filter(|replica| replica.failure.is_none()) else {
            return false;
        };
        let had_ended = replica.has_ended();
        let applied = self.applier.apply(replica, committed, &mut self.outcomes);
        let (ends, is_split) = (replica.has_ended() && !had_ended, replica.split.is_some());
        let serves_again = replica.has_outlived_its_end() || (had_ended && !replica.has_ended());
        // Whoever leads next stamps after all that was acknowledged, whatever its own clock says; and no other tablet has to do with it.
        replica.stamps.observe(replica.applied.newest_stamp_us);
        let is_applied = match applied {
            Ok(MembersChanged(false)) => true,
            Ok(MembersChanged(true)) => {
                replica.forget_removed();
                self.context.note(tablet, members_event(replica.group.members()));
                self.disturb(tablet);
                // Before anything is sent that could let the new members act.
                self.publish_lease(tablet);
                true
            }
            Err(error) => {
                // Whoever may replace this replica has come past the entry at which it failed.
                let needed = replica.applied.index + 1;
                self.fail_at(tablet, &error, needed);
                false
            }
        };
        if is_applied && serves_again {
            self.publish_lease(tablet);
        }
        if is_applied && ends {
            // Before anybody hears of it: another tablet may answer for it from then on.
            self.publish_lease(tablet);
            if is_split {
                self.on_split(tablet);
            }
        }
        is_applied
    }

    /// Puts consensus messages of a replica into the outbox.
    pub(crate) fn post(&mut self, tablet: TabletId, messages: Vec<Message>) {
        if let Some(replica) = self.replicas.get(&tablet) {
            post(&mut self.outbox, replica, messages, self.context.is_stalled(replica.handle.disk));
        }
    }

    /// Puts another message to a node into the outbox.
    pub(crate) fn post_envelope(&mut self, to: NodeId, group: GroupId, envelope: &Envelope) {
        wire::put_envelope(frame_to(&mut self.outbox, to), group, envelope);
    }

    /// Sends what is in the outbox, one frame per node.
    pub(crate) fn send(&mut self) {
        for (to, frame) in &mut self.outbox {
            if frame.is_empty() {
                continue;
            }
            // What cannot be sent is lost, as on the network: consensus repeats it once the node is heard from again.
            if self.context.transport.send(*to, Lane::Raft, frame).is_err() {
                self.context.counters.frames_lost.fetch_add(1, Ordering::Relaxed);
            }
            frame.clear();
            frame.shrink_to(1 << 20);
        }
    }

    /// The log of a disk could not be written: nothing of this turn may be taken as durable there, and its replicas cannot go on.
    fn fail_disk(&mut self, disk: usize, error: &StorageError) {
        tracing::error!(disk, %error, "the raft log of a disk cannot be written: its replicas stop");
        let is_lost = |replica: &Replica<E>| replica.handle.disk == disk && replica.failure.is_none();
        let lost = self.replicas.iter().filter(|(_, replica)| is_lost(replica)).map(|(tablet, _)| *tablet);
        let mut lost: Vec<TabletId> = lost.collect();
        lost.sort_unstable();
        for tablet in lost {
            self.fail(tablet, error);
        }
    }

    /// The replica cannot go on. If it leads, another shall.
    pub(crate) fn fail(&mut self, tablet: TabletId, error: &StorageError) {
        let applied = self.replicas.get(&tablet).map_or(0, |replica| replica.applied.index);
        self.fail_at(tablet, error, applied);
    }

    /// What the replica has stored is damaged: it stops.
    pub(crate) fn fail_damaged(&mut self, tablet: TabletId, reason: String) {
        self.fail(tablet, &StorageError::Corrupt(reason));
        self.touch(tablet);
        self.advance();
    }

    /// The same; another replica is well if it has applied as much as `needed`.
    fn fail_at(&mut self, tablet: TabletId, error: &StorageError, needed: u64) {
        self.release(tablet, None);
        let Some(replica) = self.replicas.get_mut(&tablet).filter(|replica| replica.failure.is_none()) else { return };
        let failed = Failed { tablet, reason: error.to_string(), is_damage: error.is_damage(), needed };
        self.context.failed.lock().push(failed);
        tracing::error!(%tablet, %error, "a tablet replica stops");
        self.context.note(tablet, TabletEventKind::Failed { reason: error.to_string() });
        replica.failure = Some(error.to_string());
        self.context.counters.note_lease(replica.handle.lease.publish(None));
        self.context.suspect_disk(replica.handle.disk);
        for waiter in replica.waiting.take_all() {
            self.outcomes.push(waiter, Err(KvError::Storage(error.to_string())));
        }
    }
}

/// Whether what is written to the logs must be durable before anything else is done.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Sync {
    No,
    /// With `--durability interval` it is a little later.
    UnlessPaced,
    /// That would break more than an acknowledgement.
    InEveryMode,
}

/// A lost vote would give a term two leaders, a lost change of members (or the end of a tablet, which others take over) two groups that each decide alone. The catalog's
/// changes stand for both. Others stand on such an entry, and close what is needed no more, once an entry after it is acknowledged, which says with its commit index that it is committed.
fn needed_sync<E: Engine>(durability: Durability, replica: &mut Replica<E>, step: &Step) -> Sync {
    let decides = |entry: &Entry| {
        entry.get_entry_type() != EntryType::EntryNormal || !entry.context.is_empty() || is_step(&entry.data)
    };
    let mut is_vital = || {
        let Some(last) = step.entries.last() else { return step.hard_state.is_some() };
        if let Some(deciding) = step.entries.iter().rev().find(|entry| decides(entry)) {
            replica.deciding_index = deciding.index;
        }
        let decides = replica.deciding_index > 0;
        if step.commit >= replica.deciding_index && last.index > replica.deciding_index {
            replica.deciding_index = 0;
        }
        decides || step.hard_state.is_some() || replica.group_id == GroupId::CATALOG
    };
    if durability != Durability::Fsync && is_vital() {
        Sync::InEveryMode
    } else if step.must_sync {
        Sync::UnlessPaced
    } else {
        Sync::No
    }
}

fn members_event(members: &ConfState) -> TabletEventKind {
    TabletEventKind::Members {
        voters: members.voters.clone(),
        outgoing: members.voters_outgoing.clone(),
        learners: members.learners.clone(),
    }
}

/// The frame that is gathered for a node.
fn frame_to(outbox: &mut BTreeMap<NodeId, Vec<u8>>, to: NodeId) -> &mut Vec<u8> {
    let frame = outbox.entry(to).or_default();
    if frame.is_empty() {
        wire::begin_frame(frame);
    }
    frame
}

/// Puts consensus messages of a replica into the outbox.
fn post<E: Engine>(
    outbox: &mut BTreeMap<NodeId, Vec<u8>>,
    replica: &Replica<E>,
    messages: Vec<Message>,
    is_stalled: bool,
) {
    if messages.is_empty() {
        return;
    }
    let keep_from = if replica.group.is_leader() { replica.keep_from() } else { 0 };
    // Whoever campaigns to lead after this replica, which has given up its lease, would follow it again on hearing of nothing new.
    let calls_off = |message: &Message| replica.has_released() && tells_nothing_new(message);
    for message in messages.into_iter().filter(|message| !calls_off(message)) {
        let to = message.to;
        let promise = replica.promise.filter(|promise| promise.leader == to && is_acknowledgement(&message));
        // A leader must not count on whoever cannot vote; this is also how it learns who can.
        let counts = !replica.group.is_recovering() && !is_stalled;
        let epoch = promise.filter(|_| counts).map_or(0, |promise| promise.epoch);
        wire::put_message(frame_to(outbox, NodeId(to)), replica.group_id, (epoch, keep_from), &message);
    }
}

/// Keeps account of the log bytes that a crash now would have to replay.
fn note_logged<E: Engine>(context: &Context, replica: &Replica<E>, step: &Step) {
    let bytes: u64 = step.entries.iter().map(|entry| entry.data.len() as u64 + 32).sum();
    if bytes == 0 {
        return;
    }
    let position = context.log_position.fetch_add(bytes, Ordering::Relaxed);
    let handle = &replica.handle;
    handle.logged_bytes.fetch_add(bytes, Ordering::Relaxed);
    let _ = handle.oldest_unflushed.compare_exchange(u64::MAX, position, Ordering::AcqRel, Ordering::Relaxed);
}
