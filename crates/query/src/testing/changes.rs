//! Requests that meet a change of the schema or of the tablets under them.

use super::requests::{INT, is_short, refused, rows, text_table};
use super::{Database, rendered_rows};
use crate::engine::submitted_error;
use crate::kv::{Kv, KvError};
use diorite_base::write::Waited;
use diorite_cluster::catalog::Command;
use diorite_cql::protocol::client::ClientResponse;
use diorite_cql::protocol::{Consistency, ErrorCode, ErrorKind, Value, Version};
use std::sync::Arc;

fn interrupt(database: &Database, command: Command) {
    *database.kv.interruption.lock() = Some((0, command));
}

#[test]
fn a_batch_takes_effect_whole_where_a_tablet_is_merged_into_one_that_it_was_sent_to() {
    let database = Database::with_keyspace();
    database.run("CREATE TABLE t (k int PRIMARY KEY, v int) WITH tablets = 2").unwrap();
    let entry = database.kv.catalog().tables().next().unwrap().clone();
    let (into, tablet) = (entry.tablets[0].tablet, entry.tablets[1].tablet);
    database.kv.command(&Command::BeginMerge { tablet, into });
    *database.kv.interruption.lock() = Some((1, Command::ServeMerge { tablet, into, number: None }));
    // Their tokens are on either side of 0.
    database
        .run("BEGIN BATCH INSERT INTO t (k, v) VALUES (1, 10); INSERT INTO t (k, v) VALUES (3, 30) APPLY BATCH")
        .unwrap();
    assert!(database.kv.interruption.lock().is_none());
    assert_eq!(database.kv.catalog().tables().next().unwrap().tablets.len(), 1);
    assert_eq!(database.rows("SELECT k, v FROM t WHERE k IN (1, 3)"), ["k=1 v=10", "k=3 v=30"]);
}

fn truncate(name: &str) -> Command {
    Command::TruncateTable { keyspace: "ks".to_owned(), name: name.to_owned() }
}

#[test]
fn requests_meet_the_tablets_that_truncate_made() {
    let database = text_table();
    let insert = database.prepare("INSERT INTO t (k, c, v, w) VALUES (?, ?, ?, ?)").unwrap();
    let select = database.prepare("SELECT v FROM t WHERE k = ? AND c = ?").unwrap();
    let one = INT(1);
    let values = [Value::Set(b"a".as_slice()), Value::Set(&one), Value::Set(&one), Value::Set(b"w")];
    database.execute(&insert, &values).unwrap();
    for text in ["SELECT v FROM t WHERE k = 'a'", "SELECT * FROM t", "SELECT v FROM t WHERE k IN ('a', 'b') AND c = 1"]
    {
        interrupt(&database, truncate("t"));
        assert!(database.rows(text).is_empty(), "{text}");
        database.execute(&insert, &values).unwrap();
    }
    interrupt(&database, truncate("t"));
    assert_eq!(database.rows("SELECT COUNT(*) FROM t"), ["count=0"]);
    interrupt(&database, truncate("t"));
    assert!(!is_short(&database, &insert, &values), "refused on the point path before it had any effect");
    assert_eq!(database.execute(&insert, &values), Ok(ClientResponse::Void));
    interrupt(&database, truncate("t"));
    assert!(!is_short(&database, &select, &values[..2]));
    assert!(rows(database.execute(&select, &values[..2])).rows.is_empty());
    interrupt(&database, truncate("t"));
    database.run("UPDATE t SET v = 1 WHERE k IN ('a', 'b', 'c', 'd') AND c = 1").unwrap();
    assert_eq!(database.rows("SELECT COUNT(*) FROM t"), ["count=4"]);
    interrupt(&database, truncate("t"));
    let outcome = database.rows("INSERT INTO t (k, c) VALUES ('a', 1) IF NOT EXISTS");
    assert_eq!(outcome, ["[applied]=true"]);
}

#[test]
fn what_took_effect_is_not_sent_again() {
    let database = Database::with_keyspace();
    database.run("CREATE TABLE t (k int PRIMARY KEY, n counter)").unwrap();
    database.run("CREATE TABLE u (k int PRIMARY KEY, n counter)").unwrap();
    interrupt(&database, truncate("t"));
    let batch =
        "BEGIN COUNTER BATCH UPDATE u SET n = n + 1 WHERE k = 1; UPDATE t SET n = n + 1 WHERE k = 1; APPLY BATCH;";
    database.run(batch).unwrap();
    assert_eq!(database.rows("SELECT n FROM t"), ["n=1"]);
    assert_eq!(database.rows("SELECT n FROM u"), ["n=1"]);
}

#[test]
fn a_table_that_is_dropped_meanwhile_is_told_as_such() {
    for text in ["SELECT * FROM t", "UPDATE t SET v = 1 WHERE k = 'a' AND c = 1"] {
        let database = text_table();
        let drop = Command::DropTable { keyspace: "ks".to_owned(), name: "t".to_owned(), if_exists: false };
        interrupt(&database, drop);
        assert_eq!(refused(database.run(text)), (ErrorCode::Invalid, "table t does not exist".to_owned()));
    }
}

#[test]
fn what_is_dropped_while_its_rows_are_awaited_is_told_as_such() {
    let view = "CREATE MATERIALIZED VIEW m AS SELECT * FROM t WHERE v IS NOT NULL AND k IS NOT NULL PRIMARY KEY (v, k)";
    for (create, drop_it, told) in [
        (view, "DROP MATERIALIZED VIEW ks.m", "the materialized view m was dropped meanwhile"),
        ("CREATE UNIQUE INDEX m ON ks.t (v)", "DROP INDEX ks.m", "the unique index m was dropped meanwhile"),
        ("CREATE INDEX m ON t (v) INCLUDE (a)", "DROP INDEX ks.m", "the index m was dropped meanwhile"),
    ] {
        let database = Database::with_keyspace();
        database.run("CREATE TABLE t (k int PRIMARY KEY, v int, a int) WITH transactions = {'enabled': true}").unwrap();
        database.run("INSERT INTO t (k, v) VALUES (1, 1)").unwrap();
        let other = database.another();
        let happens = move || drop(other.run(drop_it).unwrap());
        drop(database.kv.set_meanwhile(Some((0, Box::new(happens)))));
        assert_eq!(refused(database.run(create)), (ErrorCode::Invalid, told.to_owned()));
        assert!(database.kv.set_meanwhile(None).is_none(), "{drop_it}");
    }
}

#[test]
fn a_drop_waits_until_the_tablets_take_writes_without_what_was_dropped() {
    let view = "CREATE MATERIALIZED VIEW m AS SELECT * FROM t WHERE v IS NOT NULL AND k IS NOT NULL PRIMARY KEY (v, k)";
    for (create, drop_it) in [(view, "DROP MATERIALIZED VIEW m"), ("CREATE UNIQUE INDEX m ON ks.t (v)", "DROP INDEX m")]
    {
        let database = Database::with_keyspace();
        database.run("CREATE TABLE t (k int PRIMARY KEY, v int) WITH transactions = {'enabled': true}").unwrap();
        database.run(create).unwrap();
        database.kv.leave_indexes(true);
        // The three tablets are asked once, and some of them again, before they drop it.
        let kv = Arc::clone(&database.kv);
        drop(database.kv.set_meanwhile(Some((4, Box::new(move || kv.leave_indexes(false))))));
        database.run(drop_it).unwrap();
        assert!(database.kv.set_meanwhile(None).is_none(), "{drop_it}");
        for k in 0..9 {
            database.run(&format!("INSERT INTO t (k, v) VALUES ({k}, 1)")).unwrap();
        }
    }
}

#[test]
fn writes_wait_for_a_tablet_that_is_about_to_drop_what_its_table_has_lost() {
    let view = "CREATE MATERIALIZED VIEW m AS SELECT * FROM t WHERE v IS NOT NULL AND k IS NOT NULL PRIMARY KEY (v, k)";
    for (create, drop_it) in [(view, "DROP MATERIALIZED VIEW m"), ("CREATE UNIQUE INDEX m ON ks.t (v)", "DROP INDEX m")]
    {
        for write in [
            "INSERT INTO t (k, v) VALUES (1, 1)",
            "INSERT INTO t (k, v) VALUES (1, 1) IF NOT EXISTS",
            "BEGIN UNLOGGED BATCH INSERT INTO t (k, v) VALUES (1, 1); APPLY BATCH",
        ] {
            let database = Database::with_keyspace();
            let columns = "k int PRIMARY KEY, v int";
            let options = "tablets = 1 AND transactions = {'enabled': true}";
            database.run(&format!("CREATE TABLE t ({columns}) WITH {options}")).unwrap();
            database.run(create).unwrap();
            // It is waited for in vain.
            database.kv.leave_indexes(true);
            database.run(drop_it).unwrap();
            let kv = Arc::clone(&database.kv);
            drop(database.kv.set_meanwhile(Some((1, Box::new(move || kv.leave_indexes(false))))));
            database.run(write).unwrap();
            assert!(database.kv.set_meanwhile(None).is_none(), "{drop_it}, {write}: it was sent once");
            assert_eq!(database.rows("SELECT v FROM t WHERE k = 1"), ["v=1"], "{drop_it}, {write}");
        }
    }
}

/// It is planned again if its connection still knows its request.
#[test]
fn a_submitted_write_whose_table_was_dropped_meanwhile_is_invalid() {
    let database = Database::with_keyspace();
    let create = "CREATE TABLE t (k int PRIMARY KEY, v int)";
    database.run(create).unwrap();
    let tablet = database.kv.catalog().table("ks", "t").unwrap().tablets[0].tablet;
    let statement = database.engine.activity().place(Some("ks"), "INSERT INTO t (k, v) VALUES (?, 1)");
    let token = u64::from(statement.slot()) << 16;
    let answered = |error: &KvError| submitted_error(&database.engine, token, error, Consistency::One);
    let (gone, unknown) = (KvError::NoSuchTablet(tablet), KvError::Timeout(Waited::ended()));
    let again = ErrorKind::Unavailable { consistency: Consistency::One, required: 2, alive: 1 };
    assert_eq!(answered(&gone).kind, again, "the table is there");
    database.run("TRUNCATE t").unwrap();
    assert_eq!(answered(&gone).kind, again, "it has other tablets");
    for drop_it in ["DROP TABLE t", "DROP KEYSPACE ks"] {
        database.run(drop_it).unwrap();
        let error = answered(&gone);
        assert_eq!((error.code(), &*error.message), (ErrorCode::Invalid, "table t does not exist"), "{drop_it}");
        assert_eq!(answered(&unknown).code(), ErrorCode::WriteTimeout, "it may have been read before");
        if drop_it == "DROP TABLE t" {
            database.run(create).unwrap();
            assert_eq!(answered(&gone).kind, again, "there is another one of its name");
        }
    }
}

#[test]
fn a_changed_table_changes_the_answer_and_its_columns() {
    for version in [Version::V4, Version::V5] {
        let mut database = text_table();
        database.version = version;
        let select = database.prepare("SELECT * FROM t WHERE k = 'a' AND c = 1").unwrap();
        database.run("INSERT INTO t (k, c, v) VALUES ('a', 1, 5)").unwrap();
        assert!(is_short(&database, &select, &[]));
        database.run("ALTER TABLE t ADD x int").unwrap();
        database.run("UPDATE t SET x = 9 WHERE k = 'a' AND c = 1").unwrap();
        // The client asks to leave the columns out, but knows only the old ones.
        let request = database.execute_request(&select, &[], true);
        assert!(database.execute_now(&request).is_none());
        if version == Version::V4 {
            // No result would make every driver use the new columns: the client has to prepare again, and keeps the id.
            assert_eq!(refused(database.send(&request)).0, ErrorCode::Unprepared);
            assert!(database.execute_now(&request).is_none());
            let again = database.prepare("SELECT * FROM t WHERE k = 'a' AND c = 1").unwrap();
            assert_eq!(again.id, select.id);
        }
        for found in [rows(database.send(&request)), rows(database.execute_now(&request).unwrap())] {
            assert_eq!(rendered_rows(&found), ["k='a' c=1 v=5 w=null x=9"], "{version:?}");
            assert_eq!(found.metadata.new_metadata_id.is_some(), version == Version::V5);
        }
        database.run("DROP TABLE t").unwrap();
        assert!(database.execute_now(&request).is_none());
        assert_eq!(refused(database.send(&request)).0, ErrorCode::Invalid);
    }
}

#[test]
fn whoever_prepared_on_another_node_before_a_change_is_told_the_columns() {
    for version in [Version::V4, Version::V5] {
        let mut database = text_table();
        database.version = version;
        database.run("INSERT INTO t (k, c, v) VALUES ('a', 1, 5)").unwrap();
        let (all, named) = ("SELECT * FROM t WHERE k = 'a' AND c = 1", "SELECT v FROM t WHERE k = 'a' AND c = 1");
        let elsewhere = database.prepare(all).unwrap();
        let before = database.execute_request(&elsewhere, &[], true);
        assert!(rows(database.send(&before)).metadata.columns.is_empty(), "nothing has been changed yet");
        let mut other = text_table();
        other.version = version;
        other.run("INSERT INTO t (k, c, v) VALUES ('a', 1, 5)").unwrap();
        other.run("ALTER TABLE t ADD x int").unwrap();
        // Here another client prepares it first.
        for (text, is_told) in [(all, true), (named, false)] {
            let again = other.prepare(text).unwrap();
            let known = if text == all { &elsewhere } else { &again };
            let request = other.execute_request(known, &[], true);
            for found in [rows(other.send(&request)), rows(other.execute_now(&request).unwrap())] {
                assert_eq!(!found.metadata.columns.is_empty(), is_told, "{text} with {version:?}");
            }
        }
    }
}

#[test]
fn a_marker_of_another_type_has_to_be_prepared_again() {
    let database = text_table();
    let insert = database.prepare("INSERT INTO t (k, c) VALUES (?, ?)").unwrap();
    database.run("DROP TABLE t").unwrap();
    database.run("CREATE TABLE t (k text, c bigint, PRIMARY KEY (k, c))").unwrap();
    let one = INT(1);
    let values = [Value::Set(b"k".as_slice()), Value::Set(&one)];
    assert_eq!(refused(database.execute(&insert, &values)).0, ErrorCode::Unprepared);
}

#[test]
fn cells_of_dropped_columns_keep_no_row_alive() {
    let database = text_table();
    database.run("UPDATE t SET w = 'gone' WHERE k = 'a' AND c = 1").unwrap();
    let select = database.prepare("SELECT v FROM t WHERE k = 'a' AND c = 1").unwrap();
    database.run("ALTER TABLE t DROP w").unwrap();
    assert!(database.rows("SELECT * FROM t").is_empty());
    assert_eq!(database.rows("SELECT COUNT(*) FROM t"), ["count=0"]);
    for _ in 0..2 {
        assert!(rows(database.execute(&select, &[])).rows.is_empty());
    }
    database.run("ALTER TABLE t ADD w text").unwrap();
    assert!(database.rows("SELECT * FROM t").is_empty());
    assert_eq!(database.rows("UPDATE t SET v = 1 WHERE k = 'a' AND c = 1 IF EXISTS"), ["[applied]=false"]);
    assert_eq!(database.rows("INSERT INTO t (k, c, v) VALUES ('a', 1, 2) IF NOT EXISTS"), ["[applied]=true"]);
    assert_eq!(database.rows("UPDATE t SET v = 1 WHERE k = 'a' AND c = 1 IF EXISTS"), ["[applied]=true"]);
}
