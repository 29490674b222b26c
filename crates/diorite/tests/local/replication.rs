//! `ALTER KEYSPACE … WITH replication` moves the data: replicas come and go while the table is written, and hold it.

use crate::Local;
use crate::busy::expect_no_failures;
use crate::client::{Client, count};
use crate::operations::{Load, ask, is_quiet, wait_for};
use diorite_cql::protocol::client::ClientResponse;
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

#[test]
fn another_replication_factor_moves_the_data() {
    let local = Local::fresh();
    local.up(4, &["--rf", "1"]);
    let mut first = Client::connect(&local.address(1)).unwrap();
    first.run("CREATE KEYSPACE ks WITH replication = {'class': 'SimpleStrategy', 'replication_factor': 1}");
    first.run("CREATE TABLE ks.t (k text PRIMARY KEY, v blob) WITH tablets = 6");
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
    expect_no_failures(&local, &load.finish(&local, 3));
    // They hold the data: it outlives any one node.
    let written = count(&mut client, "ks.t");
    local.run(&["kill", "4"]);
    let mut other = Client::connect(&local.address(3)).unwrap();
    wait_for("the others serve it", || (0..3).filter_map(|_| rows(&local)).max(), |found| *found == Some(written));
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
fn rows(local: &Local) -> Option<i64> {
    let mut client = Client::connect(&local.address(1)).ok()?;
    let answer = client.query("SELECT count(*) FROM ks.t").ok()?;
    let ClientResponse::Rows(rows) = answer else { return None };
    Some(i64::from_be_bytes(rows.rows[0][0].as_deref()?.try_into().ok()?))
}
