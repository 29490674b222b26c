//! What a node shows over HTTP: metrics in OpenMetrics text, health, the configuration in force. The admin pages come on top of it.
//!
//! Always true: everything shown comes through [`NodeView`]; nothing here reaches into the server. Left out: authentication (the port is
//! bound to loopback unless told otherwise).

use axum::extract::State;
use axum::http::{HeaderValue, StatusCode, header};
use axum::response::{IntoResponse, Response};
use axum::routing::get;
use axum::{Json, Router};
use std::sync::Arc;

/// Writes the current metrics as OpenMetrics text.
pub trait Metrics: Send + Sync + 'static {
    /// Appends the text, including the closing `# EOF`.
    fn render(&self, out: &mut String) -> std::fmt::Result;
}

/// What a node lets be seen.
#[derive(Clone)]
pub struct NodeView {
    /// The options in force.
    pub configuration: serde_json::Value,
    /// The metrics.
    pub metrics: Arc<dyn Metrics>,
}

/// The routes of the HTTP port.
pub fn router(view: NodeView) -> Router {
    Router::new()
        .route("/metrics", get(metrics))
        .route("/health/live", get(|| async { "live\n" }))
        .route("/health/ready", get(|| async { "ready\n" }))
        .route("/api/v1/config", get(configuration))
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
