//! Whether a read of tablets that other nodes lead is tried without a snapshot first ([`super::snapshot`]).
//!
//! Such a read takes two rounds of messages, in which many writes may come between. Always true: where nothing changes it
//! is tried; of those that read a tablet in which the last attempts were in vain, one in [`PERIOD`] is. Left out: tablets
//! that this node leads, where an attempt costs next to nothing.

use diorite_base::TabletId;
use std::sync::atomic::{AtomicU8, Ordering};

/// Tablets whose numbers differ by a multiple of this share what is known of them.
const SLOTS: usize = 256;
/// After so many attempts in vain, one after the other,
const MOST_IN_VAIN: u8 = 3;
/// one in so many is made.
const PERIOD: u8 = 16;

/// Of each tablet the attempts in vain since the last one that was not; from [`MOST_IN_VAIN`] on, the reads since then.
#[derive(Debug)]
pub struct Attempts([AtomicU8; SLOTS]);

impl Default for Attempts {
    fn default() -> Self {
        Self([const { AtomicU8::new(0) }; SLOTS])
    }
}

impl Attempts {
    fn slot(&self, tablet: TabletId) -> &AtomicU8 {
        &self.0[tablet.0 as usize % SLOTS]
    }

    /// Whether a read of these tablets is tried without a snapshot. Other threads may count at the same time: a number
    /// that is off by one does no harm.
    pub fn is_worth_it(&self, tablets: &[TabletId]) -> bool {
        tablets.iter().all(|tablet| {
            let slot = self.slot(*tablet);
            let count = slot.load(Ordering::Relaxed);
            if count < MOST_IN_VAIN {
                return true;
            }
            let is_due = count >= MOST_IN_VAIN + PERIOD - 1;
            slot.store(if is_due { MOST_IN_VAIN - 1 } else { count + 1 }, Ordering::Relaxed);
            is_due
        })
    }

    /// Takes down how an attempt has ended.
    pub fn note(&self, tablets: impl IntoIterator<Item = TabletId>, was_in_vain: bool) {
        for tablet in tablets {
            let slot = self.slot(tablet);
            let count = slot.load(Ordering::Relaxed);
            if !was_in_vain && count > 0 {
                slot.store(0, Ordering::Relaxed);
            } else if was_in_vain && count < MOST_IN_VAIN {
                slot.store(count + 1, Ordering::Relaxed);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn attempts_that_were_in_vain_become_rare_and_begin_again_after_a_success() {
        let (attempts, one, two) = (Attempts::default(), TabletId(1), TabletId(2));
        for _ in 0..MOST_IN_VAIN {
            assert!(attempts.is_worth_it(&[one, two]));
            attempts.note([one], true);
        }
        let tried = (0..160).filter(|_| {
            let tries = attempts.is_worth_it(&[two, one]);
            if tries {
                attempts.note([one], true);
            }
            tries
        });
        assert_eq!(tried.count(), 10);
        assert!(attempts.is_worth_it(&[two]), "other tablets are not concerned");
        while !attempts.is_worth_it(&[one]) {}
        attempts.note([one], false);
        assert!((0..100).all(|_| attempts.is_worth_it(&[one])));
    }
}
