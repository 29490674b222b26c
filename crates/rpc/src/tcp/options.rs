//! What a node decides about its transport, and who is notified of its connections.

use crate::Lane;
use crate::hello::{Hello, Refusal};
use arc_swap::ArcSwap;
use diorite_base::{Clock, NodeId};
use diorite_certs::node::{NodeCredentials, covers};
use futures::future::BoxFuture;
use rustls::pki_types::CertificateDer;
use std::fmt;
use std::io;
use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;
use std::time::Duration;
use uuid::Uuid;

/// How long the other side may take to accept or refuse a connection.
pub(crate) const HANDSHAKE_TIMEOUT: Duration = Duration::from_secs(3);

/// Decides about connections from other nodes.
pub trait Gate: Send + Sync + 'static {
    /// Whether the dialler is who it says, as far as the catalog knows. Protocol version, cluster, clock and the address meant are right already.
    fn admit(&self, hello: &Hello) -> Result<(), Refusal>;

    /// Answers a question of `asker`, who need not be a member.
    fn answer(&self, asker: Asker, question: Vec<u8>) -> BoxFuture<'static, Result<Vec<u8>, Refusal>>;
}

/// Who asks a question.
#[derive(Clone, Debug)]
pub struct Asker {
    /// Where the question comes from.
    pub address: IpAddr,
    /// What it has shown, if connections are not open.
    pub(crate) certificate: Option<CertificateDer<'static>>,
}

impl Asker {
    /// Whether it may say that it is reached at `address`: its certificate covers it, or connections are open.
    pub fn may_be_at(&self, address: IpAddr) -> bool {
        self.certificate.as_ref().is_none_or(|certificate| covers(certificate, address))
    }
}

/// What a node shows and whom it trusts, replaced while it runs.
pub type Credentials = Arc<ArcSwap<NodeCredentials>>;

/// Is notified of the state of the connections to other nodes. Must not wait.
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
    /// TLS with all other nodes; `None`: connections are open.
    pub tls: Option<Credentials>,
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

/// What both ends want of a socket: no delays, and to notice a peer that is gone.
pub(crate) fn prepare(socket: &tokio::net::TcpStream) -> io::Result<()> {
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
