//! Constants: from a literal of the statement to wire bytes of a type.
//!
//! Always true: a constant that does not fit its type is refused here, with the receiver's name. Left out: expressions that are not
//! literals ([`super::term`]).

use super::receiver::Receiver;
use crate::error::{in_place, invalid, value_error};
use crate::functions::Function;
use crate::plan::term::{Call, Term};
use diorite_cql::language::ast::{Expression, Literal};
use diorite_cql::protocol::CqlError;
use diorite_model::types::CqlType;
use diorite_model::value;
use diorite_model::value::literal::{self, LiteralError};

/// A constant as a value for `receiver`.
pub fn constant(constant: &Literal, receiver: &Receiver<'_>) -> Result<Term, CqlError> {
    let mut out = Vec::new();
    let data_type = &*receiver.data_type;
    let mut text = String::new();
    let outcome = match constant {
        Literal::Null => return Ok(Term::NULL),
        // The moment of each execution, as in Cassandra.
        Literal::String(text) if *data_type == CqlType::Timestamp && text.eq_ignore_ascii_case("now") => {
            return Ok(Term::Call(Box::new(Call { function: Function::CurrentTimestamp, arguments: Vec::new() })));
        }
        Literal::Duration(duration) => {
            if *data_type != CqlType::Duration {
                return Err(wrong_kind("DURATION", &format!("{duration:?}"), receiver));
            }
            let decoded = value::Value::Duration {
                months: duration.months,
                days: duration.days,
                nanoseconds: duration.nanoseconds,
            };
            decoded.encode(data_type, &mut out).map_err(LiteralError::Invalid)
        }
        Literal::String(string) => {
            text.push_str(string);
            literal::from_literal(data_type, &literal::Literal::String(string), &mut out)
        }
        Literal::Integer(digits) => {
            text.push_str(digits);
            literal::from_literal(data_type, &literal::Literal::Integer(digits), &mut out)
        }
        Literal::Float(digits) => {
            text.push_str(digits);
            literal::from_literal(data_type, &literal::Literal::Float(digits), &mut out)
        }
        Literal::Boolean(value) => {
            text.push_str(if *value { "true" } else { "false" });
            literal::from_literal(data_type, &literal::Literal::Boolean(*value), &mut out)
        }
        Literal::Blob(bytes) => {
            text = crate::functions::hex(bytes);
            let outcome = literal::from_literal(data_type, &literal::Literal::Hex(&text), &mut out);
            text.insert_str(0, "0x");
            outcome
        }
        Literal::Uuid(bytes) => {
            text = uuid::Uuid::from_bytes(*bytes).to_string();
            literal::from_literal(data_type, &literal::Literal::Uuid(&text), &mut out)
        }
    };
    match outcome {
        Ok(()) => Ok(Term::Constant(Some(out.into()))),
        Err(LiteralError::WrongKind(kind, _)) => Err(wrong_kind(kind, &text, receiver)),
        Err(LiteralError::Invalid(error)) => {
            Err(in_place(value_error(error), format_args!("\"{}\" of type {}", receiver.name, receiver.data_type)))
        }
    }
}

fn wrong_kind(kind: &str, text: &str, receiver: &Receiver<'_>) -> CqlError {
    invalid(format!("Invalid {kind} constant ({text}) for \"{}\" of type {}", receiver.name, receiver.data_type))
}

/// The type that Cassandra gives a constant without a receiver.
pub fn preferred_type(literal: &Literal) -> Option<CqlType> {
    Some(match literal {
        Literal::Null => return None,
        Literal::String(_) => CqlType::Text,
        Literal::Integer(digits) => match digits.parse::<i64>() {
            Ok(value) if i32::try_from(value).is_ok() => CqlType::Int,
            Ok(_) => CqlType::Bigint,
            Err(_) => CqlType::Varint,
        },
        Literal::Float(_) => CqlType::Double,
        Literal::Boolean(_) => CqlType::Boolean,
        Literal::Blob(_) => CqlType::Blob,
        Literal::Uuid(_) => CqlType::Uuid,
        Literal::Duration(_) => CqlType::Duration,
    })
}

/// The type of a constant without a receiver; `None` for other expressions.
pub(super) fn literal_type(expression: &Expression) -> Option<CqlType> {
    match expression {
        Expression::Literal(literal) => preferred_type(literal),
        Expression::Tuple(parts) if parts.len() == 1 => literal_type(&parts[0]),
        _ => None,
    }
}
