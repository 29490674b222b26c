//! The HTTP port of a real node, as pages of other sites, other machines and operators meet it.

use crate::server::Server;
use std::io::{Read, Write};
use std::net::TcpStream;

/// The status and the body of the answer to a request with these headers.
fn answer(server: &Server, request: &str, headers: &[(&str, &str)], body: &str) -> (u16, String) {
    let mut stream = TcpStream::connect((server.address.as_str(), 7000)).unwrap();
    let headers: String = headers.iter().map(|(name, value)| format!("{name}: {value}\r\n")).collect();
    let length = body.len();
    write!(stream, "{request} HTTP/1.1\r\n{headers}Content-Length: {length}\r\nConnection: close\r\n\r\n{body}")
        .unwrap();
    let mut answer = String::new();
    stream.read_to_string(&mut answer).unwrap();
    let (head, body) = answer.split_once("\r\n\r\n").unwrap_or_else(|| panic!("{answer}"));
    (head.split(' ').nth(1).unwrap().parse().unwrap(), body.to_owned())
}

#[test]
fn the_http_port_is_not_for_pages_of_other_sites_and_settings_have_limits() {
    const SETTINGS: &str = "POST /api/v1/settings";
    const JSON: (&str, &str) = ("Content-Type", "application/json");
    let home = tempfile::tempdir().unwrap();
    let server = Server::start(home.path(), &["--http-host", "Db.Example"]);
    let host = format!("{}:7000", server.address);
    let host = ("Host", host.as_str());
    let status = |request, headers: &[_], body| answer(&server, request, headers, body).0;
    assert_eq!(status("GET /api/v1/status", &[("Host", "db.example")], ""), 200);
    assert_eq!(status("GET /api/v1/status", &[("Host", "evil.example")], ""), 403);
    assert_eq!(status("GET /health/ready", &[("Host", "evil.example")], ""), 200);
    let change = r#"{"balancing_is_paused": false}"#;
    assert_eq!(status(SETTINGS, &[host, JSON], change), 200);
    assert_eq!(status(SETTINGS, &[host, ("Content-Type", "text/plain")], change), 415);
    assert_eq!(status(SETTINGS, &[host, JSON, ("Origin", "http://evil.example")], change), 403);
    for (path, body, limit) in [
        ("settings", r#"{"split_bytes": 1}"#, "SPLIT_SIZE"),
        ("settings", r#"{"replace_after_ms": 1}"#, "REPLACE_AFTER"),
        ("settings", r#"{"copy_rate_bytes": 1}"#, "COPY_RATE"),
        ("compaction/rate", r#"{"rate_bytes": 1}"#, "COMPACTION_RATE"),
        ("indexes/rate", r#"{"rate_bytes": 1}"#, "INDEX_RATE"),
        ("scrub", r#"{"rate_bytes": 1}"#, "SCRUB_RATE"),
    ] {
        let (status, message) = answer(&server, &format!("POST /api/v1/{path}"), &[host, JSON], body);
        assert!(status == 400 && message.contains(limit), "{body}: {status} {message}");
    }
    assert!(server.stop().success());
}
