//! Watches what every node holds and leads while a benchmark runs, once a second, for the charts.
//!
//! Always true: it only asks; a second in which nobody can say is missing; what a dead node holds is not shown.

use std::convert::Infallible;
use std::net::IpAddr;
use std::path::PathBuf;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use serde::Serialize;

use super::operator::{NodeFacts, Operator};
use super::stopwatch::Stopwatch;
use crate::process::bytes_of;
use crate::timer::pause;

const INTERVAL: Duration = Duration::from_secs(1);

/// The nodes at one moment.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct NodesSample {
    /// Since the first phase began.
    pub at_s: f64,
    pub nodes: Vec<NodeSample>,
}

/// A node at one moment.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct NodeSample {
    pub node: u64,
    pub is_up: bool,
    /// Replicas that it holds, or is to.
    pub replicas: u64,
    /// Tablets that it leads.
    pub leaders: Option<u64>,
    /// The bytes of its tablets as it reports them: live SSTables and memtables.
    pub tablet_bytes: Option<u64>,
    /// All SSTables in its directory, if that is on this machine.
    pub sst_bytes: Option<u64>,
}

impl NodeSample {
    fn new(facts: &NodeFacts, directories: &[(IpAddr, PathBuf)]) -> Self {
        let is_known = facts.is_up && facts.has_reported();
        let address = facts.address();
        let directory = directories.iter().find(|(known, _)| Some(*known) == address).filter(|_| facts.is_up);
        Self {
            node: facts.node,
            is_up: facts.is_up,
            replicas: facts.replicas,
            leaders: is_known.then_some(facts.leaders),
            tablet_bytes: is_known.then_some(facts.tablet_bytes),
            sst_bytes: directory.map(|(_, directory)| bytes_of(directory, Some("sst"))),
        }
    }
}

/// Collects samples until it is dropped.
pub struct Watcher {
    operator: Operator,
    stopwatch: Stopwatch,
    state: Mutex<State>,
}

#[derive(Default)]
struct State {
    directories: Vec<(IpAddr, PathBuf)>,
    samples: Vec<NodesSample>,
}

impl Watcher {
    /// Watches the nodes that `operator` can ask for; the directories of those on this machine are known by address.
    pub fn new(operator: Operator, directories: Vec<(IpAddr, PathBuf)>, stopwatch: Stopwatch) -> Self {
        let state = Mutex::new(State { directories, samples: Vec::new() });
        Self { operator, stopwatch, state }
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// A node on this machine has been added.
    pub fn add(&self, address: IpAddr, directory: PathBuf) {
        self.lock().directories.push((address, directory));
    }

    /// Watches for ever.
    pub async fn run(&self) -> Infallible {
        loop {
            if let Some(nodes) = self.operator.nodes().await {
                let at_s = self.stopwatch.elapsed_s();
                let mut state = self.lock();
                let nodes = nodes.iter().map(|node| NodeSample::new(node, &state.directories)).collect();
                state.samples.push(NodesSample { at_s, nodes });
            }
            pause(INTERVAL).await;
        }
    }

    /// The samples.
    pub fn into_samples(self) -> Vec<NodesSample> {
        self.state.into_inner().unwrap_or_else(PoisonError::into_inner).samples
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "a failed unwrap is a failed test")]

    use super::*;
    use crate::bench::operator::tests::sight;

    #[test]
    fn a_node_shows_what_is_known_of_it() {
        let directory = tempfile::tempdir().unwrap();
        std::fs::write(directory.path().join("1.sst"), [0; 70]).unwrap();
        let directories = [("127.0.0.1".parse().unwrap(), directory.path().to_path_buf())];
        let mut nodes = sight(&[(9, 3, 100), (9, 3, 100)]).nodes;
        let here = NodeSample::new(&nodes[0], &directories);
        assert_eq!((here.sst_bytes, here.tablet_bytes, here.leaders), (Some(70), Some(100), Some(3)));
        nodes[1].program = None;
        let fresh = NodeSample::new(&nodes[1], &directories);
        assert_eq!((fresh.sst_bytes, fresh.tablet_bytes, fresh.leaders, fresh.replicas), (None, None, None, 9));
        nodes[0].is_up = false;
        let dead = NodeSample::new(&nodes[0], &directories);
        assert_eq!((dead.sst_bytes, dead.tablet_bytes, dead.leaders), (None, None, None));
    }
}
