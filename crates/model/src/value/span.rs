//! Durations: months, days and nanoseconds, which are not interchangeable.
//!
//! Always true: the wire form is Cassandra's: three signed variable-length integers. Left out: text ([`super::temporal`]) and adding durations
//! to moments ([`super::calendar`]).

use super::ValueError;
use super::collection::{push_signed_vint, read_signed_vint};

/// Months, days and nanoseconds, all of one sign.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Span {
    /// Calendar months
    pub months: i32,
    /// Days
    pub days: i32,
    /// Nanoseconds
    pub nanoseconds: i64,
}

impl Span {
    /// Reads the wire form by Cassandra's rules: at most 32 bits for the first two, all of one sign.
    pub fn read(wire: &[u8]) -> Result<Span, ValueError> {
        let mut rest = wire;
        let mut next = || read_signed_vint(&mut rest);
        let (Some(months), Some(days), Some(nanoseconds)) = (next(), next(), next()) else {
            return refuse(format!("Expected at least 3 bytes for a duration ({})", wire.len()));
        };
        if !rest.is_empty() {
            return refuse("unexpected extraneous bytes after duration value");
        }
        let (Ok(months), Ok(days)) = (i32::try_from(months), i32::try_from(days)) else {
            return refuse("The duration months and days must be 32 bits integers");
        };
        let negative = months < 0 || days < 0 || nanoseconds < 0;
        let positive = months > 0 || days > 0 || nanoseconds > 0;
        if negative && positive {
            return refuse(format!(
                "The duration months, days and nanoseconds must be all of the same sign ({months}, {days}, {nanoseconds})"
            ));
        }
        Ok(Span { months, days, nanoseconds })
    }

    /// Reads the wire form, if it is one.
    pub fn from_wire(wire: &[u8]) -> Option<Span> {
        Self::read(wire).ok()
    }

    /// Appends the wire form.
    pub fn push_wire(self, out: &mut Vec<u8>) {
        push_signed_vint(i64::from(self.months), out);
        push_signed_vint(i64::from(self.days), out);
        push_signed_vint(self.nanoseconds, out);
    }

    /// The same backwards.
    pub fn negated(self) -> Option<Span> {
        Some(Span {
            months: self.months.checked_neg()?,
            days: self.days.checked_neg()?,
            nanoseconds: self.nanoseconds.checked_neg()?,
        })
    }

    /// Whether it goes backwards.
    pub fn is_negative(self) -> bool {
        self.months < 0 || self.days < 0 || self.nanoseconds < 0
    }
}

fn refuse<T>(message: impl Into<String>) -> Result<T, ValueError> {
    Err(ValueError(message.into()))
}
