//! Writes that a tablet refuses because of how they were planned: they are planned again as long as there is time.

use super::Database;
use super::memory::Fate;
use super::requests::{INT, refused};
use crate::budget::Budget;
use crate::kv::{Kv, KvError};
use diorite_base::TabletId;
use diorite_base::account::Meter;
use diorite_cql::protocol::client::{ClientBatchStatement, ClientRequest, ClientResponse, Parameters};
use diorite_cql::protocol::{BatchKind, CqlError, ErrorCode, Value};
use std::sync::Arc;
use std::sync::atomic::Ordering;

const SECOND_NS: u64 = 1_000_000_000;
const TABLET: TabletId = TabletId(1_000);
const VIEW: &str =
    "CREATE MATERIALIZED VIEW ks.m AS SELECT * FROM ks.t WHERE v IS NOT NULL AND k IS NOT NULL PRIMARY KEY (v, k)";
const UNIQUE: &str = "CREATE UNIQUE INDEX m ON ks.t (v)";

fn database(tablets: u32) -> Database {
    let database = Database::with_keyspace();
    let options = format!("tablets = {tablets} AND transactions = {{'enabled': true}}");
    database.run(&format!("CREATE TABLE t (k int PRIMARY KEY, v int) WITH {options}")).unwrap();
    ending(database)
}

/// The requests that follow end ten seconds from now.
fn ending(mut database: Database) -> Database {
    let deadline_ns = database.kv.monotonic_ns() + 10 * SECOND_NS;
    database.budget = Arc::new(Budget::new(Meter::alone(usize::MAX), deadline_ns));
    database
}

fn refuse(database: &Database, error: &KvError, times: usize) {
    database.kv.fates.lock().extend(std::iter::repeat_n(Fate::Refused(error.clone()), times));
}

fn refusals() -> [KvError; 2] {
    [KvError::NoSuchTablet(TABLET), KvError::Unmaintained]
}

/// Keys 1 and 3 are in different tablets of two.
const WRITES: [&str; 5] = [
    "INSERT INTO t (k, v) VALUES (1, 7)",
    "INSERT INTO t (k, v) VALUES (1, 7) IF NOT EXISTS",
    "BEGIN UNLOGGED BATCH INSERT INTO t (k, v) VALUES (1, 7); INSERT INTO t (k, v) VALUES (3, 7); APPLY BATCH",
    "BEGIN BATCH INSERT INTO t (k, v) VALUES (1, 7); INSERT INTO t (k, v) VALUES (3, 7); APPLY BATCH",
    "BEGIN TRANSACTION INSERT INTO t (k, v) VALUES (1, 7); INSERT INTO t (k, v) VALUES (3, 7); END TRANSACTION;",
];

#[test]
fn a_write_is_planned_again_until_its_tablet_takes_it() {
    for error in refusals() {
        for (write, times) in WRITES.into_iter().zip([40, 40, 40, 12, 12]) {
            let database = database(2);
            refuse(&database, &error, times);
            let outcome = database.run(write);
            assert!(outcome.is_ok(), "{write}: {error}: {outcome:?}");
            database.kv.fates.lock().clear();
            assert_eq!(database.rows("SELECT v FROM t WHERE k = 1"), ["v=7"], "{write}: {error}");
        }
    }
}

#[test]
fn a_write_that_concerns_a_view_or_a_unique_index_is_planned_again_until_its_tablets_take_it() {
    for error in refusals() {
        for create in [VIEW, UNIQUE] {
            let database = database(1);
            database.another().run(create).unwrap();
            let database = ending(database);
            refuse(&database, &error, 12);
            let outcome = database.run("INSERT INTO t (k, v) VALUES (1, 7)");
            assert!(outcome.is_ok(), "{create}: {error}: {outcome:?}");
            database.kv.fates.lock().clear();
            assert_eq!(database.rows("SELECT v FROM t WHERE k = 1"), ["v=7"], "{create}: {error}");
        }
    }
}

#[test]
fn a_write_that_is_refused_for_ever_fails_after_four_fifths_of_its_time() {
    let codes = [ErrorCode::Unavailable, ErrorCode::Overloaded];
    for (error, code) in refusals().into_iter().zip(codes) {
        for write in &WRITES[..3] {
            let database = database(2);
            refuse(&database, &error, 10_000);
            assert_eq!(refused(database.run(write)).0, code, "{write}: {error}");
            let elapsed_ns = database.kv.monotonic_ns();
            assert!((8 * SECOND_NS..8 * SECOND_NS + SECOND_NS / 10).contains(&elapsed_ns), "{write}: {elapsed_ns}");
            // The pauses grow, and are bounded.
            let tries = database.kv.writes.load(Ordering::Relaxed);
            assert!((100..500).contains(&tries), "{write}: {tries}");
        }
    }
}

#[test]
fn a_write_whose_outcome_is_not_known_is_not_planned_again() {
    let unknown = KvError::Storage("the log cannot be written".to_owned());
    for write in &WRITES[..2] {
        let database = database(2);
        let other = database.another();
        let alter = move || drop(other.run("ALTER TABLE ks.t ADD w int").unwrap());
        drop(database.kv.set_meanwhile(Some((0, Box::new(alter)))));
        database.kv.fates.lock().push_back(Fate::AppliedUnheard(0, unknown.clone()));
        assert_eq!(refused(database.run(write)).0, ErrorCode::WriteTimeout, "{write}");
        assert_eq!(database.kv.writes.load(Ordering::Relaxed), 1, "{write}");
    }
}

#[test]
fn a_prepared_write_of_a_row_waits_for_a_tablet_that_drops_what_its_table_has_lost() {
    for (create, drop_it) in [(VIEW, "DROP MATERIALIZED VIEW ks.m"), (UNIQUE, "DROP INDEX ks.m")] {
        let database = database(1);
        let other = database.another();
        other.run(create).unwrap();
        database.kv.leave_indexes(true);
        // It is waited for in vain.
        other.run(drop_it).unwrap();
        let database = ending(database);
        let insert = database.prepare("INSERT INTO t (k, v) VALUES (?, 7)").unwrap();
        let kv = Arc::clone(&database.kv);
        drop(database.kv.set_meanwhile(Some((30, Box::new(move || kv.leave_indexes(false))))));
        let outcome = database.execute(&insert, &[Value::Set(&INT(1))]);
        assert_eq!(outcome, Ok(ClientResponse::Void), "{drop_it}");
        assert!(database.kv.set_meanwhile(None).is_none(), "{drop_it}: it was refused before");
        assert_eq!(database.rows("SELECT v FROM t WHERE k = 1"), ["v=7"], "{drop_it}");
    }
}

/// A way to send a write.
type Way = fn(&Database) -> Result<ClientResponse, CqlError>;

fn as_text(database: &Database) -> Result<ClientResponse, CqlError> {
    database.run("INSERT INTO t (k, v) VALUES (1, 7)")
}

fn as_block(database: &Database) -> Result<ClientResponse, CqlError> {
    database.run("BEGIN TRANSACTION INSERT INTO t (k, v) VALUES (1, 7); END TRANSACTION;")
}

fn in_a_batch(database: &Database) -> Result<ClientResponse, CqlError> {
    let statements = [ClientBatchStatement::Text("INSERT INTO t (k, v) VALUES (1, 7)", &[])];
    database.send(&ClientRequest::Batch {
        kind: BatchKind::Logged,
        statements: &statements,
        parameters: Parameters::default(),
    })
}

#[test]
fn a_write_is_planned_again_with_what_its_table_has_got_meanwhile() {
    let ways: [Way; 3] = [as_text, as_block, in_a_batch];
    for create in [VIEW, UNIQUE] {
        for (at, way) in ways.into_iter().enumerate() {
            let database = Database::with_keyspace();
            database.run("CREATE TABLE t (k int PRIMARY KEY, v int) WITH transactions = {'enabled': true}").unwrap();
            let other = database.another();
            drop(database.kv.set_meanwhile(Some((0, Box::new(move || drop(other.run(create).unwrap()))))));
            let outcome = way(&database);
            assert!(outcome.is_ok(), "{create}, {at}: {outcome:?}");
            assert!(database.kv.set_meanwhile(None).is_none());
            assert_eq!(database.rows("SELECT v FROM t"), ["v=7"], "{create}, {at}");
            match create {
                VIEW => assert_eq!(database.rows("SELECT k FROM m WHERE v = 7"), ["k=1"], "{at}"),
                _ => {
                    let (_, message) = refused(database.run("INSERT INTO t (k, v) VALUES (2, 7)"));
                    assert!(message.contains("Duplicate value"), "{at}: {message}");
                }
            }
        }
    }
}

#[test]
fn a_prepared_write_is_planned_again_with_what_its_table_has_got_meanwhile() {
    for create in [VIEW, UNIQUE] {
        let database = Database::with_keyspace();
        database.run("CREATE TABLE t (k int PRIMARY KEY, v int) WITH transactions = {'enabled': true}").unwrap();
        let insert = database.prepare("INSERT INTO t (k, v) VALUES (?, 7)").unwrap();
        let one = INT(1);
        let values = [Value::Set(&one[..])];
        let other = database.another();
        drop(database.kv.set_meanwhile(Some((0, Box::new(move || drop(other.run(create).unwrap()))))));
        let outcome = database.send(&database.execute_request(&insert, &values, false));
        assert_eq!(outcome, Ok(ClientResponse::Void), "{create}");
        assert_eq!(database.rows("SELECT v FROM t"), ["v=7"], "{create}");
    }
}
