//! Folding many rows at once: the same bytes as merging one after the other, in a number of steps that is not
//! quadratic.

use super::reference::{self, Input};
use super::rows;
use crate::entry::{fold, merge};
use crate::row::{Deletion, LiveContent, LiveRow, NOTHING_DELETED, RowWriter, list_path_append};
use crate::testing::steps_of;
use proptest::prelude::*;

/// The rows merged one after the other.
pub(super) fn one_by_one(values: &[Vec<u8>]) -> Vec<u8> {
    let (first, rest) = values.split_first().unwrap();
    rest.iter().fold(first.clone(), |before, value| {
        let mut out = Vec::new();
        merge(&before, value, &mut out).unwrap();
        out
    })
}

pub(super) fn at_once(values: &[Vec<u8>]) -> Vec<u8> {
    let mut out = Vec::new();
    fold(None, values.iter().map(Vec::as_slice), &mut out).unwrap();
    out
}

/// Operations on a row with a counter, each with its own stamp.
fn counters() -> impl Strategy<Value = Vec<Vec<u8>>> {
    let change = prop_oneof![
        6 => (0u32..3, -9i64..10).prop_map(|(column, delta)| (column, Some(delta))),
        2 => (0u32..3).prop_map(|column| (column, None)),
        1 => Just((9, None)),
    ];
    prop::collection::vec(change, 3..20).prop_map(|changes| {
        let encode = |((column, delta), at_us): ((u32, Option<i64>), i64)| {
            let (mut out, deletion) = (Vec::new(), Deletion { timestamp_us: at_us, local_s: 1 });
            let mut writer = RowWriter::new(&mut out, at_us);
            match (column, delta) {
                (9, _) => writer.deletion(deletion),
                (column, Some(delta)) => writer.counter(column, at_us, delta),
                (column, None) => writer.tombstone(column, deletion),
            }
            out
        };
        changes.into_iter().zip(1..).map(encode).collect()
    })
}

fn many_rows() -> impl Strategy<Value = Vec<Input>> {
    prop::collection::vec(reference::input(1, 0), 3..24)
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(2000))]

    #[test]
    fn folding_at_once_gives_the_bytes_of_merging_one_by_one(inputs in many_rows()) {
        let rows: Vec<_> = inputs.iter().map(Input::encode).collect();
        prop_assert_eq!(at_once(&rows), one_by_one(&rows));
    }

    #[test]
    fn counters_fold_at_once_as_they_do_one_by_one(rows in counters(), at: prop::sample::Index) {
        let whole = at_once(&rows);
        prop_assert_eq!(&whole, &one_by_one(&rows));
        // Storage folds neighbours when it flushes, and folds the results later.
        let (front, back) = rows.split_at(1 + at.index(rows.len() - 1));
        prop_assert_eq!(whole, at_once(&[at_once(front), at_once(back)]));
    }

    #[test]
    fn groups_of_neighbours_fold_to_the_same(inputs in rows(1, 0), more in many_rows(), at: prop::sample::Index) {
        let rows: Vec<_> = inputs.iter().chain(&more).map(Input::encode).collect();
        let (front, back) = rows.split_at(1 + at.index(rows.len() - 1));
        let mut existing = Vec::new();
        fold(Some(&at_once(front)), back.iter().map(Vec::as_slice), &mut existing).unwrap();
        prop_assert_eq!(existing, at_once(&rows));
    }
}

/// A list of `count` elements, each appended by itself.
fn appended(count: u32) -> Vec<Vec<u8>> {
    let append = |at: u32| {
        let (mut out, at_us) = (Vec::new(), 1_000 + i64::from(at));
        let mut writer = RowWriter::new(&mut out, at_us);
        writer.begin_complex(3, None);
        writer.element(&list_path_append(at_us, 7, 0), at_us, None, &at.to_be_bytes());
        writer.end_complex();
        out
    };
    (0..count).map(append).collect()
}

/// `count` elements of a map, written in another order than that of their paths.
fn scattered(count: u32) -> Vec<Vec<u8>> {
    let write = |at: u32| {
        let (mut out, at_us) = (Vec::new(), 1_000 + i64::from(at));
        let mut writer = RowWriter::new(&mut out, at_us);
        writer.begin_complex(3, None);
        writer.element(&at.wrapping_mul(2_654_435_761).to_be_bytes(), at_us, None, b"v");
        writer.end_complex();
        out
    };
    (0..count).map(write).collect()
}

fn incremented(count: u32) -> Vec<Vec<u8>> {
    let increment = |at: u32| {
        let mut out = Vec::new();
        RowWriter::new(&mut out, i64::from(at)).counter(4, i64::from(at), 1);
        out
    };
    (1..=count).map(increment).collect()
}

#[test]
fn twice_the_operands_take_little_more_than_twice_the_steps() {
    for grow in [appended, scattered, incremented] {
        let steps = |count: u32| {
            let rows = grow(count);
            steps_of(|| drop(at_once(&rows)))
        };
        let (mut before, mut count) = (steps(500), 1_000);
        while count <= 16_000 {
            let now = steps(count);
            let levels = u64::from(count.ilog2()) + 1;
            assert!(now <= before * 5 / 2, "{count} operands take {now} steps, half of them {before}");
            assert!(now <= 4 * u64::from(count) * levels, "{count} operands take {now} steps");
            (before, count) = (now, count * 2);
        }
    }
}

#[test]
fn more_rows_than_are_folded_at_once_give_what_all_of_them_hold() {
    let rows = scattered(9_000);
    let folded = at_once(&rows);
    let cell = LiveRow::new(&folded, 0, NOTHING_DELETED).unwrap().cell(3).unwrap().unwrap();
    let LiveContent::Complex(complex) = cell.content else { panic!("multi-cell") };
    assert_eq!((complex.elements().count(), cell.timestamp_us), (9_000, 1_000 + 8_999));
    let folded = at_once(&incremented(9_000));
    let cell = LiveRow::new(&folded, 0, NOTHING_DELETED).unwrap().cell(4).unwrap().unwrap();
    assert!(matches!(cell.content, LiveContent::Counter(9_000)));
}
