//! The snapshots that a node keeps for reads of several tablets: their names, and their number, which is bounded.

use diorite_base::NodeId;
use diorite_transact::wire::PinId;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};

/// The most snapshots of a node.
const MAX_NODE_PINS: usize = 10_000;

/// The names of a node's snapshots, and their number.
#[derive(Debug)]
pub(crate) struct NodePins {
    /// Names begin with a number that no other life of a node has.
    next: AtomicU64,
    kept: Arc<AtomicUsize>,
}

impl NodePins {
    pub(crate) fn new(incarnation: u64, node: NodeId) -> Self {
        let first = incarnation.wrapping_mul(0x9E37_79B9_7F4A_7C15).rotate_left(32) ^ node.0;
        Self { next: AtomicU64::new(first), kept: Arc::default() }
    }

    /// A name that no other snapshot has.
    pub(crate) fn name(&self) -> PinId {
        PinId(self.next.fetch_add(1, Ordering::Relaxed))
    }

    /// Counts one more, until what is returned is dropped; `None` if there are too many.
    pub(crate) fn count(&self) -> Option<Counted> {
        let counted = Counted(Arc::clone(&self.kept));
        (self.kept.fetch_add(1, Ordering::Relaxed) < MAX_NODE_PINS).then_some(counted)
    }

    /// How many quarters of the most are kept.
    pub(crate) fn quarters(&self) -> usize {
        4 * self.kept.load(Ordering::Relaxed) / MAX_NODE_PINS
    }

    /// Whether none is kept.
    pub(crate) fn is_empty(&self) -> bool {
        self.kept.load(Ordering::Relaxed) == 0
    }
}

/// A snapshot that is counted.
#[derive(Debug)]
pub(crate) struct Counted(Arc<AtomicUsize>);

impl Drop for Counted {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_differ_and_a_node_keeps_so_many_snapshots() {
        let pins = NodePins::new(7, NodeId(3));
        assert!(pins.is_empty());
        assert_ne!(pins.name(), pins.name());
        let kept: Vec<_> = (0..MAX_NODE_PINS).map_while(|_| pins.count()).collect();
        assert_eq!((kept.len(), pins.count().is_none()), (MAX_NODE_PINS, true));
        assert_eq!(pins.quarters(), 4);
        drop(kept);
        assert!(pins.is_empty() && pins.quarters() == 0 && pins.count().is_some());
    }
}
