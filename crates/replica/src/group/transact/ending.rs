//! The end of a tablet, or of a lease, beside transactions.
//!
//! A tablet ends by a split or a merge only when nothing of a transaction is in it: those that come after it know
//! nothing of locks, records and promises. So transactions that have begun are waited for, while new ones are held back
//! for a while. A lease is given up early only when an entry is applied that is stamped above all promises.

use crate::group::replica::Replica;
use crate::group::turn::Turn;
use diorite_base::NodeId;
use diorite_storage::Engine;

/// How long transactions are held back for the end of a tablet, nanoseconds.
const DRAIN_NS: u64 = 2_000_000_000;

/// How long they are not held back after that, nanoseconds: they must get on beside an end that is wanted in vain.
const PAUSE_NS: u64 = 2_000_000_000;

/// How long what was issued in advance may still be committed, nanoseconds, before it is given up for the end of the tablet.
const IN_ADVANCE_NS: u64 = 200_000_000;

/// How long reads wait for their snapshots if the end of the tablet waits for nothing else, nanoseconds.
const PINS_DRAIN_NS: u64 = 100_000_000;

/// Whether an entry that ends the tablet may be proposed as far as transactions are concerned. If not, they begin to
/// drain: the caller tries again. If so, none begins beside that entry.
pub(crate) fn may_end<E: Engine>(replica: &mut Replica<E>, turn: &mut Turn<E>) -> bool {
    let now_ns = turn.now_ns();
    let may = is_drained(replica, turn, now_ns);
    if may {
        let held = &mut replica.writes.transactions.held;
        (held.drains_until_ns, held.pins_until_ns) = (now_ns + DRAIN_NS, now_ns + DRAIN_NS);
    }
    may
}

fn is_drained<E: Engine>(replica: &mut Replica<E>, turn: &mut Turn<E>, now_ns: u64) -> bool {
    if replica.writes.transactions.led.is_none() && replica.writes.transactions.records.is_empty() {
        return true;
    }
    if now_ns >= replica.writes.transactions.held.drains_until_ns + PAUSE_NS {
        replica.writes.transactions.held.drains_until_ns = now_ns + DRAIN_NS;
    }
    let has_in_advance = replica
        .writes
        .transactions
        .led
        .as_deref_mut()
        .is_some_and(|led| led.leader.stop_in_advance(now_ns.saturating_sub(IN_ADVANCE_NS)));
    let has_none = !has_in_advance
        && replica.writes.transactions.records.is_empty()
        && replica.writes.transactions.led.as_ref().is_none_or(|led| {
            led.leader.is_idle() && led.steps.is_empty() && led.writes.admitted.is_empty() && led.evaluations.is_empty()
        });
    if has_none {
        // Only reads are in the way.
        let held = &mut replica.writes.transactions.held;
        held.pins_until_ns = held.pins_until_ns.max(now_ns + PINS_DRAIN_NS);
    }
    let has_pins = replica.writes.transactions.next_pin().is_some();
    has_none && !has_pins && !holds_promises(replica, turn)
}

/// Whether readers may count on promises that no applied entry is stamped above. If so, such an entry is proposed.
pub(crate) fn holds_promises<E: Engine>(replica: &mut Replica<E>, turn: &mut Turn<E>) -> bool {
    let applied_us = replica.applied.newest_stamp_us;
    let is_held = replica.writes.transactions.led.as_ref().is_some_and(|led| {
        !led.leader.may_give_up_lease(applied_us) && turn.now_ns() < replica.leading.promised_until_ns
    });
    if is_held {
        replica.pass_time(turn.began_wall_us);
    }
    is_held
}

/// A lease that was to be given up while readers counted on promises is given up once they do not any more. A
/// replica that has failed cannot append anything, and waits until the promises end by themselves.
pub(crate) fn release_if_due<E: Engine>(replica: &mut Replica<E>, turn: &mut Turn<E>, now_ns: u64) {
    let Some(candidate) = replica.leading.releasing else { return };
    let candidate = Some(candidate).filter(|candidate: &NodeId| candidate.0 != 0);
    if !replica.may_propose() {
        replica.leading.releasing = None;
    } else if replica.failure.is_none() {
        replica.leading.releasing = None;
        replica.release(turn, candidate);
    } else if now_ns >= replica.leading.promised_until_ns {
        replica.end_lease_for_good(turn, candidate);
    }
}
