//! The cells of a result row, encoded.
//!
//! Always true: a cell is charged to the request before it is appended.

use super::evaluate::Scope;
use super::row::RowData;
use crate::budget::refused;
use crate::error::value_error;
use crate::plan::selection::SelectionPlan;
use diorite_cql::protocol::CqlError;
use diorite_cql::protocol::rows::{put_cell, put_null};
use diorite_model::json::write_string;
use diorite_model::value::json;

/// Appends the result of a selection for a row: its cells, or one cell with their JSON.
pub fn put_cells(
    scope: &Scope<'_>,
    selection: &SelectionPlan,
    row: &RowData,
    out: &mut Vec<u8>,
) -> Result<(), CqlError> {
    let budget = scope.bound.environment.budget;
    let Some(names) = &selection.json else {
        for selector in &selection.selectors {
            budget.check()?;
            let value = scope.evaluate(selector, row)?;
            budget.reserve(out, 4 + value.as_ref().map_or(0, |value| value.len()))?;
            match value {
                Some(value) => put_cell(out, &value),
                None => put_null(out),
            }
        }
        return Ok(());
    };
    let mut text = String::from("{");
    let mut held = budget.hold(0)?;
    for (at, (selector, (name, data_type))) in selection.selectors.iter().zip(names).enumerate() {
        budget.check()?;
        if at > 0 {
            text.push_str(", ");
        }
        write_string(&json::member_name(name), &mut text);
        text.push_str(": ");
        let value = scope.evaluate(selector, row)?;
        // Few bytes may be a long text: fields that are null have their names.
        let value_bytes =
            value.as_ref().map_or(Ok(4), |value| json::json_bytes(data_type, value)).map_err(value_error)?;
        let expected = text.len().saturating_add(value_bytes);
        held.grow(expected.saturating_sub(held.bytes())).map_err(refused)?;
        json::write_nullable(data_type, value.as_deref(), &mut text).map_err(value_error)?;
        held.grow(text.capacity().saturating_sub(held.bytes())).map_err(refused)?;
    }
    text.push('}');
    budget.reserve(out, 4 + text.len())?;
    put_cell(out, text.as_bytes());
    Ok(())
}
