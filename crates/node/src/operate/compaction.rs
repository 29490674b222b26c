//! Compactions on request, and their rate limit: for all nodes, through the node that leads the catalog.
//!
//! Always true: each node compacts its own data, and continues when the operator no longer waits; a node that does not
//! answer is named with the reason.

use super::changes::check_set;
use super::{Answer, Operations, in_json};
use diorite_admin::api::{Ask, CompactionOrder, NodeCompaction};
use diorite_base::{NodeId, limits};
use std::time::Duration;

/// How long a node is given to answer.
const ANSWER_TIMEOUT: Duration = Duration::from_secs(3);

impl Operations {
    /// Carries out an order on this node.
    pub(super) fn compaction_here(&self, order: CompactionOrder) -> Answer {
        match order {
            CompactionOrder::Look => {}
            CompactionOrder::Begin => self.store.compact(),
            CompactionOrder::Limit { rate_bytes } => {
                check_set(&limits::COMPACTION_RATE, rate_bytes)?;
                self.store.shared().set_compaction_rate(rate_bytes);
            }
        }
        let status = self.store.compaction_status();
        let found = NodeCompaction {
            node: self.node,
            is_running: status.is_running,
            tablets_done: status.tablets_done,
            tablets: status.tablets,
            rate_bytes: self.store.shared().compaction_rate(),
            failure: None,
        };
        in_json(&found)
    }

    /// Carries out an order on all nodes.
    pub(super) async fn compaction_everywhere(&self, order: CompactionOrder) -> Answer {
        if let CompactionOrder::Limit { rate_bytes } = order {
            check_set(&limits::COMPACTION_RATE, rate_bytes)?;
        }
        let nodes: Vec<NodeId> = self.catalog.current().nodes().map(|node| node.id).collect();
        let asked = nodes.iter().map(|node| self.ask_any(*node, Ask::CompactionHere(order), ANSWER_TIMEOUT));
        let answers = futures::future::join_all(asked).await;
        let found = answers.into_iter().zip(nodes).map(|(answer, node)| {
            let parsed = answer
                .map_err(|failure| failure.message)
                .and_then(|value| serde_json::from_value::<NodeCompaction>(value).map_err(|error| error.to_string()));
            parsed.unwrap_or_else(|reason| NodeCompaction {
                node,
                is_running: false,
                tablets_done: 0,
                tablets: 0,
                rate_bytes: 0,
                failure: Some(reason),
            })
        });
        in_json(&found.collect::<Vec<_>>())
    }
}
