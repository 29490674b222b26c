//! Connections that send hostile requests, and the answers to them.
//!
//! Always true: each connection has a thread of its own, so that making and sending large requests does not delay the
//! timed reads. A connection that the server closes, or does not answer in time, is replaced by another after a pause.
//! All events are counted. Left out: following the protocol.

use std::collections::BTreeMap;
use std::io;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use rustix::process::setpriority_process;
use thiserror::Error;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::runtime::Handle;
use tokio::sync::watch;
use tokio::time::timeout;

use super::classes::{Class, Sends};
use crate::pipelined::frames;
use crate::timer::pause;

/// How long to wait for an answer: longer than a server lets a request run.
const ANSWER: Duration = Duration::from_secs(15);
/// The pause before the next connection after one was closed.
const AGAIN: Duration = Duration::from_millis(10);
/// The most of an answer that distinguishes it from others.
const KEPT_CHARACTERS: usize = 70;
/// Answers that differ from all before them count together from here on.
const KINDS: usize = 12;
/// The nice value of threads that send hostile requests.
const NICE: i32 = 10;
/// The most bytes sent by one system call.
const PIECE_BYTES: usize = 64 << 10;
/// The protocol version byte of requests, version 4.
const REQUEST_VERSION: u8 = 4;

/// Counts of each answer.
pub type Answers = BTreeMap<String, u64>;

/// One class against one node.
pub struct Attack {
    pub class: &'static Class,
    node: String,
    keyspace: String,
    connections: usize,
    sent: AtomicU64,
    answers: Mutex<Answers>,
    /// Nothing more is sent.
    is_over: AtomicBool,
    /// Answers are no longer waited for.
    cut: watch::Sender<bool>,
}

/// Lowers the priority of this thread below those that send and time the reads. If the system refuses, it competes with
/// them.
fn lower_priority() {
    let _ = setpriority_process(None, NICE);
}

impl Attack {
    /// An attack on `node`, host:port.
    pub fn new(class: &'static Class, node: &str, keyspace: &str, connections: usize) -> Arc<Self> {
        let (node, keyspace) = (node.to_owned(), keyspace.to_owned());
        let (sent, answers) = (AtomicU64::new(0), Mutex::default());
        let (is_over, cut) = (AtomicBool::new(false), watch::Sender::new(false));
        Arc::new(Self { class, node, keyspace, connections, sent, answers, is_over, cut })
    }

    /// The answers so far.
    pub fn answers(&self) -> Answers {
        self.answers.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    fn count(&self, answer: &str) {
        let mut answers = self.answers.lock().unwrap_or_else(PoisonError::into_inner);
        let mut kept: String = answer.chars().take(KEPT_CHARACTERS).collect();
        if answers.len() >= KINDS && !answers.contains_key(&kept) {
            "others".clone_into(&mut kept);
        }
        *answers.entry(kept).or_default() += 1;
    }

    /// Sends the statements that prepare the phase.
    pub async fn prepare(&self) {
        let Some(before) = self.class.before else { return };
        let outcome = async { ask(&mut open(&self.node, &self.keyspace).await?, &before()).await };
        if let Err(error) = outcome.await {
            self.count(&format!("before: {error}"));
        }
    }

    /// Begins; goes on until [`Attack::end`].
    pub fn begin(self: &Arc<Self>) -> Vec<tokio::task::JoinHandle<()>> {
        let connection = |_| {
            let (attack, runtime) = (Arc::clone(self), Handle::current());
            let work = move || {
                lower_priority();
                runtime.block_on(attack.connection());
            };
            tokio::task::spawn_blocking(work)
        };
        (0..self.connections).map(connection).collect()
    }

    /// Ends the hostile requests; answers under way may arrive within `limit`.
    pub async fn end(&self, begun: Vec<tokio::task::JoinHandle<()>>, limit: Duration) {
        self.is_over.store(true, Ordering::Relaxed);
        let mut ended = futures::future::join_all(begun);
        if timeout(limit, &mut ended).await.is_err() {
            self.cut.send_replace(true);
            ended.await;
        }
    }

    fn goes_on(&self) -> bool {
        !self.is_over.load(Ordering::Relaxed)
    }

    async fn connection(&self) {
        let mut cut = self.cut.subscribe();
        let attacking = async {
            while self.goes_on() {
                let outcome = match self.class.sends {
                    Sends::Statement(statement) => self.statements(Some(statement()), |_| String::new()).await,
                    Sends::Statements(statement) => self.statements(None, statement).await,
                    Sends::OversizedFrames => self.raw(u32::MAX >> 1, 1 << 10).await,
                    Sends::UnfinishedRequests => self.raw(32 << 20, (32 << 20) - 1).await,
                    Sends::Connections => open(&self.node, &self.keyspace).await.map(|_| self.count("a session")),
                };
                if let Err(error) = outcome {
                    self.count(&error.to_string());
                }
                pause(AGAIN).await;
            }
        };
        tokio::select! {
            () = attacking => {}
            _ = cut.wait_for(|cut| *cut) => self.count("no answer in time"),
        }
    }

    /// Sends the one statement, or those that `next` gives, one after another.
    async fn statements(&self, one: Option<String>, next: impl Fn(u64) -> String) -> Result<(), Unanswered> {
        let mut stream = open(&self.node, &self.keyspace).await?;
        while self.goes_on() {
            let answer = match &one {
                Some(statement) => ask(&mut stream, statement).await?,
                None => ask(&mut stream, &next(self.sent.fetch_add(1, Ordering::Relaxed))).await?,
            };
            self.count(&answer);
        }
        Ok(())
    }

    /// Sends a header that promises `length` bytes, and `sent` of them; then waits to be cut off.
    async fn raw(&self, length: u32, sent: usize) -> Result<(), Unanswered> {
        let mut stream = connect(&self.node).await?;
        let mut frame = vec![REQUEST_VERSION, 0, 0, 0, frames::OPCODE_QUERY];
        frame.extend_from_slice(&length.to_be_bytes());
        frame.resize(frame.len() + sent, b' ');
        let exchange = async {
            let _ = send(&mut stream, &frame).await;
            read(&mut stream).await
        };
        let answer = timeout(ANSWER, exchange).await.map_err(|_| Unanswered::NoAnswer)??;
        self.count(&answer);
        Ok(())
    }
}

/// Why a hostile request has no answer; the report counts them by these words.
#[derive(Debug, Error)]
enum Unanswered {
    #[error("not connected: {0}")]
    NotConnected(io::Error),
    #[error("cut off: {0}")]
    CutOff(io::Error),
    #[error("cut off in an answer")]
    CutOffInAnswer,
    #[error("no answer")]
    NoAnswer,
}

async fn connect(node: &str) -> Result<TcpStream, Unanswered> {
    TcpStream::connect(node).await.map_err(Unanswered::NotConnected)
}

/// A session that uses the keyspace.
async fn open(node: &str, keyspace: &str) -> Result<TcpStream, Unanswered> {
    let mut stream = connect(node).await?;
    let mut request = Vec::new();
    frames::startup(&mut request, false);
    exchange(&mut stream, &request).await?;
    ask(&mut stream, &format!("USE {keyspace}")).await?;
    Ok(stream)
}

/// Sends a statement and returns a short text of the answer.
async fn ask(stream: &mut TcpStream, statement: &str) -> Result<String, Unanswered> {
    let mut request = Vec::new();
    frames::query(&mut request, statement);
    exchange(stream, &request).await
}

/// Sends bytes piece by piece: a call of the system that sends megabytes over the loopback keeps a processor from everybody for 20 ms.
async fn send(stream: &mut TcpStream, bytes: &[u8]) -> io::Result<()> {
    for piece in bytes.chunks(PIECE_BYTES) {
        stream.write_all(piece).await?;
    }
    Ok(())
}

async fn exchange(stream: &mut TcpStream, request: &[u8]) -> Result<String, Unanswered> {
    let exchange = async {
        send(stream, request).await.map_err(Unanswered::CutOff)?;
        read(stream).await
    };
    timeout(ANSWER, exchange).await.map_err(|_| Unanswered::NoAnswer)?
}

/// Reads an answer, of which only the beginning is kept.
async fn read(stream: &mut TcpStream) -> Result<String, Unanswered> {
    let mut header = [0; frames::HEADER_BYTES];
    stream.read_exact(&mut header).await.map_err(Unanswered::CutOff)?;
    let length = u64::from(u32::from_be_bytes([header[5], header[6], header[7], header[8]]));
    let mut body = Vec::new();
    stream.take(length.min(4 << 10)).read_to_end(&mut body).await.map_err(Unanswered::CutOff)?;
    let mut rest = stream.take(length.saturating_sub(4 << 10));
    let rest_bytes = tokio::io::copy(&mut rest, &mut tokio::io::sink()).await.map_err(Unanswered::CutOff)?;
    if body.len() as u64 + rest_bytes < length {
        return Err(Unanswered::CutOffInAnswer);
    }
    Ok(match header[4] {
        frames::OPCODE_ERROR => frames::parse_error(&body),
        _ => "done".to_owned(),
    })
}
