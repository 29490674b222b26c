//! The long run: a load on a cluster, faults of all kinds, and then the question whether what clients saw can be.
//!
//! `DIORITE_TORTURE_MINUTES` says for how long (3), `DIORITE_SEED` repeats a run's faults and requests; when exactly they meet, the machine
//! decides. Three nodes and five take turns, each on a fresh cluster.

use crate::cluster::Cluster;
use crate::faults::Nemesis;
use crate::load::{KEYS, Load, read_inserts};
use crate::session::{KEYSPACE, Session, TABLES};
use crate::{seed, turn};
use diorite_base::SystemClock;
use diorite_base::random::{Random, SplitMix64};
use diorite_history::{
    Action, Insert, Operation, Outcome, Recorder, Request, Violation, check_acknowledged, check_linearizable,
};
use std::sync::Arc;
use std::time::{Duration, Instant};

const REGISTER_CLIENTS: u64 = 10;
const INSERT_CLIENTS: u64 = 3;

/// Operations of one round: more than its clients can ask for.
const MOST_OPERATIONS: usize = 4_000_000;

/// One cluster is tortured for no longer than this.
const LONGEST_ROUND: Duration = Duration::from_secs(240);

#[test]
fn what_clients_see_of_a_tortured_cluster_is_linearizable_and_nothing_is_lost() {
    let _turn = turn();
    let minutes = std::env::var("DIORITE_TORTURE_MINUTES").ok().map_or(3.0, |text| text.parse().unwrap());
    let total = Duration::from_secs_f64(minutes * 60.0);
    let rounds = (total.as_secs_f64() / LONGEST_ROUND.as_secs_f64()).ceil().max(2.0) as u32;
    let seed = seed();
    for round in 0..rounds {
        let nodes = if round % 2 == 0 { 3 } else { 5 };
        let random = SplitMix64::new(seed.wrapping_add(u64::from(round)));
        println!("round {}: {nodes} nodes for {:?}", round + 1, total / rounds);
        torture(nodes, total / rounds, random);
    }
}

fn torture(nodes: usize, duration: Duration, mut random: SplitMix64) {
    // Small limits, so that faults also meet flushes and log truncation.
    let cluster = Cluster::start(nodes, &["--replay-limit", "1MiB", "--memory-limit", "96MiB"]);
    cluster.run(0, KEYSPACE);
    TABLES.iter().for_each(|table| cluster.run(nodes - 1, table));
    let recorder = Recorder::new(Arc::new(SystemClock::new()), MOST_OPERATIONS);
    let load = Load::new(&cluster, &recorder);
    let done = std::thread::scope(|scope| {
        let _stop = load.stop_when_dropped();
        for client in 0..REGISTER_CLIENTS {
            let random = SplitMix64::new(random.next_u64());
            let load = &load;
            scope.spawn(move || load.work_on_registers(client as u32, random));
        }
        for client in 0..INSERT_CLIENTS {
            let random = SplitMix64::new(random.next_u64());
            let load = &load;
            scope.spawn(move || load.insert_rows(client, random));
        }
        Nemesis::new(&cluster, SplitMix64::new(random.next_u64())).run(Instant::now() + duration)
    });
    println!("  done: {done:?}");
    read_all(&load);
    judge(&load);
}

/// A healed cluster answers everything again: a write and a read of each register through each node, recorded like all others.
fn read_all(load: &Load<'_>) {
    for node in 0..load.cluster.len() {
        for key in 0..KEYS {
            for is_write in [true, false] {
                load.cluster.wait_for(&format!("node {node} to answer for key {key}"), || {
                    let request = if is_write { Request::Write(Some(load.fresh_value())) } else { Request::Read };
                    let Ok(mut session) = Session::connect(&load.cluster.addresses[node], Duration::from_secs(10))
                    else {
                        return false;
                    };
                    let ticket =
                        load.recorder.begin(1_000 + node as u32, key, request).expect("room for the last operations");
                    let outcome = session.ask(key, request).unwrap_or(Outcome::Unknown);
                    load.recorder.finish(ticket, outcome);
                    matches!(outcome, Outcome::Done | Outcome::Found(_))
                });
            }
        }
    }
}

fn judge(load: &Load<'_>) {
    let inserts = load.inserts.lock().unwrap().clone();
    let operations = load.recorder.operations();
    let unknown = operations.iter().filter(|op| op.is_unknown()).count();
    let acknowledged = inserts.iter().filter(|insert| insert.acknowledged).count();
    println!(
        "  {} operations on registers, {unknown} of unknown outcome; {} inserts, {acknowledged} acknowledged",
        operations.len(),
        inserts.len()
    );
    assert!(operations.len() - unknown > 100 && acknowledged > 20, "the cluster hardly answered");
    let nodes = load.cluster.len();
    let passed_bytes = |(from, to)| load.cluster.network.passed_bytes(from, to);
    let mut links = (0..nodes).flat_map(|from| (0..nodes).map(move |to| (from, to))).filter(|(from, to)| from != to);
    assert!(links.all(|link| passed_bytes(link) > 0), "nodes spoke to each other past the relays");
    let last = nodes - 1;
    for node in 0..nodes {
        let mut found = read_inserts(load.cluster, node);
        let verdict = check_acknowledged(&inserts, &found);
        assert!(verdict.is_ok(), "asked of node {node}: {}{}", verdict.unwrap_err(), load.cluster.logs());
        if node == last {
            let lost = inserts.iter().find(|insert: &&Insert| insert.acknowledged).unwrap();
            found.remove(&lost.key);
            assert!(check_acknowledged(&inserts, &found).is_err(), "a planted lost write is found");
        }
    }
    if let Err(violation) = check_linearizable(&operations) {
        panic!("{violation}{}", load.cluster.logs());
    }
    let planted = with_stale_read(operations);
    assert!(
        matches!(check_linearizable(&planted), Err(Violation::NotLinearizable { .. })),
        "a planted stale read is found"
    );
}

/// The history with one more read at its end, of a value that was overwritten long ago.
fn with_stale_read(mut operations: Vec<Operation>) -> Vec<Operation> {
    let is_write = |op: &&Operation| matches!(op.action, Action::Write(_)) && !op.is_unknown() && op.key == 0;
    let old = *operations.iter().find(is_write).expect("a write of the first key");
    let end_ns = operations.iter().filter_map(|op| op.end_ns).max().unwrap_or(0);
    let read = Action::Read(old.produces().expect("a write"));
    operations.push(Operation { start_ns: end_ns + 1, end_ns: Some(end_ns + 2), action: read, ..old });
    operations
}
