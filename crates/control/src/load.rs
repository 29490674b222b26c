//! Finds overloaded tablets, and the token that divides their load.
//!
//! Always true: a tablet counts as overloaded when every measurement of a whole window was over the threshold. It is
//! divided only where its requests were sampled, and not at all while most of them are for one partition, which no
//! split divides. The state of a tablet is forgotten when it is no longer led here.
//! Left out: clocks, and the source of the numbers (`growth`).

use crate::tokens::Tokens;
use diorite_base::TabletId;
use std::collections::{BTreeMap, VecDeque};

/// How long a tablet has to be over the threshold: short peaks are not worth a split.
const WINDOW_NS: u64 = 30_000_000_000;
/// With a longer gap between two measurements, the window begins anew.
const LONGEST_GAP_NS: u64 = WINDOW_NS / 3;
/// The most tokens kept for one tablet; newer ones replace older ones.
const MOST_TOKENS: usize = 1_024;
/// Fewer tokens are not enough for a decision.
const LEAST_TOKENS: usize = 16;

/// A measurement of a tablet.
pub struct Look<F> {
    /// The tablet.
    pub tablet: TabletId,
    /// Operations since its replica was opened.
    pub operations: u64,
    /// Tokens of a sample of its requests since the last measurement.
    pub tokens: F,
}

#[derive(Default)]
struct Watched {
    looked_ns: u64,
    operations: u64,
    /// The rate between the last two measurements.
    operations_per_second: u64,
    /// Since when the rate is over the threshold.
    over_since_ns: Option<u64>,
    /// Tokens of requests since then.
    tokens: VecDeque<i64>,
    /// Whether it was reported that the tablet cannot be divided.
    was_told: bool,
}

impl Watched {
    fn reset(&mut self) {
        self.over_since_ns = None;
        self.tokens = VecDeque::new();
        self.was_told = false;
    }
}

/// Where to split a tablet to divide its load.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Division {
    /// Before this token: about half of the load is on either side.
    At(i64),
    /// Nowhere: this token has most of the load.
    OneToken(i64),
    /// Not known yet.
    Unknown,
}

/// The load of the tablets that are led here.
#[derive(Default)]
pub struct Loads {
    watched: BTreeMap<TabletId, Watched>,
}

impl Loads {
    /// Records a measurement of all tablets that are led here, every few seconds; forgets all others. With a threshold
    /// of 0 nothing is kept.
    pub fn look<F: FnOnce() -> Vec<i64>>(&mut self, now_ns: u64, threshold: u64, looks: impl Iterator<Item = Look<F>>) {
        let before = std::mem::take(&mut self.watched);
        if threshold != 0 {
            self.watched = Self::after(before, now_ns, threshold, looks);
        }
    }

    fn after<F: FnOnce() -> Vec<i64>>(
        mut before: BTreeMap<TabletId, Watched>,
        now_ns: u64,
        threshold: u64,
        looks: impl Iterator<Item = Look<F>>,
    ) -> BTreeMap<TabletId, Watched> {
        let mut watched = BTreeMap::new();
        for Look { tablet, operations, tokens } in looks {
            let known = before.remove(&tablet);
            let mut now = known.unwrap_or(Watched { looked_ns: now_ns, operations, ..Watched::default() });
            let gap_ns = now_ns.saturating_sub(now.looked_ns);
            // A replica that was opened again counts from zero.
            let done = u128::from(operations.saturating_sub(now.operations)) * 1_000_000_000;
            let rate = done.checked_div(u128::from(gap_ns)).unwrap_or(0);
            now.operations_per_second = u64::try_from(rate).unwrap_or(u64::MAX);
            if gap_ns > LONGEST_GAP_NS || now.operations_per_second <= threshold {
                now.reset();
            } else {
                let seen = tokens();
                // Tokens from before the first measurement over the threshold may be old.
                if now.over_since_ns.is_some() {
                    now.tokens.extend(seen);
                    let too_many = now.tokens.len().saturating_sub(MOST_TOKENS);
                    now.tokens.drain(..too_many);
                }
                now.over_since_ns.get_or_insert(now.looked_ns);
            }
            (now.looked_ns, now.operations) = (now_ns, operations);
            watched.insert(tablet, now);
        }
        watched
    }

    /// The tablets that were over the threshold for the whole window, at the last measurement, most loaded first.
    pub fn overloaded(&self) -> Vec<TabletId> {
        let is_due = |watched: &Watched| {
            watched.over_since_ns.is_some_and(|since_ns| watched.looked_ns.saturating_sub(since_ns) >= WINDOW_NS)
        };
        let due = self.watched.iter().filter(|(_, watched)| is_due(watched));
        let mut due: Vec<_> = due.map(|(tablet, watched)| (watched.operations_per_second, *tablet)).collect();
        due.sort_unstable_by_key(|(rate, tablet)| (std::cmp::Reverse(*rate), *tablet));
        due.into_iter().map(|(_, tablet)| tablet).collect()
    }

    /// Where to split an overloaded tablet.
    pub fn divide(&self, tablet: TabletId, within: Tokens) -> Division {
        let Some(watched) = self.watched.get(&tablet) else { return Division::Unknown };
        divide(watched.tokens.iter().copied().filter(|token| within.contain(*token)).collect())
    }

    /// The operations per second of a tablet that cannot be divided, if that is to be reported now: once for each
    /// overload.
    pub fn tell(&mut self, tablet: TabletId) -> Option<u64> {
        let watched = self.watched.get_mut(&tablet).filter(|watched| !watched.was_told)?;
        watched.was_told = true;
        Some(watched.operations_per_second)
    }
}

/// The token that halves these best, unless one token has more than three quarters of them.
fn divide(mut tokens: Vec<i64>) -> Division {
    if tokens.len() < LEAST_TOKENS {
        return Division::Unknown;
    }
    tokens.sort_unstable();
    let median = tokens[tokens.len() / 2];
    let before = tokens.partition_point(|token| *token < median);
    let until = tokens.partition_point(|token| *token <= median);
    if (until - before) * 4 > tokens.len() * 3 {
        return Division::OneToken(median);
    }
    // A split is before a token: before the median, or before the next token after it.
    let lesser = |at: usize| at.min(tokens.len() - at);
    let best = if lesser(before) >= lesser(until) { before } else { until };
    Division::At(tokens[best])
}

#[cfg(test)]
mod tests {
    use super::*;

    const SECOND_NS: u64 = 1_000_000_000;
    const ALL: Tokens = Tokens { first: i64::MIN, next: None };

    /// Measures, every two seconds, tablets with constant rates.
    struct World {
        loads: Loads,
        now_ns: u64,
        done: BTreeMap<u64, u64>,
    }

    impl World {
        fn new() -> Self {
            Self { loads: Loads::default(), now_ns: SECOND_NS, done: BTreeMap::new() }
        }

        fn look(&mut self, seconds: u64, threshold: u64, rates: &[(u64, u64)]) {
            self.now_ns += seconds * SECOND_NS;
            for (tablet, rate) in rates {
                *self.done.entry(*tablet).or_default() += rate * seconds;
            }
            let looks = rates.iter().map(|(tablet, _)| Look {
                tablet: TabletId(*tablet),
                operations: self.done[tablet],
                tokens: || vec![1, 2, 3, 4],
            });
            self.loads.look(self.now_ns, threshold, looks);
        }

        fn looks(&mut self, rounds: u32, rates: &[(u64, u64)]) -> Vec<u64> {
            (0..rounds).for_each(|_| self.look(2, 100, rates));
            self.loads.overloaded().into_iter().map(|tablet| tablet.0).collect()
        }
    }

    #[test]
    fn a_tablet_over_the_threshold_for_the_whole_window_is_overloaded() {
        let mut world = World::new();
        let rates = [(1, 101), (2, 100), (3, 500)];
        assert_eq!(world.looks(15, &rates), [0; 0], "28 s after the first look");
        assert_eq!(world.looks(1, &rates), [3, 1], "30 s after it, the busiest first");
        assert_eq!(world.loads.divide(TabletId(3), ALL), Division::At(3));
        assert_eq!(world.loads.divide(TabletId(3), Tokens { first: 5, next: None }), Division::Unknown);
        assert_eq!(world.loads.divide(TabletId(2), ALL), Division::Unknown);
    }

    #[test]
    fn one_look_under_it_begins_the_window_anew() {
        let mut world = World::new();
        world.looks(15, &[(1, 200)]);
        assert_eq!(world.looks(1, &[(1, 10)]), [0; 0]);
        assert_eq!(world.looks(14, &[(1, 200)]), [0; 0]);
        assert_eq!(world.looks(1, &[(1, 200)]), [1]);
    }

    #[test]
    fn what_is_no_longer_led_or_looked_at_too_late_is_forgotten() {
        let mut world = World::new();
        assert_eq!(world.looks(16, &[(1, 200), (2, 200)]), [1, 2]);
        assert_eq!(world.looks(1, &[(2, 200)]), [2]);
        assert_eq!(world.looks(1, &[(1, 200), (2, 200)]), [2]);
        world.look(11, 100, &[(1, 200), (2, 200)]);
        assert_eq!(world.loads.overloaded(), []);
        world.look(2, 0, &[(1, 200), (2, 200)]);
        assert!(world.loads.watched.is_empty(), "nobody wants to know");
    }

    #[test]
    fn a_replica_that_was_opened_again_is_looked_at_anew() {
        let mut world = World::new();
        assert_eq!(world.looks(16, &[(1, 200)]), [1]);
        world.done.clear();
        assert_eq!(world.looks(1, &[(1, 200)]), [0; 0]);
    }

    #[test]
    fn tokens_are_bounded_and_the_newest() {
        let mut world = World::new();
        world.looks(1_000, &[(1, 200)]);
        assert_eq!(world.loads.watched[&TabletId(1)].tokens.len(), MOST_TOKENS);
    }

    #[test]
    fn an_undivided_tablet_is_told_of_once() {
        let mut world = World::new();
        world.looks(16, &[(1, 200)]);
        assert_eq!(world.loads.tell(TabletId(1)), Some(200));
        assert_eq!(world.loads.tell(TabletId(1)), None);
        world.looks(1, &[(1, 10)]);
        world.looks(16, &[(1, 200)]);
        assert_eq!(world.loads.tell(TabletId(1)), Some(200));
    }

    #[test]
    fn an_even_load_is_halved() {
        assert_eq!(divide((0..100).rev().collect()), Division::At(50));
        assert_eq!(divide((0..15).collect()), Division::Unknown, "too few");
    }

    #[test]
    fn a_lopsided_load_is_halved_where_it_is() {
        let mut tokens: Vec<i64> = (0..90).map(|n| 1_000_000 + n).collect();
        tokens.extend((0..10).map(|n| -5_000 * n));
        assert_eq!(divide(tokens), Division::At(1_000_040));
    }

    #[test]
    fn a_hot_partition_is_divided_from_the_others_only_while_they_count() {
        let with_hot = |hot: usize, before: i64, after: i64| {
            let mut tokens = vec![500; hot];
            tokens.extend((0..before).chain((0..after).map(|n| 501 + n)));
            divide(tokens)
        };
        assert_eq!(with_hot(100, 0, 0), Division::OneToken(500));
        assert_eq!(with_hot(76, 12, 12), Division::OneToken(500));
        assert_eq!(with_hot(70, 20, 10), Division::At(500), "those before on one side");
        assert_eq!(with_hot(70, 10, 20), Division::At(501), "those after on one side");
        assert_eq!(with_hot(70, 0, 30), Division::At(501), "never before the first");
        assert_eq!(with_hot(70, 30, 0), Division::At(500));
    }
}
