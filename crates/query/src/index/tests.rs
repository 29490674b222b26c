//! Steps, specifications and entries of one index.
#![allow(clippy::unwrap_used, reason = "test data is known")]

mod bounds;
mod check;
mod reads;

use super::specification::Progress;
use super::*;
use crate::program::{
    KnownView, Maintained, Program, ProgramReply, RowCondition, RowTest, RowsDigest, TabletEvaluator, Unchanged,
};
use diorite_base::bytes::Malformed;
use diorite_base::mutation::{
    EvaluationContext, EvaluationFailed, Evaluator, Mutation, OperationKind, TabletChanges, TabletView,
};
use diorite_base::program::LoggedProgram;
use diorite_base::row_index::FIRST_ROW_KEY;
use diorite_model::entry;
use diorite_model::index::{Indexed, entries_end, entry_prefix, specification_key};
use diorite_model::key::{KeyLayout, push_row};
use diorite_model::row::{Expiry, RowWriter};
use diorite_model::schema::{ColumnKind, IndexTarget};
use diorite_model::types::CqlType;
use diorite_transact::maintained::is_unmaintained;
use std::collections::BTreeMap;

const INDEX: u64 = 7;
const SECOND_US: i64 = 1_000_000;

/// A tablet of rows with one number, which is indexed.
#[derive(Default)]
struct Data(BTreeMap<Vec<u8>, Vec<u8>>);

impl TabletView for Data {
    fn get(&self, key: &[u8]) -> Result<Option<Vec<u8>>, EvaluationFailed> {
        Ok(self.0.get(key).cloned())
    }

    fn scan(
        &self,
        start: &[u8],
        end: &[u8],
        visit: &mut dyn FnMut(&[u8], &[u8]) -> bool,
    ) -> Result<(), EvaluationFailed> {
        self.0.range(start.to_vec()..end.to_vec()).all(|(key, value)| visit(key, value));
        Ok(())
    }
}

#[derive(Default)]
struct Changes(Vec<(Vec<u8>, Option<Vec<u8>>, bool)>, Vec<(Vec<u8>, Vec<u8>)>);

impl TabletChanges for Changes {
    fn put(&mut self, key: &[u8], value: &[u8]) {
        self.0.push((key.to_vec(), Some(value.to_vec()), false));
    }

    fn merge(&mut self, key: &[u8], value: &[u8]) {
        self.0.push((key.to_vec(), Some(value.to_vec()), true));
    }

    fn delete(&mut self, key: &[u8]) {
        self.0.push((key.to_vec(), None, false));
    }

    fn delete_range(&mut self, start: &[u8], end: &[u8]) {
        self.1.push((start.to_vec(), end.to_vec()));
    }

    fn raise_flags(&mut self, flags: u64) {
        assert_eq!(flags, INDEXED);
    }

    fn raise_stamps(&mut self, _: i64, _: i64) {
        unreachable!("steps of indexes take over no rows");
    }
}

impl Data {
    fn merge(&mut self, key: &[u8], value: &[u8]) {
        let mut folded = Vec::new();
        entry::fold(self.0.get(key).map(Vec::as_slice), [value], &mut folded).unwrap();
        self.0.insert(key.to_vec(), folded);
    }

    fn step(&mut self, second: i64, step: &IndexStep) -> IndexReply {
        let context = EvaluationContext::new(second * SECOND_US, i64::MIN);
        let mut changes = Changes::default();
        let reply = TabletEvaluator.evaluate(&step.encode(), context, self, &mut changes).unwrap();
        for (start, end) in changes.1 {
            self.0.retain(|key, _| *key < start || *key >= end);
        }
        for (key, value, is_merged) in changes.0 {
            match value {
                None => drop(self.0.remove(&key)),
                Some(value) if is_merged => self.merge(&key, &value),
                Some(value) => drop(self.0.insert(key, value)),
            }
        }
        IndexReply::decode(&reply).unwrap()
    }

    /// Writes a number to a row, as a replica does.
    fn write(&mut self, k: i32, number: i32, timestamp_us: i64, expiry: Option<Expiry>) {
        let mut row = Vec::new();
        RowWriter::new(&mut row, timestamp_us).cell(1, timestamp_us, expiry, &number.to_be_bytes());
        self.write_row(&key(k), &row);
    }

    /// Writes to a row, as a replica does.
    fn write_row(&mut self, key: &[u8], row: &[u8]) {
        self.merge(key, row);
        let Some(indexes) = TabletEvaluator.row_indexes(INDEXED, self).unwrap() else { return };
        let mut entries = Vec::new();
        indexes.entries(key, row, &mut |key, value, is_merged| entries.push((key.to_vec(), value.to_vec(), is_merged)));
        for (key, value, is_merged) in entries {
            match is_merged {
                true => self.merge(&key, &value),
                false => drop(self.0.insert(key, value)),
            }
        }
    }

    fn entries(&self) -> Vec<Vec<u8>> {
        self.0.range(entry_prefix(INDEX)..entries_end(INDEX)).map(|(key, _)| key.clone()).collect()
    }

    fn indexed() -> Self {
        let mut data = Self::default();
        assert_eq!(
            data.step(1, &IndexStep::Define { index: INDEX, definition: specification().definition() }),
            IndexReply::Done
        );
        data
    }

    fn remove(&mut self, second: i64, entry: &[u8]) {
        self.step(second, &IndexStep::Remove { index: INDEX, entries: vec![entry.to_vec()] });
    }
}

fn specification() -> Specification {
    Specification {
        key: vec![(CqlType::Int, ColumnKind::PartitionKey)],
        indexed: Indexed::Cell { column: 1, is_static: false, data_type: CqlType::Int, target: IndexTarget::Value },
        progress: Progress::Before(FIRST_ROW_KEY.to_vec()),
        dependent: None,
    }
}

fn key(k: i32) -> Vec<u8> {
    let mut key = Vec::new();
    let layout = KeyLayout::of_types([(&CqlType::Int, ColumnKind::PartitionKey)].into_iter());
    layout.encode_partition([&k.to_be_bytes()[..]].into_iter(), &mut key).unwrap();
    push_row(&mut key);
    key
}

fn build(from: &[u8], to: &[u8], is_last: bool) -> IndexStep {
    IndexStep::Build { index: INDEX, from: from.to_vec(), to: to.to_vec(), is_last }
}

#[test]
fn steps_and_specifications_survive_their_encoding() {
    let steps = [
        IndexStep::Define { index: INDEX, definition: specification().definition() },
        build(b"a", b"b", true),
        IndexStep::Remove { index: INDEX, entries: vec![b"one".to_vec(), b"two".to_vec()] },
        IndexStep::Drop { index: INDEX },
    ];
    for step in steps {
        assert_eq!(IndexStep::decode(&step.encode()).as_ref(), Ok(&step));
        assert!(step.mutation().is_ok());
        if !matches!(step, IndexStep::Remove { .. }) {
            assert!(IndexStep::decode(&[&step.encode()[..], b"?"].concat()).is_err());
        }
    }
    let within = Progress::Within { row: b"row".to_vec(), path: b"path".to_vec() };
    for progress in [Progress::Complete, Progress::Before(b"row".to_vec()), within] {
        let stored = Specification { progress, ..specification() };
        assert_eq!(Specification::decode(&stored.encode()), Ok(stored.clone()));
        assert_eq!(Specification::decode(&stored.encode()[..3]), Err(Malformed));
        assert_eq!(entry::compact(&stored.encode(), diorite_base::Horizon::default()), entry::Compaction::Keep);
    }
}

#[test]
fn rows_are_indexed_once_and_in_order() {
    let mut data = Data::default();
    (0..5).for_each(|k| data.write(k, k, 1, None));
    assert!(data.entries().is_empty());
    data.step(1, &IndexStep::Define { index: INDEX, definition: specification().definition() });
    let middle = data.0.keys().filter(|key| **key > FIRST_ROW_KEY.to_vec()).nth(2).unwrap().clone();
    assert_eq!(
        data.step(2, &build(&middle, &[0xFF; 9], true)),
        IndexReply::Overtaken,
        "rows before it are not indexed"
    );
    assert_eq!(data.step(2, &build(&FIRST_ROW_KEY, &middle, false)), IndexReply::Done);
    assert_eq!((data.entries().len(), specifications(&data).unwrap()[0].1.is_complete()), (2, false));
    assert_eq!(data.step(2, &build(&FIRST_ROW_KEY, &middle, false)), IndexReply::Overtaken);
    assert_eq!(data.step(2, &build(&middle, &[0xFF; 9], true)), IndexReply::Done);
    assert_eq!((data.entries().len(), specifications(&data).unwrap()[0].1.is_complete()), (5, true));
    assert_eq!(data.step(3, &IndexStep::Drop { index: INDEX }), IndexReply::Done);
    assert!(data.entries().is_empty() && specifications(&data).unwrap().is_empty());
}

#[test]
fn an_entry_is_removed_only_while_its_row_does_not_have_the_value() {
    let mut data = Data::indexed();
    data.write(1, 10, 100, None);
    let ten = data.entries()[0].clone();
    data.remove(2, &ten);
    assert_eq!(data.entries(), std::slice::from_ref(&ten), "the row has the value");
    data.write(1, 11, 200, None);
    assert_eq!(data.entries().len(), 2);
    // A write that brings the value back, of whatever timestamp, is in the log before the removal or after it.
    data.write(1, 10, 300, None);
    data.remove(3, &ten);
    assert_eq!(data.entries().len(), 2, "the value is back");
    data.write(1, 11, 400, None);
    data.remove(4, &ten);
    assert_eq!(data.entries().len(), 1);
    data.write(1, 10, 500, None);
    assert_eq!(data.entries().len(), 2);
}

#[test]
fn an_entry_lives_as_long_as_the_longest_of_its_values() {
    let expiry = |at_s: u32| Some(Expiry { ttl_s: 10, at_s });
    let mut data = Data::indexed();
    // What has the greater timestamp expires earlier.
    data.write(1, 10, 200, expiry(20));
    data.write(1, 10, 100, expiry(30));
    let horizon = diorite_base::Horizon { now_s: 25, rows_s: 25, ranges_s: 25 };
    let kept = |data: &Data| entry::compact(&data.0[&data.entries()[0]], horizon) == entry::Compaction::Keep;
    assert!(kept(&data));
    data.write(1, 10, 50, None);
    assert!(kept(&data));
    // The row's own value expires; until it has, the entry stays.
    let ten = data.entries()[0].clone();
    data.remove(19, &ten);
    assert_eq!(data.entries().len(), 1);
    data.remove(20, &ten);
    assert!(data.entries().is_empty());
}

#[test]
fn what_is_due_ends() {
    let definition = crate::testing::Database::with_keyspace();
    definition.run("CREATE TABLE t (k int PRIMARY KEY, v int)").unwrap();
    definition.run("CREATE INDEX ON t (v)").unwrap();
    let catalog = crate::kv::Kv::catalog(&*definition.kv);
    let table = &catalog.table("ks", "t").unwrap().table;
    let index = &table.indexes[0];
    let specification = Specification::of(table, index).unwrap();
    let is_define = |due: Option<Due>| matches!(due, Some(Due::Step(IndexStep::Define { .. })));
    assert!(is_define(due(table, &[])));
    assert!(matches!(due(table, &[(index.id, specification.clone())]), Some(Due::Build { .. })));
    let complete = Specification { progress: Progress::Complete, ..specification };
    assert_eq!(due(table, &[(index.id, complete.clone())]), None);
    let dropped = Some(Due::Step(IndexStep::Drop { index: 1 }));
    assert_eq!(due(table, &[(1, complete.clone()), (index.id, complete.clone())]), dropped);
    let newer = (table.version + 1, complete.clone());
    assert_eq!(due(table, &[(index.id, complete), newer]), None, "this definition is the older one");
}

#[test]
fn a_tablet_adopts_the_views_that_follow_rows_that_it_takes_over() {
    let view = |round, compared| Specification {
        indexed: Indexed::Nothing,
        progress: Progress::Complete,
        dependent: Some(Dependent { columns: vec![1], follows_rows: false, columns_since: 0, round, compared }),
        ..specification()
    };
    let stored = |view: Specification| {
        let mut data = Data::indexed();
        data.0.insert(specification_key(VIEW), view.encode());
        data
    };
    let records = adopted_records(&stored(view(3, Compared::All))).unwrap();
    assert_eq!(records, [(specification_key(VIEW), view(3, Compared::All).encode())], "and no local index");
    let adopt = |mut data: Data| {
        let mut changes = Changes::default();
        records.iter().for_each(|(key, value)| TabletEvaluator.adopt(key, value, &data, &mut changes).unwrap());
        data.0.extend(changes.0.into_iter().map(|(key, value, _)| (key, value.unwrap())));
        data
    };
    let adopted = adopt(Data::default());
    assert_eq!(specifications(&adopted).unwrap(), [(VIEW, view(0, Compared::Nothing))], "all rows are to be compared");
    let known = view(5, Compared::Before(key(1)));
    assert_eq!(specifications(&adopt(stored(known.clone()))).unwrap()[1], (VIEW, known), "what is known stays");
    // From here on writes have to maintain it.
    let indexes = TabletEvaluator.row_indexes(INDEXED, &adopted).unwrap().unwrap();
    let mut row = Vec::new();
    RowWriter::new(&mut row, 1).cell(1, 1, None, b"value");
    assert!(indexes.dependents() == [VIEW] && indexes.concerns_dependents(&row));
    // What replaces the row removes the value, whether or not it names the column.
    let mut other = Vec::new();
    RowWriter::new(&mut other, 1).cell(2, 1, None, b"value");
    let is_refused = |kind| {
        let mut mutation = Mutation::blind(None);
        mutation.push_row(kind, false, false, &key(1), &other);
        is_unmaintained(&mutation, &*indexes, &TabletEvaluator)
    };
    assert!(is_refused(OperationKind::Overwrite) && !is_refused(OperationKind::Merge));
    assert!(TabletEvaluator.adopt(&specification_key(VIEW), b"no view", &adopted, &mut Changes::default()).is_err());
}

const VIEW: u64 = 9;

/// A view of these columns, the last of which were added by this version of the table.
fn view(columns: &[u32], columns_since: u64, compared: Compared) -> Specification {
    let dependent = Dependent { columns: columns.to_vec(), follows_rows: false, columns_since, round: 5, compared };
    Specification {
        indexed: Indexed::Nothing,
        progress: Progress::Complete,
        dependent: Some(dependent),
        ..specification()
    }
}

fn with_view(stored: &Specification) -> Data {
    Data([(specification_key(VIEW), stored.encode())].into())
}

#[test]
fn a_tablet_comes_to_know_the_columns_that_a_view_gets_at_one_place_of_its_log() {
    let define = |columns: &[u32], since| {
        let definition = view(columns, since, Compared::Nothing).definition();
        IndexStep::Define { index: VIEW, definition }
    };
    let mut data = with_view(&view(&[1], 0, Compared::Before(key(3))));
    assert_eq!(data.step(1, &define(&[1, 2], 12)), IndexReply::Done);
    let known = view(&[1, 2], 12, Compared::Before(key(3)));
    assert_eq!(specifications(&data).unwrap(), [(VIEW, known.clone())], "what has been compared stays so");
    // A node with an earlier definition is late.
    for earlier in [define(&[1], 0), define(&[1, 2], 12), define(&[1], 11)] {
        assert_eq!(data.step(2, &earlier), IndexReply::Overtaken);
    }
    assert_eq!(specifications(&data).unwrap(), [(VIEW, known)]);
    // What was planned with the earlier definition is refused, if it concerns the view.
    let indexes = TabletEvaluator.row_indexes(INDEXED, &data).unwrap().unwrap();
    assert_eq!((indexes.dependents(), indexes.is_watched(2)), ([12].as_slice(), true));
    assert_eq!(data.step(3, &define(&[1, 2, 4], 20)), IndexReply::Done);
    assert_eq!(specifications(&data).unwrap(), [(VIEW, view(&[1, 2, 4], 20, Compared::Before(key(3))))]);
}

#[test]
fn a_tablet_adopts_the_columns_of_a_view_with_the_rows_that_may_have_them() {
    let adopted = |own: &Specification, others: &Specification| {
        let (data, mut changes) = (with_view(own), Changes::default());
        TabletEvaluator.adopt(&specification_key(VIEW), &others.encode(), &data, &mut changes).unwrap();
        changes.0.pop().map(|(_, value, _)| Specification::decode(&value.unwrap()).unwrap())
    };
    let (earlier, later) = (view(&[1], 0, Compared::All), view(&[1, 2], 12, Compared::Nothing));
    assert_eq!(adopted(&earlier, &later), Some(view(&[1, 2], 12, Compared::All)));
    assert_eq!(adopted(&later, &earlier), None);
}

#[test]
fn a_guard_holds_only_in_a_tablet_that_knows_the_view_as_it_was_planned_with() {
    let outcome = |stored: u64, known: u64| {
        let data = with_view(&view(&[1, 2], stored, Compared::All));
        let views = vec![KnownView { id: VIEW, columns_since: known }];
        let digest = RowsDigest::new(Some(&[])).finish();
        let test = RowTest::Unchanged(Unchanged { views, columns: Some(Vec::new()), end: None, rows: 0, digest });
        let key = key(1);
        let layout = KeyLayout::of_types([(&CqlType::Int, ColumnKind::PartitionKey)].into_iter());
        let partition_len = layout.partition_len(&key).unwrap();
        let (partition, row) = (key[..partition_len].to_vec(), key[partition_len..].to_vec());
        let guards = vec![RowCondition { partition, row, test }];
        let program = Program { maintained: Some(Maintained { version: 30, guards }), ..Program::default() };
        let context = EvaluationContext::new(SECOND_US, i64::MIN);
        let reply = TabletEvaluator.evaluate(&program.encode(), context, &data, &mut Changes::default()).unwrap();
        ProgramReply::decode(&reply).unwrap()
    };
    assert_eq!((outcome(0, 0), outcome(12, 12)), (ProgramReply::Applied, ProgramReply::Applied));
    // What it writes to the view would lack a column; or the tablet may still take writes that lack it.
    assert_eq!((outcome(12, 0), outcome(20, 12)), (ProgramReply::Outdated, ProgramReply::Outdated));
    assert_eq!((outcome(0, 12), outcome(12, 20)), (ProgramReply::Outdated, ProgramReply::Outdated));
}

#[test]
fn columns_of_views_are_due_before_all_else_and_never_taken_back() {
    let database = crate::testing::Database::with_keyspace();
    database.run("CREATE TABLE t (k int PRIMARY KEY, v int) WITH transactions = {'enabled': true}").unwrap();
    let all = "SELECT * FROM t WHERE v IS NOT NULL AND k IS NOT NULL PRIMARY KEY (v, k)";
    database.run(&format!("CREATE MATERIALIZED VIEW by_v AS {all}")).unwrap();
    let table = || std::sync::Arc::clone(&crate::kv::Kv::catalog(&*database.kv).table("ks", "t").unwrap().table);
    let before = table();
    database.run("ALTER TABLE t ADD w int").unwrap();
    let after = table();
    let id = before.views[0].id;
    let of = |table: &diorite_model::schema::Table| (id, Specification::of_view(table, &table.views[0]));
    let (earlier, later) = (of(&before), of(&after));
    assert_eq!((earlier.1.columns_since(), later.1.columns_since()), (0, after.version));
    let define = IndexStep::Define { index: id, definition: later.1.definition() };
    let due_of =
        |table: &diorite_model::schema::Table, known: &(u64, Specification)| due(table, std::slice::from_ref(known));
    let is_compare = |due: Option<Due>| matches!(due, Some(Due::Step(IndexStep::Compare { .. })));
    assert_eq!(due_of(&after, &earlier), Some(Due::Step(define)));
    assert!(is_compare(due_of(&after, &later)) && is_compare(due_of(&before, &earlier)));
    assert_eq!(due_of(&before, &later), None, "this definition is the older one");
}

#[test]
fn since_when_a_view_has_its_columns_is_read_from_every_form_of_what_is_stored() {
    let compared = [Compared::Nothing, Compared::Before(key(3)), Compared::All, Compared::Failed("why".to_owned())];
    for (compared, since) in compared.into_iter().flat_map(|compared| [(compared.clone(), 0), (compared, 300)]) {
        let stored = view(&[1, 2], since, compared);
        assert_eq!(Specification::stored_columns_since(VIEW, &with_view(&stored)).unwrap(), Some(since), "{stored:?}");
    }
    assert_eq!(Specification::stored_columns_since(VIEW, &Data::default()).unwrap(), None);
    let malformed = Data([(specification_key(VIEW), b"no view".to_vec())].into());
    assert!(Specification::stored_columns_since(VIEW, &malformed).is_err());
}
