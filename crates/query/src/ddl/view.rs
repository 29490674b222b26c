//! `CREATE`, `ALTER` and `DROP MATERIALIZED VIEW`.
//!
//! Always true: a view is a table whose columns have the ids of the columns of its base; all key columns of the base
//! are in its key, and at most one other; so a row of the base has at most one row in the view. The rules and the
//! messages are Cassandra's. Departures, each on purpose: a base needs transactions; comparisons with constants may be
//! about any column that is not static. A view that was defined by `SELECT *` gets the regular columns that its base
//! gets (the catalog). Left out: keeping the rows of a view up to date ([`crate::exec::modify`]), and the text of a
//! definition ([`super::describe`]).

use super::alter::set_options;
use super::context::{Context, Plan};
use super::names::{check_name, no_such_keyspace, writable_keyspace};
use super::options::{TableProperties, check_together};
use super::predicate;
use super::table::{check_key_type, clustering_orders};
use super::text::identifier;
use super::type_names::{has_several_forms, mentions_user_type};
use super::viewed::check_count;
use crate::error::{invalid, not_supported};
use crate::table::{TRANSACTIONS, has_transactions};
use diorite_base::TableId;
use diorite_base::level::Level;
use diorite_cluster::catalog::Command;
use diorite_cql::language::ast::{
    AlterMaterializedView, CreateMaterializedView, Expression, Operand, Property, QualifiedName, Relation, Selection,
    Target,
};
use diorite_cql::language::format::format_expression;
use diorite_cql::protocol::event::SchemaChangeType;
use diorite_cql::protocol::{CqlError, SchemaTarget};
use diorite_model::schema::{Column, ColumnId, ColumnKind, IndexCondition, Table, TableEntry, View};
use std::collections::BTreeSet;
use std::sync::Arc;

/// The words for a predicate.
const PREDICATE: &str = "the predicate of a materialized view";

pub(super) fn create(context: &Context<'_>, create: &CreateMaterializedView) -> Result<Plan, CqlError> {
    let keyspace = writable_keyspace(context, &create.name)?;
    let (name, base_name) = (&create.name.name, &create.base.name);
    if create.base.keyspace.as_ref().is_some_and(|of| of != keyspace) {
        return Err(invalid("Cannot create a materialized view on a table in a different keyspace"));
    }
    if context.catalog.keyspace(keyspace).is_none() {
        return Err(no_such_keyspace(keyspace));
    }
    let Some(base) = context.catalog.table(keyspace, base_name) else {
        return Err(invalid(format!("Base table '{base_name}' doesn't exist")));
    };
    match context.catalog.table(keyspace, name) {
        Some(known) if known.table.view.is_none() => {
            let what = "a table with the same name already exists";
            return Err(invalid(format!("Cannot create materialized view '{name}' - {what}")));
        }
        Some(_) if create.if_not_exists => return Ok(Plan::nothing()),
        Some(_) => return Err(CqlError::already_exists(keyspace, name)),
        None => {}
    }
    check_base(context, &base.table)?;
    let (view, tablets) = define(context, &base.table, create)?;
    let tablets = tablets.unwrap_or_else(|| context.default_tablets());
    context.check_room(keyspace, tablets)?;
    let command = Command::CreateView {
        columns: deciding(&base.table, &view),
        follows_rows: follows_rows(&base.table, &view),
        view: Box::new(view),
        base_version: base.table.version,
        tablets,
        if_not_exists: create.if_not_exists,
    };
    Ok(Plan::propose(command, SchemaChangeType::Created, target(keyspace, name)))
}

/// As Cassandra does, answers and events name a view as a table.
fn target(keyspace: &str, name: &str) -> SchemaTarget {
    SchemaTarget::Table { keyspace: keyspace.to_owned(), name: name.to_owned() }
}

/// Whether a table can have one more view.
fn check_base(context: &Context<'_>, base: &Table) -> Result<(), CqlError> {
    let name = &base.name;
    if base.is_counter() {
        return Err(invalid("Materialized views are not supported on counter tables"));
    }
    if base.view.is_some() {
        return Err(invalid("Materialized views cannot be created against other materialized views"));
    }
    if !has_transactions(base) {
        return Err(invalid(format!(
            "a materialized view needs transactions: ALTER TABLE {name} WITH transactions = {{'enabled': true}}"
        )));
    }
    if context.catalog.level() < Level::RECORDED {
        return Err(invalid("materialized views need all nodes to run this release: see 'diorite admin upgrade'"));
    }
    check_count(base)
}

/// The definition in a statement, and the number of tablets if it names one.
fn define(
    context: &Context<'_>,
    base: &Table,
    create: &CreateMaterializedView,
) -> Result<(Table, Option<u32>), CqlError> {
    let name = &create.name.name;
    check_name("Table", name)?;
    if create.options.compact_storage {
        return Err(not_supported("COMPACT STORAGE"));
    }
    let selected = selected(base, create)?;
    let key = key(base, create, &selected)?;
    let orders = clustering_orders(&create.options.clustering_order, &create.primary_key.clustering)?;
    let predicate = conditions(base, &key, &create.where_clause)?;
    let properties = TableProperties::read(&create.options.properties)?;
    if properties.default_ttl_s.unwrap_or(0) != 0 {
        return Err(invalid(
            "Cannot set default_time_to_live for a materialized view. Data in a materialized view always expire at \
             the same time than the corresponding data in the parent table.",
        ));
    }
    let mut options = properties.others;
    check_transactions(base, options.get(TRANSACTIONS))?;
    options.extend(base.options.get(TRANSACTIONS).map(|literal| (TRANSACTIONS.to_owned(), literal.clone())));
    let partition = create.primary_key.partition.iter().map(|_| ColumnKind::PartitionKey);
    let kinds = partition.chain(orders.into_iter().map(ColumnKind::Clustering));
    let mut columns: Vec<Column> =
        key.iter().zip(kinds).map(|(column, kind)| Column { kind, ..Column::clone(column) }).collect();
    let is_in_key = |column: &&Column| key.iter().any(|of| of.id == column.id);
    // All that are left are regular columns, which tables have by name as well.
    let mut others: Vec<&Column> = selected.into_iter().filter(|column| !is_in_key(column)).collect();
    others.sort_by(|one, other| one.name.cmp(&other.name));
    columns.extend(others.into_iter().cloned());
    let table = Table {
        id: TableId(0),
        uuid: properties.id.unwrap_or_else(|| context.new_uuid(&base.keyspace, name)),
        keyspace: base.keyspace.clone(),
        name: name.clone(),
        version: 0,
        next_column_id: base.next_column_id,
        indexes: Vec::new(),
        deferred_indexes: Vec::new(),
        index_of: None,
        views: Vec::new(),
        view: Some(Box::new(View { base: base.id, selects_all: create.selection == Selection::All, predicate })),
        columns,
        default_ttl_s: 0,
        gc_grace_s: properties.gc_grace_s.unwrap_or(base.gc_grace_s),
        options,
    };
    check_together(&table)?;
    Ok((table, properties.tablets))
}

fn undefined(table: &Table, name: &str) -> CqlError {
    invalid(format!("Undefined column name {name} in table {}.{}", table.keyspace, table.name))
}

/// The columns that a statement selects, each once.
fn selected<'t>(base: &'t Table, create: &CreateMaterializedView) -> Result<Vec<&'t Column>, CqlError> {
    let mut selected: Vec<&Column> = Vec::new();
    match &create.selection {
        Selection::All => selected.extend(&base.columns),
        Selection::Selectors(selectors) => {
            for selector in selectors {
                let shown = format_expression(&selector.expression);
                if let Some(alias) = &selector.alias {
                    let alias = identifier(alias);
                    return Err(invalid(format!(
                        "Cannot use aliases when defining a materialized view (got {shown} AS {alias})"
                    )));
                }
                let Expression::Column(name) = &selector.expression else {
                    return Err(invalid(format!(
                        "Can only select columns by name when defining a materialized view (got {shown})"
                    )));
                };
                let column = base.column(name).ok_or_else(|| undefined(base, name))?;
                if !selected.iter().any(|known| known.id == column.id) {
                    selected.push(column);
                }
            }
        }
    }
    match selected.iter().find(|column| column.kind == ColumnKind::Static) {
        Some(column) => {
            let (column, name) = (&column.name, &create.name.name);
            Err(invalid(format!("Cannot include static column '{column}' in materialized view '{name}'")))
        }
        None => Ok(selected),
    }
}

/// The columns of the view's key, in its order.
fn key<'t>(
    base: &'t Table,
    create: &CreateMaterializedView,
    selected: &[&'t Column],
) -> Result<Vec<&'t Column>, CqlError> {
    let view = &create.name.name;
    let mut key: Vec<&Column> = Vec::new();
    for name in create.primary_key.partition.iter().chain(&create.primary_key.clustering) {
        let Some(column) = selected.iter().copied().find(|column| column.name == *name) else {
            return Err(invalid(format!(
                "Unknown column '{name}' referenced in PRIMARY KEY for materialized view '{view}'"
            )));
        };
        if key.iter().any(|known| known.id == column.id) {
            return Err(invalid(format!(
                "Duplicate column '{name}' in PRIMARY KEY clause for materialized view '{view}'"
            )));
        }
        check_key_type(name, &column.data_type)?;
        // The tablets read rows by the key's layout as it was when the view was created.
        if mentions_user_type(&column.data_type) {
            return Err(not_supported(format!("a user-defined type in the key of a materialized view ({name})")));
        }
        key.push(column);
    }
    // Partitions whose keys are equal in value only, such as 1.0 and 1.00, would have one row in the view.
    let mut clustering = key.iter().skip(create.primary_key.partition.len());
    let ambiguous =
        clustering.find(|column| column.kind == ColumnKind::PartitionKey && has_several_forms(&column.data_type));
    if let Some(Column { name, data_type, .. }) = ambiguous {
        let what =
            format!("{name} ({data_type}), whose equal values may differ in form and are partitions of the base");
        return Err(not_supported(format!("a clustering column {what}, in a materialized view")));
    }
    let is_missing = |column: &&Column| !key.iter().any(|of| of.id == column.id);
    let missing: Vec<&str> =
        base.partition_key().chain(base.clustering()).filter(is_missing).map(|column| column.name.as_str()).collect();
    if !missing.is_empty() {
        let (missing, base) = (missing.join(", "), &base.name);
        return Err(invalid(format!(
            "Cannot create materialized view '{view}' without primary key columns {missing} from base table '{base}'"
        )));
    }
    let others: Vec<&str> =
        key.iter().filter(|column| column.kind == ColumnKind::Regular).map(|column| column.name.as_str()).collect();
    if others.len() > 1 {
        let others = others.join(", ");
        return Err(invalid(format!(
            "Cannot include more than one non-primary key column in materialized view primary key (got {others})"
        )));
    }
    Ok(key)
}

/// The comparisons of a `WHERE`, which has to name all columns of the view's key.
fn conditions(base: &Table, key: &[&Column], relations: &[Relation]) -> Result<Vec<IndexCondition>, CqlError> {
    let mut restricted: BTreeSet<ColumnId> = BTreeSet::new();
    let mut comparisons = Vec::new();
    for relation in relations {
        match relation {
            Relation::IsNotNull(Operand::Target(Target::Column(name))) => {
                let column = base.column(name).ok_or_else(|| undefined(base, name))?;
                if !key.iter().any(|of| of.id == column.id) {
                    let what = "IS NOT NULL of a column outside the primary key of a materialized view";
                    return Err(not_supported(format!("{what} ({name})")));
                }
                restricted.insert(column.id);
            }
            Relation::Compare { left: Operand::Token(_), .. } => {
                return Err(invalid("Cannot use token relation when defining a materialized view"));
            }
            Relation::Compare { right: Expression::Marker(_), .. } => {
                return Err(invalid("Bind variables are not allowed in CREATE MATERIALIZED VIEW statements"));
            }
            Relation::Compare { left: Operand::Target(Target::Column(name)), .. } => {
                let column = base.column(name).ok_or_else(|| undefined(base, name))?;
                if column.kind == ColumnKind::Static {
                    return Err(not_supported(format!("{PREDICATE} on static column {name}")));
                }
                comparisons.push(relation.clone());
            }
            _ => {
                return Err(not_supported(format!(
                    "{PREDICATE} that is more than IS NOT NULL and comparisons of columns with constants"
                )));
            }
        }
    }
    let predicate = predicate::conditions(base, &comparisons, PREDICATE)?;
    restricted.extend(predicate.iter().map(|condition| condition.column));
    let is_free = |column: &&&Column| !restricted.contains(&column.id);
    let free: Vec<&str> = key.iter().filter(is_free).map(|column| column.name.as_str()).collect();
    if !free.is_empty() {
        let free = free.join(", ");
        return Err(invalid(format!("Primary key columns {free} must be restricted with 'IS NOT NULL' or otherwise")));
    }
    Ok(predicate)
}

/// The regular columns of the base that decide what the view has for a row, ascending.
fn deciding(base: &Table, view: &Table) -> Vec<ColumnId> {
    let compared: BTreeSet<ColumnId> =
        view.view.iter().flat_map(|view| &view.predicate).map(|condition| condition.column).collect();
    let decides = |column: &&Column| view.column_by_id(column.id).is_some() || compared.contains(&column.id);
    let columns: BTreeSet<ColumnId> = base.regulars().filter(decides).map(|column| column.id).collect();
    columns.into_iter().collect()
}

/// Whether the view has a row for each row of the base that exists: no value of the row is in its key.
fn follows_rows(base: &Table, view: &Table) -> bool {
    let mut key = view.partition_key().chain(view.clustering());
    key.all(|column| base.column_by_id(column.id).is_none_or(|of| of.kind != ColumnKind::Regular))
}

/// Refuses transactions that are not those of the base.
fn check_transactions(base: &Table, given: Option<&String>) -> Result<(), CqlError> {
    match given {
        Some(given) if base.options.get(TRANSACTIONS) != Some(given) => {
            Err(invalid(format!("a materialized view has the transactions of its table {}", base.name)))
        }
        _ => Ok(()),
    }
}

/// A view and its base; `None` if there is no view of that name.
fn find<'c>(context: &Context<'c>, keyspace: &str, name: &str) -> Option<(&'c Arc<TableEntry>, &'c Arc<TableEntry>)> {
    let entry = context.catalog.table(keyspace, name)?;
    Some((entry, context.catalog.table_by_id(entry.table.view.as_ref()?.base)?))
}

fn no_such_view(context: &Context<'_>, keyspace: &str, name: &str) -> CqlError {
    match context.catalog.keyspace(keyspace) {
        Some(_) => invalid(format!("Materialized view '{keyspace}.{name}' doesn't exist")),
        None => no_such_keyspace(keyspace),
    }
}

pub(super) fn alter(context: &Context<'_>, alter: &AlterMaterializedView) -> Result<Plan, CqlError> {
    let keyspace = writable_keyspace(context, &alter.name)?;
    let name = &alter.name.name;
    let Some((entry, base)) = find(context, keyspace, name) else {
        return if alter.if_exists { Ok(Plan::nothing()) } else { Err(no_such_view(context, keyspace, name)) };
    };
    let table = altered(&entry.table, &base.table, &alter.properties)?;
    Ok(Plan::propose(Command::AlterTable { table }, SchemaChangeType::Updated, target(keyspace, name)))
}

fn altered(view: &Table, base: &Table, properties: &[Property]) -> Result<Table, CqlError> {
    let mut table = view.clone();
    set_options(&mut table, properties)?;
    if table.default_ttl_s > 0 {
        return Err(invalid(
            "Forbidden default_time_to_live detected for a materialized view. Data in a materialized view always \
             expire at the same time than the corresponding data in the parent table. default_time_to_live must be set \
             to zero, see CASSANDRA-12868 for more information",
        ));
    }
    check_transactions(base, table.options.get(TRANSACTIONS))?;
    check_together(&table)?;
    Ok(table)
}

pub(super) fn drop(context: &Context<'_>, name: &QualifiedName, if_exists: bool) -> Result<Plan, CqlError> {
    let keyspace = writable_keyspace(context, name)?;
    if find(context, keyspace, &name.name).is_none() {
        return if if_exists { Ok(Plan::nothing()) } else { Err(no_such_view(context, keyspace, &name.name)) };
    }
    let command = Command::DropView { keyspace: keyspace.to_owned(), name: name.name.clone(), if_exists };
    Ok(Plan::propose(command, SchemaChangeType::Dropped, target(keyspace, &name.name)))
}

/// Whether a view has all columns of its base, as `SELECT *` says. A static column that was added later is not in the view.
pub fn selects_all(base: &Table, view: &Table) -> bool {
    let has_all = || base.columns.iter().all(|column| view.column_by_id(column.id).is_some());
    view.view.as_ref().is_some_and(|view| view.selects_all) && has_all()
}

/// The `WHERE` of a view, as CQL text.
pub fn where_text(base: &Table, view: &Table) -> String {
    let key = view.partition_key().chain(view.clustering());
    let mut parts: Vec<String> = key.map(|column| format!("{} IS NOT NULL", identifier(&column.name))).collect();
    let predicate = view.view.as_ref().map(|view| view.predicate.as_slice()).unwrap_or_default();
    if !predicate.is_empty() {
        parts.push(predicate::text(base, predicate));
    }
    parts.join(" AND ")
}
