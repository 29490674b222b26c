//! Reads and writes duration constants.
//!
//! Always true: the parts of a duration have one sign, greater units come first and none twice, and a text that would overflow a part is refused. What is left
//! out: finding where a duration ends in a text, which the lexer does.

use super::ast::Duration;
use super::lexer::unit_length;
use std::fmt;

const NANOSECONDS_PER_SECOND: i64 = 1_000_000_000;

/// The units in their order, as Cassandra's errors name them.
const UNITS: [(&str, &str); 10] = [
    ("y", "years"),
    ("mo", "months"),
    ("w", "weeks"),
    ("d", "days"),
    ("h", "hours"),
    ("m", "minutes"),
    ("s", "seconds"),
    ("ms", "milliseconds"),
    ("us", "microseconds"),
    ("ns", "nanoseconds"),
];

/// The errors of durations.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Wrong {
    /// A part is out of range.
    Range,
    /// Units stand in another order, or twice.
    Order(String),
}

/// Reads a duration whose text the lexer has accepted.
pub(crate) fn parse(text: &str, negative: bool) -> Result<Duration, Wrong> {
    if !text.starts_with('P') {
        check_order(text)?;
    }
    parse_magnitude(text, negative).ok_or(Wrong::Range)
}

/// Refuses units that do not stand in their order, in Cassandra's words.
fn check_order(mut text: &str) -> Result<(), Wrong> {
    let mut before: Option<usize> = None;
    while let Some((unit, rest)) =
        number(text).and_then(|(_, rest)| rest.split_at_checked(unit_length(rest.as_bytes())))
    {
        let name = unit.to_ascii_lowercase().replace('µ', "u");
        let Some(at) = UNITS.iter().position(|(unit, _)| *unit == name) else { break };
        match before {
            Some(before) if before == at => {
                return Err(Wrong::Order(format!(
                    "Invalid duration. The {} are specified multiple times",
                    UNITS[at].1
                )));
            }
            Some(before) if before > at => {
                let (before, at) = (UNITS[before].1, UNITS[at].1);
                return Err(Wrong::Order(format!("Invalid duration. The {before} should be after {at}")));
            }
            _ => before = Some(at),
        }
        text = rest;
    }
    Ok(())
}

fn parse_magnitude(text: &str, negative: bool) -> Option<Duration> {
    let magnitude = match text.strip_prefix('P') {
        Some(rest) if rest.contains(':') => parse_iso_alternative(rest)?,
        Some(rest) => parse_iso(rest)?,
        None => parse_units(text)?,
    };
    let Duration { months, days, nanoseconds } = magnitude;
    let sign = if negative { -1 } else { 1 };
    Some(Duration { months: sign * months, days: sign * days, nanoseconds: i64::from(sign) * nanoseconds })
}

/// Adds `count` of a unit, in lower case.
fn add(duration: &mut Duration, count: i64, unit: &str) -> Option<()> {
    let nanoseconds_per_unit = match unit {
        "y" | "mo" => {
            let months = count.checked_mul(if unit == "y" { 12 } else { 1 })?;
            duration.months = duration.months.checked_add(i32::try_from(months).ok()?)?;
            return Some(());
        }
        "w" | "d" => {
            let days = count.checked_mul(if unit == "w" { 7 } else { 1 })?;
            duration.days = duration.days.checked_add(i32::try_from(days).ok()?)?;
            return Some(());
        }
        "h" => 3_600 * NANOSECONDS_PER_SECOND,
        "m" => 60 * NANOSECONDS_PER_SECOND,
        "s" => NANOSECONDS_PER_SECOND,
        "ms" => 1_000_000,
        "us" | "µs" => 1_000,
        "ns" => 1,
        _ => return None,
    };
    duration.nanoseconds = duration.nanoseconds.checked_add(count.checked_mul(nanoseconds_per_unit)?)?;
    Some(())
}

/// Splits off the leading number.
fn number(text: &str) -> Option<(i64, &str)> {
    let end = text.find(|character: char| !character.is_ascii_digit())?;
    Some((text[..end].parse().ok()?, &text[end..]))
}

/// `1y2mo3w4d5h6m7s8ms9us10ns`
fn parse_units(mut text: &str) -> Option<Duration> {
    let mut duration = Duration::default();
    while !text.is_empty() {
        let (count, rest) = number(text)?;
        let (unit, rest) = rest.split_at_checked(unit_length(rest.as_bytes()))?;
        add(&mut duration, count, &unit.to_ascii_lowercase())?;
        text = rest;
    }
    Some(duration)
}

/// `1Y2M3DT4H5M6S` or `7W`
fn parse_iso(text: &str) -> Option<Duration> {
    let mut duration = Duration::default();
    let (date, time) = text.split_once('T').unwrap_or((text, ""));
    for (mut part, minutes_or_months) in [(date, "mo"), (time, "m")] {
        while !part.is_empty() {
            let (count, rest) = number(part)?;
            let (unit, rest) = rest.split_at_checked(1)?;
            let unit = if unit == "M" { minutes_or_months } else { &unit.to_ascii_lowercase() };
            add(&mut duration, count, unit)?;
            part = rest;
        }
    }
    Some(duration)
}

/// `0001-02-03T04:05:06`
fn parse_iso_alternative(text: &str) -> Option<Duration> {
    let mut duration = Duration::default();
    for (digits, unit) in text.split(['-', 'T', ':']).zip(["y", "mo", "d", "h", "m", "s"]) {
        add(&mut duration, digits.parse().ok()?, unit)?;
    }
    Some(duration)
}

impl fmt::Display for Duration {
    /// As a constant of CQL: the largest units that fit exactly, `0s` for none.
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        if *self == Duration::default() {
            return out.write_str("0s");
        }
        if self.months < 0 || self.days < 0 || self.nanoseconds < 0 {
            out.write_str("-")?;
        }
        let mut part = |count: u64, unit: &str| if count > 0 { write!(out, "{count}{unit}") } else { Ok(()) };
        part(u64::from(self.months.unsigned_abs()) / 12, "y")?;
        part(u64::from(self.months.unsigned_abs()) % 12, "mo")?;
        part(u64::from(self.days.unsigned_abs()), "d")?;
        let mut rest = self.nanoseconds.unsigned_abs();
        let second = NANOSECONDS_PER_SECOND as u64;
        for (size, unit) in
            [(3_600 * second, "h"), (60 * second, "m"), (second, "s"), (1_000_000, "ms"), (1_000, "us"), (1, "ns")]
        {
            part(rest / size, unit)?;
            rest %= size;
        }
        Ok(())
    }
}
