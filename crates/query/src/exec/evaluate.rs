//! Selectors over a row.
//!
//! Always true: a selector gives wire bytes of its type or null. Left out: aggregates are only looked up; they are computed in
//! [`super::aggregate`].

use super::row::{RowData, path_of};
use crate::error::{invalid, value_error};
use crate::plan::selection::Selector;
use crate::plan::term::{Bound, Evaluated};
use crate::steps;
use crate::table::TableContext;
use diorite_cql::language::ast::MetadataKind;
use diorite_cql::protocol::CqlError;
use diorite_model::row::{Expiry, field_path};
use diorite_model::types::{CqlType, Frozen};
use diorite_model::value::{self, collection};
use std::borrow::Cow;
use std::cmp::Ordering;

/// What selectors are evaluated with.
#[derive(Clone, Copy)]
pub struct Scope<'a> {
    /// The table.
    pub table: &'a TableContext,
    /// Bound values and environment.
    pub bound: &'a Bound<'a>,
    /// The results of the aggregates, once they are known.
    pub aggregates: &'a [Option<Vec<u8>>],
}

impl Scope<'_> {
    fn now_s(&self) -> u32 {
        self.bound.environment.now_s
    }

    /// The value of a selector on `row`.
    pub fn evaluate<'r>(&'r self, selector: &'r Selector, row: &'r RowData) -> Result<Option<Cow<'r, [u8]>>, CqlError> {
        match selector {
            Selector::Column(at) => Ok(row.value(*at).map(Cow::Borrowed)),
            Selector::Term(term) => Ok(term.evaluate(self.bound)?.bytes()),
            Selector::Call(function, arguments) => {
                let mut values = Vec::with_capacity(arguments.len());
                for argument in arguments {
                    values.push(self.evaluate(argument, row)?);
                }
                Ok(function.call(&values, &self.bound.environment)?.map(Cow::Owned))
            }
            Selector::Metadata(kind, at) => Ok(self.metadata(*kind, *at, row).map(Cow::Owned)),
            Selector::ElementMetadata(kind, at, key) => {
                let Evaluated::Set(key) = key.evaluate(self.bound)? else { return Ok(None) };
                let key_type = match &self.table.column(*at).data_type {
                    CqlType::Map(key, ..) | CqlType::Set(key, _) => key,
                    _ => return Ok(None),
                };
                let path = path_of(key_type, &key)?;
                let info = row.element(*at, &path);
                Ok(info.and_then(|info| self.scalar(*kind, info.timestamp_us, info.expiry)).map(Cow::Owned))
            }
            Selector::FieldMetadata(kind, at, index) => {
                let info = row.element(*at, &field_path(*index));
                Ok(info.and_then(|info| self.scalar(*kind, info.timestamp_us, info.expiry)).map(Cow::Owned))
            }
            Selector::Element(of, data_type, key) => {
                let Some(wire) = self.evaluate(of, row)? else { return Ok(None) };
                let Evaluated::Set(key) = key.evaluate(self.bound)? else { return Ok(None) };
                within(wire, |wire| element_of(data_type, wire, &key))
            }
            Selector::Slice(of, data_type, from, to) => {
                let Some(wire) = self.evaluate(of, row)? else { return Ok(None) };
                let mut bound = [None, None];
                for (slot, term) in bound.iter_mut().zip([from, to]) {
                    if let Some(term) = term {
                        let Evaluated::Set(value) = term.evaluate(self.bound)? else { return Ok(None) };
                        *slot = Some(value);
                    }
                }
                let found = slice_of(data_type, &wire, bound[0].as_deref(), bound[1].as_deref())?;
                // What is stored by element has no empty value.
                Ok(Some(found).filter(|found| !data_type.is_multi_cell() || found[..4] != [0; 4]).map(Cow::Owned))
            }
            Selector::Field(of, index) => {
                let Some(wire) = self.evaluate(of, row)? else { return Ok(None) };
                within(wire, |wire| field_of(wire, *index))
            }
            Selector::Build(data_type, parts) => Ok(Some(Cow::Owned(self.build(data_type, parts, row)?))),
            Selector::Aggregate(number) => {
                Ok(self.aggregates.get(*number).and_then(|value| value.as_deref()).map(Cow::Borrowed))
            }
        }
    }

    /// A collection, tuple or user type of what other selectors give.
    fn build(&self, data_type: &CqlType, parts: &[Selector], row: &RowData) -> Result<Vec<u8>, CqlError> {
        let mut wire = Vec::new();
        match data_type {
            CqlType::List(..) | CqlType::Set(..) => collection::push_count(parts.len(), &mut wire),
            CqlType::Map(..) => collection::push_count(parts.len() / 2, &mut wire),
            _ => {}
        }
        let allows_null = matches!(data_type, CqlType::Tuple(_) | CqlType::UserDefined(..));
        let mut working = self.bound.environment.budget.hold(0)?;
        for part in parts {
            let part = self.evaluate(part, row)?;
            // It is put together, and then brought to its stored form.
            let part_bytes = 4 + part.as_ref().map_or(0, |part| part.len());
            working.grow(2 * part_bytes).map_err(crate::budget::refused)?;
            match (part, data_type) {
                (Some(value), CqlType::Vector(element, _)) => {
                    collection::push_vector_element(element, &value, &mut wire);
                }
                (Some(value), _) => collection::push_element(Some(&value), &mut wire),
                (None, _) if allows_null => collection::push_element(None, &mut wire),
                (None, _) => return Err(invalid("null is not supported inside collections")),
            }
        }
        value::canonical(data_type, &wire).map(Cow::into_owned).map_err(value_error)
    }

    fn scalar(&self, kind: MetadataKind, timestamp_us: i64, expiry: Option<Expiry>) -> Option<Vec<u8>> {
        match kind {
            MetadataKind::WriteTime | MetadataKind::MaxWriteTime => Some(timestamp_us.to_be_bytes().to_vec()),
            MetadataKind::Ttl => expiry.map(|expiry| expiry.left_s(self.now_s()).to_be_bytes().to_vec()),
        }
    }

    fn metadata(&self, kind: MetadataKind, at: usize, row: &RowData) -> Option<Vec<u8>> {
        let (timestamp_us, expiry) = row.written(at)?;
        if !self.table.column(at).data_type.is_multi_cell() || kind == MetadataKind::MaxWriteTime {
            return self.scalar(kind, timestamp_us, expiry);
        }
        let elements = row.elements(at);
        let mut list = Vec::new();
        collection::push_count(elements.len(), &mut list);
        for info in elements {
            collection::push_element(self.scalar(kind, info.timestamp_us, info.expiry).as_deref(), &mut list);
        }
        Some(list)
    }
}

/// What is found within a value, borrowed where the value is.
fn within<'r>(
    wire: Cow<'r, [u8]>,
    find: impl FnOnce(&[u8]) -> Result<Option<&[u8]>, CqlError>,
) -> Result<Option<Cow<'r, [u8]>>, CqlError> {
    let range = match find(&wire)? {
        None => return Ok(None),
        // What is found lies within the value: where, says its address.
        Some(found) => {
            let start = found.as_ptr() as usize - wire.as_ptr() as usize;
            start..start + found.len()
        }
    };
    Ok(Some(match wire {
        Cow::Borrowed(wire) => Cow::Borrowed(&wire[range]),
        Cow::Owned(wire) => Cow::Owned(wire[range].to_vec()),
    }))
}

/// The elements of a set, or entries of a map, from `from` to `to`, both included.
fn slice_of(data_type: &CqlType, wire: &[u8], from: Option<&[u8]>, to: Option<&[u8]>) -> Result<Vec<u8>, CqlError> {
    let (key_type, each) = match data_type {
        CqlType::Map(key, ..) => (key, 2),
        CqlType::Set(element, _) => (element, 1),
        _ => return Ok(wire.to_vec()),
    };
    let parts = if each == 2 { collection::entries(wire) } else { collection::elements(wire) };
    let parts: Vec<&[u8]> = parts.map_err(value_error)?.collect::<Result<_, _>>().map_err(value_error)?;
    let is_within = |entry: &&[&[u8]]| {
        from.is_none_or(|from| value::compare(key_type, entry[0], from).is_ge())
            && to.is_none_or(|to| value::compare(key_type, entry[0], to).is_le())
    };
    let kept: Vec<&[&[u8]]> = parts.chunks(each).filter(is_within).collect();
    let mut out = Vec::new();
    collection::push_count(kept.len(), &mut out);
    kept.iter().flat_map(|entry| entry.iter()).for_each(|part| collection::push_element(Some(part), &mut out));
    Ok(out)
}

/// Whole seconds since the epoch, as expiries count them.
pub fn now_seconds(now_us: i64) -> u32 {
    u32::try_from(now_us.div_euclid(1_000_000)).unwrap_or(if now_us < 0 { 0 } else { u32::MAX })
}

/// The value of a map at a key, the element of a set that equals the key, or the element of a list at an index.
pub fn element_of<'a>(data_type: &CqlType, wire: &'a [u8], key: &[u8]) -> Result<Option<&'a [u8]>, CqlError> {
    match data_type {
        CqlType::Map(key_type, ..) => {
            let mut parts = collection::entries(wire).map_err(value_error)?;
            while let (Some(entry_key), Some(entry_value)) = (parts.next(), parts.next()) {
                steps::count(1);
                if value::compare(key_type, entry_key.map_err(value_error)?, key) == Ordering::Equal {
                    return entry_value.map(Some).map_err(value_error);
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
            let mut parts = collection::entries(wire).map_err(value_error)?;
            while let (Some(key), Some(value)) = (parts.next(), parts.next()) {
                let (key, value) = (key.map_err(value_error)?, value.map_err(value_error)?);
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
