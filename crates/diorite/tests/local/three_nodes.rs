//! A cluster of three nodes: writes and schema through each of them, after a cold start and with a node gone.

use crate::Local;
use crate::client::{Client, count};
use diorite_cql::protocol::client::ClientResponse;
use std::time::{Duration, Instant};

/// How long anything is waited for before the test gives up. Not a measurement.
const TIMEOUT: Duration = Duration::from_secs(180);

const CREATE_KEYSPACE: &str =
    "CREATE KEYSPACE ks WITH replication = {'class': 'SimpleStrategy', 'replication_factor': 3}";

fn connect(local: &Local, number: u32) -> Client {
    Client::connect(&local.address(number)).unwrap()
}

/// Runs a statement until it succeeds: while leaders move, a request may time out.
fn run_eventually(client: &mut Client, statement: &str) {
    let start = Instant::now();
    loop {
        match client.query(statement) {
            Ok(ClientResponse::Rows(_) | ClientResponse::Void) => return,
            Ok(other) => panic!("{statement} was answered {other:?}"),
            Err(error) => assert!(start.elapsed() < TIMEOUT, "{statement}: {error:?}"),
        }
        std::thread::sleep(Duration::from_millis(50));
    }
}

#[test]
fn every_node_takes_writes_and_schema_after_a_cold_start() {
    let local = Local::fresh();
    let said = local.up(3, &["--rf", "3"]);
    assert!(said.contains("replication factor 3") && said.contains(&local.address(3)), "{said}");
    connect(&local, 1).run(CREATE_KEYSPACE);
    for number in 1..=3 {
        let mut client = connect(&local, number);
        client.run(&format!("CREATE TABLE ks.t{number} (k text PRIMARY KEY, v blob)"));
        client.run(&format!("INSERT INTO ks.t{number} (k, v) VALUES ('made by {number}', 0x01)"));
    }
    for number in 1..=3 {
        let mut client = connect(&local, number);
        for table in 1..=3 {
            client.run(&format!("INSERT INTO ks.t{table} (k, v) VALUES ('from {number}', 0x02)"));
        }
    }
    for number in 1..=3 {
        assert_eq!(count(&mut connect(&local, number), "ks.t1"), 4, "as node {number} sees it");
    }
    local.run(&["stop"]);
    local.run(&["up"]);
    for number in 1..=3 {
        let mut client = connect(&local, number);
        client.run(&format!("INSERT INTO ks.t3 (k, v) VALUES ('again from {number}', 0x03)"));
        assert_eq!(count(&mut client, "ks.t1"), 4, "as node {number} sees it after the restart");
    }
}

#[test]
fn a_killed_node_is_missed_by_nobody_and_comes_back() {
    let local = Local::fresh();
    local.up(3, &[]);
    let mut client = connect(&local, 2);
    client.run(CREATE_KEYSPACE);
    client.run("CREATE TABLE ks.t (k text PRIMARY KEY, v blob)");
    client.run("INSERT INTO ks.t (k, v) VALUES ('before', 0x01)");
    local.run(&["kill", "1"]);
    for number in 0..20 {
        run_eventually(&mut client, &format!("INSERT INTO ks.t (k, v) VALUES ('meanwhile {number}', 0x02)"));
    }
    assert_eq!(local.node(1).1, "stopped");
    local.run(&["start", "1"]);
    let mut returned = connect(&local, 1);
    run_eventually(&mut returned, "INSERT INTO ks.t (k, v) VALUES ('after', 0x03)");
    assert_eq!(count(&mut returned, "ks.t"), 22);
}

#[test]
fn a_cluster_grows_by_a_node() {
    let local = Local::fresh();
    local.up(3, &[]);
    connect(&local, 1).run(CREATE_KEYSPACE);
    let said = local.run(&["up", "--nodes", "4"]);
    assert!(said.contains(&local.address(4)), "{said}");
    let mut client = connect(&local, 4);
    client.run("CREATE TABLE ks.t (k text PRIMARY KEY, v blob)");
    client.run("INSERT INTO ks.t (k, v) VALUES ('through the new one', 0x01)");
    assert_eq!(count(&mut connect(&local, 1), "ks.t"), 1);
    assert!(local.refusal(&["up", "--nodes", "2"]).contains("cannot become smaller"));
}

#[test]
fn a_stopped_cluster_with_certificates_grows_by_a_node() {
    let local = Local::fresh();
    local.up(1, &[]);
    local.run(&["stop"]);
    // A member makes the token with which the new node joins, so it is started first.
    let said = local.run(&["up", "--nodes", "2"]);
    assert!(said.contains(&local.address(2)), "{said}");
    assert_eq!(local.node(2).1, "ready");
    local.run(&["stop"]);
    local.run(&["up"]);
    assert_eq!(local.node(2).1, "ready", "a member needs no token");
}
