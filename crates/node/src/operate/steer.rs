//! The balancer at work, on the node that leads the catalog.
//!
//! Always true: a node that has been silent for the time that operators have set is declared dead before its replicas are made anew, and declared
//! alive as soon as it is heard again; what the balancer asks for is proposed in its order, each with the state that it was decided on.

use super::Operations;
use super::report::Report;
use super::shrink::next_merge;
use crate::membership::pause;
use ahash::AHashMap;
use diorite_base::{NodeId, TabletId};
use diorite_cluster::balance::{
    Action, Arrival, DiskView, Limits, NodeState as Standing, NodeView, TabletView, View, balance,
};
use diorite_cluster::catalog::{Catalog, Command, NodeState, Outcome, Placement};
use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

/// The pause between two looks while something happens.
const BUSY_INTERVAL: Duration = Duration::from_millis(500);
/// How many such pauses there are between two looks while nothing does.
const IDLE_INTERVALS: u32 = 4;
/// How long, after this node has begun to lead the catalog, the other nodes are given to show that they live before they count as silent.
const SETTLING_IN_NS: u64 = 2_000_000_000;
/// How often the cluster as a whole is looked at, for those who watch it.
const SUMMARY_NS: u64 = 5_000_000_000;

/// What is known of the cluster at one moment, beside the catalog.
pub(super) struct Known {
    pub(super) reports: BTreeMap<NodeId, Arc<Report>>,
    pub(super) up: BTreeMap<NodeId, bool>,
}

impl Known {
    /// Whether all nodes that are up have told how they are.
    fn is_complete(&self) -> bool {
        self.up.iter().all(|(node, is_up)| !is_up || self.reports.contains_key(node))
    }
}

impl Operations {
    pub(super) async fn keep_steering(self: &Arc<Self>) {
        let (mut leading_since_ns, mut idle) = (None, 0);
        let (mut last_version, mut summarized_ns) = (0, 0);
        loop {
            pause(BUSY_INTERVAL).await;
            if !self.leads() {
                if leading_since_ns.take().is_some() {
                    *self.summary.lock() = None;
                    self.knowledge.forget();
                }
                continue;
            }
            let now_ns = self.clock.monotonic_ns();
            if now_ns < *leading_since_ns.get_or_insert(now_ns) + SETTLING_IN_NS {
                continue;
            }
            if now_ns >= summarized_ns + SUMMARY_NS {
                summarized_ns = now_ns;
                self.summarize_apart().await;
            }
            let version = self.catalog.current().version();
            idle = if version == last_version { idle + 1 } else { 0 };
            last_version = version;
            if idle % IDLE_INTERVALS != 0 {
                continue;
            }
            if self.declare(now_ns).await {
                self.rebalance().await;
            }
        }
    }

    /// Looks at the whole cluster, for those who watch it, on a thread that may take its time.
    async fn summarize_apart(self: &Arc<Self>) {
        let operations = Arc::clone(self);
        if let Ok(summary) = self.runtime.spawn_blocking(move || operations.summarize()).await {
            *self.summary.lock() = Some(Arc::new(summary));
        }
    }

    /// Takes in which nodes are dead and which live again. Whether the catalog could be told.
    async fn declare(&self, now_ns: u64) -> bool {
        let catalog = self.catalog.current();
        let nodes = catalog.nodes().map(|node| (node.id, self.is_up(node.id)));
        let silent = self.knowledge.watch(nodes, now_ns);
        let patience_ns = catalog.identity().settings.replace_after_ms.saturating_mul(1_000_000);
        for node in catalog.nodes() {
            let silence_ns = silent.get(&node.id).copied();
            let state = match (node.state, silence_ns) {
                (NodeState::Dead, None) => NodeState::Active,
                (NodeState::Active | NodeState::Draining, Some(silence_ns)) if silence_ns >= patience_ns => {
                    NodeState::Dead
                }
                _ => continue,
            };
            tracing::warn!(event = "node", node = %node.id, ?state, silent_s = silence_ns.map(|ns| ns / 1_000_000_000), "a node changes its state");
            if let Err(error) = self.catalog.propose(&Command::SetNodeState { node: node.id, state }).await {
                tracing::warn!(%error, "the catalog cannot be told of a node's state");
                return false;
            }
        }
        true
    }

    /// One look and what follows from it.
    async fn rebalance(&self) {
        let catalog = self.catalog.current();
        let known = self.known(&catalog);
        if !known.is_complete() {
            return;
        }
        let deciding = Arc::clone(&catalog);
        let now_ms = self.clock.wall_us() / 1_000;
        let decide = move || (balance(&view(&deciding, &known)), next_merge(&deciding, &known, now_ms));
        let Ok((actions, merge)) = self.runtime.spawn_blocking(decide).await else {
            tracing::error!("the balancer panicked");
            return;
        };
        for action in actions {
            let Some(command) = command_of(&catalog, &action) else { continue };
            *self.decided.lock().entry(reason_name(&action)).or_default() += 1;
            tracing::info!(event = "move", tablet = %action.tablet(), reason = %action.reason(), ?action, "balancing");
            match self.catalog.propose(&command).await {
                Ok(Outcome::Rejected { message, .. }) => tracing::debug!(message, "the catalog has moved on"),
                Ok(_) => {}
                Err(error) => {
                    tracing::info!(%error, "the catalog cannot be told where replicas are wanted; trying again");
                    return;
                }
            }
        }
        if let Some(command) = merge
            && let Err(error) = self.catalog.propose(&command).await
        {
            tracing::info!(%error, ?command, "could not ask for a merge; trying again");
        }
    }

    /// What is known now.
    pub(super) fn known(&self, catalog: &Catalog) -> Known {
        Known {
            reports: self.knowledge.fresh(self.clock.monotonic_ns()),
            up: catalog.nodes().map(|node| (node.id, self.is_up(node.id))).collect(),
        }
    }
}

/// As in metrics: the name that is also in reports.
fn reason_name(action: &Action) -> String {
    let name = serde_json::to_value(action.reason()).ok();
    name.as_ref().and_then(|name| name.as_str()).unwrap_or_default().to_owned()
}

fn command_of(catalog: &Catalog, action: &Action) -> Option<Command> {
    let placement = catalog.placement(action.tablet())?;
    let expected = placement.replicas.clone();
    let replicas = match action {
        Action::Place { replicas, .. } => replicas.clone(),
        Action::Lead { leader, .. } => {
            let mut replicas = expected.clone();
            let at = replicas.iter().position(|node| node == leader)?;
            replicas[..=at].rotate_right(1);
            replicas
        }
    };
    Some(Command::Place { tablet: action.tablet(), expected, replicas })
}

/// What replicas there are of a tablet, as reported.
#[derive(Default)]
struct Reported {
    bytes: u64,
    leader: Option<NodeId>,
    disks: Vec<(NodeId, usize)>,
}

/// The cluster as the balancer looks at it.
pub(super) fn view(catalog: &Catalog, known: &Known) -> View {
    let settings = &catalog.identity().settings;
    let mut reported: AHashMap<TabletId, Reported> = AHashMap::with_capacity(catalog.tablets().count());
    for (node, report) in &known.reports {
        for replica in &report.tablets {
            let found = reported.entry(replica.tablet).or_default();
            found.bytes = found.bytes.max(replica.bytes);
            found.disks.push((*node, usize::from(replica.disk)));
            if replica.leads {
                found.leader = Some(*node);
            }
        }
    }
    let mut replications: BTreeMap<&str, Arc<_>> = BTreeMap::new();
    let mut tablets = Vec::new();
    for entry in catalog.tables() {
        let keyspace = entry.table.keyspace.as_str();
        let wanted = replications.entry(keyspace).or_insert_with(|| Arc::new(catalog.replication_of(keyspace)));
        for range in &entry.tablets {
            let Some(placement) = catalog.placement(range.tablet) else { continue };
            let Reported { bytes, leader, disks } = reported.remove(&range.tablet).unwrap_or_default();
            tablets.push(TabletView {
                id: range.tablet,
                table: placement.table,
                bytes,
                wanted: Arc::clone(wanted),
                replicas: placement.replicas.clone(),
                leaving: placement.leaving.clone(),
                arriving: arrivals(range.tablet, placement, bytes, known),
                leader,
                disks,
            });
        }
    }
    View {
        nodes: nodes(catalog, known),
        tablets,
        limits: Limits { bytes_per_second: settings.copy_rate_bytes, ..Limits::default() },
        preferred_leader_zones: settings.preferred_leader_zones.clone(),
        paused: settings.balancing_is_paused,
    }
}

fn nodes(catalog: &Catalog, known: &Known) -> Vec<NodeView> {
    let view = |node: &Arc<diorite_cluster::catalog::Node>| NodeView {
        id: node.id,
        zone: node.zone().to_owned(),
        data_center: node.description.data_center.clone(),
        state: match (node.state, known.up.get(&node.id)) {
            (NodeState::Dead, _) => Standing::Dead,
            (_, Some(false) | None) => Standing::Suspect,
            (NodeState::Draining, Some(true)) => Standing::Draining,
            (NodeState::Active, Some(true)) => Standing::Live,
        },
        may_lead: !node.leads_nothing,
        disks: known.reports.get(&node.id).map_or_else(Vec::new, |report| {
            let disk = |disk: &super::report::DiskReport| DiskView {
                total_bytes: disk.total_bytes,
                free_bytes: disk.free_bytes,
                reserve_bytes: disk.reserve_bytes,
                failed: disk.has_failed,
            };
            report.disks.iter().map(disk).collect()
        }),
    };
    catalog.nodes().map(view).collect()
}

fn arrivals(tablet: TabletId, placement: &Placement, bytes: u64, known: &Known) -> Vec<Arrival> {
    let arrival = |node: &NodeId| {
        let copies = known.reports.get(node).map_or(&[][..], |report| &report.copies);
        match copies.iter().find(|copy| copy.tablet == tablet) {
            Some(copy) => Arrival {
                node: *node,
                from: Some(copy.source),
                bytes_left: copy.bytes_total.saturating_sub(copy.bytes_done),
            },
            None => Arrival { node: *node, from: None, bytes_left: bytes },
        }
    };
    placement.arriving.iter().map(arrival).collect()
}
