//! `+`, `-`, `*`, `/`, `%` and the sign: between numbers, of texts (`+`), and of moments with durations.
//!
//! Always true: the type of a result follows from the types of the operands alone, as in Cassandra's table of them; integers wrap around
//! in the width of their type, as Java's do. Left out: overload resolution of literals ([`crate::bind`]).

use super::moment::{moment_from_ms, moment_ms};
use super::number::{Decimal, Number};
use crate::error::{invalid, value_error};
use diorite_base::limits::MAX_MUTATION_BYTES;
use diorite_cql::language::ast::ArithmeticOperator;
use diorite_cql::protocol::error::FunctionSignature;
use diorite_cql::protocol::{CqlError, ErrorKind};
use diorite_model::types::CqlType;
use diorite_model::value::calendar::{self, Span};
use num_bigint::BigInt;

/// The sign that stands for an operator.
pub fn symbol(operator: ArithmeticOperator) -> &'static str {
    match operator {
        ArithmeticOperator::Add => "+",
        ArithmeticOperator::Subtract => "-",
        ArithmeticOperator::Multiply => "*",
        ArithmeticOperator::Divide => "/",
        ArithmeticOperator::Modulo => "%",
    }
}

/// How far up a type is among integers; `None` for other types.
fn integer_rank(data_type: &CqlType) -> Option<u8> {
    Some(match data_type {
        CqlType::Tinyint => 0,
        CqlType::Smallint => 1,
        CqlType::Int => 2,
        CqlType::Bigint | CqlType::Counter => 3,
        _ => return None,
    })
}

/// Whether a type is one of numbers.
pub fn is_number(data_type: &CqlType) -> bool {
    integer_rank(data_type).is_some()
        || matches!(data_type, CqlType::Float | CqlType::Double | CqlType::Varint | CqlType::Decimal)
}

/// The result type of an operation on two types; `None` if there is no such operation.
pub fn result_type(operator: ArithmeticOperator, left: &CqlType, right: &CqlType) -> Option<CqlType> {
    use ArithmeticOperator::{Add, Subtract};
    if let (Some(one), Some(other)) = (integer_rank(left), integer_rank(right)) {
        let wider = [CqlType::Tinyint, CqlType::Smallint, CqlType::Int, CqlType::Bigint];
        return wider.get(usize::from(one.max(other))).cloned();
    }
    match (left, right) {
        (CqlType::Decimal, other) | (other, CqlType::Decimal) if is_number(other) => Some(CqlType::Decimal),
        (CqlType::Varint, CqlType::Float | CqlType::Double) | (CqlType::Float | CqlType::Double, CqlType::Varint) => {
            Some(CqlType::Decimal)
        }
        (CqlType::Varint, other) | (other, CqlType::Varint) if is_number(other) => Some(CqlType::Varint),
        (CqlType::Double, other) | (other, CqlType::Double) if is_number(other) => Some(CqlType::Double),
        (CqlType::Float, CqlType::Bigint | CqlType::Counter) | (CqlType::Bigint | CqlType::Counter, CqlType::Float) => {
            Some(CqlType::Double)
        }
        (CqlType::Float, other) | (other, CqlType::Float) if is_number(other) => Some(CqlType::Float),
        (CqlType::Ascii, CqlType::Ascii) if operator == Add => Some(CqlType::Ascii),
        (CqlType::Text | CqlType::Ascii, CqlType::Text | CqlType::Ascii) if operator == Add => Some(CqlType::Text),
        (CqlType::Timestamp | CqlType::Date, CqlType::Duration) if matches!(operator, Add | Subtract) => {
            Some(left.clone())
        }
        _ => None,
    }
}

fn failed(operator: ArithmeticOperator, left: &CqlType, right: &CqlType, why: &str) -> CqlError {
    let function = ["_add", "_substract", "_multiply", "_divide", "_modulo"][operator as usize];
    let signature = FunctionSignature {
        keyspace: "system".to_owned(),
        name: function.to_owned(),
        argument_types: vec![left.to_string(), right.to_string()],
    };
    CqlError::new(
        ErrorKind::FunctionFailure(Box::new(signature)),
        format!("the operation '{left} {} {right}' failed: {why}", symbol(operator)),
    )
}

/// Carries out an operation; its types fit ([`result_type`]).
pub fn apply(
    operator: ArithmeticOperator,
    (left_type, left): (&CqlType, &[u8]),
    (right_type, right): (&CqlType, &[u8]),
) -> Result<Option<Vec<u8>>, CqlError> {
    let Some(result) = result_type(operator, left_type, right_type) else {
        return Err(unsupported(operator, left_type, right_type));
    };
    let fail = |why: &str| failed(operator, left_type, right_type, why);
    match result {
        CqlType::Text | CqlType::Ascii => {
            let length = left.len() + right.len();
            if length > MAX_MUTATION_BYTES {
                return Err(fail(&format!("a text of {length} bytes is longer than {MAX_MUTATION_BYTES} bytes")));
            }
            return Ok(Some([left, right].concat()));
        }
        _ if left.is_empty() || right.is_empty() => return Ok(None),
        CqlType::Timestamp | CqlType::Date => {
            return move_moment(operator, left_type, left, right).map_err(fail).map(Some);
        }
        _ => {}
    }
    let one = Number::read(left_type, left)?;
    let other = Number::read(right_type, right)?;
    let mut out = Vec::new();
    match &result {
        CqlType::Float => {
            let value = float(operator, one.to_f32()?.into(), other.to_f32()?.into()) as f32;
            out.extend_from_slice(&value.to_be_bytes());
        }
        CqlType::Double => {
            out.extend_from_slice(&float(operator, one.to_f64()?, other.to_f64()?).to_be_bytes());
        }
        CqlType::Varint => {
            let value = whole(operator, &one.to_whole()?, &other.to_whole()?).ok_or_else(|| fail("/ by zero"))?;
            Number::Whole(value).write(&result, &mut out)?;
        }
        CqlType::Decimal => {
            let value = decimal(operator, &one.to_decimal()?, &other.to_decimal()?)?;
            Number::Exact(value.ok_or_else(|| fail("/ by zero"))?).write(&result, &mut out)?;
        }
        narrow => {
            let (Number::Integer(one), Number::Integer(other)) = (one, other) else {
                return Err(unsupported(operator, left_type, right_type));
            };
            let value = integer(operator, one, other).ok_or_else(|| fail("/ by zero"))?;
            Number::Integer(value).write(narrow, &mut out)?;
        }
    }
    Ok(Some(out))
}

/// The error for an operation that does not exist.
pub fn unsupported(operator: ArithmeticOperator, left: &CqlType, right: &CqlType) -> CqlError {
    invalid(format!("the '{}' operation is not supported between {left} and {right}", symbol(operator)))
}

fn integer(operator: ArithmeticOperator, left: i64, right: i64) -> Option<i64> {
    Some(match operator {
        ArithmeticOperator::Add => left.wrapping_add(right),
        ArithmeticOperator::Subtract => left.wrapping_sub(right),
        ArithmeticOperator::Multiply => left.wrapping_mul(right),
        _ if right == 0 => return None,
        ArithmeticOperator::Divide => left.wrapping_div(right),
        ArithmeticOperator::Modulo => left.wrapping_rem(right),
    })
}

fn float(operator: ArithmeticOperator, left: f64, right: f64) -> f64 {
    match operator {
        ArithmeticOperator::Add => left + right,
        ArithmeticOperator::Subtract => left - right,
        ArithmeticOperator::Multiply => left * right,
        ArithmeticOperator::Divide => left / right,
        ArithmeticOperator::Modulo => left % right,
    }
}

fn whole(operator: ArithmeticOperator, left: &BigInt, right: &BigInt) -> Option<BigInt> {
    let is_zero = *right == BigInt::from(0);
    Some(match operator {
        ArithmeticOperator::Add => left + right,
        ArithmeticOperator::Subtract => left - right,
        ArithmeticOperator::Multiply => left * right,
        _ if is_zero => return None,
        ArithmeticOperator::Divide => left / right,
        ArithmeticOperator::Modulo => left % right,
    })
}

fn decimal(operator: ArithmeticOperator, left: &Decimal, right: &Decimal) -> Result<Option<Decimal>, CqlError> {
    Ok(Some(match operator {
        ArithmeticOperator::Add => left.add(right)?,
        ArithmeticOperator::Subtract => left.add(&right.negated())?,
        ArithmeticOperator::Multiply => left.multiply(right)?,
        _ if right.is_zero() => return Ok(None),
        ArithmeticOperator::Divide => left.divide(right)?,
        ArithmeticOperator::Modulo => left.remainder(right)?,
    }))
}

/// A moment a duration later or earlier, or the error.
fn move_moment(
    operator: ArithmeticOperator,
    of: &CqlType,
    moment: &[u8],
    duration: &[u8],
) -> Result<Vec<u8>, &'static str> {
    let span = Span::from_wire(duration).ok_or("the duration cannot be read")?;
    let span = if operator == ArithmeticOperator::Subtract { span.negated() } else { Some(span) };
    let span = span.ok_or("the duration is out of range")?;
    if *of == CqlType::Date && span.nanoseconds != 0 {
        return Err("The duration must have a day precision");
    }
    let ms = moment_ms(of, moment).ok_or("the moment cannot be read")?;
    let moved = calendar::add(ms, span).ok_or("the result is out of range")?;
    Ok(moment_from_ms(of, moved))
}

/// The number with the other sign.
pub fn negate(data_type: &CqlType, wire: &[u8]) -> Result<Option<Vec<u8>>, CqlError> {
    if wire.is_empty() {
        return Ok(None);
    }
    let mut out = Vec::new();
    if let CqlType::Duration = data_type {
        let span = Span::from_wire(wire).and_then(Span::negated);
        let span = span.ok_or_else(|| invalid("the duration is out of range"))?;
        span.push_wire(&mut out);
        return Ok(Some(out));
    }
    let negated = match Number::read(data_type, wire)? {
        Number::Integer(value) => Number::Integer(value.wrapping_neg()),
        Number::Float(value) => Number::Float(-value),
        Number::Single(value) => Number::Single(-value),
        Number::Whole(value) => Number::Whole(-value),
        Number::Exact(value) => Number::Exact(value.negated()),
    };
    negated.write(data_type, &mut out)?;
    data_type.validate(&out).map_err(value_error)?;
    Ok(Some(out))
}
