//! Lists are in the order of the log, whatever the clocks of the planning nodes.

use super::Database;
use crate::engine::{EngineConfig, QueryEngine};
use crate::session::Session;
use std::sync::Arc;

/// A table with a list, and another node that plans statements for it.
fn two_nodes() -> (Database, Database) {
    let one = Database::with_keyspace();
    one.run("CREATE TABLE t (k int PRIMARY KEY, l list<int>, m map<int, int>)").unwrap();
    let engine = QueryEngine::new(Arc::clone(&one.kv), EngineConfig::default());
    let (session, budget) = (Session::new(), Arc::clone(&one.budget));
    let other = Database { kv: Arc::clone(&one.kv), engine, session, version: one.version, budget };
    other.run("USE ks").unwrap();
    (one, other)
}

fn list(database: &Database) -> String {
    let row = database.rows("SELECT l FROM t WHERE k = 1").remove(0);
    row.trim_start_matches("l=").to_owned()
}

#[test]
fn appends_and_prepends_are_in_the_order_in_which_they_were_answered() {
    let (ahead, behind) = two_nodes();
    ahead.run("INSERT INTO t (k, l) VALUES (1, [1, 2])").unwrap();
    // The clock of the node that plans the next statements is an hour behind.
    behind.kv.advance_s(-3_600);
    behind.run("UPDATE t SET l = l + [3, 4] WHERE k = 1").unwrap();
    behind.run("UPDATE t SET l = [0, 1] + l WHERE k = 1").unwrap();
    behind.kv.advance_s(7_200);
    ahead.run("UPDATE t SET l = [-1] + l WHERE k = 1").unwrap();
    behind.kv.advance_s(-7_200);
    behind.run("UPDATE t SET l = l + [5] WHERE k = 1").unwrap();
    behind.run("UPDATE t SET l = [-2] + l WHERE k = 1").unwrap();
    assert_eq!(list(&ahead), "[-2, -1, 0, 1, 1, 2, 3, 4, 5]");
    behind.run("INSERT INTO t (k, l) VALUES (1, [7, 8])").unwrap();
    behind.run("UPDATE t SET l = l + [9] WHERE k = 1").unwrap();
    assert_eq!(list(&ahead), "[7, 8, 9]", "the list was replaced");
}

#[test]
fn prepared_statements_and_conditions_append_in_the_same_order() {
    let (ahead, behind) = two_nodes();
    ahead.run("INSERT INTO t (k, l) VALUES (1, [1])").unwrap();
    behind.kv.advance_s(-3_600);
    let append = behind.prepare("UPDATE t SET l = l + [2] WHERE k = 1").unwrap();
    behind.execute(&append, &[]).unwrap();
    behind.run("UPDATE t SET l = l + [3] WHERE k = 1 IF EXISTS").unwrap();
    behind.run("UPDATE t SET l = [0] + l WHERE k = 1 IF EXISTS").unwrap();
    behind.execute(&append, &[]).unwrap();
    assert_eq!(list(&ahead), "[0, 1, 2, 3, 2]");
}

#[test]
fn several_edits_of_one_list_in_one_batch_and_in_one_statement_are_in_their_order() {
    let (one, _) = two_nodes();
    let edits = "UPDATE t SET l = l + [3] WHERE k = 1; UPDATE t SET l = [2] + l WHERE k = 1; \
                 UPDATE t SET l = l + [4] WHERE k = 1; UPDATE t SET l = [1] + l WHERE k = 1;";
    one.run(&format!("BEGIN BATCH {edits} APPLY BATCH")).unwrap();
    assert_eq!(list(&one), "[1, 2, 3, 4]");
    one.run("DELETE FROM t WHERE k = 1").unwrap();
    one.run("INSERT INTO t (k) VALUES (1)").unwrap();
    one.run(
        "BEGIN BATCH UPDATE t SET l = l + [3] WHERE k = 1 IF EXISTS; UPDATE t SET l = [2] + l WHERE k = 1; APPLY BATCH",
    )
    .unwrap();
    one.run("UPDATE t SET l = l + [4], l = [1] + l, l = l + [5, 6], l = [-1, 0] + l WHERE k = 1").unwrap();
    assert_eq!(list(&one), "[-1, 0, 1, 2, 3, 4, 5, 6]");
}

#[test]
fn a_timestamp_that_the_client_gives_decides_what_lives_and_not_the_order() {
    let (ahead, behind) = two_nodes();
    ahead.run("UPDATE t USING TIMESTAMP 500 SET l = l + [1] WHERE k = 1").unwrap();
    behind.kv.advance_s(-3_600);
    behind.run("UPDATE t USING TIMESTAMP 100 SET l = l + [2] WHERE k = 1").unwrap();
    behind.run("UPDATE t USING TIMESTAMP 900 SET l = [0] + l WHERE k = 1").unwrap();
    assert_eq!(list(&ahead), "[0, 1, 2]");
    ahead.run("DELETE l FROM t USING TIMESTAMP 600 WHERE k = 1").unwrap();
    assert_eq!(list(&ahead), "[0]");
}
