//! Fuzz targets for frames of the raft and bulk lanes and for the contents of entries; `cargo test` replays their
//! seeds.
//!
//! Always true: nothing panics, whatever a peer sends or a log holds. Left out: what a store does with frames, which
//! the simulation covers.

use crate::group::entry::mutations;
use crate::group::merge::MergeStep;
use crate::group::split::{Split, SplitMark};
use crate::group::wire::envelopes;

/// Reads arbitrary bytes in every format that a peer or a log may hold for a replica.
///
/// # Panics
///
/// If a message of a copy comes back as another one.
pub fn lanes(input: &[u8]) {
    let _ = envelopes(input);
    crate::lifecycle::copy::wire::check_frame(input);
    if let Ok(found) = mutations(input) {
        for mutation in found.flatten() {
            if let diorite_base::mutation::Body::Blind(operations) = mutation.body() {
                assert!(operations.count() <= input.len(), "an operation takes at least a byte");
            }
        }
    }
    let _ = MergeStep::decode(input);
    let _ = Split::decode(input);
    let _ = SplitMark::decode(input);
}

#[cfg(test)]
mod tests {
    #[test]
    fn the_seeds_of_lanes() {
        diorite_seeds::replay("lanes", super::lanes);
    }
}
