//! What a node shows and does over HTTP: metrics in OpenMetrics text, health, the configuration in force, the operations on the cluster
//! ([`api`]) and pages for people, with the command line that asks for them ([`command`]), over connections that are bounded ([`server`]).
//!
//! Always true: everything shown comes through [`NodeView`]; nothing here reaches into the server; a request passes the [`gate`] first, and the [`login`] where the
//! node asks for passwords. Left out: the passwords (the node checks them), TLS.

pub mod api;
mod client;
pub mod command;
mod exposition;
#[cfg(any(test, feature = "fuzzing"))]
pub mod fuzzing;
pub mod gate;
pub mod login;
mod of_node;
mod pages;
mod password;
mod percent;
mod routes;
pub mod server;
mod tables;
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

/// 200 while the node can be given requests, 503 and the reason while not.
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
