//! Times of day, for pages and terminals.

/// `2026-11-21 23:10:05`, in UTC.
pub(crate) fn moment(unix_ms: i64) -> String {
    let seconds = unix_ms.div_euclid(1_000);
    let (days, of_day) = (seconds.div_euclid(86_400), seconds.rem_euclid(86_400));
    let (year, month, day) = date(days);
    let (hour, minute, second) = (of_day / 3_600, of_day / 60 % 60, of_day % 60);
    format!("{year:04}-{month:02}-{day:02} {hour:02}:{minute:02}:{second:02}")
}

/// The Gregorian date that is this many days after 1970-01-01. Years are counted from March, so that the leap day is
/// their last day, in eras of 400 years.
fn date(days: i64) -> (i64, i64, i64) {
    let shifted = days + 719_468;
    let (era, of_era) = (shifted.div_euclid(146_097), shifted.rem_euclid(146_097));
    let year_of_era = (of_era - of_era / 1_460 + of_era / 36_524 - of_era / 146_096) / 365;
    let of_year = of_era - (365 * year_of_era + year_of_era / 4 - year_of_era / 100);
    let shifted_month = (5 * of_year + 2) / 153;
    let day = of_year - (153 * shifted_month + 2) / 5 + 1;
    let month = if shifted_month < 10 { shifted_month + 3 } else { shifted_month - 9 };
    (era * 400 + year_of_era + i64::from(month <= 2), month, day)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn moments_are_of_the_gregorian_calendar() {
        assert_eq!(moment(0), "1970-01-01 00:00:00");
        assert_eq!(moment(-1), "1969-12-31 23:59:59");
        assert_eq!(moment(951_782_400_000), "2000-02-29 00:00:00");
        assert_eq!(moment(951_868_800_000), "2000-03-01 00:00:00");
        assert_eq!(moment(1_795_302_605_000), "2026-11-21 23:10:05");
    }
}
