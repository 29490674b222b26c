//! Evaluating selectors on a row.
//!
//! Always true: a selector gives wire bytes of its type or null. Left out: aggregates are only looked up; they are computed in
//! [`super::aggregate`].

use super::row::{RowData, path_of};
use crate::error::{invalid, value_error};
use crate::plan::selection::Selector;
use crate::plan::term::{Bound, Evaluated};
use crate::table::TableContext;
use crate::values::{element_of, field_of};
use diorite_cql::language::ast::MetadataKind;
use diorite_cql::protocol::CqlError;
use diorite_model::row::{Expiry, field_path};
use diorite_model::types::CqlType;
use diorite_model::value::{self, collection};
use std::borrow::Cow;

/// The context in which selectors are evaluated.
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
                // A collection stored by element has no empty value: it is null.
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

    /// A collection, tuple or user type whose parts are other selectors.
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
            // The assembled value and its stored form are held at the same time.
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

/// A part of a value, borrowed if the value is borrowed.
fn within<'r>(
    wire: Cow<'r, [u8]>,
    find: impl FnOnce(&[u8]) -> Result<Option<&[u8]>, CqlError>,
) -> Result<Option<Cow<'r, [u8]>>, CqlError> {
    let range = match find(&wire)? {
        None => return Ok(None),
        // The part is within the value: its address gives the position.
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
    let parts = if each == 2 { collection::keys_and_values(wire) } else { collection::elements(wire) };
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
