//! This node's replicas, as inputs of decisions.

use diorite_base::{NodeId, TabletId};
use diorite_cluster::catalog::Split;
use diorite_control::replicas::{Replicas, SplitEntry};
use diorite_replica::{CLOSED, Leadership, Store};
use std::collections::BTreeSet;

/// The replicas of a node's store. Some of the methods wait for the store's threads.
pub(crate) struct LocalReplicas<'a> {
    node: NodeId,
    store: &'a Store,
}

impl<'a> LocalReplicas<'a> {
    /// The replicas of node `node`.
    pub(crate) fn new(node: NodeId, store: &'a Store) -> Self {
        Self { node, store }
    }
}

impl Replicas for LocalReplicas<'_> {
    fn is_open(&self, tablet: TabletId) -> bool {
        self.store.handle(tablet).is_some()
    }

    fn leads(&self, tablet: TabletId) -> bool {
        self.store.handle(tablet).is_some_and(|handle| handle.leadership() == Leadership::Here)
    }

    fn is_sealed(&self, tablet: TabletId) -> bool {
        self.store.handle(tablet).is_some_and(|handle| handle.flags() & CLOSED != 0)
    }

    fn split_entry(&self, tablet: TabletId) -> Option<SplitEntry> {
        self.store.split_of(tablet).map(|mark| SplitEntry { index: mark.index, term: mark.term })
    }

    fn have_prepared(&self, tablet: TabletId, split: &Split) -> bool {
        self.store.prepare_split(tablet, &super::opening::split_at(split))
    }

    fn prepared_elsewhere(&self, tablet: TabletId) -> BTreeSet<NodeId> {
        self.store.prepared_elsewhere(tablet)
    }

    fn matched(&self, tablet: TabletId) -> Option<Vec<(NodeId, u64)>> {
        self.store.describe(tablet).map(|state| state.matched)
    }

    fn voters_in_place(&self, tablet: TabletId) -> Option<Vec<NodeId>> {
        self.store.committed_voters(tablet)
    }

    fn is_up(&self, node: NodeId) -> bool {
        node == self.node || self.store.liveness().is_up(node)
    }
}
