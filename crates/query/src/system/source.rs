//! The source of the rows of system tables.
//!
//! Always true: all rows of one source are of one catalog snapshot.

use crate::kv::{Kv, NodeInfo};
use crate::trace::Trace;
use diorite_cluster::catalog::Catalog;
use std::sync::Arc;
use uuid::Uuid;

/// `release_version`: cqlsh leaves DESCRIBE to servers from 4.0 on; drivers read `system_virtual_schema` too.
pub const RELEASE_VERSION: &str = "4.1.0";

/// `cql_version`
pub const CQL_VERSION: &str = "3.4.6";

/// The newest protocol version.
pub const NATIVE_PROTOCOL_VERSION: &str = "5";

/// How tokens are made; drivers compute them by this name.
pub const PARTITIONER: &str = "org.apache.cassandra.dht.Murmur3Partitioner";

/// One row: a cell for each column in the order of the definition, in wire form.
pub type Row = Vec<Option<Vec<u8>>>;

/// The source of rows.
#[derive(Debug)]
pub struct Source {
    /// The catalog.
    pub catalog: Arc<Catalog>,
    /// This node.
    pub local: NodeInfo,
    /// The other members.
    pub peers: Vec<NodeInfo>,
    /// The schema version of each of them, in the same order.
    pub peer_schemas: Vec<Uuid>,
    /// The traced requests that `system_traces` has.
    pub traces: Vec<Arc<Trace>>,
}

impl Source {
    /// The current state, without traces.
    pub fn new<K: Kv>(kv: &K) -> Self {
        let peers = kv.peers();
        let peer_schemas = peers.iter().map(|peer| kv.served_schema(peer.node)).collect();
        Self { catalog: kv.catalog(), local: kv.local_node(), peers, peer_schemas, traces: Vec::new() }
    }
}
