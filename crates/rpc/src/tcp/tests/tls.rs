//! Nodes with certificates: who is let in, who is not, what strangers learn, and frames as without TLS.

use super::*;
use arc_swap::ArcSwap;
use diorite_certs::node::NodeCredentials;
use diorite_certs::{Directory, Lifetime, Subject};
use rustls::pki_types::ServerName;
use rustls::{ClientConfig, ClientConnection};
use std::io::{Read, Write};
use std::path::{Path, PathBuf};

const LOOPBACK: &str = "127.0.0.1";

fn now_s() -> i64 {
    SystemClock::new().wall_us() / 1_000_000
}

fn year() -> Lifetime {
    Lifetime { now_s: now_s(), days: 365 }
}

/// A cluster's authority.
struct Authority {
    home: tempfile::TempDir,
    directory: Directory,
}

impl Authority {
    fn new() -> Self {
        let home = tempfile::tempdir().unwrap();
        let directory = Directory::new(&home.path().join("certs"));
        directory.init(year(), false).unwrap();
        Self { home, directory }
    }

    /// The directory of a node at `address`.
    fn node(&self, address: &str, lifetime: Lifetime) -> PathBuf {
        self.directory.issue(&Subject::node(vec![address.parse().unwrap()]).unwrap(), lifetime, true).unwrap()
    }

    fn credentials(&self) -> Credentials {
        read(&self.node(LOOPBACK, year()))
    }
}

fn read(node: &Path) -> Credentials {
    Arc::new(ArcSwap::from_pointee(NodeCredentials::read(node, now_s()).unwrap()))
}

fn with(node: u64, credentials: &Credentials) -> TcpOptions {
    TcpOptions { tls: Some(Arc::clone(credentials)), ..options(node) }
}

async fn secure_two(authority: &Authority) -> (Node, Node) {
    let credentials = authority.credentials();
    let (a, b) = (Node::start(with(1, &credentials)).await, Node::start(with(2, &credentials)).await);
    a.dial(&[(1, a.address), (2, b.address)]);
    a.connected(2).await;
    (a, b)
}

/// A node that dials another one in vain.
async fn does_not_connect(dialler: &Node, to: u64) {
    until(|| dialler.ear.events.lock().iter().any(|event| event == &format!("unreachable n{to} raft"))).await;
    assert!(!dialler.transport.is_connected(NodeId(to), Lane::Raft));
    assert!(dialler.ear.refusals.lock().is_empty(), "nothing was said");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn frames_arrive_whole_and_in_order() {
    let authority = Authority::new();
    let (a, b) = secure_two(&authority).await;
    for n in 0..50_000u64 {
        a.transport.send(NodeId(2), Lane::ALL[n as usize % Lane::COUNT], &n.to_le_bytes()).unwrap();
    }
    until(|| b.ear.lengths.lock().len() == 50_000).await;
    for lane in Lane::ALL {
        let frames = b.ear.frames.lock();
        let of_lane = frames.iter().filter(|(_, of, _)| *of == lane).map(|(_, _, frame)| frame.clone());
        let expected = (lane.index() as u64..50_000).step_by(Lane::COUNT).map(|n| n.to_le_bytes().to_vec());
        assert!(of_lane.eq(expected), "{lane:?}");
    }
    b.ear.lengths.lock().clear();
    // Larger than every buffer on the way.
    let (small, large) = (vec![1; 300], vec![2; 20 << 20]);
    a.transport.send_many(NodeId(2), Lane::Bulk, &[&small, &large, &[], &small]).unwrap();
    until(|| b.ear.lengths.lock().len() == 4).await;
    assert_eq!(*b.ear.lengths.lock(), [300, 20 << 20, 0, 300]);
    assert_eq!(a.transport.statistics().iter().map(|(_, _, lane)| lane.bytes_waiting).sum::<u64>(), 0);
    b.connected(1).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_slow_reader_fills_a_bounded_buffer() {
    let authority = Authority::new();
    let credentials = authority.credentials();
    let buffer_bytes = [1 << 20; Lane::COUNT];
    let a = Node::start(TcpOptions { buffer_bytes, ..with(1, &credentials) }).await;
    let b = Node::start(with(2, &credentials)).await;
    a.dial(&[(2, b.address)]);
    a.connected(2).await;
    let busy = b.ear.busy.lock();
    let frame = vec![7; 100_000];
    let mut sent = 0;
    let full = loop {
        match a.transport.send(NodeId(2), Lane::Requests, &frame) {
            Ok(()) => sent += 1,
            Err(error) => break error,
        }
        assert!(sent < 10_000, "a gigabyte is queued");
    };
    assert_eq!(full, SendError::Full);
    drop(busy);
    until(|| b.ear.lengths.lock().len() == sent).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_open_node_and_one_with_certificates_do_not_talk() {
    let authority = Authority::new();
    let credentials = authority.credentials();
    let (open, secure) = (Node::start(options(1)).await, Node::start(with(2, &credentials)).await);
    open.dial(&[(2, secure.address)]);
    secure.dial(&[(1, open.address)]);
    does_not_connect(&open, 2).await;
    does_not_connect(&secure, 1).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_certificate_of_another_authority_or_an_expired_one_is_refused() {
    let (authority, other) = (Authority::new(), Authority::new());
    let b = Node::start(with(2, &authority.credentials())).await;
    let stranger = Node::start(with(1, &other.credentials())).await;
    stranger.dial(&[(2, b.address)]);
    does_not_connect(&stranger, 2).await;
    assert!(!b.transport.is_connected(NodeId(1), Lane::Raft));
    // Valid when it is read, and no longer when it is shown.
    let brief = Lifetime { now_s: now_s() - 24 * 60 * 60 + 5, days: 1 };
    let expired = read(&authority.node(LOOPBACK, brief));
    until(|| now_s() > brief.now_s + 24 * 60 * 60).await;
    let late = Node::start(with(3, &expired)).await;
    late.dial(&[(2, b.address)]);
    does_not_connect(&late, 2).await;
    b.dial(&[(3, late.address)]);
    does_not_connect(&b, 3).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_node_is_reached_and_let_in_only_at_an_address_of_its_certificate() {
    let authority = Authority::new();
    let b = Node::start(with(2, &authority.credentials())).await;
    let elsewhere = read(&authority.node("127.0.0.9", year()));
    // It says that it is reached at 127.0.0.1.
    let a = Node::start(with(1, &elsewhere)).await;
    a.dial(&[(2, b.address)]);
    until(|| !a.ear.refusals.lock().is_empty()).await;
    let refusal = a.ear.refusals.lock()[0].clone();
    assert!(refusal.reason.contains("its certificate does not cover the address of its hello, 127.0.0.1"), "{refusal}");
    b.dial(&[(1, a.address)]);
    does_not_connect(&b, 1).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn new_certificates_are_for_new_connections() {
    let authority = Authority::new();
    let (credentials, other) = (authority.credentials(), Authority::new());
    let (a, b) = (Node::start(with(1, &credentials)).await, Node::start(with(2, &credentials)).await);
    a.dial(&[(2, b.address)]);
    a.connected(2).await;
    // From now on both trust another authority.
    credentials.store(other.credentials().load_full());
    a.transport.send(NodeId(2), Lane::Raft, b"an old connection").unwrap();
    until(|| b.ear.lengths.lock().len() == 1).await;
    a.dial(&[]);
    a.dial(&[(2, b.address)]);
    a.connected(2).await;
    let former = Node::start(with(3, &authority.credentials())).await;
    former.dial(&[(2, b.address)]);
    does_not_connect(&former, 2).await;
}

/// A hand-made client of TLS, which reads and writes when it is told to.
struct Manual {
    tls: ClientConnection,
    socket: std::net::TcpStream,
}

impl Manual {
    fn connect(node: &Node, config: Arc<ClientConfig>) -> Self {
        let socket = std::net::TcpStream::connect(node.address).unwrap();
        socket.set_read_timeout(Some(LIMIT)).unwrap();
        let tls = ClientConnection::new(config, ServerName::from(node.address.ip())).unwrap();
        Self { tls, socket }
    }

    fn write(&mut self, bytes: &[u8]) {
        self.tls.writer().write_all(bytes).unwrap();
        while self.tls.is_handshaking() {
            self.tls.complete_io(&mut self.socket).unwrap();
        }
        while self.tls.wants_write() {
            self.tls.write_tls(&mut self.socket).unwrap();
        }
    }

    /// Everything until the end, and how it ended.
    fn rest(&mut self) -> (Vec<u8>, Option<String>) {
        let mut content = Vec::new();
        let ended = rustls::Stream::new(&mut self.tls, &mut self.socket).read_to_end(&mut content);
        (content, ended.err().map(|error| error.to_string()))
    }
}

fn manual(node: &Node, credentials: &Credentials) -> Manual {
    Manual::connect(node, Arc::clone(credentials.load().client()))
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_certificate_of_a_client_and_none_at_all_are_refused_without_a_word() {
    let authority = Authority::new();
    let credentials = authority.credentials();
    let b = Node::start(with(2, &credentials)).await;
    let client = authority.directory.issue(&Subject::client("app").unwrap(), year(), false).unwrap();
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let mut roots = rustls::RootCertStore::empty();
    use rustls::pki_types::pem::PemObject;
    use rustls::pki_types::{CertificateDer, PrivateKeyDer};
    let pem = |path: PathBuf| CertificateDer::from_pem_file(path).unwrap();
    roots.add(pem(authority.home.path().join("certs/ca.pem"))).unwrap();
    let builder = || {
        let builder = ClientConfig::builder_with_provider(Arc::clone(&provider));
        builder.with_safe_default_protocol_versions().unwrap().with_root_certificates(roots.clone())
    };
    let key = PrivateKeyDer::from_pem_file(client.join("client.key")).unwrap();
    let shown = builder().with_client_auth_cert(vec![pem(client.join("client.pem"))], key).unwrap();
    for config in [shown, builder().with_no_client_auth()] {
        let mut stranger = Manual::connect(&b, Arc::new(config));
        stranger.write(&opening());
        let (content, ended) = stranger.rest();
        assert_eq!(content, b"", "nothing was said");
        assert!(ended.is_some_and(|why| why.contains("alert")), "it learns that its certificate is not accepted");
    }
    // TLS 1.2 is not spoken.
    let old = ClientConfig::builder_with_provider(provider).with_protocol_versions(&[&rustls::version::TLS12]).unwrap();
    let old = old.with_root_certificates(roots).with_no_client_auth();
    let mut stranger = Manual::connect(&b, Arc::new(old));
    assert!(stranger.tls.complete_io(&mut stranger.socket).is_err());
    assert!(b.ear.lengths.lock().is_empty());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_connection_that_is_cut_delivers_no_part_of_a_frame() {
    let authority = Authority::new();
    let credentials = authority.credentials();
    let b = Node::start(with(2, &credentials)).await;
    let mut node = manual(&b, &credentials);
    let mut bytes = opening();
    put_frame(&mut bytes, b"whole");
    let mut cut = Vec::new();
    put_frame(&mut cut, b"never complete");
    bytes.extend_from_slice(&cut[..cut.len() - 1]);
    node.write(&bytes);
    until(|| b.ear.lengths.lock().len() == 1).await;
    // Without close_notify, and in the midst of a record.
    node.tls.writer().write_all(&cut[cut.len() - 1..]).unwrap();
    let mut sealed = Vec::new();
    node.tls.write_tls(&mut sealed).unwrap();
    node.socket.write_all(&sealed[..sealed.len() - 1]).unwrap();
    node.socket.shutdown(std::net::Shutdown::Both).unwrap();
    let received = || b.ear.lengths.lock().clone();
    let _ = timeout(Duration::from_millis(200), std::future::pending::<()>()).await;
    assert_eq!(received(), [5]);
    // A record that was changed on the way ends the connection.
    let mut node = manual(&b, &credentials);
    node.write(&opening());
    put_frame(&mut cut, b"x");
    node.tls.writer().write_all(&cut).unwrap();
    sealed.clear();
    node.tls.write_tls(&mut sealed).unwrap();
    let last = sealed.len() - 1;
    sealed[last] ^= 1;
    node.socket.write_all(&sealed).unwrap();
    let (_, ended) = node.rest();
    assert!(ended.is_some() && received() == [5], "{ended:?}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn frames_are_read_through_changes_of_keys_and_records_of_all_sizes() {
    let authority = Authority::new();
    let credentials = authority.credentials();
    let b = Node::start(with(2, &credentials)).await;
    let mut node = manual(&b, &credentials);
    node.write(&opening());
    for round in 0..200usize {
        let mut bytes = Vec::new();
        put_frame(&mut bytes, &vec![0; round * 300]);
        bytes.chunks(1 + round * 7).for_each(|piece| node.write(piece));
        if round % 10 == 0 {
            node.tls.refresh_traffic_keys().unwrap();
        }
    }
    until(|| b.ear.lengths.lock().len() == 200).await;
    assert!(b.ear.lengths.lock().iter().copied().eq((0..200).map(|round| round * 300)));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn silent_and_half_open_handshakes_do_not_keep_nodes_from_connecting() {
    let authority = Authority::new();
    let credentials = authority.credentials();
    // None of them ends by itself.
    let patient = |node| TcpOptions { opening_timeout: Duration::from_secs(3_600), ..with(node, &credentials) };
    let b = Node::start(patient(2)).await;
    let mut held = silent(b.address, 300).await;
    let half_open = |count: usize| {
        let begun: Vec<Manual> = (0..count).map(|_| manual(&b, &credentials)).collect();
        begun.into_iter().map(|mut begun| {
            begun.tls.write_tls(&mut begun.socket).unwrap();
            begun
        })
    };
    let mut begun: Vec<Manual> = half_open(300).collect();
    let a = Node::start(patient(1)).await;
    a.dial(&[(2, b.address)]);
    a.connected(2).await;
    b.connected(1).await;
    a.dial(&[]);
    held.extend(silent(b.address, 300).await);
    begun.extend(half_open(300));
    a.dial(&[(2, b.address)]);
    a.connected(2).await;
    drop((held, begun));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_handshake_has_to_end_in_time_and_may_not_be_large() {
    let authority = Authority::new();
    let credentials = authority.credentials();
    let b = Node::start(TcpOptions { opening_timeout: Duration::from_millis(300), ..with(2, &credentials) }).await;
    let mut half_open = manual(&b, &credentials);
    half_open.tls.write_tls(&mut half_open.socket).unwrap();
    let (content, ended) = half_open.rest();
    assert!(content.is_empty() && ended.is_some());
    // The first part of a handshake message that claims 60,000 bytes, in records that never complete it.
    let mut endless = Vec::new();
    for record in 0..4 {
        endless.extend_from_slice(&[22, 3, 1, 0x3F, 0xF0]);
        let head: &[u8] = if record == 0 { &[1, 0, 0xEA, 0x60] } else { &[] };
        endless.extend_from_slice(head);
        endless.extend(std::iter::repeat_n(0, 0x3FF0 - head.len()));
    }
    let b = Node::start(TcpOptions { opening_timeout: Duration::from_secs(3_600), ..with(2, &credentials) }).await;
    let answer = raw(&b, &endless).await;
    assert!(answer.len() < 100, "an alert at most");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn questions_are_for_nodes_with_certificates() {
    let authority = Authority::new();
    let credentials = authority.credentials();
    let b = Node::start(with(2, &credentials)).await;
    let clock = SystemClock::new();
    let shown = credentials.load_full();
    let open = Caller { bind: None, clock: &clock, max_clock_skew: TcpOptions::MAX_CLOCK_SKEW, tls: None };
    let secure = Caller { tls: Some(shown.client()), ..open };
    assert_eq!(ask(b.address, secure, b"may I?".to_vec(), LIMIT).await.unwrap(), b"you may");
    let refused = ask(b.address, secure, b"I will".to_vec(), LIMIT).await.unwrap_err();
    assert_eq!(refused.to_string(), "you may not");
    let said = ask(b.address, open, b"may I?".to_vec(), LIMIT).await.unwrap_err();
    assert!(said.to_string().contains("or the node expects a certificate"), "{said}");
    let strangers = Authority::new().credentials().load_full();
    let stranger = Caller { tls: Some(strangers.client()), ..open };
    let said = ask(b.address, stranger, b"may I?".to_vec(), LIMIT).await.unwrap_err();
    assert!(said.to_string().contains("UnknownIssuer"), "{said}");
}
