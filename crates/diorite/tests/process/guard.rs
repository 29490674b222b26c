//! The guard of a node whose process was killed notifies the other nodes, which do not wait for its leases.

use crate::client::{Client, count};
use crate::server::{Server, fresh_addresses, wait_for};
use std::fs::{self, File};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use tempfile::tempdir;

const NOTICE: &str = "the guard of a node reports";

/// Parent, state and name of a process; none if it is gone.
fn describe(process: u32) -> Option<(u32, char, String)> {
    let text = fs::read_to_string(format!("/proc/{process}/stat")).ok()?;
    let (name, rest) = text.split_once('(')?.1.rsplit_once(')')?;
    let mut fields = rest.split_whitespace();
    Some((fields.nth(1)?.parse().ok()?, rest.trim_start().chars().next()?, name.to_owned()))
}

fn runs(process: u32) -> bool {
    describe(process).is_some_and(|(_, state, _)| state != 'Z')
}

fn guard_of(node: &Server) -> u32 {
    let processes = fs::read_dir("/proc").unwrap().filter_map(|entry| entry.ok()?.file_name().to_str()?.parse().ok());
    let is_child = |process: &u32| describe(*process).is_some_and(|(parent, ..)| parent == node.process_id());
    let children: Vec<u32> = processes.filter(is_child).collect();
    assert_eq!(children.len(), 1, "a node has one other process");
    let arguments = fs::read_to_string(format!("/proc/{}/cmdline", children[0])).unwrap();
    assert!(arguments.contains("guard"), "{arguments}");
    children[0]
}

fn says(log: &Path, what: &str) -> bool {
    fs::read_to_string(log).unwrap().contains(what)
}

fn insert(client: &mut Client, numbers: std::ops::Range<i64>) {
    for number in numbers {
        let statement = format!("INSERT INTO ks.t (k, v) VALUES ({number}, 'x')");
        wait_for("rows are taken", || client.query(&statement).is_ok());
    }
}

#[test]
fn a_node_whose_process_is_killed_is_known_to_have_ended() {
    let home = tempdir().unwrap();
    let addresses = fresh_addresses(3);
    let logs: Vec<PathBuf> = (1..=3).map(|node| home.path().join(format!("{node}.log"))).collect();
    let start = |node: usize, more: &[&str]| {
        let log = Stdio::from(File::options().create(true).append(true).open(&logs[node - 1]).unwrap());
        Server::start_logging(&addresses[node - 1], &home.path().join(node.to_string()), more, log)
    };
    let join: &[&str] = &["--join", &addresses[0]];
    let (one, two, three) = (start(1, &["--rf", "3"]), start(2, join), start(3, join));
    let mut client = Client::connect(&two.address).unwrap();
    client.run("CREATE KEYSPACE ks WITH replication = {'class': 'SimpleStrategy', 'replication_factor': 3}");
    client.run("CREATE TABLE ks.t (k bigint PRIMARY KEY, v text) WITH tablets = 6");
    insert(&mut client, 0..50);
    assert!(logs.iter().all(|log| !says(log, NOTICE)), "no node has ended");

    let guard = guard_of(&one);
    one.kill();
    wait_for("the others are notified", || says(&logs[1], NOTICE) && says(&logs[2], NOTICE));
    insert(&mut client, 50..100);
    wait_for("the guard ends when it has said so", || !runs(guard));

    // The next life of the node is another one.
    let one = start(1, join);
    wait_for("it is up again", || {
        two.get("/api/v1/status").is_some_and(|status| !status.contains("\"state\":\"down\""))
    });
    assert_eq!(count(&mut Client::connect(&one.address).unwrap(), "ks.t"), 100);

    // A node without its guard goes on, and says so.
    let killed = Command::new("kill").args(["-KILL", &guard_of(&two).to_string()]).status().unwrap();
    assert!(killed.success());
    wait_for("that is said", || says(&logs[1], "the guard has ended"));
    insert(&mut client, 100..120);
    drop(three);
}
