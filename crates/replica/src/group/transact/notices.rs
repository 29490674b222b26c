//! What a leader of transactions learns beside calls: what was applied, what other tablets have answered, and that time
//! has passed.

use super::calls::release_held;
use super::leading::may_lead_transactions;
use super::pinning::take_due_pins;
use super::run::run_transactions;
use crate::group::replica::Replica;
use crate::group::transactions::{ASK_AGAIN_NS, Led, SWEEP_NS};
use crate::group::turn::Turn;
use diorite_base::TabletId;
use diorite_base::write::{KvError, Waited};
use diorite_storage::Engine;
use diorite_transact::TransactionId;
use diorite_transact::message::Status;
use std::collections::VecDeque;

/// The home of a transaction has answered [`diorite_transact::peer::PeerCall::Ask`].
pub(crate) fn transaction_learned<E: Engine>(
    replica: &mut Replica<E>,
    turn: &mut Turn<E>,
    id: TransactionId,
    prepared_us: i64,
    status: Status,
) {
    if may_lead_transactions(replica, turn, false)
        && let Some(led) = replica.writes.transactions.led.as_deref_mut()
    {
        led.leader.learned(&replica.writes.transactions.records, id, prepared_us, status);
        run_transactions(replica, turn);
    }
}

/// A participant has answered [`diorite_transact::peer::PeerCall::Finish`].
pub(crate) fn transaction_finished<E: Engine>(
    replica: &mut Replica<E>,
    turn: &mut Turn<E>,
    id: TransactionId,
    participant: TabletId,
) {
    if may_lead_transactions(replica, turn, false)
        && let Some(led) = replica.writes.transactions.led.as_deref_mut()
    {
        led.leader.finished(id, participant);
        run_transactions(replica, turn);
    }
}

/// Some time has passed.
pub(crate) fn sweep_transactions<E: Engine>(replica: &mut Replica<E>, turn: &mut Turn<E>, now_ns: u64) {
    let is_concerned = replica.writes.transactions.led.is_some() || !replica.writes.transactions.records.is_empty();
    if !is_concerned || !may_lead_transactions(replica, turn, false) {
        return;
    }
    replica.handle.transacted.pins.expire(now_ns, turn.context.pins().quarters());
    if release_held(replica, now_ns) {
        turn.touch(replica);
    }
    let Some(led) = replica.writes.transactions.led.as_deref_mut() else { return };
    expire_pins(led, turn, now_ns);
    let due = led.askers.extract_if(.., |_, waiter| waiter.deadline_ns <= now_ns);
    turn.outcomes.fail(due.map(|(_, waiter)| waiter), &KvError::Timeout(Waited::in_vain(0)));
    if now_ns < led.asks.swept_ns + SWEEP_NS {
        return;
    }
    led.asks.swept_ns = now_ns;
    led.asks.sent.retain(|_, sent_ns| now_ns < *sent_ns + ASK_AGAIN_NS);
    if now_ns >= replica.writes.transactions.held.drains_until_ns {
        led.leader.resume_in_advance();
    }
    led.leader.sweep(&replica.writes.transactions.records, now_ns);
    led.measure_staged(&replica.writes.transactions.records);
    run_transactions(replica, turn);
    turn.touch(replica);
}

/// Answers the reads that have waited too long for what they are to see.
fn expire_pins<E: Engine>(led: &mut Led, turn: &mut Turn<E>, now_ns: u64) {
    let (due, left) =
        std::mem::take(&mut led.pins).into_iter().partition(|pin| pin.proposal.waiter.deadline_ns <= now_ns);
    led.pins = left;
    let waiters = VecDeque::into_iter(due).map(|pin| pin.proposal.waiter);
    turn.outcomes.fail(waiters, &KvError::Timeout(Waited::in_vain(0)));
}

/// Entries were applied: tells the leader what it waits for.
pub(crate) fn after_apply<E: Engine>(replica: &mut Replica<E>, turn: &mut Turn<E>) {
    if replica.writes.transactions.led.is_none() || !may_lead_transactions(replica, turn, false) {
        return;
    }
    let now_ns = turn.now_ns();
    let Some(led) = replica.writes.transactions.led.as_deref_mut() else { return };
    for step in std::mem::take(&mut replica.writes.transactions.applied) {
        turn.context.counters.transactions.note_step(&step);
        led.leader.applied(&replica.writes.transactions.records, &step, now_ns);
    }
    run_transactions(replica, turn);
    take_due_pins(replica, turn);
}
