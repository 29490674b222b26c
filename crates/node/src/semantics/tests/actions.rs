//! Random logs: writes of clients, and events between them.

use diorite_base::bytes::put_slice;
use diorite_cql::language::ast::ComparisonOperator;
use diorite_model::key;
use diorite_model::row::{
    Deletion, Expiry, Marker, RowWriter, list_path_append, unplaced_list_path_append, unplaced_list_path_prepend,
};
use diorite_model::types::CqlType;
use diorite_query::program::{
    ColumnTest, ListEdit, Program, ProgramOperation, RowCondition, RowTest, TestedPart, Turn, ValueTest,
};
use proptest::prelude::*;

/// Columns: a value, a list, a counter, a static value.
const VALUE: u32 = 1;
const LIST: u32 = 2;
const COUNTER: u32 = 3;
const STATIC: u32 = 4;

/// Token and partition column of a partition.
pub(super) const PARTITION_BYTES: usize = 9;

/// Bits of a mutation's flags, and kinds of operations.
const EVALUATED: u8 = 1;
const EXPLICIT: u8 = 2;
const OVERWRITE: u8 = 1;
const MERGE: u8 = 2;
const UNPLACED: u8 = 0x40;

/// The next event.
#[derive(Debug, Clone)]
pub(super) enum Action {
    Write(Write),
    Pass(u8),
    Grace(u32),
    Flush,
    Compact(u8),
    Crash,
}

/// One write of a client.
#[derive(Debug, Clone)]
pub(super) struct Write {
    partition: u8,
    row: u8,
    /// How many seconds before the time of the log its timestamp is, if the client gives one.
    explicit_ago_s: Option<i8>,
    ttl_s: Option<u8>,
    /// How far the clock of the planning node is behind, seconds.
    behind_s: u8,
    kind: Kind,
}

#[derive(Debug, Clone)]
enum Kind {
    Insert(u8),
    SetValue(u8),
    SetStatic(u8),
    DeleteValue,
    DeleteRow,
    ReplaceList(Vec<u8>),
    /// Appends an element, in a place that a clock gave it, as earlier versions wrote it, or in the one that the log
    /// gives.
    AppendList(u8, bool),
    PrependList(u8),
    AppendIf(u8, u8),
    Count(i8),
    DeleteCounter,
    DeleteRange(Option<(u8, u8)>),
    SetElement(u8, Option<u8>),
    RemoveElements(u8),
    If(Option<u8>, u8),
    IfNotExists(u8),
    /// Adds to the value.
    Sum(i8),
    /// A transaction block: each part is a kind of write to a row of the partition.
    Block(Vec<(u8, Part)>),
}

/// A statement of a block.
#[derive(Debug, Clone)]
enum Part {
    Set(u8),
    Add(i8),
    Delete,
    DeleteFrom,
    DeletePartition,
    ReplaceList(u8),
    Append(u8),
    RemoveElements(u8),
    IfExists,
    IfNotExists,
}

fn kind() -> impl Strategy<Value = Kind> {
    let value = || 0u8..3;
    prop_oneof![
        3 => value().prop_map(Kind::Insert),
        3 => value().prop_map(Kind::SetValue),
        1 => value().prop_map(Kind::SetStatic),
        2 => Just(Kind::DeleteValue),
        2 => Just(Kind::DeleteRow),
        2 => prop::collection::vec(value(), 0..3).prop_map(Kind::ReplaceList),
        2 => (value(), any::<bool>()).prop_map(|(value, is_placed)| Kind::AppendList(value, is_placed)),
        2 => value().prop_map(Kind::PrependList),
        1 => (value(), value()).prop_map(|(old, value)| Kind::AppendIf(old, value)),
        2 => any::<i8>().prop_map(Kind::Count),
        1 => Just(Kind::DeleteCounter),
        2 => prop::option::of((0u8..3, 0u8..4)).prop_map(Kind::DeleteRange),
        1 => (0u8..3, prop::option::of(value())).prop_map(|(at, value)| Kind::SetElement(at, value)),
        1 => value().prop_map(Kind::RemoveElements),
        2 => (prop::option::of(value()), value()).prop_map(|(old, new)| Kind::If(old, new)),
        1 => value().prop_map(Kind::IfNotExists),
        2 => (-2i8..3).prop_map(Kind::Sum),
        3 => prop::collection::vec((0u8..3, part()), 1..6).prop_map(Kind::Block),
    ]
}

fn part() -> impl Strategy<Value = Part> {
    let value = || 0u8..3;
    prop_oneof![
        3 => value().prop_map(Part::Set),
        2 => (-2i8..3).prop_map(Part::Add),
        2 => Just(Part::Delete),
        1 => Just(Part::DeleteFrom),
        1 => Just(Part::DeletePartition),
        1 => value().prop_map(Part::ReplaceList),
        2 => value().prop_map(Part::Append),
        1 => value().prop_map(Part::RemoveElements),
        1 => Just(Part::IfExists),
        1 => Just(Part::IfNotExists),
    ]
}

impl Kind {
    /// The kind, or one without a counter.
    fn without_counter(self) -> Self {
        match self {
            Self::Count(change) => Self::SetValue(change.unsigned_abs() % 3),
            Self::DeleteCounter => Self::DeleteValue,
            other => other,
        }
    }
}

/// Nobody gives timestamps to a table of counters: CQL refuses them.
fn write(gives_timestamps: bool, has_counters: bool) -> BoxedStrategy<Write> {
    let explicit = prop::option::of(prop_oneof![3 => 0i8..3, 2 => 0i8..40, 1 => -9i8..0]);
    let explicit = explicit.prop_map(move |ago_s| ago_s.filter(|_| gives_timestamps));
    let ttl = prop::option::weighted(0.4, 1u8..15);
    let kind = kind().prop_map(move |kind| if has_counters { kind } else { kind.without_counter() });
    (0u8..2, 0u8..3, explicit, ttl, 0u8..3, kind)
        .prop_map(|(partition, row, explicit_ago_s, ttl_s, behind_s, kind)| Write {
            partition,
            row,
            explicit_ago_s,
            ttl_s,
            behind_s,
            kind,
        })
        .boxed()
}

fn some(count: usize, gives_timestamps: bool, has_counters: bool) -> BoxedStrategy<Vec<Action>> {
    let action = prop_oneof![
        10 => write(gives_timestamps, has_counters).prop_map(Action::Write),
        3 => (1u8..12).prop_map(Action::Pass),
        1 => prop::sample::select(vec![0u32, 3, 5, 20]).prop_map(Action::Grace),
        3 => Just(Action::Flush),
        2 => (1u8..4).prop_map(Action::Compact),
        1 => Just(Action::Crash),
    ];
    prop::collection::vec(action, 1..count).boxed()
}

/// Up to `count` actions. In a third of the cases no client gives timestamps, in another they begin to halfway.
pub(super) fn actions(count: usize) -> impl Strategy<Value = Vec<Action>> {
    let halves = move |first: bool, second: bool| {
        let has_counters = !first && !second;
        let both = (some(count / 2, first, has_counters), some(count / 2, second, has_counters));
        both.prop_map(|(first, second)| [first, second].concat())
    };
    prop_oneof![halves(false, false), halves(false, true), halves(true, true)]
}

fn partition(number: u8) -> Vec<u8> {
    let mut key = (0x8000_0000_0000_0000u64 + u64::from(number)).to_be_bytes().to_vec();
    // A partition column of no bytes.
    key.push(1);
    assert_eq!(key.len(), PARTITION_BYTES);
    key
}

fn row(number: u8) -> Vec<u8> {
    let mut row = Vec::new();
    key::push_row(&mut row);
    row.push(number);
    row
}

/// Deletes that row, with a timestamp of the client's.
pub(super) fn deletion_by_a_client() -> Write {
    Write { explicit_ago_s: Some(0), ..plain(Kind::DeleteRow, None) }
}

fn list_element(writer: &mut RowWriter<'_>, path: &[u8], at_us: i64, expiry: Option<Expiry>, value: u8) {
    writer.begin_complex(LIST, None);
    writer.element(path, at_us, expiry, &[value]);
    writer.end_complex();
}

/// An append to the list of that row, in a place that a clock gave it, as earlier versions wrote it, or in the one that
/// the log gives.
pub(super) fn append(value: u8, is_placed: bool) -> Write {
    plain(Kind::AppendList(value, is_placed), None)
}

/// The row that [`value_that_expires_after`] writes.
pub(super) fn key_of_first_row() -> Vec<u8> {
    [partition(0), row(0)].concat()
}

fn plain(kind: Kind, ttl_s: Option<u8>) -> Write {
    Write { partition: 0, row: 0, explicit_ago_s: None, ttl_s, behind_s: 0, kind }
}

/// A row with this TTL.
pub(super) fn value_that_expires_after(ttl_s: u8) -> Write {
    plain(Kind::Insert(1), Some(ttl_s))
}

/// Sets the value if it equals that of [`value_that_expires_after`].
pub(super) fn conditional_write() -> Write {
    plain(Kind::If(Some(1), 2), None)
}

/// A queue: rows are written and deleted again and again, until the search for rows that a deletion removes stops
/// early, before it reaches the rows that are left. Those are a counter and a value, and the counter begins anew. Then
/// everything that may be purged is purged.
pub(super) fn deletions_over_removed_rows() -> Vec<Action> {
    let at = |row: u8, kind: Kind| Action::Write(Write { row, ..plain(kind, None) });
    let delete = |first: u8, last: u8| at(0, Kind::DeleteRange(Some((first, last))));
    let mut actions = Vec::new();
    // A scan passes only some versions of one key, so there are several keys; so few keys are removed one by one.
    for _ in 0..6 {
        for first in [0, 60, 120] {
            actions.extend((first..first + 60).map(|row| at(row, Kind::Insert(1))));
            actions.push(delete(first, first + 59));
        }
    }
    actions.extend([at(200, Kind::Count(5)), at(201, Kind::Insert(1)), delete(0, 210), at(200, Kind::Count(1))]);
    actions.extend([Action::Flush, Action::Pass(60), Action::Grace(5), Action::Flush, Action::Compact(1)]);
    // The header has been purged at this point; the rows that it hid must not be visible.
    actions.extend([Action::Pass(60), Action::Grace(5), Action::Flush, Action::Compact(1), Action::Crash]);
    actions
}

/// The content of a write.
enum Body {
    /// A packed row, and whether it is the whole row.
    Row(Vec<u8>, bool),
    Program(Program),
}

impl Write {
    /// The write as an entry in the log, stamped.
    pub(super) fn entry(&self, stamp_us: i64) -> Vec<u8> {
        // Counters and conditions take no timestamps.
        let takes_none = matches!(
            self.kind,
            Kind::Count(_)
                | Kind::DeleteCounter
                | Kind::If(..)
                | Kind::AppendIf(..)
                | Kind::IfNotExists(_)
                | Kind::Sum(_)
                | Kind::Block(_)
        );
        let ago_s = self.explicit_ago_s.filter(|_| !takes_none);
        let explicit_us = ago_s.map(|ago_s| stamp_us - i64::from(ago_s) * 1_000_000);
        let body = self.body(stamp_us, explicit_us);
        let evaluated = if matches!(body, Body::Program(_)) { EVALUATED } else { 0 };
        let mut entry = vec![evaluated | if explicit_us.is_some() { EXPLICIT } else { 0 }];
        entry.extend_from_slice(&stamp_us.to_le_bytes());
        explicit_us.iter().for_each(|explicit_us| entry.extend_from_slice(&explicit_us.to_le_bytes()));
        match body {
            Body::Program(program) => entry.extend_from_slice(&program.encode()),
            Body::Row(value, is_whole) => {
                let mut key = partition(self.partition);
                match self.kind {
                    Kind::SetStatic(_) => key::push_static(&mut key),
                    _ => key.extend_from_slice(&row(self.row)),
                }
                let is_unplaced = matches!(self.kind, Kind::AppendList(_, false) | Kind::PrependList(_));
                let kind = if is_whole && explicit_us.is_none() { OVERWRITE } else { MERGE };
                entry.push(kind | if is_unplaced { UNPLACED } else { 0 });
                put_slice(&mut entry, &key);
                put_slice(&mut entry, &value);
            }
        }
        entry
    }

    fn body(&self, stamp_us: i64, explicit_us: Option<i64>) -> Body {
        let at_us = explicit_us.unwrap_or(stamp_us);
        let local_s = (stamp_us / 1_000_000) as u32 - u32::from(self.behind_s);
        let expiry = self.ttl_s.map(|ttl_s| Expiry { ttl_s: ttl_s.into(), at_s: local_s + u32::from(ttl_s) });
        let deletion = Deletion { timestamp_us: at_us, local_s };
        let mut packed = Vec::new();
        let mut writer = RowWriter::new(&mut packed, at_us);
        match &self.kind {
            Kind::Insert(value) => {
                writer.marker(Marker { timestamp_us: at_us, expiry });
                writer.cell(VALUE, at_us, expiry, &[*value]);
            }
            Kind::SetValue(value) => writer.cell(VALUE, at_us, expiry, &[*value]),
            Kind::SetStatic(value) => writer.cell(STATIC, at_us, expiry, &[*value]),
            Kind::DeleteValue => writer.tombstone(VALUE, deletion),
            Kind::DeleteRow => writer.deletion(deletion),
            Kind::ReplaceList(values) => {
                let before = Deletion { timestamp_us: writer.before_base(), local_s };
                writer.begin_complex(LIST, Some(before));
                for (at, value) in (0..).zip(values) {
                    writer.element(&list_path_append(stamp_us, 1, at), at_us, expiry, &[*value]);
                }
                writer.end_complex();
            }
            Kind::AppendList(value, is_placed) => {
                let path = if *is_placed { list_path_append(stamp_us, 1, 0) } else { unplaced_list_path_append(0) };
                list_element(&mut writer, &path, at_us, expiry, *value);
            }
            Kind::PrependList(value) => {
                list_element(&mut writer, &unplaced_list_path_prepend(0), at_us, expiry, *value);
            }
            Kind::Count(delta) => writer.counter(COUNTER, at_us, i64::from(*delta)),
            Kind::DeleteCounter => writer.tombstone(COUNTER, deletion),
            Kind::Sum(number) => {
                let operations = vec![self.sum(self.row, *number, expiry)];
                return Body::Program(Program { operations, turns: Some(vec![Turn::Operation]), ..Program::default() });
            }
            Kind::Block(parts) => return Body::Program(self.block(parts, stamp_us, expiry)),
            _ => return Body::Program(self.program(at_us, explicit_us, expiry)),
        }
        Body::Row(packed, matches!(self.kind, Kind::Insert(_)))
    }

    fn key(&self, of: u8) -> Vec<u8> {
        [partition(self.partition), row(of)].concat()
    }

    /// Values are small numbers, which stay within the type.
    fn sum(&self, of: u8, number: i8, expiry: Option<Expiry>) -> ProgramOperation {
        ProgramOperation::Sum {
            key: self.key(of),
            partition_len: PARTITION_BYTES,
            column: VALUE,
            data_type: CqlType::Tinyint,
            subtracts: number < 0,
            number: vec![number.unsigned_abs()],
            expiry,
        }
    }

    /// A program whose parts follow one another.
    fn block(&self, parts: &[(u8, Part)], at_us: i64, expiry: Option<Expiry>) -> Program {
        let mut program = Program::default();
        let mut turns = Vec::new();
        let local_s = (at_us / 1_000_000) as u32 - u32::from(self.behind_s);
        let deletion = Deletion { timestamp_us: at_us, local_s };
        for (of, part) in parts {
            let key = self.key(*of);
            let packed = |is_unplaced, write: &dyn Fn(&mut RowWriter<'_>)| {
                let (mut value, key) = (Vec::new(), key.clone());
                write(&mut RowWriter::new(&mut value, at_us));
                ProgramOperation::Row { is_overwrite: false, is_stamped: true, is_unplaced, key, value }
            };
            let delete =
                |range| ProgramOperation::Delete { partition: partition(self.partition), range, explicit_us: None };
            let list = |edit| ProgramOperation::List {
                key: key.clone(),
                partition_len: PARTITION_BYTES,
                column: LIST,
                edit,
                explicit_us: None,
                expiry,
            };
            let element = |value: &u8| {
                let (path, value) = (unplaced_list_path_append(0), *value);
                packed(true, &|writer| list_element(writer, &path, at_us, expiry, value))
            };
            program.operations.push(match part {
                Part::Set(value) => packed(false, &|writer| {
                    writer.marker(Marker { timestamp_us: at_us, expiry });
                    writer.cell(VALUE, at_us, expiry, &[*value]);
                }),
                Part::Add(number) => self.sum(*of, *number, expiry),
                Part::Delete => packed(false, &|writer| writer.deletion(deletion)),
                Part::DeleteFrom => delete(Some((vec![*of], vec![9]))),
                Part::DeletePartition => delete(None),
                Part::ReplaceList(value) => packed(true, &|writer| {
                    let before = Deletion { timestamp_us: writer.before_base(), local_s };
                    writer.begin_complex(LIST, Some(before));
                    writer.element(&unplaced_list_path_append(0), at_us, expiry, &[*value]);
                    writer.end_complex();
                }),
                Part::Append(value) => element(value),
                Part::RemoveElements(value) => list(ListEdit::Remove(vec![vec![*value]])),
                Part::IfExists | Part::IfNotExists => {
                    let test = if matches!(part, Part::IfExists) { RowTest::Exists } else { RowTest::NotExists };
                    let partition = partition(self.partition);
                    program.conditions.push(RowCondition { partition, row: row(*of), test });
                    turns.push(Turn::ConditionElseError);
                    continue;
                }
            });
            turns.push(Turn::Operation);
        }
        program.turns = Some(turns);
        program
    }

    fn program(&self, at_us: i64, explicit_us: Option<i64>, expiry: Option<Expiry>) -> Program {
        let key = [partition(self.partition), row(self.row)].concat();
        let list = |edit| {
            let (key, column) = (key.clone(), LIST);
            ProgramOperation::List { key, partition_len: PARTITION_BYTES, column, edit, explicit_us, expiry }
        };
        let row_of = |is_unplaced, value| {
            let key = key.clone();
            ProgramOperation::Row { is_overwrite: false, is_stamped: true, is_unplaced, key, value }
        };
        let set = |value: u8| {
            let mut packed = Vec::new();
            RowWriter::new(&mut packed, at_us).cell(VALUE, at_us, expiry, &[value]);
            row_of(false, packed)
        };
        let append = |value: u8| {
            let mut packed = Vec::new();
            let mut writer = RowWriter::new(&mut packed, at_us);
            list_element(&mut writer, &unplaced_list_path_append(0), at_us, expiry, value);
            row_of(true, packed)
        };
        let equals = |old: &Option<u8>| {
            let test = ValueTest::Compare(ComparisonOperator::Equal, old.map(|old| vec![old]));
            let data_type = CqlType::Blob;
            let test = ColumnTest { column: VALUE, is_static: false, data_type, part: TestedPart::Whole, test };
            RowTest::Columns(vec![test])
        };
        let (operation, test) = match &self.kind {
            Kind::DeleteRange(range) => {
                let range = range.map(|(start, end)| (vec![start.min(end)], vec![start.max(end) + 1]));
                (ProgramOperation::Delete { partition: partition(self.partition), range, explicit_us }, None)
            }
            Kind::SetElement(at, value) => (list(ListEdit::Set(i32::from(*at), value.map(|value| vec![value]))), None),
            Kind::RemoveElements(value) => (list(ListEdit::Remove(vec![vec![*value]])), None),
            Kind::If(old, new) => (set(*new), Some(equals(old))),
            Kind::AppendIf(old, new) => (append(*new), Some(equals(&Some(*old)))),
            Kind::IfNotExists(new) => (set(*new), Some(RowTest::NotExists)),
            _ => unreachable!("the others are rows"),
        };
        let condition = |test| RowCondition { partition: partition(self.partition), row: row(self.row), test };
        Program {
            conditions: test.map(condition).into_iter().collect(),
            operations: vec![operation],
            dropped_columns: Vec::new(),
            turns: None,
            maintained: None,
        }
    }
}
