//! Parts of values in wire form, and how values compare: elements of collections, fields of user types.
//!
//! Always true: a part is borrowed from its value; an absent part is `None`. Left out: where the value comes from.

use crate::error::value_error;
use crate::steps;
use diorite_cql::language::ast::ComparisonOperator;
use diorite_cql::protocol::CqlError;
use diorite_model::types::{CqlType, Frozen};
use diorite_model::value::{self, collection};
use std::cmp::Ordering;

/// Whether `ordering` satisfies `operator`.
pub fn satisfies(operator: ComparisonOperator, ordering: Ordering) -> bool {
    match operator {
        ComparisonOperator::Equal => ordering.is_eq(),
        ComparisonOperator::NotEqual => ordering.is_ne(),
        ComparisonOperator::Less => ordering.is_lt(),
        ComparisonOperator::LessOrEqual => ordering.is_le(),
        ComparisonOperator::Greater => ordering.is_gt(),
        ComparisonOperator::GreaterOrEqual => ordering.is_ge(),
    }
}

/// The value of a map at a key, the element of a set that equals the key, or the element of a list at an index.
pub fn element_of<'a>(data_type: &CqlType, wire: &'a [u8], key: &[u8]) -> Result<Option<&'a [u8]>, CqlError> {
    match data_type {
        CqlType::Map(key_type, ..) => {
            for entry in collection::entries(wire).map_err(value_error)? {
                let (entry_key, entry_value) = entry.map_err(value_error)?;
                steps::count(1);
                if value::compare(key_type, entry_key, key) == Ordering::Equal {
                    return Ok(Some(entry_value));
                }
            }
            Ok(None)
        }
        CqlType::Set(element_type, _) => {
            for element in collection::elements(wire).map_err(value_error)? {
                let element = element.map_err(value_error)?;
                if value::compare(element_type, element, key) == Ordering::Equal {
                    return Ok(Some(element));
                }
            }
            Ok(None)
        }
        CqlType::List(..) => {
            let Some(index) = index_of(key) else { return Ok(None) };
            collection::elements(wire).map_err(value_error)?.nth(index).transpose().map_err(value_error)
        }
        CqlType::Vector(element, dimension) => {
            let Some(index) = index_of(key) else { return Ok(None) };
            collection::vector_elements(element, *dimension, wire).nth(index).transpose().map_err(value_error)
        }
        _ => Ok(None),
    }
}

/// A list index in its wire form; `None` if it is negative or null.
pub fn index_of(wire: &[u8]) -> Option<usize> {
    let index = i32::from_be_bytes(wire.try_into().ok()?);
    usize::try_from(index).ok()
}

/// A field of a user-defined type.
pub fn field_of(wire: &[u8], index: u16) -> Result<Option<&[u8]>, CqlError> {
    let field = collection::fields(wire).nth(usize::from(index)).transpose().map_err(value_error)?;
    Ok(field.flatten())
}

/// Whether a collection has an element (of a map: a value), or a map a key.
pub fn contains(data_type: &CqlType, wire: &[u8], wanted: &[u8], is_key: bool) -> Result<bool, CqlError> {
    let is_equal = |of: &CqlType, found: &[u8]| {
        steps::count(1);
        value::compare(of, found, wanted) == Ordering::Equal
    };
    match data_type {
        CqlType::List(element, _) | CqlType::Set(element, _) => {
            for found in collection::elements(wire).map_err(value_error)? {
                if is_equal(element, found.map_err(value_error)?) {
                    return Ok(true);
                }
            }
        }
        CqlType::Map(key_type, value_type, _) => {
            for entry in collection::entries(wire).map_err(value_error)? {
                let (key, value) = entry.map_err(value_error)?;
                if is_key && is_equal(key_type, key) || !is_key && is_equal(value_type, value) {
                    return Ok(true);
                }
            }
        }
        _ => {}
    }
    Ok(false)
}

/// A type whose values are compared as one, for multi-cell columns as well.
pub fn frozen(data_type: &CqlType) -> CqlType {
    match data_type {
        CqlType::List(element, _) => CqlType::List(element.clone(), Frozen::Yes),
        CqlType::Set(element, _) => CqlType::Set(element.clone(), Frozen::Yes),
        CqlType::Map(key, value, _) => CqlType::Map(key.clone(), value.clone(), Frozen::Yes),
        CqlType::UserDefined(user, _) => CqlType::UserDefined(user.clone(), Frozen::Yes),
        other => other.clone(),
    }
}
