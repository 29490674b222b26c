//! Operating a cluster of real processes under load: it grows, shrinks, heals and loses a zone, and nothing that was acknowledged is lost.

use crate::Local;
use crate::busy::expect_no_failures;
use crate::client::{Client, count};
use diorite_cql::protocol::client::ClientResponse;
use serde_json::Value;
use std::collections::BTreeSet;
use std::process::{Command, Output};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

/// How long anything is waited for before the test gives up. Not a measurement.
pub const TIMEOUT: Duration = Duration::from_secs(300);

const CREATE_KEYSPACE: &str =
    "CREATE KEYSPACE ks WITH replication = {'class': 'SimpleStrategy', 'replication_factor': 3}";

pub fn admin_output(local: &Local, through: u32, arguments: &[&str]) -> Output {
    Command::new(env!("CARGO_BIN_EXE_diorite"))
        .args(["admin", "--host", &local.address(through)])
        .args(arguments)
        .output()
        .unwrap()
}

/// What a command that must succeed prints.
pub fn admin(local: &Local, through: u32, arguments: &[&str]) -> String {
    let output = admin_output(local, through, arguments);
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "admin {arguments:?}: {said}");
    String::from_utf8(output.stdout).unwrap()
}

/// What a command that must be refused says: one line.
fn refusal(local: &Local, through: u32, arguments: &[&str]) -> String {
    let output = admin_output(local, through, arguments);
    assert_eq!(output.status.code(), Some(1), "admin {arguments:?} must be refused");
    let said = String::from_utf8(output.stderr).unwrap();
    assert_eq!(said.trim().lines().count(), 1, "one clear line: {said}");
    said
}

/// An answer as JSON; nothing while nobody can answer.
pub fn ask(local: &Local, through: u32, what: &str) -> Option<Value> {
    let output = admin_output(local, through, &[what, "--json"]);
    serde_json::from_slice(&output.stdout).ok()
}

/// Looks until something is so; gives up with what was seen last.
pub fn wait_for<T: std::fmt::Debug>(what: &str, look: impl Fn() -> T, is_so: impl Fn(&T) -> bool) -> T {
    let start = Instant::now();
    loop {
        let seen = look();
        if is_so(&seen) {
            return seen;
        }
        assert!(start.elapsed() < TIMEOUT, "{what}: {seen:?}");
        std::thread::sleep(Duration::from_millis(200));
    }
}

/// The cluster's id of the node that has that number on this machine.
pub fn id_of(local: &Local, number: u32) -> u64 {
    let address = format!("{}:9042", local.address(number));
    let nodes = wait_for("the nodes", || ask(local, 1, "nodes"), Option::is_some).unwrap();
    let found = nodes.as_array().unwrap().iter().find(|node| node["cql_address"] == address.as_str());
    found.unwrap()["node"].as_u64().unwrap()
}

/// Of each node that is a member: its id, replicas and leaders.
pub fn loads(nodes: &Value) -> Vec<(u64, u64, u64)> {
    let number = |node: &Value, name: &str| node[name].as_u64().unwrap();
    let nodes = nodes.as_array().unwrap().iter();
    nodes.map(|node| (number(node, "node"), number(node, "replicas"), number(node, "leaders"))).collect()
}

pub fn is_quiet(local: &Local, through: u32) -> bool {
    let moves = ask(local, through, "moves").is_some_and(|moves| moves.as_array().is_some_and(Vec::is_empty));
    let status = ask(local, through, "status").unwrap_or_default();
    moves && status["balancer"]["state"] == "idle" && status["under_replicated"] == 0 && status["leaderless"] == 0
}

/// Writes rows one after another until it is stopped; a row's key is its number.
pub struct Load {
    stop: Arc<AtomicBool>,
    acknowledged: Arc<AtomicU64>,
    thread: JoinHandle<Vec<String>>,
}

impl Load {
    pub fn start(address: String) -> Self {
        Self::of(address, |key| format!("INSERT INTO ks.t (k, v) VALUES ('{key}', 0x01)"))
    }

    /// Sends the statements that `statement` makes of 0, 1, …, each once the one before has succeeded.
    pub fn of(address: String, statement: impl Fn(u64) -> String + Send + 'static) -> Self {
        let (stop, acknowledged) = (Arc::new(AtomicBool::new(false)), Arc::new(AtomicU64::new(0)));
        let (stopped, counter) = (Arc::clone(&stop), Arc::clone(&acknowledged));
        let thread = std::thread::spawn(move || {
            let mut client = Client::connect(&address).unwrap();
            let mut failures = Vec::new();
            while !stopped.load(Ordering::Relaxed) {
                let key = counter.load(Ordering::Relaxed);
                match client.query(&statement(key)) {
                    Ok(ClientResponse::Void | ClientResponse::Rows(_)) => {
                        counter.fetch_add(1, Ordering::Relaxed);
                    }
                    // The same row is written again: what is lost of it counts as lost all the same.
                    other => failures.push(format!("row {key}: {other:?}")),
                }
            }
            failures
        });
        Self { stop, acknowledged, thread }
    }

    /// Waits until so many more rows are written.
    pub fn go_on(&self, rows: u64) {
        let goal = self.acknowledged.load(Ordering::Relaxed) + rows;
        wait_for("rows", || self.acknowledged.load(Ordering::Relaxed), |written| *written >= goal);
    }

    /// Stops; checks that all acknowledged rows are there; returns the requests that failed.
    pub fn finish(self, local: &Local, through: u32) -> Vec<String> {
        let (failures, written) = self.end();
        let mut client = Client::connect(&local.address(through)).unwrap();
        let found = count(&mut client, "ks.t");
        assert!(found as u64 >= written, "{found} of {written} acknowledged rows are there");
        failures
    }

    /// Stops; the requests that failed, and how many did not.
    pub fn end(self) -> (Vec<String>, u64) {
        self.stop.store(true, Ordering::Relaxed);
        let failures = self.thread.join().unwrap();
        (failures, self.acknowledged.load(Ordering::Relaxed))
    }
}

pub fn with_table(nodes: u32, more: &[&str]) -> Local {
    with_tablets(nodes, more, 12)
}

pub fn with_tablets(nodes: u32, more: &[&str], tablets: u32) -> Local {
    let local = Local::fresh();
    local.up(nodes, more);
    local.wait_until_in_touch(nodes);
    let mut client = Client::connect(&local.address(1)).unwrap();
    client.run(CREATE_KEYSPACE);
    client.run(&format!("CREATE TABLE ks.t (k text PRIMARY KEY, v blob) WITH tablets = {tablets}"));
    local
}

#[test]
fn a_cluster_grows_and_shrinks_under_load_without_a_failed_request() {
    let local = with_table(4, &["--rf", "3"]);
    let load = Load::start(local.address(1));
    load.go_on(200);
    local.run(&["up", "--nodes", "5"]);
    wait_for(
        "the fifth node has its share",
        || ask(&local, 5, "nodes"),
        |nodes| {
            let Some(nodes) = nodes else { return false };
            let loads = loads(nodes);
            // 36 replicas and 12 leaders on five nodes.
            loads.iter().all(|(_, replicas, leaders)| (7..=8).contains(replicas) && (2..=3).contains(leaders))
        },
    );
    wait_for("nothing moves any more", || is_quiet(&local, 5), |is_quiet| *is_quiet);
    load.go_on(200);
    let (second, fourth) = (id_of(&local, 2).to_string(), id_of(&local, 4).to_string());
    admin(&local, 5, &["drain", &second, "--wait"]);
    wait_for("nothing moves any more", || is_quiet(&local, 3), |is_quiet| *is_quiet);
    assert!(refusal(&local, 3, &["remove", &fourth]).contains("drain it first"));
    admin(&local, 3, &["remove", &second]);
    wait_for("the removed node ends", || local.node(2).1, |state| state == "stopped");
    assert!(local.refusal(&["start", "2"]).contains("removed from the cluster"));
    load.go_on(200);
    expect_no_failures(&local, &load.finish(&local, 5));
    let nodes = loads(&ask(&local, 1, "nodes").unwrap());
    assert_eq!(nodes.iter().map(|(_, replicas, _)| replicas).sum::<u64>(), 36, "{nodes:?}");
    assert_eq!(nodes.len(), 4);
}

#[test]
fn a_node_killed_for_good_is_replaced_and_one_that_returns_is_not() {
    let local = with_table(4, &["--rf", "3"]);
    let load = Load::start(local.address(1));
    load.go_on(200);
    // Back before its time: nothing is copied.
    local.run(&["kill", "3"]);
    wait_for(
        "the node is missed",
        || ask(&local, 1, "status"),
        |status| {
            status
                .as_ref()
                .is_some_and(|status| status["live_nodes"] == 3 && status["under_replicated"].as_u64() > Some(0))
        },
    );
    assert_eq!(admin_output(&local, 1, &["status"]).status.code(), Some(2), "data is at risk");
    local.run(&["start", "3"]);
    wait_for("the node is back", || is_quiet(&local, 1), |is_quiet| *is_quiet);
    let log = std::fs::read_to_string(local.directory().join("node-3/log.txt")).unwrap();
    assert!(!log.contains("a copy has taken the place"), "it catches up by log");
    // Gone for longer.
    admin(&local, 2, &["set-replace-after", "2"]);
    let fourth = id_of(&local, 4);
    assert!(refusal(&local, 2, &["replace", &fourth.to_string()]).contains("is up"));
    local.run(&["kill", "4"]);
    wait_for(
        "its replicas are made anew",
        || ask(&local, 1, "nodes"),
        |nodes| nodes.as_ref().is_some_and(|nodes| loads(nodes).contains(&(fourth, 0, 0))),
    );
    wait_for("nothing is at risk", || is_quiet(&local, 1), |is_quiet| *is_quiet);
    let status = || admin_output(&local, 1, &["status"]);
    wait_for("nothing is said to be at risk", status, |status| status.status.code() == Some(0));
    load.go_on(200);
    let failures = load.finish(&local, 2);
    let allowed = |failure: &String| ["WriteTimeout", "Unavailable"].iter().any(|kind| failure.contains(kind));
    assert!(failures.iter().all(allowed), "{failures:?}");
    // It comes back, finds that it holds nothing any more, and is given its share again.
    local.run(&["start", "4"]);
    wait_for(
        "it has its share",
        || ask(&local, 4, "nodes"),
        |nodes| nodes.as_ref().is_some_and(|nodes| loads(nodes).iter().all(|(_, replicas, _)| *replicas == 9)),
    );
}

#[test]
fn losing_a_zone_leaves_every_tablet_writable() {
    let local = with_table(6, &["--rf", "3", "--zones", "3"]);
    let (tablets, nodes) = (ask(&local, 2, "tablets").unwrap(), ask(&local, 2, "nodes").unwrap());
    let zone_of = |id: &Value| {
        let node = nodes.as_array().unwrap().iter().find(|node| node["node"] == *id).unwrap();
        node["zone"].as_str().unwrap().to_owned()
    };
    for tablet in tablets.as_array().unwrap() {
        let replicas = tablet["replicas"].as_array().unwrap();
        let zones: BTreeSet<String> = replicas.iter().map(|replica| zone_of(&replica["node"])).collect();
        assert_eq!(zones.len(), 3, "one replica in each zone: {tablet}");
    }
    local.run(&["kill", "3", "6"]);
    let mut client = Client::connect(&local.address(1)).unwrap();
    for number in 0..200 {
        let statement = format!("INSERT INTO ks.t (k, v) VALUES ('{number}', 0x01)");
        wait_for("a row is written", || refused_write(&local, &statement), Option::is_none);
    }
    assert_eq!(count(&mut client, "ks.t"), 200);
    // Also a node that is only busy is missed for a moment.
    wait_for(
        "every tablet has a quorum",
        || ask(&local, 1, "status"),
        |status| status.as_ref().is_some_and(|status| status["unavailable"] == 0),
    );
}

/// What the second node says instead of that it has written.
pub fn refused_write(local: &Local, statement: &str) -> Option<String> {
    let mut client = Client::connect(&local.address(2)).unwrap();
    let answer = client.query(statement);
    (!matches!(answer, Ok(ClientResponse::Void))).then(|| format!("{answer:?}"))
}

#[test]
fn what_is_changed_while_the_catalog_changes_its_leader_is_carried_out() {
    let local = with_table(3, &["--rf", "3"]);
    for stopped in [1, 2, 3, 1, 2, 3] {
        let other = stopped % 3 + 1;
        local.run(&["stop", &stopped.to_string()]);
        admin(&local, other, &["set-rate", "50MB/s"]);
        local.run(&["start", &stopped.to_string()]);
        admin(&local, stopped, &["set-rate", "60MB/s"]);
    }
}

#[test]
fn what_would_cost_a_quorum_is_refused_and_says_why() {
    let local = with_table(3, &["--rf", "3"]);
    assert!(
        refusal(&local, 1, &["drain", "2"]).contains("keyspace ks has 3 replicas of each tablet: add a node first")
    );
    assert!(refusal(&local, 1, &["drain", "9"]).contains("there is no node"));
    assert!(refusal(&local, 1, &["table", "nope"]).contains("'nope' has no keyspace"));
    assert!(refusal(&local, 1, &["tablets", "nope.x"]).contains("there is no table nope.x"));
    assert!(refusal(&local, 1, &["tablets", "--node", "9"]).contains("there is no node n9"));
    assert!(admin(&local, 1, &["set-leader-zones", "nozone"]).contains("no node is in zone nozone"));
    assert!(admin(&local, 1, &["set-leader-zones"]).contains("anywhere"));
    assert!(refusal(&local, 1, &["set-rate", "0"]).contains("pause balancing"));
    assert!(admin(&local, 3, &["set-rate", "50MB/s"]).contains("47.7 MiB/s"));
    assert!(admin(&local, 2, &["pause", "balancing"]).contains("until balancing is resumed"));
    assert_eq!(ask(&local, 1, "status").unwrap()["balancer"]["state"], "paused");
    admin(&local, 2, &["resume", "balancing"]);
    admin(&local, 2, &["move-leaders", "1"]);
    wait_for(
        "node 1 leads nothing",
        || ask(&local, 2, "nodes"),
        |nodes| {
            nodes
                .as_ref()
                .is_some_and(|nodes| loads(nodes).iter().any(|(node, _, leaders)| (*node, *leaders) == (1, 0)))
        },
    );
    admin(&local, 2, &["move-leaders", "1", "--back"]);
    wait_for(
        "it leads its share",
        || ask(&local, 2, "nodes"),
        |nodes| nodes.as_ref().is_some_and(|nodes| loads(nodes).iter().all(|(_, _, leaders)| *leaders == 4)),
    );
    local.run(&["kill", "2", "3"]);
    wait_for("nobody answers", || ask(&local, 1, "status"), Option::is_none);
    assert!(refusal(&local, 1, &["replace", "2"]).contains("catalog"));
}
