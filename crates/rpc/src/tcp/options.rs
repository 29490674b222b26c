//! The options of a node's transport, and the receivers of its notices about connections.

use crate::hello::{Hello, Refusal};
use crate::{ConnectionEvent, Lane, Receiver};
use arc_swap::ArcSwap;
use diorite_base::{Clock, NodeId};
use diorite_certs::node::{NodeCredentials, covers};
use futures::future::BoxFuture;
use rustls::pki_types::CertificateDer;
use std::fmt;
use std::io;
use std::net::{IpAddr, SocketAddr};
use std::sync::{Arc, OnceLock, Weak};
use std::time::Duration;
use uuid::Uuid;

/// How long the other side may take to accept or refuse a connection.
pub(crate) const HANDSHAKE_TIMEOUT: Duration = Duration::from_secs(3);

/// Decides about connections from other nodes.
pub trait Gate: Send + Sync + 'static {
    /// Whether the dialling node is the one that it claims to be, according to the catalog. Protocol version, cluster,
    /// clock and destination have been checked before, and that its certificate covers the address of its hello.
    fn admit(&self, hello: &Hello, asker: &Asker) -> Result<(), Refusal>;

    /// Answers a question of `asker`, who need not be a member.
    fn answer(&self, asker: Asker, question: Vec<u8>) -> BoxFuture<'static, Result<Vec<u8>, Refusal>>;
}

/// Who asks a question, or dials.
#[derive(Clone, Debug)]
pub struct Asker {
    /// Where the connection comes from.
    pub address: IpAddr,
    /// What it has shown, if connections are not open.
    pub(crate) certificate: Option<CertificateDer<'static>>,
}

impl Asker {
    /// Whether it has shown a certificate; it has none to show if connections are open.
    pub fn has_certificate(&self) -> bool {
        self.certificate.is_some()
    }

    /// Whether it may say that it is reached at `address`: its certificate covers it, or connections are open.
    pub fn may_be_at(&self, address: IpAddr) -> bool {
        self.certificate.as_ref().is_none_or(|certificate| covers(certificate, address))
    }
}

/// What a node shows and whom it trusts, replaced while it runs.
pub type Credentials = Arc<ArcSwap<NodeCredentials>>;

/// Receives the state of the connections to other nodes. Must not wait.
pub trait Observer: Send + Sync + 'static {
    /// Frames can be sent on a lane.
    fn connected(&self, to: NodeId, lane: Lane);
    /// Frames can no longer be sent on a lane; the last ones may not have arrived.
    fn disconnected(&self, to: NodeId, lane: Lane);
    /// Another node refuses this one, for a reason that it has not given before on this lane. It is dialled again
    /// nevertheless.
    fn refused(&self, by: NodeId, lane: Lane, refusal: &Refusal);
    /// The node cannot be reached. Called once, until the node has been reached again.
    fn unreachable(&self, node: NodeId, lane: Lane, error: &io::Error);
}

/// The receiver of frames, for events of the connections that this node dials. Until the transport listens there is none.
#[derive(Clone, Default)]
pub(crate) struct Notices(Arc<OnceLock<Weak<dyn Receiver>>>);

impl Notices {
    /// Sets the receiver, once. It is not kept alive: it may own the transport.
    pub(crate) fn set(&self, receiver: &Arc<dyn Receiver>) {
        // A transport listens once.
        let _ = self.0.set(Arc::downgrade(receiver));
    }

    pub(crate) fn send(&self, node: NodeId, lane: Lane, event: ConnectionEvent<'_>) {
        if let Some(receiver) = self.0.get().and_then(Weak::upgrade) {
            receiver.connection(node, lane, event);
        }
    }
}

/// The options of a node's transport.
#[derive(Clone)]
pub struct TcpOptions {
    /// The node's cluster.
    pub cluster: Uuid,
    /// This node.
    pub node: NodeId,
    /// The host id of this node.
    pub host: Uuid,
    /// Differs with each start of the process.
    pub incarnation: u64,
    /// The local address of connections to other nodes; any if there is none.
    pub bind: Option<IpAddr>,
    /// The address at which other nodes dial this one.
    pub advertise: SocketAddr,
    /// How far the wall clocks of two nodes may differ.
    pub max_clock_skew: Duration,
    /// Bytes that may wait to be sent to a node, for each lane (by [`Lane::index`]).
    pub buffer_bytes: [usize; Lane::COUNT],
    /// How long an accepted connection may take to send its hello.
    pub opening_timeout: Duration,
    /// TLS with all other nodes; `None`: connections are open.
    pub tls: Option<Credentials>,
    /// Time.
    pub clock: Arc<dyn Clock>,
    /// Seeds the jitter of redialling.
    pub seed: u64,
}

impl TcpOptions {
    /// The default of `max_clock_skew`.
    pub const MAX_CLOCK_SKEW: Duration = Duration::from_millis(500);

    /// The default of `opening_timeout`: a hello needs one way across the network.
    pub const OPENING_TIMEOUT: Duration = Duration::from_secs(3);

    /// Raft 64 MiB, the others 16 MiB.
    pub const BUFFER_BYTES: [usize; Lane::COUNT] = [16 << 20, 64 << 20, 16 << 20, 16 << 20, 16 << 20];
}

impl fmt::Debug for TcpOptions {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "TcpOptions({} of {}, incarnation {:x})", self.node, self.cluster, self.incarnation)
    }
}

/// Statistics of one lane of one node since the process started.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct LaneStatistics {
    /// Whether frames can be sent on it now.
    pub connected: bool,
    /// Frames sent or queued.
    pub frames_sent: u64,
    /// The bytes of these frames, with headers.
    pub bytes_sent: u64,
    /// Frames that were not sent: the lane was down or its buffer full.
    pub frames_dropped: u64,
    /// How often the lane was connected again.
    pub reconnects: u64,
    /// Bytes waiting to be sent now.
    pub bytes_waiting: u64,
    /// Frames received.
    pub frames_received: u64,
    /// The bytes of these frames, with headers.
    pub bytes_received: u64,
}

/// Sets the options that both ends need: no delays, and prompt notice of a peer that is gone.
pub(crate) fn prepare(socket: &tokio::net::TcpStream) -> io::Result<()> {
    // A connection ends if bytes are unacknowledged for this long: after a partition, a new connection continues sooner
    // than the old one's retransmissions, whose intervals have grown with the partition.
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
