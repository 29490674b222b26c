//! A worker's bounded inbox.
//!
//! Submitting does not wake the worker; [`Queue::kick`] does, once for a burst. A worker that is busy needs no waking: it looks
//! again when its turn ends.

use crate::replica::{Command, Proposal};
use diorite_base::write::KvError;
use parking_lot::{Condvar, Mutex};
use std::sync::atomic::{AtomicU64, Ordering};

/// Limits of one worker's queue.
#[derive(Debug, Clone, Copy)]
pub(crate) struct QueueLimits {
    pub(crate) proposals: usize,
    pub(crate) bytes: usize,
}

#[derive(Default)]
struct Inbox {
    proposals: Vec<Proposal>,
    commands: Vec<Command>,
    bytes: usize,
    sleeping: bool,
    closed: bool,
}

pub(crate) struct Queue {
    inbox: Mutex<Inbox>,
    wake: Condvar,
    limits: QueueLimits,
    /// Proposals refused because the queue was full.
    pub(crate) refused: AtomicU64,
}

/// What a worker found in its inbox.
pub(crate) enum Taken {
    Work,
    Closed,
}

impl Queue {
    pub(crate) fn new(limits: QueueLimits) -> Self {
        Self { inbox: Mutex::default(), wake: Condvar::new(), limits, refused: AtomicU64::new(0) }
    }

    /// Adds a proposal, without waking the worker.
    pub(crate) fn submit(&self, proposal: Proposal) -> Result<(), KvError> {
        let mut inbox = self.inbox.lock();
        if inbox.closed {
            return Err(KvError::Unavailable(proposal.tablet));
        }
        if inbox.proposals.len() >= self.limits.proposals || inbox.bytes >= self.limits.bytes {
            self.refused.fetch_add(1, Ordering::Relaxed);
            return Err(KvError::Overloaded("the write queue is full"));
        }
        inbox.bytes += proposal.mutation.size_bytes();
        inbox.proposals.push(proposal);
        Ok(())
    }

    /// Wakes the worker if it sleeps and has something to do.
    pub(crate) fn kick(&self) {
        let mut inbox = self.inbox.lock();
        if inbox.sleeping && !inbox.proposals.is_empty() {
            inbox.sleeping = false;
            drop(inbox);
            self.wake.notify_one();
        }
    }

    /// Adds a command and wakes the worker. A closed queue drops it, and with it the sender's reply channel.
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

    /// No more work is taken; the worker finishes what is there.
    pub(crate) fn close(&self) {
        let mut inbox = self.inbox.lock();
        inbox.closed = true;
        inbox.sleeping = false;
        drop(inbox);
        self.wake.notify_one();
    }

    /// Waits for work and moves it into the given (empty) buffers.
    pub(crate) fn take(&self, proposals: &mut Vec<Proposal>, commands: &mut Vec<Command>) -> Taken {
        let mut inbox = self.inbox.lock();
        while inbox.proposals.is_empty() && inbox.commands.is_empty() {
            if inbox.closed {
                return Taken::Closed;
            }
            inbox.sleeping = true;
            self.wake.wait(&mut inbox);
        }
        inbox.sleeping = false;
        inbox.bytes = 0;
        std::mem::swap(&mut inbox.proposals, proposals);
        std::mem::swap(&mut inbox.commands, commands);
        Taken::Work
    }

    /// Proposals waiting.
    pub(crate) fn len(&self) -> usize {
        self.inbox.lock().proposals.len()
    }
}
