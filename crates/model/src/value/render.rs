//! Values as CQL literals: for DESCRIBE, warnings and error messages.
//!
//! Always true: the literal, read back by [`super::literal`] (or the parser, for collections), gives an equal value. Zero-length values of
//! types other than strings and blobs have no literal; they are shown as an empty string.

use super::collection::{elements, entries, fields, vector_elements};
use super::span::Span;
use super::{Value, ValueError, temporal};
use crate::types::CqlType;
use num_bigint::{BigInt, Sign};
use std::fmt::{Debug, LowerExp, Write};
use std::ops::RangeInclusive;

/// How many zeros a decimal may have before or behind its digits when it is written without an exponent.
const MAX_PLAIN_SCALE: u32 = 100;
/// The decimal exponents of floating-point numbers that are written without an exponent, as in Java.
const PLAIN_EXPONENTS: RangeInclusive<i32> = -3..=6;

/// Appends a wire value as the CQL literal that would produce it.
pub fn literal_text(data_type: &CqlType, wire: &[u8], out: &mut String) -> Result<(), ValueError> {
    match data_type {
        CqlType::List(element, _) => {
            join(out, ['[', ']'], elements(wire)?, |value, out| literal_text(element, value, out))
        }
        CqlType::Set(element, _) => {
            join(out, ['{', '}'], elements(wire)?, |value, out| literal_text(element, value, out))
        }
        CqlType::Vector(element, dimension) => {
            let values = vector_elements(element, *dimension, wire);
            join(out, ['[', ']'], values, |value, out| literal_text(element, value, out))
        }
        CqlType::Map(key, value, _) => {
            out.push('{');
            let mut separator = "";
            for entry in entries(wire)? {
                let (one, other) = entry?;
                out.push_str(separator);
                separator = ", ";
                literal_text(key, one, out)?;
                out.push_str(": ");
                literal_text(value, other, out)?;
            }
            out.push('}');
            Ok(())
        }
        CqlType::Tuple(types) => {
            let values = fields(wire).chain(std::iter::repeat(Ok(None)));
            let mut types = types.iter();
            let count = types.len();
            join(out, ['(', ')'], values.take(count), |value, out| match types.next() {
                Some(field) => nullable(field, value, out),
                None => Ok(()),
            })
        }
        CqlType::UserDefined(user, _) => {
            let values = fields(wire).chain(std::iter::repeat(Ok(None)));
            let mut fields = user.fields.iter();
            join(out, ['{', '}'], values.take(user.fields.len()), |value, out| match fields.next() {
                Some((name, field)) => {
                    out.push_str(&crate::types::display::Identifier(name).to_string());
                    out.push_str(": ");
                    nullable(field, value, out)
                }
                None => Ok(()),
            })
        }
        _ => {
            scalar(&Value::decode(data_type, wire)?, out);
            Ok(())
        }
    }
}

fn nullable(data_type: &CqlType, value: Option<&[u8]>, out: &mut String) -> Result<(), ValueError> {
    match value {
        Some(value) => literal_text(data_type, value, out),
        None => {
            out.push_str("null");
            Ok(())
        }
    }
}

fn join<T>(
    out: &mut String,
    [open, close]: [char; 2],
    values: impl Iterator<Item = Result<T, ValueError>>,
    mut each: impl FnMut(T, &mut String) -> Result<(), ValueError>,
) -> Result<(), ValueError> {
    out.push(open);
    for (at, value) in values.enumerate() {
        if at > 0 {
            out.push_str(", ");
        }
        each(value?, out)?;
    }
    out.push(close);
    Ok(())
}

fn quoted(out: &mut String, write: impl FnOnce(&mut String)) {
    out.push('\'');
    write(out);
    out.push('\'');
}

fn scalar(value: &Value, out: &mut String) {
    let written = match value {
        Value::Ascii(text) | Value::Text(text) | Value::Jsonb(text) => {
            quoted(out, |out| out.push_str(&text.replace('\'', "''")));
            Ok(())
        }
        Value::Bigint(value) => write!(out, "{value}"),
        Value::Int(value) => write!(out, "{value}"),
        Value::Smallint(value) => write!(out, "{value}"),
        Value::Tinyint(value) => write!(out, "{value}"),
        Value::Varint(value) => write!(out, "{value}"),
        Value::Boolean(value) => write!(out, "{value}"),
        Value::Uuid(value) | Value::Timeuuid(value) => write!(out, "{value}"),
        Value::Inet(value) => write!(out, "'{value}'"),
        Value::Blob(bytes) => {
            out.push_str("0x");
            bytes.iter().try_for_each(|byte| write!(out, "{byte:02x}"))
        }
        Value::Double(value) => {
            floating(*value, out);
            Ok(())
        }
        Value::Float(value) => {
            floating(*value, out);
            Ok(())
        }
        Value::Decimal(unscaled, scale) => {
            decimal(unscaled, *scale, out);
            Ok(())
        }
        Value::Duration { months, days, nanoseconds } => {
            temporal::format_duration(Span { months: *months, days: *days, nanoseconds: *nanoseconds }, out);
            Ok(())
        }
        Value::Date(days) => {
            quoted(out, |out| temporal::format_days(i64::from(*days) - (1 << 31), out));
            Ok(())
        }
        Value::Time(nanoseconds) => {
            quoted(out, |out| temporal::format_time(*nanoseconds, out));
            Ok(())
        }
        Value::Timestamp(milliseconds) => {
            quoted(out, |out| temporal::format_timestamp(*milliseconds, out));
            Ok(())
        }
        // Collections are rendered from their wire form; what is left is the zero-length value.
        _ => write!(out, "''"),
    };
    debug_assert!(written.is_ok(), "writing to a string does not fail");
}

/// A number as Java's `Double.toString` and `Float.toString` give it (those of JDK 19, whose digits are the fewest that
/// read back the same): plain digits from 0.001 up to below 10,000,000, otherwise one digit before the point and an
/// exponent, and always a digit behind the point.
fn floating<F: Copy + Into<f64> + Debug + LowerExp>(value: F, out: &mut String) {
    let wide: f64 = value.into();
    if wide.is_nan() {
        out.push_str("NaN");
        return;
    }
    if wide.is_infinite() {
        out.push_str(if wide < 0.0 { "-Infinity" } else { "Infinity" });
        return;
    }
    let mut text = format!("{value:e}");
    if !text.contains('.') {
        // Java looks for the nearest number of two digits where one would do: 4.9E-324, not 5.0E-324.
        text = format!("{value:.1e}");
    }
    let (digits, exponent) = text.split_once('e').unwrap_or((text.as_str(), "0"));
    let is_plain = exponent.parse::<i32>().is_ok_and(|exponent| PLAIN_EXPONENTS.contains(&exponent));
    let written = if is_plain { write!(out, "{value:?}") } else { write!(out, "{digits}E{exponent}") };
    debug_assert!(written.is_ok(), "writing to a string does not fail");
}

/// The digits of a decimal without an exponent, unless there would be very many, as Cassandra writes it when it becomes a text.
pub fn plain_decimal(unscaled: &BigInt, scale: i32) -> String {
    if scale.unsigned_abs() > MAX_PLAIN_SCALE {
        let mut out = String::new();
        decimal(unscaled, scale, &mut out);
        return out;
    }
    let zeros = scale.unsigned_abs() as usize;
    if scale < 0 {
        return if unscaled.sign() == Sign::NoSign { "0".to_owned() } else { format!("{unscaled}{:0<zeros$}", "") };
    }
    let digits = format!("{:0>width$}", unscaled.magnitude().to_string(), width = zeros + 1);
    let (whole, rest) = digits.split_at(digits.len() - zeros);
    let sign = if unscaled.sign() == Sign::Minus { "-" } else { "" };
    let point = if rest.is_empty() { "" } else { "." };
    format!("{sign}{whole}{point}{rest}")
}

/// Plain digits while they are few, an exponent otherwise: the form of Java's `BigDecimal`.
fn decimal(unscaled: &BigInt, scale: i32, out: &mut String) {
    let digits = unscaled.magnitude().to_string();
    if unscaled.sign() == Sign::Minus {
        out.push('-');
    }
    let scale = i64::from(scale);
    let exponent = digits.len() as i64 - 1 - scale;
    if scale == 0 {
        out.push_str(&digits);
    } else if scale > 0 && exponent >= -6 {
        let whole = digits.len() as i64 - scale;
        if whole > 0 {
            let (before, after) = digits.split_at(whole as usize);
            out.push_str(&format!("{before}.{after}"));
        } else {
            out.push_str(&format!("0.{}{digits}", "0".repeat(-whole as usize)));
        }
    } else {
        let (first, rest) = digits.split_at(1);
        let point = if rest.is_empty() { "" } else { "." };
        out.push_str(&format!("{first}{point}{rest}E{exponent:+}"));
    }
}
