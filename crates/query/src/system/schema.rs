//! `system_schema` and `system_virtual_schema`: the schema, as drivers and tools read it.
//!
//! Always true: a table's rows here and its CREATE statement by DESCRIBE show the same options. As in Cassandra, the tables of
//! `system_virtual_schema` are listed there and not in `system_schema`.

use super::cells::{RowBuilder, boolean, double, int, list, map, set, text, uuid};
use super::definitions;
use super::source::Row;
use crate::ddl::covering::include_text;
use crate::ddl::index::{NAMED, target};
use crate::ddl::options::{option, read_map, read_text};
use crate::ddl::predicate;
use crate::ddl::view::{selects_all, where_text};
use crate::table::TRANSACTIONS;
use crate::types::type_for_drivers;
use diorite_cluster::catalog::Catalog;
use diorite_model::schema::{Column, ColumnKind, Index, Keyspace, Order, Table};
use std::collections::BTreeMap;
use std::sync::Arc;

/// The one keyspace whose tables have no stored counterpart in Cassandra either.
const VIRTUAL: &str = "system_virtual_schema";

fn system_tables(of_virtual: bool) -> impl Iterator<Item = &'static Arc<Table>> {
    let wanted = definitions::all().iter().filter(move |(name, _)| (*name == VIRTUAL) == of_virtual);
    wanted.flat_map(|(_, entry)| entry.tables.values())
}

/// Every table and view whose columns `system_schema` lists.
fn all_tables(catalog: &Catalog) -> impl Iterator<Item = &Table> {
    // The tables of indexes are parts of these.
    let user = catalog.tables().map(|entry| &*entry.table).filter(|table| table.index_of.is_none());
    system_tables(false).map(|table| &**table).chain(user)
}

pub(super) fn keyspaces<'a>(catalog: &'a Catalog, table: &'a Table) -> impl Iterator<Item = Row> + 'a {
    let row = move |keyspace: &Keyspace| {
        RowBuilder::new(table)
            .set("keyspace_name", text(&keyspace.name))
            .set("durable_writes", boolean(keyspace.durable_writes))
            .set("replication", map(&keyspace.replication))
            .finish()
    };
    let system = definitions::all().values().map(|entry| &entry.keyspace).filter(|keyspace| keyspace.name != VIRTUAL);
    system.chain(catalog.keyspaces().map(|keyspace| &**keyspace)).map(row)
}

/// Drivers that know Scylla's extension for tablets take a keyspace for one of tablets when `initial_tablets` is not null; how many there
/// are they learn from answers.
pub(super) fn scylla_keyspaces<'a>(catalog: &'a Catalog, table: &'a Table) -> impl Iterator<Item = Row> + 'a {
    let row = move |keyspace: &Arc<Keyspace>| {
        RowBuilder::new(table).set("keyspace_name", text(&keyspace.name)).set("initial_tablets", int(0)).finish()
    };
    catalog.keyspaces().map(row)
}

pub(super) fn tables<'a>(catalog: &'a Catalog, table: &'a Table) -> impl Iterator<Item = Row> + 'a {
    let tables = all_tables(catalog).filter(|described| described.view.is_none());
    tables.map(move |described| table_row(table, described))
}

pub(super) fn views<'a>(catalog: &'a Catalog, table: &'a Table) -> impl Iterator<Item = Row> + 'a {
    all_tables(catalog).filter_map(move |described| {
        let base = &catalog.table_by_id(described.view.as_ref()?.base)?.table;
        let row = RowBuilder::new(table)
            .set("keyspace_name", text(&described.keyspace))
            .set("view_name", text(&described.name))
            .set("base_table_id", uuid(base.uuid))
            .set("base_table_name", text(&base.name))
            .set("include_all_columns", boolean(selects_all(base, described)))
            .set("where_clause", text(&where_text(base, described)));
        Some(with_options(row, described).finish())
    })
}

fn table_row(table: &Table, described: &Table) -> Row {
    let mut flags = vec!["compound"];
    if described.is_counter() {
        flags.push("counter");
    }
    let row = RowBuilder::new(table)
        .set("keyspace_name", text(&described.keyspace))
        .set("table_name", text(&described.name))
        .set("flags", set(flags))
        .set("transactions", map(&read_map(option(described, TRANSACTIONS).unwrap_or("{'enabled': 'false'}"))));
    with_options(row, described).finish()
}

/// Sets the options that tables and views have in common.
fn with_options<'t>(row: RowBuilder<'t>, described: &Table) -> RowBuilder<'t> {
    let mut row = row
        .set("id", uuid(described.uuid))
        .set("default_time_to_live", int(described.default_ttl_s as i32))
        .set("gc_grace_seconds", int(described.gc_grace_s as i32));
    let literal = |name: &str| option(described, name);
    for name in ["additional_write_policy", "comment", "memtable", "read_repair", "speculative_retry"] {
        let value = literal(name).map(read_text).unwrap_or_default();
        // Cassandra shows null for the default memtable.
        if name != "memtable" || value != "default" {
            row = row.set(name, text(&value));
        }
    }
    for name in ["bloom_filter_fp_chance", "crc_check_chance", "dclocal_read_repair_chance", "read_repair_chance"] {
        row = row.set(name, double(literal(name).and_then(|value| value.parse().ok()).unwrap_or(0.0)));
    }
    for name in ["max_index_interval", "memtable_flush_period_in_ms", "min_index_interval"] {
        let value = literal(name).and_then(|value| value.parse::<i64>().ok()).unwrap_or(0);
        row = row.set(name, int(i32::try_from(value).unwrap_or(i32::MAX)));
    }
    for name in ["caching", "compaction", "compression"] {
        row = row.set(name, map(&read_map(literal(name).unwrap_or_default())));
    }
    row.set("cdc", boolean(literal("cdc") == Some("true")))
        .set("extensions", map(&extensions(literal("extensions").unwrap_or_default())))
}

/// The values of extensions are bytes.
fn extensions(literal: &str) -> BTreeMap<String, Vec<u8>> {
    let bytes = |value: String| {
        let digits = value.trim_start_matches("0x").as_bytes().to_vec();
        let pairs = digits.chunks_exact(2);
        pairs
            .filter_map(|pair| std::str::from_utf8(pair).ok().and_then(|pair| u8::from_str_radix(pair, 16).ok()))
            .collect()
    };
    read_map(literal).into_iter().map(|(key, value)| (key, bytes(value))).collect()
}

pub(super) fn columns<'a>(catalog: &'a Catalog, table: &'a Table) -> impl Iterator<Item = Row> + 'a {
    all_tables(catalog).flat_map(move |described| column_rows(table, described))
}

/// The rows of one table's columns, by name, as the clustering order of `columns` has them.
fn column_rows<'a>(table: &'a Table, described: &'a Table) -> impl Iterator<Item = Row> + 'a {
    let mut by_name: Vec<(&Column, i32)> = Vec::with_capacity(described.columns.len());
    let is_key = |column: &&Column| matches!(column.kind, ColumnKind::PartitionKey | ColumnKind::Clustering(_));
    // A column's place is that among the key columns of its kind.
    by_name.extend(described.partition_key().zip(0..));
    by_name.extend(described.clustering().zip(0..));
    by_name.extend(described.columns.iter().filter(|column| !is_key(column)).map(|column| (column, -1)));
    by_name.sort_by(|(a, _), (b, _)| a.name.cmp(&b.name));
    let row = move |(column, position): (&Column, i32)| {
        let (kind, order) = match column.kind {
            ColumnKind::PartitionKey => ("partition_key", "none"),
            ColumnKind::Clustering(order) => ("clustering", if order == Order::Asc { "asc" } else { "desc" }),
            ColumnKind::Static => ("static", "none"),
            ColumnKind::Regular => ("regular", "none"),
        };
        RowBuilder::new(table)
            .set("keyspace_name", text(&described.keyspace))
            .set("table_name", text(&described.name))
            .set("column_name", text(&column.name))
            .set("clustering_order", text(order))
            .set("column_name_bytes", text(&column.name))
            .set("kind", text(kind))
            .set("position", int(position))
            .set("type", text(&type_for_drivers(&column.data_type).to_string()))
            .finish()
    };
    by_name.into_iter().map(row)
}

pub(super) fn indexes<'a>(catalog: &'a Catalog, table: &'a Table) -> impl Iterator<Item = Row> + 'a {
    let of_table = move |described: &'a Table| {
        let mut by_name: Vec<&Index> = described.defined_indexes().collect();
        by_name.sort_by(|a, b| a.name.cmp(&b.name));
        by_name.into_iter().map(move |index| {
            let mut options = index.options.clone();
            options.remove(NAMED);
            options.insert("target".to_owned(), target(described, index));
            // By the names that columns have now.
            options.extend(include_text(described, index).map(|names| ("include".to_owned(), names)));
            options.extend(index.class.clone().map(|class| ("class_name".to_owned(), class)));
            if index.unique.is_some() {
                options.insert("unique".to_owned(), "true".to_owned());
            }
            if described.deferred_indexes.iter().any(|of| of.id == index.id) {
                options.insert("deferred".to_owned(), "true".to_owned());
            }
            if !index.predicate.is_empty() {
                options.insert("predicate".to_owned(), predicate::text(described, &index.predicate));
            }
            RowBuilder::new(table)
                .set("keyspace_name", text(&described.keyspace))
                .set("table_name", text(&described.name))
                .set("index_name", text(&index.name))
                .set("kind", text(if index.class.is_some() { "CUSTOM" } else { "COMPOSITES" }))
                .set("options", map(&options))
                .finish()
        })
    };
    catalog.tables().flat_map(move |entry| of_table(&entry.table))
}

pub(super) fn types<'a>(catalog: &'a Catalog, table: &'a Table) -> impl Iterator<Item = Row> + 'a {
    let types = catalog.keyspaces().flat_map(move |keyspace| catalog.types_in(&keyspace.name));
    types.map(move |user_type| {
        let field_types: Vec<_> = user_type.fields.iter().map(|(_, of)| type_for_drivers(of).to_string()).collect();
        RowBuilder::new(table)
            .set("keyspace_name", text(&user_type.keyspace))
            .set("type_name", text(&user_type.name))
            .set("field_names", list(user_type.fields.iter().map(|(name, _)| name)))
            .set("field_types", list(field_types.iter()))
            .finish()
    })
}

pub(super) fn virtual_keyspaces(table: &Table) -> impl Iterator<Item = Row> + '_ {
    std::iter::once(RowBuilder::new(table).set("keyspace_name", text(VIRTUAL)).finish())
}

pub(super) fn virtual_tables(table: &Table) -> impl Iterator<Item = Row> + '_ {
    let row = move |described: &Arc<Table>| {
        RowBuilder::new(table)
            .set("keyspace_name", text(&described.keyspace))
            .set("table_name", text(&described.name))
            .set("comment", text(&option(described, "comment").map(read_text).unwrap_or_default()))
            .finish()
    };
    system_tables(true).map(row)
}

pub(super) fn virtual_columns(table: &Table) -> impl Iterator<Item = Row> + '_ {
    system_tables(true).flat_map(move |described| column_rows(table, described))
}
