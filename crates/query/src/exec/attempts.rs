//! Whether a read of tablets that other nodes lead is tried without a snapshot first ([`super::snapshot`]).
//!
//! Such a read takes two rounds of messages, between which a tablet may change. Always true: where nothing changes it is
//! tried; of those that read a tablet for which the last attempts have failed, one in [`PERIOD`] is. Left out: tablets
//! that this node leads, where an attempt costs next to nothing.

use diorite_base::TabletId;
use std::sync::atomic::{AtomicU8, Ordering};

/// Tablets whose numbers differ by a multiple of this share what is known of them.
const SLOTS: usize = 256;
/// So many attempts may fail one after the other before attempts become rare.
const MOST_FAILED: u8 = 3;
/// Then one of so many reads is tried.
const PERIOD: u8 = 16;

/// Of each tablet the attempts that have failed since the last one that succeeded; from [`MOST_FAILED`] on, the reads since
/// then.
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
    /// that is off by one is harmless.
    pub fn is_worth_it(&self, tablets: &[TabletId]) -> bool {
        tablets.iter().all(|tablet| {
            let slot = self.slot(*tablet);
            let count = slot.load(Ordering::Relaxed);
            if count < MOST_FAILED {
                return true;
            }
            let is_due = count >= MOST_FAILED + PERIOD - 1;
            slot.store(if is_due { MOST_FAILED - 1 } else { count + 1 }, Ordering::Relaxed);
            is_due
        })
    }

    /// Takes down how an attempt has ended.
    pub fn note(&self, tablets: impl IntoIterator<Item = TabletId>, has_failed: bool) {
        for tablet in tablets {
            let slot = self.slot(tablet);
            let count = slot.load(Ordering::Relaxed);
            if !has_failed && count > 0 {
                slot.store(0, Ordering::Relaxed);
            } else if has_failed && count < MOST_FAILED {
                slot.store(count + 1, Ordering::Relaxed);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn failed_attempts_become_rare_and_begin_again_after_a_success() {
        let (attempts, one, two) = (Attempts::default(), TabletId(1), TabletId(2));
        for _ in 0..MOST_FAILED {
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
