//! Counters: changes are added in log order, however the log is folded.

use crate::entry::{fold, merge};
use crate::row::{Deletion, LiveContent, LiveRow, NOTHING_DELETED, RowWriter};
use proptest::prelude::*;

#[derive(Debug, Clone, Copy)]
enum Change {
    Add(i64),
    DeleteCell,
    DeleteRow,
}

fn change() -> impl Strategy<Value = Change> {
    prop_oneof![6 => (-9i64..10).prop_map(Change::Add), 1 => Just(Change::DeleteCell), 1 => Just(Change::DeleteRow)]
}

fn encode(at_us: i64, change: Change) -> Vec<u8> {
    let deletion = Deletion { timestamp_us: at_us, local_s: 1 };
    let mut out = Vec::new();
    let mut writer = RowWriter::new(&mut out, at_us);
    match change {
        Change::Add(delta) => writer.counter(4, at_us, delta),
        Change::DeleteCell => writer.tombstone(4, deletion),
        Change::DeleteRow => writer.deletion(deletion),
    }
    out
}

/// Folds in the grouping that `splits` draws: the storage engine may group neighbours in any way.
fn grouped(rows: &[Vec<u8>], splits: &mut impl Iterator<Item = usize>) -> Vec<u8> {
    if let [row] = rows {
        return row.clone();
    }
    let (left, right) = rows.split_at(1 + splits.next().unwrap_or(0) % (rows.len() - 1));
    let (left, right) = (grouped(left, splits), grouped(right, splits));
    let mut out = Vec::new();
    merge(&left, &right, &mut out).expect("well-formed rows");
    out
}

fn sum(row: &[u8]) -> Option<i64> {
    let cell = LiveRow::new(row, 0, NOTHING_DELETED).and_then(|row| row.cell(4)).expect("well-formed row");
    cell.map(|cell| match cell.content {
        LiveContent::Counter(sum) => sum,
        _ => panic!("a counter"),
    })
}

proptest! {
    #[test]
    fn sums_follow_the_log(changes in prop::collection::vec(change(), 1..12), splits in prop::collection::vec(0usize..16, 12)) {
        let mut expected = None;
        for change in &changes {
            match change {
                Change::Add(delta) => expected = Some(expected.unwrap_or(0) + delta),
                Change::DeleteCell | Change::DeleteRow => expected = None,
            }
        }
        let rows: Vec<_> = changes.iter().zip(1..).map(|(change, at_us)| encode(at_us, *change)).collect();
        prop_assert_eq!(sum(&grouped(&rows, &mut splits.into_iter())), expected);
        let mut out = Vec::new();
        fold(Some(&rows[0]), rows[1..].iter().map(Vec::as_slice), &mut out).expect("well-formed rows");
        prop_assert_eq!(sum(&out), expected);
    }
}
