//! The home's side: reservations, the decision, questions about it, and its end.
//!
//! A transaction is committed by one entry here, which only the leader that has issued its id may append, while the
//! reservation is in its memory, or the id among those that it has issued in advance. So a record means committed; a
//! reservation of the current term, or an id in advance, means not yet; neither means aborted for ever, as a leader of a
//! later term has applied all that an earlier one can have appended, and an id that is taken from those in advance never
//! comes back. A record is forgotten when all participants have finished and the coordinator no longer needs it.

use super::{Asker, Leader, Pending, Reservation, Role, Stage, Sweep};
use crate::ids::{Prepared, TransactionId};
use crate::locks::{Hold, Owner, Wait};
use crate::message::{HomePart, Program, Reply, Status};
use crate::peer::PeerCall;
use crate::records::Records;
use crate::step::{Commit, Ending, MAX_FORGOTTEN, Operation, Step};
use crate::targets::Targets;
use diorite_base::TabletId;
use std::collections::BTreeSet;
use std::sync::Arc;

/// The most questions that wait for one commit. Others are not answered, and asked again.
const MAX_QUESTIONS: usize = 256;

/// The most transactions that are issued in advance.
const MAX_IN_ADVANCE: usize = 1_024;

impl Leader {
    fn next_id(&mut self) -> TransactionId {
        let id = TransactionId { tablet: self.tablet, term: self.term, number: self.next_number };
        self.next_number += 1;
        id
    }

    /// Issues a transaction that may be committed without a reservation. The oldest one is given up if there are many.
    pub fn issue_in_advance(&mut self, now_ns: u64) -> Option<TransactionId> {
        if !self.issues_in_advance {
            return None;
        }
        if self.in_advance.len() >= MAX_IN_ADVANCE {
            // The oldest one, as numbers grow.
            self.in_advance.pop_first();
        }
        let id = self.next_id();
        self.in_advance.insert(id, now_ns);
        Some(id)
    }

    /// A number for the answer to the commit of a transaction, which names the term of its id.
    fn next_number_in_advance(&mut self, committed: &TransactionId, now_ns: u64) -> Option<u64> {
        let is_of_this_term = committed.term == self.term || self.planted.number_of_another_term;
        is_of_this_term.then(|| self.issue_in_advance(now_ns)).flatten().map(|id| id.number)
    }

    /// Issues nothing in advance any more. What was issued before `since_ns` only is given up. Returns whether something
    /// may still be committed without a reservation.
    pub fn stop_in_advance(&mut self, since_ns: u64) -> bool {
        self.issues_in_advance = false;
        self.in_advance.retain(|_, issued_ns| *issued_ns >= since_ns);
        !self.in_advance.is_empty()
    }

    /// Issues in advance again.
    pub fn resume_in_advance(&mut self) {
        self.issues_in_advance = true;
    }

    /// Whether it may still be committed without a reservation. Nothing has to pass by for its time to end: a home whose
    /// tablet is otherwise at rest is not swept.
    fn is_in_advance(&self, id: &TransactionId, now_ns: u64) -> bool {
        self.in_advance.get(id).is_some_and(|since_ns| now_ns < *since_ns + self.timing.reservation_ns)
    }

    pub(super) fn reserve(&mut self, asker: Asker, attempt: u32, targets: &Targets, program: Program, wait: Wait) {
        let id = self.next_id();
        let pending = Pending { asker, program, role: Role::Home { attempt, commit: None }, stage: Stage::Queued };
        self.enqueue(id, pending, targets, wait);
    }

    pub(super) fn reserved(&mut self, id: TransactionId, operations: Vec<Operation>, now_ns: u64) {
        self.locks.mark(&Owner::Transaction(id), Hold::Reserved);
        self.reservations.insert(
            id,
            Reservation {
                operations: operations.into(),
                since_ns: now_ns,
                committing: None,
                questions: BTreeSet::new(),
            },
        );
    }

    /// Commits what was issued in advance, in one step: nothing was locked here before. It has prepared others, so it
    /// waits for nobody.
    pub(super) fn commit_unreserved(
        &mut self,
        records: &Records,
        asker: Asker,
        id: TransactionId,
        prepared: Vec<Prepared>,
        part: HomePart,
        now_ns: u64,
    ) {
        if let Some(earlier) = self.pending.get_mut(&id) {
            earlier.asker = asker;
            return;
        }
        let is_in_advance = self.is_in_advance(&id, now_ns);
        self.in_advance.remove(&id);
        let is_unknown = records.outcome(&id).is_none() && !self.reservations.contains_key(&id);
        if is_in_advance || (is_unknown && self.planted.any_number_is_in_advance) {
            let wait = match self.planted.wait_at_the_commit {
                true => Wait::Until(now_ns + self.timing.wait_ns),
                false => Wait::Never,
            };
            let role = Role::Home { attempt: part.attempt, commit: Some(prepared) };
            let pending = Pending { asker, program: part.program, role, stage: Stage::Queued };
            return self.enqueue(id, pending, &part.targets, wait);
        }
        self.commit(records, asker, id, prepared, now_ns);
    }

    pub(super) fn commit(
        &mut self,
        records: &Records,
        asker: Asker,
        id: TransactionId,
        prepared: Vec<Prepared>,
        now_ns: u64,
    ) {
        if let Some(outcome) = records.outcome(&id) {
            let committed_us = outcome.committed_us;
            let next = self.next_number_in_advance(&id, now_ns);
            return self.reply(asker, Reply::Committed { id, committed_us, next });
        }
        let is_of_this_term = id.term == self.term || self.planted.reservation_survives;
        if !is_of_this_term || !self.reservations.contains_key(&id) {
            return self.reply(asker, Reply::Lost(id));
        }
        self.commit_reserved(asker, id, &prepared);
    }

    pub(super) fn commit_reserved(&mut self, asker: Asker, id: TransactionId, prepared: &[Prepared]) {
        let Some(reservation) = self.reservations.get_mut(&id) else { return };
        if reservation.committing.replace(asker).is_none() {
            let newest = prepared.iter().map(|prepared| prepared.stamp_us).max();
            let above_us = newest.filter(|_| !self.planted.commit_below_prepares).unwrap_or(i64::MIN);
            let operations = Arc::clone(&reservation.operations);
            self.propose(Step::Commit(Commit { id, prepared: prepared.to_vec(), operations }), above_us);
        }
    }

    pub(super) fn commit_applied(&mut self, records: &Records, id: TransactionId, now_ns: u64) {
        self.watch(records, &id, now_ns);
        let Some(reservation) = self.reservations.remove(&id) else { return };
        if let (Some(to), Some(outcome)) = (reservation.committing, records.outcome(&id)) {
            let next = self.next_number_in_advance(&id, now_ns);
            self.reply(to, Reply::Committed { id, committed_us: outcome.committed_us, next });
            for to in reservation.questions {
                self.reply(to, Reply::Status { id, status: Status::Committed(outcome.committed_us) });
            }
        }
        self.unlock(id);
    }

    /// The coordinator has given the transaction up. Without effect once the commit is appended.
    pub(super) fn withdraw(&mut self, id: TransactionId) {
        self.in_advance.remove(&id);
        if self.reservations.get(&id).is_some_and(|reservation| reservation.committing.is_none()) {
            self.reservations.remove(&id);
            self.unlock(id);
        } else if self.pending.get(&id).is_some_and(|pending| matches!(pending.role, Role::Home { .. })) {
            if let Some(Pending { asker, role: Role::Home { commit: Some(_), .. }, .. }) = self.pending.remove(&id) {
                self.reply(asker, Reply::Lost(id));
            }
            self.unlock(id);
        }
    }

    /// Answers what is known; as of a stamp, what will be true of that stamp for ever: a commit in flight is waited
    /// for, and one that comes later is stamped above it.
    pub(super) fn status(
        &mut self,
        records: &Records,
        asker: Asker,
        id: TransactionId,
        of: Option<(TabletId, i64)>,
        at_us: Option<i64>,
        now_ns: u64,
    ) {
        if let Some(at_us) = at_us.filter(|_| !self.planted.resolve_without_stamp) {
            self.promise(at_us);
            let in_flight = self.reservations.get_mut(&id).filter(|reservation| reservation.committing.is_some());
            if let Some(reservation) = in_flight {
                if reservation.questions.len() < MAX_QUESTIONS {
                    reservation.questions.insert(asker);
                }
                return;
            }
        }
        let is_open = (id.term == self.term && self.reservations.contains_key(&id))
            || self.pending.get(&id).is_some_and(|pending| matches!(pending.role, Role::Home { .. }))
            || (self.is_in_advance(&id, now_ns) && !self.planted.aborted_while_in_advance);
        let status = match records.outcome(&id) {
            Some(outcome) => {
                let is_covered = of.is_none_or(|(tablet, stamp_us)| outcome.covers(tablet, stamp_us));
                match is_covered || self.planted.any_prepare_is_covered {
                    true => Status::Committed(outcome.committed_us),
                    false => Status::Aborted,
                }
            }
            None if is_open && !self.planted.aborted_while_reserved => Status::NotYet,
            None => Status::Aborted,
        };
        self.reply(asker, Reply::Status { id, status });
    }

    /// The coordinator has seen all participants finish.
    pub(super) fn release_record(&mut self, id: TransactionId) {
        if let Some(sweep) = self.sweeps.get_mut(&id) {
            sweep.is_released = true;
        }
    }

    /// A participant has answered an [`PeerCall::Finish`].
    pub fn finished(&mut self, id: TransactionId, participant: TabletId) {
        if let Some(sweep) = self.sweeps.get_mut(&id) {
            sweep.unfinished.remove(&participant);
        }
    }

    /// Begins to remember a record's age and progress.
    pub(super) fn watch(&mut self, records: &Records, id: &TransactionId, now_ns: u64) {
        let Some(outcome) = records.outcome(id) else { return };
        let unfinished = outcome.prepared.iter().map(|prepared| prepared.participant.tablet).collect();
        let sweep = Sweep { since_ns: now_ns, unfinished, is_released: false, is_forgetting: false };
        self.sweeps.entry(*id).or_insert(sweep);
    }

    pub(super) fn expire_reservations(&mut self, now_ns: u64) {
        let reservation_ns = self.timing.reservation_ns;
        self.in_advance.retain(|_, since_ns| now_ns < *since_ns + reservation_ns);
        let is_over = |reservation: &Reservation| {
            reservation.committing.is_none() && now_ns >= reservation.since_ns + self.timing.reservation_ns
        };
        let over = self.reservations.iter().filter(|(_, reservation)| is_over(reservation));
        for id in over.map(|(id, _)| *id).collect::<Vec<_>>() {
            self.withdraw(id);
        }
    }

    /// Finishes the participants of old records, and forgets the records that nobody needs.
    pub(super) fn sweep_records(&mut self, records: &Records, now_ns: u64) {
        let mut forgotten = Vec::new();
        let mut finishes = Vec::new();
        for (id, sweep) in &mut self.sweeps {
            let Some(outcome) = records.outcome(id).filter(|_| !sweep.is_forgetting) else { continue };
            let is_old = now_ns >= sweep.since_ns + self.timing.keep_record_ns || self.planted.forget_young_records;
            if sweep.is_released || (sweep.unfinished.is_empty() && is_old) {
                if forgotten.len() < MAX_FORGOTTEN {
                    sweep.is_forgetting = true;
                    forgotten.push(*id);
                }
            } else if now_ns >= sweep.since_ns + self.timing.sweep_ns {
                let committed_us = outcome.committed_us;
                let left = outcome.prepared.iter().filter(|it| sweep.unfinished.contains(&it.participant.tablet));
                finishes.extend(left.map(|it| {
                    let ending = Ending::Committed { prepared_us: it.stamp_us, committed_us };
                    super::Action::Call(PeerCall::Finish { participant: it.participant.clone(), id: *id, ending })
                }));
            }
        }
        self.actions.extend(finishes);
        if !forgotten.is_empty() {
            self.propose(Step::Forget(forgotten), i64::MIN);
        }
    }
}
