//! All tables, and one of them with its schema.

use super::frame::Frame;
use super::listing::{self, Column};
use super::question::{Asked, ask, parameters};
use super::show::{Tone, badge, count, facts, optional, section, size, text, tile};
use crate::NodeView;
use crate::api::{Ask, TableDetail, TableShare, TableStatus};
use crate::percent::encoded;
use axum::extract::{Path, State};
use axum::response::Response;
use maud::{Markup, html};

/// The path of a table's page.
pub(super) fn address(keyspace: &str, table: &str) -> String {
    format!("/tables/{}/{}", encoded(keyspace), encoded(table))
}

fn standing(table: &TableStatus) -> (Tone, &'static str) {
    match (table.leaderless, table.under_replicated) {
        (0, 0) => (Tone::Good, "ok"),
        (0, _) => (Tone::Warning, "under-replicated"),
        _ => (Tone::Bad, "leaderless"),
    }
}

fn columns() -> Vec<Column<TableStatus>> {
    let name = |table: &TableStatus| html! { a.strong href=(address(&table.keyspace, &table.name)) { (table.name) } };
    let status = |table: &TableStatus| {
        let (tone, word) = standing(table);
        badge(tone, word)
    };
    let keyspace = |table: &TableStatus| {
        html! { a href=(format!("/tables?q={}", encoded(&table.keyspace))) { (table.keyspace) } }
    };
    vec![
        Column::new("Keyspace", keyspace).by("keyspace", |table| (table.keyspace.clone(), table.name.clone())),
        Column::new("Table", name).by("table", |table| table.name.clone()),
        Column::new("Status", status).by("status", |table| (table.leaderless, table.under_replicated)),
        Column::new("Tablets", |table: &TableStatus| text(count(table.tablets as u64)))
            .number()
            .by("tablets", |table| table.tablets),
        Column::new("Replicas", |table: &TableStatus| html! { "× " (table.replication_factor) })
            .number()
            .by("replicas", |table| table.replication_factor),
        Column::new("Data", |table: &TableStatus| text(size(table.bytes))).number().by("bytes", |table| table.bytes),
        Column::new("Uncompressed", |table: &TableStatus| optional(table.content_bytes, size))
            .number()
            .by("content", |table| table.content_bytes),
        Column::new("All replicas", |table: &TableStatus| text(size(table.replica_bytes)))
            .number()
            .by("replica_bytes", |table| table.replica_bytes),
        Column::new("SSTables", |table: &TableStatus| text(count(table.sst_files)))
            .number()
            .by("files", |table| table.sst_files),
    ]
}

pub(super) async fn tables(State(view): State<NodeView>, asked: Asked) -> Response {
    let content = async {
        let parameters = parameters("/tables", asked)?;
        let mut found: Vec<TableStatus> = ask(&view, Ask::Tables).await?;
        found.sort_by(|a, b| (&a.keyspace, &a.name).cmp(&(&b.keyspace, &b.name)));
        let columns = columns();
        let words =
            |table: &TableStatus| format!("{}.{} {} {}", table.keyspace, table.name, table.id, standing(table).1);
        let page = listing::select(&parameters, &columns, found, words);
        Ok(html! {
            (listing::filter(&parameters, "keyspace, table, id or status", html! {}))
            (listing::table(&parameters, &columns, &page, |_| ""))
        })
    };
    Frame::new(&view, "/tables").answer(content.await)
}

pub(super) async fn table(State(view): State<NodeView>, Path((keyspace, name)): Path<(String, String)>) -> Response {
    let title = format!("{keyspace}.{name}");
    let found = ask(&view, Ask::Table { keyspace, name }).await;
    Frame::new(&view, "/tables").below(title).answer(found.map(|found: TableDetail| closer(&found)))
}

fn closer(table: &TableDetail) -> Markup {
    let status = &table.status;
    let (tone, word) = standing(status);
    let tablets = format!("/tablets?keyspace={}&table={}", encoded(&status.keyspace), encoded(&status.name));
    let replicas = html! { (size(status.replica_bytes)) " in all replicas" };
    html! {
        p.headline {
            (badge(tone, word))
            strong { (status.keyspace) "." (status.name) }
            span.links { a href=(tablets) { "tablets" } }
        }
        dl.tiles {
            (tile("Tablets", html! { a href=(tablets) { (count(status.tablets as u64)) } }, Some(html! { "× " (status.replication_factor) " replicas" })))
            (tile("Data", text(size(status.bytes)), Some(replicas)))
            (tile("Uncompressed", optional(status.content_bytes, size), Some(text("keys and values, one replica"))))
            (tile("SSTables", text(count(status.sst_files)), Some(text("on all nodes"))))
            (tile("Under-replicated", text(count(status.under_replicated as u64)), Some(text("tablets"))))
            (tile("Leaderless", text(count(status.leaderless as u64)), Some(text("tablets"))))
        }
        div.columns {
            (section("Schema", html! { pre.cql { (table.schema) } }))
            (section("Nodes", listing::short(&shares(tablets), table.nodes.clone())))
        }
        (section("Details", facts(&[("Id", html! { span.mono { (status.id) } })])))
    }
}

fn shares(tablets: String) -> Vec<Column<TableShare>> {
    let link = |share: &TableShare| html! { a.strong href=(format!("/nodes/{}", share.node.0)) { (share.node) } };
    let on_node = move |share: &TableShare| {
        html! { a href=(format!("{tablets}&node={}", share.node.0)) { (count(share.replicas as u64)) } }
    };
    vec![
        Column::new("Node", link).number(),
        Column::new("Replicas", on_node).number(),
        Column::new("Leaders", |share: &TableShare| text(count(share.leaders as u64))).number(),
        Column::new("Bytes", |share: &TableShare| text(size(share.bytes))).number(),
    ]
}
