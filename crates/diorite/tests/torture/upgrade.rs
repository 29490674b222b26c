//! Two releases of the program in one cluster, under load: nodes are upgraded one after another, are killed, go back
//! and are upgraded again, until the upgrade is finished; beside that all that [`beside`] does. Nothing acknowledged is
//! lost, what clients see is linearizable, and they meet no error but those that say "try again".
//!
//! `DIORITE_BEFORE` is the program of the release before (`make test-upgrade` builds it); without it the test says so
//! and does nothing. `DIORITE_UPGRADE_ROUNDS` says how often the cluster is upgraded and goes back (1) before the
//! upgrade is finished; `DIORITE_SEED` repeats a plan.

mod beside;

use crate::cluster::{Cluster, RECOVERY};
use crate::load::{Load, read_inserts};
use crate::server::get_within;
use crate::session::{KEYSPACE, TABLES};
use crate::{seed, turn};
use beside::Beside;
use diorite_base::SystemClock;
use diorite_base::random::{Random, SplitMix64};
use diorite_history::{Recorder, check_acknowledged, check_linearizable};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::Arc;
use std::time::{Duration, Instant};

/// One more than replicas, so that these can move.
const NODES: usize = 4;
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

/// Waits until `finish` is refused for this reason. While the old program leads the catalog nobody answers about
/// upgrades: its node is restarted then.
fn expect_unfinished(cluster: &Cluster, node: usize, why: &str, old: Option<usize>) {
    let mut restarted = Instant::now();
    let start = Instant::now();
    loop {
        let (has_succeeded, said) = admin(cluster, node, &["upgrade", "finish"]);
        assert!(!has_succeeded, "finished, though {why}: {said}{}", cluster.logs());
        if said.contains(why) {
            return;
        }
        assert!(start.elapsed() < RECOVERY, "wanted: {why}; said: {said}{}", cluster.logs());
        let leads = said.contains("does not know the question yet") && restarted.elapsed() > Duration::from_secs(5);
        if let Some(old) = old.filter(|_| leads) {
            println!("    node {old} leads the catalog with the old program, and is restarted");
            cluster.stop(old);
            cluster.start_node(old);
            restarted = Instant::now();
        }
        std::thread::sleep(Duration::from_millis(200));
    }
}

/// Gives a node another program: it is stopped, or killed now and then, while a link between others may be broken.
fn replace(cluster: &Cluster, random: &mut SplitMix64, beside: &mut Beside<'_>, node: usize, program: &Path) {
    println!("  node {node} gets {}", program.display());
    let is_broken = random.below(3) == 0;
    if is_broken {
        beside.break_a_link_beside(node);
    }
    match random.below(4) {
        0 => cluster.kill(node),
        _ => cluster.stop(node),
    }
    cluster.set_program(node, program);
    cluster.start_node(node);
    if is_broken {
        std::thread::sleep(Duration::from_millis(random.below(3_000)));
        beside.mend();
    }
    cluster.wait_for("the node to be ready", || {
        get_within(&cluster.addresses[node], "/health/ready", Duration::from_secs(2)).is_some()
    });
}

/// The status names the release of each node's program: this one's, except for one node.
fn expect_releases(cluster: &Cluster, old: usize) {
    cluster.wait_for("all programs to be known", || {
        let (_, said) = admin(cluster, (old + 1) % NODES, &["upgrade", "status", "--json"]);
        let status: serde_json::Value = serde_json::from_str(&said).unwrap_or_default();
        let programs = status["nodes"].as_array().map_or(&[][..], Vec::as_slice).iter().map(|node| &node["program"]);
        programs
            .enumerate()
            .filter(|(node, program)| **program == if *node == old { "0.2.0" } else { env!("CARGO_PKG_VERSION") })
            .count()
            == NODES
    });
}

/// A hold outlasts everything until it is ended, and then nothing is held any more.
fn hold_and_resume(cluster: &Cluster, beside: &mut Beside<'_>) {
    let wait_for = |what: &str, state: &str| {
        cluster.wait_for(&format!("`upgrade {what}` to be accepted"), || admin(cluster, 1, &["upgrade", what]).0);
        cluster.wait_for(&format!("the state {state}"), || {
            admin(cluster, 2, &["upgrade", "status", "--json"]).1.contains(&format!("\"state\": \"{state}\""))
        });
    };
    wait_for("hold", "held");
    beside.go_on();
    wait_for("resume", "ready");
    // While nobody leads the catalog, which a busy machine may cause, another reason is given.
    cluster.wait_for("a second `upgrade resume` to be refused", || {
        let (has_succeeded, said) = admin(cluster, 0, &["upgrade", "resume"]);
        assert!(!has_succeeded, "{said}");
        said.contains("no operator holds")
    });
}

/// The whole plan, while clients are at work.
fn upgrade(cluster: &Cluster, random: &mut SplitMix64, before: &Path, beside: &mut Beside<'_>) {
    let rounds: u64 = std::env::var("DIORITE_UPGRADE_ROUNDS").ok().map_or(1, |text| text.parse().unwrap());
    for round in 0..rounds {
        // Some go back, perhaps all of them.
        for node in (0..NODES).filter(|_| round > 0) {
            if random.below(2) == 0 {
                replace(cluster, random, beside, node, before);
                beside.go_on();
            }
        }
        for node in 0..NODES {
            replace(cluster, random, beside, node, &after());
            beside.go_on();
            beside.go_on();
        }
        // All can go on; each may still go back.
        let back = random.below(NODES as u64) as usize;
        replace(cluster, random, beside, back, before);
        let why = format!("the program of node {} knows level 1", back + 1);
        expect_unfinished(cluster, (back + 1) % NODES, &why, Some(back));
        expect_releases(cluster, back);
        beside.go_on();
        beside.go_on();
        replace(cluster, random, beside, back, &after());
    }
    hold_and_resume(cluster, beside);
    let down = random.below(NODES as u64) as usize;
    cluster.kill(down);
    expect_unfinished(cluster, (down + 1) % NODES, &format!("node {} is down", down + 1), None);
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
    cluster.wait_for("the status to name the new level", || {
        admin(cluster, down, &["upgrade", "status", "--json"]).1.contains("\"level\": 2")
    });
    // From now on the program of the release before changes nothing.
    let refused = (down + 1) % NODES;
    cluster.stop(refused);
    cluster.set_program(refused, before);
    let said = cluster.refusal(refused);
    assert!(said.contains("has format 2") && said.contains("start a newer diorite"), "{said}");
    cluster.set_program(refused, &after());
    cluster.start_node(refused);
    beside.go_on();
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
    let mut beside = Beside::new(&cluster, SplitMix64::new(random.next_u64()));
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
        upgrade(&cluster, &mut random, &before, &mut beside);
        std::thread::sleep(Duration::from_secs(2));
    });
    beside.check();
    beside.expect_all_kinds();
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
