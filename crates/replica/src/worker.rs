//! A store thread and its turn.

use crate::apply::{Applier, Outcomes};
use crate::handle::LEASE_FOREVER;
use crate::queue::Taken;
use crate::replica::{Command, Proposal, Replica, Waiter};
use crate::store::{Durability, Inner};
use ahash::AHashMap;
use diorite_base::TabletId;
use diorite_base::write::KvError;
use diorite_raft::Step;
use diorite_storage::{LogBatch, LogRecords, StorageError};
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::sync::mpsc::SyncSender;

/// One store thread: owns its replicas' Raft groups and applies their entries.
pub(crate) struct Worker {
    inner: Arc<Inner>,
    number: usize,
    replicas: AHashMap<TabletId, Replica>,
    /// Replicas to look at in this turn.
    touched: Vec<TabletId>,
    /// One log batch per disk.
    logs: Vec<LogBatch>,
    outcomes: Outcomes,
    applier: Applier,
}

impl Worker {
    pub(crate) fn new(inner: Arc<Inner>, number: usize) -> Self {
        let logs = inner.disks.iter().map(|_| LogBatch::default()).collect();
        Self {
            inner,
            number,
            replicas: AHashMap::default(),
            touched: Vec::new(),
            logs,
            outcomes: Outcomes::default(),
            applier: Applier::default(),
        }
    }

    /// Runs until the queue is closed and empty.
    pub(crate) fn run(mut self) {
        let (mut proposals, mut commands) = (Vec::new(), Vec::new());
        loop {
            match self.inner.queues[self.number].take(&mut proposals, &mut commands) {
                Taken::Closed => break,
                Taken::Work => {}
            }
            self.inner.wait_for_memory();
            for command in commands.drain(..) {
                self.command(command);
            }
            self.turn(&mut proposals);
        }
    }

    fn command(&mut self, command: Command) {
        match command {
            Command::Open(replica, reply) => self.open(*replica, &reply),
            Command::Close(tablet, reply) => self.close(tablet, &reply),
            Command::Flushed(tablet, index) => self.truncate(tablet, index),
        }
    }

    /// Takes a replica, makes it leader and replays what is in the log.
    fn open(&mut self, mut replica: Replica, reply: &SyncSender<Result<(), KvError>>) {
        let tablet = replica.handle.tablet;
        let started = if replica.group.is_sole_voter() { replica.group.campaign() } else { Ok(()) };
        if let Err(error) = started {
            replica.failure = Some(error.to_string());
        }
        let stored_index = replica.applied.index;
        self.replicas.insert(tablet, replica);
        self.touch(tablet);
        self.advance();
        self.note_replayed(tablet, stored_index);
        let outcome = match self.replicas.get(&tablet).and_then(|replica| replica.failure.clone()) {
            Some(failure) => Err(KvError::Storage(failure)),
            None => Ok(()),
        };
        // The opener may have given up waiting.
        let _ = reply.send(outcome);
    }

    /// What was replayed would have to be replayed again: it counts as unflushed. One entry more than was stored is the new leader's own.
    fn note_replayed(&self, tablet: TabletId, stored_index: u64) {
        let Some(replica) = self.replicas.get(&tablet).filter(|replica| replica.applied.index > stored_index + 1)
        else {
            return;
        };
        let handle = &replica.handle;
        let replayed_bytes = handle.data.statistics().memtable_bytes;
        let position = self.inner.log_position.fetch_add(replayed_bytes, Ordering::Relaxed);
        handle.logged_bytes.fetch_add(replayed_bytes, Ordering::Relaxed);
        handle.oldest_unflushed.fetch_min(position, Ordering::AcqRel);
    }

    fn close(&mut self, tablet: TabletId, reply: &SyncSender<Result<(), KvError>>) {
        if let Some(mut replica) = self.replicas.remove(&tablet) {
            replica.handle.lease_until_ns.store(0, Ordering::Release);
            for waiter in replica.take_all_waiters() {
                self.outcomes.push(waiter, Err(KvError::NoSuchTablet(tablet)));
            }
            self.logs[replica.handle.disk].remove(replica.group_id);
            self.outcomes.deliver();
        }
        // The closer may have given up waiting.
        let _ = reply.send(Ok(()));
    }

    /// Cuts the log where the data is durable; written with the next batch.
    fn truncate(&mut self, tablet: TabletId, index: u64) {
        let Some(replica) = self.replicas.get_mut(&tablet) else { return };
        let index = index.min(replica.applied.index);
        match replica.group.truncate_to(index) {
            Ok(Some(term)) => {
                let written = self.logs[replica.handle.disk].truncate_to(replica.group_id, index, term);
                if let Err(error) = written {
                    tracing::warn!(%tablet, %error, "could not record a log truncation");
                }
            }
            Ok(None) => {}
            Err(error) => tracing::warn!(%tablet, index, %error, "could not truncate the log"),
        }
    }

    fn touch(&mut self, tablet: TabletId) {
        if let Some(replica) = self.replicas.get_mut(&tablet)
            && !replica.touched
        {
            replica.touched = true;
            self.touched.push(tablet);
        }
    }

    /// One turn: proposes what waits, makes it durable with one write per disk, applies it, answers.
    fn turn(&mut self, proposals: &mut Vec<Proposal>) {
        for proposal in proposals.drain(..) {
            let tablet = proposal.tablet;
            match self.replicas.get_mut(&tablet) {
                Some(replica) => {
                    replica.fresh.push(proposal);
                    self.touch(tablet);
                }
                None => self.outcomes.push(proposal.waiter, Err(KvError::NoSuchTablet(tablet))),
            }
        }
        let inner = Arc::clone(&self.inner);
        let wall_us = inner.clock.wall_us();
        for tablet in &self.touched {
            let Some(replica) = self.replicas.get_mut(tablet) else { continue };
            for (waiter, error) in replica.propose_fresh(&mut || inner.stamps.stamp(wall_us)) {
                self.outcomes.push(waiter, Err(error));
            }
        }
        self.advance();
    }

    /// Turns the touched groups until none has anything left to do.
    fn advance(&mut self) {
        let mut steps: Vec<(TabletId, Step)> = Vec::with_capacity(self.touched.len());
        loop {
            let must_sync = self.gather(&mut steps);
            if let Err(error) = self.write_logs(must_sync) {
                self.fail_touched(&error);
                break;
            }
            if steps.is_empty() {
                break;
            }
            for (tablet, step) in steps.drain(..) {
                self.complete(tablet, step);
            }
        }
        for tablet in std::mem::take(&mut self.touched) {
            if let Some(replica) = self.replicas.get_mut(&tablet) {
                replica.touched = false;
            }
        }
        self.outcomes.deliver();
    }

    /// Collects the touched groups' steps and puts their log records into the batches.
    fn gather(&mut self, steps: &mut Vec<(TabletId, Step)>) -> bool {
        let mut must_sync = false;
        for &tablet in &self.touched {
            let Some(replica) = self.replicas.get_mut(&tablet) else { continue };
            if replica.failure.is_some() {
                continue;
            }
            let Some(step) = replica.group.ready() else { continue };
            let log = &mut self.logs[replica.handle.disk];
            let appended = match &step.hard_state {
                Some(state) => log.set_hard_state(replica.group_id, state),
                None => Ok(()),
            }
            .and_then(|()| log.append(replica.group_id, &step.entries));
            if let Err(error) = appended {
                replica.failure = Some(error.to_string());
                continue;
            }
            note_logged(&self.inner, replica, &step);
            must_sync |= step.must_sync;
            steps.push((tablet, step));
        }
        must_sync
    }

    fn write_logs(&mut self, must_sync: bool) -> Result<(), StorageError> {
        let sync = must_sync && self.inner.options.durability == Durability::Fsync;
        for (disk, log) in self.inner.disks.iter().zip(&mut self.logs) {
            if log.is_empty() {
                continue;
            }
            let started_ns = self.inner.clock.monotonic_ns();
            let bytes = disk.log.write(log, sync)?;
            self.inner.counters.observe_log_write(bytes, self.inner.clock.monotonic_ns() - started_ns, sync);
        }
        Ok(())
    }

    /// The step is durable: applies what is committed by that.
    fn complete(&mut self, tablet: TabletId, mut step: Step) {
        let Some(replica) = self.replicas.get_mut(&tablet) else { return };
        let mut committed = std::mem::take(&mut step.committed);
        let (more, _messages) = replica.group.persisted(step);
        committed.extend(more);
        if let Err(error) = self.applier.apply(replica, &committed, &mut self.outcomes) {
            fail(replica, &error, &mut self.outcomes);
            return;
        }
        let lease =
            if replica.group.is_sole_voter() && replica.group.is_established_leader() { LEASE_FOREVER } else { 0 };
        replica.handle.lease_until_ns.store(lease, Ordering::Release);
    }

    /// The log could not be written: nothing of this turn may be taken as durable, and consensus cannot go on.
    fn fail_touched(&mut self, error: &StorageError) {
        tracing::error!(%error, "the raft log cannot be written: writes to its tablets stop until restart");
        for tablet in &self.touched {
            if let Some(replica) = self.replicas.get_mut(tablet) {
                fail(replica, error, &mut self.outcomes);
            }
        }
    }
}

fn fail(replica: &mut Replica, error: &StorageError, outcomes: &mut Outcomes) {
    tracing::error!(tablet = %replica.handle.tablet, %error, "a tablet replica stops");
    replica.failure = Some(error.to_string());
    replica.handle.lease_until_ns.store(0, Ordering::Release);
    for Waiter { sink, token } in replica.take_all_waiters() {
        outcomes.push(Waiter { sink, token }, Err(KvError::Storage(error.to_string())));
    }
}

/// Keeps account of the log bytes that a crash now would have to replay.
fn note_logged(inner: &Inner, replica: &Replica, step: &Step) {
    let bytes: u64 = step.entries.iter().map(|entry| entry.data.len() as u64 + 32).sum();
    if bytes == 0 {
        return;
    }
    let position = inner.log_position.fetch_add(bytes, Ordering::Relaxed);
    let handle = &replica.handle;
    handle.logged_bytes.fetch_add(bytes, Ordering::Relaxed);
    let _ = handle.oldest_unflushed.compare_exchange(u64::MAX, position, Ordering::AcqRel, Ordering::Relaxed);
}
