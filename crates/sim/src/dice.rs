//! The run's randomness: every decision that is not determined otherwise comes from the seed, through here.

use diorite_base::random::{Random, SplitMix64};

const MS: u64 = 1_000_000;

/// A seeded sequence of decisions.
#[derive(Clone, Debug)]
pub struct Dice(SplitMix64);

impl Dice {
    /// The sequence for one purpose (`stream`) in the run of `seed`, so that one purpose's needs do not change another's decisions.
    pub fn new(seed: u64, stream: u64) -> Self {
        let mut mixed = SplitMix64::new(seed ^ stream.wrapping_mul(0xD6E8_FEB8_6659_FD93));
        // Seeds are small and similar; the first outputs of similar seeds are too.
        Self(SplitMix64::new(mixed.next_u64()))
    }

    /// 64 random bits.
    pub fn bits(&mut self) -> u64 {
        self.0.next_u64()
    }

    /// A number of `low..high`.
    pub fn range(&mut self, low: u64, high: u64) -> u64 {
        assert!(low < high, "an empty range has no member");
        low + self.0.below(high - low)
    }

    /// A duration of `low..high` milliseconds, in nanoseconds.
    pub fn milliseconds(&mut self, low: u64, high: u64) -> u64 {
        self.range(low * MS, high * MS)
    }

    /// True in `permille` of 1,000 cases.
    pub fn chance(&mut self, permille: u64) -> bool {
        self.0.below(1_000) < permille
    }

    /// One of `choices`, which must not be empty.
    pub fn pick<'a, T>(&mut self, choices: &'a [T]) -> &'a T {
        &choices[self.range(0, choices.len() as u64) as usize]
    }
}
