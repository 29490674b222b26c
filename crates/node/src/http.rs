//! The HTTP port: metrics, health, pages, and the configuration in force, behind the request checks of the gate and,
//! where clients have to log in, behind a login.
//!
//! Always true: the port answers `/health/…` from the moment that it is open; other requests wait until the node
//! serves.

use crate::config::{MetricsAccess, StartOptions};
use crate::error::TokenError;
use crate::http_login::Logins;
use crate::machine;
use crate::shared::Shared;
use axum::Router;
use axum::extract::{Request, State};
use axum::http::StatusCode;
use axum::response::{IntoResponse, Response};
use axum::routing::get;
use diorite_admin::NodeView;
use diorite_admin::gate::Gate;
use diorite_admin::login::Guard;
use diorite_admin::server::{self, ServerLimits, TlsConfigs};
use diorite_base::Clock;
use std::sync::Arc;
use tokio::net::TcpListener;
use tokio::sync::watch;
use tower::ServiceExt;

/// Characters of a token.
const MIN_TOKEN: usize = 16;

/// The routes of a node that serves; none while it starts.
pub(crate) type Serving = watch::Receiver<Option<Router>>;

/// The options in force, for operators.
pub fn configuration(options: &StartOptions) -> serde_json::Value {
    match serde_json::to_value(options) {
        Ok(mut configuration) => {
            // The values in force, in place of options that were omitted.
            configuration["memory_limit"] = options.memory_limit_bytes().into();
            configuration
        }
        Err(error) => serde_json::json!({ "error": error.to_string() }),
    }
}

/// The rules that requests are checked against. The node's names are its machine's name, the one given to other nodes,
/// and those that the operator adds.
pub(crate) fn gate(options: &StartOptions) -> Gate {
    let advertised = options.advertise_node_address.iter().map(|address| address.host.clone());
    Gate::new(options.http_host.iter().cloned().chain(advertised).chain([machine::name()]))
}

/// The token for metrics, if there is one.
pub(crate) fn metrics_token(options: &StartOptions) -> Result<Option<String>, TokenError> {
    let path = match (&options.metrics_token_file, options.metrics_access) {
        (Some(path), MetricsAccess::Token) => path,
        (None, MetricsAccess::Token) => return Err(TokenError::Missing),
        (_, MetricsAccess::Open | MetricsAccess::Role) => return Ok(None),
    };
    let text = std::fs::read_to_string(path);
    let text = text.map_err(|source| TokenError::Unreadable { path: path.clone(), source })?;
    let token = text.lines().next().unwrap_or_default().trim();
    match token.chars().count() {
        found if found < MIN_TOKEN => Err(TokenError::Short { path: path.clone(), found, least: MIN_TOKEN }),
        _ => Ok(Some(token.to_owned())),
    }
}

/// The routes of a node that serves.
pub(crate) fn routes(
    options: &StartOptions,
    shared: &Arc<Shared>,
    metrics_token: Option<String>,
    view: NodeView,
) -> Router {
    let login = Arc::new(Logins::new(Arc::clone(&shared.kv), shared.access.clone(), metrics_token));
    let guard = Guard {
        login,
        changes_from: options.http_changes,
        has_open_metrics: options.metrics_access == MetricsAccess::Open,
    };
    guard.protect(diorite_admin::router(view))
}

/// Serves until `stop`, by TLS if that is given.
pub(crate) async fn run(
    listener: TcpListener,
    serving: Serving,
    gate: Gate,
    tls: Option<TlsConfigs>,
    clock: Arc<dyn Clock>,
    stop: watch::Receiver<bool>,
) {
    let front = Router::new()
        .route("/health/live", get(|| async { "live\n" }))
        .route("/health/ready", get(ready))
        .fallback(pass_on)
        .with_state(serving);
    server::serve(listener, gate.guard(front), tls, ServerLimits::default(), clock, stop).await;
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
        // The node has failed to start.
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
