//! The pages for people: the same answers as under `/api/v1/`, as HTML that a server renders and any browser shows, without scripts.
//!
//! Always true: no page needs anything from outside this binary; lists that may be long come in pages; a question that nobody can answer at the
//! moment is a page that says so. Left out so far: charts, queries, memory by component and logs.

use crate::NodeView;
use crate::api::{
    Ask, ClusterStatus, Failure, FailureKind, MoveStatus, NodeStatus, TableStatus, TabletFilter, TabletPage,
};
use crate::routes::status_of;
use axum::Router;
use axum::extract::rejection::QueryRejection;
use axum::extract::{Query, State};
use axum::response::{Html, IntoResponse, Response};
use axum::routing::get;
use diorite_base::NodeId;
use diorite_base::text::{bytes, duration, or_dash};
use maud::{DOCTYPE, Markup, PreEscaped, html};
use serde::de::DeserializeOwned;

const STYLE: &str = include_str!("pages.css");
const PAGES: [(&str, &str); 6] = [
    ("/", "Overview"),
    ("/nodes", "Nodes"),
    ("/tables", "Tables"),
    ("/tablets", "Tablets"),
    ("/moves", "Moves"),
    ("/config", "Configuration"),
];
/// Tablets on a page.
const ROWS: usize = 200;
/// How often pages about what changes by itself are loaded again, seconds.
const REFRESH_S: u32 = 5;

/// The routes of the pages.
pub(crate) fn pages() -> Router<NodeView> {
    Router::new()
        .route("/", get(overview))
        .route("/nodes", get(nodes))
        .route("/tables", get(tables))
        .route("/tablets", get(tablets))
        .route("/moves", get(moves))
        .route("/config", get(configuration))
}

async fn ask<T: DeserializeOwned>(view: &NodeView, ask: Ask) -> Result<T, Failure> {
    let answer = view.operator.ask(ask).await?;
    serde_json::from_value(answer).map_err(|error| Failure::new(FailureKind::Unavailable, error.to_string()))
}

fn page(path: &str, refreshes: bool, content: &Markup) -> Html<String> {
    let title = PAGES.iter().find(|(of, _)| *of == path).map_or("", |(_, title)| title);
    let page = html! {
        (DOCTYPE)
        html lang="en" {
            head {
                meta charset="utf-8";
                meta name="viewport" content="width=device-width, initial-scale=1";
                @if refreshes { meta http-equiv="refresh" content=(REFRESH_S); }
                title { (title) " · Diorite" }
                style { (PreEscaped(STYLE)) }
            }
            body {
                header {
                    strong { "Diorite" }
                    @for (of, title) in PAGES {
                        a href=(of) aria-current=[(of == path).then_some("page")] { (title) }
                    }
                }
                h1 { (title) }
                (content)
            }
        }
    };
    Html(page.into_string())
}

fn answer(path: &str, refreshes: bool, content: Result<Markup, Failure>) -> Response {
    match content {
        Ok(content) => page(path, refreshes, &content).into_response(),
        Err(failure) => {
            let content = html! { p.bad { (failure.message) } };
            (status_of(failure.kind), page(path, true, &content)).into_response()
        }
    }
}

fn size(number: u64) -> String {
    bytes(number as f64)
}

/// A table that may be wider than the screen.
fn table(names: &[&str], rows: impl IntoIterator<Item = Vec<Markup>>) -> Markup {
    html! {
        div.scroll {
            table {
                thead { tr { @for name in names { th { (name) } } } }
                tbody { @for row in rows { tr { @for cell in row { td { (cell) } } } } }
            }
        }
    }
}

fn text(value: impl ToString) -> Markup {
    html! { (value.to_string()) }
}

fn marked(value: impl ToString, is_good: bool) -> Markup {
    html! { span.good[is_good].bad[!is_good] { (value.to_string()) } }
}

async fn overview(State(view): State<NodeView>) -> Response {
    let content = async {
        let status: ClusterStatus = ask(&view, Ask::Status).await?;
        let found: Vec<NodeStatus> = ask(&view, Ask::Nodes).await?;
        Ok(html! { (summary(&status)) h1 { "Nodes" } (node_table(&found)) })
    };
    answer("/", true, content.await)
}

fn summary(status: &ClusterStatus) -> Markup {
    let balancer = &status.balancer;
    let card = |name: &str, value: Markup| html! { div { dt { (name) } dd { (value) } } };
    let none_of = |count: usize| marked(count, count == 0);
    html! {
        @if !status.warnings.is_empty() || !balancer.stuck.is_empty() {
            ul.warnings { @for warning in status.warnings.iter().chain(&balancer.stuck) { li { (warning) } } }
        }
        dl {
            (card("cluster", text(&status.name)))
            (card("nodes up", marked(format!("{} of {}", status.live_nodes, status.nodes), status.live_nodes == status.nodes)))
            (card("replication factor", text(status.replication_factor)))
            (card("tables", text(status.tables)))
            (card("tablets", text(status.tablets)))
            (card("under-replicated tablets", none_of(status.under_replicated)))
            (card("tablets without a leader", none_of(status.leaderless)))
            (card("tablets without a quorum", none_of(status.unavailable)))
            (card("balancer", text(&balancer.state)))
            (card("replicas on their way", text(balancer.moves)))
            (card("bytes left", text(size(balancer.bytes_left))))
            (card("done in", text(or_dash(balancer.eta_seconds, duration))))
            (card("copies, for each node", text(format!("{}/s", size(balancer.copy_rate_bytes)))))
            (card("nodes are replaced after", text(duration(balancer.replace_after_ms / 1_000))))
            (card("catalog", html! { "version " (status.catalog_version) ", led by " (status.leader) }))
            (card("cluster id", html! { small { (status.cluster_id) } }))
        }
    }
}

fn node_table(nodes: &[NodeStatus]) -> Markup {
    let names =
        ["node", "CQL", "zone", "status", "state", "replicas", "leaders", "tablets", "disk", "memory", "CPU", "uptime"];
    table(
        &names,
        nodes.iter().map(|node| {
            let link = html! { a href=(format!("/tablets?node={}", node.node.0)) { (node.node) } };
            let disk = |disk: &crate::api::DiskStatus| {
                let used = disk.total_bytes.saturating_sub(disk.free_bytes);
                html! {
                    progress value=(used) max=(disk.total_bytes.max(1)) title=(disk.path) {}
                    " " (size(disk.free_bytes)) " free"
                    @if disk.is_full { span.bad { " full" } }
                    @if disk.has_failed { span.bad { " failed" } }
                    br;
                }
            };
            vec![
                link,
                text(&node.cql_address),
                text(format!("{} / {}", node.data_center, node.zone)),
                marked(if node.is_up { "up" } else { "down" }, node.is_up),
                text(if node.may_lead { node.state.clone() } else { format!("{}, leads nothing", node.state) }),
                text(node.replicas),
                text(node.leaders),
                text(size(node.tablet_bytes)),
                html! { @for found in &node.disks { (disk(found)) } },
                text(or_dash(node.resident_bytes, size)),
                text(or_dash(node.cpu_seconds, |seconds| format!("{seconds:.0} s"))),
                text(or_dash(node.uptime_seconds, duration)),
            ]
        }),
    )
}

async fn nodes(State(view): State<NodeView>) -> Response {
    let found = ask(&view, Ask::Nodes).await;
    answer("/nodes", true, found.map(|found: Vec<NodeStatus>| node_table(&found)))
}

async fn tables(State(view): State<NodeView>) -> Response {
    let names = ["keyspace", "table", "tablets", "replication factor", "data, once", "under-replicated", "id"];
    let rows = |found: Vec<TableStatus>| {
        let row = |found: &TableStatus| {
            let link = format!("/tablets?keyspace={}&table={}", query_text(&found.keyspace), query_text(&found.name));
            vec![
                text(&found.keyspace),
                html! { a href=(link) { (found.name) } },
                text(found.tablets),
                text(found.replication_factor),
                text(size(found.bytes)),
                marked(found.under_replicated, found.under_replicated == 0),
                html! { small { (found.id) } },
            ]
        };
        table(&names, found.iter().map(row))
    };
    answer("/tables", false, ask(&view, Ask::Tables).await.map(rows))
}

/// What may stand as a value in a query.
fn query_text(text: &str) -> String {
    crate::command::encoded(text)
}

async fn tablets(State(view): State<NodeView>, filter: Result<Query<TabletFilter>, QueryRejection>) -> Response {
    let mut filter = match filter {
        Ok(Query(filter)) => filter,
        Err(error) => return answer("/tablets", false, Err(Failure::new(FailureKind::Invalid, error.to_string()))),
    };
    // A field of the form that was left empty asks for nothing.
    for field in [&mut filter.keyspace, &mut filter.table] {
        field.take_if(|name| name.is_empty());
    }
    let asked = TabletFilter { limit: Some(ROWS), ..filter.clone() };
    let content = ask(&view, Ask::Tablets(asked)).await.map(|page| tablet_page(&filter, &page));
    answer("/tablets", false, content)
}

fn tablet_page(filter: &TabletFilter, page: &TabletPage) -> Markup {
    let names = ["tablet", "table", "first token", "last token", "data", "leader", "replicas"];
    let rows = page.tablets.iter().map(|tablet| {
        let replicas = html! {
            @for replica in &tablet.replicas {
                span.bad[!replica.is_up] {
                    (replica.node)
                    @if replica.role != "voter" { " (" (replica.role) ")" }
                }
                " "
            }
        };
        vec![
            text(tablet.tablet.0),
            text(format!("{}.{}", tablet.keyspace, tablet.table)),
            text(tablet.first_token),
            text(tablet.last_token),
            text(size(tablet.bytes)),
            marked(or_dash(tablet.leader, |node: NodeId| node.to_string()), tablet.leader.is_some()),
            replicas,
        ]
    });
    let next = page.next_after.map(|after| {
        let node = filter.node.map(|node| format!("&node={node}")).unwrap_or_default();
        let of = |name: &str, value: &Option<String>| {
            value.as_ref().map(|value| format!("&{name}={}", query_text(value))).unwrap_or_default()
        };
        format!("/tablets?after={after}{node}{}{}", of("keyspace", &filter.keyspace), of("table", &filter.table))
    });
    html! {
        form {
            input name="keyspace" placeholder="keyspace" value=[filter.keyspace.as_deref()];
            input name="table" placeholder="table" value=[filter.table.as_deref()];
            button { "Show" }
        }
        (table(&names, rows))
        @if let Some(next) = next { p { a href=(next) { "Next " (ROWS) } } }
    }
}

async fn moves(State(view): State<NodeView>) -> Response {
    let names = ["tablet", "table", "to", "from", "leaving", "copied", "rate", "done in"];
    let rows = |found: Vec<MoveStatus>| {
        let row = |moving: &MoveStatus| {
            let leaving: Vec<String> = moving.leaving.iter().map(ToString::to_string).collect();
            vec![
                text(moving.tablet.0),
                text(format!("{}.{}", moving.keyspace, moving.table)),
                text(or_dash(moving.to, |node| node.to_string())),
                text(or_dash(moving.source, |node| node.to_string())),
                text(leaving.join(" ")),
                html! {
                    progress value=(moving.bytes_done) max=(moving.bytes_total.max(1)) {}
                    " " (size(moving.bytes_done)) " of " (size(moving.bytes_total))
                },
                text(format!("{}/s", size(moving.rate_bytes))),
                text(or_dash(moving.eta_seconds, duration)),
            ]
        };
        match found.is_empty() {
            true => html! { p { "Nothing is on its way." } },
            false => table(&names, found.iter().map(row)),
        }
    };
    answer("/moves", true, ask(&view, Ask::Moves).await.map(rows))
}

async fn configuration(State(view): State<NodeView>) -> Response {
    let content = html! {
        p { "What this node was started with." }
        pre { (format!("{:#}", view.configuration)) }
    };
    answer("/config", false, Ok(content))
}
