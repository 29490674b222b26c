//! What is asked of the rest of this node: its clients' connections and its engine, which are there only once it serves.

use diorite_admin::api::{Activity, Failure, NodeQuestion};
use diorite_base::TableId;
use diorite_cql::protocol::CqlError;
use diorite_query::engine::{Checked, Comparison};
use futures::future::BoxFuture;
use serde_json::Value;

/// What rows and entries were found to be, each with its key.
pub(crate) type CheckedKeys = Vec<(Vec<u8>, Checked)>;

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
    /// Proposes what becomes of the hidden view of a covering index, if that is known by now; `may_remove`: no node uses a
    /// retired one any more.
    fn finish_covering(&self, table: TableId, view: u64, may_remove: bool) -> BoxFuture<'static, Result<(), CqlError>>;
    /// Looks whether rows of a table have their entries in a unique index or view; or, if they are `entries`, whether
    /// these have their rows.
    fn check_rows(
        &self,
        table: TableId,
        index: u64,
        entries: bool,
        keys: Vec<Vec<u8>>,
    ) -> BoxFuture<'static, Result<CheckedKeys, CqlError>>;
}
