//! The coordinator of one transaction: the node that the client asked. Inputs in, actions out.
//!
//! The first attempt takes the nearest tablet as home and prepares the others in parallel; none of these prepares
//! waits, so no two transactions wait for each other. With an id that the home has issued in advance, nothing is reserved
//! there first: the commit brings the home's part, and does not wait for its locks either. If something was held, the next attempt goes in the order of the
//! tablets: the first is the home, and each of the others is prepared after the one before, waiting if need be. Whoever
//! holds something then waits only for tablets further on in the order, so there is no cycle, and queues are first in,
//! first out, so there is no starvation.
//!
//! Readers of tables without transactions do not ask what has become of what is prepared, so the client of a transaction
//! that writes to some (a logged batch) is answered when those of its participants have finished.
//!
//! Always true: the client is answered once. `Conflict`, `ConditionFailed` and `Unavailable` mean that nothing was done
//! and nothing will be; `Unknown` means that a commit was sent and its fate could not be learned in time. Nothing is
//! sent to the participants as committed before the home has said so. A coordinator may end at any time: others finish
//! what it has begun. Left out: the choice of the nearest tablet, and which node leads a tablet.

use crate::ids::{Home, Participant, Prepared, TransactionId};
use crate::message::{HomePart, Program, Refusal, Reply, Request, Status};
use crate::planted::Planted;
use crate::step::Ending;
use crate::targets::Targets;
use crate::timing::Timing;
use diorite_base::TabletId;
use std::collections::{BTreeSet, VecDeque};
use std::sync::Arc;

/// What a transaction does in one tablet.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Part {
    /// The tablet.
    pub participant: Participant,
    /// What is locked.
    pub targets: Targets,
    /// What is written.
    pub program: Program,
    /// Whether readers of the tablet ask the home what has become of what is prepared.
    pub readers_ask: bool,
}

/// A transaction: its parts in the order in which tablets are locked, of at least two tablets.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Plan {
    /// In the order of tablets that all coordinators share: base tables before index tables, then table and key.
    pub parts: Vec<Part>,
    /// The part that is the home of the first attempt. None goes in order at once, for rows that are contended.
    pub nearest: Option<usize>,
}

/// What the client is answered.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Outcome {
    /// Committed at this stamp, microseconds.
    Applied(i64),
    /// A condition is not satisfied. Nothing was done.
    ConditionFailed,
    /// Others held the rows until the end. Nothing was done.
    Conflict,
    /// A tablet could not be reached. Nothing was done.
    Unavailable,
    /// It may have been done.
    Unknown,
}

/// What the shell is to do.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum Action {
    /// Send a request to the leader of a tablet, and call [`Coordinator::replied`] or [`Coordinator::unanswered`].
    Send(TabletId, Request),
    /// Answer the client.
    Answer(Outcome),
    /// Report to the home, soon, that all participants have finished ([`Request::Forget`]). The home does without
    /// after a while.
    Ended(TabletId, TransactionId),
}

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
enum State {
    New,
    Reserving,
    Preparing { id: TransactionId, stamps: Vec<Option<i64>>, asked: BTreeSet<usize> },
    Committing { id: TransactionId, prepared: Vec<Prepared>, sent_ns: u64, is_asking: bool },
    Finishing { id: TransactionId, committed_us: i64, prepared: Vec<Prepared>, is_answered: bool },
    Ended,
}

/// See the top of this module.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Coordinator {
    plan: Arc<Plan>,
    timing: Timing,
    planted: Planted,
    state: State,
    attempt: u32,
    /// An id that the home of the first attempt has issued in advance, until it is used.
    in_advance: Option<TransactionId>,
    /// The attempt that is going on has not reserved anything.
    is_unreserved: bool,
    /// Something was held: go in order from now on.
    in_order: bool,
    started_ns: u64,
    /// The client waits for an answer.
    is_awaited: bool,
    /// The prepares of attempts that were given up before these were answered, with their parts. What is told of the end
    /// may have overtaken them.
    late: BTreeSet<(TransactionId, usize)>,
    actions: VecDeque<Action>,
}

impl Coordinator {
    /// A transaction that has not begun, with an id that the nearest tablet has issued in advance, if there is one.
    pub fn new(plan: Arc<Plan>, timing: Timing, in_advance: Option<TransactionId>) -> Self {
        assert!(plan.parts.len() > 1, "a transaction over several tablets");
        let in_order = plan.nearest.is_none();
        Self {
            plan,
            timing,
            planted: Planted::default(),
            state: State::New,
            attempt: 0,
            in_advance,
            is_unreserved: false,
            in_order,
            started_ns: 0,
            is_awaited: true,
            late: BTreeSet::new(),
            actions: VecDeque::new(),
        }
    }

    /// Plants these bugs, in builds that can.
    pub fn plant(&mut self, planted: Planted) {
        self.planted = planted.allowed();
    }

    /// The next action.
    pub fn action(&mut self) -> Option<Action> {
        self.actions.pop_front()
    }

    /// The client has gone: what others finish by themselves is not repeated for its answer.
    pub fn client_left(&mut self) {
        self.is_awaited = false;
    }

    /// Whether it waits for nothing any more.
    pub fn has_ended(&self) -> bool {
        self.state == State::Ended
    }

    /// The client has asked.
    pub fn start(&mut self, now_ns: u64) {
        assert_eq!(self.state, State::New, "a transaction starts once");
        self.started_ns = now_ns;
        self.begin_attempt();
    }

    fn home(&self) -> usize {
        self.plan.nearest.filter(|_| !self.in_order).unwrap_or(0)
    }

    fn begin_attempt(&mut self) {
        self.attempt += 1;
        let home = self.plan.parts[self.home()].participant.tablet;
        let in_advance = self.in_advance.take().filter(|id| id.tablet == home && !self.in_order);
        self.is_unreserved = in_advance.is_some();
        if let Some(id) = in_advance {
            return self.prepare_all(id);
        }
        self.state = State::Reserving;
        let part = &self.plan.parts[self.home()];
        let request = Request::Reserve {
            attempt: self.attempt,
            targets: part.targets.clone(),
            program: part.program.clone(),
            wait_ns: Some(self.timing.wait_ns),
        };
        self.send(self.home(), request);
    }

    fn send(&mut self, part: usize, request: Request) {
        self.actions.push_back(Action::Send(self.plan.parts[part].participant.tablet, request));
    }

    /// A tablet has answered.
    pub fn replied(&mut self, from: TabletId, reply: Reply, now_ns: u64) {
        match reply {
            Reply::Reserved { id, attempt } => self.reserved(from, id, attempt),
            Reply::NotReserved { attempt, refusal } => {
                let is_asked = match self.state {
                    State::Reserving => true,
                    State::Committing { .. } => self.is_unreserved,
                    _ => false,
                };
                if is_asked && attempt == self.attempt {
                    self.give_up_attempt(refusal, now_ns);
                }
            }
            Reply::Prepared { id, stamp_us } => self.prepared(from, id, stamp_us, now_ns),
            Reply::NotPrepared { id, refusal } => {
                if self.is_preparing(id) {
                    self.give_up_attempt(refusal, now_ns);
                }
            }
            Reply::Committed { id, committed_us, .. }
            | Reply::Status { id, status: Status::Committed(committed_us) } => {
                self.committed(id, committed_us);
            }
            Reply::Lost(id) | Reply::Status { id, status: Status::Aborted } => self.lost(id, now_ns),
            Reply::Status { id, status: Status::NotYet } => self.not_yet(id),
            Reply::Finished(id) => self.finished(from, id),
        }
    }

    fn is_preparing(&self, of: TransactionId) -> bool {
        matches!(&self.state, State::Preparing { id, .. } if *id == of)
    }

    fn reserved(&mut self, from: TabletId, id: TransactionId, attempt: u32) {
        if self.state != State::Reserving || attempt != self.attempt {
            if !self.is_of(id) {
                self.actions.push_back(Action::Send(from, Request::Release(id)));
            }
            return;
        }
        self.prepare_all(id);
    }

    fn prepare_all(&mut self, id: TransactionId) {
        let stamps = vec![None; self.plan.parts.len()];
        self.state = State::Preparing { id, stamps, asked: BTreeSet::new() };
        if self.in_order && !self.planted.wait_out_of_order {
            return self.prepare_next();
        }
        let wait_ns = self.in_order.then_some(self.timing.wait_ns);
        for part in (0..self.plan.parts.len()).filter(|part| *part != self.home()).collect::<Vec<_>>() {
            self.prepare(part, wait_ns);
        }
    }

    /// Whether a repeated reply is about the attempt that is going on.
    fn is_of(&self, of: TransactionId) -> bool {
        match &self.state {
            State::Preparing { id, .. } | State::Committing { id, .. } | State::Finishing { id, .. } => *id == of,
            State::New | State::Reserving | State::Ended => false,
        }
    }

    fn prepare_next(&mut self) {
        let State::Preparing { asked, .. } = &self.state else { return };
        let next = asked.len() + 1;
        self.prepare(next, Some(self.timing.wait_ns));
    }

    fn prepare(&mut self, part: usize, wait_ns: Option<u64>) {
        let (home, tells_readers) = (&self.plan.parts[self.home()].participant, self.plan.parts[part].readers_ask);
        let home = Home { table: home.table, key: home.key.clone(), tells_readers };
        let State::Preparing { id, asked, .. } = &mut self.state else { return };
        asked.insert(part);
        let of = &self.plan.parts[part];
        let (targets, program) = (of.targets.clone(), of.program.clone());
        let request = Request::Prepare { id: *id, home, targets, program, wait_ns };
        self.send(part, request);
    }

    fn prepared(&mut self, from: TabletId, of: TransactionId, stamp_us: i64, now_ns: u64) {
        let home = self.home();
        let is_from = |part: &Part| part.participant.tablet == from;
        if let Some(part) = self.plan.parts.iter().position(is_from).filter(|part| self.late.remove(&(of, *part))) {
            // Nobody has sent a commit of that attempt, nor will.
            return self.send(part, Request::Finish { id: of, ending: Ending::Aborted });
        }
        let State::Preparing { id, stamps, asked } = &mut self.state else { return };
        let part = self.plan.parts.iter().position(|part| part.participant.tablet == from);
        let Some(part) = part.filter(|_| *id == of) else { return };
        stamps[part].get_or_insert(stamp_us);
        let is_complete = (0..stamps.len()).all(|part| part == home || stamps[part].is_some());
        let is_answered = asked.iter().all(|part| stamps[*part].is_some());
        if is_complete {
            self.commit(now_ns);
        } else if is_answered {
            self.prepare_next();
        }
    }

    fn commit(&mut self, now_ns: u64) {
        let State::Preparing { id, stamps, .. } = &self.state else { return };
        let (id, parts) = (*id, self.plan.parts.iter().zip(stamps));
        let prepared: Vec<Prepared> = parts
            .filter_map(|(part, stamp_us)| {
                Some(Prepared { participant: part.participant.clone(), stamp_us: (*stamp_us)? })
            })
            .collect();
        self.state = State::Committing { id, prepared: prepared.clone(), sent_ns: now_ns, is_asking: false };
        if self.planted.finish_before_commit {
            for it in &prepared {
                let ending = Ending::Committed { prepared_us: it.stamp_us, committed_us: it.stamp_us + 1 };
                self.actions.push_back(Action::Send(it.participant.tablet, Request::Finish { id, ending }));
            }
        }
        self.send_commit(id, prepared);
    }

    fn send_commit(&mut self, id: TransactionId, prepared: Vec<Prepared>) {
        let home = &self.plan.parts[self.home()];
        let part = self.is_unreserved.then(|| HomePart {
            attempt: self.attempt,
            targets: home.targets.clone(),
            program: home.program.clone(),
        });
        self.send(self.home(), Request::Commit { id, prepared, part });
    }

    fn committed(&mut self, of: TransactionId, committed_us: i64) {
        let State::Committing { id, prepared, .. } = &self.state else { return };
        if *id != of {
            return;
        }
        let prepared = prepared.clone();
        prepared.iter().for_each(|it| self.finish(it, of, committed_us));
        self.state = State::Finishing { id: of, committed_us, prepared, is_answered: false };
        self.answer_if_visible();
    }

    fn finish(&mut self, of: &Prepared, id: TransactionId, committed_us: i64) {
        let ending = Ending::Committed { prepared_us: of.stamp_us, committed_us };
        self.actions.push_back(Action::Send(of.participant.tablet, Request::Finish { id, ending }));
    }

    /// Answers the client once every reader sees the transaction: in tablets whose readers do not ask, it has finished.
    fn answer_if_visible(&mut self) {
        let State::Finishing { committed_us, prepared: unfinished, is_answered, .. } = &mut self.state else { return };
        let parts = &self.plan.parts;
        let is_seen = |it: &Prepared| {
            parts.iter().any(|part| part.readers_ask && part.participant.tablet == it.participant.tablet)
        };
        let is_visible = unfinished.iter().all(is_seen) || self.planted.answer_before_finished;
        if is_visible && !std::mem::replace(is_answered, true) {
            self.actions.push_back(Action::Answer(Outcome::Applied(*committed_us)));
        }
    }

    fn finished(&mut self, from: TabletId, of: TransactionId) {
        let State::Finishing { id, prepared: unfinished, .. } = &mut self.state else { return };
        let Some(at) = unfinished.iter().position(|it| *id == of && it.participant.tablet == from) else { return };
        unfinished.swap_remove(at);
        let has_ended = unfinished.is_empty() || self.planted.forget_before_all_finished;
        self.answer_if_visible();
        if has_ended {
            self.state = State::Ended;
            let home = self.plan.parts[self.home()].participant.tablet;
            self.actions.push_back(Action::Ended(home, of));
        }
    }

    /// A participant did not answer that it has finished.
    fn unfinished(&mut self, to: TabletId, of: TransactionId) {
        let State::Finishing { id, committed_us, prepared: unfinished, is_answered } = &self.state else { return };
        if *id != of {
            return;
        }
        if *is_answered || !self.is_awaited {
            // The home's leader finishes what is left.
            self.state = State::Ended;
        } else if let Some(it) = unfinished.iter().find(|it| it.participant.tablet == to).cloned() {
            self.finish(&it, of, *committed_us);
        }
    }

    /// The home has neither a reservation nor a record of the transaction.
    fn lost(&mut self, of: TransactionId, now_ns: u64) {
        let State::Committing { id, sent_ns, .. } = &self.state else { return };
        if *id != of {
            return;
        }
        // Later the record may have been forgotten.
        if now_ns - sent_ns > self.timing.definite_ns && !self.planted.believe_late_answers {
            return self.end(Outcome::Unknown);
        }
        self.give_up_attempt(Refusal::Unavailable, now_ns);
    }

    /// The commit that was sent has not arrived, or is being carried out: ask again for it.
    fn not_yet(&mut self, of: TransactionId) {
        let State::Committing { id, prepared, is_asking, .. } = &mut self.state else { return };
        if *id == of && *is_asking {
            *is_asking = false;
            let prepared = prepared.clone();
            self.send_commit(of, prepared);
        }
    }

    /// A request to a tablet was not answered, or not carried out there. A reply may still come.
    pub fn unanswered(&mut self, to: TabletId, request: &Request, now_ns: u64) {
        match (request, &mut self.state) {
            (Request::Reserve { attempt, .. }, State::Reserving) if *attempt == self.attempt => {
                self.give_up_attempt(Refusal::Unavailable, now_ns);
            }
            (Request::Prepare { id, .. }, State::Preparing { id: current, .. }) if id == current => {
                self.give_up_attempt(Refusal::Unavailable, now_ns);
            }
            (
                Request::Commit { id, .. } | Request::Status { id, .. },
                State::Committing { id: current, is_asking, sent_ns, .. },
            ) if id == current => {
                if now_ns - *sent_ns > self.timing.definite_ns {
                    return self.end(Outcome::Unknown);
                }
                *is_asking = true;
                let id = *id;
                self.send(self.home(), Request::Status { id, of: None, at_us: None });
            }
            (Request::Finish { id, .. }, State::Finishing { .. }) => self.unfinished(to, *id),
            _ => {}
        }
    }

    /// A commit that brings the home's part has failed, and may still arrive: the id is given up, and then the home is
    /// asked.
    pub fn commit_failed(&mut self, of: TransactionId) {
        let State::Committing { id, is_asking, .. } = &mut self.state else { return };
        if *id == of {
            *is_asking = true;
            self.send(self.home(), Request::Release(of));
            self.send(self.home(), Request::Status { id: of, of: None, at_us: None });
        }
    }

    /// Ends an attempt of which nothing is committed, now or later, and begins the next one or answers.
    fn give_up_attempt(&mut self, refusal: Refusal, now_ns: u64) {
        let (id, asked) = match std::mem::replace(&mut self.state, State::Reserving) {
            State::Preparing { id, asked, stamps } => {
                self.late.extend(asked.iter().filter(|part| stamps[**part].is_none()).map(|part| (id, *part)));
                (Some(id), asked)
            }
            State::Committing { id, prepared, .. } => {
                let is_asked =
                    |part: &usize| prepared.iter().any(|it| it.participant == self.plan.parts[*part].participant);
                (Some(id), (0..self.plan.parts.len()).filter(is_asked).collect())
            }
            State::New | State::Reserving | State::Finishing { .. } | State::Ended => (None, BTreeSet::new()),
        };
        if let Some(id) = id {
            self.send(self.home(), Request::Release(id));
            for part in asked {
                self.send(part, Request::Finish { id, ending: Ending::Aborted });
            }
        }
        let is_over = self.attempt >= self.timing.attempts || now_ns - self.started_ns >= self.timing.attempts_ns;
        match refusal {
            Refusal::ConditionFailed => self.end(Outcome::ConditionFailed),
            Refusal::Held if is_over => self.end(Outcome::Conflict),
            Refusal::Unavailable if is_over => self.end(Outcome::Unavailable),
            Refusal::Held => {
                self.in_order = true;
                self.begin_attempt();
            }
            Refusal::Unavailable => self.begin_attempt(),
        }
    }

    fn end(&mut self, outcome: Outcome) {
        self.state = State::Ended;
        self.actions.push_back(Action::Answer(outcome));
    }
}
