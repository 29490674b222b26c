//! Fuzz targets for frames of the requests and operations lanes, and for questions of nodes that want to join; `cargo
//! test` replays their seeds.
//!
//! Always true: nothing panics, whatever a peer sends. Left out: the raft and bulk lanes, which are the `replica`
//! crate's.

/// Reads arbitrary bytes as every kind of frame.
pub fn lanes(input: &[u8]) {
    crate::route::check_frame(input);
    crate::operate::check_frame(input);
    crate::membership::check_question(input);
}

#[cfg(test)]
mod tests {
    #[test]
    fn the_seeds_of_lanes() {
        diorite_seeds::replay("requests", super::lanes);
    }
}
