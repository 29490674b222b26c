//! The query layer's view of this node: tablets through the store, the catalog through its follower.

use crate::awaited::write;
use crate::catalog::CatalogFollower;
use diorite_base::mutation::Mutation;
use diorite_base::write::{KvError, WriteReply, WriteSink};
use diorite_base::{Clock, NodeId, TabletId};
use diorite_cluster::catalog::Catalog;
use diorite_query::kv::{Kv, NodeInfo, Now, ScanChunk, ScanRequest};
use diorite_query::peers;
use diorite_replica::{Store, TabletHandle};
use diorite_storage::{PinnedValue, ScanRange};
use std::sync::Arc;
use uuid::Uuid;

/// Scans up to this size are first tried in memory on the connection's own task.
const INLINE_SCAN_BYTES: usize = 64 << 10;

/// Tablets and catalog of this node.
pub(crate) struct NodeKv {
    pub(crate) store: Arc<Store>,
    pub(crate) catalog: Arc<CatalogFollower>,
    pub(crate) clock: Arc<dyn Clock>,
    /// What is told of this node before the catalog knows it.
    pub(crate) node: NodeInfo,
    /// Tablets of a new table per node.
    pub(crate) shards_per_node: u32,
}

impl NodeKv {
    fn handle(&self, tablet: TabletId) -> Result<Arc<TabletHandle>, KvError> {
        self.store.handle(tablet).ok_or(KvError::NoSuchTablet(tablet))
    }
}

/// Runs a read that may wait for the disk where waiting is allowed.
async fn off_task<T: Send + 'static>(read: impl FnOnce() -> Result<T, KvError> + Send + 'static) -> Result<T, KvError> {
    match tokio::task::spawn_blocking(read).await {
        Ok(outcome) => outcome,
        Err(_) => Err(KvError::Storage("a read was abandoned: the node is shutting down or the read panicked".into())),
    }
}

fn gather(handle: &TabletHandle, request: &ScanRequest, cached: bool) -> Result<Option<ScanChunk>, KvError> {
    let mut chunk = ScanChunk::default();
    let range = ScanRange {
        start: &request.start,
        end: &request.end,
        reverse: request.reverse,
        expected_entries: request.max_entries,
    };
    let mut visit = |key: &[u8], value: &[u8]| {
        chunk.push(key, value);
        chunk.ends.len() < request.max_entries && chunk.buffer.len() < request.max_bytes
    };
    let exhausted = if cached {
        match handle.scan_cached(&range, &mut visit)? {
            Some(exhausted) => exhausted,
            None => return Ok(None),
        }
    } else {
        handle.scan(&range, &mut visit)?
    };
    chunk.exhausted = exhausted;
    Ok(Some(chunk))
}

impl Kv for NodeKv {
    type Pinned = PinnedValue;

    fn get_now(&self, tablet: TabletId, key: &[u8]) -> Result<Now<Option<PinnedValue>>, KvError> {
        let tablets = self.store.tablets();
        let handle = tablets.get(&tablet).ok_or(KvError::NoSuchTablet(tablet))?;
        Ok(match handle.get_cached(key)? {
            Some(found) => Now::Ready(found),
            None => Now::WouldBlock,
        })
    }

    async fn get(&self, tablet: TabletId, key: &[u8]) -> Result<Option<Vec<u8>>, KvError> {
        let (handle, key) = (self.handle(tablet)?, key.to_vec());
        off_task(move || Ok(handle.get(&key)?.map(|value| value.to_vec()))).await
    }

    async fn scan(&self, tablet: TabletId, request: ScanRequest) -> Result<ScanChunk, KvError> {
        let handle = self.handle(tablet)?;
        if request.max_bytes <= INLINE_SCAN_BYTES
            && let Some(chunk) = gather(&handle, &request, true)?
        {
            return Ok(chunk);
        }
        off_task(move || Ok(gather(&handle, &request, false)?.unwrap_or_default())).await
    }

    fn flags(&self, tablet: TabletId) -> Result<u64, KvError> {
        let tablets = self.store.tablets();
        Ok(tablets.get(&tablet).ok_or(KvError::NoSuchTablet(tablet))?.flags())
    }

    fn submit(
        &self,
        tablet: TabletId,
        mutation: Mutation,
        sink: &Arc<dyn WriteSink>,
        token: u64,
    ) -> Result<(), KvError> {
        self.store.submit(tablet, mutation, sink, token)
    }

    async fn write(&self, tablet: TabletId, mutation: Mutation) -> Result<WriteReply, KvError> {
        write(&self.store, tablet, mutation).await
    }

    fn catalog(&self) -> Arc<Catalog> {
        self.catalog.served()
    }

    fn catalog_version(&self) -> u64 {
        self.catalog.served_version()
    }

    async fn change_catalog(&self, command: Vec<u8>) -> Result<Vec<u8>, KvError> {
        self.catalog.change(command).await
    }

    fn local_node(&self) -> NodeInfo {
        peers::node_info(&self.catalog.served(), self.node.node, self.shards_per_node)
            .unwrap_or_else(|| self.node.clone())
    }

    fn peers(&self) -> Vec<NodeInfo> {
        peers::peers(&self.catalog.served(), self.node.node, self.shards_per_node)
    }

    fn served_schema(&self, node: NodeId) -> Uuid {
        self.catalog.served_schema(node)
    }

    fn now_us(&self) -> i64 {
        self.clock.wall_us()
    }
}
