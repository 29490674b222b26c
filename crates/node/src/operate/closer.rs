//! Details of one tablet: each of its replicas describes itself.
//!
//! Always true: a node describes its own replica without asking others; a node that does not answer in time is left
//! out.

use super::{Answer, Operations, in_json, unavailable};
use diorite_admin::api::{
    Ask, Failure, FailureKind, ReplicaDetail, TabletDetail, TabletEvent, TabletFilter, TabletPage,
};
use diorite_base::{NodeId, TabletId};
use diorite_replica::{SetAside, Store};
use std::sync::Arc;
use std::time::Duration;

/// How long a node may take to describe its replica.
const TIMEOUT: Duration = Duration::from_secs(3);
/// Events that are shown of a tablet, of all its replicas.
const EVENTS: usize = 100;

impl Operations {
    /// The state of this node's replica of a tablet.
    pub(super) async fn replica_here(&self, tablet: TabletId) -> Answer {
        let (store, node) = (Arc::clone(&self.store), self.node);
        // Waits for the replica's store thread.
        let looking = self.runtime.spawn_blocking(move || {
            let aside = store.set_aside().into_iter().find(|aside| aside.tablet == tablet);
            let Some(handle) = store.handle(tablet) else { return Some(unopened(&store, node, &aside?)) };
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
                disk: store.disks().get(handle.disk()).map(|disk| disk.path.clone()).unwrap_or_default(),
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
                failure: state.failure.or(aside.map(|aside| aside.reason)),
                bytes: handle.data().size_bytes(),
                memtable_bytes: handle.data().memtable_bytes(),
                sst_files: files.files,
                sst_bytes: files.bytes,
                content_bytes: files.contents.map(|contents| contents.content_bytes),
                keys_estimate: statistics.keys_estimate,
                reads,
                writes,
                events: store.events(tablet).iter().map(event).collect(),
            })
        });
        let found = looking.await.map_err(|error| unavailable(error.to_string()))?;
        let missing =
            || Failure::new(FailureKind::NotFound, format!("node {node} holds no replica of tablet {}", tablet.0));
        in_json(&found.ok_or_else(missing)?)
    }

    /// The state of a tablet: as known to this node, which leads the catalog, and as described by the nodes that hold
    /// its replicas.
    pub(super) async fn tablet_everywhere(&self, tablet: TabletId) -> Answer {
        let filter = TabletFilter { tablet: Some(tablet.0), ..TabletFilter::default() };
        let page = self.look_up(Ask::Tablets(filter)).await?;
        let strange = |error: serde_json::Error| unavailable(error.to_string());
        let page: TabletPage = serde_json::from_value(page).map_err(strange)?;
        let missing = || Failure::new(FailureKind::NotFound, format!("there is no tablet {}", tablet.0));
        let status = page.tablets.into_iter().next().ok_or_else(missing)?;
        let holders = status.replicas.iter().filter(|replica| replica.is_up);
        let asked = holders.map(|replica| self.ask_any(replica.node, Ask::Replica { tablet }, TIMEOUT));
        let answers = futures::future::join_all(asked).await;
        let mut replicas: Vec<ReplicaDetail> =
            answers.into_iter().filter_map(|answer| serde_json::from_value(answer.ok()?).ok()).collect();
        let mut events: Vec<TabletEvent> =
            replicas.iter_mut().flat_map(|replica| replica.events.iter().cloned()).collect();
        events.sort_by_key(|event| std::cmp::Reverse(event.unix_ms));
        events.truncate(EVENTS);
        let advice = advice(tablet, status.replicas.len(), &replicas);
        in_json(&TabletDetail { status, replicas, events, advice })
    }
}

/// The description of a replica that could not be opened.
fn unopened(store: &Store, node: NodeId, aside: &SetAside) -> ReplicaDetail {
    ReplicaDetail {
        node,
        tablet: aside.tablet,
        disk: store.disks().get(aside.disk).map(|disk| disk.path.clone()).unwrap_or_default(),
        failure: Some(aside.reason.clone()),
        term: 0,
        leader: None,
        holds_lease: false,
        lease_left_ms: None,
        first_index: 0,
        last_index: 0,
        commit_index: 0,
        applied_index: 0,
        voters: Vec::new(),
        outgoing: Vec::new(),
        learners: Vec::new(),
        matched: Vec::new(),
        waiting_entries: 0,
        bytes: 0,
        memtable_bytes: 0,
        sst_files: 0,
        sst_bytes: 0,
        content_bytes: None,
        keys_estimate: 0,
        reads: 0,
        writes: 0,
        events: Vec::new(),
    }
}

/// Known problems of a tablet's replicas, and advice for each.
pub(super) fn advice(tablet: TabletId, holders: usize, replicas: &[ReplicaDetail]) -> Vec<String> {
    let failed: Vec<&ReplicaDetail> = replicas.iter().filter(|replica| replica.failure.is_some()).collect();
    let mut advice: Vec<String> = failed
        .iter()
        .map(|replica| {
            format!("node {}: {}", replica.node, replica.failure.as_deref().unwrap_or("the replica has stopped"))
        })
        .collect();
    match failed.as_slice() {
        [] => {}
        [only] if holders == 1 => advice.push(format!(
            "this is the tablet's only replica, so it cannot be rebuilt: put a copy of {}/tablets/{} from before the damage in its place while the node is stopped, or copy what can \
             still be read (a range of tokens at a time) to another table and drop this one. If the raft log of its disk is damaged, start the node once with \
             --accept-lost-log: the replica continues with the rest, and the last acknowledged writes may be missing",
            only.disk, tablet.0
        )),
        all if all.len() == holders && holders > 1 => advice.push(
            "all replicas have failed, so none is rebuilt and nothing was removed. If they fail alike after the same applied index, the entry after it cannot be applied by this \
             version: start the nodes with a version that can (their logs keep the entry). Otherwise restore the files of one replica from before the damage, under \
             tablets/ of its data directory while its node is stopped: it leads and the others are rebuilt from it"
                .to_owned(),
        ),
        _ => advice.push("the failed replica is rebuilt from the others as soon as one of them leads".to_owned()),
    }
    advice
}
