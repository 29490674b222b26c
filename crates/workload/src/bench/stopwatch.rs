//! The times of a benchmark: since its first phase began, and by the calendar.

use std::path::PathBuf;

use diorite_base::clock::{Clock, SystemClock};

/// Time since the first phase began.
#[derive(Debug, Clone, Default)]
pub struct Stopwatch {
    // Its monotonic time starts when it is made.
    clock: SystemClock,
}

impl Stopwatch {
    /// Microseconds since 1970.
    pub fn wall_us(&self) -> i64 {
        self.clock.wall_us()
    }

    /// Seconds.
    pub fn elapsed_s(&self) -> f64 {
        self.clock.monotonic_ns() as f64 / 1e9
    }
}

/// `bench-results/<date-time>`, in UTC.
pub fn default_report_directory() -> PathBuf {
    let stamp = date_time(SystemClock::new().wall_us());
    PathBuf::from("bench-results").join(stamp.replace(':', "").replace(' ', "-"))
}

/// `2026-11-21 01:02:03` for microseconds since 1970.
pub fn date_time(wall_us: i64) -> String {
    let seconds = wall_us.div_euclid(1_000_000);
    let (days, second) = (seconds.div_euclid(86_400), seconds.rem_euclid(86_400));
    // Howard Hinnant's algorithm: years begin in March, so that the leap day comes last.
    let shifted = days + 719_468;
    let era = shifted.div_euclid(146_097);
    let day_of_era = shifted.rem_euclid(146_097);
    let year_of_era = (day_of_era - day_of_era / 1_460 + day_of_era / 36_524 - day_of_era / 146_096) / 365;
    let day_of_year = day_of_era - (365 * year_of_era + year_of_era / 4 - year_of_era / 100);
    let month_from_march = (5 * day_of_year + 2) / 153;
    let day = day_of_year - (153 * month_from_march + 2) / 5 + 1;
    let month = if month_from_march < 10 { month_from_march + 3 } else { month_from_march - 9 };
    let year = year_of_era + era * 400 + i64::from(month <= 2);
    format!("{year:04}-{month:02}-{day:02} {:02}:{:02}:{:02}", second / 3_600, second / 60 % 60, second % 60)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn dates_are_civil() {
        assert_eq!(date_time(0), "1970-01-01 00:00:00");
        assert_eq!(date_time(951_782_399_000_000), "2000-02-28 23:59:59");
        assert_eq!(date_time(951_827_696_000_000), "2000-02-29 12:34:56");
        assert_eq!(date_time(1_795_222_923_000_000), "2026-11-21 01:02:03");
    }
}
