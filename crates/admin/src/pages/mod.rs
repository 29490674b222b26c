//! The pages for people: the same answers as under `/api/v1/`, as HTML that a server renders and any browser shows.
//!
//! Always true: no page needs anything from outside this binary, and the policy that goes with it forbids browsers to load any; without scripts
//! everything is there but values under the pointer and figures that renew themselves in place (pages are then loaded again every now and then); lists that may
//! be long are sorted, filtered and cut into pages on the server; a question that nobody can answer at the moment is a page that says so.
//! Left out: changing anything (`diorite admin` does).

mod chart;
mod config;
mod frame;
mod listing;
mod moves;
mod nodes;
mod overview;
mod process;
mod question;
mod show;
mod tables;
mod tablets;

pub(crate) use show::moment;

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
        .route("/queries", get(process::queries))
        .route("/memory", get(process::memory))
        .route("/logs", get(process::logs))
        .route("/config", get(config::config))
        .route("/assets/{name}", get(frame::asset))
}
