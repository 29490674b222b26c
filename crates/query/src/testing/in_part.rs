//! Writes that were done in part: the answer never says that nothing was done, and nothing is done twice.

use super::memory::Fate;
use super::{ClientResponse, Database};
use crate::kv::{Kv, KvError};
use crate::session::Session;
use diorite_base::TabletId;
use diorite_base::level::Level;
use diorite_base::write::Waited;
use diorite_cluster::catalog::Command;
use diorite_cql::protocol::client::{BoundValues, ClientRequest, Parameters};
use diorite_cql::protocol::error::ErrorKind;
use diorite_cql::protocol::{Consistency, CqlError, ErrorCode, Value, WriteType};
use proptest::prelude::*;
use std::sync::atomic::Ordering;

const TABLET: TabletId = TabletId(1_000);
/// Keys 1 and 3 are in different tablets of two.
const COUNT_BOTH: &str =
    "BEGIN COUNTER BATCH UPDATE n SET v = v + 1 WHERE k = 1; UPDATE n SET v = v + 1 WHERE k = 3; APPLY BATCH";
const COUNTS: &str = "SELECT k, v FROM n WHERE k IN (1, 3)";

/// At its level all batches are atomic per tablet only, as unlogged ones always are.
fn database() -> Database {
    let database = Database::at_level(Level::FIRST);
    database.run("CREATE KEYSPACE ks").unwrap();
    database.run("USE ks").unwrap();
    database.run("CREATE TABLE t (k int PRIMARY KEY, v int, l list<int>) WITH tablets = 2").unwrap();
    database.run("CREATE TABLE n (k int PRIMARY KEY, v counter) WITH tablets = 2").unwrap();
    database
}

fn fated(fates: impl IntoIterator<Item = Fate>) -> Database {
    let database = database();
    database.kv.fates.lock().extend(fates);
    database
}

fn timeout(received: u32, required: u32) -> KvError {
    KvError::Timeout(Waited { after_ms: 1_800, received, required })
}

fn failed(database: &Database, statement: &str) -> CqlError {
    let parameters = Parameters { consistency: Consistency::LocalQuorum, ..Parameters::default() };
    database.send(&ClientRequest::Query { statement, parameters }).unwrap_err()
}

fn write_timeout(received: i32, required: i32, write_type: WriteType) -> ErrorKind {
    ErrorKind::WriteTimeout { consistency: Consistency::LocalQuorum, received, required, write_type, contentions: 0 }
}

fn refusals() -> [KvError; 7] {
    [
        KvError::Unavailable(TABLET),
        KvError::NotLeader { tablet: TABLET, leader: None },
        KvError::Overloaded("the write queue is full"),
        KvError::NoSuchTablet(TABLET),
        KvError::Unmaintained,
        KvError::TooLarge("too large".to_owned()),
        KvError::DiskFull("8 KiB are free".to_owned()),
    ]
}

#[test]
fn a_part_that_was_applied_is_told_whatever_refuses_another() {
    for refusal in refusals() {
        for first in [Fate::Applied, Fate::AppliedLate(7)] {
            let database = fated([first.clone(), Fate::Refused(refusal.clone())]);
            // It goes on being refused if it is planned again.
            database.kv.fates.lock().extend(std::iter::repeat_n(Fate::Refused(refusal.clone()), 100));
            let error = failed(&database, COUNT_BOTH);
            assert_eq!(error.kind, write_timeout(0, 2, WriteType::Counter), "{first:?}, then {refusal}");
            assert!(error.message.contains("1 of 2 parts of the write have taken effect: "), "{}", error.message);
            assert!(error.message.contains(&refusal.to_string()), "{}", error.message);
            database.kv.fates.lock().clear();
            assert_eq!(database.rows(COUNTS).len(), 1);
        }
    }
}

#[test]
fn a_part_that_may_have_been_applied_is_told_whatever_refuses_another() {
    let is_planned_again = |refusal: &KvError| matches!(refusal, KvError::NoSuchTablet(_) | KvError::Unmaintained);
    for refusal in refusals().into_iter().filter(|refusal| !is_planned_again(refusal)) {
        for unknown in [timeout(1, 3), KvError::Storage("the log cannot be written".to_owned())] {
            let (received, required) = if matches!(unknown, KvError::Timeout(_)) { (1, 3) } else { (0, 2) };
            // Refused while the other is waited for, or not even sent.
            for (late, weakest, sent) in [(5, (0, 2), 2), (0, (received, required), 1)] {
                let database = fated([Fate::AppliedUnheard(late, unknown.clone()), Fate::Refused(refusal.clone())]);
                let error = failed(&database, COUNT_BOTH);
                let kind = write_timeout(weakest.0, weakest.1, WriteType::Counter);
                assert_eq!(error.kind, kind, "{unknown} after {late}, {refusal}");
                let says = "1 of 2 parts of the write may have taken effect: ";
                assert!(error.message.contains(says), "{}", error.message);
                assert_eq!(database.kv.writes.load(Ordering::Relaxed), sent);
            }
        }
    }
}

/// Drivers repeat requests that failed with a server error, even if they are not idempotent.
#[test]
fn a_write_of_one_part_whose_outcome_is_not_known_is_a_timeout_of_its_kind() {
    let unheard = || Fate::AppliedUnheard(0, KvError::Storage("the log cannot be written".to_owned()));
    let consistency = Consistency::LocalQuorum;
    let check = |error: CqlError, write_type, what: &str| {
        let consistency = if write_type == WriteType::Cas { Consistency::Serial } else { consistency };
        let kind = ErrorKind::WriteTimeout { consistency, received: 0, required: 2, write_type, contentions: 0 };
        assert_eq!(error.kind, kind, "{what}");
        assert!(error.message.contains("the log cannot be written"), "{what}: {}", error.message);
    };
    for (statement, write_type) in [
        ("INSERT INTO t (k, v) VALUES (1, 1)", WriteType::Simple),
        ("UPDATE t SET l = l + [1] WHERE k = 1", WriteType::Simple),
        ("UPDATE n SET v = v + 1 WHERE k = 1", WriteType::Counter),
        ("INSERT INTO t (k, v) VALUES (1, 1) IF NOT EXISTS", WriteType::Cas),
        ("BEGIN BATCH INSERT INTO t (k) VALUES (1); APPLY BATCH", WriteType::Batch),
        ("BEGIN COUNTER BATCH UPDATE n SET v = v + 1 WHERE k = 1; APPLY BATCH", WriteType::Counter),
    ] {
        check(failed(&fated([unheard()]), statement), write_type, statement);
    }
    for (statement, write_type) in [
        ("INSERT INTO t (k, v) VALUES (1, ?)", WriteType::Simple),
        ("UPDATE n SET v = v + ? WHERE k = 1", WriteType::Counter),
    ] {
        let database = database();
        let prepared = database.prepare(statement).unwrap();
        let parameters = |values| Parameters { consistency, values, ..Parameters::default() };
        let value = 1i64.to_be_bytes();
        let value = if write_type == WriteType::Counter { &value[..] } else { &value[4..] };
        let values = [Value::Set(value)];
        let request = ClientRequest::Execute {
            id: &prepared.id,
            result_metadata_id: &[],
            parameters: parameters(BoundValues::Positional(&values)),
        };
        database.kv.fates.lock().push_back(unheard());
        check(database.execute_now(&request).unwrap().unwrap_err(), write_type, statement);
        database.kv.fates.lock().push_back(unheard());
        check(database.send(&request).unwrap_err(), write_type, statement);
    }
}

/// Nor is a change of the catalog that may have been made.
#[test]
fn a_definition_whose_outcome_is_not_known_is_a_timeout() {
    let database = database();
    let storage = || KvError::Storage("the log cannot be written".to_owned());
    for statement in ["CREATE TABLE made (k int PRIMARY KEY)", "CREATE ROLE bob"] {
        *database.kv.failing_change.lock() = Some((0, storage()));
        assert_eq!(failed(&database, statement).kind, write_timeout(0, 2, WriteType::Simple), "{statement}");
    }
    // Reads can be repeated without harm, and an operator has to act.
    *database.kv.failure.lock() = Some(storage());
    assert_eq!(failed(&database, "SELECT * FROM t").code(), ErrorCode::ServerError);
}

#[test]
fn nothing_is_sent_after_a_refusal_so_that_nothing_was_done() {
    let unavailable = ErrorKind::Unavailable { consistency: Consistency::LocalQuorum, required: 2, alive: 1 };
    for (refusal, kind) in
        [(KvError::Unavailable(TABLET), unavailable), (KvError::Overloaded("full"), ErrorKind::Overloaded)]
    {
        let database = fated([Fate::Refused(refusal)]);
        assert_eq!(failed(&database, COUNT_BOTH).kind, kind);
        assert_eq!(database.kv.writes.load(Ordering::Relaxed), 1);
        assert!(database.rows(COUNTS).is_empty());
    }
}

#[test]
fn each_kind_of_write_is_named_and_the_weakest_part_counted() {
    for (statement, write_type) in [
        ("UPDATE t SET v = 1 WHERE k IN (1, 3)", WriteType::Simple),
        ("BEGIN BATCH INSERT INTO t (k) VALUES (1); INSERT INTO t (k) VALUES (3); APPLY BATCH", WriteType::Batch),
        (
            "BEGIN UNLOGGED BATCH INSERT INTO t (k) VALUES (1); INSERT INTO t (k) VALUES (3); APPLY BATCH",
            WriteType::UnloggedBatch,
        ),
        (COUNT_BOTH, WriteType::Counter),
    ] {
        let database = fated([Fate::Applied, Fate::AppliedUnheard(0, timeout(1, 3))]);
        let error = failed(&database, statement);
        assert_eq!(error.kind, write_timeout(1, 3, write_type), "{statement}");
        assert!(
            error.message.contains("1 of 2 parts of the write have taken effect, 1 may have: "),
            "{}",
            error.message
        );
    }
}

#[test]
fn a_program_that_fails_in_one_tablet_does_not_hide_what_another_has_applied() {
    let database = database();
    database.run("INSERT INTO t (k, l) VALUES (1, [7])").unwrap();
    let one = failed(&database, "UPDATE t SET l[0] = 8 WHERE k = 3");
    assert_eq!(one.code(), ErrorCode::Invalid, "nothing else was to be done");
    let error = failed(&database, "UPDATE t SET l[0] = 8 WHERE k IN (1, 3)");
    assert_eq!(error.kind, write_timeout(0, 2, WriteType::Simple));
    assert!(error.message.contains(&*one.message), "{}", error.message);
    assert_eq!(database.rows("SELECT l FROM t WHERE k = 1"), ["l=[8]"]);
}

#[test]
fn what_is_planned_again_is_told_with_what_was_done_before() {
    let database = database();
    let tablets = database.kv.catalog().table("ks", "n").unwrap().tablets.clone();
    let drop = Command::DropTable { keyspace: "ks".to_owned(), name: "n".to_owned(), if_exists: false };
    *database.kv.interruption.lock() = Some((1, drop));
    let error = failed(&database, COUNT_BOTH);
    assert_eq!(tablets.len(), 2);
    assert_eq!(error.kind, write_timeout(0, 2, WriteType::Counter));
    assert!(error.message.contains("table n does not exist"), "{}", error.message);
}

#[test]
fn statements_with_status_of_which_the_first_was_done_are_told_so() {
    for second in refusals() {
        let database = database();
        let batch = "BEGIN BATCH INSERT INTO t (k, v) VALUES (1, 1) RETURNS STATUS AS ROW; \
                     INSERT INTO t (k, v) VALUES (3, 1) RETURNS STATUS AS ROW; APPLY BATCH";
        database.kv.fates.lock().push_back(Fate::Applied);
        database.kv.fates.lock().extend(std::iter::repeat_n(Fate::Refused(second.clone()), 100));
        let error = failed(&database, batch);
        assert_eq!(error.kind, write_timeout(0, 2, WriteType::Batch), "{second}");
        database.kv.fates.lock().clear();
        assert_eq!(database.rows("SELECT k FROM t"), ["k=1"]);
    }
}

#[test]
fn a_statement_with_status_that_is_wrong_is_refused_before_the_first_is_done() {
    let database = database();
    let long = "x".repeat(70_000);
    database.run("CREATE TABLE s (k text PRIMARY KEY, v int)").unwrap();
    let batch = format!(
        "BEGIN BATCH INSERT INTO s (k, v) VALUES ('a', 1) RETURNS STATUS AS ROW; \
         INSERT INTO s (k, v) VALUES ('{long}', 1) RETURNS STATUS AS ROW; APPLY BATCH"
    );
    assert_eq!(failed(&database, &batch).code(), ErrorCode::Invalid);
    assert!(database.rows("SELECT k FROM s").is_empty());
}

#[test]
fn a_table_that_was_made_is_told_although_its_maker_could_not_be_granted_it() {
    let database = database();
    database.run("CREATE ROLE ann WITH LOGIN = true").unwrap();
    database.run("GRANT CREATE ON KEYSPACE ks TO ann").unwrap();
    let ann = Database { session: Session::guarded(), ..database.another() };
    ann.session.log_in("ann");
    let create = "CREATE TABLE ks.made (k int PRIMARY KEY)";
    *database.kv.failing_change.lock() = Some((0, KvError::Unavailable(TABLET)));
    assert_eq!(failed(&ann, create).code(), ErrorCode::Unavailable);
    *database.kv.failing_change.lock() = Some((1, KvError::Unavailable(TABLET)));
    let error = failed(&ann, create);
    assert_eq!(error.kind, write_timeout(0, 2, WriteType::Simple));
    assert!(database.kv.catalog().table("ks", "made").is_some());
}

fn fate() -> impl Strategy<Value = Fate> {
    prop_oneof![
        4 => Just(Fate::Applied),
        2 => (1usize..5).prop_map(Fate::AppliedLate),
        1 => (0usize..5).prop_map(|polls| Fate::AppliedUnheard(polls, timeout(1, 2))),
        1 => (0usize..5).prop_map(|polls| Fate::AppliedUnheard(polls, KvError::Storage("no disk".to_owned()))),
        4 => prop::sample::select(refusals().to_vec()).prop_map(Fate::Refused),
    ]
}

proptest! {
    /// A client that repeats a batch of counters after a refusal counts nothing twice.
    #[test]
    fn counters_are_never_counted_twice(fates in proptest::collection::vec(fate(), 0..40), truncated_after in proptest::option::of(0usize..6)) {
        let database = fated(fates);
        let truncate = Command::TruncateTable { keyspace: "ks".to_owned(), name: "n".to_owned() };
        *database.kv.interruption.lock() = truncated_after.map(|accesses| (accesses, truncate));
        let is_done = loop {
            match database.run(COUNT_BOTH) {
                Ok(ClientResponse::Void) => break true,
                Err(error) if matches!(error.kind, ErrorKind::Unavailable { .. } | ErrorKind::Overloaded) => {}
                Err(_) => break false,
                other => panic!("{other:?}"),
            }
        };
        database.kv.fates.lock().clear();
        *database.kv.interruption.lock() = None;
        let counted = database.rows(COUNTS);
        prop_assert!(counted.iter().all(|row| row.ends_with("v=1")), "{:?}", counted);
        prop_assert!(!is_done || truncated_after.is_some() || counted.len() == 2, "{:?}", counted);
    }
}
