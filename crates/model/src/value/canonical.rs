//! The stored form of collections: sets and maps sorted, without duplicates, at any depth; documents without spaces, sorted likewise.
//!
//! Always true: the result is valid if the input was, and canonical forms of equal values are equal. Clients may send sets and maps in
//! any order; what is stored frozen, compared as a whole or written element by element must be in one.

use super::collection::{
    elements, entries, fields, patch_length, push_count, push_element, push_vector_element, reserve, vector_elements,
};
use super::{ValueError, compare};
use crate::json::Json;
use crate::types::CqlType;
use std::borrow::Cow;
use std::cmp::Ordering;

/// The form in which a validated value is stored: frozen sets and maps (at any depth) sorted and free of duplicates, the last entry of a
/// map key winning. Borrows when the value already is in that form.
pub fn canonical<'a>(data_type: &CqlType, wire: &'a [u8]) -> Result<Cow<'a, [u8]>, ValueError> {
    if wire.is_empty() || !holds_sorted(data_type) {
        return Ok(Cow::Borrowed(wire));
    }
    let mut out = Vec::with_capacity(wire.len());
    push_canonical(data_type, wire, &mut out)?;
    Ok(if out == wire { Cow::Borrowed(wire) } else { Cow::Owned(out) })
}

/// Whether a set, a map or a document is in it.
fn holds_sorted(data_type: &CqlType) -> bool {
    match data_type {
        CqlType::Set(..) | CqlType::Map(..) | CqlType::Jsonb => true,
        CqlType::List(element, _) | CqlType::Vector(element, _) => holds_sorted(element),
        CqlType::Tuple(types) => types.iter().any(holds_sorted),
        CqlType::UserDefined(user, _) => user.fields.iter().any(|(_, field)| holds_sorted(field)),
        _ => false,
    }
}

fn push_canonical(data_type: &CqlType, wire: &[u8], out: &mut Vec<u8>) -> Result<(), ValueError> {
    if wire.is_empty() || !holds_sorted(data_type) {
        out.extend_from_slice(wire);
        return Ok(());
    }
    match data_type {
        CqlType::Set(element, _) => {
            let mut all = elements(wire)?.map(|value| owned(element, value?)).collect::<Result<Vec<_>, _>>()?;
            all.sort_by(|one, other| compare(element, one, other));
            all.dedup_by(|later, kept| compare(element, later, kept) == Ordering::Equal);
            push_count(all.len(), out);
            all.iter().for_each(|value| push_element(Some(value), out));
        }
        CqlType::Map(key, value, _) => {
            let mut parts = entries(wire)?;
            let mut all = Vec::new();
            while let (Some(one), Some(other)) = (parts.next(), parts.next()) {
                all.push((owned(key, one?)?, owned(value, other?)?));
            }
            // The sort is stable: of equal keys the one given last comes last, and stays.
            all.sort_by(|one, other| compare(key, &one.0, &other.0));
            all.dedup_by(|later, kept| {
                let same = compare(key, &later.0, &kept.0) == Ordering::Equal;
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
        CqlType::List(element, _) => {
            let values = elements(wire)?;
            push_count(values.remaining(), out);
            for value in values {
                let length_at = reserve(out);
                push_canonical(element, value?, out)?;
                patch_length(out, length_at);
            }
        }
        CqlType::Vector(element, dimension) => {
            for value in vector_elements(element, *dimension, wire) {
                push_vector_element(element, &owned(element, value?)?, out);
            }
        }
        CqlType::Jsonb => {
            let text = std::str::from_utf8(wire).map_err(|_| ValueError("String didn't validate.".to_owned()))?;
            Json::parse(text)?.sorted().write_into(out);
        }
        CqlType::Tuple(types) => push_fields(types.iter(), wire, out)?,
        CqlType::UserDefined(user, _) => push_fields(user.fields.iter().map(|(_, field)| field), wire, out)?,
        _ => out.extend_from_slice(wire),
    }
    Ok(())
}

fn owned(data_type: &CqlType, wire: &[u8]) -> Result<Vec<u8>, ValueError> {
    let mut out = Vec::with_capacity(wire.len());
    push_canonical(data_type, wire, &mut out)?;
    Ok(out)
}

fn push_fields<'t>(types: impl Iterator<Item = &'t CqlType>, wire: &[u8], out: &mut Vec<u8>) -> Result<(), ValueError> {
    for (value, field) in fields(wire).zip(types) {
        match value? {
            None => push_element(None, out),
            Some(value) => push_element(Some(&owned(field, value)?), out),
        }
    }
    Ok(())
}
