//! The replicas that are moving.

use super::frame::Frame;
use super::listing::{self, Column};
use super::question::{Asked, ask, parameters};
use super::show::{byte_rate, count, nothing, optional, size, text, tile};
use super::tables::address;
use crate::NodeView;
use crate::api::{Ask, MoveStatus};
use axum::extract::State;
use axum::response::Response;
use diorite_base::NodeId;
use diorite_base::text::duration;
use maud::{Markup, html};

fn node(node: Option<NodeId>) -> Markup {
    node.map_or_else(nothing, |node| html! { a href=(format!("/nodes/{}", node.0)) { (node) } })
}

fn columns() -> Vec<Column<MoveStatus>> {
    let table = |moving: &MoveStatus| {
        html! { a href=(address(&moving.keyspace, &moving.table)) { (moving.keyspace) "." (moving.table) } }
    };
    let tablet =
        |moving: &MoveStatus| html! { a.strong href=(format!("/tablets/{}", moving.tablet.0)) { (moving.tablet.0) } };
    let leaving = |moving: &MoveStatus| html! { @for left in &moving.leaving { (node(Some(*left))) " " } };
    let progress = |moving: &MoveStatus| {
        let label = format!("{} of {}", size(moving.bytes_done), size(moving.bytes_total));
        share_of_copy(moving, &label)
    };
    vec![
        Column::new("Tablet", tablet).number().by("tablet", |moving| moving.tablet),
        Column::new("Table", table).by("table", |moving| (moving.keyspace.clone(), moving.table.clone())),
        Column::new("Source", |moving: &MoveStatus| node(moving.source)).number().by("source", |moving| moving.source),
        Column::new("Destination", |moving: &MoveStatus| node(moving.to)).number().by("to", |moving| moving.to),
        Column::new("Leaving", leaving),
        Column::new("Copied", progress).by("done", |moving| moving.bytes_done),
        Column::new("Rate", |moving: &MoveStatus| text(byte_rate(moving.rate_bytes as f64)))
            .number()
            .by("rate", |moving| moving.rate_bytes),
        Column::new("Time left", |moving: &MoveStatus| optional(moving.eta_seconds, duration))
            .number()
            .by("eta", |moving| moving.eta_seconds),
    ]
}

fn share_of_copy(moving: &MoveStatus, label: &str) -> Markup {
    match moving.bytes_total {
        0 => text("nothing to copy"),
        // A copy that is nearly complete needs no warning colour, unlike a disk that is nearly full.
        total => html! {
            span.share { progress value=(moving.bytes_done) max=(total) aria-label=(label) {} span { (label) } }
        },
    }
}

pub(super) async fn moves(State(view): State<NodeView>, asked: Asked) -> Response {
    let content = async {
        let parameters = parameters("/moves", asked)?;
        let found: Vec<MoveStatus> = ask(&view, Ask::Moves).await?;
        let (mut done, mut total, mut rate) = (0, 0, 0);
        for moving in &found {
            done += moving.bytes_done;
            total += moving.bytes_total;
            rate += moving.rate_bytes;
        }
        let columns = columns();
        let all = found.len();
        let words = |moving: &MoveStatus| format!("{} {}.{}", moving.tablet.0, moving.keyspace, moving.table);
        let page = listing::select(&parameters, &columns, found, words);
        Ok(html! {
            dl.tiles {
                (tile("Replicas moving", text(count(all as u64)), None))
                (tile("Copied", text(size(done)), Some(html! { "of " (size(total)) })))
                (tile("Rate", text(byte_rate(rate as f64)), Some(text("sum over all nodes"))))
            }
            @if all == 0 { p.notice { "No replica is moving." } }
            @else {
                (listing::filter(&parameters, "tablet or table", html! {}))
                (listing::table(&parameters, &columns, &page, |_| ""))
            }
        })
    };
    Frame::new(&view, "/moves").answer(content.await)
}
