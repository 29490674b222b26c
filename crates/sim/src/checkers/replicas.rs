//! Replicas of a tablet are equal at the same applied index: byte for byte, or, where they hold rows, for every reader.

use super::Finding;
use crate::rows::VisibleRows;
use diorite_base::{NodeId, TabletId};
use diorite_control::replicas::CATALOG_TABLET;
use diorite_storage::{AppliedState, MemoryTablet, ScanRange, TabletData};
use std::collections::BTreeMap;
use std::hash::{DefaultHasher, Hash, Hasher};

/// Greater than every key of a client.
const END: [u8; 9] = [0xFF; 9];

struct Seen {
    node: NodeId,
    state: AppliedState,
    hash: u64,
    entries: u64,
}

/// The contents of replicas at every applied index at which one was seen.
#[derive(Default)]
pub struct Replicas {
    /// Whether applied entries may be lost in a loss of power, and their indexes used again: then replicas are compared
    /// only in the end.
    may_lose: bool,
    /// Reads the rows, if tablets hold rows.
    rows: Option<VisibleRows>,
    seen: BTreeMap<(TabletId, u64), Seen>,
    last: BTreeMap<(NodeId, TabletId), u64>,
}

impl Replicas {
    /// Nothing was seen yet.
    pub fn new(may_lose: bool, rows: Option<VisibleRows>) -> Self {
        Self { may_lose, rows, ..Self::default() }
    }

    /// The replica may have gone back to an earlier applied index: its node has crashed.
    pub fn forget(&mut self, node: NodeId) {
        self.last.retain(|(of, _), _| *of != node);
    }

    /// The replica was closed: the next one begins empty.
    pub fn forget_one(&mut self, node: NodeId, tablet: TabletId) {
        self.last.remove(&(node, tablet));
    }

    /// Compares a replica, if its applied index has changed since the last call.
    pub fn observe(&mut self, at_ns: u64, node: NodeId, tablet: TabletId, data: &MemoryTablet) -> Result<(), Finding> {
        let finding = |message| Err(Finding { checker: "replicas", at_ns, message });
        let state = match data.applied_state() {
            Ok(state) => state,
            Err(error) => return finding(format!("{tablet} on {node} cannot be read: {error}")),
        };
        match self.last.insert((node, tablet), state.index) {
            Some(last) if last == state.index => return Ok(()),
            Some(last) if last > state.index => {
                return finding(format!("{tablet} on {node} went back from index {last} to {}", state.index));
            }
            _ => {}
        }
        if self.may_lose {
            return Ok(());
        }
        self.compare(at_ns, node, tablet, data)
    }

    /// Compares a replica after a compaction with its own and others' content at the same applied index.
    pub fn compacted(
        &mut self,
        at_ns: u64,
        node: NodeId,
        tablet: TabletId,
        data: &MemoryTablet,
    ) -> Result<(), Finding> {
        if self.may_lose { Ok(()) } else { self.compare(at_ns, node, tablet, data) }
    }

    /// Compares a replica with the others at its applied index.
    pub fn compare(&mut self, at_ns: u64, node: NodeId, tablet: TabletId, data: &MemoryTablet) -> Result<(), Finding> {
        let finding = |message| Err(Finding { checker: "replicas", at_ns, message });
        let state = data.applied_state().expect("memory can be read");
        let (hash, entries) = match self.rows.as_ref().filter(|_| tablet != CATALOG_TABLET) {
            Some(rows) => rows.contents(tablet, data, state.horizon.now_s),
            None => contents(data),
        };
        let seen = self.seen.entry((tablet, state.index)).or_insert(Seen { node, state, hash, entries });
        if (seen.state, seen.hash) == (state, hash) {
            return Ok(());
        }
        let (other, index) = (seen.node, state.index);
        finding(format!(
            "{tablet} at index {index}: {other} had {:?} and {} entries ({:016x}), {node} has {state:?} and {entries} ({hash:016x})",
            seen.state, seen.entries, seen.hash
        ))
    }
}

fn contents(data: &MemoryTablet) -> (u64, u64) {
    let (mut hasher, mut entries) = (DefaultHasher::new(), 0);
    let range = ScanRange { start: &[], end: &END, reverse: false, expected_entries: usize::MAX };
    let scanned = data.scan(&range, &mut |key, value| {
        (key, value).hash(&mut hasher);
        entries += 1;
        true
    });
    assert!(scanned.is_ok(), "memory can be read");
    (hasher.finish(), entries)
}

#[cfg(test)]
mod tests {
    use super::*;
    use diorite_storage::{MemoryBatch, TabletBatch};

    fn tablet(index: u64, value: &[u8]) -> MemoryTablet {
        let tablet = MemoryTablet::new(None);
        let mut batch = MemoryBatch::default();
        batch.put(b"any key", value);
        let applied = tablet.apply(&mut batch, &AppliedState { index, term: 1, ..AppliedState::default() });
        assert!(applied.is_ok());
        tablet
    }

    #[test]
    fn replicas_are_compared_at_equal_index_only() {
        let mut replicas = Replicas::default();
        let mut observe = |node, data: &MemoryTablet| replicas.observe(0, NodeId(node), TabletId(7), data).is_ok();
        assert!(observe(1, &tablet(5, b"one")));
        assert!(observe(2, &tablet(6, b"two")), "another index");
        assert!(observe(1, &tablet(6, b"two")));
        assert!(!observe(3, &tablet(5, b"two")), "the same index");
    }

    #[test]
    fn a_replica_goes_back_only_by_a_crash() {
        let mut replicas = Replicas::default();
        let observe =
            |replicas: &mut Replicas, index| replicas.observe(0, NodeId(1), TabletId(7), &tablet(index, b"")).is_ok();
        assert!(observe(&mut replicas, 5));
        assert!(!observe(&mut replicas, 4));
        replicas.forget(NodeId(1));
        assert!(observe(&mut replicas, 4));
    }
}
