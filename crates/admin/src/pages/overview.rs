//! The first page: the state of the cluster, its problems, and its load.

use super::chart::{Chart, Unit, chart};
use super::frame::Frame;
use super::listing;
use super::nodes::{self, standing};
use super::question::{Asked, ask, parameters};
use super::show::{Tone, badge, byte_rate, count, decimal, facts, section, size, text, tile};
use crate::NodeView;
use crate::api::{Ask, ClusterStatus, Failure, History, NodeStatus};
use crate::tables::{logins, scrubs};
use axum::extract::State;
use axum::response::Response;
use diorite_base::text::{duration, or_dash};
use maud::{Markup, html};

/// The most nodes listed here; `/nodes` lists all.
const NODES: usize = 12;

const CHARTS: [Chart; 3] = [
    Chart {
        title: "Operations",
        unit: Unit::PerSecond,
        lines: &[("reads", "reads_per_second"), ("writes", "writes_per_second")],
    },
    Chart {
        title: "Read latency, slowest node",
        unit: Unit::Seconds,
        lines: &[("p50", "read_p50_seconds"), ("p99", "read_p99_seconds"), ("p99.9", "read_p999_seconds")],
    },
    Chart {
        title: "Write latency, slowest node",
        unit: Unit::Seconds,
        lines: &[("p50", "write_p50_seconds"), ("p99", "write_p99_seconds"), ("p99.9", "write_p999_seconds")],
    },
];

pub(super) async fn overview(State(view): State<NodeView>, asked: Asked) -> Response {
    Frame::new(&view, "/").answer(content(&view, asked).await)
}

async fn content(view: &NodeView, asked: Asked) -> Result<Markup, Failure> {
    let parameters = parameters("/nodes", asked)?;
    let (status, found, history) = futures::join!(
        ask::<ClusterStatus>(view, Ask::Status),
        ask::<Vec<NodeStatus>>(view, Ask::Nodes),
        ask::<History>(view, Ask::History)
    );
    let (status, mut found) = (status?, found?);
    // The rest of the page is shown even without charts.
    let history = history.unwrap_or_default();
    let map = node_map(&found);
    let total = found.len();
    // Nodes with problems first.
    found.sort_by_key(|node| (standing(node).0 == Tone::Good, node.node));
    found.truncate(NODES);
    let columns = nodes::columns(false);
    Ok(html! {
        (headline(&status))
        (warnings(&status))
        (tiles(&status))
        div.charts { @for one in &CHARTS { (chart(one, &history)) } }
        div.columns {
            (section("Balancer", balancer(&status)))
            (section("Cluster", cluster(&status)))
        }
        (section("Nodes", html! {
            @if total > 1 { (map) }
            (listing::rows(&parameters, &columns, &found, nodes::tone))
            @if total > NODES { p { a href="/nodes" { "All " (total) " nodes" } } }
        }))
    })
}

fn headline(status: &ClusterStatus) -> Markup {
    let is_at_risk = status.is_at_risk();
    let (tone, verdict) = match (is_at_risk, status.warnings.is_empty() && status.balancer.stalled.is_empty()) {
        (true, _) if status.unavailable > 0 => (Tone::Bad, "Data unavailable"),
        (true, _) => (Tone::Bad, "Data at risk"),
        (false, false) => (Tone::Warning, "Needs attention"),
        (false, true) => (Tone::Good, "Healthy"),
    };
    html! {
        p.headline {
            (badge(tone, verdict))
            strong { (status.name) }
            span.dim.mono { (status.cluster_id) }
        }
    }
}

fn warnings(status: &ClusterStatus) -> Markup {
    let all: Vec<&String> = status.warnings.iter().chain(&status.balancer.stalled).collect();
    // The pages of nodes and tablets show all of them.
    const SHOWN: usize = 20;
    let more = all.len().saturating_sub(SHOWN) as u64 + status.balancer.unlisted_stalled;
    html! {
        @if !all.is_empty() {
            ul.notice.warnings role="alert" {
                @for warning in all.iter().take(SHOWN) { li { (warning) } }
                @if more > 0 { li.dim { "and " (more) " more" } }
            }
        }
    }
}

fn tiles(status: &ClusterStatus) -> Markup {
    let none_of = |number: usize, state: &str| {
        let tone = if number == 0 { "" } else { "bad" };
        html! { a class=(tone) href=(format!("/tablets?state={state}")) { (count(number as u64)) } }
    };
    let down = status.nodes - status.live_nodes;
    let down_note = html! { @if down > 0 { span.bad { (down) " down" } } @else { "all up" } };
    let bytes_note = html! { (size(status.replica_bytes)) " in all replicas" };
    html! {
        dl.tiles {
            (tile("Nodes", html! { a href="/nodes" { (status.live_nodes) span.dim { " / " (status.nodes) } } }, Some(down_note)))
            (tile("Tablets", html! { a href="/tablets" { (count(status.tablets as u64)) } }, Some(html! { (count(status.leaders as u64)) " led" })))
            (tile("Under-replicated", none_of(status.under_replicated, "under_replicated"), Some(text("tablets"))))
            (tile("Leaderless", none_of(status.leaderless, "leaderless"), Some(text("tablets"))))
            (tile("Without quorum", none_of(status.unavailable, "unavailable"), Some(text("tablets"))))
            (tile("Tables", html! { a href="/tables" { (count(status.tables as u64)) } }, None))
            (tile("Data", text(size(status.bytes)), Some(bytes_note)))
            (tile("Reads", html! { (decimal(status.reads_per_second)) small { "/s" } }, None))
            (tile("Writes", html! { (decimal(status.writes_per_second)) small { "/s" } }, None))
        }
    }
}

fn balancer(status: &ClusterStatus) -> Markup {
    let balancer = &status.balancer;
    let tone = match balancer.state.as_str() {
        "idle" => Tone::Good,
        "paused" => Tone::Warning,
        _ => Tone::Plain,
    };
    let zones = match balancer.preferred_leader_zones.as_slice() {
        [] => "any zone".to_owned(),
        zones => zones.join(", "),
    };
    facts(&[
        ("State", badge(tone, &balancer.state)),
        ("Replicas moving", html! { a href="/moves" { (count(balancer.moves as u64)) } }),
        ("Left to copy", text(size(balancer.bytes_left))),
        ("Estimated time left", text(or_dash(balancer.eta_seconds, duration))),
        ("Copy rate limit, each node", text(byte_rate(balancer.copy_rate_bytes as f64))),
        ("Silent nodes replaced after", text(duration(balancer.replace_after_ms / 1_000))),
        ("Preferred leader zones", text(zones)),
        ("Tablets split above", limit(balancer.split_bytes, size)),
        ("Tablets split above, operations/s", limit(balancer.split_operations_per_second, count)),
        ("Neighbours merged below", limit(balancer.merge_bytes, size)),
    ])
}

/// Shows a limit, where 0 means that there is none.
fn limit(limit: u64, shown: impl Fn(u64) -> String) -> Markup {
    text(if limit == 0 { "–".to_owned() } else { shown(limit) })
}

fn cluster(status: &ClusterStatus) -> Markup {
    facts(&[
        ("Name", text(&status.name)),
        ("Id", html! { span.mono { (status.cluster_id) } }),
        ("Version", text(status.programs.join(", "))),
        ("Replication factor", html! { (status.replication_factor) span.dim { " at least" } }),
        ("Logins", html! { (logins(status.requires_login)) }),
        ("Catalog", html! { "version " (status.catalog_version) }),
        ("Catalog led by", html! { a href=(format!("/nodes/{}", status.leader.0)) { "node " (status.leader) } }),
        ("Tables", html! { a href="/tables" { (count(status.tables as u64)) } }),
        ("Scrubs", text(scrubs(status))),
        ("Traffic between nodes", text(&status.traffic)),
    ])
}

/// A map with one cell for each node, by zone.
fn node_map(nodes: &[NodeStatus]) -> Markup {
    let mut zones: Vec<(String, Vec<&NodeStatus>)> = Vec::new();
    for node in nodes {
        let zone = format!("{} / {}", node.data_center, node.zone);
        match zones.iter_mut().find(|(name, _)| *name == zone) {
            Some((_, of)) => of.push(node),
            None => zones.push((zone, vec![node])),
        }
    }
    zones.sort_by(|(one, _), (other, _)| one.cmp(other));
    html! {
        div.map {
            @for (zone, nodes) in &zones {
                div {
                    span.dim { (zone) }
                    @for node in nodes {
                        @let (tone, word) = standing(node);
                        a class=(tone.class()) href=(format!("/nodes/{}", node.node.0)) title=(format!("node {}: {word}", node.node)) { (node.node) }
                    }
                }
            }
        }
    }
}
