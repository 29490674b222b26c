//! What operators are told: the catalog and what the nodes have reported, put together.

use super::report::{DiskReport, Report};
use super::steer::{Known, view};
use super::{Answer, Operations, unavailable};
use diorite_admin::api::{
    Ask, BalancerStatus, ClusterStatus, DiskStatus, Failure, FailureKind, MoveStatus, NodeStatus, ReplicaStatus,
    TableStatus, TabletFilter, TabletPage, TabletStatus,
};
use diorite_base::{NodeId, TabletId};
use diorite_cluster::balance::{Progress, progress};
use diorite_cluster::catalog::{Catalog, Node, NodeState, Placement};
use diorite_model::schema::TableEntry;
use std::collections::{BTreeMap, HashMap};
use std::net::SocketAddr;
use std::sync::Arc;

/// Tablets on a page, if nothing else is asked for, and at most.
const PAGE: usize = 1_000;
const LARGEST_PAGE: usize = 10_000;

/// Everything that answers are made of.
struct Sight {
    catalog: Arc<Catalog>,
    known: Known,
    /// The last reports, also of nodes that are down.
    last: BTreeMap<NodeId, Arc<Report>>,
    /// Sizes of replicas and who leads, by tablet.
    replicas: HashMap<TabletId, Vec<(NodeId, u64)>>,
    leaders: HashMap<TabletId, NodeId>,
}

impl Sight {
    fn is_up(&self, node: NodeId) -> bool {
        self.known.up.get(&node).copied().unwrap_or(false)
    }

    fn live_voters(&self, placement: &Placement) -> usize {
        let voters = placement.replicas.iter().filter(|node| !placement.arriving.contains(node));
        voters.filter(|node| self.is_up(**node)).count()
    }

    fn is_under_replicated(&self, catalog: &Catalog, keyspace: &str, placement: &Placement) -> bool {
        self.live_voters(placement) < catalog.replication_of(keyspace).total() as usize
    }

    fn largest(&self, tablet: TabletId) -> u64 {
        let sizes = self.replicas.get(&tablet).into_iter().flatten();
        sizes.map(|(_, bytes)| *bytes).max().unwrap_or(0)
    }
}

impl Operations {
    /// The answer to a question that changes nothing.
    pub(super) fn look_up(&self, ask: &Ask) -> Answer {
        let sight = self.sight();
        let value = match ask {
            Ask::Status => serde_json::to_value(self.status(&sight)),
            Ask::Nodes => serde_json::to_value(nodes(&sight)),
            Ask::Tables => serde_json::to_value(tables(&sight)),
            Ask::Tablets(filter) => serde_json::to_value(tablets(&sight, filter)),
            Ask::Moves => serde_json::to_value(moves(&sight)),
            Ask::Change(_) | Ask::Node { .. } => {
                return Err(Failure::new(FailureKind::Invalid, "the catalog's leader does not look this up"));
            }
        };
        value.map_err(|error| unavailable(error.to_string()))
    }

    /// How the cluster is, as far as this node, which leads the catalog, knows.
    pub(super) fn summarize(&self) -> ClusterStatus {
        self.status(&self.sight())
    }

    fn sight(&self) -> Sight {
        let catalog = self.catalog.current();
        let known = self.known(&catalog);
        let (mut replicas, mut leaders) = (HashMap::new(), HashMap::new());
        for (node, report) in &known.reports {
            for replica in &report.tablets {
                replicas.entry(replica.tablet).or_insert_with(Vec::new).push((*node, replica.bytes));
                if replica.leads {
                    leaders.insert(replica.tablet, *node);
                }
            }
        }
        Sight { catalog, known, last: self.knowledge.last(), replicas, leaders }
    }

    fn status(&self, sight: &Sight) -> ClusterStatus {
        let catalog = &sight.catalog;
        let identity = catalog.identity();
        let progress = progress(&view(catalog, &sight.known));
        let (mut under_replicated, mut leaderless, mut unavailable) = (0, 0, 0);
        for (tablet, placement) in catalog.tablets() {
            let keyspace = catalog.table_by_id(placement.table).map_or("", |entry| entry.table.keyspace.as_str());
            under_replicated += usize::from(sight.is_under_replicated(catalog, keyspace, placement));
            leaderless += usize::from(!sight.leaders.contains_key(&tablet));
            let voters = placement.replicas.len() - placement.arriving.len();
            unavailable += usize::from(sight.live_voters(placement) <= voters / 2);
        }
        ClusterStatus {
            name: identity.name.clone(),
            cluster_id: identity.cluster_id.map(|id| id.to_string()).unwrap_or_default(),
            replication_factor: identity.replication_factor,
            catalog_version: catalog.version(),
            leader: self.node,
            nodes: catalog.nodes().count(),
            live_nodes: sight.known.up.values().filter(|is_up| **is_up).count(),
            tables: catalog.tables().count(),
            tablets: catalog.tablets().count(),
            under_replicated,
            leaderless,
            unavailable,
            full_disks: full_disks(sight),
            balancer: balancer(catalog, &progress),
            warnings: warnings(sight, unavailable),
        }
    }
}

fn full_disks(sight: &Sight) -> usize {
    let disks = sight.known.reports.values().flat_map(|report| &report.disks);
    disks.filter(|disk| disk.is_full || disk.has_failed).count()
}

fn balancer(catalog: &Catalog, progress: &Progress) -> BalancerStatus {
    let settings = &catalog.identity().settings;
    let activity = serde_json::to_value(progress.activity).ok();
    BalancerStatus {
        state: activity.as_ref().and_then(|name| name.as_str()).unwrap_or_default().to_owned(),
        moves: catalog.tablets().filter(|(_, placement)| placement.is_moving()).count(),
        bytes_left: progress.bytes_left,
        eta_seconds: progress.eta_seconds,
        stuck: progress.stuck.iter().map(ToString::to_string).collect(),
        copy_rate_bytes: settings.copy_rate_bytes,
        replace_after_ms: settings.replace_after_ms,
        preferred_leader_zones: settings.preferred_leader_zones.clone(),
    }
}

fn warnings(sight: &Sight, unavailable: usize) -> Vec<String> {
    let mut warnings = Vec::new();
    if unavailable > 0 {
        warnings.push(format!("{unavailable} tablets have no quorum: they can be neither read nor written"));
    }
    for node in sight.catalog.nodes() {
        if !sight.is_up(node.id) {
            warnings.push(format!("node {} ({}) is down", node.id, node.address()));
        } else if !sight.known.reports.contains_key(&node.id) {
            warnings.push(format!("node {} ({}) has not reported yet", node.id, node.address()));
        }
        for disk in sight.known.reports.get(&node.id).into_iter().flat_map(|report| &report.disks) {
            if disk.has_failed {
                warnings.push(format!("disk {} of node {} has failed", disk.path, node.id));
            } else if disk.is_full {
                warnings.push(format!("disk {} of node {} is full: writes to it are refused", disk.path, node.id));
            } else if disk.free_bytes < disk.reserve_bytes {
                warnings.push(format!("disk {} of node {} is nearly full: nothing is moved there", disk.path, node.id));
            }
        }
    }
    warnings
}

fn nodes(sight: &Sight) -> Vec<NodeStatus> {
    let mut replicas: HashMap<NodeId, usize> = HashMap::new();
    for (_, placement) in sight.catalog.tablets() {
        placement.holders().for_each(|node| *replicas.entry(node).or_default() += 1);
    }
    let mut leaders: HashMap<NodeId, usize> = HashMap::new();
    let led = sight.leaders.iter().filter(|(tablet, _)| sight.catalog.placement(**tablet).is_some());
    led.for_each(|(_, node)| *leaders.entry(*node).or_default() += 1);
    let count = |counts: &HashMap<NodeId, usize>, node: NodeId| counts.get(&node).copied().unwrap_or(0);
    let status = |node: &Arc<Node>| node_status(sight, node, count(&replicas, node.id), count(&leaders, node.id));
    sight.catalog.nodes().map(status).collect()
}

fn node_status(sight: &Sight, node: &Node, replicas: usize, leaders: usize) -> NodeStatus {
    let report = sight.last.get(&node.id);
    let is_up = sight.is_up(node.id);
    NodeStatus {
        node: node.id,
        host_id: node.description.host_id.to_string(),
        cql_address: SocketAddr::new(node.address(), node.description.cql_port).to_string(),
        http_address: SocketAddr::new(node.address(), node.description.http_port).to_string(),
        data_center: node.description.data_center.clone(),
        zone: node.zone().to_owned(),
        is_up,
        state: match node.state {
            NodeState::Active => "active",
            NodeState::Draining => "draining",
            NodeState::Dead => "dead",
        }
        .to_owned(),
        may_lead: !node.leads_nothing,
        replicas,
        leaders,
        tablet_bytes: report.map_or(0, |report| report.tablets.iter().map(|replica| replica.bytes).sum()),
        uptime_seconds: report.filter(|_| is_up).map(|report| report.uptime_s),
        program: report.map(|report| report.program.clone()),
        resident_bytes: report.filter(|_| is_up).and_then(|report| report.resident_bytes),
        cpu_seconds: report.filter(|_| is_up).and_then(|report| report.cpu_s),
        disks: report.map_or_else(Vec::new, |report| {
            report.disks.iter().enumerate().map(|(at, disk)| disk_status(report, at, disk)).collect()
        }),
    }
}

fn disk_status(report: &Report, at: usize, disk: &DiskReport) -> DiskStatus {
    let on_it = || report.tablets.iter().filter(|replica| usize::from(replica.disk) == at);
    DiskStatus {
        path: disk.path.clone(),
        total_bytes: disk.total_bytes,
        free_bytes: disk.free_bytes,
        tablet_bytes: on_it().map(|replica| replica.bytes).sum(),
        log_bytes: disk.log_bytes,
        replicas: on_it().count(),
        is_full: disk.is_full,
        has_failed: disk.has_failed,
    }
}

fn tables(sight: &Sight) -> Vec<TableStatus> {
    let status = |entry: &Arc<TableEntry>| {
        let table = &entry.table;
        let placements = || entry.tablets.iter().filter_map(|range| sight.catalog.placement(range.tablet));
        TableStatus {
            keyspace: table.keyspace.clone(),
            name: table.name.clone(),
            id: table.uuid.to_string(),
            tablets: entry.tablets.len(),
            replication_factor: sight.catalog.replication_of(&table.keyspace).total(),
            bytes: entry.tablets.iter().map(|range| sight.largest(range.tablet)).sum(),
            under_replicated: placements()
                .filter(|placement| sight.is_under_replicated(&sight.catalog, &table.keyspace, placement))
                .count(),
        }
    };
    sight.catalog.tables().map(status).collect()
}

fn tablets(sight: &Sight, filter: &TabletFilter) -> TabletPage {
    let limit = filter.limit.unwrap_or(PAGE).clamp(1, LARGEST_PAGE);
    let is_wanted = |entry: &TableEntry, tablet: TabletId| {
        filter.keyspace.as_ref().is_none_or(|keyspace| *keyspace == entry.table.keyspace)
            && filter.table.as_ref().is_none_or(|table| *table == entry.table.name)
            && filter.tablet.is_none_or(|wanted| wanted == tablet.0)
            && filter.after.is_none_or(|after| tablet.0 > after)
            && filter.node.is_none_or(|node| {
                sight.catalog.placement(tablet).is_some_and(|placement| placement.is_held_by(NodeId(node)))
            })
    };
    let mut found = Vec::new();
    for entry in sight.catalog.tables() {
        for (at, range) in entry.tablets.iter().enumerate().filter(|(_, range)| is_wanted(entry, range.tablet)) {
            let last_token = entry.tablets.get(at + 1).map_or(i64::MAX, |next| next.first_token - 1);
            found.push((range.tablet, entry, range.first_token, last_token));
        }
    }
    found.sort_unstable_by_key(|(tablet, ..)| *tablet);
    let has_more = found.len() > limit;
    found.truncate(limit);
    let next_after = found.last().filter(|_| has_more).map(|(tablet, ..)| tablet.0);
    let statuses = found.into_iter().filter_map(|(tablet, entry, first_token, last_token)| {
        let placement = sight.catalog.placement(tablet)?;
        Some(TabletStatus {
            tablet,
            keyspace: entry.table.keyspace.clone(),
            table: entry.table.name.clone(),
            first_token,
            last_token,
            leader: sight.leaders.get(&tablet).copied(),
            bytes: sight.largest(tablet),
            replicas: placement.holders().map(|node| replica_status(sight, tablet, placement, node)).collect(),
        })
    });
    TabletPage { tablets: statuses.collect(), next_after }
}

fn replica_status(sight: &Sight, tablet: TabletId, placement: &Placement, node: NodeId) -> ReplicaStatus {
    let role = if placement.arriving.contains(&node) {
        "arriving"
    } else if placement.leaving.contains(&node) {
        "leaving"
    } else {
        "voter"
    };
    let sizes = sight.replicas.get(&tablet).into_iter().flatten();
    let bytes = sizes.filter(|(on, _)| *on == node).map(|(_, bytes)| *bytes).next();
    ReplicaStatus { node, role: role.to_owned(), is_up: sight.is_up(node), bytes }
}

fn moves(sight: &Sight) -> Vec<MoveStatus> {
    let mut moves = Vec::new();
    for (tablet, placement) in sight.catalog.tablets().filter(|(_, placement)| placement.is_moving()) {
        let Some(entry) = sight.catalog.table_by_id(placement.table) else { continue };
        let mut targets: Vec<Option<NodeId>> = placement.arriving.iter().copied().map(Some).collect();
        if targets.is_empty() {
            targets.push(None);
        }
        for to in targets {
            let reports = to.and_then(|node| sight.known.reports.get(&node));
            let copy = reports.and_then(|report| report.copies.iter().find(|copy| copy.tablet == tablet));
            let bytes_total =
                copy.map_or_else(|| if to.is_some() { sight.largest(tablet) } else { 0 }, |copy| copy.bytes_total);
            let bytes_done = copy.map_or(0, |copy| copy.bytes_done);
            let rate_bytes = copy.map_or(0, |copy| copy.rate_bytes);
            moves.push(MoveStatus {
                tablet,
                keyspace: entry.table.keyspace.clone(),
                table: entry.table.name.clone(),
                to,
                source: copy.map(|copy| copy.source),
                leaving: placement.leaving.clone(),
                bytes_done,
                bytes_total,
                rate_bytes,
                eta_seconds: (bytes_total.saturating_sub(bytes_done)).checked_div(rate_bytes),
            });
        }
    }
    moves
}
