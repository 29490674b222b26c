//! Upgrades: how far one is, holding it, and finishing it. [`diorite_control::upgrade`] decides.
//!
//! Always true: every member agrees to a level, on its disks, before the level is raised: a program that does not know
//! it does not start there any more, whatever becomes of the raise. A decision to hold the cluster, or to let its level
//! be raised by itself again, is durable on every node that is up and knows of levels before it is answered. It is of
//! one level, so it ends with the next one.

use super::{Answer, Known, Operations, in_json, report, unavailable};
use diorite_admin::api::{Ask, Done, Failure, FailureKind, NodeLevels, UpgradeState, UpgradeStatus};
use diorite_base::{Hold, Level, Levels, NodeId};
use diorite_cluster::catalog::{Catalog, Command};
use diorite_control::planted::Planted;
use diorite_control::upgrade::{Noted, Outlook};
use diorite_replica::Store;
use std::sync::Arc;
use std::time::Duration;

/// How long a node is given to note something.
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
            Some(_) if outlook.is_held() => UpgradeState::Held,
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
                program: report.map(|report| report::release(report).to_owned()),
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
        self.agree(&command, u64::MAX).await?;
        self.commit(&command).await?;
        in_json(&Done { message: format!("the cluster is at level {level}: no node can go back any more") })
    }

    /// Has all members agree to the level before it is raised by itself.
    pub(super) async fn agree_unless_held(&self, command: &Command) -> Result<(), Failure> {
        let overruled = self.outlook().2.overruled();
        self.agree(command, overruled).await
    }

    /// Has all members agree to the level before it is raised: none of them starts with a program that does not know it
    /// any more. They do so in spite of a hold up to this number.
    async fn agree(&self, command: &Command, overruled: u64) -> Result<(), Failure> {
        let Command::RaiseLevel { level, members } = command else { return Ok(()) };
        let ask = Ask::AgreeToLevelHere { level: *level, overruled };
        let failed = self.ask_all(members, &ask).await;
        match failed.is_empty() {
            true => Ok(()),
            false => Err(unavailable(format!("not all nodes agree to level {level}, try again: {}", joined(&failed)))),
        }
    }

    /// Asks nodes the same; returns why some have failed to do it.
    async fn ask_all(&self, nodes: &[NodeId], ask: &Ask) -> Vec<String> {
        let asked = nodes.iter().map(|node| self.ask_any(*node, ask.clone(), TIMEOUT));
        failures(futures::future::join_all(asked).await, nodes)
    }

    /// Agrees to a level.
    pub(super) async fn agree_to_level_here(&self, level: Level, overruled: u64) -> Answer {
        self.note(move |store, noted| {
            noted
                .agrees(level, overruled, Levels::OWN, Planted::default())
                .map_err(|refusal| refused(refusal.to_string()))?;
            store.note_level(level).map_err(|error| unavailable(error.to_string()))
        })
        .await?;
        tracing::info!(event = "upgrade", %level, "this node does not go back from here");
        in_json(&Done { message: format!("agreed to level {level}") })
    }

    /// Has all nodes note that the upgrade is held, or goes on.
    pub(super) async fn decide_about_upgrade(&self, is_held: bool) -> Answer {
        let (catalog, known, outlook) = self.outlook();
        let level = outlook.level;
        let is_new = |node: &NodeId| known.reports.get(node).is_some_and(|report| report.levels.greatest > level);
        let nodes: Vec<NodeId> = catalog.nodes().map(|node| node.id).filter(is_new).collect();
        if nodes.is_empty() {
            return Err(highest(level));
        }
        if !is_held && !outlook.is_held() {
            return Err(refused(format!("no operator holds the cluster at level {level}")));
        }
        let hold = outlook.decided(is_held);
        let failed = self.ask_all(&nodes, &Ask::NoteHoldHere(hold)).await;
        let (what, then) = match is_held {
            true => ("held", format!("the cluster stays at level {level} until `upgrade finish` or `upgrade resume`")),
            false => ("resumed", format!("level {} follows by itself, unless `upgrade hold`", level.next())),
        };
        if !failed.is_empty() {
            return Err(unavailable(format!("the upgrade may not be {what} everywhere: {}", joined(&failed))));
        }
        tracing::info!(event = "upgrade", %level, is_held, "an operator holds the upgrade, or lets it go on");
        in_json(&Done { message: then })
    }

    /// Notes an operator's decision on this node.
    pub(super) async fn note_hold_here(&self, hold: Hold) -> Answer {
        self.note(move |store, noted| {
            noted.takes(hold).map_err(|refusal| refused(refusal.to_string()))?;
            store.note_hold(hold).map_err(|error| unavailable(error.to_string()))
        })
        .await?;
        in_json(&Done { message: format!("noted: {hold}") })
    }

    /// Decides by what this node's disks have, and notes something there; one at a time.
    async fn note(
        &self,
        decide: impl FnOnce(&Store, Noted) -> Result<(), Failure> + Send + 'static,
    ) -> Result<(), Failure> {
        let (store, noting) = (Arc::clone(&self.store), Arc::clone(&self.noting));
        let noted = self.runtime.spawn_blocking(move || {
            let _one_at_a_time = noting.lock();
            decide(&store, Noted { level: store.noted_level(), hold: store.hold() })
        });
        noted.await.map_err(|error| unavailable(error.to_string()))?
    }
}
