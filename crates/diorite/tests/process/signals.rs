//! Signals that reach a node while it starts, and a log that nobody reads any more.

use crate::server::{Server, fresh_address, fresh_addresses, wait_for};
use serde_json::Value;
use std::net::TcpStream;
use std::process::{Command, Stdio};

fn send(signal: &str, node: &Server) {
    assert!(Command::new("kill").args([signal, &node.process_id().to_string()]).status().unwrap().success());
}

/// Has taken its ports, and cannot go on.
fn wait_for_ports(node: &Server) {
    wait_for("it takes its ports", || TcpStream::connect(format!("{}:7000", node.address)).is_ok());
}

#[test]
fn a_hangup_during_the_start_ends_nothing_and_is_remembered() {
    let home = tempfile::tempdir().unwrap();
    let addresses = fresh_addresses(2);
    let file = home.path().join("diorite.toml");
    std::fs::write(&file, "slow-query = \"1000ms\"\n").unwrap();
    // It waits for the node that it is to join.
    let more = ["--config", file.to_str().unwrap(), "--join", &addresses[0]];
    let mut second = Server::begin(&addresses[1], &home.path().join("2"), &more, Stdio::inherit());
    wait_for_ports(&second);
    std::fs::write(&file, "slow-query = \"2000ms\"\n").unwrap();
    send("-HUP", &second);
    let first = Server::start_on(&addresses[0], &home.path().join("1"), &[]);
    second.wait_until_ready();
    let logging = || serde_json::from_str::<Value>(&second.get("/api/v1/logging").unwrap()).unwrap();
    wait_for("the file was read again", || logging()["slow_query"].as_str() == Some("2000ms"));
    // This one has no file to read.
    send("-HUP", &first);
    assert!(second.stop().success());
    assert!(first.stop().success());
}

#[test]
fn a_node_that_is_starting_stops_in_order() {
    let home = tempfile::tempdir().unwrap();
    let addresses = fresh_addresses(2);
    let node = Server::begin(&addresses[1], home.path(), &["--join", &addresses[0]], Stdio::inherit());
    wait_for_ports(&node);
    assert!(node.stop().success());
}

#[test]
fn a_node_whose_log_is_read_by_nobody_any_more_runs() {
    let home = tempfile::tempdir().unwrap();
    let (reader, log) = std::io::pipe().unwrap();
    drop(reader);
    let node = Server::start_logging(&fresh_address(), home.path(), &["--log-level", "info"], Stdio::from(log));
    assert!(node.get("/api/v1/logging").is_some());
    assert!(node.stop().success());
}
