//! A worker's bounded inbox.
//!
//! Submitting does not wake the worker; [`Queue::kick`] does, once for a burst. A busy worker need not be woken: it
//! checks its inbox when its turn ends.

use crate::group::catch_up::LogAnswer;
use crate::group::measuring::SizeAnswer;
use crate::group::proposal::Proposal;
use crate::lifecycle::command::{Command, StoreThreads};
use crate::runtime::core::Input;
use crate::runtime::incoming::Incoming;
use diorite_base::write::KvError;
use diorite_raft::SupportChange;
use parking_lot::{Condvar, Mutex};
use std::ops::Deref;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

/// Limits of one worker's queue.
#[derive(Debug, Clone, Copy)]
pub(crate) struct QueueLimits {
    pub(crate) proposals: usize,
    pub(crate) bytes: usize,
}

#[derive(Default)]
struct Inbox {
    input: Input,
    commands: Vec<Command>,
    bytes: usize,
    message_bytes: usize,
    sleeping: bool,
    closed: bool,
}

pub(crate) struct Queue {
    inbox: Mutex<Inbox>,
    wake: Condvar,
    limits: QueueLimits,
    /// Proposals refused because the queue was full.
    pub(crate) refused: AtomicU64,
    /// Messages dropped because the queue was full.
    pub(crate) dropped: AtomicU64,
}

/// What a worker took from its inbox.
pub(crate) enum Taken {
    Work,
    /// Nothing arrived within the timeout.
    Nothing,
    Closed,
}

impl Queue {
    pub(crate) fn new(limits: QueueLimits) -> Self {
        Self {
            inbox: Mutex::default(),
            wake: Condvar::new(),
            limits,
            refused: AtomicU64::new(0),
            dropped: AtomicU64::new(0),
        }
    }

    /// Adds a proposal, without waking the worker.
    pub(crate) fn submit(&self, proposal: Proposal) -> Result<(), KvError> {
        let mut inbox = self.inbox.lock();
        if inbox.closed {
            return Err(KvError::Unavailable(proposal.tablet));
        }
        if inbox.input.proposals.len() >= self.limits.proposals || inbox.bytes >= self.limits.bytes {
            self.refused.fetch_add(1, Ordering::Relaxed);
            return Err(KvError::Overloaded("the write queue is full"));
        }
        inbox.bytes += proposal.mutation.size_bytes();
        inbox.input.proposals.push(proposal);
        Ok(())
    }

    /// Adds messages of replicas on another node, `bytes` long in all, and wakes the worker. If too much waits already
    /// they are dropped, as if the network had lost them.
    pub(crate) fn receive(&self, envelopes: impl Iterator<Item = Incoming>, bytes: usize) {
        let mut inbox = self.inbox.lock();
        if inbox.closed || inbox.message_bytes >= self.limits.bytes {
            self.dropped.fetch_add(1, Ordering::Relaxed);
            return;
        }
        inbox.message_bytes += bytes;
        inbox.input.envelopes.extend(envelopes);
        self.wake(inbox);
    }

    /// Adds changes of support and wakes the worker.
    pub(crate) fn change(&self, changes: &[SupportChange]) {
        let mut inbox = self.inbox.lock();
        inbox.input.changes.extend_from_slice(changes);
        self.wake(inbox);
    }

    /// Adds entries read from the log, and wakes the worker. No limit is needed: the worker asks for only a few at a
    /// time.
    pub(crate) fn answer(&self, answer: LogAnswer) {
        let mut inbox = self.inbox.lock();
        inbox.input.answers.push(answer);
        self.wake(inbox);
    }

    /// Adds the size of a row, and wakes the worker. No limit is needed: the worker asks for only a few at a time.
    pub(crate) fn measured(&self, answer: SizeAnswer) {
        let mut inbox = self.inbox.lock();
        inbox.input.sizes.push(answer);
        self.wake(inbox);
    }

    fn wake(&self, mut inbox: parking_lot::MutexGuard<'_, Inbox>) {
        if inbox.sleeping {
            inbox.sleeping = false;
            drop(inbox);
            self.wake.notify_one();
        }
    }

    /// Wakes the worker if it sleeps and its inbox is not empty.
    pub(crate) fn kick(&self) {
        let inbox = self.inbox.lock();
        if !inbox.input.proposals.is_empty() {
            self.wake(inbox);
        }
    }

    /// Adds a command and wakes the worker. A closed queue drops the command, and with it the sender's reply channel.
    pub(crate) fn command(&self, command: Command) {
        let mut inbox = self.inbox.lock();
        if inbox.closed {
            return;
        }
        inbox.commands.push(command);
        inbox.sleeping = false;
        drop(inbox);
        self.wake.notify_one();
    }

    /// Accepts no more work; the worker finishes what is in the inbox.
    pub(crate) fn close(&self) {
        let mut inbox = self.inbox.lock();
        inbox.closed = true;
        inbox.sleeping = false;
        drop(inbox);
        self.wake.notify_one();
    }

    /// Waits for work, for at most `timeout` if that is given, and moves it into the given (empty) buffers.
    pub(crate) fn take(&self, input: &mut Input, commands: &mut Vec<Command>, timeout: Option<Duration>) -> Taken {
        let mut inbox = self.inbox.lock();
        while inbox.input.is_empty() && inbox.commands.is_empty() {
            if inbox.closed {
                return Taken::Closed;
            }
            inbox.sleeping = true;
            match timeout {
                None => self.wake.wait(&mut inbox),
                Some(timeout) if self.wake.wait_for(&mut inbox, timeout).timed_out() => {
                    inbox.sleeping = false;
                    return Taken::Nothing;
                }
                Some(_) => {}
            }
        }
        inbox.sleeping = false;
        (inbox.bytes, inbox.message_bytes) = (0, 0);
        std::mem::swap(&mut inbox.input, input);
        std::mem::swap(&mut inbox.commands, commands);
        Taken::Work
    }

    /// Bytes of proposals and messages waiting.
    pub(crate) fn bytes(&self) -> usize {
        let inbox = self.inbox.lock();
        inbox.bytes + inbox.message_bytes
    }

    /// Proposals waiting.
    pub(crate) fn len(&self) -> usize {
        self.inbox.lock().input.proposals.len()
    }
}

/// The inboxes of a node's store threads.
pub(crate) struct Queues(Vec<Queue>);

impl Queues {
    pub(crate) fn new(threads: usize, limits: QueueLimits) -> Self {
        Self((0..threads).map(|_| Queue::new(limits)).collect())
    }

    /// Notifies all threads of changes of support.
    pub(crate) fn change(&self, changes: &[SupportChange]) {
        if !changes.is_empty() {
            self.iter().for_each(|queue| queue.change(changes));
        }
    }
}

impl Deref for Queues {
    type Target = [Queue];

    fn deref(&self) -> &[Queue] {
        &self.0
    }
}

impl StoreThreads for Queues {
    fn command(&self, worker: usize, command: Command) {
        self[worker].command(command);
    }
}
