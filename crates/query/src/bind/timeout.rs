//! `USING TIMEOUT` of a statement.
//!
//! Always true: a constant is checked here. Left out: a bind marker's value, which is checked at each execution ([`crate::plan::timeout`]).

use super::binder::Binder;
use super::receiver::Receiver;
use crate::error::invalid;
use crate::plan::timeout::{Timeout, checked};
use diorite_cql::language::ast::{Expression, Literal, Modification, Statement};
use diorite_cql::protocol::CqlError;
use diorite_model::types::CqlType;

fn has_timeout(modification: &Modification) -> bool {
    match modification {
        Modification::Insert(insert) => insert.using.timeout.is_some(),
        Modification::Update(update) => update.using.timeout.is_some(),
        Modification::Delete(delete) => delete.timeout.is_some(),
    }
}

/// The timeout of a statement. Only a batch as a whole may have one, not its statements.
fn said(statement: &Statement) -> Result<Option<&Expression>, CqlError> {
    Ok(match statement {
        Statement::Select(select) => select.timeout.as_ref(),
        Statement::Insert(insert) => insert.using.timeout.as_ref(),
        Statement::Update(update) => update.using.timeout.as_ref(),
        Statement::Delete(delete) => delete.timeout.as_ref(),
        Statement::Transaction(block) => {
            if block.statements.iter().any(has_timeout) {
                return Err(invalid("statements of a transaction block cannot have timeouts"));
            }
            None
        }
        Statement::Batch(batch) => {
            if batch.statements.iter().any(has_timeout) {
                return Err(invalid("the timeout of a batch must be set for the whole batch"));
            }
            batch.using.timeout.as_ref()
        }
        _ => None,
    })
}

/// Plans `USING TIMEOUT` of a statement.
pub(super) fn bind_timeout(binder: &mut Binder<'_>, statement: &Statement) -> Result<Option<Timeout>, CqlError> {
    match said(statement)? {
        None => Ok(None),
        Some(Expression::Literal(Literal::Duration(span))) => {
            checked(span.days, span.nanoseconds).map(|timeout_ns| Some(Timeout::Constant(timeout_ns)))
        }
        Some(expression) => {
            let term = binder.term(expression, &Receiver::new("[timeout]", &CqlType::Duration))?;
            Ok(Some(Timeout::Bound(term)))
        }
    }
}
