//! Snapshots of a tablet for reads of several tablets.
//!
//! Always true: a snapshot is taken when everything that was appended before is applied, and nothing that was appended
//! after; what is appended after has a stamp above the read's.

use crate::group::pins::PinnedTablet;
use crate::group::proposal::Proposal;
use crate::group::replica::Replica;
use crate::group::transactions::{MAX_ASKERS, PendingPin, WAIT_NS};
use crate::group::turn::Turn;
use crate::transaction_counters::TransactionCounters;
use diorite_base::write::{KvError, Waited};
use diorite_storage::{Engine, TabletData as _};
use diorite_transact::leader::promises::{Pin, staged};
use diorite_transact::targets::Targets;
use diorite_transact::wire::{Answer, PinId};
use std::sync::Arc;

/// How long a reader may count on a promise at most, nanoseconds. A store thread that hangs loses its leases later than
/// this.
const PROMISED_NS: u64 = 1_000_000_000;

pub(super) fn has_lease<E: Engine>(replica: &Replica<E>, turn: &Turn<E>) -> bool {
    replica.handle.lease.begin(|| turn.now_ns()).is_some()
}

/// A read wants the tablet as of a stamp.
pub(super) fn begin_pin<E: Engine>(
    replica: &mut Replica<E>,
    turn: &mut Turn<E>,
    mut proposal: Proposal,
    (at_us, targets): (i64, Targets),
) {
    let has_lease = has_lease(replica, turn);
    let newest_us = replica.writes.newest_us.max(replica.applied.newest_stamp_us);
    let Some(led) = replica.writes.transactions.led.as_deref_mut() else { return };
    if led.pins.len() >= MAX_ASKERS {
        let full = KvError::Overloaded("too many reads of the tablet wait");
        return turn.outcomes.push(proposal.waiter, Err(full));
    }
    match led.leader.pin(at_us, newest_us, has_lease) {
        Err(_) => turn.refused.push(proposal.refuse(None)),
        Ok(Pin::TooLate(newest_us)) => {
            TransactionCounters::add(&turn.context.counters.transactions.snapshots_too_late);
            turn.outcomes.push(proposal.waiter, Ok(Answer::TooLate(newest_us).encode()));
        }
        Ok(Pin::Promised) => {
            replica.writes.stamps.observe(led.leader.promised_us());
            let longest_ns = turn.now_ns() + 2 * WAIT_NS;
            proposal.waiter.deadline_ns = proposal.waiter.deadline_ns.min(longest_ns);
            led.pins.push_back(PendingPin { index: replica.group.last_index(), targets, proposal });
            take_due_pins(replica, turn);
        }
    }
}

/// Takes the snapshots of the reads that wait for what is applied now.
pub(super) fn take_due_pins<E: Engine>(replica: &mut Replica<E>, turn: &mut Turn<E>) {
    loop {
        let applied = replica.applied.index;
        let Some(led) = replica.writes.transactions.led.as_deref_mut() else { return };
        if led.pins.front().is_none_or(|pin| pin.index > applied) {
            return;
        }
        let Some(pin) = led.pins.pop_front() else { return };
        take_pin(replica, turn, pin);
    }
}

/// Everything that a read waits for is applied.
fn take_pin<E: Engine>(replica: &mut Replica<E>, turn: &mut Turn<E>, pin: PendingPin) {
    let PendingPin { targets, proposal, .. } = pin;
    let now_ns = turn.now_ns();
    let Some(left_ns) = replica.handle.lease.left_ns(now_ns) else {
        return turn.refused.push(proposal.refuse(None));
    };
    if proposal.waiter.deadline_ns <= now_ns {
        return turn.outcomes.push(proposal.waiter, Err(KvError::Timeout(Waited::in_vain(0))));
    }
    let lease_ns = left_ns.unwrap_or(PROMISED_NS).min(PROMISED_NS);
    let Some(kept) = keep(replica, turn, &targets, now_ns) else {
        let full = KvError::Overloaded("too many snapshots of the tablet are kept");
        return turn.outcomes.push(proposal.waiter, Err(full));
    };
    TransactionCounters::add(&turn.context.counters.transactions.snapshots_taken);
    replica.leading.promised_until_ns = replica.leading.promised_until_ns.max(now_ns + lease_ns);
    let staged = staged(&replica.writes.transactions.records, &targets);
    turn.outcomes.push(proposal.waiter, Ok(Answer::Pinned { pin: kept, lease_ns, staged }.encode()));
}

/// Keeps a snapshot of what is applied now for a read.
fn keep<E: Engine>(replica: &Replica<E>, turn: &Turn<E>, targets: &Targets, now_ns: u64) -> Option<PinId> {
    let counted = turn.context.pins().count()?;
    let (snapshot, evaluator) = (replica.handle.data.snapshot(), Arc::clone(&replica.evaluator));
    let of_state = (replica.applied.newest_explicit_us, replica.applied.flags, replica.handle.planted);
    let prepared = (&replica.writes.transactions.records, targets);
    let pinned = PinnedTablet::new(snapshot, prepared, evaluator, of_state, (now_ns, counted));
    let pin = turn.context.pins().name();
    replica.handle.transacted.pins.add(pin, pinned).then_some(pin)
}
