//! Scrubs on all nodes: started, stopped and watched through the node that leads the catalog.
//!
//! Always true: each node reads its own data, at the given rate, and continues when the operator no longer waits; a
//! node that does not answer is named with the reason.

use super::changes::check_set;
use super::{Answer, Operations, in_json};
use diorite_admin::api::{Ask, NodeScrub, ScrubOrder};
use diorite_base::{NodeId, limits};
use std::time::Duration;

/// How long a node is given to answer.
const TIMEOUT: Duration = Duration::from_secs(3);

impl Operations {
    /// Carries out an order on this node.
    pub(super) fn scrub_here(&self, order: ScrubOrder) -> Answer {
        match order {
            ScrubOrder::Look => {}
            ScrubOrder::Begin { rate_bytes } => {
                check_set(&limits::SCRUB_RATE, rate_bytes)?;
                self.store.scrub(rate_bytes);
            }
            ScrubOrder::Stop => self.store.stop_scrub(),
        }
        let status = self.store.scrub_status();
        let found = NodeScrub {
            node: self.node,
            is_running: status.is_running,
            is_asked_for: status.is_asked_for,
            rate_bytes: status.rate_bytes,
            bytes_read: status.bytes_read,
            tablets_read: status.tablets_read,
            tablets: status.tablets,
            damaged: status.damaged,
            stopped: status.stopped,
            finished_ms: status.finished_ms,
            damage_found: status.damage_found,
        };
        in_json(&found)
    }

    /// Carries out an order on all nodes.
    pub(super) async fn scrub_everywhere(&self, order: ScrubOrder) -> Answer {
        if let ScrubOrder::Begin { rate_bytes } = order {
            check_set(&limits::SCRUB_RATE, rate_bytes)?;
        }
        let nodes: Vec<NodeId> = self.catalog.current().nodes().map(|node| node.id).collect();
        let asked = nodes.iter().map(|node| self.ask_any(*node, Ask::ScrubHere(order), TIMEOUT));
        let answers = futures::future::join_all(asked).await;
        let found = answers.into_iter().zip(nodes).map(|(answer, node)| {
            let parsed = answer
                .map_err(|failure| failure.message)
                .and_then(|value| serde_json::from_value::<NodeScrub>(value).map_err(|error| error.to_string()));
            parsed.unwrap_or_else(|reason| NodeScrub {
                node,
                is_running: false,
                is_asked_for: false,
                rate_bytes: 0,
                bytes_read: 0,
                tablets_read: 0,
                tablets: 0,
                damaged: Vec::new(),
                stopped: Some(reason),
                finished_ms: None,
                damage_found: 0,
            })
        });
        in_json(&found.collect::<Vec<_>>())
    }
}
