//! Follows the catalog: returns, one at a time, the actions that take a node from the snapshot that it serves to the
//! newest one.
//!
//! ```text
//! newest snapshot ─▶ open, set members, prepare splits … ─▶ publish ─▶ close what is dropped or elsewhere ─▶ tell clients
//! ```
//!
//! Always true: a snapshot is published only after the tablets that it places on this node have been opened, so that no
//! statement finds a table without them. Dropped and moved tablets are closed only after that, so that a request which
//! finds a closed tablet finds other replicas in the catalog. Published versions grow. A replica that a placement
//! brings here is opened only after the node's copy of the catalog is durable. The number of versions between two
//! snapshots does not matter. A replica is not closed while the newest snapshot places it here (again): its group may
//! count on what it has acknowledged.
//! Left out: how an action is carried out (by the node's store, or the simulation's).

mod openings;
mod schema;

pub use openings::{ChildOpening, Leftovers, Opening, child_opening, opening, openings_at_start};
pub use schema::SchemaVersions;

use crate::planted::Planted;
use crate::replicas::{CATALOG_TABLET, Members, Replicas};
use diorite_base::{NodeId, TabletId};
use diorite_cluster::catalog::{Catalog, Change, Command, SchemaEvent, Split};
use diorite_model::schema::Table;
use std::collections::{BTreeSet, VecDeque};
use std::net::SocketAddr;
use std::sync::Arc;

/// The most dropped tablets that are reported to the catalog at a time.
const FORGET_AT_ONCE: usize = 1_000;

/// A notice to drivers.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ClientNotice {
    /// A node is new, or has another address.
    Joined(SocketAddr),
    /// A node is no member any more.
    Removed(SocketAddr),
    /// The schema has changed.
    Schema(SchemaEvent),
}

/// An action of the node.
#[derive(Clone, Debug, PartialEq)]
pub enum Action {
    /// Make the node's copy of the catalog durable, and call [`Follower::persisted`]. Otherwise a crash could revert
    /// the copy to a version in which a replica that has been opened since was not placed here, and the next start
    /// would remove it as a left-over, together with what its group relies on.
    PersistCatalog,
    /// Open these replicas, and continue when they serve.
    Open(Vec<Opening>),
    /// Give a group that is led here these members.
    SetMembers(TabletId, Members),
    /// Prepare the child tablets of a tablet, as far as that is possible before it is split.
    PrepareSplit(TabletId, Split),
    /// Remove the prepared data of these child tablets: the split was cancelled.
    CancelSplit(TabletId, [TabletId; 2]),
    /// Close these replicas and remove their data.
    Close(Vec<TabletId>),
    /// Apply the options of the tablet's table: retention of tombstones, and file options.
    AlterTable(TabletId, Arc<Table>),
    /// Apply the cluster-wide settings of this snapshot.
    ApplySettings(Arc<Catalog>),
    /// Apply the list of members of this snapshot.
    MeetNodes(Arc<Catalog>),
    /// Serve this snapshot from now on, and announce its version to the other nodes.
    Publish(Arc<Catalog>),
    /// Notify the registered clients.
    Notify(ClientNotice),
    /// Report to the catalog which dropped tablets are removed here ([`forgettable`]), if there are any.
    ForgetDropped,
    /// Stop: this node is no member any more.
    Stop,
}

/// The stage of a node between two snapshots.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Stage {
    /// It serves the newest snapshot that it has seen.
    AtRest,
    /// Actions before the next snapshot is published.
    Before,
    /// Actions after that.
    After,
}

/// See the top of this module.
#[derive(Debug)]
pub struct Follower {
    node: NodeId,
    planted: Planted,
    served: Arc<Catalog>,
    /// The snapshot that is served before `target` is.
    older: Arc<Catalog>,
    target: Arc<Catalog>,
    stage: Stage,
    before: VecDeque<Change>,
    after: VecDeque<Change>,
    /// The remaining actions of the change under way.
    actions: VecDeque<Action>,
    notices: Vec<ClientNotice>,
    undone: Vec<Action>,
    /// Tablets that the target does not place here, and that may be open: a newer snapshot placed them here again, or
    /// their parent tablet has made them.
    kept: BTreeSet<TabletId>,
}

impl Follower {
    /// A node that serves no snapshot yet.
    pub fn new(node: NodeId, planted: Planted) -> Self {
        let nothing = Arc::new(Catalog::default());
        Self {
            node,
            planted: planted.allowed(),
            served: Arc::clone(&nothing),
            older: Arc::clone(&nothing),
            target: nothing,
            stage: Stage::AtRest,
            before: VecDeque::new(),
            after: VecDeque::new(),
            actions: VecDeque::new(),
            notices: Vec::new(),
            undone: Vec::new(),
            kept: BTreeSet::new(),
        }
    }

    /// The node has opened the tablets that its copy of the catalog places on it ([`openings_at_start`]), and serves
    /// the copy from now on.
    pub fn start(&mut self, catalog: &Arc<Catalog>) -> Vec<Action> {
        self.served = Arc::clone(catalog);
        let mut actions = self.meet_nodes(catalog);
        actions.push(Action::ApplySettings(Arc::clone(catalog)));
        actions.push(Action::Publish(Arc::clone(catalog)));
        actions.push(Action::ForgetDropped);
        actions
    }

    /// The newest snapshot that the node serves.
    pub fn served(&self) -> &Arc<Catalog> {
        &self.served
    }

    /// Whether no change is under way.
    pub fn is_at_rest(&self) -> bool {
        self.stage == Stage::AtRest && self.actions.is_empty()
    }

    /// The next action towards `newest`, the newest known snapshot; `None`: the node serves it. The last action has
    /// been carried out.
    pub fn next(&mut self, newest: &Arc<Catalog>, replicas: &dyn Replicas) -> Option<Action> {
        loop {
            if let Some(action) = self.actions.pop_front() {
                return Some(action);
            }
            match self.stage {
                Stage::AtRest if newest.version() > self.served.version() => self.set_out(newest),
                Stage::AtRest => return None,
                Stage::Before => match self.before.pop_front() {
                    Some(change) => self.expand(change, newest, replicas),
                    None => return Some(self.publish()),
                },
                Stage::After => match self.after.pop_front() {
                    Some(change) => self.expand(change, newest, replicas),
                    None => self.arrive(newest, replicas),
                },
            }
        }
    }

    /// Reports whether the copy of the catalog was made durable; if not, actions that depend on it are not returned.
    pub fn persisted(&mut self, is_durable: bool) {
        if !is_durable && matches!(self.actions.front(), Some(Action::Open(_))) {
            self.actions.pop_front();
        }
    }

    fn set_out(&mut self, newest: &Arc<Catalog>) {
        let closes = |change: &Change| matches!(change, Change::DropTablets { .. } | Change::ReplicasGone { .. });
        let changes = newest.changes_since(&self.served);
        let nodes_change =
            changes.iter().any(|change| matches!(change, Change::NodeChanged(_) | Change::NodeRemoved(_)));
        if !nodes_change && Members::of_catalog(newest) != Members::of_catalog(&self.served) {
            // The last replica has left a node that is being drained: that loses its vote.
            let met = self.meet_nodes(newest);
            self.actions.extend(met);
        }
        let (after, before): (VecDeque<_>, VecDeque<_>) = changes.into_iter().partition(closes);
        (self.before, self.after) = (before, after);
        self.older = Arc::clone(&self.served);
        self.target = Arc::clone(newest);
        self.stage = Stage::Before;
    }

    fn publish(&mut self) -> Action {
        assert!(self.target.version() > self.served.version(), "published versions grow");
        self.served = Arc::clone(&self.target);
        self.stage = Stage::After;
        Action::Publish(Arc::clone(&self.target))
    }

    fn arrive(&mut self, newest: &Arc<Catalog>, replicas: &dyn Replicas) {
        self.stage = Stage::AtRest;
        let is_left = |tablet: &TabletId| !self.is_here(&self.target, *tablet) && replicas.is_open(*tablet);
        let left: Vec<TabletId> = self.kept.iter().copied().filter(is_left).collect();
        self.kept.clear();
        self.close_gone(left, newest);
        // Includes tablets that came and went between two snapshots; a parent tablet here may have made such a child
        // tablet.
        let dropped = self.target.dropped_tablets().filter(|(_, placement)| placement.is_held_by(self.node));
        let left = dropped.map(|(tablet, _)| tablet).filter(|tablet| replicas.is_open(*tablet)).collect();
        self.close(left);
        self.actions.push_back(Action::ForgetDropped);
        self.actions.extend(self.notices.drain(..).map(Action::Notify));
        if self.planted.place_twice {
            self.actions.extend(self.undone.drain(..));
        }
    }

    /// Lists the actions of this node for a change.
    fn expand(&mut self, change: Change, newest: &Arc<Catalog>, replicas: &dyn Replicas) {
        let target = Arc::clone(&self.target);
        match change {
            Change::OpenTablets { tablets, .. } => {
                // A parent tablet here may make a child tablet that has moved away meanwhile.
                let elsewhere = tablets.iter().map(|new| new.tablet).filter(|tablet| !self.is_here(&target, *tablet));
                let elsewhere: Vec<TabletId> = elsewhere.collect();
                self.kept.extend(elsewhere);
                let made_here =
                    tablets.iter().map(|new| new.tablet).filter(|tablet| !self.is_made_by_parent(*tablet, replicas));
                let ours: Vec<Opening> = made_here.filter_map(|tablet| opening(&target, self.node, tablet)).collect();
                self.open(ours);
            }
            Change::ReplicasMoved { tablets, .. } => {
                let arriving = tablets.iter().filter(|(_, nodes)| nodes.contains(&self.node));
                let ours: Vec<Opening> =
                    arriving.filter_map(|(tablet, _)| opening(&target, self.node, *tablet)).collect();
                if !ours.is_empty() {
                    self.actions.push_back(Action::PersistCatalog);
                    self.open(ours);
                }
                let placed = tablets.iter().filter_map(|(tablet, _)| Some((*tablet, target.placement(*tablet)?)));
                self.actions
                    .extend(placed.map(|(tablet, placement)| Action::SetMembers(tablet, Members::of(placement))));
            }
            Change::SplitTablet(tablet) => {
                let split = target.placement(tablet).and_then(|placement| placement.split);
                if let Some(split) = split.filter(|_| replicas.is_open(tablet)) {
                    self.actions.extend([Action::PersistCatalog, Action::PrepareSplit(tablet, split)]);
                }
            }
            Change::SplitCancelled { tablet, children } => {
                self.actions.push_back(Action::CancelSplit(tablet, children));
            }
            Change::ReplicasGone { tablets } => {
                let ours: Vec<TabletId> =
                    tablets.into_iter().filter(|(_, node)| *node == self.node).map(|(tablet, _)| tablet).collect();
                let older = Arc::clone(&self.older);
                let opened = ours.iter().filter_map(|tablet| opening(&older, self.node, *tablet)).collect();
                self.undone.push(Action::Open(opened));
                self.close_gone(ours, newest);
            }
            Change::DropTablets { tablets, .. } => self.drop_tablets(tablets),
            Change::AlterTable(table) => {
                let entry = target.table_by_id(table.id);
                let ours = entry.iter().flat_map(|entry| &entry.tablets).filter(|range| replicas.is_open(range.tablet));
                self.actions.extend(ours.map(|range| Action::AlterTable(range.tablet, Arc::clone(&table))));
            }
            Change::SettingsChanged => self.actions.push_back(Action::ApplySettings(target)),
            Change::NodeChanged(node) => {
                let met = self.meet_nodes(&target);
                self.actions.extend(met);
                let (address, before) = (cql_address(&target, node), cql_address(&self.older, node));
                let is_new = node != self.node && address != before;
                self.notices.extend(address.filter(|_| is_new).map(ClientNotice::Joined));
            }
            Change::NodeRemoved(node) => self.part_from(node),
            Change::Schema(event) => self.notices.push(ClientNotice::Schema(event)),
        }
    }

    /// Whether a child tablet is, or will be, opened by the replica of its parent tablet on this node. The follower
    /// does not wait for it: until it is open, requests for it go to other nodes, or are parked.
    fn is_made_by_parent(&self, child: TabletId, replicas: &dyn Replicas) -> bool {
        let arrives = |parent| self.is_here(&self.target, parent) && !self.is_here(&self.older, parent);
        let origin = self.target.placement(child).and_then(|placement| placement.origin);
        origin.is_some_and(|origin| replicas.is_open(origin.parent) || arrives(origin.parent))
    }

    fn open(&mut self, openings: Vec<Opening>) {
        if !openings.is_empty() {
            self.actions.push_back(Action::Open(openings));
        }
    }

    fn is_here(&self, catalog: &Catalog, tablet: TabletId) -> bool {
        catalog.placement(tablet).is_some_and(|placement| placement.is_held_by(self.node))
    }

    /// Closes replicas that were moved away, except for those that have come back meanwhile.
    fn close_gone(&mut self, tablets: Vec<TabletId>, newest: &Catalog) {
        let (kept, gone): (Vec<TabletId>, Vec<TabletId>) =
            tablets.into_iter().partition(|tablet| self.is_here(newest, *tablet));
        self.kept.extend(kept);
        self.close(gone);
    }

    fn close(&mut self, tablets: Vec<TabletId>) {
        if !tablets.is_empty() {
            self.actions.push_back(Action::Close(tablets));
        }
    }

    fn drop_tablets(&mut self, tablets: Vec<TabletId>) {
        // A parent tablet that lagged until it was no longer needed has not made its child tablets: they begin empty.
        let split = tablets.iter().filter_map(|tablet| self.older.placement(*tablet)?.split);
        let children: Vec<TabletId> = split.flat_map(|split| split.children).collect();
        for child in children {
            let empty = opening(&self.target, self.node, child);
            self.open(empty.into_iter().collect());
        }
        self.close(tablets);
    }

    fn part_from(&mut self, node: NodeId) {
        if !self.planted.keep_retired_voter {
            let met = self.meet_nodes(&self.target);
            self.actions.extend(met);
        }
        self.notices.extend(cql_address(&self.older, node).map(ClientNotice::Removed));
        if node == self.node {
            self.actions.push_back(Action::Stop);
        }
    }

    /// Applies the list of nodes, and the members that the catalog's own group is to have. While the catalog has no
    /// nodes, this node is not a member yet, and uses those that the node which let it join has named.
    fn meet_nodes(&self, catalog: &Arc<Catalog>) -> Vec<Action> {
        let Some(members) = Members::of_catalog(catalog) else { return Vec::new() };
        if self.planted.keep_retired_voter && catalog.nodes().any(|node| !node.state.is_active()) {
            return vec![Action::MeetNodes(Arc::clone(catalog))];
        }
        vec![Action::MeetNodes(Arc::clone(catalog)), Action::SetMembers(CATALOG_TABLET, members)]
    }
}

/// The newer of the node's copy of the catalog and the snapshot that it serves. While the copy is rebuilt it is older
/// than what is served.
pub fn newest<'a>(copy: &'a Arc<Catalog>, served: &'a Arc<Catalog>) -> &'a Arc<Catalog> {
    if copy.version() < served.version() { served } else { copy }
}

/// The command that reports dropped tablets of which the node has no replica (any more).
pub fn forgettable(served: &Catalog, node: NodeId, replicas: &dyn Replicas) -> Option<Command> {
    let ours = served.dropped_tablets().filter(|(_, placement)| placement.is_held_by(node));
    let gone = ours.map(|(tablet, _)| tablet).filter(|tablet| !replicas.is_open(*tablet));
    let tablets: Vec<TabletId> = gone.take(FORGET_AT_ONCE).collect();
    (!tablets.is_empty()).then_some(Command::ForgetDropped { node, tablets })
}

/// The address at which clients reach a node.
pub fn cql_address(catalog: &Catalog, node: NodeId) -> Option<SocketAddr> {
    catalog.node(node).map(|node| SocketAddr::new(node.address(), node.description.cql_port))
}

#[cfg(test)]
mod tests;
