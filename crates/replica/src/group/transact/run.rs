//! Carries out what the leader of transactions wants.

use crate::group::entry::Payload;
use crate::group::horizon::latest_s;
use crate::group::replica::Replica;
use crate::group::transactions::{ASK_AGAIN_NS, Led};
use crate::group::turn::Turn;
use crate::group::view::{View, Watched};
use crate::progress::WorkProgress;
use crate::transaction_counters::TransactionCounters;
use diorite_base::TabletId;
use diorite_base::mutation::{self, EvaluationContext, EvaluationFailed, seconds};
use diorite_base::write::KvError;
use diorite_raft::LogPosition;
use diorite_storage::{Engine, StorageError};
use diorite_transact::TransactionId;
use diorite_transact::leader::{Action, Evaluated};
use diorite_transact::message::Program;
use diorite_transact::peer::PeerCall;
use diorite_transact::step::{Ending, Operation, Step, encode_steps};
use diorite_transact::wire::Answer;

/// Steps that share an entry have no more bytes together, with the programs that they end, so what follows from them is
/// less than an entry may add to the indexes of the tablet.
const SHARED_ENTRY_BYTES: usize = 8 << 10;

/// Carries out what the leader wants, and tells it what has come of that, until it wants nothing more.
pub(super) fn run_transactions<E: Engine>(replica: &mut Replica<E>, turn: &mut Turn<E>) {
    loop {
        note_applied_writes(replica);
        carry_out(replica, turn);
        let Some((id, program)) = next_evaluation(replica) else { break };
        evaluate_for(replica, turn, id, program);
    }
}

/// Tells the leader which writes are in flight no more: they are applied, or nothing will come of them.
fn note_applied_writes<E: Engine>(replica: &mut Replica<E>) {
    let applied = replica.applied.index;
    let Some(led) = replica.writes.transactions.led.as_deref_mut() else { return };
    while let Some((_, tag)) = led.writes.in_flight.front().copied().filter(|(index, _)| *index <= applied) {
        led.writes.in_flight.pop_front();
        led.leader.written(tag);
    }
}

/// The next program that can be evaluated: nothing that it may read is in flight.
fn next_evaluation<E: Engine>(replica: &mut Replica<E>) -> Option<(TransactionId, Program)> {
    let led = replica.writes.transactions.led.as_deref_mut()?;
    let unseen = &led.writes.unseen;
    if unseen.is_fresh || replica.applied.index < unseen.index { None } else { led.evaluations.pop_front() }
}

fn carry_out<E: Engine>(replica: &mut Replica<E>, turn: &mut Turn<E>) {
    while let Some(led) = replica.writes.transactions.led.as_deref_mut() {
        let Some(action) = led.leader.action() else { break };
        match action {
            Action::Propose { step, above_us } => led.steps.push_back((step, above_us)),
            Action::Evaluate { id, program } => led.evaluations.push_back((id, program)),
            Action::Reply { to, reply, of_program } => {
                turn.context.counters.transactions.note_reply(&reply);
                if let Some(waiter) = led.askers.remove(&to) {
                    turn.outcomes.push(waiter, Ok(Answer::Reply { reply, of_program }.encode()));
                }
            }
            Action::Call(call) => call_peer(turn, led, replica.handle.id(), call),
            Action::Admit(tag) => {
                if let Some(proposal) = led.writes.waiting.remove(&tag) {
                    led.writes.admitted.push((tag, proposal));
                }
            }
            Action::Refuse(tag) => {
                TransactionCounters::add(&turn.context.counters.transactions.writes_refused);
                if let Some(proposal) = led.writes.waiting.remove(&tag) {
                    let held = KvError::Overloaded("rows are held by transactions");
                    turn.outcomes.push(proposal.waiter, Err(held));
                }
            }
        }
    }
}

/// Calls another tablet, unless that was done a moment ago.
fn call_peer<E: Engine>(turn: &Turn<E>, led: &mut Led, tablet: TabletId, call: PeerCall) {
    let now_ns = turn.now_ns();
    let key = match &call {
        PeerCall::Ask { id, .. } => (*id, id.tablet),
        PeerCall::Finish { id, participant, .. } => (*id, participant.tablet),
    };
    if led.asks.sent.get(&key).is_some_and(|sent_ns| now_ns < sent_ns + ASK_AGAIN_NS) {
        return;
    }
    led.asks.sent.insert(key, now_ns);
    turn.context.counters.transactions.note_call(&call);
    if let Some(peers) = turn.context.hooks.transactions.get() {
        peers.call(tablet, call);
    }
}

/// Runs a program on the rows as they are applied, and keeps what it would do. A malformed row ends the transaction alone:
/// nothing of it is in the log, and the other replicas have the same row. If the data cannot be read, the replica stops.
fn evaluate_for<E: Engine>(replica: &mut Replica<E>, turn: &mut Turn<E>, id: TransactionId, Program(program): Program) {
    let is_unmaintained = replica.indexes().is_some_and(|indexes| {
        !indexes.dependents().is_empty() && replica.evaluator.is_unmaintained(&program, indexes)
    });
    if is_unmaintained {
        // It has waited since before the index was specified.
        if let Some(led) = replica.writes.transactions.led.as_deref_mut() {
            led.leader.evaluated(id, Evaluated::Unavailable, turn.now_ns());
        }
        return;
    }
    // Not before the second of what is in flight, nor of what other tablets have stamped: see `give_up_late`.
    let stamp_us = replica.writes.stamps.next(turn.began_wall_us);
    let evaluated = match replica.evaluator.reads(&program) {
        // What it does is known. It is carried out once, when its rows become visible.
        false => Ok(program),
        true => match condition_failed(replica, id, &program, stamp_us) {
            Ok(None) => Ok(replica.evaluator.without_conditions(&program).unwrap_or(program)),
            Ok(Some(reply)) => Err(reply),
            Err(failed) => return replica.fail(turn, &StorageError::Corrupt(failed.to_string())),
        },
    };
    let Some(led) = replica.writes.transactions.led.as_deref_mut() else { return };
    let evaluated = match evaluated {
        Err(reply) => Evaluated::ConditionFailed(reply),
        Ok(program) => {
            let key = led.leader.first_key(id).unwrap_or_default();
            Evaluated::Operations(vec![Operation { key, now_s: seconds(stamp_us), program }])
        }
    };
    led.leader.evaluated(id, evaluated, turn.now_ns());
}

/// The reply of a program that would have no effect on the rows as they are applied, or that a malformed row ends;
/// `None` if it has one.
fn condition_failed<E: Engine>(
    replica: &Replica<E>,
    id: TransactionId,
    program: &[u8],
    stamp_us: i64,
) -> Result<Option<Vec<u8>>, EvaluationFailed> {
    let context = EvaluationContext::new(stamp_us, replica.applied.newest_explicit_us);
    let progress = WorkProgress::default();
    let view =
        View { data: &replica.handle.data, samples: &replica.handle.load.samples, nth: id.number, progress: &progress };
    let view = Watched::new(&view);
    match replica.evaluator.reply(program, context, &view) {
        Err(failed) if view.has_failed() => Err(failed),
        Err(_) => Ok(Some(replica.evaluator.reply_of_damage())),
        Ok(reply) => Ok(Some(reply).filter(|reply| !replica.evaluator.has_applied(reply))),
    }
}

/// Whether a step stages or writes what was planned before a unique index of the tablet was specified, and does not
/// maintain it.
fn is_unmaintained<E: Engine>(replica: &Replica<E>, step: &Step) -> bool {
    let Some(indexes) = replica.indexes().filter(|indexes| !indexes.dependents().is_empty()) else { return false };
    step.operations().iter().any(|operation| replica.evaluator.is_unmaintained(&operation.program, indexes))
}

/// Gives up the steps that do not maintain the tablet's unique indexes.
fn give_up_unmaintained<E: Engine>(replica: &mut Replica<E>, turn: &mut Turn<E>) {
    if replica.indexes().is_some_and(|indexes| !indexes.dependents().is_empty()) {
        give_up_steps(replica, turn, &is_unmaintained::<E>);
    }
}

/// Gives up the steps with a program that would not be run as of the second in which its conditions were tested, if it
/// were proposed with this stamp: what it reads might have expired since, and then the step would have no effect, or
/// another one. Returns whether there were some.
fn give_up_late<E: Engine>(replica: &mut Replica<E>, turn: &mut Turn<E>, stamp_us: i64) -> bool {
    let horizon_s = latest_s(&replica.applied, replica.writes.newest_us, stamp_us);
    give_up_steps(replica, turn, &|replica: &Replica<E>, step: &Step| {
        let mut operations = step.operations().iter().filter(|operation| operation.now_s < horizon_s);
        operations.any(|operation| replica.evaluator.reads(&operation.program))
    })
}

/// Gives up the next steps of this kind; returns whether there were some.
fn give_up_steps<E: Engine>(
    replica: &mut Replica<E>,
    turn: &mut Turn<E>,
    is_given_up: &dyn Fn(&Replica<E>, &Step) -> bool,
) -> bool {
    let mut has_given_up = false;
    loop {
        let of: &Replica<E> = replica;
        let steps = || of.writes.transactions.led.iter().flat_map(|led| &led.steps);
        if !steps().any(|(step, _)| is_given_up(of, step)) {
            return has_given_up;
        }
        has_given_up = true;
        let are_kept: Vec<bool> = steps().map(|(step, _)| !is_given_up(of, step)).collect();
        let Some(led) = replica.writes.transactions.led.as_deref_mut() else { return has_given_up };
        for is_kept in are_kept {
            let Some((step, above_us)) = led.steps.pop_front() else { break };
            if is_kept {
                led.steps.push_back((step, above_us));
            } else {
                led.leader.not_proposed(&step);
            }
        }
        carry_out(replica, turn);
    }
}

/// Those of the leader's next steps that share an entry with this stamp, encoded, and how many they are; 1 at least.
fn steps_of_entry<E: Engine>(replica: &Replica<E>, led: &Led, stamp_us: i64) -> (Vec<u8>, usize) {
    let (mut encoded, mut staged_bytes) = (encode_steps([]), 0);
    let mut may_share = |(step, above_us): &(Step, i64), encoded_bytes: usize| {
        let finished = match step {
            Step::Finish { id, ending: Ending::Committed { .. } } => replica.writes.transactions.records.prepared(id),
            _ => None,
        };
        let staged = finished.map_or(&[][..], |record| &record.prepare.operations[..]);
        staged_bytes += staged.iter().map(|operation| operation.program.len()).sum::<usize>();
        let mut operations = step.operations().iter().chain(staged);
        // A step that needs a later stamp begins another entry: the programs of the steps before it must not be run with
        // a stamp far beyond the second as of which they read.
        *above_us < stamp_us
            && encoded_bytes + staged_bytes <= SHARED_ENTRY_BYTES
            && !operations.any(|operation| replica.evaluator.edits_stored(&operation.program))
    };
    let begins_at = encoded.len();
    for (before, next) in led.steps.iter().enumerate() {
        let until = encoded.len();
        next.0.encode(&mut encoded);
        if led.steps.len() == 1 || !may_share(next, encoded.len() - begins_at) {
            // It has an entry of its own: this one, if it is the first.
            if before > 0 {
                encoded.truncate(until);
            }
            return (encoded, before.max(1));
        }
    }
    (encoded, led.steps.len())
}

/// Proposes the steps that the leader wants, in few entries: on each replica an entry with programs that read takes a
/// write of its own.
pub(crate) fn propose_steps<E: Engine>(replica: &mut Replica<E>, turn: &mut Turn<E>) {
    give_up_unmaintained(replica, turn);
    let first_above_us = |led: &Led| led.steps.front().map(|(_, above_us)| *above_us);
    while let Some(above_us) = replica.writes.transactions.led.as_deref().and_then(first_above_us) {
        replica.writes.stamps.observe(above_us);
        let stamp_us = replica.writes.stamps.stamp(turn.began_wall_us);
        if give_up_late(replica, turn, stamp_us) {
            continue;
        }
        let Some(led) = replica.writes.transactions.led.as_deref() else { break };
        let (steps, count) = steps_of_entry(replica, led, stamp_us);
        let mut payload = Payload::default();
        payload.push_steps(&mutation::step(stamp_us, &steps));
        let index = match replica.group.propose(payload.take()) {
            Ok(index) => index,
            Err(error) => {
                tracing::debug!(tablet = %replica.id(), %error, "steps of transactions wait to be proposed");
                break;
            }
        };
        let at = LogPosition::new(index, replica.group.term().0);
        if let Some(Led { steps: wanted, appended, .. }) = replica.writes.transactions.led.as_deref_mut() {
            appended.push(at, steps.len(), wanted.drain(..count).map(|(step, _)| step));
        }
        replica.writes.newest_us = stamp_us;
        replica.writes.proposed_ns = turn.began_ns;
    }
}

/// The writes of this turn are in the log, up to its last index, or have failed.
pub(crate) fn note_written<E: Engine>(replica: &mut Replica<E>, turn: &mut Turn<E>) {
    let last = replica.group.last_index();
    let Some(led) = replica.writes.transactions.led.as_deref_mut() else { return };
    led.writes.in_flight.extend(led.writes.proposed.drain(..).map(|tag| (last, tag)));
    if std::mem::take(&mut led.writes.unseen.is_fresh) {
        led.writes.unseen.index = last;
    }
    run_transactions(replica, turn);
    propose_steps(replica, turn);
    if replica.writes.transactions.has_steps() {
        turn.touch(replica);
    }
}
