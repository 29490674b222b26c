//! The network: one TCP connection per lane and direction, dialled by the node that sends.
//!
//! A node dials every peer once per lane ([`dial`]) and accepts connections that others dial ([`accept`]). The thread
//! that sends writes to the socket itself if nothing waits; bytes that the socket does not accept go to a buffer that
//! the connection's task drains ([`pipe`]). With certificates, both ends of a connection run TLS 1.3 on the socket
//! ([`dialled`], [`accepted`]).
//!
//! Always true: at most one connection of a lane is read, so frames of an older connection never mix with those of its
//! successor; a node whose connection is refused receives the reason; the buffers are bounded in bytes, and the number
//! of connections without a complete handshake is bounded.

mod accept;
mod accepted;
mod dial;
mod dialled;
mod handshakes;
mod options;
mod peers;
mod pipe;
#[cfg(test)]
mod tests;

pub use dial::{Caller, DialError, ask};
pub use options::{Asker, Credentials, Gate, LaneStatistics, Observer, TcpOptions};

use crate::{Lane, MAX_FRAME_BYTES, Receiver, SendError, Transport};
use ahash::AHashMap;
use diorite_base::{Level, Levels, NodeId};
pub use peers::Incarnations;
use peers::{Peers, ReceivedMap};
use std::fmt;
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use tokio::net::TcpListener;
use tokio::runtime::Handle;
use tokio::sync::watch;

/// Sends to, and receives from, the other nodes of a cluster over TCP. Dropping it ends its connections.
pub struct TcpTransport {
    peers: Arc<Peers>,
    received: Arc<ReceivedMap>,
    incarnations: Arc<Incarnations>,
    stop: watch::Sender<bool>,
}

impl fmt::Debug for TcpTransport {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "TcpTransport({:?}, {} peers)", self.peers.options, self.peers.map.load().len())
    }
}

impl TcpTransport {
    /// A transport without peers; its tasks run on `runtime`.
    pub fn new(options: TcpOptions, observer: Arc<dyn Observer>, runtime: Handle) -> Self {
        let peers = Peers::new(Arc::new(options), observer, runtime);
        Self {
            peers: Arc::new(peers),
            received: Arc::default(),
            incarnations: Arc::default(),
            stop: watch::Sender::new(false),
        }
    }

    /// Accepts connections from now on, and passes their frames to `receiver`. Nodes that are admitted are dialled as
    /// well.
    pub fn listen(&self, listener: TcpListener, receiver: Arc<dyn Receiver>, gate: Arc<dyn Gate>) {
        self.peers.notices.set(&receiver);
        let (peers, received) = (Arc::clone(&self.peers), Arc::clone(&self.received));
        let incarnations = Arc::clone(&self.incarnations);
        let listening = accept::Listening::new(receiver, gate, peers, received, incarnations);
        self.peers.runtime.spawn(accept::run(listener, Arc::new(listening), self.stop.subscribe()));
    }

    /// Dials exactly these nodes from now on; this node itself may be among them. An address that differs from the one
    /// given in the last call is dialled anew; until then, the address that a node named when it dialled this one is
    /// used.
    pub fn set_peers(&self, wanted: &AHashMap<NodeId, SocketAddr>) {
        self.peers.set(wanted);
    }

    /// Dials `node` at `address`, which is newer than the one that [`TcpTransport::set_peers`] was given.
    pub fn suggest(&self, node: NodeId, address: SocketAddr) {
        self.peers.suggest(node, address);
    }

    /// The incarnations of the other nodes whose connections were accepted last.
    pub fn incarnations(&self) -> &Arc<Incarnations> {
        &self.incarnations
    }

    /// Whether a frame can be sent to `to` on `lane` now.
    pub fn is_connected(&self, to: NodeId, lane: Lane) -> bool {
        self.peers.map.load().get(&to).is_some_and(|peer| peer.pipes[lane.index()].is_connected())
    }

    /// The statistics of each lane of each node that frames were sent to or received from, ordered.
    pub fn statistics(&self) -> Vec<(NodeId, Lane, LaneStatistics)> {
        let mut found: AHashMap<(NodeId, Lane), LaneStatistics> = AHashMap::new();
        for (node, peer) in self.peers.map.load().iter() {
            for lane in Lane::ALL {
                found.insert((*node, lane), peer.pipes[lane.index()].statistics());
            }
        }
        for (from, received) in self.received.lock().iter() {
            let lane = found.entry(*from).or_default();
            lane.frames_received = received.frames.load(Ordering::Relaxed);
            lane.bytes_received = received.bytes.load(Ordering::Relaxed);
        }
        let mut found: Vec<_> = found.into_iter().map(|((node, lane), lanes)| (node, lane, lanes)).collect();
        found.sort_unstable_by_key(|(node, lane, _)| (*node, *lane));
        found
    }

    /// Ends all connections; nothing is sent or received any more.
    pub fn stop(&self) {
        self.stop.send_replace(true);
        self.peers.stop();
    }
}

impl Drop for TcpTransport {
    fn drop(&mut self) {
        self.stop();
    }
}

impl Transport for TcpTransport {
    fn send(&self, to: NodeId, lane: Lane, frame: &[u8]) -> Result<(), SendError> {
        self.send_many(to, lane, &[frame])
    }

    /// Queues all frames, or none.
    fn send_many(&self, to: NodeId, lane: Lane, frames: &[&[u8]]) -> Result<(), SendError> {
        if frames.iter().any(|frame| frame.len() > MAX_FRAME_BYTES) {
            return Err(SendError::Full);
        }
        let peers = self.peers.map.load();
        let peer = peers.get(&to).ok_or(SendError::Down)?;
        peer.pipes[lane.index()].send(frames)
    }

    /// Without a connection nothing is said, so that this node's own level does no harm.
    fn level(&self, to: NodeId, lane: Lane) -> Level {
        let peers = self.peers.map.load();
        let pipe = peers.get(&to).map(|peer| &peer.pipes[lane.index()]).filter(|pipe| pipe.is_connected());
        pipe.map_or(Levels::OWN.greatest, |pipe| pipe.level().min(Levels::OWN.greatest))
    }
}
