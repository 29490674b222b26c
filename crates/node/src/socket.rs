//! A client's socket, plain or with TLS, as the connection uses it: it waits for readiness, then reads and writes without waiting.
//!
//! Always true: after a read nothing that could be decrypted is left behind, so readiness of the socket is all there is to wait for; what TLS itself has to send
//! (handshakes, keys) goes out like any other bytes. Left out: what the bytes mean.

use rustls::{ServerConfig, ServerConnection};
use std::io::{self, Read, Write};
use std::sync::Arc;
use tokio::io::{Interest, Ready};
use tokio::net::TcpStream;

/// Unsent bytes that TLS keeps; more wait in the connection's own buffer.
const TLS_BUFFER_BYTES: usize = 256 << 10;

/// A client's socket.
pub(crate) enum Socket {
    /// Bytes go as they are.
    Plain(TcpStream),
    /// Bytes go through TLS.
    Tls(Box<TlsSocket>),
}

/// A socket and the TLS on it.
pub(crate) struct TlsSocket {
    stream: TcpStream,
    tls: ServerConnection,
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

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

impl Socket {
    /// A socket that speaks TLS.
    pub(crate) fn tls(stream: TcpStream, config: Arc<ServerConfig>) -> io::Result<Self> {
        let mut tls = ServerConnection::new(config).map_err(io::Error::other)?;
        tls.set_buffer_limit(Some(TLS_BUFFER_BYTES));
        Ok(Socket::Tls(Box::new(TlsSocket { stream, tls })))
    }

    /// Waits until the socket may be read or written.
    pub(crate) async fn ready(&self, interest: Interest) -> io::Result<Ready> {
        match self {
            Socket::Plain(stream) => stream.ready(interest).await,
            Socket::Tls(socket) => socket.stream.ready(interest).await,
        }
    }

    /// Whether bytes that were taken have not been sent yet.
    pub(crate) fn has_unsent(&self) -> bool {
        match self {
            Socket::Plain(_) => false,
            Socket::Tls(socket) => socket.tls.wants_write(),
        }
    }

    /// Appends what has arrived: how many bytes, 0 at the end; `WouldBlock` if there is nothing.
    pub(crate) fn try_read(&mut self, input: &mut Vec<u8>) -> io::Result<usize> {
        match self {
            Socket::Plain(stream) => stream.try_read_buf(input),
            Socket::Tls(socket) => socket.try_read(input),
        }
    }

    /// Takes bytes to be sent: how many; `WouldBlock` if none.
    pub(crate) fn try_write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        match self {
            Socket::Plain(stream) => stream.try_write(bytes),
            Socket::Tls(socket) => {
                let taken = socket.tls.writer().write(bytes)?;
                socket.send()?;
                if taken == 0 { Err(io::ErrorKind::WouldBlock.into()) } else { Ok(taken) }
            }
        }
    }

    /// Sends what TLS still holds, as far as the socket takes it.
    pub(crate) fn flush(&mut self) -> io::Result<()> {
        match self {
            Socket::Plain(_) => Ok(()),
            Socket::Tls(socket) => socket.send(),
        }
    }
}

impl TlsSocket {
    fn send(&mut self) -> io::Result<()> {
        while self.tls.wants_write() {
            match self.tls.write_tls(&mut Now(&self.stream)) {
                Ok(_) => {}
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => break,
                Err(error) => return Err(error),
            }
        }
        Ok(())
    }

    fn try_read(&mut self, input: &mut Vec<u8>) -> io::Result<usize> {
        let received = self.tls.read_tls(&mut Now(&self.stream))?;
        let processed = self.tls.process_new_packets();
        // An alert says to the client what was wrong.
        self.send()?;
        processed.map_err(io::Error::other)?;
        let before = input.len();
        let mut chunk = [0u8; 16 << 10];
        loop {
            match self.tls.reader().read(&mut chunk) {
                Ok(0) => break,
                Ok(count) => input.extend_from_slice(&chunk[..count]),
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => break,
                Err(error) => return Err(error),
            }
        }
        match input.len() - before {
            // Bytes of TLS alone, or the end.
            0 if received > 0 => Err(io::ErrorKind::WouldBlock.into()),
            count => Ok(count),
        }
    }
}
