//! Rows whose columns have several times to live: a scan leaves a row out once its last cell has expired for the
//! reader. Left out: what scans note of that, which the tests of `storage` look at.

use super::{RowSemantics, shared};
use diorite_model::entry;
use diorite_model::row::{Expiry, RowWriter};
use diorite_storage::{AFTER_ALL_KEYS, AppliedState, Batch, CompactionStyle, ScanRange, Tablet, TabletBatch, Values};
use std::sync::Arc;

const ROWS: u64 = 600;

fn key(number: u64) -> Vec<u8> {
    [&[0x80][..], &number.to_be_bytes()].concat()
}

/// A row with cells that expire at these seconds, from this column on; `None`: never.
fn row(first_column: u32, expiries: &[Option<u32>]) -> Vec<u8> {
    let mut value = Vec::new();
    let mut writer = RowWriter::new(&mut value, 1);
    for (column, at_s) in (first_column..).zip(expiries) {
        writer.cell(column, 1, at_s.map(|at_s| Expiry { ttl_s: 10, at_s }), b"value");
    }
    value
}

fn live_at(tablet: &Tablet, now_s: u32) -> Vec<u64> {
    let mut found = Vec::new();
    let start = key(0);
    let range = ScanRange { start: &start, end: AFTER_ALL_KEYS, reverse: false, expected_entries: 10 };
    let mut visit = |key: &[u8], value: &[u8]| {
        if !entry::is_dead(value, now_s) {
            found.push(u64::from_be_bytes(key[1..9].try_into().unwrap()));
        }
        true
    };
    assert!(tablet.scan_live(&range, Some(now_s), &mut visit).unwrap());
    found
}

#[test]
fn a_row_is_left_out_once_its_last_cell_has_expired_for_the_reader() {
    let (home, shared) = (tempfile::tempdir().unwrap(), shared(Arc::new(RowSemantics)));
    let tablet = Tablet::open(&shared, &home.path().join("1"), Values::Rows, CompactionStyle::SizeTiered).unwrap();
    let mut index = 0;
    let mut write = |rows: &[(u64, Vec<u8>)]| {
        let mut batch = Batch::default();
        rows.iter().for_each(|(number, value)| batch.merge(&key(*number), value));
        index += 1;
        tablet.apply(&mut batch, &AppliedState { index, ..AppliedState::default() }).unwrap();
    };
    write(&(0..ROWS).map(|number| (number, row(1, &[Some(100), Some(102)]))).collect::<Vec<_>>());
    let all: Vec<u64> = (0..ROWS).collect();
    for (now_s, lives) in [(99, true), (100, true), (101, true), (102, false), (103, false), (101, true)] {
        shared.set_present_s(now_s);
        // The second look goes by what the first one has noted.
        for _ in 0..2 {
            assert_eq!(live_at(&tablet, now_s) == all, lives, "at {now_s}");
        }
    }
    assert!(live_at(&tablet, 102).is_empty());
    // A cell that lives longer, and one that lives for ever, in the middle of what is noted.
    write(&[(300, row(3, &[Some(105)])), (310, row(3, &[None]))]);
    for (now_s, expected) in [(101, all), (102, vec![300, 310]), (104, vec![300, 310]), (105, vec![310])] {
        assert_eq!(live_at(&tablet, now_s), expected, "at {now_s}");
    }
}
