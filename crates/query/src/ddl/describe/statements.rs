//! CREATE statements from definitions, laid out as Cassandra lays them out.

use crate::ddl::covering;
use crate::ddl::index::{NAMED, named};
use crate::ddl::options::shown;
use crate::ddl::predicate;
use crate::ddl::text::{identifier, map, string, type_name};
use crate::ddl::view::{selects_all, where_text};
use diorite_model::schema::{ColumnKind, Index, Keyspace, Order, Table};
use diorite_model::types::{CqlType, UserType};
use std::collections::{BTreeSet, HashMap};
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
    let is_simple = table.partition_key().chain(table.clustering()).count() == 1;
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
        lines.push(format!("    {}", primary_key(table)));
    }
    let mut statement =
        format!("CREATE TABLE {}.{} (\n{}\n)", identifier(&table.keyspace), identifier(&table.name), lines.join(",\n"));
    push_options(table, internals, &mut statement);
    statement
}

/// `CREATE MATERIALIZED VIEW …;`
pub(super) fn create_view(base: &Table, view: &Table, internals: bool) -> String {
    let columns = match selects_all(base, view) {
        true => "*".to_owned(),
        false => view.columns.iter().map(|column| identifier(&column.name)).collect::<Vec<_>>().join(", "),
    };
    let mut statement = format!(
        "CREATE MATERIALIZED VIEW {}.{} AS\n    SELECT {columns}\n    FROM {}.{}\n    WHERE {}\n    {}\n",
        identifier(&view.keyspace),
        identifier(&view.name),
        identifier(&base.keyspace),
        identifier(&base.name),
        where_text(base, view),
        primary_key(view)
    );
    push_options(view, internals, &mut statement);
    statement
}

fn primary_key(table: &Table) -> String {
    let partition: Vec<_> = table.partition_key().map(|column| identifier(&column.name)).collect();
    let partition = if partition.len() > 1 { format!("({})", partition.join(", ")) } else { partition.concat() };
    let clustering = table.clustering().map(|column| identifier(&column.name));
    let key: Vec<_> = std::iter::once(partition).chain(clustering).collect();
    format!("PRIMARY KEY ({})", key.join(", "))
}

/// ` WITH …;`
fn push_options(table: &Table, internals: bool, statement: &mut String) {
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
    // The rows of a view live as long as those from which they follow.
    let is_shown = |name: &str| table.view.is_none() || name != "default_time_to_live";
    let shown = shown(table).into_iter().filter(|(name, _)| is_shown(name));
    options.extend(shown.map(|(name, literal)| format!("{name} = {literal}")));
    for (index, option) in options.iter().enumerate() {
        let _ = write!(statement, "{}{option}", if index == 0 { " WITH " } else { "\n    AND " });
    }
    statement.push(';');
}

/// `CREATE INDEX …;`
pub(super) fn create_index(table: &Table, index: &Index) -> String {
    let custom = if index.class.is_some() { "CUSTOM " } else { "" };
    let unique = if index.unique.is_some() { "UNIQUE " } else { "" };
    let is_deferred = table.deferred_indexes.iter().any(|of| of.id == index.id);
    let deferred = if is_deferred { "DEFERRED " } else { "" };
    let (keyspace, name) = (identifier(&table.keyspace), identifier(&table.name));
    let include = covering::include_text(table, index).map(|columns| format!(" INCLUDE ({columns})"));
    let include = include.unwrap_or_default();
    let class = index.class.as_ref().map(|class| format!(" USING {}", string(class))).unwrap_or_default();
    let mut options = index.options.clone();
    options.remove("include");
    options.remove(NAMED);
    let order = covering::order_text(table, index).map(|order| format!("CLUSTERING ORDER BY ({order})"));
    let options = (!options.is_empty()).then(|| format!("OPTIONS = {}", map(&options)));
    let options: Vec<String> = order.into_iter().chain(options).collect();
    let options = if options.is_empty() { String::new() } else { format!(" WITH {}", options.join(" AND ")) };
    let predicate = match index.predicate.as_slice() {
        [] => String::new(),
        conditions => format!(" WHERE {}", predicate::text(table, conditions)),
    };
    format!(
        "CREATE {unique}{deferred}{custom}INDEX {} ON {keyspace}.{name} ({}){include}{class}{options}{predicate};",
        identifier(&index.name),
        named(table, index)
    )
}

/// The types of one keyspace, each after those it mentions.
pub(super) fn dependencies_first(mut types: Vec<&UserType>) -> Vec<&UserType> {
    let known: HashMap<&str, &UserType> = types.iter().map(|of| (of.name.as_str(), *of)).collect();
    let mut levels = HashMap::new();
    for of in &types {
        level(of, &known, &mut levels);
    }
    // The sort is stable: types of the same level keep their order.
    types.sort_by_key(|of| levels.get(of.name.as_str()).copied());
    types
}

/// How many types lie within each other below a type: one more than below any that it mentions. Types do not mention one another in a circle, and their
/// depth is limited.
fn level<'t>(of: &'t UserType, known: &HashMap<&'t str, &'t UserType>, levels: &mut HashMap<&'t str, usize>) -> usize {
    if let Some(level) = levels.get(of.name.as_str()) {
        return *level;
    }
    // Where there is a circle, this ends it.
    levels.insert(&of.name, 0);
    let mut mentioned = BTreeSet::new();
    of.fields.iter().for_each(|(_, field)| mentions(field, &mut mentioned));
    let below = mentioned.into_iter().filter_map(|name| known.get(name).copied());
    let found = below.map(|inner| level(inner, known, levels) + 1).max().unwrap_or(0);
    levels.insert(&of.name, found);
    found
}

/// The types of a keyspace that the table needs, dependencies first.
pub(super) fn needed_by<'t>(table: &'t Table, types: Vec<&'t UserType>) -> Vec<&'t UserType> {
    let mut mentioned = BTreeSet::new();
    table.columns.iter().for_each(|column| mentions(&column.data_type, &mut mentioned));
    let mut needed: Vec<&UserType> = Vec::new();
    // Backwards, so that whatever mentions a type has been looked at before it.
    for candidate in dependencies_first(types).into_iter().rev() {
        if mentioned.contains(candidate.name.as_str()) {
            candidate.fields.iter().for_each(|(_, field)| mentions(field, &mut mentioned));
            needed.push(candidate);
        }
    }
    needed.reverse();
    needed
}

/// The user types that a type names directly, without those that they contain.
fn mentions<'t>(data_type: &'t CqlType, names: &mut BTreeSet<&'t str>) {
    crate::steps::count(1);
    match data_type {
        CqlType::List(inner, _) | CqlType::Set(inner, _) | CqlType::Vector(inner, _) => mentions(inner, names),
        CqlType::Map(key, value, _) => {
            mentions(key, names);
            mentions(value, names);
        }
        CqlType::Tuple(parts) => parts.iter().for_each(|part| mentions(part, names)),
        CqlType::UserDefined(user_type, _) => {
            names.insert(&user_type.name);
        }
        _ => {}
    }
}
