//! The TLS handshake of a connection to the HTTP port.
//!
//! Always true: a client that does not speak TLS is told so in plain HTTP, and nothing that it sends is read. Left out: which certificates are
//! shown and accepted (the node).

use crate::gate::Secured;
use rustls::ServerConfig;
use std::io;
use std::sync::Arc;
use tokio::net::TcpStream;
use tokio_rustls::TlsAcceptor;
use tokio_rustls::server::TlsStream;

/// The first byte of a connection that speaks TLS.
const HANDSHAKE: u8 = 22;
/// The text for a client that does not speak TLS.
pub(crate) const SPEAKS_TLS: &str = "this port speaks TLS: use https://\n";

/// Completes the handshake.
pub(super) async fn accept(
    stream: TcpStream,
    config: Arc<ServerConfig>,
) -> io::Result<(TlsStream<TcpStream>, Secured)> {
    let mut first = [0];
    if stream.peek(&mut first).await? > 0 && first[0] != HANDSHAKE {
        let head = "HTTP/1.1 400 Bad Request\r\nconnection: close\r\ncontent-type: text/plain\r\ncontent-length";
        let _ = stream.try_write(format!("{head}: {}\r\n\r\n{SPEAKS_TLS}", SPEAKS_TLS.len()).as_bytes());
        return Err(io::Error::other("the client does not speak TLS"));
    }
    let stream = TlsAcceptor::from(config).accept(stream).await?;
    let shown = stream.get_ref().1.peer_certificates();
    let certificate = shown.and_then(|chain| chain.first()).map(|first| first.clone().into_owned());
    Ok((stream, Secured { certificate }))
}
