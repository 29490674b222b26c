//! Answers about the cluster, its nodes, its tables and its moves, from the catalog and the nodes' reports.

use super::changes::check_set;
use super::indexes::check::{Comparing, Tables, find_part};
use super::report::{self, Report, SetAside};
use super::sight::Sight;
use super::{ANSWER_TIMEOUT, ASK_AGAIN, ATTEMPTS_TO_CHANGE, Operations};
use super::{Answer, in_json, indexes, restart, transactions, unavailable};
use crate::catalog::CATALOG_TABLET;
use crate::node_tls::{EXPIRY_WARNING_DAYS, Protection};
use crate::pause::pause;
use diorite_admin::api::{
    Activity, Ask, BalancerStatus, ClusterStatus, ComparedPart, DiskStatus, Failure, FailureKind, IndexId, MoveStatus,
    NodeIndexRate, NodeStatus, PartHere, TableDetail, TableShare, TableStatus, WantedCheck,
};
use diorite_base::{NodeId, TabletId, limits};
use diorite_cluster::balance::{Progress, progress};
use diorite_cluster::catalog::{Catalog, Node, NodeState, Placement};
use diorite_control::report::{DiskReport, Files};
use diorite_control::restart::Recovery;
use diorite_control::shrink::merge_limit;
use diorite_control::view::view;
use diorite_model::schema::TableEntry;
use diorite_query::ddl::describe::table_schema;
use futures::StreamExt;
use serde::de::DeserializeOwned;
use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

/// The most set-aside replicas of a node that warnings name.
const NAMED_REPLICAS: usize = 10;
/// How long a node may take to list its set-aside replicas, and how many nodes are asked at a time.
const SET_ASIDE_TIMEOUT: Duration = Duration::from_secs(1);
const ASKED_AT_A_TIME: usize = 32;
/// How long a node may take to report its part in the plan of a restart.
const RECOVERY_TIMEOUT: Duration = Duration::from_secs(2);
/// How long a node may take to look at the indexes of the tablets that it leads.
const INDEXES_TIMEOUT: Duration = Duration::from_secs(5);
/// So long the leader of a tablet is looked for that is to compare an index.
const LOOKING_NS: u64 = 20_000_000_000;
/// How long a node may take to list the transactions in the tablets that it leads.
const TRANSACTIONS_TIMEOUT: Duration = Duration::from_secs(3);

impl Operations {
    /// Answers a question that changes nothing. For a large cluster that takes a while, so it runs on a thread where it
    /// delays no requests.
    pub(super) async fn look_up(&self, ask: Ask) -> Answer {
        let set_aside = match ask {
            Ask::Status => self.set_aside_everywhere().await,
            _ => BTreeMap::new(),
        };
        let sight = self.sight().with_set_aside(set_aside);
        let looking = self.runtime.spawn_blocking(move || sight.look_up(&ask));
        looking.await.unwrap_or_else(|error| Err(unavailable(error.to_string())))
    }

    /// The current set-aside replicas of all nodes: reports are a few seconds old, and an operator who asks whether the
    /// cluster is healthy must not get an old answer. For a node that is down, or does not answer in time, its last
    /// report is used.
    async fn set_aside_everywhere(&self) -> BTreeMap<NodeId, SetAside> {
        let catalog = self.catalog.current();
        let nodes: Vec<NodeId> = catalog.nodes().map(|node| node.id).filter(|node| self.is_up(*node)).collect();
        let asked = nodes.into_iter().map(|node| async move {
            let answer = self.ask_any(node, Ask::SetAside, SET_ASIDE_TIMEOUT).await;
            Some((node, serde_json::from_value(answer.ok()?).ok()?))
        });
        futures::stream::iter(asked).buffer_unordered(ASKED_AT_A_TIME).filter_map(std::future::ready).collect().await
    }

    /// This node's part in the plan of a restart of all nodes.
    pub(super) fn recovery_here(&self) -> Answer {
        let uptime_ms = (self.clock.monotonic_ns() - self.started_ns) / 1_000_000;
        in_json(&restart::recovery(self.node, &self.store, &self.catalog.current(), uptime_ms))
    }

    /// The plan of a restart of all nodes, which are asked for their present state: reports are seconds old. A node that
    /// does not answer in time counts as down.
    pub(super) async fn restart_plan(&self, elapsed_ms: u64) -> Answer {
        let catalog = self.catalog.current();
        let nodes: Vec<NodeId> = catalog.nodes().map(|node| node.id).collect();
        let began_ns = self.clock.monotonic_ns();
        let asked = nodes.into_iter().map(|node| async move {
            let answer = self.ask_any(node, Ask::Recovery, RECOVERY_TIMEOUT).await;
            let recovery: Recovery = serde_json::from_value(answer.ok()?).ok()?;
            let since_ns = self.clock.monotonic_ns().saturating_sub(began_ns);
            Some((node, recovery.as_of(since_ns.div_ceil(1_000_000))))
        });
        let answers = futures::stream::iter(asked).buffer_unordered(ASKED_AT_A_TIME);
        let answers = answers.filter_map(std::future::ready).collect().await;
        in_json(&restart::plan(&catalog, &answers, self.node, elapsed_ms))
    }

    /// The state of the cluster as known to this node, which leads the catalog.
    pub(super) fn summarize(&self) -> ClusterStatus {
        status(&self.sight())
    }

    /// The transactions that are prepared in tablets led here.
    pub(super) fn transactions_here(&self) -> Answer {
        in_json(&transactions::led_here(self.node, &self.store, &self.catalog.served()))
    }

    /// Those in all tablets, as the nodes that lead them list them now.
    pub(super) async fn transactions_everywhere(&self) -> Answer {
        let sight = self.sight();
        let answers = self.ask_everywhere(&sight, &Ask::TransactionsHere, TRANSACTIONS_TIMEOUT).await;
        in_json(&transactions::gathered(&sight, answers))
    }

    /// How far indexes are in the tablets led here. That reads the tablets, so it runs on a thread where it delays no
    /// requests.
    pub(super) async fn indexes_here(&self, of: Option<IndexId>) -> Answer {
        let (store, catalog, record) = (Arc::clone(&self.store), self.catalog.served(), Arc::clone(&self.indexes));
        let now_ns = self.clock.monotonic_ns();
        let looking =
            self.runtime.spawn_blocking(move || indexes::status::led_here(&store, &catalog, &record, now_ns, of));
        in_json(&looking.await.map_err(|error| unavailable(error.to_string()))?)
    }

    /// How far they are in all tablets.
    pub(super) async fn indexes_everywhere(&self) -> Answer {
        let sight = self.sight();
        let answers = self.ask_everywhere(&sight, &Ask::IndexesHere { of: None }, INDEXES_TIMEOUT).await;
        in_json(&indexes::status::gathered(&sight, answers))
    }

    /// How far one is, tablet by tablet.
    pub(super) async fn index_everywhere(&self, keyspace: &str, name: &str) -> Answer {
        let sight = self.sight();
        let of = indexes::status::find(&sight.catalog, keyspace, name)?;
        let answers = self.ask_everywhere(&sight, &Ask::IndexesHere { of: Some(of) }, INDEXES_TIMEOUT).await;
        in_json(&indexes::status::detail(&sight, of, answers)?)
    }

    /// Compares a part of an index with its table, by the leader of the tablet. While that is looked for, the tablet may
    /// be split. A tablet that cannot be compared is named with the reason.
    pub(super) async fn check_index(&self, wanted: WantedCheck) -> Answer {
        let began_ns = self.clock.monotonic_ns();
        let (mut attempt, mut refused_by) = (0, None);
        loop {
            let catalog = self.catalog.current();
            let of = indexes::status::find(&catalog, &wanted.keyspace, &wanted.name)?;
            indexes::status::check_begun(&catalog, of)?;
            let dropped = || Failure::new(FailureKind::NotFound, "the table was dropped meanwhile");
            let part = find_part(Tables::of(&catalog, of).ok_or_else(dropped)?, wanted.part.clone())?;
            let leader = self.router.other_leader(part.tablet, attempt / 2, refused_by);
            let here = PartHere { of, tablet: part.tablet, place: part.place.clone() };
            let failure = match self.ask_to_check(leader, here).await {
                Ok(found) => return in_json(&part.with(found, None)),
                Err(failure) => failure,
            };
            attempt += 1;
            let is_temporary = matches!(failure.kind, FailureKind::NotBegun | FailureKind::Unavailable);
            let elapsed_ns = self.clock.monotonic_ns().saturating_sub(began_ns);
            if failure.kind == FailureKind::Invalid {
                return Err(failure);
            }
            if !is_temporary || attempt == ATTEMPTS_TO_CHANGE || elapsed_ns > LOOKING_NS {
                return in_json(&part.with(ComparedPart::default(), Some(failure.message)));
            }
            refused_by = leader;
            pause(ASK_AGAIN).await;
        }
    }

    async fn ask_to_check(&self, leader: Option<NodeId>, part: PartHere) -> Result<ComparedPart, Failure> {
        let none = || unavailable(format!("tablet {} has no leader", part.tablet.0));
        let found = self.ask_any(leader.ok_or_else(none)?, Ask::CheckIndexHere(part), ANSWER_TIMEOUT).await?;
        serde_json::from_value(found).map_err(|error| unavailable(error.to_string()))
    }

    /// Compares a part of a tablet that is led here.
    pub(super) async fn check_index_here(&self, part: PartHere) -> Answer {
        let own = self.own.get().ok_or_else(|| unavailable("the node is starting"))?;
        let comparing = Comparing {
            own: &**own,
            node: self.node,
            store: &self.store,
            clock: &*self.clock,
            runtime: &self.runtime,
            record: &self.indexes,
        };
        in_json(&comparing.part(&self.catalog.served(), part).await?)
    }

    /// Limits index builds on this node.
    pub(super) fn limit_indexes_here(&self, rate_bytes: u64) -> Answer {
        check_set(&limits::INDEX_RATE, rate_bytes)?;
        self.indexes.pacer.set_rate(rate_bytes);
        in_json(&NodeIndexRate { node: self.node, rate_bytes, failure: None })
    }

    /// Limits them on all nodes.
    pub(super) async fn limit_indexes_everywhere(&self, rate_bytes: u64) -> Answer {
        check_set(&limits::INDEX_RATE, rate_bytes)?;
        let sight = self.sight();
        let ask = Ask::LimitIndexesHere { rate_bytes };
        let mut answers: BTreeMap<NodeId, Result<NodeIndexRate, Failure>> =
            self.ask_everywhere(&sight, &ask, INDEXES_TIMEOUT).await.into_iter().collect();
        let down = || Err(unavailable("the node is down"));
        let found = sight.catalog.nodes().map(|node| {
            let answer = answers.remove(&node.id).unwrap_or_else(down);
            answer.unwrap_or_else(|failure| NodeIndexRate {
                node: node.id,
                rate_bytes: 0,
                failure: Some(failure.message),
            })
        });
        in_json(&found.collect::<Vec<_>>())
    }

    /// The answers of all nodes that are up, or why there are none.
    async fn ask_everywhere<T: DeserializeOwned>(
        &self,
        sight: &Sight,
        ask: &Ask,
        timeout: Duration,
    ) -> Vec<(NodeId, Result<T, Failure>)> {
        let nodes: Vec<NodeId> = sight.catalog.nodes().map(|node| node.id).filter(|node| sight.is_up(*node)).collect();
        let asked = nodes.into_iter().map(|node| async move {
            let answer = self.ask_any(node, ask.clone(), timeout).await;
            let read = |value| serde_json::from_value(value).map_err(|error| unavailable(error.to_string()));
            (node, answer.and_then(read))
        });
        futures::stream::iter(asked).buffer_unordered(ASKED_AT_A_TIME).collect().await
    }

    fn sight(&self) -> Sight {
        let catalog = self.catalog.current();
        let known = self.known(&catalog);
        let liveness = self.store.liveness();
        let silence_ns = catalog.nodes().filter_map(|node| Some((node.id, liveness.silence_ns(node.id)?))).collect();
        let last = self.steering.lock().last();
        Sight::new(self.node, catalog, known, last, silence_ns)
            .with_catalog_voters(self.store.voter_sets(CATALOG_TABLET))
    }
}

pub(super) fn status(sight: &Sight) -> ClusterStatus {
    let catalog = &sight.catalog;
    let identity = catalog.identity();
    let progress = progress(&view(catalog, &sight.known));
    let (mut under_replicated, mut leaders, mut leaderless, mut unavailable) = (0, 0, 0, 0);
    let (mut bytes, mut replica_bytes) = (0, 0);
    let mut wanted: HashMap<&str, u32> = HashMap::new();
    for (tablet, placement) in catalog.tablets() {
        let keyspace = catalog.table_by_id(placement.table).map_or("", |entry| entry.table.keyspace.as_str());
        let wanted = *wanted.entry(keyspace).or_insert_with(|| catalog.replication_of(keyspace).total());
        under_replicated += usize::from(sight.is_under_replicated(tablet, placement, wanted));
        leaders += usize::from(sight.leaders.contains_key(&tablet));
        leaderless += usize::from(sight.is_leaderless(tablet, placement));
        unavailable += usize::from(sight.is_unavailable(tablet, placement));
        bytes += sight.largest(tablet);
        replica_bytes += sight.replicas(tablet).iter().map(|(_, report)| report.bytes).sum::<u64>();
    }
    let tablets = catalog.tablets().count();
    let live = || sight.known.reports.iter().filter(|(node, _)| sight.is_up(**node)).map(|(_, report)| report);
    let programs: BTreeSet<&str> = live().map(|report| report::release(report)).collect();
    ClusterStatus {
        name: identity.name.clone(),
        cluster_id: identity.cluster_id.map(|id| id.to_string()).unwrap_or_default(),
        replication_factor: identity.replication_factor,
        requires_login: catalog.requires_login(),
        catalog_version: catalog.version(),
        leader: sight.me,
        nodes: catalog.nodes().count(),
        live_nodes: sight.known.up.values().filter(|is_up| **is_up).count(),
        programs: programs.into_iter().map(str::to_owned).collect(),
        tables: catalog.tables().count(),
        tablets,
        leaders,
        under_replicated,
        leaderless,
        unavailable,
        bytes,
        replica_bytes,
        reads_per_second: live().filter_map(|report| report.details.activity.reads_per_second).sum(),
        writes_per_second: live().filter_map(|report| report.details.activity.writes_per_second).sum(),
        full_disks: full_disks(sight),
        set_aside: sight.set_aside.values().map(Vec::len).sum(),
        scrubbed_nodes: live().filter(|report| report.details.scrubbed_ms.is_some()).count(),
        scrubbed_ms: live().filter_map(|report| report.details.scrubbed_ms).min(),
        scrub_damage_found: live().map(|report| report.details.scrub_damage_found).sum(),
        traffic: traffic(live().filter_map(|report| report.details.protection)),
        balancer: balancer(catalog, &progress),
        warnings: warnings(sight, unavailable),
    }
}

/// Each kind that nodes report, usually one.
fn traffic(reported: impl Iterator<Item = Protection>) -> String {
    let kinds: BTreeSet<Protection> = reported.collect();
    kinds.into_iter().map(Protection::describe).collect::<Vec<_>>().join("; ")
}

/// Warnings about what protects a node's traffic with the others.
fn unprotected(node: &Node, report: &Report) -> Option<String> {
    let (id, address) = (node.id, node.address());
    if report.details.protection == Some(Protection::Insecure) {
        return Some(format!(
            "node {id} ({address}) runs with --insecure: whoever reaches its port for other nodes can read and change everything"
        ));
    }
    let days = report.details.certificate_days_left.filter(|days| *days < EXPIRY_WARNING_DAYS)?;
    Some(match days {
        ..0 => format!("the certificate of node {id} ({address}) has expired: no connection is made with it any more"),
        days => format!("the certificate of node {id} ({address}) expires in {days} days"),
    })
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
        stalled: progress.stalled.iter().map(ToString::to_string).collect(),
        unlisted_stalled: progress.unlisted_stalled(),
        copy_rate_bytes: settings.copy_rate_bytes,
        replace_after_ms: settings.replace_after_ms,
        preferred_leader_zones: settings.preferred_leader_zones.clone(),
        split_bytes: settings.split_bytes,
        split_operations_per_second: settings.split_operations_per_second,
        merge_bytes: merge_limit(settings),
    }
}

fn warnings(sight: &Sight, unavailable: usize) -> Vec<String> {
    let mut warnings = Vec::new();
    if unavailable > 0 {
        warnings.push(format!("{unavailable} tablets have no quorum: they can be neither read nor written"));
    }
    if sight.catalog.requires_login().is_none() {
        let message = "it is not decided whether clients have to log in: start all members, or use diorite admin auth";
        warnings.push(message.to_owned());
    }
    for node in sight.catalog.nodes() {
        if !sight.is_up(node.id) {
            warnings.push(format!("node {} ({}) is down", node.id, node.address()));
        } else if !sight.known.reports.contains_key(&node.id) {
            warnings.push(format!("node {} ({}) has not reported yet", node.id, node.address()));
        }
        warnings.extend(out_of_touch(sight, node));
        warnings.extend(leads_nothing(node));
        let report = sight.known.reports.get(&node.id).filter(|_| sight.is_up(node.id));
        if let Some(others_ahead_us) = report.and_then(|report| report.details.clock_is_off_us) {
            let (apart_s, way) =
                (others_ahead_us.abs() as f64 / 1e6, if others_ahead_us < 0 { "ahead of" } else { "behind" });
            warnings.push(format!(
                "the clock of node {} ({}) is {apart_s:.1} s {way} the others': it leads nothing until it is set right",
                node.id,
                node.address()
            ));
        }
        warnings.extend(report.and_then(|report| unprotected(node, report)));
        if let Some(ahead_us) = report.and_then(|report| report.details.logs_ahead_us) {
            warnings.push(format!(
                "tablets of node {} ({}) hold timestamps that are {:.0} s ahead of its clock: conditions judge expiry by them until then",
                node.id,
                node.address(),
                ahead_us as f64 / 1e6
            ));
        }
        let set_aside = sight.set_aside.get(&node.id).map_or(&[][..], Vec::as_slice);
        for (tablet, reason) in set_aside.iter().take(NAMED_REPLICAS) {
            warnings.push(format!("node {} cannot use its replica of tablet {}: {reason}", node.id, tablet.0));
        }
        if let Some(more) = set_aside.len().checked_sub(NAMED_REPLICAS).filter(|more| *more > 0) {
            warnings.push(format!("node {} cannot use {more} more of its replicas", node.id));
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

/// An operator's order that is in force until it is taken back, also if it was given while the node was down.
fn leads_nothing(node: &Node) -> Option<String> {
    let (id, address) = (node.id, node.address());
    let message = || format!("node {id} ({address}) leads nothing until `diorite admin move-leaders {} --back`", id.0);
    node.leads_nothing.then(message)
}

/// Warnings about nodes with a greater id with which `node` exchanges no heartbeats, though they are up. Both nodes
/// must report it, since a node that has just started is not known to all others at once.
fn out_of_touch(sight: &Sight, node: &Node) -> Option<String> {
    let lacks = |one: NodeId, other: &NodeId| {
        sight.is_up(one)
            && sight.known.reports.get(&one).is_some_and(|report| report.details.out_of_touch.contains(other))
    };
    let report = sight.known.reports.get(&node.id)?;
    let others = report.details.out_of_touch.iter().filter(|other| **other > node.id);
    let mutual = others.filter(|other| lacks(node.id, other) && lacks(**other, &node.id));
    let names: Vec<String> = mutual.map(ToString::to_string).collect();
    let (id, address) = (node.id, node.address());
    (!names.is_empty()).then(|| {
        format!(
            "node {id} ({address}) exchanges no heartbeats with {}, though all are up: a link is down",
            names.join(", ")
        )
    })
}

pub(super) fn nodes(sight: &Sight) -> Vec<NodeStatus> {
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
        votes_in_catalog: sight.catalog_voters.contains(&node.id),
        replicas,
        leaders,
        tablet_bytes: report.map_or(0, |report| report.tablets.iter().map(|replica| replica.bytes).sum()),
        sst_files: report.map_or(0, |report| report.tablets.iter().map(|replica| replica.files.files).sum()),
        sst_bytes: report.map_or(0, |report| report.tablets.iter().map(|replica| replica.files.bytes).sum()),
        content_bytes: report.and_then(|report| estimated_contents(report.tablets.iter().map(|replica| replica.files))),
        last_heartbeat_ms: if node.id == sight.me {
            Some(0)
        } else {
            sight.silence_ns.get(&node.id).map(|silence_ns| silence_ns / 1_000_000)
        },
        uptime_seconds: report.filter(|_| is_up).map(|report| report.details.uptime_s),
        program: report.map(|report| report::release(report).to_owned()),
        resident_bytes: report.filter(|_| is_up).and_then(|report| report.details.resident_bytes),
        memory_limit_bytes: report.and_then(|report| report.details.memory_limit_bytes),
        cpu_seconds: report.filter(|_| is_up).and_then(|report| report.details.cpu_s),
        processors: report.and_then(|report| report.details.processors),
        activity: report.filter(|_| is_up).map_or_else(Activity::default, |report| report.details.activity.clone()),
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

pub(super) fn tables(sight: &Sight) -> Vec<TableStatus> {
    sight.catalog.tables().map(|entry| table_status(sight, entry)).collect()
}

fn table_status(sight: &Sight, entry: &TableEntry) -> TableStatus {
    let table = &entry.table;
    let wanted = sight.catalog.replication_of(&table.keyspace).total();
    let replicas = || entry.tablets.iter().flat_map(|range| sight.replicas(range.tablet));
    let count = |is_so: &dyn Fn(TabletId, &Placement) -> bool| {
        let tablets = entry.tablets.iter().map(|range| range.tablet);
        tablets.filter(|tablet| sight.catalog.placement(*tablet).is_some_and(|found| is_so(*tablet, found))).count()
    };
    let largest = |range: &diorite_model::schema::TabletRange| {
        sight.replicas(range.tablet).iter().map(|(_, report)| report).max_by_key(|report| report.bytes)
    };
    let contents = entry.tablets.iter().filter_map(largest).map(|report| report.files);
    TableStatus {
        keyspace: table.keyspace.clone(),
        name: table.name.clone(),
        id: table.uuid.to_string(),
        tablets: entry.tablets.len(),
        replication_factor: wanted,
        bytes: entry.tablets.iter().map(|range| sight.largest(range.tablet)).sum(),
        replica_bytes: replicas().map(|(_, report)| report.bytes).sum(),
        content_bytes: estimated_contents(contents),
        sst_files: replicas().map(|(_, report)| report.files.files).sum(),
        under_replicated: count(&|tablet, placement| sight.is_under_replicated(tablet, placement, wanted)),
        leaderless: count(&|tablet, placement| sight.is_leaderless(tablet, placement)),
    }
}

/// The uncompressed size of SSTables. For SSTables that were not measured since they changed, it is estimated from the
/// average ratio of the others.
fn estimated_contents(files: impl Iterator<Item = Files>) -> Option<u64> {
    let (mut all_bytes, mut asked_bytes, mut contents) = (0u64, 0u64, 0u64);
    for files in files {
        all_bytes += files.bytes;
        if let Some(content_bytes) = files.content_bytes {
            asked_bytes += files.bytes;
            contents += content_bytes;
        }
    }
    match (all_bytes, asked_bytes) {
        (0, _) => Some(0),
        (_, 0) => None,
        _ => u64::try_from(u128::from(contents) * u128::from(all_bytes) / u128::from(asked_bytes)).ok(),
    }
}

pub(super) fn table(sight: &Sight, keyspace: &str, name: &str) -> Result<TableDetail, Failure> {
    let missing = || Failure::new(FailureKind::NotFound, format!("there is no table {keyspace}.{name}"));
    let entry = sight.catalog.table(keyspace, name).ok_or_else(missing)?;
    let schema = table_schema(&sight.catalog, keyspace, name).ok_or_else(missing)?;
    let mut shares: BTreeMap<NodeId, TableShare> = BTreeMap::new();
    for range in &entry.tablets {
        let Some(placement) = sight.catalog.placement(range.tablet) else { continue };
        for node in placement.holders() {
            let none = TableShare { node, replicas: 0, leaders: 0, bytes: 0 };
            let share = shares.entry(node).or_insert(none);
            share.replicas += 1;
            share.leaders += usize::from(sight.leaders.get(&range.tablet) == Some(&node));
            share.bytes += sight.replica(range.tablet, node).map_or(0, |report| report.bytes);
        }
    }
    Ok(TableDetail { status: table_status(sight, entry), schema, nodes: shares.into_values().collect() })
}

pub(super) fn moves(sight: &Sight) -> Vec<MoveStatus> {
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
