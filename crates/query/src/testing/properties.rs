//! Random histories of writes against a naive model, read back in many ways.
//!
//! The model keeps, for each partition, a map of rows and knows nothing of timestamps: all writes carry the server's, so what comes later
//! wins.

use super::{Database, rendered_rows};
use diorite_cql::protocol::client::{ClientRequest, ClientResponse, Parameters};
use proptest::prelude::*;
use std::collections::BTreeMap;
use std::fmt::Write;

#[derive(Debug, Clone)]
enum Step {
    Insert(u8, u8, Option<u8>, Option<u8>),
    UpdateV(u8, u8, Option<u8>),
    UpdateStatic(u8, Option<u8>),
    InsertIfNotExists(u8, u8, u8),
    UpdateIf(u8, u8, u8, u8),
    DeleteRow(u8, u8),
    DeleteCell(u8, u8),
    DeleteRange(u8, u8, u8),
    DeletePartition(u8),
    BatchInsert(u8, u8, u8),
}

fn step() -> impl Strategy<Value = Step> {
    let (k, c, v) = (0u8..4, 0u8..6, 0u8..5);
    let maybe = proptest::option::of(0u8..5);
    prop_oneof![
        6 => (k.clone(), c.clone(), maybe.clone(), maybe.clone()).prop_map(|(k, c, v, w)| Step::Insert(k, c, v, w)),
        3 => (k.clone(), c.clone(), maybe.clone()).prop_map(|(k, c, v)| Step::UpdateV(k, c, v)),
        2 => (k.clone(), maybe).prop_map(|(k, s)| Step::UpdateStatic(k, s)),
        2 => (k.clone(), c.clone(), v.clone()).prop_map(|(k, c, v)| Step::InsertIfNotExists(k, c, v)),
        2 => (k.clone(), c.clone(), v.clone(), v.clone()).prop_map(|(k, c, old, new)| Step::UpdateIf(k, c, old, new)),
        2 => (k.clone(), c.clone()).prop_map(|(k, c)| Step::DeleteRow(k, c)),
        1 => (k.clone(), c.clone()).prop_map(|(k, c)| Step::DeleteCell(k, c)),
        2 => (k.clone(), c.clone(), c.clone()).prop_map(|(k, a, b)| Step::DeleteRange(k, a.min(b), a.max(b))),
        1 => k.clone().prop_map(Step::DeletePartition),
        2 => (k, c, v).prop_map(|(k, c, v)| Step::BatchInsert(k, c, v)),
    ]
}

#[derive(Debug, Clone, Default, PartialEq)]
struct Row {
    has_marker: bool,
    v: Option<u8>,
    w: Option<u8>,
}

impl Row {
    fn exists(&self) -> bool {
        self.has_marker || self.v.is_some() || self.w.is_some()
    }
}

#[derive(Debug, Clone, Default)]
struct Partition {
    s: Option<u8>,
    rows: BTreeMap<u8, Row>,
}

#[derive(Debug, Default)]
struct Model(BTreeMap<u8, Partition>);

fn literal(value: Option<u8>) -> String {
    value.map_or("null".to_owned(), |value| value.to_string())
}

impl Model {
    fn row(&mut self, k: u8, c: u8) -> &mut Row {
        self.0.entry(k).or_default().rows.entry(c).or_default()
    }

    /// Applies a step; returns the statement, and for a conditional one whether it applies.
    fn apply(&mut self, step: &Step) -> (String, Option<bool>) {
        match *step {
            Step::Insert(k, c, v, w) => {
                *self.row(k, c) = Row { has_marker: true, v, w };
                let (v, w) = (literal(v), literal(w));
                (format!("INSERT INTO t (k, c, v, w) VALUES ({k}, {c}, {v}, {w})"), None)
            }
            Step::UpdateV(k, c, v) => {
                self.row(k, c).v = v;
                (format!("UPDATE t SET v = {} WHERE k = {k} AND c = {c}", literal(v)), None)
            }
            Step::UpdateStatic(k, s) => {
                self.0.entry(k).or_default().s = s;
                (format!("UPDATE t SET s = {} WHERE k = {k}", literal(s)), None)
            }
            Step::InsertIfNotExists(k, c, v) => {
                let applies = !self.row(k, c).exists();
                if applies {
                    *self.row(k, c) = Row { has_marker: true, v: Some(v), w: self.row(k, c).w };
                }
                (format!("INSERT INTO t (k, c, v) VALUES ({k}, {c}, {v}) IF NOT EXISTS"), Some(applies))
            }
            Step::UpdateIf(k, c, old, new) => {
                let applies = self.row(k, c).v == Some(old);
                if applies {
                    self.row(k, c).v = Some(new);
                }
                (format!("UPDATE t SET v = {new} WHERE k = {k} AND c = {c} IF v = {old}"), Some(applies))
            }
            Step::DeleteRow(k, c) => {
                *self.row(k, c) = Row::default();
                (format!("DELETE FROM t WHERE k = {k} AND c = {c}"), None)
            }
            Step::DeleteCell(k, c) => {
                self.row(k, c).v = None;
                (format!("DELETE v FROM t WHERE k = {k} AND c = {c}"), None)
            }
            Step::DeleteRange(k, from, to) => {
                self.0.entry(k).or_default().rows.retain(|c, _| !(from..to).contains(c));
                (format!("DELETE FROM t WHERE k = {k} AND c >= {from} AND c < {to}"), None)
            }
            Step::DeletePartition(k) => {
                self.0.remove(&k);
                (format!("DELETE FROM t WHERE k = {k}"), None)
            }
            Step::BatchInsert(k, c, v) => {
                let mut text = "BEGIN BATCH ".to_owned();
                for (k, c) in [(k, c), ((k + 1) % 4, c)] {
                    *self.row(k, c) = Row { has_marker: true, v: Some(v), w: self.row(k, c).w };
                    let _ = write!(text, "INSERT INTO t (k, c, v) VALUES ({k}, {c}, {v}); ");
                }
                (text + "APPLY BATCH", None)
            }
        }
    }

    /// The rows of a partition as a full read shows them.
    fn shown(&self, k: u8) -> Vec<String> {
        let Some(partition) = self.0.get(&k) else { return Vec::new() };
        let s = literal(partition.s);
        let live = partition.rows.iter().filter(|(_, row)| row.exists());
        let rows: Vec<String> =
            live.map(|(c, row)| format!("k={k} c={c} s={s} v={} w={}", literal(row.v), literal(row.w))).collect();
        if rows.is_empty() && partition.s.is_some() {
            return vec![format!("k={k} c=null s={s} v=null w=null")];
        }
        rows
    }
}

fn paged(database: &Database, statement: &str) -> Vec<String> {
    let (mut all, mut state) = (Vec::new(), None);
    loop {
        let parameters = Parameters { page_size: Some(3), paging_state: state.as_deref(), ..Parameters::default() };
        let response = database.send(&ClientRequest::Query { statement, parameters }).unwrap();
        let ClientResponse::Rows(rows) = response else { panic!("{statement}: {response:?}") };
        all.extend(rendered_rows(&rows));
        state = rows.metadata.paging_state;
        if state.is_none() {
            return all;
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 200, ..ProptestConfig::default() })]

    #[test]
    fn random_histories_read_as_the_model_says(steps in proptest::collection::vec(step(), 1..60)) {
        let database = Database::with_keyspace();
        database.run("CREATE TABLE t (k int, c int, s int STATIC, v int, w int, PRIMARY KEY (k, c))").unwrap();
        let mut model = Model::default();
        for step in &steps {
            let (statement, applies) = model.apply(step);
            let response = database.run(&statement).unwrap();
            if let Some(applies) = applies {
                let ClientResponse::Rows(rows) = response else { panic!("{statement}: {response:?}") };
                let shown = rendered_rows(&rows);
                prop_assert!(shown[0].starts_with(&format!("[applied]={applies}")), "{} gave {:?}", statement, shown);
            }
        }
        let mut everything: Vec<String> = Vec::new();
        for k in 0..4u8 {
            let expected = model.shown(k);
            prop_assert_eq!(&database.rows(&format!("SELECT * FROM t WHERE k = {k}")), &expected);
            let reversed = paged(&database, &format!("SELECT * FROM t WHERE k = {k} ORDER BY c DESC"));
            prop_assert_eq!(reversed.into_iter().rev().collect::<Vec<_>>(), expected.clone());
            let middle = database.rows(&format!("SELECT * FROM t WHERE k = {k} AND c >= 2 AND c < 5"));
            let wanted = |row: &&String| ["c=2", "c=3", "c=4"].iter().any(|c| row.contains(c));
            prop_assert_eq!(&middle, &expected.iter().filter(wanted).cloned().collect::<Vec<_>>());
            let filtered = database.rows(&format!("SELECT * FROM t WHERE k = {k} AND v > 2 ALLOW FILTERING"));
            let wanted = |row: &&String| row.contains("v=3") || row.contains("v=4");
            prop_assert_eq!(&filtered, &expected.iter().filter(wanted).cloned().collect::<Vec<_>>());
            everything.extend(expected);
        }
        let mut scanned = paged(&database, "SELECT * FROM t");
        scanned.sort();
        everything.sort();
        prop_assert_eq!(&scanned, &everything);
        prop_assert_eq!(database.rows("SELECT COUNT(*) FROM t"), vec![format!("count={}", everything.len())]);
        prop_assert_eq!(paged(&database, "SELECT k, c FROM t WHERE k IN (0, 1, 2, 3)").len(), everything.len());
    }
}
