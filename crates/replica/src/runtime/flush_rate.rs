//! When tablets are flushed to limit how much of the log a start replays: a few at a time.
//!
//! The tablets of a table receive writes from the same moment on. If they were flushed only when necessary, they would
//! be flushed together, again and again, with all other tablets of the node and, since replicas receive the same
//! writes, with those of other nodes; requests would wait for the processors and disks meanwhile. So the oldest tablets
//! are flushed ahead, from half the limit on, spread over the bytes that may still be written before they have to be
//! flushed. This spreads their ages: afterwards about one tablet is flushed each time that its share of 0.7 times the
//! limit has been written.
//!
//! Always true: a tablet whose age is over the limit is flushed; one whose age is under half of it is not.

/// The progress of flushing ahead.
#[derive(Debug, Default)]
pub(crate) struct FlushRate {
    /// The log position up to which written bytes have been used to flush ahead.
    spent: u64,
}

impl FlushRate {
    /// How many tablets to flush now, beginning with the oldest. `oldest`: the log positions of the tablets' first
    /// unflushed writes, ascending; `position`: the end of the log; `limit`: the greatest distance between the two,
    /// bytes.
    pub(crate) fn due(&mut self, oldest: impl Iterator<Item = u64>, position: u64, limit: u64) -> usize {
        let ages = oldest.map(|oldest| position.saturating_sub(oldest));
        let ripe: Vec<u64> = ages.take_while(|age| *age > limit / 2).collect();
        if ripe.is_empty() {
            self.spent = position;
        }
        let mut due = ripe.iter().take_while(|age| **age > limit).count();
        while due < ripe.len() {
            let gap = (limit - ripe[due]) / (ripe.len() - due) as u64;
            if position.saturating_sub(self.spent) < gap {
                break;
            }
            self.spent += gap;
            due += 1;
        }
        due
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const LIMIT: u64 = 1_000_000;
    const TABLETS: u64 = 50;

    /// Writes to all tablets in turn, `step` bytes between two looks; the ages at which tablets were flushed, by look.
    fn flushes(step: u64, lasting: u64) -> Vec<Vec<u64>> {
        let (mut rate, mut oldest) = (FlushRate::default(), vec![0; TABLETS as usize]);
        let looks = (1..lasting / step).map(|look| {
            let position = look * step;
            oldest.sort_unstable();
            let due = rate.due(oldest.iter().copied(), position, LIMIT);
            let flushed: Vec<u64> = oldest[..due].iter().map(|oldest| position - oldest).collect();
            oldest[..due].fill(position);
            flushed
        });
        looks.collect()
    }

    #[test]
    fn tablets_that_began_together_are_not_flushed_together_and_none_too_late_or_early() {
        for step in [200, 2_000, 20_000] {
            let flushes = flushes(step, 20 * LIMIT);
            let all: Vec<u64> = flushes.iter().flatten().copied().collect();
            assert!(all.iter().all(|age| (LIMIT / 2..=LIMIT + step).contains(age)), "{step}");
            // Evenly spread there is one for each gap.
            let gap = LIMIT / 2 / TABLETS;
            let most = flushes.iter().map(Vec::len).max().unwrap_or(0) as u64;
            assert!(most <= step.div_ceil(gap) + 1, "{most} at once at {step}");
            let mean = all.iter().sum::<u64>() / all.len() as u64;
            assert!((LIMIT * 6 / 10..LIMIT * 8 / 10).contains(&mean), "{mean} at {step}");
        }
    }

    #[test]
    fn one_that_lags_far_behind_goes_at_once_and_none_that_is_young() {
        let mut rate = FlushRate::default();
        assert_eq!(rate.due([0, LIMIT].into_iter(), LIMIT + 1, LIMIT), 1);
        assert_eq!(rate.due([2 * LIMIT].into_iter(), 2 * LIMIT + LIMIT / 2, LIMIT), 0);
        assert_eq!(rate.due(std::iter::empty(), 10 * LIMIT, LIMIT), 0);
        // Time without anything to flush gives no right to flush many later.
        let young = 10 * LIMIT - LIMIT / 2 - 10;
        assert_eq!(rate.due([young; 50].into_iter(), 10 * LIMIT, LIMIT), 0);
    }
}
