//! Moments and durations: adding one to the other, and cutting moments down to a multiple of a duration.
//!
//! Always true: calendar months are months of the proleptic Gregorian calendar in UTC; a day that the month does not have becomes its last, as
//! in Cassandra; what does not fit gives `None`. Left out: text ([`super::literal`]).

pub use super::span::Span;
use super::temporal::{CivilDate, civil_from_days, days_from_civil};

const DAY_MS: i64 = 86_400_000;

/// A number of durations, in months, days and milliseconds.
#[derive(Clone, Copy)]
struct Steps {
    months: i64,
    days: i64,
    milliseconds: i64,
}

fn times(span: Span, count: i64) -> Option<Steps> {
    Some(Steps {
        months: i64::from(span.months).checked_mul(count)?,
        days: i64::from(span.days).checked_mul(count)?,
        milliseconds: (span.nanoseconds / 1_000_000).checked_mul(count)?,
    })
}

fn last_day(year: i64, month: i64) -> i64 {
    let (next_year, next_month) = if month == 12 { (year + 1, 1) } else { (year, month + 1) };
    days_from_civil(next_year, next_month, 1) - days_from_civil(year, month, 1)
}

fn add_steps(moment_ms: i64, steps: Steps) -> Option<i64> {
    let Steps { months, days, milliseconds } = steps;
    let (mut day, of_day) = (moment_ms.div_euclid(DAY_MS), moment_ms.rem_euclid(DAY_MS));
    if months != 0 {
        let CivilDate { year, month, day: day_of_month } = civil_from_days(day);
        let counted = year.checked_mul(12)?.checked_add(month - 1)?.checked_add(months)?;
        let (year, month) = (counted.div_euclid(12), counted.rem_euclid(12) + 1);
        if year.unsigned_abs() > 400_000_000 {
            return None;
        }
        day = days_from_civil(year, month, day_of_month.min(last_day(year, month)));
    }
    day.checked_add(days)?.checked_mul(DAY_MS)?.checked_add(of_day)?.checked_add(milliseconds)
}

/// A moment in milliseconds since the epoch, a duration later.
pub fn add(moment_ms: i64, span: Span) -> Option<i64> {
    add_steps(moment_ms, times(span, 1)?)
}

/// The latest moment that is `start_ms` and a whole number of durations, and not after `moment_ms`. `None` if there is none, or no progress.
pub fn floor(moment_ms: i64, span: Span, start_ms: i64) -> Option<i64> {
    if moment_ms < start_ms || span.is_negative() {
        return None;
    }
    let passed_ms = moment_ms.checked_sub(start_ms)?;
    let step_ms = i64::from(span.days) * DAY_MS + span.nanoseconds / 1_000_000;
    if span.months == 0 {
        return Some(if step_ms == 0 { moment_ms } else { moment_ms - passed_ms % step_ms });
    }
    // The number of durations is guessed by their mean length, then put right.
    let mean_ms = (f64::from(span.months) * 30.436_875 * DAY_MS as f64) + step_ms as f64;
    let mut count = (passed_ms as f64 / mean_ms) as i64;
    let at = |count: i64| add_steps(start_ms, times(span, count)?);
    while count > 0 && at(count)? > moment_ms {
        count -= 1;
    }
    while at(count + 1)? <= moment_ms {
        count += 1;
    }
    at(count)
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "test data is known")]
    use super::*;
    use proptest::prelude::*;

    fn ms(year: i64, month: i64, day: i64) -> i64 {
        days_from_civil(year, month, day) * DAY_MS
    }

    fn months(months: i32) -> Span {
        Span { months, days: 0, nanoseconds: 0 }
    }

    #[test]
    fn months_end_where_the_month_does() {
        assert_eq!(add(ms(2024, 1, 31), months(1)), Some(ms(2024, 2, 29)));
        assert_eq!(add(ms(2023, 12, 31), months(-10)), Some(ms(2023, 2, 28)));
        let span = Span { months: 1, days: 2, nanoseconds: 3_000_000 };
        assert_eq!(add(ms(2023, 12, 31), span), Some(ms(2024, 2, 2) + 3));
        assert_eq!(add(i64::MAX, months(12)), None);
    }

    #[test]
    fn floors_are_multiples_from_the_start() {
        assert_eq!(floor(ms(2024, 5, 17), months(3), 0), Some(ms(2024, 4, 1)));
        assert_eq!(floor(ms(2024, 5, 17), months(1), ms(2024, 1, 31)), Some(ms(2024, 4, 30)));
        let hour = Span { months: 0, days: 0, nanoseconds: 3_600_000_000_000 };
        assert_eq!(floor(ms(2024, 5, 17) + 5_400_000, hour, 0), Some(ms(2024, 5, 17) + 3_600_000));
        assert_eq!(floor(-1, hour, 0), None);
        // The distance is more milliseconds than an `i64` holds.
        assert_eq!(floor(i64::MAX, hour, i64::MIN), None);
        assert_eq!(floor(i64::MAX, months(1), -1_000_000), None);
    }

    proptest! {
        #[test]
        fn floors_are_not_after_and_less_than_one_step_before(
            moment in 0..4_000_000_000_000i64, n in 0..30i32, days in 0..40i32, hours in 0..30i64
        ) {
            let span = Span { months: n, days, nanoseconds: hours * 3_600_000_000_000 };
            let found = floor(moment, span, 0).unwrap();
            prop_assert!(found <= moment);
            if span != (Span { months: 0, days: 0, nanoseconds: 0 }) {
                prop_assert_eq!(floor(found, span, 0), Some(found));
            }
        }
    }
}
