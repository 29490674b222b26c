//! What a write does to the size of the row that it is merged into.

use super::*;
use crate::deletions::DeletionsWriter;
use crate::entry::effect;
use diorite_base::mutation::Effect;

const DELETION: Deletion = Deletion { timestamp_us: 9, local_s: 3 };

fn of(write: impl FnOnce(&mut RowWriter<'_>)) -> Effect {
    let mut packed = Vec::new();
    write(&mut RowWriter::new(&mut packed, 9));
    effect(&packed)
}

#[test]
fn values_let_rows_grow_and_what_only_removes_does_not() {
    let marker = Marker { timestamp_us: 9, expiry: None };
    let expiry = Some(Expiry { ttl_s: 7, at_s: 8 });
    assert_eq!(of(|row| row.marker(marker)), Effect::Grows);
    assert_eq!(of(|row| row.cell(1, 9, None, b"value")), Effect::Grows);
    assert_eq!(of(|row| row.cell(1, 9, expiry, b"value")), Effect::Grows);
    assert_eq!(of(|row| row.counter(1, 9, 5)), Effect::Grows);
    assert_eq!(of(|row| row.deletion(DELETION)), Effect::Shrinks);
    assert_eq!(of(|row| row.tombstone(1, DELETION)), Effect::Shrinks);
    let tombstone_and_value = |row: &mut RowWriter<'_>| {
        row.tombstone(1, DELETION);
        row.cell(2, 9, None, b"value");
    };
    assert_eq!(of(tombstone_and_value), Effect::Grows);
    assert_eq!(effect(b"?"), Effect::Grows, "what cannot be read is not a removal");
}

#[test]
fn collections_are_emptied_whole_or_lose_elements_of_which_something_stays() {
    let collection = |deletion, elements: &[(&[u8], Option<&[u8]>)]| {
        of(|row| {
            row.begin_complex(1, deletion);
            for (path, value) in elements {
                match value {
                    Some(value) => row.element(path, 9, None, value),
                    None => row.element_tombstone(path, DELETION),
                }
            }
            row.end_complex();
        })
    };
    assert_eq!(collection(Some(DELETION), &[]), Effect::Shrinks);
    assert_eq!(collection(None, &[(b"a", None), (b"b", None)]), Effect::RemovesElements);
    assert_eq!(collection(Some(DELETION), &[(b"a", None)]), Effect::RemovesElements);
    assert_eq!(collection(None, &[(b"a", None), (b"b", Some(b"value"))]), Effect::Grows);
    assert_eq!(collection(Some(DELETION), &[(b"a", Some(b"value"))]), Effect::Grows);
}

#[test]
fn deletions_of_ranges_let_a_header_grow_and_that_of_the_partition_does_not() {
    let header = |is_of_partition: bool, ranges: u8| {
        let (mut writer, mut packed) = (DeletionsWriter::default(), Vec::new());
        if is_of_partition {
            writer.partition(DELETION);
        }
        let later = Deletion { timestamp_us: 10, ..DELETION };
        (0..ranges).for_each(|at| writer.range(&[2 * at], &[2 * at + 1], later));
        writer.finish(9, &mut packed);
        effect(&packed)
    };
    assert_eq!(header(true, 0), Effect::Shrinks);
    assert_eq!(header(false, 2), Effect::Grows);
    assert_eq!(header(true, 2), Effect::Grows);
}
