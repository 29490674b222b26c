//! Comparisons of an index with its table.

use super::*;
use crate::index::{Check, CheckedPart, Difference, Place, StepSize, Unchecked, check_part};
use diorite_model::index::{EntryKey, specification_key, value_form};
use diorite_model::key::token_of;
use diorite_model::types::Frozen;
use std::sync::Arc;

const WHOLE: StepSize = StepSize { entries: usize::MAX, bytes: usize::MAX, named: 20 };

/// A tablet whose index is complete.
fn complete() -> Data {
    let mut data = Data::indexed();
    data.step(1, &build(&FIRST_ROW_KEY, &[0xFF; 9], true));
    data
}

/// All steps as one, and how many there were.
fn all(data: &Data, now_s: u32, size: StepSize, is_own: &dyn Fn(&[u8]) -> bool) -> (CheckedPart, usize) {
    let comparison = Check { index: INDEX, now_s, is_own, size };
    let (mut sum, mut steps, mut place) = (CheckedPart::default(), 0, Some(Place::first()));
    while let Some(from) = place.take() {
        let step = check_part(data, comparison, &from).unwrap();
        place.clone_from(&step.next);
        assert!(place != Some(from), "a step makes progress");
        sum = step.after(sum, size.named);
        steps += 1;
    }
    (sum, steps)
}

fn whole(data: &Data) -> CheckedPart {
    all(data, 1, WHOLE, &|_| true).0
}

fn named(found: &CheckedPart) -> Vec<(Difference, &[u8])> {
    found.named.iter().map(|one| (one.difference, one.row.as_slice())).collect()
}

#[test]
fn an_index_that_is_right_has_an_entry_for_each_value_and_no_other() {
    let mut data = complete();
    (0..1_000).for_each(|k| data.write(k, k % 7, 1, None));
    let found = whole(&data);
    assert_eq!((found.rows, found.values, found.entries, found.right), (1_000, 1_000, 1_000, 1_000));
    assert_eq!((found.missing, found.stale, found.of_others, found.unreadable), (0, 0, 0, 0));
    assert!(found.named.is_empty() && found.bytes > 0);
    for (entries, bytes) in [(1, usize::MAX), (10, usize::MAX), (usize::MAX, 1), (usize::MAX, 1_000)] {
        let (small, steps) = all(&data, 1, StepSize { entries, bytes, named: 20 }, &|_| true);
        assert_eq!(CheckedPart { bytes: 0, ..small }, CheckedPart { bytes: 0, ..found.clone() });
        assert!(steps > 10, "{steps} steps");
    }
}

#[test]
fn differences_of_both_directions_are_found_and_named() {
    let mut data = complete();
    (0..100).for_each(|k| data.write(k, k, 1, None));
    let entry = |data: &Data, k: i32| {
        let is_of = |entry: &&Vec<u8>| EntryKey::read(entry).unwrap().row == key(k);
        data.entries().iter().find(is_of).unwrap().clone()
    };
    let lost = entry(&data, 3);
    data.0.remove(&lost);
    // An entry of a value that the row has had, and one of a row that is not there.
    data.write(4, 1_000, 2, None);
    let of_nothing = EntryKey { row: &key(5_000), ..EntryKey::read(&entry(&data, 5)).unwrap() }.join(INDEX);
    data.0.insert(of_nothing, data.0[&entry(&data, 5)].clone());
    let unreadable = [&entry_prefix(INDEX)[..], &[0xFF; 7]].concat();
    data.0.insert(unreadable.clone(), Vec::new());
    let found = whole(&data);
    assert_eq!((found.values, found.missing, found.entries), (100, 1, 102));
    assert_eq!((found.right, found.stale, found.unreadable), (99, 2, 1));
    let rows = [key(3), unreadable, key(4), key(5_000)];
    let mut seen = named(&found);
    seen.sort_by_key(|(difference, row)| (*difference, *row != rows[2]));
    use Difference::{Missing, Stale, Unreadable};
    assert_eq!(
        seen,
        [Missing, Unreadable, Stale, Stale].into_iter().zip(rows.iter().map(Vec::as_slice)).collect::<Vec<_>>()
    );
    // As many of each are named as are wanted, in however many steps.
    data.entries().iter().for_each(|entry| drop(data.0.remove(entry)));
    let (found, _) = all(&data, 1, StepSize { entries: 3, named: 4, ..WHOLE }, &|_| true);
    assert_eq!((found.missing, found.named.len()), (100, 4));
}

#[test]
fn entries_of_the_rows_of_other_tablets_are_counted_apart() {
    let mut data = complete();
    (0..100).for_each(|k| data.write(k, k, 1, None));
    // A split leaves the rows of one half, and all entries.
    let is_own = |row: &[u8]| token_of(row).unwrap() >= 0;
    data.0.retain(|key, _| key.starts_with(&[0; 8]) || is_own(key));
    let (found, _) = all(&data, 1, WHOLE, &is_own);
    assert!((1..100).contains(&found.values), "{found:?}");
    assert_eq!((found.right, found.of_others, found.stale), (found.values, 100 - found.values, 0));
}

#[test]
fn what_expires_is_missing_only_while_it_lives() {
    let expiry = |at_s: u32| Some(Expiry { ttl_s: 10, at_s });
    let mut data = complete();
    data.write(1, 10, 1, expiry(20));
    assert_eq!((whole(&data).values, whole(&data).missing), (1, 0));
    let [ten] = data.entries().try_into().unwrap();
    let as_was = data.0.clone();
    data.0.remove(&ten);
    assert_eq!(all(&data, 19, WHOLE, &|_| true).0.missing, 1);
    assert_eq!(all(&data, 20, WHOLE, &|_| true).0.values, 0, "a compaction may have removed it");
    // An entry that ends before the value does is as good as none.
    let mut longer = Data(as_was);
    let short = longer.0[&ten].clone();
    longer.write(1, 10, 2, expiry(30));
    assert_eq!(whole(&longer).missing, 0);
    longer.0.insert(ten.clone(), short.clone());
    assert_eq!(whole(&longer).missing, 1);
    longer.write(1, 10, 3, None);
    assert_eq!(whole(&longer).missing, 0);
    longer.0.insert(ten, short);
    assert_eq!(whole(&longer).missing, 1);
}

#[test]
fn an_index_that_is_not_complete_is_not_compared() {
    let comparison = Check { index: INDEX, now_s: 1, is_own: &|_| true, size: WHOLE };
    for data in [Data::default(), Data::indexed()] {
        assert!(matches!(check_part(&data, comparison, &Place::first()), Err(Unchecked::BeingBuilt)));
    }
    let mut data = complete();
    data.0.insert(specification_key(INDEX), b"?".to_vec());
    assert!(matches!(check_part(&data, comparison, &Place::first()), Err(Unchecked::Failed(_))));
}

#[test]
fn a_row_with_many_values_is_compared_in_several_steps() {
    let data_type = CqlType::Set(Arc::new(CqlType::Int), Frozen::No);
    let indexed = Indexed::Cell { column: 1, is_static: false, data_type, target: IndexTarget::Values };
    let of_set = Specification { indexed, ..specification() };
    let mut data = Data::default();
    data.step(1, &IndexStep::Define { index: INDEX, definition: of_set.definition() });
    data.step(1, &build(&FIRST_ROW_KEY, &[0xFF; 9], true));
    let (rows, elements) = (3, 700);
    for k in 0..rows {
        let mut row = Vec::new();
        let mut writer = RowWriter::new(&mut row, 1);
        writer.begin_complex(1, None);
        for element in 0..elements {
            writer.element(&value_form(&CqlType::Int, &i32::to_be_bytes(element)).unwrap(), 1, None, &[]);
        }
        writer.end_complex();
        data.write_row(&key(k), &row);
    }
    let lost = data.entries()[1_000].clone();
    data.0.remove(&lost);
    let (found, steps) = all(&data, 1, StepSize { entries: 100, ..WHOLE }, &|_| true);
    let values = (rows * elements) as u64;
    assert_eq!((found.rows, found.values, found.missing, found.right), (rows as u64, values, 1, values - 1));
    assert!(steps > 20, "{steps} steps");
}
