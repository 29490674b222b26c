//! Whether bytes from a client are a value of a type.
//!
//! Always true: accepts what Cassandra's serializers accept, with its error messages, except for values that a later
//! step could not read: Cassandra accepts some malformed decimals and durations and fails when it reads them; they are
//! refused here. So are numbers over [`MAX_NUMBER_BYTES`]; numbers that were stored before there was that limit stay
//! readable.

use super::ValueError;
use super::collection::{elements, entries, fields, vector_elements};
use super::span::Span;
use crate::json::Json;
use crate::types::CqlType;
use diorite_base::limits::MAX_NUMBER_BYTES;

/// Nanoseconds of a day: `time` stays below it.
pub(crate) const DAY_NS: i64 = 86_400_000_000_000;

fn refuse<T>(message: impl Into<String>) -> Result<T, ValueError> {
    Err(ValueError(message.into()))
}

impl CqlType {
    /// The wire length of every non-empty value of this type, if there is only one.
    pub fn fixed_length(&self) -> Option<usize> {
        match self {
            CqlType::Boolean | CqlType::Tinyint => Some(1),
            CqlType::Smallint => Some(2),
            CqlType::Int | CqlType::Float | CqlType::Date => Some(4),
            CqlType::Bigint | CqlType::Counter | CqlType::Double | CqlType::Time | CqlType::Timestamp => Some(8),
            CqlType::Uuid | CqlType::Timeuuid => Some(16),
            _ => None,
        }
    }

    /// The length of this type's values inside a vector, where Cassandra treats some fixed types as variable.
    pub fn vector_element_length(&self) -> Option<usize> {
        match self {
            CqlType::Tinyint | CqlType::Smallint | CqlType::Date | CqlType::Time => None,
            CqlType::Vector(element, dimension) => {
                element.vector_element_length().map(|length| length.saturating_mul(usize::from(*dimension)))
            }
            other => other.fixed_length(),
        }
    }

    /// Whether the zero-length value is allowed; it differs from null, and sorts before every other value.
    pub fn allows_empty(&self) -> bool {
        !matches!(
            self,
            CqlType::Date
                | CqlType::Time
                | CqlType::Smallint
                | CqlType::Tinyint
                | CqlType::Duration
                | CqlType::Jsonb
                | CqlType::List(..)
                | CqlType::Set(..)
                | CqlType::Map(..)
                | CqlType::Vector(..)
        )
    }

    /// Checks the wire bytes of a value that comes from a client. Null is not a value.
    pub fn validate(&self, wire: &[u8]) -> Result<(), ValueError> {
        self.check(wire, MAX_NUMBER_BYTES)
    }

    /// Checks the wire bytes of a value in which `varint` and `decimal` take at most `number_bytes` bytes.
    pub(super) fn check(&self, wire: &[u8], number_bytes: usize) -> Result<(), ValueError> {
        if wire.is_empty() && self.allows_empty() {
            return Ok(());
        }
        if let Some(length) = self.fixed_length() {
            return self.validate_fixed(wire, length);
        }
        match self {
            CqlType::Ascii if !wire.is_ascii() => refuse("Invalid byte for ascii: the value has bytes above 127"),
            CqlType::Jsonb => match std::str::from_utf8(wire) {
                Ok(text) => Json::parse(text).map(drop),
                Err(_) => refuse("String didn't validate."),
            },
            CqlType::Text if std::str::from_utf8(wire).is_err() => refuse("String didn't validate."),
            CqlType::Inet if wire.len() != 4 && wire.len() != 16 => {
                refuse(format!("bytes representing an inet address must be 4 or 16 long, not {}", wire.len()))
            }
            CqlType::Decimal if wire.len() < 5 => {
                refuse(format!("Expected 0 or at least 5 bytes for decimal ({})", wire.len()))
            }
            CqlType::Varint | CqlType::Decimal if wire.len() > number_bytes => {
                refuse(format!("a {self} takes at most {number_bytes} bytes, not {}", wire.len()))
            }
            CqlType::Duration => validate_duration(wire),
            CqlType::List(element, _) | CqlType::Set(element, _) => {
                elements(wire)?.try_for_each(|value| element.check(value?, number_bytes))
            }
            CqlType::Map(key, value, _) => entries(wire)?.try_for_each(|entry| {
                let (one, other) = entry?;
                key.check(one, number_bytes)?;
                value.check(other, number_bytes)
            }),
            CqlType::Tuple(types) => check_fields(wire, types.iter(), "tuple", number_bytes),
            CqlType::UserDefined(user, _) => {
                check_fields(wire, user.fields.iter().map(|(_, field)| field), &user.name, number_bytes)
            }
            CqlType::Vector(element, dimension) => {
                vector_elements(element, *dimension, wire).try_for_each(|value| element.check(value?, number_bytes))
            }
            _ => Ok(()),
        }
    }

    fn validate_fixed(&self, wire: &[u8], length: usize) -> Result<(), ValueError> {
        if wire.len() != length {
            return refuse(match self {
                CqlType::Boolean => format!("Expected 1 or 0 byte value ({})", wire.len()),
                CqlType::Tinyint | CqlType::Smallint | CqlType::Date | CqlType::Time => {
                    format!("Expected {length} bytes for a {self} ({})", wire.len())
                }
                CqlType::Uuid | CqlType::Timeuuid => format!("UUID should be 16 or 0 bytes ({})", wire.len()),
                _ => format!("Expected {length} or 0 byte {self} ({})", wire.len()),
            });
        }
        match self {
            CqlType::Timeuuid if wire[6] >> 4 != 1 => refuse("Invalid version for TimeUUID type."),
            CqlType::Time => {
                let mut nanoseconds = [0; 8];
                nanoseconds.copy_from_slice(wire);
                let nanoseconds = i64::from_be_bytes(nanoseconds);
                if (0..DAY_NS).contains(&nanoseconds) {
                    return Ok(());
                }
                refuse(format!("{nanoseconds} is not a time: it must be at least 0 and below {DAY_NS} nanoseconds"))
            }
            _ => Ok(()),
        }
    }
}

fn check_fields<'t>(
    wire: &[u8],
    types: impl Iterator<Item = &'t CqlType>,
    what: &str,
    number_bytes: usize,
) -> Result<(), ValueError> {
    let mut values = fields(wire);
    for field in types {
        match values.next() {
            None => return Ok(()),
            Some(value) => value?.map_or(Ok(()), |value| field.check(value, number_bytes))?,
        }
    }
    match values.next() {
        None => Ok(()),
        Some(_) => refuse(format!("Invalid remaining data after end of {what} value")),
    }
}

fn validate_duration(wire: &[u8]) -> Result<(), ValueError> {
    Span::read(wire).map(drop)
}
