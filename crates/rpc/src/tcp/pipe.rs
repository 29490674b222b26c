//! The sending end of one lane to one node: the socket, if there is one, and the bytes that wait for it.
//!
//! Always true: waiting bytes are sent before newer ones, and bytes that were queued for one connection are never sent
//! on the next. Frames are refused only if no byte of them was passed to the kernel. Of frames that were passed in
//! part, the first may arrive complete, so they count as sent and lost. When a connection ends, the frames of which no byte
//! was passed to the socket are known, and those only.

use super::dialled::{Dialled, TryWrite};
use super::options::LaneStatistics;
use crate::SendError;
use crate::frame::{HEADER_BYTES, KEPT_BYTES, framed_bytes, put_frame};
use bytes::{Buf, BytesMut};
use diorite_base::Level;
use parking_lot::Mutex;
use std::cell::RefCell;
use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering};
use tokio::sync::Notify;

/// The most bytes of one system call while the lock is held.
const WRITE_BYTES: usize = 256 << 10;

thread_local! {
    /// A reused buffer for frames that are being sent.
    static OUTGOING: RefCell<Vec<u8>> = const { RefCell::new(Vec::new()) };
}

struct State<S> {
    socket: Option<Arc<S>>,
    waiting: BytesMut,
    /// The first so many of the waiting bytes end a frame of which the socket has taken a part.
    begun: usize,
    /// The frames that the socket, which has failed, has taken no byte of.
    unsent: BytesMut,
}

impl<S> Default for State<S> {
    fn default() -> Self {
        Self { socket: None, waiting: BytesMut::new(), begun: 0, unsent: BytesMut::new() }
    }
}

/// `bytes` are the last `begun` bytes of a frame and whole frames, and the socket takes the first `taken` of them: how
/// many of the others end a frame of which it has taken a part.
fn left_of_begun(bytes: &[u8], begun: usize, taken: usize) -> usize {
    let mut end = begun;
    while end < taken {
        end += framed_bytes(&bytes[end..]);
    }
    end - taken
}

#[derive(Debug, Default)]
struct Counters {
    frames: AtomicU64,
    bytes: AtomicU64,
    dropped: AtomicU64,
    connects: AtomicU64,
}

/// One lane to one node.
pub(crate) struct Pipe<S = Dialled> {
    state: Mutex<State<S>>,
    connected: AtomicBool,
    /// The highest level that the program at the other end of the last connection knows.
    level: AtomicU32,
    limit_bytes: usize,
    counters: Counters,
    /// Notified when bytes wait, or the socket has failed.
    attention: Notify,
    /// Notified when the other node is known to be up: dial at once.
    pub(crate) dial_now: Notify,
}

impl<S: TryWrite> Pipe<S> {
    /// A lane that is not connected.
    pub(crate) fn new(limit_bytes: usize) -> Self {
        Self {
            state: Mutex::default(),
            connected: AtomicBool::new(false),
            level: AtomicU32::new(Level::FIRST.0),
            limit_bytes,
            counters: Counters::default(),
            attention: Notify::new(),
            dial_now: Notify::new(),
        }
    }

    /// The highest level that the program at the other end of the last connection knows.
    pub(crate) fn level(&self) -> Level {
        Level(self.level.load(Ordering::Acquire))
    }

    /// Notes the level of the connection that is attached next.
    pub(crate) fn set_level(&self, level: Level) {
        self.level.store(level.0, Ordering::Release);
    }

    pub(crate) fn is_connected(&self) -> bool {
        self.connected.load(Ordering::Acquire)
    }

    /// Writes or queues all `frames`, or none.
    pub(crate) fn send(&self, frames: &[&[u8]]) -> Result<(), SendError> {
        let sent = if self.is_connected() {
            OUTGOING.with_borrow_mut(|outgoing| {
                // Checksums are computed before the lock is taken.
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
        let State { socket, waiting, begun, .. } = &mut *state;
        let Some(connected) = socket else { return Err(SendError::Down) };
        if !waiting.is_empty() {
            // The connection's task is writing the waiting bytes. A frame larger than the buffer is accepted when
            // nothing waits.
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
                    let is_untouched = rest.len() == bytes.len();
                    if !is_untouched {
                        *begun = left_of_begun(bytes, 0, bytes.len() - rest.len());
                        waiting.extend_from_slice(rest);
                    }
                    self.fail(&mut state);
                    return if is_untouched { Err(SendError::Down) } else { Ok(()) };
                }
            }
        }
        let is_unsent = !rest.is_empty() || connected.has_unsent();
        if !rest.is_empty() {
            *begun = left_of_begun(bytes, 0, bytes.len() - rest.len());
            waiting.extend_from_slice(rest);
        }
        if is_unsent {
            self.attention.notify_one();
        }
        Ok(())
    }

    fn fail(&self, state: &mut State<S>) {
        self.connected.store(false, Ordering::Release);
        if state.socket.take().is_some() {
            let mut whole = std::mem::take(&mut state.waiting);
            whole.advance(std::mem::take(&mut state.begun));
            state.unsent = whole;
        }
        self.attention.notify_one();
    }

    /// Sends on `socket` from now on.
    pub(crate) fn attach(&self, socket: Arc<S>) {
        *self.state.lock() = State { socket: Some(socket), ..State::default() };
        self.counters.connects.fetch_add(1, Ordering::Relaxed);
        self.connected.store(true, Ordering::Release);
    }

    /// Sends nothing from now on. Returns the queued frames of which certainly no byte was sent, with their headers.
    pub(crate) fn detach(&self) -> BytesMut {
        let mut state = self.state.lock();
        self.fail(&mut state);
        std::mem::take(&mut state.unsent)
    }

    /// Writes once; returns whether no bytes wait any more, here or in the socket's TLS.
    fn write_waiting(&self) -> io::Result<bool> {
        let mut state = self.state.lock();
        let State { socket, waiting, begun, .. } = &mut *state;
        let Some(socket) = socket else { return Err(io::ErrorKind::BrokenPipe.into()) };
        if !waiting.is_empty() || socket.has_unsent() {
            match socket.try_write(&waiting[..waiting.len().min(WRITE_BYTES)]) {
                Ok(written) => {
                    *begun = left_of_begun(waiting, *begun, written);
                    waiting.advance(written);
                }
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
                Err(error) => return Err(error),
            }
        }
        if waiting.is_empty() && waiting.capacity() > KEPT_BYTES {
            *waiting = BytesMut::new();
        }
        Ok(waiting.is_empty() && !socket.has_unsent())
    }

    /// The statistics of the lane, for frames sent.
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

impl Pipe {
    /// Writes waiting bytes whenever there are any; returns when the socket fails.
    pub(crate) async fn drain(&self, socket: &Dialled) -> io::Error {
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
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::frame::{Incoming, MAX_FRAME_BYTES, bodies};
    use parking_lot::Mutex;

    /// A socket that accepts this many bytes with each write, and then fails.
    #[derive(Default)]
    struct Failing {
        takes: Mutex<Vec<usize>>,
        taken: Mutex<Vec<u8>>,
    }

    impl TryWrite for Failing {
        fn try_write(&self, bytes: &[u8]) -> io::Result<usize> {
            let takes = self.takes.lock().pop().ok_or(io::ErrorKind::ConnectionReset)?.min(bytes.len());
            self.taken.lock().extend_from_slice(&bytes[..takes]);
            Ok(takes)
        }
    }

    /// The outcome of sending two frames if the socket accepts these numbers of bytes and then fails, the number of
    /// frames that arrive, and the number of those that were certainly not sent.
    fn sent(takes: &[usize]) -> (Result<(), SendError>, usize, usize) {
        let pipe: Pipe<Failing> = Pipe::new(1 << 20);
        let socket =
            Arc::new(Failing { takes: Mutex::new(takes.iter().rev().copied().collect()), ..Failing::default() });
        pipe.attach(Arc::clone(&socket));
        let sent = pipe.send(&[b"a request", b"an answer"]);
        let is_whole = takes.iter().sum::<usize>() >= 34;
        assert_eq!(pipe.is_connected(), is_whole);
        assert_eq!(pipe.statistics().frames_dropped, if sent.is_ok() { 0 } else { 2 });
        let mut incoming = Incoming::new(MAX_FRAME_BYTES);
        incoming.space().extend_from_slice(&socket.taken.lock());
        let mut arrived = 0;
        incoming.each_frame(|_| arrived += 1).expect("what was written is right as far as it goes");
        (sent, arrived, bodies(&pipe.detach()).len())
    }

    #[test]
    fn what_the_kernel_has_a_part_of_counts_as_sent() {
        assert_eq!(sent(&[]), (Err(SendError::Down), 0, 0), "it can be sent again");
        for bytes in 1..34 {
            // A frame has 17 bytes with its header: from there on the request arrives and is carried out.
            let outcome = (Ok(()), usize::from(bytes >= 17), usize::from(bytes <= 17));
            assert_eq!(sent(&[bytes]), outcome, "{bytes} bytes");
        }
        assert_eq!(sent(&[10, 7, 3]), (Ok(()), 1, 0));
        assert_eq!(sent(&[34]), (Ok(()), 2, 0));
    }

    /// A socket that is full after this many bytes.
    struct Filling(Mutex<usize>);

    impl TryWrite for Filling {
        fn try_write(&self, bytes: &[u8]) -> io::Result<usize> {
            let mut space = self.0.lock();
            let takes = bytes.len().min(*space);
            *space -= takes;
            if takes > 0 { Ok(takes) } else { Err(io::ErrorKind::WouldBlock.into()) }
        }
    }

    #[test]
    fn frames_that_the_socket_has_taken_nothing_of_are_certainly_not_sent() {
        let written = [&b"one"[..], b"", b"a longer one", b"four"];
        let framed: Vec<usize> = written.iter().map(|body| body.len() + HEADER_BYTES).collect();
        for first in 0..=framed.iter().sum::<usize>() {
            for more in 0..=framed.iter().sum::<usize>() - first {
                let pipe: Pipe<Filling> = Pipe::new(1 << 20);
                let socket = Arc::new(Filling(Mutex::new(first)));
                pipe.attach(Arc::clone(&socket));
                written.iter().for_each(|body| pipe.send(&[*body]).expect("there is space in the buffer"));
                *socket.0.lock() = more;
                pipe.write_waiting().expect("the socket has not failed");
                // A frame is sent in part if it begins before the end of what was taken.
                let mut begin = 0;
                let mut is_unsent = |bytes: &usize| {
                    let is_unsent = begin >= first + more;
                    begin += bytes;
                    is_unsent
                };
                let unsent: Vec<&[u8]> =
                    written.iter().zip(&framed).filter(|(_, bytes)| is_unsent(bytes)).map(|(body, _)| *body).collect();
                assert_eq!(bodies(&pipe.detach()), unsent, "{first} and {more} bytes");
                assert!(pipe.detach().is_empty(), "they are named once");
            }
        }
    }
}
