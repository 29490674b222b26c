//! The replicas that nodes have set aside, as of now: reports are a few seconds old, and whoever asks whether the cluster is well must not be told that it was.
//!
//! Always true: a node answers for itself without asking anybody; of one that does not answer in time its last report stands.

use super::{Answer, Operations, unavailable};
use diorite_admin::api::Ask;
use diorite_base::{NodeId, TabletId};
use diorite_replica::Store;
use futures::StreamExt;
use std::collections::BTreeMap;
use std::time::Duration;

/// How long a node is given to answer, and how many are asked at a time.
const TIME_LIMIT: Duration = Duration::from_secs(1);
const AT_A_TIME: usize = 32;

/// Tablets whose replica a node cannot use, and why; ascending.
pub(super) type SetAside = Vec<(TabletId, String)>;

/// Those of this node.
pub(super) fn of(store: &Store) -> SetAside {
    store.set_aside().into_iter().map(|aside| (aside.tablet, aside.reason)).collect()
}

impl Operations {
    pub(super) fn set_aside_here(&self) -> Answer {
        serde_json::to_value(of(&self.store)).map_err(|error| unavailable(error.to_string()))
    }

    /// Those of all nodes that are up and answer.
    pub(super) async fn set_aside_everywhere(&self) -> BTreeMap<NodeId, SetAside> {
        let catalog = self.catalog.current();
        let nodes: Vec<NodeId> = catalog.nodes().map(|node| node.id).filter(|node| self.is_up(*node)).collect();
        let asked = nodes.into_iter().map(|node| async move {
            let answer = self.ask_any(node, Ask::SetAside, TIME_LIMIT).await;
            Some((node, serde_json::from_value(answer.ok()?).ok()?))
        });
        futures::stream::iter(asked).buffer_unordered(AT_A_TIME).filter_map(std::future::ready).collect().await
    }
}
