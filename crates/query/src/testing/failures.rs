//! Failures of lower layers become the right error codes and fields: consistency level, required replicas and live
//! ones.

use super::Database;
use crate::kv::KvError;
use diorite_base::TabletId;
use diorite_base::write::Waited;
use diorite_cql::protocol::client::{ClientRequest, Parameters};
use diorite_cql::protocol::error::ErrorKind;
use diorite_cql::protocol::{Consistency, CqlError, ErrorCode, WriteType};

const READ: &str = "SELECT * FROM t WHERE k = 1";
const WRITE: &str = "INSERT INTO t (k, v) VALUES (1, 1)";

fn failing(failure: KvError) -> Database {
    let database = Database::with_keyspace();
    database.run("CREATE TABLE t (k int PRIMARY KEY, v int)").unwrap();
    database.run("CREATE TABLE n (k int PRIMARY KEY, v counter)").unwrap();
    *database.kv.failure.lock() = Some(failure);
    database
}

fn asked(database: &Database, statement: &str, consistency: Consistency) -> CqlError {
    let serial_consistency = Some(Consistency::LocalSerial);
    let parameters = Parameters { consistency, serial_consistency, ..Parameters::default() };
    database.send(&ClientRequest::Query { statement, parameters }).unwrap_err()
}

#[test]
fn a_tablet_without_a_leader_is_unavailable() {
    let database = failing(KvError::Unavailable(TabletId(1_000)));
    let consistency = Consistency::LocalQuorum;
    for statement in [READ, WRITE, "SELECT count(*) FROM t", "BEGIN BATCH INSERT INTO t (k) VALUES (1); APPLY BATCH"] {
        let error = asked(&database, statement, consistency);
        assert_eq!(error.kind, ErrorKind::Unavailable { consistency, required: 2, alive: 1 }, "{statement}");
        assert!(error.message.starts_with("Cannot achieve consistency level LOCAL_QUORUM: "), "{}", error.message);
    }
}

#[test]
fn what_is_not_answered_in_time_is_a_timeout_of_its_kind() {
    let database = failing(KvError::Timeout(Waited::in_vain(2_000)));
    let consistency = Consistency::Two;
    let error = asked(&database, READ, consistency);
    assert_eq!(error.kind, ErrorKind::ReadTimeout { consistency, received: 0, required: 2, data_present: false });
    assert!(error.message.starts_with("Operation timed out - received only 0 responses."), "{}", error.message);
    for (statement, consistency, write_type) in [
        (WRITE, Consistency::Two, WriteType::Simple),
        ("UPDATE n SET v = v + 1 WHERE k = 1", Consistency::Two, WriteType::Counter),
        ("BEGIN BATCH INSERT INTO t (k) VALUES (1); APPLY BATCH", Consistency::Two, WriteType::Batch),
        ("BEGIN UNLOGGED BATCH INSERT INTO t (k) VALUES (1); APPLY BATCH", Consistency::Two, WriteType::UnloggedBatch),
        // The conditional phase is what timed out.
        ("INSERT INTO t (k) VALUES (1) IF NOT EXISTS", Consistency::LocalSerial, WriteType::Cas),
    ] {
        let error = asked(&database, statement, Consistency::Two);
        let wanted = ErrorKind::WriteTimeout { consistency, received: 0, required: 2, write_type, contentions: 0 };
        assert_eq!(error.kind, wanted, "{statement}");
    }
}

#[test]
fn a_counter_is_named_as_such_on_the_short_way_too() {
    for (statement, write_type) in
        [("UPDATE n SET v = v + 1 WHERE k = 1", WriteType::Counter), (WRITE, WriteType::Simple)]
    {
        let database = failing(KvError::Timeout(Waited::in_vain(2_000)));
        let prepared = database.prepare(statement).unwrap();
        let error = database.execute_now(&database.execute_request(&prepared, &[], false)).unwrap().unwrap_err();
        let ErrorKind::WriteTimeout { write_type: told, .. } = error.kind else { panic!("{error:?}") };
        assert_eq!(told, write_type);
    }
}

#[test]
fn a_write_that_too_few_replicas_acknowledged_says_how_many_did() {
    for (received, required, told) in [(1, 2, (1, 2)), (2, 3, (2, 3)), (0, 1, (0, 1)), (2, 2, (1, 2)), (1, 0, (1, 2))] {
        let database = failing(KvError::Timeout(Waited { after_ms: 1_800, received, required }));
        let error = asked(&database, WRITE, Consistency::Quorum);
        let (consistency, write_type) = (Consistency::Quorum, WriteType::Simple);
        let (received, required) = told;
        let wanted = ErrorKind::WriteTimeout { consistency, received, required, write_type, contentions: 0 };
        assert_eq!(error.kind, wanted);
        let begins = format!("Operation timed out - received only {received} responses.");
        assert!(error.message.starts_with(&begins), "{}", error.message);
    }
}

#[test]
fn a_full_disk_and_a_full_queue_are_told_apart() {
    let database = failing(KvError::DiskFull("8 KiB are free".to_owned()));
    let error = asked(&database, WRITE, Consistency::One);
    let ErrorKind::WriteFailure { consistency: Consistency::One, required: 2, write_type: WriteType::Simple, .. } =
        error.kind
    else {
        panic!("{error:?}")
    };
    assert!(error.message.contains("8 KiB are free"));
    let database = failing(KvError::Overloaded("the queue of writes is full"));
    for statement in [READ, WRITE] {
        let error = asked(&database, statement, Consistency::One);
        assert_eq!(error.kind, ErrorKind::Overloaded);
        assert!(error.message.contains("the queue of writes is full"));
    }
}

/// To send it again does not help: the statement is wrong for this row.
#[test]
fn a_write_that_is_over_a_limit_of_the_tablet_is_invalid() {
    let why = "a row that the write would add to of 67108865 bytes is over the limit of 67108864 bytes (ROW_BYTES)";
    for statement in [
        WRITE,
        "UPDATE t SET v = 2 WHERE k = 1 IF v = 1",
        "UPDATE n SET v = v + 1 WHERE k = 1",
        "BEGIN BATCH INSERT INTO t (k) VALUES (1); APPLY BATCH",
    ] {
        let database = failing(KvError::TooLarge(why.to_owned()));
        let error = asked(&database, statement, Consistency::Quorum);
        assert_eq!((error.code(), error.code() as u32), (ErrorCode::Invalid, 0x2200), "{statement}");
        assert!(error.message.contains(why), "{statement}: {}", error.message);
    }
    for statement in [WRITE, "UPDATE n SET v = v + 1 WHERE k = 1"] {
        let database = failing(KvError::TooLarge(why.to_owned()));
        let prepared = database.prepare(statement).unwrap();
        let error = database.execute_now(&database.execute_request(&prepared, &[], false)).unwrap().unwrap_err();
        assert_eq!(error.code(), ErrorCode::Invalid, "prepared: {statement}");
        assert!(error.message.contains(why), "prepared: {statement}: {}", error.message);
    }
}
