//! `CAST(x AS type)`: conversions between numbers, to text, and between moments.
//!
//! Always true: whether a conversion exists is decided by the two types alone ([`is_castable`]), so that it is an error of planning.
//! Casts from text to numbers are YCQL's; Cassandra has none. Left out: any other cast from text.

use super::{moment_from_ms, moment_ms};
use crate::error::{invalid, value_error};
use diorite_cql::protocol::CqlError;
use diorite_model::types::CqlType;
use diorite_model::value::{Value, literal, literal_text, plain_decimal};

fn is_number(data_type: &CqlType) -> bool {
    matches!(
        data_type,
        CqlType::Tinyint
            | CqlType::Smallint
            | CqlType::Int
            | CqlType::Bigint
            | CqlType::Counter
            | CqlType::Float
            | CqlType::Double
            | CqlType::Decimal
            | CqlType::Varint
    )
}

/// Whether values of `from` convert to `to`.
pub fn is_castable(from: &CqlType, to: &CqlType) -> bool {
    if from == to || (is_number(from) && is_number(to) && *to != CqlType::Counter) {
        return true;
    }
    // YCQL's, for what is taken out of documents as text.
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

/// From an integer or decimal, through its digits.
fn cast_exact(from: &CqlType, to: &CqlType, wire: &[u8], out: &mut Vec<u8>) -> Result<(), CqlError> {
    let mut digits = String::new();
    literal_text(from, wire, &mut digits).map_err(value_error)?;
    let is_integer = matches!(to, CqlType::Tinyint | CqlType::Smallint | CqlType::Int | CqlType::Bigint);
    match to {
        CqlType::Float | CqlType::Double => {
            let value: f64 = digits.parse().map_err(|_| invalid(format!("cannot cast {digits} to {to}")))?;
            match to {
                CqlType::Float => out.extend_from_slice(&(value as f32).to_be_bytes()),
                _ => out.extend_from_slice(&value.to_be_bytes()),
            }
        }
        CqlType::Decimal => literal::from_text(to, &digits, out).map_err(value_error)?,
        CqlType::Varint => literal::from_text(to, integral(&digits)?.as_str(), out).map_err(value_error)?,
        _ if is_integer => {
            // Java's narrowing keeps the low bits.
            let mut wide = Vec::new();
            literal::from_text(&CqlType::Varint, integral(&digits)?.as_str(), &mut wide).map_err(value_error)?;
            let fill = if wide.first().is_some_and(|byte| byte & 0x80 != 0) { 0xFF } else { 0 };
            let width = match to {
                CqlType::Tinyint => 1,
                CqlType::Smallint => 2,
                CqlType::Int => 4,
                _ => 8,
            };
            let padding = width.max(wide.len()) - wide.len();
            let mut padded = vec![fill; padding];
            padded.extend_from_slice(&wide);
            out.extend_from_slice(&padded[padded.len() - width..]);
        }
        _ => return Err(invalid(format!("{from} cannot be cast to {to}"))),
    }
    Ok(())
}

/// The digits before the decimal point of a plain or scientific decimal.
fn integral(digits: &str) -> Result<String, CqlError> {
    let (mantissa, exponent) = match digits.split_once(['e', 'E']) {
        Some((mantissa, exponent)) => {
            (mantissa, exponent.parse::<i32>().map_err(|_| invalid(format!("cannot read the number {digits}")))?)
        }
        None => (digits, 0),
    };
    let (sign, mantissa) = match mantissa.strip_prefix('-') {
        Some(rest) => ("-", rest),
        None => ("", mantissa),
    };
    let (whole, fraction) = mantissa.split_once('.').unwrap_or((mantissa, ""));
    let point = whole.len() as i64 + i64::from(exponent);
    if point <= 0 {
        return Ok("0".to_owned());
    }
    if point > 4_096 {
        return Err(invalid("the number is too large to be cast"));
    }
    let mut all: String = [whole, fraction].concat();
    while (all.len() as i64) < point {
        all.push('0');
    }
    all.truncate(point as usize);
    Ok(format!("{sign}{all}"))
}
