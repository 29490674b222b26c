//! Moments: between `timeuuid`, `timestamp` and `date`, and cut down to a multiple of a duration.
//!
//! Always true: a moment is milliseconds since 1970. Left out: adding durations ([`super::arithmetic`]).

use crate::error::invalid;
use diorite_cql::protocol::CqlError;
use diorite_model::types::CqlType;
use diorite_model::value::calendar::{self, Span};

/// Ticks of 100 ns between the start of the Gregorian calendar (what UUIDs count from) and 1970.
const GREGORIAN_OFFSET: i64 = 0x01B2_1DD2_1381_4000;

/// The day number of 1970-01-01 in a `date`.
const DATE_EPOCH: i64 = 1 << 31;

pub(super) const MS_PER_DAY: i64 = 86_400_000;

/// A version 1 UUID: `ticks` of 100 ns since 1970, then clock sequence and node as given.
pub(super) fn timeuuid(ticks: i64, rest: [u8; 8]) -> [u8; 16] {
    let ticks = (ticks.wrapping_add(GREGORIAN_OFFSET)) as u64;
    let mut uuid = [0; 16];
    uuid[..4].copy_from_slice(&(ticks as u32).to_be_bytes());
    uuid[4..6].copy_from_slice(&((ticks >> 32) as u16).to_be_bytes());
    uuid[6..8].copy_from_slice(&(((ticks >> 48) as u16 & 0x0FFF) | 0x1000).to_be_bytes());
    uuid[8..].copy_from_slice(&rest);
    uuid
}

/// Milliseconds since 1970 of a version 1 UUID.
pub(super) fn timeuuid_ms(uuid: &[u8]) -> Option<i64> {
    let low = u32::from_be_bytes(uuid.get(..4)?.try_into().ok()?);
    let middle = u16::from_be_bytes(uuid.get(4..6)?.try_into().ok()?);
    let high = u16::from_be_bytes(uuid.get(6..8)?.try_into().ok()?) & 0x0FFF;
    let ticks = (i64::from(high) << 48) | (i64::from(middle) << 32) | i64::from(low);
    Some((ticks - GREGORIAN_OFFSET).div_euclid(10_000))
}

/// Milliseconds since 1970 of a moment of type `from`.
pub(super) fn moment_ms(from: &CqlType, wire: &[u8]) -> Option<i64> {
    match from {
        CqlType::Timeuuid => timeuuid_ms(wire),
        CqlType::Timestamp => Some(i64::from_be_bytes(wire.try_into().ok()?)),
        CqlType::Date => Some((i64::from(u32::from_be_bytes(wire.try_into().ok()?)) - DATE_EPOCH) * MS_PER_DAY),
        _ => None,
    }
}

/// Milliseconds since 1970 as a moment of type `to`.
pub(super) fn moment_from_ms(to: &CqlType, ms: i64) -> Vec<u8> {
    match to {
        CqlType::Date => {
            let day = (ms.div_euclid(MS_PER_DAY) + DATE_EPOCH).clamp(0, i64::from(u32::MAX));
            (day as u32).to_be_bytes().to_vec()
        }
        CqlType::Time => (ms.rem_euclid(MS_PER_DAY) * 1_000_000).to_be_bytes().to_vec(),
        _ => ms.to_be_bytes().to_vec(),
    }
}

/// A moment cut down to a multiple of a duration.
pub(super) fn floor(
    of: &CqlType,
    moment: &[u8],
    duration: &[u8],
    start: Option<&[u8]>,
) -> Result<Option<Vec<u8>>, CqlError> {
    if moment.is_empty() {
        return Ok(None);
    }
    let span = Span::from_wire(duration).ok_or_else(|| invalid("the duration cannot be read"))?;
    if span.is_negative() {
        return Err(invalid("Negative durations are not supported by the floor function"));
    }
    if *of == CqlType::Time {
        let since_midnight = i64::from_be_bytes(moment.try_into().map_err(|_| invalid("Invalid time"))?);
        if span.months != 0 || span.days != 0 {
            return Err(invalid("For time values, the floor can only be computed for durations smaller than a day"));
        }
        let cut = if span.nanoseconds == 0 { 0 } else { since_midnight % span.nanoseconds };
        return Ok(Some((since_midnight - cut).to_be_bytes().to_vec()));
    }
    let returns = if *of == CqlType::Date { CqlType::Date } else { CqlType::Timestamp };
    if returns == CqlType::Date && span.nanoseconds != 0 {
        return Err(invalid(
            "The floor on date values cannot be computed for durations with a precision smaller than a day",
        ));
    }
    let Some(moment) = moment_ms(of, moment) else { return Ok(None) };
    let start = start.map_or(Some(0), |start| moment_ms(&returns, start)).unwrap_or(0);
    if start > moment {
        return Err(invalid("The floor function starting time is greater than the provided time"));
    }
    let found = calendar::floor(moment, span, start).ok_or_else(|| invalid("the result is out of range"))?;
    Ok(Some(moment_from_ms(&returns, found)))
}

pub(super) fn bounding_timeuuid(timestamp: &[u8], ticks: i64, fill: u8) -> Option<Vec<u8>> {
    let ms = i64::from_be_bytes(timestamp.try_into().ok()?);
    Some(timeuuid(ms.saturating_mul(10_000).saturating_add(ticks), [fill; 8]).to_vec())
}
