//! Rows that are malformed, in storage or in another node's answer: each ends the statement that reads it, with an error
//! that names its place, and nothing else.

use super::Database;
use diorite_base::NodeId;
use diorite_cql::protocol::{CqlError, Value};

/// A table with one row, whose value lacks its last byte, beside one that is intact.
fn damaged(table: &str, row: &str) -> Database {
    let database = Database::with_keyspace();
    database.run(table).unwrap();
    database.run(row).unwrap();
    database.kv.damage(|_, value| value.truncate(value.len() - 1));
    add_intact(&database);
    database
}

fn add_intact(database: &Database) {
    database.run("CREATE TABLE intact (k int PRIMARY KEY, v int)").unwrap();
    database.run("INSERT INTO intact (k, v) VALUES (1, 7)").unwrap();
}

/// The error is that of the server, and names the table; it was noted once.
fn check(database: &Database, statement: &str, outcome: Result<impl std::fmt::Debug, CqlError>, table: &str) {
    let error = outcome.expect_err(statement);
    assert_eq!(error.code() as u32, 0x0000, "{statement}: {error:?}");
    let noted = database.kv.take_malformed();
    let [(noted, tablet)] = noted.as_slice() else { panic!("{statement}: {noted:?}") };
    assert!(noted.ends_with(table), "{statement}: {noted}");
    let wanted = format!("a row of table {noted} in {tablet} is malformed: the tablet's data is damaged");
    assert_eq!(error.message, wanted, "{statement}");
    assert_eq!(database.rows("SELECT v FROM intact"), ["v=7"], "after {statement}");
}

#[test]
fn a_malformed_row_ends_the_statement_that_reads_it_and_names_its_place() {
    let database = damaged("CREATE TABLE t (k int PRIMARY KEY, v int)", "INSERT INTO t (k, v) VALUES (1, 5)");
    for leader in [None, Some(NodeId(2))] {
        *database.kv.leader.lock() = leader;
        for statement in [
            "SELECT * FROM t WHERE k = 1",
            "SELECT * FROM t WHERE k IN (1, 2)",
            "SELECT * FROM t",
            "SELECT * FROM t WHERE v = 5 ALLOW FILTERING",
            "SELECT sum(v) FROM t",
            "SELECT k, max(v) FROM t GROUP BY k",
        ] {
            check(&database, statement, database.run(statement), "ks.t");
        }
        let prepared = database.prepare("SELECT v FROM t WHERE k = ?").unwrap();
        let outcome = database.execute(&prepared, &[Value::Set(&[0, 0, 0, 1])]);
        check(&database, "a prepared point read", outcome, "ks.t");
    }
}

#[test]
fn a_malformed_header_and_static_row_end_the_statement_as_well() {
    let table = "CREATE TABLE t (p int, c int, s int STATIC, v int, PRIMARY KEY (p, c))";
    let database = damaged(table, "INSERT INTO t (p, c, s, v) VALUES (1, 1, 5, 5)");
    for statement in ["SELECT s FROM t WHERE p = 1", "SELECT DISTINCT p, s FROM t"] {
        check(&database, statement, database.run(statement), "ks.t");
    }
    let database = damaged(table, "DELETE FROM t WHERE p = 1 AND c > 1");
    database.run("INSERT INTO t (p, c, v) VALUES (1, 2, 5)").unwrap();
    for statement in ["SELECT * FROM t WHERE p = 1", "SELECT * FROM t"] {
        check(&database, statement, database.run(statement), "ks.t");
    }
}

/// It would be looked at again and again.
#[test]
fn a_key_that_ends_with_its_partition_is_malformed() {
    let database = Database::with_keyspace();
    database.run("CREATE TABLE t (k int PRIMARY KEY, v int)").unwrap();
    database.run("INSERT INTO t (k, v) VALUES (1, 5)").unwrap();
    // The kind of the row is the last byte.
    database.kv.damage(|key, _| key.truncate(key.len() - 1));
    add_intact(&database);
    for statement in ["SELECT * FROM t", "SELECT count(*) FROM t"] {
        check(&database, statement, database.run(statement), "ks.t");
    }
}

#[test]
fn a_transaction_that_meets_a_malformed_row_is_refused_and_leaves_nothing() {
    let table = "CREATE TABLE t (k int PRIMARY KEY, v int) WITH transactions = {'enabled': true}";
    let database = damaged(table, "INSERT INTO t (k, v) VALUES (1, 5)");
    database.run("CREATE TABLE u (k int PRIMARY KEY, v int) WITH transactions = {'enabled': true}").unwrap();
    let block =
        "BEGIN TRANSACTION UPDATE t SET v = v + 1 WHERE k = 1; INSERT INTO u (k, v) VALUES (1, 1); END TRANSACTION";
    check(&database, block, database.run(block), "t");
    assert!(database.rows("SELECT * FROM u").is_empty());
}

#[test]
fn a_write_that_maintains_an_index_is_refused_by_a_malformed_row() {
    let database = Database::with_keyspace();
    database.run("CREATE TABLE t (k int PRIMARY KEY, v int) WITH transactions = {'enabled': true}").unwrap();
    database.run("CREATE UNIQUE INDEX ON t (v)").unwrap();
    database.run("INSERT INTO t (k, v) VALUES (2, 5)").unwrap();
    // The row of the table, and not that of the index.
    database.kv.damage(|key, value| {
        if key.ends_with(&[0, 0, 2, 2]) {
            value.truncate(value.len() - 1);
        }
    });
    add_intact(&database);
    let write = "UPDATE t SET v = 6 WHERE k = 2";
    check(&database, write, database.run(write), "ks.t");
}
