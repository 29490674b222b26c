//! A client's socket, plain or with TLS, as the connection uses it: it waits for readiness, then reads and writes without waiting.
//!
//! Always true: after a read nothing that could be decrypted is left behind, so readiness of the socket is all there is to wait for; what TLS itself has to send
//! (handshakes, keys) goes out like any other bytes. A plain socket that a read has emptied counts as not ready until the system reports new bytes, so that its
//! connection waits with all others for that report. Left out: what the bytes mean.

use rustix::buffer::spare_capacity;
use rustls::{ServerConfig, ServerConnection};
use std::io::{self, Read, Write};
use std::sync::Arc;
use tokio::io::{Interest, Ready};
use tokio::net::TcpStream;

/// Unsent bytes that TLS keeps; more wait in the connection's own buffer.
const TLS_BUFFER_BYTES: usize = 256 << 10;
/// Room for a read where there is none.
const MIN_READ_BYTES: usize = 4 << 10;

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
            Socket::Plain(stream) => try_read(stream, input),
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

/// Appends what has arrived to `input`, as far as there is room. If that empties the socket, the stream is no longer ready: with edge-triggered events the next
/// bytes are reported, and a further read, in vain, is saved.
fn try_read(stream: &TcpStream, input: &mut Vec<u8>) -> io::Result<usize> {
    if input.len() == input.capacity() {
        input.reserve(MIN_READ_BYTES);
    }
    let room = input.capacity() - input.len();
    let mut drained = None;
    let read = stream.try_io(Interest::READABLE, || {
        let count = rustix::io::read(stream, spare_capacity(input))?;
        if count == 0 || count == room {
            return Ok(count);
        }
        drained = Some(count);
        Err(io::ErrorKind::WouldBlock.into())
    });
    drained.map_or(read, Ok)
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

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "a failed unwrap is a failed test")]

    use super::*;
    use futures::FutureExt;
    use tokio::io::AsyncWriteExt;
    use tokio::net::TcpListener;

    async fn pair() -> (Socket, TcpStream) {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let client = TcpStream::connect(listener.local_addr().unwrap()).await.unwrap();
        (Socket::Plain(listener.accept().await.unwrap().0), client)
    }

    fn is_ready(socket: &Socket) -> bool {
        socket.ready(Interest::READABLE).now_or_never().is_some()
    }

    #[tokio::test]
    async fn a_socket_that_a_read_has_emptied_is_not_ready_until_more_arrives() {
        let (mut socket, mut client) = pair().await;
        for round in 0..3u8 {
            client.write_all(&[round; 100]).await.unwrap();
            socket.ready(Interest::READABLE).await.unwrap();
            let mut input = Vec::with_capacity(64);
            assert_eq!(socket.try_read(&mut input).unwrap(), 64);
            assert!(is_ready(&socket), "there was no room for the rest");
            input.reserve_exact(64);
            assert_eq!(socket.try_read(&mut input).unwrap(), 36);
            assert_eq!(input, [round; 100]);
            assert!(!is_ready(&socket), "it is empty");
        }
    }

    #[tokio::test]
    async fn the_end_is_seen_after_the_last_bytes_and_without_room() {
        let (mut socket, mut client) = pair().await;
        client.write_all(b"bye").await.unwrap();
        drop(client);
        let mut input = Vec::new();
        while input.len() < 3 {
            socket.ready(Interest::READABLE).await.unwrap();
            assert_ne!(socket.try_read(&mut input).unwrap(), 0);
        }
        loop {
            socket.ready(Interest::READABLE).await.unwrap();
            match socket.try_read(&mut Vec::new()) {
                Ok(count) => break assert_eq!(count, 0),
                Err(error) => assert_eq!(error.kind(), io::ErrorKind::WouldBlock),
            }
        }
    }
}
