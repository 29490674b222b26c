//! One value in order-preserving, self-delimiting form.
//!
//! Always true: comparing two encodings byte by byte agrees with [`crate::value::compare`], no encoding is a prefix of another of the
//! same type, and decoding gives the wire bytes back but for these canonical forms: NaN is one NaN, `true` is 1, `varint` and `decimal`
//! as in [`super::number`], tuples and user-defined types have all their fields (missing ones as null).

use super::input::{Input, push_masked};
use super::number::{Decimal, push_decimal, push_varint, read_decimal, read_varint};
use crate::types::CqlType;
use crate::value::ValueError;
use crate::value::collection::{self, elements, entries, fields, patch, patch_length, reserve, vector_elements};
use diorite_base::bytes::Malformed;

/// Presence byte of the zero-length value.
pub(crate) const EMPTY: u8 = 0x01;
/// Presence byte of any other value.
pub(crate) const PRESENT: u8 = 0x02;
/// Ends a collection; as the first byte of a field: null.
const END: u8 = 0x00;
const FIELD_NULL: u8 = 0x01;
const FIELD: u8 = 0x02;

/// Appends bytes so that order is kept and the end is marked: 0 ends, and 0 and 1 within become `1 1` and `1 2`.
#[inline]
pub(crate) fn push_escaped(bytes: &[u8], out: &mut Vec<u8>) {
    if bytes.iter().fold(true, |plain, &byte| plain & (byte > 1)) {
        out.extend_from_slice(bytes);
    } else {
        for &byte in bytes {
            match byte {
                0 | 1 => out.extend_from_slice(&[1, byte + 1]),
                _ => out.push(byte),
            }
        }
    }
    out.push(0);
}

/// Reads what [`push_escaped`] wrote.
#[inline]
pub(crate) fn read_escaped(input: &mut Input<'_>, out: &mut Vec<u8>) -> Result<(), Malformed> {
    let mask = input.mask;
    loop {
        let special = input.rest.iter().position(|&byte| byte ^ mask <= 1).ok_or(Malformed)?;
        push_masked(&input.rest[..special], mask, out);
        let end = input.rest[special] ^ mask == 0;
        input.rest = &input.rest[special + 1..];
        if end {
            return Ok(());
        }
        match input.u8()? {
            escaped @ (1 | 2) => out.push(escaped - 1),
            _ => return Err(Malformed),
        }
    }
}

/// Skips what [`push_escaped`] wrote (not inverted): the length including its end.
#[inline]
pub(crate) fn escaped_len(bytes: &[u8]) -> Result<usize, Malformed> {
    // Within the escaped form 0 occurs only as the end.
    bytes.iter().position(|&byte| byte == 0).map(|end| end + 1).ok_or(Malformed)
}

/// Appends presence and value in ascending order.
pub(crate) fn push_component(data_type: &CqlType, wire: &[u8], out: &mut Vec<u8>) -> Result<(), ValueError> {
    if wire.is_empty() && data_type.allows_empty() {
        out.push(EMPTY);
        return Ok(());
    }
    out.push(PRESENT);
    push_value(data_type, wire, out)
}

/// Reads a component; appends its wire bytes to `out`.
pub(crate) fn read_component(data_type: &CqlType, input: &mut Input<'_>, out: &mut Vec<u8>) -> Result<(), Malformed> {
    match input.u8()? {
        EMPTY => Ok(()),
        PRESENT => read_value(data_type, input, out),
        _ => Err(Malformed),
    }
}

/// Reads a component that stands alone, as a path does.
pub(crate) fn read_path(data_type: &CqlType, path: &[u8], out: &mut Vec<u8>) -> Result<(), Malformed> {
    let mut input = Input { rest: path, mask: 0 };
    read_component(data_type, &mut input, out)?;
    if input.rest.is_empty() { Ok(()) } else { Err(Malformed) }
}

fn fixed<const N: usize>(data_type: &CqlType, wire: &[u8]) -> Result<[u8; N], ValueError> {
    match <[u8; N]>::try_from(wire) {
        Ok(bytes) => Ok(bytes),
        Err(_) => {
            data_type.validate(wire)?;
            Err(ValueError(format!("Expected {N} byte {data_type} ({})", wire.len())))
        }
    }
}

/// Floating point bits in total order: the sign decides whether all bits or only itself is flipped.
pub(crate) fn order_f64(value: f64) -> u64 {
    let bits = if value.is_nan() { f64::NAN.to_bits() & !(1 << 63) } else { value.to_bits() };
    if bits >> 63 == 1 { !bits } else { bits | (1 << 63) }
}

/// As [`order_f64`].
pub(crate) fn order_f32(value: f32) -> u32 {
    let bits = if value.is_nan() { f32::NAN.to_bits() & !(1 << 31) } else { value.to_bits() };
    if bits >> 31 == 1 { !bits } else { bits | (1 << 31) }
}

/// The most significant half of a time UUID with its time in order, and back.
fn time_first(msb: u64) -> u64 {
    (msb << 48) | ((msb << 16) & 0xFFFF_0000_0000) | (msb >> 32)
}

fn time_back(ordered: u64) -> u64 {
    (ordered << 32) | ((ordered >> 16) & 0xFFFF_0000) | (ordered >> 48)
}

/// Cassandra compares the lower half of time UUIDs as signed bytes.
const SIGNED_BYTES: u64 = 0x8080_8080_8080_8080;

/// A `timeuuid` as a number in its order.
pub(crate) fn order_timeuuid(bytes: [u8; 16]) -> u128 {
    let value = u128::from_be_bytes(bytes);
    (u128::from(time_first((value >> 64) as u64)) << 64) | u128::from(value as u64 ^ SIGNED_BYTES)
}

/// A `uuid` as a number in its order: version, then time for version 1 or all bits, then the lower half.
pub(crate) fn order_uuid(bytes: [u8; 16]) -> u128 {
    let value = u128::from_be_bytes(bytes);
    let msb = (value >> 64) as u64;
    let version = (msb >> 12) & 0xF;
    let ordered = if version == 1 { time_first(msb) } else { (version << 60) | ((msb >> 16) << 12) | (msb & 0xFFF) };
    (u128::from(ordered) << 64) | u128::from(value as u64)
}

fn uuid_back(ordered: u128) -> [u8; 16] {
    let high = (ordered >> 64) as u64;
    let version = high >> 60;
    let msb = if version == 1 {
        time_back(high)
    } else {
        (((high >> 12) & 0xFFFF_FFFF_FFFF) << 16) | (version << 12) | (high & 0xFFF)
    };
    ((u128::from(msb) << 64) | u128::from(ordered as u64)).to_be_bytes()
}

/// Appends a non-empty value (or an empty one of a type whose values are never empty).
pub(crate) fn push_value(data_type: &CqlType, wire: &[u8], out: &mut Vec<u8>) -> Result<(), ValueError> {
    match data_type {
        CqlType::Text | CqlType::Ascii | CqlType::Blob | CqlType::Inet | CqlType::Duration | CqlType::Jsonb => {
            push_escaped(wire, out)
        }
        CqlType::Bigint | CqlType::Counter | CqlType::Timestamp | CqlType::Time => {
            let value = u64::from_be_bytes(fixed(data_type, wire)?);
            out.extend_from_slice(&(value ^ (1 << 63)).to_be_bytes());
        }
        CqlType::Int => {
            let value = u32::from_be_bytes(fixed(data_type, wire)?);
            out.extend_from_slice(&(value ^ (1 << 31)).to_be_bytes());
        }
        CqlType::Smallint => {
            let value = u16::from_be_bytes(fixed(data_type, wire)?);
            out.extend_from_slice(&(value ^ (1 << 15)).to_be_bytes());
        }
        CqlType::Tinyint => out.push(fixed::<1>(data_type, wire)?[0] ^ 0x80),
        CqlType::Boolean => out.push(u8::from(fixed::<1>(data_type, wire)?[0] != 0)),
        CqlType::Date => out.extend_from_slice(&fixed::<4>(data_type, wire)?),
        CqlType::Float => {
            let value = f32::from_be_bytes(fixed(data_type, wire)?);
            out.extend_from_slice(&order_f32(value).to_be_bytes());
        }
        CqlType::Double => {
            let value = f64::from_be_bytes(fixed(data_type, wire)?);
            out.extend_from_slice(&order_f64(value).to_be_bytes());
        }
        CqlType::Timeuuid => out.extend_from_slice(&order_timeuuid(fixed(data_type, wire)?).to_be_bytes()),
        CqlType::Uuid => out.extend_from_slice(&order_uuid(fixed(data_type, wire)?).to_be_bytes()),
        CqlType::Varint => push_varint(wire, out),
        CqlType::Decimal => match Decimal::from_wire(wire) {
            Some(decimal) => push_decimal(&decimal, out),
            None => return data_type.validate(wire),
        },
        CqlType::List(element, _) | CqlType::Set(element, _) => {
            for value in elements(wire)? {
                push_component(element, value?, out)?;
            }
            out.push(END);
        }
        CqlType::Map(key, value, _) => {
            for entry in entries(wire)? {
                let (one, other) = entry?;
                push_component(key, one, out)?;
                push_component(value, other, out)?;
            }
            out.push(END);
        }
        CqlType::Tuple(types) => push_fields(types.iter(), wire, out)?,
        CqlType::UserDefined(user, _) => push_fields(user.fields.iter().map(|(_, field)| field), wire, out)?,
        CqlType::Vector(element, dimension) => {
            for value in vector_elements(element, *dimension, wire) {
                push_component(element, value?, out)?;
            }
        }
    }
    Ok(())
}

/// Fields up to the last that is not null, then the end: a missing field is a null one, and sorts first.
fn push_fields<'t>(types: impl Iterator<Item = &'t CqlType>, wire: &[u8], out: &mut Vec<u8>) -> Result<(), ValueError> {
    let mut values = fields(wire);
    let mut end = out.len();
    for field in types {
        match values.next().transpose()? {
            None => break,
            Some(None) => out.push(FIELD_NULL),
            Some(Some(value)) => {
                out.push(FIELD);
                push_component(field, value, out)?;
                end = out.len();
            }
        }
    }
    if values.next().is_some() {
        return Err(ValueError("Invalid remaining data after end of tuple value".to_owned()));
    }
    out.truncate(end);
    out.push(END);
    Ok(())
}

/// Reads what [`push_value`] wrote.
pub(crate) fn read_value(data_type: &CqlType, input: &mut Input<'_>, out: &mut Vec<u8>) -> Result<(), Malformed> {
    match data_type {
        CqlType::Text | CqlType::Ascii | CqlType::Blob | CqlType::Inet | CqlType::Duration | CqlType::Jsonb => {
            return read_escaped(input, out);
        }
        CqlType::Bigint | CqlType::Counter | CqlType::Timestamp | CqlType::Time => {
            out.extend_from_slice(&(u64::from_be_bytes(input.array()?) ^ (1 << 63)).to_be_bytes());
        }
        CqlType::Int => out.extend_from_slice(&(u32::from_be_bytes(input.array()?) ^ (1 << 31)).to_be_bytes()),
        CqlType::Smallint => out.extend_from_slice(&(u16::from_be_bytes(input.array()?) ^ (1 << 15)).to_be_bytes()),
        CqlType::Tinyint => out.push(input.u8()? ^ 0x80),
        CqlType::Boolean => out.push(input.u8()?),
        CqlType::Date => out.extend_from_slice(&input.array::<4>()?),
        CqlType::Float => {
            let ordered = u32::from_be_bytes(input.array()?);
            let bits = if ordered >> 31 == 1 { ordered & !(1 << 31) } else { !ordered };
            out.extend_from_slice(&bits.to_be_bytes());
        }
        CqlType::Double => {
            let ordered = u64::from_be_bytes(input.array()?);
            let bits = if ordered >> 63 == 1 { ordered & !(1 << 63) } else { !ordered };
            out.extend_from_slice(&bits.to_be_bytes());
        }
        CqlType::Timeuuid => {
            let ordered = u128::from_be_bytes(input.array()?);
            out.extend_from_slice(&time_back((ordered >> 64) as u64).to_be_bytes());
            out.extend_from_slice(&(ordered as u64 ^ SIGNED_BYTES).to_be_bytes());
        }
        CqlType::Uuid => out.extend_from_slice(&uuid_back(u128::from_be_bytes(input.array()?))),
        CqlType::Varint => return read_varint(input, out),
        CqlType::Decimal => return read_decimal(input, out),
        CqlType::List(element, _) | CqlType::Set(element, _) => return read_elements(element, element, 1, input, out),
        CqlType::Map(key, value, _) => return read_elements(key, value, 2, input, out),
        CqlType::Tuple(types) => return read_fields(types.iter(), input, out),
        CqlType::UserDefined(user, _) => return read_fields(user.fields.iter().map(|(_, field)| field), input, out),
        CqlType::Vector(element, dimension) => {
            let mut value = Vec::new();
            for _ in 0..*dimension {
                value.clear();
                read_component(element, input, &mut value)?;
                collection::push_vector_element(element, &value, out);
            }
        }
    }
    Ok(())
}

/// Reads components up to the end of a collection; `per_entry` of them (of types `first` and `second` in turn) count as one.
fn read_elements(
    first: &CqlType,
    second: &CqlType,
    per_entry: usize,
    input: &mut Input<'_>,
    out: &mut Vec<u8>,
) -> Result<(), Malformed> {
    let count_at = reserve(out);
    let mut count = 0usize;
    while input.rest.first().ok_or(Malformed)? ^ input.mask != END {
        let length_at = reserve(out);
        read_component(if count.is_multiple_of(2) { first } else { second }, input, out)?;
        patch_length(out, length_at);
        count += 1;
    }
    input.u8()?;
    if !count.is_multiple_of(per_entry) {
        return Err(Malformed);
    }
    patch(out, count_at, count / per_entry);
    Ok(())
}

fn read_fields<'t>(
    types: impl Iterator<Item = &'t CqlType>,
    input: &mut Input<'_>,
    out: &mut Vec<u8>,
) -> Result<(), Malformed> {
    let mut ended = false;
    for field in types {
        match if ended { FIELD_NULL } else { input.u8()? } {
            FIELD => {
                let length_at = reserve(out);
                read_component(field, input, out)?;
                patch_length(out, length_at);
            }
            tag @ (END | FIELD_NULL) => {
                ended |= tag == END;
                collection::push_element(None, out);
            }
            _ => return Err(Malformed),
        }
    }
    if !ended && input.u8()? != END {
        return Err(Malformed);
    }
    Ok(())
}
