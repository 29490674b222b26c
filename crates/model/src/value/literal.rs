//! From the text of a CQL constant to wire bytes, with Cassandra's rules for which constant fits which type.
//!
//! Always true: the text is what stands between the quotes (strings), after `0x` (blobs), or the token itself. Left out: collections,
//! tuples and bind markers, which the planner takes apart; function calls.

use super::{ValueError, temporal};
use crate::json::Json;
use crate::types::CqlType;
use diorite_base::limits::MAX_NUMBER_DIGITS;
use num_bigint::BigInt;
use std::borrow::Cow;
use std::net::IpAddr;
use thiserror::Error;
use uuid::Uuid;

/// A constant as the grammar sees it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Literal<'a> {
    /// `-12`
    Integer(&'a str),
    /// `1.5`, `1e3`, `NaN`, `-Infinity`
    Float(&'a str),
    /// `'text'`, without quotes and with `''` already undone
    String(&'a str),
    /// `true`, `false`
    Boolean(bool),
    /// `123e4567-…`
    Uuid(&'a str),
    /// `0xCAFE`, without the `0x`
    Hex(&'a str),
    /// `1h30m`, `P1Y`, …
    Duration(&'a str),
}

/// Why a constant does not give a value of a type.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
pub enum LiteralError {
    /// This kind of constant never fits this type; the planner words it as `Invalid STRING constant (…) for "column" of type int`.
    #[error("Invalid {0} constant for type {1}")]
    WrongKind(&'static str, String),
    /// The kind fits, the text does not.
    #[error(transparent)]
    Invalid(#[from] ValueError),
}

impl Literal<'_> {
    /// Cassandra's name of the kind, as in its error messages: `INTEGER`, `STRING`, …
    pub fn kind_name(&self) -> &'static str {
        match self {
            Literal::Integer(_) => "INTEGER",
            Literal::Float(_) => "FLOAT",
            Literal::String(_) => "STRING",
            Literal::Boolean(_) => "BOOLEAN",
            Literal::Uuid(_) => "UUID",
            Literal::Hex(_) => "HEX",
            Literal::Duration(_) => "DURATION",
        }
    }
}

/// Whether Cassandra accepts this kind of constant for a type at all (also used to choose between overloads of a function).
pub fn accepts(data_type: &CqlType, literal: &Literal<'_>) -> bool {
    use CqlType::*;
    match literal {
        Literal::Integer(_) => matches!(
            data_type,
            Bigint
                | Counter
                | Date
                | Decimal
                | Double
                | Duration
                | Float
                | Int
                | Smallint
                | Time
                | Timestamp
                | Tinyint
                | Varint
        ),
        Literal::Float(_) => matches!(data_type, Decimal | Double | Float),
        Literal::String(_) => matches!(data_type, Ascii | Text | Inet | Date | Time | Timestamp | Jsonb),
        Literal::Boolean(_) => matches!(data_type, Boolean),
        Literal::Uuid(_) => matches!(data_type, Uuid | Timeuuid),
        Literal::Hex(_) => matches!(data_type, Blob),
        Literal::Duration(_) => matches!(data_type, Duration),
    }
}

/// Appends the wire bytes of `literal` as a value of `data_type`.
pub fn from_literal(data_type: &CqlType, literal: &Literal<'_>, out: &mut Vec<u8>) -> Result<(), LiteralError> {
    if !accepts(data_type, literal) {
        return Err(LiteralError::WrongKind(literal.kind_name(), data_type.to_string()));
    }
    match literal {
        Literal::Boolean(value) => {
            out.push(u8::from(*value));
            Ok(())
        }
        Literal::Integer(text)
        | Literal::Float(text)
        | Literal::String(text)
        | Literal::Uuid(text)
        | Literal::Hex(text)
        | Literal::Duration(text) => Ok(from_text(data_type, text, out)?),
    }
}

fn refuse(message: String) -> ValueError {
    ValueError(message)
}

/// Appends the wire bytes that Cassandra's `fromString` of the type gives (JSON, casts from text); native types only.
pub fn from_text(data_type: &CqlType, text: &str, out: &mut Vec<u8>) -> Result<(), ValueError> {
    if text.is_empty() && data_type.allows_empty() {
        return Ok(());
    }
    let unable = |what: &str| refuse(format!("Unable to make {what} from '{}'", shown(text)));
    if matches!(data_type, CqlType::Varint | CqlType::Decimal) && text.len() > MAX_NUMBER_DIGITS {
        check_digits(data_type, text)?;
    }
    match data_type {
        CqlType::Text => out.extend_from_slice(text.as_bytes()),
        CqlType::Jsonb => Json::parse(text)?.sorted().write_into(out),
        CqlType::Ascii => {
            data_type.validate(text.as_bytes())?;
            out.extend_from_slice(text.as_bytes());
        }
        CqlType::Bigint | CqlType::Counter => push(out, text.parse::<i64>().map(i64::to_be_bytes), || unable("long"))?,
        CqlType::Int => push(out, text.parse::<i32>().map(i32::to_be_bytes), || unable("int"))?,
        CqlType::Smallint => push(out, text.parse::<i16>().map(i16::to_be_bytes), || unable("short"))?,
        CqlType::Tinyint => push(out, text.parse::<i8>().map(i8::to_be_bytes), || unable("byte"))?,
        CqlType::Float => push(out, text.parse::<f32>().map(f32::to_be_bytes), || unable("float"))?,
        CqlType::Double => push(out, text.parse::<f64>().map(f64::to_be_bytes), || unable("double"))?,
        CqlType::Varint => out.extend_from_slice(&whole(text).ok_or_else(|| unable("int"))?.to_signed_bytes_be()),
        CqlType::Decimal => {
            let (unscaled, scale) = decimal(text).ok_or_else(|| unable("BigDecimal"))?;
            out.extend_from_slice(&scale.to_be_bytes());
            out.extend_from_slice(&unscaled.to_signed_bytes_be());
        }
        CqlType::Boolean => match text.to_ascii_lowercase().as_str() {
            "true" => out.push(1),
            "false" => out.push(0),
            _ => return Err(unable("boolean")),
        },
        CqlType::Blob => {
            push_hex(text, out).ok_or_else(|| refuse(format!("Cannot parse '{}' as hex bytes", shown(text))))?
        }
        CqlType::Inet => match text.parse::<IpAddr>().map(|address| address.to_canonical()) {
            Ok(IpAddr::V4(address)) => out.extend_from_slice(&address.octets()),
            Ok(IpAddr::V6(address)) => out.extend_from_slice(&address.octets()),
            Err(_) => return Err(unable("inet address")),
        },
        CqlType::Uuid | CqlType::Timeuuid => {
            let uuid = Uuid::try_parse(text).ok().filter(|_| text.len() == 36).ok_or_else(|| unable("UUID"))?;
            if *data_type == CqlType::Timeuuid && uuid.get_version_num() != 1 {
                return Err(refuse("TimeUUID supports only version 1 UUIDs".to_owned()));
            }
            out.extend_from_slice(uuid.as_bytes());
        }
        _ => return from_time_text(data_type, text, out),
    }
    Ok(())
}

fn from_time_text(data_type: &CqlType, text: &str, out: &mut Vec<u8>) -> Result<(), ValueError> {
    let coerce = |what: &str| refuse(format!("Unable to coerce '{}' to a formatted {what} (long)", shown(text)));
    match data_type {
        CqlType::Timestamp => {
            out.extend_from_slice(&temporal::parse_timestamp(text).ok_or_else(|| coerce("date"))?.to_be_bytes());
        }
        CqlType::Date => {
            out.extend_from_slice(&temporal::parse_date(text).ok_or_else(|| coerce("date"))?.to_be_bytes());
        }
        CqlType::Time => {
            out.extend_from_slice(&temporal::parse_time(text).ok_or_else(|| coerce("time"))?.to_be_bytes());
        }
        CqlType::Duration => {
            let span = temporal::parse_duration(text);
            let span = span.ok_or_else(|| refuse(format!("Unable to convert '{}' to a duration", shown(text))))?;
            span.push_wire(out);
        }
        other => return Err(refuse(format!("{other} has no text form"))),
    }
    Ok(())
}

fn push<const N: usize, E>(
    out: &mut Vec<u8>,
    bytes: Result<[u8; N], E>,
    error: impl FnOnce() -> ValueError,
) -> Result<(), ValueError> {
    out.extend_from_slice(&bytes.map_err(|_| error())?);
    Ok(())
}

fn push_hex(text: &str, out: &mut Vec<u8>) -> Option<()> {
    let (pairs, rest) = text.as_bytes().as_chunks::<2>();
    if !rest.is_empty() {
        return None;
    }
    let digit = |byte: u8| char::from(byte).to_digit(16);
    for [high, low] in pairs {
        out.push((digit(*high)? * 16 + digit(*low)?) as u8);
    }
    Some(())
}

/// The beginning of a text, for an error message.
pub(crate) fn shown(text: &str) -> Cow<'_, str> {
    const MAX_SHOWN: usize = 200;
    match text.len() {
        0..=MAX_SHOWN => Cow::Borrowed(text),
        length => Cow::Owned(format!("{}… ({length} bytes)", &text[..text.floor_char_boundary(MAX_SHOWN)])),
    }
}

/// Refuses more digits than a number may have. Text that is no number is refused elsewhere.
fn check_digits(data_type: &CqlType, text: &str) -> Result<(), ValueError> {
    let mantissa = text.find(['e', 'E']).map_or(text, |at| &text[..at]);
    let digits = mantissa.bytes().filter(u8::is_ascii_digit).count();
    if digits <= MAX_NUMBER_DIGITS {
        return Ok(());
    }
    Err(refuse(format!("a {data_type} has at most {MAX_NUMBER_DIGITS} digits, not {digits}")))
}

/// A whole number.
fn whole(text: &str) -> Option<BigInt> {
    let digits = text.strip_prefix(['-', '+']).unwrap_or(text);
    // The parser also takes underscores between digits, which CQL does not.
    if digits.is_empty() || digits.len() > MAX_NUMBER_DIGITS || !digits.bytes().all(|byte| byte.is_ascii_digit()) {
        return None;
    }
    BigInt::parse_bytes(text.as_bytes(), 10)
}

/// `[sign] digits [. digits] [e [sign] digits]` as unscaled value and scale.
fn decimal(text: &str) -> Option<(BigInt, i32)> {
    let (mantissa, exponent) = match text.find(['e', 'E']) {
        Some(at) => (&text[..at], text[at + 1..].parse::<i64>().ok()?),
        None => (text, 0),
    };
    let (before, after) = mantissa.split_once('.').unwrap_or((mantissa, ""));
    if after.starts_with(['-', '+']) {
        return None;
    }
    let scale = i32::try_from((after.len() as i64).checked_sub(exponent)?).ok()?;
    Some((whole(&format!("{before}{after}"))?, scale))
}
