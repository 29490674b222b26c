//! Statements that define tables, indexes and views while leaders of tablets are silent, or tablets open slowly: they end
//! in time, leave nothing half done, and can be repeated.

use super::{Database, OwnedRequest, block_on};
use crate::budget::Budget;
use crate::engine::Reply;
use crate::kv::Kv;
use crate::session::Session;
use diorite_base::TabletId;
use diorite_base::account::Meter;
use diorite_cql::protocol::client::{ClientRequest, Parameters};
use diorite_cql::protocol::{CqlError, ErrorCode};
use std::sync::Arc;

const MS: u64 = 1_000_000;
const REQUEST_MS: u64 = 10_000;
const VIEW: &str =
    "CREATE MATERIALIZED VIEW m AS SELECT * FROM t WHERE v IS NOT NULL AND k IS NOT NULL PRIMARY KEY (v, k)";
const UNIQUE: &str = "CREATE UNIQUE INDEX m ON t (v)";
const COVERING: &str = "CREATE INDEX m ON t (v) INCLUDE (a)";

/// Table `t` with so many tablets, and rows whose values differ.
fn filled(tablets: u32) -> Database {
    let database = Database::with_keyspace();
    let options = format!("tablets = {tablets} AND transactions = {{'enabled': true}}");
    database.run(&format!("CREATE TABLE t (k int PRIMARY KEY, v int, a int) WITH {options}")).unwrap();
    for k in 0..9 {
        database.run(&format!("INSERT INTO t (k, v, a) VALUES ({k}, {k}, {k})")).unwrap();
    }
    database
}

fn tablets(database: &Database) -> Vec<TabletId> {
    database.kv.catalog().table("ks", "t").unwrap().tablets.iter().map(|range| range.tablet).collect()
}

/// Carries out a statement within a request's time, without what nodes do after it; and how long it took, milliseconds.
fn timed(database: &Database, statement: &str, request_ms: u64) -> (Result<Reply, CqlError>, u64) {
    let began_ns = database.kv.monotonic_ns();
    let request = ClientRequest::Query { statement, parameters: Parameters::default() };
    let budget = Arc::new(Budget::new(Meter::alone(usize::MAX), began_ns + request_ms * MS));
    let owned = OwnedRequest { arrived_ns: began_ns, ..database.owned(&request, budget) };
    let answered = block_on(database.engine.answer(Arc::clone(&database.session), owned));
    (answered.outcome, (database.kv.monotonic_ns() - began_ns) / MS)
}

#[test]
fn a_create_ends_in_time_and_goes_on_once_the_leader_answers() {
    for (create, read) in [
        (VIEW, "SELECT k FROM m WHERE v = 5"),
        (UNIQUE, "SELECT k FROM t WHERE v = 5"),
        (COVERING, "SELECT k FROM t WHERE v = 5"),
    ] {
        for request_ms in [REQUEST_MS, 2_000] {
            let database = filled(3);
            database.kv.silence(&tablets(&database)[..1]);
            let (answered, took_ms) = timed(&database, create, request_ms);
            let warnings = answered.unwrap().warnings;
            assert!(warnings.iter().any(|warning| warning.contains("are still being")), "{create}: {warnings:?}");
            assert!(took_ms < 6_000 && took_ms < request_ms, "{create}: {took_ms} ms of {request_ms}");
            // The statement is repeated, and nothing is made a second time.
            let again = create.replacen(" m ", " IF NOT EXISTS m ", 1);
            assert!(timed(&database, &again, request_ms).0.is_ok(), "{again}");
            database.kv.silence(&[]);
            // Nodes compare the rows after this one.
            database.run("SELECT k FROM t WHERE k = 0").unwrap();
            assert_eq!(database.kv.failed_comparisons(), [""; 0], "{create}");
            assert_eq!(database.rows(read), ["k=5"], "{create}");
        }
    }
}

#[test]
fn a_drop_does_not_wait_for_a_silent_leader() {
    for (create, drop_it) in [(VIEW, "DROP MATERIALIZED VIEW m"), (UNIQUE, "DROP INDEX m"), (COVERING, "DROP INDEX m")]
    {
        let database = filled(3);
        database.run(create).unwrap();
        database.kv.silence(&tablets(&database)[1..2]);
        let (answered, took_ms) = timed(&database, drop_it, REQUEST_MS);
        answered.unwrap();
        assert!(took_ms < 7_000, "{create}: {took_ms} ms");
        let (answered, _) = timed(&database, "ALTER TABLE t ADD w int", REQUEST_MS);
        answered.unwrap();
        database.kv.silence(&[]);
        database.run("SELECT k FROM t WHERE k = 0").unwrap();
        database.run(create).unwrap();
    }
}

/// More leaders are silent than tablets are asked at a time.
#[test]
fn silent_leaders_hide_no_duplicate_in_other_tablets() {
    for (count, silent) in [(3, 1), (40, 20)] {
        let database = filled(count);
        for k in 0..400 {
            database.run(&format!("INSERT INTO t (k, v) VALUES ({k}, 1)")).unwrap();
        }
        let silent = tablets(&database)[..silent].to_vec();
        database.kv.silence(&silent);
        let node = database.another();
        let compares = move || {
            node.kv.silence(&[]);
            node.compare_rows();
            node.kv.silence(&silent);
        };
        drop(database.kv.set_meanwhile(Some((0, Box::new(compares)))));
        let (answered, took_ms) = timed(&database, UNIQUE, REQUEST_MS);
        assert!(database.kv.set_meanwhile(None).is_none());
        let error = answered.unwrap_err();
        assert_eq!(error.code(), ErrorCode::Invalid, "{}", error.message);
        assert!(error.message.contains("Duplicate value disallowed by unique index m"), "{}", error.message);
        assert!(took_ms < REQUEST_MS, "{took_ms} ms");
        let catalog = database.kv.catalog();
        assert!(catalog.table("ks", "t").unwrap().table.indexes.is_empty(), "it is gone");
        assert!(catalog.tables().all(|entry| entry.table.index_of.is_none()), "and so is its table");
        database.kv.silence(&[]);
        for k in 0..400 {
            database.run(&format!("UPDATE t SET v = {k} WHERE k = {k}")).unwrap();
        }
        database.run(UNIQUE).unwrap();
        assert_eq!(database.kv.failed_comparisons(), [""; 0]);
    }
}

#[test]
fn whoever_makes_a_table_may_use_it_though_its_tablets_opened_after_the_deadline() {
    let database = Database::with_keyspace();
    database.run("CREATE ROLE ann WITH LOGIN = true").unwrap();
    database.run("GRANT CREATE ON KEYSPACE ks TO ann").unwrap();
    let ann = Database { session: Session::guarded(), ..database.another() };
    ann.session.log_in("ann");
    database.kv.open_slowly(20_000_000);
    timed(&ann, "CREATE TABLE ks.made (k int PRIMARY KEY)", REQUEST_MS).0.unwrap();
    database.kv.open_slowly(0);
    ann.run("SELECT k FROM ks.made WHERE k = 1").unwrap();
}

#[test]
fn what_fails_is_dropped_even_if_the_time_is_over_by_then() {
    let database = filled(3);
    for k in 0..9 {
        database.run(&format!("UPDATE t SET v = 1 WHERE k = {k}")).unwrap();
    }
    let node = database.another();
    let compares = move || {
        node.compare_rows();
        // The tablet's answer comes at the deadline.
        node.kv.advance_s(10);
    };
    drop(database.kv.set_meanwhile(Some((0, Box::new(compares)))));
    let (answered, _) = timed(&database, UNIQUE, REQUEST_MS);
    assert!(database.kv.set_meanwhile(None).is_none());
    let error = answered.unwrap_err();
    assert!(error.message.contains("Duplicate value disallowed by unique index m"), "{}", error.message);
    assert!(database.kv.catalog().table("ks", "t").unwrap().table.indexes.is_empty(), "{}", error.message);
}
