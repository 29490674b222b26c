//! Memory of requests: each construct that expands a small request is refused at its limit, with a message, and
//! everything is released.

use super::Database;
use crate::budget::{Budget, Ended};
use diorite_base::account::{Account, Meter};
use diorite_cql::protocol::client::{BoundValues, ClientRequest, ClientResponse, Parameters};
use diorite_cql::protocol::error::ErrorCode;
use diorite_cql::protocol::{CqlError, Value};
use std::sync::Arc;

const MIB: usize = 1 << 20;

/// Sends statements under a limit, and looks at the account afterwards.
struct Limited {
    database: Database,
    account: Arc<Account>,
    limit_bytes: usize,
}

impl Limited {
    fn new(limit_bytes: usize) -> Self {
        let database = Database::with_keyspace();
        Self { database, account: Account::root("all requests", 64 * MIB), limit_bytes }
    }

    /// Runs a statement in an own request.
    fn run(&mut self, text: &str, values: &[Value<'_>]) -> Result<ClientResponse, CqlError> {
        self.within(|database| {
            let prepared = database.prepare(text)?;
            database.send(&database.execute_request(&prepared, values, false))
        })
    }

    fn within<T>(&mut self, act: impl FnOnce(&Database) -> Result<T, CqlError>) -> Result<T, CqlError> {
        self.database.budget = Arc::new(Budget::new(Meter::new(&self.account, self.limit_bytes), u64::MAX));
        let outcome = act(&self.database);
        self.database.budget = super::unlimited();
        assert_eq!(self.account.used_bytes(), 0, "everything is given back");
        outcome
    }

    fn refused(&mut self, text: &str, values: &[Value<'_>]) {
        let shown = &text[..text.len().min(200)];
        let error = self.run(text, values).map(drop).expect_err(shown);
        assert_eq!(error.code(), ErrorCode::Invalid, "{}", error.message);
        let limit = format!("the limit of {} bytes for one request", self.limit_bytes);
        assert!(error.message.contains(&limit), "{}", error.message);
    }
}

/// A table with one row of a mebibyte.
fn with_large_cell() -> Limited {
    let limited = Limited::new(8 * MIB);
    limited.database.run("CREATE TABLE t (k int, c int, v blob, PRIMARY KEY (k, c))").unwrap();
    let prepared = limited.database.prepare("INSERT INTO t (k, c, v) VALUES (1, 1, ?)").unwrap();
    limited.database.execute(&prepared, &[Value::Set(&vec![7; MIB])]).unwrap();
    limited
}

#[test]
fn a_cell_that_is_selected_many_times() {
    let mut limited = with_large_cell();
    limited.run("SELECT v, v FROM t WHERE k = 1 AND c = 1", &[]).unwrap();
    let many = vec!["v"; 50].join(", ");
    limited.refused(&format!("SELECT {many} FROM t WHERE k = 1"), &[]);
    limited.refused(&format!("SELECT {many} FROM t"), &[]);
    limited.refused(&format!("SELECT JSON {many} FROM t"), &[]);
    limited.refused(&format!("SELECT [{many}] FROM t"), &[]);
    let jsons = vec!["toJson(v)"; 50].join(", ");
    limited.refused(&format!("SELECT {jsons} FROM t"), &[]);
    let aggregates = vec!["max(v)"; 50].join(", ");
    limited.refused(&format!("SELECT {aggregates} FROM t"), &[]);
    limited.refused(&format!("SELECT k, {aggregates} FROM t GROUP BY k"), &[]);
    limited.run("SELECT k, max(v), min(v) FROM t GROUP BY k", &[]).unwrap();
}

#[test]
fn rows_that_are_put_in_order() {
    let mut limited = with_large_cell();
    for k in 2..20 {
        let insert = format!("INSERT INTO t (k, c, v) VALUES ({k}, 1, ?)");
        let prepared = limited.database.prepare(&insert).unwrap();
        limited.database.execute(&prepared, &[Value::Set(&vec![7; MIB])]).unwrap();
    }
    let keys = (1..20).map(|k| k.to_string()).collect::<Vec<_>>().join(", ");
    limited.refused(&format!("SELECT c, v FROM t WHERE k IN ({keys}) ORDER BY c"), &[]);
    limited.refused(&format!("SELECT v FROM t WHERE k IN ({keys})"), &[]);
    limited.run("SELECT c, v FROM t WHERE k IN (1, 2) ORDER BY c", &[]).unwrap();
}

#[test]
fn partial_aggregates_of_several_tablets() {
    let mut limited = with_large_cell();
    for k in 2..20 {
        let insert = format!("INSERT INTO t (k, c, v) VALUES ({k}, 1, ?)");
        let prepared = limited.database.prepare(&insert).unwrap();
        limited.database.execute(&prepared, &[Value::Set(&vec![7; MIB])]).unwrap();
    }
    limited.limit_bytes = 16 * MIB;
    limited.run("SELECT max(v) FROM t", &[]).unwrap();
    let aggregates = ["max(v)"; 5].join(", ");
    // The five values are there once in all, and once for each tablet that was asked.
    limited.refused(&format!("SELECT {aggregates} FROM t"), &[]);
}

#[test]
fn keys_that_in_makes_of_few() {
    let mut limited = Limited::new(8 * MIB);
    limited.database.run("CREATE TABLE p (a text, b text, v int, PRIMARY KEY ((a, b)))").unwrap();
    limited.database.run("CREATE TABLE r (k int, a text, b text, v int, PRIMARY KEY (k, a, b))").unwrap();
    let texts: Vec<String> = (0..60).map(|at| format!("'{at}{}'", "x".repeat(1_000))).collect();
    let list = texts.join(", ");
    for statement in [
        format!("SELECT v FROM p WHERE a IN ({list}) AND b IN ({list})"),
        format!("SELECT count(*) FROM p WHERE a IN ({list}) AND b IN ({list})"),
        format!("UPDATE p SET v = 1 WHERE a IN ({list}) AND b IN ({list})"),
        format!("SELECT v FROM r WHERE k = 1 AND a IN ({list}) AND b IN ({list})"),
        format!("DELETE FROM r WHERE k = 1 AND a IN ({list}) AND b IN ({list})"),
    ] {
        limited.refused(&statement, &[]);
    }
    // Few keys, each in as many ranges.
    let keys = (0..4_000).map(|at| at.to_string()).collect::<Vec<_>>().join(", ");
    let rows = (0..60).map(|at| format!("'{at}'")).collect::<Vec<_>>().join(", ");
    limited.refused(&format!("SELECT count(*) FROM r WHERE k IN ({keys}) AND a IN ({rows})"), &[]);
    limited.refused(&format!("DELETE FROM r WHERE k IN ({keys}) AND a IN ({rows})"), &[]);
}

#[test]
fn documents_and_values_that_are_named_often() {
    let mut limited = Limited::new(8 * MIB);
    limited.database.run("CREATE TABLE d (k int PRIMARY KEY, j jsonb, l list<blob>, f frozen<list<blob>>)").unwrap();
    let document = format!("[{}0]", "0,".repeat(MIB / 4));
    limited.refused("INSERT INTO d (k, j) VALUES (1, ?)", &[Value::Set(document.as_bytes())]);
    limited.refused("INSERT INTO d (k, j) VALUES (1, fromJson(?))", &[Value::Set(document.as_bytes())]);
    let row = format!("{{\"k\": 1, \"j\": {document}}}");
    limited.refused("INSERT INTO d JSON ?", &[Value::Set(row.as_bytes())]);
    let blob = vec![1; MIB / 4];
    let many = vec!["?"; 40].join(", ");
    let values = vec![Value::Set(&blob); 40];
    limited.refused(&format!("UPDATE d SET f = [{many}] WHERE k = 1"), &values);
    limited.refused(&format!("UPDATE d SET l = [{many}] WHERE k = 1"), &values);
}

#[test]
fn values_with_names_that_nobody_asks_for() {
    let mut limited = Limited::new(MIB);
    limited.database.run("CREATE TABLE t (k int PRIMARY KEY, v int)").unwrap();
    let names: Vec<String> = (0..60_000).map(|at| format!("n{at}")).collect();
    let one = 1i32.to_be_bytes();
    let named = |count: usize| -> Vec<(&str, Value<'_>)> {
        let unused = names[..count].iter().map(|name| (name.as_str(), Value::Null));
        unused.chain([("k", Value::Null), ("k", Value::Set(&one))]).collect()
    };
    let mut ask = |named: &[(&str, Value<'_>)]| {
        let parameters = Parameters { values: BoundValues::Named(named), ..Parameters::default() };
        let statement = "SELECT v FROM t WHERE k = :k";
        limited.within(|database| database.send(&ClientRequest::Query { statement, parameters }))
    };
    ask(&named(100)).unwrap();
    let error = ask(&named(60_000)).unwrap_err();
    assert_eq!(error.code(), ErrorCode::Invalid, "{}", error.message);
    assert!(error.message.contains("the limit of 1048576 bytes for one request"), "{}", error.message);
}

#[test]
fn a_long_list_in_the_text() {
    let mut limited = Limited::new(8 * MIB);
    limited.database.run("CREATE TABLE t (k int PRIMARY KEY, v int)").unwrap();
    let list = vec!["1"; 60_000].join(",");
    limited.refused(&format!("SELECT v FROM t WHERE k IN ({list})"), &[]);
    limited.run("SELECT v FROM t WHERE k IN (1, 2, 3)", &[]).unwrap();
    // Constants take as much as their text.
    limited.run(&format!("SELECT v FROM t WHERE k = 1 AND v = {} ALLOW FILTERING", 1), &[]).unwrap();
}

#[test]
fn what_others_hold_is_waited_for_elsewhere() {
    let mut limited = with_large_cell();
    let others = limited.account.charge(63 * MIB).unwrap();
    limited.database.budget = Arc::new(Budget::new(Meter::new(&limited.account, 8 * MIB), u64::MAX));
    let error = limited.database.run("SELECT v, v FROM t WHERE k = 1").unwrap_err();
    assert_eq!(error.code(), ErrorCode::Overloaded, "{}", error.message);
    drop(others);
    limited.database.budget = super::unlimited();
    limited.run("SELECT v, v FROM t WHERE k = 1", &[]).unwrap();
}

#[test]
fn a_request_that_has_ended_is_told_so_by_its_kind() {
    let mut limited = with_large_cell();
    for (statement, code) in
        [("SELECT v FROM t", ErrorCode::Overloaded), ("SELECT v FROM t WHERE k = 1 AND c = 1", ErrorCode::Overloaded)]
    {
        // It had ended before its kind was known.
        limited.database.budget = Arc::new(Budget::new(Meter::alone(usize::MAX), 5));
        limited.database.budget.end(Ended::Cancelled);
        let error = limited.database.run(statement).unwrap_err();
        assert_eq!(error.code(), code, "{}", error.message);
        assert!(error.message.contains("ended by an operator"), "{}", error.message);
    }
}

#[test]
fn the_schema_as_rows_and_as_statements() {
    let mut limited = Limited::new(MIB);
    let columns = (0..1_000).map(|at| format!("column_{at} text")).collect::<Vec<_>>().join(", ");
    for table in 0..4 {
        limited.database.run(&format!("CREATE TABLE wide_{table} (k int PRIMARY KEY, {columns})")).unwrap();
    }
    limited.refused("SELECT column_name FROM system_schema.columns WHERE keyspace_name = 'ks' LIMIT 1", &[]);
    limited.run("SELECT * FROM system_schema.tables", &[]).unwrap();
    limited.run("DESCRIBE SCHEMA", &[]).unwrap();
    limited.limit_bytes = 64 << 10;
    limited.refused("DESCRIBE SCHEMA", &[]);
    limited.refused("DESCRIBE KEYSPACE ks", &[]);
    limited.run("DESCRIBE TABLES", &[]).unwrap();
    limited.limit_bytes = 32 << 10;
    limited.refused("DESCRIBE TABLE wide_1", &[]);
}

#[test]
fn a_submitted_write_is_charged_with_all_that_it_is_made_of() {
    let limited = Limited::new(MIB);
    let database = &limited.database;
    database.run("CREATE TABLE t (k int PRIMARY KEY, a text, v blob)").unwrap();
    // The client sends only the key.
    let text = "x".repeat(100_000);
    let long = database.prepare(&format!("INSERT INTO t (k, a, v) VALUES (?, '{text}', 0x01)")).unwrap();
    let short = database.prepare("INSERT INTO t (k, a, v) VALUES (?, 'x', 0x02)").unwrap();
    let others = limited.account.charge(64 * MIB - 65_536).unwrap();
    let meter = Meter::shared(&limited.account);
    let write = |prepared| {
        let request = database.execute_request(prepared, &[Value::Set(&[0, 0, 0, 1])], false);
        database.execute_now_within(&request, &meter).expect("a point write")
    };
    let error = write(&long).expect_err("refused");
    assert_eq!(error.code(), ErrorCode::Overloaded, "{}", error.message);
    assert_eq!(database.rows("SELECT v FROM t WHERE k = 1"), Vec::<String>::new());
    write(&short).unwrap();
    assert_eq!(database.rows("SELECT v FROM t WHERE k = 1"), ["v=0x02"]);
    drop(others);
    write(&long).unwrap();
    assert_eq!(database.rows("SELECT v FROM t WHERE k = 1"), ["v=0x01"]);
    drop(meter);
    assert_eq!(limited.account.used_bytes(), 0);
}
