//! What clients can make a node hold, and for how long they can keep it busy: never more than it was given, and never others.

use crate::client::{Client, count, make_table};
use crate::server::{Server, TIMEOUT, wait_for};
use diorite_cql::protocol::client::ClientResponse;
use diorite_cql::protocol::error::ErrorCode;
use diorite_cql::protocol::{CqlError, Value};
use std::io::{Read, Write};
use std::net::TcpStream;
use std::time::{Duration, Instant};

const LIMIT_BYTES: u64 = 1 << 30;

fn start(home: &tempfile::TempDir, more: &[&str]) -> Server {
    Server::start(home.path(), &[&["--memory-limit", "1GiB"], more].concat())
}

/// STARTUP, and the beginning of a QUERY of 32 MiB.
fn unfinished() -> Vec<u8> {
    let body = b"\0\x01\0\x0bCQL_VERSION\0\x053.0.0";
    let mut bytes = vec![4, 0, 0, 0, 1];
    bytes.extend_from_slice(&(body.len() as u32).to_be_bytes());
    bytes.extend_from_slice(body);
    bytes.extend_from_slice(&[4, 0, 0, 1, 7]);
    bytes.extend_from_slice(&(32u32 << 20).to_be_bytes());
    bytes
}

/// Forty of them were 1.2 GiB.
#[test]
fn unfinished_requests_are_refused_once_they_fill_the_account() {
    let home = tempfile::tempdir().unwrap();
    let mut server = start(&home, &[]);
    let piece = vec![b'x'; 1 << 20];
    let mut connections = Vec::new();
    let begun = Instant::now();
    for _ in 0..60 {
        let mut stream = TcpStream::connect((server.address.as_str(), 9042)).unwrap();
        stream.set_write_timeout(Some(TIMEOUT)).unwrap();
        stream.write_all(&unfinished()).unwrap();
        // What is refused is still read, and dropped.
        let sent = (0..30).map(|_| stream.write_all(&piece)).take_while(Result::is_ok).count();
        connections.push((stream, sent));
    }
    // A message that is not complete after half a minute is given up, and makes room for another.
    let most_taken = 20 * (1 + begun.elapsed().as_secs() / 30);
    let mut refused = 0;
    for (stream, sent) in &mut connections {
        assert_eq!(*sent, 30, "a refused message is read to its end");
        stream.set_nonblocking(true).unwrap();
        let mut answer = [0; 4_096];
        let count = stream.read(&mut answer).unwrap_or(0);
        // READY is followed by an ERROR with the code of an overloaded node, on the stream of the message.
        refused +=
            u64::from(answer[..count].windows(13).any(|part| {
                part[..5] == [0x84, 0, 0, 1, 0] && part[9..] == (ErrorCode::Overloaded as u32).to_be_bytes()
            }));
    }
    assert!(refused + most_taken >= 60, "{refused} of 60 were refused, and at most {most_taken} may be taken");
    assert!(server.is_running() && server.most_resident_bytes() < LIMIT_BYTES);
    // Others are served, once the server has read and dropped what it refused last.
    let mut client = Client::connect(&server.address).unwrap();
    let deadline = Instant::now() + TIMEOUT;
    while let Err(error) = client.query("CREATE KEYSPACE IF NOT EXISTS ks") {
        assert!(error.code() == ErrorCode::Overloaded && Instant::now() < deadline, "{error:?}");
    }
}

fn code(outcome: Result<ClientResponse, CqlError>) -> Option<ErrorCode> {
    outcome.err().map(|error| error.code())
}

#[test]
fn requests_that_make_much_of_little_are_refused_within_the_limit() {
    let home = tempfile::tempdir().unwrap();
    let mut server = start(&home, &[]);
    let mut client = Client::connect(&server.address).unwrap();
    make_table(&mut client);
    client.run("CREATE TABLE ks.l (k int, c int, v blob, PRIMARY KEY (k, c))");
    client.run("CREATE TABLE ks.p (a text, b text, v int, PRIMARY KEY ((a, b)))");
    let insert = client.prepare("INSERT INTO ks.l (k, c, v) VALUES (?, ?, ?)");
    let large = vec![7; 1 << 20];
    for k in 0..64i32 {
        client.execute(1, &insert.id, &[Value::Set(&k.to_be_bytes()), Value::Set(&[0; 4]), Value::Set(&large)]);
        client.flush().unwrap();
        client.receive().unwrap();
    }
    let many = vec!["v"; 400].join(", ");
    let keys = (0..64).map(|k| k.to_string()).collect::<Vec<_>>().join(", ");
    let texts: Vec<String> = (0..200).map(|at| format!("'{at}{}'", "x".repeat(8_000))).collect();
    let texts = texts.join(", ");
    let hostile = [
        format!("SELECT {many} FROM ks.l WHERE k = 1"),
        format!("SELECT JSON {many} FROM ks.l WHERE k = 1"),
        format!("SELECT {} FROM ks.l", vec!["max(v)"; 400].join(", ")),
        format!("SELECT v, v, v, v FROM ks.l WHERE k IN ({keys}) ORDER BY c"),
        format!("SELECT v FROM ks.p WHERE a IN ({texts}) AND b IN ({texts})"),
        format!("SELECT v FROM ks.t WHERE k IN ({})", vec!["'1'"; 4_000_000].join(",")),
    ];
    std::thread::scope(|scope| {
        for worker in 0..4 {
            let (hostile, address) = (&hostile, server.address.as_str());
            scope.spawn(move || {
                let mut client = Client::connect(address).unwrap();
                for at in 0..2 * hostile.len() {
                    let code = code(client.query(&hostile[(at + worker) % hostile.len()]));
                    let is_refused =
                        matches!(code, Some(ErrorCode::Invalid | ErrorCode::Overloaded | ErrorCode::SyntaxError))
                            // On a machine that is busy otherwise its time may be over before its memory is.
                            || code == Some(ErrorCode::ReadTimeout);
                    assert!(is_refused, "statement {} gave {code:?}", (at + worker) % hostile.len());
                }
            });
        }
    });
    assert!(server.is_running());
    let most = server.most_resident_bytes();
    assert!(most < LIMIT_BYTES, "{} MiB", most >> 20);
    // Soon nothing is held any more but what this connection has: what took long is freed beside the serving threads, after
    // it was answered. Until then others may be refused.
    wait_for("nothing is charged any more", || {
        let metrics = server.get("/metrics").unwrap();
        let line = metrics.lines().find(|line| line.starts_with("diorite_cql_request_memory_bytes ")).unwrap();
        line.split_whitespace().nth(1).unwrap().parse::<f64>().unwrap() < f64::from(1 << 20)
    });
    let found = client.run("SELECT c FROM ks.l WHERE k = 1");
    assert_eq!(found.rows.len(), 1);
}

#[test]
fn a_request_ends_when_its_time_is_over() {
    let home = tempfile::tempdir().unwrap();
    let mut server = start(&home, &[]);
    let mut client = Client::connect(&server.address).unwrap();
    make_table(&mut client);
    client.run("CREATE TABLE ks.c (k int PRIMARY KEY, s set<int>)");
    let numbers = (0..20_000).map(|number| number.to_string()).collect::<Vec<_>>().join(", ");
    client.run(&format!("INSERT INTO ks.c (k, s) VALUES (1, {{{numbers}}})"));
    let contains = (0..100).map(|number| format!("s CONTAINS {number}")).collect::<Vec<_>>().join(" AND ");
    let statement = format!("SELECT count(*) FROM ks.c WHERE {contains} ALLOW FILTERING USING TIMEOUT 1ms");
    let ended = (0..1_000).any(|_| {
        let outcome = code(client.query(&statement));
        assert!(matches!(outcome, None | Some(ErrorCode::ReadTimeout | ErrorCode::Overloaded)), "{outcome:?}");
        outcome == Some(ErrorCode::ReadTimeout)
    });
    assert!(ended, "no request of a thousand was ended");
    assert!(server.is_running());
}

/// Executes a prepared statement, again and again while the node is overloaded or the machine is slow; returns why it is refused.
fn set(client: &mut Client, id: &[u8], values: &[Value<'_>]) -> Option<(ErrorCode, String)> {
    for _ in 0..600 {
        client.execute(1, id, values);
        client.flush().unwrap();
        match client.receive().unwrap().1 {
            ClientResponse::Error(error) if matches!(error.code(), ErrorCode::Overloaded | ErrorCode::WriteTimeout) => {
                std::thread::sleep(Duration::from_millis(50));
            }
            ClientResponse::Error(error) => return Some((error.code(), error.message.into_owned())),
            _ => return None,
        }
    }
    panic!("the node stays overloaded");
}

/// A hundred such writes were a row of 1.5 GiB, which each read, flush and compaction held in memory as a whole.
#[test]
fn a_row_that_is_added_to_again_and_again_is_refused_before_it_fills_the_memory() {
    let home = tempfile::tempdir().unwrap();
    let mut server = start(&home, &[]);
    let mut client = Client::connect(&server.address).unwrap();
    make_table(&mut client);
    client.run("CREATE TABLE ks.m (k int PRIMARY KEY, m map<int, blob>, l list<int>)");
    client.run("INSERT INTO ks.m (k, l) VALUES (1, [1, 2, 3])");
    let add = client.prepare("UPDATE ks.m SET m[?] = ? WHERE k = 1");
    let piece = vec![7; 15 << 20];
    let (mut taken, mut refused) = (0, 0);
    for n in 0..40i32 {
        match set(&mut client, &add.id, &[Value::Set(&n.to_be_bytes()), Value::Set(&piece)]) {
            None => taken += 1,
            Some((code, message)) => {
                assert_eq!(code, ErrorCode::Invalid, "{message}");
                assert!(message.contains("(ROW_BYTES)"), "{message}");
                refused += 1;
            }
        }
    }
    // 64 MiB, and what came before that was known.
    assert!((5..=7).contains(&taken) && refused == 40 - taken, "{taken} were taken");
    // What must read the row to be applied is refused as well.
    let edit = client.query("UPDATE ks.m SET l[0] = 7 WHERE k = 1");
    assert_eq!(code(edit), Some(ErrorCode::Invalid));
    let metrics = server.get("/metrics").unwrap();
    let line = metrics.lines().find(|line| line.starts_with("diorite_large_row_writes_refused_total ")).unwrap();
    let counted: f64 = line.split_whitespace().nth(1).unwrap().parse().unwrap();
    assert!(counted >= f64::from(refused), "{line}");
    assert!(server.is_running());
    let most = server.most_resident_bytes();
    assert!(most < LIMIT_BYTES, "{} MiB", most >> 20);
    assert!(server.stop().success());

    // What is in the log is replayed, and whoever leads next finds the row out again.
    let mut server = start(&home, &[]);
    let mut client = Client::connect(&server.address).unwrap();
    let add = client.prepare("UPDATE ks.m SET m[?] = ? WHERE k = 1");
    let more = (100..140i32)
        .take_while(|n| set(&mut client, &add.id, &[Value::Set(&n.to_be_bytes()), Value::Set(&piece)]).is_none())
        .count();
    assert!(more <= 2, "{more} more were taken");
    client.run("UPDATE ks.m SET m = {} WHERE k = 1");
    assert_eq!(set(&mut client, &add.id, &[Value::Set(&[0, 0, 0, 1]), Value::Set(&[7])]), None);
    client.run("UPDATE ks.m SET l[0] = 7 WHERE k = 1");
    let found = client.run("SELECT m[1], l FROM ks.m WHERE k = 1");
    assert_eq!(found.rows[0][0].as_deref(), Some(&[7][..]));
    assert!(server.is_running());
    let most = server.most_resident_bytes();
    assert!(most < LIMIT_BYTES, "{} MiB", most >> 20);
}

/// Rows of a megabyte, of which each batch names all.
const LARGE_ROWS: i32 = 200;

/// A batch whose conditions do not hold; what it shows of the rows, bytes. It changes nothing, so what got no answer is asked again.
fn refused_batch(client: &mut Client) -> usize {
    let update = |c: i32| format!("UPDATE ks.w SET v = 0x01 WHERE k = 1 AND c = {c} IF v = 0x00;");
    let batch = format!("BEGIN BATCH {} APPLY BATCH", (0..LARGE_ROWS).map(update).collect::<String>());
    let mut shown = None;
    wait_for("the batch is answered", || {
        match client.query(&batch) {
            Ok(ClientResponse::Rows(answer)) => {
                assert!(answer.rows.iter().all(|row| row[0].as_deref() == Some(&[0])), "it was not applied");
                shown = Some(answer.rows.iter().flatten().flatten().map(Vec::len).sum());
            }
            Ok(other) => panic!("a conditional batch was answered {other:?}"),
            Err(error) => assert!(matches!(error.code(), ErrorCode::WriteTimeout | ErrorCode::Overloaded), "{error:?}"),
        }
        shown.is_some()
    });
    shown.unwrap()
}

/// Each replica made all rows of such a batch twice, and again whenever it replayed its log.
#[test]
fn a_refused_batch_over_many_large_rows_is_answered_and_replayed_within_the_limit() {
    let home = tempfile::tempdir().unwrap();
    let server = start(&home, &[]);
    let mut client = Client::connect(&server.address).unwrap();
    make_table(&mut client);
    client.run("CREATE TABLE ks.w (k int, c int, v blob, PRIMARY KEY (k, c))");
    let insert = client.prepare("INSERT INTO ks.w (k, c, v) VALUES (1, ?, ?)");
    let large = vec![7; 1 << 20];
    for c in 0..LARGE_ROWS {
        wait_for("a row is written", || {
            client.execute(0, &insert.id, &[Value::Set(&c.to_be_bytes()), Value::Set(&large)]);
            client.flush().unwrap();
            matches!(client.receive().unwrap().1, ClientResponse::Void)
        });
    }
    for _ in 0..10 {
        let shown = refused_batch(&mut client);
        assert!((1 << 20..3 << 20).contains(&shown), "{shown} bytes are shown");
    }
    let most = server.most_resident_bytes();
    assert!(most < LIMIT_BYTES, "{} MiB", most >> 20);
    server.kill();

    let server = start(&home, &[]);
    let mut client = Client::connect(&server.address).unwrap();
    assert_eq!(count(&mut client, "ks.w"), i64::from(LARGE_ROWS));
    let last = client.run(&format!("SELECT v FROM ks.w WHERE k = 1 AND c = {}", LARGE_ROWS - 1));
    assert!(last.rows[0][0].as_deref() == Some(&large[..]), "nothing was changed");
    refused_batch(&mut client);
    let most = server.most_resident_bytes();
    assert!(most < LIMIT_BYTES, "{} MiB", most >> 20);
}
