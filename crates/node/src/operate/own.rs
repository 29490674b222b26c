//! What is asked of the rest of this node: its clients' connections and its engine, which are there only once it serves.

use diorite_admin::api::{Activity, Failure, NodeQuestion};
use diorite_base::TableId;
use diorite_cql::protocol::CqlError;
use diorite_query::engine::Comparison;
use futures::future::BoxFuture;
use serde_json::Value;

/// The source of information that only this node has about itself.
pub(crate) trait Own: Send + Sync + 'static {
    /// Answers a question. Must not wait.
    fn answer(&self, question: NodeQuestion) -> Result<Value, Failure>;
    /// The node's activity in the last seconds.
    fn activity(&self) -> Activity;
    /// Compares rows of a table, for a unique index or a view.
    fn compare_rows(
        &self,
        table: TableId,
        index: u64,
        rows: Vec<Vec<u8>>,
    ) -> BoxFuture<'static, Result<Comparison, CqlError>>;
}
