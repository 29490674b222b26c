//! Rows as a reader sees them: stored forms with the same meaning are equal, so a compacted replica equals one that is
//! not.

use diorite_base::TabletId;
use diorite_base::bytes::Malformed;
use diorite_model::deletions::Deletions;
use diorite_model::key::{KeyLayout, RowKind, kind_of};
use diorite_model::row::{Expiry, LiveContent, LiveRow, NOTHING_DELETED};
use diorite_model::schema::Table;
use diorite_query::program::{ProgramReply, Seen, SeenRow};
use diorite_storage::{AFTER_ALL_KEYS, MemoryTablet, ScanRange, TabletData};
use std::collections::BTreeSet;
use std::hash::{DefaultHasher, Hash, Hasher};

/// A live value: its column and path, timestamp, expiry and bytes.
type LiveValue = (u32, Vec<u8>, i64, Option<Expiry>, Vec<u8>);

/// A row as a reader sees it: its key, whether it has a marker, its values.
type VisibleRow = (Vec<u8>, bool, Vec<LiveValue>);

/// The reply of a program, with its rows as a reader sees them.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum VisibleReply {
    /// It took effect, or nothing was asked.
    Applied,
    /// A condition did not hold.
    Refused(Vec<VisibleRow>),
    /// It is impossible.
    Failed(String),
    /// What was read when it was planned has changed.
    Outdated,
}

impl VisibleReply {
    /// Of an encoded reply.
    pub fn of(reply: &[u8]) -> Self {
        if reply.is_empty() {
            return Self::Applied;
        }
        match ProgramReply::decode(reply).expect("programs answer with replies") {
            ProgramReply::Applied => Self::Applied,
            ProgramReply::Outdated => Self::Outdated,
            ProgramReply::Failed(message) => Self::Failed(message),
            ProgramReply::Refused(Seen { now_s, static_row, rows, .. }) => {
                let visible = |row: &SeenRow| visible(&row.key, &row.value, now_s, row.deleted_us).expect("whole rows");
                Self::Refused(static_row.iter().chain(&rows).filter_map(visible).collect())
            }
        }
    }
}

/// A row, if there is anything of it for a reader at this second.
fn visible(key: &[u8], value: &[u8], now_s: u32, deleted_us: i64) -> Result<Option<VisibleRow>, Malformed> {
    let live = LiveRow::new(value, now_s, deleted_us)?;
    let mut values = Vec::new();
    for cell in live.cells() {
        let cell = cell?;
        let (column, timestamp_us) = (cell.column, cell.timestamp_us);
        match cell.content {
            LiveContent::Value(value) => values.push((column, Vec::new(), timestamp_us, cell.expiry, value.to_vec())),
            LiveContent::Counter(sum) => {
                values.push((column, Vec::new(), timestamp_us, None, sum.to_be_bytes().to_vec()));
            }
            LiveContent::Complex(complex) => {
                for element in complex.elements() {
                    let element = element?;
                    let (path, value) = (element.path.to_vec(), element.value.to_vec());
                    values.push((column, path, element.timestamp_us, element.expiry, value));
                }
            }
        }
    }
    Ok(live.exists()?.then(|| (key.to_vec(), live.has_marker(), values)))
}

/// Reads tablets of rows.
#[derive(Clone, Debug)]
pub struct VisibleRows {
    layout: KeyLayout,
    /// That of the tables of unique indexes.
    index_layout: KeyLayout,
    index_tablets: BTreeSet<TabletId>,
}

impl VisibleRows {
    /// For tables whose partition keys are like this one's, and for the table of an index with its tablets.
    pub fn new(table: &Table, (index_table, index_tablets): (&Table, BTreeSet<TabletId>)) -> Self {
        Self { layout: KeyLayout::new(table), index_layout: KeyLayout::new(index_table), index_tablets }
    }

    /// A hash over all that a reader sees of a tablet at this second, and how many rows that is.
    pub fn contents(&self, tablet: TabletId, data: &MemoryTablet, now_s: u32) -> (u64, u64) {
        let layout = if self.index_tablets.contains(&tablet) { &self.index_layout } else { &self.layout };
        let (mut hasher, mut rows) = (DefaultHasher::new(), 0);
        let mut header = None::<(Vec<u8>, Vec<u8>)>;
        let mut look = |key: &[u8], value: &[u8]| -> Result<(), Malformed> {
            let length = layout.partition_len(key)?;
            let (partition, rest) = key.split_at(length);
            let over = header.as_ref().filter(|(of, _)| of == partition);
            let over = over.map(|(_, header)| Deletions::decode(header)).transpose()?;
            let deleted_us = match kind_of(key, length)? {
                RowKind::Header => {
                    header = Some((partition.to_vec(), value.to_vec()));
                    return Ok(());
                }
                RowKind::Static => over.map(|header| header.static_deletion(value)),
                RowKind::Regular => over.map(|header| header.deletion_for(&rest[1..], value)),
            };
            if let Some(row) = visible(key, value, now_s, deleted_us.unwrap_or(NOTHING_DELETED))? {
                row.hash(&mut hasher);
                rows += 1;
            }
            Ok(())
        };
        let range = ScanRange { start: &[1], end: AFTER_ALL_KEYS, reverse: false, expected_entries: usize::MAX };
        let scanned = data.scan(&range, &mut |key, value| {
            look(key, value).expect("what programs have written is whole");
            true
        });
        assert!(scanned.is_ok(), "memory can be read");
        (hasher.finish(), rows)
    }
}
