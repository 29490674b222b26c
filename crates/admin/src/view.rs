//! The traits by which the HTTP port uses the server.

use crate::api::{Ask, Failure};
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
    /// The answer that [`Ask`] describes. A change has been made when its answer arrives.
    fn ask(&self, ask: Ask) -> BoxFuture<'static, Result<serde_json::Value, Failure>>;

    /// Why this node should not be given requests now; `None` if it can serve them.
    fn unready(&self) -> Option<String> {
        None
    }
}

/// The parts of a node that the HTTP port serves.
#[derive(Clone)]
pub struct NodeView {
    /// The node's id.
    pub node: NodeId,
    /// The metrics.
    pub metrics: Arc<dyn Metrics>,
    /// Answers operators.
    pub operator: Arc<dyn Operator>,
}
