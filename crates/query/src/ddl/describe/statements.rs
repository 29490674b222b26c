//! CREATE statements from definitions, laid out as Cassandra lays them out.

use crate::ddl::options::shown;
use crate::ddl::text::{identifier, map, type_name};
use diorite_model::schema::{ColumnKind, Keyspace, Order, Table};
use diorite_model::types::{CqlType, UserType};
use std::fmt::Write;

/// `CREATE KEYSPACE …;`
pub(super) fn create_keyspace(keyspace: &Keyspace) -> String {
    let mut replication = keyspace.replication.clone();
    if let Some(class) = replication.get_mut("class")
        && let Some(short) = class.strip_prefix("org.apache.cassandra.locator.")
    {
        *class = short.to_owned();
    }
    format!(
        "CREATE KEYSPACE {} WITH replication = {} AND durable_writes = {};",
        identifier(&keyspace.name),
        map(&replication),
        keyspace.durable_writes
    )
}

/// `CREATE TYPE …;`
pub(super) fn create_type(user_type: &UserType) -> String {
    let fields: Vec<_> =
        user_type.fields.iter().map(|(name, of)| format!("    {} {}", identifier(name), type_name(of))).collect();
    format!(
        "CREATE TYPE {}.{} (\n{}\n);",
        identifier(&user_type.keyspace),
        identifier(&user_type.name),
        fields.join(",\n")
    )
}

/// `CREATE TABLE …;`, with the id that clients see if internals are wanted.
pub(super) fn create_table(table: &Table, internals: bool) -> String {
    let partition: Vec<_> = table.partition_key().map(|column| identifier(&column.name)).collect();
    let clustering: Vec<_> = table.clustering().map(|column| identifier(&column.name)).collect();
    let is_simple = partition.len() == 1 && clustering.is_empty();
    let mut lines: Vec<String> = table
        .columns
        .iter()
        .map(|column| {
            let suffix = match column.kind {
                ColumnKind::Static => " static",
                ColumnKind::PartitionKey if is_simple => " PRIMARY KEY",
                _ => "",
            };
            format!("    {} {}{suffix}", identifier(&column.name), type_name(&column.data_type))
        })
        .collect();
    if !is_simple {
        let partition = if partition.len() > 1 { format!("({})", partition.join(", ")) } else { partition.concat() };
        let key: Vec<_> = std::iter::once(partition).chain(clustering).collect();
        lines.push(format!("    PRIMARY KEY ({})", key.join(", ")));
    }
    let mut options = Vec::new();
    if internals {
        options.push(format!("ID = {}", table.uuid));
    }
    let orders: Vec<_> = table.clustering().map(|column| (identifier(&column.name), column.kind)).collect();
    if !orders.is_empty() {
        let order = |(name, kind): &(String, ColumnKind)| {
            let descending = *kind == ColumnKind::Clustering(Order::Desc);
            format!("{name} {}", if descending { "DESC" } else { "ASC" })
        };
        options.push(format!("CLUSTERING ORDER BY ({})", orders.iter().map(order).collect::<Vec<_>>().join(", ")));
    }
    options.extend(shown(table).into_iter().map(|(name, literal)| format!("{name} = {literal}")));
    let mut statement =
        format!("CREATE TABLE {}.{} (\n{}\n)", identifier(&table.keyspace), identifier(&table.name), lines.join(",\n"));
    for (index, option) in options.iter().enumerate() {
        let _ = write!(statement, "{}{option}", if index == 0 { " WITH " } else { "\n    AND " });
    }
    statement.push(';');
    statement
}

/// The types of one keyspace, each after those it mentions.
pub(super) fn dependencies_first(mut types: Vec<&UserType>) -> Vec<&UserType> {
    let mut ordered: Vec<&UserType> = Vec::new();
    while !types.is_empty() {
        let waits = |candidate: &UserType| {
            types.iter().any(|other| {
                other.name != candidate.name && candidate.fields.iter().any(|(_, field)| mentions(field, &other.name))
            })
        };
        let (later, ready): (Vec<_>, Vec<_>) = types.iter().copied().partition(|candidate| waits(candidate));
        if ready.is_empty() {
            // Types cannot mention one another in a circle; if they did, any order would do.
            ordered.extend(later);
            break;
        }
        ordered.extend(ready);
        types = later;
    }
    ordered
}

/// Those of the types of a keyspace, dependencies first, without which the table cannot be made.
pub(super) fn needed_by<'t>(table: &Table, types: Vec<&'t UserType>) -> Vec<&'t UserType> {
    let mut needed: Vec<&UserType> = Vec::new();
    // Backwards, so that whatever mentions a type has been looked at before it.
    for candidate in dependencies_first(types).into_iter().rev() {
        let by_table = table.columns.iter().any(|column| mentions(&column.data_type, &candidate.name));
        let by_type = needed.iter().flat_map(|user| &user.fields).any(|(_, field)| mentions(field, &candidate.name));
        if by_table || by_type {
            needed.push(candidate);
        }
    }
    needed.reverse();
    needed
}

fn mentions(data_type: &CqlType, name: &str) -> bool {
    match data_type {
        CqlType::List(inner, _) | CqlType::Set(inner, _) | CqlType::Vector(inner, _) => mentions(inner, name),
        CqlType::Map(key, value, _) => mentions(key, name) || mentions(value, name),
        CqlType::Tuple(parts) => parts.iter().any(|part| mentions(part, name)),
        CqlType::UserDefined(user_type, _) => user_type.name == name,
        _ => false,
    }
}
