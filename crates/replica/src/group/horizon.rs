//! The horizon of a tablet beside transactions: their programs read as of the second in which a leader has tested their
//! conditions, and replicas may have removed what has expired by the horizon.
//!
//! Always true: a program of a step that reads is run as of the second of its test, or the leader gives the step up
//! before it is proposed. So what was possible when it was tested is carried out, with the same effect on all replicas.
//! Left out: what the horizon is ([`diorite_base::horizon`]), and giving steps up ([`super::transact`]).

use crate::group::sealed::TRANSACTIONS;
use diorite_base::mutation::{Body, MutationRef, seconds};
use diorite_storage::AppliedState;
use diorite_transact::step::{Commit, Operation, Prepare, Step};

/// For how long a tablet with transactions keeps what has expired, seconds: more than usually passes from the
/// evaluation of a program to the entry of the log that names its second.
const RESERVED_S: u32 = 10;

/// Advances the state to a mutation. What expired after `oldest_s` stays readable: a program that is prepared reads as
/// of then, and has to find the same on every replica, whatever each has compacted. So does one whose rows are reserved,
/// of which only the leader knows.
pub(crate) fn advance(state: &mut AppliedState, mutation: &MutationRef<'_>, oldest_s: Option<u32>) {
    let before = state.horizon;
    state.advance(mutation.stamp_us, mutation.explicit_us, mutation.gc_grace_s);
    if matches!(mutation.body(), Body::Step(_)) {
        state.flags |= TRANSACTIONS;
    }
    let reserved_s = (state.flags & TRANSACTIONS != 0).then(|| state.horizon.now_s.saturating_sub(RESERVED_S));
    if let Some(oldest_s) = oldest_s.into_iter().chain(reserved_s).min() {
        state.horizon = state.horizon.no_later_than(oldest_s).max(before);
    }
}

/// The latest second at which the horizon may be when a step with this stamp is applied, after all entries up to the
/// stamp `newest_us`. Until the first step of a tablet is applied, the horizon follows the stamps of its entries at
/// once.
pub(crate) fn latest_s(applied: &AppliedState, newest_us: i64, stamp_us: i64) -> u32 {
    let kept_s = |stamp_us: i64| seconds(stamp_us).saturating_sub(RESERVED_S);
    let before_s = if applied.flags & TRANSACTIONS != 0 { kept_s(newest_us) } else { seconds(newest_us) };
    applied.horizon.now_s.max(before_s).max(kept_s(stamp_us))
}

/// What has expired by the horizon may be gone already on some replicas: programs of a step read as of then at the
/// earliest.
pub(crate) fn read_no_earlier(step: &mut Step, horizon_s: u32) {
    let (Step::Prepare(Prepare { operations, .. }) | Step::Commit(Commit { operations, .. })) = step else { return };
    if operations.iter().any(|operation| operation.now_s < horizon_s) {
        let later = |operation: &Operation| Operation { now_s: operation.now_s.max(horizon_s), ..operation.clone() };
        *operations = operations.iter().map(later).collect();
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use diorite_base::Horizon;
    use diorite_base::mutation;
    use diorite_transact::step::encode_steps;

    const S: i64 = 1_000_000;

    /// The horizon after a plain write, and then a step, with these stamps.
    fn after(mut state: AppliedState, written_us: i64, stamp_us: i64) -> u32 {
        let steps = encode_steps([]);
        for bytes in [mutation::time_passes(written_us, 0), mutation::step(stamp_us, &steps)] {
            advance(&mut state, &MutationRef::decode(&bytes).unwrap(), None);
        }
        state.horizon.now_s
    }

    #[test]
    fn no_step_meets_a_later_horizon_than_its_leader_has_expected() {
        let horizon = Horizon { now_s: 1_000, rows_s: 1_000, ranges_s: 1_000 };
        for flags in [0, TRANSACTIONS] {
            let applied = AppliedState { horizon, flags, newest_stamp_us: 1_000 * S, ..AppliedState::default() };
            for (written_us, stamp_us) in [
                (1_000 * S + 1, 1_000 * S + 2),
                (1_001 * S, 1_001 * S + 1),
                (1_003 * S, 1_009 * S),
                (1_003 * S, 1_060 * S),
                (1_050 * S, 1_060 * S),
            ] {
                let expected_s = latest_s(&applied, written_us, stamp_us);
                assert_eq!(after(applied, written_us, stamp_us), expected_s, "{flags} {written_us} {stamp_us}");
            }
        }
    }
}
