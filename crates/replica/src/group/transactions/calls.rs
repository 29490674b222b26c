//! The calls of coordinators and readers, and the writes that have to wait for transactions.

use super::{MAX_ASKERS, PendingPin};
use crate::group::merge::{ends_tablet, is_merge_step};
use crate::group::proposal::{NO_DEADLINE, Proposal};
use crate::group::replica::Replica;
use crate::group::turn::Turn;
use diorite_base::mutation::{Body, Evaluator, Mutation, MutationRef};
use diorite_base::program::Unprovable;
use diorite_base::write::{KvError, Waited};
use diorite_storage::Engine;
use diorite_transact::leader::Asker;
use diorite_transact::leader::promises::{Pin, staged};
use diorite_transact::locks::Wait;
use diorite_transact::message::{Program, Request};
use diorite_transact::step::MAX_ROWS;
use diorite_transact::targets::{Target, Targets};
use diorite_transact::wire::{Answer, Call};

/// How long a write waits for locks, nanoseconds.
const WAIT_NS: u64 = 1_800_000_000;
/// The most bytes of a transaction's program for one tablet.
const MAX_PROGRAM_BYTES: usize = 16 << 20;
/// How long a reader may count on a promise at most, nanoseconds. A store thread that hangs loses its leases later than
/// this.
const PROMISED_NS: u64 = 1_000_000_000;

/// What a program reads and writes.
fn targets_of(evaluator: &dyn Evaluator, program: &[u8]) -> Result<Targets, Unprovable> {
    let mut targets = Vec::new();
    evaluator.targets(program, &mut |start, end| {
        let start = start.to_vec();
        targets.push(match end {
            None => Target::Row(start),
            Some(end) => Target::Range { start, end: end.to_vec() },
        });
    })?;
    Ok(Targets::new(targets))
}

/// What a write that is no transaction writes.
fn targets_of_write(evaluator: &dyn Evaluator, mutation: &Mutation) -> Targets {
    match MutationRef::decode(mutation.as_bytes()).map(|read| read.body()) {
        Ok(Body::Blind(operations)) => {
            Targets::new(operations.flatten().map(|operation| Target::Row(operation.key.to_vec())).collect())
        }
        // What is proposed decodes.
        Ok(Body::Evaluated(program)) => targets_of(evaluator, program).unwrap_or_default(),
        Ok(Body::Request(_) | Body::Step(_)) | Err(_) => Targets::default(),
    }
}

fn is_call(proposal: &Proposal) -> bool {
    MutationRef::decode(proposal.mutation.as_bytes()).is_ok_and(|read| matches!(read.body(), Body::Request(_)))
}

fn program_of(proposal: &Proposal) -> Option<&[u8]> {
    match MutationRef::decode(proposal.mutation.as_bytes()).ok()?.body() {
        Body::Evaluated(program) => Some(program),
        Body::Blind(_) | Body::Request(_) | Body::Step(_) => None,
    }
}

impl<E: Engine> Replica<E> {
    /// Takes the calls, and the writes that have to wait, out of the writes of this turn, and adds those that have
    /// waited enough. Only for a replica that may propose.
    pub(crate) fn admit(&mut self, turn: &mut Turn<E>) {
        let is_wanted = self.writes.fresh.iter().any(is_call);
        if !is_wanted && self.transactions.led.is_none() && self.transactions.records.is_empty() {
            return;
        }
        if !self.may_lead_transactions(turn, is_wanted) {
            return;
        }
        let now_ns = turn.now_ns();
        if now_ns >= self.transactions.drains_until_ns {
            self.writes.fresh.append(&mut self.transactions.held);
        }
        for proposal in std::mem::take(&mut self.writes.fresh) {
            if is_call(&proposal) {
                self.call(turn, proposal, now_ns);
            } else {
                self.write_beside(turn, proposal, now_ns);
            }
        }
        self.run_transactions(turn);
    }

    /// A write that is no transaction: it goes on at once if the leader has nothing to do.
    fn write_beside(&mut self, turn: &mut Turn<E>, proposal: Proposal, now_ns: u64) {
        let program = program_of(&proposal);
        let (is_merge, ends) = (program.is_some_and(is_merge_step), program.is_some_and(ends_tablet));
        if ends && !self.may_end(turn) {
            let busy = KvError::Overloaded("transactions of the tablet have to end first");
            return turn.outcomes.push(proposal.waiter, Err(busy));
        }
        let Some(led) = self.transactions.led.as_deref_mut() else { return self.writes.fresh.push(proposal) };
        if is_merge || (led.leader.is_idle() && led.evaluations.is_empty()) {
            led.has_unseen = true;
            return self.writes.fresh.push(proposal);
        }
        let targets = targets_of_write(&*self.evaluator, &proposal.mutation);
        let tag = led.tag();
        let until_ns = proposal.waiter.deadline_ns.min(now_ns + WAIT_NS);
        led.writes.insert(tag, proposal);
        if led.leader.write(tag, &targets, Wait::Until(until_ns)).is_err()
            && let Some(proposal) = led.writes.remove(&tag)
        {
            turn.refused.push(proposal.refuse(None));
        }
    }

    fn call(&mut self, turn: &mut Turn<E>, proposal: Proposal, now_ns: u64) {
        if proposal.waiter.deadline_ns <= now_ns {
            let ended = KvError::Overloaded("the request ended before it was taken");
            return turn.outcomes.push(proposal.waiter, Err(ended));
        }
        let call = match MutationRef::decode(proposal.mutation.as_bytes()).map(|read| read.body()) {
            Ok(Body::Request(bytes)) => Call::decode(bytes).ok(),
            _ => None,
        };
        match call {
            None => {
                let error = KvError::TooLarge("a call of a transaction cannot be decoded".to_owned());
                turn.outcomes.push(proposal.waiter, Err(error));
            }
            Some(Call::Unpin(pin)) => {
                self.handle.pins.remove(pin);
                turn.outcomes.push(proposal.waiter, Ok(Answer::Done.encode()));
            }
            Some(Call::Pin(at_us, targets)) => self.begin_pin(turn, proposal, (at_us, targets)),
            Some(Call::Request(request)) => self.request(turn, proposal, request, now_ns),
        }
    }

    fn request(&mut self, turn: &mut Turn<E>, proposal: Proposal, mut request: Request, now_ns: u64) {
        if let Request::Reserve { targets, program, .. } | Request::Prepare { targets, program, .. } = &mut request {
            if now_ns < self.transactions.drains_until_ns {
                return self.transactions.held.push(proposal);
            }
            match self.checked_targets(program) {
                Ok(found) => *targets = found,
                Err(error) => return turn.outcomes.push(proposal.waiter, Err(error)),
            }
        }
        let has_lease = self.has_lease(turn);
        let is_answered = !matches!(request, Request::Release(_) | Request::Forget(_));
        let Some(led) = self.transactions.led.as_deref_mut() else { return };
        if led.askers.len() >= MAX_ASKERS {
            let full = KvError::Overloaded("too many transactions of the tablet wait");
            return turn.outcomes.push(proposal.waiter, Err(full));
        }
        let asker = Asker(led.tag());
        match led.leader.request(&self.transactions.records, asker, request, has_lease, now_ns) {
            Err(_) => turn.refused.push(proposal.refuse(None)),
            Ok(()) if is_answered => {
                let mut waiter = proposal.waiter;
                if waiter.deadline_ns == NO_DEADLINE {
                    waiter.deadline_ns = now_ns + 2 * WAIT_NS;
                }
                led.askers.insert(asker, waiter);
            }
            Ok(()) => turn.outcomes.push(proposal.waiter, Ok(Answer::Done.encode())),
        }
        // What is stamped from now on is stamped above what was promised.
        self.writes.stamps.observe(led.leader.promised_us());
    }

    fn checked_targets(&self, Program(program): &Program) -> Result<Targets, KvError> {
        if program.len() > MAX_PROGRAM_BYTES {
            return Err(KvError::TooLarge(format!(
                "a transaction writes {} bytes to one tablet, and at most {MAX_PROGRAM_BYTES} are allowed",
                program.len()
            )));
        }
        let targets = targets_of(&*self.evaluator, program)?;
        if targets.len() > MAX_ROWS || targets.is_empty() {
            return Err(KvError::TooLarge(format!(
                "a transaction has {} rows in one tablet, and 1 to {MAX_ROWS} are allowed",
                targets.len()
            )));
        }
        Ok(targets)
    }

    fn has_lease(&self, turn: &Turn<E>) -> bool {
        self.handle.lease.begin(|| turn.now_ns()).is_some()
    }

    /// A read wants the tablet as of a stamp.
    fn begin_pin(&mut self, turn: &mut Turn<E>, proposal: Proposal, (at_us, targets): (i64, Targets)) {
        let has_lease = self.has_lease(turn);
        let newest_us = self.writes.newest_us.max(self.applied.newest_stamp_us);
        let Some(led) = self.transactions.led.as_deref_mut() else { return };
        if led.pins.len() >= MAX_ASKERS {
            let full = KvError::Overloaded("too many reads of the tablet wait");
            return turn.outcomes.push(proposal.waiter, Err(full));
        }
        match led.leader.pin(at_us, newest_us, has_lease) {
            Err(_) => turn.refused.push(proposal.refuse(None)),
            Ok(Pin::TooLate(newest_us)) => {
                turn.outcomes.push(proposal.waiter, Ok(Answer::TooLate(newest_us).encode()));
            }
            Ok(Pin::Promised) => {
                self.writes.stamps.observe(led.leader.promised_us());
                led.pins.push_back(PendingPin { index: self.group.last_index(), targets, proposal });
                self.take_due_pins(turn);
            }
        }
    }

    /// Everything that a read waits for is applied.
    pub(super) fn take_pin(&mut self, turn: &mut Turn<E>, pin: PendingPin) {
        let PendingPin { targets, proposal, .. } = pin;
        let now_ns = turn.now_ns();
        let Some(left_ns) = self.handle.lease.left_ns(now_ns) else {
            return turn.refused.push(proposal.refuse(None));
        };
        if proposal.waiter.deadline_ns <= now_ns {
            return turn.outcomes.push(proposal.waiter, Err(KvError::Timeout(Waited::in_vain(0))));
        }
        let lease_ns = left_ns.unwrap_or(PROMISED_NS).min(PROMISED_NS);
        let Some(kept) = self.pin(turn, now_ns) else {
            let full = KvError::Overloaded("too many snapshots of the tablet are kept");
            return turn.outcomes.push(proposal.waiter, Err(full));
        };
        self.leading.promised_until_ns = self.leading.promised_until_ns.max(now_ns + lease_ns);
        let staged = staged(&self.transactions.records, &targets);
        turn.outcomes.push(proposal.waiter, Ok(Answer::Pinned { pin: kept, lease_ns, staged }.encode()));
    }
}
