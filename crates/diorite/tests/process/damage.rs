//! Files of tablets are damaged while their node is down: it starts, serves all other tablets, and gets back from the other nodes what it has lost. A node that is
//! alone serves what can be read, and says what is wrong.

use crate::client::{Client, count};
use crate::server::{Server, TIMEOUT, fresh_addresses, wait_for};
use serde_json::Value as Json;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::{Duration, Instant};
use tempfile::tempdir;

const ROWS: i64 = 300;

/// Inserts rows, each until it is acknowledged: leaders may be about to change.
fn insert(client: &mut Client, numbers: std::ops::Range<i64>) {
    let value = "x".repeat(500);
    let start = Instant::now();
    for number in numbers {
        while client.query(&format!("INSERT INTO ks.t (k, v) VALUES ({number}, '{value}')")).is_err() {
            assert!(start.elapsed() < TIMEOUT, "row {number}");
            std::thread::sleep(Duration::from_millis(20));
        }
    }
}

/// Exit code of `diorite admin`, and what it prints.
fn admin(server: &Server, arguments: &[&str]) -> (Option<i32>, String) {
    let mut command = Command::new(env!("CARGO_BIN_EXE_diorite"));
    let output = command.args(["admin", "--host", &server.address]).args(arguments).output().unwrap();
    (output.status.code(), String::from_utf8_lossy(&output.stdout).into_owned())
}

/// The tablets of `ks.t`.
fn tablets(server: &Server) -> Vec<u64> {
    let page: Json = serde_json::from_str(&server.get("/api/v1/tablets?keyspace=ks").unwrap()).unwrap();
    page["tablets"].as_array().unwrap().iter().map(|tablet| tablet["tablet"].as_u64().unwrap()).collect()
}

fn directory(data: &Path, tablet: u64) -> PathBuf {
    data.join("tablets").join(tablet.to_string())
}

/// Whether all three replicas of a tablet have applied all that any of them knows to be committed.
fn is_applied_by_all(server: &Server, tablet: u64) -> bool {
    let answer = server.get(&format!("/api/v1/tablets/{tablet}"));
    let detail: Json = answer.and_then(|answer| serde_json::from_str(&answer).ok()).unwrap_or_default();
    let replicas = detail["replicas"].as_array().map(Vec::as_slice).unwrap_or_default();
    let of_all = |which: &str| -> Vec<u64> { replicas.iter().filter_map(|replica| replica[which].as_u64()).collect() };
    let (committed, applied) = (of_all("commit_index"), of_all("applied_index"));
    applied.len() == 3 && applied.iter().min() >= committed.iter().max()
}

/// RocksDB does not find the state of the tablet any more.
fn make_unopenable(data: &Path, tablet: u64) {
    std::fs::write(directory(data, tablet).join("CURRENT"), "MANIFEST-999999\n").unwrap();
}

/// Data blocks of the tablet's SSTs are overwritten: what they hold of their own stays as it was.
fn damage_blocks(data: &Path, tablet: u64) {
    let files = std::fs::read_dir(directory(data, tablet)).unwrap().map(|file| file.unwrap().path());
    let ssts: Vec<PathBuf> = files.filter(|path| path.extension().is_some_and(|is| is == "sst")).collect();
    assert!(!ssts.is_empty(), "a stop in order has written all rows to files");
    for path in ssts {
        let file = std::fs::OpenOptions::new().write(true).open(path).unwrap();
        file.write_all_at(&[0x55; 512], 64).unwrap();
    }
}

fn metric(server: &Server, name: &str) -> u64 {
    let text = server.get("/metrics").unwrap_or_default();
    let line = text.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(' '));
    line.map_or(0, |value| value.parse::<f64>().unwrap() as u64)
}

#[test]
fn a_node_with_damaged_replicas_starts_serves_the_others_and_gets_them_back() {
    let home = tempdir().unwrap();
    let addresses = fresh_addresses(3);
    let data: Vec<PathBuf> = (1..=3).map(|node| home.path().join(node.to_string())).collect();
    let one = Server::start_on(&addresses[0], &data[0], &["--rf", "3"]);
    let _two = Server::start_on(&addresses[1], &data[1], &["--join", &addresses[0]]);
    let three = Server::start_on(&addresses[2], &data[2], &["--join", &addresses[0]]);
    let mut client = Client::connect(&one.address).unwrap();
    client.run("CREATE KEYSPACE ks WITH replication = {'class': 'SimpleStrategy', 'replication_factor': 3}");
    client.run("CREATE TABLE ks.t (k bigint PRIMARY KEY, v text) WITH tablets = 4");
    let tablets = tablets(&one);
    wait_for("the third node has a replica of each", || {
        tablets.iter().all(|tablet| directory(&data[2], *tablet).exists())
    });
    insert(&mut client, 0..ROWS);
    // The rows were acknowledged by any two of the nodes: the third may have none of them yet.
    wait_for("the third node has all rows", || tablets.iter().all(|tablet| is_applied_by_all(&one, *tablet)));
    assert!(three.stop().success());

    make_unopenable(&data[2], tablets[0]);
    damage_blocks(&data[2], tablets[1]);
    let three = Server::start_on(&addresses[2], &data[2], &["--join", &addresses[0]]);
    let mut client = Client::connect(&three.address).unwrap();
    insert(&mut client, ROWS..2 * ROWS);
    assert_eq!(count(&mut client, "ks.t"), 2 * ROWS, "nothing is missing, whoever leads");

    // What no read has met yet is found by a scrub.
    let (code, said) = admin(&three, &["scrub", "--wait"]);
    assert!(matches!(code, Some(0 | 2)), "{said}");
    wait_for("the replicas are made anew", || {
        admin(&three, &["status"]).0 == Some(0) && metric(&three, "diorite_tablets_set_aside") == 0
    });
    wait_for("their former files go", || {
        tablets.iter().all(|tablet| !data[2].join(format!("tablets/{tablet}.aside")).exists())
    });
    assert_eq!(admin(&three, &["scrub", "--wait"]).0, Some(0), "nothing is damaged any more");

    // Now they are needed.
    one.kill();
    insert(&mut client, 2 * ROWS..3 * ROWS);
    assert_eq!(count(&mut client, "ks.t"), 3 * ROWS);
}

#[test]
fn a_node_that_is_alone_serves_what_is_whole_and_says_what_is_not() {
    let data = tempdir().unwrap();
    let address = fresh_addresses(1).remove(0);
    let server = Server::start_on(&address, data.path(), &[]);
    let mut client = Client::connect(&address).unwrap();
    client.run("CREATE KEYSPACE ks");
    client.run("CREATE TABLE ks.t (k bigint PRIMARY KEY, v text) WITH tablets = 2");
    insert(&mut client, 0..ROWS);
    let tablets = tablets(&server);
    assert!(server.stop().success());

    make_unopenable(data.path(), tablets[0]);
    // What is not there is waited for until the request's time is over.
    let server = Server::start_on(&address, data.path(), &["--request-timeout", "500ms"]);
    let mut client = Client::connect(&address).unwrap();
    let read = |client: &mut Client, k: i64| client.query(&format!("SELECT v FROM ks.t WHERE k = {k}")).is_ok();
    let served = (0..20).filter(|k| read(&mut client, *k)).count();
    assert!((1..20).contains(&served), "{served} of 20 rows are in the other tablet");
    let (code, said) = admin(&server, &["status"]);
    assert_eq!(code, Some(2), "{said}");
    assert!(said.contains(&format!("cannot use its replica of tablet {}", tablets[0])), "{said}");
    let (_, said) = admin(&server, &["tablet", &tablets[0].to_string()]);
    assert!(said.contains("this is the tablet's only replica"), "{said}");
    assert_eq!(metric(&server, "diorite_tablets_set_aside"), 1);
    assert!(directory(data.path(), tablets[0]).exists(), "its files stay: there is no other copy");
    assert!(server.stop().success());
}

#[test]
fn damaged_data_of_the_catalog_does_not_keep_a_node_from_starting() {
    let data = tempdir().unwrap();
    let address = fresh_addresses(1).remove(0);
    let catalog = 1;
    for round in 0..3 {
        let server = Server::start_on(&address, data.path(), &[]);
        let mut client = Client::connect(&address).unwrap();
        client.run("CREATE KEYSPACE IF NOT EXISTS ks");
        client.run("CREATE TABLE IF NOT EXISTS ks.t (k bigint PRIMARY KEY, v text) WITH tablets = 2");
        insert(&mut client, round * ROWS..(round + 1) * ROWS);
        assert_eq!(count(&mut client, "ks.t"), (round + 1) * ROWS);
        wait_for("nothing is at risk", || admin(&server, &["status"]).0 == Some(0));
        assert!(server.stop().success());
        if round == 0 { make_unopenable(data.path(), catalog) } else { damage_blocks(data.path(), catalog) }
    }
}

#[test]
fn status_knows_of_a_replica_that_was_set_aside_a_moment_ago() {
    let data = tempdir().unwrap();
    let address = fresh_addresses(1).remove(0);
    let server = Server::start_on(&address, data.path(), &[]);
    let mut client = Client::connect(&address).unwrap();
    client.run("CREATE KEYSPACE ks");
    client.run("CREATE TABLE ks.t (k bigint PRIMARY KEY, v text) WITH tablets = 1");
    insert(&mut client, 0..ROWS);
    let tablets = tablets(&server);
    assert!(server.stop().success());

    damage_blocks(data.path(), tablets[0]);
    let server = Server::start_on(&address, data.path(), &[]);
    let mut client = Client::connect(&address).unwrap();
    wait_for("somebody has met the damage", || {
        drop(client.query("SELECT count(*) FROM ks.t"));
        metric(&server, "diorite_tablets_set_aside") == 1
    });
    let (code, said) = admin(&server, &["status"]);
    assert_eq!(code, Some(2), "{said}");
    assert!(said.contains(&format!("cannot use its replica of tablet {}", tablets[0])), "{said}");
    assert!(server.stop().success());
}
