//! Metrics of frequent events: counters and latency histograms that many threads write and few threads read.
//!
//! Always true: writing takes no lock, allocates nothing and touches memory that (nearly) no other thread writes,
//! because every thread has a share of its own. A reader gets the sum of the shares, each as of some moment during the
//! reading. Histograms have fixed buckets, eight for each power of two microseconds, so that a quantile is off by an
//! eighth at most. Left out: names, units and how metrics are shown.
//!
//! Not a crate for metrics, whose counters are cells that all threads share (`docs/decisions/2026-11-21-per-thread-metrics.md`).

use std::array;
use std::cell::Cell;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};

/// Shares of a counter. Threads beyond this number share one.
const SHARES: usize = 32;
/// Buckets for each power of two.
const STEPS: u64 = 8;
/// The last power of two microseconds that has buckets: 2^27 µs are 134 s.
const LAST_POWER: u32 = 27;
/// Values below [`STEPS`] microseconds have a bucket each; then there are [`STEPS`] for each power of two.
const BUCKETS: usize = (STEPS * (LAST_POWER as u64 - 1)) as usize;

thread_local! {
    static SHARE: Cell<usize> = const { Cell::new(usize::MAX) };
}

/// The share of the calling thread.
#[inline]
fn share() -> usize {
    static NEXT: AtomicUsize = AtomicUsize::new(0);
    SHARE.with(|share| {
        if share.get() == usize::MAX {
            share.set(NEXT.fetch_add(1, Ordering::Relaxed) % SHARES);
        }
        share.get()
    })
}

/// Keeps its content off the cache lines of its neighbours: two lines, as processors fetch pairs of them.
#[derive(Debug, Default)]
#[repr(align(128))]
struct Apart<T>(T);

/// A number that only grows.
#[derive(Debug)]
pub struct Counter {
    shares: Box<[Apart<AtomicU64>]>,
}

impl Default for Counter {
    fn default() -> Self {
        Self::with_shares(SHARES)
    }
}

impl Counter {
    /// A counter with this many shares (at least one), of two cache lines each.
    pub fn with_shares(shares: usize) -> Self {
        Self { shares: (0..shares.max(1)).map(|_| Apart::default()).collect() }
    }

    /// Adds `count`.
    #[inline]
    pub fn add(&self, count: u64) {
        self.shares[share() % self.shares.len()].0.fetch_add(count, Ordering::Relaxed);
    }

    /// The sum so far.
    pub fn get(&self) -> u64 {
        self.shares.iter().map(|share| share.0.load(Ordering::Relaxed)).sum()
    }
}

#[derive(Debug)]
struct Buckets {
    counts: [AtomicU64; BUCKETS],
    sum_ns: AtomicU64,
}

impl Default for Buckets {
    fn default() -> Self {
        Self { counts: array::from_fn(|_| AtomicU64::new(0)), sum_ns: AtomicU64::new(0) }
    }
}

/// A histogram of durations.
#[derive(Debug)]
pub struct Histogram {
    shares: Box<[Apart<Buckets>]>,
}

impl Default for Histogram {
    fn default() -> Self {
        Self::with_shares(SHARES)
    }
}

impl Histogram {
    /// A histogram with this many shares (at least one), of two kilobytes each. Few shares suffice where few threads
    /// write.
    pub fn with_shares(shares: usize) -> Self {
        Self { shares: (0..shares.max(1)).map(|_| Apart::default()).collect() }
    }

    /// Records a duration.
    #[inline]
    pub fn record(&self, elapsed_ns: u64) {
        self.record_many(elapsed_ns, 1);
    }

    /// Records a duration `count` times.
    #[inline]
    pub fn record_many(&self, elapsed_ns: u64, count: u64) {
        let buckets = &self.shares[share() % self.shares.len()].0;
        buckets.counts[bucket_of(elapsed_ns / 1_000)].fetch_add(count, Ordering::Relaxed);
        buckets.sum_ns.fetch_add(elapsed_ns.saturating_mul(count), Ordering::Relaxed);
    }

    /// The durations recorded so far.
    pub fn snapshot(&self) -> Distribution {
        let mut distribution = Distribution::default();
        for share in &self.shares {
            for (count, of_share) in distribution.counts.iter_mut().zip(&share.0.counts) {
                *count += of_share.load(Ordering::Relaxed);
            }
            distribution.sum_ns = distribution.sum_ns.wrapping_add(share.0.sum_ns.load(Ordering::Relaxed));
        }
        distribution
    }
}

fn bucket_of(us: u64) -> usize {
    if us < STEPS {
        return us as usize;
    }
    let power = 63 - us.leading_zeros();
    let step = (us >> (power - 3)) % STEPS;
    (u64::from(power - 2) * STEPS + step).min(BUCKETS as u64 - 1) as usize
}

/// The upper bound of a bucket, microseconds; the next one begins there.
fn end_of(bucket: usize) -> u64 {
    let bucket = bucket as u64;
    if bucket < STEPS {
        return bucket + 1;
    }
    (STEPS + bucket % STEPS + 1) << (bucket / STEPS - 1)
}

/// The content of a [`Histogram`] at one moment, or its growth between two moments.
#[derive(Debug, Clone)]
pub struct Distribution {
    counts: Box<[u64; BUCKETS]>,
    sum_ns: u64,
}

impl Default for Distribution {
    fn default() -> Self {
        Self { counts: Box::new([0; BUCKETS]), sum_ns: 0 }
    }
}

impl Distribution {
    /// The number of durations.
    pub fn count(&self) -> u64 {
        self.counts.iter().sum()
    }

    /// The sum of the durations, seconds.
    pub fn sum_seconds(&self) -> f64 {
        self.sum_ns as f64 / 1e9
    }

    /// The mean duration, seconds; `None` if there is no duration.
    pub fn mean_seconds(&self) -> Option<f64> {
        match self.count() {
            0 => None,
            count => Some(self.sum_seconds() / count as f64),
        }
    }

    /// The quantile (0 to 1) of the durations, seconds; `None` if there is no duration.
    pub fn quantile_seconds(&self, quantile: f64) -> Option<f64> {
        let count = self.count();
        if count == 0 {
            return None;
        }
        let wanted = (quantile.clamp(0.0, 1.0) * count as f64).max(1.0);
        let mut before = 0u64;
        for (bucket, in_bucket) in self.counts.iter().enumerate().filter(|(_, count)| **count > 0) {
            if (before + in_bucket) as f64 >= wanted {
                let start_us = if bucket == 0 { 0 } else { end_of(bucket - 1) };
                let width_us = (end_of(bucket) - start_us) as f64;
                let share = (wanted - before as f64) / *in_bucket as f64;
                return Some((start_us as f64 + share * width_us) / 1e6);
            }
            before += in_bucket;
        }
        None
    }

    /// An upper bound for the longest duration, seconds.
    pub fn longest_seconds(&self) -> Option<f64> {
        let last = self.counts.iter().rposition(|count| *count > 0)?;
        Some(end_of(last) as f64 / 1e6)
    }

    /// The number of durations in each power of two from `2^first` to `2^last` microseconds: upper bound in seconds,
    /// and count. Longer durations come last, without a bound.
    pub fn by_powers(&self, first: u32, last: u32) -> Vec<(Option<f64>, u64)> {
        let bounds = (first..=last.min(LAST_POWER)).map(|power| 1u64 << power);
        let mut powers: Vec<(Option<u64>, u64)> = bounds.map(|bound| (Some(bound), 0)).chain([(None, 0)]).collect();
        for (bucket, count) in self.counts.iter().enumerate().filter(|(_, count)| **count > 0) {
            let end_us = end_of(bucket);
            if let Some((_, sum)) = powers.iter_mut().find(|(bound, _)| bound.is_none_or(|bound| end_us <= bound)) {
                *sum += count;
            }
        }
        powers.into_iter().map(|(bound, count)| (bound.map(|us| us as f64 / 1e6), count)).collect()
    }

    /// The growth since `earlier`.
    pub fn since(&self, earlier: &Self) -> Self {
        let mut since = self.clone();
        for (count, before) in since.counts.iter_mut().zip(earlier.counts.iter()) {
            *count = count.saturating_sub(*before);
        }
        since.sum_ns = since.sum_ns.wrapping_sub(earlier.sum_ns);
        since
    }

    /// Adds another distribution.
    pub fn add(&mut self, other: &Self) {
        for (count, more) in self.counts.iter_mut().zip(other.counts.iter()) {
            *count += more;
        }
        self.sum_ns = self.sum_ns.wrapping_add(other.sum_ns);
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "test data is known")]

    use super::*;
    use proptest::prelude::*;

    #[test]
    fn buckets_follow_one_another() {
        for us in [0, 1, 7, 8, 9, 15, 16, 17, 31, 32, 1_000, 123_456, 1 << 27, (1 << 28) - 1] {
            let bucket = bucket_of(us);
            assert!(us < end_of(bucket), "{us} is in bucket {bucket}, which ends at {}", end_of(bucket));
            assert!(bucket == 0 || us >= end_of(bucket - 1), "{us} is in bucket {bucket}");
        }
        assert_eq!(bucket_of(u64::MAX), BUCKETS - 1);
        assert!((1..BUCKETS).all(|bucket| end_of(bucket - 1) < end_of(bucket)));
    }

    #[test]
    fn nothing_has_no_quantile() {
        let empty = Histogram::default().snapshot();
        assert_eq!((empty.count(), empty.quantile_seconds(0.5), empty.mean_seconds()), (0, None, None));
        assert_eq!(empty.longest_seconds(), None);
    }

    #[test]
    fn quantiles_are_where_they_should_be() {
        let histogram = Histogram::with_shares(1);
        for us in 1..=10_000u64 {
            histogram.record(us * 1_000);
        }
        let all = histogram.snapshot();
        assert_eq!(all.count(), 10_000);
        for (quantile, wanted) in [(0.5, 5e-3), (0.99, 9.9e-3), (0.999, 9.99e-3)] {
            let found = all.quantile_seconds(quantile).unwrap();
            assert!((found / wanted - 1.0).abs() < 0.125, "{quantile}: {found} instead of {wanted}");
        }
        assert!((all.mean_seconds().unwrap() - 5.0005e-3).abs() < 1e-9);
    }

    #[test]
    fn a_difference_holds_what_came_between() {
        let histogram = Histogram::default();
        histogram.record_many(1_000_000, 5);
        let before = histogram.snapshot();
        histogram.record_many(64_000_000, 2);
        let since = histogram.snapshot().since(&before);
        assert_eq!((since.count(), since.sum_seconds()), (2, 0.128));
        assert!(since.quantile_seconds(0.01).unwrap() > 0.05);
    }

    #[test]
    fn powers_hold_everything_once() {
        let histogram = Histogram::default();
        for us in [1, 15, 16, 17, 1_023, 1_024, 5_000_000, 500_000_000] {
            histogram.record(us * 1_000);
        }
        let powers = histogram.snapshot().by_powers(4, 10);
        assert_eq!(powers.first(), Some(&(Some(16e-6), 2)));
        assert_eq!(powers.get(1), Some(&(Some(32e-6), 2)));
        assert_eq!(powers[6], (Some(1_024e-6), 1));
        assert_eq!(powers.last(), Some(&(None, 3)));
        assert_eq!(powers.iter().map(|(_, count)| count).sum::<u64>(), 8);
    }

    #[test]
    fn shares_of_threads_add_up() {
        let (counter, histogram) = (Counter::default(), Histogram::default());
        std::thread::scope(|scope| {
            for _ in 0..SHARES + 3 {
                scope.spawn(|| {
                    for _ in 0..1_000 {
                        counter.add(2);
                        histogram.record(5_000);
                    }
                });
            }
        });
        assert_eq!(counter.get(), 2_000 * (SHARES as u64 + 3));
        assert_eq!(histogram.snapshot().count(), 1_000 * (SHARES as u64 + 3));
    }

    proptest! {
        #[test]
        fn every_time_is_in_its_bucket(us in 0u64..1 << 28) {
            let bucket = bucket_of(us);
            prop_assert!(us < end_of(bucket) && (bucket == 0 || us >= end_of(bucket - 1)));
            // No bucket is wider than an eighth of its lower bound.
            prop_assert!(bucket < 8 || (end_of(bucket) - end_of(bucket - 1)) * 8 <= end_of(bucket - 1));
        }
    }
}
