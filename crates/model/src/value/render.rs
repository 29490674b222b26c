//! Values as CQL literals: for DESCRIBE, warnings and error messages.
//!
//! Always true: the literal, read back by [`super::literal`] (or the parser, for collections), gives an equal value. Zero-length values of
//! types other than strings and blobs have no literal; they are shown as an empty string.

use super::collection::{elements, entries, fields, vector_elements};
use super::span::Span;
use super::{Value, ValueError, temporal};
use crate::types::CqlType;
use num_bigint::{BigInt, Sign};
use std::fmt::Write;

/// How many zeros a decimal may have before or behind its digits when it is written without an exponent.
const MAX_PLAIN_SCALE: u32 = 100;

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
        Value::Double(value) => write!(out, "{}", floating(format!("{value:?}"))),
        Value::Float(value) => write!(out, "{}", floating(format!("{value:?}"))),
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

/// Rust's shortest form that reads back the same, with CQL's names for infinities and NaN.
fn floating(text: String) -> String {
    match text.as_str() {
        "inf" => "Infinity".to_owned(),
        "-inf" => "-Infinity".to_owned(),
        _ => text,
    }
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
