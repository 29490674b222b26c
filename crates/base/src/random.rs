//! The randomness seam. Nothing outside this module asks the operating system for entropy.
//!
//! Not the crate `rand`, whose generators may give other numbers in another version: a seed of the simulation must
//! reproduce its run as long as this code is unchanged.

/// Unpredictable bytes from the operating system, for keys and salts.
pub fn secret<const N: usize>() -> [u8; N] {
    let mut bytes = [0; N];
    getrandom::fill(&mut bytes).expect("the operating system has random bytes");
    bytes
}

/// A source of random numbers; deterministic when seeded.
pub trait Random: Send {
    /// The next 64 random bits.
    fn next_u64(&mut self) -> u64;

    /// A number in `0..bound`. `bound` must not be 0.
    fn below(&mut self, bound: u64) -> u64 {
        assert!(bound > 0, "an empty range has no member");
        ((u128::from(self.next_u64()) * u128::from(bound)) >> 64) as u64
    }
}

/// SplitMix64 (Steele, Lea, Flood 2014): small, fast, good enough for jitter, sampling and test data;
/// not for secrets.
#[derive(Clone, Debug)]
pub struct SplitMix64 {
    state: u64,
}

impl SplitMix64 {
    /// The sequence that belongs to `seed`.
    pub fn new(seed: u64) -> Self {
        Self { state: seed }
    }

    /// A sequence that differs from run to run, seeded by the operating system.
    pub fn from_entropy() -> Self {
        Self::new(u64::from_le_bytes(secret()))
    }
}

impl Random for SplitMix64 {
    fn next_u64(&mut self) -> u64 {
        self.state = self.state.wrapping_add(0x9E37_79B9_7F4A_7C15);
        let mut z = self.state;
        z = (z ^ (z >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
        z ^ (z >> 31)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_same_seed_gives_the_same_sequence() {
        let (mut a, mut b) = (SplitMix64::new(7), SplitMix64::new(7));
        assert!((0..100).all(|_| a.next_u64() == b.next_u64()));
    }

    #[test]
    fn secrets_differ() {
        assert_ne!(secret::<16>(), secret::<16>());
    }

    #[test]
    fn below_stays_below() {
        let mut random = SplitMix64::new(1);
        assert!((0..10_000).all(|_| random.below(3) < 3));
    }
}
