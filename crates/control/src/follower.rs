//! Follows the catalog: what a node has to do to get from the snapshot that it serves to the newest one, one action at a time.
//!
//! ```text
//! newest snapshot ─▶ open, set members, prepare splits … ─▶ publish ─▶ close what is dropped or elsewhere ─▶ tell clients
//! ```
//!
//! Always true: a snapshot is published only after the tablets that it places on this node have been opened, so that no statement finds a
//! table without them; what is dropped or elsewhere is closed only after that, so that a request that finds a closed tablet finds others in
//! the catalog; published versions grow; a replica that a placement brings here is opened only after the node's copy of the catalog is
//! durable. How many versions lie between two snapshots does not matter.
//! Left out: how an action is carried out (the node's store, or the simulation's).

mod openings;
mod schema;

pub use openings::{ChildOpening, Leftovers, Opening, child_opening, opening, openings_at_start};
pub use schema::SchemaVersions;

use crate::planted::Planted;
use crate::replicas::{CATALOG_TABLET, Members, Replicas};
use diorite_base::{NodeId, TabletId};
use diorite_cluster::catalog::{Catalog, Change, Command, SchemaEvent, Split};
use diorite_model::schema::Table;
use std::collections::VecDeque;
use std::net::SocketAddr;
use std::sync::Arc;

/// Dropped tablets that the catalog is told of at a time.
const FORGET_AT_ONCE: usize = 1_000;

/// What drivers are told.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ClientNotice {
    /// A node is new, or has another address.
    Joined(SocketAddr),
    /// A node is no member any more.
    Removed(SocketAddr),
    /// The schema has changed.
    Schema(SchemaEvent),
}

/// Something that a node is to do.
#[derive(Clone, Debug, PartialEq)]
pub enum Action {
    /// Make the node's copy of the catalog durable as it is, and tell [`Follower::persisted`]. Without that a crash could take it back to a time when a
    /// replica that has been opened since was not to be here, and the next start would remove it as a left-over, with all that its group relies on.
    PersistCatalog,
    /// Open these replicas, and go on when they serve.
    Open(Vec<Opening>),
    /// Bring a group that is led here in line with these members.
    SetMembers(TabletId, Members),
    /// Make what will be the child tablets of a tablet, as far as that can be done before it is split.
    PrepareSplit(TabletId, Split),
    /// Remove what was prepared of these child tablets: the tablet is not split.
    CancelSplit(TabletId, [TabletId; 2]),
    /// Close these replicas and remove their data.
    Close(Vec<TabletId>),
    /// Keep the tablet as its table now says: for how long tombstones, and in which files.
    AlterTable(TabletId, Arc<Table>),
    /// Go by what operators have set for all nodes in this snapshot.
    ApplySettings(Arc<Catalog>),
    /// The members are those of this snapshot.
    MeetNodes(Arc<Catalog>),
    /// Serve this snapshot from now on, and announce its version to the other nodes.
    Publish(Arc<Catalog>),
    /// Tell the clients that have registered for it.
    Notify(ClientNotice),
    /// Tell the catalog which dropped tablets are gone here ([`forgettable`]), if there are any.
    ForgetDropped,
    /// Stop: this node is no member any more.
    Stop,
}

/// Where a node is between two snapshots.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Stage {
    /// It serves the newest snapshot that it has looked at.
    AtRest,
    /// What has to be done before the next one is published.
    Before,
    /// And after that.
    After,
}

/// See the top of this module.
#[derive(Debug)]
pub struct Follower {
    node: NodeId,
    planted: Planted,
    served: Arc<Catalog>,
    /// The snapshot that was served before `target` is reached.
    older: Arc<Catalog>,
    target: Arc<Catalog>,
    stage: Stage,
    before: VecDeque<Change>,
    after: VecDeque<Change>,
    /// What is left of the change that is being carried out.
    actions: VecDeque<Action>,
    notices: Vec<ClientNotice>,
    undone: Vec<Action>,
}

impl Follower {
    /// A node that serves nothing yet.
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
        }
    }

    /// The node has opened what its copy of the catalog places on it ([`openings_at_start`]), and serves it from now on.
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

    /// Whether nothing is under way.
    pub fn is_at_rest(&self) -> bool {
        self.stage == Stage::AtRest && self.actions.is_empty()
    }

    /// The next action on the way to `newest`, the newest snapshot that is known; none: the node is there. The last action has been carried out.
    pub fn next(&mut self, newest: &Arc<Catalog>, replicas: &dyn Replicas) -> Option<Action> {
        loop {
            if let Some(action) = self.actions.pop_front() {
                return Some(action);
            }
            match self.stage {
                Stage::AtRest if newest.version() > self.served.version() => self.set_out(newest),
                Stage::AtRest => return None,
                Stage::Before => match self.before.pop_front() {
                    Some(change) => self.expand(change, replicas),
                    None => return Some(self.publish()),
                },
                Stage::After => match self.after.pop_front() {
                    Some(change) => self.expand(change, replicas),
                    None => self.arrive(replicas),
                },
            }
        }
    }

    /// Whether the copy of the catalog could be made durable; if not, what stands on that is not done.
    pub fn persisted(&mut self, is_durable: bool) {
        if !is_durable && matches!(self.actions.front(), Some(Action::Open(_))) {
            self.actions.pop_front();
        }
    }

    fn set_out(&mut self, newest: &Arc<Catalog>) {
        let closes = |change: &Change| matches!(change, Change::DropTablets { .. } | Change::ReplicasGone { .. });
        let (after, before): (VecDeque<_>, VecDeque<_>) =
            newest.changes_since(&self.served).into_iter().partition(closes);
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

    fn arrive(&mut self, replicas: &dyn Replicas) {
        self.stage = Stage::AtRest;
        // Also those that came and went between two snapshots; a parent tablet here may have made such a child tablet.
        let dropped = self.target.dropped_tablets().filter(|(_, placement)| placement.is_held_by(self.node));
        let left = dropped.map(|(tablet, _)| tablet).filter(|tablet| replicas.is_open(*tablet)).collect();
        self.close(left);
        self.actions.push_back(Action::ForgetDropped);
        self.actions.extend(self.notices.drain(..).map(Action::Notify));
        if self.planted.place_twice {
            self.actions.extend(self.undone.drain(..));
        }
    }

    /// Lists what a change asks of this node.
    fn expand(&mut self, change: Change, replicas: &dyn Replicas) {
        let target = Arc::clone(&self.target);
        match change {
            Change::OpenTablets { tablets, .. } => {
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
                self.close(ours);
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

    /// Whether a child tablet is, or will be, opened by the replica of its parent tablet on this node. Nobody waits for it: until it is open, requests for it
    /// find others, or are parked.
    fn is_made_by_parent(&self, child: TabletId, replicas: &dyn Replicas) -> bool {
        let is_held = |catalog: &Catalog, tablet| {
            catalog.placement(tablet).is_some_and(|placement| placement.is_held_by(self.node))
        };
        let arrives = |parent| is_held(&self.target, parent) && !is_held(&self.older, parent);
        let origin = self.target.placement(child).and_then(|placement| placement.origin);
        origin.is_some_and(|origin| replicas.is_open(origin.parent) || arrives(origin.parent))
    }

    fn open(&mut self, openings: Vec<Opening>) {
        if !openings.is_empty() {
            self.actions.push_back(Action::Open(openings));
        }
    }

    fn close(&mut self, tablets: Vec<TabletId>) {
        if !tablets.is_empty() {
            self.actions.push_back(Action::Close(tablets));
        }
    }

    fn drop_tablets(&mut self, tablets: Vec<TabletId>) {
        // A parent tablet that lagged until nobody needs it has not made its child tablets: they begin empty.
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

    /// Takes in who the nodes are, and who the members of the catalog's own group are to be. While the catalog has no nodes this one is not a member yet:
    /// whoever lets it join has named the first ones.
    fn meet_nodes(&self, catalog: &Arc<Catalog>) -> Vec<Action> {
        let Some(members) = Members::of_catalog(catalog) else { return Vec::new() };
        if self.planted.keep_retired_voter && catalog.nodes().any(|node| !node.state.is_active()) {
            return vec![Action::MeetNodes(Arc::clone(catalog))];
        }
        vec![Action::MeetNodes(Arc::clone(catalog)), Action::SetMembers(CATALOG_TABLET, members)]
    }
}

/// The newer of what a node's copy of the catalog says and what the node serves. While the copy is made anew it knows less than is served.
pub fn newest<'a>(copy: &'a Arc<Catalog>, served: &'a Arc<Catalog>) -> &'a Arc<Catalog> {
    if copy.version() < served.version() { served } else { copy }
}

/// The command that tells the catalog of dropped tablets that a node has none of (any more).
pub fn forgettable(served: &Catalog, node: NodeId, replicas: &dyn Replicas) -> Option<Command> {
    let ours = served.dropped_tablets().filter(|(_, placement)| placement.is_held_by(node));
    let gone = ours.map(|(tablet, _)| tablet).filter(|tablet| !replicas.is_open(*tablet));
    let tablets: Vec<TabletId> = gone.take(FORGET_AT_ONCE).collect();
    (!tablets.is_empty()).then_some(Command::ForgetDropped { node, tablets })
}

/// Where clients reach a node.
pub fn cql_address(catalog: &Catalog, node: NodeId) -> Option<SocketAddr> {
    catalog.node(node).map(|node| SocketAddr::new(node.address(), node.description.cql_port))
}

#[cfg(test)]
mod tests;
