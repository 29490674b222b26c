//! The accepting end of a connection: a socket, plain or with TLS, that receives frames and sends an answer.
//!
//! Always true: with TLS, content arrives only from a node whose certificate was accepted; memory for TLS is allocated
//! only when the first bytes have arrived. A thread reads all connections through one buffer: between reads a connection
//! keeps no more than an incomplete record, and its records are decrypted in place. After [`ROUNDS`] reads without a wait
//! other tasks have their turn. The end of the socket ends the connection like the end of TLS: frames have lengths, so a
//! part of one is never taken for a whole.
//!
//! Left out: how long a handshake may take and how many there may be, which is decided where connections are accepted.

use crate::frame::Incoming;
use rustix::event::{PollFd, PollFlags, Timespec};
use rustls::ServerConfig;
use rustls::pki_types::CertificateDer;
use rustls::server::UnbufferedServerConnection;
use rustls::unbuffered::{ConnectionState, EncodeError, EncryptError, UnbufferedStatus};
use std::cell::RefCell;
use std::io;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWriteExt, ReadBuf};
use tokio::net::TcpStream;

/// Encrypted bytes that are read at a time, with what was kept of the last read.
const READ_BYTES: usize = 128 << 10;
/// An incomplete record, or a handshake in several of them, is not larger.
const MAX_KEPT_BYTES: usize = 32 << 10;
/// So many reads follow each other without a wait before other tasks have their turn.
const ROUNDS: u32 = 4;

thread_local! {
    /// What is being read, and decrypted in place.
    static RECORDS: RefCell<Vec<u8>> = const { RefCell::new(Vec::new()) };
}

/// See the top of this module.
pub(crate) enum Accepted {
    Plain(TcpStream),
    Tls(Box<TlsAccepted>),
}

/// A socket and the TLS on it.
pub(crate) struct TlsAccepted {
    stream: TcpStream,
    config: Arc<ServerConfig>,
    session: Option<UnbufferedServerConnection>,
    /// The beginning of a record.
    kept: Vec<u8>,
    outgoing: Outgoing,
    /// Reads since the last wait.
    rounds: u32,
}

/// What one side of TLS wants to say.
#[derive(Default)]
struct Outgoing {
    /// Encrypted, not sent yet.
    bytes: Vec<u8>,
    /// The other side has ended the connection.
    has_ended: bool,
}

impl Accepted {
    /// Takes a socket that was just accepted. With TLS, the handshake goes on as bytes are read.
    pub(crate) fn new(stream: TcpStream, tls: Option<Arc<ServerConfig>>) -> Self {
        let Some(config) = tls else { return Self::Plain(stream) };
        let outgoing = Outgoing::default();
        Self::Tls(Box::new(TlsAccepted { stream, config, session: None, kept: Vec::new(), outgoing, rounds: 0 }))
    }

    /// The certificate of the other side; `None` without TLS.
    pub(crate) fn certificate(&self) -> Option<&CertificateDer<'static>> {
        match self {
            Self::Plain(_) => None,
            Self::Tls(tls) => tls.session.as_ref()?.peer_certificates()?.first(),
        }
    }

    /// Whether the other side has closed the connection, even if not all that it sent has been read.
    pub(crate) fn is_closed(&self) -> io::Result<bool> {
        let stream = match self {
            Self::Plain(stream) => stream,
            Self::Tls(tls) => &tls.stream,
        };
        let mut sockets = [PollFd::new(stream, PollFlags::RDHUP)];
        rustix::event::poll(&mut sockets, Some(&Timespec::default()))?;
        Ok(!sockets[0].revents().is_empty())
    }

    /// Appends what arrives; 0 at the end.
    pub(crate) async fn read(&mut self, incoming: &mut Incoming) -> io::Result<usize> {
        match self {
            Self::Plain(stream) => stream.read_buf(incoming.space()).await,
            Self::Tls(tls) => tls.read(incoming).await,
        }
    }

    /// Sends all of the bytes, which answer what was read.
    pub(crate) async fn write_all(&mut self, bytes: &[u8]) -> io::Result<()> {
        match self {
            Self::Plain(stream) => stream.write_all(bytes).await,
            Self::Tls(tls) => {
                tls.seal(bytes)?;
                tls.send().await
            }
        }
    }

    /// Sends nothing any more.
    pub(crate) async fn shutdown(&mut self) -> io::Result<()> {
        match self {
            Self::Plain(stream) => stream.shutdown().await,
            Self::Tls(tls) => tls.stream.shutdown().await,
        }
    }
}

impl TlsAccepted {
    async fn read(&mut self, incoming: &mut Incoming) -> io::Result<usize> {
        loop {
            if self.rounds >= ROUNDS {
                self.rounds = 0;
                tokio::task::yield_now().await;
            }
            let received = std::future::poll_fn(|context| self.poll_receive(context, incoming)).await;
            // An alert tells the other side why; whether it arrives changes nothing.
            let sent = if self.outgoing.bytes.is_empty() { Ok(()) } else { self.send().await };
            match received? {
                Some(count) if count > 0 => return Ok(count),
                None => return Ok(0),
                Some(_) => sent?,
            }
        }
    }

    /// Reads once: the number of bytes of content, which is 0 for messages of TLS; `None` at the end.
    fn poll_receive(&mut self, context: &mut Context<'_>, incoming: &mut Incoming) -> Poll<io::Result<Option<usize>>> {
        RECORDS.with_borrow_mut(|records| {
            if records.len() < READ_BYTES {
                records.resize(READ_BYTES, 0);
            }
            let (before, space) = records.split_at_mut(self.kept.len());
            let mut space = ReadBuf::new(space);
            let polled = Pin::new(&mut self.stream).poll_read(context, &mut space);
            if polled.is_pending() {
                self.rounds = 0;
            }
            ready!(polled)?;
            self.rounds += 1;
            let read = space.filled().len();
            if read == 0 {
                return Poll::Ready(Ok(None));
            }
            before.copy_from_slice(&self.kept);
            let end = self.kept.len() + read;
            Poll::Ready(self.decrypt(records.get_mut(..end).unwrap_or_default(), incoming))
        })
    }

    /// Appends the content of the records, and keeps what is incomplete.
    fn decrypt(&mut self, records: &mut [u8], incoming: &mut Incoming) -> io::Result<Option<usize>> {
        if self.session.is_none() {
            self.session = Some(UnbufferedServerConnection::new(Arc::clone(&self.config)).map_err(io::Error::other)?);
        }
        let Some(session) = &mut self.session else { return Ok(None) };
        let mut content = 0;
        let used = process(session, records, &mut self.outgoing, |bytes| {
            content += bytes.len();
            incoming.space().extend_from_slice(bytes);
        });
        let used = used.inspect_err(|_| alert(session, records, &mut self.outgoing))?;
        let rest = records.get(used..).unwrap_or_default();
        if rest.len() > MAX_KEPT_BYTES {
            return Err(io::Error::new(io::ErrorKind::InvalidData, "a handshake of TLS that is too large"));
        }
        self.kept.clear();
        self.kept.extend_from_slice(rest);
        if self.outgoing.has_ended && content == 0 { Ok(None) } else { Ok(Some(content)) }
    }

    /// Encrypts bytes to be sent.
    fn seal(&mut self, bytes: &[u8]) -> io::Result<()> {
        /// What a record adds to its content, and how much that is at most.
        const RECORD_BYTES: usize = 16 << 10;
        const OVERHEAD_BYTES: usize = 64;
        let closed = || io::Error::from(io::ErrorKind::NotConnected);
        let session = self.session.as_mut().ok_or_else(closed)?;
        let status = session.process_tls_records(&mut self.kept);
        match status.state.map_err(tls_error)? {
            ConnectionState::WriteTraffic(mut traffic) => {
                let sealed = &mut self.outgoing.bytes;
                let before = sealed.len();
                sealed.resize(before + bytes.len() + (bytes.len() / RECORD_BYTES + 1) * OVERHEAD_BYTES, 0);
                let written = traffic.encrypt(bytes, sealed.get_mut(before..).unwrap_or_default());
                let written = written.map_err(|error: EncryptError| io::Error::other(error.to_string()))?;
                sealed.truncate(before + written);
                Ok(())
            }
            // What had arrived was processed, and all that came of it was sent.
            _ => Err(closed()),
        }
    }

    async fn send(&mut self) -> io::Result<()> {
        let sent = self.stream.write_all(&self.outgoing.bytes).await;
        self.outgoing.bytes = Vec::new();
        sent
    }
}

fn tls_error(error: rustls::Error) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, error)
}

/// Processes all complete records: calls `take` with their content, and returns how many bytes of them are not needed any
/// more.
fn process(
    session: &mut UnbufferedServerConnection,
    records: &mut [u8],
    outgoing: &mut Outgoing,
    mut take: impl FnMut(&[u8]),
) -> io::Result<usize> {
    let mut used = 0;
    loop {
        let UnbufferedStatus { mut discard, state } =
            session.process_tls_records(records.get_mut(used..).unwrap_or_default());
        let is_done = match state.map_err(tls_error)? {
            ConnectionState::ReadTraffic(mut traffic) => {
                while let Some(record) = traffic.next_record() {
                    let record = record.map_err(tls_error)?;
                    discard += record.discard;
                    take(record.payload);
                }
                false
            }
            ConnectionState::EncodeTlsData(mut data) => {
                encode(|space| data.encode(space), &mut outgoing.bytes)?;
                false
            }
            // The caller sends it before anything else.
            ConnectionState::TransmitTlsData(data) => {
                data.done();
                false
            }
            ConnectionState::PeerClosed => {
                outgoing.has_ended = true;
                false
            }
            ConnectionState::Closed => {
                outgoing.has_ended = true;
                true
            }
            ConnectionState::BlockedHandshake | ConnectionState::WriteTraffic(_) => true,
            _ => return Err(io::Error::new(io::ErrorKind::InvalidData, "a message of TLS that is not expected")),
        };
        used += discard;
        if is_done {
            return Ok(used);
        }
    }
}

/// Appends what `encode` writes to the space that it needs.
fn encode(mut encode: impl FnMut(&mut [u8]) -> Result<usize, EncodeError>, out: &mut Vec<u8>) -> io::Result<()> {
    let before = out.len();
    // It says how much it needs.
    let needed = match encode(&mut []) {
        Ok(_) => return Ok(()),
        Err(EncodeError::InsufficientSize(size)) => size.required_size,
        Err(error) => return Err(io::Error::other(error.to_string())),
    };
    out.resize(before + needed, 0);
    let written = encode(out.get_mut(before..).unwrap_or_default());
    let written = written.map_err(|error| io::Error::other(error.to_string()))?;
    out.truncate(before + written);
    Ok(())
}

/// After an error: what TLS has to say about it.
fn alert(session: &mut UnbufferedServerConnection, records: &mut [u8], outgoing: &mut Outgoing) {
    while let Ok(ConnectionState::EncodeTlsData(mut data)) = session.process_tls_records(records).state {
        if encode(|space| data.encode(space), &mut outgoing.bytes).is_err() {
            return;
        }
    }
}
