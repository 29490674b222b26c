//! Clients on loopback sockets that break the protocol or the limits.

use super::*;
use axum::body::Bytes;
use axum::extract::Path;
use axum::routing::{get, post};
use diorite_base::SystemClock;
use tokio::io::{AsyncReadExt, AsyncWriteExt};

/// A long timeout for conditions that must become true, however slow the machine is.
const LONG: Duration = Duration::from_secs(60);
/// Limits that no test reaches.
fn patient() -> ServerLimits {
    ServerLimits { head: LONG * 10, body: LONG * 10, write: LONG * 10, stop: LONG * 10, ..ServerLimits::default() }
}

struct Server {
    address: SocketAddr,
    stop: watch::Sender<bool>,
    serving: tokio::task::JoinHandle<()>,
}

async fn start(limits: ServerLimits) -> Server {
    let listener = TcpListener::bind("127.0.0.1:0").await.expect("a port");
    let address = listener.local_addr().expect("an address");
    let routes = Router::new()
        .route("/", get(|| async { "hello" }))
        .route("/length", post(|body: Bytes| async move { body.len().to_string() }))
        .route("/api/{number}", post(|Path(number): Path<u64>| async move { number.to_string() }));
    let (stop, stopped) = watch::channel(false);
    let serving = tokio::spawn(serve(listener, routes, None, limits, Arc::new(SystemClock::new()), stopped));
    Server { address, stop, serving }
}

impl Server {
    async fn connect(&self) -> TcpStream {
        TcpStream::connect(self.address).await.expect("it listens")
    }

    /// Everything that the server answers to these bytes until it closes.
    async fn answer(&self, bytes: &[u8]) -> String {
        let mut stream = self.connect().await;
        stream.write_all(bytes).await.expect("it reads");
        rest(&mut stream).await
    }
}

async fn rest(stream: &mut TcpStream) -> String {
    let mut answer = Vec::new();
    // The end may come as a reset if the server has not read everything.
    let _ = timeout(LONG, stream.read_to_end(&mut answer)).await.expect("the connection is closed");
    String::from_utf8_lossy(&answer).into_owned()
}

const LAST: &str = "GET / HTTP/1.1\r\nhost: h\r\nconnection: close\r\n\r\n";

#[tokio::test]
async fn requests_are_answered_however_their_bytes_arrive() {
    let server = start(patient()).await;
    assert!(server.answer(LAST.as_bytes()).await.ends_with("hello"));
    let mut stream = server.connect().await;
    for byte in LAST.bytes() {
        stream.write_all(&[byte]).await.expect("it reads");
        tokio::task::yield_now().await;
    }
    assert!(rest(&mut stream).await.ends_with("hello"));
    let two = format!("POST /length HTTP/1.1\r\nhost: h\r\ncontent-length: 3\r\n\r\nabc{LAST}");
    let answers = server.answer(two.as_bytes()).await;
    assert!(answers.contains("\r\n\r\n3HTTP/1.1 200 OK") && answers.ends_with("hello"), "{answers}");
}

#[tokio::test]
async fn what_is_no_request_is_answered_at_once() {
    // No timeout ends anything here.
    let server = start(patient()).await;
    for garbage in
        [&b"AAAAAAAAAAAAAAAAAAAA"[..], b"\x16\x03\x01\x02\x00\x01\x00", b"hello\r\n\r\n", b"\0", b"get / HTTP/1.1\r\n"]
    {
        let answer = server.answer(garbage).await;
        assert!(answer.starts_with("HTTP/1.1 400 Bad Request\r\n"), "{garbage:?}: {answer}");
    }
    let answer = server.answer(b"GET / HTTX/1.1\r\n\r\n").await;
    assert!(answer.starts_with("HTTP/1.1 400"), "the parser judges the rest: {answer}");
}

#[tokio::test]
async fn heads_that_do_not_end_are_cut_off() {
    let server = start(ServerLimits { head: Duration::from_millis(100), ..patient() }).await;
    assert_eq!(server.answer(b"").await, "", "nothing at all");
    assert_eq!(server.answer(b"GET / HTTP/1.1\r\nhost:").await, "");
    assert!(server.answer(LAST.replace("close", "keep-alive").as_bytes()).await.ends_with("hello"), "idle");
    // Single bytes, now and then, do not extend the time.
    let (mut reading, mut writing) = server.connect().await.into_split();
    let dripping = async {
        writing.write_all(b"GET / HTTP/1.1\r\n").await.expect("it reads");
        loop {
            let written = writing.write_all(b"a: b\r\n").await;
            if written.is_err() {
                return;
            }
            let _ = timeout(Duration::from_millis(5), std::future::pending::<()>()).await;
        }
    };
    let mut answer = Vec::new();
    tokio::select! {
        () = dripping => {}
        read = timeout(LONG, reading.read_to_end(&mut answer)) => drop(read.expect("the connection is closed")),
    }
    assert!(answer.is_empty());
}

#[tokio::test]
async fn bodies_that_do_not_come_or_are_too_large_are_refused() {
    let server = start(ServerLimits { body: Duration::from_millis(100), ..patient() }).await;
    let part = b"POST /length HTTP/1.1\r\nhost: h\r\ncontent-length: 10\r\n\r\nabc";
    assert!(server.answer(part).await.starts_with("HTTP/1.1 408 Request Timeout\r\n"));
    let server = start(patient()).await;
    let large = b"POST /length HTTP/1.1\r\nhost: h\r\ncontent-length: 65537\r\n\r\n";
    assert!(server.answer(large).await.starts_with("HTTP/1.1 413 Payload Too Large\r\n"), "none of it need come");
    let mut chunked = b"POST /length HTTP/1.1\r\nhost: h\r\ntransfer-encoding: chunked\r\n\r\n10001\r\n".to_vec();
    chunked.extend(std::iter::repeat_n(b'x', 65_537));
    assert!(server.answer(&chunked).await.starts_with("HTTP/1.1 413 Payload Too Large\r\n"));
    let mut most = b"POST /length HTTP/1.1\r\nhost: h\r\nconnection: close\r\ncontent-length: 65536\r\n\r\n".to_vec();
    most.extend(std::iter::repeat_n(b'x', 65_536));
    assert!(server.answer(&most).await.ends_with("\r\n65536"));
}

#[tokio::test]
async fn programs_are_refused_in_json() {
    let server = start(patient()).await;
    for (request, length, status, reason) in [
        ("POST /api/7", 65_537, "413 Payload Too Large", "a body has at most 65536 bytes"),
        ("POST /api/-1", 0, "400 Bad Request", "`-1`"),
        ("POST /api/%ff", 0, "400 Bad Request", "UTF-8"),
        ("GET /api/7", 0, "405 Method Not Allowed", "the path is for another method"),
        ("GET /api/7/8", 0, "404 Not Found", "there is nothing under this path"),
    ] {
        let head = format!("{request} HTTP/1.1\r\nhost: h\r\nconnection: close\r\ncontent-length: {length}\r\n\r\n");
        let answer = server.answer(head.as_bytes()).await;
        let (head, body) = answer.split_once("\r\n\r\n").expect("a head and a body");
        assert!(head.starts_with(&format!("HTTP/1.1 {status}\r\n")), "{request}: {answer}");
        assert!(head.contains("content-type: application/json"), "{request}: {answer}");
        let failure: crate::api::Failure = serde_json::from_str(body).expect("a failure");
        assert!(failure.message.contains(reason), "{request}: {failure}");
    }
    let page = server.answer(&LAST.replace("GET /", "GET /none").into_bytes()).await;
    assert!(page.starts_with("HTTP/1.1 404") && !page.contains("json"), "{page}");
}

#[tokio::test]
async fn heads_that_are_too_large_are_refused() {
    let server = start(patient()).await;
    let one = format!("GET / HTTP/1.1\r\nhost: h\r\nx: {}", "x".repeat(16 << 10));
    assert!(server.answer(one.as_bytes()).await.starts_with("HTTP/1.1 431 "));
    let many = format!("GET / HTTP/1.1\r\nhost: h\r\n{}\r\n", "x: y\r\n".repeat(200));
    assert!(server.answer(many.as_bytes()).await.starts_with("HTTP/1.1 431 "));
}

#[tokio::test]
async fn one_source_does_not_take_all_connections_and_gets_them_back() {
    let server = start(patient()).await;
    let mut silent = Vec::new();
    for _ in 0..patient().connections.per_source {
        silent.push(server.connect().await);
    }
    assert!(server.answer(b"").await.starts_with("HTTP/1.1 503 "));
    let elsewhere = tokio::net::TcpSocket::new_v4().expect("a socket");
    elsewhere.bind("127.0.0.9:0".parse().expect("an address")).expect("it is this machine's");
    let mut other = elsewhere.connect(server.address).await.expect("it listens");
    other.write_all(LAST.as_bytes()).await.expect("it reads");
    assert!(rest(&mut other).await.ends_with("hello"), "others come in");
    drop(silent);
    let served = async { while !server.answer(LAST.as_bytes()).await.ends_with("hello") {} };
    timeout(LONG, served).await.expect("places come back");
}

#[tokio::test]
async fn a_stop_ends_idle_connections() {
    let server = start(patient()).await;
    let mut idle = server.connect().await;
    idle.write_all(LAST.replace("close", "keep-alive").as_bytes()).await.expect("it reads");
    let mut head = [0; 12];
    idle.read_exact(&mut head).await.expect("it answers");
    server.stop.send_replace(true);
    timeout(LONG, server.serving).await.expect("it ends").expect("in order");
    assert!(rest(&mut idle).await.ends_with("hello"));
}
