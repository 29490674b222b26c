//! The sending end of one lane to one node: the socket, if there is one, and what waits for it.
//!
//! Always true: what waits is sent before anything newer, and nothing that was queued for one connection is sent on the next.

use super::LaneStatistics;
use crate::SendError;
use crate::frame::{HEADER_BYTES, KEPT_BYTES, put_frame};
use bytes::{Buf, BytesMut};
use parking_lot::Mutex;
use std::cell::RefCell;
use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use tokio::net::TcpStream;
use tokio::sync::Notify;

/// At most so much is written with one system call while the lock is held.
const WRITE_BYTES: usize = 256 << 10;

thread_local! {
    /// Frames on their way to the socket.
    static OUTGOING: RefCell<Vec<u8>> = const { RefCell::new(Vec::new()) };
}

#[derive(Default)]
struct State {
    socket: Option<Arc<TcpStream>>,
    waiting: BytesMut,
}

#[derive(Debug, Default)]
struct Counters {
    frames: AtomicU64,
    bytes: AtomicU64,
    dropped: AtomicU64,
    connects: AtomicU64,
}

/// One lane to one node.
pub(crate) struct Pipe {
    state: Mutex<State>,
    connected: AtomicBool,
    limit_bytes: usize,
    counters: Counters,
    /// Something waits, or the socket failed.
    attention: Notify,
    /// The other node is there: dial at once.
    pub(crate) dial_now: Notify,
}

impl Pipe {
    /// A lane that is not connected.
    pub(crate) fn new(limit_bytes: usize) -> Self {
        Self {
            state: Mutex::default(),
            connected: AtomicBool::new(false),
            limit_bytes,
            counters: Counters::default(),
            attention: Notify::new(),
            dial_now: Notify::new(),
        }
    }

    pub(crate) fn is_connected(&self) -> bool {
        self.connected.load(Ordering::Acquire)
    }

    /// Writes or queues all `frames`, or none.
    pub(crate) fn send(&self, frames: &[&[u8]]) -> Result<(), SendError> {
        let sent = if self.is_connected() {
            OUTGOING.with_borrow_mut(|outgoing| {
                // Checksums are made before the lock is taken.
                frames.iter().for_each(|frame| put_frame(outgoing, frame));
                let sent = self.send_bytes(outgoing);
                outgoing.clear();
                outgoing.shrink_to(KEPT_BYTES);
                sent
            })
        } else {
            Err(SendError::Down)
        };
        match sent {
            Ok(()) => {
                let bytes: usize = frames.iter().map(|frame| frame.len() + HEADER_BYTES).sum();
                self.counters.frames.fetch_add(frames.len() as u64, Ordering::Relaxed);
                self.counters.bytes.fetch_add(bytes as u64, Ordering::Relaxed);
            }
            Err(_) => {
                self.counters.dropped.fetch_add(frames.len() as u64, Ordering::Relaxed);
            }
        }
        sent
    }

    fn send_bytes(&self, bytes: &[u8]) -> Result<(), SendError> {
        let mut state = self.state.lock();
        let State { socket, waiting } = &mut *state;
        let Some(connected) = socket else { return Err(SendError::Down) };
        if !waiting.is_empty() {
            // The connection's task is at it already. A frame larger than the buffer passes when nothing else waits.
            if waiting.len() + bytes.len() > self.limit_bytes {
                return Err(SendError::Full);
            }
            waiting.extend_from_slice(bytes);
            return Ok(());
        }
        let mut rest = bytes;
        while !rest.is_empty() {
            match connected.try_write(rest) {
                Ok(written) => rest = &rest[written..],
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => break,
                Err(_) => {
                    self.fail(&mut state);
                    return Err(SendError::Down);
                }
            }
        }
        if !rest.is_empty() {
            waiting.extend_from_slice(rest);
            self.attention.notify_one();
        }
        Ok(())
    }

    fn fail(&self, state: &mut State) {
        self.connected.store(false, Ordering::Release);
        *state = State::default();
        self.attention.notify_one();
    }

    /// Sends on `socket` from now on.
    pub(crate) fn attach(&self, socket: Arc<TcpStream>) {
        *self.state.lock() = State { socket: Some(socket), waiting: BytesMut::new() };
        self.counters.connects.fetch_add(1, Ordering::Relaxed);
        self.connected.store(true, Ordering::Release);
    }

    /// Sends nothing any more and forgets what waits.
    pub(crate) fn detach(&self) {
        self.fail(&mut self.state.lock());
    }

    /// Writes what waits, whenever something does; returns when the socket fails.
    pub(crate) async fn drain(&self, socket: &TcpStream) -> io::Error {
        loop {
            match self.write_waiting() {
                Ok(true) => self.attention.notified().await,
                Ok(false) => {
                    if let Err(error) = socket.writable().await {
                        return error;
                    }
                }
                Err(error) => return error,
            }
        }
    }

    /// Writes once; whether nothing waits any more.
    fn write_waiting(&self) -> io::Result<bool> {
        let mut state = self.state.lock();
        let State { socket, waiting } = &mut *state;
        let Some(socket) = socket else { return Err(io::ErrorKind::BrokenPipe.into()) };
        if !waiting.is_empty() {
            match socket.try_write(&waiting[..waiting.len().min(WRITE_BYTES)]) {
                Ok(written) => waiting.advance(written),
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
                Err(error) => return Err(error),
            }
        }
        if waiting.is_empty() && waiting.capacity() > KEPT_BYTES {
            *waiting = BytesMut::new();
        }
        Ok(waiting.is_empty())
    }

    /// What it has carried.
    pub(crate) fn statistics(&self) -> LaneStatistics {
        LaneStatistics {
            connected: self.is_connected(),
            frames_sent: self.counters.frames.load(Ordering::Relaxed),
            bytes_sent: self.counters.bytes.load(Ordering::Relaxed),
            frames_dropped: self.counters.dropped.load(Ordering::Relaxed),
            reconnects: self.counters.connects.load(Ordering::Relaxed).saturating_sub(1),
            bytes_waiting: self.state.lock().waiting.len() as u64,
            ..LaneStatistics::default()
        }
    }
}
