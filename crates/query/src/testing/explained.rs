//! `EXPLAIN` beside what the golden script `explain.cql` shows: prepared, by roles, and what is known of it elsewhere.

use super::requests::refused;
use super::{Database, rendered_rows};
use crate::session::Session;
use diorite_cql::protocol::client::{BoundValues, ClientBatchStatement, ClientRequest, ClientResponse, Parameters};
use diorite_cql::protocol::{BatchKind, Consistency, ErrorCode, Value};

fn with_table() -> Database {
    let database = Database::with_keyspace();
    database.run("CREATE TABLE t (k int, c int, v int, PRIMARY KEY (k, c))").unwrap();
    database.run("CREATE INDEX by_v ON t (v)").unwrap();
    database
}

fn lines(answer: ClientResponse) -> Vec<String> {
    let ClientResponse::Rows(rows) = answer else { panic!("{answer:?}") };
    let name = "QUERY PLAN='";
    rendered_rows(&rows)
        .iter()
        .map(|row| row.strip_prefix(name).unwrap().trim_end_matches('\'').trim_end().to_owned())
        .collect()
}

#[test]
fn a_prepared_one_has_the_markers_of_its_statement_and_needs_no_values() {
    let database = with_table();
    let plain = database.prepare("SELECT v FROM t WHERE k = ? AND c > :low LIMIT ?").unwrap();
    let explained = database.prepare("EXPLAIN SELECT v FROM t WHERE k = ? AND c > :low LIMIT ?").unwrap();
    assert_eq!((&explained.markers, explained.markers.partition_key_indexes.as_slice()), (&plain.markers, &[0u16][..]));
    let names: Vec<&str> = explained.result.columns.iter().map(|column| column.name.as_str()).collect();
    assert_eq!(names, ["QUERY PLAN"]);
    let shown = [
        "Limit",
        "  ->  Range Scan on ks.t",
        "        Key Conditions: (k = ?) AND (c > :low)",
        "        Tablets: 1 of 3",
    ];
    let one = 1i32.to_be_bytes();
    for values in [&[][..], &[Value::Set(&one)], &[Value::Set(&one), Value::Unset, Value::Set(b"x")]] {
        assert_eq!(lines(database.execute(&explained, values).unwrap()), shown);
    }
    // Also as text, and with names of which the statement has none.
    let named = [("other", Value::Null)];
    let parameters = Parameters { values: BoundValues::Named(&named), ..Parameters::default() };
    let request = ClientRequest::Query { statement: "EXPLAIN SELECT * FROM t WHERE k = ?", parameters };
    assert_eq!(lines(database.send(&request).unwrap())[1], "  Key Conditions: (k = ?)");
}

#[test]
fn a_prepared_one_is_planned_again_when_the_table_has_changed() {
    let database = with_table();
    let explained = database.prepare("EXPLAIN SELECT * FROM t WHERE v = ? ALLOW FILTERING").unwrap();
    let first = |database: &Database| lines(database.execute(&explained, &[]).unwrap()).remove(0);
    assert_eq!(first(&database), "Index Scan using ks.by_v on ks.t");
    database.run("DROP INDEX by_v").unwrap();
    assert_eq!(first(&database), "Seq Scan on ks.t");
    database.run("DROP TABLE t").unwrap();
    assert_eq!(refused(database.execute(&explained, &[])).0, ErrorCode::Invalid);
}

#[test]
fn it_needs_the_permissions_of_its_statement() {
    let database = with_table();
    for statement in [
        "CREATE ROLE ann WITH LOGIN = true",
        "CREATE ROLE bob WITH LOGIN = true",
        "GRANT SELECT ON ks.t TO ann",
        "GRANT MODIFY ON ks.t TO bob",
    ] {
        database.run(statement).unwrap();
    }
    let explained = database.prepare("EXPLAIN SELECT * FROM ks.t WHERE k = ?").unwrap();
    let as_role = |role: &str| {
        let guarded = Database { session: Session::guarded(), ..database.another() };
        guarded.session.log_in(role);
        guarded
    };
    let (ann, bob) = (as_role("ann"), as_role("bob"));
    let read = "EXPLAIN SELECT * FROM ks.t WHERE k = 7";
    let write = "EXPLAIN UPDATE ks.t SET v = 7 WHERE k = 1 AND c = 1";
    let both = "EXPLAIN UPDATE ks.t SET v = 7 WHERE k = 1 AND c = 1 IF v = 1";
    assert!(ann.run(read).is_ok() && bob.run(write).is_ok());
    assert!(ann.execute(&explained, &[]).is_ok());
    for (who, text) in [(&ann, write), (&bob, read), (&ann, both), (&bob, both)] {
        assert_eq!(refused(who.run(text)).0, ErrorCode::Unauthorized, "{text}");
        assert_eq!(who.prepare(text).unwrap_err().code(), ErrorCode::Unauthorized, "{text}");
    }
    assert_eq!(refused(bob.execute(&explained, &[])).0, ErrorCode::Unauthorized);
    // To be permitted to explain is not to be permitted more than before.
    assert_eq!(refused(ann.run(&write["EXPLAIN ".len()..])).0, ErrorCode::Unauthorized);
}

#[test]
fn no_value_is_in_the_statistics() {
    let database = with_table();
    database.run("EXPLAIN SELECT * FROM t WHERE k = 7777 AND c = 8888").unwrap();
    let explained = database.prepare("EXPLAIN INSERT INTO t (k, c, v) VALUES (7777, 8888, ?)").unwrap();
    database.execute(&explained, &[]).unwrap();
    let texts: Vec<String> = database
        .engine
        .activity()
        .running(9)
        .0
        .iter()
        .map(|running| running.statement.text.clone())
        .chain((1..9).filter_map(|slot| database.engine.activity().statement(slot)).map(|known| known.text.clone()))
        .collect();
    assert!(texts.contains(&"EXPLAIN SELECT * FROM t WHERE k = ? AND c = ?".to_owned()), "{texts:?}");
    assert!(!format!("{texts:?}").contains("7777"), "{texts:?}");
}

#[test]
fn it_is_refused_as_its_statement_is_in_batches_and_at_consistency_levels() {
    let database = with_table();
    let statements = [ClientBatchStatement::Text("EXPLAIN INSERT INTO t (k, c) VALUES (1, 1)", &[])];
    let batch =
        ClientRequest::Batch { kind: BatchKind::Logged, statements: &statements, parameters: Parameters::default() };
    let message = "Invalid statement in batch: only UPDATE, INSERT and DELETE statements are allowed.";
    assert_eq!(refused(database.send(&batch)), (ErrorCode::Invalid, message.to_owned()));
    for (statement, consistency) in
        [("SELECT * FROM t", Consistency::Any), ("INSERT INTO t (k, c) VALUES (1, 1)", Consistency::Serial)]
    {
        let send = |text: &str| {
            let parameters = Parameters { consistency, ..Parameters::default() };
            refused(database.send(&ClientRequest::Query { statement: text, parameters }))
        };
        assert_eq!(send(&format!("EXPLAIN {statement}")), send(statement), "{statement}");
    }
    assert_eq!(database.rows("SELECT count(*) FROM t"), ["count=0"]);
}

#[test]
fn old_data_may_be_read_at_levels_that_ask_for_one_replica() {
    let database = with_table();
    database.run("DROP INDEX by_v").unwrap();
    database.run("ALTER TABLE t WITH transactions = {'enabled': true} AND follower_read_staleness_ms = 500").unwrap();
    let last = |consistency| {
        let parameters = Parameters { consistency, ..Parameters::default() };
        let request = ClientRequest::Query { statement: "EXPLAIN SELECT * FROM t WHERE k = 1", parameters };
        lines(database.send(&request).unwrap()).pop().unwrap()
    };
    assert_eq!(last(Consistency::One), "  Replicas: any that is at most 500 ms behind");
    assert_eq!(last(Consistency::Quorum), "  Snapshot: all rows of a page are of one moment");
}
