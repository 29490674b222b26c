//! The pages of one node, which the visitor can choose: statements, memory, log.

use super::frame::Frame;
use super::listing::{self, Column, Parameters};
use super::question::{Asked, all_nodes, ask_node, parameters};
use super::show::{Tone, badge, count, latency, nothing, optional, section, share, size, text, tile};
use crate::NodeView;
use crate::api::{
    LogFilter, LogLine, MemoryComponent, MemoryStatus, NodeQuestion, QueryActivity, QueryStatus, RunningQuery,
};
use crate::moment::moment;
use axum::extract::State;
use axum::response::Response;
use diorite_base::NodeId;
use diorite_base::text::duration;
use maud::{Markup, html};

/// The number of lines of the log that are searched.
const LINES: usize = 5_000;
const LEVELS: [(&str, &str); 4] =
    [("error", "errors"), ("warn", "warnings and errors"), ("debug", "debug and above"), ("trace", "all")];

/// The node that the page shows; `None`: the one that renders it.
pub(super) fn chosen(parameters: &Parameters) -> Option<NodeId> {
    parameters.number("node").map(NodeId)
}

/// A field to choose the node.
pub(super) async fn choose(view: &NodeView, node: Option<NodeId>) -> Markup {
    let chosen = node.unwrap_or(view.node);
    // Without a list of nodes, the chosen one is still offered.
    let nodes = all_nodes(view).await.unwrap_or_default();
    html! {
        select name="node" aria-label="node" {
            @if nodes.iter().all(|found| found.node != chosen) { option value=(chosen.0) selected { "node " (chosen) } }
            @for found in &nodes {
                option value=(found.node.0) selected[found.node == chosen] {
                    "node " (found.node) @if !found.is_up { " (down)" }
                }
            }
        }
    }
}

pub(super) async fn queries(State(view): State<NodeView>, asked: Asked) -> Response {
    let content = async {
        let parameters = parameters("/queries", asked)?;
        let node = chosen(&parameters);
        let found: QueryActivity = ask_node(&view, node, NodeQuestion::Queries).await?;
        let columns = query_columns();
        let words = |query: &QueryStatus| {
            format!("{} {}", query.keyspace.as_deref().unwrap_or(""), query.statement.as_deref().unwrap_or(""))
        };
        let (mut requests, mut errors) = (0, 0);
        for query in &found.queries {
            requests += query.count;
            errors += query.errors;
        }
        let page = listing::select(&parameters, &columns, found.queries, words);
        Ok(html! {
            dl.tiles {
                (tile("Running now", text(count(found.running_count as u64)), None))
                (tile("Statements", text(count(page.total as u64)), Some(text("distinct"))))
                (tile("Requests", text(count(requests)), Some(text("of these statements"))))
                (tile("Errors", text(count(errors)), None))
            }
            (listing::filter(&parameters, "statement or keyspace", choose(&view, node).await))
            (section("Running", listing::short(&running_columns(), found.running)))
            (section("Statements", listing::table(&parameters, &columns, &page, |_| "")))
        })
    };
    Frame::new(&view, "/queries").answer(content.await)
}

fn running_columns() -> Vec<Column<RunningQuery>> {
    vec![
        Column::new("Request", |query: &RunningQuery| text(query.number.to_string())).number(),
        Column::new("Running for", |query: &RunningQuery| text(latency(query.seconds_running))).number(),
        Column::new("Memory", |query: &RunningQuery| text(size(query.memory_bytes))).number(),
        Column::new("Client", |query: &RunningQuery| optional(query.client.clone(), |client| client)),
        Column::new("Keyspace", |query: &RunningQuery| optional(query.keyspace.clone(), |keyspace| keyspace)),
        Column::new("Statement", |query: &RunningQuery| html! { code.statement { (query.statement) } }),
    ]
}

fn query_columns() -> Vec<Column<QueryStatus>> {
    let statement = |query: &QueryStatus| match &query.statement {
        Some(text) => html! { code.statement { (text) } },
        None => html! { span.dim { "all other statements" } },
    };
    let time = |title, key, of: fn(&QueryStatus) -> f64| {
        Column::new(title, move |query: &QueryStatus| text(latency(of(query))))
            .number()
            .by_f64(key, move |query| Some(of(query)))
    };
    let total = |query: &QueryStatus| match query.total_seconds {
        short if short < 1.0 => text(latency(short)),
        long => text(duration(long as u64)),
    };
    let errors = |query: &QueryStatus| match query.errors {
        0 => text("0"),
        some => html! { span.bad { (count(some)) } },
    };
    vec![
        Column::new("Statement", statement).by("statement", |query| query.statement.clone()),
        Column::new("Keyspace", |query: &QueryStatus| optional(query.keyspace.clone(), |keyspace| keyspace))
            .by("keyspace", |query| query.keyspace.clone()),
        Column::new("Requests", |query: &QueryStatus| text(count(query.count)))
            .number()
            .by("count", |query| query.count),
        time("Mean", "mean", |query| query.mean_seconds),
        time("p99", "p99", |query| query.p99_seconds),
        time("Slowest", "max", |query| query.max_seconds),
        Column::new("Total time", total).number().by_f64("total", |query| Some(query.total_seconds)),
        Column::new("Rows", |query: &QueryStatus| text(count(query.rows))).number().by("rows", |query| query.rows),
        Column::new("Errors", errors).number().by("errors", |query| query.errors),
        Column::new(
            "Last (UTC)",
            |query: &QueryStatus| html! { time.mono { (moment(query.last_unix_seconds as i64 * 1_000)) } },
        )
        .number()
        .by("last", |query| query.last_unix_seconds),
    ]
}

pub(super) async fn memory(State(view): State<NodeView>, asked: Asked) -> Response {
    let content = async {
        let parameters = parameters("/memory", asked)?;
        let node = chosen(&parameters);
        let found: MemoryStatus = ask_node(&view, node, NodeQuestion::Memory).await?;
        Ok(html! {
            (listing::filter(&parameters, "component", choose(&view, node).await))
            (memory_tiles(&found))
            (components(&parameters, &found))
            (allocator(&found))
        })
    };
    Frame::new(&view, "/memory").answer(content.await)
}

fn memory_tiles(found: &MemoryStatus) -> Markup {
    let resident = found.resident_bytes.unwrap_or(0);
    let percent = resident as f64 / found.limit_bytes.max(1) as f64 * 100.0;
    html! {
        dl.tiles {
            (tile("Resident", optional(found.resident_bytes, size), Some(html! { (format!("{percent:.0} %")) " of the limit" })))
            (tile("Limit", text(size(found.limit_bytes)), Some(text("--memory-limit"))))
        }
    }
}

fn components(parameters: &Parameters, found: &MemoryStatus) -> Markup {
    let resident = found.resident_bytes.unwrap_or(0);
    let of_limit = |part: &MemoryComponent| match part.limit_bytes {
        Some(limit) => share(part.bytes, limit, &format!("{:.0} %", part.bytes as f64 / limit.max(1) as f64 * 100.0)),
        None => nothing(),
    };
    let of_all = move |part: &MemoryComponent| match resident {
        0 => nothing(),
        all => text(format!("{:.1} %", part.bytes as f64 / all as f64 * 100.0)),
    };
    let columns: Vec<Column<MemoryComponent>> = vec![
        Column::new("Component", |part: &MemoryComponent| html! { strong { (part.name) } })
            .by("component", |part| part.name.clone()),
        Column::new("Bytes", |part: &MemoryComponent| text(size(part.bytes))).number().by("bytes", |part| part.bytes),
        Column::new("Of resident", of_all).number(),
        Column::new("Limit", |part: &MemoryComponent| optional(part.limit_bytes, size))
            .number()
            .by("limit", |part| part.limit_bytes),
        Column::new("Of limit", of_limit),
    ];
    let page = listing::select(parameters, &columns, found.components.clone(), |part| part.name.clone());
    section("By component", listing::table(parameters, &columns, &page, |_| ""))
}

fn allocator(found: &MemoryStatus) -> Markup {
    let Some(says) = &found.allocator else { return html! {} };
    html! {
        (section("Allocator", html! {
            dl.tiles {
                (tile("Allocated", text(size(says.allocated)), Some(text("in use by the program"))))
                (tile("Active", text(size(says.active)), Some(text("in pages that are in use"))))
                (tile("Resident", text(size(says.resident)), Some(text("in physical memory"))))
                (tile("Retained", text(size(says.retained)), Some(text("address space only"))))
                (tile("Metadata", text(size(says.metadata)), Some(text("of the allocator"))))
            }
        }))
    }
}

pub(super) async fn logs(State(view): State<NodeView>, asked: Asked) -> Response {
    let content = async {
        let parameters = parameters("/logs", asked)?;
        let node = chosen(&parameters);
        let level = parameters.get("level").map(str::to_owned);
        let filter = LogFilter { level, limit: Some(LINES) };
        let mut lines: Vec<LogLine> = ask_node(&view, node, NodeQuestion::Logs(filter)).await?;
        lines.reverse();
        Ok(log_page(&parameters, lines, &choose(&view, node).await))
    };
    Frame::new(&view, "/logs").answer(content.await)
}

fn log_page(parameters: &Parameters, lines: Vec<LogLine>, choose: &Markup) -> Markup {
    let columns = log_columns();
    let words = |line: &LogLine| {
        let fields: Vec<String> = line.fields.iter().map(|(name, value)| format!("{name}={value}")).collect();
        format!("{} {} {} {}", line.level, line.target, line.message, fields.join(" "))
    };
    let page = listing::select(parameters, &columns, lines, words);
    let fields = html! {
        (listing::choice(parameters, "level", "information and above", &LEVELS))
        (choose)
    };
    html! {
        p.dim { "The lines that the node keeps in memory, newest first." }
        (listing::filter(parameters, "text in a line", fields))
        (listing::table(parameters, &columns, &page, |line| if line.level == "error" { "bad" } else { "" }))
    }
}

fn log_columns() -> Vec<Column<LogLine>> {
    let level = |line: &LogLine| match line.level.as_str() {
        "error" => badge(Tone::Bad, "error"),
        "warn" => badge(Tone::Warning, "warn"),
        other => badge(Tone::Plain, other),
    };
    let message = |line: &LogLine| {
        html! {
            span.message { (line.message) }
            @for (name, value) in &line.fields { " " span.field { (name) "=" b { (value) } } }
        }
    };
    vec![
        Column::new("Time (UTC)", |line: &LogLine| html! { time.mono { (moment((line.unix_seconds * 1e3) as i64)) } }),
        Column::new("Level", level),
        Column::new("Message", message),
        Column::new("Module", |line: &LogLine| html! { span.dim { (line.target) } }),
    ]
}
