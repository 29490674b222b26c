//! What nodes have to do to get from one snapshot to a later one.
//!
//! Always true: the changes depend on the two snapshots alone, so a node may skip any number of versions and catch up
//! with all of them at once; objects that came and went in between leave no trace. Order: tablets and replicas to open,
//! definitions, nodes, settings, replicas and tablets to drop, notifications of drivers (drops first, a keyspace before
//! the objects in it and after them when it is dropped).

use super::snapshot::{Catalog, Map};
use super::tablet::{Placement, Split};
use diorite_base::{NodeId, TableId, TabletId};
use diorite_model::schema::{Table, TableEntry};
use std::collections::BTreeMap;
use std::sync::Arc;

/// The kind of a change of a schema object.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SchemaChangeKind {
    /// The object is new.
    Created,
    /// Its definition changed.
    Updated,
    /// The object no longer exists.
    Dropped,
}

/// The object that a schema event is about, within its keyspace.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum SchemaTarget {
    /// The keyspace itself.
    Keyspace,
    /// A table.
    Table(String),
    /// A user type.
    Type(String),
}

/// A change of the schema, as drivers are notified of it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SchemaEvent {
    /// The kind of the change.
    pub change: SchemaChangeKind,
    /// The keyspace.
    pub keyspace: String,
    /// The object that has changed.
    pub target: SchemaTarget,
}

/// A tablet to be opened.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NewTablet {
    /// The tablet's id.
    pub tablet: TabletId,
    /// The smallest token of the tablet.
    pub first_token: i64,
    /// The greatest token of the tablet.
    pub last_token: i64,
    /// The nodes that hold a replica, the preferred leader first.
    pub replicas: Vec<NodeId>,
}

/// What nodes have to do to get from one snapshot to a later one, in order.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Change {
    /// Create and open these tablets, where this node is among the replicas.
    OpenTablets {
        /// The table they belong to.
        table: Arc<Table>,
        /// The tablets.
        tablets: Vec<NewTablet>,
    },
    /// Close these tablets and remove their files, then propose `Command::ForgetDropped`.
    DropTablets {
        /// The table they belonged to.
        table: TableId,
        /// The tablets.
        tablets: Vec<TabletId>,
    },
    /// The wanted replicas of these tablets have changed. A node that is to hold a new replica opens an empty one,
    /// which starts from the tablet's initial voters (`Placement::initial_voters`), after the node's copy of the
    /// catalog is durable up to this version. The tablet's leader changes the members of its group to
    /// `Placement::replicas`.
    ReplicasMoved {
        /// The table they belong to.
        table: Arc<Table>,
        /// The tablets, and the nodes that are to hold a new replica.
        tablets: Vec<(TabletId, Vec<NodeId>)>,
    },
    /// The leader of this tablet is to split it ([`super::Placement::split`] says where).
    SplitTablet(TabletId),
    /// This tablet is not to be split after all: what was prepared of these children is removed.
    SplitCancelled {
        /// The tablet.
        tablet: TabletId,
        /// The children that it will not have.
        children: [TabletId; 2],
    },
    /// Close the replicas of these tablets on these nodes, and remove their files: the groups no longer need them.
    ReplicasGone {
        /// The tablets and nodes.
        tablets: Vec<(TabletId, NodeId)>,
    },
    /// A setting of the whole cluster has changed, or its level.
    SettingsChanged,
    /// The definition changed; the tablets stay.
    AlterTable(Arc<Table>),
    /// A node has joined, or its record has changed.
    NodeChanged(NodeId),
    /// A node is no member any more.
    NodeRemoved(NodeId),
    /// Notify drivers that have registered for schema events.
    Schema(SchemaEvent),
}

impl Catalog {
    /// What a node that serves `older` has to do before it serves this snapshot, and the notifications of drivers.
    pub fn changes_since(&self, older: &Catalog) -> Vec<Change> {
        let mut changes = Vec::new();
        if !Arc::ptr_eq(&self.tablets, &older.tablets) {
            for entry in self.tables.values() {
                self.tablets_to_open(older, entry, &mut changes);
            }
            self.parents_to_open(older, &mut changes);
        }
        for (_, entry) in differing(&older.tables, &self.tables) {
            if older.tables.get(&entry.table.id).is_some_and(|before| before.table != entry.table) {
                changes.push(Change::AlterTable(Arc::clone(&entry.table)));
            }
        }
        changes.extend(differing(&older.nodes, &self.nodes).map(|(id, _)| Change::NodeChanged(*id)));
        changes.extend(older.nodes.keys().filter(|id| !self.nodes.contains_key(id)).map(|id| Change::NodeRemoved(*id)));
        if self.identity.settings != older.identity.settings || self.level() != older.level() {
            changes.push(Change::SettingsChanged);
        }
        self.splits_to_forget(older, &mut changes);
        self.tablets_to_split(older, &mut changes);
        self.replicas_to_close(older, &mut changes);
        self.tablets_to_drop(older, &mut changes);
        self.events_since(older, &mut changes);
        changes
    }

    fn tablets_to_open(&self, older: &Catalog, entry: &TableEntry, changes: &mut Vec<Change>) {
        let (mut opened, mut moved) = (Vec::new(), Vec::new());
        for (at, range) in entry.tablets.iter().enumerate() {
            let Some(placement) = self.tablets.get(&range.tablet) else { continue };
            match older.tablets.get(&range.tablet) {
                Some(before) => {
                    // A move that was turned back in between leaves the same replicas and one more that goes away.
                    let holders: Vec<NodeId> = new_holders(before, placement).collect();
                    if before.replicas != placement.replicas || !holders.is_empty() {
                        moved.push((range.tablet, holders));
                    }
                }
                None => opened.push(NewTablet {
                    tablet: range.tablet,
                    first_token: range.first_token,
                    last_token: entry.tablets.get(at + 1).map_or(i64::MAX, |next| next.first_token - 1),
                    replicas: placement.holders().collect(),
                }),
            }
        }
        if !opened.is_empty() {
            changes.push(Change::OpenTablets { table: Arc::clone(&entry.table), tablets: opened });
        }
        if !moved.is_empty() {
            changes.push(Change::ReplicasMoved { table: Arc::clone(&entry.table), tablets: moved });
        }
    }

    /// Parent tablets that are new or were moved, and have been split since, so that their table no longer consists of
    /// them. Until all their replicas have made the child tablets, their group needs its quorum.
    fn parents_to_open(&self, older: &Catalog, changes: &mut Vec<Change>) {
        let is_parent = |placement: &Placement| placement.split.is_some_and(|split| split.is_served);
        let mut moved: BTreeMap<TableId, Vec<(TabletId, Vec<NodeId>)>> = BTreeMap::new();
        for (tablet, placement) in
            differing(&older.tablets, &self.tablets).filter(|(_, placement)| is_parent(placement))
        {
            let holders: Vec<NodeId> = match older.tablets.get(tablet) {
                Some(before) => new_holders(before, placement).collect(),
                None => placement.holders().collect(),
            };
            if !holders.is_empty() {
                moved.entry(placement.table).or_default().push((*tablet, holders));
            }
        }
        for (table, tablets) in moved {
            if let Some(entry) = self.tables.get(&table) {
                changes.push(Change::ReplicasMoved { table: Arc::clone(&entry.table), tablets });
            }
        }
    }

    fn tablets_to_split(&self, older: &Catalog, changes: &mut Vec<Change>) {
        let is_asked_for = |placement: &Placement| placement.split.as_ref().is_some_and(|split| !split.is_served);
        let asked = differing(&older.tablets, &self.tablets).filter(|(_, placement)| is_asked_for(placement));
        changes.extend(asked.map(|(tablet, _)| Change::SplitTablet(*tablet)));
    }

    fn splits_to_forget(&self, older: &Catalog, changes: &mut Vec<Change>) {
        for (tablet, placement) in differing(&older.tablets, &self.tablets) {
            let before = older.tablets.get(tablet).and_then(|before| before.split);
            let is_same = |split: &Split| placement.split.is_some_and(|now| now.children == split.children);
            if let Some(split) = before.filter(|split| !is_same(split)) {
                changes.push(Change::SplitCancelled { tablet: *tablet, children: split.children });
            }
        }
    }

    fn replicas_to_close(&self, older: &Catalog, changes: &mut Vec<Change>) {
        if Arc::ptr_eq(&self.tablets, &older.tablets) {
            return;
        }
        let kept =
            older.tablets.iter().filter_map(|(tablet, before)| Some((*tablet, before, self.tablets.get(tablet)?)));
        let gone: Vec<(TabletId, NodeId)> =
            kept.flat_map(|(tablet, before, now)| new_holders(now, before).map(move |node| (tablet, node))).collect();
        if !gone.is_empty() {
            changes.push(Change::ReplicasGone { tablets: gone });
        }
    }

    fn tablets_to_drop(&self, older: &Catalog, changes: &mut Vec<Change>) {
        if Arc::ptr_eq(&self.tablets, &older.tablets) {
            return;
        }
        let mut dropped: BTreeMap<TableId, Vec<TabletId>> = BTreeMap::new();
        for (tablet, placement) in older.tablets.iter().filter(|(tablet, _)| !self.tablets.contains_key(tablet)) {
            dropped.entry(placement.table).or_default().push(*tablet);
        }
        changes.extend(dropped.into_iter().map(|(table, tablets)| Change::DropTablets { table, tablets }));
    }

    fn events_since(&self, older: &Catalog, changes: &mut Vec<Change>) {
        use SchemaChangeKind::{Created, Dropped, Updated};
        let kept = |keyspace: &str| self.keyspaces.contains_key(keyspace);
        // Clients do not know the tables of indexes.
        let is_known = |entry: &TableEntry| entry.table.index_of.is_none();
        for (_, entry) in older.tables.iter().filter(|(id, _)| !self.tables.contains_key(id)) {
            if is_known(entry) && kept(&entry.table.keyspace) {
                changes.push(event(Dropped, &entry.table.keyspace, SchemaTarget::Table(entry.table.name.clone())));
            }
        }
        for (keyspace, name) in older.types.keys().filter(|id| !self.types.contains_key(id)) {
            if kept(keyspace) {
                changes.push(event(Dropped, keyspace, SchemaTarget::Type(name.clone())));
            }
        }
        for name in older.keyspaces.keys().filter(|name| !kept(name)) {
            changes.push(event(Dropped, name, SchemaTarget::Keyspace));
        }
        let kind = |was_there: bool| if was_there { Updated } else { Created };
        for (name, _) in differing(&older.keyspaces, &self.keyspaces) {
            changes.push(event(kind(older.keyspaces.contains_key(name)), name, SchemaTarget::Keyspace));
        }
        for (id @ (keyspace, name), _) in differing(&older.types, &self.types) {
            changes.push(event(kind(older.types.contains_key(id)), keyspace, SchemaTarget::Type(name.clone())));
        }
        for (id, entry) in differing(&older.tables, &self.tables) {
            let before = older.tables.get(id);
            // New tablets of the same definition (TRUNCATE) do not change the table.
            if is_known(entry) && before.is_none_or(|before| before.table != entry.table) {
                let target = SchemaTarget::Table(entry.table.name.clone());
                changes.push(event(kind(before.is_some()), &entry.table.keyspace, target));
            }
        }
    }
}

/// The objects that are new or have changed.
fn differing<'a, K: Ord, V: PartialEq>(
    older: &'a Map<K, V>,
    newer: &'a Map<K, V>,
) -> impl Iterator<Item = (&'a K, &'a Arc<V>)> {
    let newer = if Arc::ptr_eq(older, newer) { None } else { Some(newer.iter()) };
    newer
        .into_iter()
        .flatten()
        .filter(|(id, value)| !older.get(id).is_some_and(|before| Arc::ptr_eq(before, value) || before == *value))
}

fn new_holders<'a>(before: &'a Placement, after: &'a Placement) -> impl Iterator<Item = NodeId> + 'a {
    after.holders().filter(|node| !before.is_held_by(*node))
}

fn event(change: SchemaChangeKind, keyspace: &str, target: SchemaTarget) -> Change {
    Change::Schema(SchemaEvent { change, keyspace: keyspace.to_owned(), target })
}
