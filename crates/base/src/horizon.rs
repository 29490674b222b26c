//! The horizon of a tablet: the time that its log has decided. It determines which values have expired and which
//! deletions may be purged.
//!
//! Always true: a horizon is a function of the log, so it is the same at every replica that has applied the same
//! entries; it only grows. A deletion is past the horizon only if both the second at which it was made and its
//! timestamp are, so that no write with a newer timestamp depends on whether it is still stored. Left out: how the log
//! moves the horizon (`replica::apply`), and its use (`model::entry`).

/// Three times, all in seconds since the epoch.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Horizon {
    /// The time of the newest entry: values with an expiry up to then have expired.
    pub now_s: u32,
    /// Deletions within rows that are older than this may have been purged.
    pub rows_s: u32,
    /// The same for deletions of partitions and ranges.
    pub ranges_s: u32,
}

impl Horizon {
    /// The later of both horizons, for each of the three times.
    pub fn max(self, other: Self) -> Self {
        Self {
            now_s: self.now_s.max(other.now_s),
            rows_s: self.rows_s.max(other.rows_s),
            ranges_s: self.ranges_s.max(other.ranges_s),
        }
    }

    /// The horizon moved back so that `now_s` is at most this second; all three times move by the same amount.
    pub fn no_later_than(self, now_s: u32) -> Self {
        let ahead_s = self.now_s.saturating_sub(now_s);
        Self {
            now_s: self.now_s - ahead_s,
            rows_s: self.rows_s.saturating_sub(ahead_s),
            ranges_s: self.ranges_s.saturating_sub(ahead_s),
        }
    }

    /// Whether a deletion within a row may have been purged.
    #[inline]
    pub fn is_past_in_row(self, timestamp_us: i64, local_s: u32) -> bool {
        is_past(self.rows_s, timestamp_us, local_s)
    }
}

/// Whether a deletion is older than `before_s` by both its times.
#[inline]
pub fn is_past(before_s: u32, timestamp_us: i64, local_s: u32) -> bool {
    local_s < before_s && timestamp_us < first_us(before_s)
}

/// The first microsecond of a second.
#[inline]
pub fn first_us(second: u32) -> i64 {
    i64::from(second) * 1_000_000
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_horizon_that_is_ahead_of_the_clock_is_as_of_the_clock() {
        let horizon = Horizon { now_s: 1_000, rows_s: 900, ranges_s: 5 };
        assert_eq!(horizon.no_later_than(1_000), horizon);
        assert_eq!(horizon.no_later_than(u32::MAX), horizon);
        assert_eq!(horizon.no_later_than(950), Horizon { now_s: 950, rows_s: 850, ranges_s: 0 });
    }
}
