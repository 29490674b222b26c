//! The golden bytes of rows and partition headers.

use super::golden;
use crate::deletions::{self, Deletions, DeletionsWriter};
use crate::entry;
use crate::format::Compaction;
use crate::row::{
    Content, Deletion, Expiry, Marker, RowReader, RowWriter, UNSTAMPED, horizon, list_path_append, list_path_prepend,
    place_lists, unplaced_list_path_append, unplaced_list_path_prepend,
};
use diorite_base::Horizon;
use diorite_golden::{Decoded, kinds};

kinds!(CONTENTS, content_of(Content): Value, Tombstone, Expired, Counter, Complex);

const NOW_US: i64 = 1_700_000_000_000_000;
const NOW_S: u32 = 1_700_000_000;
const AFTER: Horizon = Horizon { now_s: NOW_S + 1_000, rows_s: NOW_S + 500, ranges_s: NOW_S + 400 };

fn row(base_us: i64, write: impl FnOnce(&mut RowWriter<'_>)) -> Vec<u8> {
    let mut out = Vec::new();
    write(&mut RowWriter::new(&mut out, base_us));
    out
}

fn deletion(timestamp_us: i64) -> Deletion {
    Deletion { timestamp_us, local_s: NOW_S }
}

fn expiry() -> Option<Expiry> {
    Some(Expiry { ttl_s: 60, at_s: NOW_S + 60 })
}

fn lists(base_us: i64, paths: [[u8; 16]; 2]) -> Vec<u8> {
    row(base_us, |row| {
        row.begin_complex(5, None);
        let [one, other] = paths;
        let (first, second) = if one < other { (one, other) } else { (other, one) };
        row.element(&first, base_us, None, b"1");
        row.element(&second, base_us, None, b"2");
        row.end_complex();
    })
}

fn rows() -> Vec<(&'static str, Vec<u8>)> {
    let plain = row(NOW_US, |row| {
        row.marker(Marker { timestamp_us: NOW_US, expiry: None });
        row.cell(1, NOW_US, None, b"value");
        row.cell(300, NOW_US - 5, None, b"");
    });
    let rich = row(NOW_US, |row| {
        row.marker(Marker { timestamp_us: NOW_US - 1, expiry: expiry() });
        row.deletion(deletion(NOW_US - 9));
        row.cell(1, NOW_US, expiry(), b"expires");
        row.tombstone(2, deletion(NOW_US));
        row.tombstone(3, deletion(NOW_US - 7));
        row.begin_complex(5, Some(deletion(NOW_US - 1)));
        row.element(b"a", NOW_US, None, b"");
        row.element(b"b", NOW_US - 3, expiry(), b"element");
        row.element_tombstone(b"c", deletion(NOW_US));
        row.end_complex();
    });
    let unstamped = row(UNSTAMPED, |row| {
        row.marker(Marker { timestamp_us: UNSTAMPED, expiry: None });
        row.cell(1, UNSTAMPED, None, b"value");
    });
    let counters = row(NOW_US, |row| {
        row.counter(1, NOW_US, -5);
        row.counter(2, NOW_US - 1, 7);
    });
    let open = lists(UNSTAMPED, [unplaced_list_path_append(0), unplaced_list_path_prepend(0)]);
    let placed = lists(NOW_US, [list_path_append(NOW_US, 1, 0), list_path_prepend(NOW_US, 1, 0)]);
    vec![
        ("plain", plain),
        ("rich", rich),
        ("without a stamp", unstamped),
        ("counters", counters),
        ("open lists", open),
        ("lists", placed),
        ("deleted", row(NOW_US, |row| row.deletion(deletion(NOW_US)))),
        ("deleted before the base", row(NOW_US, |row| row.deletion(deletion(NOW_US - 1)))),
    ]
}

/// What merging and compaction make of rows, which has to be the same on all replicas.
fn derived(rows: &[(&'static str, Vec<u8>)]) -> Vec<(&'static str, Vec<u8>)> {
    let of = |name: &str| &rows.iter().find(|(known, _)| *known == name).unwrap().1[..];
    let merged = |older: &[u8], newer: &[u8]| {
        let mut out = Vec::new();
        entry::merge(older, newer, &mut out).unwrap();
        out
    };
    let compacted = |value: &[u8], horizon| match entry::compact(value, horizon) {
        Compaction::Replace(value) => value,
        Compaction::Keep | Compaction::Remove => panic!("it has something to purge"),
    };
    let older = row(NOW_US - 4, |row| {
        row.marker(Marker { timestamp_us: NOW_US - 4, expiry: None });
        row.cell(1, NOW_US - 4, None, b"old");
        row.begin_complex(5, None);
        row.element(b"a", NOW_US - 4, None, b"old");
        row.element(b"d", NOW_US, None, b"kept");
        row.end_complex();
        row.cell(7, NOW_US - 4, None, b"kept");
    });
    let ended = row(NOW_US, |row| row.tombstone(1, deletion(NOW_US)));
    let counted = merged(of("counters"), of("counters"));
    vec![
        ("plain merged with rich", merged(of("plain"), of("rich"))),
        ("older merged with rich", merged(&older, of("rich"))),
        ("older merged with a deletion", merged(&older, of("deleted before the base"))),
        ("counters merged with a tombstone", merged(&counted, &ended)),
        ("counters added", counted),
        ("a tombstone merged with counters", merged(&ended, of("counters"))),
        ("rich with a horizon", entry::bounded(of("rich"), AFTER).unwrap()),
        ("rich compacted", compacted(of("rich"), AFTER)),
        ("rich compacted, early", compacted(of("rich"), Horizon { rows_s: NOW_S - 500, ranges_s: 0, ..AFTER })),
        ("open lists placed", {
            let mut placed = of("open lists").to_vec();
            placed[1..9].copy_from_slice(&NOW_US.to_le_bytes());
            place_lists(&mut placed, NOW_US, 2);
            placed
        }),
    ]
}

fn write_again(value: &[u8]) -> Vec<u8> {
    let read = RowReader::new(value).unwrap();
    let mut out = Vec::new();
    let mut writer = RowWriter::bounded(&mut out, read.base_us(), horizon(value));
    read.marker().into_iter().for_each(|marker| writer.marker(marker));
    read.deletion().into_iter().for_each(|deletion| writer.deletion(deletion));
    for cell in read.cells() {
        let cell = cell.unwrap();
        let at = cell.timestamp_us;
        match cell.content {
            Content::Value(bytes, expiry) => writer.cell(cell.column, at, expiry, bytes),
            Content::Tombstone(local_s) => writer.tombstone(cell.column, Deletion { timestamp_us: at, local_s }),
            Content::Complex(complex) => {
                writer.begin_complex(cell.column, complex.deletion);
                for element in complex.elements() {
                    let element = element.unwrap();
                    let at = element.timestamp_us;
                    match element.content {
                        Content::Value(bytes, expiry) => writer.element(element.path, at, expiry, bytes),
                        Content::Tombstone(local_s) => {
                            writer.element_tombstone(element.path, Deletion { timestamp_us: at, local_s });
                        }
                        _ => return value.to_vec(),
                    }
                }
                writer.end_complex();
            }
            Content::Counter(sum, false) => writer.counter(cell.column, at, sum),
            // Only merging and compaction write these.
            Content::Counter(_, true) | Content::Expired(_) => return value.to_vec(),
        }
    }
    out
}

#[test]
fn rows_have_their_bytes() {
    let mut written = rows();
    written.extend(derived(&written));
    golden("rows", &[CONTENTS]).check(&written, |_, value| {
        let read = RowReader::new(value).unwrap();
        let mut kinds = Vec::new();
        let mut cells = String::new();
        for cell in read.cells() {
            let cell = cell.unwrap();
            kinds.push(content_of(&cell.content));
            let shown = match cell.content {
                Content::Complex(complex) => {
                    let elements: Vec<_> = complex.elements().map(Result::unwrap).collect();
                    format!("{:?} {elements:?}", complex.deletion)
                }
                content => format!("{content:?}"),
            };
            cells.push_str(&format!("; {} at {}: {shown}", cell.column, cell.timestamp_us));
        }
        let (marker, deletion) = (read.marker(), read.deletion());
        let shown = format!("base {}, {:?}, {marker:?}, {deletion:?}{cells}", read.base_us(), horizon(value));
        Decoded { kinds, shown, encoded: Some(write_again(value)) }
    });
}

fn header(base_us: i64, write: impl FnOnce(&mut DeletionsWriter)) -> Vec<u8> {
    let (mut writer, mut out) = (DeletionsWriter::default(), Vec::new());
    write(&mut writer);
    writer.finish(base_us, &mut out);
    out
}

#[test]
fn partition_headers_have_their_bytes() {
    let partition = header(NOW_US, |header| header.partition(deletion(NOW_US)));
    let ranges = header(NOW_US, |header| {
        header.partition(deletion(NOW_US - 9));
        header.range(b"", b"b", deletion(NOW_US));
        header.range(b"d", &[0xFF], deletion(NOW_US - 5));
    });
    let mut merged = Vec::new();
    entry::merge(&partition, &header(NOW_US + 9, |header| header.range(b"c", b"e", deletion(NOW_US + 9))), &mut merged)
        .unwrap();
    let written = [
        ("without a stamp", header(UNSTAMPED, |header| header.partition(deletion(UNSTAMPED)))),
        ("ranges with a horizon", entry::bounded(&ranges, AFTER).unwrap()),
        ("ranges taken over", entry::taken_over(&ranges).unwrap()),
        ("partition", partition),
        ("ranges", ranges),
        ("partition merged with a range", merged),
    ];
    golden("partition-headers", &[]).check(&written, |_, value| {
        let read = Deletions::decode(value).unwrap();
        let until = deletions::horizon_s(value);
        let shown = format!("{:?}, {:?}, horizon {until:?}", read.partition(), read.ranges());
        let base_us = i64::from_le_bytes(*value[1..].first_chunk().unwrap());
        let again = header(base_us, |header| {
            read.partition().into_iter().for_each(|deletion| header.partition(deletion));
            read.ranges().iter().for_each(|range| header.range(range.start, range.end, range.deletion));
        });
        Decoded { kinds: vec![], shown, encoded: until.is_none().then_some(again) }
    });
}
