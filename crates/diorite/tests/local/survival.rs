//! What a cluster survives and carries out while it is used: five zones, a second failure during a repair, another replication factor.

use crate::Local;
use crate::client::{Client, count};
use crate::operations::{Load, admin, ask, id_of, is_quiet, wait_for};
use serde_json::Value;
use std::collections::BTreeSet;

/// Of each tablet of the keyspace: the nodes that hold a replica.
fn holders(local: &Local, through: u32) -> Vec<BTreeSet<u64>> {
    let tablets = ask(local, through, "tablets").unwrap_or_default();
    let nodes = |tablet: &Value| {
        let replicas = tablet["replicas"].as_array().unwrap().iter();
        replicas.map(|replica| replica["node"].as_u64().unwrap()).collect()
    };
    tablets.as_array().map(|tablets| tablets.iter().map(nodes).collect()).unwrap_or_default()
}

fn with_keyspace(nodes: u32, more: &[&str], replication_factor: u32) -> Local {
    let local = Local::fresh();
    local.up(nodes, more);
    let mut client = Client::connect(&local.address(1)).unwrap();
    client.run(&format!(
        "CREATE KEYSPACE ks WITH replication = {{'class': 'SimpleStrategy', 'replication_factor': {replication_factor}}}"
    ));
    client.run("CREATE TABLE ks.t (k text PRIMARY KEY, v blob) WITH tablets = 6");
    local
}

#[test]
fn five_zones_hold_five_replicas_and_two_of_them_may_go() {
    let local = with_keyspace(5, &["--rf", "5", "--zones", "5"], 5);
    let all = holders(&local, 1);
    assert_eq!(all.len(), 6);
    assert!(all.iter().all(|nodes| nodes.len() == 5), "a replica in each zone: {all:?}");
    let zones: BTreeSet<String> = ask(&local, 1, "nodes")
        .unwrap()
        .as_array()
        .unwrap()
        .iter()
        .map(|node| node["zone"].as_str().unwrap().to_owned())
        .collect();
    assert_eq!(zones.len(), 5, "{zones:?}");
    let load = Load::start(local.address(1));
    load.go_on(100);
    local.run(&["kill", "2", "5"]);
    load.go_on(200);
    let failures = load.finish(&local, 1);
    let allowed = |failure: &String| ["WriteTimeout", "Unavailable"].iter().any(|kind| failure.contains(kind));
    assert!(failures.iter().all(allowed), "{failures:?}");
    assert_eq!(ask(&local, 1, "status").unwrap()["unavailable"], 0);
}

#[test]
fn a_second_failure_during_the_repair_that_leaves_a_quorum_loses_nothing() {
    let local = with_keyspace(6, &["--rf", "5"], 5);
    let mut client = Client::connect(&local.address(1)).unwrap();
    let value = "ab".repeat(32 << 10);
    for number in 0..60 {
        client.run(&format!("INSERT INTO ks.t (k, v) VALUES ('before {number}', 0x{value})"));
    }
    let load = Load::start(local.address(1));
    load.go_on(100);
    // Copies take so long that the second failure comes in the middle of them.
    admin(&local, 1, &["set-rate", "200KB/s"]);
    admin(&local, 1, &["set-replace-after", "2"]);
    let sixth = id_of(&local, 6);
    local.run(&["kill", "6"]);
    wait_for(
        "the repair is under way",
        || ask(&local, 1, "moves"),
        |moves| moves.as_ref().is_some_and(|moves| moves.as_array().is_some_and(|moves| !moves.is_empty())),
    );
    local.run(&["kill", "5"]);
    let under_repair = ask(&local, 1, "status").unwrap_or_default();
    assert_ne!(under_repair["under_replicated"], 0, "the second failure came during the repair: {under_repair}");
    load.go_on(200);
    admin(&local, 1, &["set-rate", "200MB/s"]);
    let failures = load.finish(&local, 2);
    let allowed = |failure: &String| ["WriteTimeout", "Unavailable"].iter().any(|kind| failure.contains(kind));
    assert!(failures.iter().all(allowed), "{failures:?}");
    let before = client.run("SELECT k FROM ks.t WHERE k > 'before' ALLOW FILTERING");
    assert_eq!(before.rows.len(), 60);
    // The fifth returns: with it every tablet is whole again, on five nodes.
    local.run(&["start", "5"]);
    wait_for(
        "every tablet has five replicas, none on the lost node",
        || holders(&local, 1),
        |all| all.len() == 6 && all.iter().all(|nodes| nodes.len() == 5 && !nodes.contains(&sixth)),
    );
    wait_for("nothing is at risk", || is_quiet(&local, 1), |is_quiet| *is_quiet);
}

#[test]
fn another_replication_factor_moves_the_data() {
    let local = with_keyspace(4, &["--rf", "1"], 1);
    let load = Load::start(local.address(1));
    load.go_on(200);
    assert!(holders(&local, 1).iter().all(|nodes| nodes.len() == 1));
    let mut client = Client::connect(&local.address(2)).unwrap();
    let alter = |client: &mut Client, factor: u32| {
        client.run(&format!(
            "ALTER KEYSPACE ks WITH replication = {{'class': 'SimpleStrategy', 'replication_factor': {factor}}}"
        ));
    };
    alter(&mut client, 3);
    wait_for(
        "three replicas of each tablet",
        || holders(&local, 1),
        |all| all.len() == 6 && all.iter().all(|nodes| nodes.len() == 3),
    );
    wait_for("nothing moves any more", || is_quiet(&local, 1), |is_quiet| *is_quiet);
    load.go_on(100);
    assert_eq!(load.finish(&local, 3), Vec::<String>::new());
    // They hold the data: it outlives any one node.
    let written = count(&mut client, "ks.t");
    local.run(&["kill", "4"]);
    let mut other = Client::connect(&local.address(3)).unwrap();
    wait_for(
        "the others serve it",
        || (0..3).filter_map(|_| other_count(&local)).max(),
        |found| *found == Some(written),
    );
    local.run(&["start", "4"]);
    wait_for("the node is back", || is_quiet(&local, 1), |is_quiet| *is_quiet);
    alter(&mut other, 1);
    wait_for(
        "one replica of each tablet",
        || holders(&local, 1),
        |all| all.len() == 6 && all.iter().all(|nodes| nodes.len() == 1),
    );
    assert_eq!(count(&mut other, "ks.t"), written);
}

/// How many rows there are, if all tablets answer.
fn other_count(local: &Local) -> Option<i64> {
    let mut client = Client::connect(&local.address(1)).ok()?;
    let answer = client.query("SELECT count(*) FROM ks.t").ok()?;
    let diorite_cql::protocol::client::ClientResponse::Rows(rows) = answer else { return None };
    Some(i64::from_be_bytes(rows.rows[0][0].as_deref()?.try_into().ok()?))
}
