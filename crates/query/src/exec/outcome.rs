//! The answer to a conditional write: `[applied]`, and, if it is false, the rows that the conditions read.
//!
//! Always true: the shape is Cassandra's: conditions on columns show those columns (in a batch the primary key as well), conditions on
//! existence show the whole row, and a row that does not exist shows nothing but `[applied]`.

use super::row::RowData;
use crate::budget::Budget;
use crate::error::corrupt;
use crate::plan::modify::{ModifyPlan, condition_columns};
use crate::program::Seen;
use crate::steps;
use crate::table::TableContext;
use crate::types::type_option;
use diorite_cql::protocol::{ColumnSpec, CqlError, NativeType, ResultMetadata, Rows};
use diorite_model::key::{self, DecodedKey};
use diorite_model::row::LiveRow;
use std::sync::Arc;

const APPLIED: &str = "[applied]";

/// The length before each value of a row.
const CELL_BYTES: usize = 4;

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
    budget: &Budget,
) -> Result<Rows, CqlError> {
    let mut rows = status_rows(table);
    let head = [Some(if is_applied { &[1u8][..] } else { &[0u8][..] }), message.map(str::as_bytes)];
    if let Some((shown, seen)) = seen {
        each_seen(table, shown, seen, budget, |row| {
            if rows.row_count == 0 {
                push(
                    &mut rows,
                    head.into_iter().chain((0..table.table().columns.len()).map(|at| row.value(at))),
                    budget,
                )?;
            }
            Ok(())
        })?;
    }
    if rows.row_count == 0 {
        rows.push_row(head.into_iter().chain(table.table().columns.iter().map(|_| None)));
    }
    Ok(rows)
}

/// The columns that a refused statement or batch shows.
pub fn shown_columns(plans: &[&ModifyPlan], is_batch: bool) -> Vec<usize> {
    let table = &plans[0].table;
    let mut shown: Vec<usize> = if is_batch { (0..table.key_columns()).collect() } else { Vec::new() };
    let mut is_shown = vec![false; table.table().columns.len()];
    shown.iter().for_each(|at| is_shown[*at] = true);
    for condition in plans.iter().filter_map(|plan| plan.condition.as_ref()) {
        match condition_columns(condition) {
            None => return (0..table.table().columns.len()).collect(),
            Some(columns) => {
                for column in columns {
                    steps::count(1);
                    if !std::mem::replace(&mut is_shown[column], true) {
                        shown.push(column);
                    }
                }
            }
        }
    }
    shown
}

/// Some condition did not hold.
pub fn refused(table: &TableContext, shown: &[usize], seen: &Seen, budget: &Budget) -> Result<Rows, CqlError> {
    if seen.rows.is_empty() && seen.static_row.is_none() {
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
    each_seen(table, shown, seen, budget, |row| {
        push(&mut rows, std::iter::once(Some(&[0u8][..])).chain(shown.iter().map(|at| row.value(*at))), budget)
    })?;
    Ok(rows)
}

/// Adds a row to an answer, and charges it beforehand.
fn push<'a>(
    rows: &mut Rows,
    cells: impl Iterator<Item = Option<&'a [u8]>> + Clone,
    budget: &Budget,
) -> Result<(), CqlError> {
    let bytes = cells.clone().map(|cell| CELL_BYTES + cell.map_or(0, <[u8]>::len)).sum();
    budget.reserve(&mut rows.body, bytes)?;
    rows.push_row(cells);
    Ok(())
}

/// Visits the rows that the conditions read, with the values of some columns; one row for a partition that has only static columns; no row if nothing
/// was found.
fn each_seen(
    table: &TableContext,
    shown: &[usize],
    seen: &Seen,
    budget: &Budget,
    mut visit: impl FnMut(&RowData) -> Result<(), CqlError>,
) -> Result<(), CqlError> {
    if seen.rows.is_empty() && seen.static_row.is_none() {
        return Ok(());
    }
    // The values of one row at a time are copied.
    let _held = budget.hold(seen.size_bytes())?;
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
    if seen.rows.is_empty() {
        row.begin_row(table);
        visit(&row)?;
    }
    for found in &seen.rows {
        let live = LiveRow::new(&found.value, seen.now_s, found.deleted_us).map_err(corrupt)?;
        row.begin_row(table);
        let full_key = [seen.partition.as_slice(), &found.key].concat();
        table.layout().decode(&full_key, &mut decoded).map_err(corrupt)?;
        row.set_clustering(table, &decoded);
        row.set_regulars(table, &live)?;
        budget.check()?;
        visit(&row)?;
    }
    Ok(())
}
