//! The balancer's view of the cluster, and its actions as commands to the catalog.
//!
//! Always true: a command names the placement that it was decided on; everything is a pure function of the catalog and
//! the reports.

use crate::knowledge::Known;
use crate::report::DiskReport;
use diorite_base::{NodeId, TabletId};
use diorite_cluster::balance::{Action, Arrival, DiskView, Limits, NodeState as Standing, NodeView, TabletView, View};
use diorite_cluster::catalog::{Catalog, Command, Node, NodeState, Placement};
use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;

/// The name of an action's reason, as in metrics and reports.
pub fn reason_name(action: &Action) -> String {
    let name = serde_json::to_value(action.reason()).ok();
    name.as_ref().and_then(|name| name.as_str()).unwrap_or_default().to_owned()
}

/// The command for an action, with the placement that it was decided on.
pub fn command_of(catalog: &Catalog, action: &Action) -> Option<Command> {
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
    Some(Command::Place { tablet: action.tablet(), expected, replicas, is_numbered: true })
}

/// The reported replicas of a tablet.
#[derive(Default)]
struct Reported {
    bytes: u64,
    leader: Option<NodeId>,
    disks: Vec<(NodeId, usize)>,
}

/// The balancer's view of the cluster.
pub fn view<D>(catalog: &Catalog, known: &Known<D>) -> View {
    let settings = &catalog.identity().settings;
    let mut reported: HashMap<TabletId, Reported> = HashMap::with_capacity(catalog.tablets().count());
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
                is_reshaping: placement.is_reshaping(),
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

fn nodes<D>(catalog: &Catalog, known: &Known<D>) -> Vec<NodeView> {
    let view = |node: &Arc<Node>| NodeView {
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
            let disk = |disk: &DiskReport| DiskView {
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

fn arrivals<D>(tablet: TabletId, placement: &Placement, bytes: u64, known: &Known<D>) -> Vec<Arrival> {
    let arrival = |node: &NodeId| {
        let copies = known.reports.get(node).map_or(&[][..], |report| &report.copies[..]);
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
