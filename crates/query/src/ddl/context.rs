//! The inputs and the result of planning a statement that defines the schema.
//!
//! Always true: ids of new objects follow from the statement, the node and the version of the catalog. Left out: the rules of each statement.

use crate::error::invalid;
use diorite_base::limits::MAX_TABLETS_PER_TABLE;
use diorite_cluster::catalog::{Catalog, Command};
use diorite_cql::protocol::event::SchemaChangeType;
use diorite_cql::protocol::{CqlError, Response, SchemaChange, SchemaTarget};
use md5::{Digest, Md5};
use uuid::Uuid;

/// The defaults of new tables.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Defaults {
    /// Tablets of a table per node.
    pub tablets_per_node: u32,
    /// The most replicas of tablets that a node can hold.
    pub most_tablets_per_node: u32,
}

/// The inputs of planning.
#[derive(Clone, Copy, Debug)]
pub struct Context<'a> {
    /// The catalog as this node knows it.
    pub catalog: &'a Catalog,
    /// The session's keyspace.
    pub keyspace: Option<&'a str>,
    /// Defaults of new tables.
    pub defaults: Defaults,
    /// Differs from statement to statement and from node to node; ids that clients see are derived from it.
    pub nonce: u128,
}

/// The actions for a statement.
#[derive(Debug)]
#[allow(clippy::large_enum_variant, reason = "one is made for each change of the schema")]
pub enum Plan {
    /// Nothing but to answer.
    Answer(Response),
    /// Propose the command; once it is applied, answer with the change (`None`: with nothing).
    Propose {
        /// For the catalog.
        command: Command,
        /// For the client.
        change: Option<SchemaChange>,
        /// Warnings for the client, if the change is applied.
        warnings: Vec<String>,
    },
}

impl Plan {
    pub(super) fn propose(command: Command, change: SchemaChangeType, target: SchemaTarget) -> Self {
        Plan::Propose { command, change: Some(SchemaChange { change, target }), warnings: Vec::new() }
    }

    pub(super) fn nothing() -> Self {
        Plan::Answer(Response::Void)
    }
}

impl Context<'_> {
    /// How many tablets a new table gets.
    pub(super) fn default_tablets(&self) -> u32 {
        let nodes = u32::try_from(self.catalog.nodes().count()).unwrap_or(u32::MAX);
        self.defaults.tablets_per_node.saturating_mul(nodes.max(1)).clamp(1, MAX_TABLETS_PER_TABLE)
    }

    /// Checks that the nodes can hold the replicas of a new table. All nodes are taken to be like this one. A tenth of
    /// what they can hold is for tablets that are split.
    pub(super) fn check_room(&self, keyspace: &str, tablets: u32) -> Result<(), CqlError> {
        let nodes = self.catalog.nodes().count().max(1) as u64;
        let each = tablets as u64 * u64::from(self.catalog.replication_of(keyspace).total()).min(nodes);
        let held: u64 = self.catalog.tablets().map(|(_, placement)| placement.replicas.len() as u64).sum();
        let most = u64::from(self.defaults.most_tablets_per_node);
        if held + each <= nodes * most * 9 / 10 {
            return Ok(());
        }
        Err(invalid(format!(
            "{tablets} tablets are too many: the nodes hold {held} replicas of tablets, and the limit of open files \
             allows {most} on a node; raise that limit and restart the nodes, or create fewer tablets"
        )))
    }

    /// An id for a new object.
    pub(super) fn new_uuid(&self, keyspace: &str, name: &str) -> Uuid {
        let mut digest = Md5::new();
        digest.update(self.nonce.to_be_bytes());
        digest.update(self.catalog.version().to_be_bytes());
        digest.update(keyspace);
        digest.update([0]);
        digest.update(name);
        uuid::Builder::from_md5_bytes(digest.finalize().into()).into_uuid()
    }
}
