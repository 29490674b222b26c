//! `USING TIMEOUT`: how long a statement says that it may take.
//!
//! Always true: a constant is checked when the statement is planned, a bind marker's value each time. Left out: who ends the request
//! ([`crate::budget`]).

use super::Planner;
use super::term::{Bound, Evaluated, Receiver, Term};
use crate::error::invalid;
use diorite_cql::language::ast::{Expression, Literal, Modification, Statement};
use diorite_cql::protocol::CqlError;
use diorite_model::types::CqlType;
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

fn checked(days: i32, nanoseconds: i64) -> Result<u64, CqlError> {
    let days_ns = i64::from(days).saturating_mul(NS_PER_DAY);
    match u64::try_from(days_ns.saturating_add(nanoseconds)) {
        Ok(0) | Err(_) => Err(invalid("a timeout must be greater than zero")),
        Ok(timeout_ns) => Ok(timeout_ns),
    }
}

/// What a statement says. What a batch says counts; its statements may not say anything else.
fn said(statement: &Statement) -> Result<Option<&Expression>, CqlError> {
    Ok(match statement {
        Statement::Select(select) => select.timeout.as_ref(),
        Statement::Insert(insert) => insert.using.timeout.as_ref(),
        Statement::Update(update) => update.using.timeout.as_ref(),
        Statement::Delete(delete) => delete.timeout.as_ref(),
        Statement::Batch(batch) => {
            let has_timeout = |modification: &Modification| match modification {
                Modification::Insert(insert) => insert.using.timeout.is_some(),
                Modification::Update(update) => update.using.timeout.is_some(),
                Modification::Delete(delete) => delete.timeout.is_some(),
            };
            if batch.statements.iter().any(has_timeout) {
                return Err(invalid("the timeout of a batch must be set for the whole batch"));
            }
            batch.using.timeout.as_ref()
        }
        _ => None,
    })
}

impl Planner<'_> {
    /// Plans `USING TIMEOUT` of a statement.
    pub(super) fn timeout(&mut self, statement: &Statement) -> Result<Option<Timeout>, CqlError> {
        match said(statement)? {
            None => Ok(None),
            Some(Expression::Literal(Literal::Duration(span))) => {
                checked(span.days, span.nanoseconds).map(|timeout_ns| Some(Timeout::Constant(timeout_ns)))
            }
            Some(expression) => {
                let term = self.term(expression, &Receiver::new("[timeout]", &CqlType::Duration))?;
                Ok(Some(Timeout::Bound(term)))
            }
        }
    }
}
