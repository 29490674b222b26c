//! The HTTP port: metrics, health, pages, and the configuration in force.
//!
//! Always true: the port answers `/health/…` from the moment that it is open; whoever asks for anything else while the node starts waits until it serves.

use crate::config::StartOptions;
use axum::Router;
use axum::extract::{Request, State};
use axum::http::StatusCode;
use axum::response::{IntoResponse, Response};
use axum::routing::get;
use diorite_admin::server::{self, ServerLimits};
use diorite_base::Clock;
use std::sync::Arc;
use tokio::net::TcpListener;
use tokio::sync::watch;
use tower::ServiceExt;

/// The routes of a node that serves; none while it starts.
pub(crate) type Serving = watch::Receiver<Option<Router>>;

/// The options in force, for those who look.
pub(crate) fn configuration(options: &StartOptions) -> serde_json::Value {
    match serde_json::to_value(options) {
        Ok(mut configuration) => {
            // What is in force, not what was left out.
            configuration["memory_limit"] = options.memory_limit_bytes().into();
            configuration
        }
        Err(error) => serde_json::json!({ "error": error.to_string() }),
    }
}

/// Serves until `stop`.
pub(crate) async fn run(listener: TcpListener, serving: Serving, clock: Arc<dyn Clock>, stop: watch::Receiver<bool>) {
    let front = Router::new()
        .route("/health/live", get(|| async { "live\n" }))
        .route("/health/ready", get(ready))
        .fallback(pass_on)
        .with_state(serving);
    server::serve(listener, front, ServerLimits::default(), clock, stop).await;
}

async fn ready(State(serving): State<Serving>, request: Request) -> Response {
    let router = serving.borrow().clone();
    match router {
        Some(router) => call(router, request).await,
        None => (StatusCode::SERVICE_UNAVAILABLE, "the node is starting\n").into_response(),
    }
}

async fn pass_on(State(mut serving): State<Serving>, request: Request) -> Response {
    let router = match serving.wait_for(Option::is_some).await {
        Ok(router) => router.clone(),
        // The node has given up starting.
        Err(_) => None,
    };
    match router {
        Some(router) => call(router, request).await,
        None => StatusCode::SERVICE_UNAVAILABLE.into_response(),
    }
}

async fn call(router: Router, request: Request) -> Response {
    match router.oneshot(request).await {
        Ok(response) => response,
        Err(never) => match never {},
    }
}
