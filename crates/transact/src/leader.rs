//! What the leader of a tablet does for transactions: as the home of some, as a participant of others.
//!
//! ```text
//! requests, evaluated programs, applied steps, time ──▶ Leader (+ Records, read only) ──▶ actions
//! ```
//!
//! The shell carries out the actions: it appends steps with a stamp, evaluates programs on the rows as they are
//! applied, sends replies and questions. It passes each step that is applied, of this leader or of an earlier one, to
//! [`Records::apply`] and then to [`Leader::applied`].
//!
//! Always true: a leader answers nothing before the first entry of its term is applied, and so knows everything that
//! earlier leaders can have decided. Its reservations and queues are in memory and end with it. Nothing is evaluated
//! while an earlier write to the same rows is in flight. A lock is held from before a step is appended until the step
//! that ends it is applied. So steps that are appended and not applied concern different rows, and may share an entry.
//! Left out: whether this replica holds the lease, which the shell says with each question that depends on it.

mod home_side;
mod participant_side;
pub mod promises;

use crate::ids::{Home, Prepared, TransactionId};
use crate::in_flight::InFlight;
use crate::locks::{Asked, Hold, LockLimits, Locks, Owner, Wait};
use crate::message::{Program, Refusal, Reply, Request, Status};
use crate::peer::PeerCall;
use crate::planted::Planted;
use crate::records::Records;
use crate::step::{Operation, Step};
use crate::targets::Targets;
use crate::timing::Timing;
use diorite_base::TabletId;
use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::sync::Arc;
use thiserror::Error;

/// Who receives a reply; the shell knows what the number means.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Asker(pub u64);

/// What the shell is to do.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum Action {
    /// Append a step with a stamp greater than `above_us`.
    Propose {
        /// The step.
        step: Step,
        /// The greatest stamp that the entry must not have, microseconds.
        above_us: i64,
    },
    /// Evaluate a program on the rows as they are applied now, and call [`Leader::evaluated`].
    Evaluate {
        /// The transaction.
        id: TransactionId,
        /// Its writes to this tablet.
        program: Program,
    },
    /// Answer.
    Reply {
        /// Whom.
        to: Asker,
        /// With what.
        reply: Reply,
        /// For [`Refusal::ConditionFailed`]: the reply of the program.
        of_program: Vec<u8>,
    },
    /// Call another tablet, and then [`Leader::learned`] or [`Leader::finished`] with the answer.
    Call(PeerCall),
    /// Append the write with this tag now, before anything else, with a stamp greater than
    /// [`Leader::promised_us`], and call [`Leader::written`] when it is applied.
    Admit(u64),
    /// The write with this tag has waited in vain. Nothing was done.
    Refuse(u64),
}

/// What a reader has learned from a home about a prepare that it has met.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Known {
    /// The transaction.
    pub id: TransactionId,
    /// The stamp of the prepare.
    pub prepared_us: i64,
    /// The home's answer.
    pub status: Status,
}

/// How a reader gets a row.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Seen<'a> {
    /// As it is stored. Nothing that the reader does not know of is prepared.
    Stored,
    /// As it is stored, with these writes of a committed transaction.
    Staged {
        /// Their stamp, microseconds.
        committed_us: i64,
        /// In order.
        operations: Vec<&'a Operation>,
    },
    /// The home has to be asked first.
    Locked {
        /// Where it is found.
        home: &'a Home,
        /// The transaction.
        id: TransactionId,
        /// The stamp of its prepare here.
        prepared_us: i64,
    },
}

/// The replica cannot answer, and has done nothing: it has no lease, or has not applied the first entry of its term.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
#[error("the replica does not serve its tablet yet")]
pub struct NotServing;

/// What evaluating a program has given.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum Evaluated {
    /// The rows to write.
    Operations(Vec<Operation>),
    /// A condition is not satisfied, or an operation is impossible: nothing is written. This is the program's reply.
    ConditionFailed(Vec<u8>),
    /// It is not evaluated any more: nothing is written, and it may be tried again.
    Unavailable,
}

/// What a transaction wants here, until it is reserved or its prepare is appended.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
struct Pending {
    asker: Asker,
    /// Until it is evaluated.
    program: Program,
    role: Role,
    stage: Stage,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
enum Role {
    Home {
        attempt: u32,
        /// The participants, if it is committed at once.
        commit: Option<Vec<Prepared>>,
    },
    Participant {
        home: Home,
    },
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
enum Stage {
    /// For its locks.
    Queued,
    /// For writes in flight.
    Latched,
    /// For the shell.
    Evaluating,
}

/// A transaction that may be committed here.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
struct Reservation {
    operations: Arc<[Operation]>,
    since_ns: u64,
    /// Who waits for the commit that is appended.
    committing: Option<Asker>,
    /// Who has asked for its outcome as of a stamp while the commit was in flight.
    questions: BTreeSet<Asker>,
}

/// What a leader remembers of a record of its own tablet.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
struct Sweep {
    since_ns: u64,
    /// The participants that have not acknowledged the end to this leader.
    unfinished: BTreeSet<TabletId>,
    /// The coordinator has said that all have finished.
    is_released: bool,
    /// The step that forgets it is appended.
    is_forgetting: bool,
}

/// See the top of this module.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Leader {
    tablet: TabletId,
    term: u64,
    timing: Timing,
    planted: Planted,
    is_ready: bool,
    next_number: u64,
    locks: Locks,
    in_flight: InFlight,
    pending: BTreeMap<TransactionId, Pending>,
    reservations: BTreeMap<TransactionId, Reservation>,
    issues_in_advance: bool,
    /// The transactions that were issued in advance and are not committed yet, and since when.
    in_advance: BTreeMap<TransactionId, u64>,
    /// Prepares that are appended, and who is answered.
    preparing: BTreeMap<TransactionId, Asker>,
    /// Ends that are appended, and who is answered.
    finishing: BTreeMap<TransactionId, BTreeSet<Asker>>,
    /// Since when this leader has known the prepares in force.
    prepared_since_ns: BTreeMap<TransactionId, u64>,
    sweeps: BTreeMap<TransactionId, Sweep>,
    /// The greatest stamp at or below which nothing may be stamped, microseconds.
    promised_us: i64,
    actions: VecDeque<Action>,
}

impl Leader {
    /// The leader of a new term, whose tablet has applied `records` so far.
    pub fn new(
        tablet: TabletId,
        term: u64,
        records: &Records,
        limits: LockLimits,
        timing: Timing,
        now_ns: u64,
    ) -> Self {
        let mut leader = Self {
            tablet,
            term,
            timing,
            planted: Planted::default(),
            is_ready: false,
            next_number: 1,
            locks: Locks::rebuild(limits, records.locked()),
            in_flight: InFlight::default(),
            pending: BTreeMap::new(),
            reservations: BTreeMap::new(),
            issues_in_advance: true,
            in_advance: BTreeMap::new(),
            preparing: BTreeMap::new(),
            finishing: BTreeMap::new(),
            prepared_since_ns: records.locked().map(|(id, _)| (id, now_ns)).collect(),
            sweeps: BTreeMap::new(),
            promised_us: i64::MIN,
            actions: VecDeque::new(),
        };
        for (id, _) in records.outcomes() {
            leader.watch(records, id, now_ns);
        }
        leader
    }

    /// Plants these bugs, in builds that can.
    pub fn plant(&mut self, planted: Planted) {
        self.planted = planted.allowed();
    }

    /// Goes on with the numbers of an earlier leader of the same term: an id is issued once.
    pub fn continue_from(&mut self, next_number: u64) {
        self.next_number = self.next_number.max(next_number);
    }

    /// The number of the next transaction.
    pub fn next_number(&self) -> u64 {
        self.next_number
    }

    /// The next action.
    pub fn action(&mut self) -> Option<Action> {
        self.actions.pop_front()
    }

    /// The first entry of this leader's term is applied.
    pub fn ready(&mut self) {
        self.is_ready = true;
    }

    /// Whether the first entry of this leader's term is applied.
    pub fn is_ready(&self) -> bool {
        self.is_ready
    }

    /// The first key that a transaction has locked.
    pub fn first_key(&self, id: TransactionId) -> Option<Vec<u8>> {
        let targets = self.locks.held_by(&Owner::Transaction(id))?;
        targets.iter().next().map(|target| target.start().to_vec())
    }

    /// About the bytes of the programs that wait or are reserved.
    pub fn staged_bytes(&self) -> usize {
        let reserved = self.reservations.values().flat_map(|reservation| reservation.operations.iter());
        let reserved_bytes: usize = reserved.map(|operation| operation.program.len()).sum();
        self.pending.values().map(|pending| pending.program.0.len()).sum::<usize>() + reserved_bytes
    }

    /// The lock table, for readers.
    pub fn locks(&self) -> &Locks {
        &self.locks
    }

    /// Whether transactions hold or await something in this leader's memory.
    pub fn is_idle(&self) -> bool {
        self.locks.is_empty() && self.locks.waiting() == 0 && self.in_flight.is_empty() && self.reservations.is_empty()
    }

    /// A question arrives.
    ///
    /// # Errors
    /// [`NotServing`]: nothing was done.
    pub fn request(
        &mut self,
        records: &Records,
        asker: Asker,
        request: Request,
        has_lease: bool,
        now_ns: u64,
    ) -> Result<(), NotServing> {
        let until = |wait_ns: Option<u64>| wait_ns.map_or(Wait::Never, |wait_ns| Wait::Until(now_ns + wait_ns));
        if !self.may_answer(&request, has_lease) {
            return Err(NotServing);
        }
        match request {
            Request::Reserve { attempt, targets, program, wait_ns } => {
                self.reserve(asker, attempt, &targets, program, until(wait_ns));
            }
            Request::Prepare { id, home, targets, program, wait_ns } => {
                let pending = Pending { asker, program, role: Role::Participant { home }, stage: Stage::Queued };
                self.prepare(records, id, pending, &targets, until(wait_ns));
            }
            Request::Commit { id, prepared, part: Some(part) } => {
                self.commit_unreserved(records, asker, id, prepared, part, now_ns);
            }
            Request::Commit { id, prepared, part: None } => self.commit(records, asker, id, prepared, now_ns),
            Request::Release(id) => self.withdraw(id),
            Request::Status { id, of, at_us } => self.status(records, asker, id, of, at_us, now_ns),
            Request::Finish { id, ending } => self.finish(records, Some(asker), id, ending),
            Request::Forget(ids) => ids.into_iter().for_each(|id| self.release_record(id)),
        }
        Ok(())
    }

    /// A replica without a lease may have been replaced, and what it does not know may have happened: it would answer
    /// that there is no record, no reservation, no prepare.
    fn may_answer(&self, request: &Request, has_lease: bool) -> bool {
        match request {
            Request::Status { .. } => {
                (self.is_ready || self.planted.status_before_ready) && (has_lease || self.planted.status_without_lease)
            }
            Request::Finish { .. } => self.is_ready && (has_lease || self.planted.finish_without_lease),
            Request::Commit { .. } => self.is_ready && (has_lease || self.planted.commit_without_lease),
            _ => self.is_ready && has_lease,
        }
    }

    /// A write that is no transaction asks to be appended: [`Action::Admit`] or [`Action::Refuse`] follow, now or
    /// later.
    ///
    /// # Errors
    /// [`NotServing`]: rows may be prepared by entries of an earlier leader that are not applied yet.
    pub fn write(&mut self, tag: u64, targets: &Targets, wait: Wait) -> Result<(), NotServing> {
        if !self.is_ready && !self.planted.write_before_ready {
            return Err(NotServing);
        }
        if self.planted.write_through_lock {
            self.in_flight.add(tag, targets.clone());
            self.actions.push_back(Action::Admit(tag));
            return Ok(());
        }
        match self.locks.request(Owner::Write(tag), targets, wait) {
            Asked::Granted => self.granted(vec![Owner::Write(tag)]),
            Asked::Waits => {}
            Asked::Held | Asked::Full => self.actions.push_back(Action::Refuse(tag)),
        }
        Ok(())
    }

    /// How a reader gets a row. To be asked before the row is read: a transaction that is prepared, committed and
    /// finished between the two would otherwise be missed by a read that began after its client was answered.
    ///
    /// # Errors
    /// [`NotServing`]: as for [`Self::request`].
    pub fn look<'a>(
        &self,
        records: &'a Records,
        key: &[u8],
        known: Option<Known>,
        has_lease: bool,
    ) -> Result<Seen<'a>, NotServing> {
        if !self.is_ready || !has_lease {
            return Err(NotServing);
        }
        let Some((Owner::Transaction(id), Hold::Prepared)) = self.locks.holder(key) else { return Ok(Seen::Stored) };
        let record = records.prepared(&id).expect("what is locked as prepared has a record");
        Ok(
            match known.filter(|known| (known.id, known.prepared_us) == (id, record.stamp_us)).map(|known| known.status)
            {
                Some(Status::Committed(committed_us)) => {
                    let staged = record.prepare.operations.iter().filter(|operation| operation.key == key);
                    Seen::Staged { committed_us, operations: staged.collect() }
                }
                Some(Status::NotYet | Status::Aborted) => Seen::Stored,
                None => Seen::Locked { home: &record.prepare.home, id, prepared_us: record.stamp_us },
            },
        )
    }

    /// A write that was admitted is applied.
    pub fn written(&mut self, tag: u64) {
        self.in_flight.remove(tag);
        let latched = self.pending.iter().filter(|(_, pending)| pending.stage == Stage::Latched);
        for id in latched.map(|(id, _)| *id).collect::<Vec<_>>() {
            self.evaluate(id);
        }
    }

    /// A transaction asks for its locks.
    fn enqueue(&mut self, id: TransactionId, pending: Pending, targets: &Targets, wait: Wait) {
        self.pending.insert(id, pending);
        match self.locks.request(Owner::Transaction(id), targets, wait) {
            Asked::Granted => self.granted(vec![Owner::Transaction(id)]),
            Asked::Waits => {}
            Asked::Held => self.refuse(id, Refusal::Held, Vec::new()),
            Asked::Full => self.refuse(id, Refusal::Unavailable, Vec::new()),
        }
    }

    /// These hold what they have asked for.
    fn granted(&mut self, owners: Vec<Owner>) {
        let mut owners = VecDeque::from(owners);
        while let Some(owner) = owners.pop_front() {
            match owner {
                Owner::Write(tag) => {
                    let targets = self.locks.held_by(&owner).expect("it was granted").clone();
                    self.in_flight.add(tag, targets);
                    self.actions.push_back(Action::Admit(tag));
                    owners.extend(self.locks.release(&owner));
                }
                Owner::Transaction(id) => {
                    self.pending.get_mut(&id).expect("it has asked").stage = Stage::Latched;
                    self.evaluate(id);
                }
            }
        }
    }

    fn evaluate(&mut self, id: TransactionId) {
        let targets = self.locks.held_by(&Owner::Transaction(id)).expect("what is evaluated is latched");
        if self.in_flight.overlaps(targets) && !self.planted.evaluate_in_flight {
            return;
        }
        let pending = self.pending.get_mut(&id).expect("what is latched is pending");
        pending.stage = Stage::Evaluating;
        // Nothing else needs it: what is evaluated is staged, or refused.
        let program = Program(std::mem::take(&mut pending.program.0));
        self.actions.push_back(Action::Evaluate { id, program });
    }

    /// A program has been evaluated, to writes of rows that are locked for it. Without effect if the transaction was
    /// given up meanwhile.
    pub fn evaluated(&mut self, id: TransactionId, evaluated: Evaluated, now_ns: u64) {
        if self.pending.get(&id).is_none_or(|pending| pending.stage != Stage::Evaluating) {
            return;
        }
        match evaluated {
            Evaluated::Unavailable => self.refuse(id, Refusal::Unavailable, Vec::new()),
            Evaluated::ConditionFailed(of_program) => self.refuse(id, Refusal::ConditionFailed, of_program),
            Evaluated::Operations(operations) => {
                let locked = self.locks.held_by(&Owner::Transaction(id)).expect("what is evaluated is latched");
                let is_locked = |operation: &Operation| locked.contains(&operation.key);
                assert!(operations.iter().all(is_locked), "{id} writes rows that it has not locked");
                let Some(pending) = self.pending.remove(&id) else { return };
                match pending.role {
                    Role::Home { attempt, commit: None } => {
                        self.reserved(id, operations, now_ns);
                        self.reply(pending.asker, Reply::Reserved { id, attempt });
                    }
                    Role::Home { commit: Some(prepared), .. } => {
                        self.reserved(id, operations, now_ns);
                        self.commit_reserved(pending.asker, id, &prepared);
                    }
                    Role::Participant { home } => self.staged(id, pending.asker, home, operations),
                }
            }
        }
    }

    /// What was pending is refused: nothing was done.
    fn refuse(&mut self, id: TransactionId, refusal: Refusal, of_program: Vec<u8>) {
        if let Some(pending) = self.pending.remove(&id) {
            let reply = match pending.role {
                Role::Home { attempt, .. } => Reply::NotReserved { attempt, refusal },
                Role::Participant { .. } => Reply::NotPrepared { id, refusal },
            };
            self.actions.push_back(Action::Reply { to: pending.asker, reply, of_program });
        }
        self.unlock(id);
    }

    fn unlock(&mut self, id: TransactionId) {
        let granted = self.locks.release(&Owner::Transaction(id));
        self.granted(granted);
    }

    /// A step was applied to `records`, whoever has appended it.
    pub fn applied(&mut self, records: &Records, step: &Step, now_ns: u64) {
        match step {
            Step::Prepare(prepare) => self.prepare_applied(records, prepare, now_ns),
            Step::Commit(commit) => self.commit_applied(records, commit.id, now_ns),
            Step::Finish { id, .. } => self.finish_applied(records, *id),
            Step::Forget(ids) => ids.iter().for_each(|id| drop(self.sweeps.remove(id))),
        }
    }

    /// A step that was to be proposed is not, and never will be: nothing was done, and the transaction is given up.
    pub fn not_proposed(&mut self, step: &Step) {
        match step {
            Step::Prepare(prepare) => {
                let refusal = Refusal::Unavailable;
                if let Some(to) = self.preparing.remove(&prepare.id) {
                    self.reply(to, Reply::NotPrepared { id: prepare.id, refusal });
                }
                self.unlock(prepare.id);
            }
            Step::Commit(commit) => {
                let Some(reservation) = self.reservations.remove(&commit.id) else { return };
                let waiting = reservation.committing.map(|to| (to, Reply::Lost(commit.id)));
                let asked = reservation.questions.into_iter();
                let aborted = asked.map(|to| (to, Reply::Status { id: commit.id, status: Status::Aborted }));
                waiting.into_iter().chain(aborted).for_each(|(to, reply)| self.reply(to, reply));
                self.unlock(commit.id);
            }
            // They end something.
            Step::Finish { .. } | Step::Forget(_) => {}
        }
    }

    /// Some time has passed: ends waits and reservations, asks about old locks, finishes what others have not.
    pub fn sweep(&mut self, records: &Records, now_ns: u64) {
        let (expired, granted) = self.locks.expire(now_ns);
        self.granted(granted);
        for owner in expired {
            match owner {
                Owner::Write(tag) => self.actions.push_back(Action::Refuse(tag)),
                Owner::Transaction(id) => self.refuse(id, Refusal::Held, Vec::new()),
            }
        }
        if self.is_ready {
            self.expire_reservations(now_ns);
            self.ask_about_old_locks(records, now_ns);
            self.sweep_records(records, now_ns);
        }
    }

    fn propose(&mut self, step: Step, above_us: i64) {
        self.actions.push_back(Action::Propose { step, above_us: above_us.max(self.promised_us) });
    }

    fn reply(&mut self, to: Asker, reply: Reply) {
        self.actions.push_back(Action::Reply { to, reply, of_program: Vec::new() });
    }

    /// Takes over the reservations of a former leader: a bug.
    #[cfg(test)]
    pub(crate) fn take_over_reservations(&mut self, former: &Self) {
        self.reservations = former.reservations.clone();
        self.reservations.values_mut().for_each(|reservation| reservation.committing = None);
        for id in self.reservations.keys() {
            let owner = Owner::Transaction(*id);
            let targets = former.locks.held_by(&owner).expect("a reservation is locked");
            self.locks.restore(owner, targets.clone(), Hold::Reserved);
        }
    }
}

#[cfg(test)]
mod tests;
