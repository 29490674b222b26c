//! The listening end: accepts or refuses connections that other nodes dial, and passes on the frames of accepted ones.
//!
//! Always true: before a connection of a lane is read, reading of its predecessor has ended; a process takes the place of
//! another one of its node only once all connections of that one have ended; a frame that is damaged or too large ends its
//! connection. A connection without a handshake in time is closed, with one line in the log per
//! address and minute.

use super::accepted::Accepted;
use super::handshakes::{Handshakes, Place};
use super::options::{Asker, Gate, TcpOptions, prepare};
use super::peers::{Incarnations, Peers, Received, ReceivedMap};
use crate::frame::{Incoming, put_frame};
use crate::hello::{
    self, Hello, MAGIC, MAX_OPENING_BYTES, Opening, PREAMBLE_BYTES, PROTOCOL_VERSION, Refusal, RefusalKind,
};
use crate::{ConnectionEvent, Lane, MAX_FRAME_BYTES, Receiver};
use ahash::AHashMap;
use diorite_base::{Levels, NodeId};
use parking_lot::Mutex;
use std::io;
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::watch;
use tokio::task::{JoinHandle, JoinSet};
use tokio::time::timeout;

/// How long an answer to a question may take.
const ANSWER_TIMEOUT: Duration = Duration::from_secs(30);
/// When a new process of a node dials, it is looked so often, this far apart, whether the connections of the earlier one
/// have ended, or a frame of it has arrived. A running process sends every 100 ms, but on a busy machine it may wait for a
/// processor for a second. All looks together are shorter than [`HANDSHAKE_TIMEOUT`]; the new process dials again. Looks
/// are counted instead of time: if this process was stopped for a while, frames wait to be read.
///
/// Silence alone proves no end: a process that is stopped says nothing, and goes on afterwards; its kernel keeps its
/// connections. Those of a process that has ended are closed by its kernel, and by this one within about ten seconds if
/// that is gone, too ([`prepare`]).
///
/// [`HANDSHAKE_TIMEOUT`]: super::options::HANDSHAKE_TIMEOUT
const LOOKS: u32 = 40;
const LOOK: Duration = Duration::from_millis(50);
/// Frames that arrive until this look may have been in transit when the process ended.
const FIRST_LOOK_THAT_COUNTS: u32 = 6;

/// Finds out whether the process that dialled a node's connections still runs.
#[derive(Default)]
struct Watch {
    looks: u32,
    frames: u64,
}

#[derive(Debug, PartialEq, Eq)]
enum Seen {
    Runs,
    /// All connections ended: so has the process, or it is cut off and has to dial again.
    Ended,
    /// Nothing arrives on connections that are open: the process may be stopped, or its machine be gone.
    Silent,
    Undecided,
}

impl Watch {
    /// Takes whether a connection is open, and the number of frames received so far.
    fn look(&mut self, is_open: bool, frames: u64) -> Seen {
        self.looks += 1;
        if self.looks <= FIRST_LOOK_THAT_COUNTS {
            self.frames = frames;
        }
        match () {
            () if !is_open => Seen::Ended,
            () if frames != self.frames => Seen::Runs,
            () if self.looks > LOOKS => Seen::Silent,
            () => Seen::Undecided,
        }
    }
}

/// The connections that one node has dialled.
#[derive(Default)]
struct Inbound {
    incarnation: u64,
    readers: [Option<JoinHandle<()>>; Lane::COUNT],
}

impl Inbound {
    async fn close(&mut self, lane: Lane) {
        if let Some(reader) = self.readers[lane.index()].take() {
            reader.abort();
            // A finished task may have been awaited already, which is possible only once.
            if !reader.is_finished() {
                // The task was aborted; that it has ended is all that matters.
                let _ = reader.await;
            }
        }
    }

    fn is_open(&self) -> bool {
        self.readers.iter().flatten().any(|reader| !reader.is_finished())
    }
}

type InboundOfNode = Arc<tokio::sync::Mutex<Inbound>>;

/// State that all accepted connections share.
pub(crate) struct Listening {
    options: Arc<TcpOptions>,
    receiver: Arc<dyn Receiver>,
    gate: Arc<dyn Gate>,
    peers: Arc<Peers>,
    received: Arc<ReceivedMap>,
    incarnations: Arc<Incarnations>,
    inbound: Mutex<AHashMap<NodeId, InboundOfNode>>,
    handshakes: Arc<Mutex<Handshakes>>,
}

impl Listening {
    pub(crate) fn new(
        receiver: Arc<dyn Receiver>,
        gate: Arc<dyn Gate>,
        peers: Arc<Peers>,
        received: Arc<ReceivedMap>,
        incarnations: Arc<Incarnations>,
    ) -> Self {
        let (inbound, handshakes, options) = (Mutex::default(), Arc::default(), Arc::clone(&peers.options));
        Self { options, receiver, gate, peers, received, incarnations, inbound, handshakes }
    }

    /// The number of frames received from a node so far.
    fn frames_from(&self, node: NodeId) -> u64 {
        let received = self.received.lock();
        let of_node = Lane::ALL.into_iter().filter_map(|lane| received.get(&(node, lane)));
        of_node.map(|of_lane| of_lane.frames.load(Ordering::Relaxed)).sum()
    }

    /// Begins the handshake of a connection.
    async fn begin(self: &Arc<Self>, stream: TcpStream, from: SocketAddr, handshakes: &mut JoinSet<()>) {
        let is_member = self.peers.is_member(from.ip());
        if !self.handshakes.lock().has_place(from.ip(), is_member) {
            // Handshakes of connections that came just before may finish now.
            tokio::task::yield_now().await;
        }
        // Too many connections, and none of the others may end: this one is closed at once. Nodes dial again.
        let Some(place) = Place::take(&self.handshakes, from.ip(), is_member) else {
            return self.log(from, &"too many connections at once");
        };
        let (listening, id) = (Arc::clone(self), place.id());
        let abort = handshakes.spawn(async move {
            if let Err(error) = welcome(&listening, stream, from, &place).await {
                listening.log(from, &error);
            }
        });
        Place::ends_by(&self.handshakes, is_member, id, abort);
    }

    /// Logs a closed connection. The rate is limited, whatever connects to the port.
    fn log(&self, from: SocketAddr, why: &dyn std::fmt::Display) {
        if self.handshakes.lock().may_log(from.ip(), self.options.clock.monotonic_ns()) {
            tracing::warn!(%from, %why, "a connection to the node port was closed; no further line about its address for a minute");
        }
    }
}

/// Accepts connections until `stop`.
pub(crate) async fn run(listener: TcpListener, listening: Arc<Listening>, mut stop: watch::Receiver<bool>) {
    let mut handshakes = JoinSet::new();
    loop {
        let accepted = tokio::select! {
            accepted = listener.accept() => accepted,
            Some(_) = handshakes.join_next(), if !handshakes.is_empty() => continue,
            // An error means that the transport was dropped.
            _ = stop.wait_for(|stop| *stop) => break,
        };
        match accepted {
            Ok((stream, from)) => listening.begin(stream, from, &mut handshakes).await,
            Err(error) => {
                // Probably no file descriptors are left: other connections must close first.
                tracing::warn!(%error, "cannot accept a connection from a node");
                let _ = timeout(Duration::from_millis(50), std::future::pending::<()>()).await;
            }
        }
    }
    handshakes.shutdown().await;
    let nodes: Vec<_> = listening.inbound.lock().drain().map(|(_, inbound)| inbound).collect();
    for inbound in nodes {
        let mut inbound = inbound.lock().await;
        for lane in Lane::ALL {
            inbound.close(lane).await;
        }
    }
}

/// Reads the opening and answers it.
async fn welcome(listening: &Arc<Listening>, stream: TcpStream, from: SocketAddr, place: &Place) -> io::Result<()> {
    prepare(&stream)?;
    let tls = listening.options.tls.as_ref().map(|tls| Arc::clone(tls.load().server()));
    let mut stream = Accepted::new(stream, tls);
    let late = |_| io::Error::new(io::ErrorKind::TimedOut, "it did not begin as a connection of a node in time");
    let (opening, incoming) =
        timeout(listening.options.opening_timeout, read_opening(&mut stream)).await.map_err(late)??;
    let asker = Asker { address: from.ip(), certificate: stream.certificate().cloned() };
    let opening = opening.and_then(|(opening, wall_us)| {
        check(&listening.options, &opening, wall_us)?;
        check_address(&asker, &opening)?;
        Ok(opening)
    });
    match opening {
        Ok(Opening::Lane(hello)) => match listening.gate.admit(&hello, &asker) {
            Ok(()) => {
                if !place.stays() {
                    return Err(io::Error::other("it was closed in favour of a newer one"));
                }
                accept(listening, stream, incoming.with_limit(MAX_FRAME_BYTES), hello).await
            }
            Err(refusal) => answer(&mut stream, &Err(refusal)).await,
        },
        Ok(Opening::Question(question)) => {
            let answering = listening.gate.answer(asker, question);
            let answered = timeout(ANSWER_TIMEOUT, answering).await.map_err(late)?;
            answer(&mut stream, &answered).await
        }
        Err(refusal) => answer(&mut stream, &Err(refusal)).await,
    }
}

type ReadOpening = Result<(Opening, i64), Refusal>;

async fn read_opening(stream: &mut Accepted) -> io::Result<(ReadOpening, Incoming)> {
    let malformed = || io::Error::new(io::ErrorKind::InvalidData, "it did not begin as a connection of a node");
    let mut incoming = Incoming::new(MAX_OPENING_BYTES);
    let mut version = None;
    loop {
        if stream.read(&mut incoming).await? == 0 {
            return Err(io::Error::new(io::ErrorKind::UnexpectedEof, "it was closed before it had begun"));
        }
        if version.is_none() {
            if !incoming.may_begin_with(&MAGIC) {
                return Err(malformed());
            }
            let Some(preamble) = incoming.take::<PREAMBLE_BYTES>() else { continue };
            let theirs = hello::version_of(preamble).ok_or_else(malformed)?;
            if theirs != PROTOCOL_VERSION {
                return Ok((Err(Refusal::version(theirs)), incoming));
            }
            version = Some(theirs);
        }
        if let Some(body) = incoming.one_frame().map_err(io::Error::other)? {
            let opening = Opening::decode(&body).map_err(|_| malformed())?;
            return Ok((Ok(opening), incoming));
        }
    }
}

async fn answer(stream: &mut Accepted, answer: &Result<Vec<u8>, Refusal>) -> io::Result<()> {
    let mut bytes = hello::preamble().to_vec();
    put_frame(&mut bytes, &hello::encode_answer(answer));
    stream.write_all(&bytes).await?;
    if answer.is_err() {
        // An orderly end lets the other side read the refusal before it notices the end.
        stream.shutdown().await?;
    }
    Ok(())
}

/// Checks everything that does not depend on the members.
fn check(options: &TcpOptions, opening: &Opening, wall_us: i64) -> Result<(), Refusal> {
    if let Opening::Lane(hello) = opening {
        if hello.cluster != options.cluster {
            // Where nodes have certificates, only members learn which cluster this is.
            let ours = if options.tls.is_some() {
                "another cluster".to_owned()
            } else {
                format!("cluster {}", options.cluster)
            };
            let reason = format!("it belongs to {ours}, we to cluster {}", hello.cluster);
            return Err(Refusal::new(RefusalKind::Cluster, reason));
        }
        if hello.to != options.node {
            let reason = format!("it is node {}, not {}", options.node, hello.to);
            return Err(Refusal::new(RefusalKind::Misdirected, reason));
        }
        if hello.from == options.node {
            let reason = format!("node id {} is its own", options.node);
            return Err(Refusal::new(RefusalKind::Duplicate, reason));
        }
    }
    let apart_us = options.clock.wall_us().abs_diff(wall_us);
    let bound_us = options.max_clock_skew.as_micros() as u64;
    if apart_us > bound_us {
        let (apart_ms, bound_ms) = (apart_us / 1_000, bound_us / 1_000);
        let reason = format!("its clock and ours are {apart_ms} ms apart, at most {bound_ms} ms are allowed");
        return Err(Refusal::new(RefusalKind::Clock, reason));
    }
    Ok(())
}

/// A node is dialled at the address of its hello, so its certificate has to cover that.
fn check_address(asker: &Asker, opening: &Opening) -> Result<(), Refusal> {
    match opening {
        Opening::Lane(hello) if !asker.may_be_at(hello.address.ip()) => {
            let reason = format!("its certificate does not cover the address of its hello, {}", hello.address.ip());
            Err(Refusal::new(RefusalKind::Other, reason))
        }
        _ => Ok(()),
    }
}

/// Replaces the lane's earlier connection, unless that belongs to another process that may be alive. A connection that was
/// closed before its turn came changes nothing: what it says of its node may be of an earlier process.
async fn accept(listening: &Arc<Listening>, mut stream: Accepted, incoming: Incoming, hello: Hello) -> io::Result<()> {
    let of_node = Arc::clone(listening.inbound.lock().entry(hello.from).or_default());
    let mut watch = Watch::default();
    let mut inbound = loop {
        let inbound = of_node.lock().await;
        if stream.is_closed()? {
            return Ok(());
        }
        if inbound.incarnation == hello.incarnation {
            break inbound;
        }
        match watch.look(inbound.is_open(), listening.frames_from(hello.from)) {
            Seen::Runs => {
                let reason = format!("another process runs as node {} already", hello.from);
                return answer(&mut stream, &Err(Refusal::new(RefusalKind::Duplicate, reason))).await;
            }
            Seen::Silent => {
                let reason = format!(
                    "the connections of another process that runs as node {} are open, and it is silent: it may be stopped, \
                     or its machine gone",
                    hello.from
                );
                return answer(&mut stream, &Err(Refusal::new(RefusalKind::Unknown, reason))).await;
            }
            Seen::Ended => break inbound,
            Seen::Undecided => {}
        }
        // Meanwhile the earlier process can renew a connection that broke.
        drop(inbound);
        let _ = timeout(LOOK, std::future::pending::<()>()).await;
    };
    if inbound.incarnation != hello.incarnation {
        for lane in Lane::ALL {
            inbound.close(lane).await;
        }
        inbound.incarnation = hello.incarnation;
        // From here on no frame of the former incarnation is passed on, and none of this one was before.
        listening.incarnations.set(hello.from, hello.incarnation);
    }
    inbound.close(hello.lane).await;
    listening.peers.dialled_by(&hello);
    answer(&mut stream, &Ok(hello::encode_level(Levels::OWN.greatest))).await?;
    let received = Arc::clone(listening.received.lock().entry((hello.from, hello.lane)).or_default());
    let reader = Reader::begin(hello.from, hello.lane, Arc::clone(&listening.receiver), received);
    inbound.readers[hello.lane.index()] = Some(tokio::spawn(reader.run(stream, incoming)));
    Ok(())
}

/// Reads one accepted connection. The receiver learns of its end however that comes about: the task that reads may be
/// aborted.
struct Reader {
    from: NodeId,
    lane: Lane,
    receiver: Arc<dyn Receiver>,
    received: Arc<Received>,
}

impl Reader {
    fn begin(from: NodeId, lane: Lane, receiver: Arc<dyn Receiver>, received: Arc<Received>) -> Self {
        receiver.connection(from, lane, ConnectionEvent::IncomingBegan);
        Self { from, lane, receiver, received }
    }

    async fn run(self, mut stream: Accepted, mut incoming: Incoming) {
        loop {
            let taken = incoming.each_frame(|frame| self.receiver.receive(self.from, self.lane, frame));
            match taken {
                Ok((0, _)) => {}
                Ok((frames, bytes)) => {
                    self.received.frames.fetch_add(frames, Ordering::Relaxed);
                    self.received.bytes.fetch_add(bytes, Ordering::Relaxed);
                }
                Err(error) => {
                    tracing::warn!(from = %self.from, lane = self.lane.name(), %error, "closing a connection");
                    return;
                }
            }
            match stream.read(&mut incoming).await {
                Ok(0) => return,
                Ok(_) => {}
                Err(error) => {
                    tracing::debug!(from = %self.from, lane = self.lane.name(), %error, "a connection broke");
                    return;
                }
            }
        }
    }
}

impl Drop for Reader {
    fn drop(&mut self) {
        self.receiver.connection(self.from, self.lane, ConnectionEvent::IncomingEnded);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// What is seen of a process whose connections are open if `received` frames have arrived at each look.
    fn seen(received: impl Fn(u32) -> u64) -> (u32, Seen) {
        let mut watch = Watch::default();
        let looks = (1..).map(|look| (look, watch.look(true, received(look))));
        looks.into_iter().find(|(_, seen)| *seen != Seen::Undecided).unwrap()
    }

    #[test]
    fn a_process_that_sends_once_runs_and_one_that_sends_nothing_may_be_stopped() {
        assert_eq!(seen(|look| u64::from(look >= 20)), (20, Seen::Runs));
        assert_eq!(seen(|_| 7), (LOOKS + 1, Seen::Silent));
        assert_eq!(seen(|look| u64::from(look.min(FIRST_LOOK_THAT_COUNTS))), (LOOKS + 1, Seen::Silent), "in transit");
        assert_eq!(Watch::default().look(false, 7), Seen::Ended);
    }
}
