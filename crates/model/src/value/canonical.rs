//! The stored form of collections: sets and maps sorted, without duplicates, at any depth; documents without spaces, sorted likewise.
//!
//! Always true: the result is valid if the input was, and canonical forms of equal values are equal. Clients may send sets and maps in
//! any order; what is stored frozen, compared as a whole or written element by element must be in one.

use super::collection::{
    elements, entries, fields, patch_length, push_count, push_element, push_vector_element, reserve, vector_elements,
};
use super::{ValueError, compare};
use crate::json::Json;
use crate::key::push_component;
use crate::types::CqlType;
use std::borrow::Cow;

/// The form in which a validated value is stored: frozen sets and maps (at any depth) sorted and free of duplicates, the last entry of a
/// map key winning. Borrows when the value already is in that form.
pub fn canonical<'a>(data_type: &CqlType, wire: &'a [u8]) -> Result<Cow<'a, [u8]>, ValueError> {
    if wire.is_empty() || !holds(data_type, is_sorted) {
        return Ok(Cow::Borrowed(wire));
    }
    let mut out = Vec::with_capacity(wire.len());
    push_canonical(&Shape::of(data_type), wire, &mut out)?;
    Ok(if out == wire { Cow::Borrowed(wire) } else { Cow::Owned(out) })
}

fn is_sorted(data_type: &CqlType) -> bool {
    matches!(data_type, CqlType::Set(..) | CqlType::Map(..) | CqlType::Jsonb)
}

/// Whether `is` holds for a type or for any type within it.
fn holds(data_type: &CqlType, is: fn(&CqlType) -> bool) -> bool {
    is(data_type)
        || match data_type {
            CqlType::List(element, _) | CqlType::Set(element, _) | CqlType::Vector(element, _) => holds(element, is),
            CqlType::Map(key, value, _) => holds(key, is) || holds(value, is),
            CqlType::Tuple(types) => types.iter().any(|field| holds(field, is)),
            CqlType::UserDefined(user, _) => user.fields.iter().any(|(_, field)| holds(field, is)),
            _ => false,
        }
}

/// A type, and the properties that sorting its values needs: computed once, as a value may have very many elements.
struct Shape<'t> {
    data_type: &'t CqlType,
    /// Whether it contains a set, a map or a document.
    is_sorted: bool,
    /// Whether it contains a decimal, so that comparing two values may take long.
    holds_decimal: bool,
    /// The shapes of elements, of key and value, or of fields; empty for types without anything to sort.
    parts: Vec<Shape<'t>>,
}

impl<'t> Shape<'t> {
    fn of(data_type: &'t CqlType) -> Self {
        let is_sorted = holds(data_type, is_sorted);
        let parts = match data_type {
            _ if !is_sorted => Vec::new(),
            CqlType::List(element, _) | CqlType::Set(element, _) | CqlType::Vector(element, _) => {
                vec![Shape::of(element)]
            }
            CqlType::Map(key, value, _) => vec![Shape::of(key), Shape::of(value)],
            CqlType::Tuple(types) => types.iter().map(Shape::of).collect(),
            CqlType::UserDefined(user, _) => user.fields.iter().map(|(_, field)| Shape::of(field)).collect(),
            _ => Vec::new(),
        };
        let holds_decimal = holds(data_type, |data_type| *data_type == CqlType::Decimal);
        Self { data_type, is_sorted, holds_decimal, parts }
    }

    /// Sorts elements by their values of this type; the sort is stable.
    fn sort<T>(&self, all: &mut [T], value: impl Fn(&T) -> &[u8]) {
        if !self.holds_decimal {
            return all.sort_by(|one, other| compare(self.data_type, value(one), value(other)));
        }
        all.sort_by_cached_key(|one| {
            let mut key = Vec::new();
            // Malformed values were refused when they were validated.
            let _ = push_component(self.data_type, value(one), &mut key);
            key
        });
    }

    fn are_equal(&self, one: &[u8], other: &[u8]) -> bool {
        compare(self.data_type, one, other).is_eq()
    }
}

fn push_canonical(shape: &Shape<'_>, wire: &[u8], out: &mut Vec<u8>) -> Result<(), ValueError> {
    if wire.is_empty() || !shape.is_sorted {
        out.extend_from_slice(wire);
        return Ok(());
    }
    match (shape.data_type, shape.parts.as_slice()) {
        (CqlType::Set(..), [element]) => {
            let mut all = elements(wire)?.map(|value| stored(element, value?)).collect::<Result<Vec<_>, _>>()?;
            element.sort(&mut all, |value| value);
            all.dedup_by(|later, kept| element.are_equal(later, kept));
            push_count(all.len(), out);
            all.iter().for_each(|value| push_element(Some(value), out));
        }
        (CqlType::Map(..), [key, value]) => {
            let mut all = Vec::new();
            for entry in entries(wire)? {
                let (one, other) = entry?;
                all.push((stored(key, one)?, stored(value, other)?));
            }
            // The sort is stable: of equal keys the one given last comes last, and stays.
            key.sort(&mut all, |(key, _)| key);
            all.dedup_by(|later, kept| {
                let same = key.are_equal(&later.0, &kept.0);
                if same {
                    std::mem::swap(later, kept);
                }
                same
            });
            push_count(all.len(), out);
            all.iter().for_each(|(key, value)| {
                push_element(Some(key), out);
                push_element(Some(value), out);
            });
        }
        (CqlType::List(..), [element]) => {
            let values = elements(wire)?;
            push_count(values.remaining(), out);
            for value in values {
                let length_at = reserve(out);
                push_canonical(element, value?, out)?;
                patch_length(out, length_at);
            }
        }
        (CqlType::Vector(element_type, dimension), [element]) => {
            for value in vector_elements(element_type, *dimension, wire) {
                push_vector_element(element_type, &stored(element, value?)?, out);
            }
        }
        (CqlType::Jsonb, _) => {
            let text = std::str::from_utf8(wire).map_err(|_| ValueError("String didn't validate.".to_owned()))?;
            Json::parse(text)?.sorted().write_into(out);
        }
        (_, parts) => {
            for (value, field) in fields(wire).zip(parts) {
                match value? {
                    None => push_element(None, out),
                    Some(value) => {
                        let length_at = reserve(out);
                        push_canonical(field, value, out)?;
                        patch_length(out, length_at);
                    }
                }
            }
        }
    }
    Ok(())
}

fn stored<'a>(shape: &Shape<'_>, wire: &'a [u8]) -> Result<Cow<'a, [u8]>, ValueError> {
    if wire.is_empty() || !shape.is_sorted {
        return Ok(Cow::Borrowed(wire));
    }
    let mut out = Vec::with_capacity(wire.len());
    push_canonical(shape, wire, &mut out)?;
    Ok(Cow::Owned(out))
}
