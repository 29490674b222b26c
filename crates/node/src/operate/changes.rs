//! What operators change, and why they may not.
//!
//! Always true: nothing that is allowed here takes away a quorum; a refusal says what would have to be done first.

use super::growth::Tokens;
use super::{Answer, Operations, unavailable};
use diorite_admin::api::{Change, Done, Failure, FailureKind};
use diorite_base::text::bytes;
use diorite_base::write::KvError;
use diorite_base::{NodeId, TabletId};
use diorite_cluster::catalog::{CancelledMerge, Catalog, Command, Node, NodeState, Outcome, Rejection, Setting};
use std::collections::BTreeMap;
use std::sync::Arc;

fn refused(message: String) -> Failure {
    Failure::new(FailureKind::Refused, message)
}

impl Operations {
    /// Changes what an operator asks for.
    pub(super) async fn carry_out(&self, change: Change) -> Answer {
        let catalog = self.catalog.current();
        let (command, message) = self.command_of(&catalog, change)?;
        let reply = self.catalog.change(&command).await.map_err(|error| match error {
            KvError::TooLarge(told) => refused(told),
            error => unavailable(error.to_string()),
        })?;
        match Outcome::decode(&reply) {
            Ok(Outcome::Rejected { rejection, message, .. }) => {
                let kind = match rejection {
                    Rejection::NoSuchNode => FailureKind::NotFound,
                    _ => FailureKind::Refused,
                };
                Err(Failure::new(kind, message))
            }
            Ok(_) => Ok(serde_json::json!(Done { message })),
            Err(error) => Err(unavailable(error.to_string())),
        }
    }

    fn command_of(&self, catalog: &Catalog, change: Change) -> Result<(Command, String), Failure> {
        Ok(match change {
            Change::Drain { node } => {
                self.check_drain(catalog, node)?;
                (
                    Command::SetNodeState { node, state: NodeState::Draining },
                    format!("node {node} is being drained; it serves until its replicas are elsewhere"),
                )
            }
            Change::Undrain { node } => {
                let found = member(catalog, node)?;
                if found.state != NodeState::Draining {
                    return Err(refused(format!("node {node} is not being drained")));
                }
                (Command::SetNodeState { node, state: NodeState::Active }, format!("node {node} holds replicas again"))
            }
            Change::Remove { node } => {
                self.check_remove(catalog, node)?;
                (Command::RemoveNode { node }, format!("node {node} is no member of the cluster any more"))
            }
            Change::Replace { node } => {
                self.check_replace(catalog, node)?;
                (
                    Command::SetNodeState { node, state: NodeState::Dead },
                    format!("the replicas of node {node} are being made anew on others"),
                )
            }
            Change::MoveLeaders { node, back } => {
                member(catalog, node)?;
                let leads_nothing = !back;
                if leads_nothing {
                    self.check_others_lead(catalog, node)?;
                }
                let what = if back { "leads again" } else { "hands over what it leads" };
                (Command::SetLeading { node, leads_nothing }, format!("node {node} {what}"))
            }
            Change::SetZone { node, zone } => {
                member(catalog, node)?;
                let message = match &zone {
                    Some(zone) => format!("node {node} is in zone {zone}"),
                    None => format!("node {node} is in the zone that it says itself"),
                };
                (Command::AssignZone { node, zone }, message)
            }
            Change::Split { tablet } => {
                let at = middle(catalog, tablet)?;
                (Command::BeginSplit { tablet, at, stays: true }, format!("{tablet} is being split at token {at}"))
            }
            Change::Merge { tablet, into } => {
                let into = match into {
                    Some(into) => into,
                    None => next_neighbour(catalog, tablet)?,
                };
                (Command::BeginMerge { tablet, into }, format!("{tablet} is being merged into {into}"))
            }
            Change::CancelMerge { tablet } => {
                let reason = "an operator has cancelled it".to_owned();
                let cancelled = CancelledMerge { reason, unix_ms: self.clock.wall_us() / 1_000 };
                let message = format!("the merge of {tablet} is cancelled; what it has done is being undone");
                (Command::CancelMerge { tablet, number: None, cancelled }, message)
            }
            Change::CancelSplit { tablet } => (Command::CancelSplit { tablet }, format!("{tablet} is not split")),
            setting => setting_of(setting)?,
        })
    }

    /// As many nodes must be left as there are replicas of a tablet.
    fn check_drain(&self, catalog: &Catalog, node: NodeId) -> Result<(), Failure> {
        member(catalog, node)?;
        let left: Vec<&Arc<Node>> = catalog
            .nodes()
            .filter(|other| other.id != node && other.state.is_active() && self.is_up(other.id))
            .collect();
        let mut lacking: BTreeMap<&str, usize> = BTreeMap::new();
        for entry in catalog.tables() {
            let keyspace = entry.table.keyspace.as_str();
            let held = entry.tablets.iter().filter_map(|range| catalog.placement(range.tablet));
            let most = held.map(|placement| placement.replicas.len()).max().unwrap_or(0);
            if most > left.len() {
                lacking.insert(keyspace, most);
            }
        }
        match lacking.into_iter().next() {
            Some((keyspace, replicas)) => Err(refused(format!(
                "without node {node}, {} active nodes are up, and keyspace {keyspace} has {replicas} replicas of each tablet: add a node first, \
                 or lower its replication factor",
                left.len()
            ))),
            None => Ok(()),
        }
    }

    fn check_remove(&self, catalog: &Catalog, node: NodeId) -> Result<(), Failure> {
        let found = member(catalog, node)?;
        let held = catalog.tablets_on(node).count();
        if held > 0 {
            let first = match (found.state, self.is_up(node)) {
                (NodeState::Draining, _) => "wait until it is drained",
                (NodeState::Dead, _) => "wait until they are made anew elsewhere",
                (NodeState::Active, true) => "drain it first",
                (NodeState::Active, false) => "replace it first",
            };
            return Err(refused(format!("node {node} holds replicas of {held} tablets: {first}")));
        }
        if node == self.node {
            return Err(refused(format!(
                "node {node} leads the catalog at the moment: stop its process, then remove it through another node"
            )));
        }
        Ok(())
    }

    fn check_replace(&self, catalog: &Catalog, node: NodeId) -> Result<(), Failure> {
        let found = member(catalog, node)?;
        if self.is_up(node) {
            return Err(refused(format!("node {node} is up: drain it instead")));
        }
        if found.state == NodeState::Dead {
            return Err(refused(format!("node {node} is being replaced already")));
        }
        // Its data may be the only copy that is left of some tablets: as long as it may come back it must stay wanted there.
        let lost = catalog.tablets_on(node).filter(|(_, placement)| {
            let live = placement.replicas.iter().filter(|replica| self.is_up(**replica)).count();
            live <= placement.replicas.len() / 2
        });
        match lost.count() {
            0 => Ok(()),
            lost => Err(refused(format!(
                "{lost} tablets have no quorum without node {node}, and cannot be made anew: bring it, or others, back first"
            ))),
        }
    }

    fn check_others_lead(&self, catalog: &Catalog, node: NodeId) -> Result<(), Failure> {
        let alone = catalog.tablets_on(node).filter(|(_, placement)| {
            !placement.replicas.iter().any(|replica| *replica != node && self.is_up(*replica))
        });
        match alone.count() {
            0 => Ok(()),
            alone => Err(refused(format!("{alone} tablets have no other replica that is up and could lead"))),
        }
    }

    /// Whether a node's heartbeats arrive here.
    pub(super) fn is_up(&self, node: NodeId) -> bool {
        node == self.node || self.store.liveness().is_up(node)
    }
}

fn setting_of(change: Change) -> Result<(Command, String), Failure> {
    let (setting, message) = match change {
        Change::SetRate { bytes_per_second: 0 } => {
            let message = "copies need some bytes per second; to stop them, pause balancing";
            return Err(Failure::new(FailureKind::Invalid, message));
        }
        Change::SetRate { bytes_per_second } => {
            let message = format!("copies may take {}/s for each node", bytes(bytes_per_second as f64));
            (Setting::CopyRate { bytes_per_second }, message)
        }
        Change::SetBalancing { is_paused } => {
            let message =
                if is_paused { "nothing is moved until it is resumed; repairs go on" } else { "balancing goes on" };
            (Setting::Balancing { is_paused }, message.to_owned())
        }
        Change::SetReplaceAfter { milliseconds } => {
            let message = format!("nodes are replaced after {} s of silence", milliseconds / 1_000);
            (Setting::ReplaceAfter { milliseconds }, message)
        }
        Change::SetLeaderZones { zones } => {
            let message = match zones.is_empty() {
                true => "leaders may be anywhere".to_owned(),
                false => format!("leaders are to be in {}", zones.join(", ")),
            };
            (Setting::PreferredLeaderZones { zones }, message)
        }
        Change::SetMergeSize { bytes: 0 } => {
            (Setting::MergeSize { bytes: 0 }, "tablets are merged only when that is asked for".to_owned())
        }
        Change::SetMergeSize { bytes: size } => (
            Setting::MergeSize { bytes: size },
            format!("neighbours of up to {} together are merged", bytes(size as f64)),
        ),
        Change::SetSplitSize { bytes: 0 } => {
            (Setting::SplitSize { bytes: 0 }, "no tablet is split for its size".to_owned())
        }
        Change::SetSplitSize { bytes: size } => {
            (Setting::SplitSize { bytes: size }, format!("tablets over {} are split", bytes(size as f64)))
        }
        Change::SetSplitLoad { operations_per_second } => {
            let message = match operations_per_second {
                0 => "no tablet is split for its load".to_owned(),
                most => format!("tablets with more than {most} reads and writes a second are split"),
            };
            (Setting::SplitLoad { operations_per_second }, message)
        }
        _ => return Err(Failure::new(FailureKind::Invalid, "that is not a setting")),
    };
    Ok((Command::Set { setting }, message))
}

/// The token in the middle of a tablet's.
fn middle(catalog: &Catalog, tablet: TabletId) -> Result<i64, Failure> {
    let tokens = Tokens::of(catalog, tablet)
        .ok_or_else(|| Failure::new(FailureKind::NotFound, format!("there is no {tablet}")))?;
    tokens.middle().ok_or_else(|| refused(format!("{tablet} holds a single token")))
}

/// The tablet after a tablet in its table.
fn next_neighbour(catalog: &Catalog, tablet: TabletId) -> Result<TabletId, Failure> {
    let ranges = catalog.table_of(tablet).map(|entry| entry.tablets.as_slice()).unwrap_or_default();
    let place = ranges.iter().position(|range| range.tablet == tablet);
    let place = place.ok_or_else(|| Failure::new(FailureKind::NotFound, format!("there is no {tablet}")))?;
    let next = ranges.get(place + 1).map(|range| range.tablet);
    next.ok_or_else(|| refused(format!("{tablet} is the last of its table: say which one is to take it in")))
}

fn member(catalog: &Catalog, node: NodeId) -> Result<&Arc<Node>, Failure> {
    catalog.node(node).ok_or_else(|| Failure::new(FailureKind::NotFound, format!("there is no node {node}")))
}
