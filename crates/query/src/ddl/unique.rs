//! What makes an index unique.
//!
//! Always true: only tables with transactions have unique indexes, and only columns with one value that are no part of
//! the key are unique; so two rows that have the same values are found by their writes alone. Left out: keeping the
//! index's table up to date ([`crate::exec::modify::unique`]).

use super::context::Context;
use super::indexable::{check_type, column_of};
use crate::error::{invalid, not_supported};
use crate::table::has_transactions;
use diorite_base::TableId;
use diorite_base::level::Level;
use diorite_cql::language::ast::{CreateIndex, IndexColumn};
use diorite_cql::protocol::CqlError;
use diorite_model::schema::{ColumnKind, Table, TableEntry, Unique};
use diorite_model::types::CqlType;
use std::collections::BTreeSet;

/// The most columns of a unique index.
const MAX_COLUMNS: usize = 16;
/// Each makes a transaction of a write.
const MAX_UNIQUE: usize = 8;

/// What a statement says to be unique.
pub(super) fn define(context: &Context<'_>, entry: &TableEntry, create: &CreateIndex) -> Result<Unique, CqlError> {
    let table = &entry.table;
    if !has_transactions(table) {
        return Err(invalid(format!(
            "a unique index needs transactions: ALTER TABLE {} WITH transactions = {{'enabled': true}}",
            table.name
        )));
    }
    if context.catalog.level() < Level::RECORDED {
        return Err(invalid("unique indexes need all nodes to run this release: see 'diorite admin upgrade'"));
    }
    if !create.where_clause.is_empty() {
        return Err(not_supported("a partial unique index"));
    }
    if table.defined_indexes().filter(|index| index.unique.is_some()).count() >= MAX_UNIQUE {
        return Err(invalid(format!("table {} has {MAX_UNIQUE} unique indexes, which is the maximum", table.name)));
    }
    let named = create.partition.iter().chain(&create.clustering);
    let columns = named.map(|named| unique_column(table, named)).collect::<Result<Vec<_>, _>>()?;
    if columns.len() > MAX_COLUMNS {
        return Err(invalid(format!("a unique index of more than {MAX_COLUMNS} columns is not supported")));
    }
    if columns.iter().collect::<BTreeSet<_>>().len() < columns.len() {
        return Err(invalid("a column is named twice"));
    }
    // The catalog makes the table.
    Ok(Unique { columns, table: TableId(0) })
}

fn unique_column(table: &Table, named: &IndexColumn) -> Result<u32, CqlError> {
    let IndexColumn::Column(name) = named else {
        return Err(not_supported("a unique index of a part of a column"));
    };
    let column = column_of(table, name)?;
    if column.kind != ColumnKind::Regular {
        return Err(not_supported(format!("a unique index of {name}, which is a static column or part of the key,")));
    }
    if matches!(column.data_type, CqlType::List(..) | CqlType::Set(..) | CqlType::Map(..)) {
        return Err(not_supported("a unique index of a collection"));
    }
    check_type(&column.data_type)?;
    Ok(column.id)
}

/// Refuses to take transactions from a table that needs them.
pub(super) fn check_transactions(changed: &Table) -> Result<(), CqlError> {
    if has_transactions(changed) {
        return Ok(());
    }
    if let Some(index) = changed.defined_indexes().find(|index| index.unique.is_some()) {
        return Err(invalid(format!("the unique index {} needs the transactions of the table", index.name)));
    }
    if let Some(index) = changed.deferred_indexes.iter().find(|index| index.covering.is_some()) {
        return Err(invalid(format!("the covering index {} needs the transactions of the table", index.name)));
    }
    match changed.views.first() {
        Some(view) => Err(invalid(format!("the {} needs the transactions of the table", view.title()))),
        None => Ok(()),
    }
}
