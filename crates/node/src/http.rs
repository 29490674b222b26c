//! The HTTP port: metrics, health, and the configuration in force.

use crate::config::StartOptions;
use crate::metrics::NodeMetrics;
use crate::shared::Shared;
use diorite_admin::{NodeView, Operator, router};
use diorite_rpc::tcp::TcpTransport;
use std::sync::Arc;
use tokio::net::TcpListener;
use tokio::sync::watch;

/// Serves until `stop`.
pub(crate) async fn run(
    listener: TcpListener,
    shared: Arc<Shared>,
    transport: Arc<TcpTransport>,
    operator: Arc<dyn Operator>,
    options: StartOptions,
    mut stop: watch::Receiver<bool>,
) {
    let configuration = match serde_json::to_value(&options) {
        Ok(mut configuration) => {
            // What is in force, not what was left out.
            configuration["memory_limit"] = options.memory_limit_bytes().into();
            configuration
        }
        Err(error) => serde_json::json!({ "error": error.to_string() }),
    };
    let node = shared.kv.node.node;
    let view = NodeView { node, configuration, metrics: Arc::new(NodeMetrics::new(shared, transport)), operator };
    let served = axum::serve(listener, router(view)).with_graceful_shutdown(async move {
        // The sender is dropped only with the node.
        let _ = stop.wait_for(|stop| *stop).await;
    });
    if let Err(error) = served.await {
        tracing::error!(%error, "the HTTP port stopped");
    }
}
