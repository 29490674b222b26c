//! What an operator orders while clients work and faults come: replicas moved off a node and back, leaders moved, tablets split and merged, and either
//! called off again. Through `diorite admin`, asked of any node.
//!
//! Always true: an order may be refused, or not be answered, at any time: the cluster decides. In the end each kind was accepted at least once, and all that was
//! accepted is carried out.

use crate::cluster::{Cluster, State};
use crate::server::get_within;
use diorite_base::random::{Random, SplitMix64};
use serde_json::Value;
use std::collections::BTreeMap;
use std::process::{Command, Stdio};
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

/// Tablets of all tables, from which on none is split.
const MOST_TABLETS: usize = 22;

/// How long an answer may take.
const TIMEOUT: Duration = Duration::from_secs(5);

/// Orders of which each must have been accepted once.
const NEEDED: [&str; 3] = ["split", "merge", "drain"];

pub struct Orders<'a> {
    cluster: &'a Cluster,
    pub stop: AtomicBool,
    accepted: Mutex<BTreeMap<&'static str, u32>>,
}

impl<'a> Orders<'a> {
    pub fn new(cluster: &'a Cluster) -> Self {
        Self { cluster, stop: AtomicBool::new(false), accepted: Mutex::default() }
    }

    pub fn accepted(&self) -> BTreeMap<&'static str, u32> {
        self.accepted.lock().unwrap().clone()
    }

    /// One order after another until the end.
    pub fn give(&self, mut random: SplitMix64) {
        while !self.stop.load(Ordering::Relaxed) {
            let node = random.below(self.cluster.len() as u64) as usize;
            if self.cluster.state(node) == State::Running {
                let kind = random.below(12);
                self.give_one(&mut random, node, kind);
            }
            std::thread::sleep(Duration::from_millis(200 + random.below(1_000)));
        }
    }

    fn give_one(&self, random: &mut SplitMix64, node: usize, kind: u64) -> Option<()> {
        let tablets = self.tablets(node)?;
        let tablet = tablets.get(random.below(tablets.len().max(1) as u64) as usize)?.to_string();
        let ids = self.node_ids(node)?;
        let id = ids.get(random.below(ids.len().max(1) as u64) as usize)?.to_string();
        let split = if tablets.len() < MOST_TABLETS { "split" } else { "merge" };
        match kind {
            0..3 => self.order(node, split, &[&tablet]),
            3..6 => self.order(node, "merge", &[&tablet]),
            6 => self.order(node, "cancel-split", &[&tablet]),
            7 => self.order(node, "cancel-merge", &[&tablet]),
            8 | 9 => self.order(node, "drain", &[&id]),
            10 => self.order(node, "move-leaders", &[&id]),
            _ => ids.iter().for_each(|id| self.take_back(node, &id.to_string())),
        }
        Some(())
    }

    fn take_back(&self, node: usize, id: &str) {
        self.order(node, "undrain", &[id]);
        self.order(node, "move-leaders", &[id, "--back"]);
    }

    fn order(&self, node: usize, what: &'static str, arguments: &[&str]) {
        let mut command = Command::new(env!("CARGO_BIN_EXE_diorite"));
        command.args(["admin", "--host", &self.cluster.addresses[node], what]).args(arguments);
        let mut asked = command.stdout(Stdio::null()).stderr(Stdio::null()).spawn().unwrap();
        let start = Instant::now();
        let is_accepted = loop {
            match asked.try_wait().unwrap() {
                Some(status) => break status.success(),
                // The node is paused, or cut off.
                None if start.elapsed() > TIMEOUT => {
                    asked.kill().unwrap();
                    asked.wait().unwrap();
                    break false;
                }
                None => std::thread::sleep(Duration::from_millis(5)),
            }
        };
        if is_accepted {
            *self.accepted.lock().unwrap().entry(what).or_insert(0) += 1;
        }
    }

    fn ask(&self, node: usize, path: &str) -> Option<Value> {
        serde_json::from_str(&get_within(&self.cluster.addresses[node], path, TIMEOUT)?).ok()
    }

    fn tablets(&self, node: usize) -> Option<Vec<u64>> {
        let page = self.ask(node, "/api/v1/tablets?keyspace=torture")?;
        page["tablets"].as_array()?.iter().map(|tablet| tablet["tablet"].as_u64()).collect()
    }

    fn node_ids(&self, node: usize) -> Option<Vec<u64>> {
        self.ask(node, "/api/v1/nodes")?.as_array()?.iter().map(|node| node["node"].as_u64()).collect()
    }

    /// To be called once the faults are over: gives what was not accepted yet, takes back what is to be taken back, and waits until all is done.
    pub fn finish(&self) {
        let mut random = SplitMix64::new(1);
        for (at, what) in NEEDED.into_iter().enumerate() {
            self.cluster.wait_for(&format!("a {what} that is accepted"), || {
                if !self.accepted().contains_key(what) {
                    self.give_one(&mut random, 0, [0, 3, 8][at]);
                }
                self.accepted().contains_key(what)
            });
        }
        self.cluster.wait_for("all that was ordered to be done", || {
            self.node_ids(0).unwrap_or_default().iter().for_each(|id| self.take_back(0, &id.to_string()));
            self.is_quiet().unwrap_or(false)
        });
    }

    /// Whether nothing is on its way and nothing is at risk.
    fn is_quiet(&self) -> Option<bool> {
        let moves = self.ask(0, "/api/v1/moves")?;
        let status = self.ask(0, "/api/v1/status")?;
        let page = self.ask(0, "/api/v1/tablets?keyspace=torture")?;
        let is_at_rest = |tablet: &Value| tablet["state"] == "ok";
        let are_at_rest = page["tablets"].as_array()?.iter().all(is_at_rest);
        let is_well = status["under_replicated"] == 0 && status["leaderless"] == 0 && status["unavailable"] == 0;
        Some(moves.as_array()?.is_empty() && are_at_rest && is_well)
    }
}
