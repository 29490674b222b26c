//! The nodes that are dialled, and counters of the frames received from each.
//!
//! Always true: a node is dialled at the newest address that the catalog or the node itself has named.

use super::dial::Dialler;
use super::options::{Notices, Observer, TcpOptions};
use super::pipe::Pipe;
use crate::Lane;
use crate::hello::Hello;
use ahash::AHashMap;
use arc_swap::ArcSwap;
use diorite_base::NodeId;
use parking_lot::Mutex;
use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;
use std::sync::atomic::AtomicU64;
use tokio::runtime::Handle;
use tokio::sync::watch;

/// Counters of frames received on one lane of one node.
#[derive(Debug, Default)]
pub(crate) struct Received {
    pub(crate) frames: AtomicU64,
    pub(crate) bytes: AtomicU64,
}

pub(crate) type ReceivedMap = Mutex<AHashMap<(NodeId, Lane), Arc<Received>>>;

/// The incarnation of each node whose connections were accepted last. Frames from a node are of that incarnation, or of
/// an earlier one.
#[derive(Debug, Default)]
pub struct Incarnations(Mutex<AHashMap<NodeId, u64>>);

impl Incarnations {
    /// The incarnation of a node; `None` if none of its connections was accepted yet.
    pub fn of(&self, node: NodeId) -> Option<u64> {
        self.0.lock().get(&node).copied()
    }

    pub(crate) fn set(&self, node: NodeId, incarnation: u64) {
        self.0.lock().insert(node, incarnation);
    }
}

/// Another node that this one dials.
pub(crate) struct Peer {
    /// The address that the last call of [`Peers::set`] gave.
    given: Mutex<SocketAddr>,
    address: watch::Sender<SocketAddr>,
    pub(crate) pipes: [Arc<Pipe>; Lane::COUNT],
}

pub(crate) type PeerMap = AHashMap<NodeId, Arc<Peer>>;

/// The nodes that are dialled.
pub(crate) struct Peers {
    pub(crate) options: Arc<TcpOptions>,
    observer: Arc<dyn Observer>,
    pub(crate) notices: Notices,
    pub(crate) runtime: Handle,
    pub(crate) map: ArcSwap<PeerMap>,
    /// Whether nobody is dialled any more. Held while the map changes, so that no concurrent change is lost.
    stopped: Mutex<bool>,
}

impl Peers {
    /// An empty set of nodes.
    pub(crate) fn new(options: Arc<TcpOptions>, observer: Arc<dyn Observer>, runtime: Handle) -> Self {
        let (notices, map, stopped) = (Notices::default(), ArcSwap::default(), Mutex::new(false));
        Self { options, observer, notices, runtime, map, stopped }
    }

    /// Dials exactly these nodes from now on, except this node itself.
    pub(crate) fn set(&self, wanted: &AHashMap<NodeId, SocketAddr>) {
        let stopped = self.stopped.lock();
        if *stopped {
            return;
        }
        let current = self.map.load_full();
        let mut next = PeerMap::default();
        for (node, address) in wanted.iter().filter(|(node, _)| **node != self.options.node) {
            let peer = match current.get(node) {
                Some(peer) => {
                    // Only a changed address is dialled: the node itself may have named a newer one meanwhile.
                    if std::mem::replace(&mut *peer.given.lock(), *address) != *address {
                        peer.move_to(*address);
                    }
                    Arc::clone(peer)
                }
                None => self.dial(*node, *address),
            };
            next.insert(*node, peer);
        }
        // The dialling of other nodes ends when the last reference to their address is dropped.
        self.map.store(Arc::new(next));
    }

    /// Ends all dialling, for good.
    pub(crate) fn stop(&self) {
        let mut stopped = self.stopped.lock();
        *stopped = true;
        self.map.store(Arc::default());
    }

    /// Whether a member has this address, as far as is known.
    pub(crate) fn is_member(&self, address: IpAddr) -> bool {
        let address = address.to_canonical();
        self.map.load().values().any(|peer| peer.address.borrow().ip().to_canonical() == address)
    }

    /// The node has dialled this one: it is up, at the address that it names.
    pub(crate) fn dialled_by(&self, hello: &Hello) {
        self.suggest(hello.from, hello.address);
        if let Some(peer) = self.map.load().get(&hello.from) {
            peer.pipes[hello.lane.index()].dial_now.notify_one();
        }
    }

    /// A newer address of the node is known.
    pub(crate) fn suggest(&self, node: NodeId, address: SocketAddr) {
        let stopped = self.stopped.lock();
        if *stopped {
            return;
        }
        let current = self.map.load_full();
        if let Some(peer) = current.get(&node) {
            peer.move_to(address);
            return;
        }
        let mut next = PeerMap::clone(&current);
        next.insert(node, self.dial(node, address));
        self.map.store(Arc::new(next));
    }

    fn dial(&self, to: NodeId, address: SocketAddr) -> Arc<Peer> {
        let sender = watch::Sender::new(address);
        let pipes = Lane::ALL.map(|lane| {
            let pipe = Arc::new(Pipe::new(self.options.buffer_bytes[lane.index()]));
            let (options, observer) = (Arc::clone(&self.options), Arc::clone(&self.observer));
            let dialler = Dialler::new(options, (observer, self.notices.clone()), to, lane, Arc::clone(&pipe));
            self.runtime.spawn(dialler.run(sender.subscribe()));
            pipe
        });
        Arc::new(Peer { given: Mutex::new(address), address: sender, pipes })
    }
}

impl Peer {
    fn move_to(&self, address: SocketAddr) {
        self.address.send_if_modified(|known| std::mem::replace(known, address) != address);
    }
}
