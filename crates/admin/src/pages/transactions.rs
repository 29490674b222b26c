//! The transactions that are prepared, and whether their homes can decide.

use super::frame::Frame;
use super::listing::{self, Column};
use super::question::{Asked, ask, parameters};
use super::show::{Tone, badge, count, latency, nothing, size, text, tile};
use super::tables::address;
use crate::NodeView;
use crate::api::{Ask, PreparedTransaction, PreparedTransactions};
use axum::extract::State;
use axum::response::Response;
use diorite_base::TabletId;
use maud::{Markup, html};

/// From this age on a transaction counts as old.
const OLD_MS: u64 = 1_000;

fn tablet(tablet: TabletId) -> Markup {
    html! { a.strong href=(format!("/tablets/{}", tablet.0)) { (tablet.0) } }
}

fn table(keyspace: &str, name: &str) -> Markup {
    html! { a href=(address(keyspace, name)) { (keyspace) "." (name) } }
}

fn node(node: u64) -> Markup {
    html! { a href=(format!("/nodes/{node}")) { (node) } }
}

fn columns() -> Vec<Column<PreparedTransaction>> {
    let home = |one: &PreparedTransaction| match one.home.tablet {
        Some(home) => html! { (tablet(home)) " " (table(&one.home.keyspace, &one.home.table)) },
        None => nothing(),
    };
    let decides = |one: &PreparedTransaction| match (one.home.obstacle(), one.home.leader) {
        (Some(obstacle), _) => badge(Tone::Bad, obstacle),
        (None, Some(leader)) => node(leader.0),
        (None, None) => nothing(),
    };
    let age = |one: &PreparedTransaction| text(latency(one.age_ms as f64 / 1e3));
    vec![
        Column::new("Tablet", |one: &PreparedTransaction| tablet(one.tablet)).number().by("tablet", |one| one.tablet),
        Column::new("Table", |one: &PreparedTransaction| table(&one.keyspace, &one.table))
            .by("table", |one| (one.keyspace.clone(), one.table.clone())),
        Column::new("Leader", |one: &PreparedTransaction| node(one.leader.0)).number().by("leader", |one| one.leader),
        Column::new("Transaction", |one: &PreparedTransaction| text(one.transaction))
            .by("transaction", |one| one.transaction),
        Column::new("Age", age).number().by("age", |one| one.age_ms),
        Column::new("Rows", |one: &PreparedTransaction| text(count(one.rows as u64)))
            .number()
            .by("rows", |one| one.rows),
        Column::new("Staged", |one: &PreparedTransaction| text(size(one.staged_bytes as u64)))
            .number()
            .by("staged", |one| one.staged_bytes),
        Column::new("Home", home).by("home", |one| one.home.tablet),
        Column::new("Home led by", decides).by("obstacle", |one| (one.home.obstacle(), one.home.leader)),
    ]
}

pub(super) async fn transactions(State(view): State<NodeView>, asked: Asked) -> Response {
    let content = async {
        let parameters = parameters("/transactions", asked)?;
        let found: PreparedTransactions = ask(&view, Ask::Transactions).await?;
        let is_old = |one: &&PreparedTransaction| one.age_ms >= OLD_MS;
        let waits = |one: &&PreparedTransaction| one.home.obstacle().is_some();
        let old = found.transactions.iter().filter(is_old).count();
        let waiting = found.transactions.iter().filter(waits).count();
        let staged: usize = found.transactions.iter().map(|one| one.staged_bytes).sum();
        let tone = if waiting == 0 { "" } else { "bad" };
        let columns = columns();
        let words = |one: &PreparedTransaction| {
            let home = format!("{}.{} {}", one.home.keyspace, one.home.table, one.home.obstacle().unwrap_or(""));
            format!("{} {}.{} {} {home}", one.tablet.0, one.keyspace, one.table, one.transaction)
        };
        let (total, unanswered) = (found.total, found.unanswered);
        let page = listing::select(&parameters, &columns, found.transactions, words);
        Ok(html! {
            @if !unanswered.is_empty() {
                ul.notice.warnings role="alert" { @for reason in &unanswered { li { (reason) } } }
            }
            dl.tiles {
                (tile("Prepared", text(count(total as u64)), Some(text("in tablets with a leader"))))
                (tile("Older than a second", text(count(old as u64)), Some(text("of those listed"))))
                (tile("Home does not decide", html! { span class=(tone) { (count(waiting as u64)) } }, Some(text("of those listed"))))
                (tile("Staged", text(size(staged as u64)), Some(text("of those listed"))))
            }
            @if total == 0 { p.notice { "No transaction is prepared." } }
            @else {
                (listing::filter(&parameters, "tablet, table or transaction", html! {}))
                (listing::table(&parameters, &columns, &page, |one| if one.home.obstacle().is_some() { "bad" } else { "" }))
            }
        })
    };
    Frame::new(&view, "/transactions").answer(content.await)
}
