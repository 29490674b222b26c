//! The network: one TCP connection per lane and direction, dialled by the node that sends.
//!
//! A node dials every peer once per lane ([`dial`]) and accepts what others dial ([`accept`]). The thread that sends writes to the socket
//! itself when nothing waits; what the socket does not take goes to a buffer that the connection's task drains ([`pipe`]).
//!
//! Always true: a lane has at most one connection that is read, so frames of an older one never mix with those of its successor; a
//! connection that is refused is told why; the buffers are bounded in bytes, and so are the connections that have yet to say who they are.

mod accept;
mod dial;
mod handshakes;
mod pipe;
#[cfg(test)]
mod tests;

pub use dial::{Caller, DialError, ask};

use crate::hello::{Hello, Refusal};
use crate::{Lane, MAX_FRAME_BYTES, Receiver, SendError, Transport};
use ahash::AHashMap;
use arc_swap::ArcSwap;
use diorite_base::{Clock, NodeId};
use futures::future::BoxFuture;
use parking_lot::Mutex;
use pipe::Pipe;
use std::fmt;
use std::io;
use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;
use tokio::net::TcpListener;
use tokio::runtime::Handle;
use tokio::sync::watch;
use uuid::Uuid;

/// How long the other side may take to accept or refuse a connection.
const HANDSHAKE_PATIENCE: Duration = Duration::from_secs(3);

/// Decides about connections from other nodes.
pub trait Gate: Send + Sync + 'static {
    /// Whether the dialler is who it says, as far as the catalog knows. Protocol version, cluster, clock and the address meant are right already.
    fn admit(&self, hello: &Hello) -> Result<(), Refusal>;

    /// Answers a question from `from`, who need not be a member.
    fn answer(&self, from: IpAddr, question: Vec<u8>) -> BoxFuture<'static, Result<Vec<u8>, Refusal>>;
}

/// Hears how the connections to other nodes are. Must not wait.
pub trait Observer: Send + Sync + 'static {
    /// A lane can be sent on.
    fn connected(&self, to: NodeId, lane: Lane);
    /// A lane can no longer be sent on; what was sent last may not have arrived.
    fn disconnected(&self, to: NodeId, lane: Lane);
    /// Another node refuses us, for a reason that it has not given before on this lane. It is asked again all the same.
    fn refused(&self, by: NodeId, lane: Lane, refusal: &Refusal);
    /// The node cannot be reached: told once, until it has been.
    fn unreachable(&self, node: NodeId, lane: Lane, error: &io::Error);
}

/// What a node decides about its transport.
#[derive(Clone)]
pub struct TcpOptions {
    /// The node's cluster.
    pub cluster: Uuid,
    /// This node.
    pub node: NodeId,
    /// This node, as clients see it.
    pub host: Uuid,
    /// Differs with each start of the process.
    pub incarnation: u64,
    /// The address that connections to other nodes come from; any if there is none.
    pub bind: Option<IpAddr>,
    /// Where other nodes dial this one.
    pub advertise: SocketAddr,
    /// How far the wall clocks of two nodes may be apart.
    pub max_clock_skew: Duration,
    /// Bytes that may wait to be sent to a node, for each lane (by [`Lane::index`]).
    pub buffer_bytes: [usize; Lane::COUNT],
    /// How long whoever connects may take to say who it is.
    pub opening_timeout: Duration,
    /// Time.
    pub clock: Arc<dyn Clock>,
    /// Seeds the jitter of redialling.
    pub seed: u64,
}

impl TcpOptions {
    /// Wall clocks of two nodes may be so far apart, unless told otherwise.
    pub const MAX_CLOCK_SKEW: Duration = Duration::from_millis(500);

    /// A hello takes one way on the network.
    pub const OPENING_TIMEOUT: Duration = Duration::from_secs(3);

    /// Raft 64 MiB, the others 16 MiB.
    pub const BUFFER_BYTES: [usize; Lane::COUNT] = [16 << 20, 64 << 20, 16 << 20, 16 << 20, 16 << 20];
}

impl fmt::Debug for TcpOptions {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "TcpOptions({} of {}, incarnation {:x})", self.node, self.cluster, self.incarnation)
    }
}

/// What one lane from or to one node has carried since the process started.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct LaneStatistics {
    /// Whether it can be sent on now.
    pub connected: bool,
    /// Frames sent or queued.
    pub frames_sent: u64,
    /// Their bytes, with headers.
    pub bytes_sent: u64,
    /// Frames refused to the sender: the lane was down or its buffer full.
    pub frames_dropped: u64,
    /// Times the lane was connected, but for the first.
    pub reconnects: u64,
    /// Bytes waiting to be sent now.
    pub bytes_waiting: u64,
    /// Frames received.
    pub frames_received: u64,
    /// Their bytes, with headers.
    pub bytes_received: u64,
}

/// Counters of what arrived on one lane of one node.
#[derive(Debug, Default)]
pub(crate) struct Received {
    pub(crate) frames: AtomicU64,
    pub(crate) bytes: AtomicU64,
}

pub(crate) type ReceivedMap = Mutex<AHashMap<(NodeId, Lane), Arc<Received>>>;

/// Another node, as dialled.
struct Peer {
    /// The last address that it was given by [`TcpTransport::set_peers`].
    given: Mutex<SocketAddr>,
    address: watch::Sender<SocketAddr>,
    pipes: [Arc<Pipe>; Lane::COUNT],
}

type PeerMap = AHashMap<NodeId, Arc<Peer>>;

/// The nodes that are dialled.
struct Peers {
    options: Arc<TcpOptions>,
    observer: Arc<dyn Observer>,
    runtime: Handle,
    map: ArcSwap<PeerMap>,
    /// Held while the map changes, so that two changes do not lose each other.
    changing: Mutex<()>,
}

impl Peers {
    fn set(&self, wanted: &AHashMap<NodeId, SocketAddr>) {
        let _changing = self.changing.lock();
        let current = self.map.load_full();
        let mut next = PeerMap::default();
        for (node, address) in wanted.iter().filter(|(node, _)| **node != self.options.node) {
            let peer = match current.get(node) {
                Some(peer) => {
                    // Said again, it is no news: the node itself may have told a newer address meanwhile.
                    if std::mem::replace(&mut *peer.given.lock(), *address) != *address {
                        peer.move_to(*address);
                    }
                    Arc::clone(peer)
                }
                None => self.dial(*node, *address),
            };
            next.insert(*node, peer);
        }
        // Those that are left out end when the last reference to their address goes.
        self.map.store(Arc::new(next));
    }

    /// Whether a member is said to be at this address.
    fn is_member(&self, address: IpAddr) -> bool {
        let address = address.to_canonical();
        self.map.load().values().any(|peer| peer.address.borrow().ip().to_canonical() == address)
    }

    /// The node has dialled us: it is there, and where it says.
    fn heard_of(&self, hello: &Hello) {
        self.suggest(hello.from, hello.address);
        if let Some(peer) = self.map.load().get(&hello.from) {
            peer.pipes[hello.lane.index()].dial_now.notify_one();
        }
    }

    /// The node is said to be there.
    fn suggest(&self, node: NodeId, address: SocketAddr) {
        let _changing = self.changing.lock();
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
            let dialler = dial::Dialler::new(options, observer, to, lane, Arc::clone(&pipe));
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

/// Sends to, and receives from, the other nodes of a cluster over TCP. Dropping it ends its connections.
pub struct TcpTransport {
    peers: Arc<Peers>,
    received: Arc<ReceivedMap>,
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
        let (map, changing) = (ArcSwap::default(), Mutex::new(()));
        let peers = Peers { options: Arc::new(options), observer, runtime, map, changing };
        Self { peers: Arc::new(peers), received: Arc::default(), stop: watch::Sender::new(false) }
    }

    /// Accepts connections from now on and hands what they bring to `receiver`. Who is let in is dialled as well.
    pub fn listen(&self, listener: TcpListener, receiver: Arc<dyn Receiver>, gate: Arc<dyn Gate>) {
        let (peers, received) = (Arc::clone(&self.peers), Arc::clone(&self.received));
        let listening = accept::Listening::new(Arc::clone(&peers.options), receiver, gate, peers, received);
        self.peers.runtime.spawn(accept::run(listener, Arc::new(listening), self.stop.subscribe()));
    }

    /// Dials exactly these from now on; this node itself may be among them. An address that differs from the one given before is dialled
    /// anew; until then, what a node has said about itself by dialling us counts.
    pub fn set_peers(&self, wanted: &AHashMap<NodeId, SocketAddr>) {
        self.peers.set(wanted);
    }

    /// Dials `node` at `address`, which is newer than what [`TcpTransport::set_peers`] was given.
    pub fn suggest(&self, node: NodeId, address: SocketAddr) {
        self.peers.suggest(node, address);
    }

    /// Whether `lane` to `to` can be sent on.
    pub fn is_connected(&self, to: NodeId, lane: Lane) -> bool {
        self.peers.map.load().get(&to).is_some_and(|peer| peer.pipes[lane.index()].is_connected())
    }

    /// What each lane of each node that was sent to or received from has carried, ordered.
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
        self.set_peers(&AHashMap::new());
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

    /// All or none of them are queued.
    fn send_many(&self, to: NodeId, lane: Lane, frames: &[&[u8]]) -> Result<(), SendError> {
        if frames.iter().any(|frame| frame.len() > MAX_FRAME_BYTES) {
            return Err(SendError::Full);
        }
        let peers = self.peers.map.load();
        let peer = peers.get(&to).ok_or(SendError::Down)?;
        peer.pipes[lane.index()].send(frames)
    }
}

/// What both ends want of a socket: no delays, and to notice a peer that is gone.
fn prepare(socket: &tokio::net::TcpStream) -> io::Result<()> {
    // Unacknowledged for so long, the connection is given up: after a partition, a new one carries on sooner than the old one's
    // retransmissions, whose gaps have grown with the partition.
    const GIVE_UP: Duration = Duration::from_secs(3);
    let keepalive = socket2::TcpKeepalive::new()
        .with_time(Duration::from_secs(5))
        .with_interval(Duration::from_secs(5))
        .with_retries(3);
    let reference = socket2::SockRef::from(socket);
    reference.set_tcp_nodelay(true)?;
    reference.set_tcp_keepalive(&keepalive)?;
    reference.set_tcp_user_timeout(Some(GIVE_UP))
}
