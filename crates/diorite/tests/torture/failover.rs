//! The node that leads most tablets is killed under load, again and again: nothing acknowledged is lost, clients meet no error but those that say "try
//! again", and the node catches up from the others' logs.
//!
//! How long it takes until every tablet takes writes again is printed as one line of JSON and not asserted: a time is a benchmark's figure.

use crate::client::Client;
use crate::cluster::{Cluster, RECOVERY};
use crate::follower_reads::wait_until_followed;
use crate::load::{Load, read_inserts};
use crate::session::{KEYSPACE, TABLES, prepare};
use crate::{seed, turn};
use diorite_base::SystemClock;
use diorite_base::random::{Random, SplitMix64};
use diorite_cql::protocol::client::ClientResponse;
use diorite_cql::protocol::{Consistency, Value};
use diorite_history::{Recorder, check_acknowledged};
use std::io;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

const KILLS: usize = 10;
const CLIENTS: u64 = 8;

/// Enough that every tablet has some.
const PROBES: u64 = 250;

/// What a write may be answered while its leader is being replaced: drivers try again after the first, and after the second if the write is idempotent.
const ALLOWED: [&str; 2] = ["Unavailable", "WriteTimeout"];

/// Writes every probe through one node until all are acknowledged.
fn probe(cluster: &Cluster, node: usize) -> io::Result<()> {
    let mut client = Client::connect_within(&cluster.addresses[node], Duration::from_secs(5))?;
    let insert = prepare(&mut client, "INSERT INTO torture.registers (k, v) VALUES (?, 1)")?;
    let send = |client: &mut Client, key: u64| {
        client.execute(key as i16, &insert.id, &[Value::Set(&key.to_be_bytes())]);
    };
    (0..PROBES).for_each(|key| send(&mut client, key));
    client.flush()?;
    let mut open = PROBES;
    while open > 0 {
        match client.receive()? {
            (_, ClientResponse::Void) => open -= 1,
            (key, ClientResponse::Error(_)) => {
                send(&mut client, key as u64);
                client.flush()?;
            }
            (_, other) => panic!("{other:?}"),
        }
    }
    Ok(())
}

/// A node that was away for so short a time was not given a copy since it started.
fn expect_no_copy(cluster: &Cluster, node: usize) {
    let mut copied_bytes = None;
    cluster.wait_for("the node's metrics", || {
        copied_bytes = cluster.metric(node, "diorite_node_received_bytes_total", "lane=\"bulk\"");
        copied_bytes.is_some()
    });
    assert_eq!(copied_bytes, Some(0), "node {node} was given a copy{}", cluster.logs());
}

/// Kills the node that leads most and waits until every tablet takes writes; then brings the node back.
fn kill_leader(cluster: &Cluster) -> Duration {
    let mut leader = None;
    cluster.wait_for("a node that leads", || {
        leader = cluster.leader_of_most();
        leader.is_some()
    });
    let leader = leader.expect("waited for");
    expect_no_copy(cluster, leader);
    cluster.kill(leader);
    let killed = Instant::now();
    while let Err(error) = probe(cluster, (leader + 1) % cluster.len()) {
        assert!(killed.elapsed() < RECOVERY, "{error}{}", cluster.logs());
    }
    let took = killed.elapsed();
    cluster.start_node(leader);
    cluster.wait_for("the killed node to take writes", || probe(cluster, leader).is_ok());
    took
}

#[test]
fn nothing_acknowledged_is_lost_when_the_leading_node_is_killed_under_load() {
    let _turn = turn();
    let mut random = SplitMix64::new(seed());
    let cluster = Cluster::start(3, &[]);
    cluster.run(0, KEYSPACE);
    TABLES.iter().for_each(|table| cluster.run(1, table));
    cluster.run(1, "ALTER TABLE torture.registers WITH follower_read_staleness_ms = 60000");
    let recorder = Recorder::new(Arc::new(SystemClock::new()), 0);
    let load = Load::new(&cluster, &recorder);
    let mut times: Vec<Duration> = std::thread::scope(|scope| {
        for client in 0..CLIENTS {
            let (load, random) = (&load, SplitMix64::new(random.next_u64()));
            scope.spawn(move || load.insert_rows(client, random));
        }
        let stop = load.stop_when_dropped();
        let times = (0..KILLS).map(|_| {
            std::thread::sleep(Duration::from_millis(1_000));
            kill_leader(&cluster)
        });
        let times = times.collect();
        drop(stop);
        times
    });
    let inserts = load.inserts.lock().unwrap().clone();
    let acknowledged = inserts.iter().filter(|insert| insert.acknowledged).count();
    assert!(acknowledged > 20, "the cluster hardly answered");
    for node in 0..cluster.len() {
        let verdict = check_acknowledged(&inserts, &read_inserts(&cluster, node));
        assert!(verdict.is_ok(), "asked of node {node}: {}{}", verdict.unwrap_err(), cluster.logs());
    }
    // Each node has been killed or has seen others killed. Its own replicas answer, so they hold what was written while it was away, from logs.
    let probes: Vec<u64> = (0..PROBES).collect();
    for node in 0..cluster.len() {
        wait_until_followed(&cluster, node, "torture.registers", &probes, Consistency::One);
        expect_no_copy(&cluster, node);
    }
    let errors = load.errors.lock().unwrap().clone();
    assert!(errors.keys().all(|error| ALLOWED.contains(&error.as_str())), "clients met {errors:?}{}", cluster.logs());
    times.sort_unstable();
    let milliseconds: Vec<u128> = times.iter().map(Duration::as_millis).collect();
    println!(
        "{{\"benchmark\":\"failover\",\"kills\":{KILLS},\"median_ms\":{},\"times_ms\":{milliseconds:?},\
         \"acknowledged\":{acknowledged},\"refused\":{},\"timed_out_or_disconnected\":{}}}",
        milliseconds[KILLS / 2],
        load.refused.load(Ordering::Relaxed),
        load.unknown.load(Ordering::Relaxed)
    );
}
