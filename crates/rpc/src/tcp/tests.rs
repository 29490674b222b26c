//! Nodes of one process on loopback sockets: order, loss, refusals, limits.

mod closed;
mod ended;
mod tls;

use super::*;
use crate::frame::put_frame;
use crate::hello::{Hello, MAX_OPENING_BYTES, Opening, PROTOCOL_VERSION, Refusal, RefusalKind, preamble};
use crate::{ConnectionEvent, Receiver};
use diorite_base::{Clock, Levels, SystemClock};
use futures::FutureExt;
use futures::future::BoxFuture;
use parking_lot::Mutex;
use std::io;
use std::sync::atomic::{AtomicI64, AtomicU64};
use std::time::Duration;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::time::timeout;
use uuid::Uuid;

const CLUSTER: Uuid = Uuid::from_u128(0xC1);
const CONNECTED: &str = "connected";
const LIMIT: Duration = Duration::from_secs(60);

/// The machine's clock with a wrong wall time.
struct Skewed(SystemClock, AtomicI64);

impl Clock for Skewed {
    fn monotonic_ns(&self) -> u64 {
        self.0.monotonic_ns()
    }

    fn wall_us(&self) -> i64 {
        self.0.wall_us() + self.1.load(Ordering::Relaxed)
    }
}

/// A node, a lane, what happened to the connection, and the bodies that were not sent.
type Connection = (NodeId, Lane, &'static str, Vec<Vec<u8>>);

/// Keeps everything that it receives.
#[derive(Default)]
struct Ear {
    frames: Mutex<Vec<(NodeId, Lane, Vec<u8>)>>,
    /// Whether only the lengths are kept.
    lengths: Mutex<Vec<usize>>,
    events: Mutex<Vec<String>>,
    refusals: Mutex<Vec<Refusal>>,
    /// The host that is refused.
    unwanted: Mutex<Option<Uuid>>,
    /// Events of connections, each with the frames that were certainly not sent.
    connections: Mutex<Vec<Connection>>,
    /// A test holds this to keep the receiver busy.
    busy: Mutex<()>,
}

impl Receiver for Ear {
    fn receive(&self, from: NodeId, lane: Lane, frame: &[u8]) {
        let _busy = self.busy.lock();
        self.lengths.lock().push(frame.len());
        if frame.len() < 1_000 {
            self.frames.lock().push((from, lane, frame.to_vec()));
        }
    }

    fn connection(&self, node: NodeId, lane: Lane, event: ConnectionEvent<'_>) {
        let (what, unsent) = match event {
            ConnectionEvent::OutgoingBegan => ("out", Vec::new()),
            ConnectionEvent::OutgoingEnded { unsent } => {
                ("out ended", unsent.iter().map(|body| body.to_vec()).collect())
            }
            ConnectionEvent::IncomingBegan => ("in", Vec::new()),
            ConnectionEvent::IncomingEnded => ("in ended", Vec::new()),
        };
        self.connections.lock().push((node, lane, what, unsent));
    }
}

impl Gate for Ear {
    fn admit(&self, hello: &Hello, _asker: &Asker) -> Result<(), Refusal> {
        match *self.unwanted.lock() {
            Some(host) if host == hello.host => Err(Refusal::new(RefusalKind::Duplicate, "not that host")),
            _ => Ok(()),
        }
    }

    fn answer(&self, _asker: Asker, question: Vec<u8>) -> BoxFuture<'static, Result<Vec<u8>, Refusal>> {
        async move {
            match question.as_slice() {
                b"may I?" => Ok(b"you may".to_vec()),
                _ => Err(Refusal::new(RefusalKind::Other, "you may not")),
            }
        }
        .boxed()
    }
}

impl Observer for Ear {
    fn connected(&self, to: NodeId, lane: Lane) {
        self.events.lock().push(format!("{CONNECTED} {to} {}", lane.name()));
    }

    fn disconnected(&self, to: NodeId, lane: Lane) {
        self.events.lock().push(format!("disconnected {to} {}", lane.name()));
    }

    fn refused(&self, _by: NodeId, _lane: Lane, refusal: &Refusal) {
        self.refusals.lock().push(refusal.clone());
    }

    fn unreachable(&self, to: NodeId, lane: Lane, _error: &io::Error) {
        self.events.lock().push(format!("unreachable {to} {}", lane.name()));
    }
}

struct Node {
    transport: TcpTransport,
    ear: Arc<Ear>,
    address: SocketAddr,
}

fn options(node: u64) -> TcpOptions {
    TcpOptions {
        cluster: CLUSTER,
        node: NodeId(node),
        host: Uuid::from_u128(node.into()),
        incarnation: node,
        bind: None,
        advertise: "127.0.0.1:1".parse().unwrap(),
        max_clock_skew: TcpOptions::MAX_CLOCK_SKEW,
        buffer_bytes: TcpOptions::BUFFER_BYTES,
        opening_timeout: TcpOptions::OPENING_TIMEOUT,
        tls: None,
        clock: Arc::new(SystemClock::new()),
        seed: node,
    }
}

impl Node {
    async fn start(options: TcpOptions) -> Self {
        Self::start_on("127.0.0.1:0".parse().unwrap(), options).await
    }

    async fn start_on(address: SocketAddr, options: TcpOptions) -> Self {
        let (node, listener) = Self::bind(address, options);
        node.listen(listener);
        node
    }

    /// A node that does not accept connections yet.
    fn bind(address: SocketAddr, mut options: TcpOptions) -> (Self, tokio::net::TcpListener) {
        let socket = tokio::net::TcpSocket::new_v4().unwrap();
        socket.set_reuseaddr(true).unwrap();
        socket.bind(address).unwrap();
        let listener = socket.listen(64).unwrap();
        let address = listener.local_addr().unwrap();
        options.advertise = address;
        let ear = Arc::new(Ear::default());
        let observer = Arc::clone(&ear) as Arc<dyn Observer>;
        let transport = TcpTransport::new(options, observer, Handle::current());
        (Self { transport, ear, address }, listener)
    }

    fn listen(&self, listener: tokio::net::TcpListener) {
        let (receiver, gate) = (Arc::clone(&self.ear) as Arc<dyn Receiver>, Arc::clone(&self.ear) as Arc<dyn Gate>);
        self.transport.listen(listener, receiver, gate);
    }

    fn dial(&self, nodes: &[(u64, SocketAddr)]) {
        self.transport.set_peers(&nodes.iter().map(|(node, address)| (NodeId(*node), *address)).collect());
    }

    async fn connected(&self, to: u64) {
        until(|| Lane::ALL.iter().all(|lane| self.transport.is_connected(NodeId(to), *lane))).await;
        assert_eq!(self.transport.level(NodeId(to), Lane::Raft), Levels::OWN.greatest);
    }

    fn numbers(&self) -> Vec<u64> {
        let frames = self.ear.frames.lock();
        frames.iter().filter_map(|(_, _, frame)| Some(u64::from_le_bytes(frame.as_slice().try_into().ok()?))).collect()
    }
}

async fn until(condition: impl Fn() -> bool) {
    let waiting = async {
        while !condition() {
            let _ = timeout(Duration::from_millis(2), std::future::pending::<()>()).await;
        }
    };
    assert!(timeout(LIMIT, waiting).await.is_ok(), "what is waited for does not happen");
}

async fn two() -> (Node, Node) {
    let (a, b) = (Node::start(options(1)).await, Node::start(options(2)).await);
    a.dial(&[(1, a.address), (2, b.address)]);
    a.connected(2).await;
    (a, b)
}

/// Dials a new listener with `dialler`'s options; returns the refusal.
async fn refusal_of(dialler: TcpOptions, prepare: impl FnOnce(&Node)) -> Refusal {
    let listener = Node::start(options(2)).await;
    prepare(&listener);
    let dialler = Node::start(dialler).await;
    dialler.dial(&[(2, listener.address)]);
    until(|| dialler.ear.refusals.lock().len() >= Lane::COUNT).await;
    // Each lane reports the refusal once, however often it dials. Only a refusal because of clocks may be reported
    // again, if its answer took long on a busy machine.
    let _ = timeout(Duration::from_millis(300), std::future::pending::<()>()).await;
    let refusals = dialler.ear.refusals.lock();
    let may_be_repeated = refusals[0].kind == RefusalKind::Clock;
    assert!(may_be_repeated || refusals.len() == Lane::COUNT, "{refusals:?}");
    assert!(!dialler.ear.events.lock().iter().any(|event| event.starts_with(CONNECTED)));
    refusals[0].clone()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn frames_arrive_in_order_on_each_lane() {
    let (a, b) = two().await;
    for n in 0..50_000u64 {
        a.transport.send(NodeId(2), Lane::ALL[n as usize % Lane::COUNT], &n.to_le_bytes()).unwrap();
    }
    until(|| b.ear.lengths.lock().len() == 50_000).await;
    for lane in Lane::ALL {
        let frames = b.ear.frames.lock();
        let of_lane: Vec<_> = frames.iter().filter(|(_, of, _)| *of == lane).map(|(_, _, frame)| frame).collect();
        let expected: Vec<_> =
            (lane.index() as u64..50_000).step_by(Lane::COUNT).map(|n| n.to_le_bytes().to_vec()).collect();
        assert!(of_lane.into_iter().eq(&expected), "{lane:?}");
        assert!(frames.iter().all(|(from, _, _)| *from == NodeId(1)));
    }
    let statistics = a.transport.statistics();
    assert_eq!(statistics.len(), Lane::COUNT);
    assert!(statistics.iter().all(|(_, _, lane)| lane.connected && lane.frames_sent == 10_000 && lane.reconnects == 0));
    let received = b.transport.statistics();
    assert!(received.iter().all(|(from, _, lane)| *from == NodeId(1) && lane.bytes_received == 10_000 * 16));
    // A node that has dialled is dialled in return.
    b.connected(1).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn several_frames_travel_together_and_large_ones_whole() {
    let (a, b) = two().await;
    let (small, large) = (vec![1; 300], vec![2; 20 << 20]);
    a.transport.send_many(NodeId(2), Lane::Raft, &[&small, &large, &[], &small]).unwrap();
    until(|| b.ear.lengths.lock().len() == 4).await;
    assert_eq!(*b.ear.lengths.lock(), [300, 20 << 20, 0, 300]);
    let over = vec![0; MAX_FRAME_BYTES + 1];
    assert_eq!(a.transport.send(NodeId(2), Lane::Raft, &over), Err(SendError::Full));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_peer_that_comes_back_is_dialled_again_and_frames_are_lost_but_never_repeated() {
    let (a, b) = two().await;
    let mut n = 0u64;
    let mut send = |count: u64| {
        for _ in 0..count {
            // While the peer is gone nothing can be sent, so these numbers are lost.
            let _ = a.transport.send(NodeId(2), Lane::Raft, &n.to_le_bytes());
            n += 1;
        }
        n
    };
    send(1_000);
    until(|| b.numbers().len() == 1_000).await;
    let address = b.address;
    b.transport.stop();
    // The peer must have been dialled while it was gone: only then it was unreachable.
    until(|| a.ear.events.lock().iter().any(|event| event == "unreachable n2 raft")).await;
    let before = send(1_000);
    let b = Node::start_on(address, TcpOptions { incarnation: 22, ..options(2) }).await;
    a.connected(2).await;
    let last = send(1_000) - 1;
    until(|| b.numbers().last() == Some(&last)).await;
    let numbers = b.numbers();
    assert!(numbers.is_sorted_by(|one, next| one < next), "in order, each once");
    assert!(numbers[0] >= before, "what was sent before is lost");
    let raft = a.transport.statistics()[1].2;
    assert_eq!(raft.reconnects, 1);
    assert!(raft.frames_dropped >= 1_000);
    let events = a.ear.events.lock();
    let of_lane: Vec<_> = events.iter().filter_map(|event| event.strip_suffix(" n2 raft")).collect();
    assert_eq!(of_lane, [CONNECTED, "disconnected", "unreachable", CONNECTED]);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_peer_may_move_and_may_be_removed() {
    let (a, b) = two().await;
    // Each connection from the first one names its address, which must not come after that of the one that has moved.
    b.connected(1).await;
    b.transport.stop();
    until(|| std::net::TcpStream::connect(b.address).is_err()).await;
    let moved = Node::start(TcpOptions { incarnation: 22, ..options(2) }).await;
    a.dial(&[(2, moved.address)]);
    // A lane may have been connected to the first one once more before that had closed its listener.
    until(|| {
        for lane in Lane::ALL {
            let _ = a.transport.send(NodeId(2), lane, b"here");
        }
        let frames = moved.ear.frames.lock();
        Lane::ALL.iter().all(|lane| frames.iter().any(|(_, of, _)| of == lane))
    })
    .await;
    assert!(a.transport.statistics().iter().all(|(_, _, lane)| lane.reconnects >= 1));
    a.dial(&[]);
    assert_eq!(a.transport.send(NodeId(2), Lane::Raft, b"gone"), Err(SendError::Down));
    let count = |what: &str| a.ear.events.lock().iter().filter(|event| event.starts_with(what)).count();
    until(|| count(CONNECTED) >= 2 * Lane::COUNT && count("disconnected") == count(CONNECTED)).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_slow_reader_fills_a_bounded_buffer_and_does_not_hold_the_sender() {
    let buffer_bytes = [1 << 20; Lane::COUNT];
    let a = Node::start(TcpOptions { buffer_bytes, ..options(1) }).await;
    let b = Node::start(options(2)).await;
    a.dial(&[(2, b.address)]);
    a.connected(2).await;
    let busy = b.ear.busy.lock();
    let frame = vec![7; 100_000];
    let mut sent = 0;
    // The sockets' own buffers take some megabytes as well. The test fails by the bound of the loop, not by time.
    let full = loop {
        match a.transport.send(NodeId(2), Lane::Requests, &frame) {
            Ok(()) => sent += 1,
            Err(error) => break error,
        }
        assert!(sent < 10_000, "a gigabyte is queued");
    };
    assert_eq!(full, SendError::Full);
    assert!(a.transport.statistics()[2].2.bytes_waiting <= 1 << 20);
    // Other lanes are not delayed. (The receiver is, so only the sending end is checked.)
    a.transport.send(NodeId(2), Lane::Control, b"heartbeat").unwrap();
    assert_eq!(a.transport.statistics()[0].2.bytes_waiting, 0);
    drop(busy);
    until(|| b.ear.lengths.lock().len() == sent + 1).await;
    assert_eq!(a.transport.statistics()[2].2.bytes_waiting, 0);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn another_cluster_is_refused() {
    let refusal = refusal_of(TcpOptions { cluster: Uuid::from_u128(0xC2), ..options(1) }, |_| ()).await;
    assert_eq!(refusal.kind, RefusalKind::Cluster);
    assert!(refusal.reason.contains("it belongs to cluster 00000000-0000-0000-0000-0000000000c1"), "{refusal}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_clock_that_is_off_is_refused() {
    let clock = Arc::new(Skewed(SystemClock::new(), AtomicI64::new(-2_000_000)));
    let refusal = refusal_of(TcpOptions { clock, ..options(1) }, |_| ()).await;
    assert_eq!(refusal.kind, RefusalKind::Clock);
    assert!(refusal.reason.contains("ms apart, at most 500 ms"), "{refusal}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn whom_the_gate_turns_away_is_refused() {
    let host = options(1).host;
    let refusal = refusal_of(options(1), |listener| *listener.ear.unwanted.lock() = Some(host)).await;
    assert_eq!(refusal, Refusal::new(RefusalKind::Duplicate, "not that host"));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_address_that_changed_hands_is_noticed() {
    let (a, b) = (Node::start(options(1)).await, Node::start(options(2)).await);
    a.dial(&[(3, b.address)]);
    until(|| !a.ear.refusals.lock().is_empty()).await;
    assert_eq!(a.ear.refusals.lock()[0], Refusal::new(RefusalKind::Misdirected, "it is node n2, not n3"));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_second_process_with_the_same_id_is_refused_while_the_first_one_lives() {
    let (a, b) = two().await;
    let alive = std::sync::atomic::AtomicBool::new(true);
    let heartbeats = async {
        while alive.load(Ordering::Relaxed) {
            let _ = a.transport.send(NodeId(2), Lane::Control, b"alive");
            let _ = timeout(Duration::from_millis(20), std::future::pending::<()>()).await;
        }
    };
    let second = async {
        let copy = Node::start(TcpOptions { incarnation: 11, ..options(1) }).await;
        copy.dial(&[(2, b.address)]);
        until(|| !copy.ear.refusals.lock().is_empty()).await;
        assert_eq!(copy.ear.refusals.lock()[0].kind, RefusalKind::Duplicate);
        assert!(a.transport.is_connected(NodeId(2), Lane::Control));
        alive.store(false, Ordering::Relaxed);
        // The first process says nothing any more, as if it was stopped: the second one has to wait.
        until(|| copy.ear.refusals.lock().iter().any(|refusal| refusal.kind == RefusalKind::Unknown)).await;
        assert!(Lane::ALL.iter().all(|lane| !copy.transport.is_connected(NodeId(2), *lane)));
        copy
    };
    let ((), copy) = futures::join!(heartbeats, second);
    assert!(a.transport.is_connected(NodeId(2), Lane::Control));
    // It ends: the second one takes its place.
    drop(a);
    copy.connected(2).await;
    // No other node may have the node's own id.
    let own = Node::start(options(2)).await;
    own.dial(&[(2, b.address)]);
    assert!(own.transport.statistics().is_empty(), "a node does not dial itself");
}

async fn raw(node: &Node, bytes: &[u8]) -> Vec<u8> {
    let mut stream = TcpStream::connect(node.address).await.unwrap();
    stream.write_all(bytes).await.unwrap();
    let mut answer = Vec::new();
    // The end may come as a reset if the listener has not read everything.
    let _ = timeout(LIMIT, stream.read_to_end(&mut answer)).await.expect("the connection is closed");
    answer
}

fn opening() -> Vec<u8> {
    let hello = Hello {
        cluster: CLUSTER,
        from: NodeId(1),
        host: Uuid::nil(),
        to: NodeId(2),
        incarnation: 1,
        lane: Lane::Raft,
        address: "127.0.0.1:1".parse().unwrap(),
    };
    let mut bytes = preamble().to_vec();
    put_frame(&mut bytes, &Opening::Lane(hello).encode(SystemClock::new().wall_us()));
    bytes
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn another_protocol_version_is_told_so() {
    let b = Node::start(options(2)).await;
    let mut bytes = opening();
    bytes[8] = 9;
    let answer = raw(&b, &bytes).await;
    let text = String::from_utf8_lossy(&answer);
    assert!(text.contains(&format!("version 9 is not spoken here, {PROTOCOL_VERSION} is")), "{text}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_is_no_node_is_cut_off() {
    let b = Node::start(options(2)).await;
    assert_eq!(raw(&b, b"GET / HTTP/1.1\r\nHost: b\r\n\r\n").await, b"");
    let mut unreadable = preamble().to_vec();
    put_frame(&mut unreadable, b"\x01short");
    assert_eq!(raw(&b, &unreadable).await, b"");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_frame_that_is_damaged_or_too_large_ends_the_connection() {
    let b = Node::start(options(2)).await;
    let too_large = [&(MAX_FRAME_BYTES as u32 + 1).to_le_bytes()[..], &[0; 4]].concat();
    let mut damaged = Vec::new();
    put_frame(&mut damaged, b"damaged");
    damaged[10] ^= 1;
    for (round, bad) in [too_large, damaged].into_iter().enumerate() {
        let mut bytes = opening();
        put_frame(&mut bytes, b"good");
        bytes.extend_from_slice(&bad);
        put_frame(&mut bytes, b"never read");
        raw(&b, &bytes).await;
        assert_eq!(*b.ear.lengths.lock(), vec![4; round + 1]);
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_question_is_answered_without_being_a_member() {
    let b = Node::start(options(2)).await;
    let clock = SystemClock::new();
    let caller = Caller { bind: None, clock: &clock, max_clock_skew: TcpOptions::MAX_CLOCK_SKEW, tls: None };
    let bound = Caller { bind: Some("127.0.0.1".parse().unwrap()), ..caller };
    assert_eq!(ask(b.address, bound, b"may I?".to_vec(), LIMIT).await.unwrap(), b"you may");
    let refused = ask(b.address, caller, b"I will".to_vec(), LIMIT).await.unwrap_err();
    assert_eq!(refused.to_string(), "you may not");
    b.transport.stop();
    until(|| std::net::TcpStream::connect(b.address).is_err()).await;
    let gone = ask(b.address, caller, b"may I?".to_vec(), LIMIT).await.unwrap_err();
    assert!(matches!(gone, DialError::Unreachable(_)));
}

/// A clock with a wrong wall time that advances by `step` whenever it is read.
struct Stepping {
    now_ns: AtomicU64,
    step: Duration,
    wrong_us: i64,
}

impl Clock for Stepping {
    fn monotonic_ns(&self) -> u64 {
        self.now_ns.fetch_add(self.step.as_nanos() as u64, Ordering::Relaxed)
    }

    fn wall_us(&self) -> i64 {
        SystemClock::new().wall_us() + self.wrong_us
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_word_about_clocks_is_final_unless_it_took_long_to_come() {
    let b = Node::start(options(2)).await;
    let wrong = |step| Stepping { now_ns: AtomicU64::new(0), step: Duration::from_millis(step), wrong_us: -9_000_000 };
    for (took_ms, skew_ms, is_final) in
        [(0, 500, true), (250, 500, true), (251, 500, false), (251, 5_000, false), (60, 100, false)]
    {
        let clock = wrong(took_ms);
        let caller = Caller { bind: None, clock: &clock, max_clock_skew: Duration::from_millis(skew_ms), tls: None };
        let said = ask(b.address, caller, b"may I?".to_vec(), LIMIT).await.unwrap_err();
        assert_eq!(matches!(said, DialError::Refused(_)), is_final, "after {took_ms} ms: {said}");
        assert!(said.to_string().contains("ms apart"), "whoever gives up at last can say why: {said}");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_node_that_comes_back_elsewhere_tells_where_and_is_believed_until_told_better() {
    let (a, b) = (Node::start(options(1)).await, Node::start(options(2)).await);
    let known = [(1, a.address), (2, b.address)];
    a.dial(&known);
    b.dial(&known);
    a.connected(2).await;
    b.connected(1).await;
    b.transport.stop();
    let moved = Node::start(TcpOptions { incarnation: 22, ..options(2) }).await;
    moved.dial(&known);
    until(|| a.transport.statistics().iter().all(|(_, _, lane)| lane.connected && lane.reconnects >= 1)).await;
    a.dial(&known);
    a.transport.send(NodeId(2), Lane::Raft, b"here").unwrap();
    until(|| moved.ear.lengths.lock().len() == 1).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn connections_come_from_the_address_that_was_chosen() {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let bind = Some("127.0.0.77".parse().unwrap());
    let a = Node::start(TcpOptions { bind, ..options(1) }).await;
    a.dial(&[(2, listener.local_addr().unwrap())]);
    let (_, from) = timeout(LIMIT, listener.accept()).await.unwrap().unwrap();
    assert_eq!(from.ip().to_string(), "127.0.0.77");
}

/// This many silent connections; those that are closed at once count as well.
async fn silent(address: SocketAddr, count: usize) -> Vec<TcpStream> {
    let mut streams = Vec::with_capacity(count);
    for _ in 0..count {
        streams.push(TcpStream::connect(address).await.unwrap());
    }
    streams
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn silent_sockets_do_not_keep_nodes_from_connecting() {
    // No timeout ends any of them.
    let patient = |node| TcpOptions { opening_timeout: Duration::from_secs(3_600), ..options(node) };
    let b = Node::start(patient(2)).await;
    let mut held = silent(b.address, 300).await;
    let a = Node::start(patient(1)).await;
    a.dial(&[(2, b.address)]);
    a.connected(2).await;
    b.connected(1).await;
    // A node that was cut off connects again, despite newer connections from its own address.
    a.dial(&[]);
    held.extend(silent(b.address, 300).await);
    a.dial(&[(2, b.address)]);
    a.connected(2).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_socket_that_says_nothing_is_closed() {
    let b = Node::start(options(2)).await;
    assert_eq!(raw(&b, b"").await, b"");
    assert_eq!(raw(&b, &opening()[..20]).await, b"", "half an opening is none");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_opening_that_would_be_large_is_refused_before_it_is_there() {
    let b = Node::start(options(2)).await;
    let mut bytes = preamble().to_vec();
    bytes.extend_from_slice(&(MAX_OPENING_BYTES as u32 + 1).to_le_bytes());
    bytes.extend_from_slice(&[0; 4]);
    assert_eq!(raw(&b, &bytes).await, b"");
}

/// A handshake that has ended gives its place back, however it ended.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn places_come_back() {
    let (a, b) = two().await;
    for _ in 0..300 {
        drop(TcpStream::connect(b.address).await.unwrap());
    }
    assert_eq!(raw(&b, b"GET / HTTP/1.1\r\n\r\n").await, b"");
    let listening = Arc::downgrade(&b.ear);
    a.transport.send(NodeId(2), Lane::Control, b"still there").unwrap();
    until(|| listening.upgrade().is_some_and(|ear| !ear.lengths.lock().is_empty())).await;
    let clock = SystemClock::new();
    let caller = Caller { bind: None, clock: &clock, max_clock_skew: TcpOptions::MAX_CLOCK_SKEW, tls: None };
    assert_eq!(ask(b.address, caller, b"may I?".to_vec(), LIMIT).await.unwrap(), b"you may");
}
