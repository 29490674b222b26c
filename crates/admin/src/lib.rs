//! What a node shows and does over HTTP: metrics in OpenMetrics text, health, the configuration in force, the operations on the cluster
//! ([`api`]) and pages for people, with the command line that asks for them ([`command`]).
//!
//! Always true: everything shown comes through [`NodeView`]; nothing here reaches into the server. Left out: authentication (the port is
//! bound to loopback unless told otherwise).

pub mod api;
mod client;
pub mod command;
mod pages;
mod routes;
mod tables;

use api::{Ask, Failure};
use axum::extract::State;
use axum::http::{HeaderValue, StatusCode, header};
use axum::response::{IntoResponse, Response};
use axum::routing::get;
use axum::{Json, Router};
use diorite_base::NodeId;
use futures::future::BoxFuture;
use std::sync::Arc;

/// Writes the current metrics as OpenMetrics text.
pub trait Metrics: Send + Sync + 'static {
    /// Appends the text, including the closing `# EOF`.
    fn render(&self, out: &mut String) -> std::fmt::Result;
}

/// Answers operators, for the whole cluster.
pub trait Operator: Send + Sync + 'static {
    /// The answer as [`Ask`] says; changes are made when it comes.
    fn ask(&self, ask: Ask) -> BoxFuture<'static, Result<serde_json::Value, Failure>>;
}

/// What a node lets be seen.
#[derive(Clone)]
pub struct NodeView {
    /// Which node it is.
    pub node: NodeId,
    /// The options in force.
    pub configuration: serde_json::Value,
    /// The metrics.
    pub metrics: Arc<dyn Metrics>,
    /// Who answers operators.
    pub operator: Arc<dyn Operator>,
}

/// The routes of the HTTP port.
pub fn router(view: NodeView) -> Router {
    Router::new()
        .route("/metrics", get(metrics))
        .route("/health/live", get(|| async { "live\n" }))
        .route("/health/ready", get(|| async { "ready\n" }))
        .route("/api/v1/config", get(configuration))
        .merge(routes::operations())
        .merge(pages::pages())
        .with_state(view)
}

async fn metrics(State(view): State<NodeView>) -> Response {
    let mut text = String::new();
    match view.metrics.render(&mut text) {
        Ok(()) => {
            let kind = HeaderValue::from_static("application/openmetrics-text; version=1.0.0; charset=utf-8");
            ([(header::CONTENT_TYPE, kind)], text).into_response()
        }
        Err(_) => StatusCode::INTERNAL_SERVER_ERROR.into_response(),
    }
}

async fn configuration(State(view): State<NodeView>) -> Json<serde_json::Value> {
    Json(view.configuration)
}
