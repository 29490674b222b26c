//! `CREATE INDEX`, `DROP INDEX`.
//!
//! Always true: an index is a part of its table's definition, and what changes the table's definition in the meantime
//! makes the statement be planned again; the number of an index is the version of the table that has it first. Deferred
//! indexes begin with the next one that is not deferred. Left
//! out: indexes of whole documents and of vectors (refused by name); predicates ([`super::predicate`]), places in
//! documents ([`super::place`]), and what makes an index unique ([`super::unique`]) or covering ([`super::covering`]).

use super::context::{Context, Plan};
use super::indexable::{check_type, column_of};
use super::names::{check_name, keyspace_of, no_such_keyspace, no_such_table, writable_keyspace};
use super::text::identifier;
use super::type_names::{mentions_duration, mentions_user_type};
use super::viewed::check_count;
use super::{covering, place, predicate, unique, viewed};
use crate::error::{invalid, not_supported};
use diorite_base::level::Level;
use diorite_cluster::catalog::Command;
use diorite_cql::language::ast::{CreateIndex, IndexColumn, Literal, Property, PropertyValue, QualifiedName};
use diorite_cql::protocol::event::SchemaChangeType;
use diorite_cql::protocol::{CqlError, SchemaTarget};
use diorite_model::schema::{Column, ColumnId, ColumnKind, Index, IndexTarget, Table, TableEntry};
use diorite_model::types::CqlType;
use std::collections::{BTreeMap, BTreeSet};

/// The most indexes of a table.
const MAX_INDEXES: usize = 64;
/// Each reads the whole document with every write of it.
const MAX_OF_PLACES: usize = 8;

/// The classes of storage-attached indexes, in lower case.
const ATTACHED: [&str; 3] = ["sai", "storageattachedindex", "org.apache.cassandra.index.sai.storageattachedindex"];
/// The class of Cassandra's first kind of indexes.
const LEGACY: &str = "legacy_local_table";

/// Options of storage-attached indexes that change which values are equal.
const ANALYSING: [&str; 7] =
    ["case_sensitive", "normalize", "ascii", "index_analyzer", "query_analyzer", "similarity_function", "source_model"];

/// The option, not shown as one, with the columns as the statement named them, if that does not follow from the rest.
pub const NAMED: &str = "named_columns";

/// Whether an index may be asked for ranges of values.
pub fn has_ranges(index: &Index) -> bool {
    index.class.as_ref().is_some_and(|class| ATTACHED.contains(&class.to_ascii_lowercase().as_str()))
}

/// The column whose values an index finds, or the place in it, as CQL text.
pub fn place_text(table: &Table, index: &Index) -> String {
    let column = table.column_by_id(index.column).map(|column| identifier(&column.name));
    place::text(column.unwrap_or_default(), &index.path)
}

/// What an index is made of, as CQL text.
pub fn target(table: &Table, index: &Index) -> String {
    parts(table, index).join(", ")
}

/// What an index is made of, as its statement named it: in that order, and with the parentheses.
pub fn named(table: &Table, index: &Index) -> String {
    let named = covering::key_text(table, index).or_else(|| index.options.get(NAMED).cloned());
    named.unwrap_or_else(|| target(table, index))
}

/// The column whose values an index finds, and those by which rows are filtered, as CQL text.
fn parts(table: &Table, index: &Index) -> Vec<String> {
    let name = |id: ColumnId| table.column_by_id(id).map(|column| identifier(&column.name)).unwrap_or_default();
    let first = place_text(table, index);
    let first = match index.target {
        IndexTarget::Value => first,
        IndexTarget::Values => format!("values({first})"),
        IndexTarget::Keys => format!("keys({first})"),
        IndexTarget::Entries => format!("entries({first})"),
        IndexTarget::Full => format!("full({first})"),
    };
    std::iter::once(first).chain(index.filtered.iter().map(|id| name(*id))).collect()
}

/// The columns as a statement names them. Its first `hashed` ones are in parentheses of their own if they are several; the
/// index finds the one at `found`. `None`: they are named as the definition has them.
fn as_named(table: &Table, index: &Index, hashed: usize, found: usize) -> Option<String> {
    if hashed < 2 && found == 0 {
        return None;
    }
    let mut parts = parts(table, index);
    // It comes first in the definition.
    parts.get_mut(..=found)?.rotate_left(1);
    let (partition, others) = parts.split_at_checked(hashed)?;
    let partition = partition.join(", ");
    let partition = if hashed > 1 { format!("({partition})") } else { partition };
    Some(std::iter::once(&partition).chain(others).map(String::as_str).collect::<Vec<_>>().join(", "))
}

pub(super) fn create(context: &Context<'_>, create: &CreateIndex) -> Result<Plan, CqlError> {
    let keyspace = writable_keyspace(context, &create.table)?;
    let name = &create.table.name;
    let Some(entry) = context.catalog.table(keyspace, name) else {
        let known = context.catalog.keyspace(keyspace).is_some();
        return Err(if known { no_such_table(keyspace, name) } else { no_such_keyspace(keyspace) });
    };
    viewed::check_table(&entry.table, "Secondary indexes on materialized views aren't supported")?;
    let mut table = Table::clone(&entry.table);
    if let Some(index) = &create.name {
        check_name("Index", index)?;
        if find(context, keyspace, index).is_some() {
            if create.if_not_exists {
                return Ok(Plan::nothing());
            }
            return Err(invalid(format!("Index '{index}' already exists")));
        }
    }
    if table.is_counter() {
        return Err(invalid("Secondary indexes on counter tables aren't supported"));
    }
    let mut index = define(context, &table, create)?;
    if create.unique {
        index.unique = Some(unique::define(context, entry, create)?);
    }
    let mut warnings = Vec::new();
    match covering::define(context, &table, create)? {
        covering::Made::Covering(covering) => index.covering = Some(covering),
        covering::Made::Local(why) => {
            warnings.extend(why.map(|why| covering::local_warning(&index.name, &why)));
            warnings.extend(covering::order_warning(&index.name, create));
        }
    }
    let is_same = |known: &&Index| {
        let is_unique = |index: &Index| index.unique.is_some();
        (known.column, known.target, &known.path, &known.filtered, has_ranges(known), is_unique(known))
            == (index.column, index.target, &index.path, &index.filtered, has_ranges(&index), is_unique(&index))
            && predicate::is_same(&known.predicate, &index.predicate)
            && index.covering.as_ref().is_none_or(|wanted| covering::covers(known, wanted))
    };
    if let Some(known) = table.defined_indexes().find(is_same) {
        if create.if_not_exists {
            return Ok(Plan::nothing());
        }
        return Err(invalid(format!("Index {} is a duplicate of existing index {}", index.name, known.name)));
    }
    check_limits(&table, &index)?;
    if create.deferred {
        if context.catalog.level() < Level::RECORDED {
            return Err(invalid("deferred indexes need all nodes to run this release: see 'diorite admin upgrade'"));
        }
        warnings.push(deferred_warning(&index.name, name));
        table.deferred_indexes.push(index);
    } else {
        let begun = std::mem::take(&mut table.deferred_indexes).into_iter().chain([index]);
        check_room(context, entry, begun.clone())?;
        table.indexes.extend(begun);
    }
    let mut plan = alter(table);
    if let Plan::Propose { warnings: of_plan, .. } = &mut plan {
        *of_plan = warnings;
    }
    Ok(plan)
}

/// Refuses one index more than a table may have.
fn check_limits(table: &Table, index: &Index) -> Result<(), CqlError> {
    let name = &table.name;
    if table.defined_indexes().count() >= MAX_INDEXES {
        return Err(invalid(format!("table {name} has {MAX_INDEXES} indexes, which is the maximum")));
    }
    let of_places = table.defined_indexes().filter(|known| !known.path.is_empty()).count();
    if !index.path.is_empty() && of_places >= MAX_OF_PLACES {
        let what = format!("table {name} has {MAX_OF_PLACES} indexes of places in documents, which is the maximum");
        return Err(invalid(what));
    }
    if index.covering.is_some() {
        check_count(table)?;
    }
    Ok(())
}

/// Refuses indexes for whose tables the nodes have no room.
fn check_room(context: &Context<'_>, entry: &TableEntry, indexes: impl Iterator<Item = Index>) -> Result<(), CqlError> {
    let tables = indexes.map(|index| usize::from(index.unique.is_some()) + usize::from(index.covering.is_some())).sum();
    let tablets = entry.tablets.len().saturating_mul(tables);
    context.check_room(&entry.table.keyspace, u32::try_from(tablets).unwrap_or(u32::MAX))
}

fn deferred_warning(index: &str, table: &str) -> String {
    format!(
        "index {index} is built with the next index of table {table} that is not deferred; until then no statement uses it"
    )
}

fn alter(table: Table) -> Plan {
    let target = SchemaTarget::Table { keyspace: table.keyspace.clone(), name: table.name.clone() };
    Plan::propose(Command::AlterTable { table }, SchemaChangeType::Updated, target)
}

/// The table that has an index of this name.
pub(super) fn find<'c>(context: &Context<'c>, keyspace: &str, index: &str) -> Option<&'c Table> {
    let entry = context.catalog.tables_in(keyspace).find(|entry| entry.table.index(index).is_some())?;
    Some(&entry.table)
}

pub(super) fn drop(context: &Context<'_>, name: &QualifiedName, if_exists: bool) -> Result<Plan, CqlError> {
    let keyspace = keyspace_of(context, name)?;
    super::names::check_writable(keyspace)?;
    let Some(table) = find(context, keyspace, &name.name) else {
        if if_exists {
            return Ok(Plan::nothing());
        }
        return Err(invalid(format!("Index '{keyspace}.{}' doesn't exist", name.name)));
    };
    let mut table = table.clone();
    table.indexes.retain(|index| index.name != name.name);
    table.deferred_indexes.retain(|index| index.name != name.name);
    Ok(alter(table))
}

/// Refuses a change of a column that indexes are made of.
pub(super) fn check_free(table: &Table, column: &Column, what: &str) -> Result<(), CqlError> {
    let uses = |index: &&Index| {
        index.column == column.id
            || index.filtered.contains(&column.id)
            || index.predicate.iter().any(|condition| condition.column == column.id)
    };
    let includes = |index: &&Index| index.covering.as_ref().is_some_and(|of| of.included.contains(&column.id));
    // The columns of others that are covering are those of their views.
    let deferred = table.deferred_indexes.iter().filter(|index| !uses(index) && includes(index));
    let names: Vec<&str> =
        table.defined_indexes().filter(uses).chain(deferred).map(|index| index.name.as_str()).collect();
    if names.is_empty() {
        return Ok(());
    }
    let (column, names) = (&column.name, names.join(", "));
    Err(invalid(format!("Cannot {what} column {column} because it has dependent secondary indexes ({names})")))
}

fn define(context: &Context<'_>, table: &Table, create: &CreateIndex) -> Result<Index, CqlError> {
    let mut named: Vec<&IndexColumn> = create.partition.iter().chain(&create.clustering).collect();
    // Rows of one partition are found without an index of its key.
    let is_only_key = |named: &IndexColumn| matches!(named, IndexColumn::Column(name) if is_only_key(table, name));
    let first = named.iter().position(|named| !is_only_key(named)).unwrap_or(0);
    if named.is_empty() {
        return Err(invalid("an index needs a column"));
    }
    let (column, target, path) = match named.remove(first) {
        IndexColumn::JsonPath { column, path, as_text } => {
            let (column, path) = place::indexed(column_of(table, column)?, path, *as_text)?;
            (column, IndexTarget::Value, path)
        }
        other => indexed(table, other).map(|(column, target)| (column, target, Vec::new()))?,
    };
    let mut filtered = Vec::new();
    for other in named {
        let IndexColumn::Column(other) = other else {
            return Err(not_supported("an index whose second column is a part of a column"));
        };
        filtered.push(column_of(table, other)?.id);
    }
    if create.options.compact_storage {
        return Err(not_supported("COMPACT STORAGE"));
    }
    let mut options = options(&create.options.properties)?;
    if !create.include.is_empty() {
        for name in &create.include {
            column_of(table, name)?;
        }
        let names = create.include.iter().map(|name| identifier(name)).collect::<Vec<_>>();
        options.insert("include".to_owned(), names.join(", "));
    }
    let class = class_of(create)?;
    if let Some(option) = ANALYSING.iter().find(|option| options.contains_key(**option)) {
        return Err(not_supported(format!("the index option {option}")));
    }
    let name = match &create.name {
        Some(name) => name.clone(),
        None => free_name(context, table, &column.name)?,
    };
    let predicate = predicate::conditions(table, &create.where_clause, predicate::OF_INDEX)?;
    let mut index = Index {
        id: table.version + 1,
        name,
        column: column.id,
        target,
        path,
        filtered,
        class,
        options,
        predicate,
        unique: None,
        covering: None,
    };
    let named = as_named(table, &index, create.partition.len(), first);
    index.options.extend(named.map(|named| (NAMED.to_owned(), named)));
    Ok(index)
}

fn class_of(create: &CreateIndex) -> Result<Option<String>, CqlError> {
    match &create.using {
        None if create.custom => Err(invalid("CUSTOM index requires specifying the index class")),
        None => Ok(None),
        Some(class) if ATTACHED.contains(&class.to_ascii_lowercase().as_str()) => Ok(Some(class.clone())),
        Some(class) if class.eq_ignore_ascii_case(LEGACY) => Ok(None),
        Some(class) => Err(not_supported(format!("the index class '{class}'"))),
    }
}

/// `table_column_idx`, with a number if that is taken.
fn free_name(context: &Context<'_>, table: &Table, column: &str) -> Result<String, CqlError> {
    let plain = |text: &str| text.chars().filter(|letter| letter.is_ascii_alphanumeric() || *letter == '_').collect();
    let (of_table, of_column): (String, String) = (plain(&table.name), plain(column));
    let taken: BTreeSet<&str> = context
        .catalog
        .tables_in(&table.keyspace)
        .flat_map(|entry| entry.table.defined_indexes())
        .map(|index| index.name.as_str())
        .collect();
    let base = format!("{of_table}_{of_column}_idx");
    if !taken.contains(base.as_str()) {
        return Ok(base);
    }
    let mut numbered = (1..=taken.len()).map(|number| format!("{base}_{number}"));
    numbered
        .find(|name| !taken.contains(name.as_str()))
        .ok_or_else(|| invalid(format!("Index '{base}' already exists")))
}

/// Whether a column is all that partitions are known by.
fn is_only_key(table: &Table, name: &str) -> bool {
    let mut key = table.partition_key();
    key.next().is_some_and(|column| column.name == name) && key.next().is_none()
}

/// The column, and which part of it is indexed.
fn indexed<'t>(table: &'t Table, named: &IndexColumn) -> Result<(&'t Column, IndexTarget), CqlError> {
    let (name, asked) = match named {
        IndexColumn::Column(name) => (name, None),
        IndexColumn::Values(name) => (name, Some(IndexTarget::Values)),
        IndexColumn::Keys(name) => (name, Some(IndexTarget::Keys)),
        IndexColumn::Entries(name) => (name, Some(IndexTarget::Entries)),
        IndexColumn::Full(name) => (name, Some(IndexTarget::Full)),
        IndexColumn::JsonPath { .. } => return Err(not_supported("an index of a path in a document")),
    };
    let column = column_of(table, name)?;
    match (&column.data_type, asked) {
        // The values have no part in an index of the keys.
        (CqlType::Map(key, ..), Some(IndexTarget::Keys)) if !mentions_duration(&column.data_type) => check_type(key)?,
        (data_type, _) => check_type(data_type)?,
    }
    if is_only_key(table, name) {
        return Err(invalid(format!("Cannot create secondary index on the only partition key column {name}")));
    }
    // The tablet reads the value from the row's key, whose layout it knows as it was when the index was created.
    let is_of_key = matches!(column.kind, ColumnKind::PartitionKey | ColumnKind::Clustering(_));
    if is_of_key && table.clustering().any(|of| mentions_user_type(&of.data_type)) {
        let what = "an index on a key column beside a clustering column with a user-defined type";
        return Err(not_supported(what));
    }
    let is_collection = matches!(column.data_type, CqlType::List(..) | CqlType::Set(..) | CqlType::Map(..));
    let is_map = matches!(column.data_type, CqlType::Map(..));
    let is_multi_cell = column.data_type.is_multi_cell();
    let target = match asked {
        None if !is_collection => IndexTarget::Value,
        None | Some(IndexTarget::Values) if is_multi_cell && is_collection => IndexTarget::Values,
        Some(IndexTarget::Full) if is_collection && !is_multi_cell => IndexTarget::Full,
        Some(IndexTarget::Full) => return Err(invalid("full() indexes can only be created on frozen collections")),
        Some(IndexTarget::Keys | IndexTarget::Entries) if is_collection && is_multi_cell && !is_map => {
            let part = if asked == Some(IndexTarget::Keys) { "keys" } else { "entries" };
            return Err(invalid(format!("Cannot create index on {part} of column {name} with non-map type")));
        }
        Some(asked) if is_multi_cell && is_map => asked,
        Some(_) if !is_collection => {
            return Err(invalid(format!(
                "Cannot create {} index on {name}. Non-collection columns only support simple indexes",
                shown_target(asked)
            )));
        }
        _ => {
            return Err(invalid(format!(
                "Cannot create {} index on frozen column {name}. Frozen collections are immutable and must be fully \
                 indexed by using the 'full({name})' modifier",
                shown_target(asked)
            )));
        }
    };
    Ok((column, target))
}

fn shown_target(target: Option<IndexTarget>) -> &'static str {
    match target {
        Some(IndexTarget::Keys) => "keys()",
        Some(IndexTarget::Entries) => "entries()",
        Some(IndexTarget::Full) => "full()",
        Some(IndexTarget::Value | IndexTarget::Values) | None => "values()",
    }
}

/// `OPTIONS = {…}`. YCQL's `transactions` and `tablets` mean nothing here: the entries of a row are written with it.
fn options(properties: &[Property]) -> Result<BTreeMap<String, String>, CqlError> {
    let mut options = BTreeMap::new();
    for property in properties {
        match (property.name.as_str(), &property.value) {
            ("options", PropertyValue::Map(entries)) => {
                for (key, value) in entries {
                    let (Literal::String(key), Literal::String(value)) = (key, value) else {
                        return Err(invalid("the options of an index are texts"));
                    };
                    if ["target", "class_name", "predicate", "unique", "include", NAMED].contains(&key.as_str()) {
                        return Err(invalid(format!("Cannot specify {key} as a CUSTOM option")));
                    }
                    options.insert(key.clone(), value.clone());
                }
            }
            ("transactions" | "tablets", _) => {}
            (name, _) => return Err(CqlError::config(format!("Unknown property '{name}'"))),
        }
    }
    Ok(options)
}
