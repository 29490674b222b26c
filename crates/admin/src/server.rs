//! The HTTP port's connections: their number, and the limits of time and size for what they send.
//!
//! Always true: no client can hold the port: a request must send its head and its body in time, an idle connection is
//! closed, and so is one whose client does not read the answer; input that cannot be HTTP is answered with 400 at its
//! first wrong byte. Connections are bounded in all and per source; one over the limit is answered with 503. The log
//! has one line per source and minute. Left out: the answers (the routes), names.

mod encrypted;
mod first_bytes;
#[cfg(test)]
mod tests;

pub(crate) use self::encrypted::SPEAKS_TLS;
use crate::gate::{Ends, Secured};
use crate::refusals::in_json;
use axum::Router;
use axum::body::{Body, HttpBody, to_bytes};
use axum::extract::Request;
use axum::http::{HeaderValue, StatusCode, header};
use axum::middleware::{Next, from_fn};
use axum::response::{IntoResponse, Response};
use diorite_base::Clock;
use diorite_base::connections::{ConnectionLimits, Connections, LogLimit};
use first_bytes::FirstBytes;
use hyper::body::Incoming;
use hyper::server::conn::http1;
use hyper::service::{Service as _, service_fn};
use hyper_util::rt::{TokioIo, TokioTimer};
use hyper_util::service::TowerToHyperService;
use parking_lot::Mutex;
use rustls::ServerConfig;
use std::fmt::Display;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::watch;
use tokio::task::JoinSet;
use tokio::time::timeout;

/// Limits of the port.
#[derive(Clone, Copy, Debug)]
pub struct ServerLimits {
    /// The number of connections.
    pub connections: ConnectionLimits,
    /// How long the head of a request may take, counted from when its connection became idle; also the limit for idle
    /// connections.
    pub head: Duration,
    /// How long a body may take.
    pub body: Duration,
    /// How long a client may read no byte of an answer.
    pub write: Duration,
    /// How long a stop waits for requests in progress.
    pub stop: Duration,
    /// The size of the head of a request.
    pub head_bytes: usize,
    /// The size of a body.
    pub body_bytes: usize,
}

impl Default for ServerLimits {
    fn default() -> Self {
        Self {
            connections: ConnectionLimits { total: 256, per_source: 64 },
            // Longer than the interval at which pages reload, so that they keep their connections.
            head: Duration::from_secs(10),
            body: Duration::from_secs(10),
            write: Duration::from_secs(30),
            stop: Duration::from_secs(5),
            head_bytes: 16 << 10,
            body_bytes: 64 << 10,
        }
    }
}

/// What TLS speaks with the next connection.
pub type TlsConfigs = Arc<dyn Fn() -> Arc<ServerConfig> + Send + Sync>;

struct Port {
    limits: ServerLimits,
    routes: Router,
    /// Connections have to speak TLS.
    tls: Option<TlsConfigs>,
    clock: Arc<dyn Clock>,
    open: Mutex<Connections<()>>,
    log: Mutex<LogLimit>,
    stop: watch::Receiver<bool>,
}

/// The place of a connection within the limit, until this is dropped.
struct Place {
    port: Arc<Port>,
    id: u64,
}

impl Drop for Place {
    fn drop(&mut self) {
        self.port.open.lock().remove(self.id);
    }
}

/// Serves `routes` until `stop`, by TLS if that is given.
pub async fn serve(
    listener: TcpListener,
    routes: Router,
    tls: Option<TlsConfigs>,
    limits: ServerLimits,
    clock: Arc<dyn Clock>,
    mut stop: watch::Receiver<bool>,
) {
    let routes = routes.layer(from_fn(move |request, next| bounded(limits, request, next))).layer(from_fn(in_json));
    let (open, log) = (Mutex::new(Connections::new(limits.connections)), Mutex::default());
    let port = Arc::new(Port { limits, routes, tls, clock, open, log, stop: stop.clone() });
    let mut connections = JoinSet::new();
    loop {
        let accepted = tokio::select! {
            accepted = listener.accept() => accepted,
            Some(_) = connections.join_next(), if !connections.is_empty() => continue,
            // The sender is dropped only when the node ends.
            _ = stop.wait_for(|stop| *stop) => break,
        };
        match accepted {
            Ok((stream, from)) => match port.place(from) {
                Some(place) => drop(connections.spawn(serve_one(place, stream, from))),
                None => refuse(&stream),
            },
            Err(error) => {
                // Probably no file descriptors are left: other connections must close first.
                tracing::warn!(%error, "cannot accept a connection to the HTTP port");
                let _ = timeout(Duration::from_millis(50), std::future::pending::<()>()).await;
            }
        }
    }
    drop(listener);
    let ended = async { while connections.join_next().await.is_some() {} };
    let _ = timeout(limits.stop, ended).await;
}

/// Answers a connection over the limit, as far as its socket accepts the bytes at once.
fn refuse(stream: &TcpStream) {
    let _ = stream.try_write(b"HTTP/1.1 503 Service Unavailable\r\nconnection: close\r\ncontent-length: 0\r\n\r\n");
}

impl Port {
    fn place(self: &Arc<Self>, from: SocketAddr) -> Option<Place> {
        let mut open = self.open.lock();
        if open.check(from.ip().into()).is_err() {
            drop(open);
            self.log(from, &"too many connections at once");
            return None;
        }
        let id = open.add(from.ip().into(), ());
        Some(Place { port: Arc::clone(self), id })
    }

    /// Logs a closed connection. The rate is limited, whatever connects to the port.
    fn log(&self, from: SocketAddr, why: &dyn Display) {
        if self.log.lock().may_log(from.ip().into(), self.clock.monotonic_ns()) {
            tracing::warn!(%from, %why, "a connection to the HTTP port was closed; no further line about its address for a minute");
        }
    }
}

async fn serve_one(place: Place, stream: TcpStream, from: SocketAddr) {
    let Port { limits, tls, .. } = &*place.port;
    let socket = socket2::SockRef::from(&stream);
    let set = socket.set_tcp_user_timeout(Some(limits.write)).and_then(|()| socket.set_tcp_nodelay(true));
    let ends = match set.and_then(|()| stream.local_addr()) {
        Ok(node) => Ends { client: from, node },
        Err(error) => return place.port.log(from, &error),
    };
    let Some(configs) = tls else { return speak(&place, ends, None, stream).await };
    match timeout(limits.head, encrypted::accept(stream, configs())).await {
        Ok(Ok((stream, secured))) => speak(&place, ends, Some(secured), stream).await,
        Ok(Err(error)) => place.port.log(from, &error),
        Err(_) => place.port.log(from, &"no TLS handshake in time"),
    }
}

/// Speaks HTTP on a connection.
async fn speak(
    place: &Place,
    ends: Ends,
    secured: Option<Secured>,
    stream: impl AsyncRead + AsyncWrite + Unpin + Send + 'static,
) {
    let Port { limits, routes, stop, .. } = &*place.port;
    let mut builder = http1::Builder::new();
    builder.timer(TokioTimer::new()).header_read_timeout(limits.head).max_buf_size(limits.head_bytes);
    let routes = TowerToHyperService::new(routes.clone());
    let service = service_fn(move |mut request: hyper::Request<Incoming>| {
        request.extensions_mut().insert(ends);
        secured.clone().map(|secured| request.extensions_mut().insert(secured));
        routes.call(request)
    });
    let connection = builder.serve_connection(TokioIo::new(FirstBytes::new(stream)), service);
    let mut connection = std::pin::pin!(connection);
    let mut stop = stop.clone();
    let stopped = async { drop(stop.wait_for(|stop| *stop).await) };
    let ended = tokio::select! {
        ended = connection.as_mut() => Some(ended),
        () = stopped => None,
    };
    let ended = match ended {
        Some(ended) => ended,
        None => {
            connection.as_mut().graceful_shutdown();
            connection.await
        }
    };
    match ended {
        // An idle connection ends in this way too.
        Err(error) if error.is_parse() => place.port.log(ends.client, &error),
        Ok(()) | Err(_) => {}
    }
}

/// Reads the whole body of a request before the request is handled.
async fn bounded(limits: ServerLimits, request: Request, next: Next) -> Response {
    if request.body().is_end_stream() {
        return next.run(request).await;
    }
    if request.body().size_hint().lower() > limits.body_bytes as u64 {
        return refused(StatusCode::PAYLOAD_TOO_LARGE, format!("a body has at most {} bytes\n", limits.body_bytes));
    }
    let (head, body) = request.into_parts();
    match timeout(limits.body, to_bytes(body, limits.body_bytes)).await {
        Ok(Ok(bytes)) => next.run(Request::from_parts(head, Body::from(bytes))).await,
        Ok(Err(error)) => refused(StatusCode::PAYLOAD_TOO_LARGE, format!("the body: {error}\n")),
        Err(_) => {
            refused(StatusCode::REQUEST_TIMEOUT, format!("a body takes at most {} ms\n", limits.body.as_millis()))
        }
    }
}

/// An answer that closes the connection, since the rest of the request is not read.
fn refused(status: StatusCode, message: String) -> Response {
    ([(header::CONNECTION, HeaderValue::from_static("close"))], (status, message)).into_response()
}
