//! The pages of the web interface: the answers of `/api/v1/` as HTML that the server renders.
//!
//! Always true: no page needs anything from outside this binary, and its content policy forbids browsers to load it.
//! Without scripts everything is shown except values under the pointer; numbers are then updated by reloading the page.
//! Lists that may be long are sorted, filtered and paged on the server. If a question cannot be answered at the moment,
//! the page says so.
//! Left out: changing anything (`diorite admin` does), except that a role logs in and out.

mod chart;
mod config;
mod frame;
mod indexes;
mod listing;
pub(crate) mod login;
mod moves;
mod nodes;
mod overview;
mod process;
mod question;
mod show;
mod tables;
mod tablets;
mod transactions;

use crate::NodeView;
use axum::Router;
use axum::routing::get;

/// The routes of the pages.
pub(crate) fn pages() -> Router<NodeView> {
    Router::new()
        .route("/", get(overview::overview))
        .route("/nodes", get(nodes::nodes))
        .route("/nodes/{node}", get(nodes::node))
        .route("/tables", get(tables::tables))
        .route("/tables/{keyspace}/{table}", get(tables::table))
        .route("/tablets", get(tablets::tablets))
        .route("/tablets/{tablet}", get(tablets::tablet))
        .route("/moves", get(moves::moves))
        .route("/transactions", get(transactions::transactions))
        .route("/indexes", get(indexes::indexes))
        .route("/indexes/{keyspace}/{name}", get(indexes::index))
        .route("/queries", get(process::queries))
        .route("/memory", get(process::memory))
        .route("/logs", get(process::logs))
        .route("/config", get(config::config))
        .route("/assets/{name}", get(frame::asset))
}
