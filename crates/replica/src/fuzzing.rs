//! Fuzz targets for frames of the raft and bulk lanes and for the contents of entries; `cargo test` replays their
//! seeds.
//!
//! Always true: nothing panics, whatever a peer sends or a log holds. Left out: what a store does with frames, which
//! the simulation covers.

use crate::group::entry::mutations;
use crate::group::merge::MergeStep;
use crate::group::split::{Split, SplitMark};
use crate::group::wire::envelopes;
use diorite_base::mutation::Body;
use diorite_transact::step::decode_steps;
use diorite_transact::wire::{Answer, Call};

/// Reads arbitrary bytes in every format that a peer or a log may hold for a replica.
///
/// # Panics
///
/// If a message of a copy, or a call of a transaction, comes back as another one.
pub fn lanes(input: &[u8]) {
    let _ = envelopes(input);
    crate::lifecycle::copy::wire::check_frame(input);
    if let Ok(found) = mutations(input) {
        for mutation in found.flatten() {
            match mutation.body() {
                Body::Blind(operations) => {
                    assert!(operations.count() <= input.len(), "an operation takes at least a byte");
                }
                Body::Request(call) => check_call(call),
                Body::Step(steps) => drop(decode_steps(steps)),
                Body::Evaluated(_) => {}
            }
        }
    }
    check_call(input);
    let _ = Answer::decode(input);
    let _ = decode_steps(input);
    let _ = MergeStep::decode(input);
    let _ = Split::decode(input);
    let _ = SplitMark::decode(input);
}

fn check_call(input: &[u8]) {
    if let Ok(call) = Call::decode(input) {
        assert_eq!(call.encode(), input, "a call has one form");
    }
}

#[cfg(test)]
mod tests {
    #[test]
    fn the_seeds_of_lanes() {
        diorite_seeds::replay("lanes", super::lanes);
    }
}
