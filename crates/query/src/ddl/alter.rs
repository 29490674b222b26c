//! `ALTER TABLE`.
//!
//! Always true: the command carries the whole new definition and the version it was made from; a column that is added gets an id that no
//! column of the table ever had.

use super::context::{Context, Plan};
use super::index::check_free;
use super::names::{check_column_name, no_such_keyspace, no_such_table, writable_keyspace};
use super::options::{TableProperties, check_together};
use super::table::check_column_type;
use super::type_names::Mentioned;
use super::unique::check_transactions;
use super::viewed;
use crate::error::{exceeded, invalid, not_supported};
use diorite_base::limits;
use diorite_cluster::catalog::Command;
use diorite_cql::language::ast::{AlterTable, ColumnDefinition, Property, TableChange};
use diorite_cql::protocol::event::SchemaChangeType;
use diorite_cql::protocol::{CqlError, SchemaTarget};
use diorite_model::schema::{Column, ColumnKind, Table};
use diorite_model::types::CqlType;
use std::collections::{HashMap, HashSet};

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
    let refused = "Cannot use ALTER TABLE on a materialized view; use ALTER MATERIALIZED VIEW instead";
    viewed::check_table(&entry.table, refused)?;
    let mut table = Table::clone(&entry.table);
    for change in &alter.changes {
        apply(context, &mut table, change)?;
    }
    check_together(&table)?;
    check_transactions(&table)?;
    if table.is_counter() && table.default_ttl_s > 0 {
        return Err(invalid("Cannot set default_time_to_live on a table with counters"));
    }
    if table.is_counter() && !table.views.is_empty() {
        return Err(invalid("Materialized views are not supported on counter tables"));
    }
    let target = SchemaTarget::Table { keyspace: keyspace.to_owned(), name: name.clone() };
    if table == *entry.table && !alter.changes.iter().any(|change| matches!(change, TableChange::With(_))) {
        return Ok(Plan::nothing());
    }
    Ok(Plan::propose(Command::AlterTable { table }, SchemaChangeType::Updated, target))
}

fn apply(context: &Context<'_>, table: &mut Table, change: &TableChange) -> Result<(), CqlError> {
    match change {
        TableChange::Add { if_not_exists, columns } => add(context, table, columns, *if_not_exists),
        TableChange::Drop { timestamp: Some(_), .. } => Err(not_supported("ALTER TABLE … DROP … USING TIMESTAMP")),
        TableChange::Drop { if_exists, columns, timestamp: None } => remove(table, columns, *if_exists),
        TableChange::DropCompactStorage => Err(invalid("Cannot DROP COMPACT STORAGE on table without COMPACT STORAGE")),
        TableChange::Rename { if_exists, columns } => rename(table, columns, *if_exists),
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

/// Adds columns.
fn add(
    context: &Context<'_>,
    table: &mut Table,
    definitions: &[ColumnDefinition],
    if_not_exists: bool,
) -> Result<(), CqlError> {
    let mut names: HashSet<String> = table.columns.iter().map(|column| column.name.clone()).collect();
    let mut has_values = table.regulars().chain(table.statics()).next().is_some();
    let (mut is_counter, has_clustering) = (table.is_counter(), table.clustering().next().is_some());
    let mut mentioned = Mentioned::default();
    for definition in definitions {
        let name = &definition.name;
        check_column_name("Column", name)?;
        if definition.mask.is_some() {
            return Err(not_supported("a column mask (MASKED WITH)"));
        }
        if names.contains(name) {
            if if_not_exists {
                continue;
            }
            return Err(invalid(format!("Column with name '{name}' already exists")));
        }
        limits::check(&limits::COLUMNS, names.len() + 1, || format!("table {}", table.name)).map_err(exceeded)?;
        let data_type = mentioned.resolve(context.catalog, &table.keyspace, &definition.data_type)?;
        check_column_type(&data_type)?;
        if data_type == CqlType::Counter && !is_counter && has_values {
            return Err(CqlError::config(format!("Cannot have a counter column (\"{name}\") in a non counter table")));
        }
        if data_type != CqlType::Counter && is_counter {
            return Err(CqlError::config(format!("Cannot have a non counter column (\"{name}\") in a counter table")));
        }
        if definition.is_static && !has_clustering {
            return Err(invalid(
                "Static columns are only useful (and thus allowed) if the table has at least one clustering column",
            ));
        }
        (has_values, is_counter) = (true, is_counter || data_type == CqlType::Counter);
        let kind = if definition.is_static { ColumnKind::Static } else { ColumnKind::Regular };
        table.columns.push(Column { id: table.next_column_id, name: name.clone(), data_type, kind });
        table.next_column_id += 1;
        names.insert(name.clone());
    }
    // Within static and regular columns the order is by name; the others stay as they are.
    table.columns.sort_by(|one, other| match (rank(one), rank(other)) {
        (rank, same) if rank == same && rank >= 2 => one.name.cmp(&other.name),
        (rank, other) => rank.cmp(&other),
    });
    Ok(())
}

fn rank(column: &Column) -> u8 {
    match column.kind {
        ColumnKind::PartitionKey => 0,
        ColumnKind::Clustering(_) => 1,
        ColumnKind::Static => 2,
        ColumnKind::Regular => 3,
    }
}

/// The positions of columns by their names.
fn positions(table: &Table) -> HashMap<String, usize> {
    table.columns.iter().map(|column| column.name.clone()).zip(0..).collect()
}

/// Drops columns.
fn remove(table: &mut Table, names: &[String], if_exists: bool) -> Result<(), CqlError> {
    let mut positions = positions(table);
    for name in names {
        match positions.remove(name) {
            None if if_exists => {}
            None => return Err(unknown_column(table, name)),
            Some(at) if rank(&table.columns[at]) < 2 => {
                return Err(invalid(format!("Cannot drop PRIMARY KEY column {name}")));
            }
            Some(at) => {
                check_free(table, &table.columns[at], "drop")?;
                viewed::check_no_dependents(table, name)?;
            }
        }
    }
    table.columns.retain(|column| positions.contains_key(&column.name));
    Ok(())
}

/// Renames columns of the primary key.
fn rename(table: &mut Table, names: &[(String, String)], if_exists: bool) -> Result<(), CqlError> {
    let mut positions = positions(table);
    for (old, new) in names {
        let at = match positions.get(old).copied() {
            Some(at) => at,
            None if if_exists => continue,
            None => return Err(unknown_column(table, old)),
        };
        if rank(&table.columns[at]) >= 2 {
            return Err(invalid(format!("Cannot rename non PRIMARY KEY column {old}")));
        }
        check_free(table, &table.columns[at], "rename")?;
        check_column_name("Column", new)?;
        if positions.contains_key(new) {
            return Err(invalid(format!(
                "Cannot rename column {old} to {new} in table '{}.{}'; another column with that name already exists",
                table.keyspace, table.name
            )));
        }
        positions.remove(old);
        positions.insert(new.clone(), at);
        new.clone_into(&mut table.columns[at].name);
    }
    Ok(())
}

/// Sets options.
pub(super) fn set_options(table: &mut Table, properties: &[Property]) -> Result<(), CqlError> {
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
