//! The HTTP port of a node: metrics in OpenMetrics text, health, the configuration in force, the operations on the
//! cluster ([`api`]) and pages for people, over bounded connections ([`server`]); and the command line that uses it
//! ([`command`]).
//!
//! Always true: all data that is shown comes through [`NodeView`], and nothing here uses the server directly; a request
//! passes the [`gate`] first, and the [`login`] where the node requires passwords. Left out: checking passwords (the
//! node does), TLS.

pub mod api;
mod check_index;
mod cidr_groups;
mod client;
pub mod command;
mod exposition;
#[cfg(any(test, feature = "fuzzing"))]
pub mod fuzzing;
pub mod gate;
mod indexes;
mod join_token;
pub mod login;
mod moment;
mod of_node;
mod pages;
mod password;
mod percent;
mod qualified;
mod refusals;
mod restart;
mod routes;
pub mod server;
mod tables;
mod tablets;
mod upgrade;
mod view;
mod visitor;

pub use view::{Metrics, NodeView, Operator};
pub use visitor::Visitor;

use axum::Router;
use axum::extract::State;
use axum::http::{HeaderMap, HeaderValue, StatusCode, header};
use axum::response::{IntoResponse, Response};
use axum::routing::get;
use exposition::Exposition;

/// The routes of the HTTP port.
pub fn router(view: NodeView) -> Router {
    Router::new()
        .route("/metrics", get(metrics))
        .route("/health/live", get(|| async { "live\n" }))
        .route("/health/ready", get(ready))
        .merge(of_node::of_nodes())
        .merge(routes::operations())
        .merge(pages::pages())
        .with_state(view)
}

/// 200 while the node can serve requests; otherwise 503 and the reason.
async fn ready(State(view): State<NodeView>) -> Response {
    match view.operator.unready() {
        None => "ready\n".into_response(),
        Some(reason) => (StatusCode::SERVICE_UNAVAILABLE, format!("{reason}\n")).into_response(),
    }
}

async fn metrics(State(view): State<NodeView>, headers: HeaderMap) -> Response {
    let exposition = Exposition::accepted(headers.get(header::ACCEPT));
    let mut text = String::new();
    match view.metrics.render(&mut text) {
        Ok(()) => {
            let kind = HeaderValue::from_static(exposition.content_type());
            ([(header::CONTENT_TYPE, kind)], exposition.convert(text)).into_response()
        }
        Err(_) => StatusCode::INTERNAL_SERVER_ERROR.into_response(),
    }
}
