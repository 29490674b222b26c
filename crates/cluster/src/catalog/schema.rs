//! Transitions of the schema: keyspaces, tables, user types.
//!
//! Always true: a change of a user type reaches all tables and types that use it; permissions on a dropped object are
//! removed with it; so are the tables of unique and covering indexes, which belong to their table's definition and have
//! no name. Left out: materialized views ([`super::views`]), and those of covering indexes ([`super::covering`]).

use super::bounds::{Rules, check_table, check_type};
use super::outcome::Rejection;
use super::placement::add_tablets;
use super::roles::forget_permissions;
use super::snapshot::Catalog;
use super::step::{Done, Rejected, Step};
use super::tables::{
    already_exists, check_free_table, check_types, empty, index_tables, make_table, missing, no_such_table,
    remove_index_tables, remove_table, replace_table, visit_user_types,
};
use super::{covering, views};
use diorite_base::TableId;
use diorite_base::limits::MAX_TABLETS_PER_TABLE;
use diorite_model::schema::{Index, Keyspace, Table, TableEntry};
use diorite_model::types::{CqlType, UserType};
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

pub(super) fn create_keyspace(catalog: &mut Catalog, keyspace: &Keyspace, if_not_exists: bool) -> Step {
    if catalog.keyspaces.contains_key(&keyspace.name) {
        return already_exists(if_not_exists, || format!("keyspace {} already exists", keyspace.name));
    }
    catalog.toggle_digest(keyspace);
    Arc::make_mut(&mut catalog.keyspaces).insert(keyspace.name.clone(), Arc::new(keyspace.clone()));
    Ok(Done::Changed)
}

pub(super) fn alter_keyspace(
    catalog: &mut Catalog,
    name: &str,
    replication: Option<&BTreeMap<String, String>>,
    durable_writes: Option<bool>,
    if_exists: bool,
) -> Step {
    let Some(current) = catalog.keyspaces.get(name).cloned() else {
        return missing(if_exists, || no_such_keyspace(name));
    };
    let mut changed = Keyspace::clone(&current);
    if let Some(replication) = replication {
        changed.replication.clone_from(replication);
    }
    changed.durable_writes = durable_writes.unwrap_or(changed.durable_writes);
    // CQL answers every ALTER KEYSPACE with UPDATED, even one that changes nothing, so each one gets a new version.
    catalog.toggle_digest(&*current);
    catalog.toggle_digest(&changed);
    Arc::make_mut(&mut catalog.keyspaces).insert(name.to_owned(), Arc::new(changed));
    Ok(Done::Changed)
}

pub(super) fn drop_keyspace(catalog: &mut Catalog, name: &str, if_exists: bool) -> Step {
    let Some(keyspace) = catalog.keyspaces.get(name).cloned() else {
        return missing(if_exists, || no_such_keyspace(name));
    };
    let entries: Vec<_> = catalog.tables_in(name).cloned().collect();
    for entry in entries {
        remove_table(catalog, &entry);
    }
    let types: Vec<_> = catalog.types_in(name).cloned().collect();
    for user_type in types {
        catalog.toggle_digest(&*user_type);
        Arc::make_mut(&mut catalog.types).remove(&(name.to_owned(), user_type.name.clone()));
    }
    catalog.toggle_digest(&*keyspace);
    Arc::make_mut(&mut catalog.keyspaces).remove(name);
    forget_permissions(catalog, &format!("data/{name}"));
    Ok(Done::Changed)
}

pub(super) fn create_table(catalog: &mut Catalog, definition: &Table, tablets: u32, if_not_exists: bool) -> Step {
    let (keyspace, name) = (&definition.keyspace, &definition.name);
    if !catalog.keyspaces.contains_key(keyspace) {
        return Err(no_such_keyspace(keyspace));
    }
    if catalog.table(keyspace, name).is_some() {
        return already_exists(if_not_exists, || format!("table {keyspace}.{name} already exists"));
    }
    views::check_plain(definition)?;
    check_free_table(catalog, definition, tablets)?;
    make_table(catalog, definition, tablets);
    Ok(Done::Changed)
}

pub(super) fn alter_table(catalog: &mut Catalog, changed: &Table) -> Step {
    let Some(entry) = catalog.tables.get(&changed.id).cloned() else {
        return Err(no_such_table(&changed.keyspace, &changed.name));
    };
    if entry.table.version != changed.version {
        let message = format!("table {}.{} was changed meanwhile", changed.keyspace, changed.name);
        return Err(Rejected(Rejection::Conflict, message));
    }
    if (&changed.keyspace, &changed.name, changed.uuid) != (&entry.table.keyspace, &entry.table.name, entry.table.uuid)
    {
        return Err(Rejected(Rejection::Invalid, "a table keeps its name and uuid".to_owned()));
    }
    check_types(catalog, changed)?;
    check_index_names(catalog, &entry.table, changed)?;
    if entry.table.index_of.is_some() || changed.index_of.is_some() {
        return Err(Rejected(Rejection::Invalid, "the table of an index is changed with its index".to_owned()));
    }
    views::check_change(&entry.table, changed)?;
    // The views are those that it has, whatever the command says.
    let of_views = entry.table.views.clone();
    let mut changed = Table { version: changed.version + 1, views: of_views, ..changed.clone() };
    views::follow(catalog, &entry.table, &mut changed)?;
    drop_index_tables(catalog, &entry.table, &changed);
    add_index_tables(catalog, &entry, &mut changed);
    covering::follow(catalog, &entry, &mut changed)?;
    replace_table(catalog, &entry, changed);
    Ok(Done::Changed)
}

/// Makes the tables of unique indexes that are new. A command that was derived from another definition names no others.
fn add_index_tables(catalog: &mut Catalog, entry: &TableEntry, changed: &mut Table) {
    let tablets = u32::try_from(entry.tablets.len()).unwrap_or(MAX_TABLETS_PER_TABLE);
    let known = |index: &Index| entry.table.indexes.iter().any(|before| before.id == index.id);
    let fresh: Vec<Index> = changed.unique_indexes().map(|(index, _)| index.clone()).filter(|it| !known(it)).collect();
    for index in fresh {
        let id = TableId(catalog.identity.next_table);
        catalog.identity.next_table += 1;
        let table = Arc::new(entry.table.index_table(&index, id));
        catalog.toggle_digest(&*table);
        add_tablets(catalog, table, tablets, tablets);
        let of_index = changed.indexes.iter_mut().filter(|known| known.id == index.id);
        of_index.filter_map(|index| index.unique.as_mut()).for_each(|unique| unique.table = id);
    }
    // The tables of the others are those that they have, whatever the command says.
    for index in &mut changed.indexes {
        if let Some(before) = entry.table.indexes.iter().find(|before| before.id == index.id) {
            index.unique.clone_from(&before.unique);
        }
    }
}

/// Removes the tables of unique indexes that a table no longer has.
fn drop_index_tables(catalog: &mut Catalog, before: &Table, changed: &Table) {
    let is_kept = |index: &Index| changed.indexes.iter().any(|kept| kept.id == index.id);
    let gone: Vec<TableId> =
        before.unique_indexes().filter(|(index, _)| !is_kept(index)).map(|(_, unique)| unique.table).collect();
    remove_index_tables(catalog, gone);
}

/// The names of indexes are those of the keyspace.
fn check_index_names(catalog: &Catalog, before: &Table, changed: &Table) -> Result<(), Rejected> {
    let fresh: BTreeSet<&str> = changed
        .defined_indexes()
        .filter(|index| !before.defined_indexes().any(|of| of.name == index.name))
        .map(|index| index.name.as_str())
        .collect();
    let others = catalog.tables_in(&changed.keyspace).filter(|entry| entry.table.id != changed.id);
    let taken =
        others.flat_map(|entry| entry.table.defined_indexes()).find(|index| fresh.contains(index.name.as_str()));
    match taken.filter(|_| !fresh.is_empty()) {
        Some(index) => Err(Rejected(Rejection::Conflict, format!("index '{}' already exists", index.name))),
        None => Ok(()),
    }
}

pub(super) fn drop_table(catalog: &mut Catalog, keyspace: &str, name: &str, if_exists: bool) -> Step {
    let Some(entry) = catalog.table(keyspace, name).cloned() else {
        return missing(if_exists, || no_such_table(keyspace, name));
    };
    views::check_no_views(&entry.table)?;
    remove_table(catalog, &entry);
    forget_permissions(catalog, &format!("data/{keyspace}/{name}"));
    Ok(Done::Changed)
}

pub(super) fn truncate_table(catalog: &mut Catalog, keyspace: &str, name: &str) -> Step {
    let Some(entry) = catalog.table(keyspace, name).cloned() else {
        return Err(no_such_table(keyspace, name));
    };
    views::check_truncated(&entry.table)?;
    empty(catalog, &entry);
    views::empty_views(catalog, &entry.table);
    for table in index_tables(&entry.table) {
        if let Some(entry) = catalog.tables.get(&table).cloned() {
            empty(catalog, &entry);
        }
    }
    Ok(Done::Changed)
}

pub(super) fn create_type(catalog: &mut Catalog, user_type: &UserType, if_not_exists: bool) -> Step {
    let (keyspace, name) = (&user_type.keyspace, &user_type.name);
    if !catalog.keyspaces.contains_key(keyspace) {
        return Err(no_such_keyspace(keyspace));
    }
    if catalog.user_type(keyspace, name).is_some() {
        return already_exists(if_not_exists, || format!("a user type {keyspace}.{name} already exists"));
    }
    catalog.toggle_digest(user_type);
    Arc::make_mut(&mut catalog.types).insert((keyspace.clone(), name.clone()), Arc::new(user_type.clone()));
    Ok(Done::Changed)
}

pub(super) fn alter_type(catalog: &mut Catalog, expected: &UserType, changed: &UserType, rules: Rules) -> Step {
    let (keyspace, name) = (&expected.keyspace, &expected.name);
    let Some(current) = catalog.user_type(keyspace, name) else { return Err(no_such_type(keyspace, name)) };
    if **current != *expected || (&changed.keyspace, &changed.name) != (keyspace, name) {
        return Err(Rejected(Rejection::Conflict, format!("type {keyspace}.{name} was changed meanwhile")));
    }
    let changed = Arc::new(changed.clone());
    let types: Vec<_> = catalog.types_in(keyspace).cloned().collect();
    for user_type in types {
        let next = if user_type.name == *name {
            changed.clone()
        } else {
            let fields = user_type.fields.iter().map(|(field, of)| (field.clone(), with_type(of, &changed)));
            Arc::new(UserType { fields: fields.collect(), ..UserType::clone(&user_type) })
        };
        if next != user_type {
            if rules == Rules::Limited {
                check_type(&next)?;
            }
            catalog.toggle_digest(&*user_type);
            catalog.toggle_digest(&*next);
            Arc::make_mut(&mut catalog.types).insert((keyspace.clone(), next.name.clone()), next);
        }
    }
    // Also those without a name.
    let entries: Vec<_> = catalog.tables().filter(|entry| entry.table.keyspace == *keyspace).cloned().collect();
    for entry in entries {
        let mut table = Table::clone(&entry.table);
        for column in &mut table.columns {
            column.data_type = with_type(&column.data_type, &changed);
        }
        if table != *entry.table {
            if rules == Rules::Limited {
                check_table(&table)?;
            }
            table.version += 1;
            replace_table(catalog, &entry, table);
        }
    }
    Ok(Done::Changed)
}

pub(super) fn drop_type(catalog: &mut Catalog, keyspace: &str, name: &str, if_exists: bool) -> Step {
    let Some(current) = catalog.user_type(keyspace, name).cloned() else {
        return missing(if_exists, || no_such_type(keyspace, name));
    };
    if let Some(user) = user_of_type(catalog, &current) {
        let message = format!("cannot drop user type '{keyspace}.{name}' as it is still used by {user}");
        return Err(Rejected(Rejection::InUse, message));
    }
    catalog.toggle_digest(&*current);
    Arc::make_mut(&mut catalog.types).remove(&(keyspace.to_owned(), name.to_owned()));
    Ok(Done::Changed)
}

fn user_of_type(catalog: &Catalog, wanted: &UserType) -> Option<String> {
    let uses = |data_type: &CqlType| {
        let mut uses = false;
        visit_user_types(data_type, &mut |found| {
            uses |= (&found.keyspace, &found.name) == (&wanted.keyspace, &wanted.name);
        });
        uses
    };
    let table =
        catalog.tables_in(&wanted.keyspace).find(|entry| entry.table.columns.iter().any(|c| uses(&c.data_type)));
    if let Some(entry) = table {
        return Some(format!("table {}", entry.table.name));
    }
    let user = catalog.types_in(&wanted.keyspace).find(|user_type| user_type.fields.iter().any(|(_, of)| uses(of)));
    user.map(|user_type| format!("type {}", user_type.name))
}

/// `data_type` with each use of the user type that has the name of `changed` replaced by `changed`.
fn with_type(data_type: &CqlType, changed: &Arc<UserType>) -> CqlType {
    let again = |of: &Arc<CqlType>| Arc::new(with_type(of, changed));
    match data_type {
        CqlType::List(of, frozen) => CqlType::List(again(of), *frozen),
        CqlType::Set(of, frozen) => CqlType::Set(again(of), *frozen),
        CqlType::Vector(of, dimension) => CqlType::Vector(again(of), *dimension),
        CqlType::Map(key, value, frozen) => CqlType::Map(again(key), again(value), *frozen),
        CqlType::Tuple(parts) => CqlType::Tuple(parts.iter().map(|part| with_type(part, changed)).collect()),
        CqlType::UserDefined(user_type, frozen) => {
            if (&user_type.keyspace, &user_type.name) == (&changed.keyspace, &changed.name) {
                return CqlType::UserDefined(changed.clone(), *frozen);
            }
            let fields = user_type.fields.iter().map(|(field, of)| (field.clone(), with_type(of, changed)));
            let user_type = UserType { fields: fields.collect(), ..UserType::clone(user_type) };
            CqlType::UserDefined(Arc::new(user_type), *frozen)
        }
        scalar => scalar.clone(),
    }
}

fn no_such_keyspace(name: &str) -> Rejected {
    Rejected(Rejection::NoSuchKeyspace, format!("keyspace '{name}' doesn't exist"))
}

fn no_such_type(keyspace: &str, name: &str) -> Rejected {
    Rejected(Rejection::NoSuchType, format!("type '{keyspace}.{name}' doesn't exist"))
}
