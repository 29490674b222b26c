//! Transitions of materialized views: tables whose rows follow from those of another one, their base.
//!
//! Always true: a view's base is in the catalog, and names it; the columns of a view have the ids, names and types of
//! the columns of its base; a view of all columns has each regular column that was added to its base since, from the same
//! version of the base on; a view has the transactions of its base. Left out: which views CQL allows (the `query` crate), and
//! what a view has for a row.

use super::outcome::Rejection;
use super::roles::forget_permissions;
use super::snapshot::Catalog;
use super::step::{Done, Rejected, Step};
use super::tables::{already_exists, check_free_table, empty, make_table, missing, remove_table, replace_table};
use diorite_base::TableId;
use diorite_model::schema::{Column, ColumnId, Table, ViewOf};

/// The option of tables with transactions.
const TRANSACTIONS: &str = "transactions";

/// What a command says about a new view, beside its definition.
pub(super) struct NewView<'c> {
    /// The version of the base from which the definition was derived.
    pub base_version: u64,
    /// The regular columns of the base that decide what the view has for a row.
    pub columns: &'c [ColumnId],
    /// Whether it has a row for each row that exists.
    pub follows_rows: bool,
    /// The number of its tablets.
    pub tablets: u32,
}

pub(super) fn create_view(catalog: &mut Catalog, definition: &Table, new: &NewView<'_>, if_not_exists: bool) -> Step {
    let (keyspace, name) = (&definition.keyspace, &definition.name);
    if catalog.table(keyspace, name).is_some() {
        return already_exists(if_not_exists, || format!("table {keyspace}.{name} already exists"));
    }
    let Some(view) = &definition.view else {
        return Err(invalid("a materialized view has a table from which its rows follow"));
    };
    let Some(base) = catalog.tables.get(&view.base).cloned() else {
        let message = format!("the table of the materialized view {keyspace}.{name} doesn't exist");
        return Err(Rejected(Rejection::NoSuchTable, message));
    };
    if base.table.version != new.base_version {
        let message = format!("table {}.{} was changed meanwhile", base.table.keyspace, base.table.name);
        return Err(Rejected(Rejection::Conflict, message));
    }
    if base.table.keyspace != *keyspace {
        return Err(invalid("a materialized view is in the keyspace of its table"));
    }
    if base.table.view.is_some() || base.table.index_of.is_some() {
        return Err(invalid("a materialized view follows from a table, not from another view or an index"));
    }
    if !definition.views.is_empty() || definition.defined_indexes().next().is_some() || definition.index_of.is_some() {
        return Err(invalid("a materialized view has neither views nor indexes"));
    }
    let is_of_base = |column: &&Column| {
        base.table
            .column_by_id(column.id)
            .is_some_and(|of| (&of.name, &of.data_type) == (&column.name, &column.data_type))
    };
    if let Some(column) = definition.columns.iter().find(|column| !is_of_base(column)) {
        let message = format!("column {} of a materialized view is not one of its table", column.name);
        return Err(Rejected(Rejection::Invalid, message));
    }
    check_free_table(catalog, definition, new.tablets)?;
    let mut definition = definition.clone();
    take_transactions(&mut definition, &base.table);
    let table = make_table(catalog, &definition, new.tablets);
    let mut changed = Table { version: base.table.version + 1, ..Table::clone(&base.table) };
    changed.views.push(ViewOf {
        id: changed.version,
        name: name.clone(),
        table,
        columns: new.columns.to_vec(),
        columns_since: 0,
        follows_rows: new.follows_rows,
        index: None,
    });
    replace_table(catalog, &base, changed);
    Ok(Done::Changed)
}

pub(super) fn drop_view(catalog: &mut Catalog, keyspace: &str, name: &str, if_exists: bool) -> Step {
    let Some(entry) = catalog.table(keyspace, name).cloned() else {
        let message = || format!("materialized view '{keyspace}.{name}' doesn't exist");
        return missing(if_exists, || Rejected(Rejection::NoSuchTable, message()));
    };
    let Some(view) = &entry.table.view else {
        return Err(Rejected(Rejection::Invalid, format!("table {keyspace}.{name} is no materialized view")));
    };
    remove_table(catalog, &entry);
    if let Some(base) = catalog.tables.get(&view.base).cloned() {
        let mut changed = Table { version: base.table.version + 1, ..Table::clone(&base.table) };
        changed.views.retain(|of| of.table != entry.table.id);
        replace_table(catalog, &base, changed);
    }
    forget_permissions(catalog, &format!("data/{keyspace}/{name}"));
    Ok(Done::Changed)
}

/// Refuses to drop a table that is a view, or that has views.
pub(super) fn check_no_views(table: &Table) -> Result<(), Rejected> {
    if table.view.is_some() {
        let message = "Cannot use DROP TABLE on a materialized view. Please use DROP MATERIALIZED VIEW instead.";
        return Err(invalid(message));
    }
    let names: Vec<&str> = table.named_views().map(|view| view.name.as_str()).collect();
    if names.is_empty() {
        return Ok(());
    }
    let names = names.join(", ");
    let message = format!("Cannot drop a table when materialized views still depend on it ({names})");
    Err(Rejected(Rejection::Invalid, message))
}

/// Refuses to empty a view without its base.
pub(super) fn check_truncated(table: &Table) -> Result<(), Rejected> {
    if table.view.is_some() {
        return Err(invalid("Cannot TRUNCATE materialized view directly; must truncate base table instead"));
    }
    Ok(())
}

/// Refuses a table that says to be a view, or to have some.
pub(super) fn check_plain(definition: &Table) -> Result<(), Rejected> {
    if definition.view.is_some() || !definition.views.is_empty() {
        return Err(invalid("a new table is no materialized view, and has none"));
    }
    Ok(())
}

/// Checks a change of a definition against what views allow.
pub(super) fn check_change(before: &Table, changed: &Table) -> Result<(), Rejected> {
    if changed.view != before.view {
        return Err(invalid("a materialized view keeps what makes it one"));
    }
    if before.view.is_some() && (changed.columns != before.columns || changed.defined_indexes().next().is_some()) {
        return Err(invalid("the columns of a materialized view are those of its table, and it has no indexes"));
    }
    Ok(())
}

/// Checks that a changed base has all columns that its views are made of, and gives them its names. Views of all columns
/// get those that are new.
pub(super) fn follow(catalog: &mut Catalog, before: &Table, changed: &mut Table) -> Result<(), Rejected> {
    let is_lost = |of: &&ViewOf| of.columns.iter().any(|column| changed.column_by_id(*column).is_none());
    if let Some(of) = changed.views.iter().find(is_lost) {
        let message = format!("the {} needs a column that would be dropped", of.title());
        return Err(Rejected(Rejection::InUse, message));
    }
    // Of others the rows may have values that no view has.
    let is_new = |column: &&Column| column.id >= before.next_column_id;
    let added: Vec<Column> = changed.regulars().filter(is_new).cloned().collect();
    let (mut followed, mut extended) = (Vec::new(), Vec::new());
    for entry in changed.views.iter().filter_map(|view| catalog.tables.get(&view.table).cloned()) {
        let mut view = Table::clone(&entry.table);
        let title = view.view_title();
        for column in &mut view.columns {
            let Some(of) = changed.column_by_id(column.id).filter(|of| of.data_type == column.data_type) else {
                let message = format!("the {title} needs column {}", column.name);
                return Err(Rejected(Rejection::InUse, message));
            };
            column.name.clone_from(&of.name);
        }
        take_transactions(&mut view, changed);
        if !added.is_empty() && view.view.as_ref().is_some_and(|view| view.selects_all) {
            view.columns.extend(added.iter().cloned());
            view.next_column_id = changed.next_column_id;
            extended.push(view.id);
        }
        if view != *entry.table {
            sort(&mut view);
            view.version += 1;
            followed.push((entry, view));
        }
    }
    followed.into_iter().for_each(|(entry, view)| replace_table(catalog, &entry, view));
    for of in changed.views.iter_mut().filter(|of| extended.contains(&of.table)) {
        // The numbers of indexes and views are versions of their table, and none is used twice.
        changed.version += 1;
        of.columns_since = changed.version;
        of.columns.extend(added.iter().map(|column| column.id));
        of.columns.sort_unstable();
    }
    Ok(())
}

/// Puts the columns outside the key in the order of their new names.
fn sort(view: &mut Table) {
    let key = view.partition_key().chain(view.clustering()).count();
    if let Some(others) = view.columns.get_mut(key..) {
        others.sort_by(|one, other| one.name.cmp(&other.name));
    }
}

/// Gives the transactions of its base to a view.
fn take_transactions(view: &mut Table, base: &Table) {
    match base.options.get(TRANSACTIONS) {
        Some(literal) => view.options.insert(TRANSACTIONS.to_owned(), literal.clone()),
        None => view.options.remove(TRANSACTIONS),
    };
}

/// Empties the views of a table.
pub(super) fn empty_views(catalog: &mut Catalog, base: &Table) {
    let views: Vec<TableId> = base.views.iter().map(|view| view.table).collect();
    for table in views {
        if let Some(entry) = catalog.tables.get(&table).cloned() {
            empty(catalog, &entry);
        }
    }
}

fn invalid(message: &str) -> Rejected {
    Rejected(Rejection::Invalid, message.to_owned())
}
