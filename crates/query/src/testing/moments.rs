//! Requests that say what second it is (`now_in_seconds` of protocol v5): their TTLs, and what has expired for them, are
//! reckoned from that second; their timestamps and what their conditions find are not.

use super::memory::MemoryKv;
use super::requests::{refused, rows, text_table};
use super::{Database, rendered_rows};
use crate::budget::Budget;
use crate::exec::source::Source;
use diorite_base::level::Level;
use diorite_cql::protocol::client::{BoundValues, ClientBatchStatement, ClientRequest, ClientResponse, Parameters};
use diorite_cql::protocol::{BatchKind, CqlError, ErrorCode, Value};

/// The second at which tests begin.
const STARTED_S: i32 = 1_700_000_000;

fn at(now_s: i32) -> Parameters<'static> {
    Parameters { now_in_seconds: Some(now_s), ..Parameters::default() }
}

fn query(database: &Database, statement: &str, now_s: i32) -> Result<ClientResponse, CqlError> {
    database.send(&ClientRequest::Query { statement, parameters: at(now_s) })
}

#[test]
fn a_request_may_say_what_second_it_is() {
    let database = text_table();
    let query = |statement, now_s| query(&database, statement, now_s);
    let started = STARTED_S;
    query("INSERT INTO t (k, c, v) VALUES ('a', 1, 1) USING TTL 100", started - 40).unwrap();
    assert_eq!(database.rows("SELECT ttl(v) FROM t"), ["ttl(v)=60"]);
    let select = "SELECT ttl(v) FROM t WHERE k = 'a' AND c = 1";
    assert_eq!(rendered_rows(&rows(query(select, started + 59))), ["ttl(v)=1"]);
    assert!(rows(query(select, started + 60)).rows.is_empty());
    let prepared = database.prepare("SELECT v FROM t WHERE k = 'a' AND c = 1").unwrap();
    let id = (prepared.id.as_slice(), prepared.result_metadata_id.as_deref().unwrap());
    let later = ClientRequest::Execute { id: id.0, result_metadata_id: id.1, parameters: at(started + 60) };
    assert!(database.execute_now(&later).is_none());
    assert!(rows(database.send(&later)).rows.is_empty());
    assert_eq!(refused(query(select, -1)).0, ErrorCode::Invalid);
}

#[test]
fn what_was_written_in_the_past_has_expired_since() {
    let database = Database::with_keyspace();
    for statement in [
        "CREATE TABLE t (k int PRIMARY KEY, v int, w int)",
        "CREATE INDEX ON t (v)",
        "CREATE TABLE d (k int PRIMARY KEY, v int) WITH default_time_to_live = 60",
    ] {
        database.run(statement).unwrap();
    }
    let past_s = STARTED_S - 100;
    query(&database, "INSERT INTO t (k, v) VALUES (1, 7) USING TTL 60", past_s).unwrap();
    query(&database, "INSERT INTO d (k, v) VALUES (1, 7)", past_s).unwrap();
    let statements = [ClientBatchStatement::Text("INSERT INTO t (k, v) VALUES (2, 7) USING TTL 60", &[])];
    let batch = ClientRequest::Batch { kind: BatchKind::Unlogged, statements: &statements, parameters: at(past_s) };
    database.send(&batch).unwrap();
    let insert = database.prepare("INSERT INTO t (k, v) VALUES (?, 7) USING TTL 60").unwrap();
    let key = 3_i32.to_be_bytes();
    let values = [Value::Set(key.as_slice())];
    let id = (insert.id.as_slice(), insert.result_metadata_id.as_deref().unwrap_or_default());
    let parameters = Parameters { values: BoundValues::Positional(&values), ..at(past_s) };
    let execute = ClientRequest::Execute { id: id.0, result_metadata_id: id.1, parameters };
    assert!(database.execute_now(&execute).is_none(), "the short way has the time of the node");
    database.send(&execute).unwrap();
    for (select, found) in [
        ("SELECT ttl(v) FROM t WHERE k = 1", vec!["ttl(v)=1"]),
        ("SELECT ttl(v) FROM t WHERE k IN (2, 3)", vec!["ttl(v)=1"; 2]),
        ("SELECT ttl(v) FROM t WHERE v = 7", vec!["ttl(v)=1"; 3]),
        ("SELECT ttl(v) FROM d", vec!["ttl(v)=1"]),
        ("SELECT ttl(v) FROM t", vec!["ttl(v)=1"; 3]),
    ] {
        assert_eq!(rendered_rows(&rows(query(&database, select, past_s + 59))), found, "{select}");
        assert!(rows(query(&database, select, past_s + 60)).rows.is_empty(), "{select}");
        assert!(database.rows(select).is_empty(), "{select}");
    }
    let count = "SELECT count(*) FROM t";
    assert_eq!(rendered_rows(&rows(query(&database, count, past_s + 59))), ["count=3"]);
    assert_eq!(database.rows(count), ["count=0"]);
    // The timestamp is of now: an older one is hidden by it, and nothing hides a newer one.
    database.run("INSERT INTO t (k, w) VALUES (1, 1) USING TIMESTAMP 1").unwrap();
    database.run("UPDATE t USING TIMESTAMP 1 SET v = 8 WHERE k = 1").unwrap();
    assert_eq!(database.rows("SELECT v, w FROM t WHERE k = 1"), ["v=null w=1"]);
}

#[test]
fn what_is_written_in_the_future_outlasts_its_ttl() {
    let database = text_table();
    query(&database, "INSERT INTO t (k, c, v) VALUES ('a', 1, 1) USING TTL 100", STARTED_S + 40).unwrap();
    assert_eq!(database.rows("SELECT ttl(v) FROM t"), ["ttl(v)=140"]);
    assert_eq!(rendered_rows(&rows(query(&database, "SELECT ttl(v) FROM t", STARTED_S + 139))), ["ttl(v)=1"]);
    assert!(rows(query(&database, "SELECT ttl(v) FROM t", STARTED_S + 140)).rows.is_empty());
}

#[test]
fn conditions_are_judged_by_the_second_of_the_log_and_ttls_by_that_of_the_request() {
    let database = text_table();
    let shown = |statement: &str, now_s| rendered_rows(&rows(query(&database, statement, now_s)));
    let select = "SELECT v FROM t WHERE k = 'a' AND c = 1";
    database.run("INSERT INTO t (k, c, v) VALUES ('a', 1, 1) USING TTL 100").unwrap();
    // For these requests the row has expired, and for the log it has not.
    let later_s = STARTED_S + 200;
    assert!(shown(select, later_s).is_empty());
    let insert = "INSERT INTO t (k, c) VALUES ('a', 1) IF NOT EXISTS";
    assert!(shown(insert, later_s)[0].starts_with("[applied]=false"));
    let update = "UPDATE t SET w = 'x' WHERE k = 'a' AND c = 1 IF v = 1";
    assert_eq!(shown(update, later_s), ["[applied]=true"]);
    let update = "UPDATE t USING TTL 100 SET v = 2 WHERE k = 'a' AND c = 1 IF v = 1";
    assert_eq!(shown(update, STARTED_S - 40), ["[applied]=true"]);
    assert_eq!(database.rows("SELECT ttl(v) FROM t"), ["ttl(v)=60"]);
    // The other way round.
    database.kv.pass(70);
    let earlier_s = STARTED_S + 50;
    assert_eq!(shown(select, earlier_s), ["v=2"]);
    let update = "UPDATE t SET w = 'y' WHERE k = 'a' AND c = 1 IF v = 2";
    assert!(shown(update, earlier_s)[0].starts_with("[applied]=false"));
    let update = "UPDATE t SET w = 'y' WHERE k = 'a' AND c = 1 IF v = null";
    assert_eq!(shown(update, earlier_s), ["[applied]=true"]);
}

#[test]
fn reads_name_their_second_from_the_level_on_that_has_it() {
    for (level, expected) in [(Level::FIRST, None), (Level::RECORDED, Some(300))] {
        let kv = MemoryKv::at_level(level);
        let source = Source::tablets(&kv, false, None, Budget::unlimited()).judged_at(300);
        let Source::Tablets { judged_s, .. } = source else { panic!("it reads tablets") };
        assert_eq!(judged_s, expected);
    }
}
