//! All secondary indexes, and one of them with its tablets.

use super::frame::Frame;
use super::listing::{self, Column};
use super::question::{Asked, ask, parameters};
use super::show::{Tone, badge, byte_rate, count, nothing, optional, section, text, tile};
use super::tables::address as table_address;
use crate::NodeView;
use crate::api::{Ask, IndexDetail, IndexList, IndexState, IndexStatus, IndexedTablet};
use crate::percent::encoded;
use axum::extract::{Path, State};
use axum::response::Response;
use diorite_base::text::duration;
use maud::{Markup, html};

fn address(index: &IndexStatus) -> String {
    format!("/indexes/{}/{}", encoded(&index.keyspace), encoded(&index.name))
}

fn table(index: &IndexStatus) -> Markup {
    html! { a href=(table_address(&index.keyspace, &index.table)) { (index.keyspace) "." (index.table) } }
}

fn word(state: IndexState) -> &'static str {
    match state {
        IndexState::Failed => "failed",
        IndexState::Ready => "ready",
        IndexState::Building => "building",
        IndexState::Deferred => "deferred",
        IndexState::NotBegun => "not begun",
        IndexState::Unknown => "unknown",
    }
}

fn standing(state: IndexState) -> Markup {
    let tone = match state {
        IndexState::Ready => Tone::Good,
        IndexState::Building | IndexState::NotBegun | IndexState::Deferred => Tone::Plain,
        IndexState::Unknown | IndexState::Failed => Tone::Warning,
    };
    badge(tone, word(state))
}

fn percent(done_permille: u16) -> String {
    format!("{} %", done_permille / 10)
}

/// A bar that needs no warning colour when it is nearly full.
fn built(done_permille: u16) -> Markup {
    let label = percent(done_permille);
    html! { span.share { progress value=(done_permille) max="1000" aria-label=(label) {} span { (label) } } }
}

fn rows_rate(index: &IndexStatus) -> Markup {
    if index.rate_rows == 0 {
        nothing()
    } else {
        html! { (count(index.rate_rows)) "/s" }
    }
}

fn bytes_rate(index: &IndexStatus) -> Markup {
    if index.rate_bytes == 0 { nothing() } else { text(byte_rate(index.rate_bytes as f64)) }
}

fn columns() -> Vec<Column<IndexStatus>> {
    let name = |one: &IndexStatus| html! { a.strong href=(address(one)) { (one.name) } };
    let tablets = |one: &IndexStatus| html! { (count(one.tablets_complete as u64)) " of " (count(one.tablets as u64)) };
    vec![
        Column::new("Index", name).by("index", |one| (one.name.clone(), one.keyspace.clone())),
        Column::new("Table", table).by("table", |one| (one.keyspace.clone(), one.table.clone())),
        Column::new("Of", |one: &IndexStatus| html! { span.mono { (one.target) } }).by("of", |one| one.target.clone()),
        Column::new("State", |one: &IndexStatus| standing(one.state)).by("state", |one| one.state),
        Column::new("Built", |one: &IndexStatus| built(one.done_permille)).by("done", |one| one.done_permille),
        Column::new("Tablets", tablets).number().by("tablets", |one| one.tablets_complete),
        Column::new("Rows", rows_rate).number().by("rows", |one| one.rate_rows),
        Column::new("Rate", bytes_rate).number().by("rate", |one| one.rate_bytes),
        Column::new("Time left", |one: &IndexStatus| optional(one.eta_seconds, duration))
            .number()
            .by("eta", |one| one.eta_seconds),
    ]
}

fn warnings(unanswered: &[String]) -> Markup {
    html! {
        @if !unanswered.is_empty() {
            ul.notice.warnings role="alert" { @for reason in unanswered { li { (reason) } } }
        }
    }
}

pub(super) async fn indexes(State(view): State<NodeView>, asked: Asked) -> Response {
    let content = async {
        let parameters = parameters("/indexes", asked)?;
        let IndexList { indexes, unanswered } = ask(&view, Ask::Indexes).await?;
        let all = indexes.len();
        let ready = indexes.iter().filter(|one| one.state == IndexState::Ready).count();
        let rate: u64 = indexes.iter().map(|one| one.rate_bytes).sum();
        let left: usize = indexes.iter().map(|one| one.tablets.saturating_sub(one.tablets_complete)).sum();
        let columns = columns();
        let words = |one: &IndexStatus| {
            format!("{}.{} {} {} {}", one.keyspace, one.table, one.name, one.target, word(one.state))
        };
        let page = listing::select(&parameters, &columns, indexes, words);
        Ok(html! {
            (warnings(&unanswered))
            dl.tiles {
                (tile("Ready", text(count(ready as u64)), Some(html! { "of " (count(all as u64)) })))
                (tile("Tablets left", text(count(left as u64)), Some(text("sum over all indexes"))))
                (tile("Rate", text(byte_rate(rate as f64)), Some(text("rows read, all nodes"))))
            }
            @if all == 0 { p.notice { "No table has a secondary index." } }
            @else {
                (listing::filter(&parameters, "table, index, column or state", html! {}))
                (listing::table(&parameters, &columns, &page, |_| ""))
            }
        })
    };
    Frame::new(&view, "/indexes").answer(content.await)
}

pub(super) async fn index(
    State(view): State<NodeView>,
    Path((keyspace, name)): Path<(String, String)>,
    asked: Asked,
) -> Response {
    let title = format!("{keyspace}.{name}");
    let content = async {
        let parameters = parameters(&format!("/indexes/{}/{}", encoded(&keyspace), encoded(&name)), asked)?;
        let found: IndexDetail = ask(&view, Ask::Index { keyspace: keyspace.clone(), name: name.clone() }).await?;
        let (columns, status, all) = (tablet_columns(), &found.status, found.listed.len());
        let words = |one: &IndexedTablet| format!("{} {}", one.tablet.0, word(one.state));
        let page = listing::select(&parameters, &columns, found.listed, words);
        Ok(html! {
            (warnings(&found.unanswered))
            p.headline {
                (standing(status.state))
                strong { (status.keyspace) "." (status.name) }
                span.mono { (status.target) }
                span.links { (table(status)) }
            }
            dl.tiles {
                (tile("Built", text(percent(status.done_permille)), Some(text("estimated"))))
                (tile("Tablets", text(count(status.tablets_complete as u64)), Some(html! { "of " (count(status.tablets as u64)) " complete" })))
                (tile("Unknown", text(count(status.tablets_unknown as u64)), Some(text("tablets without an answer"))))
                (tile("Rows", rows_rate(status), None))
                (tile("Rate", bytes_rate(status), None))
                (tile("Time left", optional(status.eta_seconds, duration), None))
            }
            (section("Tablets", html! {
                @if all < status.tablets { p.notice { "The " (count(all as u64)) " least complete ones." } }
                (listing::filter(&parameters, "tablet or state", html! {}))
                (listing::table(&parameters, &columns, &page, |_| ""))
            }))
        })
    };
    Frame::new(&view, "/indexes").below(title).answer(content.await)
}

fn tablet_columns() -> Vec<Column<IndexedTablet>> {
    let tablet =
        |one: &IndexedTablet| html! { a.strong href=(format!("/tablets/{}", one.tablet.0)) { (one.tablet.0) } };
    let leader = |one: &IndexedTablet| match one.leader {
        Some(node) => html! { a href=(format!("/nodes/{}", node.0)) { (node.0) } },
        None => nothing(),
    };
    vec![
        Column::new("Tablet", tablet).number().by("tablet", |one| one.tablet),
        Column::new("Leader", leader).number().by("leader", |one| one.leader),
        Column::new("State", |one: &IndexedTablet| standing(one.state)).by("state", |one| one.state),
        Column::new("Built", |one: &IndexedTablet| built(one.done_permille)).by("done", |one| one.done_permille),
    ]
}
