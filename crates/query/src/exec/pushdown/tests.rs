//! Pushdown sends no rows; parts give the same as the whole; no bytes make decoding panic.

#![allow(clippy::unwrap_used, reason = "test data is known")]

use super::{PartialAggregator, Reply, Task};
use crate::exec::partial::{Limits, Partial};
use crate::kv::Fetched;
use crate::testing::{Database, rendered_rows};
use diorite_base::TableId;
use diorite_base::bytes::Reader;
use diorite_cluster::catalog::Catalog;
use diorite_cql::protocol::Value;
use diorite_cql::protocol::client::ClientResponse;
use num_bigint::BigInt;
use proptest::prelude::*;
use std::sync::atomic::Ordering;

/// Runs a statement; also how many entries came to the node that asked.
fn shipped(database: &Database, run: impl FnOnce() -> Vec<String>) -> (Vec<String>, usize) {
    let before = database.kv.shipped.load(Ordering::Relaxed);
    let rows = run();
    (rows, database.kv.shipped.load(Ordering::Relaxed) - before)
}

fn filled() -> Database {
    let database = Database::with_keyspace();
    database.run("CREATE TYPE place (x int, y int)").unwrap();
    database
        .run(
            "CREATE TABLE t (k int, c int, s int STATIC, v int, m map<text, int>, p frozen<place>, PRIMARY KEY (k, c))",
        )
        .unwrap();
    for number in 0..60 {
        let (k, c) = (number % 6, number / 6);
        database
            .run(&format!(
                "INSERT INTO t (k, c, s, v, m, p) VALUES ({k}, {c}, {k}, {number}, {{'n': {number}}}, {{x: {c}, y: {k}}})"
            ))
            .unwrap();
    }
    database
}

#[test]
fn no_row_travels_and_what_cannot_be_aggregated_there_is_aggregated_here() {
    let database = filled();
    database.run("DELETE FROM t WHERE k = 2 AND c > 7").unwrap();
    for statement in [
        "SELECT count(*), sum(v), min(v), max(v), avg(v) FROM t",
        "SELECT count(*), s, k FROM t WHERE k = 2",
        "SELECT k, s, count(*), max(m['n']), min(p.x) FROM t GROUP BY k",
        "SELECT k, c, sum(v) FROM t GROUP BY k, c LIMIT 7",
        "SELECT c, sum(v) FROM t WHERE k = 3 GROUP BY c ORDER BY c DESC",
        "SELECT k, count(*), writetime(v), m FROM t WHERE k IN (1, 4, 9) AND c > 2 AND c <= 6 GROUP BY k",
        "SELECT JSON count(*), sum(v) FROM t WHERE v > 10 ALLOW FILTERING",
        "SELECT sum(cast(v AS double)), count(p.y) FROM t WHERE p = {x: 1, y: 2} ALLOW FILTERING",
        "SELECT k FROM t GROUP BY k",
        "SELECT max(v) FROM t WHERE token(k) > 0",
        "SELECT count(*) FROM t IF v = 3 OR NOT (c > 2)",
        "SELECT count(*), sum(v) FROM t WHERE k = 3 AND c = 4",
        "SELECT count(*), sum(v), max(c) FROM t WHERE k = 3 AND c IN (0, 2, 4, 5, 77)",
        "SELECT count(*), sum(v), min(c) FROM t WHERE k IN (5, 1, 3, 9) AND c IN (0, 2, 4, 5, 77)",
        "SELECT k, c, count(*), sum(v) FROM t WHERE k IN (5, 1, 3, 9) AND c IN (0, 2, 4, 5, 77)",
        "SELECT k, c, sum(v) FROM t WHERE k IN (5, 1, 3, 9) AND c IN (0, 2, 4, 5) GROUP BY k, c",
        "SELECT k, c, sum(v) FROM t WHERE k IN (5, 2, 3) AND c IN (0, 2, 9) GROUP BY k, c LIMIT 4",
        "SELECT c, count(*) FROM t WHERE k = 3 AND c IN (0, 2, 4, 5) GROUP BY c ORDER BY c DESC",
        "SELECT count(*), sum(v) FROM t WHERE k IN (0, 1, 2, 3, 4, 5)",
        "SELECT sum(v) FROM t WHERE k IN (0, 2, 5) AND c IN (9, 8, 7) AND s = 2 ALLOW FILTERING",
        "SELECT max(v), avg(v) FROM t WHERE k IN (2, 1) AND c > 1 AND c < 8 ORDER BY c",
    ] {
        let (there, travelled) = shipped(&database, || database.rows(statement));
        assert_eq!(travelled, 0, "{statement}");
        database.kv.declines_tasks.store(true, Ordering::Relaxed);
        let (here, travelled) = shipped(&database, || database.rows(statement));
        database.kv.declines_tasks.store(false, Ordering::Relaxed);
        assert!(travelled > 0, "{statement}");
        assert_eq!(there, here, "{statement}");
    }
}

/// The result of a statement, aggregated by the leaders and aggregated here, which must be equal; the former must send
/// no rows.
fn aggregated_both_ways(database: &Database, statement: &str) -> Vec<String> {
    let (there, travelled) = shipped(database, || database.rows(statement));
    assert_eq!(travelled, 0, "{statement}");
    database.kv.declines_tasks.store(true, Ordering::Relaxed);
    let here = database.rows(statement);
    database.kv.declines_tasks.store(false, Ordering::Relaxed);
    assert_eq!(there, here, "{statement}");
    there
}

#[test]
fn partitions_of_static_columns_alone_count_once_however_the_pieces_fall() {
    let database = filled();
    for k in [2, 4, 5] {
        database.run(&format!("DELETE FROM t WHERE k = {k} AND c >= 0")).unwrap();
    }
    database.run("DELETE FROM t WHERE k = 1").unwrap();
    for named in ["0, 1, 2, 3, 4, 5", "4, 5", "2, 4, 5", "5, 2", "2", "1, 2", "1"] {
        let list: Vec<i32> = named.split(", ").map(|k| k.parse().unwrap()).collect();
        let rows: i32 = list.iter().map(|k| [10, 0, 1, 10, 1, 1][*k as usize]).sum();
        let found = aggregated_both_ways(&database, &format!("SELECT count(*) AS n FROM t WHERE k IN ({named})"));
        assert_eq!(found, [format!("n={rows}")], "{named}");
        // A restriction on clustering columns selects rows; without a match there is no static-only row.
        let found = aggregated_both_ways(
            &database,
            &format!("SELECT count(*) AS n FROM t WHERE k IN ({named}) AND c IN (1, 2)"),
        );
        let rows: i32 = list.iter().map(|k| [2, 0, 0, 2, 0, 0][*k as usize]).sum();
        assert_eq!(found, [format!("n={rows}")], "{named}");
    }
}

#[test]
fn many_named_keys_are_aggregated_piece_by_piece() {
    let database = Database::with_keyspace();
    database.run("CREATE TABLE wide (k int, c int, v int, PRIMARY KEY (k, c))").unwrap();
    database.run("CREATE TABLE narrow (k int PRIMARY KEY, v int)").unwrap();
    for number in 0..50 {
        database.run(&format!("INSERT INTO wide (k, c, v) VALUES (1, {}, {number})", number * 300)).unwrap();
        database.run(&format!("INSERT INTO narrow (k, v) VALUES ({}, {number})", number * 300)).unwrap();
    }
    let named = |count: i32| (0..count).map(|number| number.to_string()).collect::<Vec<_>>().join(", ");
    let (many, few) = (named(15_000), named(400));
    let sum: i32 = (0..50).sum();
    for (table, whole) in [("wide", "k = 1 AND c"), ("narrow", "k")] {
        let statement = format!("SELECT count(*) AS n, sum(v) AS s FROM {table} WHERE {whole} IN ({many})");
        assert_eq!(aggregated_both_ways(&database, &statement), [format!("n=50 s={sum}")]);
    }
    let groups: Vec<String> = (0..50).map(|number| format!("c={} n=1", number * 300)).collect();
    let statement = format!("SELECT c, count(*) AS n FROM wide WHERE k = 1 AND c IN ({many}) GROUP BY k, c");
    assert_eq!(aggregated_both_ways(&database, &statement), groups);
    assert_eq!(
        aggregated_both_ways(&database, &format!("SELECT k, count(*) AS n FROM narrow WHERE k IN ({few}) GROUP BY k")),
        ["k=0 n=1", "k=300 n=1"]
    );
    // To take so long a statement to each of its partitions would cost more than their rows.
    let statement = format!("SELECT k, count(*) AS n FROM narrow WHERE k IN ({many}) GROUP BY k");
    let (found, travelled) = shipped(&database, || database.rows(&statement));
    assert_eq!((found.len(), travelled), (50, 50));
}

#[test]
fn bound_values_and_keyspaces_are_meant_as_here() {
    let database = filled();
    let elsewhere = database.another();
    elsewhere.run("CREATE KEYSPACE other").unwrap();
    elsewhere.run("CREATE TABLE other.t (k int PRIMARY KEY, v int)").unwrap();
    let prepared = database.prepare("SELECT count(*), sum(v) FROM t WHERE v >= :least AND m['n'] < ? ALLOW FILTERING");
    let (least, below) = (20i32.to_be_bytes(), 30i32.to_be_bytes());
    let values = [Value::Set(&least), Value::Set(&below)];
    let (rows, travelled) = shipped(&database, || match database.execute(&prepared.unwrap(), &values) {
        Ok(ClientResponse::Rows(rows)) => rendered_rows(&rows),
        other => panic!("{other:?}"),
    });
    assert_eq!((rows, travelled), (vec!["count=10 system.sum(v)=245".to_owned()], 0));
}

#[test]
fn a_failure_is_told_as_if_the_rows_had_been_here() {
    let database = filled();
    let error = database.run("SELECT sum(v / s) FROM t").unwrap_err();
    assert!(error.message.contains("the operation 'int / int' failed"), "{}", error.message);
}

#[test]
fn a_task_for_another_version_of_the_table_is_declined() {
    let task = Task {
        left_ms: Some(7),
        table: TableId(7),
        version: 1,
        keyspace: "ks",
        statement: "SELECT count(*) FROM ks.t",
        values: Vec::new(),
        now_us: 0,
        now_s: 0,
        ends_partition: true,
        partial: &[],
    };
    let reply = PartialAggregator::default().aggregate(&Catalog::default(), &task.encode(), &Fetched::default());
    assert!(matches!(Reply::decode(3, &reply), Ok(Reply::Declined)));
}

/// A row of numbers of every type.
#[derive(Debug, Clone)]
struct Numbers {
    tiny: i8,
    small: i16,
    int: Option<i32>,
    big: i64,
    huge: i64,
    cents: i64,
    double: i32,
    word: String,
}

fn numbers() -> impl Strategy<Value = Numbers> {
    (any::<(i8, i16, Option<i32>, i64, i64)>(), -1_000_000..1_000_000i64, -1_000_000..1_000_000i32, "[a-c]{1,3}")
        .prop_map(|((tiny, small, int, big, huge), cents, double, word)| Numbers {
            tiny,
            small,
            int,
            big,
            huge,
            cents,
            double,
            word,
        })
}

/// Hundredths as a decimal with two digits.
fn decimal(cents: i128) -> String {
    format!("{}{}.{:02}", if cents < 0 { "-" } else { "" }, cents.abs() / 100, cents.abs() % 100)
}

fn half_even(sum: i128, count: i128) -> i128 {
    let (quotient, rest) = (sum / count, (sum % count).abs() * 2);
    let is_up = rest > count || (rest == count && quotient % 2 != 0);
    if is_up { quotient + sum.signum() } else { quotient }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 60, ..ProptestConfig::default() })]

    #[test]
    fn aggregates_over_tablets_give_what_the_model_says(rows in prop::collection::vec(numbers(), 1..40)) {
        let database = Database::with_keyspace();
        database.run("CREATE TABLE n (k int PRIMARY KEY, a tinyint, b smallint, c int, d bigint, e varint, f decimal, g double, w text)").unwrap();
        for (k, row) in rows.iter().enumerate() {
            let int = row.int.map_or("null".to_owned(), |value| value.to_string());
            database.run(&format!(
                "INSERT INTO n (k, a, b, c, d, e, f, g, w) VALUES ({k}, {}, {}, {int}, {}, {}, {}, {}, '{}')",
                row.tiny, row.small, row.big, row.huge, decimal(row.cents.into()), row.double, row.word
            )).unwrap();
        }
        let count = rows.len() as i128;
        let sum = |of: &dyn Fn(&Numbers) -> i128| rows.iter().map(of).sum::<i128>();
        let (tiny, small, big) = (sum(&|row| row.tiny.into()), sum(&|row| row.small.into()), sum(&|row| row.big.into()));
        let ints: Vec<i128> = rows.iter().filter_map(|row| row.int.map(i128::from)).collect();
        let int: i128 = ints.iter().sum();
        let huge: BigInt = rows.iter().map(|row| BigInt::from(row.huge)).sum();
        let (cents, double) = (sum(&|row| row.cents.into()), sum(&|row| row.double.into()));
        let expected = [
            ("count(c)", ints.len().to_string()),
            ("sum(a)", (tiny as i8).to_string()),
            ("avg(a)", (tiny / count).to_string()),
            ("sum(b)", (small as i16).to_string()),
            ("sum(c)", (int as i32).to_string()),
            ("avg(c)", (int / (ints.len() as i128).max(1)).to_string()),
            ("sum(d)", (big as i64).to_string()),
            ("avg(d)", (big / count).to_string()),
            ("sum(e)", huge.to_string()),
            ("avg(e)", (&huge / BigInt::from(count)).to_string()),
            ("sum(f)", decimal(cents)),
            ("avg(f)", decimal(half_even(cents, count))),
            ("sum(cast(g AS bigint))", double.to_string()),
            ("min(w)", format!("'{}'", rows.iter().map(|row| &row.word).min().unwrap())),
            ("max(w)", format!("'{}'", rows.iter().map(|row| &row.word).max().unwrap())),
        ];
        let numbered = || expected.iter().enumerate();
        let selected: Vec<String> = numbered().map(|(at, (call, _))| format!("{call} AS c{at}")).collect();
        let values: Vec<String> = numbered().map(|(at, (_, value))| format!("c{at}={value}")).collect();
        let (found, travelled) = shipped(&database, || database.rows(&format!("SELECT {} FROM n", selected.join(", "))));
        prop_assert_eq!((found, travelled), (vec![values.join(" ")], 0));
        // Doubles that are whole numbers add up exactly, whatever the order.
        prop_assert_eq!(database.rows("SELECT cast(sum(g) AS bigint) AS g FROM n"), vec![format!("g={double}")]);
    }

    #[test]
    fn no_bytes_panic(bytes: Vec<u8>, columns in 0..4usize) {
        let _ = Task::decode(&bytes);
        let _ = Reply::decode(columns, &bytes);
        let _ = Partial::decode(columns, &mut Reader::new(&bytes));
    }

    #[test]
    fn partials_come_back_as_they_went(
        numbers: (u64, u64, u64, u64),
        page_bytes in prop_oneof![Just(usize::MAX), 0..1_000usize],
        partition: Vec<u8>,
        position: Vec<u8>,
        body: Vec<u8>,
        flags: (bool, bool),
    ) {
        let limits = Limits {
            rows: numbers.0, rows_per_partition: numbers.1, offset: numbers.2, page_rows: numbers.3, page_bytes,
        };
        let partial = Partial {
            partition, position, body, has_rows: flags.0, is_partition_done: flags.1, row_count: 3, ..Partial::begin(limits)
        };
        let mut encoded = Vec::new();
        partial.encode(&[], &mut encoded);
        let mut again = Vec::new();
        Partial::decode(0, &mut Reader::new(&encoded)).unwrap().encode(&[], &mut again);
        prop_assert_eq!(encoded, again);
    }
}
