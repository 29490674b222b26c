//! The planner: what a cluster needs, what it does, and how long it takes to change it, before there is one.
//!
//! [`plan`] answers a [`Question`] with a [`Plan`]: disk and memory (`capacity`), throughput from measured costs per operation (`costs`), and the time to add
//! or to lose nodes (`change`), for which the balancer itself runs on a cluster that does not exist (`world`).
//!
//! Always true: a plan is a function of its question, so that the same command line gives the same answer; every figure that was measured
//! is a constant that names its source and durability, and can be overridden.
//!
//! Left out: networks (the rate limit stands for them), clients, and load that is spread unevenly.

mod capacity;
mod change;
mod costs;
#[cfg(test)]
mod tests;
mod text;
pub mod world;

pub use capacity::{Capacity, Throughput};
pub use change::{Change, ChangeKind, Sample};
pub use costs::Costs;

use serde::Serialize;
use thiserror::Error;

/// The most nodes that are planned for.
pub const MOST_NODES: u32 = 1_000;

/// What is asked.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Question {
    /// Nodes at first.
    pub nodes: u32,
    /// Zones that they are in, in turn.
    pub zones: u32,
    /// What all replicas take on disk together.
    pub data_bytes: u64,
    /// Replicas of each tablet.
    pub replication: u32,
    /// Tablets in all; by default [`TABLETS_PER_NODE`] for each node.
    pub tablets: Option<u32>,
    /// Bytes per second that each node receives, and sends, at most.
    pub rate_bytes_per_second: u64,
    /// What part of that rate copies reach over hours.
    pub copy_efficiency: f64,
    /// Seconds of silence after which a node is replaced.
    pub replace_after_s: u64,
    /// Nodes to add.
    pub add: u32,
    /// Nodes to lose, all at once.
    pub lose: u32,
    /// A node's disks.
    pub disk_bytes_per_node: Option<u64>,
    /// A node's `--memory-limit`.
    pub memory_bytes_per_node: Option<u64>,
    /// A node's cores.
    pub cores_per_node: u32,
    /// The part of them that is used, on average.
    pub processor_use: f64,
    /// Operations per second that the cluster is to do, if it has to.
    pub operations_per_second: Option<u64>,
    /// The part of those that are writes.
    pub write_share: f64,
    /// What one row takes on disk, in one replica.
    pub row_bytes: u64,
    /// Costs per operation.
    pub costs: Costs,
}

/// Tablets per node that a plan assumes: what the published runs had for a table.
pub const TABLETS_PER_NODE: u32 = 20;

/// What part of the rate limit copies reach over hours, between opening, catching up, and whatever else disks have to do. From the published
/// run that added a node: 5.2 TB in 8 h under a limit of 200 MB/s are 180 MB/s. The limit itself is kept within 5 %.
pub const COPY_EFFICIENCY: f64 = 0.9;

impl Default for Question {
    fn default() -> Self {
        Self {
            nodes: 3,
            zones: 1,
            data_bytes: 1_000_000_000_000,
            replication: 3,
            tablets: None,
            rate_bytes_per_second: 200_000_000,
            copy_efficiency: COPY_EFFICIENCY,
            replace_after_s: 600,
            add: 0,
            lose: 0,
            disk_bytes_per_node: None,
            memory_bytes_per_node: None,
            cores_per_node: 16,
            processor_use: 0.65,
            operations_per_second: None,
            write_share: 0.5,
            row_bytes: costs::ROW_BYTES,
            costs: Costs::default(),
        }
    }
}

/// The answer.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Plan {
    /// What was asked.
    pub question: Question,
    /// What it takes.
    pub capacity: Capacity,
    /// What it does.
    pub throughput: Throughput,
    /// What changing it takes: adding and losing nodes, each from the cluster as it is at first.
    pub changes: Vec<Change>,
    /// What will not work.
    pub warnings: Vec<String>,
}

impl Plan {
    /// The plan as indented JSON.
    pub fn to_json(&self) -> String {
        serde_json::to_string_pretty(self).expect("plans have string keys")
    }
}

/// Why a question has no answer.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub enum PlanError {
    /// A number is out of its range.
    #[error("{what} has to be {range}")]
    OutOfRange {
        /// Which.
        what: &'static str,
        /// What it may be.
        range: String,
    },
}

/// Works out the answer.
pub fn plan(question: &Question) -> Result<Plan, PlanError> {
    check(question)?;
    let capacity = capacity::capacity(question);
    let throughput = capacity::throughput(question, &capacity);
    let mut changes = Vec::new();
    if question.add > 0 {
        changes.push(change::simulate(question, ChangeKind::Add));
    }
    if question.lose > 0 {
        changes.push(change::simulate(question, ChangeKind::Lose));
    }
    let mut warnings = capacity::warnings(question, &capacity, &throughput);
    warnings.extend(changes.iter().flat_map(Change::warnings));
    Ok(Plan { question: question.clone(), capacity, throughput, changes, warnings })
}

fn check(question: &Question) -> Result<(), PlanError> {
    let out_of_range = |what, range: String| Err(PlanError::OutOfRange { what, range });
    let Question { nodes, zones, replication, add, lose, .. } = *question;
    if nodes == 0 || nodes.saturating_add(add) > MOST_NODES {
        return out_of_range("the number of nodes", format!("1 to {MOST_NODES}, with those that are added"));
    }
    if zones == 0 || zones > nodes {
        return out_of_range("the number of zones", format!("1 to {nodes}, the number of nodes"));
    }
    if replication == 0 || replication > nodes {
        return out_of_range("the replication factor", format!("1 to {nodes}, the number of nodes"));
    }
    if lose >= nodes {
        return out_of_range("the number of nodes to lose", format!("at most {}, all but one", nodes - 1));
    }
    if question.tablets == Some(0) {
        return out_of_range("the number of tablets", "at least 1".to_owned());
    }
    if question.rate_bytes_per_second == 0 {
        return out_of_range("the rate", "more than 0".to_owned());
    }
    if question.row_bytes == 0 || question.cores_per_node == 0 {
        return out_of_range("the number of cores and the size of a row", "at least 1".to_owned());
    }
    let shares =
        [(question.copy_efficiency, "the efficiency of copies"), (question.processor_use, "the use of processors")];
    if let Some((_, what)) = shares.into_iter().find(|(share, _)| !(*share > 0.0 && *share <= 1.0)) {
        return out_of_range(what, "more than 0 and at most 1".to_owned());
    }
    if !(0.0..=1.0).contains(&question.write_share) {
        return out_of_range("the share of writes", "from 0 to 1".to_owned());
    }
    question.costs.check()
}
