//! The answer to a conditional write: `[applied]`, and when it is false the rows that were looked at.
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
    let mut push = |row: &RowData| {
        let cells = shown.iter().map(|at| row.value(*at));
        rows.push_row(std::iter::once(Some(&[0u8][..])).chain(cells));
    };
    if seen.rows.is_empty() {
        row.begin_row(table);
        push(&row);
    }
    for found in &seen.rows {
        let live = LiveRow::new(&found.value, seen.now_s, found.deleted_us).map_err(corrupt)?;
        row.begin_row(table);
        let full_key = [seen.partition.as_slice(), &found.key].concat();
        table.layout().decode(&full_key, &mut decoded).map_err(corrupt)?;
        row.set_clustering(table, &decoded);
        row.set_regulars(table, &live)?;
        push(&row);
    }
    Ok(rows)
}
