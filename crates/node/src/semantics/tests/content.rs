//! The content of tablets for a reader: stored forms with the same meaning are equal.

use super::actions::PARTITION_BYTES;
use diorite_model::deletions::Deletions;
use diorite_model::key::{self, RowKind};
use diorite_model::row::{Expiry, LiveContent, LiveRow, NOTHING_DELETED};
use diorite_query::program::{ProgramReply, Seen, SeenRow};
use diorite_storage::{AFTER_ALL_KEYS, ScanRange, TabletData};
use std::sync::Arc;

/// A live value: its column and path, timestamp, expiry and bytes.
type Cell = (u32, Vec<u8>, i64, Option<Expiry>, Vec<u8>);
/// A row as a reader sees it: its key, whether it has a marker, its cells.
type Row = (Vec<u8>, bool, Vec<Cell>);
/// All rows in key order.
pub(super) type Content = Vec<Row>;

/// A reply, with its rows as a reader sees them.
#[derive(Debug, Clone, PartialEq)]
pub(super) enum Reply {
    Done,
    Refused(Content),
    Failed(String),
}

fn row(key: &[u8], value: &[u8], now_s: u32, deleted_us: i64) -> Option<Row> {
    let live = LiveRow::new(value, now_s, deleted_us).unwrap();
    let mut cells = Vec::new();
    for cell in live.cells() {
        let cell = cell.unwrap();
        match cell.content {
            LiveContent::Value(value) => {
                cells.push((cell.column, Vec::new(), cell.timestamp_us, cell.expiry, value.to_vec()));
            }
            LiveContent::Counter(sum) => {
                cells.push((cell.column, Vec::new(), cell.timestamp_us, None, sum.to_be_bytes().to_vec()));
            }
            LiveContent::Complex(complex) => cells.extend(complex.elements().map(|element| {
                let element = element.unwrap();
                let (path, value) = (element.path.to_vec(), element.value.to_vec());
                (cell.column, path, element.timestamp_us, element.expiry, value)
            })),
        }
    }
    live.exists().unwrap().then(|| (key.to_vec(), live.has_marker(), cells))
}

/// The content of a tablet for a reader at this second.
pub(super) fn content(data: &Arc<impl TabletData>, now_s: u32) -> Content {
    let (mut rows, mut header) = (Vec::new(), None::<(Vec<u8>, Vec<u8>)>);
    let range = ScanRange { start: &[1], end: AFTER_ALL_KEYS, reverse: false, expected_entries: 100 };
    data.scan(&range, &mut |found, value| {
        let (partition, rest) = found.split_at(PARTITION_BYTES);
        let over = header.as_ref().filter(|(of, _)| of == partition);
        let over = over.map(|(_, header)| Deletions::decode(header).unwrap());
        let deleted_us = match key::kind_of(found, PARTITION_BYTES).unwrap() {
            RowKind::Header => {
                header = Some((partition.to_vec(), value.to_vec()));
                return true;
            }
            RowKind::Static => over.map(|header| header.static_deletion(value)),
            RowKind::Regular => over.map(|header| header.deletion_for(&rest[1..], value)),
        };
        rows.extend(row(found, value, now_s, deleted_us.unwrap_or(NOTHING_DELETED)));
        true
    })
    .unwrap();
    rows
}

/// The reply that a client receives.
pub(super) fn reply(bytes: &[u8]) -> Reply {
    if bytes.is_empty() {
        return Reply::Done;
    }
    // A step of an index.
    if let [outcome] = bytes {
        return if *outcome == 0 { Reply::Done } else { Reply::Failed("overtaken".to_owned()) };
    }
    match ProgramReply::decode(bytes).unwrap() {
        ProgramReply::Applied | ProgramReply::Outdated => Reply::Done,
        ProgramReply::Failed(message) => Reply::Failed(message),
        ProgramReply::Refused(Seen { now_s, static_row, rows, .. }) => {
            let show = |seen: &SeenRow| row(&seen.key, &seen.value, now_s, seen.deleted_us);
            Reply::Refused(static_row.iter().chain(&rows).filter_map(show).collect())
        }
    }
}
