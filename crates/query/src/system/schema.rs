//! `system_schema` and `system_virtual_schema`: the schema, as drivers and tools read it.
//!
//! Always true: a table's rows here and its CREATE statement by DESCRIBE show the same options. As in Cassandra, the tables of
//! `system_virtual_schema` are listed there and not in `system_schema`.

use super::cells::{RowBuilder, boolean, double, int, list, map, set, text, uuid};
use super::{Row, definitions};
use crate::ddl::options::{option, read_map, read_text};
use diorite_cluster::catalog::Catalog;
use diorite_model::schema::{Column, ColumnKind, Keyspace, Order, Table};
use std::collections::BTreeMap;
use std::sync::Arc;

/// The one keyspace whose tables have no stored counterpart in Cassandra either.
const VIRTUAL: &str = "system_virtual_schema";

fn system_tables(of_virtual: bool) -> impl Iterator<Item = &'static Arc<Table>> {
    let wanted = definitions::all().iter().filter(move |(name, _)| (*name == VIRTUAL) == of_virtual);
    wanted.flat_map(|(_, entry)| entry.tables.values())
}

/// Every table that `system_schema` lists.
fn all_tables(catalog: &Catalog) -> impl Iterator<Item = &Table> {
    let user = catalog.tables().map(|entry| &*entry.table);
    system_tables(false).map(|table| &**table).chain(user)
}

pub(super) fn keyspaces(catalog: &Catalog, table: &Table) -> Vec<Row> {
    let row = |keyspace: &Keyspace| {
        RowBuilder::new(table)
            .set("keyspace_name", text(&keyspace.name))
            .set("durable_writes", boolean(keyspace.durable_writes))
            .set("replication", map(&keyspace.replication))
            .finish()
    };
    let system = definitions::all().values().map(|entry| &entry.keyspace).filter(|keyspace| keyspace.name != VIRTUAL);
    system.chain(catalog.keyspaces().map(|keyspace| &**keyspace)).map(row).collect()
}

/// Drivers that know Scylla's extension for tablets take a keyspace for one of tablets when `initial_tablets` is not null; how many there
/// are they learn from answers.
pub(super) fn scylla_keyspaces(catalog: &Catalog, table: &Table) -> Vec<Row> {
    let row = |keyspace: &Arc<Keyspace>| {
        RowBuilder::new(table).set("keyspace_name", text(&keyspace.name)).set("initial_tablets", int(0)).finish()
    };
    catalog.keyspaces().map(row).collect()
}

pub(super) fn tables(catalog: &Catalog, table: &Table) -> Vec<Row> {
    all_tables(catalog).map(|described| table_row(table, described)).collect()
}

fn table_row(table: &Table, described: &Table) -> Row {
    let mut flags = vec!["compound"];
    if described.is_counter() {
        flags.push("counter");
    }
    let mut row = RowBuilder::new(table)
        .set("keyspace_name", text(&described.keyspace))
        .set("table_name", text(&described.name))
        .set("flags", set(flags))
        .set("id", uuid(described.uuid))
        .set("default_time_to_live", int(described.default_ttl_s as i32))
        .set("gc_grace_seconds", int(described.gc_grace_s as i32));
    let literal = |name: &str| option(described, name);
    for name in ["additional_write_policy", "comment", "memtable", "read_repair", "speculative_retry"] {
        let value = literal(name).map(read_text).unwrap_or_default();
        // Cassandra says null for the default memtable.
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
        .finish()
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

pub(super) fn columns(catalog: &Catalog, table: &Table) -> Vec<Row> {
    all_tables(catalog).flat_map(|described| column_rows(table, described)).collect()
}

/// A column's place among the key columns of its kind.
fn place<'a>(mut keys: impl Iterator<Item = &'a Column>, column: &Column) -> i32 {
    keys.position(|key| key.id == column.id).map_or(-1, |place| place as i32)
}

/// The rows of one table's columns, by name, as the clustering order of `columns` has them.
fn column_rows(table: &Table, described: &Table) -> Vec<Row> {
    let mut by_name: Vec<&Column> = described.columns.iter().collect();
    by_name.sort_by(|a, b| a.name.cmp(&b.name));
    let row = |column: &&Column| {
        let (kind, order, position) = match column.kind {
            ColumnKind::PartitionKey => ("partition_key", "none", place(described.partition_key(), column)),
            ColumnKind::Clustering(order) => {
                let order = if order == Order::Asc { "asc" } else { "desc" };
                ("clustering", order, place(described.clustering(), column))
            }
            ColumnKind::Static => ("static", "none", -1),
            ColumnKind::Regular => ("regular", "none", -1),
        };
        RowBuilder::new(table)
            .set("keyspace_name", text(&described.keyspace))
            .set("table_name", text(&described.name))
            .set("column_name", text(&column.name))
            .set("clustering_order", text(order))
            .set("column_name_bytes", text(&column.name))
            .set("kind", text(kind))
            .set("position", int(position))
            .set("type", text(&column.data_type.to_string()))
            .finish()
    };
    by_name.iter().map(row).collect()
}

pub(super) fn types(catalog: &Catalog, table: &Table) -> Vec<Row> {
    let types = catalog.keyspaces().flat_map(|keyspace| catalog.types_in(&keyspace.name));
    types
        .map(|user_type| {
            let field_types: Vec<_> = user_type.fields.iter().map(|(_, of)| of.to_string()).collect();
            RowBuilder::new(table)
                .set("keyspace_name", text(&user_type.keyspace))
                .set("type_name", text(&user_type.name))
                .set("field_names", list(user_type.fields.iter().map(|(name, _)| name)))
                .set("field_types", list(field_types.iter()))
                .finish()
        })
        .collect()
}

pub(super) fn virtual_keyspaces(table: &Table) -> Vec<Row> {
    vec![RowBuilder::new(table).set("keyspace_name", text(VIRTUAL)).finish()]
}

pub(super) fn virtual_tables(table: &Table) -> Vec<Row> {
    let row = |described: &Arc<Table>| {
        RowBuilder::new(table)
            .set("keyspace_name", text(&described.keyspace))
            .set("table_name", text(&described.name))
            .set("comment", text(&option(described, "comment").map(read_text).unwrap_or_default()))
            .finish()
    };
    system_tables(true).map(row).collect()
}

pub(super) fn virtual_columns(table: &Table) -> Vec<Row> {
    system_tables(true).flat_map(|described| column_rows(table, described)).collect()
}
