//! `CAST(x AS type)`: conversions between numbers, to text, and between moments.
//!
//! Always true: whether a conversion exists is decided by the two types alone ([`is_castable`]), so that it is an error of planning.
//! Casts from text to numbers are YCQL's; Cassandra has none. Left out: any other cast from text.

use super::moment::{moment_from_ms, moment_ms};
use super::number::Number;
use crate::error::{invalid, value_error};
use diorite_cql::protocol::CqlError;
use diorite_model::types::CqlType;
use diorite_model::value::{Value, is_summable, literal, literal_text, plain_decimal};

fn is_number(data_type: &CqlType) -> bool {
    is_summable(data_type) || *data_type == CqlType::Counter
}

/// Whether values of `from` convert to `to`.
pub fn is_castable(from: &CqlType, to: &CqlType) -> bool {
    if from == to || (is_number(from) && is_number(to) && *to != CqlType::Counter) {
        return true;
    }
    // A cast of YCQL, for texts taken from documents.
    if matches!(from, CqlType::Text | CqlType::Ascii) && is_number(to) && *to != CqlType::Counter {
        return true;
    }
    match to {
        CqlType::Text => {
            is_number(from)
                || matches!(
                    from,
                    CqlType::Ascii
                        | CqlType::Boolean
                        | CqlType::Date
                        | CqlType::Time
                        | CqlType::Timestamp
                        | CqlType::Timeuuid
                        | CqlType::Uuid
                        | CqlType::Inet
                        | CqlType::Jsonb
                )
        }
        CqlType::Ascii => {
            is_number(from)
                || matches!(
                    from,
                    CqlType::Boolean
                        | CqlType::Date
                        | CqlType::Time
                        | CqlType::Timestamp
                        | CqlType::Timeuuid
                        | CqlType::Uuid
                        | CqlType::Inet
                )
        }
        CqlType::Timestamp => matches!(from, CqlType::Timeuuid | CqlType::Date),
        CqlType::Date => matches!(from, CqlType::Timeuuid | CqlType::Timestamp),
        _ => false,
    }
}

/// Converts a value. An empty value stays empty (null in Cassandra's numbers).
pub fn cast(from: &CqlType, to: &CqlType, wire: &[u8]) -> Result<Option<Vec<u8>>, CqlError> {
    if from == to {
        return Ok(Some(wire.to_vec()));
    }
    if wire.is_empty() && !matches!(from, CqlType::Ascii | CqlType::Text) {
        return Ok(None);
    }
    if matches!(from, CqlType::Text | CqlType::Ascii) && is_number(to) {
        let text = std::str::from_utf8(wire).map_err(|_| invalid("String didn't validate."))?;
        let mut out = Vec::new();
        literal::from_text(to, text.trim(), &mut out).map_err(value_error)?;
        return Ok(Some(out).filter(|wire| !wire.is_empty()));
    }
    if is_number(from) && is_number(to) {
        return cast_number(from, to, wire).map(Some);
    }
    if matches!(to, CqlType::Text | CqlType::Ascii) {
        if matches!(from, CqlType::Ascii | CqlType::Jsonb) {
            return Ok(Some(wire.to_vec()));
        }
        if let Value::Decimal(unscaled, scale) = Value::decode(from, wire).map_err(value_error)? {
            return Ok(Some(plain_decimal(&unscaled, scale).into_bytes()));
        }
        let mut text = String::new();
        literal_text(from, wire, &mut text).map_err(value_error)?;
        return Ok(Some(text.trim_matches('\'').as_bytes().to_vec()));
    }
    Ok(moment_ms(from, wire).map(|ms| moment_from_ms(to, ms)))
}

fn cast_number(from: &CqlType, to: &CqlType, wire: &[u8]) -> Result<Vec<u8>, CqlError> {
    let value = Value::decode(from, wire).map_err(value_error)?;
    let out_of_range = || invalid(format!("a value of type {from} is out of the range of {to}"));
    let mut out = Vec::new();
    let float = match &value {
        Value::Float(value) => Some(f64::from(*value)),
        Value::Double(value) => Some(*value),
        _ => None,
    };
    match (to, float) {
        // Float to float, and float to integer (which saturates as in Java).
        (CqlType::Float, Some(value)) => out.extend_from_slice(&(value as f32).to_be_bytes()),
        (CqlType::Double, Some(value)) => out.extend_from_slice(&value.to_be_bytes()),
        (CqlType::Tinyint, Some(value)) => out.extend_from_slice(&(value as i32 as i8).to_be_bytes()),
        (CqlType::Smallint, Some(value)) => out.extend_from_slice(&(value as i32 as i16).to_be_bytes()),
        (CqlType::Int, Some(value)) => out.extend_from_slice(&(value as i32).to_be_bytes()),
        (CqlType::Bigint, Some(value)) => out.extend_from_slice(&(value as i64).to_be_bytes()),
        (CqlType::Varint, Some(value)) if value.is_finite() => {
            literal::from_text(to, &format!("{:.0}", value.trunc()), &mut out).map_err(value_error)?;
        }
        (CqlType::Decimal, Some(value)) if value.is_finite() => {
            literal::from_text(to, &value.to_string(), &mut out).map_err(value_error)?;
        }
        (_, Some(_)) => return Err(out_of_range()),
        (_, None) => cast_exact(from, to, wire, &mut out)?,
    }
    Ok(out)
}

/// From an integer or decimal.
fn cast_exact(from: &CqlType, to: &CqlType, wire: &[u8], out: &mut Vec<u8>) -> Result<(), CqlError> {
    let number = Number::read(from, wire)?;
    let width = match to {
        CqlType::Float => return push(Number::Single(number.to_f64()? as f32), to, out),
        CqlType::Double => return push(Number::Float(number.to_f64()?), to, out),
        CqlType::Decimal => return push(Number::Exact(number.to_decimal()?), to, out),
        CqlType::Varint => return push(Number::Whole(number.to_decimal()?.truncated()?), to, out),
        CqlType::Tinyint => 1,
        CqlType::Smallint => 2,
        CqlType::Int => 4,
        CqlType::Bigint => 8,
        _ => return Err(invalid(format!("{from} cannot be cast to {to}"))),
    };
    // Java's narrowing keeps the low bits.
    let wide = number.to_decimal()?.truncated()?.to_signed_bytes_be();
    let fill = if wide.first().is_some_and(|byte| byte & 0x80 != 0) { 0xFF } else { 0 };
    out.extend(std::iter::repeat_n(fill, width.max(wide.len()) - wide.len()));
    out.extend_from_slice(&wide[wide.len().saturating_sub(width)..]);
    Ok(())
}

fn push(number: Number, to: &CqlType, out: &mut Vec<u8>) -> Result<(), CqlError> {
    number.write(to, out)
}
