//! What a materialized view has is what follows from the rows of its table, after each statement.

use super::Database;
use super::checked::checked;
use super::memory::shared::Versions;
use crate::engine::Checked;
use proptest::prelude::*;
use std::collections::BTreeSet;

const TABLE: &str = "CREATE TABLE t (k int, c int, s int static, v int, a int, l list<int>, m map<int, int>, w text, \
                     PRIMARY KEY (k, c)) WITH transactions = {'enabled': true}";

/// The views: name, columns, condition, key, and whether a row of the table is in it.
type Shown = Vec<String>;

/// A view: its name, its definition, the columns that are compared, and whether it has a row for these values of them.
struct Defined {
    name: &'static str,
    definition: &'static str,
    columns: &'static str,
    has: fn(&Shown) -> bool,
}

fn is_set(shown: &Shown, at: usize) -> bool {
    shown[at] != "null"
}

const VIEWS: [Defined; 3] = [
    // A column of the table in its key, collections, not all columns.
    Defined {
        name: "by_v",
        definition: "SELECT k, c, v, a, l, m FROM t WHERE v IS NOT NULL AND k IS NOT NULL AND c IS NOT NULL \
                     PRIMARY KEY (v, k, c)",
        columns: "v, k, c, a, l, m",
        has: |shown| is_set(shown, 0),
    },
    // The key of the table in another order: the view has a row for each row that exists.
    Defined {
        name: "by_c",
        definition: "SELECT k, c, a FROM t WHERE k IS NOT NULL AND c IS NOT NULL PRIMARY KEY (c, k)",
        columns: "c, k, a",
        has: |_| true,
    },
    // A column beside the key of the table, as a clustering column, in descending order.
    Defined {
        name: "by_a",
        definition: "SELECT k, c, a, w FROM t WHERE k IS NOT NULL AND c IS NOT NULL AND a IS NOT NULL \
                     PRIMARY KEY (k, a, c) WITH CLUSTERING ORDER BY (a DESC, c ASC)",
        columns: "k, a, c, w",
        has: |shown| is_set(shown, 1),
    },
];

/// One statement.
fn statement() -> impl Strategy<Value = String> {
    let value = || prop_oneof![4 => (0..4).prop_map(|x: i32| x.to_string()), 1 => Just("null".to_owned())];
    let ttl = prop_oneof![3 => Just(String::new()), 1 => (1..6).prop_map(|s: i32| format!(" USING TTL {s}"))];
    ((0..3, 0..3), (value(), value()), ttl, 0u8..21).prop_map(|((k, c), (x, y), ttl, kind)| {
        let row = format!("WHERE k = {k} AND c = {c}");
        match kind {
            0 | 1 => format!("INSERT INTO t (k, c, v, a, w) VALUES ({k}, {c}, {x}, {y}, 'w'){ttl}"),
            2 => format!("INSERT INTO t (k, c, v) VALUES ({k}, {c}, {x}){ttl}"),
            3 => format!("INSERT INTO t (k, c) VALUES ({k}, {c}){ttl}"),
            4 => format!("UPDATE t{ttl} SET v = {x} {row}"),
            5 => format!("UPDATE t{ttl} SET a = {x} {row}"),
            6 => format!("UPDATE t{ttl} SET w = 'w{k}' {row}"),
            7 => format!("UPDATE t{ttl} SET l = l + [{k}, {c}] {row}"),
            8 => format!("UPDATE t{ttl} SET l = [{c}] {row}"),
            9 => format!("UPDATE t SET l[0] = {c}, w = 'x' {row}"),
            10 => format!("UPDATE t{ttl} SET m[{c}] = {k} {row}"),
            11 => format!("DELETE m[{k}], l FROM t {row}"),
            12 => format!("DELETE FROM t {row}"),
            13 => format!("DELETE v, a FROM t {row}"),
            14 => format!("DELETE FROM t WHERE k = {k} AND c >= {c}"),
            15 => format!("DELETE FROM t WHERE k = {k}"),
            16 => format!("INSERT INTO t (k, c, v, a) VALUES ({k}, {c}, {x}, {y}) IF NOT EXISTS"),
            17 => format!("UPDATE t SET v = {x} {row} IF a = {y}"),
            18 => format!("UPDATE t SET s = {c} WHERE k = {k}"),
            19 => format!("UPDATE t SET v = v + 1 {row}"),
            _ => format!("DELETE s FROM t WHERE k = {k}"),
        }
    })
}

#[derive(Debug, Clone)]
enum Step {
    Request(String),
    Pass(u8),
}

/// Statements that take effect together, or time.
fn step() -> impl Strategy<Value = Step> {
    let block = || {
        let plain = statement().prop_filter("no condition", |one| !one.contains(" IF "));
        proptest::collection::vec(plain, 1..4)
    };
    prop_oneof![
        6 => statement().prop_map(Step::Request),
        1 => block().prop_map(|all| {
            let all = all.iter().map(|one| one.replace("v = v + 1", "v = 1")).collect::<Vec<_>>();
            Step::Request(format!("BEGIN BATCH {}; APPLY BATCH", all.join("; ")))
        }),
        1 => block().prop_map(|all| Step::Request(format!("BEGIN TRANSACTION {}; END TRANSACTION", all.join("; ")))),
        1 => (1u8..4).prop_map(Step::Pass),
    ]
}

fn rows(database: &Database, columns: &str, table: &str) -> Vec<Shown> {
    database.shown(&format!("SELECT {columns} FROM {table}"))
}

fn check(database: &Database, after: &str) {
    for Defined { name, columns, has, .. } in VIEWS {
        // A partition that only has static columns is shown as a row without clustering columns.
        let at = columns.split(", ").position(|column| column == "c").unwrap();
        let of_table = rows(database, columns, "t").into_iter().filter(|row| is_set(row, at) && has(row));
        let expected: BTreeSet<Shown> = of_table.collect();
        let found: BTreeSet<Shown> = rows(database, columns, name).into_iter().collect();
        assert_eq!(found, expected, "view {name} after {after}");
        let [of_rows, of_view] = checked(database, "t", name);
        let is_right = |found: &Checked| *found == Checked::Right;
        assert!(of_rows.iter().all(is_right), "{name} after {after}: {of_rows:?}");
        assert!(of_view.iter().all(is_right), "{name} after {after}: {of_view:?}");
    }
}

fn create_views(database: &Database) {
    for Defined { name, definition, .. } in VIEWS {
        database.run(&format!("CREATE MATERIALIZED VIEW {name} AS {definition}")).unwrap();
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 64, ..ProptestConfig::default() })]

    #[test]
    fn a_view_has_what_follows_from_the_rows(
        before in proptest::collection::vec(step(), 0..8),
        after in proptest::collection::vec(step(), 1..24),
    ) {
        let database = Database::with_keyspace();
        database.run(TABLE).unwrap();
        let carry_out = |step: &Step| match step {
            // A list that is null has no first element.
            Step::Request(request) => drop(database.run(request)),
            Step::Pass(seconds) => database.kv.pass(*seconds),
        };
        before.iter().for_each(carry_out);
        create_views(&database);
        check(&database, "creation");
        for step in &after {
            carry_out(step);
            check(&database, &format!("{step:?}"));
        }
        database.run("TRUNCATE t").unwrap();
        check(&database, "TRUNCATE");
        carry_out(&Step::Request("INSERT INTO t (k, c, v, a) VALUES (1, 1, 1, 1)".to_owned()));
        check(&database, "the first row after TRUNCATE");
    }
}

#[test]
fn a_table_may_have_unique_indexes_and_views() {
    let database = Database::with_keyspace();
    database.run(TABLE).unwrap();
    database.run("CREATE UNIQUE INDEX ON t (a)").unwrap();
    create_views(&database);
    database.run("INSERT INTO t (k, c, v, a) VALUES (1, 1, 1, 1)").unwrap();
    let again = database.run("INSERT INTO t (k, c, v, a) VALUES (1, 2, 1, 1)").unwrap_err();
    assert!(again.message.contains("Duplicate value"), "{}", again.message);
    check(&database, "a refusal");
    database.run("UPDATE t SET a = 2 WHERE k = 1 AND c = 1").unwrap();
    database.run("INSERT INTO t (k, c, v, a) VALUES (1, 2, 1, 1)").unwrap();
    database.run("DELETE FROM t WHERE k = 1 AND c < 2").unwrap();
    check(&database, "moves and deletions");
    assert_eq!(rows(&database, "k, c", "by_v"), [["1", "2"]]);
}

#[test]
fn a_value_that_no_key_can_have_is_refused_and_fails_a_new_view() {
    let database = Database::with_keyspace();
    database.run(TABLE).unwrap();
    let define = "CREATE MATERIALIZED VIEW by_w AS SELECT * FROM u WHERE w IS NOT NULL AND k IS NOT NULL \
                  PRIMARY KEY (w, k)";
    database.run("CREATE TABLE u (k int PRIMARY KEY, w text) WITH transactions = {'enabled': true}").unwrap();
    database.run(define).unwrap();
    let long = format!("INSERT INTO u (k, w) VALUES (1, '{}')", "x".repeat(70_000));
    let refused = database.run(&long).unwrap_err();
    assert!(refused.message.contains("in the key of the materialized view by_w"), "{}", refused.message);
    assert!(rows(&database, "k", "u").is_empty());
    database.run("INSERT INTO u (k, w) VALUES (1, '')").unwrap();
    assert!(rows(&database, "k", "by_w").is_empty(), "no row has an empty key");
    database.run("DROP MATERIALIZED VIEW by_w").unwrap();
    database.run(&long).unwrap();
    drop(database.run(define));
    let failed = database.kv.failed_comparisons();
    assert_eq!(failed.len(), 1, "{failed:?}");
    assert!(failed[0].starts_with("the row (1): "), "{failed:?}");
}

#[test]
fn a_write_of_too_many_rows_says_why_they_are_read() {
    let database = Database::with_keyspace();
    database.run(TABLE).unwrap();
    create_views(&database);
    let insert = |c: i32| format!("INSERT INTO t (k, c, v) VALUES (1, {c}, 1)");
    let inserts: Vec<String> = (0..1_025).map(insert).collect();
    let refused = database.run(&format!("BEGIN BATCH {}; APPLY BATCH", inserts.join("; "))).unwrap_err();
    let why = "a write to one tablet whose rows are read first, for a materialized view, a covering or a unique index of \
               the table, of 1025 rows is over the limit of 1024 rows (CONDITION_ROWS)";
    assert_eq!(refused.message, why);
    assert!(rows(&database, "k, c", "t").is_empty());
    database.run(&format!("BEGIN BATCH {}; APPLY BATCH", inserts[1..].join("; "))).unwrap();
    assert_eq!(rows(&database, "k, c", "by_v").len(), 1_024);
}

#[test]
fn a_value_that_ends_during_a_read_is_not_shown_beside_the_one_that_has_replaced_it() {
    let mut met = 0;
    // All rows, and few, of which some are read without a snapshot.
    let tables = ["by_v", "by_v WHERE v IN (1, 2) AND k = 1 AND c = 1"];
    for (accesses, table) in (0..24).flat_map(|accesses| tables.map(|table| (accesses, table))) {
        let database = Database::with_keyspace();
        database.run(TABLE).unwrap();
        create_views(&database);
        database.run("INSERT INTO t (k, c, v, a) VALUES (1, 1, 1, 1) USING TTL 10").unwrap();
        assert_eq!(rows(&database, "k, c, v", "by_v"), [["1", "1", "1"]]);
        let other = database.another();
        let happens = move || {
            other.kv.pass(11);
            other.run("INSERT INTO ks.t (k, c, v, a) VALUES (1, 1, 2, 2)").unwrap();
        };
        drop(database.kv.set_meanwhile(Some((accesses, Box::new(happens)))));
        let shown = rows(&database, "k, c, v", table);
        met += usize::from(database.kv.set_meanwhile(None).is_none());
        assert!(shown.len() <= 1, "{table}, after {accesses} accesses: {shown:?}");
        assert_eq!(rows(&database, "k, c", "by_v").len(), 1);
    }
    assert!(met > 2, "{met}");
}

#[test]
fn a_value_is_shown_until_it_ends_by_a_read_that_begins_again_in_the_next_second() {
    let mut met = 0;
    for accesses in 0..24 {
        let database = Database::with_keyspace();
        database.run(TABLE).unwrap();
        create_views(&database);
        database.run("INSERT INTO t (k, c, v, a) VALUES (1, 1, 1, 1) USING TTL 2").unwrap();
        database.kv.set_versions(Versions::Known);
        let other = database.another();
        let happens = move || {
            other.kv.pass(1);
            other.run("INSERT INTO ks.t (k, c, v, a) VALUES (2, 1, 1, 2)").unwrap();
        };
        drop(database.kv.set_meanwhile(Some((accesses, Box::new(happens)))));
        let shown = rows(&database, "k, c, v", "by_v WHERE v = 1 AND k IN (1, 2) AND c = 1");
        met += usize::from(database.kv.set_meanwhile(None).is_none());
        assert!(shown.contains(&vec!["1".to_owned(); 3]), "after {accesses} accesses: {shown:?}");
    }
    assert!(met > 2, "{met}");
}
