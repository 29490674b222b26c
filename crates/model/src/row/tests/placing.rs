//! Elements of lists get their places from the log.

use super::*;

/// The elements of a row's list, in order.
fn listed(row: &[u8]) -> Vec<u8> {
    let live = LiveRow::new(row, 0, NOTHING_DELETED).unwrap();
    let cells: Vec<_> = live.cells().map(Result::unwrap).collect();
    let list = cells.iter().find(|cell| cell.column == 2).unwrap();
    let LiveContent::Complex(complex) = list.content else { panic!("a list") };
    complex.elements().map(|element| element.unwrap().value[0]).collect()
}

/// A row as it is planned: it prepends and appends values to a list.
fn planned(before: &[u8], after: &[u8]) -> Vec<u8> {
    let mut row = Vec::new();
    let mut writer = RowWriter::new(&mut row, 7);
    writer.cell(1, 7, None, b"simple");
    writer.begin_complex(2, None);
    for (sequence, value) in (0..).zip(before) {
        writer.element(&unplaced_list_path_prepend(sequence), 7, None, &[*value]);
    }
    for (sequence, value) in (0..).zip(after) {
        writer.element(&unplaced_list_path_append(sequence), 7, None, &[*value]);
    }
    writer.end_complex();
    row
}

fn placed(row: &[u8], stamp_us: i64, nth: u32) -> Vec<u8> {
    let mut placed = row.to_vec();
    place_lists(&mut placed, stamp_us, nth);
    assert_eq!(placed.len(), row.len());
    placed
}

#[test]
fn lists_are_in_the_order_of_the_log_whatever_it_is_folded_in() {
    let first = placed(&planned(b"cd", b"ef"), 1_000, 0);
    assert_eq!(listed(&first), b"cdef");
    // Two rows of one later write.
    let (second, third) = (placed(&planned(b"b", b"g"), 1_001, 0), placed(&planned(b"a", b"h"), 1_001, 1));
    assert_eq!(listed(&merged(&merged(&first, &second), &third)), b"abcdefgh");
    assert_eq!(listed(&merged(&first, &merged(&second, &third))), b"abcdefgh");
    assert_eq!(listed(&merged(&third, &merged(&second, &first))), b"abcdefgh");
}

#[test]
fn what_has_a_place_keeps_it_and_so_does_what_is_in_no_list() {
    let mut row = Vec::new();
    let mut writer = RowWriter::new(&mut row, 7);
    writer.begin_complex(2, None);
    for path in [list_path_prepend(i64::MAX, 0, 1), list_path_append(0, 0, 0), list_path_append(i64::MAX - 1, 3, 4)] {
        writer.element(&path, 7, None, b"v");
    }
    writer.end_complex();
    writer.begin_complex(3, None);
    writer.element(&field_path(0), 7, None, b"v");
    writer.end_complex();
    writer.begin_complex(4, None);
    for key in [&[0; 14][..], &[0xFF; 14]] {
        let mut path = Vec::new();
        element_path(&CqlType::Blob, key, &mut path).unwrap();
        writer.element(&path, 7, None, b"");
    }
    writer.end_complex();
    assert_eq!(placed(&row, 1_000, 0), row);
    for length in 0..row.len() {
        assert_eq!(placed(&row[..length], 1_000, 0), row[..length], "malformed rows stay as they are");
    }
}
