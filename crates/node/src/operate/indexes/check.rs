//! Comparisons of indexes with their tables: the leader of a tablet compares a part of it and says where the next part
//! begins.
//!
//! A unique index has a local index and a table of its own. The leaders of the table's tablets compare the local index,
//! and then look for their rows in the index table ([`Place::Outward`]); after that the leaders of that one's
//! tablets look for the rows of their entries ([`Place::Inward`]). A view has the last two parts.
//!
//! Always true: a part takes seconds, is limited by the rate of index builds, and runs on threads that delay no requests;
//! a node compares one part at a time, and keeps nothing of it afterwards. Each step of a local index reads one snapshot
//! of the tablet. Left out: what is compared ([`diorite_query::index::check_part`], [`Own::check_rows`]), and the sum of
//! the parts (`diorite admin check-index`).

use super::super::own::Own;
use super::place::Tokens;
use super::record::IndexRecord;
use super::{LEAST_PAUSE, STEP_BYTES, pause_after};
use crate::pause::pause;
use diorite_admin::api::{
    ComparedPart, ComparedUpTo, Failure, FailureKind, IndexDifference, IndexId, IndexPart, MOST_NAMED, NamedDifference,
    PartHere, WantedPart,
};
use diorite_base::mutation::{EvaluationFailed, TabletView};
use diorite_base::row_index::{AFTER_ALL_ROWS, FIRST_ROW_KEY};
use diorite_base::{Clock, NodeId, TabletId};
use diorite_cluster::catalog::Catalog;
use diorite_model::key::{DecodedKey, KeyLayout, RowKind, token_of};
use diorite_model::row::now_seconds;
use diorite_model::schema::{Table, TableEntry, TabletRange};
use diorite_model::types::CqlType;
use diorite_model::value::literal_text;
use diorite_query::engine::Checked;
use diorite_query::index::{
    Check, CheckedPart, Difference, Named, Place, Specification, StepSize, Unchecked, check_part,
};
use diorite_replica::{Leadership, Store, TabletHandle};
use diorite_storage::{DataView, ScanRange, StorageError, TabletAt, TabletData, TabletSnapshot};
use std::fmt::Write as _;
use std::sync::Arc;
use std::time::Duration;
use tokio::runtime::Handle;

/// About so long a node works on a part, and so long at most.
const PART_NS: u64 = 2_000_000_000;
const LONGEST_PART_NS: u64 = 10_000_000_000;
/// So long a part waits for the one before it.
const TURN: Duration = Duration::from_secs(5);
/// Values that expire so soon are not looked for: a compaction may have removed them or their entries.
const EXPIRES_SOON_S: u32 = 60;
/// The rows of a local index that are compared in a step.
const CHECKED_ROWS: usize = 2_000;
/// Rows of a unique index or a view that are compared in a step, each by reads of its own.
const ROWS_READ_AT_A_TIME: usize = 128;
/// A longer place is not given to the asker, whose requests are short.
const LONGEST_PLACE: usize = 48 << 10;
/// The most bytes of a value that are shown, and the most characters of a column of a key.
const SHOWN_BYTES: usize = 32;
const SHOWN_CHARACTERS: usize = 200;

/// Where a part is.
#[derive(Debug, PartialEq)]
pub(in crate::operate) struct Part {
    pub(in crate::operate) tablet: TabletId,
    first_token: i64,
    pub(in crate::operate) place: Option<String>,
    /// It is a tablet of the index table, or of the view.
    of_entries: bool,
    /// The tablet after it.
    following: Option<ComparedUpTo>,
}

/// The tables of an index or view.
#[derive(Clone, Copy)]
pub(in crate::operate) struct Tables<'c> {
    rows: &'c Arc<TableEntry>,
    /// Where entries have a table of their own.
    entries: Option<&'c Arc<TableEntry>>,
    /// There are entries in the tablets of the rows.
    is_local: bool,
}

impl<'c> Tables<'c> {
    /// `None`: the table, or the index's, was dropped.
    pub(in crate::operate) fn of(catalog: &'c Catalog, of: IndexId) -> Option<Self> {
        let rows = catalog.table_by_id(of.table)?;
        rows.table.maintained().find(|(id, _)| *id == of.index)?;
        let unique = rows.table.unique_indexes().find(|(index, _)| index.id == of.index);
        let view = rows.table.views.iter().find(|view| view.id == of.index);
        let own = unique.map(|(_, unique)| unique.table).or(view.map(|view| view.table));
        let entries = match own {
            Some(own) => Some(catalog.table_by_id(own)?),
            None => None,
        };
        Some(Self { rows, entries, is_local: rows.table.indexes.iter().any(|index| index.id == of.index) })
    }
}

/// The place before the first entry of a table of entries.
fn first_entry() -> String {
    Place::Inward { key: Vec::new() }.to_string()
}

impl Part {
    /// The answer to the asker.
    pub(in crate::operate) fn with(self, mut found: ComparedPart, failure: Option<String>) -> IndexPart {
        let Self { tablet, first_token, place, of_entries, following } = self;
        let is_begin = place.is_none_or(|place| of_entries && place == first_entry());
        let next = match found.place.take() {
            None => following,
            place => Some(ComparedUpTo { first_token, tablet, place }),
        };
        IndexPart { tablet, first_token, is_begin, of_entries, failure, found, next }
    }
}

/// Finds the tablet of the part that is wanted.
pub(in crate::operate) fn find_part(tables: Tables<'_>, wanted: WantedPart) -> Result<Part, Failure> {
    let is_entry =
        |from: &ComparedUpTo| matches!(from.place.as_deref().map(str::parse), Some(Ok(Place::Inward { .. })));
    let entries = tables.entries.filter(|entries| match (&wanted.from, wanted.tablet) {
        (Some(from), _) => is_entry(from),
        (None, Some(tablet)) => entries.tablets.iter().any(|range| range.tablet == tablet),
        (None, None) => false,
    });
    let (entry, of_entries) = (entries.unwrap_or(tables.rows), entries.is_some());
    let at = match (&wanted.from, wanted.tablet) {
        (Some(from), _) => entry.tablets.iter().rposition(|range| range.first_token <= from.first_token),
        (None, Some(tablet)) => entry.tablets.iter().position(|range| range.tablet == tablet),
        (None, None) => Some(0),
    };
    let none = || Failure::new(FailureKind::NotFound, "the table does not have this tablet");
    let at = at.filter(|at| *at < entry.tablets.len()).ok_or_else(none)?;
    let (tablet, first_token) = (entry.tablets[at].tablet, entry.tablets[at].first_token);
    let is_same = |from: &ComparedUpTo| from.tablet == tablet && from.first_token == first_token;
    let place = wanted.from.filter(is_same).and_then(|from| from.place);
    let place = place.or_else(|| of_entries.then(first_entry));
    let before = |next: &TabletRange, of_entries: bool| ComparedUpTo {
        first_token: next.first_token,
        tablet: next.tablet,
        place: of_entries.then(first_entry),
    };
    let first_of_entries = || tables.entries.filter(|_| !of_entries)?.tablets.first().map(|next| before(next, true));
    let following = entry.tablets.get(at + 1).map(|next| before(next, of_entries)).or_else(first_of_entries);
    Ok(Part { tablet, first_token, place, of_entries, following })
}

/// Compares parts of the tablets that this node leads.
pub(in crate::operate) struct Comparing<'n> {
    pub(in crate::operate) node: NodeId,
    pub(in crate::operate) store: &'n Store,
    pub(in crate::operate) clock: &'n dyn Clock,
    pub(in crate::operate) runtime: &'n Handle,
    pub(in crate::operate) record: &'n IndexRecord,
    pub(in crate::operate) own: &'n dyn Own,
}

/// An index in a tablet that is led here.
struct Of {
    handle: Arc<TabletHandle>,
    /// The table of the rows.
    entry: Arc<TableEntry>,
    /// The table of the entries, if they have one.
    entries: Option<Arc<TableEntry>>,
    is_local: bool,
    index: u64,
}

/// Keys of rows, or of entries, that are compared in a step.
#[derive(Default)]
struct Keys {
    own: Vec<Vec<u8>>,
    of_others: u64,
    bytes: usize,
    next: Option<Vec<u8>>,
}

impl Comparing<'_> {
    /// Compares a part.
    ///
    /// # Errors
    /// This node does not lead the tablet, or does not know the index, or it is not built there yet.
    pub(in crate::operate) async fn part(&self, catalog: &Catalog, wanted: PartHere) -> Result<ComparedPart, Failure> {
        let PartHere { of, tablet, place } = wanted;
        let place = place.map(|place| place.parse::<Place>()).transpose();
        let place = place.map_err(|error| Failure::new(FailureKind::Invalid, error.to_string()))?;
        let not_begun = |message: String| Failure::new(FailureKind::NotBegun, message);
        let is_led = |handle: &Arc<TabletHandle>| handle.leadership() == Leadership::Here;
        let not_led = || not_begun(format!("node {} does not lead tablet {}", self.node.0, tablet.0));
        let handle = self.store.handle(tablet).filter(is_led).ok_or_else(not_led)?;
        let unknown = || not_begun(format!("node {} does not know the index yet", self.node.0));
        let tables = Tables::of(catalog, of).ok_or_else(unknown)?;
        let has = |entry: &TableEntry| entry.tablets.iter().any(|range| range.tablet == tablet);
        let place = place.unwrap_or_else(|| match tables.is_local {
            true => Place::first(),
            false => Place::Outward { key: Vec::new() },
        });
        let is_there = match (&place, tables.entries) {
            (Place::Inward { .. }, entries) => entries.is_some_and(|entries| has(entries)),
            (Place::Outward { .. }, None) => false,
            _ => has(tables.rows),
        };
        if !is_there {
            return Err(unknown());
        }
        let (entry, entries) = (Arc::clone(tables.rows), tables.entries.map(Arc::clone));
        let is_local = tables.is_local;
        let turn = tokio::time::timeout(TURN, self.record.comparing.lock()).await;
        let _turn = turn.map_err(|_| unavailable(format!("node {} is busy with another comparison", self.node.0)))?;
        self.steps(Arc::new(Of { handle, entry, entries, is_local, index: of.index }), place).await
    }

    async fn steps(&self, of: Arc<Of>, mut place: Place) -> Result<ComparedPart, Failure> {
        let (begun_ns, mut sum) = (self.clock.monotonic_ns(), CheckedPart::default());
        loop {
            let began_ns = self.clock.monotonic_ns();
            let step = match self.step(&of, place.clone()).await {
                Ok(step) => step,
                Err(failure) => match place.to_string() {
                    // What was found before it counts; the next part fails by itself.
                    at if sum.bytes > 0 && at.len() <= LONGEST_PLACE => return Ok(self.answer(&of, sum, Some(at), 0)),
                    _ => return Err(failure),
                },
            };
            let now_ns = self.clock.monotonic_ns();
            let owed_ns = self.record.pacer.pay(step.bytes as u64, now_ns);
            // What the rate demands beyond the longest pause is the asker's to wait.
            let rest = pause_after(owed_ns.max(now_ns.saturating_sub(began_ns)), LEAST_PAUSE);
            sum = step.after(sum, MOST_NAMED);
            let left_ns = owed_ns.saturating_sub(u64::try_from(rest.as_nanos()).unwrap_or(u64::MAX));
            pause(rest).await;
            let Some(next) = sum.next.take() else { return Ok(self.answer(&of, sum, None, left_ns)) };
            let (text, elapsed_ns) = (next.to_string(), self.clock.monotonic_ns().saturating_sub(begun_ns));
            if elapsed_ns > PART_NS && text.len() <= LONGEST_PLACE {
                return Ok(self.answer(&of, sum, Some(text), left_ns));
            }
            if elapsed_ns > LONGEST_PART_NS {
                return Err(Failure::new(FailureKind::Refused, "the keys are too long to be compared in parts"));
            }
            place = next;
        }
    }

    async fn step(&self, of: &Arc<Of>, place: Place) -> Result<CheckedPart, Failure> {
        let place = match place {
            Place::Outward { key } => return self.step_by_reads(of, key, false).await,
            Place::Inward { key } => return self.step_by_reads(of, key, true).await,
            place => place,
        };
        let (compared, wall_us) = (Arc::clone(of), self.clock.wall_us());
        let step = self.runtime.spawn_blocking(move || step(&compared, &place, wall_us)).await;
        let mut step = step.map_err(|error| unavailable(error.to_string()))?.map_err(|why| failure(of, why))?;
        if step.next.is_none() && of.entries.is_some() {
            step.next = Some(Place::Outward { key: Vec::new() });
        }
        Ok(step)
    }

    /// Looks for the entries of rows, or for the rows of entries, wherever they are.
    async fn step_by_reads(&self, of: &Arc<Of>, from: Vec<u8>, is_entry: bool) -> Result<CheckedPart, Failure> {
        let read = Arc::clone(of);
        let of_tablet = Arc::clone(of.entries.as_ref().filter(|_| is_entry).unwrap_or(&of.entry));
        let keys = self.runtime.spawn_blocking(move || keys_from(&read, &of_tablet, from, is_entry)).await;
        let keys = keys.map_err(|error| unavailable(error.to_string()))?.map_err(|why| failure(of, why))?;
        let found = self.own.check_rows(of.entry.table.id, of.index, is_entry, keys.own).await;
        let found = found.map_err(|error| unavailable(error.message.to_string()))?;
        let place = |key| if is_entry { Place::Inward { key } } else { Place::Outward { key } };
        let of_others = if is_entry { keys.of_others } else { 0 };
        let mut part = CheckedPart {
            // A row is read again, and so is its entry.
            bytes: 3 * keys.bytes,
            // The rows of a unique index are counted where its local index is compared.
            rows: if is_entry || of.is_local { 0 } else { found.len() as u64 },
            entries: of_others,
            of_others,
            next: keys.next.map(place),
            ..CheckedPart::default()
        };
        for (key, checked) in &found {
            count(&mut part, is_entry, key, checked);
        }
        Ok(part)
    }

    fn answer(&self, of: &Of, found: CheckedPart, place: Option<String>, left_ns: u64) -> ComparedPart {
        ComparedPart {
            leader: Some(self.node),
            rows: found.rows,
            values: found.values,
            missing: found.missing,
            entries: found.entries,
            right: found.right,
            stale: found.stale,
            surplus: found.surplus,
            of_other_tablets: found.of_others,
            unreadable: found.unreadable,
            bytes: found.bytes as u64,
            named: found.named.iter().map(|one| named(&of.entry.table, one)).collect(),
            place,
            wait_ms: left_ns / 1_000_000,
        }
    }
}

fn unavailable(message: impl Into<String>) -> Failure {
    Failure::new(FailureKind::Unavailable, message)
}

fn failure(of: &Of, why: Unchecked) -> Failure {
    let message = match why {
        Unchecked::BeingBuilt => {
            format!("the index is not built in tablet {} yet, or that has failed", of.handle.id().0)
        }
        Unchecked::Failed(EvaluationFailed(error)) => error,
    };
    Failure::new(FailureKind::Refused, message)
}

/// Reads the keys of the next rows or entries.
fn keys_from(of: &Of, of_tablet: &TableEntry, from: Vec<u8>, is_entry: bool) -> Result<Keys, Unchecked> {
    let failed = |error: StorageError| EvaluationFailed(error.to_string());
    let data = of.handle.data();
    if !is_entry {
        let stored = Specification::stored(of.index, &DataView(data))?;
        stored.filter(Specification::is_done).ok_or(Unchecked::BeingBuilt)?;
    }
    let tokens = Tokens::of(of_tablet, of.handle.id());
    // What is before is the tablet's own.
    let from = from.max(FIRST_ROW_KEY.to_vec());
    let range = ScanRange { start: &from, end: &AFTER_ALL_ROWS, reverse: false, expected_entries: ROWS_READ_AT_A_TIME };
    let mut keys = Keys::default();
    let visit = &mut |key: &[u8], value: &[u8]| {
        if keys.own.len() >= ROWS_READ_AT_A_TIME || keys.bytes >= STEP_BYTES {
            keys.next = Some(key.to_vec());
            return false;
        }
        keys.bytes += key.len() + value.len();
        match tokens.is_none_or(|tokens| token_of(key).is_ok_and(|token| tokens.contain(token))) {
            true => keys.own.push(key.to_vec()),
            false => keys.of_others += 1,
        }
        true
    };
    data.scan(&range, visit).map_err(failed)?;
    Ok(keys)
}

fn count(part: &mut CheckedPart, is_entry: bool, key: &[u8], checked: &Checked) {
    let (of_rows, of_entries) = (u64::from(!is_entry), u64::from(is_entry));
    if *checked == Checked::Nothing {
        return;
    }
    part.values += of_rows;
    part.entries += of_entries;
    let (counter, difference, row, form) = match checked {
        Checked::Nothing | Checked::Right => {
            part.right += of_entries;
            return;
        }
        Checked::Missing(entry) => (&mut part.missing, Difference::Missing, key, &entry[..]),
        Checked::Stale(row) => (&mut part.stale, Difference::Stale, &row[..], key),
        Checked::Surplus(row) => (&mut part.surplus, Difference::Surplus, &row[..], key),
        Checked::Unreadable => (&mut part.unreadable, Difference::Unreadable, key, key),
    };
    *counter += 1;
    part.name(MOST_NAMED, difference, row, form);
}

/// Compares rows, or entries, of one snapshot.
fn step(of: &Of, from: &Place, wall_us: i64) -> Result<CheckedPart, Unchecked> {
    let Of { handle, entry, index, .. } = of;
    let snapshot = At(handle.data().snapshot());
    let applied = handle.data().applied_state().map_err(|error| EvaluationFailed(error.to_string()))?;
    let now_s = now_seconds(wall_us.max(applied.newest_stamp_us)).saturating_add(EXPIRES_SOON_S);
    let tokens = Tokens::of(entry, handle.id());
    let is_own = |row: &[u8]| tokens.is_none_or(|tokens| token_of(row).is_ok_and(|token| tokens.contain(token)));
    let size = StepSize { entries: CHECKED_ROWS, bytes: STEP_BYTES, named: MOST_NAMED };
    check_part(&snapshot, Check { index: *index, now_s, is_own: &is_own, size }, from)
}

/// A tablet at one moment.
struct At(TabletAt);

impl TabletView for At {
    fn get(&self, key: &[u8]) -> Result<Option<Vec<u8>>, EvaluationFailed> {
        self.0.get(key).map_err(|error| EvaluationFailed(error.to_string()))
    }

    fn scan(
        &self,
        start: &[u8],
        end: &[u8],
        visit: &mut dyn FnMut(&[u8], &[u8]) -> bool,
    ) -> Result<(), EvaluationFailed> {
        let range = ScanRange { start, end, reverse: false, expected_entries: CHECKED_ROWS };
        self.0.scan(&range, visit).map(drop).map_err(|error| EvaluationFailed(error.to_string()))
    }
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().fold(String::new(), |mut text, byte| {
        let _ = write!(text, "{byte:02x}");
        text
    })
}

fn named(table: &Table, one: &Named) -> NamedDifference {
    let (difference, row) = match one.difference {
        Difference::Missing => (IndexDifference::Missing, row_text(table, &one.row)),
        Difference::Stale => (IndexDifference::Stale, row_text(table, &one.row)),
        Difference::Surplus => (IndexDifference::Surplus, row_text(table, &one.row)),
        Difference::Unreadable => (IndexDifference::Unreadable, hex(&one.row)),
    };
    NamedDifference { difference, row, value: hex(&one.form[..one.form.len().min(SHOWN_BYTES)]) }
}

/// The key of a row, as conditions of a statement: `k = 3 AND c = 'x'`.
fn row_text(table: &Table, row: &[u8]) -> String {
    let mut key = DecodedKey::default();
    if KeyLayout::new(table).decode(row, &mut key).is_err() {
        return format!("0x{}", hex(row));
    }
    let condition = |name: &str, data_type: &CqlType, wire: &[u8]| {
        let mut text = String::new();
        if literal_text(data_type, wire, &mut text).is_err() {
            text = format!("0x{}", hex(wire));
        }
        if let Some((end, _)) = text.char_indices().nth(SHOWN_CHARACTERS) {
            text.truncate(end);
            text.push('…');
        }
        format!("{name} = {text}")
    };
    let partition = table.partition_key().enumerate();
    let partition = partition.map(|(at, column)| condition(&column.name, &column.data_type, key.partition(at)));
    let clustering = table.clustering().enumerate();
    let clustering =
        clustering.filter_map(|(at, column)| Some(condition(&column.name, &column.data_type, key.clustering(at)?)));
    let text = partition.chain(clustering).collect::<Vec<_>>().join(" AND ");
    if key.kind() == RowKind::Static { format!("the static row of {text}") } else { text }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "test data is known")]
    use super::*;
    use diorite_base::TableId;
    use diorite_model::key::{push_row, push_static};
    use diorite_model::schema::{Column, ColumnKind, Order, TabletRange};

    fn table() -> Table {
        let column = |id, name: &str, data_type, kind| Column { id, name: name.to_owned(), data_type, kind };
        Table {
            id: TableId(5),
            uuid: uuid::Uuid::from_u128(5),
            keyspace: "ks".to_owned(),
            name: "t".to_owned(),
            version: 0,
            columns: vec![
                column(0, "k", CqlType::Int, ColumnKind::PartitionKey),
                column(1, "c", CqlType::Text, ColumnKind::Clustering(Order::Desc)),
            ],
            next_column_id: 2,
            default_ttl_s: 0,
            gc_grace_s: 0,
            options: std::collections::BTreeMap::new(),
            indexes: Vec::new(),
            deferred_indexes: Vec::new(),
            index_of: None,
            views: Vec::new(),
            view: None,
        }
    }

    fn entry() -> TableEntry {
        let range = |first_token, tablet| TabletRange { first_token, tablet: TabletId(tablet) };
        let tablets = vec![range(i64::MIN, 1), range(-5, 2), range(100, 3)];
        TableEntry { table: Arc::new(table()), tablets, least_tablets: 0 }
    }

    fn found(tablet: Option<u64>, from: Option<(i64, u64)>) -> Option<(u64, i64, bool, Option<u64>)> {
        let place = Some("rows:00".to_owned());
        let from = from.map(|(first_token, tablet)| ComparedUpTo { first_token, tablet: TabletId(tablet), place });
        let rows = Arc::new(entry());
        let tables = Tables { rows: &rows, entries: None, is_local: true };
        let part = find_part(tables, WantedPart { tablet: tablet.map(TabletId), from }).ok()?;
        Some((part.tablet.0, part.first_token, part.place.is_none(), part.following.map(|next| next.tablet.0)))
    }

    #[test]
    fn a_part_goes_on_in_its_tablet_unless_that_was_split_or_merged() {
        assert_eq!(found(None, None), Some((1, i64::MIN, true, Some(2))));
        assert_eq!(found(Some(3), None), Some((3, 100, true, None)));
        assert_eq!(found(Some(4), None), None);
        assert_eq!(found(None, Some((-5, 2))), Some((2, -5, false, Some(3))));
        // Another tablet begins with the token, or the tablet before has taken it.
        assert_eq!(found(None, Some((-5, 9))), Some((2, -5, true, Some(3))));
        assert_eq!(found(None, Some((50, 9))), Some((2, -5, true, Some(3))));
        assert_eq!(found(Some(1), Some((100, 3))), Some((3, 100, false, None)));
    }

    #[test]
    fn the_tablets_of_entries_come_after_those_of_rows() {
        let range = |first_token, tablet| TabletRange { first_token, tablet: TabletId(tablet) };
        let rows = Arc::new(entry());
        let entries = TableEntry { tablets: vec![range(i64::MIN, 8), range(0, 9)], ..entry() };
        let entries = Arc::new(entries);
        let tables = Tables { rows: &rows, entries: Some(&entries), is_local: true };
        let (mut wanted, mut seen) = (WantedPart::default(), Vec::new());
        loop {
            let part = find_part(tables, wanted).unwrap();
            let part = part.with(ComparedPart::default(), None);
            seen.push((part.tablet.0, part.is_begin, part.of_entries));
            let Some(next) = part.next else { break };
            wanted = WantedPart { tablet: None, from: Some(next) };
        }
        assert_eq!(seen, [(1, true, false), (2, true, false), (3, true, false), (8, true, true), (9, true, true)]);
        // In the middle of a tablet of entries, which then was split.
        let from = |tablet, place: &str| {
            let from = ComparedUpTo { first_token: 0, tablet: TabletId(tablet), place: Some(place.to_owned()) };
            let part = find_part(tables, WantedPart { tablet: None, from: Some(from) }).unwrap();
            let part = part.with(ComparedPart { place: None, ..ComparedPart::default() }, None);
            (part.tablet.0, part.is_begin, part.next)
        };
        assert_eq!(from(9, "inward:0102"), (9, false, None));
        assert_eq!(from(7, "inward:0102"), (9, true, None));
        assert_eq!((from(7, "rows:0102").0, from(7, "entries:0102").0, from(7, "outward:0102").0), (2, 2, 2));
        let only = find_part(tables, WantedPart { tablet: Some(TabletId(8)), from: None }).unwrap();
        assert_eq!((only.tablet.0, only.of_entries), (8, true));
    }

    #[test]
    fn rows_are_named_as_statements_name_them() {
        let table = table();
        let layout = KeyLayout::new(&table);
        let key = |kind: fn(&mut Vec<u8>), clustering: &[&str]| {
            let mut key = Vec::new();
            layout.encode_partition([&3_i32.to_be_bytes()[..]].into_iter(), &mut key).unwrap();
            kind(&mut key);
            clustering.iter().for_each(|text| layout.push_clustering(0, text.as_bytes(), &mut key).unwrap());
            key
        };
        assert_eq!(row_text(&table, &key(push_row, &["it's"])), "k = 3 AND c = 'it''s'");
        assert_eq!(row_text(&table, &key(push_static, &[])), "the static row of k = 3");
        assert_eq!(row_text(&table, &[7; 3]), "0x070707");
        let long = row_text(&table, &key(push_row, &["x".repeat(500).as_str()]));
        assert!(long.ends_with("x…") && long.len() < 300, "{long}");
        let one = Named { difference: Difference::Unreadable, row: vec![1, 2], form: vec![9; 100] };
        let shown = named(&table, &one);
        assert_eq!((shown.row.as_str(), shown.value.len()), ("0102", 2 * SHOWN_BYTES));
    }
}
