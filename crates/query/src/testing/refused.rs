//! Conditional writes that are refused: the answer, the cost, and the limits of a batch.

use super::{ClientResponse, Database, rendered_rows};
use crate::budget::Budget;
use crate::steps;
use diorite_base::account::Meter;
use diorite_base::limits::{MAX_CONDITION_ROWS, MAX_SHOWN_BYTES};
use diorite_cql::protocol::client::{ClientBatchStatement, ClientRequest, Parameters};
use diorite_cql::protocol::{BatchKind, CqlError, ErrorCode, Response, Value};
use std::sync::Arc;
use std::sync::atomic::Ordering;

fn database() -> Database {
    let database = Database::with_keyspace();
    database.run("CREATE TABLE t (k int, c int, s int static, v blob, PRIMARY KEY (k, c))").unwrap();
    database
}

/// `count` rows are deleted, and all remain stored, as a client gave the time.
fn bury(database: &Database, count: u32) {
    for c in 0..count {
        database.run(&format!("INSERT INTO t (k, c, v) VALUES (1, {c}, 0x01) USING TIMESTAMP 10")).unwrap();
    }
    database.run("DELETE FROM t USING TIMESTAMP 20 WHERE k = 1 AND c >= 0").unwrap();
}

const STATIC_CONDITIONS: [&str; 5] = [
    "UPDATE t SET s = 1 WHERE k = 1 IF s = 99",
    "INSERT INTO t (k, s) VALUES (1, 1) IF NOT EXISTS",
    "UPDATE t SET s = 1 WHERE k = 1 IF EXISTS",
    "BEGIN BATCH UPDATE t SET s = 1 WHERE k = 1 IF s = 99; APPLY BATCH",
    "UPDATE t SET s = 1 WHERE k = 1 IF s = 99 RETURNS STATUS AS ROW",
];

#[test]
fn conditions_on_static_columns_show_the_same_whatever_is_dead_before_the_first_row() {
    for (row, has_static) in [(false, false), (true, false), (false, true), (true, true)] {
        let answers = |dead: u32| {
            let database = database();
            bury(&database, dead);
            if row {
                database.run("INSERT INTO t (k, c, v) VALUES (1, 1000, 0x02)").unwrap();
            }
            if has_static {
                database.run("INSERT INTO t (k, s) VALUES (1, 5)").unwrap();
            }
            STATIC_CONDITIONS.map(|statement| match database.run(statement) {
                Ok(ClientResponse::Rows(rows)) => rendered_rows(&rows),
                other => panic!("{statement}: {other:?}"),
            })
        };
        let (none, many) = (answers(0), answers(50));
        assert_eq!(none, many, "{row} {has_static}");
        if row && !has_static {
            assert_eq!(none[0], ["[applied]=false s=null"], "the partition is not empty");
            assert_eq!(none[3], ["[applied]=false k=1 c=1000 s=1"], "the second statement was applied");
        }
        if !row && !has_static {
            assert_eq!(none[0], ["[applied]=false"]);
        }
    }
}

#[test]
fn the_first_row_is_read_only_where_it_is_shown() {
    let database = database();
    database.run("INSERT INTO t (k, c, s) VALUES (1, 1, 5)").unwrap();
    let scans = |statement: &str| {
        let before = database.kv.scans.load(Ordering::Relaxed);
        database.run(statement).unwrap();
        database.kv.scans.load(Ordering::Relaxed) - before
    };
    assert_eq!(STATIC_CONDITIONS.map(scans)[0], 0, "there is a static row to show, and nothing else is");
    assert_eq!(scans(STATIC_CONDITIONS[3]), 1, "a batch shows keys");
}

/// Prepared statements on rows 0 to `count`, each with a condition that does not hold.
fn batch(database: &Database, count: usize, distinct: usize) -> Result<super::Reply, CqlError> {
    let prepared = database.prepare("UPDATE t SET v = 0x05 WHERE k = 1 AND c = ? IF v = 0x00").unwrap();
    let keys: Vec<[u8; 4]> = (0..count).map(|at| ((at % distinct) as i32).to_be_bytes()).collect();
    let values: Vec<[Value<'_>; 1]> = keys.iter().map(|key| [Value::Set(key)]).collect();
    let statements: Vec<_> = values.iter().map(|values| ClientBatchStatement::Prepared(&prepared.id, values)).collect();
    let parameters = Parameters::default();
    database.reply(&ClientRequest::Batch { kind: BatchKind::Logged, statements: &statements, parameters })
}

fn shown(reply: &super::Reply) -> u32 {
    match &reply.response {
        Response::Rows(rows) => rows.row_count,
        other => panic!("{other:?}"),
    }
}

#[test]
fn the_rows_that_conditions_name_are_limited() {
    let database = database();
    database.run("INSERT INTO t (k, c) VALUES (1, 0)").unwrap();
    assert_eq!(shown(&batch(&database, 3_000, MAX_CONDITION_ROWS).unwrap()), 1);
    let error = batch(&database, MAX_CONDITION_ROWS + 1, usize::MAX).unwrap_err();
    assert_eq!(error.code(), ErrorCode::Invalid);
    assert!(error.message.contains("(CONDITION_ROWS)"), "{}", error.message);
}

#[test]
fn twice_as_many_conditional_statements_cost_twice_as_much() {
    let database = database();
    let steps = |count| steps::of(|| batch(&database, count, 500).unwrap()).1;
    let (small, large) = (steps(2_000), steps(4_000));
    assert!(small >= 2_000 && large <= small * 5 / 2, "{small} steps, for twice as much {large}");
}

/// Makes rows of 100 KB.
fn fill(database: &Database, rows: usize) {
    let prepared = database.prepare("INSERT INTO t (k, c, v) VALUES (1, ?, ?)").unwrap();
    for c in 0..rows {
        let (key, value) = ((c as i32).to_be_bytes(), vec![7; 100_000]);
        database.execute(&prepared, &[Value::Set(&key), Value::Set(&value)]).unwrap();
    }
}

#[test]
fn a_refused_batch_says_that_it_does_not_show_all_and_is_answered_beside_the_threads_that_serve() {
    let database = database();
    fill(&database, 30);
    let before = database.kv.long.works.load(Ordering::Relaxed);
    let reply = batch(&database, 30, 30).unwrap();
    assert_eq!(shown(&reply), 11);
    assert!(reply.body_bytes() <= MAX_SHOWN_BYTES + 200_000, "{}", reply.body_bytes());
    assert!(reply.warnings.iter().any(|warning| warning.contains("(SHOWN_BYTES)")), "{:?}", reply.warnings);
    assert_eq!(database.kv.long.works.load(Ordering::Relaxed) - before, 2, "to decode it, and to make it");
    let reply = batch(&database, 5, 5).unwrap();
    assert_eq!((shown(&reply), reply.warnings.len()), (5, 0));
}

#[test]
fn what_a_refusal_shows_is_charged_to_its_request() {
    let mut database = database();
    fill(&database, 11);
    let mut outcome = |limit_bytes| {
        database.budget = Arc::new(Budget::new(Meter::alone(limit_bytes), u64::MAX));
        batch(&database, 11, 11).map(|reply| (shown(&reply), database.budget.meter().used_bytes()))
    };
    let (rows, used_bytes) = outcome(usize::MAX - 1).unwrap();
    assert!(rows == 11 && used_bytes >= 3_000_000, "{used_bytes}");
    for limit_bytes in [1_000_000, 2_500_000] {
        let error = outcome(limit_bytes).unwrap_err();
        assert_eq!(error.code(), ErrorCode::Invalid, "nothing was done: {}", error.message);
        assert!(error.message.contains("too large"), "{}", error.message);
    }
}
