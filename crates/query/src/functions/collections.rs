//! Functions of one collection: `map_keys`, `map_values`, `collection_count`, `_min`, `_max`, `_sum`, `_avg`.
//!
//! Always true: nothing of an empty collection is null, but its count and its sum are 0. Left out: aggregates over rows ([`crate::exec`]).

use super::number::{Decimal, DecimalSum, Number};
use crate::error::{invalid, value_error};
use diorite_cql::protocol::CqlError;
use diorite_model::types::CqlType;
use diorite_model::value::{collection, compare};

type Parts<'a> = Vec<&'a [u8]>;

/// The elements of a list, set or vector; of a map keys and values in turn.
fn parts<'a>(of: &CqlType, wire: &'a [u8]) -> Result<Parts<'a>, CqlError> {
    match of {
        CqlType::Map(..) => collection::keys_and_values(wire).map_err(value_error)?.collect::<Result<_, _>>(),
        CqlType::Vector(element, dimension) => collection::vector_elements(element, *dimension, wire).collect(),
        _ => collection::elements(wire).map_err(value_error)?.collect(),
    }
    .map_err(value_error)
}

/// The memory of a list of the parts, while it grows.
pub fn parts_bytes(of: &CqlType, wire: &[u8]) -> usize {
    let count = match of {
        CqlType::Vector(_, dimension) => usize::from(*dimension),
        // A part takes four bytes at least, whatever number the value begins with.
        _ => wire.first_chunk::<4>().map_or(0, |count| (u32::from_be_bytes(*count) as usize).min(wire.len() / 4)),
    };
    let each = if matches!(of, CqlType::Map(..)) { 2 } else { 1 };
    count * each * 3 * size_of::<&[u8]>()
}

/// Every second part of a map: its keys, or its values.
pub fn of_map(of: &CqlType, wire: &[u8], values: bool) -> Result<Vec<u8>, CqlError> {
    let parts = parts(of, wire)?;
    let mut out = Vec::new();
    collection::push_count(parts.len() / 2, &mut out);
    for part in parts.iter().skip(usize::from(values)).step_by(2) {
        collection::push_element(Some(part), &mut out);
    }
    Ok(out)
}

/// How many elements or entries there are.
pub fn count(of: &CqlType, wire: &[u8]) -> Result<Vec<u8>, CqlError> {
    let each = if matches!(of, CqlType::Map(..)) { 2 } else { 1 };
    Ok(((parts(of, wire)?.len() / each) as i32).to_be_bytes().to_vec())
}

fn element_type(of: &CqlType) -> Result<&CqlType, CqlError> {
    match of {
        CqlType::List(element, _) | CqlType::Set(element, _) | CqlType::Vector(element, _) => Ok(element),
        _ => Err(invalid(format!("{of} is no list, set or vector"))),
    }
}

/// The least or greatest element.
pub fn extreme(of: &CqlType, wire: &[u8], greatest: bool) -> Result<Option<Vec<u8>>, CqlError> {
    let element = element_type(of)?;
    let parts = parts(of, wire)?;
    let found = match greatest {
        true => parts.into_iter().max_by(|one, other| compare(element, one, other)),
        false => parts.into_iter().min_by(|one, other| compare(element, one, other)),
    };
    Ok(found.map(<[u8]>::to_vec))
}

/// The sum of the elements, or their mean.
pub fn sum(of: &CqlType, wire: &[u8], is_mean: bool) -> Result<Vec<u8>, CqlError> {
    let element = element_type(of)?;
    let (mut integer, mut float, mut exact, mut count) = (0i128, 0f64, DecimalSum::default(), 0u32);
    for part in parts(of, wire)? {
        if part.is_empty() {
            continue;
        }
        count += 1;
        match Number::read(element, part)? {
            Number::Integer(value) => integer += i128::from(value),
            Number::Single(value) => float += f64::from(value),
            Number::Float(value) => float += value,
            number => exact.add(number.to_decimal()?)?,
        }
    }
    let exact = exact.total();
    let divisor = if is_mean { count.max(1) } else { 1 };
    let result = match element {
        CqlType::Float | CqlType::Double => Number::Float(float / f64::from(divisor)),
        CqlType::Varint => Number::Whole(exact.unscaled / divisor),
        CqlType::Decimal if divisor == 1 => Number::Exact(exact),
        CqlType::Decimal => Number::Exact(exact.divide(&Decimal { unscaled: divisor.into(), scale: 0 })?),
        _ => Number::Integer((integer / i128::from(divisor)) as i64),
    };
    let mut out = Vec::new();
    result.write(element, &mut out)?;
    Ok(out)
}
