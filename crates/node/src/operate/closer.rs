//! A closer look at one tablet: what each of its replicas says of itself.
//!
//! Always true: a node answers for its own replica without asking anybody; a node that does not answer in time is left out.

use super::{Answer, Operations, unavailable};
use diorite_admin::api::{
    Ask, Failure, FailureKind, ReplicaDetail, TabletDetail, TabletEvent, TabletFilter, TabletPage,
};
use diorite_base::TabletId;
use std::sync::Arc;
use std::time::Duration;

/// How long a node is given to say how its replica is.
const PATIENCE: Duration = Duration::from_secs(3);
/// Events that are shown of a tablet, of all its replicas.
const EVENTS: usize = 100;

impl Operations {
    /// How this node's replica of a tablet is.
    pub(super) async fn replica_here(&self, tablet: TabletId) -> Answer {
        let (store, node) = (Arc::clone(&self.store), self.node);
        // The replica's thread is waited for.
        let looking = self.runtime.spawn_blocking(move || {
            let handle = store.handle(tablet)?;
            let state = store.describe(tablet)?;
            let (statistics, files) = (handle.data().statistics(), handle.data().files());
            let (reads, writes) = handle.operations();
            let event = |event: &diorite_replica::TabletEvent| TabletEvent {
                node,
                unix_ms: event.wall_us / 1_000,
                event: event.kind.to_string(),
            };
            Some(ReplicaDetail {
                node,
                tablet,
                disk: store.disks().get(handle.disk()).map(|disk| disk.0.clone()).unwrap_or_default(),
                term: state.term,
                leader: state.leader,
                holds_lease: state.holds_lease,
                lease_left_ms: state.lease_left_ns.map(|left_ns| left_ns / 1_000_000),
                first_index: state.first_index,
                last_index: state.last_index,
                commit_index: state.commit_index,
                applied_index: state.applied_index,
                voters: state.voters,
                outgoing: state.outgoing,
                learners: state.learners,
                matched: state.matched,
                waiting_entries: state.waiting_entries,
                failure: state.failure,
                bytes: handle.data().size_bytes(),
                memtable_bytes: handle.data().memtable_bytes(),
                sst_files: files.files,
                sst_bytes: files.bytes,
                content_bytes: files.content_bytes,
                keys_estimate: statistics.keys_estimate,
                reads,
                writes,
                events: store.events(tablet).iter().map(event).collect(),
            })
        });
        let found = looking.await.map_err(|error| unavailable(error.to_string()))?;
        let missing =
            || Failure::new(FailureKind::NotFound, format!("node {node} holds no replica of tablet {}", tablet.0));
        serde_json::to_value(found.ok_or_else(missing)?).map_err(|error| unavailable(error.to_string()))
    }

    /// How a tablet is, from this node, which leads the catalog, and from those that hold replicas of it.
    pub(super) async fn tablet_everywhere(&self, tablet: TabletId) -> Answer {
        let filter = TabletFilter { tablet: Some(tablet.0), ..TabletFilter::default() };
        let page = self.look_up(Ask::Tablets(filter)).await?;
        let strange = |error: serde_json::Error| unavailable(error.to_string());
        let page: TabletPage = serde_json::from_value(page).map_err(strange)?;
        let missing = || Failure::new(FailureKind::NotFound, format!("there is no tablet {}", tablet.0));
        let status = page.tablets.into_iter().next().ok_or_else(missing)?;
        let holders = status.replicas.iter().filter(|replica| replica.is_up);
        let asked = holders.map(|replica| self.ask_any(replica.node, Ask::Replica { tablet }, PATIENCE));
        let answers = futures::future::join_all(asked).await;
        let mut replicas: Vec<ReplicaDetail> =
            answers.into_iter().filter_map(|answer| serde_json::from_value(answer.ok()?).ok()).collect();
        let mut events: Vec<TabletEvent> =
            replicas.iter_mut().flat_map(|replica| replica.events.iter().cloned()).collect();
        events.sort_by_key(|event| std::cmp::Reverse(event.unix_ms));
        events.truncate(EVENTS);
        serde_json::to_value(TabletDetail { status, replicas, events }).map_err(strange)
    }
}
