//! Fuzz targets for bytes that a stranger may send to the port for nodes; `cargo test` replays their seeds.
//!
//! Always true: nothing panics; memory grows with what has arrived. Left out: sockets.

use crate::frame::Incoming;
use crate::hello::{Opening, decode_answer, version_of};

/// Reads the first bytes of a connection: preamble, frames, and opening.
///
/// # Panics
///
/// If an opening encodes to other bytes than it was read from.
pub fn opening(input: &[u8]) {
    if let Some((preamble, _)) = input.split_first_chunk() {
        let _ = version_of(*preamble);
    }
    if let Ok((opening, wall_us)) = Opening::decode(input) {
        let again = Opening::decode(&opening.encode(wall_us));
        assert_eq!(again.map(|(opening, wall_us)| opening.encode(wall_us)).ok(), Some(opening.encode(wall_us)));
    }
    let _ = decode_answer(input);
    let mut incoming = Incoming::new(1 << 20);
    for piece in input.chunks(7) {
        incoming.space().extend_from_slice(piece);
        if incoming.each_frame(|_| {}).is_err() {
            return;
        }
    }
}

#[cfg(test)]
mod tests {
    #[test]
    fn the_seeds_of_openings() {
        diorite_seeds::replay("opening", super::opening);
    }
}
