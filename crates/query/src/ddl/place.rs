//! Places in documents as what an index is made of: `document->'member'->>2`.
//!
//! Always true: a path has a limited size and ends in text, which has an order. Left out: indexes of parts of documents
//! that are documents (`->` at the end).

use super::text::string;
use crate::error::{invalid, not_supported};
use diorite_cql::language::ast::{Expression, Literal};
use diorite_cql::protocol::CqlError;
use diorite_model::json::place::{MAX_INDEXED_NAMES_BYTES, MAX_INDEXED_STEPS, PathStep, is_indexable};
use diorite_model::schema::Column;
use diorite_model::types::CqlType;
use std::fmt::Write;

/// Checks the place that an index is to be made of.
pub(super) fn indexed<'t>(
    column: &'t Column,
    path: &[Expression],
    as_text: bool,
) -> Result<(&'t Column, Vec<PathStep>), CqlError> {
    let Column { name, data_type, .. } = column;
    if *data_type != CqlType::Jsonb {
        let arrow = if as_text { "->>" } else { "->" };
        return Err(invalid(format!("the operator {arrow} is not supported on {data_type} (column {name})")));
    }
    if !as_text {
        return Err(not_supported("an index on a document"));
    }
    let path = path.iter().map(step).collect::<Result<Vec<_>, _>>()?;
    if !is_indexable(&path) {
        return Err(invalid(format!(
            "the path of an index has at most {MAX_INDEXED_STEPS} steps and {MAX_INDEXED_NAMES_BYTES} bytes of names"
        )));
    }
    Ok((column, path))
}

fn step(step: &Expression) -> Result<PathStep, CqlError> {
    match step {
        Expression::Literal(Literal::String(name)) => Ok(PathStep::Member(name.clone())),
        Expression::Literal(Literal::Integer(digits)) => digits
            .parse()
            .map(PathStep::Element)
            .map_err(|_| invalid(format!("Unable to make int from '{digits}' (json attribute)"))),
        _ => Err(invalid("the path of an index consists of texts and integers")),
    }
}

/// A place as CQL text.
pub(super) fn text(column: String, path: &[PathStep]) -> String {
    path.iter().enumerate().fold(column, |mut out, (at, step)| {
        let arrow = if at + 1 == path.len() { "->>" } else { "->" };
        // Writing to a string does not fail.
        let _ = match step {
            PathStep::Member(name) => write!(out, "{arrow}{}", string(name)),
            PathStep::Element(index) => write!(out, "{arrow}{index}"),
        };
        out
    })
}
