//! The state of the other nodes: which are up, and which version of the catalog each serves.
//!
//! Always true: a node counts as up while its heartbeats arrive and it has announced a version that it serves, so that
//! no client is sent to a node that is still starting. Clients are notified at once that a node is up, but only after a
//! while that it is down: they close their connections to it, which is not worth it for a short pause. Until then
//! changes wait for it too. If a node announces an orderly stop, clients are notified at once. Left out: how liveness
//! is determined (`replica::Liveness`), and addresses.

use diorite_base::NodeId;
use std::collections::BTreeMap;
use std::time::Duration;

/// How long a node has to be down before clients are notified.
pub const DOWN_AFTER: Duration = Duration::from_secs(2);

/// The announcement of a node in its heartbeats.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Announced {
    /// None yet.
    #[default]
    Nothing,
    /// It serves this version of the catalog.
    Serves(u64),
    /// It is about to stop.
    Leaving,
}

#[derive(Clone, Copy, Debug, Default)]
struct Peer {
    is_live: bool,
    announced: Announced,
    /// The last notice to clients.
    is_told_up: bool,
}

/// The action after a change of a node's status.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Notice {
    /// None.
    Nothing,
    /// Notify clients that it is up.
    TellUp,
    /// Notify clients that it is down.
    TellDown,
    /// Check again after [`DOWN_AFTER`], with [`Peers::still_down`].
    Watch,
}

impl Peer {
    fn is_up(self) -> bool {
        self.is_live && matches!(self.announced, Announced::Serves(_))
    }

    fn is_leaving(self) -> bool {
        self.announced == Announced::Leaving
    }
}

/// See the top of this module.
#[derive(Debug, Default)]
pub struct Peers {
    known: BTreeMap<NodeId, Peer>,
    /// Grows with every change that may end a wait.
    changes: u64,
}

impl Peers {
    /// Heartbeats of the node have begun or ceased to arrive.
    pub fn set_live(&mut self, node: NodeId, is_live: bool) -> Notice {
        self.change(node, |peer| peer.is_live = is_live)
    }

    /// The node has announced the version that it serves, or that it is about to stop.
    pub fn set_announced(&mut self, node: NodeId, announced: Announced) -> Notice {
        self.change(node, |peer| peer.announced = announced)
    }

    fn change(&mut self, node: NodeId, change: impl FnOnce(&mut Peer)) -> Notice {
        let peer = self.known.entry(node).or_default();
        let before = *peer;
        change(peer);
        let after = *peer;
        peer.is_told_up = !after.is_leaving() && (before.is_told_up || after.is_up());
        self.changes += u64::from((before.is_live, before.announced) != (after.is_live, after.announced));
        match (before.is_up(), after.is_up()) {
            _ if after.is_leaving() && before.is_told_up => Notice::TellDown,
            _ if after.is_leaving() => Notice::Nothing,
            (false, true) if !before.is_told_up => Notice::TellUp,
            (true, false) => Notice::Watch,
            _ => Notice::Nothing,
        }
    }

    /// Whether the node is down and clients are to be notified now. Afterwards they count as notified.
    pub fn still_down(&mut self, node: NodeId) -> bool {
        let is_new = self
            .known
            .get_mut(&node)
            .is_some_and(|peer| !peer.is_up() && std::mem::replace(&mut peer.is_told_up, false));
        self.changes += u64::from(is_new);
        is_new
    }

    /// The version that a node serves, if it is up for clients.
    pub fn served_version(&self, node: NodeId) -> Option<u64> {
        let peer = self.known.get(&node).filter(|peer| peer.is_told_up)?;
        Some(if let Announced::Serves(version) = peer.announced { version } else { 0 })
    }

    /// The nodes that are up for clients and do not serve `version` yet: a change of the catalog is answered when there
    /// are none, or after a timeout.
    pub fn behind(&self, version: u64) -> Vec<NodeId> {
        let lags = |node: &NodeId| self.served_version(*node).is_some_and(|served| served < version);
        self.known.keys().copied().filter(lags).collect()
    }

    /// A number that grows with every change that may end a wait.
    pub fn changes(&self) -> u64 {
        self.changes
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const A: NodeId = NodeId(1);
    const B: NodeId = NodeId(2);

    fn serves(version: u64) -> Announced {
        Announced::Serves(version)
    }

    #[test]
    fn a_node_is_up_once_it_serves_and_until_its_heartbeats_stay_away() {
        let mut peers = Peers::default();
        assert_eq!(peers.set_announced(A, Announced::Nothing), Notice::Nothing);
        assert_eq!(peers.set_live(A, true), Notice::Nothing);
        assert_eq!(peers.served_version(A), None);
        assert_eq!(peers.set_announced(A, serves(7)), Notice::TellUp);
        assert_eq!(peers.set_announced(A, serves(8)), Notice::Nothing);
        assert_eq!(peers.served_version(A), Some(8));
        assert_eq!(peers.set_live(A, false), Notice::Watch);
        assert_eq!(peers.served_version(A), Some(8), "it may be a pause");
        assert!(peers.still_down(A));
        assert_eq!(peers.served_version(A), None);
    }

    #[test]
    fn clients_are_told_only_of_a_node_that_stays_down() {
        let mut peers = Peers::default();
        peers.set_live(A, true);
        assert_eq!(peers.set_announced(A, serves(7)), Notice::TellUp);
        assert_eq!(peers.set_live(A, false), Notice::Watch);
        assert_eq!(peers.set_live(A, true), Notice::Nothing, "they do not know that it was down");
        assert!(!peers.still_down(A));
        // It has restarted.
        assert_eq!(peers.set_announced(A, Announced::Nothing), Notice::Watch);
        assert!(peers.still_down(A));
        assert!(!peers.still_down(A), "once is enough");
        assert_eq!(peers.set_announced(A, serves(9)), Notice::TellUp);
        assert!(!peers.still_down(B), "nothing is known of it");
    }

    #[test]
    fn a_node_that_announces_that_it_stops_is_down_at_once_and_up_when_it_has_started_again() {
        let mut peers = Peers::default();
        peers.set_live(A, true);
        peers.set_announced(A, serves(7));
        assert_eq!(peers.set_announced(A, Announced::Leaving), Notice::TellDown);
        assert_eq!(peers.served_version(A), None);
        assert_eq!(peers.set_announced(A, Announced::Leaving), Notice::Nothing, "with every heartbeat");
        assert_eq!(peers.set_live(A, false), Notice::Nothing);
        assert_eq!(peers.set_live(A, true), Notice::Nothing);
        assert_eq!(peers.set_announced(A, Announced::Nothing), Notice::Nothing);
        assert_eq!(peers.set_announced(A, serves(8)), Notice::TellUp);
        assert_eq!(peers.served_version(A), Some(8));
    }

    #[test]
    fn those_that_are_up_are_waited_for() {
        let mut peers = Peers::default();
        for node in [A, B] {
            peers.set_live(node, true);
            peers.set_announced(node, serves(3));
        }
        assert_eq!(peers.behind(3), []);
        peers.set_announced(A, serves(4));
        assert_eq!(peers.behind(4), [B]);
        let before = peers.changes();
        peers.set_announced(A, Announced::Nothing);
        assert_eq!(peers.behind(4), [A, B], "it has started anew, and clients have not been told");
        assert!(peers.still_down(A));
        peers.set_announced(B, Announced::Leaving);
        assert_eq!(peers.behind(4), []);
        assert!(peers.changes() > before);
    }
}
