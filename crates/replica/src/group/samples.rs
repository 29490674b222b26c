//! Samples of the keys that a tablet's requests access, so that a tablet with too much load can be split where its load
//! is.
//!
//! Always true: no request waits, allocates or reads a clock for it; one in 64 stores one number, in a cache line of
//! its own, the others do one multiplication. Newer samples replace older ones, and each is returned once.
//! A multiplication, and not a mask, selects the requests by their number: with a mask, a client that goes through its
//! keys in turn would be sampled at the same key each time.
//! Left out: the meaning of keys. The first eight bytes are the token, which is enough.

use std::sync::atomic::{AtomicU64, Ordering};

/// The number of samples kept.
const SLOTS: usize = 64;
/// One request in two to the power of this is sampled.
const RARITY_BITS: u32 = 6;
/// Two to the power of 64 divided by the golden ratio: its multiples are spread evenly over all numbers, whatever the
/// step.
const SPREAD: u64 = 0x9E37_79B9_7F4A_7C15;
/// Marks an empty slot: the smallest token, which no partition has.
const NONE: u64 = 0;

/// The first eight bytes of some keys of a tablet's requests.
pub(crate) struct KeySamples(Box<[AtomicU64; SLOTS]>);

impl Default for KeySamples {
    fn default() -> Self {
        Self(Box::new([const { AtomicU64::new(NONE) }; SLOTS]))
    }
}

/// Whether the `nth` request is among those of which one in two to the power of `rarity_bits` is selected.
#[inline]
pub(crate) fn is_one_in(rarity_bits: u32, nth: u64) -> bool {
    nth.wrapping_mul(SPREAD) >> (u64::BITS - rarity_bits) == 0
}

impl KeySamples {
    /// Whether the `nth` request is sampled.
    #[inline]
    pub(crate) fn wants(nth: u64) -> bool {
        is_one_in(RARITY_BITS, nth)
    }

    /// Stores the key of the `nth` request, if it is to be sampled.
    #[inline]
    pub(crate) fn offer(&self, nth: u64, key: &[u8]) {
        if Self::wants(nth) {
            self.keep(nth, key);
        }
    }

    /// Stores the key of the `nth` request.
    #[cold]
    pub(crate) fn keep(&self, nth: u64, key: &[u8]) {
        let Some(head) = key.first_chunk() else { return };
        // The bits after those that selected the request: they are spread as evenly, so that a slot is reused only when
        // nearly all others were.
        let slot = (nth.wrapping_mul(SPREAD) >> (u64::BITS - 2 * RARITY_BITS)) as usize % SLOTS;
        self.0[slot].store(u64::from_be_bytes(*head), Ordering::Relaxed);
    }

    /// The samples since the last call, the newest 64 or so.
    pub(crate) fn take(&self) -> Vec<[u8; 8]> {
        let kept = self.0.iter().map(|slot| slot.swap(NONE, Ordering::Relaxed));
        kept.filter(|head| *head != NONE).map(u64::to_be_bytes).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeSet;

    /// The samples of `requests` that access `keys` in turn.
    fn kept(requests: u64, keys: u64) -> Vec<u64> {
        let samples = KeySamples::default();
        for nth in 0..requests {
            samples.offer(nth, &(1 + nth % keys).to_be_bytes());
        }
        samples.take().into_iter().map(u64::from_be_bytes).collect()
    }

    #[test]
    fn one_request_in_64_is_kept() {
        let wanted = (0..1_000_000).filter(|nth| KeySamples::wants(*nth)).count();
        assert!((15_500..=15_750).contains(&wanted), "{wanted}");
        assert!((28..=36).contains(&kept(2_048, u64::MAX).len()));
    }

    #[test]
    fn keys_that_are_asked_for_in_turn_are_all_kept_alike() {
        for keys in [2, 3, 16, 48, 64, 100, 128] {
            let kept = kept(64 * 64, keys);
            assert!(kept.len() >= 48, "{keys} keys: {} are kept", kept.len());
            let most = kept.iter().map(|key| kept.iter().filter(|other| *other == key).count()).max();
            let fair = 64 / keys as usize;
            assert!(most <= Some(fair * 3 / 2 + 4), "{keys} keys: one is kept {most:?} times");
            let different: BTreeSet<_> = kept.iter().collect();
            assert!(different.len() >= keys.min(15) as usize, "{keys} keys: {} are kept", different.len());
        }
    }

    #[test]
    fn what_is_taken_is_not_there_any_more_and_short_keys_count_for_nothing() {
        let samples = KeySamples::default();
        samples.keep(0, b"12345678 and the rest");
        samples.keep(64, b"short");
        assert_eq!(samples.take(), [*b"12345678"]);
        assert_eq!(samples.take(), [[0; 8]; 0]);
    }
}
