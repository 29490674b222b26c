//! The golden bytes of index entries: what each kind of index makes of a row.

use super::golden;
use crate::index::{EntryKey, Indexed, RowIndex, TabletIndexes};
use crate::json::place::PathStep;
use crate::key::{KeyLayout, push_row, push_static};
use crate::row::{Expiry, Marker, RowWriter, element_path, list_path_append};
use crate::schema::{ColumnKind, IndexTarget, Order};
use crate::types::{CqlType, Frozen};
use diorite_base::row_index::RowIndexes;
use diorite_golden::{Decoded, kinds};
use std::sync::Arc;

kinds!(INDEXED, indexed_kind(Indexed): Cell, Place, Partition, Clustering, Nothing);

const INDEX: u64 = 300;
const EXPIRY: Expiry = Expiry { ttl_s: 60, at_s: 1_700_000_060 };

fn layout() -> KeyLayout {
    let clustering = ColumnKind::Clustering(Order::Desc);
    let columns = [
        (CqlType::Int, ColumnKind::PartitionKey),
        (CqlType::Text, ColumnKind::PartitionKey),
        (CqlType::Int, clustering),
    ];
    KeyLayout::of_types(columns.iter().map(|(data_type, kind)| (data_type, *kind)))
}

fn key(is_static: bool) -> Vec<u8> {
    let mut key = Vec::new();
    layout().encode_partition([&[0, 0, 0, 7][..], b"p"].into_iter(), &mut key).unwrap();
    if is_static {
        push_static(&mut key);
    } else {
        push_row(&mut key);
        layout().push_clustering(0, &[0, 0, 0, 9], &mut key).unwrap();
    }
    key
}

/// A row with a value, a set, a map, a list and a document.
fn row() -> Vec<u8> {
    let mut row = Vec::new();
    let mut writer = RowWriter::new(&mut row, 100);
    writer.marker(Marker { timestamp_us: 100, expiry: Some(EXPIRY) });
    writer.cell(1, 100, Some(EXPIRY), b"value");
    let mut path = Vec::new();
    element_path(&CqlType::Text, b"element", &mut path).unwrap();
    for column in [2, 3] {
        writer.begin_complex(column, None);
        writer.element(&path, 100, None, if column == 2 { b"" } else { b"of the key" });
        writer.end_complex();
    }
    writer.begin_complex(4, None);
    writer.element(&list_path_append(100, 0, 0), 100, None, b"of a list");
    writer.end_complex();
    writer.cell(5, 100, Some(EXPIRY), b"{\"a\":[1,\"of a document\"]}");
    row
}

fn cell(column: u32, data_type: CqlType, target: IndexTarget) -> Indexed {
    Indexed::Cell { column, is_static: false, data_type, target }
}

#[test]
fn entries_have_their_bytes() {
    let text = || Arc::new(CqlType::Text);
    let map = || CqlType::Map(text(), text(), Frozen::No);
    let is_static = Indexed::Cell { column: 1, is_static: true, data_type: CqlType::Text, target: IndexTarget::Value };
    let path = vec![PathStep::Member("a".to_owned()), PathStep::Element(1)];
    let cases = [
        ("value", cell(1, CqlType::Text, IndexTarget::Value), false),
        ("static value", is_static, true),
        ("set", cell(2, CqlType::Set(text(), Frozen::No), IndexTarget::Values), false),
        ("keys", cell(3, map(), IndexTarget::Keys), false),
        ("values", cell(3, map(), IndexTarget::Values), false),
        ("entries", cell(3, map(), IndexTarget::Entries), false),
        ("list", cell(4, CqlType::List(text(), Frozen::No), IndexTarget::Values), false),
        ("place", Indexed::Place { column: 5, is_static: false, path }, false),
        ("partition", Indexed::Partition(1, CqlType::Text), false),
        ("partition without rows", Indexed::Partition(0, CqlType::Int), true),
        ("clustering", Indexed::Clustering(0, CqlType::Int), false),
    ];
    let written = cases.clone().map(|(name, indexed, is_static)| {
        let mut found = Vec::new();
        let indexes = TabletIndexes::new(layout(), vec![RowIndex { id: INDEX, indexed }]);
        let mut bytes = 0;
        indexes.entries(&key(is_static), &row(), &mut |key, value, is_merged| {
            bytes += key.len() + value.len();
            // The length of the key, the key, the value.
            found.extend_from_slice(&[(key.len() as u16).to_be_bytes(), [0, u8::from(is_merged)]].concat());
            found.extend_from_slice(key);
            found.extend_from_slice(value);
        });
        assert!(!found.is_empty(), "{name}");
        let counted = indexes.size_bytes(&key(is_static), &row(), usize::MAX);
        assert!(
            (bytes..=indexes.most_bytes(key(is_static).len(), row().len())).contains(&counted),
            "{name}: {counted}"
        );
        assert!(indexes.size_bytes(&key(is_static), &row(), bytes / 2) > bytes / 2, "{name}");
        (name, found)
    });
    // The last one has no entries.
    golden("index-entries", &[&INDEXED[..INDEXED.len() - 1]]).check(&written, |name, bytes| {
        let key_len = usize::from(u16::from_be_bytes([bytes[0], bytes[1]]));
        let (key, value) = bytes[4..].split_at(key_len);
        let entry = EntryKey::read(key).unwrap();
        let encoded = [&bytes[..4], &entry.join(EntryKey::index(key).unwrap()), value].concat();
        let indexed = cases.iter().find(|(known, ..)| *known == name).map(|(_, indexed, _)| indexed_kind(indexed));
        Decoded {
            kinds: indexed.into_iter().collect(),
            shown: format!("{entry:?}, lasts: {}", crate::index::lasts(value)),
            encoded: Some(encoded),
        }
    });
}
