//! The record of a run: a hash over all events and, if wanted, lines to read.

use std::fmt;

/// The record of a run.
#[derive(Debug)]
pub struct Trace {
    hash: u64,
    events: u64,
    print: bool,
}

impl Trace {
    /// Nothing happened yet. With `print`, every event is printed when it happens.
    pub fn new(print: bool) -> Self {
        Self { hash: 0xCBF2_9CE4_8422_2325, events: 0, print }
    }

    /// Records an event: where it happened (0 is nowhere), what kind it is, and what tells it from others of its kind.
    pub fn event(&mut self, now_ns: u64, place: u64, kind: &'static str, detail: &[u8], text: impl FnOnce() -> String) {
        self.events += 1;
        self.word(now_ns);
        self.word(place);
        self.bytes(kind.as_bytes());
        self.bytes(detail);
        if self.print {
            println!("{:>12} {:<4} {kind:<10} {}", Milliseconds(now_ns), Place(place), text());
        }
    }

    /// FNV-1a by words; any difference must change the hash.
    fn word(&mut self, word: u64) {
        self.hash = (self.hash ^ word).wrapping_mul(0x0000_0100_0000_01B3).rotate_left(23);
    }

    fn bytes(&mut self, bytes: &[u8]) {
        self.word(bytes.len() as u64);
        for chunk in bytes.chunks(8) {
            let mut word = [0; 8];
            word[..chunk.len()].copy_from_slice(chunk);
            self.word(u64::from_le_bytes(word));
        }
    }

    /// The hash over everything so far.
    pub fn hash(&self) -> u64 {
        self.hash
    }

    /// How many events there were.
    pub fn events(&self) -> u64 {
        self.events
    }
}

struct Milliseconds(u64);

impl fmt::Display for Milliseconds {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(&format!("{}.{:03}", self.0 / 1_000_000, self.0 / 1_000 % 1_000))
    }
}

struct Place(u64);

impl fmt::Display for Place {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.0 == 0 { f.pad("") } else { f.pad(&format!("n{}", self.0)) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_hash_tells_time_place_kind_and_detail_apart() {
        let hash = |now_ns, place, kind, detail: &[u8]| {
            let mut trace = Trace::new(false);
            trace.event(now_ns, place, kind, detail, String::new);
            trace.hash()
        };
        let one = hash(1, 2, "kind", b"detail");
        assert_eq!(one, hash(1, 2, "kind", b"detail"));
        for other in [hash(2, 2, "kind", b"detail"), hash(1, 3, "kind", b"detail"), hash(1, 2, "else", b"detail")] {
            assert_ne!(one, other);
        }
        assert_ne!(one, hash(1, 2, "kind", b"detail\0"));
    }
}
