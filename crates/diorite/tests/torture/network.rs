//! The network between the nodes, as a test may break it: every connection from one node to another goes through a relay here.
//!
//! Each node advertises its relay's address and binds what it dials to its own address, so the relay knows both ends. Connections are one-way
//! (a node sends on those that it dialled), so breaking one direction breaks the messages of that direction.
//!
//! Always true: a held connection stays open and delivers nothing, in either direction; what waited is delivered when it passes again, as
//! TCP does after a partition. A cut one is closed, and new ones are closed at once.

use std::collections::HashMap;
use std::io;
use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::runtime::Runtime;
use tokio::sync::watch;

/// The port that nodes speak to each other on.
pub const NODE_PORT: u16 = 7100;

/// What becomes of what one node sends to another.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Policy {
    /// It arrives.
    Pass,
    /// It is held back; connections stay open.
    Hold,
    /// Connections are closed.
    Cut,
}

struct Link {
    policy: watch::Sender<Policy>,
    passed_bytes: AtomicU64,
}

/// The relays of all nodes.
pub struct Network {
    links: Arc<HashMap<(usize, usize), Link>>,
    nodes: usize,
    _runtime: Runtime,
}

impl Network {
    /// Relays for `nodes` at `relays`, both addresses without port, in the same order.
    pub fn new(nodes: &[String], relays: &[String]) -> io::Result<Self> {
        let runtime = tokio::runtime::Builder::new_multi_thread()
            .worker_threads(1)
            .thread_name("network")
            .enable_all()
            .build()?;
        let addresses: Vec<IpAddr> = nodes.iter().map(|node| node.parse().unwrap()).collect();
        let pairs = (0..nodes.len()).flat_map(|from| (0..nodes.len()).map(move |to| (from, to)));
        let link = || Link { policy: watch::Sender::new(Policy::Pass), passed_bytes: AtomicU64::new(0) };
        let links: Arc<HashMap<_, _>> = Arc::new(pairs.map(|pair| (pair, link())).collect());
        for (to, relay) in relays.iter().enumerate() {
            let listener = runtime.block_on(TcpListener::bind((relay.as_str(), NODE_PORT)))?;
            runtime.spawn(accept(listener, to, addresses.clone(), Arc::clone(&links)));
        }
        Ok(Self { links, nodes: nodes.len(), _runtime: runtime })
    }

    /// Decides about what `from` sends to `to`.
    pub fn set(&self, from: usize, to: usize, policy: Policy) {
        self.links[&(from, to)].policy.send_replace(policy);
    }

    /// Decides about every link.
    pub fn set_all(&self, policy: impl Fn(usize, usize) -> Policy) {
        for from in 0..self.nodes {
            for to in (0..self.nodes).filter(|to| *to != from) {
                self.set(from, to, policy(from, to));
            }
        }
    }

    /// Cuts or holds everything to and from one node; everything else passes.
    pub fn isolate(&self, node: usize, policy: Policy) {
        self.set_all(|from, to| if from == node || to == node { policy } else { Policy::Pass });
    }

    /// Lets everything pass.
    pub fn heal(&self) {
        self.set_all(|_, _| Policy::Pass);
    }

    /// Bytes that `from` has sent to `to` so far.
    pub fn passed_bytes(&self, from: usize, to: usize) -> u64 {
        self.links[&(from, to)].passed_bytes.load(Ordering::Relaxed)
    }
}

async fn accept(listener: TcpListener, to: usize, nodes: Vec<IpAddr>, links: Arc<HashMap<(usize, usize), Link>>) {
    while let Ok((stream, peer)) = listener.accept().await {
        let Some(from) = nodes.iter().position(|node| *node == peer.ip()) else {
            eprintln!("a connection to node {to} comes from {peer}, which is no node");
            continue;
        };
        let (target, links) = (SocketAddr::new(nodes[to], NODE_PORT), Arc::clone(&links));
        // Ends with either side, or when it is cut: nothing there is worth an error.
        tokio::spawn(async move { relay(stream, target, &links[&(from, to)]).await.ok() });
    }
}

async fn relay(from: TcpStream, target: SocketAddr, link: &Link) -> io::Result<()> {
    let mut policy = link.policy.subscribe();
    may_pass(&mut policy).await?;
    let to = TcpStream::connect(target).await?;
    from.set_nodelay(true)?;
    to.set_nodelay(true)?;
    let ((mut from_read, mut from_write), (mut to_read, mut to_write)) = (from.into_split(), to.into_split());
    let mut back = policy.clone();
    tokio::select! {
        ended = pump(&mut from_read, &mut to_write, &mut policy, Some(&link.passed_bytes)) => ended,
        ended = pump(&mut to_read, &mut from_write, &mut back, None) => ended,
    }
}

/// Waits until the link passes; an error if it is cut.
async fn may_pass(policy: &mut watch::Receiver<Policy>) -> io::Result<()> {
    match policy.wait_for(|policy| *policy != Policy::Hold).await.as_deref() {
        Ok(Policy::Pass) => Ok(()),
        _ => Err(io::ErrorKind::ConnectionAborted.into()),
    }
}

async fn pump(
    from: &mut (impl AsyncReadExt + Unpin),
    to: &mut (impl AsyncWriteExt + Unpin),
    policy: &mut watch::Receiver<Policy>,
    passed_bytes: Option<&AtomicU64>,
) -> io::Result<()> {
    let mut buffer = vec![0; 64 << 10];
    loop {
        may_pass(policy).await?;
        let count = tokio::select! {
            biased;
            _ = policy.changed() => continue,
            count = from.read(&mut buffer) => count?,
        };
        if count == 0 {
            return Ok(());
        }
        // What was read while the link was being broken does not pass any more.
        may_pass(policy).await?;
        let mut cut = policy.clone();
        tokio::select! {
            written = to.write_all(&buffer[..count]) => written?,
            _ = cut.wait_for(|policy| *policy == Policy::Cut) => return Err(io::ErrorKind::ConnectionAborted.into()),
        }
        if let Some(passed_bytes) = passed_bytes {
            passed_bytes.fetch_add(count as u64, Ordering::Relaxed);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::server::fresh_addresses;
    use std::time::Duration;
    use tokio::net::TcpSocket;
    use tokio::time::timeout;

    const SHORT: Duration = Duration::from_millis(200);
    const LONG: Duration = Duration::from_secs(30);

    async fn dial(from: &str, relay: &str) -> TcpStream {
        let socket = TcpSocket::new_v4().unwrap();
        socket.bind(format!("{from}:0").parse().unwrap()).unwrap();
        socket.connect(format!("{relay}:{NODE_PORT}").parse().unwrap()).await.unwrap()
    }

    /// A node that answers what it is sent.
    async fn echo(address: String) {
        let listener = TcpListener::bind((address.as_str(), NODE_PORT)).await.unwrap();
        while let Ok((mut stream, _)) = listener.accept().await {
            tokio::spawn(async move {
                let (mut read, mut write) = stream.split();
                tokio::io::copy(&mut read, &mut write).await.ok()
            });
        }
    }

    async fn answer(stream: &mut TcpStream) -> Option<u8> {
        let mut byte = [0];
        match timeout(LONG, stream.read(&mut byte)).await.expect("an answer or an end") {
            Ok(1) => Some(byte[0]),
            _ => None,
        }
    }

    async fn is_silent(stream: &mut TcpStream) -> bool {
        timeout(SHORT, stream.read(&mut [0])).await.is_err()
    }

    #[test]
    fn links_pass_hold_and_cut_each_direction_for_itself() {
        let addresses = fresh_addresses(4);
        let (nodes, relays) = addresses.split_at(2);
        let network = Network::new(nodes, relays).unwrap();
        let runtime = Runtime::new().unwrap();
        runtime.block_on(async {
            for node in nodes {
                tokio::spawn(echo(node.clone()));
            }
            tokio::time::sleep(SHORT).await;
            let mut there = dial(&nodes[0], &relays[1]).await;
            let mut back = dial(&nodes[1], &relays[0]).await;
            there.write_all(&[1]).await.unwrap();
            assert_eq!(answer(&mut there).await, Some(1));
            assert_eq!((network.passed_bytes(0, 1), network.passed_bytes(1, 0)), (1, 0));

            network.set(0, 1, Policy::Hold);
            there.write_all(&[2]).await.unwrap();
            assert!(is_silent(&mut there).await);
            back.write_all(&[3]).await.unwrap();
            assert_eq!(answer(&mut back).await, Some(3), "the other direction passes");
            let mut late = dial(&nodes[0], &relays[1]).await;
            late.write_all(&[4]).await.unwrap();
            assert!(is_silent(&mut late).await, "a new connection is held, too");
            network.heal();
            assert_eq!(answer(&mut there).await, Some(2), "what waited arrives");
            assert_eq!(answer(&mut late).await, Some(4));

            network.isolate(0, Policy::Cut);
            assert_eq!(answer(&mut there).await, None);
            assert_eq!(answer(&mut back).await, None);
            let mut refused = dial(&nodes[0], &relays[1]).await;
            assert_eq!(answer(&mut refused).await, None);
            network.heal();
            let mut again = dial(&nodes[0], &relays[1]).await;
            again.write_all(&[5]).await.unwrap();
            assert_eq!(answer(&mut again).await, Some(5));
        });
    }
}
