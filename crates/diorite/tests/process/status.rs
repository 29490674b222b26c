//! What a monitor asks a node: `diorite admin status` ends with 2 as soon as data is at risk, and says why; `/health/live` and `/health/ready` tell a node that starts from one
//! that serves and from one that is gone.

use crate::client::Client;
use crate::disks::skip;
use crate::failing_disk::Disk;
use crate::server::{Server, TIMEOUT, command, fresh_address, fresh_addresses, get_within};
use serde_json::Value;
use std::io::{Read, Write};
use std::net::TcpStream;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};
use tempfile::tempdir;

/// What `status` ends with, and what it says.
fn status(address: &str) -> (Option<i32>, Value) {
    let output = Command::new(env!("CARGO_BIN_EXE_diorite"))
        .args(["admin", "--host", address, "status", "--json"])
        .output()
        .unwrap();
    (output.status.code(), serde_json::from_slice(&output.stdout).unwrap_or_default())
}

/// Asks until the exit code is this one and some warning says that.
fn wait_for_status(address: &str, code: i32, warning: &str) -> Value {
    wait_for_status_with(address, code, warning, |_| true)
}

/// The same, and until the answer is as wanted: a busy machine may be missed by others for a moment.
fn wait_for_status_with(address: &str, code: i32, warning: &str, is_wanted: impl Fn(&Value) -> bool) -> Value {
    let start = Instant::now();
    loop {
        let (found, said) = status(address);
        let warnings = said["warnings"].as_array().cloned().unwrap_or_default();
        let has_warning = warnings.iter().any(|line| line.as_str().is_some_and(|line| line.contains(warning)));
        if found == Some(code) && (warning.is_empty() || has_warning) && is_wanted(&said) {
            return said;
        }
        assert!(start.elapsed() < TIMEOUT, "{code} and {warning:?} are expected: {found:?} and {said}");
        std::thread::sleep(Duration::from_millis(100));
    }
}

/// The status code of an HTTP answer; none if nobody listens.
fn http_code(address: &str, path: &str) -> Option<u16> {
    let mut stream = TcpStream::connect(format!("{address}:7000")).ok()?;
    stream.set_read_timeout(Some(TIMEOUT)).ok()?;
    write!(stream, "GET {path} HTTP/1.1\r\nHost: {address}\r\nConnection: close\r\n\r\n").ok()?;
    let mut answer = String::new();
    stream.read_to_string(&mut answer).ok()?;
    answer.split(' ').nth(1)?.parse().ok()
}

const CREATE: [&str; 2] = ["CREATE KEYSPACE ks", "CREATE TABLE ks.t (k int PRIMARY KEY, v int) WITH tablets = 8"];

#[test]
fn a_full_disk_is_a_risk_and_one_that_is_nearly_full_a_warning() {
    let data = tempdir().unwrap();
    let address = fresh_address();
    let server = Server::start_on(&address, data.path(), &[]);
    let mut client = Client::connect(&address).unwrap();
    CREATE.iter().for_each(|statement| drop(client.run(statement)));
    wait_for_status(&address, 0, "");
    assert!(server.stop().success());

    // Beyond what any disk has free: it is nearly full for moves, then full for writes.
    let server = Server::start_on(&address, data.path(), &["--move-reserve", "90"]);
    let said = wait_for_status(&address, 0, "is nearly full: nothing is moved there");
    assert_eq!(said["full_disks"], 0);
    Client::connect(&address).unwrap().run("INSERT INTO ks.t (k, v) VALUES (1, 1)");
    assert!(server.stop().success());

    let server = Server::start_on(&address, data.path(), &["--disk-reserve", "100000TiB"]);
    let said = wait_for_status(&address, 2, "is full: writes to it are refused");
    assert_eq!(said["full_disks"], 1);
    let mut client = Client::connect(&address).unwrap();
    assert!(client.query("INSERT INTO ks.t (k, v) VALUES (2, 2)").is_err());
    assert_eq!(client.run("SELECT v FROM ks.t WHERE k = 1").rows.len(), 1);
    assert_eq!(http_code(&address, "/health/ready"), Some(200), "it reads and deletes, so it serves");
    assert!(server.stop().success());

    let _server = Server::start_on(&address, data.path(), &[]);
    wait_for_status(&address, 0, "");
}

#[test]
fn a_failed_disk_is_a_risk_and_named() {
    let home = tempdir().unwrap();
    // The catalog goes where there is most room.
    let (Some(first), Some(second)) = (Disk::new(home.path(), "large", 320), Disk::new(home.path(), "small", 280))
    else {
        skip("a file system that can fail needs root and loop devices");
        return;
    };
    let second_data = second.path.join("data");
    let address = fresh_address();
    let limits =
        ["--disk-reserve", "1MiB", "--move-reserve", "0", "--memory-limit", "256MiB", "--replay-limit", "16MiB"];
    let flags = [&limits[..], &["--data-dir", second_data.to_str().unwrap()]].concat();
    let _server = Server::start_on(&address, &first.path.join("data"), &flags);
    let mut client = Client::connect(&address).unwrap();
    CREATE.iter().for_each(|statement| drop(client.run(statement)));
    wait_for_status(&address, 0, "");
    second.fail();
    let start = Instant::now();
    // The disk is found to have failed by whoever writes to it.
    while (0..64).all(|k| client.query(&format!("INSERT INTO ks.t (k, v) VALUES ({k}, 1)")).is_ok()) {
        assert!(start.elapsed() < TIMEOUT, "no write met the disk");
    }
    let said = wait_for_status(&address, 2, "has failed");
    let warnings = said["warnings"].to_string();
    assert!(warnings.contains(second_data.to_str().unwrap()), "the disk is named: {warnings}");
    assert_eq!(said["full_disks"], 1);
}

#[test]
fn tablets_that_nobody_leads_and_replicas_that_are_missing_are_a_risk() {
    let home = tempdir().unwrap();
    let addresses = fresh_addresses(2);
    let _one = Server::start_on(&addresses[0], &home.path().join("one"), &["--rf", "1"]);
    let two = Server::start_on(&addresses[1], &home.path().join("two"), &["--join", &addresses[0]]);
    let mut client = Client::connect(&addresses[0]).unwrap();
    CREATE.iter().for_each(|statement| drop(client.run(statement)));
    wait_for_status(&addresses[0], 0, "");
    // A keyspace that wants more than there are nodes for is told of, and is a risk.
    client.run("CREATE KEYSPACE more WITH replication = {'class': 'SimpleStrategy', 'replication_factor': 3}");
    client.run("CREATE TABLE more.t (k int PRIMARY KEY) WITH tablets = 2");
    // New tablets have no leader for a moment.
    wait_for_status_with(&addresses[1], 2, "", |said| said["under_replicated"] == 2 && said["leaderless"] == 0);
    client.run("DROP KEYSPACE more");
    wait_for_status(&addresses[0], 0, "");
    two.kill();
    let no_quorum = "have no quorum: they can be neither read nor written";
    wait_for_status_with(&addresses[0], 2, no_quorum, |said| {
        said["leaderless"].as_u64() > Some(0) && said["unavailable"] == said["leaderless"]
    });
    assert_eq!(http_code(&addresses[0], "/health/ready"), Some(200), "this node does what it can");
}

#[test]
fn a_node_that_starts_is_live_at_once_and_ready_only_when_it_serves() {
    let (one, two) = (tempdir().unwrap(), tempdir().unwrap());
    let addresses = fresh_addresses(2);
    // It waits for the node that it is to join.
    let mut joining =
        command(&addresses[1], two.path(), &["--join", &addresses[0]]).stderr(Stdio::null()).spawn().unwrap();
    let start = Instant::now();
    while http_code(&addresses[1], "/health/live").is_none() {
        assert!(joining.try_wait().unwrap().is_none() && start.elapsed() < TIMEOUT, "the HTTP port answers first");
        std::thread::sleep(Duration::from_millis(5));
    }
    assert_eq!(http_code(&addresses[1], "/health/live"), Some(200));
    assert_eq!(http_code(&addresses[1], "/health/ready"), Some(503));
    let (code, _) = status("127.255.255.254");
    assert_eq!(code, Some(1), "nobody to ask is a failure, not a risk");
    let _one = Server::start_on(&addresses[0], one.path(), &[]);
    while http_code(&addresses[1], "/health/ready") != Some(200) {
        assert!(joining.try_wait().unwrap().is_none() && start.elapsed() < TIMEOUT, "it joins and is ready");
        std::thread::sleep(Duration::from_millis(20));
    }
    assert!(get_within(&addresses[1], "/metrics", TIMEOUT).is_some());
    joining.kill().unwrap();
    joining.wait().unwrap();
    assert_eq!(http_code(&addresses[1], "/health/live"), None);
}
