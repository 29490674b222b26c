//! An immutable snapshot of the catalog, and its queries.
//!
//! Always true: a snapshot clones cheaply; the index of table names and the digest of the schema are computed from its
//! objects. Left out: how the next snapshot is made ([`super::apply`]).

use super::cidr_group::{CidrGroup, CidrIndex};
use super::identity::Identity;
use super::join_token::{InvalidToken, JoinToken, JoinTokenId, ShownToken};
use super::node::{Node, NodeDescription};
use super::role::Role;
use super::tablet::Placement;
use diorite_base::{Level, NodeId, TableId, TabletId};
use diorite_model::schema::{Keyspace, TableEntry};
use diorite_model::types::UserType;
use md5::{Digest, Md5};
use serde::Serialize;
use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;
use std::sync::Arc;
use uuid::Uuid;

/// The members of the catalog's own group.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CatalogMembers {
    /// The members that vote.
    pub voters: Vec<NodeId>,
    /// The members that only hold a copy.
    pub learners: Vec<NodeId>,
}

/// The members of the catalog's group before the first entry of its log: the first node alone.
pub const CATALOG_INITIAL_VOTERS: [NodeId; 1] = [NodeId(1)];

pub(super) type Map<K, V> = Arc<BTreeMap<K, Arc<V>>>;

/// An immutable snapshot of the catalog.
#[derive(Clone, Debug, PartialEq, Eq, Default)]
pub struct Catalog {
    pub(super) identity: Identity,
    pub(super) keyspaces: Map<String, Keyspace>,
    pub(super) tables: Map<TableId, TableEntry>,
    pub(super) types: Map<(String, String), UserType>,
    pub(super) nodes: Map<NodeId, Node>,
    pub(super) tablets: Map<TabletId, Placement>,
    pub(super) dropped: Map<TabletId, Placement>,
    pub(super) roles: Map<String, Role>,
    pub(super) join_tokens: Map<JoinTokenId, JoinToken>,
    pub(super) cidr_groups: Map<String, CidrGroup>,
    /// Network → groups; computed from `cidr_groups`.
    pub(super) cidr_index: Arc<CidrIndex>,
    /// Keyspace → table name → id; computed from `tables`.
    pub(super) names: Arc<BTreeMap<String, BTreeMap<String, TableId>>>,
    /// Exclusive or of the digests of all schema objects; computed from them.
    schema_digest: u128,
}

/// All roles, as a resource.
const ALL_ROLES: &str = "roles";

/// A resource and all above it, nearest first. The name of a role may contain anything; those of keyspaces and tables contain no `/`.
pub fn resource_and_above(resource: &str) -> impl Iterator<Item = &str> {
    std::iter::successors(Some(resource), |resource| match resource.split_once('/') {
        Some((ALL_ROLES, _)) => Some(ALL_ROLES),
        _ => resource.rsplit_once('/').map(|(above, _)| above),
    })
}

impl Catalog {
    /// The identity of the cluster.
    pub fn identity(&self) -> &Identity {
        &self.identity
    }

    /// `cluster_name` as drivers see it.
    pub fn cluster_name(&self) -> &str {
        &self.identity.name
    }

    /// Whether clients have to log in, if that is decided.
    pub fn requires_login(&self) -> Option<bool> {
        self.identity.requires_login
    }

    /// The level of the cluster: nothing is written that only later levels have.
    pub fn level(&self) -> Level {
        self.identity.level
    }

    /// Grows with every change.
    pub fn version(&self) -> u64 {
        self.identity.version
    }

    /// A digest of keyspaces, tables and types. Two digests are equal exactly if the schemas are equal (up to
    /// collisions of 122 bits).
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

    /// The node of another host that has an address of `newcomer`, either the one that other nodes dial or the one for
    /// clients.
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

    /// The members that the catalog's own group is to have. As many nodes vote as the cluster's replication factor
    /// says: active nodes first, from different zones if there are enough, in the order of their ids. All other nodes
    /// hold a copy without a vote, so that every node can plan statements by itself. A node that is drained, or whose replicas
    /// were all rebuilt elsewhere, has no vote: it may be removed at any time, and its process ends with that.
    ///
    /// An even number is not rounded: rounding down would keep the schema in fewer copies than the data that is useless without it,
    /// and rounding up would ask for nodes that there may not be.
    ///
    /// `Command::RemoveNode` is decided by it, so a change of this rule needs a new format of that command.
    pub fn catalog_members(&self) -> CatalogMembers {
        if self.nodes.is_empty() {
            return CatalogMembers { voters: CATALOG_INITIAL_VOTERS.to_vec(), learners: Vec::new() };
        }
        let stays = |node: &&Arc<Node>| node.state.is_active() || self.tablets_on(node.id).next().is_some();
        let (mut left, mut without_vote): (Vec<&Arc<Node>>, Vec<&Arc<Node>>) = self.nodes.values().partition(stays);
        if left.is_empty() {
            std::mem::swap(&mut left, &mut without_vote);
        }
        let wanted = left.len().min(self.identity.replication_factor.max(1) as usize);
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
        let mut learners: Vec<NodeId> = left.into_iter().chain(without_vote).map(|node| node.id).collect();
        learners.sort_unstable();
        CatalogMembers { voters, learners }
    }

    /// The placement of a live tablet.
    pub fn placement(&self, tablet: TabletId) -> Option<&Arc<Placement>> {
        self.tablets.get(&tablet)
    }

    /// All live tablets.
    pub fn tablets(&self) -> impl Iterator<Item = (TabletId, &Arc<Placement>)> {
        self.tablets.iter().map(|(id, placement)| (*id, placement))
    }

    /// The live tablets of which `node` holds a replica, or is to hold one.
    pub fn tablets_on(&self, node: NodeId) -> impl Iterator<Item = (TabletId, &Arc<Placement>)> {
        self.tablets().filter(move |(_, placement)| placement.is_held_by(node))
    }

    /// Dropped tablets of which some node has not yet confirmed that the files are gone (`Command::ForgetDropped`).
    pub fn dropped_tablets(&self) -> impl Iterator<Item = (TabletId, &Arc<Placement>)> {
        self.dropped.iter().map(|(id, placement)| (*id, placement))
    }

    /// The table to which a tablet belongs, or belonged before it was dropped or split.
    pub fn table_of(&self, tablet: TabletId) -> Option<&Arc<TableEntry>> {
        let placement = self.tablets.get(&tablet).or_else(|| self.dropped.get(&tablet))?;
        self.tables.get(&placement.table)
    }

    /// Adds an object's share of the schema digest; a second call removes it.
    pub(super) fn toggle_digest(&mut self, object: &impl Serialize) {
        let json = serde_json::to_vec(object).expect("schema objects have string keys and always serialise");
        self.schema_digest ^= u128::from_be_bytes(Md5::digest(&json).into());
    }

    /// Whether both snapshots have the same roles and groups of networks, as far as can be said without a look at them:
    /// `false` may be wrong.
    pub fn shares_roles_with(&self, other: &Catalog) -> bool {
        Arc::ptr_eq(&self.roles, &other.roles) && Arc::ptr_eq(&self.cidr_groups, &other.cidr_groups)
    }

    /// Whether a role may connect from an address: one of its networks has it, or one of its groups.
    pub fn may_connect_from(&self, role: &Role, address: IpAddr) -> bool {
        role.cidrs.covers(address) || self.cidr_index.groups_of(address).iter().any(|group| role.cidrs.has(group))
    }

    /// The group of networks called `name`.
    pub fn cidr_group(&self, name: &str) -> Option<&Arc<CidrGroup>> {
        self.cidr_groups.get(name)
    }

    /// All groups of networks, with their names.
    pub fn cidr_groups(&self) -> impl Iterator<Item = (&str, &CidrGroup)> {
        self.cidr_groups.iter().map(|(name, group)| (name.as_str(), &**group))
    }

    /// The role called `name`.
    pub fn role(&self, name: &str) -> Option<&Arc<Role>> {
        self.roles.get(name)
    }

    /// All roles, by name.
    pub fn roles(&self) -> impl Iterator<Item = &Arc<Role>> {
        self.roles.values()
    }

    /// A role, and all roles of which it is a member, directly or not.
    pub fn roles_of<'c>(&'c self, name: &str) -> Vec<&'c Arc<Role>> {
        let mut found: Vec<&Arc<Role>> = self.roles.get(name).into_iter().collect();
        let mut known: BTreeSet<&str> = found.iter().map(|role| role.name.as_str()).collect();
        let mut next = 0;
        while let Some(role) = found.get(next).copied() {
            next += 1;
            for above in role.member_of.iter().filter_map(|name| self.roles.get(name)) {
                if known.insert(&above.name) {
                    found.push(above);
                }
            }
        }
        found
    }

    /// Whether a role has all permissions.
    pub fn is_superuser(&self, name: &str) -> bool {
        self.roles_of(name).iter().any(|role| role.is_superuser)
    }

    /// Whether a role has a permission on a resource.
    pub fn may(&self, name: &str, permission: &str, resource: &str) -> bool {
        self.roles_of(name).iter().any(|role| {
            role.is_superuser
                || resource_and_above(resource)
                    .any(|resource| role.permissions.get(resource).is_some_and(|held| held.contains(permission)))
        })
    }

    /// The join tokens, by id; expired ones may be among them.
    pub fn join_tokens(&self) -> impl Iterator<Item = (JoinTokenId, &JoinToken)> {
        self.join_tokens.iter().map(|(id, token)| (*id, &**token))
    }

    /// The token that a node has shown, if the node may join with it at this time.
    ///
    /// # Errors
    /// If there is no such token, if it has expired, or if the secret is another one.
    pub fn check_join_token(&self, shown: &ShownToken, now_ms: i64) -> Result<&JoinToken, InvalidToken> {
        let token = self.join_tokens.get(&shown.id).ok_or(InvalidToken::Unknown(shown.id))?;
        if !token.digest.is_same(&shown.digest) {
            return Err(InvalidToken::Wrong(shown.id));
        }
        if token.is_over(now_ms) {
            return Err(InvalidToken::Expired(shown.id));
        }
        Ok(token)
    }

    /// Whether a superuser still has the password of every new cluster, or no role exists yet.
    pub fn has_initial_password(&self) -> bool {
        self.roles.is_empty() || self.roles.values().any(|role| role.has_initial_password)
    }
}
