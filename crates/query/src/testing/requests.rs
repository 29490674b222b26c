//! Requests beyond plain text: values, prepared statements, the point path, batches by opcode, changes of the schema under a statement.

use super::{Database, rendered_rows};
use crate::kv::{Kv, KvError};
use crate::session::Session;
use crate::tablets;
use diorite_base::{Levels, NodeId};
use diorite_cluster::catalog::{Command, NodeDescription};
use diorite_cql::protocol::client::{
    BoundValues, ClientBatchStatement, ClientPrepared, ClientRequest, ClientResponse, ClientRows, Parameters,
};
use diorite_cql::protocol::{BatchKind, Consistency, CqlError, ErrorCode, Value};
use std::sync::atomic::Ordering;
use uuid::Uuid;

pub(super) fn text_table() -> Database {
    let database = Database::with_keyspace();
    database.run("CREATE TABLE t (k text, c int, v int, w text, PRIMARY KEY (k, c))").unwrap();
    database
}

pub(super) fn rows(response: Result<ClientResponse, CqlError>) -> ClientRows {
    match response {
        Ok(ClientResponse::Rows(rows)) => rows,
        other => panic!("{other:?}"),
    }
}

pub(super) fn refused(response: Result<ClientResponse, CqlError>) -> (ErrorCode, String) {
    match response {
        Err(error) => (error.code(), error.message.into_owned()),
        other => panic!("{other:?}"),
    }
}

pub(super) fn is_short(database: &Database, prepared: &ClientPrepared, values: &[Value<'_>]) -> bool {
    database.execute_now(&database.execute_request(prepared, values, false)).is_some()
}

pub(super) const INT: fn(i32) -> [u8; 4] = i32::to_be_bytes;

#[test]
fn what_groups_leaves_out_or_reports_rows_does_not_go_the_short_way() {
    let database = text_table();
    let one = INT(1);
    let values = [Value::Set(b"key"), Value::Set(&one)];
    let insert = database.prepare("INSERT INTO t (k, c) VALUES (?, ?) RETURNS STATUS AS ROW").unwrap();
    assert!(!is_short(&database, &insert, &values));
    assert_eq!(rows(database.execute(&insert, &values)).rows.len(), 1);
    for (clause, wanted) in [("OFFSET 1", 0), ("IF v = 1", 0), ("GROUP BY k, c", 1)] {
        let select = database.prepare(&format!("SELECT c FROM t WHERE k = ? AND c = ? {clause}")).unwrap();
        assert!(!is_short(&database, &select, &values), "{clause}");
        assert_eq!(rows(database.execute(&select, &values)).rows.len(), wanted, "{clause}");
    }
}

#[test]
fn a_session_does_what_its_role_may_by_the_newest_catalog() {
    let database = text_table();
    database.run("CREATE ROLE ann WITH LOGIN = true").unwrap();
    let (one, session) = (INT(1), Session::guarded());
    let ann = Database { session, ..database.another() };
    ann.session.log_in("ann");
    let insert = database.prepare("INSERT INTO ks.t (k, c) VALUES (?, ?)").unwrap();
    let values = [Value::Set(b"key"), Value::Set(&one)];
    assert_eq!(refused(ann.execute(&insert, &values)).0, ErrorCode::Unauthorized);
    database.run("GRANT MODIFY ON t TO ann").unwrap();
    assert!(!is_short(&ann, &insert, &values), "the first time it is checked");
    assert_eq!(ann.execute(&insert, &values), Ok(ClientResponse::Void));
    assert!(is_short(&ann, &insert, &values), "from then on it is known");
    assert_eq!(refused(ann.run("SELECT * FROM ks.t")).0, ErrorCode::Unauthorized);
    assert_eq!(
        refused(ann.run("BEGIN BATCH UPDATE ks.t SET v = 1 WHERE k = 'a' AND c = 1 IF EXISTS; APPLY BATCH")).0,
        ErrorCode::Unauthorized
    );
    assert_eq!(refused(ann.run("DROP TABLE ks.t")).0, ErrorCode::Unauthorized);
    assert_eq!(refused(ann.run("ALTER ROLE ann WITH SUPERUSER = true")).0, ErrorCode::Unauthorized);
    assert_eq!(ann.run("ALTER ROLE ann WITH PASSWORD = 'mine'"), Ok(ClientResponse::Void));
    database.run("REVOKE MODIFY ON t FROM ann").unwrap();
    assert!(!is_short(&ann, &insert, &values));
    assert_eq!(refused(ann.execute(&insert, &values)).0, ErrorCode::Unauthorized);
    database.run("ALTER ROLE ann WITH SUPERUSER = true").unwrap();
    assert_eq!(ann.execute(&insert, &values), Ok(ClientResponse::Void));
    assert!(is_short(&ann, &insert, &values));
    database.run("DROP ROLE ann").unwrap();
    assert_eq!(refused(ann.execute(&insert, &values)).0, ErrorCode::Unauthorized);
}

#[test]
fn a_statement_that_others_have_prepared_is_prepared_only_for_who_may_use_it() {
    let database = text_table();
    database.run("CREATE ROLE ann WITH LOGIN = true").unwrap();
    let ann = Database { session: Session::guarded(), ..database.another() };
    ann.session.log_in("ann");
    ann.run("USE ks").unwrap();
    for text in ["SELECT * FROM t WHERE k = ? AND c = ?", "INSERT INTO t (k, c) VALUES (?, ?)"] {
        let known = database.prepare(text).unwrap();
        assert_eq!(ann.prepare(text).unwrap_err().code(), ErrorCode::Unauthorized, "{text}");
        database.run("GRANT ALL PERMISSIONS ON t TO ann").unwrap();
        assert_eq!(ann.prepare(text).unwrap().id, known.id, "it is the same");
        database.run("REVOKE ALL PERMISSIONS ON t FROM ann").unwrap();
        assert_eq!(ann.prepare(text).unwrap_err().code(), ErrorCode::Unauthorized, "{text}");
    }
}

#[test]
fn point_statements_go_the_short_way() {
    let database = text_table();
    let insert = database.prepare("INSERT INTO t (k, c, v, w) VALUES (?, ?, ?, ?)").unwrap();
    let select = database.prepare("SELECT w, v, c, k FROM t WHERE k = ? AND c = ?").unwrap();
    let names: Vec<&str> = insert.markers.columns.iter().map(|column| column.name.as_str()).collect();
    assert_eq!(names, ["k", "c", "v", "w"]);
    assert_eq!(insert.markers.partition_key_indexes, [0]);
    let (one, two) = (INT(1), INT(2));
    let values = [Value::Set(b"key"), Value::Set(&one), Value::Set(&two), Value::Set(b"word")];
    assert_eq!(database.execute(&insert, &values), Ok(ClientResponse::Void));
    assert!(is_short(&database, &insert, &values));
    assert!(is_short(&database, &select, &values[..2]));
    let found = rows(database.execute(&select, &values[..2]));
    assert_eq!(rendered_rows(&found), ["w='word' v=2 c=1 k='key'"]);
    let nothing = rows(database.execute(&select, &[Value::Set(b"other"), Value::Set(&one)]));
    assert!(nothing.rows.is_empty());
    let delete = database.prepare("DELETE FROM t WHERE k = ? AND c = ?").unwrap();
    assert!(is_short(&database, &delete, &values[..2]));
    assert!(rows(database.execute(&select, &values[..2])).rows.is_empty());
    database.kv.is_cold.store(true, Ordering::Relaxed);
    assert!(!is_short(&database, &select, &values[..2]));
}

/// A second node, by its host id.
fn add_node(database: &Database) -> Uuid {
    let host_id = Uuid::from_u128(0xB);
    let node = NodeDescription {
        host_id,
        address: "127.0.0.2".parse().unwrap(),
        cql_port: 9042,
        rpc_port: 7100,
        http_port: 7000,
        data_center: "datacenter1".to_owned(),
        zone: "rack1".to_owned(),
        node_address: None,
        levels: Some(Levels::OWN),
    };
    database.kv.command(&Command::RegisterNode { node });
    host_id
}

/// What the answer says of the tablet of these tokens, both inclusive.
fn told(first_token: i64, last_token: i64, host_id: Uuid) -> Vec<(String, Vec<u8>)> {
    vec![(tablets::PAYLOAD.to_owned(), tablets::encode(first_token, last_token, host_id))]
}

#[test]
fn a_driver_that_asked_is_told_who_leads_a_tablet_elsewhere() {
    let database = text_table();
    let host_id = add_node(&database);
    let insert = database.prepare("INSERT INTO t (k, c, v) VALUES (?, ?, 7)").unwrap();
    let select = database.prepare("SELECT v FROM t WHERE k = ? AND c = ?").unwrap();
    let conditional = database.prepare("UPDATE t SET v = 8 WHERE k = ? AND c = ? IF v = 7").unwrap();
    let several = database.prepare("SELECT v FROM t WHERE k IN (?, 'other') AND c = ?").unwrap();
    let one = INT(1);
    let values = [Value::Set(b"key"), Value::Set(&one)];
    let payload = |prepared: &ClientPrepared| {
        database.reply(&database.execute_request(prepared, &values, false)).unwrap().custom_payload
    };
    let all = [&insert, &select, &conditional, &several];
    for (asked, leader) in [(false, 1), (false, 2), (true, 1)] {
        *database.kv.leader.lock() = Some(NodeId(leader));
        if asked {
            database.session.set_learns_tablets();
        }
        assert!(all.iter().all(|prepared| payload(prepared).is_empty()), "asked {asked}, led by {leader}");
        assert!(is_short(&database, &insert, &values) && is_short(&database, &select, &values));
    }
    *database.kv.leader.lock() = Some(NodeId(2));
    assert!(!is_short(&database, &insert, &values), "its answer says more");
    let catalog = database.kv.catalog();
    let ranges = &catalog.table("ks", "t").unwrap().tablets;
    // The token of "key" is negative: it is in the first of the three tablets.
    let expected = told(i64::MIN, ranges[1].first_token - 1, host_id);
    for prepared in [&insert, &select, &conditional] {
        assert_eq!(payload(prepared), expected);
    }
    assert!(payload(&several).is_empty(), "several partitions have several leaders");
}

#[test]
fn a_read_by_a_covering_index_is_routed_by_its_view() {
    let database = Database::with_keyspace();
    database.run("CREATE TABLE t (k int PRIMARY KEY, v text, w int) WITH transactions = {'enabled': true}").unwrap();
    let host_id = add_node(&database);
    database.session.set_learns_tablets();
    let prepare = || database.prepare("SELECT k FROM t WHERE w >= ? AND v = ? LIMIT ? ALLOW FILTERING").unwrap();
    let before = prepare();
    assert!(before.markers.partition_key_indexes.is_empty());
    let (none, most) = (INT(0), INT(5));
    let values = [Value::Set(&none), Value::Set(b"key"), Value::Set(&most)];
    assert!(database.execute(&before, &values).is_ok());
    database.run("CREATE INDEX by_v ON t (v) INCLUDE (w)").unwrap();
    // The driver has the columns of no key, and prepares it again.
    assert_eq!(refused(database.execute(&before, &values)).0, ErrorCode::Unprepared);
    let read = prepare();
    assert_eq!(read.markers.partition_key_indexes, [1]);
    let catalog = database.kv.catalog();
    let view = catalog.tables().find(|entry| entry.table.index_of.is_some()).unwrap();
    assert!(read.markers.columns.iter().all(|column| column.table == view.table.name && column.keyspace == "ks"));
    *database.kv.leader.lock() = Some(NodeId(2));
    let answer = |prepared| database.reply(&database.execute_request(prepared, &values, false)).unwrap();
    assert_eq!(answer(&read).custom_payload, told(i64::MIN, view.tablets[1].first_token - 1, host_id));
    let of_table = database.prepare("SELECT k, token(k) FROM t WHERE v = ?").unwrap();
    assert_eq!(
        (of_table.markers.columns[0].table.as_str(), &of_table.markers.partition_key_indexes[..]),
        ("t", &[][..])
    );
    database.run("DROP INDEX by_v").unwrap();
    assert_eq!(refused(database.execute(&read, &values)).0, ErrorCode::Unprepared);
    assert_eq!(prepare().markers, before.markers);
}

#[test]
fn the_short_way_sees_range_deletions() {
    let database = text_table();
    let select = database.prepare("SELECT v FROM t WHERE k = 'a' AND c = 1").unwrap();
    database.run("INSERT INTO t (k, c, v) VALUES ('a', 1, 5) USING TIMESTAMP 10").unwrap();
    database.run("DELETE FROM t USING TIMESTAMP 20 WHERE k = 'a' AND c < 5").unwrap();
    assert!(is_short(&database, &select, &[]));
    assert!(rows(database.execute(&select, &[])).rows.is_empty());
    database.run("INSERT INTO t (k, c, v) VALUES ('a', 1, 6) USING TIMESTAMP 30").unwrap();
    assert_eq!(rendered_rows(&rows(database.execute(&select, &[]))), ["v=6"]);
}

#[test]
fn values_are_checked() {
    let database = text_table();
    let insert = database.prepare("INSERT INTO t (k, c, v, w) VALUES (?, ?, ?, ?)").unwrap();
    let one = INT(1);
    let with = |key, clustering, value, word| database.execute(&insert, &[key, clustering, value, word]);
    let (key, number, word) = (Value::Set(b"k".as_slice()), Value::Set(one.as_slice()), Value::Set(b"w".as_slice()));
    let empty = refused(with(Value::Set(b""), number, number, word)).1;
    assert_eq!(empty, "Key may not be empty (partition key k of ks.t)");
    assert_eq!(refused(with(Value::Null, number, number, word)).1, "Invalid null value in condition for column k");
    assert_eq!(refused(with(Value::Unset, number, number, word)).1, "Invalid unset value for column k");
    assert_eq!(refused(with(key, number, Value::Set(b"abc"), word)).0, ErrorCode::Invalid);
    assert_eq!(refused(with(key, number, number, Value::Set(&[0xFF]))).0, ErrorCode::Invalid);
    let long = vec![b'x'; 70_000];
    assert!(refused(with(Value::Set(&long), number, number, word)).1.contains("70000"));
    assert!(refused(database.execute(&insert, &[key])).1.starts_with("Invalid amount of bind variables"));
    let range = database.prepare("SELECT * FROM t WHERE k = ? AND c > ?").unwrap();
    let null = refused(database.execute(&range, &[key, Value::Null])).1;
    assert_eq!(null, "Invalid null value in condition for column c");
}

#[test]
fn null_deletes_and_unset_leaves_alone() {
    let database = text_table();
    let insert = database.prepare("INSERT INTO t (k, c, v, w) VALUES (?, ?, ?, ?)").unwrap();
    let one = INT(1);
    let (key, number) = (Value::Set(b"k".as_slice()), Value::Set(one.as_slice()));
    database.execute(&insert, &[key, number, number, Value::Set(b"w")]).unwrap();
    database.execute(&insert, &[key, number, Value::Unset, Value::Null]).unwrap();
    assert_eq!(database.rows("SELECT * FROM t"), ["k='k' c=1 v=1 w=null"]);
}

#[test]
fn markers_are_bound_by_name() {
    let database = text_table();
    let text = "INSERT INTO t (k, c, v, w) VALUES (:\"Key\", :num, :num, :word)";
    let prepared = database.prepare(text).unwrap();
    let names: Vec<&str> = prepared.markers.columns.iter().map(|column| column.name.as_str()).collect();
    assert_eq!(names, ["Key", "num", "num", "word"]);
    let seven = INT(7);
    let values = [("word", Value::Set(b"w".as_slice())), ("num", Value::Set(&seven)), ("Key", Value::Set(b"k"))];
    let parameters = Parameters { values: BoundValues::Named(&values), ..Parameters::default() };
    database.send(&ClientRequest::Query { statement: text, parameters }).unwrap();
    assert_eq!(database.rows("SELECT * FROM t"), ["k='k' c=7 v=7 w='w'"]);
    let missing = Parameters { values: BoundValues::Named(&values[1..]), ..Parameters::default() };
    let error = refused(database.send(&ClientRequest::Query { statement: text, parameters: missing }));
    assert!(error.1.contains("word"), "{error:?}");
}

#[test]
fn limits_ttls_timestamps_lists_and_tuples_may_be_bound() {
    let database = text_table();
    let insert = database.prepare("INSERT INTO t (k, c, v) VALUES ('a', ?, 1) USING TTL ? AND TIMESTAMP ?").unwrap();
    let stamp = 77i64.to_be_bytes();
    for c in 1..=4 {
        let (c, ttl) = (INT(c), INT(100));
        database.execute(&insert, &[Value::Set(&c), Value::Set(&ttl), Value::Set(&stamp)]).unwrap();
    }
    assert_eq!(database.rows("SELECT ttl(v), writetime(v) FROM t LIMIT 1"), ["ttl(v)=100 writetime(v)=77"]);
    let limited = database.prepare("SELECT c FROM t WHERE k = 'a' LIMIT ?").unwrap();
    assert_eq!(limited.markers.columns[0].name, "[limit]");
    let (two, zero) = (INT(2), INT(0));
    assert_eq!(rows(database.execute(&limited, &[Value::Set(&two)])).rows.len(), 2);
    assert_eq!(refused(database.execute(&limited, &[Value::Set(&zero)])).1, "LIMIT must be strictly positive");
    let listed = database.prepare("SELECT c FROM t WHERE k = 'a' AND c IN ?").unwrap();
    let list = [&INT(2)[..], &INT(4), &INT(4), &INT(4), &INT(1)].concat();
    assert_eq!(rendered_rows(&rows(database.execute(&listed, &[Value::Set(&list)]))), ["c=1", "c=4"]);
    let sliced = database.prepare("SELECT c FROM t WHERE k = 'a' AND (c) > ?").unwrap();
    let tuple = [INT(4), INT(3)].concat();
    assert_eq!(rendered_rows(&rows(database.execute(&sliced, &[Value::Set(&tuple)]))), ["c=4"]);
}

#[test]
fn definitions_may_be_prepared() {
    let database = Database::new();
    let create = database.prepare("CREATE KEYSPACE IF NOT EXISTS made").unwrap();
    assert!(create.markers.columns.is_empty() && create.result.columns.is_empty());
    assert!(matches!(database.execute(&create, &[]), Ok(ClientResponse::SchemaChange(_))));
    assert_eq!(database.execute(&create, &[]), Ok(ClientResponse::Void));
    let use_it = database.prepare("USE made;").unwrap();
    assert_eq!(database.execute(&use_it, &[]), Ok(ClientResponse::SetKeyspace("made".to_owned())));
    let create = database.prepare("CREATE TABLE IF NOT EXISTS T (k varchar, v blob, primary key (k))").unwrap();
    assert!(matches!(database.execute(&create, &[]), Ok(ClientResponse::SchemaChange(_))));
    assert!(database.rows("SELECT * FROM made.t").is_empty());
}

#[test]
fn a_row_on_disk_is_read_without_ado_where_its_tablet_is_led() {
    let database = text_table();
    let select = database.prepare("SELECT v, k FROM t WHERE k = ? AND c = 1").unwrap();
    database.run("INSERT INTO t (k, c, v) VALUES ('a', 1, 5)").unwrap();
    let reads = || {
        let kv = &database.kv;
        (kv.gets.swap(0, Ordering::Relaxed), kv.fetches.swap(0, Ordering::Relaxed))
    };
    let read = |key: &'static str| {
        let values = [Value::Set(key.as_bytes())];
        rendered_rows(&rows(database.send_to_disk(&database.execute_request(&select, &values, false))))
    };
    reads();
    assert_eq!((read("a"), read("b"), reads()), (vec!["v=5 k='a'".to_owned()], vec![], (2, 0)));
    // The node that leads it is asked at once.
    *database.kv.leader.lock() = Some(NodeId(2));
    assert_eq!((read("a"), reads()), (vec!["v=5 k='a'".to_owned()], (0, 1)));
    *database.kv.leader.lock() = None;
    // With a deletion that may be over it, the general path reads it.
    database.run("DELETE FROM t WHERE k = 'a'").unwrap();
    reads();
    assert_eq!((read("a"), reads()), (vec![], (1, 1)));
    // A failure is told as ever.
    *database.kv.failure.lock() = Some(KvError::Storage("on purpose".to_owned()));
    let values = [Value::Set(b"a")];
    for leader in [None, Some(NodeId(2))] {
        *database.kv.leader.lock() = leader;
        let failed = database.send_to_disk(&database.execute_request(&select, &values, false));
        assert!(refused(failed).1.contains("on purpose"));
    }
}

#[test]
fn unknown_ids_are_unprepared() {
    let database = text_table();
    let foreign = ClientPrepared { id: vec![9; 16], ..ClientPrepared::default() };
    assert_eq!(refused(database.execute(&foreign, &[])).0, ErrorCode::Unprepared);
    let statements = [ClientBatchStatement::Prepared(&[9; 16], &[])];
    let parameters = Parameters::default();
    let batch = ClientRequest::Batch { kind: BatchKind::Logged, statements: &statements, parameters };
    assert_eq!(refused(database.send(&batch)).0, ErrorCode::Unprepared);
}

#[test]
fn batches_mix_texts_and_prepared_statements() {
    let database = text_table();
    let insert = database.prepare("INSERT INTO t (k, c, v, w) VALUES (?, ?, ?, ?)").unwrap();
    let (one, two) = (INT(1), INT(2));
    let first = [Value::Set(b"a".as_slice()), Value::Set(&one), Value::Set(&one), Value::Unset];
    let second = [Value::Set(b"b".as_slice()), Value::Set(&two)];
    let statements = [
        ClientBatchStatement::Prepared(&insert.id, &first),
        ClientBatchStatement::Text("UPDATE t SET v = 3 WHERE k = ? AND c = ?", &second),
    ];
    let parameters = Parameters::default();
    for kind in [BatchKind::Logged, BatchKind::Unlogged] {
        let batch = ClientRequest::Batch { kind, statements: &statements, parameters };
        assert_eq!(database.send(&batch), Ok(ClientResponse::Void));
    }
    assert_eq!(database.rows("SELECT k, c, v FROM t WHERE k IN ('a', 'b')"), ["k='a' c=1 v=1", "k='b' c=2 v=3"]);
    let select = [ClientBatchStatement::Text("SELECT * FROM t", &[])];
    let batch = ClientRequest::Batch { kind: BatchKind::Logged, statements: &select, parameters };
    assert!(refused(database.send(&batch)).1.starts_with("Invalid statement in batch"));
    let batch = ClientRequest::Batch { kind: BatchKind::Counter, statements: &statements, parameters };
    assert_eq!(refused(database.send(&batch)).1, "Cannot include non-counter statement in a counter batch");
}

#[test]
fn conditional_statements_may_be_prepared() {
    let database = text_table();
    let insert = database.prepare("INSERT INTO t (k, c, v) VALUES (?, ?, ?) IF NOT EXISTS").unwrap();
    assert!(insert.result.columns.is_empty(), "the columns depend on the outcome");
    let (one, five) = (INT(1), INT(5));
    let values = [Value::Set(b"a".as_slice()), Value::Set(&one), Value::Set(&five)];
    // Some drivers set the flag on every EXECUTE.
    let request = database.execute_request(&insert, &values, true);
    assert_eq!(rendered_rows(&rows(database.send(&request))), ["[applied]=true"]);
    assert_eq!(rendered_rows(&rows(database.send(&request))), ["[applied]=false k='a' c=1 v=5 w=null"]);
    let update = database.prepare("UPDATE t SET v = ? WHERE k = 'a' AND c = 1 IF v IN ?").unwrap();
    let list = [&INT(2)[..], &INT(4), &INT(4), &INT(4), &INT(5)].concat();
    let found = rows(database.execute(&update, &[Value::Set(&one), Value::Set(&list)]));
    assert_eq!(rendered_rows(&found), ["[applied]=true"]);
}

#[test]
fn consistency_levels_that_make_no_sense_are_refused() {
    let database = text_table();
    let run = |statement, consistency| {
        let parameters = Parameters { consistency, ..Parameters::default() };
        refused(database.send(&ClientRequest::Query { statement, parameters })).1
    };
    assert!(run("SELECT * FROM t", Consistency::Any).contains("ANY"));
    let select = database.prepare("SELECT v FROM t WHERE k = 'a' AND c = 1").unwrap();
    for (consistency, is_short) in [(Consistency::Any, false), (Consistency::One, true)] {
        let parameters = Parameters { consistency, ..Parameters::default() };
        let request = ClientRequest::Execute { id: &select.id, result_metadata_id: &[], parameters };
        assert_eq!(database.execute_now(&request).is_some(), is_short, "{consistency:?}");
        assert_eq!(database.send(&request).is_ok(), is_short, "{consistency:?}");
    }
    assert!(run("DELETE FROM t WHERE k = 'a'", Consistency::Serial).contains("conditional"));
}

#[test]
fn attached_timestamps_are_ignored() {
    let database = text_table();
    let statement = "INSERT INTO t (k, c, v) VALUES ('a', 1, 1)";
    let parameters = Parameters { default_timestamp_us: Some(5), ..Parameters::default() };
    database.send(&ClientRequest::Query { statement, parameters }).unwrap();
    assert_ne!(database.rows("SELECT writetime(v) FROM t"), ["writetime(v)=5"]);
}

#[test]
fn the_cache_of_prepared_statements_is_bounded() {
    let database = text_table();
    let first = database.prepare("SELECT v FROM t WHERE k = 'first' AND c = 1").unwrap();
    for number in 0..500 {
        let long = "x".repeat(60_000);
        database.prepare(&format!("SELECT v FROM t WHERE k = '{number}{long}' AND c = 1")).unwrap();
        if number < 100 {
            database.execute(&first, &[]).unwrap();
        }
    }
    assert!(database.engine.prepared_statements() < 400 && database.engine.prepared_bytes() <= 64 << 20);
    assert_eq!(refused(database.execute(&first, &[])).0, ErrorCode::Unprepared);
}

#[test]
fn writes_that_are_too_large_are_refused() {
    let database = text_table();
    let insert = database.prepare("INSERT INTO t (k, c, v, w) VALUES (?, ?, ?, ?)").unwrap();
    let (one, large) = (INT(1), vec![b'x'; 17 << 20]);
    let values = [Value::Set(b"a".as_slice()), Value::Set(&one), Value::Set(&one), Value::Set(&large)];
    assert!(refused(database.execute(&insert, &values)).1.contains("too large"));
}

#[test]
fn long_clustering_keys_are_refused() {
    let database = Database::with_keyspace();
    database.run("CREATE TABLE t (k int, a text, b text, PRIMARY KEY (k, a, b))").unwrap();
    let insert = database.prepare("INSERT INTO t (k, a, b) VALUES (1, ?, ?)").unwrap();
    let half = vec![b'x'; 40_000];
    assert!(refused(database.execute(&insert, &[Value::Set(&half), Value::Set(&half)])).1.contains("80000"));
    database.execute(&insert, &[Value::Set(&half), Value::Set(b"y")]).unwrap();
    assert_eq!(database.rows("SELECT COUNT(*) FROM t"), ["count=1"]);
}

#[test]
fn the_timestamp_that_stands_for_the_servers_is_refused() {
    let database = text_table();
    let insert = database.prepare("INSERT INTO t (k, c, v) VALUES ('a', 1, 1) USING TIMESTAMP ?").unwrap();
    let least = i64::MIN.to_be_bytes();
    assert_eq!(refused(database.execute(&insert, &[Value::Set(&least)])).1, "The timestamp is out of range");
    let next = (i64::MIN + 1).to_be_bytes();
    database.execute(&insert, &[Value::Set(&next)]).unwrap();
}

#[test]
fn describe_may_be_prepared() {
    let database = text_table();
    let prepared = database.prepare("DESCRIBE TABLES").unwrap();
    let names: Vec<&str> = prepared.result.columns.iter().map(|column| column.name.as_str()).collect();
    let found = rows(database.execute(&prepared, &[]));
    let sent: Vec<&str> = found.metadata.columns.iter().map(|column| column.name.as_str()).collect();
    assert!(!names.is_empty());
    assert_eq!(names, sent);
}

#[test]
fn named_rows_are_read_several_at_a_time_and_given_in_order() {
    let database = Database::with_keyspace();
    database.run("CREATE TABLE t (k int, c int, v int, PRIMARY KEY (k, c))").unwrap();
    for k in 0..40 {
        database.run(&format!("INSERT INTO t (k, c, v) VALUES ({k}, 0, {k})")).unwrap();
        database.run(&format!("INSERT INTO t (k, c, v) VALUES ({k}, 1, {k})")).unwrap();
    }
    let keys = (0..40).map(|k: i32| k.to_string()).collect::<Vec<_>>().join(", ");
    let all = database.rows("SELECT k, c FROM t");
    let read = |rest: &str| {
        database.kv.most_waiting.store(0, Ordering::Relaxed);
        let found = database.rows(&format!("SELECT k, c FROM t WHERE k IN ({keys}) {rest}"));
        (found, database.kv.most_waiting.load(Ordering::Relaxed))
    };
    database.kv.is_cold.store(true, Ordering::Relaxed);
    let (found, at_once) = read("AND c IN (1, 0)");
    // Partitions that one answer of a tablet does not hold are read by themselves; here nearly all.
    assert_eq!((found.len(), at_once), (80, 16));
    let mut sorted = (found.clone(), all.clone());
    sorted.0.sort();
    sorted.1.sort();
    assert_eq!(sorted.0, sorted.1);
    assert_eq!(read("").0, found);
    let (limited, at_once) = read("AND c IN (0, 1) LIMIT 3");
    assert_eq!((limited.as_slice(), at_once), (&found[..3], 1), "one visit holds them");
    assert_eq!(read("AND c IN (0, 1) PER PARTITION LIMIT 1").0.len(), 40);
}

#[test]
fn how_clients_are_told_types_is_charged_to_the_plan() {
    let database = Database::with_keyspace();
    let parts = vec!["int"; 2_000].join(", ");
    database.run(&format!("CREATE TABLE wide (k int PRIMARY KEY, t tuple<{parts}>)")).unwrap();
    let select = |count: usize| database.run(&format!("SELECT {} FROM wide WHERE k = 1", vec!["t"; count].join(", ")));
    select(200).unwrap();
    let (code, message) = refused(select(4_000));
    assert_eq!(code, ErrorCode::Invalid);
    assert!(message.contains("PLAN_BYTES"), "{message}");
    let markers = vec!["?"; 4_000].join(", ");
    let (_, message) =
        refused(database.run(&format!("SELECT k FROM wide WHERE k = 1 AND t IN ({markers}) ALLOW FILTERING")));
    assert!(message.contains("PLAN_BYTES"), "{message}");
}

#[test]
fn named_partitions_of_one_tablet_are_read_in_one_visit() {
    let database = Database::with_keyspace();
    database.run("CREATE TABLE t (k int, c int, s int STATIC, v int, PRIMARY KEY (k, c)) WITH tablets = 1").unwrap();
    for k in 0..6 {
        database.run(&format!("INSERT INTO t (k, c, v) VALUES ({k}, 0, {k})")).unwrap();
    }
    let visits = |statement: &str| {
        database.kv.fetches.store(0, Ordering::Relaxed);
        (database.rows(statement), database.kv.fetches.load(Ordering::Relaxed))
    };
    // More entries than three are not in one answer here.
    let expected = (vec!["v=1".to_owned(), "v=5".to_owned()], 1);
    assert_eq!(visits("SELECT v FROM t WHERE k IN (5, 1, 9)"), expected);
    assert_eq!(visits("SELECT v FROM t WHERE k IN (5, 1, 9) AND c = 0"), expected);
    assert_eq!(visits("SELECT v FROM t WHERE k = 1"), (vec!["v=1".to_owned()], 1));
    // Deletions of partitions, static rows, the other way round, and pages.
    database.run("DELETE FROM t WHERE k = 4").unwrap();
    database.run("UPDATE t SET s = 7 WHERE k = 1").unwrap();
    assert_eq!(database.rows("SELECT v, s FROM t WHERE k IN (5, 1, 4)"), ["v=1 s=7", "v=5 s=null"]);
    assert_eq!(database.rows("SELECT v, s FROM t WHERE k IN (5, 1, 4) ORDER BY c DESC"), ["v=1 s=7", "v=5 s=null"]);
    assert_eq!(database.rows("SELECT v FROM t WHERE k IN (0, 1, 2, 3, 4, 5) PER PARTITION LIMIT 1").len(), 5);
    assert_eq!(database.rows("SELECT v FROM t WHERE k IN (3, 2, 1) LIMIT 2"), ["v=1", "v=2"]);
}

#[test]
fn the_text_of_an_insert_is_read_a_few_times_however_many_columns_there_are() {
    let database = Database::with_keyspace();
    let columns: Vec<String> = (0..200).map(|at| format!("c{at} int")).collect();
    database.run(&format!("CREATE TABLE wide (k int PRIMARY KEY, {})", columns.join(", "))).unwrap();
    let insert = database.prepare("INSERT INTO wide JSON ?").unwrap();
    let members: Vec<String> = (0..200).map(|at| format!("\"c{at}\": {at}")).collect();
    let text = format!("{{\"k\": 1, {}}}", members.join(", "));
    let (outcome, steps) = crate::steps::of(|| database.execute(&insert, &[Value::Set(text.as_bytes())]));
    outcome.unwrap();
    assert_eq!(database.rows("SELECT c0, c199 FROM wide"), ["c0=0 c199=199"]);
    // Once for the target, once for the key and once for all other columns.
    assert!(steps <= 4 * text.len() as u64, "{steps} bytes read of {}", text.len());
}
