//! Cells in wire form, and rows filled in by column name.

use super::source::Row;
use diorite_model::schema::Table;
use diorite_model::value::collection::{push_count, push_element};
use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;
use uuid::Uuid;

/// A row under construction.
pub(super) struct RowBuilder<'a> {
    table: &'a Table,
    cells: Row,
}

impl<'a> RowBuilder<'a> {
    /// All cells null.
    pub fn new(table: &'a Table) -> Self {
        Self { table, cells: vec![None; table.columns.len()] }
    }

    /// Sets a column, which must be in the definition.
    pub fn set(mut self, column: &str, cell: Vec<u8>) -> Self {
        let at = self.table.columns.iter().position(|known| known.name == column);
        self.cells[at.expect("a system table's rows name its columns")] = Some(cell);
        self
    }

    /// The row.
    pub fn finish(self) -> Row {
        self.cells
    }
}

pub(super) fn text(value: &str) -> Vec<u8> {
    value.as_bytes().to_vec()
}

pub(super) fn int(value: i32) -> Vec<u8> {
    value.to_be_bytes().to_vec()
}

/// Milliseconds since 1970.
pub(super) fn timestamp(ms: i64) -> Vec<u8> {
    ms.to_be_bytes().to_vec()
}

pub(super) fn smallint(value: i16) -> Vec<u8> {
    value.to_be_bytes().to_vec()
}

pub(super) fn tuple<'e>(elements: impl IntoIterator<Item = &'e Vec<u8>>) -> Vec<u8> {
    let mut out = Vec::new();
    elements.into_iter().for_each(|element| push_element(Some(element), &mut out));
    out
}

pub(super) fn double(value: f64) -> Vec<u8> {
    value.to_be_bytes().to_vec()
}

pub(super) fn boolean(value: bool) -> Vec<u8> {
    vec![u8::from(value)]
}

pub(super) fn uuid(value: Uuid) -> Vec<u8> {
    value.as_bytes().to_vec()
}

pub(super) fn inet(value: IpAddr) -> Vec<u8> {
    match value {
        IpAddr::V4(address) => address.octets().to_vec(),
        IpAddr::V6(address) => address.octets().to_vec(),
    }
}

/// A list; or a set, if the elements are in order.
pub(super) fn list<T: AsRef<[u8]>>(elements: impl ExactSizeIterator<Item = T>) -> Vec<u8> {
    let mut out = Vec::new();
    push_count(elements.len(), &mut out);
    elements.for_each(|element| push_element(Some(element.as_ref()), &mut out));
    out
}

/// A set of texts.
pub(super) fn set<T: AsRef<[u8]> + Ord>(elements: impl IntoIterator<Item = T>) -> Vec<u8> {
    let sorted: BTreeSet<T> = elements.into_iter().collect();
    list(sorted.into_iter())
}

/// A map of texts (or of texts to bytes).
pub(super) fn map<V: AsRef<[u8]>>(entries: &BTreeMap<String, V>) -> Vec<u8> {
    let mut out = Vec::new();
    push_count(entries.len(), &mut out);
    for (key, value) in entries {
        push_element(Some(key.as_bytes()), &mut out);
        push_element(Some(value.as_ref()), &mut out);
    }
    out
}
