//! Requests that are traced, as `system_traces` shows them.

use super::requests::refused;
use super::{Database, envelope};
use crate::budget::Budget;
use crate::kv::KvError;
use crate::session::Session;
use diorite_base::account::Meter;
use diorite_base::write::Waited;
use diorite_base::{Clock, SystemClock, TabletId};
use diorite_cql::protocol::client::{ClientRequest, ClientResponse, Parameters, RequestHead, encode_request};
use diorite_cql::protocol::{CqlError, ErrorCode, Message, Value};
use std::sync::Arc;
use uuid::Uuid;

fn with_table() -> Database {
    let database = Database::with_keyspace();
    database.run("CREATE TABLE t (k int PRIMARY KEY, v int)").unwrap();
    database.run("INSERT INTO t (k, v) VALUES (7777, 1)").unwrap();
    database
}

/// Sends a request that is traced.
fn traced(database: &Database, request: &ClientRequest<'_>) -> (Uuid, Result<ClientResponse, CqlError>) {
    let mut bytes = Vec::new();
    encode_request(&mut bytes, &RequestHead::new(database.version, 7), request);
    let received = envelope(&bytes);
    let message = Message::decode(&received).unwrap();
    let clock = Arc::new(SystemClock::new());
    let arrived_ns = clock.monotonic_ns();
    let client = Some("10.0.0.7:4711".parse().unwrap());
    let trace = database.engine.traces().begin(&message.request, client, arrived_ns, clock);
    let id = trace.id();
    let budget = Arc::new(Budget::new(Meter::alone(usize::MAX), u64::MAX).traced(trace));
    let session = Arc::clone(&database.session);
    (id, Database { budget, session, ..database.another() }.send(request))
}

fn query(database: &Database, statement: &str) -> (Uuid, Result<ClientResponse, CqlError>) {
    traced(database, &ClientRequest::Query { statement, parameters: Parameters::default() })
}

/// The activities of a session in their order, without numbers.
fn activities(database: &Database, session: Uuid) -> Vec<String> {
    let rows = database.shown(&format!("SELECT activity FROM system_traces.events WHERE session_id = {session}"));
    let without_numbers = |text: &String| text.chars().filter(|c| !c.is_ascii_digit()).collect::<String>();
    rows.iter().map(|row| without_numbers(&row[0])).collect()
}

/// A session: its client, coordinator, command, kind and parameters.
fn session(database: &Database, session: Uuid) -> Vec<Vec<String>> {
    database.shown(&format!(
        "SELECT client, coordinator, command, request, parameters FROM system_traces.sessions WHERE session_id = {session}"
    ))
}

#[test]
fn a_read_and_a_write_show_their_steps_and_no_values() {
    let database = with_table();
    let (write, outcome) = query(&database, "INSERT INTO t (k, v) VALUES (8888, 9999)");
    outcome.unwrap();
    let (read, outcome) = query(&database, "SELECT v FROM t WHERE k = 7777");
    outcome.unwrap();
    assert_eq!(
        activities(&database, write),
        [
            "'Parsed and planned the statement'",
            "'Insert on ks.t'",
            "'Writing to tablet  here'",
            "'Tablet  has written its part'",
            "'Request complete:  rows,  bytes'"
        ]
    );
    assert_eq!(
        activities(&database, read),
        [
            "'Parsed and planned the statement'",
            "'Primary Key Lookup on ks.t'",
            "'Reading tablet  here'",
            "'Tablet  has answered:  entries,  bytes'",
            "'Request complete:  rows,  bytes'"
        ]
    );
    let shown = session(&database, read).concat();
    assert_eq!(shown[..4], ["'10.0.0.7'", "'127.0.0.1'", "'QUERY'", "'Execute CQL3 query'"]);
    assert!(shown[4].contains("'query': 'SELECT v FROM t WHERE k = ?'"), "{shown:?}");
    assert!(shown[4].contains("'consistency_level': "), "{shown:?}");
    let all = database.shown("SELECT * FROM system_traces.sessions");
    assert_eq!(all.len(), 2, "those that were traced, and no others");
    let all = format!("{all:?}{:?}", database.shown("SELECT activity FROM system_traces.events"));
    assert!(!["7777", "8888", "9999"].iter().any(|value| all.contains(value)), "{all}");
}

#[test]
fn a_part_that_is_not_carried_out_is_described_as_it_failed() {
    let database = with_table();
    let failures = [
        (KvError::Unavailable(TabletId(1_000)), "'Nobody has taken the # of tablet '"),
        (KvError::DiskFull("full".to_owned()), "'The # of tablet  was refused'"),
        (KvError::Timeout(Waited::in_vain(5)), "'The outcome of the # of tablet  is not known'"),
    ];
    for (failure, expected) in failures {
        for (statement, what) in
            [("INSERT INTO t (k, v) VALUES (8888, 9999)", "write"), ("SELECT v FROM t WHERE k = 7777", "read")]
        {
            *database.kv.failure.lock() = Some(failure.clone());
            let (id, outcome) = query(&database, statement);
            assert!(outcome.is_err(), "{failure:?}");
            *database.kv.failure.lock() = None;
            let activities = activities(&database, id);
            assert!(activities.contains(&expected.replace('#', what)), "{activities:?}");
        }
    }
}

#[test]
fn prepared_statements_show_their_text_and_failures_their_kind() {
    let database = with_table();
    let text = "SELECT v FROM t WHERE k = ?";
    let (id, outcome) = traced(&database, &ClientRequest::Prepare { statement: text, keyspace: None });
    assert!(matches!(outcome, Ok(ClientResponse::Prepared(_))), "{outcome:?}");
    let shown = session(&database, id).concat();
    assert_eq!((&shown[3][..], &shown[4][..]), ("'Preparing CQL3 query'", "{'query': 'SELECT v FROM t WHERE k = ?'}"));
    let prepared = database.prepare(text).unwrap();
    let key = 7777i32.to_be_bytes();
    let values = [Value::Set(&key)];
    let (id, outcome) = traced(&database, &database.execute_request(&prepared, &values, false));
    outcome.unwrap();
    let shown = session(&database, id).concat();
    assert_eq!(shown[3], "'Execute CQL3 prepared query'");
    assert!(shown[4].contains("'query': 'SELECT v FROM t WHERE k = ?'") && !shown[4].contains("7777"), "{shown:?}");
    let steps = activities(&database, id);
    assert_eq!(steps[..2], ["'Found the plan of the prepared statement'", "'Primary Key Lookup on ks.t'"]);
    let (id, outcome) = query(&database, "SELECT nothing FROM t WHERE k = 7777");
    assert_eq!(refused(outcome).0, ErrorCode::Invalid);
    assert_eq!(activities(&database, id), ["'Request failed: Invalid'"]);
    assert!(!session(&database, id).concat()[4].contains("query"), "its text could not be planned");
}

#[test]
fn sessions_are_read_by_their_ids_and_by_roles_that_may() {
    let database = with_table();
    let ids = [query(&database, "SELECT * FROM t").0, query(&database, "SELECT v FROM t").0];
    let both = format!("SELECT session_id FROM system_traces.sessions WHERE session_id IN ({}, {})", ids[0], ids[1]);
    assert_eq!(database.shown(&both).len(), 2);
    let prepared = database.prepare("SELECT duration FROM system_traces.sessions WHERE session_id = ?").unwrap();
    let Ok(ClientResponse::Rows(rows)) = database.execute(&prepared, &[Value::Set(ids[0].as_bytes())]) else {
        panic!("rows");
    };
    assert!(matches!(&rows.rows[0][0], Some(duration) if duration[..] != [0; 4]), "drivers wait for a duration");
    // As no other node does in this test, node 2 does not answer.
    for unknown in ["00000000-0000-1000-8000-d10000000002", "00000000-0000-4000-8000-000000000000"] {
        let found = database.shown(&format!("SELECT * FROM system_traces.events WHERE session_id = {unknown}"));
        assert!(found.is_empty(), "{found:?}");
    }
    database.run("CREATE ROLE ann WITH LOGIN = true").unwrap();
    let ann = Database { session: Session::guarded(), ..database.another() };
    ann.session.log_in("ann");
    for table in ["sessions", "events"] {
        let outcome = ann.run(&format!("SELECT * FROM system_traces.{table} WHERE session_id = {}", ids[0]));
        assert_eq!(refused(outcome).0, ErrorCode::Unauthorized);
    }
    database.run("GRANT SELECT ON KEYSPACE system_traces TO ann").unwrap();
    assert_eq!(ann.shown(&both).len(), 2);
}
