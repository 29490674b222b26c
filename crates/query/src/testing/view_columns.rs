//! Columns that are added to a table are in its views of all columns, with each value that is written to them.

use super::Database;
use super::checked::checked;
use crate::engine::Checked;
use crate::kv::Kv;
use diorite_cql::protocol::ErrorCode;
use std::collections::BTreeSet;

const TABLE: &str = "CREATE TABLE t (k int, c int, s int static, v int, w text, PRIMARY KEY (k, c)) \
                     WITH transactions = {'enabled': true}";

/// Views of all columns cannot have static ones, so the table gets its own later.
const PLAIN: &str =
    "CREATE TABLE t (k int, c int, v int, w text, PRIMARY KEY (k, c)) WITH transactions = {'enabled': true}";

const VIEWS: [&str; 3] = [
    "CREATE MATERIALIZED VIEW by_v AS SELECT * FROM t WHERE v IS NOT NULL AND k IS NOT NULL AND c IS NOT NULL \
     PRIMARY KEY (v, k, c)",
    "CREATE MATERIALIZED VIEW by_c AS SELECT * FROM t WHERE k IS NOT NULL AND c IS NOT NULL PRIMARY KEY (c, k)",
    "CREATE MATERIALIZED VIEW fixed AS SELECT k, c, v FROM t WHERE v IS NOT NULL AND k IS NOT NULL AND c IS NOT NULL \
     PRIMARY KEY (v, k, c)",
];

fn database() -> Database {
    let database = Database::with_keyspace();
    [PLAIN].iter().chain(&VIEWS).for_each(|statement| drop(database.run(statement).unwrap()));
    database
}

fn names(database: &Database, table: &str) -> Vec<String> {
    let catalog = database.kv.catalog();
    catalog.table("ks", table).unwrap().table.columns.iter().map(|column| column.name.clone()).collect()
}

/// Whether the views have what follows from the rows.
fn check(database: &Database, columns: &str, after: &str) {
    let set = |rows: Vec<Vec<String>>| rows.into_iter().collect::<BTreeSet<_>>();
    let of_table = database.shown(&format!("SELECT v, k, c, {columns} FROM t"));
    let by_v = set(database.shown(&format!("SELECT v, k, c, {columns} FROM by_v")));
    assert_eq!(by_v, set(of_table.iter().filter(|row| row[0] != "null").cloned().collect()), "by_v after {after}");
    assert_eq!(
        set(database.shown(&format!("SELECT v, k, c, {columns} FROM by_c"))),
        set(of_table),
        "by_c after {after}"
    );
    for view in ["by_v", "by_c", "fixed"] {
        let found = checked(database, "t", view);
        assert!(found.iter().flatten().all(|one| *one == Checked::Right), "{view} after {after}: {found:?}");
    }
}

#[test]
fn a_column_that_is_added_is_in_views_of_all_columns() {
    let database = database();
    database.run("INSERT INTO t (k, c, v, w) VALUES (1, 1, 1, 'a')").unwrap();
    database.run("INSERT INTO t (k, c, w) VALUES (1, 2, 'b')").unwrap();
    database.run("ALTER TABLE t ADD x int").unwrap();
    assert_eq!(names(&database, "by_v"), ["v", "k", "c", "w", "x"]);
    assert_eq!(names(&database, "by_c"), ["c", "k", "v", "w", "x"]);
    assert_eq!(names(&database, "fixed"), ["v", "k", "c"]);
    check(&database, "w, x", "ADD x");
    for statement in [
        "UPDATE t SET x = 5 WHERE k = 1 AND c = 1",
        "UPDATE t SET w = 'c' WHERE k = 1 AND c = 1",
        "UPDATE t SET v = 2 WHERE k = 1 AND c = 1",
        "INSERT INTO t (k, c, x) VALUES (2, 2, 7)",
        "UPDATE t SET v = 3 WHERE k = 1 AND c = 2",
        "DELETE x FROM t WHERE k = 1 AND c = 1",
        "DELETE FROM t WHERE k = 1 AND c > 1",
    ] {
        database.run(statement).unwrap();
        check(&database, "w, x", statement);
    }
    // Several at a time, one of them in no view; the names are sorted.
    database.run("ALTER TABLE t ADD (a map<int, text>, u int static, y int)").unwrap();
    assert_eq!(names(&database, "by_v"), ["v", "k", "c", "a", "w", "x", "y"]);
    database.run("UPDATE t SET u = 9 WHERE k = 2").unwrap();
    database.run("UPDATE t SET a = {1: 'one'}, y = 4 WHERE k = 2 AND c = 2").unwrap();
    database.run("INSERT INTO t (k, c, v, a, y) VALUES (3, 3, 3, {2: 'two'}, 5)").unwrap();
    check(&database, "w, x, a, y", "ADD of several");
    database.run("TRUNCATE t").unwrap();
    database.run("INSERT INTO t (k, c, v, y) VALUES (3, 3, 3, 5)").unwrap();
    check(&database, "w, x, a, y", "TRUNCATE");
    assert!(database.kv.failed_comparisons().is_empty());
}

#[test]
fn the_numbers_of_views_stay_and_what_they_have_got_is_numbered() {
    let database = database();
    let numbers = || -> Vec<(u64, u64)> {
        let catalog = database.kv.catalog();
        let views = &catalog.table("ks", "t").unwrap().table.views;
        views.iter().map(|view| (view.id, view.columns_since)).collect()
    };
    let before = numbers();
    database.run("ALTER TABLE t ADD x int").unwrap();
    let after = numbers();
    let ids = |numbers: &[(u64, u64)]| numbers.iter().map(|(id, _)| *id).collect::<Vec<_>>();
    assert_eq!(ids(&before), ids(&after));
    let all: BTreeSet<u64> = after.iter().flat_map(|(id, since)| [*id, *since]).collect();
    // Three views, two of which have got a column; the third has none: zero.
    assert_eq!((all.len(), after[2].1), (6, 0), "{after:?}");
    assert!(after.iter().all(|(id, since)| *since == 0 || *since > *id.max(&before[2].0)));
    // Other changes are none of the views.
    database.run("ALTER TABLE t WITH comment = 'x'").unwrap();
    assert_eq!(numbers(), after);
}

#[test]
fn a_static_column_is_in_no_view_and_a_column_of_a_view_is_not_dropped() {
    let database = database();
    database.run("ALTER TABLE t ADD s int static").unwrap();
    assert_eq!(names(&database, "by_v"), ["v", "k", "c", "w"]);
    database.run("ALTER TABLE t ADD x int").unwrap();
    assert_eq!(names(&database, "by_v"), ["v", "k", "c", "w", "x"]);
    let refused = database.run("ALTER TABLE t DROP x").unwrap_err();
    assert_eq!(refused.message, "Cannot drop column x on base table t with materialized views");
    let other = Database::with_keyspace();
    other.run(TABLE).unwrap();
    let refused = other.run(VIEWS[0]).unwrap_err();
    assert_eq!(refused.message, "Cannot include static column 's' in materialized view 'by_v'");
}

#[test]
fn a_table_with_views_does_not_become_one_of_counters() {
    let database = Database::with_keyspace();
    database.run("CREATE TABLE t (k int, c int, PRIMARY KEY (k, c)) WITH transactions = {'enabled': true}").unwrap();
    database.run(VIEWS[1]).unwrap();
    let refused = database.run("ALTER TABLE t ADD n counter").unwrap_err();
    assert_eq!(refused.message, "Materialized views are not supported on counter tables");
}

#[test]
fn writes_wait_until_the_tablets_know_the_columns_of_the_views() {
    let database = database();
    database.run("INSERT INTO t (k, c, v, w) VALUES (1, 1, 1, 'a')").unwrap();
    database.kv.leave_indexes(true);
    // The statement waits for the tablets, and then takes effect without them.
    database.run("ALTER TABLE t ADD x int").unwrap();
    for statement in ["UPDATE t SET x = 5 WHERE k = 1 AND c = 1", "UPDATE t SET v = 2 WHERE k = 1 AND c = 1"] {
        assert_eq!(database.run(statement).unwrap_err().code(), ErrorCode::Overloaded, "{statement}");
    }
    assert_eq!(database.rows("SELECT v, x FROM t"), ["v=1 x=null"]);
    let kv = std::sync::Arc::clone(&database.kv);
    drop(database.kv.set_meanwhile(Some((2, Box::new(move || kv.leave_indexes(false))))));
    database.run("UPDATE t SET x = 5 WHERE k = 1 AND c = 1").unwrap();
    assert!(database.kv.set_meanwhile(None).is_none());
    check(&database, "w, x", "the first write");
}

#[test]
fn what_was_planned_before_a_column_was_added_does_not_leave_it_out() {
    let mut altered = 0;
    for accesses in 0..24 {
        let database = database();
        database.run("INSERT INTO t (k, c, v, w) VALUES (1, 1, 1, 'a')").unwrap();
        let other = database.another();
        let happens = move || {
            other.run("ALTER TABLE ks.t ADD x int").unwrap();
            // Before the row is read, and after that, before something is prepared.
            if accesses < 2 {
                other.run("UPDATE ks.t SET x = 5 WHERE k = 1 AND c = 1").unwrap();
            }
        };
        drop(database.kv.set_meanwhile(Some((accesses, Box::new(happens)))));
        let outcome = database.run("UPDATE t SET v = 2, w = 'b' WHERE k = 1 AND c = 1");
        if database.kv.set_meanwhile(None).is_some() {
            break;
        }
        altered += 1;
        check(&database, "w, x", &format!("{accesses} accesses: {outcome:?}"));
        database.run("UPDATE t SET x = 6 WHERE k = 1 AND c = 1").unwrap();
        database.run("UPDATE t SET v = 3, w = 'c' WHERE k = 1 AND c = 1").unwrap();
        check(&database, "w, x", &format!("{accesses} accesses and more"));
        assert_eq!(database.rows("SELECT w, x FROM by_v WHERE v = 3"), ["w='c' x=6"]);
    }
    assert!(altered > 2, "{altered}");
}
