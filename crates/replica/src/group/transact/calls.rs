//! The calls of coordinators and readers, and the writes that have to wait for transactions.

use super::ending::may_end;
use super::leading::may_lead_transactions;
use super::pinning::{begin_pin, has_lease};
use super::run::run_transactions;
use crate::group::indexed::admitted;
use crate::group::merge::{ends_tablet, is_merge_step};
use crate::group::proposal::{NO_DEADLINE, Proposal};
use crate::group::replica::Replica;
use crate::group::row_sizes::RowSizes;
use crate::group::transactions::{MAX_ASKERS, WAIT_NS};
use crate::group::turn::Turn;
use crate::transaction_counters::TransactionCounters;
use diorite_base::mutation::{Body, Evaluator, Mutation, MutationRef};
use diorite_base::program::Unprovable;
use diorite_base::write::KvError;
use diorite_storage::Engine;
use diorite_transact::leader::Asker;
use diorite_transact::locks::Wait;
use diorite_transact::message::{HomePart, Program, Request};
use diorite_transact::step::{Ending, MAX_ROWS};
use diorite_transact::targets::{Target, Targets};
use diorite_transact::wire::{Answer, Call};

/// The most bytes of a transaction's program for one tablet.
const MAX_PROGRAM_BYTES: usize = 16 << 20;

/// About the most bytes of all programs of a tablet that wait, are reserved or are prepared.
const MAX_STAGED_BYTES: usize = 64 << 20;

/// The most transactions that wait for the end of a tablet.
const MAX_HELD: usize = 1_000;

/// How far the stamp of a commit's prepare may be ahead of everything that is known here, microseconds. A stamp is never
/// taken back: one clock that is wrong by years must not make those of other tablets wrong.
const MAX_AHEAD_US: i64 = 24 * 60 * 60 * 1_000_000;

/// The same for the stamp of a read.
const MAX_READ_AHEAD_US: i64 = 10 * 1_000_000;

/// The greatest stamp that is taken from anybody, microseconds.
const MAX_STAMP_US: i64 = i64::MAX / 4;

/// Whether a write needs more space than it may free: no deletion, and no call that reads, or ends what has begun.
pub(crate) fn adds_data(mutation: &Mutation) -> bool {
    match MutationRef::decode(mutation.as_bytes()).map(|read| read.body()) {
        Ok(Body::Request(call)) => match Call::decode(call) {
            Ok(Call::Request(
                Request::Reserve { .. } | Request::Prepare { .. } | Request::Commit { part: Some(_), .. },
            )) => !mutation.is_deletion(),
            Ok(Call::Request(_) | Call::Pin(..) | Call::Unpin(_)) => false,
            Err(_) => true,
        },
        _ => !mutation.is_deletion(),
    }
}

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

/// Takes the calls, and the writes that have to wait, out of the writes of this turn, and adds those that have
/// waited enough. Only for a replica that may propose.
pub(crate) fn admit<E: Engine>(replica: &mut Replica<E>, turn: &mut Turn<E>, sizes: &mut RowSizes) {
    let is_wanted = replica.writes.fresh.iter().any(is_call);
    if !is_wanted && replica.writes.transactions.led.is_none() && replica.writes.transactions.records.is_empty() {
        return;
    }
    if !may_lead_transactions(replica, turn, is_wanted) {
        return;
    }
    let now_ns = turn.now_ns();
    release_held(replica, now_ns);
    for proposal in std::mem::take(&mut replica.writes.fresh) {
        if is_call(&proposal) {
            take_call(replica, turn, sizes, proposal, now_ns);
        } else {
            write_beside(replica, turn, proposal, now_ns);
        }
    }
    run_transactions(replica, turn);
    let Some(led) = replica.writes.transactions.led.as_deref_mut() else { return };
    for (tag, proposal) in led.writes.admitted.drain(..) {
        led.writes.proposed.push(tag);
        replica.writes.fresh.push(proposal);
    }
}

/// Puts what is held back no longer among the fresh writes; returns whether there was something.
pub(super) fn release_held<E: Engine>(replica: &mut Replica<E>, now_ns: u64) -> bool {
    let due = replica.writes.transactions.held.due(now_ns, replica.leading.releasing.is_some());
    let is_some = !due.is_empty();
    replica.writes.fresh.extend(due);
    is_some
}

/// A write that is no transaction: it goes on at once if the leader has nothing to do.
fn write_beside<E: Engine>(replica: &mut Replica<E>, turn: &mut Turn<E>, proposal: Proposal, now_ns: u64) {
    let program = program_of(&proposal);
    let (is_merge, ends) = (program.is_some_and(is_merge_step), program.is_some_and(ends_tablet));
    if ends && !may_end(replica, turn) {
        let busy = KvError::Overloaded("transactions of the tablet have to end first");
        return turn.outcomes.push(proposal.waiter, Err(busy));
    }
    let Some(led) = replica.writes.transactions.led.as_deref_mut() else { return replica.writes.fresh.push(proposal) };
    if is_merge || (led.leader.is_idle() && led.evaluations.is_empty()) {
        led.writes.unseen.is_fresh = true;
        return replica.writes.fresh.push(proposal);
    }
    let targets = targets_of_write(&*replica.evaluator, &proposal.mutation);
    let tag = led.tag();
    let until_ns = proposal.waiter.deadline_ns.min(now_ns + WAIT_NS);
    led.writes.waiting.insert(tag, proposal);
    let waited = led.leader.locks().waiting();
    if led.leader.write(tag, &targets, Wait::Until(until_ns)).is_err()
        && let Some(proposal) = led.writes.waiting.remove(&tag)
    {
        turn.refused.push(proposal.refuse(None));
    }
    if led.leader.locks().waiting() > waited {
        TransactionCounters::add(&turn.context.counters.transactions.writes_waited);
    }
}

fn take_call<E: Engine>(
    replica: &mut Replica<E>,
    turn: &mut Turn<E>,
    sizes: &mut RowSizes,
    proposal: Proposal,
    now_ns: u64,
) {
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
            replica.handle.transacted.pins.remove(pin);
            turn.outcomes.push(proposal.waiter, Ok(Answer::Done.encode()));
        }
        Some(call) if !is_credible(replica, turn, &call) => {
            let error = KvError::TooLarge(
                "a call of a transaction names a stamp far in the future, or a home that takes part".to_owned(),
            );
            turn.outcomes.push(proposal.waiter, Err(error));
        }
        Some(Call::Pin(..)) if holds_pins(replica, now_ns) => {
            hold_back(turn, &mut replica.writes.transactions.held.pins, proposal);
        }
        Some(Call::Pin(at_us, targets)) => begin_pin(replica, turn, proposal, (at_us, targets)),
        Some(Call::Request(request)) => take_request(replica, turn, sizes, (proposal, now_ns), request),
    }
}

/// Whether a call may be true: what is stamped here from now on is stamped above its stamps. That a transaction has ended
/// has to be taken as its home says.
fn is_credible<E: Engine>(replica: &Replica<E>, turn: &Turn<E>, call: &Call) -> bool {
    let newest_us = replica.applied.newest_stamp_us.max(replica.writes.newest_us).max(turn.began_wall_us);
    let is_near = |stamp_us: i64, ahead_us: i64| stamp_us <= newest_us.saturating_add(ahead_us);
    match call {
        // A tablet that is a participant of a transaction is not its home.
        Call::Request(Request::Prepare { id, .. }) => id.tablet != replica.id(),
        Call::Pin(at_us, _) | Call::Request(Request::Status { at_us: Some(at_us), .. }) => {
            is_near(*at_us, MAX_READ_AHEAD_US)
        }
        Call::Request(Request::Commit { prepared, .. }) => prepared.iter().all(|it| is_near(it.stamp_us, MAX_AHEAD_US)),
        Call::Request(Request::Finish { ending: Ending::Committed { committed_us, .. }, .. }) => {
            *committed_us <= MAX_STAMP_US
        }
        Call::Request(_) | Call::Unpin(_) => true,
    }
}

fn take_request<E: Engine>(
    replica: &mut Replica<E>,
    turn: &mut Turn<E>,
    sizes: &mut RowSizes,
    (proposal, now_ns): (Proposal, u64),
    mut request: Request,
) {
    let mut staged_bytes = 0;
    if let Request::Reserve { wait_ns, .. } | Request::Prepare { wait_ns, .. } = &mut request {
        if now_ns < replica.writes.transactions.held.drains_until_ns {
            return hold_back(turn, &mut replica.writes.transactions.held.calls, proposal);
        }
        *wait_ns = wait_ns.map(|wait_ns| wait_ns.min(WAIT_NS));
    }
    if let Request::Reserve { targets, program, .. }
    | Request::Prepare { targets, program, .. }
    | Request::Commit { part: Some(HomePart { targets, program, .. }), .. } = &mut request
    {
        let checked = checked_targets(replica, program).and_then(|found| {
            sizes.admit(&replica.writing(turn.began_wall_us, now_ns), &proposal.mutation)?;
            admitted(&proposal.mutation, 0, (replica.indexes(), &*replica.evaluator))?;
            Ok(found)
        });
        match checked {
            Ok(found) => *targets = found,
            Err(error) => return turn.outcomes.push(proposal.waiter, Err(error)),
        }
        staged_bytes = program.0.len();
    }
    let has_lease = has_lease(replica, turn);
    let is_answered = !matches!(request, Request::Release(_) | Request::Forget(_));
    let Some(led) = replica.writes.transactions.led.as_deref_mut() else { return };
    if led.staged_bytes + staged_bytes > MAX_STAGED_BYTES {
        led.measure_staged(&replica.writes.transactions.records);
    }
    if led.askers.len() >= MAX_ASKERS || led.staged_bytes + staged_bytes > MAX_STAGED_BYTES {
        let full = KvError::Overloaded("too many transactions of the tablet wait");
        return turn.outcomes.push(proposal.waiter, Err(full));
    }
    led.staged_bytes += staged_bytes;
    let asker = Asker(led.tag());
    match led.leader.request(&replica.writes.transactions.records, asker, request, has_lease, now_ns) {
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
    replica.writes.stamps.observe(led.leader.promised_us());
}

/// Whether no promise is to be made now: the tablet or the lease is about to end, and may not while readers count on one.
fn holds_pins<E: Engine>(replica: &Replica<E>, now_ns: u64) -> bool {
    now_ns < replica.writes.transactions.held.pins_until_ns || replica.leading.releasing.is_some()
}

/// What is to begin waits until the tablet has ended, or has not.
fn hold_back<E: Engine>(turn: &mut Turn<E>, held: &mut Vec<Proposal>, proposal: Proposal) {
    if held.len() < MAX_HELD {
        return held.push(proposal);
    }
    turn.outcomes.push(proposal.waiter, Err(KvError::Overloaded("too many transactions of the tablet wait")));
}

fn checked_targets<E: Engine>(replica: &Replica<E>, Program(program): &Program) -> Result<Targets, KvError> {
    if program.len() > MAX_PROGRAM_BYTES {
        return Err(KvError::TooLarge(format!(
            "a transaction writes {} bytes to one tablet, and at most {MAX_PROGRAM_BYTES} are allowed",
            program.len()
        )));
    }
    let targets = targets_of(&*replica.evaluator, program)?;
    if targets.len() > MAX_ROWS || targets.is_empty() {
        return Err(KvError::TooLarge(format!(
            "a transaction has {} rows in one tablet, and 1 to {MAX_ROWS} are allowed",
            targets.len()
        )));
    }
    Ok(targets)
}
