//! What this node knows about the others at the moment: who is up, and which version of the catalog each serves.
//!
//! Always true: a node counts as up while heartbeats arrive from it and it has announced a version that it serves, so that nobody is sent to
//! one that is still starting. Clients are told at once that a node is up, but that it is down only after a while: they close their
//! connections to it, which a short pause is no reason for. Until then it is also waited for. Of a node that stops in order, and says so, they are told
//! at once. Left out: how liveness is found out (`replica::Liveness`), and addresses.

use diorite_base::NodeId;
use diorite_replica::LEAVING;
use parking_lot::Mutex;
use std::collections::BTreeMap;
use std::time::Duration;
use tokio::sync::watch;

#[derive(Clone, Copy, Default)]
struct Peer {
    is_live: bool,
    /// 0: none yet.
    served_version: u64,
    /// What clients were told last.
    is_told_up: bool,
}

/// What is to be done about a node whose status changed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Notice {
    /// Nothing.
    Nothing,
    /// Tell clients that it is up.
    TellUp,
    /// Tell clients that it is down.
    TellDown,
    /// Look again after a while, with [`Peers::still_down`].
    Watch,
}

impl Peer {
    fn is_up(self) -> bool {
        self.is_live && self.served_version > 0 && !self.is_leaving()
    }

    fn is_leaving(self) -> bool {
        self.served_version == LEAVING
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
    /// Heartbeats of the node arrive, or no longer.
    pub(crate) fn set_live(&self, node: NodeId, is_live: bool) -> Notice {
        self.change(node, |peer| peer.is_live = is_live)
    }

    /// The node has announced the version of the catalog that it serves, or that it is about to stop ([`LEAVING`]).
    pub(crate) fn set_served(&self, node: NodeId, version: u64) -> Notice {
        self.change(node, |peer| peer.served_version = version)
    }

    fn change(&self, node: NodeId, change: impl FnOnce(&mut Peer)) -> Notice {
        let mut known = self.known.lock();
        let peer = known.entry(node).or_default();
        let before = *peer;
        change(peer);
        let after = *peer;
        peer.is_told_up = !after.is_leaving() && (before.is_told_up || after.is_up());
        drop(known);
        if (before.is_live, before.served_version) != (after.is_live, after.served_version) {
            self.changes.send_modify(|count| *count += 1);
        }
        match (before.is_up(), after.is_up()) {
            _ if after.is_leaving() && before.is_told_up => Notice::TellDown,
            _ if after.is_leaving() => Notice::Nothing,
            (false, true) if !before.is_told_up => Notice::TellUp,
            (true, false) => Notice::Watch,
            _ => Notice::Nothing,
        }
    }

    /// Whether the node is down, and clients have yet to be told. From then on they have been.
    pub(crate) fn still_down(&self, node: NodeId) -> bool {
        let mut known = self.known.lock();
        let is_news =
            known.get_mut(&node).is_some_and(|peer| !peer.is_up() && std::mem::replace(&mut peer.is_told_up, false));
        drop(known);
        if is_news {
            self.changes.send_modify(|count| *count += 1);
        }
        is_news
    }

    /// The version that a node serves, if clients take it to be up.
    pub(crate) fn served_version(&self, node: NodeId) -> Option<u64> {
        self.known.lock().get(&node).filter(|peer| peer.is_told_up).map(|peer| peer.served_version)
    }

    /// The nodes that clients take to be up and that do not serve `version` yet.
    fn behind(&self, version: u64) -> Vec<NodeId> {
        let known = self.known.lock();
        let behind = known.iter().filter(|(_, peer)| peer.is_told_up && peer.served_version < version);
        behind.map(|(node, _)| *node).collect()
    }

    /// Waits until every node that is up serves at least `version`; gives those that did not within `patience`. A node that stays down is
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
        assert_eq!(peers.set_served(A, 0), Notice::Nothing);
        assert_eq!(peers.set_live(A, true), Notice::Nothing);
        assert_eq!(peers.served_version(A), None);
        assert_eq!(peers.set_served(A, 7), Notice::TellUp);
        assert_eq!(peers.set_served(A, 8), Notice::Nothing);
        assert_eq!(peers.served_version(A), Some(8));
        assert_eq!(peers.set_live(A, false), Notice::Watch);
        assert_eq!(peers.served_version(A), Some(8), "it may be a pause");
        assert!(peers.still_down(A));
        assert_eq!(peers.served_version(A), None);
    }

    #[test]
    fn clients_are_told_only_of_a_node_that_stays_down() {
        let peers = Peers::default();
        peers.set_live(A, true);
        assert_eq!(peers.set_served(A, 7), Notice::TellUp);
        assert_eq!(peers.set_live(A, false), Notice::Watch);
        assert_eq!(peers.set_live(A, true), Notice::Nothing, "they do not know that it was down");
        assert!(!peers.still_down(A));
        // It has started anew.
        assert_eq!(peers.set_served(A, 0), Notice::Watch);
        assert!(peers.still_down(A));
        assert!(!peers.still_down(A), "once is enough");
        assert_eq!(peers.set_served(A, 9), Notice::TellUp);
        assert!(!peers.still_down(B), "of whom nobody has heard");
    }

    #[test]
    fn a_node_that_says_that_it_stops_is_down_at_once_and_up_when_it_has_started_again() {
        let peers = Peers::default();
        peers.set_live(A, true);
        peers.set_served(A, 7);
        assert_eq!(peers.set_served(A, LEAVING), Notice::TellDown);
        assert_eq!(peers.served_version(A), None);
        assert_eq!(peers.set_served(A, LEAVING), Notice::Nothing, "with every heartbeat");
        assert_eq!(peers.set_live(A, false), Notice::Nothing);
        assert_eq!(peers.set_live(A, true), Notice::Nothing);
        assert_eq!(peers.set_served(A, 0), Notice::Nothing);
        assert_eq!(peers.set_served(A, 8), Notice::TellUp);
        assert_eq!(peers.served_version(A), Some(8));
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
            assert!(peers.still_down(A));
            peers.set_served(B, LEAVING);
        });
        assert_eq!(left, []);
    }
}
