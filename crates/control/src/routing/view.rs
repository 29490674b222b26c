//! The interface through which routing reads this node's state and catalog.

use diorite_base::{NodeId, TabletId};

/// What this node's replica of a tablet knows about its leader.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Local {
    /// There is no replica here.
    Absent,
    /// It leads, and may serve.
    Leads,
    /// It follows that node, if it knows one.
    Follows(Option<NodeId>),
}

/// The current state; no method waits.
pub trait View<W> {
    /// What this node's replica knows.
    fn local(&self, tablet: TabletId) -> Local;

    /// Whether another node is up.
    fn is_up(&self, node: NodeId) -> bool;

    /// The nodes that may lead the tablet, in the order in which they are asked; `None` if the catalog does not know the tablet.
    fn holders(&self, tablet: TabletId) -> Option<Vec<NodeId>>;

    /// Whether the tablet was split, and its child tablets have taken its place.
    fn is_split(&self, tablet: TabletId) -> bool;

    /// Whether the tablet is a child of a split: nodes may be about to open it.
    fn is_new_child(&self, tablet: TabletId) -> bool;

    /// The tablet that the work is for now, if that is certain: its tablet was split, merged into another, or emptied
    /// by TRUNCATE.
    fn successor(&self, tablet: TabletId, work: &W) -> Option<TabletId>;
}
