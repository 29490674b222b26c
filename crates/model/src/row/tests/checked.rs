//! The check of a whole row: what it lets in can be read and merged to its end, and what it refuses cannot.

use super::*;
use crate::entry;
use crate::testing::steps_of;

/// Whether a reader that looks at everything finds nothing malformed.
fn is_readable(value: &[u8]) -> bool {
    let Ok(row) = RowReader::new(value) else { return false };
    row.cells().all(|cell| match cell.map(|cell| cell.content) {
        Ok(Content::Complex(complex)) => complex.elements().all(|element| element.is_ok()),
        Ok(_) => true,
        Err(_) => false,
    })
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(3000))]

    #[test]
    fn what_is_checked_is_read_and_merged_to_its_end(
        inputs in rows(1, 0), at: prop::sample::Index, to: u8, cut: prop::sample::Index, inserted: Option<u8>,
    ) {
        let whole = folded(&inputs);
        prop_assert_eq!(entry::check(&whole), Ok(()));
        let mut damaged = whole.clone();
        let place = at.index(damaged.len());
        match inserted {
            Some(byte) => damaged.insert(place, byte),
            None => damaged[place] = to,
        }
        damaged.truncate(1 + cut.index(damaged.len()));
        prop_assert_eq!(check(&damaged).is_ok(), is_readable(&damaged));
        if check(&damaged).is_err() {
            return Ok(());
        }
        let live = LiveRow::new(&damaged, 5, NOTHING_DELETED).unwrap();
        prop_assert!(live.cells().all(|cell| cell.is_ok()));
        let mut out = Vec::new();
        prop_assert!(fold(None, [&damaged[..], &damaged, &damaged], &mut out).is_ok());
        prop_assert_eq!(entry::check(&out), Ok(()));
    }
}

#[test]
fn a_row_is_checked_in_one_pass() {
    let mut row = Vec::new();
    let mut writer = RowWriter::new(&mut row, 7);
    writer.cell(1, 7, None, b"simple");
    writer.begin_complex(2, None);
    (0..10u8).for_each(|path| writer.element(&[path], 7, None, b"v"));
    writer.end_complex();
    // Two cells and ten elements.
    assert_eq!(steps_of(|| entry::check(&row).unwrap()), 12);
}

#[test]
fn what_is_no_row_and_no_header_is_not_let_in() {
    for value in [&b""[..], &[0x40], &[0; 20], &[0xFF; 40], &[0x80; 3]] {
        assert!(entry::check(value).is_err(), "{value:?}");
    }
    assert!(entry::check(&[0x40, 0, 0, 0, 0, 0, 0, 0, 0]).is_ok(), "a row without cells");
}

#[test]
fn a_list_with_placeholders_and_places_may_lose_its_order() {
    let list = |paths: &[[u8; 16]]| {
        let mut row = Vec::new();
        let mut writer = RowWriter::new(&mut row, 7);
        writer.begin_complex(2, None);
        paths.iter().for_each(|path| writer.element(path, 7, None, b"v"));
        writer.end_complex();
        row
    };
    let (before, after) = (unplaced_list_path_prepend(0), unplaced_list_path_append(0));
    let later = list_path_append(i64::MAX - 1, 0, 0);
    assert!(may_be_placed(&list(&[before, after])) && may_be_placed(&list(&[later])));
    let mixed = list(&[later, after]);
    assert!(check(&mixed).is_ok() && !may_be_placed(&mixed));
    let mut placed = mixed;
    place_lists(&mut placed, 1_000, 0);
    assert!(check(&placed).is_err(), "which is why it may not");
    assert!(!may_be_placed(b"no row"));
}
