//! What this node knows about the others at the moment: who is up, and which version of the catalog each serves.
//!
//! Always true: a node counts as up for clients while heartbeats arrive from it and it has announced a version that it serves, so that
//! nobody is sent to one that is still starting. Left out: how liveness is found out (`replica::Liveness`), and addresses.

use diorite_base::NodeId;
use parking_lot::Mutex;
use std::collections::BTreeMap;
use std::time::Duration;
use tokio::sync::watch;

#[derive(Clone, Copy, Default)]
struct Peer {
    is_live: bool,
    /// 0: none yet.
    served_version: u64,
}

impl Peer {
    fn is_up(self) -> bool {
        self.is_live && self.served_version > 0
    }
}

/// See the top of this module.
pub(crate) struct Peers {
    known: Mutex<BTreeMap<NodeId, Peer>>,
    /// Grows with every change.
    changes: watch::Sender<u64>,
}

impl Default for Peers {
    fn default() -> Self {
        Self { known: Mutex::default(), changes: watch::Sender::new(0) }
    }
}

impl Peers {
    /// Heartbeats of the node arrive, or no longer. Says whether it is up now, if that changed.
    pub(crate) fn set_live(&self, node: NodeId, is_live: bool) -> Option<bool> {
        self.change(node, |peer| peer.is_live = is_live)
    }

    /// The node has announced the version of the catalog that it serves. Says whether it is up now, if that changed.
    pub(crate) fn set_served(&self, node: NodeId, version: u64) -> Option<bool> {
        self.change(node, |peer| peer.served_version = version)
    }

    fn change(&self, node: NodeId, change: impl FnOnce(&mut Peer)) -> Option<bool> {
        let mut known = self.known.lock();
        let peer = known.entry(node).or_default();
        let before = *peer;
        change(peer);
        let after = *peer;
        drop(known);
        if (before.is_live, before.served_version) != (after.is_live, after.served_version) {
            self.changes.send_modify(|count| *count += 1);
        }
        (before.is_up() != after.is_up()).then(|| after.is_up())
    }

    /// The version that a node serves, if it is up.
    pub(crate) fn served_version(&self, node: NodeId) -> Option<u64> {
        self.known.lock().get(&node).filter(|peer| peer.is_up()).map(|peer| peer.served_version)
    }

    /// The nodes that are up and do not serve `version` yet.
    fn behind(&self, version: u64) -> Vec<NodeId> {
        let known = self.known.lock();
        known.iter().filter(|(_, peer)| peer.is_up() && peer.served_version < version).map(|(node, _)| *node).collect()
    }

    /// Waits until every node that is up serves at least `version`; gives those that did not within `patience`. A node that goes down is
    /// not waited for.
    pub(crate) async fn wait_until_served(&self, version: u64, patience: Duration) -> Vec<NodeId> {
        let mut changes = self.changes.subscribe();
        let all = async {
            while !self.behind(version).is_empty() {
                // The sender lives as long as `self`.
                let _ = changes.changed().await;
            }
        };
        match tokio::time::timeout(patience, all).await {
            Ok(()) => Vec::new(),
            Err(_) => self.behind(version),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const A: NodeId = NodeId(1);
    const B: NodeId = NodeId(2);

    #[test]
    fn a_node_is_up_once_it_serves_and_until_it_is_no_longer_heard() {
        let peers = Peers::default();
        assert_eq!(peers.set_served(A, 0), None);
        assert_eq!(peers.set_live(A, true), None);
        assert_eq!(peers.served_version(A), None);
        assert_eq!(peers.set_served(A, 7), Some(true));
        assert_eq!(peers.set_served(A, 8), None);
        assert_eq!(peers.served_version(A), Some(8));
        assert_eq!(peers.set_live(A, false), Some(false));
        assert_eq!(peers.set_live(A, true), Some(true));
        // It has started anew.
        assert_eq!(peers.set_served(A, 0), Some(false));
    }

    #[tokio::test]
    async fn those_that_are_up_are_waited_for() {
        let peers = Peers::default();
        for node in [A, B] {
            peers.set_live(node, true);
            peers.set_served(node, 3);
        }
        assert_eq!(peers.wait_until_served(3, Duration::from_secs(5)).await, []);
        peers.set_served(A, 4);
        assert_eq!(peers.wait_until_served(4, Duration::ZERO).await, [B]);
        let (left, ()) = tokio::join!(peers.wait_until_served(4, Duration::from_secs(5)), async {
            peers.set_served(B, 5);
        });
        assert_eq!(left, []);
        let (left, ()) = tokio::join!(peers.wait_until_served(9, Duration::from_secs(5)), async {
            peers.set_live(A, false);
            peers.set_live(B, false);
        });
        assert_eq!(left, []);
    }
}
