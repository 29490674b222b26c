//! The answer to a conditional write: `[applied]`, and, if it is false, the rows that the conditions read.
//!
//! Always true: the shape is Cassandra's: conditions on columns show those columns (in a batch the primary key as well), conditions on
//! existence show the whole row, and a row that does not exist shows nothing but `[applied]`.

use super::row::RowData;
use crate::error::corrupt;
use crate::plan::modify::{ModifyPlan, condition_columns};
use crate::program::Seen;
use crate::table::TableContext;
use crate::types::type_option;
use diorite_cql::protocol::{ColumnSpec, CqlError, NativeType, ResultMetadata, Rows};
use diorite_model::key::{self, DecodedKey};
use diorite_model::row::LiveRow;
use std::sync::Arc;

const APPLIED: &str = "[applied]";

fn applied_column(table: &TableContext) -> ColumnSpec {
    ColumnSpec {
        keyspace: table.table().keyspace.clone(),
        table: table.table().name.clone(),
        name: APPLIED.to_owned(),
        type_option: NativeType::Boolean.into(),
    }
}

/// All conditions held.
pub fn applied(table: &TableContext) -> Rows {
    let mut rows = Rows::new(Arc::new(ResultMetadata::new(vec![applied_column(table)])));
    rows.push_row([Some(&[1u8][..])]);
    rows
}

/// The columns of `RETURNS STATUS AS ROW`, without rows: the statement's status, and all columns of the table.
pub fn status_rows(table: &TableContext) -> Rows {
    let message =
        ColumnSpec { name: "[message]".to_owned(), type_option: NativeType::Varchar.into(), ..applied_column(table) };
    let mut columns = vec![applied_column(table), message];
    columns.extend(table.table().columns.iter().map(|column| ColumnSpec {
        name: column.name.clone(),
        type_option: type_option(&column.data_type),
        ..applied_column(table)
    }));
    Rows::new(Arc::new(ResultMetadata::new(columns)))
}

/// The answer of `RETURNS STATUS AS ROW`: one row. If a condition did not hold, the columns that it read are set.
pub fn status(
    table: &TableContext,
    is_applied: bool,
    message: Option<&str>,
    seen: Option<(&[usize], &Seen)>,
) -> Result<Rows, CqlError> {
    let mut rows = status_rows(table);
    let mut values: Vec<Option<Vec<u8>>> = vec![None; table.table().columns.len()];
    if let Some((shown, seen)) = seen {
        let refused = seen_rows(table, shown, seen)?;
        for (at, value) in shown.iter().zip(refused.into_iter().next().unwrap_or_default()) {
            values[*at] = value;
        }
    }
    let head = [Some(if is_applied { &[1u8][..] } else { &[0u8][..] }), message.map(str::as_bytes)];
    rows.push_row(head.into_iter().chain(values.iter().map(|value| value.as_deref())));
    Ok(rows)
}

/// The columns that a refused statement or batch shows.
pub fn shown_columns(plans: &[&ModifyPlan], is_batch: bool) -> Vec<usize> {
    let table = &plans[0].table;
    let mut shown: Vec<usize> = if is_batch { (0..table.key_columns()).collect() } else { Vec::new() };
    for condition in plans.iter().filter_map(|plan| plan.condition.as_ref()) {
        match condition_columns(condition) {
            None => return (0..table.table().columns.len()).collect(),
            Some(columns) => {
                for column in columns {
                    if !shown.contains(&column) {
                        shown.push(column);
                    }
                }
            }
        }
    }
    shown
}

/// Some condition did not hold.
pub fn refused(table: &TableContext, shown: &[usize], seen: &Seen) -> Result<Rows, CqlError> {
    let found = seen_rows(table, shown, seen)?;
    if found.is_empty() {
        let mut rows = Rows::new(Arc::new(ResultMetadata::new(vec![applied_column(table)])));
        rows.push_row([Some(&[0u8][..])]);
        return Ok(rows);
    }
    let mut columns = vec![applied_column(table)];
    columns.extend(shown.iter().map(|at| ColumnSpec {
        name: table.column(*at).name.clone(),
        type_option: type_option(&table.column(*at).data_type),
        ..applied_column(table)
    }));
    let mut rows = Rows::new(Arc::new(ResultMetadata::new(columns)));
    for row in &found {
        rows.push_row(std::iter::once(Some(&[0u8][..])).chain(row.iter().map(|value| value.as_deref())));
    }
    Ok(rows)
}

/// The values of some columns of the rows that the conditions read; one row for a partition that has only static columns; no row if nothing was
/// found.
fn seen_rows(table: &TableContext, shown: &[usize], seen: &Seen) -> Result<Vec<Vec<Option<Vec<u8>>>>, CqlError> {
    if seen.rows.is_empty() && seen.static_row.is_none() {
        return Ok(Vec::new());
    }
    let mut reads = vec![false; table.table().columns.len()];
    shown.iter().for_each(|at| reads[*at] = true);
    let mut row = RowData::new(reads, false);
    let mut decoded = DecodedKey::default();
    let mut partition_key = seen.partition.clone();
    key::push_static(&mut partition_key);
    if !seen.partition.is_empty() {
        table.layout().decode(&partition_key, &mut decoded).map_err(corrupt)?;
        row.begin_partition_with(table, Some(&decoded));
    }
    if let Some(found) = &seen.static_row {
        let live = LiveRow::new(&found.value, seen.now_s, found.deleted_us).map_err(corrupt)?;
        row.set_statics(table, &live)?;
    }
    let values = |row: &RowData| shown.iter().map(|at| row.value(*at).map(<[u8]>::to_vec)).collect();
    let mut rows = Vec::with_capacity(seen.rows.len().max(1));
    if seen.rows.is_empty() {
        row.begin_row(table);
        rows.push(values(&row));
    }
    for found in &seen.rows {
        let live = LiveRow::new(&found.value, seen.now_s, found.deleted_us).map_err(corrupt)?;
        row.begin_row(table);
        let full_key = [seen.partition.as_slice(), &found.key].concat();
        table.layout().decode(&full_key, &mut decoded).map_err(corrupt)?;
        row.set_clustering(table, &decoded);
        row.set_regulars(table, &live)?;
        rows.push(values(&row));
    }
    Ok(rows)
}
