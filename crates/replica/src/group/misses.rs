//! Whether the rows of a tablet that are read by key are likely to be in memory.
//!
//! A row is first looked up in memory, on the thread that serves the client, and then by a thread that reads from disk,
//! which begins from the start. Where nearly all rows are on disk, the first look-up is in vain nearly every time.
//! There most reads go to the disk's threads at once, which take the rows that are in memory from there as well.
//!
//! Always true: the outcome of a read does not depend on this; where nearly all look-ups are in vain, one row in 16 is
//! looked up nevertheless, so that rows that come into memory are noticed after some hundreds of reads; a look-up that
//! finds its row writes nothing here while most do. Left out: look-ups of ranges, and for other nodes.

use crate::group::samples::is_one_in;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};

/// The number of look-ups in vain that one with a result outweighs.
const HIT: u32 = 16;
/// From this score on, most look-ups are left out.
const FEW: u32 = 64;
/// The highest score.
const HIGHEST: u32 = 128;
/// Of the reads above [`FEW`], one in two to the power of this is looked up.
const RARITY_BITS: u32 = 4;

/// The recent look-ups in memory of a tablet's rows.
#[derive(Default)]
pub struct Misses {
    /// Look-ups in vain, less [`HIT`] for each other one. Updates of two threads at a time may be lost.
    score: AtomicU32,
    /// Reads above [`FEW`].
    asked: AtomicU64,
}

impl Misses {
    /// Whether the next row that is read by key is worth a look-up in memory before the disk's threads are asked.
    #[inline]
    pub fn wants_look(&self) -> bool {
        self.score.load(Ordering::Relaxed) < FEW || is_one_in(RARITY_BITS, self.asked.fetch_add(1, Ordering::Relaxed))
    }

    /// Notes whether such a look-up has found its row, or that there is no such row.
    #[inline]
    pub fn note(&self, is_found: bool) {
        let score = self.score.load(Ordering::Relaxed);
        let next = if is_found { score.saturating_sub(HIT) } else { HIGHEST.min(score + 1) };
        if next != score {
            self.score.store(next, Ordering::Relaxed);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// How many of 10,000 reads are looked up, if every `nth` row is in memory.
    fn looked_up(misses: &Misses, nth: u64) -> usize {
        let look = |number: &u64| {
            misses.wants_look() && {
                misses.note(number.is_multiple_of(nth));
                true
            }
        };
        (0..10_000).filter(look).count()
    }

    #[test]
    fn rows_are_looked_up_unless_nearly_all_are_on_disk() {
        for nth in [1, 2, 10] {
            assert_eq!(looked_up(&Misses::default(), nth), 10_000, "one in {nth}");
        }
        let few = looked_up(&Misses::default(), u64::MAX);
        assert!((500..1_000).contains(&few), "{few}");
    }

    #[test]
    fn a_tablet_whose_rows_come_into_memory_is_noticed() {
        let misses = Misses::default();
        looked_up(&misses, u64::MAX);
        let reads_until_noticed = (0..1_000).take_while(|_| {
            let looks = misses.wants_look();
            if looks {
                misses.note(true);
            }
            misses.score.load(Ordering::Relaxed) >= FEW
        });
        assert!(reads_until_noticed.count() < 200);
        assert_eq!(looked_up(&misses, 1), 10_000);
    }
}
