//! `CREATE TABLE`, `DROP TABLE`, `TRUNCATE`.
//!
//! Always true: columns of a new table are numbered in the order partition key, clustering, static, regular, the last two by name.

use super::context::{Context, Defaults, Plan};
use super::names::{check_column_name, check_name, keyspace_of, no_such_keyspace, no_such_table, writable_keyspace};
use super::options::{DEFAULT_GC_GRACE_S, TableProperties, check_together};
use super::type_names::Mentioned;
use super::type_names::mentions_duration;
use super::viewed;
use crate::error::{exceeded, invalid, not_supported};
use diorite_base::{TableId, limits};
use diorite_cluster::catalog::{Catalog, Command};
use diorite_cql::language::ast::{CreateTable, Direction, QualifiedName};
use diorite_cql::protocol::event::SchemaChangeType;
use diorite_cql::protocol::{CqlError, SchemaTarget};
use diorite_model::schema::{Column, ColumnKind, Order, Table};
use diorite_model::types::{CqlType, Frozen};
use std::collections::{BTreeMap, BTreeSet};

pub(super) fn create(context: &Context<'_>, create: &CreateTable) -> Result<Plan, CqlError> {
    let keyspace = writable_keyspace(context, &create.name)?;
    let name = &create.name.name;
    if context.catalog.keyspace(keyspace).is_none() {
        return Err(no_such_keyspace(keyspace));
    }
    if context.catalog.table(keyspace, name).is_some() {
        if create.if_not_exists {
            return Ok(Plan::nothing());
        }
        return Err(CqlError::already_exists(keyspace, name));
    }
    let (table, tablets) = define(context, keyspace, create)?;
    let tablets = tablets.unwrap_or_else(|| context.default_tablets());
    context.check_room(keyspace, tablets)?;
    let command = Command::CreateTable { table, tablets, if_not_exists: create.if_not_exists };
    let target = SchemaTarget::Table { keyspace: keyspace.to_owned(), name: name.clone() };
    Ok(Plan::propose(command, SchemaChangeType::Created, target))
}

/// The definition in a statement, and the number of tablets if it names one.
pub(super) fn define(
    context: &Context<'_>,
    keyspace: &str,
    create: &CreateTable,
) -> Result<(Table, Option<u32>), CqlError> {
    let name = &create.name.name;
    check_name("Table", name)?;
    if create.options.compact_storage {
        return Err(not_supported("COMPACT STORAGE"));
    }
    let properties = TableProperties::read(&create.options.properties)?;
    let mut types = declared_types(context, keyspace, create)?;
    let orders = clustering_orders(&create.options.clustering_order, &create.primary_key.clustering)?;
    let mut columns = Vec::new();
    for column in &create.primary_key.partition {
        columns.push((column, ColumnKind::PartitionKey, key_type(create, &mut types, column)?));
    }
    for (column, order) in create.primary_key.clustering.iter().zip(orders) {
        columns.push((column, ColumnKind::Clustering(order), key_type(create, &mut types, column)?));
    }
    check_counters(&types, properties.default_ttl_s)?;
    let statics: BTreeSet<&String> =
        create.columns.iter().filter(|column| column.is_static).map(|column| &column.name).collect();
    check_statics(create, &statics)?;
    let (fixed, regular): (Vec<_>, Vec<_>) = types.into_iter().partition(|(name, _)| statics.contains(name));
    columns.extend(fixed.into_iter().map(|(name, data_type)| (name, ColumnKind::Static, data_type)));
    columns.extend(regular.into_iter().map(|(name, data_type)| (name, ColumnKind::Regular, data_type)));
    let columns: Vec<Column> = (0..)
        .zip(columns)
        .map(|(id, (name, kind, data_type))| Column { id, name: name.clone(), data_type, kind })
        .collect();
    let table = Table {
        id: TableId(0),
        uuid: properties.id.unwrap_or_else(|| context.new_uuid(keyspace, name)),
        keyspace: keyspace.to_owned(),
        name: name.clone(),
        version: 0,
        next_column_id: columns.len() as u32,
        indexes: Vec::new(),
        deferred_indexes: Vec::new(),
        index_of: None,
        views: Vec::new(),
        view: None,
        columns,
        default_ttl_s: properties.default_ttl_s.unwrap_or(0),
        gc_grace_s: properties.gc_grace_s.unwrap_or(DEFAULT_GC_GRACE_S),
        options: properties.others,
    };
    check_together(&table)?;
    Ok((table, properties.tablets))
}

fn declared_types<'a>(
    context: &Context<'_>,
    keyspace: &str,
    create: &'a CreateTable,
) -> Result<BTreeMap<&'a String, CqlType>, CqlError> {
    limits::check(&limits::COLUMNS, create.columns.len(), || format!("table {}", create.name.name))
        .map_err(exceeded)?;
    let (mut types, mut mentioned) = (BTreeMap::new(), Mentioned::default());
    for column in &create.columns {
        check_column_name("Column", &column.name)?;
        if column.mask.is_some() {
            return Err(not_supported("a column mask (MASKED WITH)"));
        }
        let data_type = mentioned.resolve(context.catalog, keyspace, &column.data_type)?;
        check_column_type(&data_type)?;
        if types.insert(&column.name, data_type).is_some() {
            let message = format!("Duplicate column '{}' declaration for table '{}'", column.name, create.name.name);
            return Err(invalid(message));
        }
    }
    Ok(types)
}

/// Types that no column may have.
pub(super) fn check_column_type(data_type: &CqlType) -> Result<(), CqlError> {
    if let CqlType::UserDefined(user_type, Frozen::No) = data_type
        && user_type.fields.iter().any(|(_, field)| field.is_multi_cell())
    {
        return Err(invalid("Non-frozen UDTs with nested non-frozen collections are not supported"));
    }
    Ok(())
}

/// Takes a key column's type out of the declared ones.
fn key_type(
    create: &CreateTable,
    types: &mut BTreeMap<&String, CqlType>,
    column: &String,
) -> Result<CqlType, CqlError> {
    let table = &create.name.name;
    let Some(data_type) = types.remove(column) else {
        let declared = create.columns.iter().any(|declared| declared.name == *column);
        return Err(invalid(if declared {
            format!("Duplicate column '{column}' in PRIMARY KEY clause for table '{table}'")
        } else {
            format!("Unknown column '{column}' referenced in PRIMARY KEY for table '{table}'")
        }));
    };
    check_key_type(column, &data_type)?;
    Ok(data_type)
}

/// Refuses types that no column of a key has.
pub(super) fn check_key_type(column: &str, data_type: &CqlType) -> Result<(), CqlError> {
    let refused = match data_type {
        CqlType::UserDefined(..) if data_type.is_multi_cell() => {
            format!("Invalid non-frozen user-defined type {data_type} for PRIMARY KEY column '{column}'")
        }
        _ if data_type.is_multi_cell() => {
            format!("Invalid non-frozen collection type {data_type} for PRIMARY KEY column '{column}'")
        }
        CqlType::Counter => format!("counter type is not supported for PRIMARY KEY column '{column}'"),
        _ if mentions_jsonb(data_type) => format!("jsonb type is not supported for PRIMARY KEY column '{column}'"),
        _ if mentions_duration(data_type) => {
            format!("duration type is not supported for PRIMARY KEY column '{column}'")
        }
        _ => return Ok(()),
    };
    Err(invalid(refused))
}

/// Whether documents are part of a type: they have no order.
fn mentions_jsonb(data_type: &CqlType) -> bool {
    match data_type {
        CqlType::Jsonb => true,
        CqlType::List(inner, _) | CqlType::Set(inner, _) | CqlType::Vector(inner, _) => mentions_jsonb(inner),
        CqlType::Map(key, value, _) => mentions_jsonb(key) || mentions_jsonb(value),
        CqlType::Tuple(parts) => parts.iter().any(mentions_jsonb),
        CqlType::UserDefined(user_type, _) => user_type.fields.iter().any(|(_, field)| mentions_jsonb(field)),
        _ => false,
    }
}

/// The direction of each clustering column.
pub(super) fn clustering_orders(given: &[(String, Direction)], key: &[String]) -> Result<Vec<Order>, CqlError> {
    if given.is_empty() {
        return Ok(vec![Order::Asc; key.len()]);
    }
    let names: BTreeSet<&String> = key.iter().collect();
    let mut earlier = BTreeSet::new();
    for (column, _) in given {
        if !earlier.insert(column) {
            return Err(invalid(format!("Duplicate column '{column}' in CLUSTERING ORDER BY clause")));
        }
        if !names.contains(column) {
            return Err(invalid("Only clustering key columns can be defined in CLUSTERING ORDER directive"));
        }
    }
    let mut orders = Vec::new();
    for (index, column) in key.iter().enumerate() {
        match given.get(index) {
            Some((found, direction)) if found == column => orders.push(match direction {
                Direction::Ascending => Order::Asc,
                Direction::Descending => Order::Desc,
            }),
            Some((found, _)) if earlier.contains(column) => {
                return Err(invalid(format!(
                    "The order of columns in the CLUSTERING ORDER directive must match that of the clustering \
                     columns ({column} must appear before {found})"
                )));
            }
            _ => return Err(invalid(format!("Missing CLUSTERING ORDER for column {column}"))),
        }
    }
    Ok(orders)
}

/// `values` are the columns outside the key.
fn check_counters(values: &BTreeMap<&String, CqlType>, default_ttl_s: Option<u32>) -> Result<(), CqlError> {
    if !values.values().any(|data_type| *data_type == CqlType::Counter) {
        return Ok(());
    }
    if values.values().any(|data_type| *data_type != CqlType::Counter) {
        return Err(invalid("Cannot mix counter and non counter columns in the same table"));
    }
    if default_ttl_s.is_some_and(|ttl| ttl > 0) {
        return Err(invalid("Cannot set default_time_to_live on a table with counters"));
    }
    Ok(())
}

fn check_statics(create: &CreateTable, statics: &BTreeSet<&String>) -> Result<(), CqlError> {
    let key = &create.primary_key;
    if let Some(column) = key.partition.iter().chain(&key.clustering).find(|column| statics.contains(column)) {
        return Err(invalid(format!("Static column '{column}' cannot be part of the PRIMARY KEY")));
    }
    if key.clustering.is_empty() && !statics.is_empty() {
        return Err(invalid(
            "Static columns are only useful (and thus allowed) if the table has at least one clustering column",
        ));
    }
    Ok(())
}

pub(super) fn drop(context: &Context<'_>, name: &QualifiedName, if_exists: bool) -> Result<Plan, CqlError> {
    let keyspace = writable_keyspace(context, name)?;
    let Some(entry) = context.catalog.table(keyspace, &name.name) else {
        if if_exists {
            return Ok(Plan::nothing());
        }
        let known = context.catalog.keyspace(keyspace).is_some();
        return Err(if known { no_such_table(keyspace, &name.name) } else { no_such_keyspace(keyspace) });
    };
    let refused = "Cannot use DROP TABLE on a materialized view. Please use DROP MATERIALIZED VIEW instead.";
    viewed::check_table(&entry.table, refused)?;
    viewed::check_no_views(&entry.table)?;
    let command = Command::DropTable { keyspace: keyspace.to_owned(), name: name.name.clone(), if_exists };
    let target = SchemaTarget::Table { keyspace: keyspace.to_owned(), name: name.name.clone() };
    Ok(Plan::propose(command, SchemaChangeType::Dropped, target))
}

pub(super) fn truncate(context: &Context<'_>, name: &QualifiedName) -> Result<Plan, CqlError> {
    let keyspace = keyspace_of(context, name)?;
    super::names::check_writable(keyspace)?;
    if context.catalog.keyspace(keyspace).is_none() {
        return Err(invalid(format!("keyspace {keyspace} does not exist")));
    }
    let Some(entry) = context.catalog.table(keyspace, &name.name) else {
        return Err(invalid(format!("table {} does not exist", name.name)));
    };
    let refused = "Cannot TRUNCATE materialized view directly; must truncate base table instead";
    viewed::check_table(&entry.table, refused)?;
    let command = Command::TruncateTable { keyspace: keyspace.to_owned(), name: name.name.clone() };
    Ok(Plan::Propose { command, change: None, warnings: Vec::new() })
}

/// The definition that a `CREATE TABLE` gives in `keyspace`, with neither id nor version yet.
pub(crate) fn define_table(catalog: &Catalog, keyspace: &str, create: &CreateTable) -> Result<Table, CqlError> {
    let context = Context {
        catalog,
        keyspace: Some(keyspace),
        defaults: Defaults { tablets_per_node: 1, most_tablets_per_node: u32::MAX },
        nonce: 0,
    };
    Ok(define(&context, keyspace, create)?.0)
}
