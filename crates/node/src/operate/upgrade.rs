//! Upgrades: how far one is, holding it, and finishing it. [`diorite_control::upgrade`] decides.
//!
//! Always true: every member agrees to a level, on its disks, before the level is raised: a program that does not know
//! it does not start there any more, whatever becomes of the raise. A hold is durable on every node that is up before
//! it is answered. It is of one level, so it ends with the next one.

use super::{Answer, Known, Operations, in_json, unavailable};
use diorite_admin::api::{Ask, Done, Failure, FailureKind, NodeLevels, UpgradeState, UpgradeStatus};
use diorite_base::{Level, Levels, NodeId};
use diorite_cluster::catalog::{Catalog, Command};
use diorite_control::planted::Planted;
use diorite_control::upgrade::Outlook;
use std::sync::Arc;
use std::time::Duration;

/// How long a node is given to note a hold.
const TIMEOUT: Duration = Duration::from_secs(3);

fn refused(message: String) -> Failure {
    Failure::new(FailureKind::Refused, message)
}

/// One line that names what is in the way.
fn joined(blocked_by: &[impl ToString]) -> String {
    blocked_by.iter().map(ToString::to_string).collect::<Vec<_>>().join("; ")
}

/// The nodes that have failed to answer, and why.
fn failures(answers: Vec<Answer>, nodes: &[NodeId]) -> Vec<String> {
    let failed = answers.into_iter().zip(nodes);
    failed.filter_map(|(answer, node)| Some(format!("node {}: {}", node.0, answer.err()?.message))).collect()
}

fn highest(level: Level) -> Failure {
    refused(format!("no upgrade is under way: the programs of the nodes know no level after {level}"))
}

impl Operations {
    fn outlook(&self) -> (Arc<Catalog>, Known, Outlook) {
        let catalog = self.catalog.current();
        let known = self.known(&catalog);
        let outlook = Outlook::new(&catalog, &known, Planted::default());
        (catalog, known, outlook)
    }

    /// How far an upgrade is.
    pub(super) fn upgrade_status(&self) -> Answer {
        let (catalog, known, outlook) = self.outlook();
        let state = match outlook.command() {
            None if outlook.is_finished(&known) => UpgradeState::Finished,
            None => UpgradeState::UnderWay,
            Some(_) if outlook.is_held => UpgradeState::Held,
            Some(_) => UpgradeState::Ready,
        };
        let steering = self.steering.lock();
        let (left_ns, last) = (steering.upgrade_left_ns(self.clock.monotonic_ns()), steering.last());
        drop(steering);
        let nodes = catalog.nodes().map(|node| {
            let report = last.get(&node.id);
            NodeLevels {
                node: node.id,
                address: node.address().to_string(),
                is_up: known.up.get(&node.id).copied().unwrap_or(false),
                program: report.map(|report| report.details.program.clone()),
                levels: report.map(|report| report.levels).or(node.description.levels),
            }
        });
        in_json(&UpgradeStatus {
            level: outlook.level,
            state,
            blocked_by: outlook.blockers.iter().map(ToString::to_string).collect(),
            finishes_in_s: left_ns.filter(|_| state == UpgradeState::Ready).map(|left_ns| left_ns / 1_000_000_000),
            nodes: nodes.collect(),
        })
    }

    /// Raises the level of the cluster, if all members can go on.
    pub(super) async fn finish_upgrade(&self) -> Answer {
        let (_, known, outlook) = self.outlook();
        let Some(command) = outlook.command() else {
            return Err(match outlook.is_finished(&known) && known.is_complete() {
                true => highest(outlook.level),
                false => refused(format!("the upgrade cannot be finished: {}", joined(&outlook.blockers))),
            });
        };
        let level = outlook.level.next();
        tracing::info!(event = "upgrade", %level, "an operator finishes the upgrade");
        self.agree(&command).await?;
        self.commit(&command).await?;
        in_json(&Done { message: format!("the cluster is at level {level}: no node can go back any more") })
    }

    /// Has all members agree to the level before it is raised: none of them starts with a program that does not know it
    /// any more.
    pub(super) async fn agree(&self, command: &Command) -> Result<(), Failure> {
        let Command::RaiseLevel { level, members } = command else { return Ok(()) };
        let asked = members.iter().map(|node| self.ask_any(*node, Ask::AgreeToLevelHere { level: *level }, TIMEOUT));
        let failed = failures(futures::future::join_all(asked).await, members);
        match failed.is_empty() {
            true => Ok(()),
            false => Err(unavailable(format!("not all nodes agree to level {level}, try again: {}", joined(&failed)))),
        }
    }

    /// Agrees to a level.
    pub(super) async fn agree_to_level_here(&self, level: Level) -> Answer {
        if !Levels::OWN.contains(level) {
            return Err(refused(format!("this program knows {}", Levels::OWN)));
        }
        let store = Arc::clone(&self.store);
        let noted = self.runtime.spawn_blocking(move || store.note_level(level)).await;
        noted.map_err(|error| unavailable(error.to_string()))?.map_err(|error| unavailable(error.to_string()))?;
        tracing::info!(event = "upgrade", %level, "this node does not go back from here");
        in_json(&Done { message: format!("agreed to level {level}") })
    }

    /// Has all nodes note that the upgrade is held.
    pub(super) async fn hold_upgrade(&self) -> Answer {
        let (catalog, known, outlook) = self.outlook();
        let level = outlook.level;
        let is_new = |node: &NodeId| known.reports.get(node).is_some_and(|report| report.levels.greatest > level);
        let nodes: Vec<NodeId> = catalog.nodes().map(|node| node.id).filter(is_new).collect();
        if nodes.is_empty() {
            return Err(highest(level));
        }
        let asked = nodes.iter().map(|node| self.ask_any(*node, Ask::HoldUpgradeHere { level }, TIMEOUT));
        let failed = failures(futures::future::join_all(asked).await, &nodes);
        if !failed.is_empty() {
            return Err(unavailable(format!("the upgrade may not be held everywhere: {}", joined(&failed))));
        }
        tracing::info!(event = "upgrade", %level, "an operator holds the upgrade");
        in_json(&Done { message: format!("the cluster stays at level {level} until `upgrade finish`") })
    }

    /// Notes a hold on this node.
    pub(super) async fn hold_upgrade_here(&self, level: Level) -> Answer {
        let store = Arc::clone(&self.store);
        let noted = self.runtime.spawn_blocking(move || store.hold_level(level)).await;
        noted.map_err(|error| unavailable(error.to_string()))?.map_err(|error| unavailable(error.to_string()))?;
        in_json(&Done { message: format!("held at level {level}") })
    }
}
