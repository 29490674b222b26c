//! The cost of planning: steps and bytes are linear in the statement, however it nests or repeats.

#![allow(clippy::unwrap_used, reason = "test data is known")]

use super::plan_within;
use crate::engine::{LONG_BYTES, planning_work};
use crate::kv::Kv;
use crate::plan::{Budget, Planned};
use crate::session::Session;
use crate::steps;
use crate::testing::Database;
use diorite_cql::language::parse;
use diorite_cql::protocol::CqlError;
use diorite_cql::protocol::error::ErrorCode;

/// A construct whose cost is not linear exceeds this long before the end.
const MAX_STEPS: u64 = 200_000;

fn database() -> Database {
    let database = Database::with_keyspace();
    let fields: Vec<String> = (0..512).map(|n| format!("f{n} int")).collect();
    let columns: Vec<String> = (0..512).map(|n| format!("c{n} int")).collect();
    for definition in [
        format!("CREATE TYPE wide ({})", fields.join(", ")),
        "CREATE TABLE t (k bigint, c int, v int, d date, ts timestamp, l list<int>, s set<int>, m map<int, int>, \
         u frozen<wide>, w wide, j jsonb, b list<bigint>, PRIMARY KEY (k, c))"
            .to_owned(),
        format!("CREATE TABLE many (k int PRIMARY KEY, {})", columns.join(", ")),
    ] {
        database.run(&definition).unwrap();
    }
    (0..512).for_each(|n| {
        database.run(&format!("CREATE TABLE t{n} (k int PRIMARY KEY, v int)")).unwrap();
    });
    database
}

fn planned(database: &Database, statement: &str) -> Result<Planned, CqlError> {
    let parsed = parse(statement).unwrap();
    plan_within(&database.kv.catalog(), Some("ks"), &parsed, Budget::new(MAX_STEPS, u64::MAX))
}

/// `open`, `n` times, around `middle`.
fn nested(open: &str, middle: &str, close: &str, depth: usize) -> String {
    format!("{}{middle}{}", open.repeat(depth), close.repeat(depth))
}

fn listed(count: usize, item: impl Fn(usize) -> String) -> String {
    (0..count).map(item).collect::<Vec<_>>().join(", ")
}

type Construct = (&'static str, Box<dyn Fn(usize) -> String>);

fn construct(name: &'static str, text: impl Fn(usize) -> String + 'static) -> Construct {
    (name, Box::new(text))
}

/// Constructs of which `n` are nested.
fn nesting() -> Vec<Construct> {
    let dates = |n| nested("totimestamp(todate(", "now()", "))", n);
    let spans = |n| nested("totimestamp(todate(", "totimestamp(now())", " + 1d))", n);
    let condition = |n| nested("v = 1 OR v = 2 AND (", "v = 3", ")", n);
    vec![
        construct("functions, selected", move |n| format!("SELECT {} FROM system.local", dates(n))),
        construct("functions, where", move |n| format!("SELECT v FROM t WHERE ts = {} ALLOW FILTERING", dates(n))),
        construct("functions, set", move |n| format!("UPDATE t SET ts = {} WHERE k = 1 AND c = 1", dates(n))),
        construct("functions, if", move |n| format!("UPDATE t SET v = 1 WHERE k = 1 AND c = 1 IF ts = {}", dates(n))),
        construct("functions of sums", move |n| format!("UPDATE t SET ts = {} WHERE k = 1 AND c = 1", spans(n / 2))),
        construct("functions of sums, selected", move |n| format!("SELECT {} FROM t", spans(n / 2))),
        construct("functions of parentheses", |n| {
            format!(
                "UPDATE t SET ts = {} WHERE k = 1 AND c = 1",
                nested("totimestamp((todate((", "now()", "))))", n / 2)
            )
        }),
        construct("tokens", |n| format!("SELECT v FROM t WHERE token(k) > {}", nested("token(", "1", ")", n))),
        construct("functions of any type", |n| {
            format!("SELECT v FROM t WHERE v = {} ALLOW FILTERING", nested("abs(", "(int) -1", ")", n))
        }),
        construct("functions of any type, selected", |n| format!("SELECT {} FROM t", nested("abs(", "v", ")", n))),
        construct("masks", |n| format!("SELECT {} FROM t", nested("mask_default(", "v", ")", n))),
        construct("casts", |n| {
            format!("UPDATE t SET v = {} WHERE k = 1 AND c = 1", nested("CAST(", "(int) 1", " AS int)", n))
        }),
        construct("casts, selected", |n| format!("SELECT {} FROM t", nested("CAST(", "v", " AS int)", n))),
        construct("parentheses", |n| format!("SELECT v FROM t WHERE k = {}", nested("(", "1", ")", n))),
        construct("parentheses, selected", |n| format!("SELECT {} FROM t", nested("(", "v", ")", n))),
        construct("sums", |n| format!("SELECT v FROM t WHERE k = {}1", "1 + ".repeat(n))),
        construct("sums to the right", |n| format!("SELECT v FROM t WHERE k = {}", nested("1 + (", "1", ")", n))),
        construct("sums, selected", |n| format!("SELECT {}v FROM t", "v + ".repeat(n))),
        construct("signs", |n| format!("SELECT v FROM t WHERE k = {}", nested("-(", "1", ")", n))),
        construct("signs, selected", |n| format!("SELECT {} FROM t", nested("-(", "v", ")", n))),
        construct("lists", |n| format!("SELECT {} FROM t", nested("[", "v", "]", n / 2))),
        construct("sets", |n| format!("SELECT {} FROM t", nested("{", "v", "}", n / 2))),
        construct("maps", |n| format!("SELECT {} FROM t", nested("{1: ", "v", "}", n / 2))),
        construct("keys of maps", |n| format!("SELECT {} FROM t", nested("{", "v + 0", ": 1}", n / 2))),
        construct("tuples", |n| format!("SELECT {} FROM t", nested("(v, ", "v", ")", n / 2))),
        construct("json", |n| {
            let json = nested("from_json(to_json((text) ", "'1'", "))", n / 4);
            format!("UPDATE t SET v = {json} WHERE k = 1 AND c = 1")
        }),
        construct("places in documents", |n| format!("SELECT j{} FROM t", "->'a'".repeat(n))),
        construct("conditions", move |n| format!("UPDATE t SET v = 1 WHERE k = 1 AND c = 1 IF {}", condition(n))),
        construct("negations", |n| {
            format!("UPDATE t SET v = 1 WHERE k = 1 AND c = 1 IF {}", nested("NOT (v = 1 AND ", "v = 2", ")", n))
        }),
        construct("filters", move |n| format!("SELECT v FROM t IF {}", condition(n))),
    ]
}

/// Constructs of which `n` are repeated.
fn repetition() -> Vec<Construct> {
    let row = "WHERE k = 1 AND c = 1";
    vec![
        construct("selectors", |n| format!("SELECT {} FROM t", listed(n, |_| "k".to_owned()))),
        construct("columns of many", |n| format!("SELECT {} FROM many", listed(n, |at| format!("c{at}")))),
        construct("aggregates", |n| format!("SELECT {} FROM t", listed(n, |_| "count(v)".to_owned()))),
        construct("values", |n| format!("SELECT v FROM t WHERE k IN ({})", listed(n, |_| "1".to_owned()))),
        construct("tuples", |n| {
            format!("SELECT v FROM t WHERE k = 1 AND (c) IN ({})", listed(n, |_| "(1)".to_owned()))
        }),
        construct("markers", |n| format!("SELECT v FROM t WHERE k IN ({})", listed(n, |_| ":name".to_owned()))),
        construct("elements of a list", move |n| {
            format!("UPDATE t SET l = [{}] {row}", listed(n, |at| at.to_string()))
        }),
        construct("markers in a list", move |n| format!("UPDATE t SET l = [{}] {row}", listed(n, |_| "?".to_owned()))),
        construct("elements of a set", move |n| {
            format!("UPDATE t SET s = {{{}}} {row}", listed(n, |at| at.to_string()))
        }),
        construct("entries of a map", move |n| {
            format!("UPDATE t SET m = {{{}}} {row}", listed(n, |at| format!("{at}: 1")))
        }),
        construct("elements that are set", move |n| {
            format!("UPDATE t SET {} {row}", listed(n, |at| format!("m[{at}] = 1")))
        }),
        construct("elements that are deleted", move |n| {
            format!("DELETE {} FROM t {row}", listed(n, |at| format!("m[{at}]")))
        }),
        construct("columns that are set", |n| {
            format!("UPDATE many SET {} WHERE k = 1", listed(n, |at| format!("c{at} = 1")))
        }),
        construct("columns that are inserted", |n| {
            let (columns, values) = (listed(n, |at| format!("c{at}")), listed(n, |_| "1".to_owned()));
            format!("INSERT INTO many (k, {columns}) VALUES (1, {values})")
        }),
        construct("columns that are filtered", |n| {
            let relations: Vec<String> = (0..n).map(|at| format!("c{at} = 1")).collect();
            format!("SELECT k FROM many WHERE {} ALLOW FILTERING", relations.join(" AND "))
        }),
        construct("fields", move |n| format!("UPDATE t SET u = {{{}}} {row}", listed(n, |at| format!("f{at}: 1")))),
        construct("fields selected", |n| format!("SELECT {} FROM t", listed(n, |at| format!("u.f{at}")))),
        construct("times of fields selected", |n| {
            format!("SELECT {} FROM t", listed(n, |at| format!("writetime(w.f{at})")))
        }),
        construct("fields set", move |n| format!("UPDATE t SET {} {row}", listed(n, |at| format!("w.f{at} = 1")))),
        construct("fields deleted", move |n| format!("DELETE {} FROM t {row}", listed(n, |at| format!("w.f{at}")))),
        construct("fields in conditions", move |n| {
            let conditions: Vec<String> = (0..n).map(|at| format!("w.f{at} = 1")).collect();
            format!("UPDATE t SET v = 1 {row} IF {}", conditions.join(" AND "))
        }),
        construct("questions to a collection", |n| {
            format!("SELECT v FROM t WHERE {} ALLOW FILTERING", vec!["s CONTAINS 1"; n].join(" AND "))
        }),
        construct("questions of two kinds", |n| {
            format!("SELECT v FROM t WHERE {} ALLOW FILTERING", vec!["m CONTAINS 1 AND m[1] = 1"; n].join(" AND "))
        }),
        construct("conditions", move |n| format!("UPDATE t SET v = 1 {row} IF {}", vec!["v = 1"; n].join(" AND "))),
        construct("other conditions", move |n| {
            format!("UPDATE t SET v = 1 {row} IF {}", vec!["v = 1"; n].join(" OR "))
        }),
        construct("statements", |n| {
            format!("BEGIN BATCH {} APPLY BATCH", "INSERT INTO t0 (k, v) VALUES (1, 1); ".repeat(n))
        }),
        construct("tables", |n| {
            let statements: String = (0..n).map(|at| format!("INSERT INTO t{at} (k, v) VALUES (1, 1); ")).collect();
            format!("BEGIN BATCH {statements} APPLY BATCH")
        }),
    ]
}

fn assert_linear(database: &Database, (name, text): &Construct, sizes: [usize; 3]) {
    let plans = sizes.map(|size| match steps::of(|| planned(database, &text(size))) {
        (Ok(planned), counted) => (planned.cost, counted),
        (Err(error), _) => panic!("{name}, {size}: {}", error.message),
    });
    for pair in plans.windows(2) {
        // To make an index takes a logarithm more.
        assert!(pair[1].1 <= pair[0].1 * 5 / 2 + 16_384, "{name}: {} were looked at, doubled {}", pair[0].1, pair[1].1);
    }
    let costs = plans.map(|(cost, _)| cost);
    for pair in costs.windows(2) {
        let (steps, bytes) = ((pair[0].steps(), pair[1].steps()), (pair[0].bytes(), pair[1].bytes()));
        assert!(steps.1 <= 2 * steps.0 + 16, "{name}: {} steps, doubled {}", steps.0, steps.1);
        // The name of a result column grows with the selected expression.
        assert!(bytes.1 <= 2 * bytes.0 + 4_096, "{name}: {} bytes, doubled {}", bytes.0, bytes.1);
    }
}

#[test]
fn twice_as_much_of_a_construct_costs_twice_as_much() {
    let database = database();
    for construct in nesting() {
        assert_linear(&database, &construct, [11, 22, 44]);
    }
    for construct in repetition() {
        assert_linear(&database, &construct, [120, 240, 480]);
    }
}

/// The greatest cost of a text that the thread of its connection plans itself: some hundred nanoseconds for each step.
const MAX_INLINE_STEPS: u64 = 4_096;

#[test]
fn what_is_planned_where_others_wait_is_few_steps() {
    let database = database();
    for (name, text) in repetition() {
        let is_inline = |size: &usize| planning_work(&text(*size)) <= LONG_BYTES;
        let mut inline = 64;
        while is_inline(&(inline + inline / 4)) {
            inline += inline / 4;
        }
        // The number of some constructs is limited.
        let planned = planned(&database, &text(inline)).or_else(|_| planned(&database, &text(480)));
        let steps = planned.unwrap().cost.steps();
        assert!(steps <= MAX_INLINE_STEPS, "{name}: {steps} steps for {inline}");
    }
}

/// A role without permissions gets that error before anything is planned, also at PREPARE.
#[test]
fn permissions_come_before_planning() {
    let mut database = Database::with_keyspace();
    database.run("CREATE TABLE t (k int PRIMARY KEY, v int)").unwrap();
    database.session = Session::guarded();
    database.session.log_in("ann");
    for statement in [
        "SELECT no_column FROM ks.t",
        "INSERT INTO ks.t (k, no_column) VALUES (1, 1)",
        "UPDATE ks.t SET no_column = 1 WHERE k = 1",
        "DELETE no_column FROM ks.t WHERE k = 1",
        "BEGIN BATCH INSERT INTO ks.t (k, no_column) VALUES (1, 1) APPLY BATCH",
    ] {
        for outcome in [database.run(statement).map(drop), database.prepare(statement).map(drop)] {
            assert_eq!(outcome.unwrap_err().code(), ErrorCode::Unauthorized, "{statement}");
        }
    }
    assert!(database.run("SELECT * FROM ks.missing").unwrap_err().message.contains("does not exist"));
    assert!(database.run("SELECT key FROM system.local").is_ok());
}

#[test]
fn what_takes_too_much_is_refused_by_name() {
    let database = Database::with_keyspace();
    database.run("CREATE TABLE t (k int PRIMARY KEY, v blob)").unwrap();
    let parsed = parse("SELECT k, k, k, k FROM t WHERE k IN (1, 2, 3, 4)").unwrap();
    let refused = |steps, bytes| {
        let budget = Budget::new(steps, bytes);
        plan_within(&database.kv.catalog(), Some("ks"), &parsed, budget).map_err(|error| error.message.into_owned())
    };
    assert!(refused(1_000, 10_000).is_ok());
    assert!(refused(5, 10_000).unwrap_err().contains("(PLAN_STEPS)"));
    assert!(refused(1_000, 100).unwrap_err().contains("(PLAN_BYTES)"));
    // A selection that is repeated too often is refused by the parser.
    let many = format!("SELECT {} FROM t", listed(16_385, |_| "k".to_owned()));
    assert!(database.run(&many).unwrap_err().message.contains("(SELECTORS)"));
    let values = format!("SELECT k FROM t WHERE k IN ({})", listed(1 << 19, |_| "1".to_owned()));
    assert!(database.run(&values).unwrap_err().message.contains("(STATEMENT_PARTS)"));
}
