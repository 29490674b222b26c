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
mod show;
mod tables;
mod tablets;

pub(crate) use show::moment;

use crate::NodeView;
use crate::api::{Ask, Failure, FailureKind, NodeQuestion, NodeStatus};
use axum::Router;
use axum::extract::Query;
use axum::extract::rejection::QueryRejection;
use axum::routing::get;
use diorite_base::NodeId;
use listing::Parameters;
use serde::de::DeserializeOwned;
use std::collections::BTreeMap;

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

/// The parameters of a page's address.
type Asked = Result<Query<BTreeMap<String, String>>, QueryRejection>;

fn parameters(path: &str, asked: Asked) -> Result<Parameters, Failure> {
    match asked {
        Ok(Query(given)) => Ok(Parameters::new(path, given)),
        Err(error) => Err(Failure::new(FailureKind::Invalid, error.to_string())),
    }
}

async fn ask<T: DeserializeOwned>(view: &NodeView, ask: Ask) -> Result<T, Failure> {
    let answer = view.operator.ask(ask).await?;
    serde_json::from_value(answer).map_err(|error| Failure::new(FailureKind::Unavailable, error.to_string()))
}

/// Asks a node about itself; none: this one.
async fn ask_node<T: DeserializeOwned>(
    view: &NodeView,
    node: Option<NodeId>,
    question: NodeQuestion,
) -> Result<T, Failure> {
    ask(view, Ask::Node { node, question }).await
}

/// The nodes, for pages on which one of them is chosen.
async fn all_nodes(view: &NodeView) -> Result<Vec<NodeStatus>, Failure> {
    ask(view, Ask::Nodes).await
}
