//! Reads and writes of chosen tables, as the audit log is told of them.

use super::requests::refused;
use super::{Database, unlimited};
use crate::audit::{Audit, Auditor, Category, Changed, Outcome};
use crate::engine::{EngineConfig, QueryEngine};
use crate::session::Session;
use diorite_cql::protocol::client::{ClientBatchStatement, ClientRequest, Parameters};
use diorite_cql::protocol::{BatchKind, ErrorCode, Value};
use parking_lot::Mutex;
use std::sync::Arc;

/// Keeps the rows of `ks.kept`.
#[derive(Default)]
struct Kept(Mutex<Vec<Changed>>);

impl Audit for Kept {
    fn keeps(&self, category: Category) -> bool {
        category == Category::Data
    }

    fn keeps_rows_of(&self, keyspace: &str, table: &str) -> bool {
        (keyspace, table) == ("ks", "kept")
    }

    fn changed(&self, changed: Changed) {
        self.0.lock().push(changed);
    }
}

impl Kept {
    fn take(&self) -> Vec<(String, Outcome)> {
        self.0.lock().drain(..).map(|changed| (changed.statement, changed.outcome)).collect()
    }

    /// The only entry: of a request that was not planned.
    fn unplanned(&self) -> (String, Outcome) {
        let [changed] = <[Changed; 1]>::try_from(std::mem::take(&mut *self.0.lock())).unwrap();
        assert!(!changed.was_planned && changed.category == Category::Data, "{changed:?}");
        assert!(!format!("{changed:?}").contains("7777"), "{changed:?}");
        (changed.statement, changed.outcome)
    }
}

/// `ks.kept` is chosen, `ks.other` is not.
fn audited() -> (Database, Arc<Kept>) {
    let plain = Database::with_keyspace();
    for table in ["kept", "other"] {
        plain.run(&format!("CREATE TABLE {table} (k int PRIMARY KEY, v int)")).unwrap();
    }
    let kept = Arc::new(Kept::default());
    let config =
        EngineConfig { auditor: Auditor(Some(Arc::clone(&kept) as Arc<dyn Audit>)), ..EngineConfig::default() };
    let engine = QueryEngine::new(Arc::clone(&plain.kv), config);
    let database =
        Database { kv: plain.kv, engine, session: Session::new(), version: plain.version, budget: unlimited() };
    database.run("USE ks").unwrap();
    assert!(kept.take().is_empty(), "no rows");
    (database, kept)
}

#[test]
fn requests_for_rows_of_a_chosen_table_are_told_however_they_come() {
    let (database, kept) = audited();
    let told = |text: &str| vec![(text.to_owned(), Outcome::Done)];
    database.run("INSERT INTO kept (k, v) VALUES (1, 7777)").unwrap();
    assert_eq!(kept.take(), told("INSERT INTO kept (k, v) VALUES (?, ?)"));
    database.run("EXPLAIN UPDATE kept SET v = 7777 WHERE k = 1").unwrap();
    assert_eq!(kept.take(), told("EXPLAIN UPDATE kept SET v = ? WHERE k = ?"));
    database.run("SELECT * FROM other").unwrap();
    assert!(kept.take().is_empty());
    for table in ["kept", "other"] {
        database.run(&format!("ALTER TABLE {table} WITH transactions = {{'enabled': true}}")).unwrap();
    }
    kept.take();
    database.run("BEGIN TRANSACTION UPDATE kept SET v = 7777 WHERE k = 1; END TRANSACTION").unwrap();
    assert_eq!(kept.take(), told("BEGIN TRANSACTION UPDATE kept SET v = ? WHERE k = ?; END TRANSACTION"));
    let select = database.prepare("SELECT v FROM kept WHERE k = ?").unwrap();
    let one = 1i32.to_be_bytes();
    let values = [Value::Set(&one)];
    let request = database.execute_request(&select, &values, false);
    assert!(database.execute_now(&request).is_none(), "it does not go the short path");
    database.send(&request).unwrap();
    database.send_to_disk(&request).unwrap();
    assert_eq!(kept.take(), [told("SELECT v FROM kept WHERE k = ?"), told("SELECT v FROM kept WHERE k = ?")].concat());
    let statements = [
        ClientBatchStatement::Text("INSERT INTO other (k, v) VALUES (1, 7777)", &[]),
        ClientBatchStatement::Text("INSERT INTO kept (k, v) VALUES (2, 7777)", &[]),
    ];
    let batch =
        ClientRequest::Batch { kind: BatchKind::Logged, statements: &statements, parameters: Parameters::default() };
    database.send(&batch).unwrap();
    assert_eq!(kept.take(), told("BEGIN BATCH INSERT INTO other (k, v) VALUES (?, ?); …; APPLY BATCH"));
    // A role without permissions, by a statement that another one has prepared.
    let guarded = Database { session: Session::guarded(), ..database.another() };
    guarded.session.log_in("ann");
    assert_eq!(refused(guarded.send(&request)).0, ErrorCode::Unauthorized);
    assert_eq!(kept.take(), [("SELECT v FROM kept WHERE k = ?".to_owned(), Outcome::Refused)]);
    assert!(!format!("{:?}", kept.0.lock()).contains("7777"));
}

fn failed(kind: &str) -> Outcome {
    Outcome::Failed(kind.to_owned())
}

#[test]
fn what_fails_before_it_is_planned_is_told_by_the_names_of_its_tables() {
    let (database, kept) = audited();
    let stranger = Database { session: Session::guarded(), ..database.another() };
    stranger.session.log_in("ann");
    stranger.session.set_keyspace("ks");
    for (text, what, outcome) in [
        ("SELECT * FROM kept WHERE k = 7777", "SELECT ks.kept", Outcome::Refused),
        ("EXPLAIN SELECT * FROM kept WHERE k = 7777", "EXPLAIN ks.kept", Outcome::Refused),
        ("INSERT INTO ks.kept (k) VALUES (7777)", "INSERT ks.kept", Outcome::Refused),
        (
            "BEGIN BATCH UPDATE other SET v = 7777 WHERE k = 1; DELETE FROM kept WHERE k = 7777; APPLY BATCH",
            "BATCH ks.kept, ks.other",
            Outcome::Refused,
        ),
        (
            "START TRANSACTION; UPDATE other SET v = 7777 WHERE k = 1; DELETE FROM kept WHERE k = 7777; COMMIT",
            "TRANSACTION ks.kept, ks.other",
            Outcome::Refused,
        ),
        ("BEGIN TRANSACTION DELETE FROM kept WHERE k = 7777", "TRANSACTION ks.kept", failed("Syntax")),
        ("SELECT * FROM kept WHER k = 7777", "SELECT ks.kept", failed("Syntax")),
        ("UPDATE ks.kept SET v = '7777", "UPDATE ks.kept", failed("Syntax")),
    ] {
        refused(stranger.run(text));
        assert_eq!(kept.unplanned(), (what.to_owned(), outcome), "{text}");
    }
    for (text, what) in [
        ("SELECT nothing FROM kept WHERE k = 7777", "SELECT ks.kept"),
        ("UPDATE kept SET v7777 = 1 WHERE k = 7777", "UPDATE ks.kept"),
        ("INSERT INTO kept (k) VALUES ('7777')", "INSERT ks.kept"),
    ] {
        refused(database.run(text));
        assert_eq!(kept.unplanned(), (what.to_owned(), failed("Invalid")), "{text}");
    }
    // What names no chosen table, and what is not about rows.
    for text in ["SELECT * FROM other WHERE k = 7777", "SELECT * FROM nothing.kept", "SELECT 7777", "DROP TABLE kept x"]
    {
        refused(stranger.run(text));
        assert_eq!(kept.take(), [], "{text}");
    }
}

#[test]
fn what_is_refused_when_it_is_prepared_or_sent_in_a_batch_is_told() {
    let (database, kept) = audited();
    let stranger = Database { session: Session::guarded(), ..database.another() };
    stranger.session.log_in("ann");
    stranger.session.set_keyspace("ks");
    let text = "SELECT v FROM kept WHERE k = 7777";
    for is_known in [false, true] {
        if is_known {
            database.prepare(text).unwrap();
        }
        assert_eq!(stranger.prepare(text).unwrap_err().code(), ErrorCode::Unauthorized);
        assert_eq!(kept.unplanned(), ("PREPARE SELECT ks.kept".to_owned(), Outcome::Refused), "{is_known}");
    }
    let insert = database.prepare("INSERT INTO ks.kept (k, v) VALUES (1, 7777)").unwrap();
    let refuse = |database: &Database, statements: &[ClientBatchStatement<'_>]| {
        let parameters = Parameters::default();
        refused(database.send(&ClientRequest::Batch { kind: BatchKind::Logged, statements, parameters }));
    };
    let prepared = ClientBatchStatement::Prepared(&insert.id, &[]);
    refuse(&stranger, &[prepared]);
    assert_eq!(kept.unplanned(), ("BATCH ks.kept".to_owned(), Outcome::Refused));
    // One statement of several is wrong, and nothing is written.
    let wrong = ClientBatchStatement::Text("INSERT INTO other (k) VALUES ('7777')", &[]);
    refuse(&database, &[prepared, wrong]);
    assert_eq!(kept.unplanned(), ("BATCH ks.kept, ks.other".to_owned(), failed("Invalid")));
    refuse(&database, &[wrong]);
    assert_eq!(kept.take(), []);
    // The driver prepares it again, and sends the batch again.
    refuse(&database, &[prepared, ClientBatchStatement::Prepared(&[0; 16], &[])]);
    assert_eq!(kept.take(), []);
}
