//! The dialling end of a connection: a socket, plain or with TLS, that sends frames and receives an answer.
//!
//! Always true: with TLS, bytes are encrypted as they are given, whole batches of frames at a time, and what the socket
//! does not take stays within [`SEALED_BYTES`]; bytes are taken only when those before them have left. After an error
//! nothing more is sent, so no part of a later batch follows a gap. Left out: what waits beyond that, which is the pipe's.

use crate::frame::Incoming;
use parking_lot::Mutex;
use rustls::pki_types::ServerName;
use rustls::{ClientConfig, ClientConnection, IoState};
use std::io::{self, Read, Write};
use std::net::IpAddr;
use std::sync::Arc;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;

/// So many bytes are encrypted at a time, and wait until the socket has taken them.
const SEALED_BYTES: usize = 256 << 10;

/// What takes bytes without waiting: a socket, but for tests.
pub(crate) trait TryWrite {
    /// Takes some of the bytes, at least one if there are any. An error means that no part of them was sent.
    fn try_write(&self, bytes: &[u8]) -> io::Result<usize>;

    /// Whether bytes that were taken have not been sent yet.
    fn has_unsent(&self) -> bool {
        false
    }
}

/// See the top of this module.
pub(crate) enum Dialled {
    Plain(TcpStream),
    Tls(Box<TlsDialled>),
}

/// A socket and the TLS on it.
pub(crate) struct TlsDialled {
    stream: TcpStream,
    session: Mutex<Session>,
}

struct Session {
    tls: ClientConnection,
    has_failed: bool,
}

/// Reads and writes without waiting.
struct Now<'s>(&'s TcpStream);

impl Read for Now<'_> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        self.0.try_read(buffer)
    }
}

impl Write for Now<'_> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.0.try_write(bytes)
    }

    fn write_vectored(&mut self, parts: &[io::IoSlice<'_>]) -> io::Result<usize> {
        self.0.try_write_vectored(parts)
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

fn would_block(error: &io::Error) -> bool {
    error.kind() == io::ErrorKind::WouldBlock
}

impl Dialled {
    /// Takes a connected socket; with TLS, once both sides have shown their certificates.
    pub(crate) async fn open(stream: TcpStream, to: IpAddr, tls: Option<&Arc<ClientConfig>>) -> io::Result<Self> {
        let Some(config) = tls else { return Ok(Self::Plain(stream)) };
        let name = ServerName::from(to.to_canonical());
        let mut tls = ClientConnection::new(Arc::clone(config), name).map_err(io::Error::other)?;
        tls.set_buffer_limit(Some(SEALED_BYTES));
        let mut dialled = TlsDialled { stream, session: Mutex::new(Session { tls, has_failed: false }) };
        dialled.shake_hands().await?;
        Ok(Self::Tls(Box::new(dialled)))
    }

    /// Sends all of the bytes.
    pub(crate) async fn write_all(&mut self, bytes: &[u8]) -> io::Result<()> {
        let tls = match self {
            Self::Plain(stream) => return stream.write_all(bytes).await,
            Self::Tls(tls) => tls,
        };
        let mut rest = bytes;
        while !rest.is_empty() || tls.has_unsent() {
            match tls.try_write(rest) {
                Ok(taken) => rest = rest.get(taken..).unwrap_or_default(),
                Err(error) if would_block(&error) => {}
                Err(error) => return Err(error),
            }
            if tls.has_unsent() {
                tls.stream.writable().await?;
            }
        }
        Ok(())
    }

    /// Appends what arrives; 0 at the end.
    pub(crate) async fn read(&mut self, incoming: &mut Incoming) -> io::Result<usize> {
        let tls = match self {
            Self::Plain(stream) => return stream.read_buf(incoming.space()).await,
            Self::Tls(tls) => tls,
        };
        loop {
            tls.stream.readable().await?;
            let session = tls.session.get_mut();
            match session.receive(&tls.stream) {
                Ok(state) => match session.take(&state, incoming)? {
                    0 if state.peer_has_closed() => return Ok(0),
                    0 => {}
                    count => return Ok(count),
                },
                Err(error) if would_block(&error) => {}
                Err(error) if error.kind() == io::ErrorKind::UnexpectedEof => return Ok(0),
                Err(error) => return Err(error),
            }
        }
    }

    /// Waits until the socket takes bytes.
    pub(crate) async fn writable(&self) -> io::Result<()> {
        match self {
            Self::Plain(stream) => stream.writable().await,
            Self::Tls(tls) => tls.stream.writable().await,
        }
    }

    /// Waits until the other side closes, which is all that it may do.
    pub(crate) async fn closed(&self) -> io::Error {
        let ended = match self {
            Self::Plain(stream) => closed(stream).await,
            Self::Tls(tls) => tls.closed().await,
        };
        ended.err().unwrap_or_else(|| io::Error::new(io::ErrorKind::InvalidData, "the listening side does not send"))
    }
}

impl TryWrite for Dialled {
    fn try_write(&self, bytes: &[u8]) -> io::Result<usize> {
        match self {
            Self::Plain(stream) => stream.try_write(bytes),
            Self::Tls(tls) => tls.try_write(bytes),
        }
    }

    fn has_unsent(&self) -> bool {
        match self {
            Self::Plain(_) => false,
            Self::Tls(tls) => tls.has_unsent(),
        }
    }
}

/// An error unless the other side sends something.
async fn closed(stream: &TcpStream) -> io::Result<()> {
    loop {
        stream.readable().await?;
        match stream.try_read(&mut [0; 16]) {
            Ok(0) => return Err(io::ErrorKind::UnexpectedEof.into()),
            Ok(_) => return Ok(()),
            Err(error) if would_block(&error) => {}
            Err(error) => return Err(error),
        }
    }
}

impl TlsDialled {
    async fn shake_hands(&mut self) -> io::Result<()> {
        let session = self.session.get_mut();
        while session.tls.is_handshaking() || session.tls.wants_write() {
            match session.flush(&self.stream) {
                Ok(_) => {}
                Err(error) if would_block(&error) => self.stream.writable().await?,
                Err(error) => return Err(error),
            }
            if !session.tls.is_handshaking() || session.tls.wants_write() {
                continue;
            }
            self.stream.readable().await?;
            match session.receive(&self.stream) {
                Err(error) if error.kind() == io::ErrorKind::UnexpectedEof => {
                    let why = "it was closed in the TLS handshake; perhaps the node there runs without certificates";
                    return Err(io::Error::new(io::ErrorKind::UnexpectedEof, why));
                }
                Err(error) if !would_block(&error) => return Err(error),
                _ => {}
            }
        }
        Ok(())
    }

    /// Takes bytes once those before them have left. An error means that no part of these was sent.
    fn try_write(&self, bytes: &[u8]) -> io::Result<usize> {
        let mut session = self.session.lock();
        session.flush(&self.stream)?;
        let taken = session.tls.writer().write(bytes)?;
        let mut sent = 0;
        loop {
            match session.send(&self.stream) {
                Ok(0) => return Ok(taken),
                Ok(count) => sent += count,
                Err(error) if would_block(&error) => return Ok(taken),
                Err(error) if sent == 0 => return Err(error),
                // A part has left: the next write reports the error.
                Err(_) => return Ok(taken),
            }
        }
    }

    fn has_unsent(&self) -> bool {
        self.session.lock().tls.wants_write()
    }

    async fn closed(&self) -> io::Result<()> {
        loop {
            self.stream.readable().await?;
            let received = {
                let mut session = self.session.lock();
                let received = session.receive(&self.stream);
                // A change of keys is answered. What the socket does not take now leaves before the next frame.
                match session.flush(&self.stream) {
                    Err(error) if !would_block(&error) => return Err(error),
                    _ => received,
                }
            };
            match received {
                Ok(state) if state.plaintext_bytes_to_read() > 0 => return Ok(()),
                Ok(state) if state.peer_has_closed() => return Err(io::ErrorKind::UnexpectedEof.into()),
                Ok(_) => {}
                Err(error) if would_block(&error) => continue,
                Err(error) => return Err(error),
            }
            // Messages of TLS without content: however many come, others have their turn.
            tokio::task::yield_now().await;
        }
    }
}

impl Session {
    /// Sends once; 0 if there is nothing to send.
    fn send(&mut self, stream: &TcpStream) -> io::Result<usize> {
        if self.has_failed {
            return Err(io::ErrorKind::BrokenPipe.into());
        }
        if !self.tls.wants_write() {
            return Ok(0);
        }
        let sent = self.tls.write_tls(&mut Now(stream));
        self.has_failed = sent.as_ref().is_err_and(|error| !would_block(error));
        sent
    }

    /// Sends all that is encrypted; `WouldBlock` if some of it stays.
    fn flush(&mut self, stream: &TcpStream) -> io::Result<()> {
        while self.send(stream)? > 0 {}
        Ok(())
    }

    /// Reads once, at most a few KiB.
    fn receive(&mut self, stream: &TcpStream) -> io::Result<IoState> {
        if self.tls.read_tls(&mut Now(stream))? == 0 {
            return Err(io::ErrorKind::UnexpectedEof.into());
        }
        self.tls.process_new_packets().map_err(|error| {
            // The other side learns why, if it can be sent at once.
            let _ = self.flush(stream);
            io::Error::new(io::ErrorKind::InvalidData, error)
        })
    }

    fn take(&mut self, state: &IoState, incoming: &mut Incoming) -> io::Result<usize> {
        let count = state.plaintext_bytes_to_read();
        let space = incoming.space();
        let before = space.len();
        space.resize(before + count, 0);
        self.tls.reader().read_exact(space.get_mut(before..).unwrap_or_default())?;
        Ok(count)
    }
}
