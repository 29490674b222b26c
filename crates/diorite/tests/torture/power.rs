//! Loss of power with real processes: what nodes had not synced is gone, on one of three, on two, and on all at one moment.
//!
//! The disks of all nodes lie on one medium. The nodes that lose power are stopped, the medium is frozen, and what its images hold at that moment is what they start
//! again with, as on a machine that was started anew (see `crate::disks`).
//!
//! Always true: every acknowledged write is there afterwards, and replicas agree. Nothing here depends on time.

use crate::cluster::Cluster;
use crate::disks::{Disk, Medium, skip};
use crate::follower_reads::wait_until_held;
use crate::load::{Load, read_inserts};
use crate::session::{KEYSPACE, TABLES};
use crate::{seed, turn};
use diorite_base::SystemClock;
use diorite_base::random::{Random, SplitMix64};
use diorite_history::{Insert, Recorder, check_acknowledged};
use std::collections::BTreeMap;
use std::sync::{Arc, Mutex};
use std::time::Duration;

const NODES: usize = 3;
const CLIENTS: u64 = 6;
const DISK_MEGABYTES: u64 = 900;

/// How many nodes lose power, by round.
const LOSSES: [usize; 4] = [1, 2, 3, 3];

/// Acknowledged writes of each round before the power is lost.
const WRITES: usize = 300;

/// Nodes on disks that can lose power. The order is that in which they can go.
struct Machines {
    cluster: Cluster,
    disks: Vec<Mutex<Disk>>,
    medium: Medium,
    copies: tempfile::TempDir,
}

impl Machines {
    /// `None` where that takes rights that the test does not have.
    fn start() -> Option<Self> {
        let copies = tempfile::tempdir().unwrap();
        let medium = Medium::new(copies.path(), "medium", NODES as u64 * DISK_MEGABYTES + 200)?;
        let disks = (0..NODES).map(|node| medium.disk(&format!("disk-{node}"), DISK_MEGABYTES));
        let disks: Vec<Disk> = disks.collect::<Option<_>>()?;
        let data = disks.iter().map(|disk| disk.path().join("data")).collect();
        let options = ["--replay-limit", "1MiB", "--memory-limit", "96MiB", "--disk-reserve", "1MiB"];
        let cluster = Cluster::start_on(data, &options);
        let disks = disks.into_iter().map(Mutex::new).collect();
        Some(Self { cluster, disks, medium, copies })
    }

    /// All of them lose power at one moment, and are started again.
    fn lose_power(&self, nodes: &[usize]) {
        // From here on they acknowledge nothing.
        nodes.iter().for_each(|node| self.cluster.pause(*node));
        let frozen = self.medium.freeze();
        let copy = |node: usize| self.copies.path().join(format!("copy-{node}"));
        for node in nodes {
            self.disks[*node].lock().unwrap().copy(&frozen, &copy(*node));
            self.cluster.begin_kill(*node);
        }
        drop(frozen);
        for node in nodes {
            self.cluster.kill(*node);
            self.disks[*node].lock().unwrap().restore(&copy(*node));
        }
        nodes.iter().for_each(|node| self.cluster.start_node(*node));
    }

    /// Writes, and loses the power of some nodes meanwhile. Returns the inserts.
    fn write_and_lose_power(&self, first_client: u64, lost: &[usize], random: &mut SplitMix64) -> Vec<Insert> {
        let recorder = Recorder::new(Arc::new(SystemClock::new()), 0);
        let load = Load::new(&self.cluster, &recorder);
        let ended = || load.inserts.lock().unwrap().len();
        let pause = Duration::from_millis(random.below(300));
        std::thread::scope(|scope| {
            let _stop = load.stop_when_dropped();
            for client in 0..CLIENTS {
                let (load, random) = (&load, SplitMix64::new(random.next_u64()));
                scope.spawn(move || load.insert_rows(first_client + client, random));
            }
            self.cluster.wait_for("acknowledged writes", || ended() >= WRITES);
            std::thread::sleep(pause);
            self.lose_power(lost);
        });
        load.inserts.into_inner().unwrap()
    }
}

/// Some nodes, of which any may be among them.
fn choose(count: usize, random: &mut SplitMix64) -> Vec<usize> {
    let first = random.below(NODES as u64) as usize;
    (first..first + count).map(|node| node % NODES).collect()
}

#[test]
fn nothing_acknowledged_is_lost_with_the_power_of_one_two_or_all_nodes() {
    let _turn = turn();
    let Some(machines) = Machines::start() else {
        skip("disks that lose power need root and loop devices");
        return;
    };
    let cluster = &machines.cluster;
    cluster.run(0, KEYSPACE);
    TABLES.iter().for_each(|table| cluster.run(1, table));
    cluster.run(2, "ALTER TABLE torture.inserts WITH follower_read_staleness_ms = 60000");
    let mut random = SplitMix64::new(seed());
    let mut inserts: Vec<Insert> = Vec::new();
    for (round, count) in LOSSES.into_iter().enumerate() {
        let lost = choose(count, &mut random);
        inserts.extend(machines.write_and_lose_power(100 * round as u64, &lost, &mut random));
        let acknowledged = inserts.iter().filter(|insert| insert.acknowledged).count();
        println!("power lost on {lost:?}: {acknowledged} of {} acknowledged so far", inserts.len());
        let mut found = BTreeMap::new();
        for node in 0..NODES {
            found = read_inserts(cluster, node);
            let verdict = check_acknowledged(&inserts, &found);
            assert!(verdict.is_ok(), "asked of node {node}: {}{}", verdict.unwrap_err(), cluster.logs());
        }
        let keys: Vec<u64> = inserts.iter().map(|insert| insert.key).collect();
        let held: Vec<Option<u64>> = keys.iter().map(|key| found.get(key).copied()).collect();
        (0..NODES).for_each(|node| wait_until_held(cluster, node, "torture.inserts", &keys, &held));
    }
}
