//! The dialling end: connects to a node, sends the hello, and runs the lane's pipe on the connection until it ends;
//! then connects again.
//!
//! Left out: giving up. A node is dialled as long as it is a member.

use super::dialled::Dialled;
use super::options::{HANDSHAKE_TIMEOUT, Notices, Observer, TcpOptions, prepare};
use super::pipe::Pipe;
use crate::frame::{Incoming, bodies, put_frame};
use crate::hello::{self, Hello, MAGIC, MAX_HELLO_BYTES, Opening, PREAMBLE_BYTES, Refusal, RefusalKind};
use crate::{ConnectionEvent, Lane};
use diorite_base::random::{Random, SplitMix64};
use diorite_base::{Clock, NodeId};
use rustls::ClientConfig;
use std::fmt;
use std::io;
use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;
use std::time::Duration;
use thiserror::Error;
use tokio::net::TcpSocket;
use tokio::sync::watch;
use tokio::time::timeout;

const FIRST_BACKOFF: Duration = Duration::from_millis(50);
const LONGEST_BACKOFF: Duration = Duration::from_secs(1);

/// Why there is no connection.
#[derive(Debug, Error)]
pub enum DialError {
    /// No answer, or an answer that is not a node's.
    #[error("{0}")]
    Unreachable(#[from] io::Error),
    /// The node refuses the connection.
    #[error("{0}")]
    Refused(Refusal),
}

/// How long the answer to an opening may take if a refusal because of clocks is to be believed. The other side compares
/// its clock, when it reads the opening, with this node's clock when that wrote it: a delay (the other side was
/// stopped, is still starting, or is far away) looks like a difference. A delay of at most half the allowed difference
/// explains at most half of an excessive difference, so the clocks really differ by at least half the allowed
/// difference.
fn believable(max_clock_skew: Duration) -> Duration {
    max_clock_skew.min(TcpOptions::MAX_CLOCK_SKEW) / 2
}

/// The dialling node's address and clock.
#[derive(Clone, Copy)]
pub struct Caller<'a> {
    /// The local address of connections; any if there is none.
    pub bind: Option<IpAddr>,
    /// Time.
    pub clock: &'a dyn Clock,
    /// How far the wall clocks of two nodes may differ.
    pub max_clock_skew: Duration,
    /// TLS with what this node shows and whom it trusts; `None`: connections are open.
    pub tls: Option<&'a Arc<ClientConfig>>,
}

impl fmt::Debug for Caller<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Caller({:?}, {:?})", self.bind, self.max_clock_skew)
    }
}

/// Asks the node at `address` one question.
pub async fn ask(
    address: SocketAddr,
    caller: Caller<'_>,
    question: Vec<u8>,
    limit: Duration,
) -> Result<Vec<u8>, DialError> {
    match timeout(limit, open(address, caller, Opening::Question(question))).await {
        Ok(opened) => opened.map(|(_, answer)| answer),
        Err(_) => Err(DialError::Unreachable(io::Error::new(io::ErrorKind::TimedOut, "no answer in time"))),
    }
}

/// Connects, sends `opening` and returns the connection with its answer.
async fn open(address: SocketAddr, caller: Caller<'_>, opening: Opening) -> Result<(Dialled, Vec<u8>), DialError> {
    let Caller { bind, clock, max_clock_skew, tls } = caller;
    let socket = if address.is_ipv4() { TcpSocket::new_v4()? } else { TcpSocket::new_v6()? };
    if let Some(bind) = bind.filter(|bind| bind.is_ipv4() == address.is_ipv4() && !bind.is_unspecified()) {
        socket.bind(SocketAddr::new(bind, 0))?;
    }
    let stream = socket.connect(address).await?;
    prepare(&stream)?;
    let mut stream = Dialled::open(stream, address.ip(), tls).await?;
    let mut request = hello::preamble().to_vec();
    let started_ns = clock.monotonic_ns();
    put_frame(&mut request, &opening.encode(clock.wall_us()));
    stream.write_all(&request).await?;
    let answer = read_answer(&mut stream).await?;
    match answer {
        Ok(answer) => Ok((stream, answer)),
        Err(refusal) => {
            let took = Duration::from_nanos(clock.monotonic_ns() - started_ns);
            if refusal.kind == RefusalKind::Clock && took > believable(max_clock_skew) {
                let late = format!("its answer took {} ms, too long to compare clocks: {refusal}", took.as_millis());
                return Err(io::Error::new(io::ErrorKind::TimedOut, late).into());
            }
            Err(DialError::Refused(refusal))
        }
    }
}

async fn read_answer(stream: &mut Dialled) -> io::Result<Result<Vec<u8>, Refusal>> {
    let not_a_node = || {
        let why = "the answer is not that of a diorite node, or the node expects a certificate";
        io::Error::new(io::ErrorKind::InvalidData, why)
    };
    let mut incoming = Incoming::new(MAX_HELLO_BYTES);
    let mut version = None;
    loop {
        let count = stream.read(&mut incoming).await?;
        if version.is_none() && !incoming.may_begin_with(&MAGIC) {
            return Err(not_a_node());
        }
        if count == 0 {
            return Err(io::Error::new(io::ErrorKind::UnexpectedEof, "the connection was closed without an answer"));
        }
        if version.is_none() {
            let Some(preamble) = incoming.take::<PREAMBLE_BYTES>() else { continue };
            version = Some(hello::version_of(preamble).ok_or_else(not_a_node)?);
        }
        // A refusal has the same format in all versions, so the version is not checked.
        if let Some(body) = incoming.one_frame().map_err(io::Error::other)? {
            return hello::decode_answer(&body).map_err(|_| not_a_node());
        }
    }
}

/// Keeps one lane to one node connected.
pub(crate) struct Dialler {
    options: Arc<TcpOptions>,
    observer: Arc<dyn Observer>,
    notices: Notices,
    to: NodeId,
    lane: Lane,
    pipe: Arc<Pipe>,
    random: SplitMix64,
    /// The refusal that was reported last; only a different one is reported.
    refusal: Option<Refusal>,
    is_reported_unreachable: bool,
}

impl Dialler {
    pub(crate) fn new(
        options: Arc<TcpOptions>,
        (observer, notices): (Arc<dyn Observer>, Notices),
        to: NodeId,
        lane: Lane,
        pipe: Arc<Pipe>,
    ) -> Self {
        let random = SplitMix64::new(options.seed ^ (to.0 << 8) ^ lane.index() as u64);
        Self { options, observer, notices, to, lane, pipe, random, refusal: None, is_reported_unreachable: false }
    }

    /// Runs until the sender of addresses is dropped.
    pub(crate) async fn run(mut self, mut addresses: watch::Receiver<SocketAddr>) {
        let mut backoff = FIRST_BACKOFF;
        loop {
            let address = *addresses.borrow_and_update();
            let dialled = tokio::select! {
                dialled = self.connect(address) => dialled,
                changed = addresses.changed() => match changed {
                    Ok(()) => continue,
                    Err(_) => return,
                },
            };
            match dialled {
                Ok((stream, answer)) => {
                    self.pipe.set_level(hello::decode_level(&answer));
                    let since_ns = self.options.clock.monotonic_ns();
                    let removed = self.serve(stream, &mut addresses).await;
                    if removed {
                        return;
                    }
                    let lasted_ns = self.options.clock.monotonic_ns() - since_ns;
                    if Duration::from_nanos(lasted_ns) > LONGEST_BACKOFF {
                        backoff = FIRST_BACKOFF;
                    }
                }
                Err(error) => self.report(error),
            }
            let pause = self.jittered(backoff);
            backoff = (backoff * 2).min(LONGEST_BACKOFF);
            tokio::select! {
                woken = timeout(pause, self.pipe.dial_now.notified()) => if woken.is_ok() { backoff = FIRST_BACKOFF },
                changed = addresses.changed() => if changed.is_err() { return },
            }
        }
    }

    /// A random duration between half of `backoff` and all of it, so that nodes do not dial in step.
    fn jittered(&mut self, backoff: Duration) -> Duration {
        let half_us = backoff.as_micros() as u64 / 2;
        Duration::from_micros(half_us + self.random.below(half_us + 1))
    }

    async fn connect(&self, address: SocketAddr) -> Result<(Dialled, Vec<u8>), DialError> {
        let options = &self.options;
        let hello = Hello {
            cluster: options.cluster,
            from: options.node,
            host: options.host,
            to: self.to,
            incarnation: options.incarnation,
            lane: self.lane,
            address: options.advertise,
        };
        // What is in force now: a connection that is open stays as it is.
        let credentials = options.tls.as_ref().map(|tls| tls.load_full());
        let caller = Caller {
            bind: options.bind,
            clock: options.clock.as_ref(),
            max_clock_skew: options.max_clock_skew,
            tls: credentials.as_ref().map(|credentials| credentials.client()),
        };
        let opening = open(address, caller, Opening::Lane(hello));
        match timeout(HANDSHAKE_TIMEOUT, opening).await {
            Ok(opened) => opened,
            Err(_) => Err(io::Error::new(io::ErrorKind::TimedOut, "no answer in time").into()),
        }
    }

    /// Sends until the connection ends or the address changes; returns whether the node was removed.
    async fn serve(&mut self, stream: Dialled, addresses: &mut watch::Receiver<SocketAddr>) -> bool {
        self.refusal = None;
        self.is_reported_unreachable = false;
        let stream = Arc::new(stream);
        self.pipe.attach(Arc::clone(&stream));
        tracing::debug!(to = %self.to, lane = self.lane.name(), "connected");
        self.observer.connected(self.to, self.lane);
        self.notices.send(self.to, self.lane, ConnectionEvent::OutgoingBegan);
        let (removed, ended) = tokio::select! {
            error = self.pipe.drain(&stream) => (false, error),
            error = stream.closed() => (false, error),
            changed = addresses.changed() => (changed.is_err(), io::Error::other("its address changed")),
        };
        let unsent = self.pipe.detach();
        tracing::debug!(to = %self.to, lane = self.lane.name(), %ended, "disconnected");
        self.observer.disconnected(self.to, self.lane);
        // Before the next connection is dialled.
        self.notices.send(self.to, self.lane, ConnectionEvent::OutgoingEnded { unsent: &bodies(&unsent) });
        removed
    }

    fn report(&mut self, error: DialError) {
        match error {
            DialError::Refused(refusal) if self.refusal.as_ref() != Some(&refusal) => {
                self.observer.refused(self.to, self.lane, &refusal);
                self.refusal = Some(refusal);
            }
            DialError::Refused(_) => {}
            DialError::Unreachable(error) => {
                tracing::debug!(to = %self.to, lane = self.lane.name(), %error, "cannot connect");
                if !std::mem::replace(&mut self.is_reported_unreachable, true) {
                    self.observer.unreachable(self.to, self.lane, &error);
                }
            }
        }
    }
}
