//! Every page and every list of the interface for an invented cluster of 200 nodes and 10,000 tablets: the catalog is a
//! real one, the nodes' reports are invented, and answers and pages are made from both as on a node.

#![allow(clippy::unwrap_used, reason = "test data is known")]

mod indexes;
mod leading;
mod named;

use super::report::{Details, Report};
use super::sight::Sight;
use super::{Answer, Known, answers, may_be_asked_again, transactions};
use diorite_admin::api::{
    Activity, Ask, Change, FailureKind, MOST_PREPARED, NodeQuestion, PreparedTransaction, PreparedTransactions,
    ReplicaDetail, TabletDetail, TabletEvent, TabletFilter, TabletPage, TabletState, TransactionHome, TransactionName,
};
use diorite_admin::{Metrics, NodeView, Operator, router};
use diorite_base::{Level, NodeId, TableId, TabletId};
use diorite_cluster::catalog::{Catalog, Command, NodeDescription, NodeState, Outcome, Placement};
use diorite_control::report::{CopyReport, DiskReport, Files, TabletReport};
use diorite_model::schema::{Column, ColumnKind, Keyspace, Table};
use diorite_model::types::CqlType;
use futures::future::BoxFuture;
use serde_json::{Value, json};
use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::net::SocketAddr;
use std::sync::{Arc, OnceLock};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use uuid::Uuid;

const NODES: u64 = 200;
const TABLES: u128 = 100;
const TABLETS_PER_TABLE: u32 = 100;
const DOWN: NodeId = NodeId(7);
const DRAINING: NodeId = NodeId(9);
const MOVES: usize = 300;
/// The greatest size of a page, however large the cluster is. A browser shows such a page at once, and a phone can load
/// it.
const LARGEST_PAGE_BYTES: usize = 256 << 10;

pub(super) fn description(number: u64) -> NodeDescription {
    NodeDescription {
        host_id: Uuid::from_u128(u128::from(number)),
        address: [10, 0, (number / 256) as u8, (number % 256) as u8].into(),
        cql_port: 9042,
        rpc_port: 7100,
        http_port: 7000,
        data_center: "east".to_owned(),
        zone: format!("zone-{}", number % 5),
        node_address: None,
        levels: None,
    }
}

pub(super) fn table(number: u128) -> Table {
    let column = |id, name: &str, kind| Column { id, name: name.to_owned(), data_type: CqlType::Text, kind };
    Table {
        id: TableId(0),
        uuid: Uuid::from_u128(number),
        keyspace: "shop".to_owned(),
        name: format!("orders_{number:03}"),
        version: 0,
        columns: vec![column(0, "k", ColumnKind::PartitionKey), column(1, "v", ColumnKind::Regular)],
        next_column_id: 2,
        indexes: Vec::new(),
        deferred_indexes: Vec::new(),
        index_of: None,
        views: Vec::new(),
        view: None,
        default_ttl_s: 0,
        gc_grace_s: 864_000,
        options: BTreeMap::new(),
    }
}

fn catalog() -> Catalog {
    let replication = BTreeMap::from([
        ("class".to_owned(), "org.apache.cassandra.locator.SimpleStrategy".to_owned()),
        ("replication_factor".to_owned(), "3".to_owned()),
    ]);
    let keyspace = Keyspace { name: "shop".to_owned(), replication, durable_writes: true };
    let mut catalog = Catalog::default();
    let mut apply = |command: Command| {
        let (next, outcome) = catalog.apply(&command);
        assert!(!matches!(outcome, Outcome::Rejected { .. }), "{command:?}: {outcome:?}");
        catalog = next;
    };
    let name = "large".to_owned();
    apply(Command::Bootstrap {
        cluster_id: Uuid::from_u128(1),
        name,
        replication_factor: 3,
        requires_login: Some(false),
        level: Level::FIRST,
    });
    (1..=NODES).for_each(|number| apply(Command::RegisterNode { node: description(number) }));
    apply(Command::CreateKeyspace { keyspace, if_not_exists: false });
    for number in 0..TABLES {
        apply(Command::CreateTable { table: table(number), tablets: TABLETS_PER_TABLE, if_not_exists: false });
    }
    apply(Command::SetNodeState { node: DRAINING, state: NodeState::Draining });
    let placed: Vec<(TabletId, Vec<NodeId>)> =
        catalog.tablets().take(MOVES).map(|(tablet, placement)| (tablet, placement.replicas.clone())).collect();
    for (tablet, expected) in placed {
        let next = (1..=NODES).map(NodeId).find(|node| !expected.contains(node) && *node != DOWN).unwrap();
        let replicas = [expected[0], expected[1], next].to_vec();
        let (moved, _) = catalog.apply(&Command::Place { tablet, expected, replicas, is_numbered: true });
        catalog = moved;
    }
    catalog
}

/// The report of a node.
fn report(catalog: &Catalog, node: NodeId) -> Report {
    let tablets = catalog.tablets_on(node).map(|(tablet, placement)| TabletReport {
        tablet,
        bytes: tablet.0 << 20,
        disk: (tablet.0 % 4) as u16,
        leads: placement.replicas[0] == node,
        files: Files { files: tablet.0 % 50, bytes: tablet.0 << 20, content_bytes: Some(tablet.0 << 21) },
    });
    let arriving = catalog.tablets_on(node).filter(|(_, placement)| placement.arriving.contains(&node));
    let copy = |(tablet, placement): (TabletId, &Arc<Placement>)| CopyReport {
        tablet,
        source: placement.replicas[0],
        bytes_done: 300 << 20,
        bytes_total: tablet.0 << 20,
        rate_bytes: 50 << 20,
    };
    let disk = |number| DiskReport {
        path: format!("/data/{number}"),
        total_bytes: 4 << 40,
        free_bytes: 1 << 40,
        log_bytes: 1 << 30,
        ..DiskReport::default()
    };
    let activity = Activity { reads_per_second: Some(1_000.0), writes_per_second: Some(500.0), ..Activity::default() };
    let details = Details {
        uptime_s: 1_000_000 + node.0,
        program: "1.0.0".to_owned(),
        resident_bytes: Some(20 << 30),
        cpu_s: Some(1e6),
        memory_limit_bytes: Some(32 << 30),
        processors: Some(32),
        activity,
        ..Details::default()
    };
    Report {
        disks: (0..4).map(disk).collect(),
        tablets: tablets.collect(),
        copies: arriving.map(copy).collect(),
        details,
        ..Report::default()
    }
}

fn sight() -> Sight {
    let catalog = Arc::new(catalog());
    let last: BTreeMap<_, _> = catalog.nodes().map(|node| (node.id, Arc::new(report(&catalog, node.id)))).collect();
    let up = catalog.nodes().map(|node| (node.id, node.id != DOWN)).collect();
    let mut reports = last.clone();
    reports.remove(&DOWN);
    let silence_ns = catalog.nodes().map(|node| (node.id, 50_000_000)).collect();
    Sight::new(NodeId(1), catalog, Known { reports, up, ..Known::default() }, last, silence_ns)
}

/// The answer of one node.
fn of_one_node(question: &NodeQuestion) -> Value {
    let hostile = "SELECT * FROM t WHERE k = '<script>alert(1)</script>'";
    match question {
        NodeQuestion::History => {
            let names = [
                "reads_per_second",
                "writes_per_second",
                "read_p50_seconds",
                "read_p99_seconds",
                "read_p999_seconds",
                "write_p50_seconds",
                "write_p99_seconds",
                "write_p999_seconds",
                "cpu_cores",
                "resident_bytes",
                "sst_bytes",
                "disk_reads_per_second",
                "disk_writes_per_second",
                "disk_read_bytes_per_second",
                "disk_written_bytes_per_second",
                "compactions_running",
                "compacted_bytes_per_second",
            ];
            let values: Vec<f64> = (0..720).map(|at| 123_456.789 + f64::from(at) * 1.37).collect();
            let series: BTreeMap<&str, &Vec<f64>> = names.into_iter().map(|name| (name, &values)).collect();
            json!({ "step_seconds": 5, "end_unix_seconds": 1_795_302_605, "series": series })
        }
        NodeQuestion::Queries => {
            let query = |number: u64| {
                json!({ "statement": format!("{hostile} AND c = {number}"), "keyspace": "shop", "count": number, "mean_seconds": 0.001,
                    "p99_seconds": 0.01, "max_seconds": 0.1, "total_seconds": 100.0, "rows": 12, "errors": number % 3, "last_unix_seconds": 1_795_302_605 })
            };
            let running: Vec<Value> = (0..100)
                .map(|_| json!({ "statement": hostile, "keyspace": "shop", "seconds_running": 1.5, "client": "10.0.0.1:4711" }))
                .collect();
            json!({ "queries": (0..1_000).map(query).collect::<Vec<_>>(), "running": running, "running_count": 4_000 })
        }
        NodeQuestion::Memory => json!({
            "resident_bytes": 20u64 << 30, "limit_bytes": 32u64 << 30, "allocator": null,
            "components": [{ "name": "block cache", "bytes": 10u64 << 30, "limit_bytes": 12u64 << 30 }],
        }),
        NodeQuestion::Logs(_) => {
            let line = |number: u64| json!({ "unix_seconds": 1_795_302_605.25, "level": "warn", "target": "diorite_node", "message": hostile, "fields": { "tablet": number.to_string() } });
            (0..5_000).map(line).collect()
        }
        _ => json!({ "listen": "10.0.0.1", "data_dir": ["/data/0", "/data/1"], "auth": false }),
    }
}

fn closer(sight: &Sight, tablet: TabletId) -> Answer {
    let filter = TabletFilter { tablet: Some(tablet.0), ..TabletFilter::default() };
    let page: TabletPage = serde_json::from_value(sight.look_up(&Ask::Tablets(filter))?).unwrap();
    let status = page.tablets.into_iter().next().unwrap();
    let event = TabletEvent { node: NodeId(1), unix_ms: 1_795_302_605_000, event: "node 1 leads in term 3".to_owned() };
    let replica = |node| ReplicaDetail {
        node,
        tablet,
        disk: "/data/0".to_owned(),
        term: 3,
        leader: status.leader,
        holds_lease: status.leader == Some(node),
        lease_left_ms: Some(450),
        first_index: 100,
        last_index: 2_000,
        commit_index: 1_999,
        applied_index: 1_999,
        voters: vec![NodeId(1), NodeId(2)],
        outgoing: Vec::new(),
        learners: Vec::new(),
        matched: Vec::new(),
        waiting_entries: 0,
        failure: None,
        bytes: 1,
        memtable_bytes: 1,
        sst_files: 1,
        sst_bytes: 1,
        content_bytes: None,
        keys_estimate: 1,
        reads: 1,
        writes: 1,
        events: Vec::new(),
    };
    let replicas = status.replicas.iter().map(|found| replica(found.node)).collect();
    Ok(json!(TabletDetail { status, replicas, events: vec![event; 100], advice: Vec::new() }))
}

/// What two nodes have prepared, and that a third one does not answer. Every tenth home was led by the node that is
/// down, and one was dropped.
fn prepared(sight: &Sight) -> PreparedTransactions {
    let led_by = |wanted: fn(NodeId) -> bool| {
        let is_led = |placement: &Placement| wanted(placement.replicas[0]) && !placement.is_moving();
        sight.catalog.tablets().find(|(_, placement)| is_led(placement)).map(|(tablet, _)| tablet)
    };
    let (without_leader, good) = (led_by(|node| node == DOWN), led_by(|node| node.0 > 10));
    let one = |leader, number: u64| PreparedTransaction {
        tablet: TabletId(1_000 + number),
        keyspace: "shop".to_owned(),
        table: "orders_000".to_owned(),
        leader,
        transaction: TransactionName { tablet: TabletId(9_000), term: 3, number },
        age_ms: number,
        rows: 2,
        staged_bytes: 100,
        home: TransactionHome {
            tablet: match number {
                699 => Some(TabletId(u64::MAX)),
                number if number % 10 == 0 => without_leader,
                _ => good,
            },
            ..TransactionHome::default()
        },
    };
    let listed = |leader| {
        let transactions = (0..700).map(|number| one(leader, number)).collect();
        (leader, Ok(PreparedTransactions { transactions, total: 5_000, unanswered: Vec::new() }))
    };
    let silent = (NodeId(4), Err("it does not answer".to_owned()));
    transactions::gathered(sight, vec![listed(NodeId(3)), silent, listed(NodeId(2))])
}

struct Synthetic(Sight);

impl Operator for Synthetic {
    fn ask(&self, ask: Ask) -> BoxFuture<'static, Answer> {
        let answer = match &ask {
            Ask::Node { question, .. } => Ok(of_one_node(question)),
            Ask::History => Ok(of_one_node(&NodeQuestion::History)),
            Ask::Tablet { tablet } => closer(&self.0, *tablet),
            Ask::Transactions => Ok(json!(prepared(&self.0))),
            Ask::Indexes => Ok(json!(indexes::list())),
            Ask::Index { name, .. } => indexes::closer(name).map(|found| json!(found)),
            ask => self.0.look_up(ask),
        };
        Box::pin(async move { answer })
    }
}

struct NoMetrics;

impl Metrics for NoMetrics {
    fn render(&self, _: &mut String) -> fmt::Result {
        Ok(())
    }
}

/// Requests pages of a node of the invented cluster.
async fn with_pages<F: Future<Output = ()>>(test: impl FnOnce(SocketAddr) -> F) {
    static SIGHT: OnceLock<Arc<Synthetic>> = OnceLock::new();
    let operator = Arc::clone(SIGHT.get_or_init(|| Arc::new(Synthetic(sight()))));
    let view = NodeView { node: NodeId(1), metrics: Arc::new(NoMetrics), operator };
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    let serving = tokio::spawn(async move { axum::serve(listener, router(view)).await });
    test(address).await;
    serving.abort();
}

/// The status and the text of an answer.
async fn get(address: SocketAddr, path: &str) -> (u16, String) {
    let mut stream = tokio::net::TcpStream::connect(address).await.unwrap();
    let request = format!("GET {path} HTTP/1.0\r\nhost: {address}\r\n\r\n");
    stream.write_all(request.as_bytes()).await.unwrap();
    let mut answer = String::new();
    stream.read_to_string(&mut answer).await.unwrap();
    let (head, body) = answer.split_once("\r\n\r\n").unwrap();
    (head.split(' ').nth(1).unwrap().parse().unwrap(), body.to_owned())
}

#[tokio::test]
async fn every_page_of_a_large_cluster_is_small_and_complete() {
    with_pages(|address| async move {
        let pages = [
            ("/", "199"),
            ("/?sort=replicas", "Node"),
            ("/nodes", "1–100 of 200"),
            ("/nodes?page=2&sort=sst_bytes&desc=1", "101–200 of 200"),
            ("/nodes?q=zone-3+down", "No entries"),
            ("/nodes?q=zone-2+down", "1 in all"),
            ("/nodes/7", "down"),
            ("/nodes/150", "p99.9"),
            ("/tables", "orders_099"),
            ("/tables?sort=bytes&desc=1", "100 in all"),
            ("/tables/shop/orders_042", "CREATE TABLE shop.orders_042"),
            ("/tablets", "1–100 of 10,000"),
            ("/tablets?page=100&sort=bytes&desc=1", "9,901–10,000 of 10,000"),
            ("/tablets?state=moving&sort=table", "of 2"),
            ("/tablets?node=9&q=orders_01", "Tablet"),
            ("/tablets/1000", "node 1 leads in term 3"),
            ("/moves", "1–100 of"),
            ("/transactions", "1–100 of 1,000"),
            ("/transactions?q=no+leader", "100 in all"),
            ("/transactions?q=9000/3/699", "dropped"),
            ("/indexes", "1–100 of 120"),
            ("/indexes?q=building", "37 %"),
            ("/indexes/shop/orders_000_v", "1–100 of 1,000"),
            ("/queries?sort=count&desc=1", "1–100 of 1,000"),
            ("/memory?node=3", "block cache"),
            ("/logs?level=warn&page=50", "4,901–5,000 of 5,000"),
            ("/config", "--data-dir"),
        ];
        for (path, expected) in pages {
            let (status, page) = get(address, path).await;
            assert_eq!(status, 200, "{path}: {page}");
            assert!(page.contains(expected), "{path} lacks '{expected}': {page}");
            assert!(page.len() <= LARGEST_PAGE_BYTES, "{path} has {} bytes", page.len());
            assert!(!page.contains("<script>"), "{path} lets text of others be markup");
            assert!(!page.contains("https://"), "{path} needs something from elsewhere");
        }
    })
    .await;
}

#[tokio::test]
async fn what_is_not_there_or_makes_no_sense_is_a_page_that_says_so() {
    with_pages(|address| async move {
        for (path, expected_status, expected) in [
            ("/nodes/999", 404, "there is no node n999"),
            ("/tables/shop/none", 404, "there is no table shop.none"),
            ("/indexes/shop/none", 404, "there is no index shop.none"),
            ("/tablets?state=good", 400, "'good' is no state"),
            ("/tablets?sort=color", 400, "'color' is no sort"),
            ("/tablets?page=0&node=&q=+", 200, "1–100 of 10,000"),
        ] {
            let (status, page) = get(address, path).await;
            assert_eq!(status, expected_status, "{path}: {page}");
            assert!(page.replace("&#39;", "'").contains(expected), "{path} lacks '{expected}': {page}");
        }
    })
    .await;
}

#[tokio::test]
async fn the_interface_for_programs_has_what_pages_show() {
    with_pages(|address| async move {
        for (path, field) in [
            ("/api/v1/status", "/replica_bytes"),
            ("/api/v1/nodes", "/0/activity/reads_per_second"),
            ("/api/v1/nodes", "/0/last_heartbeat_ms"),
            ("/api/v1/tables", "/0/content_bytes"),
            ("/api/v1/tables/shop/orders_001", "/schema"),
            ("/api/v1/tablets?limit=1", "/tablets/0/sst_files"),
            ("/api/v1/tablets/1000", "/replicas/0/lease_left_ms"),
            ("/api/v1/moves", "/0/rate_bytes"),
            ("/api/v1/transactions", "/transactions/0/staged_bytes"),
            ("/api/v1/indexes", "/indexes/0/eta_seconds"),
            ("/api/v1/indexes/shop/orders_000_v", "/listed/0/leader"),
            ("/api/v1/indexes/shop/orders_000_v", "/rate_bytes"),
            ("/api/v1/cluster/history", "/series/reads_per_second"),
        ] {
            let (status, body) = get(address, path).await;
            assert_eq!(status, 200, "{path}: {body}");
            let body: Value = serde_json::from_str(&body).unwrap();
            assert!(body.pointer(field).is_some_and(|value| !value.is_null()), "{path} lacks {field}");
        }
    })
    .await;
}

#[test]
fn pages_of_tablets_have_each_of_them_once_in_every_order() {
    let sight = sight();
    for sort in ["tablet", "table", "first_token", "bytes", "sst_files", "leader", "state"] {
        for descending in [false, true] {
            let mut seen = BTreeSet::new();
            let mut states = Vec::new();
            for page in 0..10 {
                let filter = json!({ "sort": sort, "descending": descending, "skip": page * 1_000, "limit": 1_000 });
                let filter: TabletFilter = serde_json::from_value(filter).unwrap();
                let page: TabletPage = serde_json::from_value(sight.look_up(&Ask::Tablets(filter)).unwrap()).unwrap();
                assert_eq!(page.total, 10_000);
                seen.extend(page.tablets.iter().map(|tablet| tablet.tablet));
                states.extend(page.tablets.iter().map(|tablet| tablet.state));
            }
            assert_eq!(seen.len(), 10_000, "by {sort}");
            if descending {
                states.reverse();
            }
            assert!(sort != "state" || states.is_sorted(), "by {sort}");
        }
    }
}

#[test]
fn prepared_transactions_of_all_nodes_are_one_list_with_the_states_of_their_homes() {
    let found = prepared(&sight());
    assert_eq!((found.total, found.transactions.len()), (10_000, MOST_PREPARED));
    assert_eq!(found.unanswered, ["node 4: it does not answer"]);
    let ages: Vec<u64> = found.transactions.iter().map(|one| one.age_ms).collect();
    assert!(ages.is_sorted_by(|older, younger| older >= younger) && ages[0] == 699, "{ages:?}");
    for one in &found.transactions {
        let home = (one.home.obstacle(), one.home.leader.is_some(), one.home.table.is_empty());
        let expected = match one.age_ms {
            699 => (Some("dropped"), false, true),
            number if number % 10 == 0 => (Some("no leader"), false, false),
            _ => (None, true, false),
        };
        assert_eq!(home, expected, "{one:?}");
    }
}

#[test]
fn following_ids_reaches_every_tablet() {
    let sight = sight();
    let (mut after, mut count) = (None, 0);
    loop {
        let filter = TabletFilter { after, ..TabletFilter::default() };
        let page: TabletPage = serde_json::from_value(sight.look_up(&Ask::Tablets(filter)).unwrap()).unwrap();
        count += page.tablets.len();
        after = page.next_after;
        if after.is_none() {
            break;
        }
    }
    assert_eq!(count, 10_000);
}

#[test]
fn a_tablet_that_is_newer_than_all_reports_does_not_lack_a_leader() {
    let known = |next_tablet| {
        let Sight { catalog, known, .. } = sight();
        let told =
            |report: &Arc<Report>| Arc::new(Report { next_tablet, tablets: Vec::new(), ..Report::clone(report) });
        let reports = known.reports.iter().map(|(node, report)| (*node, told(report))).collect();
        let known = Known { reports, ..known };
        answers::status(&Sight::new(NodeId(1), catalog, known, BTreeMap::new(), BTreeMap::new()))
    };
    let (new, old) = (known(Some(1)), known(Some(u64::MAX)));
    assert_eq!((new.leaders, new.leaderless), (0, 0));
    assert_eq!((old.leaders, old.leaderless), (0, 10_000));
}

#[test]
fn a_tablet_lacks_a_leader_only_if_all_its_nodes_have_reported_and_none_has_just_stopped_leading() {
    let Sight { catalog, known, .. } = sight();
    let is_whole = |placement: &Placement| !placement.is_moving() && !placement.replicas.contains(&DOWN);
    let (tablet, placement) = catalog.tablets().find(|(_, placement)| is_whole(placement)).unwrap();
    let led_by_nobody = |report: &Arc<Report>| {
        let mut report = Report::clone(report);
        report.tablets.iter_mut().for_each(|replica| replica.leads &= replica.tablet != tablet);
        Arc::new(report)
    };
    let reports: BTreeMap<_, _> = known.reports.iter().map(|(node, told)| (*node, led_by_nobody(told))).collect();
    let state = |leader_stopped: &[TabletId], silent: Option<NodeId>| {
        let mut reports = reports.clone();
        silent.and_then(|node| reports.remove(&node));
        let leader_stopped = leader_stopped.iter().copied().collect();
        let known = Known { reports, up: known.up.clone(), leader_stopped };
        Sight::new(NodeId(1), Arc::clone(&catalog), known, BTreeMap::new(), BTreeMap::new()).state(tablet, placement, 3)
    };
    assert_eq!(state(&[], None), TabletState::Leaderless);
    assert_eq!(state(&[tablet], None), TabletState::Ok);
    assert_eq!(state(&[], Some(placement.replicas[1])), TabletState::Ok);
    assert_eq!(state(&[], Some(DOWN)), TabletState::Leaderless);
}

#[test]
fn a_link_that_is_down_is_told_once_and_only_if_both_ends_say_so() {
    let Sight { catalog, known, .. } = sight();
    let told = |(node, report): (&NodeId, &Arc<Report>)| {
        let out_of_touch = match node.0 {
            20 => vec![DOWN, NodeId(21), NodeId(22), NodeId(23)],
            21 | 23 => vec![NodeId(20)],
            _ => Vec::new(),
        };
        let details = Details { out_of_touch, ..report.details.clone() };
        (*node, Arc::new(Report { details, ..Report::clone(report) }))
    };
    let known = Known { reports: known.reports.iter().map(told).collect(), ..known };
    let status = answers::status(&Sight::new(NodeId(1), catalog, known, BTreeMap::new(), BTreeMap::new()));
    let links: Vec<_> = status.warnings.iter().filter(|warning| warning.contains("heartbeats")).collect();
    assert_eq!(links.len(), 1, "{links:?}");
    assert!(links[0].starts_with("node n20 (") && links[0].contains("with n21, n23, though"), "{links:?}");
}

#[test]
fn a_replica_without_all_its_data_counts_as_missing() {
    let Sight { catalog, known, .. } = sight();
    let is_whole = |placement: &Placement| !placement.is_moving() && !placement.replicas.contains(&DOWN);
    let (tablet, placement) = catalog.tablets().find(|(_, placement)| is_whole(placement)).unwrap();
    let states = [0, 1, 2].map(|lacking| {
        let told = |(node, report): (&NodeId, &Arc<Report>)| {
            let lacks = placement.replicas[..lacking].contains(node);
            let incomplete = if lacks { vec![tablet] } else { Vec::new() };
            (*node, Arc::new(Report { incomplete, ..Report::clone(report) }))
        };
        let known =
            Known { reports: known.reports.iter().map(told).collect(), up: known.up.clone(), ..Known::default() };
        let sight = Sight::new(NodeId(1), Arc::clone(&catalog), known, BTreeMap::new(), BTreeMap::new());
        sight.state(tablet, placement, 3)
    });
    assert_eq!(states, [TabletState::Ok, TabletState::UnderReplicated, TabletState::Unavailable]);
}

#[test]
fn what_is_lost_with_a_node_is_counted() {
    let sight = sight();
    let status = answers::status(&sight);
    let led = sight.catalog.tablets().filter(|(_, placement)| placement.replicas[0] == DOWN).count();
    assert_eq!((status.nodes, status.live_nodes, status.tablets), (200, 199, 10_000));
    assert_eq!((status.leaderless, status.leaders), (led, 10_000 - led));
    let holds =
        |placement: &Placement| placement.holders().any(|node| node == DOWN) && !placement.arriving.contains(&DOWN);
    let on_it =
        sight.catalog.tablets().filter(|(_, placement)| holds(placement) && placement.leaving.is_empty()).count();
    assert!(status.under_replicated >= on_it && on_it > 0, "{} of {on_it}", status.under_replicated);
    let touched = sight.catalog.tablets().filter(|(_, placement)| holds(placement)).count();
    assert!(status.under_replicated <= touched, "a move puts nothing at risk");
    assert_eq!(status.unavailable, 0);
    assert_eq!((status.reads_per_second, status.writes_per_second), (199_000.0, 99_500.0));
    assert!(status.warnings.iter().any(|warning| warning.contains("node n7")), "{:?}", status.warnings);
    let node = answers::nodes(&sight).into_iter().find(|node| node.node == NodeId(20)).unwrap();
    assert_eq!(node.content_bytes, Some(2 * node.sst_bytes), "as reported");
    assert_eq!(node.activity.reads_per_second, Some(1_000.0));
    let down = answers::nodes(&sight).into_iter().find(|node| node.node == DOWN).unwrap();
    assert_eq!((down.is_up, down.activity.reads_per_second, down.uptime_seconds), (false, None, None));
}

#[test]
fn a_change_of_unknown_outcome_is_repeated_only_if_that_is_harmless() {
    use FailureKind::{NotBegun, Refused, Unavailable};
    let set = Ask::Change(Change::SetRate { bytes_per_second: 7 });
    let finish = Ask::Change(Change::FinishUpgrade);
    let question = Ask::IndexesHere { of: None };
    let may = |failed| [&set, &finish, &question].map(|ask| may_be_asked_again(ask, failed));
    assert_eq!(may(NotBegun), [true, true, true]);
    assert_eq!(may(Unavailable), [true, false, true]);
    assert_eq!(may(Refused), [false, false, false]);
}
