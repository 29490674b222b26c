//! A client's socket, plain or with TLS, as the connection uses it: it waits for readiness, then reads and writes without waiting.
//!
//! Always true: a read leaves no bytes behind that could be decrypted, so the connection waits only for the socket's
//! readiness; TLS's own messages (handshakes, keys) are sent like other bytes. A plain socket that a read has emptied
//! counts as not ready until the system reports new bytes, so that its connection waits with all others for that
//! report. Left out: the meaning of the bytes.

use rustix::buffer::spare_capacity;
use rustls::pki_types::CertificateDer;
use rustls::{ServerConfig, ServerConnection};
use std::io::{self, Read, Write};
use std::sync::Arc;
use tokio::io::{Interest, Ready};
use tokio::net::TcpStream;

/// Unsent bytes that TLS keeps; more wait in the connection's own buffer.
const TLS_BUFFER_BYTES: usize = 256 << 10;
/// The content of one record of TLS.
pub(crate) const TLS_RECORD_BYTES: usize = 16 << 10;
/// The capacity that is added to a full input buffer before a read.
const MIN_READ_BYTES: usize = 4 << 10;

/// A client's socket.
pub(crate) enum Socket {
    /// Bytes are sent unchanged.
    Plain(TcpStream),
    /// Bytes are encrypted.
    Tls(Box<TlsSocket>),
}

/// A socket and the TLS on it.
pub(crate) struct TlsSocket {
    stream: TcpStream,
    tls: ServerConnection,
    /// Bytes that were accepted and are not sent yet, approximately.
    unsent_bytes: usize,
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
        Ok(Socket::Tls(Box::new(TlsSocket { stream, tls, unsent_bytes: 0 })))
    }

    /// The certificate that the client has shown, which an authority for clients has signed.
    pub(crate) fn certificate(&self) -> Option<&CertificateDer<'static>> {
        match self {
            Socket::Plain(_) => None,
            Socket::Tls(socket) => socket.tls.peer_certificates()?.first(),
        }
    }

    /// Waits until the socket may be read or written.
    pub(crate) async fn ready(&self, interest: Interest) -> io::Result<Ready> {
        match self {
            Socket::Plain(stream) => stream.ready(interest).await,
            Socket::Tls(socket) => socket.stream.ready(interest).await,
        }
    }

    /// Whether accepted bytes have not been sent yet.
    pub(crate) fn has_unsent(&self) -> bool {
        match self {
            Socket::Plain(_) => false,
            Socket::Tls(socket) => socket.tls.wants_write(),
        }
    }

    /// The memory of bytes that were accepted and have not been sent yet.
    pub(crate) fn held_bytes(&self) -> usize {
        match self {
            Socket::Plain(_) => 0,
            Socket::Tls(socket) => socket.unsent_bytes,
        }
    }

    /// How many of `bytes` a write would copy and hold until they are sent.
    pub(crate) fn copied_bytes(&self, bytes: usize) -> usize {
        match self {
            Socket::Plain(_) => 0,
            Socket::Tls(socket) => bytes.min(TLS_BUFFER_BYTES.saturating_sub(socket.unsent_bytes)),
        }
    }

    /// Appends the bytes that have arrived; returns their number, 0 at the end; `WouldBlock` if there are none.
    pub(crate) fn try_read(&mut self, input: &mut Vec<u8>) -> io::Result<usize> {
        match self {
            Socket::Plain(stream) => try_read(stream, input),
            Socket::Tls(socket) => socket.try_read(input),
        }
    }

    /// Accepts bytes to be sent, and returns their number; `WouldBlock` if it accepts none.
    pub(crate) fn try_write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        match self {
            Socket::Plain(stream) => stream.try_write(bytes),
            Socket::Tls(socket) => {
                let taken = socket.tls.writer().write(bytes)?;
                socket.unsent_bytes += taken;
                socket.send()?;
                if taken == 0 { Err(io::ErrorKind::WouldBlock.into()) } else { Ok(taken) }
            }
        }
    }

    /// Sends the bytes that TLS holds, as many as the socket accepts.
    pub(crate) fn flush(&mut self) -> io::Result<()> {
        match self {
            Socket::Plain(_) => Ok(()),
            Socket::Tls(socket) => socket.send(),
        }
    }
}

/// Appends the bytes that have arrived to `input`, as long as it has capacity. If that empties the socket, the stream
/// is no longer ready: with edge-triggered events the next bytes are reported, and a futile read is saved.
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
                Ok(sent) => self.unsent_bytes = self.unsent_bytes.saturating_sub(sent),
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => return Ok(()),
                Err(error) => return Err(error),
            }
        }
        self.unsent_bytes = 0;
        Ok(())
    }

    fn try_read(&mut self, input: &mut Vec<u8>) -> io::Result<usize> {
        let received = self.tls.read_tls(&mut Now(&self.stream))?;
        let processed = self.tls.process_new_packets();
        // The alert reports the error to the client.
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
            // The bytes were TLS's own, or the peer has closed its side.
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
    use rustls::client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier};
    use rustls::crypto::ring;
    use rustls::pki_types::pem::PemObject;
    use rustls::pki_types::{CertificateDer, PrivateKeyDer, ServerName, UnixTime};
    use rustls::{ClientConfig, ClientConnection, DigitallySignedStruct, SignatureScheme};
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

    /// A certificate for tests; its content is not checked.
    const CERTIFICATE: &str = "-----BEGIN CERTIFICATE-----\n\
MIIBkjCCATigAwIBAgIUOp/huUmyiv2dEv8Pw/bY5t9YTXIwCgYIKoZIzj0EAwIw\n\
FDESMBAGA1UEAwwJbG9jYWxob3N0MCAXDTI2MTEyNDIzMjU0NVoYDzIxMjYxMDMx\n\
MjMyNTQ1WjAUMRIwEAYDVQQDDAlsb2NhbGhvc3QwWTATBgcqhkjOPQIBBggqhkjO\n\
PQMBBwNCAAQfRNc6Nke8cccuksFvH/YiMZjZ1a0kPGoCsMVl5FUyMJLNNRCSCCQ/\n\
YtaZRL0zy8Qt2uPcojp/JbrREkhVtTLTo2YwZDAdBgNVHQ4EFgQU8BoGjqlt/3TS\n\
TrDjm6ebVTptUcAwHwYDVR0jBBgwFoAU8BoGjqlt/3TSTrDjm6ebVTptUcAwFAYD\n\
VR0RBA0wC4IJbG9jYWxob3N0MAwGA1UdEwEB/wQCMAAwCgYIKoZIzj0EAwIDSAAw\n\
RQIhAIi3UbsZAy/loD0DTxv7XCQMV6lD7/WkQoYcjcELNuMeAiBCpSzsmMkm8Zbt\n\
iI7W0EXE7qfeXk+FNmfub0HO2AV5hw==\n\
-----END CERTIFICATE-----\n";
    const KEY: &str = "-----BEGIN PRIVATE KEY-----\n\
MIGHAgEAMBMGByqGSM49AgEGCCqGSM49AwEHBG0wawIBAQQgHlRIUJWuNIjH+Fl7\n\
KLj7omqaAw92NseZT/wKVvDCoG+hRANCAAQfRNc6Nke8cccuksFvH/YiMZjZ1a0k\n\
PGoCsMVl5FUyMJLNNRCSCCQ/YtaZRL0zy8Qt2uPcojp/JbrREkhVtTLT\n\
-----END PRIVATE KEY-----\n";

    /// A client that believes any server.
    #[derive(Debug)]
    struct Anybody;

    impl ServerCertVerifier for Anybody {
        fn verify_server_cert(
            &self,
            _certificate: &CertificateDer<'_>,
            _others: &[CertificateDer<'_>],
            _name: &ServerName<'_>,
            _ocsp: &[u8],
            _now: UnixTime,
        ) -> Result<ServerCertVerified, rustls::Error> {
            Ok(ServerCertVerified::assertion())
        }

        fn verify_tls12_signature(
            &self,
            _message: &[u8],
            _certificate: &CertificateDer<'_>,
            _signed: &DigitallySignedStruct,
        ) -> Result<HandshakeSignatureValid, rustls::Error> {
            Ok(HandshakeSignatureValid::assertion())
        }

        fn verify_tls13_signature(
            &self,
            _message: &[u8],
            _certificate: &CertificateDer<'_>,
            _signed: &DigitallySignedStruct,
        ) -> Result<HandshakeSignatureValid, rustls::Error> {
            Ok(HandshakeSignatureValid::assertion())
        }

        fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
            ring::default_provider().signature_verification_algorithms.supported_schemes()
        }
    }

    /// A socket whose handshake is done, and its client.
    async fn encrypted(server: TcpStream, client: TcpStream) -> (Socket, TlsClient) {
        let certificate = CertificateDer::from_pem_slice(CERTIFICATE.as_bytes()).unwrap();
        let key = PrivateKeyDer::from_pem_slice(KEY.as_bytes()).unwrap();
        let provider = Arc::new(ring::default_provider());
        let config = ServerConfig::builder_with_provider(Arc::clone(&provider));
        let config = config.with_safe_default_protocol_versions().unwrap().with_no_client_auth();
        let mut socket =
            Socket::tls(server, Arc::new(config.with_single_cert(vec![certificate], key).unwrap())).unwrap();
        let config = ClientConfig::builder_with_provider(provider).with_safe_default_protocol_versions().unwrap();
        let config = config.dangerous().with_custom_certificate_verifier(Arc::new(Anybody)).with_no_client_auth();
        let tls = ClientConnection::new(Arc::new(config), "localhost".try_into().unwrap()).unwrap();
        let mut client = TlsClient { stream: client, tls, received: 0 };
        let is_handshaking = |socket: &Socket| matches!(socket, Socket::Tls(socket) if socket.tls.is_handshaking());
        while client.tls.is_handshaking() || is_handshaking(&socket) || socket.has_unsent() {
            tokio::task::yield_now().await;
            client.step();
            match socket.try_read(&mut Vec::new()) {
                Err(error) => assert_eq!(error.kind(), io::ErrorKind::WouldBlock),
                Ok(count) => assert_eq!(count, 0),
            }
            client.step();
        }
        (socket, client)
    }

    struct TlsClient {
        stream: TcpStream,
        tls: ClientConnection,
        received: usize,
    }

    impl TlsClient {
        /// Sends and receives as much as is possible without waiting.
        fn step(&mut self) {
            while self.tls.wants_write() && self.tls.write_tls(&mut Now(&self.stream)).is_ok() {}
            while self.tls.read_tls(&mut Now(&self.stream)).is_ok_and(|count| count > 0) {
                let state = self.tls.process_new_packets().unwrap();
                let mut plain = vec![0; state.plaintext_bytes_to_read()];
                self.tls.reader().read_exact(&mut plain).unwrap();
                self.received += plain.len();
            }
        }
    }

    #[tokio::test]
    async fn what_tls_has_taken_and_not_sent_is_known() {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let client = TcpStream::connect(listener.local_addr().unwrap()).await.unwrap();
        let server = listener.accept().await.unwrap().0;
        let (mut socket, mut client) = encrypted(server, client).await;
        assert_eq!((socket.held_bytes(), socket.copied_bytes(usize::MAX)), (0, TLS_BUFFER_BYTES));
        // The client does not read: the system buffers some of it, TLS the rest.
        let mut taken = 0;
        loop {
            match socket.try_write(&[7; 100_000]) {
                Ok(count) => taken += count,
                Err(error) => break assert_eq!(error.kind(), io::ErrorKind::WouldBlock),
            }
        }
        assert!(socket.held_bytes() > TLS_BUFFER_BYTES / 2, "{} bytes", socket.held_bytes());
        assert!(socket.copied_bytes(usize::MAX) < TLS_BUFFER_BYTES / 2);
        while client.received < taken {
            client.step();
            socket.flush().unwrap();
            tokio::task::yield_now().await;
        }
        assert_eq!((client.received, socket.held_bytes()), (taken, 0));
    }
}
