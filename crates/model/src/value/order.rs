//! The order of values as clustering columns and collection elements, as Cassandra's types define it.
//!
//! Always true: total over all bytes, valid or not (malformed values are ordered by their bytes), and the same order as that of the key
//! codec's encodings for valid ones.

use super::collection::{elements, fields, keys_and_values, vector_elements};
use crate::key::{compare_decimals, compare_varint, minimal, order_f32, order_f64, order_timeuuid, order_uuid};
use crate::types::CqlType;
use std::cmp::Ordering;

/// Orders two valid wire values as Cassandra orders them as clustering columns (ascending). Empty values sort first.
pub fn compare(data_type: &CqlType, a: &[u8], b: &[u8]) -> Ordering {
    if a.is_empty() || b.is_empty() {
        return a.len().cmp(&b.len());
    }
    match data_type {
        CqlType::Bigint | CqlType::Counter | CqlType::Timestamp | CqlType::Time => by(a, b, i64::from_be_bytes),
        CqlType::Int => by(a, b, i32::from_be_bytes),
        CqlType::Smallint => by(a, b, i16::from_be_bytes),
        CqlType::Tinyint => by(a, b, i8::from_be_bytes),
        CqlType::Boolean => by(a, b, |[byte]: [u8; 1]| byte != 0),
        CqlType::Float => by(a, b, |bytes| order_f32(f32::from_be_bytes(bytes))),
        CqlType::Double => by(a, b, |bytes| order_f64(f64::from_be_bytes(bytes))),
        CqlType::Uuid => by(a, b, order_uuid),
        CqlType::Timeuuid => by(a, b, order_timeuuid),
        CqlType::Varint => compare_varint(minimal(a), minimal(b)),
        CqlType::Decimal => compare_decimals(a, b).unwrap_or_else(|| a.cmp(b)),
        CqlType::List(element, _) | CqlType::Set(element, _) => match (elements(a), elements(b)) {
            (Ok(one), Ok(other)) => compare_sequences(one, other, |_| element),
            _ => a.cmp(b),
        },
        CqlType::Map(key, value, _) => match (keys_and_values(a), keys_and_values(b)) {
            (Ok(one), Ok(other)) => compare_sequences(one, other, |at| if at % 2 == 0 { key } else { value }),
            _ => a.cmp(b),
        },
        CqlType::Tuple(types) => compare_fields(types.iter(), a, b),
        CqlType::UserDefined(user, _) => compare_fields(user.fields.iter().map(|(_, field)| field), a, b),
        CqlType::Vector(element, dimension) => {
            let values = |wire| vector_elements(element, *dimension, wire);
            compare_sequences(values(a), values(b), |_| element)
        }
        CqlType::Ascii
        | CqlType::Blob
        | CqlType::Date
        | CqlType::Duration
        | CqlType::Inet
        | CqlType::Jsonb
        | CqlType::Text => a.cmp(b),
    }
}

fn by<const N: usize, K: Ord>(a: &[u8], b: &[u8], key: impl Fn([u8; N]) -> K) -> Ordering {
    match (a.try_into(), b.try_into()) {
        (Ok(one), Ok(other)) => key(one).cmp(&key(other)),
        _ => a.cmp(b),
    }
}

/// Element by element, then the shorter first.
fn compare_sequences<'a, 't, E>(
    mut a: impl Iterator<Item = Result<&'a [u8], E>>,
    mut b: impl Iterator<Item = Result<&'a [u8], E>>,
    type_at: impl Fn(usize) -> &'t CqlType,
) -> Ordering {
    for at in 0.. {
        let order = match (a.next().and_then(Result::ok), b.next().and_then(Result::ok)) {
            (Some(one), Some(other)) => compare(type_at(at), one, other),
            (None, None) => return Ordering::Equal,
            (None, Some(_)) => Ordering::Less,
            (Some(_), None) => Ordering::Greater,
        };
        if order != Ordering::Equal {
            return order;
        }
    }
    Ordering::Equal
}

/// Field by field; null, which a missing field is too, sorts first.
fn compare_fields<'t>(types: impl Iterator<Item = &'t CqlType>, a: &[u8], b: &[u8]) -> Ordering {
    let (mut a, mut b) = (fields(a), fields(b));
    for field in types {
        let one = a.next().and_then(Result::ok).flatten();
        let other = b.next().and_then(Result::ok).flatten();
        let order = match (one, other) {
            (Some(one), Some(other)) => compare(field, one, other),
            (one, other) => one.is_some().cmp(&other.is_some()),
        };
        if order != Ordering::Equal {
            return order;
        }
    }
    Ordering::Equal
}
