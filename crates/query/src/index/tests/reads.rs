//! Reads by index: which rows they look up, what they charge, and which entries they report as stale.

use super::*;
use crate::kv::IndexScan;
use crate::kv::several::{self, Span};
use diorite_base::row_index::AFTER_ALL_ROWS;
use diorite_model::index::value_form;
use std::cell::Cell;
use std::convert::Infallible;

/// A moment that notes what is charged.
struct Charged<'d>(&'d Data, Cell<usize>);

impl Moment for Charged<'_> {
    type Error = Infallible;
    type Value = Vec<u8>;

    fn flags(&self) -> u64 {
        INDEXED
    }

    fn get(&self, key: &[u8]) -> Result<Option<Vec<u8>>, Infallible> {
        Ok(self.0.0.get(key).cloned())
    }

    fn scan(&self, start: &[u8], end: &[u8], visit: &mut dyn FnMut(&[u8], &[u8]) -> bool) -> Result<bool, Infallible> {
        Ok(self.0.0.range(start.to_vec()..end.to_vec()).all(|(key, value)| visit(key, value)))
    }

    fn hold(&self, bytes: usize) -> Result<(), Infallible> {
        self.1.set(self.1.get() + bytes);
        Ok(())
    }
}

fn form(number: i32) -> Vec<u8> {
    value_form(&CqlType::Int, &number.to_be_bytes()).unwrap()
}

fn range(first: i32, last: i32) -> Span {
    Span::range(form(first), [&form(last)[..], &AFTER_ALL_ROWS].concat())
}

/// Reads the rows of the spans, from `start` on; also returns what is charged.
fn read_of(data: &Data, spans: &[Span], start: &[u8], max_entries: usize) -> (Found, usize) {
    let request = IndexScan {
        index: INDEX,
        spans: several::encode(spans),
        start: start.to_vec(),
        end: AFTER_ALL_ROWS.to_vec(),
        partition_len: 0,
        max_entries,
        max_bytes: 1 << 20,
        with_statics: false,
        whole_partitions: false,
        may_scan: false,
    };
    let moment = Charged(data, Cell::default());
    let found = read(&moment, &request).unwrap();
    (found, moment.1.get())
}

fn complete() -> Data {
    let mut data = Data::indexed();
    data.step(1, &build(&FIRST_ROW_KEY, &AFTER_ALL_ROWS, true));
    data
}

#[test]
fn reads_of_one_value_of_several_and_of_ranges_report_stale_entries() {
    let mut data = complete();
    for k in 0..10 {
        // Three values that it does not have, and one that it has.
        [0, 10, 20, 30].iter().for_each(|more| data.write(k, k + more, (more + 1).into(), None));
    }
    let (found, _) = read_of(&data, &[Span::key(form(3))], &FIRST_ROW_KEY, 100);
    assert_eq!(found.stale.len(), 1);
    let (found, _) =
        read_of(&data, &[Span::key(form(3)), Span::key(form(14)), Span::key(form(34))], &FIRST_ROW_KEY, 100);
    assert_eq!((found.stale.len(), found.chunk.ends.len()), (2, 2));
    let (found, _) = read_of(&data, &[range(0, 100)], &FIRST_ROW_KEY, 100);
    assert_eq!((found.stale.len(), found.chunk.ends.len(), found.chunk.exhausted), (30, 10, true));
    data.step(9, &IndexStep::Remove { index: INDEX, entries: found.stale });
    assert_eq!(data.entries().len(), 10, "what was reported was stale, and all of it");
    assert!(read_of(&data, &[range(0, 100)], &FIRST_ROW_KEY, 100).0.stale.is_empty());
}

#[test]
fn a_range_of_values_is_charged_for_the_rows_that_it_keeps() {
    const ROWS: i32 = 10_000;
    let mut data = complete();
    let mut keys: Vec<(Vec<u8>, i32)> = (0..ROWS).map(|k| (key(k), k)).collect();
    keys.sort();
    // In the order of values each row is before all those that came earlier.
    for (at, (_, k)) in keys.iter().enumerate() {
        data.write(*k, ROWS - i32::try_from(at).unwrap(), 1, None);
    }
    let (found, charged) = read_of(&data, &[range(0, ROWS)], &FIRST_ROW_KEY, 4);
    assert!(!found.chunk.exhausted);
    assert_eq!(found.chunk.ends.len(), 256, "entries are not read again for each few rows");
    assert!(charged < 256 * 500, "{charged} bytes");
    let (mut start, mut rows) = (FIRST_ROW_KEY.to_vec(), Vec::new());
    loop {
        let (found, _) = read_of(&data, &[range(0, ROWS)], &start, 8_192);
        rows.extend(found.chunk.entries().map(|(row, _)| row.to_vec()));
        if found.chunk.exhausted {
            break;
        }
        assert_eq!(rows.len(), 8_192);
        start = [rows.last().unwrap(), &[0][..]].concat();
    }
    assert_eq!(rows, keys.into_iter().map(|(row, _)| row).collect::<Vec<_>>());
}
