//! Losses of power with `--durability interval`: the last writes are lost, on one node or on all, and there is no other damage.

use super::cluster::{Cluster, of_three, wait_for};
use super::*;
use std::path::{Path, PathBuf};

/// No log is synced by itself while a test runs.
const NEVER_MS: u64 = 3_600_000;

fn three() -> Cluster {
    let homes = (0..3).map(|_| tempfile::tempdir().unwrap()).collect();
    let mut cluster = Cluster::of(homes, 0, Durability::Interval(NEVER_MS));
    (1..=3).for_each(|node| cluster.start_node(node));
    (1..=3).for_each(|node| cluster.open(node, 1_000, &[1, 2, 3], &[1, 2, 3]));
    wait_for(|| cluster.leader(1_000) == Some(1));
    cluster
}

fn home(cluster: &Cluster, node: u64) -> PathBuf {
    cluster.homes[node as usize - 1].path().to_owned()
}

fn copy(from: &Path, to: &Path) {
    let _ = std::fs::remove_dir_all(to);
    std::fs::create_dir(to).unwrap();
    for file in std::fs::read_dir(from).unwrap().map(|file| file.unwrap()) {
        // A file that is being prepared may go meanwhile.
        let _ = std::fs::copy(file.path(), to.join(file.file_name()));
    }
}

/// From now on a loss of power leaves the node's log as it is at this moment.
fn make_durable(cluster: &Cluster, node: u64) {
    copy(&home(cluster, node).join("log"), &home(cluster, node).join("durable"));
}

fn lose_power(cluster: &mut Cluster, node: u64) {
    cluster.stop_node(node);
    let home = home(cluster, node);
    copy(&home.join("durable"), &home.join("log"));
    assert!(home.join("RUNNING").exists(), "the node did not stop in order");
    std::fs::write(home.join("RUNNING"), "another boot").unwrap();
}

fn start(cluster: &mut Cluster, node: u64) {
    cluster.start_node(node);
    cluster.stores[&node].open(vec![of_three(1_000)]).unwrap();
}

fn is_well(cluster: &Cluster, node: u64) -> bool {
    cluster.stores[&node].handle(TabletId(1_000)).is_some_and(|handle| !handle.is_recovering())
}

fn add(cluster: &Cluster, times: u64) {
    let before = cluster.read(1_000, 1);
    (0..times).for_each(|_| cluster.add(1_000, 1));
    wait_for(|| (1..=3).all(|node| cluster.stored(node, 1_000, 1) == before + times));
}

#[test]
fn a_node_that_has_lost_the_end_of_its_log_gets_it_back_before_it_votes() {
    let mut cluster = three();
    add(&cluster, 5);
    make_durable(&cluster, 3);
    add(&cluster, 5);
    lose_power(&mut cluster, 3);
    start(&mut cluster, 3);
    wait_for(|| is_well(&cluster, 3) && cluster.stored(3, 1_000, 1) == 10);
    // It is needed for the quorum.
    cluster.stop_node(1);
    cluster.add(1_000, 1);
    assert_eq!(cluster.read(1_000, 1), 11);
}

#[test]
fn a_node_that_has_lost_the_end_of_its_log_elects_nobody_who_lacks_it() {
    let mut cluster = three();
    add(&cluster, 5);
    make_durable(&cluster, 3);
    // Acknowledged by the first and the third.
    cluster.stop_node(2);
    (0..5).for_each(|_| cluster.add(1_000, 1));
    wait_for(|| cluster.stored(3, 1_000, 1) == 10);
    lose_power(&mut cluster, 3);
    cluster.stop_node(1);
    start(&mut cluster, 2);
    start(&mut cluster, 3);
    // Two of three are up, and know nothing of those five.
    let (_never, wait) = sync_channel::<()>(1);
    let _ = wait.recv_timeout(Duration::from_secs(3));
    assert_eq!(cluster.leader(1_000), None);
    start(&mut cluster, 1);
    assert_eq!(cluster.read(1_000, 1), 10);
    wait_for(|| is_well(&cluster, 3) && cluster.stored(3, 1_000, 1) == 10);
}

#[test]
fn when_all_nodes_lose_power_the_longest_log_wins() {
    let mut cluster = three();
    add(&cluster, 5);
    make_durable(&cluster, 1);
    make_durable(&cluster, 3);
    add(&cluster, 2);
    make_durable(&cluster, 2);
    add(&cluster, 3);
    (1..=3).for_each(|node| lose_power(&mut cluster, node));
    (1..=3).for_each(|node| start(&mut cluster, node));
    assert_eq!(cluster.read(1_000, 1), 7);
    cluster.add(1_000, 1);
    wait_for(|| (1..=3).all(|node| is_well(&cluster, node) && cluster.stored(node, 1_000, 1) == 8));
}

#[test]
fn what_was_flushed_is_not_ahead_of_the_log() {
    let mut cluster = three();
    add(&cluster, 5);
    let handle = cluster.stores[&1].handle(TabletId(1_000)).unwrap();
    let log = cluster.stores[&1].replicas.disks[0].log.clone();
    let syncs = log.syncs();
    handle.data().flush(true).unwrap();
    assert!(log.syncs() > syncs, "what a flush makes durable must be durable in the log before");
    drop((handle, log));
    // An orderly stop leaves nothing to be afraid of.
    let store = cluster.stores[&1].clone();
    store.shutdown(Duration::from_secs(10));
    drop(store);
    assert!(!home(&cluster, 1).join("RUNNING").exists());
    cluster.stop_node(1);
    start(&mut cluster, 1);
    assert!(is_well(&cluster, 1));
}
