//! Stamps writes, gathers them into entries and proposes these. Also proposes the entries by which a leader ends its
//! tablet, opens it again, or writes the time to the log.
//!
//! Always true: stamps grow with the log; an entry that ends the tablet is proposed only after the lease has ended;
//! nothing is proposed that adds to a row that is known to be too large ([`RowSizes`]), or that adds more to the indexes
//! of the tablet than a write may ([`admitted`]).
//!
//! Time: compaction uses only the time and the `gc_grace_seconds` that the tablet's log contains. The stamps of writes
//! carry the time. A changed `gc_grace_seconds` is proposed with the next writes, as a mutation that no client waits
//! for. An entry for the time alone is proposed once in [`IDLE_S`], by the leader of a tablet that receives no writes
//! and holds values or deletions that can be purged later, or in [`WINDOW_IDLE_S`] if a whole time window can; all
//! other idle tablets cost nothing.

use crate::counters::StoreCounters;
use crate::group::entry::Payload;
use crate::group::handle::{Leadership, TabletHandle};
use crate::group::indexed::admitted;
use crate::group::merge::{Reopening, ends_tablet, has_given_up};
use crate::group::proposal::Waiter;
use crate::group::replica::Replica;
use crate::group::row_sizes::{RowSizes, Writing};
use crate::group::split::Split;
use crate::group::transact;
use crate::group::turn::Turn;
use crate::group::waiters::Waiting;
use diorite_base::TabletId;
use diorite_base::limits::MAX_INDEX_BYTES;
use diorite_base::mutation::{Body, Mutation, MutationRef};
use diorite_base::write::{KvError, Waited};
use diorite_raft::{GroupError, LogPosition, ProvenPayload, Unproven};
use diorite_storage::{Engine, StorageError, UNKNOWN_GRACE_S};
use std::sync::atomic::Ordering;

/// An entry is closed once it has this many bytes, so that neither memory nor replication messages grow with a burst.
const ENTRY_BYTES: usize = 1 << 20;

/// How long a proposed write may wait, nanoseconds, before its writer is answered that the outcome is unknown.
const WRITE_TIMEOUT_NS: u64 = 1_800_000_000;

/// How far, at most, the log of an idle tablet that holds expiring values lags behind the clock, seconds,
/// approximately.
const IDLE_S: u32 = 86_400;
/// The same, while only the log's time keeps a time window that has expired, seconds.
const WINDOW_IDLE_S: u32 = 60;

/// The program of a write, if it has one.
fn program_of(mutation: &Mutation) -> Option<&[u8]> {
    match MutationRef::decode(mutation.as_bytes()).ok()?.body() {
        Body::Evaluated(program) => Some(program),
        Body::Blind(_) | Body::Request(_) | Body::Step(_) => None,
    }
}

fn kv_error(tablet: TabletId, error: &GroupError) -> KvError {
    match error {
        GroupError::NotLeader => KvError::NotLeader { tablet, leader: None },
        GroupError::Dropped => KvError::Overloaded("too much of the tablet's log waits for a quorum"),
        GroupError::Broken(_) | GroupError::Diverged { .. } => KvError::Storage(error.to_string()),
    }
}

impl<E: Engine> Replica<E> {
    /// Proposes the writes that have reached the tablet in this turn, or refuses them.
    pub(crate) fn propose_fresh(&mut self, turn: &mut Turn<E>, sizes: &mut RowSizes) {
        if self.writes.fresh.is_empty() && !transact::has_steps(self) {
            return;
        }
        if self.failure.is_some() {
            // These writes are known to have had no effect, and the error says so. A write that fails later has an
            // unknown outcome.
            let error = KvError::Unavailable(self.id());
            turn.outcomes.fail(self.writes.fresh.drain(..).map(|proposal| proposal.waiter), &error);
        } else if self.may_propose() && self.may_stamp() {
            transact::admit(self, turn, sizes);
            transact::propose_steps(self, turn);
            turn.context.counters.proposals.add(self.writes.fresh.len() as u64);
            let failed = self.stamp_and_propose(turn.began_ns, &turn.context.counters, turn.began_wall_us, sizes);
            for (waiter, error) in failed {
                turn.outcomes.push(waiter, Err(error));
            }
            transact::note_written(self, turn);
        } else {
            let leader = self.leader_elsewhere(turn.context.node);
            turn.refused.extend(self.writes.fresh.drain(..).map(|proposal| proposal.refuse(leader)));
        }
    }

    /// Proposes all fresh writes, stamped at `wall_us` or as soon after it as their order requires; returns those that
    /// failed. Only for a replica that may propose.
    fn stamp_and_propose(
        &mut self,
        now_ns: u64,
        counters: &StoreCounters,
        wall_us: i64,
        sizes: &mut RowSizes,
    ) -> Vec<(Waiter, KvError)> {
        let mut failed = Vec::new();
        let mut payload = Payload::default();
        let mut waiters = Vec::new();
        let mut fresh = std::mem::take(&mut self.writes.fresh);
        self.push_grace(&mut payload, wall_us);
        for mut proposal in fresh.drain(..) {
            if proposal.waiter.deadline_ns <= now_ns {
                failed.push((proposal.waiter, KvError::Overloaded("the request ended before its write was proposed")));
                continue;
            }
            let stamp_us = self.writes.stamps.stamp(wall_us);
            proposal.mutation.stamp(stamp_us);
            self.writes.newest_us = stamp_us;
            if let Err(error) = sizes.admit(&self.writing(stamp_us, now_ns), &proposal.mutation) {
                counters.large_row_writes_refused.fetch_add(1, Ordering::Relaxed);
                failed.push((proposal.waiter, error));
                continue;
            }
            let indexing = (self.indexes(), &*self.evaluator);
            let index_bytes = match admitted(&proposal.mutation, payload.index_bytes(), indexing) {
                Ok(index_bytes) => index_bytes,
                Err(error) => {
                    failed.push((proposal.waiter, error));
                    continue;
                }
            };
            let program = program_of(&proposal.mutation);
            let (alone, ends) = (program.is_some(), program.is_some_and(ends_tablet));
            let is_full = payload.size_bytes() >= ENTRY_BYTES || payload.index_bytes() + index_bytes > MAX_INDEX_BYTES;
            if alone || is_full {
                self.propose(&mut payload, &mut waiters, now_ns, &mut failed);
            }
            if ends {
                self.end_lease(counters);
            }
            payload.push(&proposal.mutation, index_bytes);
            waiters.push(proposal.waiter);
            if alone {
                let index = self.propose(&mut payload, &mut waiters, now_ns, &mut failed);
                if let Some(index) = index.filter(|_| ends) {
                    self.note_proposed_end(index);
                }
            }
        }
        self.propose(&mut payload, &mut waiters, now_ns, &mut failed);
        sizes.note_proposed(self.id(), self.group.last_index());
        self.writes.fresh = fresh;
        failed
    }

    /// The circumstances of a write with this timestamp, for the account of row sizes.
    pub(crate) fn writing(&self, stamp_us: i64, now_ns: u64) -> Writing<'_> {
        Writing {
            tablet: self.id(),
            term: self.group.term(),
            stamp_us,
            newest_explicit_us: self.applied.newest_explicit_us,
            evaluator: &*self.evaluator,
            now_ns,
        }
    }

    /// Ends the lease, so that no read begins or ends from here on: an entry that ends the tablet is about to be
    /// proposed, and a node that applies it may let another tablet answer. The lease returns with the next visit to
    /// this replica, unless [`Self::note_proposed_end`] follows.
    fn end_lease(&mut self, counters: &StoreCounters) {
        counters.note_lease(self.handle.lease.publish(None));
        self.published = None;
    }

    /// Proposes the gathered payload, if it contains writes; returns the index of the entry.
    fn propose(
        &mut self,
        payload: &mut Payload,
        waiters: &mut Vec<Waiter>,
        now_ns: u64,
        failed: &mut Vec<(Waiter, KvError)>,
    ) -> Option<u64> {
        if waiters.is_empty() {
            return None;
        }
        let grace_s = payload.grace_s();
        match self.group.propose(payload.take()) {
            Ok(index) => {
                if let Some(grace_s) = grace_s {
                    self.writes.logged_grace = (self.group.term(), grace_s);
                }
                let at = LogPosition::new(index, self.group.term().0);
                let waiters = std::mem::take(waiters);
                self.writes.proposed_ns = now_ns;
                self.writes.waiting.push(Waiting { at, since_ns: now_ns, waiters });
                Some(index)
            }
            Err(error) => {
                let error = kv_error(self.id(), &error);
                failed.extend(waiters.drain(..).map(|waiter| (waiter, error.clone())));
                None
            }
        }
    }

    /// Answers writers that have waited too long: the outcome of their writes is unknown.
    pub(crate) fn expire_waiting(&mut self, turn: &mut Turn<E>, now_ns: u64) {
        for (index, since_ns, waiter) in self.writes.waiting.take_due(now_ns) {
            let (received, required) = self.group.acknowledgements(index);
            let waited = Waited { received, required, ..Waited::in_vain(now_ns.saturating_sub(since_ns) / 1_000_000) };
            turn.outcomes.push(waiter, Err(KvError::Timeout(waited)));
        }
        let Some(since_ns) = now_ns.checked_sub(WRITE_TIMEOUT_NS) else { return };
        while let Some(waiting) = self.writes.waiting.next_since(since_ns) {
            let (received, required) = self.group.acknowledgements(waiting.at.index);
            let waited = Waited { after_ms: WRITE_TIMEOUT_NS / 1_000_000, received, required };
            turn.outcomes.fail(waiting.waiters, &KvError::Timeout(waited));
        }
    }

    /// Adds `gc_grace_seconds` to the writes that are about to be proposed, if it differs from the value in the log.
    fn push_grace(&mut self, payload: &mut Payload, wall_us: i64) {
        let wanted_s = self.handle.gc_grace_s.load(Ordering::Relaxed);
        let logged = (self.group.term(), wanted_s);
        if wanted_s != UNKNOWN_GRACE_S && wanted_s != self.applied.gc_grace_s && self.writes.logged_grace != logged {
            payload.push_time(self.writes.stamps.stamp(wall_us), wanted_s);
        }
    }

    /// Writes the time to the log of an idle tablet, if this replica leads it.
    pub(crate) fn pass_time(&mut self, wall_us: i64) {
        let may_propose = self.may_propose() && self.may_stamp() && self.group.is_established_leader();
        if self.failure.is_some() || !may_propose || !self.writes.fresh.is_empty() {
            return;
        }
        let mut payload = Payload::default();
        let wanted_s = self.handle.gc_grace_s.load(Ordering::Relaxed);
        let grace_s = if wanted_s == UNKNOWN_GRACE_S { self.applied.gc_grace_s } else { wanted_s };
        let stamp_us = self.writes.stamps.stamp(wall_us);
        payload.push_time(stamp_us, grace_s);
        match self.group.propose(payload.take()) {
            Ok(_) => self.writes.newest_us = stamp_us,
            Err(error) => tracing::debug!(tablet = %self.id(), %error, "could not write the time to a tablet's log"),
        }
    }

    /// Proposes to split the tablet, if this replica leads it and no change of members is under way.
    pub(crate) fn propose_split(&mut self, turn: &mut Turn<E>, split: &Split) {
        let is_free = !self.group.is_changing_members() && !self.group.is_joint();
        let is_able = self.failure.is_none() && self.may_propose() && self.group.is_established_leader();
        if !is_able || !is_free || !transact::may_end(self, turn) {
            return;
        }
        let tablet = self.id();
        let proven = match ProvenPayload::new(split) {
            Ok(proven) => proven,
            Err(error) => return tracing::error!(%tablet, %error, "a tablet cannot be split"),
        };
        // The lease ends before the proposal: a node that applies the entry may let a child answer, and then this node
        // must not.
        if !turn.context.planted.keep_lease_when_split {
            self.end_lease(&turn.context.counters);
        }
        match self.group.propose_marked(proven) {
            Ok(index) => {
                self.note_proposed_end(index);
                tracing::info!(event = "split", %tablet, index, children = ?split.children, "splitting");
            }
            Err(error) => tracing::warn!(%tablet, %error, "could not propose to split a tablet"),
        }
    }

    /// Notes that this leader has proposed an entry that ends the tablet.
    fn note_proposed_end(&mut self, index: u64) {
        self.ending.proposed = Some(LogPosition::new(index, self.group.term().0));
    }

    /// Whether the entry that was to end the tablet is applied and has not ended it, so that the tablet serves again.
    pub(crate) fn has_outlived_its_end(&mut self) -> bool {
        let applied = LogPosition::new(self.applied.index, self.applied.term);
        self.ending.proposed.take_if(|end| *end <= applied).is_some() && !self.has_ended()
    }

    /// Proposes to open the tablet again after the catalog has cancelled the merge of this number. Does nothing if this
    /// replica does not lead, or if the entry has been proposed or applied before.
    pub(crate) fn propose_reopening(&mut self, number: u64) -> Result<(), ReopenError> {
        let is_able = self.failure.is_none() && self.group.is_established_leader() && !self.has_released();
        let reopening = Some((number, self.group.term()));
        if !is_able || self.ending.reopening == reopening || has_given_up(self.id(), number, &self.handle.data)? {
            return Ok(());
        }
        let index = self.group.propose_marked(ProvenPayload::new(&Reopening::new(number))?)?;
        self.ending.reopening = reopening;
        tracing::info!(event = "merge", tablet = %self.id(), number, index, "opening a tablet again whose merge was cancelled");
        Ok(())
    }
}

/// Why the entry that opens a tablet again could not be proposed.
#[derive(Debug, thiserror::Error)]
pub(crate) enum ReopenError {
    #[error(transparent)]
    Storage(#[from] StorageError),
    #[error(transparent)]
    Group(#[from] GroupError),
    #[error(transparent)]
    Unproven(#[from] Unproven),
}

/// What an idle tablet needs before it can purge expired values.
#[derive(Debug, Default, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Due {
    /// An entry with the time, from this node, which leads the tablet.
    pub(crate) entry: bool,
    /// A flush, so that the time in the log becomes durable in the data.
    pub(crate) flush: bool,
}

/// Determines what one tablet needs at this second.
pub(crate) fn due(handle: &TabletHandle, now_s: u32) -> Result<Due, StorageError> {
    let for_window = handle.data.windows_await_time();
    if !handle.data.awaits_time() && !for_window {
        return Ok(Due::default());
    }
    // The flush a tablet with time windows does by itself.
    let idle_s = if for_window { WINDOW_IDLE_S } else { IDLE_S };
    let applied_s = handle.data.applied_state()?.horizon.now_s;
    let flushed_s = handle.data.flushed_state()?.horizon.now_s;
    Ok(Due {
        entry: now_s.saturating_sub(applied_s) >= idle_s && handle.leadership() == Leadership::Here,
        flush: applied_s.saturating_sub(flushed_s) >= IDLE_S / 2,
    })
}
