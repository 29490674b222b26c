//! `ALTER TABLE`.
//!
//! Always true: the command carries the whole new definition and the version it was made from; a column that is added gets an id that no
//! column of the table ever had.

use super::names::{check_column_name, no_such_keyspace, no_such_table, writable_keyspace};
use super::options::{TableProperties, check_together};
use super::table::check_column_type;
use super::{Context, Plan, resolve_type};
use crate::error::{invalid, not_supported};
use diorite_cluster::catalog::Command;
use diorite_cql::language::ast::{AlterTable, ColumnDefinition, Property, TableChange};
use diorite_cql::protocol::event::SchemaChangeType;
use diorite_cql::protocol::{CqlError, SchemaTarget};
use diorite_model::schema::{Column, ColumnKind, Table};
use diorite_model::types::CqlType;

pub(super) fn alter(context: &Context<'_>, alter: &AlterTable) -> Result<Plan, CqlError> {
    let keyspace = writable_keyspace(context, &alter.name)?;
    let name = &alter.name.name;
    let Some(entry) = context.catalog.table(keyspace, name) else {
        if alter.if_exists {
            return Ok(Plan::nothing());
        }
        let known = context.catalog.keyspace(keyspace).is_some();
        return Err(if known { no_such_table(keyspace, name) } else { no_such_keyspace(keyspace) });
    };
    let mut table = Table::clone(&entry.table);
    for change in &alter.changes {
        apply(context, &mut table, change)?;
    }
    check_together(&table)?;
    if table.is_counter() && table.default_ttl_s > 0 {
        return Err(invalid("Cannot set default_time_to_live on a table with counters"));
    }
    let target = SchemaTarget::Table { keyspace: keyspace.to_owned(), name: name.clone() };
    if table == *entry.table && !alter.changes.iter().any(|change| matches!(change, TableChange::With(_))) {
        return Ok(Plan::nothing());
    }
    Ok(Plan::propose(Command::AlterTable { table }, SchemaChangeType::Updated, target))
}

fn apply(context: &Context<'_>, table: &mut Table, change: &TableChange) -> Result<(), CqlError> {
    match change {
        TableChange::Add { if_not_exists, columns } => {
            columns.iter().try_for_each(|column| add(context, table, column, *if_not_exists))
        }
        TableChange::Drop { timestamp: Some(_), .. } => Err(not_supported("ALTER TABLE … DROP … USING TIMESTAMP")),
        TableChange::Drop { if_exists, columns, timestamp: None } => {
            columns.iter().try_for_each(|column| remove(table, column, *if_exists))
        }
        TableChange::DropCompactStorage => Err(invalid("Cannot DROP COMPACT STORAGE on table without COMPACT STORAGE")),
        TableChange::Rename { if_exists, columns } => {
            columns.iter().try_for_each(|(old, new)| rename(table, old, new, *if_exists))
        }
        TableChange::AlterType { if_exists, column, .. } => match table.column(column) {
            None if *if_exists => Ok(()),
            None => Err(unknown_column(table, column)),
            Some(_) => Err(invalid("Altering column types is no longer supported")),
        },
        TableChange::AlterMask { .. } => Err(not_supported("a column mask (MASKED WITH)")),
        TableChange::With(properties) => set_options(table, properties),
    }
}

fn unknown_column(table: &Table, column: &str) -> CqlError {
    invalid(format!("Column {column} was not found in table '{}.{}'", table.keyspace, table.name))
}

fn add(
    context: &Context<'_>,
    table: &mut Table,
    definition: &ColumnDefinition,
    if_not_exists: bool,
) -> Result<(), CqlError> {
    let name = &definition.name;
    check_column_name("Column", name)?;
    if definition.mask.is_some() {
        return Err(not_supported("a column mask (MASKED WITH)"));
    }
    if table.column(name).is_some() {
        return if if_not_exists { Ok(()) } else { Err(invalid(format!("Column with name '{name}' already exists"))) };
    }
    let data_type = resolve_type(context.catalog, &table.keyspace, &definition.data_type)?;
    check_column_type(&data_type)?;
    let has_values = table.regulars().chain(table.statics()).next().is_some();
    if data_type == CqlType::Counter && !table.is_counter() && has_values {
        return Err(CqlError::config(format!("Cannot have a counter column (\"{name}\") in a non counter table")));
    }
    if data_type != CqlType::Counter && table.is_counter() {
        return Err(CqlError::config(format!("Cannot have a non counter column (\"{name}\") in a counter table")));
    }
    if definition.is_static && table.clustering().next().is_none() {
        return Err(invalid(
            "Static columns are only useful (and thus allowed) if the table has at least one clustering column",
        ));
    }
    let kind = if definition.is_static { ColumnKind::Static } else { ColumnKind::Regular };
    let column = Column { id: table.next_column_id, name: name.clone(), data_type, kind };
    table.next_column_id += 1;
    // Within static and regular columns the order is by name.
    let rank = |column: &Column| match column.kind {
        ColumnKind::PartitionKey => 0,
        ColumnKind::Clustering(_) => 1,
        ColumnKind::Static => 2,
        ColumnKind::Regular => 3,
    };
    let place = table.columns.partition_point(|present| {
        rank(present) < rank(&column) || (rank(present) == rank(&column) && present.name < column.name)
    });
    table.columns.insert(place, column);
    Ok(())
}

fn remove(table: &mut Table, name: &str, if_exists: bool) -> Result<(), CqlError> {
    let Some(column) = table.column(name) else {
        return if if_exists { Ok(()) } else { Err(unknown_column(table, name)) };
    };
    if matches!(column.kind, ColumnKind::PartitionKey | ColumnKind::Clustering(_)) {
        return Err(invalid(format!("Cannot drop PRIMARY KEY column {name}")));
    }
    table.columns.retain(|column| column.name != name);
    Ok(())
}

fn rename(table: &mut Table, old: &str, new: &str, if_exists: bool) -> Result<(), CqlError> {
    let Some(column) = table.column(old) else {
        return if if_exists { Ok(()) } else { Err(unknown_column(table, old)) };
    };
    if !matches!(column.kind, ColumnKind::PartitionKey | ColumnKind::Clustering(_)) {
        return Err(invalid(format!("Cannot rename non PRIMARY KEY column {old}")));
    }
    check_column_name("Column", new)?;
    if table.column(new).is_some() {
        return Err(invalid(format!(
            "Cannot rename column {old} to {new} in table '{}.{}'; another column with that name already exists",
            table.keyspace, table.name
        )));
    }
    for column in table.columns.iter_mut().filter(|column| column.name == old) {
        new.clone_into(&mut column.name);
    }
    Ok(())
}

fn set_options(table: &mut Table, properties: &[Property]) -> Result<(), CqlError> {
    let properties = TableProperties::read(properties)?;
    if properties.id.is_some() {
        return Err(CqlError::config("Cannot alter table id."));
    }
    if properties.tablets.is_some() {
        return Err(CqlError::config("tablets is set when a table is created and cannot be altered"));
    }
    table.default_ttl_s = properties.default_ttl_s.unwrap_or(table.default_ttl_s);
    table.gc_grace_s = properties.gc_grace_s.unwrap_or(table.gc_grace_s);
    table.options.extend(properties.others);
    Ok(())
}
