//! Which keys the requests of a tablet are for: a few of them, so that a tablet with too much to do can be divided where its load is.
//!
//! Always true: no request waits, allocates or asks the clock for it; one in 64 stores one number, in a line of memory of its own, the others multiply once. Newer
//! keys take the place of older ones, and what was taken is not given again.
//! Which request is kept follows from how many came before by a multiplication, not by a mask: a client that works through its keys in turn would be
//! caught at the same key each time.
//! Left out: what the keys mean. The first eight bytes tell partitions apart (they are the token), and nobody here needs more.

use std::sync::atomic::{AtomicU64, Ordering};

/// Keys that are held.
const SLOTS: usize = 64;
/// One request in two to the power of this is kept.
const RARITY_BITS: u32 = 6;
/// Two to the power of 64 by the golden ratio: its multiples are spread evenly over all numbers, whatever the step.
const SPREAD: u64 = 0x9E37_79B9_7F4A_7C15;
/// Not a key: the least of all tokens, which no partition has.
const NONE: u64 = 0;

/// The beginnings of some keys that a tablet was asked for.
pub(crate) struct KeySamples(Box<[AtomicU64; SLOTS]>);

impl Default for KeySamples {
    fn default() -> Self {
        Self(Box::new([const { AtomicU64::new(NONE) }; SLOTS]))
    }
}

impl KeySamples {
    /// Whether the `nth` request is one of those whose key is kept.
    #[inline]
    pub(crate) fn wants(nth: u64) -> bool {
        nth.wrapping_mul(SPREAD) >> (u64::BITS - RARITY_BITS) == 0
    }

    /// Keeps the key of the `nth` request, if it is one of those.
    #[inline]
    pub(crate) fn offer(&self, nth: u64, key: &[u8]) {
        if Self::wants(nth) {
            self.keep(nth, key);
        }
    }

    /// Keeps the key of the `nth` request.
    #[cold]
    pub(crate) fn keep(&self, nth: u64, key: &[u8]) {
        let Some(head) = key.first_chunk() else { return };
        // The bits after those that chose it: they are spread as evenly, so that a slot is used again only when nearly all others were.
        let slot = (nth.wrapping_mul(SPREAD) >> (u64::BITS - 2 * RARITY_BITS)) as usize % SLOTS;
        self.0[slot].store(u64::from_be_bytes(*head), Ordering::Relaxed);
    }

    /// The first eight bytes of the keys that were kept since this was last asked, the newest 64 or so.
    pub(crate) fn take(&self) -> Vec<[u8; 8]> {
        let kept = self.0.iter().map(|slot| slot.swap(NONE, Ordering::Relaxed));
        kept.filter(|head| *head != NONE).map(u64::to_be_bytes).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeSet;

    /// What is kept of `requests` whose keys are taken in turn.
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
