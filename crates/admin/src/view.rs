//! The traits behind which the HTTP port finds the server.

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
    /// The answer as [`Ask`] says; changes are made when it comes.
    fn ask(&self, ask: Ask) -> BoxFuture<'static, Result<serde_json::Value, Failure>>;

    /// Why the node that is asked should not be given requests now; none: it should.
    fn unready(&self) -> Option<String> {
        None
    }
}

/// The parts of a node that the HTTP port serves.
#[derive(Clone)]
pub struct NodeView {
    /// Which node it is.
    pub node: NodeId,
    /// The metrics.
    pub metrics: Arc<dyn Metrics>,
    /// Who answers operators.
    pub operator: Arc<dyn Operator>,
}
