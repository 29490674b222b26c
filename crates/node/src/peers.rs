//! The state of the other nodes, for all threads; [`diorite_control::peers`] decides on it.

use diorite_base::NodeId;
use diorite_control::peers::{Announced, Notice, Peers};
use diorite_replica::LEAVING;
use parking_lot::Mutex;
use tokio::sync::watch;

/// The state of the other nodes, and its changes.
pub(crate) struct PeerWatch {
    peers: Mutex<Peers>,
    /// The value of [`Peers::changes`], for tasks that wait.
    changes: watch::Sender<u64>,
}

impl Default for PeerWatch {
    fn default() -> Self {
        Self { peers: Mutex::default(), changes: watch::Sender::new(0) }
    }
}

impl PeerWatch {
    /// Notes that the node's heartbeats arrive, or no longer arrive.
    pub(crate) fn set_live(&self, node: NodeId, is_live: bool) -> Notice {
        self.change(|peers| peers.set_live(node, is_live))
    }

    /// Notes the number that the node has announced with its heartbeats.
    pub(crate) fn set_announced(&self, node: NodeId, number: u64) -> Notice {
        let announced = match number {
            0 => Announced::Nothing,
            LEAVING => Announced::Leaving,
            version => Announced::Serves(version),
        };
        self.change(|peers| peers.set_announced(node, announced))
    }

    /// Whether the node is still down, so that clients are to be notified. Afterwards they count as notified.
    pub(crate) fn still_down(&self, node: NodeId) -> bool {
        self.change(|peers| peers.still_down(node))
    }

    /// The version that a node serves, if it counts as up for clients.
    pub(crate) fn served_version(&self, node: NodeId) -> Option<u64> {
        self.look(|peers| peers.served_version(node))
    }

    /// Reads the state.
    pub(crate) fn look<T>(&self, at: impl FnOnce(&Peers) -> T) -> T {
        at(&self.peers.lock())
    }

    /// A value that changes whenever a wait may be over.
    pub(crate) fn changes(&self) -> watch::Receiver<u64> {
        self.changes.subscribe()
    }

    fn change<T>(&self, change: impl FnOnce(&mut Peers) -> T) -> T {
        let mut peers = self.peers.lock();
        let outcome = change(&mut peers);
        let changes = peers.changes();
        drop(peers);
        self.changes.send_if_modified(|known| {
            let is_newer = *known < changes;
            *known = changes.max(*known);
            is_newer
        });
        outcome
    }
}
