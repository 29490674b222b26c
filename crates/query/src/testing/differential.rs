//! Random reads of random data, compared with a naive model that holds all rows in a list and filters, orders, groups
//! and limits them one step at a time.
//!
//! The data come from random `INSERT`, `UPDATE` and `DELETE` (of cells, rows, ranges and partitions); each read is done unpaged and page by page. The model knows
//! nothing of keys, ranges, tablets or pages.

use super::{Database, rendered_rows};
use crate::functions::token_of;
use diorite_cql::protocol::client::{ClientRequest, ClientResponse, Parameters};
use proptest::prelude::*;
use std::collections::BTreeMap;
use std::sync::atomic::Ordering;

/// A write, with its effect on the model.
#[derive(Debug, Clone)]
enum Write {
    Insert(i32, i32, i32, Option<i32>),
    Static(i32, Option<i32>),
    Update(i32, i32, i32, Option<i32>),
    DeleteCell(i32, i32, i32),
    DeleteRow(i32, i32, i32),
    DeletePrefix(i32, i32),
    DeleteRange(i32, i32, i32),
    DeletePartition(i32),
}

#[derive(Debug, Clone, Default)]
struct Cell {
    has_marker: bool,
    v: Option<i32>,
}

#[derive(Debug, Clone, Default)]
struct Partition {
    s: Option<i32>,
    rows: BTreeMap<(i32, i32), Cell>,
}

#[derive(Debug, Default)]
struct Model(BTreeMap<i32, Partition>);

/// A row as a read sees it: without clustering columns if the partition has only a static column.
#[derive(Debug, Clone, PartialEq)]
struct Row {
    k: i32,
    key: Option<(i32, i32)>,
    s: Option<i32>,
    v: Option<i32>,
}

fn text(value: Option<i32>) -> String {
    value.map_or("null".to_owned(), |value| value.to_string())
}

impl Model {
    fn apply(&mut self, write: &Write) -> String {
        match *write {
            Write::Insert(k, a, b, v) => {
                let cell = self.0.entry(k).or_default().rows.entry((a, b)).or_default();
                *cell = Cell { has_marker: true, v };
                format!("INSERT INTO t (k, a, b, v) VALUES ({k}, {a}, {b}, {})", text(v))
            }
            Write::Static(k, s) => {
                self.0.entry(k).or_default().s = s;
                format!("UPDATE t SET s = {} WHERE k = {k}", text(s))
            }
            Write::Update(k, a, b, v) => {
                self.0.entry(k).or_default().rows.entry((a, b)).or_default().v = v;
                format!("UPDATE t SET v = {} WHERE k = {k} AND a = {a} AND b = {b}", text(v))
            }
            Write::DeleteCell(k, a, b) => {
                self.0.entry(k).or_default().rows.entry((a, b)).or_default().v = None;
                format!("DELETE v FROM t WHERE k = {k} AND a = {a} AND b = {b}")
            }
            Write::DeleteRow(k, a, b) => {
                self.0.entry(k).or_default().rows.remove(&(a, b));
                format!("DELETE FROM t WHERE k = {k} AND a = {a} AND b = {b}")
            }
            Write::DeletePrefix(k, a) => {
                self.0.entry(k).or_default().rows.retain(|(of, _), _| *of != a);
                format!("DELETE FROM t WHERE k = {k} AND a = {a}")
            }
            Write::DeleteRange(k, from, to) => {
                self.0.entry(k).or_default().rows.retain(|(a, _), _| !(from..to).contains(a));
                format!("DELETE FROM t WHERE k = {k} AND a >= {from} AND a < {to}")
            }
            Write::DeletePartition(k) => {
                self.0.remove(&k);
                format!("DELETE FROM t WHERE k = {k}")
            }
        }
    }

    /// The rows of a partition in clustering order: `b` is descending.
    fn rows(&self, k: i32, is_whole: bool) -> Vec<Row> {
        let Some(partition) = self.0.get(&k) else { return Vec::new() };
        let live = partition.rows.iter().filter(|(_, cell)| cell.has_marker || cell.v.is_some());
        let mut rows: Vec<Row> =
            live.map(|(key, cell)| Row { k, key: Some(*key), s: partition.s, v: cell.v }).collect();
        rows.sort_by_key(|row| row.key.map(|(a, b)| (a, -b)));
        if rows.is_empty() && is_whole && partition.s.is_some() {
            rows.push(Row { k, key: None, s: partition.s, v: None });
        }
        rows
    }
}

fn write() -> impl Strategy<Value = Write> {
    let (k, a, b) = (0..4i32, 0..4i32, 0..4i32);
    let v = prop::option::weighted(0.8, 0..6i32);
    prop_oneof![
        8 => (k.clone(), a.clone(), b.clone(), v.clone()).prop_map(|(k, a, b, v)| Write::Insert(k, a, b, v)),
        3 => (k.clone(), v.clone()).prop_map(|(k, s)| Write::Static(k, s)),
        3 => (k.clone(), a.clone(), b.clone(), v).prop_map(|(k, a, b, v)| Write::Update(k, a, b, v)),
        1 => (k.clone(), a.clone(), b.clone()).prop_map(|(k, a, b)| Write::DeleteCell(k, a, b)),
        1 => (k.clone(), a.clone(), b).prop_map(|(k, a, b)| Write::DeleteRow(k, a, b)),
        1 => (k.clone(), a.clone()).prop_map(|(k, a)| Write::DeletePrefix(k, a)),
        1 => (k.clone(), a.clone(), a).prop_map(|(k, one, other)| Write::DeleteRange(k, one.min(other), one.max(other))),
        1 => k.prop_map(Write::DeletePartition),
    ]
}

#[derive(Debug, Clone)]
enum Partitions {
    All,
    In(Vec<i32>),
}

/// A restriction of clustering columns; as text, and as a question to a row.
#[derive(Debug, Clone)]
enum Clustering {
    Any,
    A(i32),
    AIn(Vec<i32>),
    ARange(i32, i32),
    ABFrom(i32, i32),
    TupleAfter(i32, i32),
    Tuples(Vec<(i32, i32)>),
}

impl Clustering {
    fn text(&self) -> Option<String> {
        let list = |values: &[i32]| values.iter().map(i32::to_string).collect::<Vec<_>>().join(", ");
        Some(match self {
            Clustering::Any => return None,
            Clustering::A(a) => format!("a = {a}"),
            Clustering::AIn(values) => format!("a IN ({})", list(values)),
            Clustering::ARange(from, to) => format!("a > {from} AND a <= {to}"),
            Clustering::ABFrom(a, b) => format!("a = {a} AND b >= {b}"),
            Clustering::TupleAfter(a, b) => format!("(a, b) > ({a}, {b})"),
            Clustering::Tuples(pairs) => {
                let pairs: Vec<String> = pairs.iter().map(|(a, b)| format!("({a}, {b})")).collect();
                format!("(a, b) IN ({})", pairs.join(", "))
            }
        })
    }

    fn accepts(&self, (a, b): (i32, i32)) -> bool {
        match self {
            Clustering::Any => true,
            Clustering::A(wanted) => a == *wanted,
            Clustering::AIn(values) => values.contains(&a),
            Clustering::ARange(from, to) => a > *from && a <= *to,
            Clustering::ABFrom(wanted, from) => a == *wanted && b >= *from,
            Clustering::TupleAfter(of_a, of_b) => (a, b) > (*of_a, *of_b),
            Clustering::Tuples(pairs) => pairs.contains(&(a, b)),
        }
    }
}

/// A question to the regular column, in `WHERE` or in YCQL's `IF`.
#[derive(Debug, Clone)]
enum Question {
    Above(i32),
    Not(i32),
    NotIn(Vec<i32>),
    Either(i32, i32),
    NotAbove(i32),
}

impl Question {
    fn text(&self) -> (String, bool) {
        match self {
            Question::Above(v) => (format!("v > {v}"), false),
            Question::Not(v) => (format!("v != {v}"), false),
            Question::NotIn(values) => {
                let values: Vec<String> = values.iter().map(i32::to_string).collect();
                (format!("v NOT IN ({})", values.join(", ")), false)
            }
            Question::Either(one, other) => (format!("v = {one} OR v = {other}"), true),
            Question::NotAbove(v) => (format!("NOT (v > {v})"), true),
        }
    }

    fn accepts(&self, v: Option<i32>) -> bool {
        // Null fulfils nothing.
        let Some(v) = v else { return false };
        match self {
            Question::Above(wanted) => v > *wanted,
            Question::Not(wanted) => v != *wanted,
            Question::NotIn(values) => !values.contains(&v),
            Question::Either(one, other) => v == *one || v == *other,
            Question::NotAbove(wanted) => v <= *wanted,
        }
    }
}

#[derive(Debug, Clone, Copy, PartialEq)]
enum Shape {
    Rows,
    ByPartition,
    ByA,
    Count,
}

#[derive(Debug, Clone)]
struct Read {
    partitions: Partitions,
    clustering: Clustering,
    question: Option<Question>,
    is_reversed: bool,
    per_partition: Option<usize>,
    limit: Option<usize>,
    offset: Option<usize>,
    shape: Shape,
    page: i32,
}

fn read() -> impl Strategy<Value = Read> {
    let partitions = prop_oneof![
        Just(Partitions::All),
        prop::collection::btree_set(0..5i32, 1..4).prop_map(|keys| Partitions::In(keys.into_iter().collect())),
        (0..4i32).prop_map(|k| Partitions::In(vec![k])),
    ];
    let few = prop::collection::vec(0..4i32, 1..3);
    let clustering = prop_oneof![
        2 => Just(Clustering::Any),
        1 => (0..4i32).prop_map(Clustering::A),
        1 => few.clone().prop_map(Clustering::AIn),
        1 => (-1..4i32, 0..5i32).prop_map(|(from, to)| Clustering::ARange(from, to)),
        1 => (0..4i32, 0..4i32).prop_map(|(a, b)| Clustering::ABFrom(a, b)),
        1 => (0..4i32, 0..4i32).prop_map(|(a, b)| Clustering::TupleAfter(a, b)),
        1 => prop::collection::vec((0..4i32, 0..4i32), 1..4).prop_map(Clustering::Tuples),
    ];
    let question = prop::option::of(prop_oneof![
        (0..6i32).prop_map(Question::Above),
        (0..6i32).prop_map(Question::Not),
        few.prop_map(Question::NotIn),
        (0..6i32, 0..6i32).prop_map(|(one, other)| Question::Either(one, other)),
        (0..6i32).prop_map(Question::NotAbove),
    ]);
    let count = || prop::option::weighted(0.3, 1..6usize);
    let shape = prop_oneof![4 => Just(Shape::Rows), 1 => Just(Shape::ByPartition), 2 => Just(Shape::ByA), 1 => Just(Shape::Count)];
    (partitions, clustering, question, any::<bool>(), count(), count(), count(), shape, 1..5i32).prop_map(
        |(partitions, clustering, question, is_reversed, per_partition, limit, offset, shape, page)| Read {
            // Only one partition is ordered without being held in memory as a whole.
            is_reversed: is_reversed && matches!(&partitions, Partitions::In(keys) if keys.len() == 1),
            per_partition: per_partition.filter(|_| shape != Shape::Count),
            partitions,
            clustering,
            question,
            limit,
            offset,
            shape,
            page,
        },
    )
}

impl Read {
    fn statement(&self) -> String {
        let mut relations = Vec::new();
        let mut filters = matches!(self.partitions, Partitions::All) && !matches!(self.clustering, Clustering::Any);
        match &self.partitions {
            Partitions::All => {}
            Partitions::In(keys) if keys.len() == 1 => relations.push(format!("k = {}", keys[0])),
            Partitions::In(keys) => {
                let keys: Vec<String> = keys.iter().map(i32::to_string).collect();
                relations.push(format!("k IN ({})", keys.join(", ")));
            }
        }
        relations.extend(self.clustering.text());
        let mut condition = String::new();
        if let Some((text, is_condition)) = self.question.as_ref().map(Question::text) {
            match is_condition {
                true => condition = format!(" IF {text}"),
                false => {
                    relations.push(text);
                    filters = true;
                }
            }
        }
        let (selection, group) = match self.shape {
            Shape::Rows => ("k, a, b, s, v", ""),
            Shape::ByPartition => ("k, s, count(*) AS n, sum(v) AS total, max(v) AS most", " GROUP BY k"),
            Shape::ByA => ("k, a, count(*) AS n, sum(v) AS total, max(v) AS most", " GROUP BY k, a"),
            Shape::Count => ("count(*) AS n, sum(v) AS total, max(v) AS most", ""),
        };
        let whole = if relations.is_empty() { String::new() } else { format!(" WHERE {}", relations.join(" AND ")) };
        let order = if self.is_reversed { " ORDER BY a DESC" } else { "" };
        let number =
            |word: &str, count: Option<usize>| count.map(|count| format!(" {word} {count}")).unwrap_or_default();
        format!(
            "SELECT {selection} FROM t{whole}{condition}{group}{order}{}{}{}{}",
            number("PER PARTITION LIMIT", self.per_partition),
            number("LIMIT", self.limit),
            number("OFFSET", self.offset),
            if filters { " ALLOW FILTERING" } else { "" }
        )
    }

    fn expected(&self, model: &Model) -> Vec<String> {
        let mut keys: Vec<i32> = match &self.partitions {
            Partitions::In(keys) => keys.clone(),
            Partitions::All => model.0.keys().copied().collect(),
        };
        if let Partitions::All = self.partitions {
            keys.sort_by_key(|key| token_of(std::iter::once(&key.to_be_bytes()[..])));
        }
        let is_whole = matches!(self.clustering, Clustering::Any) && self.question.is_none();
        let mut shown = Vec::new();
        let mut everything = Vec::new();
        for key in keys {
            let mut rows = model.rows(key, is_whole);
            rows.retain(|row| row.key.is_none_or(|key| self.clustering.accepts(key)));
            rows.retain(|row| self.question.as_ref().is_none_or(|question| question.accepts(row.v)));
            if self.is_reversed {
                rows.reverse();
            }
            let mut of_partition: Vec<String> = match self.shape {
                Shape::Rows => rows
                    .iter()
                    .map(|row| {
                        let (a, b) = (row.key.map(|key| key.0), row.key.map(|key| key.1));
                        format!("k={} a={} b={} s={} v={}", row.k, text(a), text(b), text(row.s), text(row.v))
                    })
                    .collect(),
                Shape::ByPartition => groups(&rows, |_| None)
                    .iter()
                    .map(|group| format!("k={} s={} {}", group[0].k, text(group[0].s), aggregated(group)))
                    .collect(),
                Shape::ByA => groups(&rows, |row| row.key.map(|key| key.0))
                    .iter()
                    .map(|group| {
                        format!("k={} a={} {}", group[0].k, text(group[0].key.map(|key| key.0)), aggregated(group))
                    })
                    .collect(),
                Shape::Count => Vec::new(),
            };
            of_partition.truncate(self.per_partition.unwrap_or(usize::MAX));
            shown.extend(of_partition);
            everything.extend(rows);
        }
        if self.shape == Shape::Count {
            shown.push(aggregated(&everything));
        }
        shown.into_iter().skip(self.offset.unwrap_or(0)).take(self.limit.unwrap_or(usize::MAX)).collect()
    }
}

/// Neighbouring rows with something in common.
fn groups(rows: &[Row], of: impl Fn(&Row) -> Option<i32>) -> Vec<Vec<Row>> {
    let mut groups: Vec<Vec<Row>> = Vec::new();
    for row in rows {
        match groups.last_mut().filter(|group| of(&group[0]) == of(row)) {
            Some(group) => group.push(row.clone()),
            None => groups.push(vec![row.clone()]),
        }
    }
    groups
}

fn aggregated(rows: &[Row]) -> String {
    let values: Vec<i32> = rows.iter().filter_map(|row| row.v).collect();
    format!("n={} total={} most={}", rows.len(), values.iter().sum::<i32>(), text(values.iter().max().copied()))
}

fn paged(database: &Database, statement: &str, size: i32) -> Vec<String> {
    let (mut all, mut state) = (Vec::new(), None);
    loop {
        let parameters = Parameters { page_size: Some(size), paging_state: state.as_deref(), ..Parameters::default() };
        let response = database.send(&ClientRequest::Query { statement, parameters });
        let Ok(ClientResponse::Rows(rows)) = response else { panic!("{statement}: {response:?}") };
        assert!(rows.rows.len() <= size as usize, "a page has at most its size");
        all.extend(rendered_rows(&rows));
        state = rows.metadata.paging_state;
        if state.is_none() {
            return all;
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 150, ..ProptestConfig::default() })]

    #[test]
    fn reads_give_what_the_model_says(
        writes in prop::collection::vec(write(), 1..50),
        reads in prop::collection::vec(read(), 1..25),
    ) {
        let database = Database::with_keyspace();
        database
            .run("CREATE TABLE t (k int, a int, b int, s int STATIC, v int, PRIMARY KEY (k, a, b)) WITH CLUSTERING ORDER BY (a ASC, b DESC)")
            .unwrap();
        let mut model = Model::default();
        for write in &writes {
            let statement = model.apply(write);
            database.run(&statement).unwrap();
        }
        for read in &reads {
            let statement = read.statement();
            let expected = read.expected(&model);
            prop_assert_eq!(&database.rows(&statement), &expected, "{}", statement);
            prop_assert_eq!(&paged(&database, &statement, read.page), &expected, "{} by pages of {}", statement, read.page);
            // As above, on a node whose leaders do not serve its version of the table: it aggregates by itself.
            database.kv.declines_tasks.store(true, Ordering::Relaxed);
            prop_assert_eq!(&database.rows(&statement), &expected, "{}", statement);
            prop_assert_eq!(&paged(&database, &statement, read.page), &expected, "{} by pages of {}", statement, read.page);
            database.kv.declines_tasks.store(false, Ordering::Relaxed);
        }
    }
}
