//! Applies committed entries to a tablet's data, in log order, in as few RocksDB batches as possible.
//!
//! Always true: a batch holds whole entries and the applied index that they lead to. So a crash between two batches is
//! repaired by a replay from that index, and nothing is applied twice. An evaluated mutation sees everything before it
//! in the log. A panic in an entry is an error of its replica.

mod beside;
mod steps;

use self::beside::Beside;
use self::steps::{reads_stored, steps_of};
use crate::group::entry::mutations;
use crate::group::handle::TabletHandle;
use crate::group::horizon::{advance, read_no_earlier};
use crate::group::indexed::{IndexAccount, IndexedBatch, indexes_of};
use crate::group::merge::{REOPEN, Reopening};
use crate::group::outcomes::Outcomes;
use crate::group::proposal::Waiter;
use crate::group::replica::Replica;
use crate::group::samples::KeySamples;
use crate::group::sealed::CLOSED;
use crate::group::split::{SPLIT, Split, SplitMark, keep_part};
use crate::group::view::View;
use crate::group::waiters::Fate;
use crate::progress::WorkProgress;
use diorite_base::Horizon;
use diorite_base::bytes::Malformed;
use diorite_base::caught::{Panic, caught};
use diorite_base::mutation::{
    Body, EvaluationContext, Evaluator, MutationRef, OperationKind, Operations, TabletChanges,
};
use diorite_base::write::{KvError, WriteReply};
use diorite_raft::{Entry, EntryType, LogPosition};
use diorite_storage::{AppliedState, Engine, MEMBERS_KEY, SPLIT_KEY, StorageError, TabletBatch, TabletData};
use diorite_transact::records::Effect as StepEffect;
use diorite_transact::step::{Operation as StagedProgram, Step};
use protobuf::Message as _;
use std::sync::Arc;
use std::sync::atomic::Ordering;

/// Collects the changes of an evaluated mutation.
struct Changes<'a, B> {
    batch: IndexedBatch<'a, B>,
    state: &'a mut AppliedState,
    bounds: Bounds<'a>,
}

/// Adds the horizon to values whose timestamps are older than it; `None` if all timestamps are stamps, which are never
/// older.
#[derive(Clone, Copy)]
struct Bounds<'a>(Option<(&'a dyn Evaluator, Horizon)>);

impl<'a> Bounds<'a> {
    fn of(mutation: &MutationRef<'_>, state: &AppliedState, evaluator: &'a dyn Evaluator) -> Self {
        Self(mutation.explicit_us.map(|_| (evaluator, state.horizon)))
    }

    fn merge(self, batch: &mut IndexedBatch<'_, impl TabletBatch>, key: &[u8], value: &[u8]) {
        match self.0.and_then(|(evaluator, horizon)| evaluator.bounded(value, horizon)) {
            Some(bounded) => batch.merge(key, &bounded),
            None => batch.merge(key, value),
        }
    }
}

/// Puts a blind mutation into a batch and calls `see` with each key. `state` includes the mutation's stamps already.
fn write_rows(
    operations: Operations<'_>,
    (stamp_us, evaluator): (i64, &dyn Evaluator),
    (state, bounds): (&AppliedState, Bounds<'_>),
    batch: &mut IndexedBatch<'_, impl TabletBatch>,
    see: &mut dyn FnMut(&[u8]),
) -> Result<(), Malformed> {
    for (nth, operation) in (0..).zip(operations) {
        let operation = operation?;
        see(operation.key);
        let placed;
        let value = match operation.is_unplaced {
            false => operation.value,
            true => {
                placed = place(evaluator, operation.value, stamp_us, nth);
                &placed[..]
            }
        };
        if operation.kind == OperationKind::Overwrite && stamp_us > state.newest_explicit_us {
            batch.put(operation.key, value);
        } else {
            bounds.merge(batch, operation.key, value);
        }
    }
    Ok(())
}

fn place(evaluator: &dyn Evaluator, value: &[u8], stamp_us: i64, nth: u32) -> Vec<u8> {
    let mut placed = value.to_vec();
    evaluator.place(&mut placed, stamp_us, nth);
    placed
}

/// Applies one mutation as an entry of its own to data that no replica holds, in the way a replica does; returns the
/// reply.
///
/// # Errors
/// If the mutation is malformed or cannot be evaluated, or the data cannot be read or written.
pub fn apply_alone<T: TabletData>(
    data: &Arc<T>,
    evaluator: &dyn Evaluator,
    LogPosition { index, term }: LogPosition,
    mutation: &[u8],
) -> Result<WriteReply, StorageError> {
    let corrupt = |_| StorageError::Corrupt(format!("entry {index}"));
    let mutation = MutationRef::decode(mutation).map_err(corrupt)?;
    let mut state = AppliedState { index, term, ..data.applied_state()? };
    state.advance(mutation.stamp_us, mutation.explicit_us, mutation.gc_grace_s);
    let (mut batch, bounds) = (T::Batch::default(), Bounds::of(&mutation, &state, evaluator));
    let (indexes, mut account) = (indexes_of(data, evaluator, state.flags)?, IndexAccount::default());
    let mut indexed = IndexedBatch::new(&mut batch, &mut account, indexes.as_deref());
    let (samples, progress) = (KeySamples::default(), WorkProgress::default());
    let view = View { data, samples: &samples, nth: index, progress: &progress };
    let reply = match mutation.body() {
        Body::Blind(operations) => {
            let writer = (mutation.stamp_us, evaluator);
            write_rows(operations, writer, (&state, bounds), &mut indexed, &mut |_| {}).map_err(corrupt)?;
            WriteReply::default()
        }
        Body::Evaluated(program) => {
            let context = context_of(&mutation, &state);
            let mut changes = Changes { batch: indexed, state: &mut state, bounds };
            let evaluated = evaluator.evaluate(program, context, &view, &mut changes);
            evaluated.map_err(|failed| StorageError::Corrupt(failed.to_string()))?
        }
        Body::Request(_) | Body::Step(_) => return Err(corrupt(Malformed)),
    };
    account.close(evaluator, &view, &mut batch)?;
    data.apply(&mut batch, &state)?;
    Ok(reply)
}

fn context_of(mutation: &MutationRef<'_>, state: &AppliedState) -> EvaluationContext {
    EvaluationContext::new(mutation.stamp_us, state.newest_explicit_us)
}

impl<B: TabletBatch> TabletChanges for Changes<'_, B> {
    fn put(&mut self, key: &[u8], value: &[u8]) {
        self.batch.put(key, value);
    }

    fn merge(&mut self, key: &[u8], value: &[u8]) {
        self.bounds.merge(&mut self.batch, key, value);
    }

    fn delete(&mut self, key: &[u8]) {
        self.batch.delete(key);
    }

    fn delete_range(&mut self, start: &[u8], end: &[u8]) {
        self.batch.delete_range(start, end);
    }

    fn raise_flags(&mut self, flags: u64) {
        self.state.flags |= flags;
    }

    fn raise_stamps(&mut self, newest_us: i64, newest_explicit_us: i64) {
        self.state.newest_stamp_us = self.state.newest_stamp_us.max(newest_us);
        self.state.newest_explicit_us = self.state.newest_explicit_us.max(newest_explicit_us);
    }
}

/// Whether the applied entries included a change of members.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct MembersChanged(pub(crate) bool);

/// Applies entries; reuses its buffers from turn to turn.
pub(crate) struct Applier<E: Engine> {
    batch: <E::Tablet as TabletData>::Batch,
    account: IndexAccount,
    written: Vec<Waiter>,
    beside: Beside,
    /// The number of mutations applied to all tablets, for sampling keys.
    mutations: u64,
    /// The progress of the thread that applies.
    progress: Arc<WorkProgress>,
}

fn panicked(entry: &Entry, panic: Panic) -> StorageError {
    StorageError::Corrupt(format!("applying entry {} panicked: {panic}", entry.index))
}

impl<E: Engine> Applier<E> {
    pub(crate) fn new(progress: Arc<WorkProgress>) -> Self {
        Self {
            batch: Default::default(),
            account: IndexAccount::default(),
            written: Vec::new(),
            beside: Beside::default(),
            mutations: 0,
            progress,
        }
    }

    /// Applies `entries` to `replica`; outcomes go to `outcomes`. After an error the replica's data is as of
    /// `replica.applied`.
    pub(crate) fn apply(
        &mut self,
        replica: &mut Replica<E>,
        entries: &[Entry],
        outcomes: &mut Outcomes,
    ) -> Result<MembersChanged, StorageError> {
        let applied = self.apply_all(replica, entries, outcomes);
        if let Err(error) = &applied {
            // A partly filled batch must not reach the next replica, and its writers must not receive a success.
            self.batch.clear();
            self.account.begin_batch();
            self.beside.clear();
            for waiter in self.written.drain(..) {
                outcomes.push(waiter, Err(KvError::Storage(error.to_string())));
            }
        }
        applied
    }

    fn apply_all(
        &mut self,
        replica: &mut Replica<E>,
        entries: &[Entry],
        outcomes: &mut Outcomes,
    ) -> Result<MembersChanged, StorageError> {
        let mut state = replica.applied;
        let mut members_changed = MembersChanged(false);
        for entry in entries {
            assert!(entry.index == state.index + 1, "entries are applied in order and once");
            self.progress.step();
            self.account.begin_entry();
            members_changed.0 |= entry.get_entry_type() != EntryType::EntryNormal;
            let has_ended = state.flags & CLOSED != 0 && entry.context != REOPEN;
            if replica.ending.split.is_some() || has_ended {
                Self::refuse_waiters(replica, entry, outcomes);
            } else {
                // A panic is an error of this replica alone: the batch and `state`, which are half changed, are
                // discarded with the error. If the panic ended the process, it would do so on every node with a
                // replica, and again at each replay.
                let applied = caught(|| self.apply_entry(replica, entry, &mut state, outcomes));
                applied.unwrap_or_else(|panic| Err(panicked(entry, panic)))?;
            }
            state.index = entry.index;
            state.term = entry.term;
            self.answer_waiters(replica, entry, None, outcomes);
            if self.account.is_full() {
                self.write(replica, &state, outcomes)?;
            }
        }
        self.write(replica, &state, outcomes)?;
        if let Some(last) = entries.last() {
            replica.group.applied(last.index);
        }
        Ok(members_changed)
    }

    fn apply_entry(
        &mut self,
        replica: &mut Replica<E>,
        entry: &Entry,
        state: &mut AppliedState,
        outcomes: &mut Outcomes,
    ) -> Result<(), StorageError> {
        if entry.get_entry_type() != EntryType::EntryNormal {
            return self.change_members(replica, entry, state, outcomes);
        }
        if entry.context == SPLIT {
            return self.split(replica, entry, state, outcomes);
        }
        if entry.context == REOPEN {
            return self.reopen(replica, entry, state, outcomes);
        }
        let group = replica.group_id();
        let corrupt = |_| StorageError::Corrupt(format!("entry {} of {group}", entry.index));
        for mutation in mutations(&entry.data).map_err(corrupt)? {
            let mutation = mutation.map_err(corrupt)?;
            advance(state, &mutation, replica.writes.transactions.records.oldest_s());
            self.mutations = self.mutations.wrapping_add(1);
            match mutation.body() {
                Body::Blind(operations) => {
                    let (nth, mut is_sampled) = (self.mutations, KeySamples::wants(self.mutations));
                    let mut see = |key: &[u8]| {
                        if std::mem::take(&mut is_sampled) {
                            replica.handle.load.samples.keep(nth, key);
                        }
                    };
                    let bounds = Bounds::of(&mutation, state, &*replica.evaluator);
                    let writer = (mutation.stamp_us, &*replica.evaluator);
                    let mut batch = IndexedBatch::new(&mut self.batch, &mut self.account, replica.indexes());
                    write_rows(operations, writer, (state, bounds), &mut batch, &mut see).map_err(corrupt)?;
                }
                Body::Evaluated(program) => {
                    // Earlier entries must be visible to it, under their own applied index.
                    self.write(replica, state, outcomes)?;
                    self.evaluate(replica, entry, &mutation, program, state, outcomes)?;
                }
                Body::Step(steps) => {
                    self.apply_steps(replica, entry, (&mutation, steps), state, outcomes)?;
                }
                Body::Request(_) => return Err(corrupt(Malformed)),
            }
        }
        Ok(())
    }

    fn evaluate(
        &mut self,
        replica: &mut Replica<E>,
        entry: &Entry,
        mutation: &MutationRef<'_>,
        program: &[u8],
        state: &mut AppliedState,
        outcomes: &mut Outcomes,
    ) -> Result<(), StorageError> {
        let (context, bounds) = (context_of(mutation, state), Bounds::of(mutation, state, &*replica.evaluator));
        let view = View {
            data: &replica.handle.data,
            samples: &replica.handle.load.samples,
            nth: self.mutations,
            progress: &self.progress,
        };
        let batch = IndexedBatch::new(&mut self.batch, &mut self.account, replica.indexes());
        let reply = replica
            .evaluator
            .evaluate(program, context, &view, &mut Changes { batch, state: &mut *state, bounds })
            .map_err(|failed| StorageError::Corrupt(failed.to_string()))?;
        let after = AppliedState { index: entry.index, term: entry.term, ..*state };
        self.write(replica, &after, outcomes)?;
        if replica.evaluator.changes_indexes(program) {
            replica.reload_indexes()?;
        }
        self.answer_waiters(replica, entry, Some(&reply), outcomes);
        Ok(())
    }

    /// Applies the steps of an entry. Programs that read see what was applied before it; others share a batch with it.
    fn apply_steps(
        &mut self,
        replica: &mut Replica<E>,
        entry: &Entry,
        (mutation, steps): (&MutationRef<'_>, &[u8]),
        state: &mut AppliedState,
        outcomes: &mut Outcomes,
    ) -> Result<(), StorageError> {
        let group = replica.group_id();
        let corrupt = |_| StorageError::Corrupt(format!("entry {} of {group}", entry.index));
        let mut steps = steps_of(replica, entry, steps).map_err(corrupt)?;
        steps.iter_mut().for_each(|step| read_no_earlier(step, state.horizon.now_s));
        let reads = steps.iter().any(|step| reads_stored(replica, step));
        if reads {
            // Earlier entries must be visible to them, under their own applied index.
            self.write(replica, state, outcomes)?;
        }
        for step in &steps {
            let effects = replica.writes.transactions.records.apply(mutation.stamp_us, step);
            if let Step::Prepare(prepare) = step {
                self.beside.begin(prepare.id);
            }
            for effect in effects {
                match effect {
                    StepEffect::Put { key, value } => self.beside.put(key, value),
                    StepEffect::Remove { key } => self.beside.remove(&key, &mut self.batch),
                    StepEffect::Write { stamp_us, operations } => {
                        // One of the tablet's writes, as any other is where the tablet is led.
                        replica.handle.load.writes.fetch_add(u64::from(replica.group.is_leader()), Ordering::Relaxed);
                        for operation in operations.iter() {
                            self.run_staged(replica, operation, stamp_us, state)?;
                        }
                    }
                }
            }
        }
        for step in steps {
            if let Step::Finish { id, .. } = &step {
                self.beside.end(*id);
            }
            replica.writes.transactions.note_applied(step);
        }
        if reads {
            let after = AppliedState { index: entry.index, term: entry.term, ..*state };
            self.write(replica, &after, outcomes)?;
        }
        Ok(())
    }

    /// Runs a program whose rows were locked when its conditions held.
    fn run_staged(
        &mut self,
        replica: &mut Replica<E>,
        operation: &StagedProgram,
        stamp_us: i64,
        state: &mut AppliedState,
    ) -> Result<(), StorageError> {
        let explicit_us = replica.evaluator.explicit_us(&operation.program);
        let newest_explicit_us = state.newest_explicit_us.max(explicit_us.unwrap_or(i64::MIN));
        state.newest_explicit_us = newest_explicit_us;
        let context =
            EvaluationContext { now_s: operation.now_s, ..EvaluationContext::new(stamp_us, newest_explicit_us) };
        let view = View {
            data: &replica.handle.data,
            samples: &replica.handle.load.samples,
            nth: self.mutations,
            progress: &self.progress,
        };
        let batch = IndexedBatch::new(&mut self.batch, &mut self.account, replica.indexes());
        let bounds = Bounds(explicit_us.map(|_| (&*replica.evaluator, state.horizon)));
        let mut changes = Changes { batch, state, bounds };
        let reply = replica
            .evaluator
            .evaluate(&operation.program, context, &view, &mut changes)
            .map_err(|failed| StorageError::Corrupt(failed.to_string()))?;
        if !replica.evaluator.has_applied(&reply) {
            tracing::error!(tablet = %replica.id(), "a transaction's program that could be carried out when it was locked has no effect");
        }
        Ok(())
    }

    /// Ends the tablet: its child tablets apply everything after this entry.
    fn split(
        &mut self,
        replica: &mut Replica<E>,
        entry: &Entry,
        state: &AppliedState,
        outcomes: &mut Outcomes,
    ) -> Result<(), StorageError> {
        // A batch has one applied index: earlier entries are written under their own.
        self.write(replica, state, outcomes)?;
        let corrupt = |_| StorageError::Corrupt(format!("entry {} of {}", entry.index, replica.group_id()));
        let split = Split::decode(&entry.data).map_err(corrupt)?;
        if keep_part::<E>(&split, replica.id(), &replica.handle.data, &mut self.batch)? {
            // A child whose data was prepared: up to this entry its log is its parent's.
            return Ok(());
        }
        let mark = SplitMark { parent: replica.id(), index: entry.index, term: entry.term, split };
        self.batch.put(SPLIT_KEY, &mark.encode());
        replica.ending.split = Some(mark);
        Ok(())
    }

    /// Opens the tablet again: the merge that closed it was cancelled.
    fn reopen(
        &mut self,
        replica: &mut Replica<E>,
        entry: &Entry,
        state: &mut AppliedState,
        outcomes: &mut Outcomes,
    ) -> Result<(), StorageError> {
        // A batch has one applied index: earlier entries are written under their own.
        self.write(replica, state, outcomes)?;
        let corrupt = |_| StorageError::Corrupt(format!("entry {} of {}", entry.index, replica.group_id()));
        let reopening = Reopening::decode(&entry.data).map_err(corrupt)?;
        reopening.apply(replica.id(), &replica.handle.data, &mut self.batch, state)
    }

    /// Answers the waiters of an entry after the end of its tablet: nothing was done, and the tablet does not exist any
    /// more.
    fn refuse_waiters(replica: &mut Replica<E>, entry: &Entry, outcomes: &mut Outcomes) {
        let gone = KvError::NoSuchTablet(replica.id());
        while let Some((_, waiting)) = replica.writes.waiting.next_decided(LogPosition::from(entry)) {
            waiting.waiters.into_iter().for_each(|waiter| outcomes.push(waiter, Err(gone.clone())));
        }
    }

    /// Applies a change of members. The members are stored with the applied index, so that both are of the same moment.
    fn change_members(
        &mut self,
        replica: &mut Replica<E>,
        entry: &Entry,
        state: &AppliedState,
        outcomes: &mut Outcomes,
    ) -> Result<(), StorageError> {
        // A batch has one applied index: earlier entries are written under their own.
        self.write(replica, state, outcomes)?;
        let before: Vec<u64> = replica.group.all_voters().collect();
        let members = replica.group.apply_member_change(entry)?;
        if let Some(members) = members {
            replica.note_removed(&before);
            tracing::info!(tablet = %replica.id(), voters = ?members.voters, outgoing = ?members.voters_outgoing, learners = ?members.learners, "members changed");
            let encoded = members.write_to_bytes().map_err(|error| StorageError::Corrupt(error.to_string()))?;
            self.batch.put(MEMBERS_KEY, &encoded);
            replica.members.index = replica.group.last_index();
            // Visited soon even if the group is busy: a joint configuration needs a quorum of both sets.
            replica.visits.soon();
        }
        Ok(())
    }

    /// Answers the waiters of this entry, and of entries that it proves will never be applied. If there is a reply, the
    /// entry has been written already.
    fn answer_waiters(
        &mut self,
        replica: &mut Replica<E>,
        entry: &Entry,
        reply: Option<&WriteReply>,
        outcomes: &mut Outcomes,
    ) {
        while let Some((fate, waiting)) = replica.writes.waiting.next_decided(LogPosition::from(entry)) {
            let outcome = match (fate, reply) {
                (Fate::Never, _) => Err(KvError::Unavailable(replica.id())),
                (Fate::Applied, None) => {
                    self.written.extend(waiting.waiters);
                    continue;
                }
                (Fate::Applied, Some(reply)) => {
                    replica.handle.load.writes.fetch_add(waiting.waiters.len() as u64, Ordering::Relaxed);
                    Ok(reply.clone())
                }
            };
            waiting.waiters.into_iter().for_each(|waiter| outcomes.push(waiter, outcome.clone()));
        }
    }

    fn close_batch(&mut self, replica: &Replica<E>) -> Result<(), StorageError> {
        let view = View {
            data: &replica.handle.data,
            samples: &replica.handle.load.samples,
            nth: self.mutations,
            progress: &self.progress,
        };
        self.account.close(&*replica.evaluator, &view, &mut self.batch)
    }

    /// Writes the batch, if `state` is ahead of what is written, and answers its waiters.
    fn write(
        &mut self,
        replica: &mut Replica<E>,
        state: &AppliedState,
        outcomes: &mut Outcomes,
    ) -> Result<(), StorageError> {
        if state.index == replica.applied.index {
            return Ok(());
        }
        // Raised before the data can be read: see `TabletHandle::flags`.
        replica.handle.flags.fetch_or(state.flags, Ordering::AcqRel);
        self.progress.step();
        let TabletHandle { data, transacted, .. } = &*replica.handle;
        let records = &replica.writes.transactions.records;
        self.beside.close(records, &transacted.prepared, &mut self.batch);
        let written = self.close_batch(replica).and_then(|()| {
            // Also if only records of transactions change: what is prepared has another version before it is answered.
            transacted.change(|| {
                if self.account.changes_records() {
                    transacted.index_notes.forget();
                }
                data.apply(&mut self.batch, state)
            })
        });
        self.progress.step();
        self.batch.clear();
        self.account.begin_batch();
        written?;
        replica.applied = *state;
        replica.handle.flags.store(state.flags, Ordering::Release);
        self.beside.written(records, &transacted.prepared);
        replica.handle.load.writes.fetch_add(self.written.len() as u64, Ordering::Relaxed);
        for waiter in self.written.drain(..) {
            outcomes.push(waiter, Ok(Vec::new()));
        }
        Ok(())
    }
}
