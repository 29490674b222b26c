//! Reads by index give what the same reads give from a table without indexes, row by row and page by page.

use super::{Database, rendered_rows};
use crate::kv::{Kv, KvError};
use diorite_cql::protocol::client::{ClientRequest, ClientResponse, Parameters};
use diorite_cql::protocol::{CqlError, Value};
use diorite_model::key::token_of;
use diorite_model::token::token;
use proptest::prelude::*;
use std::sync::atomic::Ordering;

const COLUMNS: &str = "(k int, p int, c int, s int STATIC, v int, w text, tags set<int>, m map<int, int>, l list<int>, \
                       f frozen<set<int>>, j jsonb, PRIMARY KEY ((k, p), c))";
const INDEXES: [&str; 14] = [
    "CREATE INDEX ON t (v) USING 'sai'",
    "CREATE INDEX by_w ON t (w)",
    "CREATE INDEX ON t (s)",
    "CREATE INDEX ON t (p)",
    "CREATE CUSTOM INDEX ON t (c) USING 'StorageAttachedIndex'",
    "CREATE INDEX ON t (tags)",
    "CREATE INDEX ON t (KEYS(m))",
    "CREATE INDEX ON t (ENTRIES(m))",
    "CREATE INDEX ON t (VALUES(l))",
    "CREATE INDEX ON t (FULL(f))",
    "CREATE INDEX ON t (v) WHERE w != 'w1' AND c >= 1",
    "CREATE INDEX ON t (tags) WHERE s = 1 AND v < 3",
    "CREATE INDEX ON t (j->'a'->>'b')",
    "CREATE INDEX ON t (j->'c'->>1)",
];

/// Statements about table `#`.
fn write() -> impl Strategy<Value = String> {
    let (k, p, c, x) = (0u8..3, 0u8..2, 0u8..4, 0u8..4);
    let key = (k, p, c);
    let using = prop_oneof![
        6 => Just(String::new()),
        2 => (1u32..30).prop_map(|us| format!("TIMESTAMP {us}")),
        2 => (1u32..8).prop_map(|ttl| format!("TTL {ttl}")),
        1 => (1u32..30, 1u32..8).prop_map(|(us, ttl)| format!("TIMESTAMP {us} AND TTL {ttl}")),
    ];
    let using = using.prop_map(|using| if using.is_empty() { using } else { format!("USING {using}") });
    let value = proptest::option::of(x.clone()).prop_map(|x| x.map_or("null".to_owned(), |x| x.to_string()));
    (key, (x.clone(), x, value), using, 0u8..21).prop_map(|((k, p, c), (x, y, v), using, kind)| {
        let row = format!("WHERE k = {k} AND p = {p} AND c = {c}");
        let partition = format!("WHERE k = {k} AND p = {p}");
        match kind {
            0..=2 => format!(
                "INSERT INTO # (k, p, c, v, w, tags, f) VALUES ({k}, {p}, {c}, {v}, 'w{x}', {{{x}, {y}}}, {{{x}, {y}}}) {using}"
            ),
            3 => format!("INSERT INTO # (k, p, c, v) VALUES ({k}, {p}, {c}, {v}) {using}"),
            4 => format!("UPDATE # {using} SET v = {v} {row}"),
            5 => format!("UPDATE # {using} SET s = {v} {partition}"),
            6 => format!("UPDATE # {using} SET m[{x}] = {v} {row}"),
            7 => format!("UPDATE # {using} SET m = {{{x}: {y}, {y}: 0}} {row}"),
            8 => format!("UPDATE # {using} SET l = l + [{x}, {y}] {row}"),
            9 => format!("UPDATE # SET tags = tags - {{{x}}} {row}"),
            10 => format!("INSERT INTO # (k, p, s) VALUES ({k}, {p}, {x}) {using}"),
            11 => format!("DELETE FROM # {row}"),
            12 => format!("DELETE v FROM # {row}"),
            13 => format!("DELETE FROM # {partition} AND c >= {x}"),
            14 => format!("DELETE FROM # {partition}"),
            16 | 17 => format!(
                "INSERT INTO # (k, p, c, j) VALUES ({k}, {p}, {c}, '{{\"a\":{{\"b\":\"w{x}\"}},\"c\":[0,{y}]}}') {using}"
            ),
            18 => format!("UPDATE # {using} SET j = '{{\"a\":{{\"b\":{x}}},\"c\":[null,\"{y}\"]}}' {row}"),
            19 => format!("UPDATE # SET j->'a'->'b' = '\"w{x}\"' {row}"),
            20 => format!("UPDATE # SET j->'c'->1 = '{x}' {row} IF j->'a'->>'b' = 'w{y}'"),
            15 => format!("UPDATE # SET v = {x} {row} IF v = {y}"),
            _ => format!("INSERT INTO # (k, p, c, v) VALUES ({k}, {p}, {c}, {x}) IF NOT EXISTS"),
        }
    })
}

/// Reads of table `#`.
fn reads() -> Vec<String> {
    let mut reads = Vec::new();
    for x in 0..4 {
        let y = (x + 1) % 4;
        let conditions = [
            format!("v = {x}"),
            format!("v >= {x}"),
            format!("v > {x} AND v <= {}", x + 2),
            format!("v IN ({x}, {y}, {x})"),
            format!("w = 'w{x}'"),
            format!("s = {x}"),
            format!("p = {x}"),
            format!("c = {x}"),
            format!("c > {x}"),
            format!("tags CONTAINS {x}"),
            format!("m CONTAINS KEY {x}"),
            format!("m[{x}] = {y}"),
            format!("l CONTAINS {x}"),
            format!("f = {{{x}, {y}}}"),
            format!("v = {x} AND w = 'w{y}'"),
            format!("v = {x} AND s = {y}"),
            format!("k = 1 AND p = 1 AND v = {x}"),
            format!("k IN (0, 2) AND p IN (0, 1) AND s = {x}"),
            format!("k = 0 AND p = 0 AND c >= 1 AND v = {x}"),
            format!("k = 0 AND p = 0 AND c = 1 AND v = {x}"),
            format!("tags CONTAINS {x} AND tags CONTAINS {y}"),
            format!("v = {x} AND w != 'w1' AND c >= 1"),
            format!("j->'a'->>'b' = 'w{x}'"),
            format!("j->'a'->>'b' IN ('{x}', 'w{y}')"),
            format!("j->'c'->>1 = '{x}'"),
            format!("j->'c'->>1 = '{x}' AND j->'a'->>'b' = 'w{y}'"),
            format!("k = 1 AND p = 1 AND j->'c'->>1 = '{x}'"),
            format!("tags CONTAINS {x} AND s = 1 AND v < 3"),
            format!("k = 1 AND p = 1 AND c >= 1 AND v = {x} AND w != 'w1'"),
        ];
        for condition in conditions {
            reads.push(format!("SELECT * FROM # WHERE {condition}"));
            reads.push(format!("SELECT k, p, c FROM # WHERE {condition} PER PARTITION LIMIT 1"));
            reads.push(format!("SELECT c, v, s, ttl(v) FROM # WHERE {condition} LIMIT 2"));
            reads.push(format!("SELECT COUNT(*), MAX(v) FROM # WHERE {condition}"));
            reads.push(format!("SELECT k, p, COUNT(*) FROM # WHERE {condition} GROUP BY k, p"));
        }
        reads.push(format!("SELECT DISTINCT k, p, s FROM # WHERE s = {x}"));
    }
    reads
}

fn pages(database: &Database, statement: &str, page_size: i32) -> Result<Vec<String>, CqlError> {
    let (mut all, mut state) = (Vec::new(), None);
    for _ in 0..10_000 {
        let parameters =
            Parameters { page_size: Some(page_size), paging_state: state.as_deref(), ..Parameters::default() };
        let response = database.send(&ClientRequest::Query { statement, parameters })?;
        let ClientResponse::Rows(rows) = response else { panic!("{statement}: {response:?}") };
        all.extend(rendered_rows(&rows));
        state = rows.metadata.paging_state;
        if state.is_none() {
            return Ok(all);
        }
    }
    panic!("{statement}: paging does not end")
}

fn check(database: &Database) {
    for (nth, read) in reads().into_iter().enumerate() {
        // Some reads find all in memory, others have to wait.
        database.kv.is_cold.store(nth % 2 == 1, Ordering::Relaxed);
        let by_index = read.replace('#', "t");
        let by_rows = format!("{} ALLOW FILTERING", read.replace('#', "u"));
        let mut expected = database.rows(&by_rows);
        let mut found = pages(database, &by_index, 5_000).unwrap_or_else(|error| panic!("{by_index}: {error:?}"));
        if read.contains("k IN") {
            // Named partitions come in the order of their keys from a table without an index.
            if read.contains("LIMIT") {
                continue;
            }
            expected.sort();
            found.sort();
        }
        assert_eq!(found, expected, "{by_index}");
        database.kv.is_cold.store(nth % 3 == 1, Ordering::Relaxed);
        let mut paged = pages(database, &by_index, 2).unwrap();
        if read.contains("k IN") {
            paged.sort();
        }
        assert_eq!(paged, expected, "{by_index}, page by page");
    }
}

/// Rows of a value in most of the tablets, and what a read of it asks for.
#[test]
fn tablets_that_have_to_wait_are_asked_together_and_give_their_rows_in_order() {
    let database = Database::with_keyspace();
    database.run("CREATE TABLE t (k int PRIMARY KEY, v int, w int) WITH tablets = 12").unwrap();
    database.run("CREATE INDEX ON t (v)").unwrap();
    for k in 0..200 {
        database.run(&format!("INSERT INTO t (k, v, w) VALUES ({k}, {}, {k})", k % 10)).unwrap();
    }
    let expected = database.rows("SELECT k, w FROM t WHERE v = 3 AND w >= 0 ALLOW FILTERING");
    assert_eq!(expected.len(), 20);
    let read = |statement: &str, page_size: i32, is_cold: bool| {
        database.kv.is_cold.store(is_cold, Ordering::Relaxed);
        let counters = [&database.kv.most_waiting, &database.kv.fetches];
        counters.iter().for_each(|counter| counter.store(0, Ordering::Relaxed));
        let found = pages(&database, statement, page_size).unwrap();
        let [most_waiting, fetches] = counters.map(|counter| counter.load(Ordering::Relaxed));
        (found, most_waiting, fetches)
    };
    let (all, limited) = ("SELECT k, w FROM t WHERE v = 3", "SELECT k, w FROM t WHERE v = 3 LIMIT 1");
    let (found, most_waiting, cold_fetches) = read(all, 5_000, true);
    assert_eq!(found, expected);
    assert!(most_waiting > 4, "{most_waiting} at once");
    let (found, most_waiting, warm_fetches) = read(all, 5_000, false);
    assert_eq!(found, expected);
    // A tablet gives three entries at once here: only what follows the first ones has to be fetched.
    assert_eq!((most_waiting, cold_fetches), (0, warm_fetches + 12));
    for is_cold in [true, false] {
        for page_size in [1, 2, 3, 7] {
            assert_eq!(read(all, page_size, is_cold).0, expected, "pages of {page_size}");
        }
        let (found, _, fetches) = read(limited, 5_000, is_cold);
        assert_eq!(found, expected[..1]);
        assert!(fetches <= 4 * usize::from(is_cold), "{fetches} reads for one row");
    }
}

#[test]
fn a_tablet_that_fails_fails_no_page_that_does_not_need_it() {
    let database = Database::with_keyspace();
    database.run("CREATE TABLE t (k int PRIMARY KEY, v int) WITH tablets = 12").unwrap();
    database.run("CREATE INDEX ON t (v)").unwrap();
    (0..100).for_each(|k| drop(database.run(&format!("INSERT INTO t (k, v) VALUES ({k}, 1)")).unwrap()));
    let expected = database.rows("SELECT k FROM t WHERE v = 1");
    let tablets = database.kv.catalog().tables().map(|entry| entry.tablets.clone()).next().unwrap();
    for is_cold in [true, false] {
        database.kv.is_cold.store(is_cold, Ordering::Relaxed);
        database.kv.fail_tablet(Some(tablets[2].tablet));
        assert_eq!(database.rows("SELECT k FROM t WHERE v = 1 LIMIT 1"), expected[..1]);
        assert!(database.run("SELECT k FROM t WHERE v = 1").is_err());
        database.kv.fail_tablet(None);
        assert_eq!(database.rows("SELECT k FROM t WHERE v = 1"), expected);
    }
}

fn both(database: &Database, statement: &str) {
    let outcomes = ["t", "u"].map(|table| database.run(&statement.replace('#', table)));
    assert_eq!(outcomes[0].is_ok(), outcomes[1].is_ok(), "{statement}: {outcomes:?}");
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 24, ..ProptestConfig::default() })]

    #[test]
    fn an_index_finds_what_filtering_finds(
        before in proptest::collection::vec(write(), 0..25),
        after in proptest::collection::vec((write(), 0u8..2), 1..30),
        first in 0usize..INDEXES.len(),
    ) {
        let database = Database::with_keyspace();
        for table in ["t", "u"] {
            database.run(&format!("CREATE TABLE {table} {COLUMNS} WITH tablets = 3")).unwrap();
        }
        let (early, late) = INDEXES.split_at(first);
        early.iter().for_each(|index| drop(database.run(index).unwrap()));
        before.iter().for_each(|statement| both(&database, statement));
        late.iter().for_each(|index| drop(database.run(index).unwrap()));
        for (statement, seconds) in after {
            both(&database, &statement);
            database.kv.pass(seconds);
        }
        check(&database);
    }
}

#[test]
fn an_index_that_is_not_complete_is_not_used() {
    let database = Database::with_keyspace();
    database.run("CREATE TABLE t (k int PRIMARY KEY, v int) WITH tablets = 1").unwrap();
    for k in 0..9_000 {
        database.run(&format!("INSERT INTO t (k, v) VALUES ({k}, {})", k % 3_000)).unwrap();
    }
    database.kv.leave_indexes(true);
    database.run("CREATE INDEX ON t (v)").unwrap();
    let error = database.run("SELECT k FROM t WHERE v = 1").unwrap_err();
    assert!(error.message.contains("still being built"), "{error:?}");
    assert_eq!(database.rows("SELECT k FROM t WHERE v = 1 ALLOW FILTERING").len(), 3);
    database.kv.leave_indexes(false);
    assert_eq!(database.rows("SELECT k FROM t WHERE v = 1").len(), 3);
    database.run("TRUNCATE t").unwrap();
    assert!(database.rows("SELECT k FROM t WHERE v = 1").is_empty());
}

#[test]
fn another_index_serves_a_read_while_one_is_built() {
    for transactions in ["", " AND transactions = {'enabled': true}"] {
        let database = Database::with_keyspace();
        let table = "CREATE TABLE t (k int PRIMARY KEY, a int, b int) WITH tablets = 1";
        database.run(&format!("{table}{transactions}")).unwrap();
        database.run("CREATE INDEX by_a ON t (a, b)").unwrap();
        for k in 0..9_000 {
            database.run(&format!("INSERT INTO t (k, a, b) VALUES ({k}, {}, {})", k % 3_000, k % 2)).unwrap();
        }
        database.kv.leave_indexes(true);
        database.run("CREATE INDEX by_b ON t (b)").unwrap();
        let condition = "a IN (1, 2) AND b = 1";
        // One value is narrower than several.
        let explained = database.rows(&format!("EXPLAIN SELECT k FROM t WHERE {condition}"));
        assert!(explained[0].contains("Index Scan using ks.by_b"), "{explained:?}");
        assert_eq!(database.rows(&format!("SELECT k FROM t WHERE {condition}")).len(), 3);
        assert_eq!(database.rows(&format!("SELECT count(*) FROM t WHERE {condition}")), ["count=3"]);
        let error = database.run("SELECT k FROM t WHERE b = 1").unwrap_err();
        assert!(error.message.contains("still being built"), "{error:?}");
    }
}

/// How many accesses to tablets a read makes if each of them fails with this.
fn accesses_before(database: &Database, failure: KvError, statement: &str) -> usize {
    const MOST: usize = 100;
    *database.kv.failure.lock() = Some(failure);
    drop(database.kv.set_meanwhile(Some((MOST, Box::new(|| {})))));
    database.run(statement).unwrap_err();
    let (left, _) = database.kv.set_meanwhile(None).unwrap();
    *database.kv.failure.lock() = None;
    MOST - left
}

/// A value in a message may be whatever a client has written.
#[test]
fn the_kind_of_a_refusal_says_that_an_index_is_being_built_and_its_words_do_not() {
    let database = Database::with_keyspace();
    database.run("CREATE TABLE t (k int PRIMARY KEY, a int, b int) WITH tablets = 1").unwrap();
    database.run("CREATE INDEX by_a ON t (a, b)").unwrap();
    database.run("CREATE INDEX by_b ON t (b)").unwrap();
    let read = "SELECT k FROM t WHERE a IN (1, 2) AND b = 1";
    let words = KvError::TooLarge(KvError::IndexBeingBuilt.to_string());
    let by_one = accesses_before(&database, words, read);
    assert!(by_one > 0);
    assert_eq!(accesses_before(&database, KvError::IndexBeingBuilt, read), 2 * by_one, "by each index");
}

#[test]
fn a_range_ends_after_the_rows_of_the_greatest_tokens() {
    let database = Database::with_keyspace();
    database.run("CREATE TABLE t (k int PRIMARY KEY, v int, w text) WITH tablets = 2").unwrap();
    database.run("CREATE INDEX ON t (v) USING 'sai'").unwrap();
    database.run("CREATE INDEX ON t (w) USING 'sai'").unwrap();
    let greatest = |k: &i32| token(&k.to_be_bytes()) >= 0x7F << 56;
    let keys: Vec<i32> = (0..).filter(greatest).take(3).chain([-1]).collect();
    // The forms of both texts are cut at the same place.
    let (text, greater) = ("x".repeat(2_000), format!("{}y", "x".repeat(2_000)));
    for k in &keys {
        database.run(&format!("INSERT INTO t (k, v, w) VALUES ({k}, 5, '{text}')")).unwrap();
    }
    let conditions = ["v <= 5", "v < 6", "v >= 5", "v > 4 AND v <= 5"].map(str::to_owned);
    let texts = [format!("w <= '{text}'"), format!("w < '{greater}'"), format!("w > 'a' AND w <= '{greater}'")];
    for condition in conditions.iter().chain(&texts) {
        let found = database.rows(&format!("SELECT k FROM t WHERE {condition}")).len();
        assert_eq!(found, keys.len(), "{}", condition.get(..20).unwrap_or(condition));
    }
    assert!(database.rows("SELECT k FROM t WHERE v < 5").is_empty());
}

#[test]
fn partitions_of_which_nothing_is_left_end_no_read() {
    let database = Database::with_keyspace();
    database.run("CREATE TABLE t (k int, c int, s int STATIC, PRIMARY KEY (k, c)) WITH tablets = 1").unwrap();
    database.run("CREATE INDEX ON t (s)").unwrap();
    for k in 0..30 {
        database.run(&format!("INSERT INTO t (k, c, s) VALUES ({k}, 1, 7)")).unwrap();
    }
    let last = (0..30).map(|k: i32| token(&k.to_be_bytes())).max().unwrap();
    database.kv.purge(|key| token_of(key).is_ok_and(|token| token != i64::MIN && token != last));
    let read = "SELECT k, c FROM t WHERE s = 7";
    for read in [read, &format!("{read} LIMIT 1"), &format!("{read} PER PARTITION LIMIT 1")] {
        assert_eq!(database.rows(read).len(), 1, "{read}");
        assert_eq!(pages(&database, read, 1).unwrap().len(), 1, "{read}");
    }
    assert_eq!(database.rows("SELECT COUNT(*) FROM t WHERE s = 7"), database.rows("SELECT COUNT(*) FROM t"));
}

#[test]
fn what_is_bound_does_not_say_a_predicate() {
    let database = Database::with_keyspace();
    database.run("CREATE TABLE t (k int PRIMARY KEY, v int, n int, w text) WITH tablets = 1").unwrap();
    database.run("CREATE INDEX ON t (v) WHERE n != 3 AND w >= 'a'").unwrap();
    database.run("INSERT INTO t (k, v, n, w) VALUES (1, 7, 4, 'b')").unwrap();
    let one = 7i32.to_be_bytes();
    let read = database.prepare("SELECT k FROM t WHERE v = ? AND n != 3 AND w >= 'a'").unwrap();
    let ClientResponse::Rows(rows) = database.execute(&read, &[Value::Set(&one)]).unwrap() else { panic!("rows") };
    assert_eq!(rendered_rows(&rows), ["k=1"]);
    for bound in ["v = 7 AND n != ? AND w >= 'a'", "v = 7 AND n != 3 AND w >= ?", "v = ? AND n != 3"] {
        let error = database.prepare(&format!("SELECT k FROM t WHERE {bound}")).unwrap_err();
        assert!(error.message.contains("ALLOW FILTERING"), "{bound}: {error:?}");
    }
    // A condition that is only in the IF, or in another form, does not say it either.
    for other in ["v = 7 AND n != 3 IF w >= 'a'", "v = 7 AND n != 3 AND w > 'a'", "v = 7 AND n NOT IN (3) AND w >= 'a'"]
    {
        let error = database.run(&format!("SELECT k FROM t WHERE {other}")).unwrap_err();
        assert!(error.message.contains("ALLOW FILTERING"), "{other}: {error:?}");
    }
}

#[test]
fn null_is_at_no_place_of_a_document() {
    let database = Database::with_keyspace();
    database.run("CREATE TABLE t (k int PRIMARY KEY, j jsonb) WITH tablets = 1").unwrap();
    database.run("CREATE INDEX ON t (j->>'a')").unwrap();
    for (k, document) in [(1, "{}"), (2, "{\"a\":null}"), (3, "{\"a\":\"null\"}"), (4, "[]")] {
        database.run(&format!("INSERT INTO t (k, j) VALUES ({k}, '{document}')")).unwrap();
    }
    let read = database.prepare("SELECT k FROM t WHERE j->>'a' = ?").unwrap();
    let found = |value| match database.execute(&read, &[value]).unwrap() {
        ClientResponse::Rows(rows) => rendered_rows(&rows).len(),
        other => panic!("{other:?}"),
    };
    assert_eq!((found(Value::Null), found(Value::Set(b"null")), found(Value::Set(b"x"))), (0, 2, 0));
    // The path is not known before a marker in it is.
    let error = database.prepare("SELECT k FROM t WHERE j->>? = 'x'").unwrap_err();
    assert!(error.message.contains("ALLOW FILTERING"), "{error:?}");
}

#[test]
fn paths_of_indexes_are_limited() {
    let database = Database::with_keyspace();
    database.run("CREATE TABLE t (k int PRIMARY KEY, j jsonb) WITH tablets = 1").unwrap();
    let create = |path: String| database.run(&format!("CREATE INDEX ON t (j{path})"));
    for refused in ["->0".repeat(32) + "->>0", format!("->>'{}'", "x".repeat(1_025))] {
        let error = create(refused).unwrap_err();
        assert!(error.message.contains("at most 32 steps and 1024 bytes of names"), "{error:?}");
    }
    create("->0".repeat(31) + "->>0").unwrap();
    create(format!("->>'{}'", "x".repeat(1_024))).unwrap();
}

#[test]
fn constants_of_predicates_are_limited() {
    let database = Database::with_keyspace();
    database.run("CREATE TABLE t (k int PRIMARY KEY, v int, w text, n varint) WITH tablets = 1").unwrap();
    let create = |condition: String| database.run(&format!("CREATE INDEX ON t (v) WHERE {condition}"));
    // A quote is shown twice.
    for refused in [format!("w = '{}'", "x".repeat(1_023)), format!("w = '{}'", "''".repeat(512))] {
        assert!(create(refused).unwrap_err().message.contains("at most 1024 bytes"));
    }
    assert!(create(format!("n < {}", "7".repeat(1_025))).is_err());
    create(format!("w = '{}' AND n < {}", "x".repeat(1_022), "7".repeat(1_024))).unwrap();
}

#[test]
fn keys_whose_layout_may_change_have_no_indexes_of_their_columns() {
    let database = Database::with_keyspace();
    database.run("CREATE TYPE u (a int)").unwrap();
    let columns = "k int, p int, q frozen<u>, c frozen<list<frozen<u>>>, d int, v int, PRIMARY KEY ((k, p, q), c, d)";
    database.run(&format!("CREATE TABLE t ({columns}) WITH tablets = 1")).unwrap();
    for column in ["d", "p"] {
        let error = database.run(&format!("CREATE INDEX ON t ({column})")).unwrap_err();
        assert!(error.message.contains("beside a clustering column with a user-defined type"), "{error:?}");
    }
    database.run("CREATE INDEX ON t (v)").unwrap();
    database.run("INSERT INTO t (k, p, q, c, d, v) VALUES (1, 1, {a: 1}, [{a: 1}], 1, 7)").unwrap();
    database.run("ALTER TYPE u ADD b int").unwrap();
    database.run("INSERT INTO t (k, p, q, c, d, v) VALUES (1, 1, {a: 1, b: 2}, [{a: 1, b: 2}], 2, 7)").unwrap();
    assert_eq!(database.rows("SELECT d FROM t WHERE v = 7").len(), 2);
    // Columns of the partition key are stored byte for byte.
    database.run("CREATE TABLE w (k int, q frozen<u>, d int, PRIMARY KEY ((k, q), d)) WITH tablets = 1").unwrap();
    ["k", "d"].iter().for_each(|column| drop(database.run(&format!("CREATE INDEX ON w ({column})")).unwrap()));
    database.run("ALTER TYPE u ADD e int").unwrap();
    database.run("INSERT INTO w (k, q, d) VALUES (1, {a: 1, b: 2, e: 3}, 5)").unwrap();
    for read in ["SELECT k FROM w WHERE d = 5", "SELECT k FROM w WHERE k = 1"] {
        assert_eq!(database.rows(read).len(), 1, "{read}");
    }
}
