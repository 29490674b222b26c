//! Text forms of `timestamp`, `date`, `time` and `duration`, both ways.
//!
//! Always true: proleptic Gregorian calendar, UTC where the text names no zone. Left out: `'now'` as a timestamp (nothing here reads a
//! clock) and zone names other than UTC and GMT. Not `chrono` or `time`: the years of a CQL date go further than theirs.

use super::span::Span;
use super::validate::DAY_NS;

/// Days from 1970-01-01 to a civil date (H. Hinnant's algorithm).
pub(super) fn days_from_civil(year: i64, month: i64, day: i64) -> i64 {
    let year = if month <= 2 { year - 1 } else { year };
    let era = year.div_euclid(400);
    let year_of_era = year.rem_euclid(400);
    let day_of_year = (153 * ((month + 9) % 12) + 2) / 5 + day - 1;
    era * 146_097 + year_of_era * 365 + year_of_era / 4 - year_of_era / 100 + day_of_year - 719_468
}

/// A day of the calendar.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct CivilDate {
    pub year: i64,
    pub month: i64,
    pub day: i64,
}

/// The date that is a number of days from 1970-01-01.
pub(super) fn civil_from_days(days: i64) -> CivilDate {
    let days = days + 719_468;
    let era = days.div_euclid(146_097);
    let day_of_era = days.rem_euclid(146_097);
    let year_of_era = (day_of_era - day_of_era / 1_460 + day_of_era / 36_524 - day_of_era / 146_096) / 365;
    let day_of_year = day_of_era - (365 * year_of_era + year_of_era / 4 - year_of_era / 100);
    let shifted_month = (5 * day_of_year + 2) / 153;
    let month = (shifted_month + 2) % 12 + 1;
    let year = era * 400 + year_of_era + i64::from(month <= 2);
    CivilDate { year, month, day: day_of_year - (153 * shifted_month + 2) / 5 + 1 }
}

/// A cursor over the characters of a text.
struct Scanner<'a> {
    rest: &'a str,
}

impl<'a> Scanner<'a> {
    fn eat(&mut self, wanted: char) -> Option<()> {
        self.rest = self.rest.strip_prefix(wanted)?;
        Some(())
    }

    /// Between `least` and `most` digits.
    fn digits(&mut self, least: usize, most: usize) -> Option<&'a str> {
        let length = self.rest.bytes().take(most).take_while(u8::is_ascii_digit).count();
        let (digits, rest) = self.rest.split_at(length);
        self.rest = rest;
        (length >= least).then_some(digits)
    }

    fn number(&mut self, least: usize, most: usize) -> Option<i64> {
        self.digits(least, most)?.parse().ok()
    }

    fn date(&mut self) -> Option<i64> {
        let negative = self.eat('-').is_some();
        let year = self.number(1, 9)?;
        self.eat('-')?;
        let month = self.number(1, 2)?;
        self.eat('-')?;
        let day = self.number(1, 2)?;
        let date = CivilDate { year: if negative { -year } else { year }, month, day };
        let days = days_from_civil(date.year, month, day);
        // A day that the month does not have comes back as another date.
        (civil_from_days(days) == date).then_some(days)
    }

    /// A fraction of a second in nanoseconds, after the point.
    fn fraction_ns(&mut self) -> Option<i64> {
        let digits = self.digits(1, 9)?;
        Some(digits.parse::<i64>().ok()? * 10i64.pow(9 - digits.len() as u32))
    }

    /// `hh:mm[:ss[.fraction]]` in nanoseconds.
    fn time(&mut self, seconds_required: bool) -> Option<i64> {
        let hour = self.number(1, 2)?;
        self.eat(':')?;
        let minute = self.number(1, 2)?;
        let (mut second, mut fraction) = (0, 0);
        if self.eat(':').is_some() {
            second = self.number(1, 2)?;
            if self.eat('.').is_some() {
                fraction = self.fraction_ns()?;
            }
        } else if seconds_required {
            return None;
        }
        (hour < 24 && minute < 60 && second < 60)
            .then_some(((hour * 60 + minute) * 60 + second) * 1_000_000_000 + fraction)
    }

    /// The offset from UTC in minutes: nothing, `Z`, `UTC`, `GMT`, `+hh`, `+hhmm`, `+hh:mm`, perhaps after a space.
    fn zone(&mut self) -> Option<i64> {
        let rest = std::mem::take(&mut self.rest).trim_start_matches(' ');
        if rest.is_empty() || ["Z", "UTC", "GMT"].iter().any(|name| rest.eq_ignore_ascii_case(name)) {
            return Some(0);
        }
        let mut offset = Scanner { rest: rest.get(1..)? };
        let sign = match rest.as_bytes()[0] {
            b'+' => 1,
            b'-' => -1,
            _ => return None,
        };
        let hours = offset.number(2, 2)?;
        let _ = offset.eat(':');
        let minutes = if offset.rest.is_empty() { 0 } else { offset.number(2, 2)? };
        (offset.rest.is_empty() && hours <= 18 && minutes < 60).then_some(sign * (hours * 60 + minutes))
    }
}

/// Milliseconds since the epoch: a whole number, or a date with an optional time and zone.
pub(super) fn parse_timestamp(text: &str) -> Option<i64> {
    let digits = text.strip_prefix('-').unwrap_or(text);
    if !digits.is_empty() && digits.bytes().all(|byte| byte.is_ascii_digit()) {
        return text.parse().ok();
    }
    let mut scanner = Scanner { rest: text };
    let days = scanner.date()?;
    let mut time_ns = 0;
    if scanner.rest.strip_prefix(['T', ' ']).is_some_and(|rest| rest.starts_with(|next: char| next.is_ascii_digit())) {
        scanner.rest = &scanner.rest[1..];
        time_ns = scanner.time(false)?;
    }
    let offset_minutes = scanner.zone()?;
    days.checked_mul(86_400_000)?.checked_add(time_ns / 1_000_000 - offset_minutes * 60_000)
}

/// The wire number of a date: days with 2^31 as 1970-01-01. A whole number is taken as it is.
pub(super) fn parse_date(text: &str) -> Option<u32> {
    if !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit()) {
        return text.parse().ok();
    }
    let mut scanner = Scanner { rest: text };
    let days = scanner.date()?;
    if scanner.rest.is_empty() { u32::try_from(days + (1 << 31)).ok() } else { None }
}

/// Nanoseconds since midnight: a whole number or `hh:mm:ss[.fraction]`.
pub(super) fn parse_time(text: &str) -> Option<i64> {
    if !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit()) {
        return text.parse().ok().filter(|time| *time < DAY_NS);
    }
    let mut scanner = Scanner { rest: text };
    let time = scanner.time(true)?;
    scanner.rest.is_empty().then_some(time)
}

const SECOND_NS: i64 = 1_000_000_000;

/// A unit of durations, and its length.
#[derive(Clone, Copy)]
struct Unit {
    name: &'static str,
    months: i64,
    days: i64,
    nanoseconds: i64,
}

impl Unit {
    const fn of_months(name: &'static str, months: i64) -> Self {
        Self { name, months, days: 0, nanoseconds: 0 }
    }

    const fn of_days(name: &'static str, days: i64) -> Self {
        Self { name, months: 0, days, nanoseconds: 0 }
    }

    const fn of_ns(name: &'static str, nanoseconds: i64) -> Self {
        Self { name, months: 0, days: 0, nanoseconds }
    }
}

/// Units of the CQL form, greatest first.
const UNITS: [Unit; 10] = [
    Unit::of_months("y", 12),
    Unit::of_months("mo", 1),
    Unit::of_days("w", 7),
    Unit::of_days("d", 1),
    Unit::of_ns("h", 3_600 * SECOND_NS),
    Unit::of_ns("m", 60 * SECOND_NS),
    Unit::of_ns("s", SECOND_NS),
    Unit::of_ns("ms", 1_000_000),
    Unit::of_ns("us", 1_000),
    Unit::of_ns("ns", 1),
];

/// Sums up parts of a duration; each part refuses what does not fit.
#[derive(Default)]
struct DurationSum {
    months: i64,
    days: i64,
    nanoseconds: i64,
}

impl DurationSum {
    fn add(&mut self, count: i64, unit: Unit) -> Option<()> {
        self.months = self.months.checked_add(count.checked_mul(unit.months)?)?;
        self.days = self.days.checked_add(count.checked_mul(unit.days)?)?;
        self.nanoseconds = self.nanoseconds.checked_add(count.checked_mul(unit.nanoseconds)?)?;
        Some(())
    }

    fn finish(self, negative: bool) -> Option<Span> {
        let sign = if negative { -1 } else { 1 };
        Some(Span {
            months: i32::try_from(sign * self.months).ok()?,
            days: i32::try_from(sign * self.days).ok()?,
            nanoseconds: sign * self.nanoseconds,
        })
    }
}

/// `1y2mo3w4d5h6m7s8ms9us10ns` (in this order, any left out), `P1Y2M3DT4H5M6S`, `P4W`, `P0001-02-03T04:05:06`; each perhaps after a minus.
pub(super) fn parse_duration(text: &str) -> Option<Span> {
    let (negative, text) = match text.strip_prefix('-') {
        Some(rest) => (true, rest),
        None => (false, text),
    };
    let sum = match text.strip_prefix('P') {
        None => parse_units(text, &UNITS.map(|unit| (unit.name, unit)))?,
        Some(iso) if iso.as_bytes().get(4) == Some(&b'-') => parse_alternative(iso)?,
        Some(iso) => {
            let (date, time) = iso.split_once('T').unwrap_or((iso, ""));
            if iso.ends_with('T') || iso.is_empty() {
                return None;
            }
            let dates = [("y", UNITS[0]), ("m", UNITS[1]), ("w", UNITS[2]), ("d", UNITS[3])];
            let times = [("h", UNITS[4]), ("m", UNITS[5]), ("s", UNITS[6])];
            let mut sum = if date.is_empty() { DurationSum::default() } else { parse_units(date, &dates)? };
            if !time.is_empty() {
                sum.nanoseconds = parse_units(time, &times)?.nanoseconds;
            }
            sum
        }
    };
    sum.finish(negative)
}

/// `number unit` again and again, each unit (under the name given with it) at most once, greater ones first.
fn parse_units(text: &str, units: &[(&str, Unit)]) -> Option<DurationSum> {
    let text = text.to_lowercase().replace("µs", "us").replace("μs", "us");
    let (mut sum, mut allowed) = (DurationSum::default(), units);
    let mut scanner = Scanner { rest: &text };
    if text.is_empty() {
        return None;
    }
    while !scanner.rest.is_empty() {
        let count = scanner.number(1, 19)?;
        let length = scanner.rest.bytes().take_while(|byte| !byte.is_ascii_digit()).count();
        let (name, rest) = scanner.rest.split_at(length);
        let at = allowed.iter().position(|(unit, _)| *unit == name)?;
        sum.add(count, allowed[at].1)?;
        allowed = &allowed[at + 1..];
        scanner.rest = rest;
    }
    Some(sum)
}

/// `yyyy-mm-ddThh:mm:ss` as amounts.
fn parse_alternative(text: &str) -> Option<DurationSum> {
    let mut scanner = Scanner { rest: text };
    let mut sum = DurationSum::default();
    for (unit, width, before) in
        [(0, 4, None), (1, 2, Some('-')), (3, 2, Some('-')), (4, 2, Some('T')), (5, 2, Some(':')), (6, 2, Some(':'))]
    {
        before.map_or(Some(()), |separator| scanner.eat(separator))?;
        sum.add(scanner.number(width, width)?, UNITS[unit])?;
    }
    scanner.rest.is_empty().then_some(sum)
}

/// `1y2mo3d4h5m6s7ms8us9ns`; nothing at all is `0ns`.
pub(super) fn format_duration(span: Span, out: &mut String) {
    let start = out.len();
    if span.is_negative() {
        out.push('-');
    }
    let sign = out.len();
    let (mut months, days, mut nanoseconds) =
        (u64::from(span.months.unsigned_abs()), u64::from(span.days.unsigned_abs()), span.nanoseconds.unsigned_abs());
    for unit in UNITS {
        let name = unit.name;
        let count = match (unit.months as u64, unit.days, unit.nanoseconds as u64) {
            (0, 1, _) => days,
            (0, 0, unit) => {
                let count = nanoseconds / unit;
                nanoseconds %= unit;
                count
            }
            (unit, 0, _) => {
                let count = months / unit;
                months %= unit;
                count
            }
            _ => 0,
        };
        if count > 0 {
            out.push_str(&format!("{count}{name}"));
        }
    }
    if out.len() == sign {
        out.truncate(start);
        out.push_str("0ns");
    }
}

/// `2011-02-03`
pub(super) fn format_days(days: i64, out: &mut String) {
    let CivilDate { year, month, day } = civil_from_days(days);
    let sign = if year < 0 { "-" } else { "" };
    out.push_str(&format!("{sign}{:04}-{month:02}-{day:02}", year.abs()));
}

/// `2011-02-03 04:05:06.789+0000`
pub(super) fn format_timestamp(milliseconds: i64, out: &mut String) {
    format_days(milliseconds.div_euclid(86_400_000), out);
    let of_day = milliseconds.rem_euclid(86_400_000);
    let (hour, minute, second) = (of_day / 3_600_000, of_day / 60_000 % 60, of_day / 1_000 % 60);
    out.push_str(&format!(" {hour:02}:{minute:02}:{second:02}.{:03}+0000", of_day % 1_000));
}

/// `04:05:06.000000789`
pub(super) fn format_time(nanoseconds: i64, out: &mut String) {
    let seconds = nanoseconds / SECOND_NS;
    let (hour, minute, second) = (seconds / 3_600, seconds / 60 % 60, seconds % 60);
    out.push_str(&format!("{hour:02}:{minute:02}:{second:02}.{:09}", nanoseconds % SECOND_NS));
}
