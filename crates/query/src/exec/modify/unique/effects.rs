//! What the operations of a write do to the columns of unique indexes.
//!
//! Always true: the effects of a tablet's part, one after the other, give the values that its rows have in the end.
//! Left out: what follows from that for the tables of the indexes ([`super`]).

use crate::error::{corrupt, invalid};
use crate::exec::modify::Pending;
use crate::program::ProgramOperation;
use crate::table::TableContext;
use diorite_cql::protocol::CqlError;
use diorite_model::row::{Content, RowReader};
use diorite_model::schema::ColumnId;
use diorite_model::{Malformed, entry};
use std::collections::BTreeMap;

/// What a write does to the unique columns of a row or of a range.
#[derive(Debug)]
pub(super) enum Effect {
    Row { key: Vec<u8>, deletes: bool, cells: Vec<(ColumnId, Option<Vec<u8>>)> },
    Range { start: Vec<u8>, end: Vec<u8> },
}

impl Pending {
    /// What the operations do to unique columns, one after the other. Where statements do not see those before them, all
    /// have one timestamp: what they write to a row is merged, and a deletion of a range covers what is written within it.
    pub(super) fn unique_effects(&self, is_block: bool) -> Result<Vec<Effect>, CqlError> {
        let (table, operations) = (&self.table, &self.program.operations);
        let is_ordered = operations.len() < 2 || self.order.is_in_turns(&self.program, is_block);
        let (mut effects, mut ranges) = (Vec::new(), Vec::new());
        let mut written: BTreeMap<&[u8], Vec<&[u8]>> = BTreeMap::new();
        for operation in operations {
            match (effect(table, operation)?, operation) {
                (Some(effect), _) if is_ordered => effects.push(effect),
                (Some(Effect::Row { .. }), ProgramOperation::Row { key, value, .. }) => {
                    written.entry(key.as_slice()).or_default().push(value.as_slice());
                }
                (Some(effect), _) => ranges.push(effect),
                (None, _) => {}
            }
        }
        for (key, values) in written {
            effects.extend(match values[..] {
                [value] => row_effect(table, key, value)?,
                _ => row_effect(table, key, &merged(&values)?)?,
            });
        }
        effects.append(&mut ranges);
        Ok(effects)
    }
}

/// What an operation does to unique columns.
fn effect(table: &TableContext, operation: &ProgramOperation) -> Result<Option<Effect>, CqlError> {
    match operation {
        ProgramOperation::Sum { column, .. } if table.is_unique_column(*column) => Err(no_arithmetic(table, *column)),
        ProgramOperation::Sum { .. } | ProgramOperation::List { .. } | ProgramOperation::Document { .. } => Ok(None),
        ProgramOperation::Delete { explicit_us: Some(_), .. } => Err(no_timestamps(table)),
        ProgramOperation::Delete { partition, range, .. } => {
            let (start, end) = crate::program::deleted(partition, range.as_ref());
            Ok(Some(Effect::Range { start, end }))
        }
        ProgramOperation::Row { key, value, is_stamped, .. } => match row_effect(table, key, value)? {
            Some(_) if !is_stamped => Err(no_timestamps(table)),
            effect => Ok(effect),
        },
    }
}

/// What a packed row does to the unique columns of the row with this key.
fn row_effect(table: &TableContext, key: &[u8], value: &[u8]) -> Result<Option<Effect>, CqlError> {
    let row = RowReader::new(value).map_err(corrupt)?;
    let (deletes, mut cells) = (row.deletion().is_some(), Vec::new());
    for cell in row.cells() {
        let cell = cell.map_err(corrupt)?;
        if table.is_unique_column(cell.column) {
            cells.push((
                cell.column,
                match cell.content {
                    Content::Value(wire, _) => Some(wire.to_vec()),
                    _ => None,
                },
            ));
        }
    }
    let concerns = deletes || !cells.is_empty();
    Ok(concerns.then(|| Effect::Row { key: key.to_vec(), deletes, cells }))
}

/// What packed rows that are to be stamped make together once they have one timestamp.
fn merged(values: &[&[u8]]) -> Result<Vec<u8>, CqlError> {
    let mut stamped = Vec::with_capacity(values.len());
    for value in values {
        let mut value = value.to_vec();
        // Any timestamp but the reserved one, at which nothing is newer than no deletion.
        let slot = value.get_mut(1..9).ok_or_else(|| corrupt(Malformed))?;
        slot.copy_from_slice(&0_i64.to_le_bytes());
        stamped.push(value);
    }
    let mut together = Vec::new();
    entry::fold(None, stamped.iter().map(Vec::as_slice), &mut together).map_err(corrupt)?;
    Ok(together)
}

/// The error of arithmetic on a unique column.
pub(in crate::exec) fn no_arithmetic(table: &TableContext, id: ColumnId) -> CqlError {
    let name = table.table().column_by_id(id).map_or("", |column| column.name.as_str());
    invalid(format!("arithmetic on column {name}, which has a unique index, is not supported"))
}

/// The error of a write of rows or columns of a unique index that has a timestamp.
pub(in crate::exec) fn no_timestamps(table: &TableContext) -> CqlError {
    invalid(format!(
        "USING TIMESTAMP is not supported where rows or columns of a unique index are written (table {})",
        table.full_name()
    ))
}
