//! The query layer's view of the cluster: tablets through the router, the catalog through its follower.

use crate::aside::Aside;
use crate::background::Background;
use crate::catalog::{CatalogFollower, as_mutation};
use crate::operate::Operations;
use crate::pause::pause;
use crate::route::{CatalogSource, Router};
use diorite_base::mutation::Mutation;
use diorite_base::random::{Random, SplitMix64};
use diorite_base::write::{KvError, WriteReply, WriteSink};
use diorite_base::{Clock, NodeId, TabletId};
use diorite_cluster::catalog::{Catalog, Command};
use diorite_query::kv::{Fetch, Fetched, Kv, NodeInfo, Now, Replicas};
use diorite_query::peers;
use diorite_query::trace::Trace;
use diorite_replica::Store;
use diorite_storage::PinnedValue;
use diorite_transact::version::DataVersion;
use std::sync::Arc;
use std::time::Duration;
use uuid::Uuid;

/// Tablets and catalog, as this node sees them.
pub(crate) struct NodeKv {
    pub(crate) store: Arc<Store>,
    pub(crate) router: Arc<Router>,
    pub(crate) catalog: Arc<CatalogFollower>,
    pub(crate) clock: Arc<dyn Clock>,
    /// The description of this node until the catalog has one.
    pub(crate) node: NodeInfo,
    /// Asks other nodes about themselves.
    pub(crate) asker: Arc<Operations>,
    /// Tablets of a new table per node.
    pub(crate) tablets_per_node: u32,
    /// Threads for work that takes more than a moment.
    pub(crate) aside: Arc<Aside>,
    /// What is left of requests that were answered.
    pub(crate) rest: Background,
}

impl CatalogSource for CatalogFollower {
    fn catalog(&self) -> Arc<Catalog> {
        self.served()
    }
}

impl Kv for NodeKv {
    type Pinned = PinnedValue;

    fn get_now(&self, tablet: TabletId, key: &[u8]) -> Result<Now<Option<PinnedValue>>, KvError> {
        self.router.get_now(tablet, key)
    }

    async fn get(
        &self,
        tablet: TabletId,
        key: Vec<u8>,
        deadline_ns: Option<u64>,
    ) -> Result<Option<Option<PinnedValue>>, KvError> {
        self.router.get_here(tablet, key, deadline_ns).await
    }

    fn fetch_now(&self, tablet: TabletId, request: &Fetch) -> Result<Now<Fetched>, KvError> {
        self.router.fetch_now(tablet, request)
    }

    async fn fetch(&self, tablet: TabletId, request: Fetch) -> Result<Fetched, KvError> {
        self.router.fetch(tablet, request).await
    }

    fn flags(&self, tablet: TabletId) -> Result<u64, KvError> {
        let tablets = self.store.tablets();
        Ok(tablets.get(&tablet).ok_or(KvError::NoSuchTablet(tablet))?.flags())
    }

    fn version(&self, tablet: TabletId) -> Option<DataVersion> {
        self.store.tablets().get(&tablet)?.version()
    }

    fn submit(&self, tablet: TabletId, mutation: Mutation, sink: &Arc<dyn WriteSink>, tag: u64) -> Result<(), KvError> {
        self.router.submit(tablet, mutation, sink, tag)
    }

    fn submits_requests(&self) -> bool {
        true
    }

    fn kick(&self) {
        self.router.kick();
    }

    fn kick_soon(&self) {
        self.store.kick();
        self.router.send_soon();
    }

    async fn write(
        &self,
        tablet: TabletId,
        mutation: Mutation,
        deadline_ns: Option<u64>,
    ) -> Result<WriteReply, KvError> {
        self.router.gather_write(tablet, mutation, deadline_ns)?.await
    }

    fn leader(&self, tablet: TabletId) -> Option<NodeId> {
        self.router.leader(tablet)
    }

    fn replicas(&self, tablet: TabletId) -> Replicas {
        self.router.replicas(tablet)
    }

    fn catalog(&self) -> Arc<Catalog> {
        self.catalog.served()
    }

    fn catalog_version(&self) -> u64 {
        self.catalog.served_version()
    }

    async fn catalog_after(&self, version: u64) {
        let has_ended = self.catalog.versions().wait_for(|served| *served > version).await.is_err();
        if has_ended {
            std::future::pending::<()>().await;
        }
    }

    async fn change_catalog(&self, command: &Command, deadline_ns: Option<u64>) -> Result<Vec<u8>, KvError> {
        let level = self.catalog.current().level();
        let mutation = self.aside.compute(|| as_mutation(command, level)).await??;
        self.catalog.change_by(mutation, deadline_ns).await
    }

    fn local_node(&self) -> NodeInfo {
        peers::node_info(&self.catalog.served(), self.node.node, self.tablets_per_node)
            .unwrap_or_else(|| self.node.clone())
    }

    fn peers(&self) -> Vec<NodeInfo> {
        peers::peers(&self.catalog.served(), self.node.node, self.tablets_per_node)
    }

    fn served_schema(&self, node: NodeId) -> Uuid {
        self.catalog.served_schema(node)
    }

    fn note_malformed(&self, table: &str, tablet: TabletId) {
        self.router.counters().malformed_rows.note(table, tablet, self.clock.monotonic_ns());
    }

    async fn trace(&self, node: NodeId, id: Uuid) -> Option<Trace> {
        let found = self.asker.trace_of(node, id).await.ok()?;
        // `null` is the answer of a node that does not keep it.
        let found: Option<Trace> = serde_json::from_value(found).ok()?;
        found.filter(|trace| (trace.node, trace.id) == (node, id))
    }

    async fn run_long<T: Send>(&self, work: impl FnOnce() -> T + Send) -> Result<T, KvError> {
        self.aside.compute(work).await
    }

    async fn finish_long<T: Send>(&self, work: impl FnOnce() -> T + Send) -> T {
        self.aside.finish(work).await
    }

    fn discard(&self, garbage: Box<dyn Send>) {
        drop(self.aside.begin(move || drop(garbage)));
    }

    fn spawn(&self, work: impl Future<Output = ()> + Send + 'static) {
        self.rest.spawn(work);
    }

    async fn pause(&self, duration_ns: u64) {
        // Pauses are rare and last for milliseconds: a generator for each costs nothing.
        let earlier_ns = SplitMix64::from_entropy().below(duration_ns / 2 + 1);
        pause(Duration::from_nanos(duration_ns - earlier_ns)).await;
    }

    async fn hash<T: Send + 'static>(&self, work: impl FnOnce() -> T + Send + 'static) -> Result<T, KvError> {
        self.aside.hash(work).await
    }

    fn now_us(&self) -> i64 {
        self.clock.wall_us()
    }

    fn monotonic_ns(&self) -> u64 {
        self.clock.monotonic_ns()
    }
}
