//! Packed rows: round trips, merging against a naive model that keeps every cell ever written, reading, compaction.
#![allow(clippy::unwrap_used, reason = "tests may fail loudly")]
use super::*;
use crate::entry::{Compaction, fold};
use crate::schema::ColumnId;
use crate::types::{CqlType, Frozen, UserType};
use crate::value::collection::{push_count, push_element};
use diorite_base::Horizon;
use proptest::prelude::*;
use reference::{Input, Place, View, visible};
use std::sync::Arc;

mod checked;
mod counters;
mod effects;
mod folding;
mod horizons;
mod placing;
mod reference;
mod turns;

/// The view of the real reader, in the reference's terms.
fn view(value: &[u8], now_s: u32, deleted_us: i64) -> View {
    let row = LiveRow::new(value, now_s, deleted_us).unwrap();
    let mut cells = Vec::new();
    for cell in row.cells() {
        let cell = cell.unwrap();
        match cell.content {
            LiveContent::Value(value) => {
                cells.push((Place::Simple(cell.column), cell.timestamp_us, cell.expiry, value.to_vec()));
            }
            LiveContent::Complex(complex) => {
                let elements: Vec<_> = complex.elements().map(Result::unwrap).collect();
                assert_eq!(elements.iter().map(|element| element.timestamp_us).max(), Some(cell.timestamp_us));
                cells.extend(elements.iter().map(|element| {
                    let place = Place::Element(cell.column, element.path.to_vec());
                    (place, element.timestamp_us, element.expiry, element.value.to_vec())
                }));
            }
            LiveContent::Counter(_) => panic!("no counters here"),
        }
    }
    assert_eq!(row.exists().unwrap(), row.has_marker() || !cells.is_empty());
    View { marker: row.has_marker(), cells }
}

fn merged(older: &[u8], newer: &[u8]) -> Vec<u8> {
    let mut out = Vec::new();
    merge(older, newer, &mut out).unwrap();
    out
}

/// A number of rows that one key may gather; timestamps are multiples of `step` plus `offset`.
fn rows(step: i64, offset: i64) -> impl Strategy<Value = Vec<Input>> {
    prop::collection::vec(reference::input(step, offset), 1..5)
}

fn folded(inputs: &[Input]) -> Vec<u8> {
    let encoded: Vec<_> = inputs.iter().map(Input::encode).collect();
    let mut out = Vec::new();
    fold(None, encoded.iter().map(Vec::as_slice), &mut out).unwrap();
    out
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(3000))]

    #[test]
    fn merged_rows_show_what_the_reference_shows(inputs in rows(1, 0), now_s in 0u32..16, deleted_us in 0i64..6) {
        let deleted_us = if deleted_us == 0 { NOTHING_DELETED } else { deleted_us };
        prop_assert_eq!(view(&folded(&inputs), now_s, deleted_us), visible(&inputs, now_s, deleted_us));
    }

    #[test]
    fn merging_is_associative_commutative_and_idempotent(
        a in reference::input(1, 0), b in reference::input(1, 0), c in reference::input(1, 0),
    ) {
        let (a, b, c) = (a.encode(), b.encode(), c.encode());
        prop_assert_eq!(merged(&merged(&a, &b), &c), merged(&a, &merged(&b, &c)));
        let ab = merged(&a, &b);
        prop_assert_eq!(&ab, &merged(&b, &a));
        prop_assert_eq!(&ab, &merged(&ab, &ab));
        prop_assert_eq!(&ab, &merged(&ab, &a));
        let mut once = Vec::new();
        fold(Some(&a), [&b[..], &c], &mut once).unwrap();
        prop_assert_eq!(once, merged(&ab, &c));
    }

    #[test]
    fn compaction_changes_nothing_that_can_be_seen(
        inputs in rows(1, 0), late in reference::input(1, 0), now_s in 0u32..16, later in 0u32..6, purge_before_s in 0u32..12,
    ) {
        let row = folded(&inputs);
        let seen_at = now_s + later;
        let compacted = |rows_s| match compact(&row, Horizon { now_s, rows_s, ranges_s: 0 }) {
            Compaction::Keep => Some(row.clone()),
            Compaction::Remove => None,
            Compaction::Replace(smaller) => {
                assert_ne!(&smaller, &row);
                assert_eq!(compact(&smaller, Horizon { now_s, rows_s, ranges_s: 0 }), Compaction::Keep);
                Some(smaller)
            }
        };
        let shown = |row: Option<&[u8]>| row.map_or(View::default(), |row| view(row, seen_at, NOTHING_DELETED));
        prop_assert_eq!(shown(compacted(purge_before_s).as_deref()), shown(Some(&row)));
        // Without purging, later writes of any timestamp merge to the same as without compaction.
        let late = late.encode();
        let after = compacted(0).map_or(late.clone(), |row| merged(&row, &late));
        prop_assert_eq!(shown(Some(&after)), shown(Some(&merged(&row, &late))));
    }

    #[test]
    fn plain_rows_are_known_by_their_first_byte(input in reference::input(1, 0), now_s in 0u32..16) {
        let row = input.encode();
        prop_assert_eq!(is_plain(&row), input.is_plain());
        if is_plain(&row) && !input.is_empty() {
            prop_assert_eq!(compact(&row, Horizon { now_s, rows_s: u32::MAX, ranges_s: 0 }), Compaction::Keep);
        }
        let reader = RowReader::new(&row).unwrap();
        prop_assert_eq!((reader.marker(), reader.deletion()), (input.marker, input.deletion));
        prop_assert_eq!(reader.base_us(), input.base_us);
        prop_assert_eq!(reader.cells().map(Result::unwrap).count(), input.columns());
    }

    #[test]
    fn the_stamp_slot_dates_everything_at_the_base(input in reference::input(1, 0), stamp_us in 100i64..200) {
        // After stamping, the cells of the old base have the new one.
        let mut unstamped = input.clone();
        unstamped.move_base(UNSTAMPED);
        let mut bytes = unstamped.encode();
        bytes[1..9].copy_from_slice(&stamp_us.to_le_bytes());
        let mut stamped = input;
        stamped.move_base(stamp_us);
        prop_assert_eq!(bytes, stamped.encode());
    }

    #[test]
    fn no_input_panics(mut bytes: Vec<u8>, inputs in rows(1, 0), at: prop::sample::Index, to: u8, cut: prop::sample::Index) {
        let mut damaged = folded(&inputs);
        let place = at.index(damaged.len());
        damaged[place] = to;
        damaged.truncate(1 + cut.index(damaged.len()));
        if let Some(first) = bytes.first_mut() { *first |= 0x40 }
        for value in [&bytes, &damaged] {
            let mut out = Vec::new();
            let _ = merge(value, &damaged, &mut out);
            out.clear();
            let _ = merge(&damaged, value, &mut out);
            let _ = crate::entry::compact(value, Horizon { now_s: 5, rows_s: 3, ranges_s: 3 });
            let Ok(row) = LiveRow::new(value, 5, NOTHING_DELETED) else { continue };
            for cell in row.cells() {
                if let Ok(LiveCell { content: LiveContent::Complex(complex), .. }) = cell {
                    let (text, user) = (Arc::new(CqlType::Text), UserType { keyspace: "k".into(), name: "u".into(), fields: vec![("f".into(), CqlType::Int)] });
                    let _ = complex.assemble(&CqlType::List(text.clone(), Frozen::No), &mut out);
                    let _ = complex.assemble(&CqlType::Set(text.clone(), Frozen::No), &mut out);
                    let _ = complex.assemble(&CqlType::Map(text.clone(), text, Frozen::No), &mut out);
                    let _ = complex.assemble(&CqlType::UserDefined(Arc::new(user), Frozen::No), &mut out);
                }
            }
        }
    }
}

/// A row with one multi-cell column, assembled.
fn assembled(data_type: &CqlType, elements: &[(Vec<u8>, &[u8])]) -> Vec<u8> {
    let mut sorted = elements.to_vec();
    sorted.sort();
    let mut row = Vec::new();
    let mut writer = RowWriter::new(&mut row, 7);
    let deletion = Deletion { timestamp_us: writer.before_base(), local_s: 1 };
    writer.begin_complex(3, Some(deletion));
    sorted.iter().for_each(|(path, value)| writer.element(path, 7, None, value));
    writer.end_complex();
    let cell = LiveRow::new(&row, 0, NOTHING_DELETED).unwrap().cell(3).unwrap().unwrap();
    let LiveContent::Complex(complex) = cell.content else { panic!("multi-cell") };
    let mut out = Vec::new();
    complex.assemble(data_type, &mut out).unwrap();
    out
}

fn path(data_type: &CqlType, wire: &[u8]) -> Vec<u8> {
    let mut out = Vec::new();
    element_path(data_type, wire, &mut out).unwrap();
    out
}

#[test]
fn multi_cell_columns_come_back_in_their_order() {
    let (text, int) = (Arc::new(CqlType::Text), Arc::new(CqlType::Int));
    let numbers = [5i32, -3, 70_000].map(i32::to_be_bytes);
    let set = CqlType::Set(int.clone(), Frozen::No);
    let mut expected = Vec::new();
    push_count(3, &mut expected);
    [-3i32, 5, 70_000].iter().for_each(|number| push_element(Some(&number.to_be_bytes()), &mut expected));
    assert_eq!(assembled(&set, &numbers.map(|wire| (path(&int, &wire), &b""[..]))), expected);

    let map = CqlType::Map(text.clone(), text.clone(), Frozen::No);
    let mut expected = Vec::new();
    push_count(2, &mut expected);
    [b"", &b"one"[..], b"a", b"two"].iter().for_each(|part| push_element(Some(part), &mut expected));
    assert_eq!(assembled(&map, &[(path(&text, b"a"), b"two"), (path(&text, b""), b"one")]), expected);

    let list = CqlType::List(text, Frozen::No);
    let mut expected = Vec::new();
    push_count(5, &mut expected);
    ["x", "y", "w", "a", "b"].iter().for_each(|part| push_element(Some(part.as_bytes()), &mut expected));
    let elements = [
        (list_path_append(1_000, 1, 0).to_vec(), &b"a"[..]),
        (list_path_append(1_000, 1, 1).to_vec(), b"b"),
        (list_path_prepend(1_001, 1, 0).to_vec(), b"w"),
        (list_path_prepend(1_002, 1, 0).to_vec(), b"x"),
        (list_path_prepend(1_002, 1, 1).to_vec(), b"y"),
    ];
    assert_eq!(assembled(&list, &elements), expected);

    let fields = ["a", "b", "c"].map(|name| (name.to_owned(), CqlType::Text));
    let user = UserType { keyspace: "k".into(), name: "u".into(), fields: fields.to_vec() };
    let mut expected = Vec::new();
    [None, Some(&b"v"[..]), None].into_iter().for_each(|field| push_element(field, &mut expected));
    let user = CqlType::UserDefined(Arc::new(user), Frozen::No);
    assert_eq!(assembled(&user, &[(field_path(1).to_vec(), b"v")]), expected);
}

#[test]
fn an_updated_row_lives_as_long_as_its_cells() {
    let mut update = Vec::new();
    RowWriter::new(&mut update, 10).cell(1, 10, Some(Expiry { ttl_s: 5, at_s: 100 }), b"v");
    assert!(LiveRow::new(&update, 99, NOTHING_DELETED).unwrap().exists().unwrap());
    assert!(!LiveRow::new(&update, 100, NOTHING_DELETED).unwrap().exists().unwrap());
    let mut insert = Vec::new();
    RowWriter::new(&mut insert, 9).marker(Marker { timestamp_us: 9, expiry: None });
    let both = merged(&insert, &update);
    assert!(LiveRow::new(&both, 100, NOTHING_DELETED).unwrap().exists().unwrap());
    assert!(!LiveRow::new(&both, 100, 9).unwrap().exists().unwrap());
}

#[test]
fn the_size_of_a_plain_row_is_small() {
    let mut row = Vec::new();
    let mut writer = RowWriter::new(&mut row, UNSTAMPED);
    writer.marker(Marker { timestamp_us: UNSTAMPED, expiry: None });
    writer.cell(1, UNSTAMPED, None, b"value");
    assert_eq!(row.len(), 9 + 1 + 3 + 5);
    assert!(is_plain(&row));
    let columns: Vec<ColumnId> = RowReader::new(&row).unwrap().cells().map(|cell| cell.unwrap().column).collect();
    assert_eq!(columns, [1]);
}

#[test]
fn a_row_without_content_is_dead_changes_nothing_and_goes() {
    let nothing = compaction::without_content();
    assert!(crate::entry::is_dead(&nothing, 0));
    assert_eq!(crate::entry::without_content(&nothing), Some(nothing.clone()));
    let horizon = Horizon { now_s: 1, rows_s: 1, ranges_s: 0 };
    assert_eq!(compact(&nothing, horizon), Compaction::Remove);
    let mut row = Vec::new();
    RowWriter::new(&mut row, 1_000).marker(Marker { timestamp_us: 1_000, expiry: None });
    let shown = |row: &[u8]| view(row, 5, NOTHING_DELETED);
    assert_eq!(shown(&merged(&nothing, &row)), shown(&row));
    assert_eq!(crate::entry::without_content(&[0x80; 20]), None, "a header has another form");
}
