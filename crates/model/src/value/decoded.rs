//! Between wire bytes and [`Value`].
//!
//! Always true: decoding validates; encoding what was decoded gives an equal value (missing fields of tuples and user-defined types are
//! written as null).

use super::collection::{
    elements, entries, fields, patch_length, push_count, push_element, push_vector_element, reserve, vector_elements,
};
use super::span::Span;
use super::{Value, ValueError};
use crate::types::CqlType;
use num_bigint::BigInt;
use std::net::IpAddr;
use uuid::Uuid;

impl Value {
    /// Decodes and validates wire bytes. Stored numbers may be longer than clients may send.
    pub fn decode(data_type: &CqlType, wire: &[u8]) -> Result<Value, ValueError> {
        data_type.check(wire, usize::MAX)?;
        decode_checked(data_type, wire)
    }

    /// Appends the wire bytes. Refuses a value of another type.
    pub fn encode(&self, data_type: &CqlType, out: &mut Vec<u8>) -> Result<(), ValueError> {
        let start = out.len();
        match self {
            Value::Empty => {}
            Value::Ascii(text) | Value::Text(text) | Value::Jsonb(text) => out.extend_from_slice(text.as_bytes()),
            Value::Bigint(value) | Value::Time(value) | Value::Timestamp(value) => {
                out.extend_from_slice(&value.to_be_bytes());
            }
            Value::Blob(bytes) => out.extend_from_slice(bytes),
            Value::Boolean(value) => out.push(u8::from(*value)),
            Value::Date(value) => out.extend_from_slice(&value.to_be_bytes()),
            Value::Decimal(unscaled, scale) => {
                out.extend_from_slice(&scale.to_be_bytes());
                out.extend_from_slice(&unscaled.to_signed_bytes_be());
            }
            Value::Double(value) => out.extend_from_slice(&value.to_be_bytes()),
            Value::Duration { months, days, nanoseconds } => {
                Span { months: *months, days: *days, nanoseconds: *nanoseconds }.push_wire(out);
            }
            Value::Float(value) => out.extend_from_slice(&value.to_be_bytes()),
            Value::Inet(IpAddr::V4(address)) => out.extend_from_slice(&address.octets()),
            Value::Inet(IpAddr::V6(address)) => out.extend_from_slice(&address.octets()),
            Value::Int(value) => out.extend_from_slice(&value.to_be_bytes()),
            Value::Smallint(value) => out.extend_from_slice(&value.to_be_bytes()),
            Value::Tinyint(value) => out.extend_from_slice(&value.to_be_bytes()),
            Value::Timeuuid(value) | Value::Uuid(value) => out.extend_from_slice(value.as_bytes()),
            Value::Varint(value) => out.extend_from_slice(&value.to_signed_bytes_be()),
            _ => encode_nested(self, data_type, out)?,
        }
        data_type.validate(&out[start..])
    }
}

fn decode_checked(data_type: &CqlType, wire: &[u8]) -> Result<Value, ValueError> {
    if wire.is_empty() && !matches!(data_type, CqlType::Text | CqlType::Ascii | CqlType::Blob) {
        return Ok(Value::Empty);
    }
    decode_valid(data_type, wire)
}

fn wrong_type(data_type: &CqlType) -> ValueError {
    ValueError(format!("the value is not a {data_type}"))
}

fn fixed<const N: usize>(wire: &[u8]) -> Result<[u8; N], ValueError> {
    wire.try_into().map_err(|_| ValueError(format!("Expected {N} bytes ({})", wire.len())))
}

fn text(wire: &[u8]) -> Result<String, ValueError> {
    String::from_utf8(wire.to_vec()).map_err(|_| ValueError("String didn't validate.".to_owned()))
}

fn decode_valid(data_type: &CqlType, wire: &[u8]) -> Result<Value, ValueError> {
    Ok(match data_type {
        CqlType::Ascii => Value::Ascii(text(wire)?),
        CqlType::Text => Value::Text(text(wire)?),
        CqlType::Jsonb => Value::Jsonb(text(wire)?),
        CqlType::Bigint | CqlType::Counter => Value::Bigint(i64::from_be_bytes(fixed(wire)?)),
        CqlType::Blob => Value::Blob(wire.to_vec()),
        CqlType::Boolean => Value::Boolean(wire[0] != 0),
        CqlType::Date => Value::Date(u32::from_be_bytes(fixed(wire)?)),
        CqlType::Decimal => {
            let scale = i32::from_be_bytes(fixed(&wire[..4])?);
            Value::Decimal(BigInt::from_signed_bytes_be(&wire[4..]), scale)
        }
        CqlType::Double => Value::Double(f64::from_be_bytes(fixed(wire)?)),
        CqlType::Duration => {
            let Span { months, days, nanoseconds } = Span::read(wire)?;
            Value::Duration { months, days, nanoseconds }
        }
        CqlType::Float => Value::Float(f32::from_be_bytes(fixed(wire)?)),
        CqlType::Inet if wire.len() == 4 => Value::Inet(IpAddr::from(fixed::<4>(wire)?)),
        CqlType::Inet => Value::Inet(IpAddr::from(fixed::<16>(wire)?)),
        CqlType::Int => Value::Int(i32::from_be_bytes(fixed(wire)?)),
        CqlType::Smallint => Value::Smallint(i16::from_be_bytes(fixed(wire)?)),
        CqlType::Time => Value::Time(i64::from_be_bytes(fixed(wire)?)),
        CqlType::Timestamp => Value::Timestamp(i64::from_be_bytes(fixed(wire)?)),
        CqlType::Timeuuid => Value::Timeuuid(Uuid::from_bytes(fixed(wire)?)),
        CqlType::Tinyint => Value::Tinyint(i8::from_be_bytes(fixed(wire)?)),
        CqlType::Uuid => Value::Uuid(Uuid::from_bytes(fixed(wire)?)),
        CqlType::Varint => Value::Varint(BigInt::from_signed_bytes_be(wire)),
        CqlType::List(element, _) => Value::List(decode_all(element, elements(wire)?)?),
        CqlType::Set(element, _) => Value::Set(decode_all(element, elements(wire)?)?),
        CqlType::Vector(element, dimension) => {
            Value::Vector(decode_all(element, vector_elements(element, *dimension, wire))?)
        }
        CqlType::Map(key, value, _) => {
            let decode = |entry: Result<(&[u8], &[u8]), ValueError>| {
                let (one, other) = entry?;
                Ok((decode_checked(key, one)?, decode_checked(value, other)?))
            };
            Value::Map(entries(wire)?.map(decode).collect::<Result<_, ValueError>>()?)
        }
        CqlType::Tuple(types) => Value::Tuple(decode_fields(types.iter(), wire)?),
        CqlType::UserDefined(user, _) => {
            Value::UserDefined(decode_fields(user.fields.iter().map(|(_, field)| field), wire)?)
        }
    })
}

fn decode_all<'a>(
    element: &CqlType,
    values: impl Iterator<Item = Result<&'a [u8], ValueError>>,
) -> Result<Vec<Value>, ValueError> {
    values.map(|value| decode_checked(element, value?)).collect()
}

/// All fields of the type; missing ones are null.
fn decode_fields<'t>(types: impl Iterator<Item = &'t CqlType>, wire: &[u8]) -> Result<Vec<Option<Value>>, ValueError> {
    let mut values = fields(wire);
    types
        .map(|field| match values.next().transpose()?.flatten() {
            Some(value) => decode_checked(field, value).map(Some),
            None => Ok(None),
        })
        .collect()
}

fn push_value(value: &Value, data_type: &CqlType, out: &mut Vec<u8>) -> Result<(), ValueError> {
    let length_at = reserve(out);
    value.encode(data_type, out)?;
    patch_length(out, length_at);
    Ok(())
}

fn encode_nested(value: &Value, data_type: &CqlType, out: &mut Vec<u8>) -> Result<(), ValueError> {
    match (value, data_type) {
        (Value::List(values), CqlType::List(element, _)) | (Value::Set(values), CqlType::Set(element, _)) => {
            push_count(values.len(), out);
            values.iter().try_for_each(|value| push_value(value, element, out))
        }
        (Value::Map(pairs), CqlType::Map(key_type, value_type, _)) => {
            push_count(pairs.len(), out);
            pairs.iter().try_for_each(|(key, value)| {
                push_value(key, key_type, out)?;
                push_value(value, value_type, out)
            })
        }
        (Value::Tuple(values), CqlType::Tuple(types)) => encode_fields(values, types.iter(), out),
        (Value::UserDefined(values), CqlType::UserDefined(user, _)) => {
            encode_fields(values, user.fields.iter().map(|(_, field)| field), out)
        }
        (Value::Vector(values), CqlType::Vector(element, _)) => values.iter().try_for_each(|value| {
            let mut wire = Vec::new();
            value.encode(element, &mut wire)?;
            push_vector_element(element, &wire, out);
            Ok(())
        }),
        _ => Err(wrong_type(data_type)),
    }
}

fn encode_fields<'t>(
    values: &[Option<Value>],
    types: impl Iterator<Item = &'t CqlType>,
    out: &mut Vec<u8>,
) -> Result<(), ValueError> {
    values.iter().zip(types).try_for_each(|(value, field)| match value {
        Some(value) => push_value(value, field, out),
        None => {
            push_element(None, out);
            Ok(())
        }
    })
}
