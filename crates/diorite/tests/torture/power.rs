//! Loss of power with real processes: what nodes had not synced is gone, on one of three, on two, and on all at one moment.
//!
//! The disks of all nodes lie on one medium. The nodes that lose power are stopped, the medium is frozen, and what its images hold at that moment is what they start
//! again with, as on a machine that was started anew (see `crate::disks`).
//!
//! Always true: every acknowledged write is there afterwards, and replicas agree; where the log is synced by intervals, every write that was acknowledged long before the power was lost,
//! or of which one node lost its power only. How long that is must be some intervals, and is the only time on which something depends here.

use crate::cluster::{Cluster, RECOVERY};
use crate::disks::{Disk, Medium, skip};
use crate::follower_reads::wait_until_held;
use crate::load::{Load, StopWhenDropped, read_inserts};
use crate::rows::judge;
use crate::rows::load::{Rows, TABLES as ROW_TABLES};
use crate::session::{KEYSPACE, TABLES};
use crate::{seed, turn};
use diorite_base::SystemClock;
use diorite_base::random::{Random, SplitMix64};
use diorite_history::{Insert, Recorder, check_acknowledged};
use std::collections::{BTreeMap, BTreeSet};
use std::sync::atomic::Ordering;
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

const NODES: usize = 3;
const CLIENTS: u64 = 6;
/// Beside them: clients that write rows of all kinds.
const ROW_CLIENTS: u32 = 4;
const DISK_MEGABYTES: u64 = 900;

/// How many nodes lose power, by round.
const LOSSES: [usize; 4] = [1, 2, 3, 3];

/// Acknowledged writes of each round before the power is lost.
const WRITES: usize = 300;

/// The interval after which the log is synced.
const INTERVAL: [&str; 2] = ["--durability", "interval:100ms"];
/// What was acknowledged longer ago is durable, however long a sync takes, and though no process of a busy machine may have
/// been scheduled for some seconds.
const OLD: Duration = Duration::from_secs(15);

/// Nodes on disks that can lose power. The order is that in which they can go.
struct Machines {
    cluster: Cluster,
    disks: Vec<Mutex<Disk>>,
    medium: Medium,
    copies: tempfile::TempDir,
    /// The log is synced by intervals.
    is_by_intervals: bool,
}

/// What was written before and while the power was lost.
struct Written {
    inserts: Vec<Insert>,
    /// So many of them, the first ones, were answered long before.
    old: usize,
}

impl Machines {
    /// `None` where that takes rights that the test does not have.
    fn start(durability: &[&str]) -> Option<Self> {
        let copies = tempfile::tempdir().unwrap();
        let medium = Medium::new(copies.path(), "medium", NODES as u64 * DISK_MEGABYTES + 200)?;
        let disks = (0..NODES).map(|node| medium.disk(&format!("disk-{node}"), DISK_MEGABYTES));
        let disks: Vec<Disk> = disks.collect::<Option<_>>()?;
        let data = disks.iter().map(|disk| disk.path().join("data")).collect();
        let options = ["--replay-limit", "1MiB", "--memory-limit", "96MiB", "--disk-reserve", "1MiB"];
        let cluster = Cluster::start_on(data, &[&options, durability].concat());
        let disks = disks.into_iter().map(Mutex::new).collect();
        Some(Self { cluster, disks, medium, copies, is_by_intervals: !durability.is_empty() })
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
            let mut disk = self.disks[*node].lock().unwrap();
            disk.restore(&copy(*node));
            self.note_another_boot(&disk);
        }
        nodes.iter().for_each(|node| self.cluster.start_node(*node));
    }

    /// The machine was not started anew, by which a node knows that its log may have lost its end.
    fn note_another_boot(&self, disk: &Disk) {
        let running = disk.path().join("data").join("RUNNING");
        assert_eq!(running.exists(), self.is_by_intervals, "it says whether the log ends with what is not durable");
        if self.is_by_intervals {
            std::fs::write(running, "another boot").unwrap();
        }
    }

    /// Writes, and loses the power of some nodes meanwhile, once `is_enough`.
    fn write_and_lose_power(
        &self,
        first_client: u64,
        lost: &[usize],
        random: &mut SplitMix64,
        rows: Option<&Rows<'_>>,
        is_enough: impl Fn() -> bool,
    ) -> Written {
        let recorder = Recorder::new(Arc::new(SystemClock::new()), 0);
        let load = Load::new(&self.cluster, &recorder);
        let ended = || load.inserts.lock().unwrap().len();
        let pause = Duration::from_millis(random.below(300)) + if self.is_by_intervals { OLD } else { Duration::ZERO };
        let old = std::thread::scope(|scope| {
            let _stop = load.stop_when_dropped();
            let _stop_rows = rows.map(|rows| StopWhenDropped(&rows.stop));
            for client in 0..CLIENTS {
                let (load, random) = (&load, SplitMix64::new(random.next_u64()));
                scope.spawn(move || load.insert_rows(first_client + client, random));
            }
            if let Some(rows) = rows {
                rows.stop.store(false, Ordering::Relaxed);
                for client in 0..ROW_CLIENTS {
                    let (number, random) = (first_client as u32 + client, SplitMix64::new(random.next_u64()));
                    scope.spawn(move || rows.work(number, random));
                }
            }
            self.cluster.wait_for("acknowledged writes", || ended() >= WRITES && is_enough());
            let old = ended();
            std::thread::sleep(pause);
            self.lose_power(lost);
            old
        });
        Written { inserts: load.inserts.into_inner().unwrap(), old }
    }

    /// Reads all inserts from all nodes, which must be right and the same: also what each replica holds by itself. A
    /// write that was not acknowledged may still be applied between two reads, as the node that it was sent to has
    /// ended and the one that leads its tablet has not. Nothing that was read may be missing later.
    fn read(&self, inserts: &[Insert]) -> BTreeMap<u64, u64> {
        let (cluster, start, mut agreeing) = (&self.cluster, Instant::now(), 1);
        let mut found = read_inserts(cluster, 0);
        for node in (1..NODES).chain(0..1).cycle() {
            let verdict = check_acknowledged(inserts, &found);
            assert!(verdict.is_ok(), "before node {node} is asked: {}{}", verdict.unwrap_err(), cluster.logs());
            if agreeing == NODES {
                break;
            }
            let before = std::mem::replace(&mut found, read_inserts(cluster, node));
            let is_missing = |(key, value): &(&u64, &u64)| found.get(key) != Some(*value);
            let missing: Vec<_> = before.iter().filter(is_missing).collect();
            assert!(missing.is_empty(), "node {node} lacks what was read before: {missing:?}{}", cluster.logs());
            agreeing = if found == before { agreeing + 1 } else { 1 };
            assert!(start.elapsed() < RECOVERY, "writes go on after all clients have ended{}", cluster.logs());
        }
        let keys: Vec<u64> = inserts.iter().map(|insert| insert.key).collect();
        let held: Vec<Option<u64>> = keys.iter().map(|key| found.get(key).copied()).collect();
        (0..NODES).for_each(|node| wait_until_held(cluster, node, "torture.inserts", &keys, &held));
        found
    }
}

/// Some nodes, of which any may be among them.
fn choose(count: usize, random: &mut SplitMix64) -> Vec<usize> {
    let first = random.below(NODES as u64) as usize;
    (first..first + count).map(|node| node % NODES).collect()
}

fn machines(durability: &[&str]) -> Option<Machines> {
    let Some(machines) = Machines::start(durability) else {
        skip("disks that lose power need root and loop devices");
        return None;
    };
    let cluster = &machines.cluster;
    cluster.run(0, KEYSPACE);
    TABLES.iter().for_each(|table| cluster.run(1, table));
    cluster.run(2, "ALTER TABLE torture.inserts WITH follower_read_staleness_ms = 60000");
    Some(machines)
}

fn acknowledged(inserts: &[Insert]) -> usize {
    inserts.iter().filter(|insert| insert.acknowledged).count()
}

#[test]
fn nothing_acknowledged_is_lost_with_the_power_of_one_two_or_all_nodes() {
    let _turn = turn();
    let Some(machines) = machines(&[]) else { return };
    ROW_TABLES.iter().for_each(|table| machines.cluster.run(0, table));
    let rows = Rows::new(&machines.cluster);
    let mut random = SplitMix64::new(seed());
    let mut inserts: Vec<Insert> = Vec::new();
    for (round, count) in LOSSES.into_iter().enumerate() {
        let lost = choose(count, &mut random);
        let is_enough = || round + 1 < LOSSES.len() || rows.told().is_enough();
        let first_client = 100 * round as u64;
        let written = machines.write_and_lose_power(first_client, &lost, &mut random, Some(&rows), is_enough);
        inserts.extend(written.inserts);
        println!("power lost on {lost:?}: {} of {} acknowledged so far", acknowledged(&inserts), inserts.len());
        machines.read(&inserts);
    }
    judge(&rows);
}

#[test]
fn by_intervals_power_takes_only_what_was_written_last_and_replicas_agree() {
    let _turn = turn();
    let Some(machines) = machines(&INTERVAL) else { return };
    let mut random = SplitMix64::new(seed());
    let mut inserts: Vec<Insert> = Vec::new();
    for (round, count) in LOSSES.into_iter().enumerate() {
        let lost = choose(count, &mut random);
        let Written { inserts: mut written, old } =
            machines.write_and_lose_power(100 * round as u64, &lost, &mut random, None, || true);
        let told: BTreeSet<u64> =
            written.iter().filter(|insert| insert.acknowledged).map(|insert| insert.key).collect();
        if count > 1 {
            // Of one that lost its power alone the others hold everything.
            written[old..].iter_mut().for_each(|insert| insert.acknowledged = false);
        }
        inserts.extend(written);
        let found = machines.read(&inserts);
        let gone = told.iter().filter(|key| !found.contains_key(key)).count();
        println!("power lost on {lost:?}: {gone} of {} that were acknowledged are lost, {old} were old", told.len());
        // From here on what is there stays, and what is lost does not come back; of what nobody was told there may still be a request under way.
        inserts.retain(|insert| found.contains_key(&insert.key) || !told.contains(&insert.key));
        inserts.iter_mut().for_each(|insert| insert.acknowledged |= found.contains_key(&insert.key));
    }
}
