//! Two losses, one after the other, with five replicas: a quorum is left, so nothing stops and nothing is lost.

use crate::client::{Client, count};
use crate::operations::{
    Load, TIMEOUT, admin, admin_output, ask, id_of, is_quiet, loads, refused_write, wait_for, with_table,
};
use crate::{Local, server};
use serde_json::Value;
use std::collections::BTreeSet;
use std::time::{Duration, Instant};

#[test]
fn five_zones_with_five_replicas_do_without_two_of_them() {
    let local = with_table(5, &["--rf", "5", "--zones", "5"]);
    let nodes = ask(&local, 1, "nodes").unwrap();
    let zones: BTreeSet<&str> = nodes.as_array().unwrap().iter().map(|node| node["zone"].as_str().unwrap()).collect();
    assert_eq!(zones.len(), 5, "{nodes}");
    for tablet in ask(&local, 2, "tablets").unwrap().as_array().unwrap() {
        let holders: BTreeSet<u64> =
            tablet["replicas"].as_array().unwrap().iter().map(|replica| replica["node"].as_u64().unwrap()).collect();
        assert_eq!(holders.len(), 5, "one replica in each zone: {tablet}");
    }
    local.run(&["kill", "4", "5"]);
    for number in 0..100 {
        let statement = format!("INSERT INTO ks.t (k, v) VALUES ('{number}', 0x01)");
        wait_for("a row is written", || refused_write(&local, &statement), Option::is_none);
    }
    assert_eq!(count(&mut Client::connect(&local.address(1)).unwrap(), "ks.t"), 100);
}

#[test]
fn a_cluster_that_has_just_been_started_can_do_without_its_first_node() {
    let local = Local::fresh();
    local.up(3, &["--rf", "3"]);
    local.run(&["kill", "1"]);
    let is_changed = || admin_output(&local, 2, &["set-rate", "50MB/s"]).status.success();
    wait_for("the catalog takes a change", is_changed, |is_changed| *is_changed);
}

#[test]
fn a_second_failure_during_the_repair_of_the_first_loses_nothing() {
    let local = with_table(7, &["--rf", "5"]);
    let ids: Vec<u64> = (1..=7).map(|number| id_of(&local, number)).collect();
    let load = Load::start(local.address(1));
    load.go_on(300);
    admin(&local, 1, &["set-replace-after", "1"]);
    local.run(&["kill", "7"]);
    // The moment at which replicas are on their way: one of the nodes that they go to is lost.
    let start = Instant::now();
    let destination = loop {
        // Not by `diorite admin`: on a busy machine a move may be over before that process has come as far as to ask.
        let moves = server::get(&local.address(1), "/api/v1/moves");
        let moves: Value = moves.and_then(|moves| serde_json::from_str(&moves).ok()).unwrap_or_default();
        let destinations = moves.as_array().into_iter().flatten().filter_map(destination);
        let lost = destinations.filter_map(|node| ids.iter().position(|id| *id == node)).find(|at| (2..6).contains(at));
        if let Some(at) = lost {
            break at as u32 + 1;
        }
        assert!(start.elapsed() < TIMEOUT, "nothing is repaired: {moves}");
        std::thread::sleep(Duration::from_millis(10));
    };
    local.run(&["kill", &destination.to_string()]);
    load.go_on(200);
    let gone = [ids[6], ids[destination as usize - 1]];
    wait_for(
        "both are replaced",
        || ask(&local, 1, "nodes"),
        |nodes| nodes.as_ref().is_some_and(|nodes| gone.iter().all(|node| loads(nodes).contains(&(*node, 0, 0)))),
    );
    wait_for("nothing is at risk", || is_quiet(&local, 1), |is_quiet| *is_quiet);
    let failures = load.finish(&local, 2);
    let allowed = |failure: &String| ["WriteTimeout", "Unavailable"].iter().any(|kind| failure.contains(kind));
    assert!(failures.iter().all(allowed), "{failures:?}");
}

/// The node that a replica is on its way to.
fn destination(moving: &Value) -> Option<u64> {
    moving["to"].as_u64()
}
