//! All tablets, and one of them as its replicas describe it.

use super::frame::Frame;
use super::listing::{self, Column, Page, Parameters, ROWS};
use super::question::{Asked, ask, parameters};
use super::show::{Tone, badge, count, facts, nothing, optional, section, size, text, tile};
use super::tables::address;
use crate::NodeView;
use crate::api::{
    Ask, Failure, FailureKind, ReplicaDetail, ReplicaStatus, TabletDetail, TabletEvent, TabletFilter, TabletOrder,
    TabletPage, TabletState, TabletStatus,
};
use crate::moment::moment;
use axum::extract::{Path, State};
use axum::response::Response;
use diorite_base::{NodeId, TabletId};
use maud::{Markup, html};
use serde::de::DeserializeOwned;

const STATES: [(&str, &str); 5] = [
    ("ok", "ok"),
    ("moving", "moving"),
    ("under_replicated", "under-replicated"),
    ("leaderless", "leaderless"),
    ("unavailable", "unavailable"),
];

fn standing(state: TabletState) -> (Tone, &'static str) {
    match state {
        TabletState::Ok => (Tone::Good, "ok"),
        TabletState::Moving => (Tone::Plain, "moving"),
        TabletState::UnderReplicated => (Tone::Warning, "under-replicated"),
        TabletState::Leaderless => (Tone::Bad, "leaderless"),
        TabletState::Unavailable => (Tone::Bad, "unavailable"),
    }
}

fn node_link(node: NodeId) -> Markup {
    html! { a href=(format!("/nodes/{}", node.0)) { (node) } }
}

fn columns() -> Vec<Column<TabletStatus>> {
    let state = |tablet: &TabletStatus| {
        let (tone, word) = standing(tablet.state);
        badge(tone, word)
    };
    let table = |tablet: &TabletStatus| {
        html! { a href=(address(&tablet.keyspace, &tablet.table)) { (tablet.keyspace) "." (tablet.table) } }
    };
    let link =
        |tablet: &TabletStatus| html! { a.strong href=(format!("/tablets/{}", tablet.tablet.0)) { (tablet.tablet.0) } };
    let leader = |tablet: &TabletStatus| tablet.leader.map_or_else(nothing, node_link);
    vec![
        Column::new("Tablet", link).number().sorted_elsewhere("tablet"),
        Column::new("Table", table).sorted_elsewhere("table"),
        Column::new("State", state).sorted_elsewhere("state"),
        Column::new("Leader", leader).number().sorted_elsewhere("leader"),
        Column::new("Replicas", replicas),
        Column::new("Size", |tablet: &TabletStatus| text(size(tablet.bytes))).number().sorted_elsewhere("bytes"),
        Column::new("SSTables", |tablet: &TabletStatus| text(count(tablet.sst_files)))
            .number()
            .sorted_elsewhere("sst_files"),
        Column::new("First token", |tablet: &TabletStatus| html! { span.mono { (tablet.first_token) } })
            .number()
            .sorted_elsewhere("first_token"),
        Column::new("Last token", |tablet: &TabletStatus| html! { span.mono { (tablet.last_token) } }).number(),
    ]
}

fn replicas(tablet: &TabletStatus) -> Markup {
    let class = |replica: &ReplicaStatus| match (replica.is_up, replica.role.as_str()) {
        (false, _) => "replica bad",
        (true, "voter") if tablet.leader == Some(replica.node) => "replica lead",
        (true, "voter") => "replica",
        (true, _) => "replica warn",
    };
    html! {
        @for replica in &tablet.replicas {
            @let down = if replica.is_up { "" } else { ", down" };
            span class=(class(replica)) title=(format!("node {}, {}{down}", replica.node, replica.role)) {
                (replica.node)
                @if replica.role != "voter" { small { " " (replica.role) } }
                @if !replica.is_up { small { " down" } }
            }
        }
    }
}

/// The parsed value of a parameter, in the API's form.
fn meaning<T: DeserializeOwned>(parameters: &Parameters, name: &str) -> Result<Option<T>, Failure> {
    let read = |text: &str| {
        let invalid = |_| Failure::new(FailureKind::Invalid, format!("'{text}' is no {name}"));
        serde_json::from_value(text.into()).map_err(invalid)
    };
    parameters.get(name).map(read).transpose()
}

fn asked_for(parameters: &Parameters) -> Result<TabletFilter, Failure> {
    Ok(TabletFilter {
        keyspace: parameters.get("keyspace").map(str::to_owned),
        table: parameters.get("table").map(str::to_owned),
        node: parameters.number("node"),
        tablet: parameters.number("tablet"),
        leader: parameters.number("leader"),
        search: parameters.get("q").map(str::to_owned),
        state: meaning(parameters, "state")?,
        after: None,
        skip: Some(parameters.page() * ROWS),
        limit: Some(ROWS),
        sort: meaning::<TabletOrder>(parameters, "sort")?.unwrap_or_default(),
        descending: parameters.is_descending(),
    })
}

pub(super) async fn tablets(State(view): State<NodeView>, asked: Asked) -> Response {
    let content = async {
        let parameters = parameters("/tablets", asked)?;
        let filter = asked_for(&parameters)?;
        let found: TabletPage = ask(&view, Ask::Tablets(filter)).await?;
        let page = Page { rows: found.tablets, total: found.total };
        Ok(html! {
            (listing::filter(&parameters, "tablet or table", fields(&parameters)))
            (listing::table(&parameters, &columns(), &page, row_class))
        })
    };
    Frame::new(&view, "/tablets").answer(content.await)
}

fn row_class(tablet: &TabletStatus) -> &'static str {
    if tablet.state >= TabletState::Leaderless { "bad" } else { "" }
}

fn fields(parameters: &Parameters) -> Markup {
    let field = |name: &str, kind: &str, title: &str| {
        html! { input class=(kind) name=(name) value=[parameters.get(name)] placeholder=(title) aria-label=(title) inputmode=[(kind == "short").then_some("numeric")]; }
    };
    html! {
        (field("keyspace", "medium", "keyspace"))
        (field("table", "medium", "table"))
        (field("node", "short", "on node"))
        (field("leader", "short", "led by"))
        (listing::choice(parameters, "state", "any state", &STATES))
    }
}

pub(super) async fn tablet(State(view): State<NodeView>, Path(id): Path<u64>) -> Response {
    let found = ask(&view, Ask::Tablet { tablet: TabletId(id) }).await;
    let frame = Frame::new(&view, "/tablets").below(format!("Tablet {id}"));
    frame.answer(found.map(|found: TabletDetail| closer(&found)))
}

fn closer(tablet: &TabletDetail) -> Markup {
    let status = &tablet.status;
    let (tone, word) = standing(status.state);
    let leader = tablet.replicas.iter().find(|replica| Some(replica.node) == status.leader);
    let lease = leader.map_or_else(nothing, lease);
    html! {
        p.headline {
            (badge(tone, word))
            a.strong href=(address(&status.keyspace, &status.table)) { (status.keyspace) "." (status.table) }
        }
        @if let Some(how) = &status.reshaping { p { "This tablet " (how) "." } }
        dl.tiles {
            (tile("Leader", status.leader.map_or_else(nothing, node_link), Some(html! { "lease " (lease) })))
            (tile("Term", optional(leader, |leader| count(leader.term)), None))
            (tile("Commit index", optional(leader, |leader| count(leader.commit_index)), None))
            (tile("Size", text(size(status.bytes)), Some(html! { (status.sst_files) " SSTables" })))
            (tile("Rows", optional(leader, |leader| count(leader.keys_estimate)), Some(text("estimated"))))
        }
        (section("Range", facts(&[
            ("First token", html! { span.mono { (status.first_token) } }),
            ("Last token", html! { span.mono { (status.last_token) } }),
            ("Share of the ring", text(part_of_ring(status))),
        ])))
        (section("Replicas", listing::short(&replica_columns(), rows(tablet))))
        @if !tablet.advice.is_empty() {
            (section("Advice", html! { ul { @for line in &tablet.advice { li { (line) } } } }))
        }
        (section("Events", listing::short(&event_columns(), tablet.events.clone())))
    }
}

fn part_of_ring(status: &TabletStatus) -> String {
    let width = (i128::from(status.last_token) - i128::from(status.first_token) + 1) as f64;
    format!("{:.3} %", width / 2f64.powi(64) * 100.0)
}

/// How long the lease lasts; `permanent` for a sole voter, whose lease does not end.
fn lease(replica: &ReplicaDetail) -> Markup {
    match (replica.holds_lease, replica.lease_left_ms) {
        (false, _) => html! { span.dim { "none" } },
        (true, Some(left_ms)) => html! { (left_ms) " ms left" },
        (true, None) => text("permanent"),
    }
}

/// A replica according to the catalog; and according to its node, if that answers.
type Row = (ReplicaStatus, Option<ReplicaDetail>, Option<NodeId>);

fn rows(tablet: &TabletDetail) -> Vec<Row> {
    let row = |replica: &ReplicaStatus| {
        let own = tablet.replicas.iter().find(|own| own.node == replica.node).cloned();
        (replica.clone(), own, tablet.status.leader)
    };
    tablet.status.replicas.iter().map(row).collect()
}

fn replica_columns() -> Vec<Column<Row>> {
    let own = |show: fn(&ReplicaDetail) -> Markup| move |(_, own, _): &Row| own.as_ref().map_or_else(nothing, show);
    let number = move |title, value: fn(&ReplicaDetail) -> u64| {
        Column::new(title, move |(_, own, _): &Row| optional(own.as_ref().map(value), count)).number()
    };
    let role = |(replica, _, leader): &Row| match (*leader == Some(replica.node), replica.is_up) {
        (true, _) => badge(Tone::Good, "leader"),
        (false, false) => badge(Tone::Bad, format!("{}, down", replica.role)),
        (false, true) if replica.role == "voter" => badge(Tone::Plain, "follower"),
        (false, true) => badge(Tone::Warning, &replica.role),
    };
    let group = own(|own| {
        let list = |nodes: &[NodeId]| nodes.iter().map(|node| node.0.to_string()).collect::<Vec<_>>().join(" ");
        html! {
            (list(&own.voters))
            @if !own.outgoing.is_empty() { span.dim { " and " (list(&own.outgoing)) } }
            @if !own.learners.is_empty() { span.dim { " + " (list(&own.learners)) } }
            @if let Some(failure) = &own.failure { span.bad { " failed: " (failure) } }
        }
    });
    vec![
        Column::new("Node", |(replica, ..): &Row| node_link(replica.node)).number(),
        Column::new("Role", role),
        Column::new("Lease", own(lease)),
        number("Term", |own| own.term),
        Column::new("Voters", group),
        number("Log start", |own| own.first_index),
        number("Log end", |own| own.last_index),
        number("Committed", |own| own.commit_index),
        number("Applied", |own| own.applied_index),
        Column::new("Size", |(replica, ..): &Row| optional(replica.bytes, size)).number(),
        number("SSTables", |own| own.sst_files),
        Column::new("Uncompressed", |(_, own, _): &Row| optional(own.as_ref().and_then(|own| own.content_bytes), size))
            .number(),
        Column::new("Memtable", |(_, own, _): &Row| optional(own.as_ref().map(|own| own.memtable_bytes), size))
            .number(),
        number("Reads", |own| own.reads),
        number("Writes", |own| own.writes),
    ]
}

fn event_columns() -> Vec<Column<TabletEvent>> {
    vec![
        Column::new("Time (UTC)", |event: &TabletEvent| html! { time.mono { (moment(event.unix_ms)) } }),
        Column::new("Node", |event: &TabletEvent| node_link(event.node)).number(),
        Column::new("Event", |event: &TabletEvent| text(&event.event)),
    ]
}
