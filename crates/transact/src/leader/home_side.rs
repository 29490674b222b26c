//! The home's side: reservations, the decision, questions about it, and its end.
//!
//! A transaction is committed by one entry here, which only the leader that has issued its id may append, while the
//! reservation is in its memory. So a record means committed; a reservation of the current term means not yet; neither
//! means aborted for ever, as a leader of a later term has applied all that an earlier one can have appended. A record
//! is forgotten when all participants have finished and the coordinator no longer needs it.

use super::{Asker, Leader, Pending, Reservation, Role, Stage, Sweep};
use crate::ids::{Prepared, TransactionId};
use crate::locks::{Hold, Owner, Wait};
use crate::message::{Program, Reply, Status};
use crate::peer::PeerCall;
use crate::records::Records;
use crate::step::{Commit, Ending, MAX_FORGOTTEN, Operation, Step};
use crate::targets::Targets;
use diorite_base::TabletId;
use std::collections::BTreeSet;

/// The most questions that wait for one commit. Others are not answered, and asked again.
const MAX_QUESTIONS: usize = 256;

impl Leader {
    pub(super) fn reserve(&mut self, asker: Asker, attempt: u32, targets: &Targets, program: Program, wait: Wait) {
        let id = TransactionId { tablet: self.tablet, term: self.term, number: self.next_number };
        self.next_number += 1;
        let pending = Pending { asker, program, role: Role::Home { attempt }, stage: Stage::Queued };
        self.enqueue(id, pending, targets, wait);
    }

    pub(super) fn reserved(
        &mut self,
        id: TransactionId,
        asker: Asker,
        attempt: u32,
        operations: Vec<Operation>,
        now_ns: u64,
    ) {
        self.locks.mark(&Owner::Transaction(id), Hold::Reserved);
        self.reservations
            .insert(id, Reservation { operations, since_ns: now_ns, committing: None, questions: BTreeSet::new() });
        self.reply(asker, Reply::Reserved { id, attempt });
    }

    pub(super) fn commit(&mut self, records: &Records, asker: Asker, id: TransactionId, prepared: Vec<Prepared>) {
        if let Some(outcome) = records.outcome(&id) {
            return self.reply(asker, Reply::Committed { id, committed_us: outcome.committed_us });
        }
        let is_of_this_term = id.term == self.term || self.planted.reservation_survives;
        let Some(reservation) = self.reservations.get_mut(&id).filter(|_| is_of_this_term) else {
            return self.reply(asker, Reply::Lost(id));
        };
        if reservation.committing.replace(asker).is_none() {
            let newest = prepared.iter().map(|prepared| prepared.stamp_us).max();
            let above_us = newest.filter(|_| !self.planted.commit_below_prepares).unwrap_or(i64::MIN);
            let operations = reservation.operations.clone();
            self.propose(Step::Commit(Commit { id, prepared, operations }), above_us);
        }
    }

    pub(super) fn commit_applied(&mut self, records: &Records, id: TransactionId, now_ns: u64) {
        self.watch(records, &id, now_ns);
        let Some(reservation) = self.reservations.remove(&id) else { return };
        if let (Some(to), Some(outcome)) = (reservation.committing, records.outcome(&id)) {
            self.reply(to, Reply::Committed { id, committed_us: outcome.committed_us });
            for to in reservation.questions {
                self.reply(to, Reply::Status { id, status: Status::Committed(outcome.committed_us) });
            }
        }
        self.unlock(id);
    }

    /// The coordinator has given the transaction up. Without effect once the commit is appended.
    pub(super) fn withdraw(&mut self, id: TransactionId) {
        if self.reservations.get(&id).is_some_and(|reservation| reservation.committing.is_none()) {
            self.reservations.remove(&id);
            self.unlock(id);
        } else if self.pending.get(&id).is_some_and(|pending| matches!(pending.role, Role::Home { .. })) {
            self.pending.remove(&id);
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
        let is_reserved = id.term == self.term && self.reservations.contains_key(&id);
        let status = match records.outcome(&id) {
            Some(outcome) => {
                let is_covered = of.is_none_or(|(tablet, stamp_us)| outcome.covers(tablet, stamp_us));
                match is_covered || self.planted.any_prepare_is_covered {
                    true => Status::Committed(outcome.committed_us),
                    false => Status::Aborted,
                }
            }
            None if is_reserved && !self.planted.aborted_while_reserved => Status::NotYet,
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
