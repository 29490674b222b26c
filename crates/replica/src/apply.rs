//! Applies committed entries to a tablet's data, in log order, as few RocksDB batches as possible.
//!
//! Always true: a batch holds whole entries and the applied index they lead to, so a crash between any two batches is repaired by
//! replaying from that index, and nothing is applied twice. An evaluated mutation sees everything before it in the log.

use crate::entry::mutations;
use crate::replica::{Replica, Waiter};
use ahash::AHashMap;
use diorite_base::mutation::{
    Body, EvaluationContext, EvaluationFailed, MutationRef, OperationKind, TabletChanges, TabletView,
};
use diorite_base::write::{Completion, KvError, WriteReply, WriteSink};
use diorite_raft::Entry;
use diorite_storage::{AppliedState, Batch, ScanRange, StorageError, Tablet, TabletBatch};
use std::sync::Arc;
use std::sync::atomic::Ordering;

/// Outcomes of one turn, gathered per sink so that each is woken once.
#[derive(Default)]
pub(crate) struct Outcomes {
    by_sink: AHashMap<usize, (Arc<dyn WriteSink>, Vec<Completion>)>,
}

impl Outcomes {
    pub(crate) fn push(&mut self, waiter: Waiter, outcome: Result<WriteReply, KvError>) {
        let address = Arc::as_ptr(&waiter.sink).cast::<()>() as usize;
        let (_, done) = self.by_sink.entry(address).or_insert_with(|| (waiter.sink, Vec::new()));
        done.push((waiter.token, outcome));
    }

    /// Hands everything over.
    pub(crate) fn deliver(&mut self) {
        for (_, (sink, mut done)) in self.by_sink.drain() {
            sink.complete(&mut done);
        }
    }
}

/// The tablet as an evaluated mutation reads it.
struct View<'a>(&'a Arc<Tablet>);

impl TabletView for View<'_> {
    fn get(&self, key: &[u8]) -> Result<Option<Vec<u8>>, EvaluationFailed> {
        let found = self.0.get(key).map_err(|error| EvaluationFailed(error.to_string()))?;
        Ok(found.map(|value| value.to_vec()))
    }

    fn scan(
        &self,
        start: &[u8],
        end: &[u8],
        visit: &mut dyn FnMut(&[u8], &[u8]) -> bool,
    ) -> Result<(), EvaluationFailed> {
        let range = ScanRange { start, end, reverse: false, expected_entries: 0 };
        self.0.scan(&range, visit).map_err(|error| EvaluationFailed(error.to_string()))?;
        Ok(())
    }
}

/// Where an evaluated mutation puts its changes.
struct Changes<'a> {
    batch: &'a mut Batch,
    flags: &'a mut u64,
}

impl TabletChanges for Changes<'_> {
    fn put(&mut self, key: &[u8], value: &[u8]) {
        self.batch.put(key, value);
    }

    fn merge(&mut self, key: &[u8], value: &[u8]) {
        self.batch.merge(key, value);
    }

    fn delete(&mut self, key: &[u8]) {
        self.batch.delete(key);
    }

    fn delete_range(&mut self, start: &[u8], end: &[u8]) {
        self.batch.delete_range(start, end);
    }

    fn raise_flags(&mut self, flags: u64) {
        *self.flags |= flags;
    }
}

/// Applies entries; reuses its buffers from turn to turn.
#[derive(Default)]
pub(crate) struct Applier {
    batch: Batch,
    written: Vec<Waiter>,
}

impl Applier {
    /// Applies `entries` of `replica`; outcomes go to `outcomes`. After an error the replica's data is as of `replica.applied`.
    pub(crate) fn apply(
        &mut self,
        replica: &mut Replica,
        entries: &[Entry],
        outcomes: &mut Outcomes,
    ) -> Result<(), StorageError> {
        let mut state = replica.applied;
        for entry in entries {
            assert!(entry.index == state.index + 1, "entries are applied in order and once");
            self.apply_entry(replica, entry, &mut state, outcomes)?;
            state.index = entry.index;
            state.term = entry.term;
            self.written.append(&mut replica.take_waiters(entry.index));
        }
        self.write(replica, &state, outcomes)?;
        if let Some(last) = entries.last() {
            replica.group.applied(last.index);
        }
        Ok(())
    }

    fn apply_entry(
        &mut self,
        replica: &mut Replica,
        entry: &Entry,
        state: &mut AppliedState,
        outcomes: &mut Outcomes,
    ) -> Result<(), StorageError> {
        let group = replica.group_id;
        let corrupt = |_| StorageError::Corrupt(format!("entry {} of {group}", entry.index));
        for mutation in mutations(&entry.data).map_err(corrupt)? {
            let mutation = mutation.map_err(corrupt)?;
            state.newest_stamp_us = state.newest_stamp_us.max(mutation.stamp_us);
            if let Some(explicit_us) = mutation.explicit_us {
                state.newest_explicit_us = state.newest_explicit_us.max(explicit_us);
            }
            match mutation.body() {
                Body::Blind(operations) => {
                    for operation in operations {
                        let operation = operation.map_err(corrupt)?;
                        let replaces =
                            operation.kind == OperationKind::Overwrite && mutation.stamp_us > state.newest_explicit_us;
                        if replaces {
                            self.batch.put(operation.key, operation.value);
                        } else {
                            self.batch.merge(operation.key, operation.value);
                        }
                    }
                }
                Body::Evaluated(program) => {
                    // What came before must be visible to it, under its own applied index.
                    let before = AppliedState { ..*state };
                    self.write(replica, &before, outcomes)?;
                    self.evaluate(replica, entry, &mutation, program, state, outcomes)?;
                }
            }
        }
        Ok(())
    }

    fn evaluate(
        &mut self,
        replica: &mut Replica,
        entry: &Entry,
        mutation: &MutationRef<'_>,
        program: &[u8],
        state: &mut AppliedState,
        outcomes: &mut Outcomes,
    ) -> Result<(), StorageError> {
        let context = EvaluationContext { stamp_us: mutation.stamp_us, newest_explicit_us: state.newest_explicit_us };
        let reply = replica
            .evaluator
            .evaluate(
                program,
                context,
                &View(&replica.handle.data),
                &mut Changes { batch: &mut self.batch, flags: &mut state.flags },
            )
            .map_err(|failed| StorageError::Corrupt(failed.to_string()))?;
        let after = AppliedState { index: entry.index, term: entry.term, ..*state };
        self.write(replica, &after, outcomes)?;
        for waiter in replica.take_waiters(entry.index) {
            outcomes.push(waiter, Ok(reply.clone()));
        }
        Ok(())
    }

    /// Writes what has been gathered, if `state` is ahead of what is written, and answers its waiters.
    fn write(
        &mut self,
        replica: &mut Replica,
        state: &AppliedState,
        outcomes: &mut Outcomes,
    ) -> Result<(), StorageError> {
        if state.index == replica.applied.index {
            return Ok(());
        }
        let written = replica.handle.data.apply(&mut self.batch, state);
        self.batch.clear();
        if let Err(error) = written {
            for waiter in self.written.drain(..) {
                outcomes.push(waiter, Err(KvError::Storage(error.to_string())));
            }
            return Err(error);
        }
        replica.applied = *state;
        replica.handle.flags.store(state.flags, Ordering::Release);
        replica.handle.writes.fetch_add(self.written.len() as u64, Ordering::Relaxed);
        for waiter in self.written.drain(..) {
            outcomes.push(waiter, Ok(Vec::new()));
        }
        Ok(())
    }
}
