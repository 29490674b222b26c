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
}

#[test]
fn requests_for_rows_of_a_chosen_table_are_told_however_they_come() {
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
    let told = |text: &str| vec![(text.to_owned(), Outcome::Done)];
    database.run("INSERT INTO kept (k, v) VALUES (1, 7777)").unwrap();
    assert_eq!(kept.take(), told("INSERT INTO kept (k, v) VALUES (?, ?)"));
    database.run("SELECT * FROM other").unwrap();
    assert!(kept.take().is_empty());
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
