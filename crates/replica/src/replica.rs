//! A tablet replica as its worker holds it, and what reaches the worker.

use crate::entry::Payload;
use crate::handle::TabletHandle;
use diorite_base::mutation::{Evaluator, Mutation, MutationRef};
use diorite_base::write::{KvError, WriteSink};
use diorite_base::{GroupId, TabletId};
use diorite_raft::{Group, GroupError};
use diorite_storage::{AppliedState, GroupReader};
use std::collections::VecDeque;
use std::sync::Arc;
use std::sync::mpsc::SyncSender;

/// An entry is closed once it holds this much, so that neither memory nor replication messages grow with a burst.
const ENTRY_BYTES: usize = 1 << 20;

/// Who waits for a write.
pub(crate) struct Waiter {
    pub(crate) sink: Arc<dyn WriteSink>,
    pub(crate) token: u64,
}

/// A write on its way into the log.
pub(crate) struct Proposal {
    pub(crate) tablet: TabletId,
    pub(crate) mutation: Mutation,
    pub(crate) waiter: Waiter,
}

/// What a worker is told beside proposals.
pub(crate) enum Command {
    /// Take this replica and lead it; answer when it serves.
    Open(Box<Replica>, SyncSender<Result<(), KvError>>),
    /// Let go of this replica and its log records.
    Close(TabletId, SyncSender<Result<(), KvError>>),
    /// The tablet's data is durable up to this log index: the log may be cut there.
    Flushed(TabletId, u64),
}

/// One tablet replica.
pub(crate) struct Replica {
    pub(crate) group_id: GroupId,
    pub(crate) handle: Arc<TabletHandle>,
    pub(crate) group: Group<GroupReader>,
    pub(crate) evaluator: Arc<dyn Evaluator>,
    pub(crate) applied: AppliedState,
    /// Writes of this turn, not proposed yet.
    pub(crate) fresh: Vec<Proposal>,
    /// Waiters of proposed entries, in log order.
    pub(crate) waiting: VecDeque<(u64, Vec<Waiter>)>,
    /// Whether it is in the worker's list of replicas to look at in this turn.
    pub(crate) touched: bool,
    /// Set once it cannot go on; writes are refused with this.
    pub(crate) failure: Option<String>,
}

impl Replica {
    /// Proposes all fresh writes, stamped from `next_stamp`; returns those that could not be.
    pub(crate) fn propose_fresh(&mut self, next_stamp: &mut dyn FnMut() -> i64) -> Vec<(Waiter, KvError)> {
        let mut refused = Vec::new();
        let mut payload = Payload::default();
        let mut waiters = Vec::new();
        let mut fresh = std::mem::take(&mut self.fresh);
        for mut proposal in fresh.drain(..) {
            proposal.mutation.stamp(next_stamp());
            let alone = MutationRef::decode(proposal.mutation.as_bytes()).is_ok_and(|read| read.is_evaluated());
            if alone || payload.size_bytes() >= ENTRY_BYTES {
                self.propose(&mut payload, &mut waiters, &mut refused);
            }
            payload.push(&proposal.mutation);
            waiters.push(proposal.waiter);
            if alone {
                self.propose(&mut payload, &mut waiters, &mut refused);
            }
        }
        self.propose(&mut payload, &mut waiters, &mut refused);
        self.fresh = fresh;
        refused
    }

    fn propose(&mut self, payload: &mut Payload, waiters: &mut Vec<Waiter>, refused: &mut Vec<(Waiter, KvError)>) {
        if waiters.is_empty() {
            return;
        }
        let outcome = match &self.failure {
            Some(failure) => Err(KvError::Storage(failure.clone())),
            None => self.group.propose(payload.take()).map_err(|error| match error {
                GroupError::NotLeader => KvError::Unavailable(self.handle.tablet),
                GroupError::Broken(error) => KvError::Storage(error.to_string()),
            }),
        };
        match outcome {
            Ok(index) => self.waiting.push_back((index, std::mem::take(waiters))),
            Err(error) => {
                payload.take();
                refused.extend(waiters.drain(..).map(|waiter| (waiter, error.clone())));
            }
        }
    }

    /// The waiters of entry `index`, if it was proposed here.
    pub(crate) fn take_waiters(&mut self, index: u64) -> Vec<Waiter> {
        match self.waiting.front() {
            Some((waiting, _)) if *waiting == index => self.waiting.pop_front().map_or_else(Vec::new, |front| front.1),
            _ => Vec::new(),
        }
    }

    /// All waiters of entries not applied yet.
    pub(crate) fn take_all_waiters(&mut self) -> Vec<Waiter> {
        self.waiting.drain(..).flat_map(|(_, waiters)| waiters).collect()
    }
}
