//! Transaction blocks and arithmetic: a block does what its statements do one after the other, or nothing.

use super::Database;
use super::requests::refused;
use crate::session::Session;
use diorite_base::level::Level;
use diorite_cql::protocol::client::{BoundValues, ClientRequest, Parameters};
use diorite_cql::protocol::error::ErrorCode;
use diorite_cql::protocol::{NativeType, TypeOption, Value};
use proptest::prelude::*;

const TABLE: &str = "CREATE TABLE t (h int, r int, v int, w bigint, s int STATIC, l list<int>, m map<int, int>, \
                     PRIMARY KEY (h, r)) WITH transactions = {'enabled': true}";

fn database() -> Database {
    let database = Database::with_keyspace();
    database.run(TABLE).unwrap();
    database
}

/// A statement on the partition.
fn statement() -> impl Strategy<Value = String> {
    let (row, number) = (|| 0..4i32, || -3..4i32);
    let one_row = |row: i32| format!("h = 1 AND r = {row}");
    let condition = prop_oneof![
        5 => Just(String::new()),
        1 => Just(" IF EXISTS ELSE ERROR".to_owned()),
        1 => (-3..4i32).prop_map(|number| format!(" IF NOT EXISTS OR v > {number} ELSE ERROR")),
        1 => (-3..4i32).prop_map(|number| format!(" IF v = {number} OR s = null ELSE ERROR")),
    ];
    let set = prop_oneof![
        3 => number().prop_map(|number| format!("v = {number}")),
        3 => number().prop_map(|number| format!("v = v + {number}")),
        2 => number().prop_map(|number| format!("w = w - {number}, v = null")),
        2 => number().prop_map(|number| format!("v = 1000000000 + v, s = s + {number}")),
        2 => number().prop_map(|number| format!("l = l + [{number}, 7]")),
        1 => number().prop_map(|number| format!("l = [{number}] + l")),
        1 => number().prop_map(|number| format!("l = [{number}, 1]")),
        1 => (0..3, number()).prop_map(|(at, number)| format!("l[{at}] = {number}")),
        1 => number().prop_map(|number| format!("l = l - [{number}]")),
        2 => (row(), number()).prop_map(|(key, number)| format!("m[{key}] = {number}")),
        1 => number().prop_map(|number| format!("m = {{1: {number}}}, s = {number}")),
    ];
    let update = (row(), set, condition.clone())
        .prop_map(move |(row, set, condition)| format!("UPDATE t SET {set} WHERE {}{condition}", one_row(row)));
    prop_oneof![
        6 => update,
        3 => (row(), number(), condition.clone()).prop_map(|(row, number, condition)| {
            format!("INSERT INTO t (h, r, v) VALUES (1, {row}, {number}){condition}")
        }),
        1 => (row(), number()).prop_map(|(row, number)| {
            format!("INSERT INTO t (h, r, v, w, l, m) VALUES (1, {row}, {number}, {number}, [{number}], {{2: 3}})")
        }),
        1 => number().prop_map(|number| format!("UPDATE t SET s = s + {number} WHERE h = 1")),
        1 => number().prop_map(|number| format!("UPDATE t SET s = {number} WHERE h = 1")),
        2 => (row(), condition).prop_map(move |(row, condition)| format!("DELETE FROM t WHERE {}{condition}", one_row(row))),
        1 => row().prop_map(move |row| format!("DELETE v, m[1] FROM t WHERE {}", one_row(row))),
        1 => row().prop_map(move |row| format!("DELETE l[0], l[1] FROM t WHERE {}", one_row(row))),
        1 => row().prop_map(|row| format!("DELETE FROM t WHERE h = 1 AND r >= {row} AND r < {}", row + 2)),
        1 => Just("DELETE FROM t WHERE h = 1".to_owned()),
    ]
}

/// Carries out the statements one after the other: the naive interpreter of a block.
fn one_by_one(blocks: &[&Vec<String>]) -> (Database, bool) {
    let database = database();
    let is_whole = blocks.iter().all(|block| block.iter().all(|statement| database.run(statement).is_ok()));
    (database, is_whole)
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 300, ..ProptestConfig::default() })]

    #[test]
    fn a_block_does_what_its_statements_do_in_their_order_or_nothing(
        blocks in prop::collection::vec(prop::collection::vec(statement(), 1..7), 1..6),
    ) {
        let database = database();
        let mut applied: Vec<&Vec<String>> = Vec::new();
        for block in &blocks {
            applied.push(block);
            let (mut expected, is_whole) = one_by_one(&applied);
            if !is_whole {
                applied.pop();
                expected = one_by_one(&applied).0;
            }
            let text = format!("BEGIN TRANSACTION {}; END TRANSACTION", block.join("; "));
            let outcome = database.run(&text);
            prop_assert_eq!(outcome.is_ok(), is_whole, "{}: {:?}", text, outcome);
            let read = "SELECT * FROM t";
            prop_assert_eq!(database.rows(read), expected.rows(read), "{}", text);
        }
    }

    #[test]
    fn all_that_a_block_has_written_has_one_timestamp(block in prop::collection::vec(statement(), 1..7)) {
        let database = database();
        database.run("INSERT INTO t (h, r, v, w, s) VALUES (1, 0, 1, 1, 1)").unwrap();
        let before = database.rows("SELECT writetime(v), writetime(w), writetime(s) FROM t");
        let text = format!("BEGIN TRANSACTION {}; END TRANSACTION", block.join("; "));
        if database.run(&text).is_ok() {
            let times = database.rows("SELECT writetime(v), writetime(w), writetime(s) FROM t");
            let mut seen: Vec<&str> = times.iter().flat_map(|row| row.split(' ')).collect();
            seen.retain(|time| !time.ends_with("=null") && !before[0].contains(time));
            let mut seen: Vec<&str> = seen.into_iter().filter_map(|time| time.split('=').nth(1)).collect();
            seen.sort_unstable();
            seen.dedup();
            prop_assert!(seen.len() <= 1, "{}: {:?}", text, seen);
        }
    }
}

#[test]
fn the_statement_whose_key_is_bound_gives_the_routing_key() {
    let database = Database::with_keyspace();
    let table = "CREATE TABLE t (h1 int, h2 int, r int, b bigint, PRIMARY KEY ((h1, h2), r))";
    database.run(&format!("{table} WITH transactions = {{'enabled': true}}")).unwrap();
    let prepared = database.prepare(
        "BEGIN TRANSACTION INSERT INTO t (h1, h2, r, b) VALUES (1, 1, ?, ?); \
         INSERT INTO t (h1, h2, r, b) VALUES (?, 2, ?, ?); UPDATE t SET b = b - ? WHERE h1 = ? AND h2 = ? AND r = ?; \
         INSERT INTO t (h1, h2, r, b) VALUES (?, ?, ?, ?); END TRANSACTION",
    );
    let prepared = prepared.unwrap();
    assert_eq!(prepared.markers.partition_key_indexes, [6, 7]);
    let types: Vec<&TypeOption> = prepared.markers.columns.iter().map(|column| &column.type_option).collect();
    assert_eq!(types.len(), 13);
    assert_eq!(*types[5], TypeOption::Native(NativeType::Bigint), "a number that is taken from a bigint");
    assert_eq!(prepared.markers.columns[5].name, "b");
    // Markers of both kinds, bound by position.
    let (one, ten) = (1i32.to_be_bytes(), 10i64.to_be_bytes());
    let mixed = database
        .prepare(
            "START TRANSACTION; INSERT INTO t (h1, h2, r, b) VALUES (:h, ?, 1, :b); \
             UPDATE t SET b += :b WHERE h1 = :h AND h2 = ? AND r = 1 IF b = ? ELSE ERROR; COMMIT",
        )
        .unwrap();
    assert_eq!(mixed.markers.partition_key_indexes, [0, 1]);
    let values = [&one[..], &one, &ten, &ten, &one, &one, &ten].map(Value::Set);
    database.execute(&mixed, &values).unwrap();
    assert_eq!(database.rows("SELECT b FROM t"), ["b=20"]);
    assert!(database.execute(&mixed, &values[..6]).is_err(), "one value is missing");
    // By name: each name once.
    let named = database
        .prepare(
            "BEGIN TRANSACTION INSERT INTO t (h1, h2, r, b) VALUES (:h, :h, 2, :b); \
             UPDATE t SET b = b + :b WHERE h1 = :h AND h2 = :h AND r = 2; END TRANSACTION",
        )
        .unwrap();
    let values = [("h", Value::Set(&one[..])), ("b", Value::Set(&ten))];
    let parameters = Parameters { values: BoundValues::Named(&values), ..Parameters::default() };
    let result_metadata_id = named.result_metadata_id.as_deref().unwrap_or_default();
    database.send(&ClientRequest::Execute { id: &named.id, result_metadata_id, parameters }).unwrap();
    assert_eq!(database.rows("SELECT r, b FROM t"), ["r=1 b=20", "r=2 b=20"]);
}

#[test]
fn blocks_and_arithmetic_wait_for_the_level_that_has_them() {
    let early = "this needs level 2, and the cluster is at level 1 (diorite admin upgrade status)";
    for (level, refusal) in [(Level::FIRST, Some(early)), (Level::RECORDED, None)] {
        let database = Database::at_level(level);
        for statement in ["CREATE KEYSPACE ks", "USE ks", TABLE, "UPDATE t SET l = l + [1] WHERE h = 1 AND r = 1"] {
            database.run(statement).unwrap();
        }
        for text in [
            "UPDATE t SET v = v + 1 WHERE h = 1 AND r = 1",
            "BEGIN BATCH UPDATE t SET s = s - 1 WHERE h = 1; APPLY BATCH",
            "BEGIN TRANSACTION INSERT INTO t (h, r, v) VALUES (1, 1, 1); END TRANSACTION",
        ] {
            let error = database.run(text).err().map(|error| error.message.into_owned());
            assert_eq!(error.as_deref(), refusal, "{text}");
            assert_eq!(database.prepare(text).is_ok(), refusal.is_none(), "{text}");
        }
    }
}

#[test]
fn a_role_needs_permission_on_each_table_of_a_block() {
    let database = database();
    database.run("CREATE TABLE u (h int PRIMARY KEY, v int) WITH transactions = {'enabled': true}").unwrap();
    for statement in ["CREATE ROLE ann WITH LOGIN = true", "GRANT MODIFY ON ks.t TO ann"] {
        database.run(statement).unwrap();
    }
    let ann = Database { session: Session::guarded(), ..database.another() };
    ann.session.log_in("ann");
    ann.session.set_keyspace("ks");
    let one = "BEGIN TRANSACTION INSERT INTO t (h, r, v) VALUES (1, 1, 1); END TRANSACTION";
    ann.run(one).unwrap();
    let prepared = ann.prepare(one).unwrap();
    ann.execute(&prepared, &[]).unwrap();
    let both = "BEGIN TRANSACTION INSERT INTO t (h, r, v) VALUES (1, 1, 1); DELETE FROM u WHERE h = 1; END TRANSACTION";
    assert_eq!(refused(ann.run(both)).0, ErrorCode::Unauthorized);
    assert_eq!(ann.prepare(both).unwrap_err().code(), ErrorCode::Unauthorized);
    let conditional = "BEGIN TRANSACTION DELETE FROM t WHERE h = 1 AND r = 1 IF EXISTS ELSE ERROR; END TRANSACTION";
    assert_eq!(refused(ann.run(conditional)).0, ErrorCode::Unauthorized, "a condition reads");
    database.run("REVOKE MODIFY ON ks.t FROM ann").unwrap();
    assert_eq!(refused(ann.run(one)).0, ErrorCode::Unauthorized);
    assert_eq!(refused(ann.execute(&prepared, &[])).0, ErrorCode::Unauthorized);
}

fn block(count: usize, statement: impl Fn(usize) -> String) -> String {
    let statements: String = (0..count).map(|at| statement(at) + "; ").collect();
    format!("BEGIN TRANSACTION {statements}END TRANSACTION")
}

#[test]
fn many_statements_are_carried_out_and_too_much_work_is_refused_as_a_whole() {
    let database = database();
    database.run("INSERT INTO t (h, r, v) VALUES (1, 1, 0)").unwrap();
    database.run(&block(8_000, |_| "UPDATE t SET v = v + 1 WHERE h = 1 AND r = 1".to_owned())).unwrap();
    assert_eq!(database.rows("SELECT v FROM t WHERE h = 1 AND r = 1"), ["v=8000"]);
    database.run(&block(10_000, |at| format!("INSERT INTO t (h, r, v) VALUES (2, {at}, 1)"))).unwrap();
    database.run(&block(10_000, |at| format!("DELETE FROM t WHERE h = 2 AND r >= {at}"))).unwrap();
    assert!(database.rows("SELECT * FROM t WHERE h = 2").is_empty());
    // A row that grows, and is read and changed again and again.
    let grow = |at: usize| format!("UPDATE t SET m[{at}] = 1, v = v + 1 WHERE h = 1 AND r = 1");
    let (code, message) = refused(database.run(&block(10_000, grow)));
    assert_eq!(code, ErrorCode::Invalid);
    assert!(message.contains("more than 33554432 bytes (REREAD_BYTES)"), "{message}");
    // Deletions that are read again and again.
    let delete = |at: usize| match at % 2 {
        0 => format!("DELETE FROM t WHERE h = 1 AND r >= {} AND r < {}", at + 10, at + 12),
        _ => "UPDATE t SET v = v + 1 WHERE h = 1 AND r = 1".to_owned(),
    };
    assert!(refused(database.run(&block(10_000, delete))).1.contains("REREAD_BYTES"));
    assert_eq!(database.rows("SELECT v, m FROM t WHERE h = 1 AND r = 1"), ["v=8000 m=null"], "nothing was done");
    let most = diorite_base::limits::MAX_BATCH_STATEMENTS;
    let (code, message) = refused(database.run(&block(most + 1, |_| "DELETE FROM t WHERE h = 1".to_owned())));
    assert!(code == ErrorCode::Invalid && message.contains("BATCH_STATEMENTS"), "{message}");
}
