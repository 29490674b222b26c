//! Comparisons of indexes with their tables: the leader of a tablet compares a part of it and says where the next part
//! begins.
//!
//! Always true: a part takes seconds, is limited by the rate of index builds, and runs on threads that delay no requests;
//! a node compares one part at a time, and keeps nothing of it afterwards. Each step reads one snapshot of the tablet.
//! Left out: what is compared ([`diorite_query::index::check_part`]), and the sum of the parts (`diorite admin check-index`).

use super::place::Tokens;
use super::record::IndexRecord;
use super::{LEAST_PAUSE, STEP_BYTES, STEP_ROWS};
use crate::pause::pause;
use diorite_admin::api::{
    ComparedPart, ComparedUpTo, Failure, FailureKind, IndexDifference, IndexPart, MOST_NAMED, NamedDifference,
    PartHere, WantedPart,
};
use diorite_base::mutation::{EvaluationFailed, TabletView};
use diorite_base::{Clock, NodeId, TabletId};
use diorite_cluster::catalog::Catalog;
use diorite_model::key::{DecodedKey, KeyLayout, RowKind, token_of};
use diorite_model::row::now_seconds;
use diorite_model::schema::{Table, TableEntry};
use diorite_model::types::CqlType;
use diorite_model::value::literal_text;
use diorite_query::index::{Check, CheckedPart, Difference, Named, Place, StepSize, Unchecked, check_part};
use diorite_replica::{Leadership, Store, TabletHandle};
use diorite_storage::{ScanRange, TabletAt, TabletData, TabletSnapshot};
use std::fmt::Write as _;
use std::sync::Arc;
use std::time::Duration;
use tokio::runtime::Handle;

/// About so long a node works on a part, and so long at most.
const PART_NS: u64 = 2_000_000_000;
const LONGEST_PART_NS: u64 = 10_000_000_000;
/// So long it pauses after a step at most; what the rate demands beyond that is the asker's to wait.
const LONGEST_PAUSE_NS: u64 = 3_000_000_000;
/// So long a part waits for the one before it.
const TURN: Duration = Duration::from_secs(5);
/// Values that expire so soon are not looked for: a compaction may have removed them or their entries.
const EXPIRES_SOON_S: u32 = 60;
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
    /// The tablet after it.
    following: Option<ComparedUpTo>,
}

impl Part {
    /// The answer to the asker.
    pub(in crate::operate) fn with(self, mut found: ComparedPart, failure: Option<String>) -> IndexPart {
        let Self { tablet, first_token, place, following } = self;
        let next = match found.place.take() {
            None => following,
            place => Some(ComparedUpTo { first_token, tablet, place }),
        };
        IndexPart { tablet, first_token, is_begin: place.is_none(), failure, found, next }
    }
}

/// Finds the tablet of the part that is wanted.
pub(in crate::operate) fn find_part(entry: &TableEntry, wanted: WantedPart) -> Result<Part, Failure> {
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
    let following = entry.tablets.get(at + 1);
    let following =
        following.map(|next| ComparedUpTo { first_token: next.first_token, tablet: next.tablet, place: None });
    Ok(Part { tablet, first_token, place, following })
}

/// Compares parts of the tablets that this node leads.
pub(in crate::operate) struct Comparing<'n> {
    pub(in crate::operate) node: NodeId,
    pub(in crate::operate) store: &'n Store,
    pub(in crate::operate) clock: &'n dyn Clock,
    pub(in crate::operate) runtime: &'n Handle,
    pub(in crate::operate) record: &'n IndexRecord,
}

/// An index in a tablet that is led here.
struct Of {
    handle: Arc<TabletHandle>,
    entry: Arc<TableEntry>,
    index: u64,
}

impl Comparing<'_> {
    /// Compares a part.
    ///
    /// # Errors
    /// This node does not lead the tablet, or does not know the index, or it is not built there yet.
    pub(in crate::operate) async fn part(&self, catalog: &Catalog, wanted: PartHere) -> Result<ComparedPart, Failure> {
        let PartHere { of, tablet, place } = wanted;
        let place = place.map_or_else(|| Ok(Place::first()), |place| place.parse::<Place>());
        let place = place.map_err(|error| Failure::new(FailureKind::Invalid, error.to_string()))?;
        let not_begun = |message: String| Failure::new(FailureKind::NotBegun, message);
        let is_led = |handle: &Arc<TabletHandle>| handle.leadership() == Leadership::Here;
        let not_led = || not_begun(format!("node {} does not lead tablet {}", self.node.0, tablet.0));
        let handle = self.store.handle(tablet).filter(is_led).ok_or_else(not_led)?;
        let is_of = |entry: &&Arc<TableEntry>| {
            entry.table.id == of.table && entry.table.indexes.iter().any(|index| index.id == of.index)
        };
        let unknown = || not_begun(format!("node {} does not know the index yet", self.node.0));
        let entry = Arc::clone(catalog.table_of(tablet).filter(is_of).ok_or_else(unknown)?);
        let turn = tokio::time::timeout(TURN, self.record.comparing.lock()).await;
        let _turn = turn.map_err(|_| unavailable(format!("node {} is busy with another comparison", self.node.0)))?;
        self.steps(Arc::new(Of { handle, entry, index: of.index }), place).await
    }

    async fn steps(&self, of: Arc<Of>, mut place: Place) -> Result<ComparedPart, Failure> {
        let (begun_ns, mut sum) = (self.clock.monotonic_ns(), CheckedPart::default());
        loop {
            let (began_ns, wall_us) = (self.clock.monotonic_ns(), self.clock.wall_us());
            let compared = Arc::clone(&of);
            let step = self.runtime.spawn_blocking(move || step(&compared, &place, wall_us)).await;
            let step = step.map_err(|error| unavailable(error.to_string()))?.map_err(|why| failure(&of, why))?;
            let now_ns = self.clock.monotonic_ns();
            let owed_ns = self.record.pacer.pay(step.bytes as u64, now_ns);
            let pause_ns = owed_ns.max(now_ns.saturating_sub(began_ns)).min(LONGEST_PAUSE_NS);
            sum = step.after(sum, MOST_NAMED);
            let left_ns = owed_ns.saturating_sub(pause_ns);
            pause(Duration::from_nanos(pause_ns).max(LEAST_PAUSE)).await;
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

    fn answer(&self, of: &Of, found: CheckedPart, place: Option<String>, left_ns: u64) -> ComparedPart {
        ComparedPart {
            leader: Some(self.node),
            rows: found.rows,
            values: found.values,
            missing: found.missing,
            entries: found.entries,
            right: found.right,
            stale: found.stale,
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
        Unchecked::BeingBuilt => format!("the index is not built in tablet {} yet", of.handle.id().0),
        Unchecked::Failed(EvaluationFailed(error)) => error,
    };
    Failure::new(FailureKind::Refused, message)
}

/// Compares rows, or entries, of one snapshot.
fn step(of: &Of, from: &Place, wall_us: i64) -> Result<CheckedPart, Unchecked> {
    let Of { handle, entry, index } = of;
    let snapshot = At(handle.data().snapshot());
    let applied = handle.data().applied_state().map_err(|error| EvaluationFailed(error.to_string()))?;
    let now_s = now_seconds(wall_us.max(applied.newest_stamp_us)).saturating_add(EXPIRES_SOON_S);
    let tokens = Tokens::of(entry, handle.id());
    let is_own = |row: &[u8]| tokens.is_none_or(|tokens| token_of(row).is_ok_and(|token| tokens.contain(token)));
    let size = StepSize { entries: STEP_ROWS, bytes: STEP_BYTES, named: MOST_NAMED };
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
        let range = ScanRange { start, end, reverse: false, expected_entries: STEP_ROWS };
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
        let part = find_part(&entry(), WantedPart { tablet: tablet.map(TabletId), from }).ok()?;
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
