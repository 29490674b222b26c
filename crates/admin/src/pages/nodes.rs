//! All nodes, and one of them with its last hour.

use super::chart::{Chart, Unit, chart};
use super::frame::Frame;
use super::listing::{self, Column};
use super::question::{Asked, all_nodes, ask_node, parameters};
use super::show::{
    Tone, ago, badge, byte_rate, count, decimal, facts, latency, nothing, optional, section, share, size, text, tile,
};
use crate::NodeView;
use crate::api::{DiskStatus, Failure, FailureKind, History, NodeQuestion, NodeStatus};
use axum::extract::{Path, State};
use axum::response::Response;
use diorite_base::NodeId;
use diorite_base::text::duration;
use maud::{Markup, html};

const CHARTS: [Chart; 12] = [
    Chart {
        title: "Operations",
        unit: Unit::PerSecond,
        lines: &[("reads", "reads_per_second"), ("writes", "writes_per_second")],
    },
    Chart {
        title: "Read latency",
        unit: Unit::Seconds,
        lines: &[("p50", "read_p50_seconds"), ("p99", "read_p99_seconds"), ("p99.9", "read_p999_seconds")],
    },
    Chart {
        title: "Write latency",
        unit: Unit::Seconds,
        lines: &[("p50", "write_p50_seconds"), ("p99", "write_p99_seconds"), ("p99.9", "write_p999_seconds")],
    },
    Chart { title: "CPU, cores", unit: Unit::Cores, lines: &[("in use", "cpu_cores")] },
    Chart { title: "Memory", unit: Unit::Bytes, lines: &[("resident", "resident_bytes")] },
    Chart { title: "SSTables", unit: Unit::Bytes, lines: &[("on disk", "sst_bytes")] },
    Chart {
        title: "Disk operations",
        unit: Unit::PerSecond,
        lines: &[("reads", "disk_reads_per_second"), ("writes", "disk_writes_per_second")],
    },
    Chart {
        title: "Disk throughput",
        unit: Unit::BytesPerSecond,
        lines: &[("read", "disk_read_bytes_per_second"), ("written", "disk_written_bytes_per_second")],
    },
    Chart { title: "Compaction", unit: Unit::BytesPerSecond, lines: &[("compacted", "compacted_bytes_per_second")] },
    Chart { title: "Compactions running", unit: Unit::Count, lines: &[("running", "compactions_running")] },
    Chart { title: "Scans and aggregates", unit: Unit::PerSecond, lines: &[("scans", "scans_per_second")] },
    Chart { title: "CQL connections", unit: Unit::Count, lines: &[("open", "connections")] },
];

/// The status of a node in a word.
pub(super) fn standing(node: &NodeStatus) -> (Tone, String) {
    let is_full = node.disks.iter().any(|disk| disk.is_full || disk.has_failed);
    match (node.is_up, node.state.as_str()) {
        (false, "dead") => (Tone::Bad, "dead".to_owned()),
        (false, _) => (Tone::Bad, "down".to_owned()),
        (true, _) if is_full => (Tone::Bad, "disk full or failed".to_owned()),
        (true, "draining") => (Tone::Warning, "draining".to_owned()),
        (true, _) if !node.may_lead => (Tone::Warning, "leads nothing".to_owned()),
        (true, "active") => (Tone::Good, "up".to_owned()),
        (true, other) => (Tone::Warning, other.to_owned()),
    }
}

/// The class of a node's row.
pub(super) fn tone(node: &NodeStatus) -> &'static str {
    if node.is_up { "" } else { "bad" }
}

fn rate(value: Option<f64>) -> Markup {
    optional(value, decimal)
}

/// The columns of a list of nodes, all of them or the most important ones.
pub(super) fn columns(all: bool) -> Vec<Column<NodeStatus>> {
    let status = |node: &NodeStatus| {
        let (tone, word) = standing(node);
        badge(tone, word)
    };
    let link = |node: &NodeStatus| {
        html! { a.strong href=(format!("/nodes/{}", node.node.0)) { (node.node) } }
    };
    let mut columns = vec![
        Column::new("Node", link).number().by("node", |node| node.node),
        Column::new("Status", status).by("status", |node| standing(node).1),
        Column::new("CQL address", |node: &NodeStatus| html! { span.mono { (node.cql_address) } })
            .by("address", |node| node.cql_address.clone()),
        Column::new("Zone", |node: &NodeStatus| html! { (node.zone) })
            .by("zone", |node| (node.data_center.clone(), node.zone.clone())),
        Column::new("Replicas", |node: &NodeStatus| text(count(node.replicas as u64)))
            .number()
            .by("replicas", |node| node.replicas),
        Column::new("Leaders", |node: &NodeStatus| text(count(node.leaders as u64)))
            .number()
            .by("leaders", |node| node.leaders),
        Column::new("Reads/s", |node: &NodeStatus| rate(node.activity.reads_per_second))
            .number()
            .by_f64("reads", |node| node.activity.reads_per_second),
        Column::new("Writes/s", |node: &NodeStatus| rate(node.activity.writes_per_second))
            .number()
            .by_f64("writes", |node| node.activity.writes_per_second),
        Column::new("CPU", cpu).number().by_f64("cpu", |node| node.activity.cpu_cores),
        Column::new("Memory", |node: &NodeStatus| optional(node.resident_bytes, size))
            .number()
            .by("memory", |node| node.resident_bytes),
        Column::new("SSTables", |node: &NodeStatus| text(size(node.sst_bytes)))
            .number()
            .by("sst_bytes", |node| node.sst_bytes),
        Column::new("Disk used", disks)
            .by_f64("disk", |node| fullest(node).map(|(used, total, _)| used as f64 / total as f64)),
    ];
    if all {
        let more = vec![
            Column::new("Heartbeat", |node: &NodeStatus| optional(node.last_heartbeat_ms, ago))
                .number()
                .by("heartbeat", |node| node.last_heartbeat_ms),
            Column::new("Files", |node: &NodeStatus| text(count(node.sst_files)))
                .number()
                .by("files", |node| node.sst_files),
            Column::new("Uncompressed", |node: &NodeStatus| optional(node.content_bytes, size))
                .number()
                .by("content", |node| node.content_bytes),
            Column::new("Disk reads/s", |node: &NodeStatus| rate(node.activity.disk_reads_per_second))
                .number()
                .by_f64("disk_reads", |node| node.activity.disk_reads_per_second),
            Column::new("Disk writes/s", |node: &NodeStatus| rate(node.activity.disk_writes_per_second))
                .number()
                .by_f64("disk_writes", |node| node.activity.disk_writes_per_second),
        ];
        columns.extend(more);
        columns.push(
            Column::new("Uptime", |node: &NodeStatus| optional(node.uptime_seconds, duration))
                .number()
                .by("uptime", |node| node.uptime_seconds),
        );
    }
    columns
}

fn cpu(node: &NodeStatus) -> Markup {
    match (node.activity.cpu_cores, node.processors) {
        (Some(cores), Some(processors)) => html! { (decimal(cores)) span.dim { " / " (processors) } },
        (Some(cores), None) => text(decimal(cores)),
        (None, _) => nothing(),
    }
}

/// Used and total bytes of the disk that is fullest, and how many there are.
fn fullest(node: &NodeStatus) -> Option<(u64, u64, usize)> {
    let used = |disk: &DiskStatus| (disk.total_bytes.saturating_sub(disk.free_bytes), disk.total_bytes.max(1));
    let part = |(used, total): &(u64, u64)| *used as f64 / *total as f64;
    let fullest = node.disks.iter().map(used).max_by(|a, b| part(a).total_cmp(&part(b)));
    fullest.map(|(used, total)| (used, total, node.disks.len()))
}

fn disks(node: &NodeStatus) -> Markup {
    match fullest(node) {
        None => nothing(),
        Some((used, total, disks)) => {
            let label = format!("{:.0} % of {}", used as f64 / total as f64 * 100.0, size(total));
            html! { (share(used, total, &label)) @if disks > 1 { span.dim { " × " (disks) } } }
        }
    }
}

pub(super) async fn nodes(State(view): State<NodeView>, asked: Asked) -> Response {
    let content = async {
        let parameters = parameters("/nodes", asked)?;
        let found = all_nodes(&view).await?;
        let columns = columns(true);
        let words = |node: &NodeStatus| {
            let (_, word) = standing(node);
            format!("{} {} {} {} {word}", node.node, node.cql_address, node.data_center, node.zone)
        };
        let page = listing::select(&parameters, &columns, found, words);
        Ok(html! {
            (listing::filter(&parameters, "node, address, zone or status", html! {}))
            (listing::table(&parameters, &columns, &page, tone))
        })
    };
    Frame::new(&view, "/nodes").answer(content.await)
}

pub(super) async fn node(State(view): State<NodeView>, Path(id): Path<u64>) -> Response {
    let node = NodeId(id);
    let content = async {
        let (found, history) =
            futures::join!(all_nodes(&view), ask_node::<History>(&view, Some(node), NodeQuestion::History));
        let missing = || Failure::new(FailureKind::NotFound, format!("there is no node {node}"));
        let found = found?.into_iter().find(|found| found.node == node).ok_or_else(missing)?;
        Ok(closer(&found, history))
    };
    Frame::new(&view, "/nodes").below(format!("Node {node}")).answer(content.await)
}

fn closer(node: &NodeStatus, history: Result<History, Failure>) -> Markup {
    let (tone, word) = standing(node);
    let id = node.node.0;
    html! {
        p.headline {
            (badge(tone, word))
            strong { (node.cql_address) }
            span.dim { (node.data_center) " / " (node.zone) }
            span.links {
                a href=(format!("/tablets?node={id}")) { "tablets" }
                a href=(format!("/queries?node={id}")) { "queries" }
                a href=(format!("/memory?node={id}")) { "memory" }
                a href=(format!("/logs?node={id}")) { "logs" }
                a href=(format!("/config?node={id}")) { "configuration" }
            }
        }
        (tiles(node))
        @match history {
            Ok(history) => {
                div.charts {
                    @for one in &CHARTS { (chart(one, &history)) }
                }
            }
            Err(failure) => p.notice { "No charts: " (failure.message) },
        }
        (section("Disks", listing::short(&disk_columns(), node.disks.clone())))
        (section("Details", details(node)))
    }
}

fn tiles(node: &NodeStatus) -> Markup {
    let activity = &node.activity;
    let p99 = |seconds: Option<f64>| seconds.map(|seconds| html! { "p99 " (latency(seconds)) });
    let per_second = |value: Option<f64>| html! { (rate(value)) small { "/s" } };
    let limit = node.memory_limit_bytes.map(|limit| html! { "limit " (size(limit)) });
    let ratio = node.content_bytes.map(|content| {
        html! { (size(content)) " uncompressed" }
    });
    let throughput = |bytes: Option<f64>| bytes.map(|bytes| text(byte_rate(bytes)));
    html! {
        dl.tiles {
            (tile("Reads", per_second(activity.reads_per_second), p99(activity.read_p99_seconds)))
            (tile("Writes", per_second(activity.writes_per_second), p99(activity.write_p99_seconds)))
            (tile("Replicas", html! { a href=(format!("/tablets?node={}", node.node.0)) { (count(node.replicas as u64)) } }, None))
            (tile("Leaders", html! { a href=(format!("/tablets?leader={}", node.node.0)) { (count(node.leaders as u64)) } }, None))
            (tile("CPU", cpu(node), Some(text("cores"))))
            (tile("Memory", optional(node.resident_bytes, size), limit))
            (tile("SSTables", text(size(node.sst_bytes)), ratio))
            (tile("Disk reads", per_second(activity.disk_reads_per_second), throughput(activity.disk_read_bytes_per_second)))
            (tile("Disk writes", per_second(activity.disk_writes_per_second), throughput(activity.disk_written_bytes_per_second)))
        }
    }
}

fn disk_columns() -> Vec<Column<DiskStatus>> {
    let used = |disk: &DiskStatus| {
        let used = disk.total_bytes.saturating_sub(disk.free_bytes);
        share(used, disk.total_bytes, &format!("{:.0} %", used as f64 / disk.total_bytes.max(1) as f64 * 100.0))
    };
    let state = |disk: &DiskStatus| match (disk.has_failed, disk.is_full) {
        (true, _) => badge(Tone::Bad, "failed"),
        (_, true) => badge(Tone::Bad, "full"),
        _ => badge(Tone::Good, "ok"),
    };
    vec![
        Column::new("Data directory", |disk: &DiskStatus| html! { span.mono { (disk.path) } }),
        Column::new("State", state),
        Column::new("In use", used),
        Column::new("Free", |disk: &DiskStatus| text(size(disk.free_bytes))).number(),
        Column::new("Size", |disk: &DiskStatus| text(size(disk.total_bytes))).number(),
        Column::new("Tablets", |disk: &DiskStatus| text(size(disk.tablet_bytes))).number(),
        Column::new("Raft log", |disk: &DiskStatus| text(size(disk.log_bytes))).number(),
        Column::new("Replicas", |disk: &DiskStatus| text(count(disk.replicas as u64))).number(),
    ]
}

fn details(node: &NodeStatus) -> Markup {
    facts(&[
        ("Host id", html! { span.mono { (node.host_id) } }),
        ("CQL", html! { span.mono { (node.cql_address) } }),
        ("HTTP", html! { a.mono href=(format!("//{}/", node.http_address)) { (node.http_address) } }),
        ("State", text(if node.may_lead { node.state.clone() } else { format!("{}, leads nothing", node.state) })),
        ("Version", optional(node.program.clone(), |program| program)),
        ("Uptime", optional(node.uptime_seconds, duration)),
        ("Last heartbeat", optional(node.last_heartbeat_ms, ago)),
        ("CPU time", optional(node.cpu_seconds, |seconds| duration(seconds as u64))),
        ("SSTable files", text(count(node.sst_files))),
        ("Tablets", text(size(node.tablet_bytes))),
    ])
}
