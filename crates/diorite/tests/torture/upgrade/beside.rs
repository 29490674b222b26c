//! What happens to a cluster of two releases beside its upgrade: kills, pauses, broken networks, replicas and leaders
//! that move, splits, merges, and changes of the schema.
//!
//! Always true: each kind comes before any comes a second time; a fault is over when it returns; what is refused at the
//! moment does no harm. Rows of the tables that it makes are read back in the end, asked of every node.

use super::admin;
use crate::cluster::{Cluster, State};
use crate::faults::{Fault, choose};
use crate::load::read_all;
use crate::network::Policy;
use crate::server::get_within;
use crate::session::number;
use diorite_base::random::{Random, SplitMix64};
use serde_json::Value;
use std::collections::{BTreeMap, BTreeSet};
use std::time::{Duration, Instant};

/// How long the replicas of a drained node are waited for. They may stay: the node is taken back then.
const MOVES: Duration = Duration::from_secs(240);

/// How long an answer may take.
const TIMEOUT: Duration = Duration::from_secs(5);

/// What may happen.
const KINDS: [&str; 8] = ["kill", "pause", "network", "schema", "replicas", "leaders", "split", "merge"];

pub struct Beside<'a> {
    cluster: &'a Cluster,
    random: SplitMix64,
    /// What comes before any of it comes again.
    left: Vec<&'static str>,
    done: BTreeMap<&'static str, u64>,
    /// Tables, and the rows that each has.
    tables: BTreeMap<String, BTreeSet<u64>>,
    dropped: BTreeSet<String>,
    next_table: u64,
}

impl<'a> Beside<'a> {
    pub fn new(cluster: &'a Cluster, random: SplitMix64) -> Self {
        let (tables, dropped) = (BTreeMap::new(), BTreeSet::new());
        Self { cluster, random, left: Vec::new(), done: BTreeMap::new(), tables, dropped, next_table: 0 }
    }

    fn any_node(&mut self) -> usize {
        self.random.below(self.cluster.len() as u64) as usize
    }

    /// Some of it.
    pub fn go_on(&mut self) {
        if self.left.is_empty() {
            self.left = KINDS.to_vec();
        }
        let kind = self.left.swap_remove(self.random.below(self.left.len() as u64) as usize);
        let node = self.any_node();
        println!("  {kind}, node {node}");
        let is_done = match kind {
            "kill" => self.kill(node),
            "pause" | "network" => self.begin_and_end(kind == "pause"),
            "schema" => self.change_schema(node),
            "replicas" => self.move_replicas(node),
            "leaders" => self.move_leaders(node),
            "split" | "merge" => self.order(node, kind),
            _ => unreachable!("all kinds are here"),
        };
        *self.done.entry(kind).or_insert(0) += u64::from(is_done);
        std::thread::sleep(Duration::from_millis(200 + self.random.below(1_000)));
    }

    fn kill(&mut self, node: usize) -> bool {
        self.cluster.kill(node);
        self.cluster.start_node(node);
        true
    }

    /// A node is paused, or links between nodes are broken, as in the tests of one release.
    fn begin_and_end(&mut self, is_pause: bool) -> bool {
        loop {
            let (fault, duration) = choose(&mut self.random, self.cluster.len(), self.cluster.leader_of_most());
            match &fault {
                Fault::Pause(node) if is_pause && self.cluster.state(*node) == State::Running => {
                    self.cluster.pause(*node);
                }
                Fault::Break { links, policy, .. } if !is_pause => {
                    links.iter().for_each(|(from, to)| self.cluster.network.set(*from, *to, *policy));
                }
                _ => continue,
            }
            println!("    {fault:?} for {} ms", duration.as_millis());
            std::thread::sleep(duration);
            self.cluster.heal();
            return true;
        }
    }

    /// Breaks the link between two nodes other than this one, until [`Self::mend`].
    pub fn break_a_link_beside(&mut self, node: usize) {
        let others: Vec<usize> = (0..self.cluster.len()).filter(|other| *other != node).collect();
        let at = self.random.below(others.len() as u64) as usize;
        let (one, other) = (others[at], others[(at + 1) % others.len()]);
        let policy = if self.random.below(2) == 0 { Policy::Cut } else { Policy::Hold };
        println!("    meanwhile {policy:?} between nodes {one} and {other}");
        for (from, to) in [(one, other), (other, one)] {
            self.cluster.network.set(from, to, policy);
        }
        *self.done.entry("network").or_insert(0) += 1;
    }

    pub fn mend(&self) {
        self.cluster.network.heal();
    }

    /// A table with time windows, which the release before keeps in another way; then changes of an earlier one.
    fn change_schema(&mut self, node: usize) -> bool {
        let number = self.next_table;
        self.next_table += 1;
        let name = format!("torture.t{number}");
        let windows = "{'class': 'TimeWindowCompactionStrategy', 'compaction_window_unit': 'MINUTES', \
                       'compaction_window_size': '1'}";
        let columns = "k bigint, c bigint, v bigint, PRIMARY KEY (k, c)";
        let options = format!("compaction = {windows} AND default_time_to_live = 86400");
        self.cluster.run(node, &format!("CREATE TABLE IF NOT EXISTS {name} ({columns}) WITH {options}"));
        self.tables.insert(name, BTreeSet::new());
        // Rows through every node, into every table.
        for (table, rows) in &mut self.tables {
            for node in 0..self.cluster.len() {
                let row = number * 10 + node as u64;
                self.cluster.run(node, &format!("INSERT INTO {table} (k, c, v) VALUES ({}, {row}, {row})", row % 3));
                rows.insert(row);
            }
        }
        let Some((earlier, _)) = self.tables.iter().next().filter(|_| self.tables.len() > 1) else { return true };
        let earlier = earlier.clone();
        let column = format!("w{number}");
        self.cluster.run(node, &format!("ALTER TABLE {earlier} ADD IF NOT EXISTS {column} text"));
        self.cluster.run(node, &format!("UPDATE {earlier} SET {column} = 'x' WHERE k = 0 AND c = 0"));
        self.cluster.run(node, &format!("DELETE FROM {earlier} WHERE k = 0 AND c = 0"));
        self.tables.entry(earlier.clone()).or_default().remove(&0);
        match self.random.below(3) {
            0 => self.cluster.run(node, &format!("ALTER TABLE {earlier} DROP IF EXISTS {column}")),
            1 => {
                self.cluster.run(node, &format!("TRUNCATE {earlier}"));
                self.tables.insert(earlier, BTreeSet::new());
            }
            _ => {
                self.cluster.run(node, &format!("DROP TABLE IF EXISTS {earlier}"));
                self.tables.remove(&earlier);
                self.dropped.insert(earlier);
            }
        }
        true
    }

    fn ask(&self, node: usize, path: &str) -> Option<Value> {
        serde_json::from_str(&get_within(&self.cluster.addresses[node], path, TIMEOUT)?).ok()
    }

    /// All replicas of a node move to the others, and some of them back. Returns whether all did.
    fn move_replicas(&mut self, node: usize) -> bool {
        let (id, asked) = ((node + 1).to_string(), self.any_node());
        self.cluster.wait_for("the node to be drained", || admin(self.cluster, asked, &["drain", &id]).0);
        let start = Instant::now();
        let mut has_moved = false;
        while !has_moved && start.elapsed() < MOVES {
            std::thread::sleep(Duration::from_millis(200));
            has_moved = self.ask(asked, "/api/v1/nodes").is_some_and(|nodes| {
                let is_it = |found: &&Value| found["node"] == node + 1;
                nodes.as_array().into_iter().flatten().find(is_it).is_some_and(|found| found["replicas"] == 0)
            });
        }
        println!("    all replicas have moved: {has_moved}");
        self.cluster.wait_for("the node to be taken back", || admin(self.cluster, asked, &["undrain", &id]).0);
        has_moved
    }

    fn move_leaders(&mut self, node: usize) -> bool {
        let (id, asked) = ((node + 1).to_string(), self.any_node());
        self.cluster.wait_for("leaderships to be moved", || admin(self.cluster, asked, &["move-leaders", &id]).0);
        std::thread::sleep(Duration::from_millis(500));
        self.cluster.wait_for("leaderships to be allowed again", || {
            admin(self.cluster, asked, &["move-leaders", &id, "--back"]).0
        });
        true
    }

    /// Splits or merges a tablet of the rows that clients insert.
    fn order(&mut self, node: usize, what: &str) -> bool {
        let page = self.ask(node, "/api/v1/tablets?keyspace=torture&table=inserts");
        let tablets: Vec<u64> = page
            .iter()
            .flat_map(|page| page["tablets"].as_array())
            .flatten()
            .filter_map(|tablet| tablet["tablet"].as_u64())
            .collect();
        if tablets.is_empty() {
            return false;
        }
        let tablet = tablets[self.random.below(tablets.len() as u64) as usize].to_string();
        let (is_accepted, said) = admin(self.cluster, node, &[what, &tablet]);
        println!("    {}", said.trim());
        is_accepted
    }

    /// What a node has of the tables, and what it should have, if that is something else.
    fn difference(&self, node: usize, expected: &BTreeMap<String, BTreeSet<u64>>) -> Option<String> {
        let named =
            read_all(self.cluster, node, "SELECT table_name FROM system_schema.tables WHERE keyspace_name = 'torture'");
        let names: BTreeSet<String> = named
            .iter()
            .filter_map(|row| String::from_utf8(row[0].clone()?).ok())
            .map(|name| format!("torture.{name}"))
            .collect();
        if let Some(name) = expected.keys().find(|name| !names.contains(*name)) {
            return Some(format!("{name} is not there"));
        }
        if let Some(name) = self.dropped.intersection(&names).next() {
            return Some(format!("{name} was dropped"));
        }
        expected.iter().find_map(|(name, rows)| {
            let found = read_all(self.cluster, node, &format!("SELECT c, v FROM {name}"));
            let found: BTreeSet<u64> = found.iter().map(|row| number(&row[0])).collect();
            (found != *rows).then(|| format!("{name} has {found:?}, not {rows:?}"))
        })
    }

    /// Asks every node for what the tables should have, and sees that a row that is missing would have been found.
    pub fn check(&self) {
        println!("  done: {:?}; tables: {:?}", self.done, self.tables.keys());
        for node in 0..self.cluster.len() {
            let difference = self.difference(node, &self.tables);
            assert!(difference.is_none(), "asked of node {node}: {}{}", difference.unwrap(), self.cluster.logs());
        }
        let mut more = self.tables.clone();
        let Some(rows) = more.values_mut().next() else { return };
        rows.insert(u64::MAX);
        assert!(self.difference(0, &more).is_some(), "a lost row is not found");
        let others = BTreeMap::from([("torture.lost".to_owned(), BTreeSet::new())]);
        assert!(self.difference(0, &others).is_some(), "a lost table is not found");
    }

    /// Each kind happened; merges and splits may always have been refused, as tablets are small.
    pub fn expect_all_kinds(&self) {
        let missing: Vec<_> = KINDS.iter().filter(|kind| !["split", "merge"].contains(*kind)).collect();
        let missing: Vec<_> =
            missing.into_iter().filter(|kind| self.done.get(*kind).copied().unwrap_or(0) == 0).collect();
        assert!(missing.is_empty(), "did not happen: {missing:?}; {:?}", self.done);
    }
}
