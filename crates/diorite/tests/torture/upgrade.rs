//! Two releases of the program in one cluster, under load: nodes are upgraded one after another, are killed, go back
//! and are upgraded again, until the upgrade is finished. Nothing acknowledged is lost, what clients see is
//! linearizable, and they meet no error but those that say "try again".
//!
//! `DIORITE_BEFORE` is the program of the release before (`make test-upgrade` builds it); without it the test says so
//! and does nothing.
//! `DIORITE_UPGRADE_ROUNDS` says how often the cluster is upgraded and goes back (1) before the upgrade is finished;
//! `DIORITE_SEED` repeats a plan.

use crate::cluster::{Cluster, RECOVERY};
use crate::load::{Load, read_inserts};
use crate::server::get_within;
use crate::session::{KEYSPACE, TABLES};
use crate::{seed, turn};
use diorite_base::SystemClock;
use diorite_base::random::{Random, SplitMix64};
use diorite_history::{Recorder, check_acknowledged, check_linearizable};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::Arc;
use std::time::{Duration, Instant};

const NODES: usize = 3;
const REGISTER_CLIENTS: u64 = 6;
const INSERT_CLIENTS: u64 = 4;
const MOST_OPERATIONS: usize = 1_000_000;

/// What a request may be answered while a node is away: drivers try again after these, after a timeout if the request
/// is idempotent.
const ALLOWED: [&str; 4] = ["Unavailable", "WriteTimeout", "ReadTimeout", "Overloaded"];

fn after() -> PathBuf {
    PathBuf::from(env!("CARGO_BIN_EXE_diorite"))
}

/// `diorite admin` of the new program, asked of a node: whether it succeeded, and all that it said.
fn admin(cluster: &Cluster, node: usize, arguments: &[&str]) -> (bool, String) {
    let mut command = Command::new(after());
    let done = command.args(["admin", "--host", &cluster.addresses[node]]).args(arguments).output().unwrap();
    let said = [done.stdout, done.stderr].concat();
    (done.status.success(), String::from_utf8_lossy(&said).into_owned())
}

/// Waits until `finish` is refused for this reason.
fn expect_unfinished(cluster: &Cluster, node: usize, why: &str) {
    let start = Instant::now();
    loop {
        let (has_succeeded, said) = admin(cluster, node, &["upgrade", "finish"]);
        assert!(!has_succeeded, "finished, though {why}: {said}{}", cluster.logs());
        if said.contains(why) {
            return;
        }
        assert!(start.elapsed() < RECOVERY, "wanted: {why}; said: {said}{}", cluster.logs());
        std::thread::sleep(Duration::from_millis(200));
    }
}

/// Gives a node another program: it is stopped, or killed now and then.
fn replace(cluster: &Cluster, random: &mut SplitMix64, node: usize, program: &Path) {
    println!("  node {node} gets {}", program.display());
    match random.below(4) {
        0 => cluster.kill(node),
        _ => cluster.stop(node),
    }
    cluster.set_program(node, program);
    cluster.start_node(node);
    cluster.wait_for("the node to be ready", || {
        get_within(&cluster.addresses[node], "/health/ready", Duration::from_secs(2)).is_some()
    });
}

/// Something that operators and clients do meanwhile. What is refused at the moment does no harm.
fn go_on_beside(cluster: &Cluster, random: &mut SplitMix64, number: u64) {
    let node = random.below(NODES as u64) as usize;
    match random.below(4) {
        0 => {
            println!("  node {node} is killed");
            cluster.kill(node);
            cluster.start_node(node);
        }
        1 => {
            cluster.run(node, &format!("CREATE TABLE IF NOT EXISTS torture.t{number} (k bigint PRIMARY KEY, v bigint)"))
        }
        2 => {
            let id = (node + 1).to_string();
            println!("  {}", admin(cluster, node, &["move-leaders", &id]).1.trim());
            std::thread::sleep(Duration::from_millis(500));
            cluster.wait_for("leaderships to be allowed again", || {
                admin(cluster, node, &["move-leaders", &id, "--back"]).0
            });
        }
        _ => {
            let (_, tablets) = admin(cluster, node, &["tablets", "torture.inserts", "--json"]);
            let first = tablets.split("\"tablet\":").nth(1).unwrap_or_default();
            let id: String = first.chars().skip_while(|c| *c == ' ').take_while(char::is_ascii_digit).collect();
            println!("  {}", admin(cluster, node, &["split", &id]).1.trim());
        }
    }
    std::thread::sleep(Duration::from_millis(500 + random.below(1_500)));
}

/// The whole plan, while clients are at work.
fn upgrade(cluster: &Cluster, random: &mut SplitMix64, before: &Path) {
    let rounds: u64 = std::env::var("DIORITE_UPGRADE_ROUNDS").ok().map_or(1, |text| text.parse().unwrap());
    for round in 0..rounds {
        for node in 0..NODES {
            replace(cluster, random, node, &after());
            go_on_beside(cluster, random, round * 10 + node as u64);
        }
        // All can go on; each may still go back.
        let back = random.below(NODES as u64) as usize;
        replace(cluster, random, back, before);
        expect_unfinished(cluster, (back + 1) % NODES, &format!("the program of node {} knows level 1", back + 1));
        go_on_beside(cluster, random, round * 10 + 5);
        replace(cluster, random, back, &after());
    }
    let down = random.below(NODES as u64) as usize;
    cluster.kill(down);
    expect_unfinished(cluster, (down + 1) % NODES, &format!("node {} is down", down + 1));
    cluster.start_node(down);
    let start = Instant::now();
    loop {
        let (has_succeeded, said) = admin(cluster, down, &["upgrade", "finish"]);
        println!("  {}", said.trim());
        if has_succeeded {
            break;
        }
        assert!(start.elapsed() < RECOVERY, "{said}{}", cluster.logs());
        std::thread::sleep(Duration::from_millis(300));
    }
    let (_, status) = admin(cluster, down, &["upgrade", "status", "--json"]);
    assert!(status.contains("\"level\": 2"), "{status}");
    // From now on the program of the release before changes nothing.
    let refused = (down + 1) % NODES;
    cluster.stop(refused);
    cluster.set_program(refused, before);
    let said = cluster.refusal(refused);
    assert!(said.contains("has format 2") && said.contains("start a newer diorite"), "{said}");
    cluster.set_program(refused, &after());
    cluster.start_node(refused);
    go_on_beside(cluster, random, 99);
}

#[test]
fn a_cluster_is_upgraded_under_load_goes_back_and_is_finished() {
    let Some(before) = std::env::var_os("DIORITE_BEFORE").map(PathBuf::from) else {
        println!(
            "SKIPPED: DIORITE_BEFORE does not name the program of the release before (make test-upgrade builds it)"
        );
        return;
    };
    let _turn = turn();
    let mut random = SplitMix64::new(seed());
    let cluster = Cluster::start_as(&before, NODES, &[]);
    cluster.run(0, KEYSPACE);
    TABLES.iter().for_each(|table| cluster.run(1, table));
    let recorder = Recorder::new(Arc::new(SystemClock::new()), MOST_OPERATIONS);
    let load = Load::new(&cluster, &recorder);
    std::thread::scope(|scope| {
        let _stop = load.stop_when_dropped();
        for client in 0..REGISTER_CLIENTS {
            let (load, random) = (&load, SplitMix64::new(random.next_u64()));
            scope.spawn(move || load.work_on_registers(client as u32, random));
        }
        for client in 0..INSERT_CLIENTS {
            let (load, random) = (&load, SplitMix64::new(random.next_u64()));
            scope.spawn(move || load.insert_rows(client, random));
        }
        upgrade(&cluster, &mut random, &before);
        std::thread::sleep(Duration::from_secs(2));
    });
    let inserts = load.inserts.lock().unwrap().clone();
    let acknowledged = inserts.iter().filter(|insert| insert.acknowledged).count();
    println!("  {acknowledged} inserts acknowledged, {} operations on registers", recorder.operations().len());
    assert!(acknowledged > 100, "the cluster hardly answered");
    for node in 0..NODES {
        let verdict = check_acknowledged(&inserts, &read_inserts(&cluster, node));
        assert!(verdict.is_ok(), "asked of node {node}: {}{}", verdict.unwrap_err(), cluster.logs());
    }
    if let Err(violation) = check_linearizable(&recorder.operations()) {
        panic!("{violation}{}", cluster.logs());
    }
    let errors = load.errors.lock().unwrap().clone();
    assert!(errors.keys().all(|error| ALLOWED.contains(&error.as_str())), "clients met {errors:?}{}", cluster.logs());
}
