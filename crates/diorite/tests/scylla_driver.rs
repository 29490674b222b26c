//! The Rust driver `scylla`, unmodified, against a real `diorite start` process: connecting, schema metadata, prepared
//! statements of every type, paging, batches, conditions, errors and statements that outlive an ALTER.
//!
//! Each test starts a server of its own on a loopback address of its own. The drivers of other languages are driven from
//! `tests/clients`. `DIORITE_TEST_ADDRESS` names a server to use instead, to check these checks against another database.
#![allow(clippy::unwrap_used, reason = "a test may panic")]
#![allow(clippy::disallowed_methods, reason = "a test waits for another process to listen")]

use std::io::{Read, Write};
use std::net::{IpAddr, TcpStream};
use std::process::{Child, Command, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::{Duration, Instant};

use futures::TryStreamExt;
use scylla::client::Compression;
use scylla::client::execution_profile::ExecutionProfile;
use scylla::client::session::Session;
use scylla::client::session_builder::SessionBuilder;
use scylla::cluster::metadata::{CollectionType, ColumnKind, ColumnType, NativeType};
use scylla::errors::{DbError, ExecutionError, RequestAttemptError};
use scylla::response::query_result::QueryResult;
use scylla::statement::Consistency;
use scylla::statement::batch::{Batch, BatchType};
use scylla::statement::unprepared::Statement;
use scylla::value::{
    Counter, CqlDate, CqlDecimal, CqlDuration, CqlTime, CqlTimestamp, CqlTimeuuid, CqlValue, CqlVarint, Row, Unset,
};

/// A running server; killed when dropped.
struct Server {
    address: String,
    process: Option<Child>,
    _data: tempfile::TempDir,
}

impl Server {
    fn start() -> Self {
        if let Ok(address) = std::env::var("DIORITE_TEST_ADDRESS") {
            return Self { address, process: None, _data: tempfile::tempdir().unwrap() };
        }
        Self::start_with(&[])
    }

    /// A process with these options beside those that every test needs.
    fn start_with(options: &[&str]) -> Self {
        static NEXT: AtomicU32 = AtomicU32::new(1);
        let data = tempfile::tempdir().unwrap();
        // 127.0.0.0/8 is all loopback: an address from the process id cannot meet another test process's.
        let process_id = std::process::id();
        let last = NEXT.fetch_add(1, Ordering::Relaxed);
        let address = format!("127.{}.{}.{last}", 10 + process_id / 250 % 240, process_id % 250);
        let process = Command::new(env!("CARGO_BIN_EXE_diorite"))
            // However full the machine's disk is.
            .args(["start", "--listen", &address, "--move-reserve", "0", "--data-dir"])
            .arg(data.path().join("data"))
            .args(options)
            .stdin(Stdio::null())
            .spawn()
            .unwrap();
        let mut server = Self { address, process: Some(process), _data: data };
        server.await_ready();
        server
    }

    /// Waits until it serves. Its port for CQL is bound before, and drivers wait only so long for an answer there.
    fn await_ready(&mut self) {
        let start = Instant::now();
        while !is_ready(&self.address) {
            let exited = self.process.as_mut().unwrap().try_wait().unwrap();
            assert!(exited.is_none(), "the server exited: {exited:?}");
            assert!(start.elapsed() < Duration::from_secs(180), "the server is not ready after 180 s");
            std::thread::sleep(Duration::from_millis(20));
        }
    }
}

fn is_ready(address: &str) -> bool {
    let Ok(mut stream) = TcpStream::connect((address, 7000)) else { return false };
    let request = format!("GET /health/ready HTTP/1.1\r\nHost: {address}\r\nConnection: close\r\n\r\n");
    let mut answer = String::new();
    stream.write_all(request.as_bytes()).is_ok()
        && stream.read_to_string(&mut answer).is_ok()
        && answer.starts_with("HTTP/1.1 200")
}

/// Three servers that are one cluster with three replicas of everything.
fn start_cluster() -> Vec<Server> {
    let mut servers = vec![Server::start_with(&["--rf", "3"])];
    let seed = servers[0].address.clone();
    for _ in 0..2 {
        servers.push(Server::start_with(&["--join", &seed]));
    }
    servers
}

/// What a server answers on its HTTP port.
fn http(server: &Server, method: &str, path: &str) -> String {
    let mut stream = TcpStream::connect((server.address.as_str(), 7000)).unwrap();
    let host = &server.address;
    let request = format!("{method} {path} HTTP/1.1\r\nHost: {host}\r\nConnection: close\r\nContent-Length: 0\r\n\r\n");
    stream.write_all(request.as_bytes()).unwrap();
    let mut answer = String::new();
    stream.read_to_string(&mut answer).unwrap();
    answer
}

/// The tablets of all tables, in the order of their tokens.
fn tablets(server: &Server) -> Vec<u64> {
    let answer = http(server, "GET", "/api/v1/tablets");
    let (_, body) = answer.split_once("\r\n\r\n").unwrap();
    let page: serde_json::Value = serde_json::from_str(body).unwrap();
    let tablets = page["tablets"].as_array().unwrap().iter();
    let mut found: Vec<_> =
        tablets.map(|tablet| (tablet["first_token"].as_i64().unwrap(), tablet["tablet"].as_u64().unwrap())).collect();
    found.sort_unstable();
    found.into_iter().map(|(_, tablet)| tablet).collect()
}

/// Has something done to tablets, and waits until the table consists of `wanted` tablets, of which none of these is one.
fn reshape(server: &Server, tablets_to: &[u64], what: &str, wanted: usize) {
    for tablet in tablets_to {
        let answer = http(server, "POST", &format!("/api/v1/tablets/{tablet}/{what}"));
        assert!(answer.starts_with("HTTP/1.1 200"), "{answer}");
    }
    for _ in 0..900 {
        let now = tablets(server);
        if now.len() == wanted && !now.iter().any(|tablet| tablets_to.contains(tablet)) {
            return;
        }
        std::thread::sleep(Duration::from_millis(200));
    }
    panic!("{what}: {wanted} tablets are wanted, there are {:?}", tablets(server));
}

/// How many requests of clients the servers passed on to another, and how many there were.
fn routed(servers: &[Server]) -> (u64, u64) {
    let mut counts = (0, 0);
    for server in servers {
        let page = http(server, "GET", "/metrics");
        let count = |place: &str| -> u64 {
            let is_wanted = |line: &&str| line.starts_with("diorite_routed_requests") && line.contains(place);
            let line = page.lines().find(is_wanted).unwrap_or_else(|| panic!("no counter {place} in {page}"));
            line.rsplit(' ').next().unwrap().parse().unwrap()
        };
        counts.0 += count("led=\"elsewhere\"");
        counts.1 += count("led=\"here\"") + count("led=\"elsewhere\"");
    }
    counts
}

impl Drop for Server {
    fn drop(&mut self) {
        if let Some(process) = &mut self.process {
            let _ = process.kill();
            let _ = process.wait();
        }
    }
}

/// A session with `keyspace` made anew and chosen.
async fn session(server: &Server, keyspace: &str) -> Session {
    connect(server, keyspace, None).await
}

async fn connect(server: &Server, keyspace: &str, compression: Option<Compression>) -> Session {
    let profile = ExecutionProfile::builder()
        .consistency(Consistency::Quorum)
        .request_timeout(Some(Duration::from_secs(30)))
        .build()
        .into_handle();
    let session = SessionBuilder::new()
        .known_node(format!("{}:9042", server.address))
        .compression(compression)
        .default_execution_profile_handle(profile)
        .connection_timeout(Duration::from_secs(15))
        .build()
        .await
        .unwrap();
    run(&session, &format!("DROP KEYSPACE IF EXISTS {keyspace}")).await;
    let create = "WITH replication = {'class': 'SimpleStrategy', 'replication_factor': 1}";
    run(&session, &format!("CREATE KEYSPACE {keyspace} {create}")).await;
    session.use_keyspace(keyspace, false).await.unwrap();
    session
}

async fn run(session: &Session, statement: &str) -> QueryResult {
    session.query_unpaged(statement, ()).await.unwrap_or_else(|error| panic!("{statement}: {error}"))
}

/// The only row of a result.
fn only(result: QueryResult) -> Vec<Option<CqlValue>> {
    result.into_rows_result().unwrap().single_row::<Row>().unwrap().columns
}

#[tokio::test]
async fn schema_metadata_is_complete() {
    let server = Server::start();
    let session = session(&server, "rust_metadata").await;
    let columns = "a text, b int, c timestamp, d uuid, s text static, v map<text, frozen<list<int>>>";
    run(
        &session,
        &format!(
            "CREATE TABLE events ({columns}, PRIMARY KEY ((a, b), c, d)) WITH CLUSTERING ORDER BY (c DESC, d ASC)"
        ),
    )
    .await;
    session.refresh_metadata().await.unwrap();
    let state = session.get_cluster_state();
    assert_eq!(state.get_nodes_info().len(), 1);
    let keyspace = state.get_keyspace("rust_metadata").unwrap();
    let table = &keyspace.tables["events"];
    assert_eq!(table.partition_key, ["a", "b"]);
    assert_eq!(table.clustering_key, ["c", "d"]);
    assert_eq!(table.columns.len(), 6);
    assert_eq!(table.columns["s"].kind, ColumnKind::Static);
    assert_eq!(table.columns["v"].kind, ColumnKind::Regular);
    assert_eq!(table.columns["c"].typ, ColumnType::Native(NativeType::Timestamp));
    let ColumnType::Collection { frozen: false, typ: CollectionType::Map(_, inner) } = &table.columns["v"].typ else {
        panic!("v is {:?}", table.columns["v"].typ);
    };
    assert!(matches!(&**inner, ColumnType::Collection { frozen: true, typ: CollectionType::List(_) }), "{inner:?}");
}

/// Every scalar type with values at its edges.
fn scalars() -> Vec<(&'static str, Vec<CqlValue>)> {
    let huge = vec![0x01, 0x8e, 0xe9, 0x0f, 0xf6, 0xc3, 0x73, 0xe0, 0xee, 0x4e, 0x3f, 0x0a, 0xd2];
    let ip = |text: &str| CqlValue::Inet(text.parse::<IpAddr>().unwrap());
    let uuid = uuid::Uuid::parse_str("ffffffff-ffff-4fff-bfff-ffffffffffff").unwrap();
    let time_uuid = uuid::Uuid::parse_str("50554d6e-29bb-11e5-b345-feff819cdc9f").unwrap();
    let duration = |months, days, nanoseconds| CqlValue::Duration(CqlDuration { months, days, nanoseconds });
    let decimal =
        |bytes: &[u8], scale| CqlValue::Decimal(CqlDecimal::from_signed_be_bytes_and_exponent(bytes.to_vec(), scale));
    vec![
        ("ascii", vec![CqlValue::Ascii(String::new()), CqlValue::Ascii("plain".into())]),
        ("bigint", vec![CqlValue::BigInt(0), CqlValue::BigInt(i64::MAX), CqlValue::BigInt(i64::MIN)]),
        ("blob", vec![CqlValue::Blob(vec![]), CqlValue::Blob(vec![7; 100_000])]),
        ("boolean", vec![CqlValue::Boolean(true), CqlValue::Boolean(false)]),
        ("date", vec![CqlValue::Date(CqlDate(0)), CqlValue::Date(CqlDate(1 << 31)), CqlValue::Date(CqlDate(u32::MAX))]),
        ("decimal", vec![decimal(&[0], 0), decimal(&huge, 10), decimal(&[1], -40)]),
        ("double", vec![CqlValue::Double(0.0), CqlValue::Double(-1.5e300), CqlValue::Double(f64::INFINITY)]),
        ("duration", vec![duration(0, 0, 0), duration(14, 3, 1_000_000_000), duration(-1, -2, -3)]),
        ("float", vec![CqlValue::Float(1.5), CqlValue::Float(f32::NEG_INFINITY)]),
        ("inet", vec![ip("127.0.0.1"), ip("2001:db8::1")]),
        ("int", vec![CqlValue::Int(i32::MAX), CqlValue::Int(i32::MIN)]),
        ("smallint", vec![CqlValue::SmallInt(i16::MAX), CqlValue::SmallInt(i16::MIN)]),
        ("text", vec![CqlValue::Text("größer 水 🪨".into())]),
        ("time", vec![CqlValue::Time(CqlTime(0)), CqlValue::Time(CqlTime(86_399_999_999_999))]),
        (
            "timestamp",
            [0, 1_769_903_999_999, -2_208_988_800_000].map(|ms| CqlValue::Timestamp(CqlTimestamp(ms))).into(),
        ),
        ("timeuuid", vec![CqlValue::Timeuuid(CqlTimeuuid::from(time_uuid))]),
        ("tinyint", vec![CqlValue::TinyInt(i8::MAX), CqlValue::TinyInt(i8::MIN)]),
        ("uuid", vec![CqlValue::Uuid(uuid::Uuid::nil()), CqlValue::Uuid(uuid)]),
        ("varchar", vec![CqlValue::Text("varchar".into())]),
        ("varint", vec![CqlValue::Varint(CqlVarint::from_signed_bytes_be(huge))]),
    ]
}

#[tokio::test]
async fn every_scalar_survives_a_round_trip_and_can_be_null() {
    let server = Server::start();
    let session = session(&server, "rust_scalars").await;
    let columns: Vec<String> = scalars().iter().map(|(name, _)| format!("c_{name} {name}")).collect();
    run(&session, &format!("CREATE TABLE scalars (id int PRIMARY KEY, {})", columns.join(", "))).await;
    let mut id = 0;
    for (name, values) in scalars() {
        let insert = session.prepare(format!("INSERT INTO scalars (id, c_{name}) VALUES (?, ?)")).await.unwrap();
        let select = session.prepare(format!("SELECT c_{name} FROM scalars WHERE id = ?")).await.unwrap();
        for value in values {
            id += 1;
            session.execute_unpaged(&insert, (id, &value)).await.unwrap();
            let read = session.execute_unpaged(&select, (id,)).await.unwrap();
            assert_eq!(only(read), [Some(value)], "{name}");
        }
        session.execute_unpaged(&insert, (id, None::<CqlValue>)).await.unwrap();
        assert_eq!(only(session.execute_unpaged(&select, (id,)).await.unwrap()), [None], "{name}");
    }
    let insert = session.prepare("INSERT INTO scalars (id, c_int, c_text) VALUES (?, ?, ?)").await.unwrap();
    session.execute_unpaged(&insert, (0, 1, "kept")).await.unwrap();
    session.execute_unpaged(&insert, (0, 2, Unset)).await.unwrap();
    let row = only(run(&session, "SELECT c_int, c_text FROM scalars WHERE id = 0").await);
    assert_eq!(row, [Some(CqlValue::Int(2)), Some(CqlValue::Text("kept".into()))]);
}

#[tokio::test]
async fn collections_survive_a_round_trip() {
    let server = Server::start();
    let session = session(&server, "rust_collections").await;
    run(
        &session,
        "CREATE TABLE collections (id int PRIMARY KEY, l list<int>, s set<text>, m map<text, bigint>, fl frozen<list<int>>, \
         fs frozen<set<text>>, fm frozen<map<text, bigint>>, deep map<text, frozen<list<frozen<set<int>>>>>)",
    )
    .await;
    let int = CqlValue::Int;
    let text = |value: &str| CqlValue::Text(value.into());
    let values = vec![
        CqlValue::List(vec![int(3), int(1), int(3)]),
        CqlValue::Set(vec![text("a"), text("b")]),
        CqlValue::Map(vec![(text("k"), CqlValue::BigInt(1 << 40))]),
        CqlValue::List(vec![]),
        CqlValue::Set(vec![text("z")]),
        CqlValue::Map(vec![(text("a"), CqlValue::BigInt(1)), (text("x"), CqlValue::BigInt(-1))]),
        CqlValue::Map(vec![(
            text("d"),
            CqlValue::List(vec![CqlValue::Set(vec![int(1), int(2)]), CqlValue::Set(vec![int(3)])]),
        )]),
    ];
    let insert = "INSERT INTO collections (l, s, m, fl, fs, fm, deep, id) VALUES (?, ?, ?, ?, ?, ?, ?, 1)";
    let insert = session.prepare(insert).await.unwrap();
    let select = session.prepare("SELECT l, s, m, fl, fs, fm, deep FROM collections WHERE id = 1").await.unwrap();
    session.execute_unpaged(&insert, &values).await.unwrap();
    let read = only(session.execute_unpaged(&select, ()).await.unwrap());
    assert_eq!(read, values.into_iter().map(Some).collect::<Vec<_>>());
    let update = "UPDATE collections SET l = l + ?, s = s - ?, m[?] = ? WHERE id = 1";
    let update = session.prepare(update).await.unwrap();
    session.execute_unpaged(&update, (vec![9], vec!["a"], "n", 5_i64)).await.unwrap();
    let row = only(run(&session, "SELECT l, s, m FROM collections").await);
    assert_eq!(row[0], Some(CqlValue::List(vec![int(3), int(1), int(3), int(9)])));
    assert_eq!(row[1], Some(CqlValue::Set(vec![text("b")])));
    let big = CqlValue::BigInt;
    assert_eq!(row[2], Some(CqlValue::Map(vec![(text("k"), big(1 << 40)), (text("n"), big(5))])));
    session.execute_unpaged(&insert, vec![None::<CqlValue>; 7]).await.unwrap();
    assert_eq!(only(session.execute_unpaged(&select, ()).await.unwrap()), vec![None; 7]);
}

#[tokio::test]
async fn paging_reads_every_row_once_with_and_without_compression() {
    let server = Server::start();
    for compression in [None, Some(Compression::Lz4), Some(Compression::Snappy)] {
        let session = Arc::new(connect(&server, "rust_paging", compression).await);
        run(&session, "CREATE TABLE paged (p int, c int, v text, PRIMARY KEY (p, c))").await;
        let insert = Arc::new(session.prepare("INSERT INTO paged (p, c, v) VALUES (?, ?, ?)").await.unwrap());
        let writers: Vec<_> = (0..11)
            .map(|writer| {
                let (session, insert) = (session.clone(), insert.clone());
                tokio::spawn(async move {
                    for c in writer * 500..(writer + 1) * 500 {
                        session.execute_unpaged(&insert, (c % 3, c, format!("value {c}"))).await.unwrap();
                    }
                })
            })
            .collect();
        for writer in writers {
            writer.await.unwrap();
        }
        for page_size in [500, 5_000] {
            let select = Statement::new("SELECT p, c, v FROM paged").with_page_size(page_size);
            let pages = session.query_iter(select, ()).await.unwrap();
            let mut rows: Vec<(i32, i32, String)> = pages.rows_stream().unwrap().try_collect().await.unwrap();
            rows.sort_by_key(|row| row.1);
            let expected: Vec<_> = (0..5_500).map(|c| (c % 3, c, format!("value {c}"))).collect();
            assert_eq!(rows, expected);
        }
        let count = only(run(&session, "SELECT COUNT(*) FROM paged").await);
        assert_eq!(count, [Some(CqlValue::BigInt(5_500))]);
    }
}

#[tokio::test]
async fn batches_of_every_kind() {
    let server = Server::start();
    let session = session(&server, "rust_batches").await;
    run(&session, "CREATE TABLE batched (k int PRIMARY KEY, v text)").await;
    run(&session, "CREATE TABLE counted (k int PRIMARY KEY, n counter)").await;
    let insert = session.prepare("INSERT INTO batched (k, v) VALUES (?, ?)").await.unwrap();
    for (kind, name) in [(BatchType::Logged, "logged"), (BatchType::Unlogged, "unlogged")] {
        let mut batch = Batch::new(kind);
        let mut values = Vec::new();
        for k in 0..50 {
            batch.append_statement(insert.clone());
            values.push((k, name));
        }
        session.batch(&batch, values).await.unwrap();
        let rows = run(&session, "SELECT k, v FROM batched").await.into_rows_result().unwrap();
        let rows: Vec<(i32, String)> = rows.rows().unwrap().map(Result::unwrap).collect();
        assert!(rows.len() == 50 && rows.iter().all(|(_, value)| value == name));
    }
    let add = session.prepare("UPDATE counted SET n = n + ? WHERE k = ?").await.unwrap();
    for _ in 0..2 {
        let mut batch = Batch::new(BatchType::Counter);
        batch.append_statement(add.clone());
        batch.append_statement(add.clone());
        session.batch(&batch, ((Counter(4), 1), (Counter(-3), 2))).await.unwrap();
    }
    let rows = run(&session, "SELECT n FROM counted WHERE k IN (1, 2)").await.into_rows_result().unwrap();
    let rows: Vec<(Counter,)> = rows.rows().unwrap().map(Result::unwrap).collect();
    assert_eq!(rows, [(Counter(8),), (Counter(-6),)]);
}

#[tokio::test]
async fn conditions_apply_or_answer_what_is_there() {
    let server = Server::start();
    let session = session(&server, "rust_conditions").await;
    run(&session, "CREATE TABLE conditions (k int PRIMARY KEY, v text, n int)").await;
    let applied = |result| only(result)[0] == Some(CqlValue::Boolean(true));
    let insert = session.prepare("INSERT INTO conditions (k, v, n) VALUES (?, ?, ?) IF NOT EXISTS").await.unwrap();
    assert!(applied(session.execute_unpaged(&insert, (1, "first", 1)).await.unwrap()));
    let refused = session.execute_unpaged(&insert, (1, "second", 2)).await.unwrap().into_rows_result().unwrap();
    let names: Vec<String> = refused.column_specs().iter().map(|column| column.name().to_owned()).collect();
    let row = refused.single_row::<Row>().unwrap().columns;
    let value = |name: &str| row[names.iter().position(|column| column == name).unwrap()].clone();
    assert_eq!(value("[applied]"), Some(CqlValue::Boolean(false)));
    assert_eq!(value("k"), Some(CqlValue::Int(1)));
    assert_eq!(value("v"), Some(CqlValue::Text("first".into())));
    assert_eq!(value("n"), Some(CqlValue::Int(1)));
    let update = session.prepare("UPDATE conditions SET v = ? WHERE k = ? IF n = ?").await.unwrap();
    assert!(!applied(session.execute_unpaged(&update, ("third", 1, 7)).await.unwrap()));
    assert!(applied(session.execute_unpaged(&update, ("third", 1, 1)).await.unwrap()));
    assert!(!applied(run(&session, "DELETE FROM conditions WHERE k = 2 IF EXISTS").await));
    assert!(applied(run(&session, "DELETE FROM conditions WHERE k = 1 IF EXISTS").await));
}

/// The error the server answered with.
async fn refusal(session: &Session, statement: &str) -> DbError {
    match session.query_unpaged(statement, ()).await {
        Err(ExecutionError::LastAttemptError(RequestAttemptError::DbError(error, _))) => error,
        other => panic!("{statement}: {other:?}"),
    }
}

#[tokio::test]
async fn errors_are_told_apart_and_prepared_statements_outlive_an_alter() {
    let server = Server::start();
    let session = session(&server, "rust_errors").await;
    run(&session, "CREATE TABLE twice (k int PRIMARY KEY, v int)").await;
    assert_eq!(refusal(&session, "SELEKT").await, DbError::SyntaxError);
    assert_eq!(refusal(&session, "SELECT * FROM absent").await, DbError::Invalid);
    let exists = DbError::AlreadyExists { keyspace: "rust_errors".into(), table: "twice".into() };
    assert_eq!(refusal(&session, "CREATE TABLE twice (k int PRIMARY KEY)").await, exists);

    let insert = session.prepare("INSERT INTO twice (k, v) VALUES (?, ?)").await.unwrap();
    let select = session.prepare("SELECT * FROM twice WHERE k = ?").await.unwrap();
    session.execute_unpaged(&insert, (1, 1)).await.unwrap();
    assert_eq!(only(session.execute_unpaged(&select, (1,)).await.unwrap()).len(), 2);
    run(&session, "ALTER TABLE twice ADD a text").await;
    session.execute_unpaged(&insert, (1, 2)).await.unwrap();
    let row = only(session.execute_unpaged(&select, (1,)).await.unwrap());
    assert_eq!(row, [Some(CqlValue::Int(1)), None, Some(CqlValue::Int(2))]);
}

/// Makes rounds of at least so many requests each until every tablet has been met, and is led where the catalog prefers: that a round
/// has met them all does not mean that no leader is about to move.
async fn becomes_local(servers: &[Server], when: &str, requests: u64, mut round: impl AsyncFnMut()) {
    let mut rounds = Vec::new();
    for _ in 0..30 {
        let before = routed(servers);
        round().await;
        let mut after = routed(servers);
        // A request is counted after it has been sent, which may be after its answer has arrived.
        let mut looks = 0..100;
        while after.1 - before.1 < requests && looks.next().is_some() {
            tokio::time::sleep(Duration::from_millis(100)).await;
            after = routed(servers);
        }
        let (forwarded, all) = (after.0 - before.0, after.1 - before.1);
        assert!(all >= requests, "{when}: {all} requests were counted");
        let had_met_all = rounds.last() == Some(&0);
        rounds.push(forwarded);
        if had_met_all && forwarded * 100 < all {
            return;
        }
    }
    panic!("{when}: no round after one without any had fewer than 1 % of {requests} for another node: {rounds:?}");
}

#[tokio::test]
async fn a_driver_that_learns_tablets_goes_to_their_leaders() {
    if std::env::var_os("DIORITE_TEST_ADDRESS").is_some() {
        return;
    }
    let servers = start_cluster();
    let session = session(&servers[2], "rust_tablets").await;
    assert_eq!(session.get_cluster_state().get_nodes_info().len(), 3);
    run(&session, "CREATE TABLE t (k int PRIMARY KEY, v int)").await;
    session.refresh_metadata().await.unwrap();
    assert!(session.get_cluster_state().get_keyspace("rust_tablets").unwrap().tablet_based);
    let insert = session.prepare("INSERT INTO t (k, v) VALUES (?, ?)").await.unwrap();
    let select = session.prepare("SELECT v FROM t WHERE k = ?").await.unwrap();
    let mut keys = 0..;
    let mut round = async || {
        for k in keys.by_ref().take(1_000) {
            session.execute_unpaged(&insert, (k, k)).await.unwrap();
            let found = only(session.execute_unpaged(&select, (k,)).await.unwrap());
            assert_eq!(found, [Some(CqlValue::Int(k))]);
        }
    };
    becomes_local(&servers, "at first", 2_000, &mut round).await;
    let first = tablets(&servers[0]);
    reshape(&servers[0], &first, "split", 2 * first.len());
    becomes_local(&servers, "after every tablet was split", 2_000, &mut round).await;
    let every_other: Vec<u64> = tablets(&servers[0]).into_iter().step_by(2).collect();
    reshape(&servers[1], &every_other, "merge", first.len());
    becomes_local(&servers, "after half of them were merged into the others", 2_000, &mut round).await;
}

#[tokio::test]
async fn reads_by_a_covering_index_go_to_the_leaders_of_its_view() {
    if std::env::var_os("DIORITE_TEST_ADDRESS").is_some() {
        return;
    }
    let servers = start_cluster();
    let session = session(&servers[1], "rust_covering").await;
    run(&session, "CREATE TABLE t (k int PRIMARY KEY, v int, w int) WITH transactions = {'enabled': true}").await;
    run(&session, "CREATE INDEX by_v ON t (v) INCLUDE (w)").await;
    session.refresh_metadata().await.unwrap();
    let explain = "EXPLAIN SELECT k, w FROM t WHERE v = 1";
    let is_used = async || {
        let plan = run(&session, explain).await.into_rows_result().unwrap();
        plan.rows::<(String,)>().unwrap().any(|row| row.unwrap().0.contains("Index Only Scan"))
    };
    let mut looks = 0..1_800;
    while !is_used().await {
        assert!(looks.next().is_some(), "the index is not complete");
        tokio::time::sleep(Duration::from_millis(100)).await;
    }
    let insert = session.prepare("INSERT INTO t (k, v, w) VALUES (?, ?, ?)").await.unwrap();
    for k in 0..500 {
        session.execute_unpaged(&insert, (k, 7 * k, k)).await.unwrap();
    }
    let select = session.prepare("SELECT k, w FROM t WHERE v = ?").await.unwrap();
    let round = async || {
        for k in (0..1_000).map(|n| n % 500) {
            let found = only(session.execute_unpaged(&select, (7 * k,)).await.unwrap());
            assert_eq!(found, [Some(CqlValue::Int(k)), Some(CqlValue::Int(k))]);
        }
    };
    becomes_local(&servers, "by a covering index", 1_000, round).await;
}
