//! `USING TIMEOUT`: how long a statement may take.
//!
//! Always true: a constant is checked when the statement is planned, a bind marker's value at each execution. Left out: who ends the request
//! ([`crate::budget`]).

use super::term::{Bound, Evaluated, Term};
use crate::error::invalid;
use diorite_cql::protocol::CqlError;
use diorite_model::value::calendar::Span;

const NS_PER_DAY: i64 = 24 * 60 * 60 * 1_000_000_000;

/// See the top of this module.
#[derive(Debug)]
pub enum Timeout {
    /// Nanoseconds.
    Constant(u64),
    /// A bind marker.
    Bound(Term),
}

impl Timeout {
    /// How long, nanoseconds; `None` if its marker is unset.
    pub fn ns(&self, bound: &Bound<'_>) -> Result<Option<u64>, CqlError> {
        let term = match self {
            Self::Constant(timeout_ns) => return Ok(Some(*timeout_ns)),
            Self::Bound(term) => term,
        };
        match term.evaluate(bound)? {
            Evaluated::Unset => Ok(None),
            Evaluated::Null => Err(invalid("Invalid null value of timeout")),
            Evaluated::Set(wire) => {
                let span = Span::from_wire(&wire).ok_or_else(|| invalid("Invalid timeout value"))?;
                if span.months != 0 {
                    return Err(invalid("a timeout is a duration without months, such as 30s"));
                }
                checked(span.days, span.nanoseconds).map(Some)
            }
        }
    }
}

pub(crate) fn checked(days: i32, nanoseconds: i64) -> Result<u64, CqlError> {
    let days_ns = i64::from(days).saturating_mul(NS_PER_DAY);
    match u64::try_from(days_ns.saturating_add(nanoseconds)) {
        Ok(0) | Err(_) => Err(invalid("a timeout must be greater than zero")),
        Ok(timeout_ns) => Ok(timeout_ns),
    }
}
