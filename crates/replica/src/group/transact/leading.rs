//! Whether a replica answers for transactions, and the state with which it does.
//!
//! Always true: the state of a leader is of one term, and is dropped with it.

use crate::group::replica::Replica;
use crate::group::transactions::Led;
use crate::group::turn::Turn;
use diorite_base::write::{KvError, Waited};
use diorite_storage::Engine;

/// Whether transactions need this leader to be visited from time to time.
pub(crate) fn has_transactions<E: Engine>(replica: &Replica<E>) -> bool {
    replica.group.is_leader() && (!replica.writes.transactions.is_quiet() || has_pins(replica))
}

fn has_pins<E: Engine>(replica: &Replica<E>) -> bool {
    replica.writes.transactions.led.is_some() && !replica.handle.transacted.pins.is_empty()
}

/// Whether transactions have something to propose.
pub(crate) fn has_steps<E: Engine>(replica: &Replica<E>) -> bool {
    replica.writes.transactions.has_steps()
}

/// Drops the state of a former term, and makes that of this term if `wanted` or if records ask for it. Returns
/// whether this replica may answer calls now.
pub(super) fn may_lead_transactions<E: Engine>(replica: &mut Replica<E>, turn: &mut Turn<E>, wanted: bool) -> bool {
    let term = replica.group.term();
    let is_over = |led: &Led| led.term != term;
    let is_leader = replica.group.is_leader() && !replica.has_released() && replica.failure.is_none();
    if replica.writes.transactions.led.as_deref().is_some_and(|led| is_over(led) || !is_leader) {
        stop_leading_transactions(replica, turn);
    }
    let may = is_leader && replica.may_propose() && replica.may_stamp();
    if may && replica.writes.transactions.led.is_none() && (wanted || !replica.writes.transactions.records.is_empty()) {
        let (last, now_ns) = (replica.group.last_index(), turn.now_ns());
        let (of, transactions) = ((replica.id(), term), &mut replica.writes.transactions);
        let led = Led::new(of, transactions.issued, &transactions.records, last, now_ns);
        transactions.led = Some(Box::new(led));
    }
    may && replica.writes.transactions.led.is_some()
}

/// Another replica leads, or will: whoever waits here is answered that the outcome is not known, and writes that
/// have waited for locks go to the new leader.
pub(crate) fn stop_leading_transactions<E: Engine>(replica: &mut Replica<E>, turn: &mut Turn<E>) {
    let leader = replica.leader_elsewhere(turn.context.node);
    turn.refused.extend(replica.writes.transactions.held.take().map(|proposal| proposal.refuse(leader)));
    replica.writes.transactions.applied.clear();
    let Some(led) = replica.writes.transactions.led.take() else { return };
    replica.writes.transactions.issued = (led.term, led.leader.next_number());
    turn.outcomes.fail(led.askers.into_values(), &KvError::Timeout(Waited::ended()));
    let pins = led.pins.into_iter().map(|pin| pin.proposal);
    let admitted = led.writes.admitted.into_iter().map(|(_, proposal)| proposal);
    let writes = led.writes.waiting.into_values().chain(admitted);
    turn.refused.extend(writes.chain(pins).map(|proposal| proposal.refuse(leader)));
}
