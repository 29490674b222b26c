//! The planner: the resources that a cluster needs, its throughput, and the duration of changes, before there is a
//! cluster.
//!
//! [`plan`] answers a [`Question`] with a [`Plan`]: disk and memory (`capacity`), throughput from measured costs per
//! operation (`costs`), and the time to add or lose nodes (`change`), for which the balancer runs on an imagined
//! cluster (`world`).
//!
//! Always true: a plan is a function of its question, so that the same command line gives the same answer; every
//! measured number is a constant that names its source and durability, and can be overridden.
//!
//! Left out: networks (the rate limit stands for them), clients, and load that is spread unevenly.

mod capacity;
mod change;
mod costs;
mod error;
mod question;
#[cfg(test)]
mod tests;
mod text;
pub mod world;

pub use capacity::{Capacity, Throughput};
pub use change::{Change, ChangeKind, Sample};
pub use costs::Costs;
pub use error::PlanError;
pub use question::{COPY_EFFICIENCY, Load, MOST_NODES, Machine, Question, TABLETS_PER_NODE};

use serde::Serialize;

/// The answer.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Plan {
    /// The question.
    pub question: Question,
    /// Disk and memory.
    pub capacity: Capacity,
    /// Operations per second.
    pub throughput: Throughput,
    /// Adding and losing nodes, each starting from the initial cluster.
    pub changes: Vec<Change>,
    /// Reasons why the cluster would not work.
    pub warnings: Vec<String>,
}

impl Plan {
    /// The plan as indented JSON.
    pub fn to_json(&self) -> String {
        serde_json::to_string_pretty(self).expect("plans have string keys")
    }
}

/// Computes the plan.
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
    if question.load.row_bytes == 0 || question.node.cores_per_node == 0 {
        return out_of_range("the number of cores and the size of a row", "at least 1".to_owned());
    }
    let shares = [
        (question.copy_efficiency, "the efficiency of copies"),
        (question.node.processor_use, "the use of processors"),
    ];
    if let Some((_, what)) = shares.into_iter().find(|(share, _)| !(*share > 0.0 && *share <= 1.0)) {
        return out_of_range(what, "more than 0 and at most 1".to_owned());
    }
    if !(0.0..=1.0).contains(&question.load.write_share) {
        return out_of_range("the share of writes", "from 0 to 1".to_owned());
    }
    question.load.costs.check()
}
