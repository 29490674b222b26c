//! Steps that transitions of tables and of views have in common: a table is made, replaced, emptied or removed.
//!
//! Always true: the table of a unique index goes with its table; whatever changes a definition changes the digest. Left
//! out: which changes are allowed ([`super::schema`], [`super::views`]).

use super::live::drop_tablets;
use super::outcome::Rejection;
use super::placement::add_tablets;
use super::snapshot::Catalog;
use super::step::{Done, Rejected, Step};
use diorite_base::TableId;
use diorite_base::limits::MAX_TABLETS_PER_TABLE;
use diorite_model::schema::{Table, TableEntry};
use diorite_model::types::{CqlType, UserType};
use std::sync::Arc;

/// Checks a definition of a new table whose name is free.
pub(super) fn check_free_table(catalog: &Catalog, definition: &Table, tablets: u32) -> Result<(), Rejected> {
    check_types(catalog, definition)?;
    if tablets == 0 || tablets > MAX_TABLETS_PER_TABLE {
        let message = format!("a table has 1 to {MAX_TABLETS_PER_TABLE} tablets, not {tablets}");
        return Err(Rejected(Rejection::Invalid, message));
    }
    if catalog.nodes.is_empty() {
        return Err(Rejected(Rejection::Invalid, "no node has registered yet".to_owned()));
    }
    Ok(())
}

/// Makes a table of which everything has been checked; returns its id.
pub(super) fn make_table(catalog: &mut Catalog, definition: &Table, tablets: u32) -> TableId {
    let id = TableId(catalog.identity.next_table);
    catalog.identity.next_table += 1;
    let table = Arc::new(Table { id, version: 1, ..definition.clone() });
    catalog.toggle_digest(&*table);
    let names = Arc::make_mut(&mut catalog.names);
    names.entry(table.keyspace.clone()).or_default().insert(table.name.clone(), id);
    add_tablets(catalog, table, tablets, tablets);
    id
}

/// Another command may have changed a user type since the definition was derived.
pub(super) fn check_types(catalog: &Catalog, definition: &Table) -> Result<(), Rejected> {
    for column in &definition.columns {
        let mut current = true;
        visit_user_types(&column.data_type, &mut |found| {
            current &= catalog.user_type(&found.keyspace, &found.name).is_some_and(|known| **known == *found);
        });
        if !current {
            let message = format!("the type of column {} changed meanwhile", column.name);
            return Err(Rejected(Rejection::Conflict, message));
        }
    }
    Ok(())
}

pub(super) fn replace_table(catalog: &mut Catalog, entry: &TableEntry, changed: Table) {
    catalog.toggle_digest(&*entry.table);
    catalog.toggle_digest(&changed);
    let table = Arc::new(changed);
    let entry = TableEntry { table: table.clone(), ..entry.clone() };
    Arc::make_mut(&mut catalog.tables).insert(table.id, Arc::new(entry));
}

pub(super) fn remove_table(catalog: &mut Catalog, entry: &TableEntry) {
    let table = &entry.table;
    drop_tablets(catalog, entry);
    catalog.toggle_digest(&**table);
    Arc::make_mut(&mut catalog.tables).remove(&table.id);
    remove_index_tables(catalog, index_tables(table));
    remove_index_tables(catalog, hidden_tables(table));
    if table.index_of.is_some() {
        return;
    }
    let names = Arc::make_mut(&mut catalog.names);
    if let Some(of_keyspace) = names.get_mut(&table.keyspace) {
        of_keyspace.remove(&table.name);
        if of_keyspace.is_empty() {
            names.remove(&table.keyspace);
        }
    }
}

pub(super) fn remove_index_tables(catalog: &mut Catalog, tables: Vec<TableId>) {
    for table in tables {
        if let Some(entry) = catalog.tables.get(&table).cloned() {
            remove_table(catalog, &entry);
        }
    }
}

/// The tables of a table's unique indexes.
pub(super) fn index_tables(table: &Table) -> Vec<TableId> {
    table.unique_indexes().map(|(_, unique)| unique.table).collect()
}

/// The tables of the hidden views of its covering indexes.
fn hidden_tables(table: &Table) -> Vec<TableId> {
    table.hidden_views().map(|(view, _)| view.table).collect()
}

/// Gives a table other tablets, which are empty.
pub(super) fn empty(catalog: &mut Catalog, entry: &TableEntry) {
    let tablets = u32::try_from(entry.tablets.len()).unwrap_or(MAX_TABLETS_PER_TABLE);
    add_tablets(catalog, entry.table.clone(), tablets, entry.least_tablets);
    drop_tablets(catalog, entry);
}

pub(super) fn visit_user_types(data_type: &CqlType, visit: &mut dyn FnMut(&UserType)) {
    match data_type {
        CqlType::List(of, _) | CqlType::Set(of, _) | CqlType::Vector(of, _) => visit_user_types(of, visit),
        CqlType::Map(key, value, _) => {
            visit_user_types(key, visit);
            visit_user_types(value, visit);
        }
        CqlType::Tuple(parts) => parts.iter().for_each(|part| visit_user_types(part, visit)),
        CqlType::UserDefined(user_type, _) => {
            visit(user_type);
            user_type.fields.iter().for_each(|(_, of)| visit_user_types(of, visit));
        }
        _ => {}
    }
}

pub(super) fn already_exists(tolerated: bool, message: impl FnOnce() -> String) -> Step {
    if tolerated { Ok(Done::Nothing) } else { Err(Rejected(Rejection::AlreadyExists, message())) }
}

pub(super) fn missing(tolerated: bool, rejected: impl FnOnce() -> Rejected) -> Step {
    if tolerated { Ok(Done::Nothing) } else { Err(rejected()) }
}

pub(super) fn no_such_table(keyspace: &str, name: &str) -> Rejected {
    Rejected(Rejection::NoSuchTable, format!("table '{keyspace}.{name}' doesn't exist"))
}
