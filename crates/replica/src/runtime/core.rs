//! A store thread, without the thread: proposals, messages and events go in, log writes, messages and outcomes come out.
//!
//! ```text
//! turn: take events and messages, propose waiting writes (one entry per tablet)
//!       send the messages that promise nothing durable
//!       one log write per disk, one fsync for all tablets
//!       apply committed entries, send the other messages, answer
//!       begin again with the log write while there is more to write
//! ```
//!
//! Always true: a message that promises durability, a vote or support is sent after the log write that it depends on;
//! writes are answered after their entry is applied, which followers may defer for a while; groups in which nothing is
//! due are not visited. The order of all effects follows from the inputs, the clock and the log alone. A group's part
//! of a turn is in `group`; how replicas come and go is in `hosting.rs`.

use crate::context::Context;
use crate::failures::FoundLeader;
use crate::group::catch_up::{LogAnswer, LogRead};
use crate::group::measuring::{SizeAnswer, SizeRead, Wanted};
use crate::group::merge::is_step;
use crate::group::promise::Promise;
use crate::group::proposal::{Proposal, Refused, Waiter};
use crate::group::receive::receive;
use crate::group::replica::Replica;
use crate::group::row_sizes::RowSizes;
use crate::group::transact;
use crate::group::turn::Turn;
use crate::group::wire::Envelope;
use crate::options::Durability;
use crate::prefetch::prefetch;
use crate::progress::WorkProgress;
use crate::runtime::departed::Departed;
use crate::runtime::incoming::Incoming;
use ahash::AHashMap;
use diorite_base::write::KvError;
use diorite_base::{GroupId, TabletId};
use diorite_raft::{Entry, EntryType, Step, SupportChange};
use diorite_rpc::Lane;
use diorite_storage::{Engine, Log, LogRecords, StorageError};
use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::Ordering;

/// How often groups in which something is due are visited without an event, nanoseconds.
pub const TICK_NS: u64 = 50_000_000;

/// The inputs of one turn.
#[derive(Default)]
pub struct Input {
    /// Writes, in the order of their submission.
    pub proposals: Vec<Proposal>,
    /// Messages from replicas on other nodes, in order of arrival.
    pub envelopes: Vec<Incoming>,
    /// Changes of support between this node and others.
    pub changes: Vec<SupportChange>,
    /// Entries read from the log, as [`Core::take_reads`] has asked.
    pub answers: Vec<LogAnswer>,
    /// Sizes of rows, as [`Core::take_measurements`] has asked.
    pub sizes: Vec<SizeAnswer>,
}

impl Input {
    /// Whether there is no input.
    pub fn is_empty(&self) -> bool {
        self.proposals.is_empty()
            && self.envelopes.is_empty()
            && self.changes.is_empty()
            && self.answers.is_empty()
            && self.sizes.is_empty()
    }
}

/// The replicas of one store thread.
pub struct Core<E: Engine> {
    /// State that the replicas share.
    pub(crate) turn: Turn<E>,
    /// Each replica is boxed, so that a look-up touches the memory of no other.
    pub(crate) replicas: AHashMap<TabletId, Box<Replica<E>>>,
    /// The progress of its work, for the watch over hanging disks.
    pub(crate) progress: Arc<WorkProgress>,
    /// One batch of records per disk.
    pub(crate) records: Vec<<E::Log as Log>::Records>,
    /// The replicas of a round, and their steps. Reused buffers.
    round: (Vec<TabletId>, Vec<(TabletId, Step)>),
    /// The promises of replicas that have left this thread and may come back, for as long as they are in force.
    pub(crate) promised: BTreeMap<TabletId, Promise>,
    /// Replicas that were closed while a leader elsewhere counted on them.
    pub(crate) departed: Departed,
    /// The account of bytes added to rows of tablets that this thread leads.
    sizes: RowSizes,
}

impl<E: Engine> Core<E> {
    /// A core that writes to `logs`, one per disk.
    pub fn new(context: Arc<Context>, logs: Vec<Arc<E::Log>>) -> Self {
        let progress = context.watched();
        Self {
            // The seed is secret: clients do not know when the node was started.
            sizes: RowSizes::new(context.clock.wall_us().unsigned_abs()),
            records: logs.iter().map(|_| Default::default()).collect(),
            turn: Turn::new(context, logs, Arc::clone(&progress)),
            progress,
            replicas: AHashMap::default(),
            round: Default::default(),
            promised: BTreeMap::new(),
            departed: Departed::default(),
        }
    }

    /// Whether [`Self::tick`] has work soon.
    pub fn wants_tick(&self) -> bool {
        let schedule = &self.turn.schedule;
        !schedule.active.is_empty() || !schedule.deferred.is_empty() || !self.departed.is_empty()
    }

    /// The reads of the log that are due; the answers are inputs of later turns.
    pub fn take_reads(&mut self) -> Vec<LogRead<<E::Log as Log>::Reader>> {
        std::mem::take(&mut self.turn.reads)
    }

    /// The rows that are to be measured now, a few at a time; the answers are inputs of later turns.
    pub fn take_measurements(&mut self) -> Vec<SizeRead<E::Tablet>> {
        if !self.sizes.is_wanting() {
            return Vec::new();
        }
        let replicas = &self.replicas;
        let leads = |replica: &Replica<E>, term| replica.group.is_leader() && replica.group.term() == term;
        let due = self.sizes.take_due(|tablet, term| {
            let replica = replicas.get(&tablet).filter(|replica| replica.failure.is_none() && leads(replica, term));
            replica.map(|replica| replica.applied.index)
        });
        let read = |wanted: Wanted| {
            let replica = replicas.get(&wanted.name.tablet)?;
            Some(SizeRead::new(wanted, &replica.handle.data))
        };
        due.into_iter().filter_map(read).collect()
    }

    /// Takes the size of a row. An error of the disk is handled like that of a read.
    fn take_size(&mut self, answer: SizeAnswer) {
        let SizeAnswer { wanted, size_bytes } = answer;
        let size_bytes = size_bytes.unwrap_or_else(|error| {
            if let Some(replica) = self.replicas.get(&wanted.name.tablet) {
                replica.handle.failed_to_read(error);
            }
            None
        });
        self.turn.context.counters.rows_measured.fetch_add(u64::from(size_bytes.is_some()), Ordering::Relaxed);
        self.sizes.take_answer(&wanted, size_bytes);
    }

    /// Prefetches the memory of the next two replicas while another one is worked on: with many groups, none is in the
    /// processor's caches when its turn comes. A replica's own pointers can be prefetched only once the replica itself
    /// is in the cache.
    fn fetch_ahead(&self, mut coming: impl Iterator<Item = TabletId>) {
        if let Some(replica) = coming.next().and_then(|tablet| self.replicas.get(&tablet)) {
            replica.fetch_ahead();
        }
        if let Some(replica) = coming.next().and_then(|tablet| self.replicas.get(&tablet)) {
            prefetch(&**replica);
        }
    }

    /// Runs one turn, and empties `input`.
    pub fn turn(&mut self, input: &mut Input) {
        self.turn.began_ns = self.turn.now_ns();
        self.turn.began_wall_us = self.turn.context.clock.wall_us();
        self.take_revocations();
        for change in input.changes.drain(..) {
            self.on_support_change(change);
        }
        let mut envelopes = input.envelopes.drain(..);
        while let Some(incoming) = envelopes.next() {
            self.fetch_ahead(envelopes.as_slice().iter().map(|incoming| TabletId(incoming.group.0)));
            self.receive(incoming);
        }
        // After all messages: an entry of the old leader that arrives after its release would cancel the campaign.
        for tablet in std::mem::take(&mut self.turn.schedule.released) {
            if let Some(replica) = self.replicas.get_mut(&tablet) {
                let now_ns = self.turn.now_ns();
                replica.look_after(&mut self.turn, now_ns);
            }
        }
        for answer in input.answers.drain(..) {
            // If the replica has left, no member waits for the answer.
            if let Some(replica) = self.replicas.get_mut(&answer.tablet) {
                replica.take_answer(&mut self.turn, answer);
            }
        }
        for answer in input.sizes.drain(..) {
            self.take_size(answer);
        }
        let mut proposals = input.proposals.drain(..);
        while let Some(proposal) = proposals.next() {
            self.fetch_ahead(proposals.as_slice().iter().map(|proposal| proposal.tablet));
            match self.replicas.get_mut(&proposal.tablet) {
                Some(replica) => {
                    replica.writes.fresh.push(proposal);
                    self.turn.touch(replica);
                }
                // The tablet was closed after the write was submitted: other nodes may know where it is.
                None => self.turn.refused.push(proposal.refuse(None)),
            }
        }
        self.advance();
    }

    /// Handles a message from a replica on another node.
    pub(crate) fn receive(&mut self, incoming: Incoming) {
        let tablet = TabletId(incoming.group.0);
        if let Envelope::Position { index, .. } = incoming.envelope {
            self.turn.context.failures.found(tablet, FoundLeader { node: incoming.from, applied: index });
        }
        // A replica that is not here (yet, or any more) behaves like one that is down.
        if let Some(replica) = self.replicas.get_mut(&tablet).filter(|replica| replica.failure.is_none()) {
            receive(replica, &mut self.turn, (incoming.from, incoming.supported), incoming.envelope);
        }
    }

    /// Reacts to a change of support between this node and another.
    fn on_support_change(&mut self, change: SupportChange) {
        let (me, now_ns) = (self.turn.context.node, self.turn.now_ns());
        if let SupportChange::Withdrawn(node) = change {
            // A promise under the former epoch is void.
            let turn = &self.turn;
            self.promised.retain(|_, promise| promise.leader != node || turn.is_in_force(*promise));
        }
        let is_concerned = |replica: &Replica<E>| match change {
            SupportChange::Withdrawn(node) => {
                replica.group.leader() == node
                    || replica.following.promise.is_some_and(|promise| promise.leader == node)
                    || replica.leads(node)
            }
            SupportChange::Given(node) | SupportChange::Received(node) => replica.leads(node),
        };
        for tablet in self.tablets_where(is_concerned) {
            let Some(replica) = self.replicas.get_mut(&tablet) else { continue };
            match change {
                SupportChange::Withdrawn(_) => replica.plan_campaign(me, now_ns),
                SupportChange::Given(_) | SupportChange::Received(_) => replica.ping(now_ns),
            }
            self.turn.activate(replica);
            self.turn.touch(replica);
            replica.look_after(&mut self.turn, now_ns);
        }
    }

    /// The tablets of the replicas that `is_meant` selects, in order.
    pub(crate) fn tablets_where(&self, is_meant: impl Fn(&Replica<E>) -> bool) -> Vec<TabletId> {
        let meant = self.replicas.iter().filter(|(_, replica)| is_meant(replica));
        let mut tablets: Vec<TabletId> = meant.map(|(tablet, _)| *tablet).collect();
        tablets.sort_unstable();
        tablets
    }

    /// Notices revoked leases, before anything is sent or published that would depend on them.
    fn take_revocations(&mut self) {
        if !self.progress.take_revocation() {
            return;
        }
        let now_ns = self.turn.now_ns();
        let replicas = self.replicas.iter_mut();
        let revoked = replicas.filter_map(|(tablet, replica)| replica.take_revocation(now_ns).then_some(*tablet));
        let mut revoked: Vec<TabletId> = revoked.collect();
        revoked.sort_unstable();
        for tablet in revoked {
            if let Some(replica) = self.replicas.get_mut(&tablet) {
                replica.publish_lease(&self.turn);
                self.turn.activate(replica);
            }
        }
    }

    /// Visits the groups in which something is due. The caller calls this about every [`TICK_NS`] while
    /// [`Self::wants_tick`].
    pub fn tick(&mut self) {
        let now_ns = self.turn.now_ns();
        self.turn.began_ns = now_ns;
        self.take_revocations();
        while let Some(tablet) = self.turn.schedule.pop_deferred(now_ns) {
            if let Some(replica) = self.replicas.get_mut(&tablet) {
                replica.apply_deferred(&mut self.turn);
            }
        }
        // The thread may have hung while it applied entries.
        self.take_revocations();
        self.post_departed(now_ns);
        for tablet in self.turn.schedule.active.clone() {
            self.progress.step();
            let Some(replica) = self.replicas.get_mut(&tablet) else { continue };
            replica.expire_waiting(&mut self.turn, now_ns);
            transact::release_if_due(replica, &mut self.turn, now_ns);
            transact::sweep_transactions(replica, &mut self.turn, now_ns);
            if replica.is_visit_due(now_ns) {
                replica.look_after(&mut self.turn, now_ns);
                self.turn.touch(replica);
            }
        }
        self.advance();
    }

    /// Notifies leaders that counted on replicas which were closed here.
    pub(crate) fn post_departed(&mut self, now_ns: u64) {
        let replicas = &self.replicas;
        self.departed.post(&mut self.turn.outbox, now_ns, |tablet| replicas.contains_key(&tablet));
    }

    /// Works on the touched groups until none has anything left to do. With many groups, a group's memory is not in the
    /// processor's caches when its turn comes, so each is visited only twice in a round: once up to the log write, and
    /// once from there to its end.
    pub(crate) fn advance(&mut self) {
        let (mut due, mut steps) = std::mem::take(&mut self.round);
        let mut known = 0;
        loop {
            // Visits groups that were touched since the last round, and those that have more to do. Nothing has
            // happened to the others.
            due.extend_from_slice(self.turn.schedule.touched.get(known..).unwrap_or_default());
            known = self.turn.schedule.touched.len();
            let must_sync = self.gather(&due, &mut steps);
            due.clear();
            self.send();
            // What is known by now does not wait for the log: a transaction takes several calls one after the other.
            self.turn.outcomes.deliver();
            for (disk, error) in self.write_logs(must_sync) {
                self.fail_disk(disk, &error);
            }
            if steps.is_empty() {
                break;
            }
            let mut durable = steps.drain(..);
            while let Some((tablet, step)) = durable.next() {
                self.progress.step();
                // The thread may have hung in the log write, or while it applied entries.
                self.take_revocations();
                self.fetch_ahead(durable.as_slice().iter().map(|(tablet, _)| *tablet));
                let Some(replica) = self.replicas.get_mut(&tablet) else { continue };
                replica.complete(&mut self.turn, step);
                if replica.group.has_more() || transact::has_steps(replica) || !replica.writes.fresh.is_empty() {
                    due.push(tablet);
                } else {
                    replica.finish_turn(&mut self.turn);
                }
            }
        }
        self.round = (due, steps);
        for tablet in std::mem::take(&mut self.turn.schedule.touched) {
            if let Some(replica) = self.replicas.get_mut(&tablet).filter(|replica| replica.visits.is_touched) {
                replica.finish_turn(&mut self.turn);
            }
        }
        self.send();
        self.turn.outcomes.deliver();
        self.reroute();
    }

    fn reroute(&mut self) {
        if self.turn.refused.is_empty() {
            return;
        }
        if let Some(reroute) = self.turn.context.hooks.reroute.get() {
            reroute.reroute(&mut self.turn.refused);
        }
        // Writes that are not rerouted are answered with the refusal.
        for refused in self.turn.refused.drain(..) {
            let error = KvError::NotLeader { tablet: refused.tablet, leader: refused.leader };
            let Refused { sink, token, deadline_ns, .. } = refused;
            self.turn.outcomes.push(Waiter { sink, token, deadline_ns }, Err(error));
        }
        self.turn.outcomes.deliver();
    }

    /// Collects the groups' steps. Puts their log records into the batches, and messages that may be sent at once into
    /// the outbox.
    fn gather(&mut self, due: &[TabletId], steps: &mut Vec<(TabletId, Step)>) -> Sync {
        let mut must_sync = Sync::No;
        for (place, tablet) in due.iter().copied().enumerate() {
            self.fetch_ahead(due[place + 1..].iter().copied());
            self.progress.step();
            let Some(replica) = self.replicas.get_mut(&tablet) else { continue };
            replica.propose_fresh(&mut self.turn, &mut self.sizes);
            if replica.failure.is_some() {
                continue;
            }
            let step = replica.group.ready();
            let records = &mut self.records[replica.handle.disk()];
            let recorded = replica.group.take_new_floor().map_or(Ok(()), |floor| {
                must_sync = Sync::InEveryMode;
                records.set_floor(replica.group_id(), floor)
            });
            let recorded = recorded.and_then(|()| step.as_ref().map_or(Ok(()), |step| record(records, replica, step)));
            if let Err(error) = recorded {
                replica.fail(&mut self.turn, &error);
                continue;
            }
            let Some(mut step) = step else {
                replica.finish_turn(&mut self.turn);
                continue;
            };
            note_logged(&self.turn.context, replica, &step);
            must_sync = must_sync.max(needed_sync(self.turn.context.durability, replica, &step));
            self.turn.post(replica, std::mem::take(&mut step.messages));
            steps.push((tablet, step));
        }
        must_sync
    }

    /// Writes the gathered batches; returns the disks whose log could not be written, with the error.
    fn write_logs(&mut self, must_sync: Sync) -> Vec<(usize, StorageError)> {
        let mut failed = Vec::new();
        let context = &self.turn.context;
        let is_wanted = match context.durability {
            Durability::Fsync => must_sync >= Sync::UnlessInterval,
            Durability::Interval(_) => must_sync >= Sync::InEveryMode,
        };
        let sync = is_wanted && !context.planted.skip_fsync;
        for (disk, (log, records)) in self.turn.logs.iter().zip(&mut self.records).enumerate() {
            if records.is_empty() {
                continue;
            }
            let started_ns = context.clock.monotonic_ns();
            self.progress.log.begin(started_ns);
            let written = log.write(records, sync);
            self.progress.log.end();
            match written {
                Ok(bytes) => {
                    let elapsed_ns = context.clock.monotonic_ns() - started_ns;
                    context.counters.observe_log_write(bytes, elapsed_ns, sync);
                }
                Err(error) => {
                    *records = Default::default();
                    failed.push((disk, error));
                }
            }
        }
        failed
    }

    /// Writes pending records to the logs. With `sync` they are durable when this returns, with any `--durability`. The
    /// replicas of disks whose log cannot be written stop; returns these disks, with the error.
    pub(crate) fn flush_logs(&mut self, sync: bool) -> Vec<(usize, StorageError)> {
        let failed = self.write_logs(if sync { Sync::InEveryMode } else { Sync::No });
        failed.iter().for_each(|(disk, error)| self.fail_disk(*disk, error));
        failed
    }

    /// Sends the messages in the outbox, one frame per node.
    pub(crate) fn send(&mut self) {
        self.take_revocations();
        for (to, frame) in &mut self.turn.outbox.0 {
            if frame.is_empty() {
                continue;
            }
            // A frame that cannot be sent is lost, as on the network: consensus repeats its messages once the node is
            // up again.
            if self.turn.context.transport.send(*to, Lane::Raft, frame).is_err() {
                self.turn.context.counters.frames_lost.fetch_add(1, Ordering::Relaxed);
            }
            frame.clear();
            frame.shrink_to(1 << 20);
        }
    }

    /// The log of a disk could not be written: nothing of this turn counts as durable there, and the disk's replicas
    /// stop.
    fn fail_disk(&mut self, disk: usize, error: &StorageError) {
        tracing::error!(disk, %error, "the raft log of a disk cannot be written: its replicas stop");
        for tablet in self.tablets_where(|replica| replica.handle.disk() == disk && replica.failure.is_none()) {
            if let Some(replica) = self.replicas.get_mut(&tablet) {
                replica.fail(&mut self.turn, error);
            }
        }
    }
}

/// Whether a log write must be durable before its effects.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Sync {
    No,
    /// Must be durable first, except with `--durability interval`, where it becomes durable a little later.
    UnlessInterval,
    /// Must always be durable first: losing it would break more than an acknowledgement.
    InEveryMode,
}

/// Puts the log records of a group's step into a batch.
fn record<E: Engine>(
    records: &mut <E::Log as Log>::Records,
    replica: &Replica<E>,
    step: &Step,
) -> Result<(), StorageError> {
    if let Some(state) = &step.hard_state {
        records.set_hard_state(replica.group_id(), state)?;
    }
    records.append(replica.group_id(), &step.entries, step.commit)
}

/// How durable a step must be. A lost vote would give a term two leaders. A lost change of members, or a lost end of
/// the tablet, would leave two groups that each decide alone; entries of the catalog can cause either. Other nodes act
/// on such an entry, and close replicas that it makes unnecessary, once a later entry is acknowledged whose commit
/// index shows that it is committed.
fn needed_sync<E: Engine>(durability: Durability, replica: &mut Replica<E>, step: &Step) -> Sync {
    let decides = |entry: &Entry| {
        entry.get_entry_type() != EntryType::EntryNormal || !entry.context.is_empty() || is_step(&entry.data)
    };
    let mut is_vital = || {
        let has_decision = replica.is_deciding(step, decides);
        let is_of_catalog = replica.group_id() == GroupId::CATALOG && !step.entries.is_empty();
        has_decision || step.hard_state.is_some() || is_of_catalog
    };
    if durability != Durability::Fsync && is_vital() {
        Sync::InEveryMode
    } else if step.must_sync {
        Sync::UnlessInterval
    } else {
        Sync::No
    }
}

/// Counts the log bytes that would have to be replayed after a crash now.
fn note_logged<E: Engine>(context: &Context, replica: &Replica<E>, step: &Step) {
    let bytes: u64 = step.entries.iter().map(|entry| entry.data.len() as u64 + 32).sum();
    if bytes == 0 {
        return;
    }
    let position = context.log_position.fetch_add(bytes, Ordering::Relaxed);
    let handle = &replica.handle;
    handle.log.written_bytes.fetch_add(bytes, Ordering::Relaxed);
    let _ = handle.log.oldest_unflushed.compare_exchange(u64::MAX, position, Ordering::AcqRel, Ordering::Relaxed);
}
