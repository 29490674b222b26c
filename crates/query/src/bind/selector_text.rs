//! Expressions as they are shown in the names of result columns and in messages.
//!
//! Always true: names are Cassandra's. Left out: functions, whose names are made where they are bound.

use crate::error::invalid;
use diorite_cql::language::ast::{Duration, Expression, Literal};
use diorite_cql::protocol::CqlError;
use diorite_model::types::CqlType;
use diorite_model::value::calendar::Span;

pub(super) fn cannot_infer(expression: &Expression) -> CqlError {
    invalid(format!(
        "Cannot infer type for term {} in selection clause (try using a cast to force a type)",
        text(expression)
    ))
}

/// A term as it is shown in a column's name.
pub(super) fn text(expression: &Expression) -> String {
    let all = |parts: &[Expression]| parts.iter().map(text).collect::<Vec<_>>().join(", ");
    match expression {
        Expression::Literal(literal) => match literal {
            Literal::Null => "NULL".to_owned(),
            Literal::String(text) => format!("'{text}'"),
            Literal::Integer(text) | Literal::Float(text) => text.clone(),
            Literal::Boolean(value) => value.to_string(),
            Literal::Blob(bytes) => format!("0x{}", crate::functions::hex(bytes)),
            Literal::Uuid(bytes) => uuid::Uuid::from_bytes(*bytes).to_string(),
            Literal::Duration(duration) => {
                let mut wire = Vec::new();
                let Duration { months, days, nanoseconds } = *duration;
                Span { months, days, nanoseconds }.push_wire(&mut wire);
                let mut shown = String::new();
                match diorite_model::value::literal_text(&CqlType::Duration, &wire, &mut shown) {
                    Ok(()) => shown,
                    Err(_) => "…".to_owned(),
                }
            }
        },
        Expression::Marker(_) => "?".to_owned(),
        Expression::Column(name) => name.clone(),
        Expression::List(parts) => format!("[{}]", all(parts)),
        Expression::Set(parts) => format!("{{{}}}", all(parts)),
        Expression::Tuple(parts) => format!("({})", all(parts)),
        Expression::Negate(inner) => format!("-{}", text(inner)),
        _ => "…".to_owned(),
    }
}
