//! The catalog: keyspaces, tables, user types, roles, nodes, tablets and where their replicas are.
//!
//! It is the state machine of the Raft group `GroupId::CATALOG`. A [`Catalog`] is an immutable snapshot that clones cheaply; a
//! [`Command`] makes the next one out of it ([`Catalog::apply`]), together with an [`Outcome`] for whoever asked. What has to be done to get from
//! one snapshot to a later one (open and drop tablets, tell drivers) are [`Change`]s ([`Catalog::changes_since`]). [`CatalogEvaluator`]
//! ties it to the log.
//!
//! Always true:
//! - `apply` is a function of the snapshot and the command. Ids come from counters in the state and are never reused; uuids come in the
//!   command.
//! - `version` grows by one with every command that changes anything, and with no other.
//! - The tablets of a table cover the token ring without gap or overlap; every tablet of a table has a placement. A tablet that was split keeps its own,
//!   beside those of its children, until it is not needed any more.
//! - What is stored (one key per object, see `docs/formats/catalog.md`) and the snapshot say the same.
//!
//! Left out: which replicas had better be elsewhere (the balancer's), and CQL's validation rules, which the `query` crate
//! applies before it proposes a command. The rules here are those that another command, committed in between, could break.

mod apply;
mod bounds;
mod changes;
mod command;
mod deep;
mod evaluator;
mod merge;
mod operations;
mod persist;
mod placement;
mod replication;
mod roles;
mod split;
#[cfg(test)]
mod tests;

pub use bounds::Rules;
pub use command::{
    Change, Command, EncodedCommandError, FinishedTablet, NewTablet, NodeDescription, Outcome, Rejection,
    SchemaChangeKind, SchemaEvent, SchemaTarget, Setting,
};
pub use deep::is_too_deep;
pub use evaluator::{CatalogEvaluator, CatalogListener};
pub use merge::{CancelledMerge, Merge};
pub use persist::{LoadError, Put};
pub use placement::part_of_ring;
pub use replication::Replication;
pub use roles::{FIRST_SUPERUSER, Role, RoleCommand};
pub use split::{Origin, Split};

use diorite_base::{NodeId, TableId, TabletId};
use diorite_model::schema::{Keyspace, TableEntry};
use diorite_model::types::UserType;
use md5::{Digest, Md5};
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::net::IpAddr;
use std::sync::Arc;
use uuid::Uuid;

/// The first tablet id that is handed out; group ids below it are reserved for the catalog and its like.
pub const FIRST_TABLET_ID: u64 = 1_000;

/// The cluster's own record: who it is, and the counters that ids come from.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Identity {
    /// Tells clusters apart; `None` until the first command.
    pub cluster_id: Option<Uuid>,
    /// `cluster_name` as drivers see it.
    pub name: String,
    /// Replicas per tablet that every keyspace has at least, and that one has which does not say.
    pub replication_factor: u32,
    /// Grows by one with every change.
    pub version: u64,
    /// What operators have set for the whole cluster.
    #[serde(default)]
    pub settings: Settings,
    next_node: u64,
    next_table: u64,
    next_tablet: u64,
}

impl Identity {
    /// Whether the number of a tablet has been given out already. Those that have and are placed nowhere were dropped, for ever.
    pub fn has_numbered(&self, tablet: TabletId) -> bool {
        tablet.0 < self.next_tablet
    }

    /// The number that the next tablet gets.
    pub fn next_tablet(&self) -> TabletId {
        TabletId(self.next_tablet)
    }

    /// Whether the number of a node has been given out already. Those that have and are no members were removed, for ever.
    pub fn has_numbered_node(&self, node: NodeId) -> bool {
        node.0 < self.next_node
    }
}

/// What operators have set for the whole cluster, beside each node's own options.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct Settings {
    /// What copies of replicas may take, bytes per second and node.
    pub copy_rate_bytes: u64,
    /// Whether the balancer leaves everything where it is.
    pub balancing_is_paused: bool,
    /// How long a node may be silent before its replicas are made anew elsewhere, milliseconds.
    pub replace_after_ms: u64,
    /// Zones in which leaders are to be, where they have live replicas; empty: anywhere.
    pub preferred_leader_zones: Vec<String>,
    /// Tablets with more bytes in files are split; 0: none is unless somebody asks for it.
    pub split_bytes: u64,
    /// Tablets with more reads and writes a second, for as long as it takes to be sure, are split; 0: none is unless somebody asks for it.
    pub split_operations_per_second: u64,
    /// Neighbours with no more than this in files together are merged, where a table has more tablets than it was created with; 0: never.
    pub merge_bytes: u64,
}

impl Default for Settings {
    fn default() -> Self {
        Self {
            copy_rate_bytes: 200_000_000,
            balancing_is_paused: false,
            // Long enough for a machine to be restarted.
            replace_after_ms: 15 * 60 * 1_000,
            preferred_leader_zones: Vec::new(),
            // About a hundred replicas for some terabytes on a node: small enough to be moved in minutes.
            split_bytes: 64 << 30,
            // More than one of many tablets should take of a node's cores.
            split_operations_per_second: 100_000,
            // Copied in a second.
            merge_bytes: 64 << 20,
        }
    }
}

impl Default for Identity {
    fn default() -> Self {
        Self {
            cluster_id: None,
            name: String::new(),
            replication_factor: 1,
            version: 0,
            settings: Settings::default(),
            next_node: 1,
            next_table: 1,
            next_tablet: FIRST_TABLET_ID,
        }
    }
}

/// A member of the cluster.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Node {
    /// Assigned by the catalog.
    pub id: NodeId,
    /// What the node says about itself.
    #[serde(flatten)]
    pub description: NodeDescription,
    /// What it is there for.
    #[serde(default, skip_serializing_if = "NodeState::is_active")]
    pub state: NodeState,
    /// Whether others are to lead what it holds.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub leads_nothing: bool,
    /// The zone that an operator has put it in, whatever it says itself.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub assigned_zone: Option<String>,
}

impl Node {
    /// Its address.
    pub fn address(&self) -> IpAddr {
        self.description.address
    }

    /// The zone that counts.
    pub fn zone(&self) -> &str {
        self.assigned_zone.as_deref().unwrap_or(&self.description.zone)
    }
}

/// What a member of the cluster is there for.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum NodeState {
    /// It holds replicas.
    #[default]
    Active,
    /// It is to hold none any more.
    Draining,
    /// It has been silent for so long that its replicas are made anew elsewhere.
    Dead,
}

impl NodeState {
    /// Whether it is [`NodeState::Active`].
    pub fn is_active(&self) -> bool {
        *self == NodeState::Active
    }
}

/// Where a tablet's replicas are.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(from = "StoredPlacement")]
pub struct Placement {
    /// The table it belongs (or, once dropped, belonged) to.
    pub table: TableId,
    /// The nodes that are to hold a replica, the preferred leader first. The tablet's leader brings its group's members in line with it.
    pub replicas: Vec<NodeId>,
    /// Those of `replicas` that may not vote yet: they are being brought up to date.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub arriving: Vec<NodeId>,
    /// Nodes that hold a replica which goes as soon as the tablet's group consists of `replicas`.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub leaving: Vec<NodeId>,
    /// The members of its group before the first entry of its log; never changed. Whoever opens a replica anew starts from these, and
    /// learns from the log who came and went since.
    pub founders: Vec<NodeId>,
    /// It is being split into two, or was and is still needed.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub split: Option<Split>,
    /// The tablet that it was split off from, as long as that is still needed.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub origin: Option<Origin>,
    /// It is being merged with a neighbour.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub merge: Option<Merge>,
    /// The number of its last merge, greater than those of all merges before that; 0 if it had none, or one of an earlier version.
    #[serde(skip_serializing_if = "is_zero")]
    pub merge_number: u64,
    /// Of the tablet that was to go: the merge under way was cancelled, and what it has done is being undone.
    #[serde(skip_serializing_if = "is_false")]
    pub is_merge_cancelled: bool,
    /// Of the tablet that was to go: how its last merge was cancelled, if it was.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub cancelled_merge: Option<CancelledMerge>,
}

#[allow(clippy::trivially_copy_pass_by_ref, reason = "as serde calls it")]
fn is_zero(number: &u64) -> bool {
    *number == 0
}

#[allow(clippy::trivially_copy_pass_by_ref, reason = "as serde calls it")]
fn is_false(flag: &bool) -> bool {
    !*flag
}

impl Placement {
    /// A new tablet's, with its group's founders on `replicas`.
    pub fn founded(table: TableId, replicas: Vec<NodeId>) -> Self {
        let founders = replicas.clone();
        let (arriving, leaving) = (Vec::new(), Vec::new());
        Self {
            table,
            founders,
            replicas,
            arriving,
            leaving,
            split: None,
            origin: None,
            merge: None,
            merge_number: 0,
            is_merge_cancelled: false,
            cancelled_merge: None,
        }
    }

    /// Whether its replicas have to stay where they are, as it is being split or merged, or comes from a split that is not over.
    pub fn is_reshaping(&self) -> bool {
        self.split.is_some() || self.origin.is_some() || self.merge.is_some()
    }

    /// The nodes that hold a replica, or are to.
    pub fn holders(&self) -> impl Iterator<Item = NodeId> + Clone + '_ {
        self.replicas.iter().chain(&self.leaving).copied()
    }

    /// Whether the node holds a replica, or is to.
    pub fn is_held_by(&self, node: NodeId) -> bool {
        self.holders().any(|holder| holder == node)
    }

    /// Whether its group is yet to become what `replicas` says.
    pub fn is_moving(&self) -> bool {
        !self.arriving.is_empty() || !self.leaving.is_empty()
    }
}

/// A placement as it is stored; before there were founders, replicas did not change.
#[derive(Deserialize)]
struct StoredPlacement {
    table: TableId,
    replicas: Vec<NodeId>,
    #[serde(default)]
    arriving: Vec<NodeId>,
    #[serde(default)]
    leaving: Vec<NodeId>,
    founders: Option<Vec<NodeId>>,
    split: Option<Split>,
    origin: Option<Origin>,
    merge: Option<Merge>,
    #[serde(default)]
    merge_number: u64,
    #[serde(default)]
    is_merge_cancelled: bool,
    cancelled_merge: Option<CancelledMerge>,
}

impl From<StoredPlacement> for Placement {
    fn from(stored: StoredPlacement) -> Self {
        Self {
            founders: stored.founders.unwrap_or_else(|| stored.replicas.clone()),
            table: stored.table,
            replicas: stored.replicas,
            arriving: stored.arriving,
            leaving: stored.leaving,
            split: stored.split,
            origin: stored.origin,
            merge: stored.merge,
            merge_number: stored.merge_number,
            is_merge_cancelled: stored.is_merge_cancelled,
            cancelled_merge: stored.cancelled_merge,
        }
    }
}

/// The members of the catalog's own group.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CatalogMembers {
    /// Those that vote.
    pub voters: Vec<NodeId>,
    /// Those that only have a copy.
    pub learners: Vec<NodeId>,
}

/// The members of the catalog's group before the first entry of its log: the first node founds the cluster alone.
pub const CATALOG_FOUNDERS: [NodeId; 1] = [NodeId(1)];

type Map<K, V> = Arc<BTreeMap<K, Arc<V>>>;

/// An immutable snapshot of the catalog.
#[derive(Clone, Debug, PartialEq, Eq, Default)]
pub struct Catalog {
    identity: Identity,
    keyspaces: Map<String, Keyspace>,
    tables: Map<TableId, TableEntry>,
    types: Map<(String, String), UserType>,
    nodes: Map<NodeId, Node>,
    tablets: Map<TabletId, Placement>,
    dropped: Map<TabletId, Placement>,
    roles: Map<String, Role>,
    /// Keyspace → table name → id; follows from `tables`.
    names: Arc<BTreeMap<String, BTreeMap<String, TableId>>>,
    /// Exclusive or of the digests of all schema objects; follows from them.
    schema_digest: u128,
}

impl Catalog {
    /// Who the cluster is.
    pub fn identity(&self) -> &Identity {
        &self.identity
    }

    /// `cluster_name` as drivers see it.
    pub fn cluster_name(&self) -> &str {
        &self.identity.name
    }

    /// Grows with every change.
    pub fn version(&self) -> u64 {
        self.identity.version
    }

    /// A digest of keyspaces, tables and types: equal exactly when the schema is equal (up to collisions of 122 bits).
    pub fn schema_version(&self) -> Uuid {
        uuid::Builder::from_md5_bytes(self.schema_digest.to_be_bytes()).into_uuid()
    }

    /// The keyspace called `name`, in its stored form.
    pub fn keyspace(&self, name: &str) -> Option<&Arc<Keyspace>> {
        self.keyspaces.get(name)
    }

    /// All keyspaces by name.
    pub fn keyspaces(&self) -> impl Iterator<Item = &Arc<Keyspace>> {
        self.keyspaces.values()
    }

    /// The table `keyspace.name`, both in their stored form.
    pub fn table(&self, keyspace: &str, name: &str) -> Option<&Arc<TableEntry>> {
        self.tables.get(self.names.get(keyspace)?.get(name)?)
    }

    /// The table with that id.
    pub fn table_by_id(&self, id: TableId) -> Option<&Arc<TableEntry>> {
        self.tables.get(&id)
    }

    /// All tables by id.
    pub fn tables(&self) -> impl Iterator<Item = &Arc<TableEntry>> {
        self.tables.values()
    }

    /// The tables of one keyspace by name.
    pub fn tables_in(&self, keyspace: &str) -> impl Iterator<Item = &Arc<TableEntry>> {
        self.names.get(keyspace).into_iter().flat_map(|names| names.values().filter_map(|id| self.tables.get(id)))
    }

    /// The user type `keyspace.name`, both in their stored form.
    pub fn user_type(&self, keyspace: &str, name: &str) -> Option<&Arc<UserType>> {
        self.types.get(&(keyspace.to_owned(), name.to_owned()))
    }

    /// The user types of one keyspace by name.
    pub fn types_in(&self, keyspace: &str) -> impl Iterator<Item = &Arc<UserType>> {
        let first = (keyspace.to_owned(), String::new());
        self.types.range(first.clone()..).take_while(move |((of, _), _)| *of == first.0).map(|(_, found)| found)
    }

    /// The node with that id.
    pub fn node(&self, id: NodeId) -> Option<&Arc<Node>> {
        self.nodes.get(&id)
    }

    /// The node that registered with that host id.
    pub fn node_by_host_id(&self, host_id: Uuid) -> Option<&Arc<Node>> {
        self.nodes.values().find(|node| node.description.host_id == host_id)
    }

    /// The node of another host that has an address of `newcomer`: what other nodes dial, or what clients do.
    pub fn node_in_place_of(&self, newcomer: &NodeDescription) -> Option<&Arc<Node>> {
        let dialled = |node: &NodeDescription| (node.node_address(), (node.address, node.cql_port));
        let (by_nodes, by_clients) = dialled(newcomer);
        self.nodes.values().find(|node| {
            let known = dialled(&node.description);
            node.description.host_id != newcomer.host_id && (known.0 == by_nodes || known.1 == by_clients)
        })
    }

    /// All members by id.
    pub fn nodes(&self) -> impl Iterator<Item = &Arc<Node>> {
        self.nodes.values()
    }

    /// The members that the catalog's own group is to have: as many nodes vote as the cluster's replication factor says, active ones first, from
    /// different zones where there are enough, in the order of their ids; all others have a copy without a vote, so that every node can plan
    /// statements by itself.
    ///
    /// An even number is not rounded: rounding down would keep the schema in fewer copies than the data that is useless without it,
    /// and rounding up would ask for nodes that there may not be.
    pub fn catalog_members(&self) -> CatalogMembers {
        if self.nodes.is_empty() {
            return CatalogMembers { voters: CATALOG_FOUNDERS.to_vec(), learners: Vec::new() };
        }
        let wanted = self.nodes.len().min(self.identity.replication_factor.max(1) as usize);
        let mut left: Vec<&Arc<Node>> = self.nodes.values().collect();
        let mut zones: BTreeMap<&str, usize> = BTreeMap::new();
        let mut voters = Vec::with_capacity(wanted);
        while voters.len() < wanted {
            let best = (0..left.len()).min_by_key(|at| {
                let node = left[*at];
                (node.state as u8, zones.get(node.zone()).copied().unwrap_or(0), node.id)
            });
            let Some(best) = best else { break };
            let node = left.remove(best);
            *zones.entry(node.zone()).or_default() += 1;
            voters.push(node.id);
        }
        CatalogMembers { voters, learners: left.into_iter().map(|node| node.id).collect() }
    }

    /// Where the replicas of a live tablet are.
    pub fn placement(&self, tablet: TabletId) -> Option<&Arc<Placement>> {
        self.tablets.get(&tablet)
    }

    /// All live tablets.
    pub fn tablets(&self) -> impl Iterator<Item = (TabletId, &Arc<Placement>)> {
        self.tablets.iter().map(|(id, placement)| (*id, placement))
    }

    /// The live tablets of which `node` holds a replica, or is to.
    pub fn tablets_on(&self, node: NodeId) -> impl Iterator<Item = (TabletId, &Arc<Placement>)> {
        self.tablets().filter(move |(_, placement)| placement.is_held_by(node))
    }

    /// Dropped tablets of which some node has not yet confirmed that the files are gone (`Command::ForgetDropped`).
    pub fn dropped_tablets(&self) -> impl Iterator<Item = (TabletId, &Arc<Placement>)> {
        self.dropped.iter().map(|(id, placement)| (*id, placement))
    }

    /// Of which table a tablet is, or was before it was dropped or split.
    pub fn table_of(&self, tablet: TabletId) -> Option<&Arc<TableEntry>> {
        let placement = self.tablets.get(&tablet).or_else(|| self.dropped.get(&tablet))?;
        self.tables.get(&placement.table)
    }

    /// Adds (or, called again, takes away) an object's share of the schema digest.
    fn toggle_digest(&mut self, object: &impl Serialize) {
        let json = serde_json::to_vec(object).expect("schema objects have string keys and always serialise");
        self.schema_digest ^= u128::from_be_bytes(Md5::digest(&json).into());
    }
}
