//! This node's state for routing: its replicas, its catalog, and which nodes are up.

use super::options::CatalogSource;
use super::request::Work;
use diorite_base::mutation::{Body, MutationRef};
use diorite_base::{GroupId, NodeId, TabletId};
use diorite_control::routing::{Local, View};
use diorite_model::key::token_of;
use diorite_replica::{Leadership, Store};

/// This node's current state. Takes no lock that is held while routing is called.
pub(super) struct NodeView<'n> {
    pub(super) store: &'n Store,
    pub(super) catalogs: &'n dyn CatalogSource,
}

impl View<Work> for NodeView<'_> {
    fn local(&self, tablet: TabletId) -> Local {
        match self.store.tablets().get(&tablet).map(|handle| handle.leadership()) {
            None => Local::Absent,
            Some(Leadership::Here) => Local::Leads,
            Some(Leadership::Elsewhere(node)) => Local::Follows(Some(node)),
            Some(Leadership::Unknown) => Local::Follows(None),
        }
    }

    fn is_up(&self, node: NodeId) -> bool {
        self.store.liveness().is_up(node)
    }

    fn holders(&self, tablet: TabletId) -> Option<Vec<NodeId>> {
        let catalog = self.catalogs.catalog();
        match catalog.placement(tablet) {
            Some(placement) => Some(placement.holders().collect()),
            // The catalog's own tablet has no placement in the catalog. Every node has a replica of it and knows its
            // leader.
            None if tablet.0 == GroupId::CATALOG.0 => Some(catalog.nodes().map(|node| node.id).collect()),
            None => None,
        }
    }

    fn is_split(&self, tablet: TabletId) -> bool {
        let catalog = self.catalogs.catalog();
        catalog.placement(tablet).is_some_and(|placement| placement.split.is_some_and(|split| split.is_served))
    }

    fn is_new_child(&self, tablet: TabletId) -> bool {
        self.catalogs.catalog().placement(tablet).is_some_and(|placement| placement.origin.is_some())
    }

    /// The tablet that holds the tokens of the written keys, if it is one tablet. A write that was planned for several
    /// partitions has to be planned again.
    fn successor(&self, tablet: TabletId, work: &Work) -> Option<TabletId> {
        let Work::Write(write) = work else { return None };
        let catalog = self.catalogs.catalog();
        let entry = catalog.table_of(tablet)?;
        let read = MutationRef::decode(write.mutation.as_bytes()).ok()?;
        let Body::Blind(operations) = read.body() else { return None };
        let mut successor = None;
        for operation in operations {
            let at = entry.tablet_of(token_of(operation.ok()?.key).ok()?);
            if successor.replace(at).is_some_and(|before| before != at) {
                return None;
            }
        }
        successor
    }
}
