//! Requests that end before they are done: when, and with which error.

use super::Database;
use super::memory::Fate;
use crate::budget::{Budget, Ended};
use crate::engine::Answered;
use diorite_base::account::Meter;
use diorite_cql::protocol::CqlError;
use diorite_cql::protocol::client::{ClientRequest, Parameters};
use diorite_cql::protocol::error::{ErrorCode, ErrorKind};
use diorite_cql::protocol::{TypeOption, Value};
use diorite_model::value::collection::push_signed_vint;
use std::future::Future;
use std::pin::{Pin, pin};
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::task::{Context, Poll};

/// A duration on the wire.
fn duration(months: i64, days: i64, nanoseconds: i64) -> Vec<u8> {
    let mut wire = Vec::new();
    [months, days, nanoseconds].into_iter().for_each(|part| push_signed_vint(part, &mut wire));
    wire
}

#[test]
fn a_timeout_may_be_bound() {
    let mut database = Database::with_keyspace();
    database.run("CREATE TABLE t (k int PRIMARY KEY, v int)").unwrap();
    let statements = [
        "SELECT v FROM t WHERE k = 1 USING TIMEOUT ?",
        "INSERT INTO t (k, v) VALUES (1, 2) USING TIMEOUT ?",
        "UPDATE t USING TIMEOUT ? SET v = 2 WHERE k = 1",
        "DELETE FROM t USING TIMEOUT ? WHERE k = 1",
        "BEGIN BATCH USING TIMEOUT ? INSERT INTO t (k, v) VALUES (1, 2); APPLY BATCH",
    ];
    for statement in statements {
        let prepared = database.prepare(statement).unwrap();
        let marker = &prepared.markers.columns[0];
        let is_duration =
            matches!(&marker.type_option, TypeOption::Native(native) if format!("{native:?}") == "Duration");
        assert!(is_duration && marker.name == "[timeout]", "{marker:?}");
        let mut ends = |value: Value<'_>| {
            database.budget = Arc::new(Budget::new(Meter::alone(usize::MAX), 900_000_000_000_000));
            database.execute(&prepared, &[value]).map(|_| database.budget.deadline_ns())
        };
        assert_eq!(ends(Value::Set(&duration(0, 0, 30_000_000))).unwrap(), 30_000_000, "{statement}");
        assert_eq!(ends(Value::Set(&duration(0, 1, 5))).unwrap(), 86_400_000_000_005);
        assert_eq!(ends(Value::Unset).unwrap(), 900_000_000_000_000);
        for wrong in [duration(0, 0, 0), duration(0, 0, -1), duration(1, 0, 0), vec![0x80]] {
            assert_eq!(ends(Value::Set(&wrong)).unwrap_err().code(), ErrorCode::Invalid, "{statement}: {wrong:?}");
        }
        assert_eq!(ends(Value::Null).unwrap_err().code(), ErrorCode::Invalid);
    }
    let markers = database.prepare("UPDATE t USING TTL ? AND TIMEOUT ? SET v = ? WHERE k = ?").unwrap().markers;
    let names: Vec<&str> = markers.columns.iter().map(|column| column.name.as_str()).collect();
    assert_eq!(names, ["[ttl]", "[timeout]", "v", "k"]);
}

/// Begins a statement when it is its turn.
fn begun<T: Send + 'static>(
    database: &Database,
    statement: &str,
    turn: impl Future<Output = T> + Send + 'static,
) -> Pin<Box<dyn Future<Output = Answered>>> {
    let request = ClientRequest::Query { statement, parameters: Parameters::default() };
    let owned = database.owned(&request, Arc::new(Budget::new(Meter::alone(usize::MAX), 1_000)));
    Box::pin(database.engine.answer_in_turn(Arc::clone(&database.session), owned, turn))
}

fn polled(mut request: Pin<&mut (impl Future<Output = Answered> + ?Sized)>) -> Option<CqlError> {
    match request.as_mut().poll(&mut Context::from_waker(std::task::Waker::noop())) {
        Poll::Pending => None,
        Poll::Ready(answered) => Some(answered.outcome.unwrap_err()),
    }
}

#[test]
fn what_waits_for_its_turn_is_listed_and_ends() {
    let database = Database::with_keyspace();
    database.run("CREATE TABLE t (k int PRIMARY KEY, v int)").unwrap();
    let shown = || {
        let (running, _) = database.engine.activity().running(9);
        running.into_iter().map(|request| (request.statement.text.clone(), request.number)).collect::<Vec<_>>()
    };
    let never = || std::future::pending::<()>();
    let mut cancelled = pin!(begun(&database, "SELECT v FROM t WHERE k = 1", never()));
    assert!(polled(cancelled.as_mut()).is_none());
    let waiting = shown();
    assert_eq!((waiting.len(), waiting[0].0.as_str()), (1, "(waits for its turn)"));
    assert!(database.engine.activity().cancel(waiting[0].1));
    let error = polled(cancelled.as_mut()).unwrap();
    assert!(error.message.contains("ended by an operator"), "{}", error.message);
    assert_eq!(error.code(), ErrorCode::Overloaded, "nothing was done");
    let mut late = pin!(begun(&database, "SELECT v FROM t WHERE k = 1", never()));
    assert!(polled(late.as_mut()).is_none());
    database.engine.activity().end_expired(1_000);
    assert!(polled(late.as_mut()).unwrap().message.contains("took longer than its timeout"));
    assert!(shown().is_empty());
}

#[test]
fn what_is_sent_to_tablets_ends_with_the_request() {
    let mut database = Database::with_keyspace();
    database.run("CREATE TABLE t (k int PRIMARY KEY, v int)").unwrap();
    let mut sent = |statement: &str| {
        database.budget = Arc::new(Budget::new(Meter::alone(usize::MAX), 10_000_000_000));
        database.run(statement).unwrap();
        database.kv.deadline_ns.load(Ordering::Relaxed)
    };
    assert_eq!(sent("UPDATE t SET v = 1 WHERE k = 1"), 10_000_000_000);
    assert_eq!(sent("UPDATE t USING TIMEOUT 30ms SET v = 1 WHERE k = 1"), 30_000_000);
    assert_eq!(sent("DELETE FROM t USING TIMEOUT 40ms WHERE k = 1 IF EXISTS"), 40_000_000);
    assert_eq!(sent("BEGIN BATCH USING TIMEOUT 50ms INSERT INTO t (k, v) VALUES (1, 2); APPLY BATCH"), 50_000_000);
}

#[test]
fn long_work_is_done_and_freed_elsewhere() {
    let database = Database::with_keyspace();
    database.run("CREATE TABLE t (k int, c int, d int, v int, PRIMARY KEY (k, c, d))").unwrap();
    let counts = || (database.kv.long.works.load(Ordering::Relaxed), database.kv.discarded.load(Ordering::Relaxed));
    let mut done = counts();
    let mut elsewhere = |statement: &str| {
        drop(database.run(statement));
        let now = counts();
        let before = std::mem::replace(&mut done, now);
        (now.0 > before.0, now.1 - before.1)
    };
    let numbers = |count: usize| (0..count).map(|at| at.to_string()).collect::<Vec<_>>().join(",");
    assert_eq!(elsewhere("UPDATE t SET v = 1 WHERE k = 1 AND c = 1 AND d = 1"), (false, 0));
    assert_eq!(elsewhere("SELECT v FROM t WHERE k IN (1, 2, 3)"), (false, 0));
    // Few words that are many rows.
    let product = format!("UPDATE t SET v = 1 WHERE k IN ({0}) AND c IN ({0}) AND d IN ({0})", numbers(30));
    assert!(product.len() < 512);
    assert_eq!(elsewhere(&product), (true, 0));
    // Its plan is freed there, whether it could be executed or not.
    assert_eq!(elsewhere(&format!("SELECT v FROM t WHERE k IN ({})", numbers(5_000))), (true, 1));
    assert_eq!(elsewhere(&format!("SELECT v FROM t WHERE k IN ({}) LIMIT ?", numbers(5_000))), (true, 1));
    let batch = "INSERT INTO t (k, c, d, v) VALUES (1, 1, 1, 1);".repeat(1_000);
    assert_eq!(elsewhere(&format!("BEGIN BATCH {batch} APPLY BATCH")), (true, 1));
    // How much these are is up to the schema.
    assert_eq!(elsewhere("SELECT * FROM system.local"), (false, 0));
    assert_eq!(elsewhere("SELECT * FROM system_schema.columns"), (true, 0));
    assert_eq!(elsewhere("SELECT role FROM system_auth.roles"), (true, 0));
    assert_eq!(elsewhere("DESCRIBE FULL SCHEMA"), (true, 0));
}

#[test]
fn large_rows_of_several_partitions_are_taken_in_elsewhere_and_many_small_ones_too() {
    let database = Database::with_keyspace();
    database.run("CREATE TABLE t (k int PRIMARY KEY, v text) WITH tablets = 1").unwrap();
    let long_works = |statement: &str| {
        let before = database.kv.long.works.load(Ordering::Relaxed);
        database.run(statement).unwrap();
        database.kv.long.works.load(Ordering::Relaxed) - before
    };
    let insert = |k: usize, bytes: usize| {
        database.run(&format!("INSERT INTO t (k, v) VALUES ({k}, '{}')", "x".repeat(bytes))).unwrap();
    };
    (0..4).for_each(|k| insert(k, 300 << 10));
    assert_eq!(long_works("SELECT v FROM t WHERE k IN (100, 101)"), 0);
    // One to find each its own, and one for each.
    assert!(long_works("SELECT v FROM t WHERE k IN (0, 1)") >= 3);
    (0..200).for_each(|k| insert(k, 4 << 10));
    let keys: Vec<String> = (0..200).map(|k| k.to_string()).collect();
    // 800 KiB, each alone a moment.
    assert!(long_works(&format!("SELECT v FROM t WHERE k IN ({})", keys.join(","))) >= 3);
}

#[test]
fn a_write_that_ends_says_which_parts_were_done() {
    let database = Database::with_keyspace();
    database.run("CREATE TABLE t (k int PRIMARY KEY, v int) WITH tablets = 2").unwrap();
    let both = "UPDATE t SET v = 1 WHERE k IN (1, 3)";
    let told = |fates: Vec<Fate>| {
        database.kv.fates.lock().extend(fates);
        let mut request = pin!(begun(&database, both, std::future::ready(())));
        assert!(polled(request.as_mut()).is_none());
        let (running, _) = database.engine.activity().running(9);
        running[0].budget.end(Ended::Expired);
        polled(request.as_mut()).unwrap()
    };
    let error = told(vec![Fate::Applied, Fate::AppliedLate(usize::MAX)]);
    let what = "(1 of 2 parts of the write have taken effect, 1 may have: the request took longer than its timeout)";
    assert!(error.message.ends_with(what), "{}", error.message);
    assert!(matches!(error.kind, ErrorKind::WriteTimeout { received: 0, required: 2, .. }), "{:?}", error.kind);
    let error = told(vec![Fate::AppliedLate(usize::MAX), Fate::AppliedLate(usize::MAX)]);
    let what = "(2 of 2 parts of the write may have taken effect: the request took longer than its timeout)";
    assert!(error.message.ends_with(what), "{}", error.message);
}

#[test]
fn long_work_that_is_refused_was_not_begun_and_what_was_decided_is_answered_all_the_same() {
    let database = Database::with_keyspace();
    database.run("CREATE TABLE t (k int PRIMARY KEY, v text) WITH tablets = 1").unwrap();
    let insert = format!("INSERT INTO t (k, v) VALUES (1, '{}')", "x".repeat(300 << 10));
    database.run(&insert).unwrap();
    database.kv.long.is_refused.store(true, Ordering::Relaxed);
    let writes = database.kv.writes.load(Ordering::Relaxed);
    assert_eq!(database.run(&insert).unwrap_err().code(), ErrorCode::Overloaded);
    assert_eq!(database.kv.writes.load(Ordering::Relaxed), writes, "nothing was sent");
    let long_works = database.kv.long.works.load(Ordering::Relaxed);
    // The condition has been decided, and the answer holds the row.
    database.run("UPDATE t SET v = 'y' WHERE k = 1 IF v = 'z'").unwrap();
    assert!(database.kv.long.works.load(Ordering::Relaxed) > long_works);
    assert_eq!(database.kv.writes.load(Ordering::Relaxed), writes + 1);
}
